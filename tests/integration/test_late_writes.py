"""Writes that come late: no later term writes while one of an earlier term may still take effect.

A store that compares no tokens takes whatever comes last. Each test leaves a write on its way when its term
ends, and changes the row; the write then takes effect, within the time that a request may last.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pytube.config import load
from pytube.events import Event, LeaderFenced, LeaderRevoked
from pytube.model import OK, Batch, Result
from pytube.worker import Worker
from tests.integration.test_worker_faults import Conn, Running

stored: list[int] = []
"""The versions of the row, in the order in which they were written."""
waits = threading.Event()
"""Set when the first version is on its way."""
may_write = threading.Event()


def send(batch: Batch) -> Sequence[Result]:
    """Write; the first version is on its way until it may be written."""
    for document in batch:
        version = json.loads(document.body or b"{}")["n"]
        if version == 1:
            waits.set()
            may_write.wait(20)
        stored.append(version)
    return [OK] * len(batch)


@pytest.fixture(autouse=True)
def _nothing_is_stored() -> None:
    stored.clear()
    waits.clear()
    may_write.clear()


@asynccontextmanager
async def running(path: Path, dsn: str, *, request_timeout: float) -> AsyncIterator[Running]:
    """A worker that serves the tube `late`."""
    config = path / "pytube.toml"
    config.write_text(
        f'[postgres]\ndsn = "{dsn}"\n[worker]\nreceive_deadline = 1.0\ndrain_limit = 0.2\n'
        f"session_timeout = {1.0 + request_timeout}\n"
        f'[tube.late.sink]\ntype = "callable"\ntarget = "{__name__}:send"\n'
        f"request_timeout = {request_timeout}\n"
    )
    events: list[Event] = []
    served = Worker(load(config), on_event=events.append)
    await served.start()
    run = Running(served, events)
    try:
        yield run
    finally:
        may_write.set()
        await served.stop()
        run.waiting.cancel()


async def _begin(conn: Conn, run: Running) -> None:
    """A row whose first version is on its way."""
    conn.execute("INSERT INTO public.late VALUES (1, 1)")
    await run.until("the write is on its way", waits.is_set)


def _make(conn: Conn) -> None:
    conn.execute("SELECT tube_ensure_exists('late', 1)")
    conn.execute("CREATE TABLE public.late (id bigint PRIMARY KEY, n bigint)")
    conn.execute("SELECT tube_table_ensure_attached('late', 'public.late', 0)")


async def test_a_term_waits_until_no_earlier_one_can_write(dsn: str, conn: Conn, tmp_path: Path) -> None:
    """A repartition ends terms at once, whatever leases say, and new ones are acquired at once."""
    _make(conn)
    async with running(tmp_path, dsn, request_timeout=4.0) as run:
        await _begin(conn, run)
        conn.execute("SELECT tube_ensure_exists('late', 2)")
        conn.execute("UPDATE public.late SET n = 2")
        await run.until("the term is over", lambda: bool(run.told(LeaderFenced)))
        await run.until("another one was acquired", lambda: bool(run.worker._hosts[0].database.terms))
        await asyncio.sleep(1.5)  # a term that does not wait has sent by now
        may_write.set()
        await run.until("the second version is written", lambda: 2 in stored)
    assert stored == [1, 2], "what was on its way has overwritten the newer version"


async def test_a_term_is_not_released_while_a_write_of_its_own_may_come(
    dsn: str, conn: Conn, tmp_path: Path
) -> None:
    """A store that can't say in time that a write won't come: the next leader waits out the hold then."""
    _make(conn)
    async with running(tmp_path, dsn, request_timeout=1.0) as first:
        await _begin(conn, first)
        async with running(tmp_path, dsn, request_timeout=1.0) as second:
            conn.execute("UPDATE public.late SET n = 2")
            began = time.monotonic()
            stopping = asyncio.create_task(first.worker.stop())
            await first.until("the term is given back", lambda: bool(first.told(LeaderRevoked)))
            await asyncio.sleep(0.5)  # a leader that need not wait has sent by now
            assert time.monotonic() < began + 3.0
            may_write.set()
            await second.until("the second version is written", lambda: 2 in stored)
            await stopping
    assert stored == [1, 2], "what was on its way has overwritten the newer version"
