"""Sessions with Postgres: the same few settings for all, so that a dead client holds nothing; time limits.

Keepalives and `tcp_user_timeout` detect a network that has lost the server. They don't detect a server whose
kernel still acknowledges data that a frozen process never reads, nor a proxy in between, and
`statement_timeout` is enforced by the server itself. So workers limit the time of each statement: a session
whose server stays silent is dropped like one whose server is gone.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg import sql
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.waiting import wait_async
from pydantic import SecretStr

from pytube.db import pooler
from pytube.db.errors import describe, log_notice
from pytube.errors import ConfigError, DatabaseUnavailable, PytubeError
from pytube.threads import in_thread, is_address, resolve

_Answer = TypeVar("_Answer")

_LAST_MOMENT = 1.0
"""Seconds that a statement may continue after its caller was cancelled."""


class NoAnswer(psycopg.OperationalError):
    """The server did not answer in time, and the session was cut off."""


class Connection(psycopg.AsyncConnection):
    """A session whose statements are awaited without a task for each.

    A task cancelled in a statement gives the server a moment, so that the session stays usable, and then
    cuts it off. (psycopg would ask the server by a second connection to cancel the statement; at a server
    that stays silent that takes ten seconds.) The statement's effect is then unknown, as with any
    lost connection.
    """

    async def wait(
        self, gen: PQGen[_Answer], interval: float = _LAST_MOMENT, *args: Any, **options: Any
    ) -> _Answer:
        """As of psycopg, but for a cancellation."""
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        try:
            answer = await wait_async(gen, self.pgconn.socket, interval, *args, **options)
        except asyncio.CancelledError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                await self._wait_a_moment(wait_async(gen, self.pgconn.socket, _LAST_MOMENT))
            raise
        if (
            task and task.cancelling() > before
        ):  # psycopg 3.2 waits by wait_for, which loses it on Python 3.11
            raise asyncio.CancelledError
        return answer

    async def _wait_a_moment(self, answer: Coroutine[Any, Any, object]) -> None:
        task = asyncio.ensure_future(answer)
        with suppress(asyncio.CancelledError):  # a second cancellation gives it no more time
            await asyncio.wait([task], timeout=_LAST_MOMENT)
        if not task.done():
            shut_down(self)
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # retrieved, or asyncio would log it


async def wait_for_answer(
    connection: psycopg.AsyncConnection, seconds: float | None, asking: Coroutine[Any, Any, _Answer]
) -> _Answer:
    """Ask the server, and cut the session off if it does not answer in time; it is then of no more use.

    Whether a statement that was cut off has committed is not known, as with any lost connection.

    Raises:
        NoAnswer: the time limit of the whole coroutine was reached.
    """
    cut = False

    def give_up() -> None:
        nonlocal cut
        cut = True
        shut_down(connection)

    timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, give_up)
    try:
        return await asking
    except (psycopg.Error, PytubeError) as error:  # the coroutine may have translated it
        if cut:
            raise NoAnswer(f"no answer within {seconds:g} s") from error
        raise
    finally:
        if timer is not None:
            timer.cancel()


def shut_down(connection: psycopg.AsyncConnection) -> None:
    """End the socket, so that tasks that wait for the session wake at once; close the session afterwards.

    Closing alone would not wake a waiter, and the descriptor's number would soon belong to another file.
    """
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)


_KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 3, "keepalives_count": 3}
"""Of the connection, at both ends: whose machine vanished is noticed after some 20 seconds."""

_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives": 1,
    **_KEEPALIVES,
    "tcp_user_timeout": 10_000,
    "client_encoding": "UTF8",
}

_OF_ADMINISTRATION = {"jit": "off"}
"""Most of its sessions send a few short statements: to compile one takes longer than to run it."""

SETUP_LIMIT = 5.0
"""Seconds that a new session may take to be set up, or an idle one to show that it is well."""


def connect_sync(
    dsn: str | SecretStr,
    schema: str = "tube",
    *,
    application_name: str = "pytube admin",
    lock_timeout: float | None = None,
    also: Sequence[str] = ("public",),
) -> psycopg.Connection:
    """An autocommit session for administration. NOTICEs of the server go to the log.

    Args:
        dsn: a libpq connection string or URI.
        schema: where pytube's SQL is; first in the search path.
        application_name: what `pg_stat_activity` shows.
        lock_timeout: seconds that a statement waits for a lock; None: for ever.
        also: schemas that follow it in the search path.

    Raises:
        ConfigError: the connection string can't be understood.
        DatabaseUnavailable: nothing answers, or it refuses the session. The text holds no password.
        PooledSession: a pooler gives no dedicated session. Nothing was changed in any.
    """
    conninfo = connection_string(dsn)
    try:
        while True:
            connection = psycopg.connect(conninfo, autocommit=True)
            try:
                connection.add_notice_handler(log_notice)
                only_of = _own_pid(connection, conninfo)
                setting = session_settings(
                    application_name, schema, also, lock_timeout, _OF_ADMINISTRATION, only_of=only_of
                )
                if connection.execute(setting).fetchone() is not None:
                    return connection
                where = pooler.address(connection)
            except psycopg.Error:
                connection.close()
                raise
            connection.close()  # a small pool may have no other session for the proof
            pooler.prove(conninfo, where)
    except psycopg.Error as error:
        raise _refused(error, conninfo) from None


async def connect_async(
    dsn: str | SecretStr,
    schema: str = "tube",
    application_name: str = "pytube worker",
    *,
    lock_timeout: float | None = None,
    also: Sequence[str] = ("public",),
    prepare_threshold: int | None = 5,
    settings: Mapping[str, str] | None = None,
) -> psycopg.AsyncConnection:
    """An autocommit session for a worker; arguments and errors as for `connect_sync`.

    `prepare_threshold=None` never prepares a statement; `settings`: more settings of the session.
    """
    conninfo = connection_string(dsn)
    try:
        while True:
            connection = await Connection.connect(
                await _resolved(conninfo), autocommit=True, prepare_threshold=prepare_threshold
            )
            try:
                only_of = _own_pid(connection, conninfo)
                setting = session_settings(
                    application_name, schema, also, lock_timeout, settings, only_of=only_of
                )
                if await wait_for_answer(connection, SETUP_LIMIT, _has_row(connection, setting)):
                    return connection
                where = pooler.address(connection)
            except BaseException:
                await connection.close()
                raise
            await connection.close()  # as in `connect_sync`
            await in_thread(pooler.prove, conninfo, where)
    except psycopg.Error as error:
        raise _refused(error, conninfo) from None


async def _resolved(conninfo: str) -> str:
    """The same with the addresses of its hosts, so that psycopg does not resolve them.

    It would do so in the event loop's default executor, where a driver of a sink, or the code of a user, may
    hang. Like psycopg, it tries each address of a host, and passes over a host that has none.
    """
    given = conninfo_to_dict(conninfo)
    names = str(given.get("host") or "").split(",")
    ports = str(given.get("port") or "").split(",")
    fits = len(ports) in (1, len(names))  # else psycopg reports the error
    if not (fits and any(map(_needs_address, names))) or given.get("hostaddr") or "PGHOSTADDR" in os.environ:
        return conninfo
    found: list[tuple[str, str, str]] = []
    failure: psycopg.OperationalError | None = None
    for name, port in zip(names, ports if len(ports) > 1 else ports * len(names), strict=True):
        try:
            addresses = await resolve(name) if _needs_address(name) else [""]
        except OSError as error:
            failure = psycopg.OperationalError(f"failed to resolve host {name!r}: {error}")
        else:
            found += [(name, address, port) for address in addresses]
    if not found and failure is not None:
        raise failure
    hosts, addresses_of, ports_of = (",".join(column) for column in zip(*found, strict=True))
    more = {"port": ports_of} if len(ports) > 1 else {}
    return make_conninfo(conninfo, host=hosts, hostaddr=addresses_of, **more)


def _needs_address(host: str) -> bool:
    """Whether it is a name: neither a socket's folder nor an address."""
    return bool(host) and not host.startswith(("/", "@")) and not is_address(host)


