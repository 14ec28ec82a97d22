"""Random sessions write, a real worker serves declared documents and dies now and then; copies are compared.

One thread writes and compares, so a seed gives the same statements again. Rounds are short, and a comparison
takes place while transactions stay open: a later touch of the same document hides one that was lost.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from pytube import delivered, faults
from pytube.config import Config, parse
from pytube.db import connect
from pytube.declarations.apply import Declarations
from pytube.declarations.survey import plan
from pytube.documents.catalogue import Catalogue
from pytube.documents.compile import compile_document
from pytube.documents.model import Document
from pytube.documents.resolve import with_documents
from pytube.faults import Point
from pytube.sinks import Sink, registry
from pytube.testing.memory import Faults, MemorySink, MemoryStore
from pytube.worker import Worker, shared_sink
from tests.helpers.documents_shop import (
    DOCUMENTS,
    NAMES,
    SCHEMA,
    TABLES,
    Conn,
    Documents,
    Statements,
    documents_by_hand,
    from_json,
)
from tests.helpers.waiting import LIMIT, wait_until

MEMORY = "memory"
"""The type of sink, in the configuration, that keeps documents in this process."""
STEPS = 20
"""A round has half as many on average."""
_CONFIG = """
[postgres]
dsn = "{dsn}"
[worker]
election = "lease"
installation = "{installation}"
receive_deadline = 0.5
session_timeout = 1.5
"""
_TUBE = """
[tube.{name}.sink]
type = "{memory}"
of = "{name}"
request_timeout = 0.5
"""
ISOLATION = ("READ COMMITTED", "READ COMMITTED", "REPEATABLE READ")
_PLACES = {
    Point.AFTER_MARK: 1,
    Point.BEFORE_ENRICH: 1,
    Point.BEFORE_SEND: 4,
    Point.AFTER_SEND: 4,
    Point.BEFORE_PURGE: 1,
    Point.AFTER_PURGE: 1,
}
"""Where a worker is held while others write, or is stopped; mostly when it has read what they change then."""
_MOMENT = 0.03
"""Seconds that a worker gets to come to such a place, or to mark pods."""
_DYING = 5.0
"""Seconds that tasks of a worker that was stopped get to end."""
_LOCKS = """
    SELECT EXISTS (SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND mode = 'AccessExclusiveLock')
"""
_IS_BUSY = "SELECT EXISTS (SELECT FROM tube.tube_backfill_list() WHERE ended_at IS NULL)"


# --- documents that are followed -------------------------------------------------------------------


@dataclass(frozen=True)
class Bug:
    """What is wrong, in which of the places."""

    name: str
    change: Callable[[Document], Document] = lambda document: document
    """Of a document that was compiled."""
    before: Callable[[Conn], None] = lambda _: None
    """Of our SQL, before tables are attached."""
    after: Callable[[Conn, Sequence[Document]], None] = lambda _session, _documents: None
    """Of the database, when documents are applied; gets them as they were compiled."""
    patch: Callable[[pytest.MonkeyPatch, str], None] = lambda _patch, _dsn: None
    """Of the worker; gets the DSN of the database."""


NO_BUG = Bug("none")


def apply_documents(dsn: str, bug: Bug = NO_BUG) -> Config:
    """Make the shop's tables in a database with our SQL, and apply its documents; what a worker is given."""
    sinks = "".join(_TUBE.format(name=name, memory=MEMORY) for name in NAMES)
    installation = dsn.rpartition("/")[2]
    config = parse(_CONFIG.format(dsn=dsn, installation=installation) + DOCUMENTS + sinks, environment={})
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public") as session:
        session.execute(SCHEMA)
        bug.before(session)
        catalogue, admin = Catalogue(session), Declarations(session)
        compiled = [compile_document(name, config.documents[name], catalogue) for name in NAMES]
        documents = list(map(bug.change, compiled))
        for document in documents:
            admin.apply(plan(document, admin.there()))
        bug.after(session, compiled)
        return with_documents(config, documents, admin.there().tubes)


# --- a worker that can be stopped as by SIGKILL ----------------------------------------------------


class Gate:
    """Holds all tasks of a worker that come to one fault point."""

    def __init__(self) -> None:
        self._place: Point | None = None
        self._held: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._came = threading.Event()
        self._marked = threading.Event()

    async def passed(self, point: Point) -> None:
        """What `pytube.faults` calls."""
        if point is Point.AFTER_MARK:
            self._marked.set()
        if point is self._place:
            event = asyncio.Event()
            self._held.append((asyncio.get_running_loop(), event))
            self._came.set()
            await event.wait()

    def close(self, place: Point) -> None:
        """Hold whoever comes to `place`, and give it a moment to come."""
        self._place = place
        self._came.wait(_MOMENT)

    def open(self) -> None:
        """Let all go on, once what others wrote meanwhile has had a moment to be marked."""
        if self._held:
            self._marked.clear()
            self._marked.wait(2 * _MOMENT)
        self._place = None
        held, self._held = self._held, []
        self._came.clear()
        for loop, event in held:
            with suppress(RuntimeError):  # the worker was stopped
                loop.call_soon_threadsafe(event.set)


