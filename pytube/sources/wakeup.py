"""The wake-up: how a sleeping worker learns that pods arrived, at little cost to writers.

A worker leaves a sleeper row; a writer that sees its flag sends a NOTIFY. One session listens for all tubes
of the process. Where notifications do not arrive, workers poll instead.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
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
"""Seconds for which a notification of our own is waited for."""
_TEST_INTERVAL = 15.0
"""Seconds between two of them. A session that only listens would not notice that its server is gone."""
_LISTEN_LIMIT = 5.0
_DIGITS = 10
"""More than the number of any partition has."""


async def fall_asleep(session: Queries, term: Term) -> None:
    """Leave the sleeper row; fenced."""
    await session.execute(queries.SLEEP, term.arguments)


async def wake_up(session: Queries, term: Term) -> None:
    """Take the sleeper row away, so that writers stop notifying."""
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

    @classmethod
    def of(cls, *, works: bool) -> Heard:
        """Whether they arrive."""
        return cls.WORKS if works else cls.MISSING


async def listen(
    session: Session, tubes: Sequence[str], log: Logger
) -> AsyncGenerator[PodsArrived | Heard, None]:
    """What is notified of all tubes of a process, over a session of its own; without end.

    Until it is known that notifications do arrive, they don't.

    Raises:
        DatabaseUnavailable: the session was lost.
        StatementFailed: Postgres does not let us listen (a standby, a full queue).
    """
    of_channel: dict[str, str] = dict(await session.rows(queries.CHANNELS, {"tubes": list(tubes)}))
    writers_notify = bool(await session.value(queries.WAKES))
    nonce = uuid4().hex
    connection, works = session.connection, False
    with _refusals():
        listens = sql.SQL("; ").join(map(_listening, of_channel))
        await wait_for_answer(connection, _LISTEN_LIMIT, connection.execute(listens))
        is_told = False
        while not connection.closed:
            # Notify ourselves, to find out whether what is notified arrives.
            notify = connection.execute("SELECT pg_notify(%s, %s)", (next(iter(of_channel)), nonce))
            await wait_for_answer(connection, _LISTEN_LIMIT, notify)
            is_answered = False
            async for notification in connection.notifies(timeout=_TEST_TIMEOUT):
                if is_answered := notification.payload == nonce:
                    break
                if (news := _read(notification, of_channel)) is not None:
                    yield news
            if works != (is_answered and writers_notify):
                works = not works
                yield Heard.of(works=works)
            if not (works or is_told):
                _log_polling(log, writers_notify=writers_notify)
            is_told = True
            async for notification in connection.notifies(timeout=_TEST_INTERVAL):
                if notification.payload == nonce and writers_notify and not works:  # it is late
                    works = True
                    yield Heard.WORKS
                elif (news := _read(notification, of_channel)) is not None:
                    yield news
    raise DatabaseUnavailable("the listening session ended")


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        with translated():
            yield
    except psycopg.Error as error:
        raise StatementFailed(f"Postgres does not let us listen: {describe(error)}") from error


def _listening(channel: str) -> sql.Composed:
    return sql.SQL("LISTEN {}").format(sql.Identifier(channel))


def _read(notification: psycopg.Notify, of_channel: Mapping[str, str]) -> PodsArrived | Heard | None:
    payload = notification.payload
    if payload == "ddl":
        return Heard.DDL
    # Anybody who may log in can notify, and int() takes neither all digits nor any number of them.
    is_number = payload.isascii() and payload.isdigit() and len(payload) < _DIGITS
    if is_number and notification.channel in of_channel:
        return PodsArrived(of_channel[notification.channel], int(payload))
    return None


def _log_polling(log: Logger, *, writers_notify: bool) -> None:
    if writers_notify:
        reason = "notifications do not arrive (a pooler in front of Postgres that drops them?)"
        remedy = "point postgres.dsn at the server itself"
    else:
        reason = "writers do not notify, because a transaction that does can't be prepared"
        remedy = "set max_prepared_transactions to 0, or pytube.wake to on where no writer prepares"
    log.info("notifications_missing", reason=reason, remedy=remedy)
