"""Tubes of one process: those whose sinks hang slow no other one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pytube.config import load
from pytube.model import Batch, Id
from pytube.worker import Worker
from tests.helpers.waiting import wait_until_async

Conn = psycopg.Connection[tuple[object, ...]]
taken: set[Id] = set()
hung = [0, 0]
over = threading.Event()


def take(batch: Batch) -> None:
    """Takes everything."""
    taken.update(document.id for document in batch)


def hang(_: Batch) -> None:
    """Hangs in a thread of the sink's own."""
    hung[0] += 1
    over.wait()


async def hang_in_shared_threads(_: Batch) -> None:
    """Hangs where all of the event loop's `to_thread` calls run, as drivers without a coroutine do."""
    hung[1] += 1
    await asyncio.to_thread(over.wait)


CONFIG = """
    [postgres]
    dsn = "{dsn}"
    pool_size = 2
    [tube.well.sink]
    type = "callable"
    target = "{module}:take"
    [tube.hung.sink]
    type = "callable"
    target = "{module}:hang"
    batch_documents = 1
    [tube.hung_too.sink]
    type = "callable"
    target = "{module}:hang_in_shared_threads"
    batch_documents = 1
    sends = 64
    ramp = 64
    concurrency = 64
    [tube.hung_too]
    keys_in_flight = 100
"""


@pytest.fixture
async def worker(dsn: str, conn: Conn, tmp_path: Path) -> AsyncIterator[Worker]:
    taken.clear()
    over.clear()
    hung[:] = [0, 0]
    for shard, tube in enumerate(("well", "hung", "hung_too")):
        conn.execute("SELECT tube_ensure_exists(%s)", (tube,))
        conn.execute(f"CREATE TABLE public.of_{tube} (id bigint PRIMARY KEY)".encode())
        conn.execute("SELECT tube_table_ensure_attached(%s, %s, %s)", (tube, f"public.of_{tube}", shard))
    file = tmp_path / "pytube.toml"
    file.write_text(CONFIG.format(dsn=make_conninfo(dsn, host="localhost"), module=__name__))
    worker = Worker(load(file))
    await worker.start()
    try:
        yield worker
    finally:
        over.set()
        await worker.stop()


async def test_a_tube_is_served_while_the_sinks_of_others_hang(worker: Worker, conn: Conn) -> None:
    """With fewer sessions than tubes, all threads of the event loop taken, and all sessions lost at once."""
    for tube in ("hung", "hung_too"):
        conn.execute(f"INSERT INTO public.of_{tube} SELECT generate_series(1, 1000)".encode())
    await wait_until_async(lambda: hung[0] == 4 and hung[1] == 64, what=f"all sends hang: {hung}")
    conn.execute("INSERT INTO public.of_well SELECT generate_series(1, 100)")
    await wait_until_async(lambda: len(taken) == 100, what="the other tube is served")
    conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name LIKE 'pytube %' AND datname = current_database()"
    )
    conn.execute("INSERT INTO public.of_well SELECT generate_series(101, 200)")
    await wait_until_async(lambda: len(taken) == 200, what="it is served with new sessions")
    assert worker.leads("well") == {0}
