"""Whether a pooler in front of Postgres gives each client a server session of its own.

Our sessions have settings, LISTEN, locks and prepared statements. So each needs a server session that no
other client uses meanwhile, and that is reset before the next client gets it: a pool in session mode. In
transaction mode our settings would reach other clients; `synchronous_commit = off` would cost them commits.

That a pooler is there shows at once: Postgres tells a client the process id of its backend, and a pooler
makes up another. No pooler tells a mere client the mode of the pool; two clients that watch each other find
it out. They change nothing: they set nothing, prepare nothing, and begin no transaction.
"""

from __future__ import annotations

import re
import select
import threading
import time
from enum import Enum, auto
from typing import Self
from uuid import uuid4

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus

from pytube.errors import PooledSession

_HOLDS = 60.0
"""Seconds for which a proof holds: the mode of a pool can be changed while it runs."""
_ANSWER_LIMIT = 5.0
_WAITING = 1.0
"""Seconds without an answer after which a client counts as waiting for a server session."""
_ROUNDS = 3
_TRIES = 10
_RESET_LIMIT = 2.0
"""Seconds within which a session must be reset after its client has left."""
_END_LIMIT = 0.8
"""Seconds within which it may be ended instead; a pool of any mode may end one that was idle for longer."""
_LOOK = 0.01
_RESET = re.compile(r"\b(DISCARD|RESET)\s+ALL\b", re.IGNORECASE)

_lock = threading.Lock()
_proofs: dict[str, float] = {}
"""When each connection string was last proven to lead to sessions of our own."""


class _Finding(Enum):
    OWN = auto()
    """Each client has a session of its own, which is reset when the client leaves."""
    SHARED = auto()
    """A client was given another session between two statements, or another client used its session."""
    NOT_RESET = auto()
    """A session stayed as its client had left it."""
    UNSEEN = auto()
    """Others were too quick, or this machine too slow, for anything to be seen."""


def address(connection: psycopg.Connection | psycopg.AsyncConnection) -> str:
    """`host:port` of the server or pooler, for messages."""
    info = connection.info
    return f"{info.host or info.hostaddr or 'localhost'}:{info.port}"


def is_proven(conninfo: str) -> bool:
    """Whether the pooler behind `conninfo` was lately seen to give each client a session of its own."""
    return time.monotonic() - _proofs.get(conninfo, float("-inf")) < _HOLDS


def prove(conninfo: str, where: str) -> None:
    """Find out whether a pooler gives each client a session of its own.

    Args:
        conninfo: leads to the pooler, whose pool should have two sessions to spare; one is enough.
        where: the pooler's address, for the message.

    Raises:
        PooledSession: it does not, or was not seen to.
        psycopg.Error: the pooler or Postgres does not answer.
    """
    with _lock:  # in a small pool, two proofs would wait for each other's sessions
        if is_proven(conninfo):
            return
        tries = 1
        while (finding := _watch(conninfo)) is _Finding.UNSEEN and tries < _TRIES:
            tries += 1
        if finding is not _Finding.OWN:
            raise _refusal(finding, where)
        _proofs[conninfo] = time.monotonic()


def _refusal(finding: _Finding, where: str) -> PooledSession:
    to_do = "connect to Postgres itself, or to a pool with pool_mode = session"
    if finding is _Finding.SHARED:
        return PooledSession(
            f"a pooler in transaction or statement mode is at {where}, where our settings would reach other "
            f"clients; nothing was changed; {to_do}"
        )
    return PooledSession(
        f"the pooler at {where} was not seen to reset a session that its client had left, so our settings "
        f"might reach other clients; nothing was changed; {to_do} and server_reset_query = DISCARD ALL"
    )