class Running:
    """A worker in a thread of its own, whose sinks write to `stores`."""

    def __init__(self, config: Config, stores: dict[str, MemoryStore], dsn: str) -> None:
        self._dsn = dsn
        self._loop = asyncio.new_event_loop()
        self._sinks: list[MemorySink] = []
        self._stores = stores
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._worker = self._built(config)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._worker.start(), self._loop).result(LIMIT)

    def _built(self, config: Config) -> Worker:
        build = registry.build_sink

        def build_sink(sink_type: str, options: Any, **more: Any) -> Sink:
            if sink_type != MEMORY:
                return build(sink_type, options, **more)
            sink = MemorySink(self._stores[options["of"]], compares=True)
            self._sinks.append(sink)
            return sink

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shared_sink, "build_sink", build_sink)
            return Worker(config)

    def check(self) -> None:
        """Raise what ended a service of the worker, if one has ended."""
        if self._worker._services.is_broken:
            asyncio.run_coroutine_threadsafe(self._worker.wait(), self._loop).result(LIMIT)

    def stop(self) -> None:
        """End in order."""
        asyncio.run_coroutine_threadsafe(self._worker.stop(), self._loop).result(LIMIT)
        self._halt()
        self._loop.close()

    def kill(self) -> None:
        """Stop wherever it is: it writes nothing more, neither to a sink nor to the database."""
        self._halt()
        for sink in self._sinks:
            sink._faults = Faults(down=True)
        with psycopg.connect(self._dsn, autocommit=True) as session:
            session.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name LIKE 'pytube%'"
            )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connect.Connection, "connect", _refuse)
            self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        """Have the tasks end, of which none has a session any more."""
        ends = time.monotonic() + _DYING
        while (tasks := asyncio.all_tasks() - {asyncio.current_task()}) and time.monotonic() < ends:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=0.1)

    def _halt(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT)


async def _refuse(*_: Any, **__: Any) -> Any:
    raise psycopg.OperationalError("the process is gone")


# --- what rounds and the state machine have ----------------------------------------------------------


class Differs(AssertionError):
    """A copy is not what its documents should be."""


def difference_of(session: Conn, stores: Mapping[str, MemoryStore]) -> str | None:
    """The first document that is not as it should be, and how; None: all are."""
    wanted = documents_by_hand(session)
    have: Documents = {
        tube: {d.id: from_json(d.body) for d in store.held.values() if d.body is not None}
        for tube, store in stores.items()
    }
    for tube in NAMES:
        for key in sorted({*wanted[tube], *have[tube]}, key=str):
            one, other = have[tube].get(key), wanted[tube].get(key)
            if one != other:
                return f"document {key} of {tube} is\n    {one}\nand should be\n    {other}"
    return None


def open_writer(dsn: str) -> Conn:
    """A session that waits for no lock for long."""
    settings = "-c lock_timeout=30ms -c synchronous_commit=off -c idle_in_transaction_session_timeout=0"
    return psycopg.connect(dsn, autocommit=True, options=settings)


class Writer:
    """A session, and what it did since the last comparison, or since its transaction began."""

    def __init__(self, number: int, session: Conn) -> None:
        self.session = session
        self.history: list[str] = []
        self.asked_for_all = False
        """Whether a TRUNCATE may not have seen all rows, which is mended by a backfill."""
        self._number = number
        self._isolation = ""

    @property
    def is_open(self) -> bool:
        return self.session.info.transaction_status != TransactionStatus.IDLE

    @property
    def holds_table(self) -> bool:
        """Whether its transaction keeps others from reading a table."""
        return self.is_open and self.session.execute(_LOCKS).fetchone() == (True,)

    def begin(self, isolation: str) -> None:
        """Of `ISOLATION`."""
        self._isolation = isolation
        self._do(f"BEGIN ISOLATION LEVEL {self._isolation}")
        if self._isolation == "REPEATABLE READ":
            self.session.execute("SELECT 1")  # now it has its snapshot, and waits for no lock of another's

    def end(self, how: str) -> None:
        """COMMIT, ROLLBACK, or PREPARE TRANSACTION, if one is open."""
        if self.is_open:
            self._do(how)
        self._isolation = ""

    def write(self, statement: str) -> bool:
        """Whether it went well; if not, what the transaction did before stays."""
        is_open = self.is_open
        try:
            if is_open:
                self.session.execute("SAVEPOINT before")
            self._do(statement)
        except psycopg.Error as error:
            self.history[-1] += f"  -- {error.sqlstate}"
            if is_open:
                self.session.execute("ROLLBACK TO before")
            return False
        self.asked_for_all |= "TRUNCATE" in statement and self._isolation == "REPEATABLE READ"
        return True

    def forget(self) -> None:
        """A comparison went well."""
        self.asked_for_all = False
        if not self.is_open:
            self.history.clear()

    def _do(self, statement: str) -> None:
        self.history.append(f"{self._number}: {statement}")
        self.session.execute(statement)  # type: ignore[arg-type, unused-ignore] # texts of tests


