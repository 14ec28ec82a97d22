"""A sink that holds tokens above any that the database has issued: a restored backup under it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.config import load
from pytube.events import Event, LeaderFenced
from pytube.model import OK, Batch, Id, Result, Stale, Token
from pytube.tubes.admin import Tubes
from pytube.worker import Worker
from tests.helpers.cli import run_json
from tests.helpers.logs import capture_logs
from tests.helpers.waiting import wait_until_async

AHEAD = 2_000_000_000
"""An epoch that no database issues for some years."""

HELD = Token(AHEAD, 1000)

taken: list[Id] = []


def send(batch: Batch) -> Sequence[Result]:
    """A comparing sink that was written up to `HELD`."""
    if batch.token < HELD:
        return [Stale(int(HELD))] * len(batch)
    taken.extend(document.id for document in batch)
    return [OK] * len(batch)


@pytest.fixture
def config_file(dsn: str, tmp_path: Path) -> Path:
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public") as connection:
        connection.execute("CREATE TABLE public.items (id bigint PRIMARY KEY)")
        connection.execute("SELECT tube_ensure_exists('items')")
        connection.execute("SELECT tube_table_ensure_attached('items', 'public.items', 0)")
        connection.execute("INSERT INTO public.items VALUES (7)")
    path = tmp_path / "pytube.toml"
    path.write_text(
        f"""
        [postgres]
        dsn = "{dsn}"
        [tube.items.sink]
        type = "callable"
        target = "{__name__}:send"
        compares = true
        """
    )
    return path


async def test_the_worker_stops_until_the_epochs_are_rebased(dsn: str, config_file: Path) -> None:
    taken.clear()
    events: list[Event] = []
    worker = Worker(load(config_file), on_event=events.append)
    with capture_logs() as logged:
        await worker.start()
        await wait_until_async(
            lambda: any(line["event"] == "sink_ahead" for line in logged), what="the sink fences the term"
        )
    try:
        assert any(isinstance(event, LeaderFenced) for event in events)
        assert taken == []
        await wait_until_async(
            lambda: f"`pytube tube rebase items --epoch {AHEAD}`" in (_status(dsn)["sink_down"] or ""),
            what="a renewal says what to do",
        )
        assert _status(dsn)["state"] == "sink down"
        with psycopg.connect(dsn, autocommit=True) as connection:
            assert connection.execute("SELECT count(*) FROM tube.items").fetchone() == (1,)
            issued = await asyncio.to_thread(Tubes(connection).rebase, "items", AHEAD)
        assert issued > AHEAD
        await wait_until_async(lambda: taken == [7], what="the document is taken after the rebase")
    finally:
        await worker.stop()
    (told,) = [line["reason"] for line in logged if line["event"] == "sink_ahead"]
    assert f"pytube tube rebase items --epoch {AHEAD}" in told


def _status(dsn: str) -> Any:
    return run_json("status", dsn=dsn)[0]


async def test_an_epoch_that_is_issued_again_is_not_taken_for_its_own(dsn: str, config_file: Path) -> None:
    """After a failover that lost terms: the sink's newer token is not of this term, so nothing is done."""
    taken.clear()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE tube.tube_registry SET last_epoch = %s", (AHEAD - 1,))
    events: list[Event] = []
    worker = Worker(load(config_file), on_event=events.append)
    await worker.start()
    try:
        await wait_until_async(lambda: taken == [7], what="the document is taken under a later epoch")
    finally:
        await worker.stop()
    assert sum(isinstance(event, LeaderFenced) for event in events) == 1