class _Client:
    """A client that asks one thing at a time and need not wait for the answer.

    It uses libpq by itself: psycopg would cancel a statement that it no longer waits for.
    """

    def __init__(self, conninfo: str) -> None:
        self._connection = psycopg.connect(conninfo, autocommit=True)
        self._pgconn = self._connection.pgconn
        self.mark = f"/* pytube looks {uuid4().hex} */"
        """Begins every statement of this client, so that `pg_stat_activity` shows whose it was."""

    def close(self) -> None:
        self._connection.close()

    def send(self, statement: str) -> None:
        self._pgconn.send_query(f"{self.mark} {statement}".encode())

    def poll(self, seconds: float) -> list[str | None] | None:
        """The row that was asked for; None if there is no answer in that time."""
        deadline = time.monotonic() + seconds
        pending = select.poll()
        pending.register(self._pgconn.socket, select.POLLIN)
        while self._pgconn.is_busy():
            if not pending.poll(max(0.0, deadline - time.monotonic()) * 1000):
                return None
            self._pgconn.consume_input()
        result = self._pgconn.get_result()
        assert result is not None
        while self._pgconn.get_result() is not None:
            pass
        if result.status != ExecStatus.TUPLES_OK:
            raise error_from_result(result)
        values = (result.get_value(0, column) for column in range(result.nfields))
        return [None if value is None else value.decode() for value in values]

    def ask(self, statement: str) -> list[str | None]:
        """Send a statement, and receive its row."""
        self.send(statement)
        return self.receive()

    def receive(self) -> list[str | None]:
        """The row that was asked for; raises `psycopg.OperationalError` if there is no answer."""
        row = self.poll(_ANSWER_LIMIT)
        if row is None:
            raise psycopg.OperationalError(f"a pooler gave no session within {_ANSWER_LIMIT:g} s")
        return row

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_BACKEND = "SELECT pg_catalog.pg_backend_pid()"
_SEEN = """
    SELECT pg_catalog.pg_backend_pid(), (
        SELECT coalesce(a.query, '') FROM pg_catalog.pg_stat_activity a WHERE a.pid = {})
"""
"""The client's own backend, and the last statement of another one; NULL when that one is gone."""
_HIDDEN = ("", "<insufficient privilege>")
"""What Postgres shows for statements that are not recorded, or that this role may not see."""

_LEAVE = "SELECT pg_catalog.set_config('pytube.looks', 'left', false)"
_FIND = "SELECT pg_catalog.pg_backend_pid(), pg_catalog.current_setting('pytube.looks', true)"
_CLEAR = "SELECT pg_catalog.set_config('pytube.looks', '', false)"


def _watch(conninfo: str) -> _Finding:
    """Have two clients use the pool in turn: each must keep a backend that nobody else uses.

    In transaction mode the second gets the backend that the first has just used; where it does not, because
    of other clients or because the two have reached different processes of the pooler, the last statement
    of the backend is another client's, or stays as it is when the first client has left.
    """
    with _Client(conninfo) as one, _Client(conninfo) as other:
        backend = one.ask(_BACKEND)[0]
        other.send(_BACKEND)
        answer = other.poll(_WAITING)
        if answer is None:
            return _watch_full(conninfo, one, other, backend)
        last_asked = 0.0
        for _ in range(_ROUNDS):
            last_asked = time.monotonic()
            if one.ask(_BACKEND)[0] != backend:
                return _Finding.SHARED
            own, statement = other.ask(_SEEN.format(backend))
            if own != answer[0] or own == backend:
                return _Finding.SHARED
            if statement in _HIDDEN:
                return _Finding.NOT_RESET
            if statement is None or not statement.startswith(one.mark):
                return _Finding.SHARED
        one.close()
        return _watch_left(other, one.mark, backend, last_asked)


def _watch_left(other: _Client, mark: str, backend: str | None, last_asked: float) -> _Finding:
    """The client that used the backend has left: the backend must be reset, or end."""
    passed = 0.0
    while passed < _RESET_LIMIT:
        statement = other.ask(_SEEN.format(backend))[1]
        passed = time.monotonic() - last_asked
        if statement is None:
            return _Finding.OWN if passed < _END_LIMIT else _Finding.UNSEEN
        if _RESET.search(statement):
            return _Finding.OWN
        if not statement.startswith(mark):
            return _Finding.UNSEEN  # the next client has the session already
        time.sleep(_LOOK)
    return _Finding.NOT_RESET


def _watch_full(conninfo: str, one: _Client, other: _Client, backend: str | None) -> _Finding:
    """The pool has one session to spare: `other` must get it when `one` leaves, and not before."""
    for _ in range(_ROUNDS):
        # A pool in transaction mode that is full would answer `other` first, since it has waited longer.
        if one.ask(_BACKEND)[0] != backend:
            return _Finding.SHARED
        answer = other.poll(_LOOK)
        if answer is not None:
            return _Finding.SHARED if answer[0] == backend else _Finding.UNSEEN
    one.close()
    if other.receive()[0] != backend:
        return _Finding.UNSEEN
    # This is session mode; so a setting harms nobody, and the next client shows whether it was reset.
    other.ask(_LEAVE)
    other.close()
    with _Client(conninfo) as third:
        own, setting = third.ask(_FIND)
        if setting == "left":
            third.ask(_CLEAR)
            return _Finding.NOT_RESET
        return _Finding.OWN if own == backend else _Finding.UNSEEN
