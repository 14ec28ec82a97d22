"""Tables that somebody has locked, and slow sinks: `status` and `doctor` tell, although nothing is down."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.config import load
from pytube.embedded.kafka_real import RealKafka
from pytube.events import Event, SourceDown, TableLocked, TableUnlocked
from pytube.model import OK, Batch, Result
from pytube.worker import Worker, active_term, services
from tests.helpers.cli import run
from tests.helpers.outbox import OUTBOX, configured, create_topic, running, stash, topics, until_waiting
from tests.helpers.waiting import wait_until_async

Conn = psycopg.Connection[Any]
Connect = Callable[[], Conn]
LOCKS = ("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", "SELECT FROM {} FOR UPDATE")

pause = 0.0
standstill = 0.0


async def send(batch: Batch) -> list[Result]:
    """The sink of these tests."""
    await asyncio.sleep(pause)
    time.sleep(standstill)  # noqa: ASYNC251 # as the whole process may
    return [OK] * len(batch)


@pytest.fixture
def config(dsn: str, conn: Conn, tmp_path: Path) -> Path:
    conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY)")
    conn.execute("SELECT tube_ensure_exists('t', 1)")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.goods', 1)")
    path = tmp_path / "pytube.toml"
    path.write_text(f"""
        [postgres]
        dsn = "{dsn}"
        [tube.t.sink]
        type = "callable"
        target = "{__name__}:send"
        request_timeout = 2
        compares = true
    """)
    return path


async def status(config: Path, *options: str) -> str:
    return await asyncio.to_thread(lambda: run("--config", str(config), "status", *options).output)


async def test_a_locked_table_is_told_of_until_it_is_free(config: Path, conn: Conn, connect: Connect) -> None:
    events: list[Event] = []
    worker = Worker(load(config), on_event=events.append)
    await worker.start()
    try:
        with closing(connect()) as holder:
            conn.execute("INSERT INTO goods VALUES (1)")
            await wait_until_async(lambda: _left(conn) == 0, what="what is there is delivered")
            pid = holder.info.backend_pid
            holder.execute("BEGIN; LOCK TABLE goods IN ACCESS EXCLUSIVE MODE")
            conn.execute("SELECT t_touch(1, ARRAY[1], 'U')")
            await wait_until_async(lambda: _of(events, TableLocked), what="an event tells")
            (event,) = _of(events, TableLocked)
            assert (event.table, event.pid) == ("public.goods", pid)
            said = "t partition 0: waits for a lock for "
            await wait_until_async(lambda: _hindered(conn), what="a renewal tells")
            line = next(line for line in (await status(config)).splitlines() if line.startswith(said))
            assert f"public.goods is locked by pid {pid}" in line
            assert f"SELECT pg_terminate_backend({pid})" in line
            doctor = await asyncio.to_thread(lambda: run("--config", str(config), "doctor").output)
            assert "waits for a lock" in doctor
            (row,) = json.loads(await status(config, "--json"))
            assert [one["what"] for one in row["hindered"]] == ["locked"]
            conn.execute("SELECT pg_terminate_backend(%s)", (pid,))  # as it says
            await wait_until_async(lambda: _left(conn) == 0, what="the rows are delivered")
            await wait_until_async(lambda: _of(events, TableUnlocked), what="an event tells")
            await wait_until_async(lambda: not _hindered(conn), what="no line is left")
        assert len(_of(events, TableLocked)) == len(_of(events, TableUnlocked)) == 1
        assert not _of(events, SourceDown)
    finally:
        await worker.stop()


async def test_all_who_wait_are_told_of_and_no_longer_than_it_lasts(
    config: Path, conn: Conn, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One session reads, so one read waits for the lock. It is cut off, and does not see the end."""
    monkeypatch.setattr(active_term, "_STALE", float("inf"))
    conn.execute("SELECT tube_ensure_exists('t', 4)")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.goods', 0, shards => 4)")
    settings = load(config)
    few = settings.postgres.model_copy(update={"pool_size": 4, "answer_timeout": 8.0})
    events: list[Event] = []
    worker = Worker(settings.model_copy(update={"postgres": few}), on_event=events.append)
    await worker.start()
    try:
        with closing(connect()) as holder:
            conn.execute("INSERT INTO goods SELECT generate_series(1, 40)")
            await wait_until_async(lambda: _left(conn) == 0, what="what is there is delivered")
            holder.execute("BEGIN; LOCK TABLE goods IN ACCESS EXCLUSIVE MODE")
            for shard in range(4):
                ids = [one for one in range(1, 41) if one % 4 == shard]
                conn.execute("SELECT t_touch(%s, %s, 'U')", (shard, ids))
            await wait_until_async(lambda: len(_of(events, TableLocked)) == 4, what="all are told of")
            assert len({event.partition for event in _of(events, TableLocked)}) == 4
            assert not _of(events, SourceDown), "before the first of them is cut off"
            await wait_until_async(lambda: _of(events, SourceDown), what="a read is cut off", timeout=30)
            assert "terminate" not in _of(events, SourceDown)[0].reason
            holder.execute("COMMIT")
            await wait_until_async(lambda: not _hindered(conn), what="no line is left", timeout=30)
            await wait_until_async(lambda: _left(conn) == 0, what="all is delivered", timeout=30)
            assert len(_of(events, TableLocked)) == len(_of(events, TableUnlocked)) == 4
    finally:
        await worker.stop()