async def _has_row(connection: psycopg.AsyncConnection, query: sql.Composed) -> bool:
    cursor = await connection.execute(query)
    return await cursor.fetchone() is not None


def _own_pid(connection: psycopg.Connection | psycopg.AsyncConnection, conninfo: str) -> int | None:
    """The backend's process id as the client knows it; None where a pooler is known to give sessions."""
    return None if pooler.is_proven(conninfo) else connection.info.backend_pid


def connection_string(dsn: str | SecretStr, application_name: str = "") -> str:
    """`dsn` with the settings of all sessions; raises `ConfigError` as `connect_sync` does.

    Without a name, since some poolers would set it in a session that others share, and leave it there:
    `session_settings` names the session. `application_name`: for a library that does not use those.
    """
    text = dsn.get_secret_value() if isinstance(dsn, SecretStr) else dsn
    try:
        given = {k: v for k, v in conninfo_to_dict(text).items() if v is not None}
    except psycopg.Error:
        # The error repeats the part that it does not understand, which may be the password.
        raise ConfigError(
            "the connection string can't be understood; expected "
            "postgresql://user:password@host:port/database or host=… dbname=…"
        ) from None
    if "@" in str(given.get("host", "")) and not str(given["host"]).startswith(("/", "@")):
        raise ConfigError(
            "the connection string has more than one '@' before its host; "
            "write %40 for an '@' in the password"
        )
    names = {"application_name": _session_name(application_name), "fallback_application_name": ""}
    return make_conninfo("", **{**_DEFAULTS, **given, **names})


