"""The sessions of a worker: statements with a time limit, errors as pytube's, and a pool of sessions."""

from __future__ import annotations

import asyncio
import json
import math
import select
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from enum import IntEnum
from typing import Any, LiteralString, Self, TypeAlias, TypeVar

import psycopg
from psycopg import sql
from psycopg.errors import Diagnostic
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg.types.json import set_json_loads

from pytube.db.connect import connect_async, shut_down, wait_for_answer
from pytube.db.errors import TRANSIENT, describe, translated, with_hint
from pytube.errors import DatabaseUnavailable, StatementFailed
from pytube.model import PodClass
from pytube.turns import BackfillShare

_Answer = TypeVar("_Answer")
Arguments: TypeAlias = Mapping[str, Any] | None
Statements: TypeAlias = tuple[LiteralString, ...]
_TRIES = 3
_NOT_FOR_READS = 2
"""Sessions of a pool that reads leave to pytube's own statements."""

STEADY_PLANS: Mapping[str, str] = {
    "enable_seqscan": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}
"""Settings for statements that find all they read by an index. Planned while a table was nearly empty, they
would read the whole of it for each key once it has filled, until the next ANALYZE; and a plan for each single
key costs more than the read. Before 18 a scan that is switched off counts as so dear that each statement
would be compiled."""

_AS_OPENED: Mapping[str, str] = {}

_BRACKETS = 100
"""JSON with more of them may be nested too deeply: Python gives up at some hundreds of levels."""


class Queries:
    """The ways to run one statement.

    Errors are pytube's where possible (`DatabaseUnavailable`, `Fenced`, …).
    """

    async def execute(self, statement: LiteralString, arguments: Arguments = None) -> None:
        """Run a statement whose result does not matter."""
        await self.rows(statement, arguments)

    async def value(self, statement: LiteralString, arguments: Arguments = None) -> Any:
        """The first column of the first row; None when there is no row."""
        row = await self.row(statement, arguments)
        return None if row is None else row[0]

    async def row(self, statement: LiteralString, arguments: Arguments = None) -> TupleRow | None:
        """The first row, or None."""
        rows = await self.rows(statement, arguments)
        return rows[0] if rows else None

    async def rows(self, statement: LiteralString, arguments: Arguments = None) -> list[TupleRow]:
        """All rows; none for a statement that gives no result."""
        raise NotImplementedError

    async def held_rows(
        self, statements: Statements, arguments: Mapping[str, Any], before: Statements = ()
    ) -> list[TupleRow]:
        """See `Session.held_rows`."""
        raise NotImplementedError