async def test_a_slow_sink_is_told_of(config: Path, conn: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.pause", 1.5)
    worker = Worker(load(config))
    await worker.start()
    try:
        conn.execute("INSERT INTO goods SELECT generate_series(1, 2000)")
        await wait_until_async(lambda: _hindered(conn), what="a renewal tells", timeout=30)
        (line,) = [line for line in (await status(config)).splitlines() if "sink slow for" in line]
        assert line.startswith("t partition 0: sink slow for ")
        assert "its answers take more than half of 2 s" in line
        assert "raise its request_timeout, and worker.session_timeout with it" in line
        assert line.endswith("; more: docs/errors.md#sink-slow")
    finally:
        monkeypatch.setattr(f"{__name__}.pause", 0.0)
        await worker.stop()


async def test_a_worker_that_is_late_does_not_blame_the_sink(
    config: Path, conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink answers at once, and the process is late to hear it, for as long as makes a sink slow."""
    monkeypatch.setattr(services, "_WINDOW", 3.0)
    monkeypatch.setattr(f"{__name__}.standstill", 1.5)
    worker = Worker(load(config))
    await worker.start()
    try:
        conn.execute("INSERT INTO goods SELECT generate_series(1, 2000)")
        await wait_until_async(lambda: _hindered(conn), what="a renewal tells", timeout=30)
        said = await status(config)
        assert "sink slow" not in said
        (line,) = [line for line in said.splitlines() if "worker late for" in line]
        assert "the worker gets too little processor time: its event loop was late for" in line
        assert line.endswith("; more: docs/errors.md#worker-late")
        assert conn.execute("SELECT DISTINCT what FROM tube_hindered_list()").fetchall() == [("late",)]
    finally:
        monkeypatch.setattr(f"{__name__}.standstill", 0.0)
        await worker.stop()


@pytest.mark.parametrize("lock", LOCKS)
async def test_locked_records_of_an_outbox_are_told_of(
    lock: str, tmp_path: Path, dsn: str, conn: Conn, connect: Connect, kafka_real: RealKafka
) -> None:
    conn.execute("SELECT outbox_ensure_exists(%s)", (OUTBOX,))
    topic = next(topics)
    create_topic(kafka_real.bootstrap, topic)
    config = configured(tmp_path, dsn, kafka_real.bootstrap, "")
    with connect() as holder:
        pid = holder.info.backend_pid
        (number,) = stash(conn, topic, ["a"])["a"]
        holder.execute(f"BEGIN; {lock.format(f'tube.{OUTBOX}')}".encode())
        async with running(config) as events:
            await wait_until_async(lambda: _of(events, TableLocked), what="an event tells", timeout=30)
            (event,) = _of(events, TableLocked)
            assert (event.table, event.pid) == (f"tube.{OUTBOX}", pid)
            ours = f"of tube.{OUTBOX} record {number} (topic {topic}, key a) is locked by pid {pid} ("
            whole = f"tube.{OUTBOX} is locked by pid {pid} ("
            assert event.reason.startswith(ours if "FOR UPDATE" in lock else whole)
            await wait_until_async(lambda: _hindered(conn), what="a renewal tells")
            holder.execute("COMMIT")
            await until_waiting(conn)
            await wait_until_async(lambda: _of(events, TableUnlocked), what="an event tells")
            await wait_until_async(lambda: not _hindered(conn), what="no line is left")


def _hindered(conn: Conn) -> list[Any]:
    return conn.execute("SELECT what, reason FROM tube_hindered_list()").fetchall()


def _left(conn: Conn) -> int:
    (count,) = conn.execute("SELECT count(*) FROM tube.t").fetchone() or (0,)
    return int(count)


def _of(events: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]
