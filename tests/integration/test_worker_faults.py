"""A worker in one process, and troubles that it has to outlive: no restart, no flood of terms."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest

from pytube.config import load
from pytube.embedded.postgres import Postgres
from pytube.events import DatabaseDown, Event, LeaderAcquired, LeaderRevoked, SinkDown
from pytube.model import OK, Batch, Id, Result
from pytube.sinks.callable import CallableSink
from pytube.worker import Worker
from tests.conftest import Connect
from tests.helpers.database import INSTALL_SQL, psql_file
from tests.helpers.logs import capture_logs
from tests.helpers.waiting import wait_until, wait_until_async

Conn = psycopg.Connection[tuple[object, ...]]
E = TypeVar("E", bound=Event)
taken: list[Id] = []


def send(batch: Batch) -> Sequence[Result]:
    """Takes everything."""
    taken.extend(document.id for document in batch)
    return [OK] * len(batch)


def make_tube(conn: Conn, *ids: int) -> None:
    conn.execute("SELECT tube_ensure_exists('items')")
    conn.execute("CREATE TABLE IF NOT EXISTS public.items (id bigint PRIMARY KEY)")
    conn.execute("SELECT tube_table_ensure_attached('items', 'public.items', 0)")
    conn.execute("INSERT INTO public.items SELECT unnest(%s::bigint[])", (list(ids),))


class Running:
    """A worker that runs, and what it told."""

    def __init__(self, worker: Worker, events: list[Event]) -> None:
        self.worker = worker
        self.events = events
        self.waiting = asyncio.create_task(worker.wait())

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def told(self, kind: type[Event]) -> int:
        return len(self.of(kind))

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait; fail with the worker's own error when it ended."""

        def looked() -> bool:
            if self.waiting.done():
                self.waiting.result()
            return holds()

        await wait_until_async(looked, what=what)


@pytest.fixture
def config_file(dsn: str, tmp_path: Path) -> Path:
    taken.clear()
    path = tmp_path / "pytube.toml"
    path.write_text(
        f"""
        [postgres]
        dsn = "{dsn}"
        [tube.items.sink]
        type = "callable"
        target = "{__name__}:send"
        """
    )
    return path


@asynccontextmanager
async def running(
    config_file: Path, on_event: Callable[[Event], None] | None = None
) -> AsyncIterator[Running]:
    events: list[Event] = []

    def note(event: Event) -> None:
        events.append(event)
        if on_event is not None:
            on_event(event)

    worker = Worker(load(config_file), on_event=note)
    await worker.start()
    run = Running(worker, events)
    try:
        yield run
    finally:
        await worker.stop()
        run.waiting.cancel()


def drop_our_sql(conn: Conn) -> None:
    """It locks our tables in another order than a worker does; when Postgres ends it, try again."""

    def is_dropped() -> bool:
        with suppress(psycopg.errors.DeadlockDetected):
            conn.execute("DROP SCHEMA tube CASCADE")
            return True
        return False

    wait_until(is_dropped, what="our SQL is gone")


async def test_our_sql_may_go_and_come_again(
    dsn: str, conn: Conn, postgres: Postgres, config_file: Path
) -> None:
    make_tube(conn, 1)
    async with running(config_file) as run:
        await run.until("the first row is taken", lambda: taken == [1])
        await asyncio.to_thread(drop_our_sql, conn)
        await run.until("the term is given up", lambda: run.told(LeaderRevoked) == 1)
        await asyncio.to_thread(psql_file, postgres, dsn, INSTALL_SQL)
        make_tube(conn, 2)
        await run.until("the tube made anew is served", lambda: taken == [1, 2])


@pytest.fixture
def logged() -> Iterator[list[dict[str, Any]]]:
    with capture_logs() as lines:
        yield lines


def reasons(logged: list[dict[str, Any]], event: str) -> list[str]:
    return [line["reason"] for line in logged if line["event"] == event]


async def test_a_server_that_does_not_let_us_listen(
    conn: Conn, config_file: Path, logged: list[dict[str, Any]]
) -> None:
    """Its workers poll, and it is told once."""
    make_tube(conn, 1)
    channel = conn.execute("SELECT pg_get_functiondef('tube_channel'::regproc)").fetchone()
    assert channel is not None
    async with running(config_file) as run:
        await run.until("the first row is taken", lambda: taken == [1])
        conn.execute(
            "CREATE OR REPLACE FUNCTION tube_channel(tube text) RETURNS text LANGUAGE sql IMMUTABLE STRICT "
            "RETURN repeat('x', 100)"
        )
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name LIKE 'pytube listener %'"
        )
        await run.until("it is told", lambda: bool(reasons(logged, "listening_failed")))
        conn.execute("INSERT INTO public.items VALUES (2)")
        await run.until("the next row is taken", lambda: taken == [1, 2])
        conn.execute(str(channel[0]))
        await run.until("it listens again", lambda: run.worker._hosts[0].database.services == 2)
        (told,) = reasons(logged, "listening_failed")
        assert "channel name" in told
        assert run.told(DatabaseDown) == run.told(LeaderRevoked) == 0