# --- rounds ----------------------------------------------------------------------------------------


class Rounds:
    """Sessions that write, the worker, and the comparison."""

    def __init__(self, dsn: str, config: Config, seed: int) -> None:
        """`config`: as `apply_documents` gives it."""
        self._draw = random.Random(seed)
        self._dsn, self._config, self._seed = dsn, config, seed
        self._statements = Statements(self._draw.choice)
        self._writers = [Writer(number, open_writer(dsn)) for number in range(3)]
        self._reader = open_writer(dsn)
        self._gate = Gate()
        self._stores = {tube: MemoryStore() for tube in NAMES}
        self._worker: Running | None = None
        self.done = {"statements": 0, "failed": 0, "comparisons": 0, "kills": 0, "held": 0}
        """How often each has happened."""

    def __enter__(self) -> Self:
        faults.handler = self._gate.passed
        tables = ", ".join(f"shop.{table}" for table in TABLES)
        self._reader.execute(
            f"SET session_replication_role = replica; TRUNCATE {tables}; RESET session_replication_role"
        )
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._gate.open()
            for writer in self._writers:
                writer.session.close()
            if self._worker is not None:
                self._worker.stop() if error is None else self._worker.kill()
        finally:
            faults.handler = None
            self._reader.close()

    def fill(self, statements: int) -> None:
        """Begin with some rows."""
        for _ in range(statements):
            self._write(self._writers[0])
        self.settle()

    def round(self) -> None:
        """Some steps, then all that is committed is delivered, and compared.

        Raises:
            Differs: with what was done since the comparison before.
        """
        for _ in range(self._draw.randrange(STEPS)):
            (step,) = self._draw.choices(
                (self._write_one, self._hold, self._go_on, self._kill), (16, 2, 1, 0.1)
            )
            step()
        self.settle()
        if self._draw.random() < 0.3:
            for writer in self._writers:
                self._end(writer)

    def settle(self) -> None:
        """Have all delivered that is committed, while transactions stay open; then compare."""
        self._gate.open()
        if self._worker is None:
            self._start()
        for writer in self._writers:
            if writer.holds_table:  # no path can be read meanwhile
                self._end(writer)
        if any(writer.asked_for_all for writer in self._writers):
            self._finish_backfills()
        delivered.wait(NAMES, dsn=self._dsn, timeout=LIMIT)
        assert self._worker is not None
        self._worker.check()
        self._compare()
        for writer in self._writers:
            writer.forget()

    # --- steps ----------------------------------------------------------------------------

    def _write_one(self) -> None:
        self._write(self._draw.choice(self._writers))

    def _write(self, writer: Writer) -> None:
        """Change rows, perhaps in a transaction that begins, or is open; perhaps one ends before."""
        if writer.is_open and self._draw.random() < 0.2:
            self._end(writer)
        elif not writer.is_open and self._draw.random() < 0.6:
            writer.begin(self._draw.choice(ISOLATION))
        self.done["statements"] += 1
        self.done["failed"] += not writer.write(self._statements.next())

    def _end(self, writer: Writer) -> None:
        writer.end(self._draw.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK")))

    def _hold(self) -> None:
        """Hold the worker at some place, until the next of these."""
        self._gate.open()
        if self._worker is not None:
            (place,) = self._draw.choices(list(_PLACES), list(_PLACES.values()))
            self._gate.close(place)
            self.done["held"] += 1

    def _go_on(self) -> None:
        self._gate.open()
        if self._worker is None:
            self._start()

    def _kill(self) -> None:
        """Stop the worker where it is; the next one comes later."""
        if self._worker is not None:
            worker, self._worker = self._worker, None
            worker.kill()
            self._gate.open()
            self.done["kills"] += 1

    # --- the worker and its copies --------------------------------------------------------

    def _start(self) -> None:
        self._worker = Running(self._config, self._stores, self._dsn)

    def _finish_backfills(self) -> None:
        """A TRUNCATE at REPEATABLE READ asks for a backfill, which waits for those who write."""
        for writer in self._writers:
            self._end(writer)
        delivered.wait(NAMES, dsn=self._dsn, timeout=LIMIT)
        wait_until(
            lambda: self._reader.execute(_IS_BUSY).fetchone() == (False,), what="the backfills are done"
        )

    def _compare(self) -> None:
        """Nobody writes meanwhile: this thread does, and the worker has nothing left to do."""
        self.done["comparisons"] += 1
        difference = difference_of(self._reader, self._stores)
        if difference is not None:
            history = "\n    ".join(line for writer in self._writers for line in writer.history)
            where = f"seed {self._seed}, comparison {self.done['comparisons']}"
            raise Differs(f"{where}: {difference}\nafter\n    {history}")
