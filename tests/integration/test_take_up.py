"""`pytube worker --all`: tubes are served from when they are created until they are dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.config import Config, KafkaConfig, load
from pytube.errors import UnknownTube
from pytube.model import OK, Batch, Id, Result
from pytube.worker import Worker
from pytube.worker import host as host_module
from pytube.worker import worker as worker_module
from tests.helpers.waiting import wait_until_async

Conn = psycopg.Connection[tuple[Any, ...]]
taken: list[tuple[str, Id]] = []


def send(batch: Batch) -> Sequence[Result]:
    """Takes everything."""
    taken.extend((batch.tube, document.id) for document in batch)
    return [OK] * len(batch)


@pytest.fixture
def config(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setattr(host_module, "_PARTITIONS_INTERVAL", 0.05)
    monkeypatch.setattr(worker_module, "_SINKS_INTERVAL", 0.05)
    taken.clear()
    path = tmp_path / "pytube.toml"
    path.write_text(
        f"""
        [postgres]
        dsn = "{dsn}"
        # A dropped tube's last term may write for so long, and the next one of that name waits for it.
        [worker]
        receive_deadline = 1.5
        session_timeout = 6.0
        installation = "{dsn.rpartition("/")[2]}"
        [tube.items.sink]
        type = "callable"
        target = "{__name__}:send"
        request_timeout = 0.5
        [tube.later.sink]
        type = "jsonl"
        path = "{tmp_path}/later.jsonl"
        request_timeout = 0.5
        """
    )
    return load(path)


def make_tube(conn: Conn, *ids: int) -> None:
    conn.execute("SELECT tube_ensure_exists('items')")
    conn.execute("CREATE TABLE public.items (id bigint PRIMARY KEY)")
    conn.execute("SELECT tube_table_ensure_attached('items', 'public.items', 0)")
    conn.execute("INSERT INTO public.items SELECT unnest(%s::bigint[])", (list(ids),))


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[Worker]:
    worker = Worker(config, takes_up=True)
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop()


@pytest.mark.parametrize(("election", "rounds"), [("lease", 2), ("neli", 1)])
async def test_tubes_are_taken_up_and_left(
    config: Config, conn: Conn, tmp_path: Path, election: str, rounds: int, request: pytest.FixtureRequest
) -> None:
    if election == "neli":
        kafka = KafkaConfig(bootstrap_servers=request.getfixturevalue("kafka_mock"))
        config = config.model_copy(update={"kafka": kafka})
    async with running(config) as worker:
        (host,) = worker._hosts
        assert host._elections.joined == (set() if election == "neli" else {""})
        assert worker._why_unready() in (None, "no session with Postgres has renewed terms yet")
        for key in range(rounds):
            await asyncio.to_thread(make_tube, conn, key)
            await wait_until_async(lambda: taken[-1:] == [("items", key)], what="it is served")  # noqa: B023
            assert worker._sinks["items"].why_closed is None
            conn.execute("SELECT tube_drop('items', true)")
            conn.execute("DROP TABLE public.items")
            await wait_until_async(
                lambda: worker._sinks["items"].why_closed is not None, what="its sink is closed"
            )
            assert worker.leads("items") == set()
            if election == "neli":
                await wait_until_async(lambda: not host._elections.joined, what="the group is left")
        assert worker._why_broken() is None
    assert not (tmp_path / "later.jsonl").exists(), "the sink of a tube that is not there stays closed"


async def test_without_it_all_tubes_have_to_exist(config: Config, conn: Conn) -> None:
    make_tube(conn)
    with pytest.raises(UnknownTube, match="there is no tube 'later'"):
        await Worker(config).start()