async def test_a_sequence_that_was_altered_is_told_once(
    conn: Conn, config_file: Path, logged: list[dict[str, Any]]
) -> None:
    make_tube(conn, 1)
    async with running(config_file) as run:
        conn.execute("ALTER SEQUENCE tube_seq CACHE 10")
        await run.until("it is told", lambda: bool(reasons(logged, "settling_failed")))
        conn.execute("INSERT INTO public.items VALUES (2)")
        await run.until("rows are taken all the same", lambda: set(taken) == {1, 2})
        conn.execute("ALTER SEQUENCE tube_seq CACHE 1")
        await run.until("a seq is settled again", lambda: run.worker._hosts[0].database.settled is not None)
        (told,) = reasons(logged, "settling_failed")
        assert "tube_seq was altered" in told


async def test_a_callback_that_raises_ends_nothing(conn: Conn, config_file: Path) -> None:
    make_tube(conn, 1)

    def fail(event: Event) -> None:
        raise RuntimeError(f"no use for {event}")

    async with running(config_file, fail) as run:
        await run.until("the row is taken", lambda: taken == [1])


async def test_marks_that_fail_are_no_flood_of_terms(
    conn: Conn, config_file: Path, logged: list[dict[str, Any]]
) -> None:
    make_tube(conn, 1)
    function = "tube_private_keeps_plans(text, integer)"
    body = conn.execute("SELECT pg_get_functiondef(%s::regprocedure)", (function,)).fetchone()
    assert body is not None
    conn.execute(
        "CREATE OR REPLACE FUNCTION tube_private_keeps_plans(tube text, partitions integer) "
        "RETURNS boolean LANGUAGE sql STABLE RETURN 1 / 0 = 1"
    )
    async with running(config_file) as run:
        await run.until("some terms have failed", lambda: run.told(LeaderRevoked) == 4)
        began = asyncio.get_running_loop().time()
        await run.until("two more have", lambda: run.told(LeaderRevoked) == 6)
        assert asyncio.get_running_loop().time() - began > 1.5, "the pauses do not grow"
        assert run.told(LeaderAcquired) <= 7
        conn.execute(str(body[0]))
        await run.until("the row is taken", lambda: taken == [1])
    warnings = [line for line in logged if line["log_level"] == "warning"]
    assert [line["event"] for line in warnings] == ["term_failed"], "it is told once"
    assert "division by zero" in warnings[0]["reason"]


async def test_an_administrator_in_the_middle_of_a_change_stops_nobody(
    connect: Connect, conn: Conn, config_file: Path
) -> None:
    make_tube(conn, 1)
    async with running(config_file) as run:
        await run.until("the first row is taken", lambda: taken == [1])
        admin = connect(autocommit=False)
        admin.execute("SELECT tube_ensure_exists('items', 1, 'id > 0')")
        conn.execute("INSERT INTO public.items VALUES (2)")
        await run.until("delivery goes on", lambda: taken == [1, 2])
        admin.rollback()
        assert run.told(LeaderAcquired) == 1


async def test_a_sink_that_can_not_be_closed_leaves_nothing_behind(
    conn: Conn, config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def close(_: CallableSink) -> None:
        raise OSError("the sink is stuck")

    monkeypatch.setattr(CallableSink, "close", close)
    make_tube(conn, 1)
    worker = Worker(load(config_file))
    await worker.start()
    with pytest.raises(OSError, match="stuck"):
        await worker.stop()
    assert worker.state == "stopped"
    left = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name LIKE 'pytube%'"
    )
    await wait_until_async(lambda: conn.execute(left).fetchone() == (0,), what="no session is left open")


async def test_a_tube_whose_sink_is_down_keeps_no_other_waiting(conn: Conn, config_file: Path) -> None:
    make_tube(conn)
    conn.execute("SELECT tube_ensure_exists('stuck')")
    with config_file.open("a") as file:
        file.write('\n[tube.stuck.sink]\ntype = "postgres"\ntable = "public.copy"\n')
        file.write('dsn = "host=127.0.0.1 port=1 dbname=none"\n')
    async with running(config_file) as run:
        conn.execute("INSERT INTO public.items VALUES (1)")
        await run.until("the other tube is served", lambda: taken == [1])
        await run.until("it is led, and says why it waits", lambda: run.told(SinkDown) == 1)
        (reason,) = [event.reason for event in run.of(SinkDown)]
        assert "port 1 failed" in reason
        state = "SELECT sink_down LIKE '%port 1 failed%' FROM tube_leaders() WHERE tube = 'stuck'"
        await run.until("status shows it", lambda: conn.execute(state).fetchone() == (True,))
        (remark,) = run.worker._remarks()
        assert remark.startswith("tube stuck is not served: ")
        assert run.worker._why_unready() is None, "one tube is served"
        assert run.worker.leads("stuck") == set()
