"""The wake-up: how a sleeping worker learns that pods arrived, at little cost to writers.

A worker leaves a sleeper row; a writer that sees its flag sends a NOTIFY. One session listens for all tubes
of the process. Where notifications do not arrive, workers poll instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


class Listener:
    """Listens to the notifications of all tubes of a process, over one session."""

    def __init__(
        self,
        session: Session,
        tubes: Sequence[str],
        log: Logger,
        on_wake: Callable[[str, int], None],
        on_works: Callable[[], None],
        on_ddl: Callable[[], None],
    ) -> None:
        """Args:
        session: of its own.
        tubes: whose notifications are received.
        log: of the host.
        on_wake: receives the tube and the partition that pods arrived for.
        on_works: called when notifications begin to arrive: earlier ones were lost.
        on_ddl: called when an event trigger has seen DDL on an attached table.
        """
        self._session = session
        self._tubes = tubes
        self._on_wake = on_wake
        self._on_works = on_works
        self._on_ddl = on_ddl
        self._of_channel: dict[str, str] = {}
        self._log = log
        self._writers_notify = False
        self.works = False
        """Whether notifications do arrive; until it is known, and where they don't, workers poll."""

    async def run(self) -> None:
        """Listen until cancelled.

        Raises:
            DatabaseUnavailable: the session was lost.
            StatementFailed: Postgres does not let us listen (a standby, a full queue).
        """
        self._of_channel = dict(await self._session.rows(queries.CHANNELS, {"tubes": list(self._tubes)}))
        self._writers_notify = bool(await self._session.value(queries.WAKES))
        nonce = uuid4().hex
        connection = self._session.connection
        try:
            with translated():
                listens = sql.SQL("; ").join(
                    sql.SQL("LISTEN {}").format(sql.Identifier(channel)) for channel in self._of_channel
                )
                await wait_for_answer(connection, _LISTEN_LIMIT, connection.execute(listens))
                await self._test(nonce)
                self._log_if_polling()
                while not connection.closed:
                    async for notification in connection.notifies(timeout=_TEST_INTERVAL):
                        self._on_notification(notification, nonce)
                    await self._test(nonce)
        except psycopg.Error as error:
            raise StatementFailed(f"Postgres does not let us listen: {describe(error)}") from error
        finally:
            self.works = False
        raise DatabaseUnavailable("the listening session ended")

    async def _test(self, nonce: str) -> None:
        """Notify ourselves, to find out whether what is notified arrives."""
        connection = self._session.connection
        channel = next(iter(self._of_channel))
        notify = connection.execute("SELECT pg_notify(%s, %s)", (channel, nonce))
        await wait_for_answer(connection, _LISTEN_LIMIT, notify)
        async for notification in connection.notifies(timeout=_TEST_TIMEOUT):
            self._on_notification(notification, nonce)
            if notification.payload == nonce:
                return
        self.works = False

    def _log_if_polling(self) -> None:
        if self.works:
            return
        if self._writers_notify:
            reason = "notifications do not arrive (a pooler in front of Postgres that drops them?)"
            remedy = "point postgres.dsn at the server itself"
        else:
            reason = "writers do not notify, because a transaction that does can't be prepared"
            remedy = "set max_prepared_transactions to 0, or pytube.wake to on where no writer prepares"
        self._log.info("notifications_missing", reason=reason, remedy=remedy)

    def _on_notification(self, notification: psycopg.Notify, nonce: str) -> None:
        payload = notification.payload
        if payload == nonce:
            if self._writers_notify and not self.works:
                self.works = True
                self._on_works()
        elif payload == "ddl":
            self._on_ddl()
        elif (
            notification.channel in self._of_channel
            # Anybody who may log in can notify, and int() takes neither all digits nor any number of them.
            and (payload.isascii() and payload.isdigit() and len(payload) < _DIGITS)
        ):
            self._on_wake(self._of_channel[notification.channel], int(payload))
