"""The wake-up: how a sleeping worker learns that pods arrived, at little cost to writers.

A worker leaves a sleeper row; a writer that sees its flag sends a NOTIFY. One session listens for all tubes
of the process. Where notifications do not arrive, workers poll instead.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
from psycopg import sql

from pytube.db.connect import wait_for_answer
from pytube.db.errors import describe, translated
from pytube.db.session import Queries, Session
from pytube.errors import DatabaseUnavailable, StatementFailed
from pytube.logs import Logger
from pytube.sources import queries
from pytube.sources.terms import Term

_TEST_TIMEOUT = 2.0
"""Seconds for which to wait for a test notification."""
_TEST_INTERVAL = 15.0
"""Seconds between two of them. A session that only listens would not notice that its server is gone."""
_LISTEN_LIMIT = 5.0
_DIGITS = 10
"""More than the number of any partition has."""


async def fall_asleep(session: Queries, term: Term) -> None:
    await session.execute(queries.SLEEP, term.arguments)


async def wake_up(session: Queries, term: Term) -> None:
    await session.execute(queries.WAKE, term.arguments)


@dataclass(frozen=True, slots=True)
class PodsArrived:
    """Pods arrived for a partition."""

    tube: str
    partition: int


class Heard(Enum):
    """What else a session that listens has learned."""

    WORKS = "notifications begin to arrive; earlier ones were lost"
    MISSING = "they do not arrive, so workers poll"
    DDL = "an event trigger has seen DDL on an attached table"


async def listen(
    session: Session, tubes: Sequence[str], log: Logger
) -> AsyncGenerator[PodsArrived | Heard, None]:
    """Notifications for all tubes of a process, over a dedicated session; without end.

    Until it is known that notifications do arrive, they don't.

    Raises:
        DatabaseUnavailable: the session was lost.
        StatementFailed: Postgres refuses to listen (a standby, a full queue).
    """
    of_channel: dict[str, str] = dict(await session.rows(queries.CHANNELS, {"tubes": list(tubes)}))
    nonce = uuid4().hex
    connection = session.connection
    works: bool | None = None
    with _refusals():
        listens = sql.SQL("; ").join(
            sql.SQL("LISTEN {}").format(sql.Identifier(channel)) for channel in of_channel
        )
        await wait_for_answer(connection, _LISTEN_LIMIT, connection.execute(listens))
        while not connection.closed:
            # Send a test notification, to find out whether notifications arrive.
            notify = _row(connection, queries.NOTIFY, (next(iter(of_channel)), nonce))
            _, wakes, has_room = await wait_for_answer(connection, _LISTEN_LIMIT, notify)
            writers_notify, is_answered = wakes and has_room, False
            async for news in _until_answered(connection, of_channel, nonce):
                if news is Heard.WORKS:
                    is_answered = True
                else:
                    yield news
            if works is not (works := is_answered and writers_notify):
                if not works:
                    _log_polling(log, wakes=wakes, has_room=has_room)
                yield Heard.WORKS if works else Heard.MISSING
            async for notification in connection.notifies(timeout=_TEST_INTERVAL):
                heard = _read(notification, of_channel, nonce)
                if heard is Heard.WORKS:  # the answer is late
                    works = writers_notify
                if heard is not None and (heard is not Heard.WORKS or works):
                    yield heard
    raise DatabaseUnavailable("the listening session ended")


async def _until_answered(
    connection: psycopg.AsyncConnection, of_channel: Mapping[str, str], nonce: str
) -> AsyncGenerator[PodsArrived | Heard, None]:
    """Notifications until the test one arrives, which yields WORKS, or takes too long."""
    due, is_answered = time.monotonic() + _TEST_TIMEOUT, False
    while not is_answered and (left := due - time.monotonic()) > 0:
        async for notification in connection.notifies(timeout=left, stop_after=1):
            is_answered = is_answered or notification.payload == nonce
            if (news := _read(notification, of_channel, nonce)) is not None:
                yield news


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        with translated():
            yield
    except psycopg.Error as error:
        raise StatementFailed(f"Postgres does not let us listen: {describe(error)}") from error


def _read(
    notification: psycopg.Notify, of_channel: Mapping[str, str], nonce: str
) -> PodsArrived | Heard | None:
    payload = notification.payload
    if payload == nonce:
        return Heard.WORKS
    if payload == "ddl":
        return Heard.DDL
    # Anybody who may log in can notify, and int() takes neither all digits nor any number of them.
    is_number = payload.isascii() and payload.isdigit() and len(payload) < _DIGITS
    if is_number and notification.channel in of_channel:
        return PodsArrived(of_channel[notification.channel], int(payload))
    return None


async def _row(connection: psycopg.AsyncConnection, query: LiteralString, arguments: Sequence[str]) -> Any:
    cursor = await connection.execute(query, arguments)
    return await cursor.fetchone()


def _log_polling(log: Logger, *, wakes: bool, has_room: bool) -> None:
    if wakes and has_room:
        reason = "notifications do not arrive (a pooler in front of Postgres that drops them?)"
        remedy = "point postgres.dsn at the server itself"
    elif wakes:
        reason = "writers do not notify, because the server's queue of notifications is more than half full"
        remedy = "end the session that listens and has had a transaction open for long (pg_stat_activity)"
    else:
        reason = "writers do not notify, because a transaction that does can't be prepared"
        remedy = "set max_prepared_transactions to 0, or pytube.wake to on where no writer prepares"
    log.info("notifications_missing", reason=reason, remedy=remedy)