def database_of(dsn: str | SecretStr) -> tuple[str | None, ...]:
    """Where a connection string leads, and not as whom: of equal ones, the database is the same.

    Not the other way round: a host has several names, and a pooler stands for its server.

    Raises:
        ConfigError: it can't be understood.
    """
    given = conninfo_to_dict(connection_string(dsn))
    parts: dict[str, str | None] = {
        one.keyword.decode(): None if one.val is None else one.val.decode()
        for one in psycopg.pq.Conninfo.get_defaults()  # including defaults from the environment
    }
    parts |= {name: None if value is None else str(value) for name, value in given.items()}
    name = parts["dbname"] or parts["user"]
    return parts["service"], parts["host"], parts["hostaddr"], parts["port"], name


def _session_name(application_name: str) -> str:
    """A session whose name contains `backfill` would make backfill pods of every change."""
    return re.sub("backfill", "back-fill", application_name, flags=re.IGNORECASE)


def session_settings(
    application_name: str,
    schema: str,
    also: Sequence[str],
    lock_timeout: float | None,
    more: Mapping[str, str] | None = None,
    *,
    only_of: int | None = None,
) -> sql.Composed:
    """The statement that sets a new session up: one, so that it costs one round trip.

    Arguments as for `connect_sync`; `more`: further settings; `only_of`: unless this is the process id of the
    backend, nothing is set, and there is no row: a pooler has made the id up.
    """
    path = sql.SQL(", ").join(sql.Identifier(name) for name in (schema, *also)).as_string()
    settings: dict[str, str] = {
        "application_name": _session_name(application_name),
        "search_path": path,
        "default_transaction_isolation": "read committed",  # the statements count on it
        "idle_in_transaction_session_timeout": "10s",
        "lock_timeout": f"{int((lock_timeout or 0) * 1000)}ms",
        "standard_conforming_strings": "on",  # predicates in the statements were parsed with it
        **{f"tcp_{name}": str(value) for name, value in _KEEPALIVES.items()},
        **(more or {}),
    }
    calls = [sql.SQL("set_config({}, {}, false)").format(name, value) for name, value in settings.items()]
    # Where a server can't watch its clients (a platform without the call), the setting stays as it is.
    watch = sql.SQL(
        "CASE WHEN version() LIKE '%linux%' "
        "THEN set_config('client_connection_check_interval', '1s', false) END"
    )
    statement = sql.SQL("SELECT ") + sql.SQL(", ").join([*calls, watch])
    if only_of is None:
        return statement
    return statement + sql.SQL(" WHERE pg_catalog.pg_backend_pid() = {}").format(only_of)


def _refused(error: psycopg.Error, conninfo: str) -> DatabaseUnavailable:
    parameters = conninfo_to_dict(conninfo)
    text = describe(error)
    for secret in (parameters.get("password"), os.environ.get("PGPASSWORD")):
        if secret:
            text = text.replace(str(secret), "********")
    return DatabaseUnavailable(f"Postgres is not available: {text}")
