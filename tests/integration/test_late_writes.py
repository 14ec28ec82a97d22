"""Writes that come late: no later term writes while one of an earlier term may still take effect.

A store that compares no tokens takes whatever comes last. Each test leaves a write on its way when its term
ends, and changes the row; the write then takes effect, within the time that a request may last.
"""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pytube.config import load
from pytube.db.session import Queries
from pytube.events import Event, LeaderAcquired, LeaderFenced, LeaderRevoked
from pytube.model import OK, Batch, Result
from pytube.sources import terms
from pytube.sources.terms import Term
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


def _acquired(run: Running) -> list[LeaderAcquired]:
    """Of the partition that has the row."""
    return [event for event in run.of(LeaderAcquired) if event.partition == 0]


async def test_a_term_waits_until_no_earlier_one_can_write(
    dsn: str, conn: Conn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repartition ends terms at once, whatever leases say, and new ones are acquired at once."""
    _make(conn)
    async with running(tmp_path, dsn, request_timeout=4.0) as run:
        await _begin(conn, run)
        told: dict[int, float] = {}

        async def wait_left(session: Queries, term: Term) -> float:
            told[term.partition] = await ask(session, term)
            return told[term.partition]

        ask = terms.wait_left
        monkeypatch.setattr(terms, "wait_left", wait_left)
        conn.execute("SELECT tube_ensure_exists('late', 2)")
        conn.execute("UPDATE public.late SET n = 2")
        await run.until("the term is over", lambda: bool(run.told(LeaderFenced)))
        await run.until("the next one knows how long to wait", lambda: 0 in told)
        assert len(_acquired(run)) == 1, "it begins at once"
        may_write.set()
        await run.until("the second version is written", lambda: 2 in stored)
        assert _acquired(run)[1].waited >= told[0] > 0
    assert stored == [1, 2], "what was on its way has overwritten the newer version"


async def test_a_term_is_not_released_while_a_write_of_its_own_may_come(
    dsn: str, conn: Conn, tmp_path: Path
) -> None:
    """A store that can't say in time that a write won't come: the next leader waits out the hold then."""
    _make(conn)
    async with running(tmp_path, dsn, request_timeout=2.0) as first:
        await _begin(conn, first)
        async with running(tmp_path, dsn, request_timeout=2.0) as second:
            conn.execute("UPDATE public.late SET n = 2")
            await first.worker.stop()
            may_write.set()
            await second.until("the second version is written", lambda: 2 in stored)
    (revoked,) = first.of(LeaderRevoked)
    ended = conn.execute("SELECT outcome FROM tube_terms('late') WHERE leader_id = %s", (revoked.leader_id,))
    assert ended.fetchall() == [("superseded",)], (
        "whoever leads next does not wait for a term that was released"
    )
    assert stored == [1, 2], "what was on its way has overwritten the newer version"
