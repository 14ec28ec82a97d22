"""The wake-up: how a sleeping worker learns that pods arrived, at little cost to writers.

A worker leaves a sleeper row; a writer that sees one sends a NOTIFY. One listening session serves
all partitions of the process. Where notifications do not arrive (behind a transaction pooler), workers
poll instead.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import psycopg
import structlog
from psycopg import sql

from pytube.db.errors import describe, translated
from pytube.db.timeouts import wait_for_answer
from pytube.errors import DatabaseUnavailable, StatementFailed
from pytube.sources import queries
from pytube.sources.session import Session
from pytube.sources.terms import Term

_TEST_TIMEOUT = 2.0
"""Seconds for which a notification of our own is waited for."""
_TEST_INTERVAL = 15.0
"""Seconds between two of them. A session that only listens would not notice that its server is gone."""
_LISTEN_LIMIT = 5.0


async def fall_asleep(session: Session, term: Term) -> None:
    """Leave the sleeper row; fenced."""
    await session.execute(queries.SLEEP, term.arguments)


async def wake_up(session: Session, term: Term) -> None:
    """Take the sleeper row away, so that writers stop notifying."""
    await session.execute(queries.WAKE, term.arguments)


class Listener:
    """Hears the notifications of one tube, and tells the partitions they name; None: perhaps any."""

    def __init__(
        self,
        session: Session,
        tube: str,
        on_wake: Callable[[int | None], None],
        on_ddl: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_ddl` is called when an event trigger has seen DDL on an attached table."""
        self._session = session
        self._tube = tube
        self._on_wake = on_wake
        self._on_ddl = on_ddl
        self._log = structlog.get_logger("pytube.worker").bind(tube=tube)
        self._writers_notify = False
        self.works = False
        """Whether notifications do arrive; until it is known, and where they don't, workers poll."""

    async def run(self) -> None:
        """Listen until cancelled.

        Raises:
            DatabaseUnavailable: the session was lost.
            StatementFailed: Postgres does not let us listen (a standby, a full queue).
        """
        row = await self._session.row(queries.CHANNEL, {"tube": self._tube})
        channel, self._writers_notify = row or ("", False)
        nonce = uuid4().hex
        connection = self._session.connection
        try:
            with translated():
                listen = sql.SQL("LISTEN {}").format(sql.Identifier(channel))
                await wait_for_answer(connection, _LISTEN_LIMIT, connection.execute(listen))
                await self._test(channel, nonce)
                self._log_if_polling()
                while not connection.closed:
                    async for notification in connection.notifies(timeout=_TEST_INTERVAL):
                        self._on_notification(notification.payload, nonce)
                    await self._test(channel, nonce)
        except psycopg.Error as error:
            raise StatementFailed(f"Postgres does not let us listen: {describe(error)}") from error
        finally:
            self.works = False
        raise DatabaseUnavailable("the listening session ended")

    async def _test(self, channel: str, nonce: str) -> None:
        """Notify ourselves, to find out whether what is notified arrives."""
        connection = self._session.connection
        notify = connection.execute("SELECT pg_notify(%s, %s)", (channel, nonce))
        await wait_for_answer(connection, _LISTEN_LIMIT, notify)
        async for notification in connection.notifies(timeout=_TEST_TIMEOUT):
            self._on_notification(notification.payload, nonce)
            if notification.payload == nonce:
                return
        self.works = False

    def _log_if_polling(self) -> None:
        if self.works:
            return
        if self._writers_notify:
            reason = "notifications do not arrive (a pooler in front of Postgres?)"
            remedy = "point postgres.dsn at the server itself"
        else:
            reason = "writers do not notify, because a transaction that does can't be prepared"
            remedy = "set max_prepared_transactions to 0, or pytube.wake to on where no writer prepares"
        self._log.info("lines poll every 10 to 250 ms instead of being woken", reason=reason, remedy=remedy)

    def _on_notification(self, payload: str, nonce: str) -> None:
        if payload == nonce:
            if self._writers_notify and not self.works:
                self.works = True
                self._on_wake(None)  # notifications sent before we listened were lost
        elif payload == "ddl":
            self._on_ddl()
        elif payload.isdigit():
            self._on_wake(int(payload))
