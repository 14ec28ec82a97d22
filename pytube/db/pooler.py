"""Whether a pooler in front of Postgres gives each client a dedicated server session.

pytube's sessions have settings, LISTEN, locks and prepared statements. So each needs a server session that no
other client uses meanwhile, and that is reset before the next client gets it: a pool in session mode. In
transaction mode the settings would reach other clients; `synchronous_commit = off` would cost them commits.

A pooler shows at once: Postgres sends a client the process id of its backend, and a pooler
makes up another. A mere client can't ask for the mode of the pool; two clients that watch each other find
it out. They change nothing: they set nothing, prepare nothing, and begin no transaction.
"""

from __future__ import annotations

import re
import select
import threading
import time
from contextlib import closing
from uuid import uuid4

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus

from pytube.errors import PooledSession

_HOLDS = 60.0
"""Seconds for which a proof holds: the mode of a pool can be changed while it runs."""
_ANSWER_LIMIT = 5.0
_ROUNDS = 3
_TRIES = 10
_RESET_LIMIT = 2.0
"""Seconds within which a session must be reset after its client has left."""
_END_LIMIT = 0.8
"""Seconds within which it may be ended instead; a pool of any mode may end a longer idle one."""
_LOOK = 0.01
_RESET = re.compile(r"\b(DISCARD|RESET)\s+ALL\b", re.IGNORECASE)

_SHARED = (
    "the pooler at {where} is in transaction or statement mode, so pytube's settings would leak to other "
    "clients; nothing was changed; connect to Postgres itself, or to a pool with pool_mode = session"
)
_NOT_RESET = (
    "the pooler at {where} did not show that it resets a session after its client leaves, so pytube's "
    "settings might leak to other clients; nothing was changed; connect to Postgres itself, or to a pool "
    "with pool_mode = session and server_reset_query = DISCARD ALL"
)

_lock = threading.Lock()
_proofs: dict[str, float] = {}
"""When each connection string was last proven to lead to dedicated sessions."""


def address(connection: psycopg.Connection | psycopg.AsyncConnection) -> str:
    """`host:port` of the server or pooler, for messages."""
    info = connection.info
    return f"{info.host or info.hostaddr or 'localhost'}:{info.port}"


def is_proven(conninfo: str) -> bool:
    """Whether the pooler behind `conninfo` was lately seen to give each client a dedicated session."""
    return time.monotonic() - _proofs.get(conninfo, float("-inf")) < _HOLDS


def prove(conninfo: str, where: str) -> None:
    """Find out whether a pooler gives each client a dedicated session; `where` is its address.

    Raises:
        PooledSession: it does not, or did not show it.
        psycopg.Error: the pooler or Postgres does not answer, or the pool has no two sessions to spare.
    """
    with _lock:  # in a small pool, two proofs would wait for each other's sessions
        if is_proven(conninfo):
            return
        for _ in range(_TRIES):
            try:
                _watch(conninfo)
                break
            except _Unseen:
                continue
            except _Refused as refused:
                raise PooledSession(refused.args[0].format(where=where)) from None
        else:
            raise PooledSession(_NOT_RESET.format(where=where))
        _proofs[conninfo] = time.monotonic()


class _Refused(Exception):
    """Sessions are not a client's own; says so."""


class _Unseen(Exception):
    """Others were too quick, or this machine too slow, for anything to be seen."""


def _watch(conninfo: str) -> None:
    """Have two clients use the pool in turn: each must keep a backend that no other client uses.

    In transaction mode the second gets the backend that the first has just used; where it does not, because
    of other clients or because the two have reached different processes of the pooler, the last statement
    of the backend is another client's, or stays as it is when the first client has left.
    """
    with closing(_Client(conninfo)) as one, closing(_Client(conninfo)) as other:
        backend, others = one.ask(_BACKEND)[0], other.ask(_BACKEND)[0]
        last_asked = 0.0
        for _ in range(_ROUNDS):
            last_asked = time.monotonic()
            if one.ask(_BACKEND)[0] != backend:
                raise _Refused(_SHARED)
            own, statement = other.ask(_SEEN.format(backend))
            if own != others or own == backend:
                raise _Refused(_SHARED)
            if statement in _HIDDEN:
                raise _Refused(_NOT_RESET)
            if statement is None or not statement.startswith(one.mark):
                raise _Refused(_SHARED)
        one.close()
        _watch_left(other, one.mark, backend, last_asked)


def _watch_left(other: _Client, mark: str, backend: str | None, last_asked: float) -> None:
    """The client that used the backend has left: the backend must be reset, or end."""
    passed = 0.0
    while passed < _RESET_LIMIT:
        statement = other.ask(_SEEN.format(backend))[1]
        passed = time.monotonic() - last_asked
        if statement is not None and _RESET.search(statement):
            return
        if statement is None and passed < _END_LIMIT:
            return
        if statement is None or not statement.startswith(mark):
            raise _Unseen  # the next client has the session already
        time.sleep(_LOOK)
    raise _Refused(_NOT_RESET)


_BACKEND = "SELECT pg_catalog.pg_backend_pid()"
_SEEN = """
    SELECT pg_catalog.pg_backend_pid(), (
        SELECT coalesce(a.query, '') FROM pg_catalog.pg_stat_activity a WHERE a.pid = {})
"""
"""The client's own backend, and the last statement of another one; NULL when that one is gone."""
_HIDDEN = ("", "<insufficient privilege>")
"""What Postgres shows for statements that are not recorded, or that this role may not see."""


class _Client:
    """A client that waits for an answer for a while only.

    It uses libpq directly: psycopg would cancel a statement that it no longer waits for.
    """

    def __init__(self, conninfo: str) -> None:
        self._connection = psycopg.connect(conninfo, autocommit=True)
        self.mark = f"/* pytube looks {uuid4().hex} */"
        """Begins every statement of this client, so that `pg_stat_activity` shows whose it was."""

    def ask(self, statement: str) -> list[str | None]:
        """The row that a statement returns; raises `psycopg.OperationalError` if there is no answer."""
        pgconn = self._connection.pgconn
        pgconn.send_query(f"{self.mark} {statement}".encode())
        deadline = time.monotonic() + _ANSWER_LIMIT
        pending = select.poll()
        pending.register(pgconn.socket, select.POLLIN)
        while pgconn.is_busy():
            if not pending.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise psycopg.OperationalError(
                    f"a pooler gave no session within {_ANSWER_LIMIT:g} s; its pool needs two to spare"
                )
            pgconn.consume_input()
        result = pgconn.get_result()
        assert result is not None
        while pgconn.get_result() is not None:
            pass
        if result.status != ExecStatus.TUPLES_OK:
            raise error_from_result(result)
        values = (result.get_value(0, column) for column in range(result.nfields))
        return [None if value is None else value.decode() for value in values]

    def close(self) -> None:
        self._connection.close()
