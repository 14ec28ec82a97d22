"""A sink that is slow by what it is sent: it is sent less at a time, and is never held to be down."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from pytube.config import load
from pytube.events import Event, Parked, SinkDown
from pytube.model import Batch, Id
from pytube.worker import Worker
from tests.helpers.logs import capture_logs
from tests.helpers.waiting import wait_until_async

Conn = psycopg.Connection[tuple[object, ...]]
SERVERS = 4
PER_DOCUMENT = 0.0045
"""Seconds: 2.25 for a batch of 500, so that the 16 sends of four partitions time out after 3."""
ROWS = 10_000
CONVERGED = 2000
"""Documents by which the sink is known to be slow."""

calls: list[int] = []
served: list[Id] = []
"""In order, also what was given up meanwhile."""


servers: list[asyncio.Semaphore] = []


async def serve(batch: Batch) -> None:
    """Serves so many at a time, and goes on with what was given up."""
    calls.append(len(batch))
    await asyncio.shield(asyncio.create_task(_serve([document.id for document in batch])))


async def _serve(ids: list[Id]) -> None:
    async with servers[0]:
        await asyncio.sleep(len(ids) * PER_DOCUMENT)
        served.extend(ids)


CONFIG = """
    [postgres]
    dsn = "{dsn}"
    [tube.slow]
    attempts = 1
    [tube.slow.sink]
    type = "callable"
    target = "{module}:serve"
    compares = true
    concurrency = 1000
    request_timeout = 3.0
"""


@pytest.fixture
async def events(dsn: str, conn: Conn, tmp_path: Path) -> AsyncIterator[list[Event]]:
    """What a worker tells of itself that has a table of rows to deliver."""
    servers[:] = [asyncio.Semaphore(SERVERS)]
    calls.clear()
    served.clear()
    conn.execute("CREATE TABLE public.slow (id bigint PRIMARY KEY)")
    conn.execute("SELECT tube_ensure_exists('slow', 4)")
    conn.execute("SELECT tube_table_ensure_attached('slow', 'public.slow', shard => 0, shards => 4)")
    conn.execute("INSERT INTO public.slow SELECT generate_series(1, %s)", (ROWS,))
    file = tmp_path / "pytube.toml"
    file.write_text(CONFIG.format(dsn=dsn, module=__name__))
    seen: list[Event] = []
    worker = Worker(load(file), on_event=seen.append)
    await worker.start()
    try:
        yield seen
    finally:
        await worker.stop()


async def test_a_slow_sink_is_sent_what_it_can_answer(events: list[Event]) -> None:
    with capture_logs() as logs:
        await wait_until_async(lambda: len(set(served)) == ROWS, what=lambda: f"{len(set(served))} arrive")
    repeats = [key for key, count in Counter(served).items() if count > 1]
    assert set(repeats) <= set(served[:CONVERGED]), "documents are sent twice for ever"
    assert [event for event in events if isinstance(event, SinkDown | Parked)] == []
    (told,) = [line for line in logs if line["event"] == "sink_slow"]
    assert told["setting"] == "batch_documents"
    assert "request_timeout" in told["remark"]
    assert max(calls[-20:]) < 500