class Session(Queries):
    """One connection, for one task at a time.

    After `DatabaseUnavailable` the session is of no more use.
    """

    def __init__(self, connection: psycopg.AsyncConnection, answer_timeout: float | None = None) -> None:
        """Take an autocommit connection over; after `answer_timeout` without an answer it is dropped."""
        self.connection = connection
        self.used_at = time.monotonic()
        """When a pool lent the session or got it back, whichever was later."""
        self.settings: Mapping[str, str] = _AS_OPENED
        """What `switch` has set."""
        self._answer_timeout = answer_timeout

    @classmethod
    async def open(
        cls,
        dsn: str,
        schema: str,
        application_name: str,
        *,
        answer_timeout: float | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Self:
        """Connect; arguments as of `connect_async`."""
        connection = await connect_async(dsn, schema, application_name, settings=settings)
        set_json_loads(read_json, connection)
        return cls(connection, answer_timeout)

    async def switch(self, settings: Mapping[str, str]) -> None:
        """Have these settings, and none of earlier calls; no round trip if that is so already.

        None of them may be a setting that the session was opened with.
        """
        if settings == self.settings:
            return
        gone = [sql.SQL("RESET {}").format(sql.Identifier(name)) for name in self.settings]
        come = [sql.SQL("SET {} = {}").format(sql.Identifier(key), value) for key, value in settings.items()]
        message = sql.SQL("; ").join([*gone, *come])

        async def run() -> None:
            await self.connection.execute(message, prepare=False)  # several can't be prepared as one

        await self._limited(run, self._answer_timeout)
        self.settings = settings

    async def rows(self, statement: LiteralString, arguments: Arguments = None) -> list[TupleRow]:
        """All rows; none for a statement that gives no result."""
        return await self._fetch(statement, arguments, self._answer_timeout)

    async def warnings(self, statement: LiteralString) -> list[str]:
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
            await self._limited(run, self._answer_timeout)
        finally:
            self.connection.remove_notice_handler(on_notice)
        return said

    async def long_value(self, statement: LiteralString, arguments: Mapping[str, Any]) -> Any:
        """As `value`, for a statement that may take hours: without a time limit.

        A connection that is dead is noticed by keepalives and `tcp_user_timeout`.
        """
        rows = await self._fetch(statement, arguments, None)
        return rows[0][0] if rows else None

    async def _fetch(
        self, statement: LiteralString, arguments: Arguments, timeout: float | None
    ) -> list[TupleRow]:
        async def run() -> list[TupleRow]:
            cursor = await self.connection.execute(statement, arguments)
            # Not `description`, which makes an object for each column.
            return await cursor.fetchall() if cursor.pgresult and cursor.pgresult.nfields else []

        return await self._limited(run, timeout)

    async def held_rows(
        self, statements: Statements, arguments: Mapping[str, Any], before: Statements = ()
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
                # The only kind of cursor that puts the arguments into the text, as this kind of message needs
                # it.
                cursor = psycopg.AsyncClientCursor(self.connection)
                await cursor.execute(message, arguments)
                while not (cursor.statusmessage or "").startswith("FETCH"):
                    cursor.nextset()
                return await cursor.fetchall()
            finally:
                await self._leave_transaction()

        return await self._limited(run, self._answer_timeout)

    async def _limited(self, run: Callable[[], Awaitable[_Answer]], timeout: float | None) -> _Answer:
        try:
            with translated():
                return await wait_for_answer(self.connection, timeout, tried(run))
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

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way in the session, as far as the client knows."""
        return not self.closed and self.connection.info.transaction_status == TransactionStatus.IDLE

    @property
    def is_usable(self) -> bool:
        """Whether the next statement may be sent: the session is idle, and the server has not ended it.

        Nothing is asked, because a round trip would take a good part of the time of a read: a session
        that the server has ended has something to read.
        """
        if not self.is_idle:
            return False
        pending = select.poll()
        pending.register(self.connection.fileno(), select.POLLIN)
        return not pending.poll(0)

    def cut_off(self) -> None:
        """End the connection: the session is not usable, and who waits for an answer wakes with an error."""
        shut_down(self.connection)

    async def close(self) -> None:
        """End the session; never raises for a lost one."""
        await self.connection.close()


class Use(IntEnum):
    """What a session of the pool is borrowed for."""

    STATEMENT = 0
    """A short statement of pytube itself: a mark, a purge, an acquire."""
    READ = 1
    """Rows for documents, by a query that may be slow."""
    BACKFILL_READ = 2
    """Rows for documents that are not urgent: behind the others, except for its share of the turns."""


_Waiter: TypeAlias = tuple[asyncio.Future[None], Use, str]
"""Who wants a session: its turn, the use, and the reader."""


class SessionPool(Queries):
    """At most `size` sessions, opened when they are needed; each call of `rows` borrows one.

    A waiter gets the next session that is returned, in the order of their coming: if statements went first,
    the marks of tubes with a backlog would keep all from reading. Reads leave two sessions to statements of
    pytube itself, so that slow queries hold up neither marks nor terms; and the reads of one tube leave one
    session to other tubes. Statements may take all. Reads for backfills come after the others, but have a
    share of the turns: reads of live changes may well wait without end.
    """

    def __init__(self, open_session: Callable[[], Awaitable[Session]], size: int) -> None:
        """Opens nothing. `open_session` raises `DatabaseUnavailable` when a session can't be had."""
        self._open = open_session
        self.size = size
        self._free = size
        """Sessions that may still be opened or taken from the idle ones."""
        self._most_reads = max(1, size - _NOT_FOR_READS)
        self._most_of_reader = max(1, self._most_reads - 1)
        self._reading: Counter[str] = Counter()
        """How many sessions each reader has."""
        self._idle: list[Session] = []
        self._waiting: list[_Waiter] = []
        self._share = BackfillShare()
        self._discarded_at = -math.inf
        self._closed = False
        self._is_opening = False
        self._behind = 0
        """Who wait while another opens a session."""
        self._failed: DatabaseUnavailable | None = None
        """Why the last session that could not be opened was not."""
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def session(
        self, use: Use = Use.STATEMENT, reader: str = "", settings: Mapping[str, str] | None = _AS_OPENED
    ) -> AsyncIterator[Session]:
        """Borrow a session; `reader`: the tube whose rows are read; `settings`: as of `switch`; None: any.

        Raises:
            DatabaseUnavailable: there is none to be had.
        """
        came = time.monotonic()
        await self._wait_for_turn(use, reader)
        try:
            session = await self._take(settings)
            session.used_at = time.monotonic()
            try:
                if came <= self._discarded_at:
                    raise DatabaseUnavailable("Postgres is another server now, or was restarted")
                if settings is not None:
                    await session.switch(settings)
                yield session
            finally:
                await self._give_back(session)
        finally:
            self._end_turn(use, reader)

    async def rows(self, statement: LiteralString, arguments: Arguments = None) -> list[TupleRow]:
        """All rows; none for a statement that gives no result."""
        async with self.session() as session:
            return await session.rows(statement, arguments)

    async def held_rows(
        self, statements: Statements, arguments: Mapping[str, Any], before: Statements = ()
    ) -> list[TupleRow]:
        """See `Session.held_rows`; in any session, as the functions of marks and purges set all that matters.

        A session that has to be switched to and fro between marks and reads costs two round trips more for
        each.
        """
        async with self.session(settings=None) as session:
            return await session.held_rows(statements, arguments, before)

    @property
    def idle(self) -> int:
        """Idle open sessions."""
        return len(self._idle)

    @property
    def busy(self) -> int:
        """Sessions in use now."""
        return self.size - self._free

    def discard(self) -> None:
        """Use none of the sessions that are open now again: they may be with a server that is left.

        Waiting borrowers get none either. The work that they would purge may have been done at that server,
        by a sink that writes to the same database.
        """
        self._discarded_at = time.monotonic()
        for session in self._idle:
            session.cut_off()

    async def close_idle(self, since: float) -> None:
        """Close the sessions unused since that moment of `time.monotonic()`."""
        old = [session for session in self._idle if session.used_at < since]
        self._idle = [session for session in self._idle if session.used_at >= since]
        for session in old:
            await session.close()

    async def close(self) -> None:
        """Close the sessions that are idle, and each of the others when it is returned."""
        self._closed = True
        await self.close_idle(math.inf)

    def _has_room(self, use: Use, reader: str) -> bool:
        if use is Use.STATEMENT:
            return self._free > 0
        fair = self._reading.total() < self._most_reads and self._reading[reader] < self._most_of_reader
        return self._free > 0 and fair

    async def _wait_for_turn(self, use: Use, reader: str) -> None:
        if self._has_room(use, reader):
            self._begin_turn(use, reader)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, use, reader))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the turn came together with the cancellation
                self._end_turn(use, reader)
            raise

    def _begin_turn(self, use: Use, reader: str) -> None:
        self._free -= 1
        if use is not Use.STATEMENT:
            self._reading[reader] += 1

    def _end_turn(self, use: Use, reader: str) -> None:
        self._free += 1
        if use is not Use.STATEMENT:
            self._reading[reader] -= 1
        self._waiting = [waiter for waiter in self._waiting if not waiter[0].done()]
        while (chosen := self._next()) is not None:
            turn, wanted, other = chosen
            self._waiting.remove(chosen)
            self._begin_turn(wanted, other)
            turn.set_result(None)

    def _next(self) -> _Waiter | None:
        """Whose turn it is, of those for whom there is room."""
        lines: tuple[list[_Waiter], list[_Waiter]] = ([], [])
        for waiter in self._waiting:
            lines[waiter[1] is Use.BACKFILL_READ].append(waiter)
        urgent, patient = (next((one for one in line if self._has_room(*one[1:])), None) for line in lines)
        pod_class = self._share.choose(incremental=urgent is not None, backfill=patient is not None)
        if pod_class is None:
            return None
        if patient is not None:  # else it had no room for this turn
            lines[pod_class].pop()
            self._share.record(pod_class, incremental=len(lines[0]), backfill=len(lines[1]))
        return urgent if pod_class is PodClass.INCREMENTAL else patient

    async def _take(self, settings: Mapping[str, str] | None) -> Session:
        """An idle session, or a new one.

        One is opened at a time, and who waits for it takes a session that is returned meanwhile. Otherwise a
        burst of short statements would open all, and so would each process with each of its hosts when a
        server is slow: each time-out would then leave a server more to do that has too much to do already.
        """
        failed = self._failed
        if self._behind:  # they have waited longer; a session that was just returned is theirs
            await asyncio.sleep(0)
        while True:
            if (session := await self._take_idle(settings)) is not None:
                return session
            if self._closed:
                raise DatabaseUnavailable("the worker is being stopped")
            if self._failed is not None and self._failed is not failed:  # what this call has waited for
                raise type(self._failed)(*self._failed.args) from self._failed.__cause__
            if not self._is_opening:
                return await self._open_one()
            self._behind += 1
            try:
                await self._changed.wait()
            finally:
                self._behind -= 1

    async def _take_idle(self, settings: Mapping[str, str] | None) -> Session | None:
        while self._idle:
            # The one used last, so that excess ones grow old: without need of a switch, if there is one.
            wanted = settings or _AS_OPENED
            fitting = (one for one in reversed(self._idle) if one.settings == wanted)
            session = next(fitting, self._idle[-1])
            self._idle.remove(session)
            if session.is_usable:
                return session
            await session.close()
        return None

    async def _open_one(self) -> Session:
        self._is_opening = True
        try:
            return await self._open()
        except DatabaseUnavailable as error:
            self._failed = error
            raise
        finally:
            self._is_opening = False
            self._tell_waiting()

    def _tell_waiting(self) -> None:
        """A session was opened or returned, or can't be had."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _give_back(self, session: Session) -> None:
        if session.is_idle and session.used_at >= self._discarded_at and not self._closed:
            session.used_at = time.monotonic()
            self._idle.append(session)
            self._tell_waiting()
        else:
            await session.close()


def read_json(data: bytes | str) -> Any:
    """The value of a JSON text; the text itself where Python has no value for it, or can't write it.

    This applies to deep nesting, and to numbers beyond Python's (thousands of digits, 1e400).
    """
    text = data if isinstance(data, str) else data.decode()
    if text.count("[") + text.count("{") <= _BRACKETS:
        with suppress(ValueError):
            return json.loads(text, parse_float=_finite)
    return text


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("JSON has no such number")
    return value


async def tried(run: Callable[[], Awaitable[_Answer]]) -> _Answer:
    """What `run` gives; it is called again, up to twice, after an error that may be over then."""
    for _ in range(_TRIES - 1):
        try:
            return await run()
        except TRANSIENT:
            continue
    return await run()
