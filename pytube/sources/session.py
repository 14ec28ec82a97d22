"""One session with the database: statements one at a time, errors as ours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self, TypeVar

import psycopg
from psycopg.errors import Diagnostic
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg.types.json import set_json_loads

from pytube.db.connect import connect_async, connection_string
from pytube.db.errors import TRANSIENT, describe, translated
from pytube.db.notices import with_hint
from pytube.db.timeouts import shut_down, wait_for_answer
from pytube.db.watchdog import Watchdog
from pytube.errors import StatementFailed
from pytube.sources.payload import read_json
from pytube.sources.queries import Statement

_Answer = TypeVar("_Answer")
_TRIES = 3


class Session:
    """A connection that several tasks of one partition share; calls take turns.

    All errors are ours where they can be (`DatabaseUnavailable`, `Fenced`, …). After
    `DatabaseUnavailable` the session is of no more use.
    """

    def __init__(
        self,
        connection: psycopg.AsyncConnection,
        answer_timeout: float | None = None,
        conninfo: str | None = None,
    ) -> None:
        """Take a connection over.

        Args:
            connection: autocommit.
            answer_timeout: seconds after which a session without an answer is dropped; None: never.
            conninfo: connection string for the checks of `watched_value`; None: no checks.
        """
        self.connection = connection
        self._answer_timeout = answer_timeout
        self._conninfo = conninfo
        self._turn = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        dsn: str,
        schema: str,
        application_name: str,
        *,
        durable: bool = True,
        answer_timeout: float | None = None,
    ) -> Self:
        """Connect.

        Args:
            dsn: libpq connection string or URI.
            schema: where our SQL is.
            application_name: what `pg_stat_activity` shows.
            durable: False lets commits of this session be lost in a crash of the server. Right
                for marks and purges: they are then done again, and nothing is lost by that.
            answer_timeout: as for a session.
        """
        connection = await connect_async(dsn, schema, application_name)
        set_json_loads(read_json, connection)
        session = cls(connection, answer_timeout, connection_string(dsn, f"{application_name} looks"))
        if not durable:
            await session.execute("SET synchronous_commit = off")
        return session

    async def execute(self, statement: Statement, arguments: Mapping[str, Any] | None = None) -> None:
        """Run a statement whose result does not matter."""

        async def run() -> None:
            await self.connection.execute(statement, arguments)

        await self._in_turn(run)

    async def warnings(self, statement: Statement) -> list[str]:
        """Run a statement whose result does not matter; what Postgres warned of, with its hints."""
        said: list[str] = []

        def on_notice(notice: Diagnostic) -> None:
            if notice.severity_nonlocalized == "WARNING":
                said.append(with_hint(notice))

        async def run() -> None:
            said.clear()
            await self.connection.execute(statement)

        self.connection.add_notice_handler(on_notice)
        try:
            await self._in_turn(run)
        finally:
            self.connection.remove_notice_handler(on_notice)
        return said

    async def value(self, statement: Statement, arguments: Mapping[str, Any] | None = None) -> Any:
        """The first column of the first row; None when there is no row."""
        row = await self.row(statement, arguments)
        return None if row is None else row[0]

    async def watched_value(self, statement: Statement, arguments: Mapping[str, Any]) -> Any:
        """As `value`, for a statement that may take long: only the server's silence is limited.

        After each `answer_timeout` a second session checks whether the server still works on it.
        """
        watchdog = None
        if self._conninfo is not None and self._answer_timeout is not None:
            # As the server knows it: behind a pooler, the client knows another pid.
            pid = await self.value("SELECT pg_backend_pid()")
            watchdog = Watchdog(self._conninfo, pid, self._answer_timeout)

        async def run() -> Any:
            cursor = await self.connection.execute(statement, arguments)
            row = await cursor.fetchone()
            return None if row is None else row[0]

        async def ask_watched() -> Any:
            asking = _tried(run)
            if watchdog is None:
                return await wait_for_answer(self.connection, None, asking)
            return await watchdog.wait_for_answer(self.connection, asking)

        return await self._translated(ask_watched)

    async def row(self, statement: Statement, arguments: Mapping[str, Any] | None = None) -> TupleRow | None:
        """The first row, or None."""

        async def run() -> TupleRow | None:
            cursor = await self.connection.execute(statement, arguments)
            return await cursor.fetchone()

        return await self._in_turn(run)

    async def rows(self, statement: Statement, arguments: Mapping[str, Any] | None = None) -> list[TupleRow]:
        """All rows."""

        async def run() -> list[TupleRow]:
            cursor = await self.connection.execute(statement, arguments)
            return await cursor.fetchall()

        return await self._in_turn(run)

    async def held_rows(
        self,
        statements: tuple[Statement, ...],
        arguments: Mapping[str, Any],
        before: tuple[Statement, ...] = (),
    ) -> list[TupleRow]:
        """Send `statements`: begin, declare a binary cursor, commit, fetch, close; the rows fetched.

        `before` runs right after begin. All go as one message: of a pipeline, Postgres would do the first
        ones when the process is stopped between two, and hold their locks for as long as that lasts;
        `idle_in_transaction_session_timeout` counts from the end of a pipeline only.
        """
        begin, *others = statements
        message = ";".join((begin, *before, *others))

        async def run() -> list[TupleRow]:
            try:
                # The only kind of cursor that puts the arguments into the text, as such a message needs it.
                cursor = psycopg.AsyncClientCursor(self.connection)
                await cursor.execute(message, arguments)
                while not (cursor.statusmessage or "").startswith("FETCH"):
                    cursor.nextset()
                return await cursor.fetchall()
            finally:
                await self._leave_transaction()

        return await self._in_turn(run)

    async def _in_turn(self, run: Callable[[], Awaitable[_Answer]]) -> _Answer:
        return await self._translated(
            lambda: wait_for_answer(self.connection, self._answer_timeout, _tried(run))
        )

    async def _translated(self, ask: Callable[[], Awaitable[_Answer]]) -> _Answer:
        async with self._turn:
            try:
                with translated():
                    return await ask()
            except psycopg.Error as error:
                raise StatementFailed(f"Postgres refused a statement: {describe(error)}") from error

    async def _leave_transaction(self) -> None:
        """A message that failed half way leaves its transaction open, and with it the locks."""
        status = self.connection.info.transaction_status
        if status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            await self.connection.rollback()

    @property
    def closed(self) -> bool:
        """Whether the session is known to be lost."""
        return self.connection.closed

    async def close(self) -> None:
        """End the session, and whatever somebody still asks it; never raises for one that is gone."""
        if self._turn.locked():
            shut_down(self.connection)
        async with self._turn:
            await self.connection.close()


async def _tried(run: Callable[[], Awaitable[_Answer]]) -> _Answer:
    for _ in range(_TRIES - 1):
        try:
            return await run()
        except TRANSIENT:
            continue
    return await run()
