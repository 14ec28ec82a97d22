"""The sink `opensearch` at a cluster of three nodes, one of which dies or hangs. Long runs only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.config import load
from pytube.errors import SinkError, SinkUnavailable
from pytube.events import Event, SinkDown
from pytube.model import OK, Key, Stale, Token
from pytube.testing import batch
from pytube.worker import Worker
from tests.helpers.database import server_folder
from tests.helpers.frozen import frozen
from tests.helpers.opensearch import Index, an_index, opened
from tests.helpers.opensearch_cluster import NODES, Cluster
from tests.helpers.waiting import wait_until_async

pytestmark = pytest.mark.soak

COPIES = {
    "number_of_shards": 1,
    "number_of_replicas": 1,
    # The third node gets no copy, so that none is there until the node that was lost is back.
    "unassigned.node_left.delayed_timeout": "1h",
}
WRITERS = 4
ENOUGH = 2000
"""Documents that are acknowledged before a node dies, and again after it."""


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with server_folder() as folder, Cluster(folder) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    """All nodes run and answer, before the test and after it."""
    yield running
    for node in running.nodes:
        node.start()
    running.wait_for(nodes=NODES)


@pytest.fixture
def index(cluster: Cluster) -> Iterator[Index]:
    with an_index(cluster.nodes[0].url) as index:
        yield index
        for node in cluster.nodes:
            node.start()


async def test_what_was_acknowledged_outlives_the_node_of_the_primary(cluster: Cluster, index: Index) -> None:
    """No document is sent twice, so one that only the dead node had would be missing."""
    acknowledged: dict[Key, Token] = {}
    numbers = count(1)

    async def write() -> None:
        while True:
            number = next(numbers)
            values = {number * 100 + at: {"n": number} for at in range(20)}
            try:
                results = await sink.send(batch(values, token=(5, number)))
            except SinkError:
                continue
            for key, result in zip(values, results, strict=True):
                if result == OK:
                    acknowledged[0, key] = Token(5, number)

    async def missing() -> list[Key]:
        keys, lost = list(acknowledged), []
        for first in range(0, len(keys), 1000):
            found = await sink.read("t", keys[first : first + 1000])
            lost += [key for key, stored in found.items() if stored.token != acknowledged[key]]
        return lost

    async with opened(index, url=cluster.urls, settings=COPIES) as sink:
        await asyncio.to_thread(cluster.wait_for, nodes=NODES, index=index.name)
        assert await sink.send(batch({-1: None}, token=(6, 1))) == [OK]
        primary = cluster.holders(index.name)["p"]
        writers = [asyncio.create_task(write()) for _ in range(WRITERS)]
        await wait_until_async(lambda: len(acknowledged) >= ENOUGH, what="enough are acknowledged")
        await asyncio.to_thread(primary.kill)
        before = len(acknowledged)
        await wait_until_async(lambda: len(acknowledged) >= before + ENOUGH, what="the load goes on")
        for writer in writers:
            writer.cancel()
        await asyncio.wait(writers)
        assert set(cluster.holders(index.name)) == {"p"}, "one copy is left, and took the rest alone"
        assert await missing() == []
        assert await sink.send(batch({-1: {"late": 1}}, token=(5, 10**6))) == [Stale(int(Token(6, 1)))]
        await asyncio.to_thread(primary.start)
        await asyncio.to_thread(cluster.wait_for, nodes=NODES, index=index.name)
        assert await missing() == []


async def test_a_worker_waits_for_the_copies_that_are_asked_for(
    cluster: Cluster, index: Index, dsn: str, conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    conn.execute("CREATE TABLE public.items (id bigint PRIMARY KEY, n int)")
    conn.execute("SELECT tube_ensure_exists('items', 2)")
    conn.execute("SELECT tube_table_ensure_attached('items', 'public.items', shard => 0, shards => 4)")
    config = tmp_path / "pytube.toml"
    config.write_text(f"""
        [postgres]
        dsn = "{dsn}"
        [tube.items.sink]
        type = "opensearch"
        url = {cluster.urls}
        index = "{index.name}"
        key = "{{id}}"
        [tube.items.sink.settings]
        number_of_replicas = 1
        "unassigned.node_left.delayed_timeout" = "1h"
        "write.wait_for_active_shards" = "2"
    """)

    def held() -> dict[Any, Any]:
        return {id_: value for (_, id_), value in index.values().items()}

    def rows() -> dict[Any, Any]:
        return dict(conn.execute("SELECT id, row_to_json(items) FROM public.items").fetchall())

    events: list[Event] = []
    worker = Worker(load(config), on_event=events.append)
    await worker.start()
    try:
        conn.execute("INSERT INTO public.items SELECT g, g FROM generate_series(1, 500) g")
        await wait_until_async(lambda: held() == rows(), what="the copy is equal")
        copies = cluster.holders(index.name)
        index.server = copies["p"].url
        before = held()
        await asyncio.to_thread(copies["r"].kill)
        await asyncio.to_thread(cluster.wait_for, nodes=NODES - 1, index=index.name, status="yellow")
        conn.execute("UPDATE public.items SET n = -n")
        await wait_until_async(lambda: sent_again(worker) > 0, what="what was refused is sent again")
        assert held() == before, "nothing is written with one copy"
        await asyncio.to_thread(copies["r"].start)
        await wait_until_async(lambda: held() == rows(), what="the copy is equal again")
    finally:
        await worker.stop()
    assert not [event for event in events if isinstance(event, SinkDown)], (
        "the lag tells of it, as the page says"
    )


def sent_again(worker: Worker) -> int:
    """Documents, by the worker's own count."""
    counted = worker._hosts[0].tubes()["items"].metrics.partitions
    return sum(sum(one.retries) for one in counted.values())


async def test_a_reindex_does_not_go_on_before_every_node_knows_of_it(cluster: Cluster, index: Index) -> None:
    manager = cluster.manager
    other = next(node for node in cluster.nodes if node is not manager)
    async with opened(index, url=manager.url) as sink:
        assert await sink.send(batch({1: {"v": 1}})) == [OK]
        reindexer = index.sink(url=manager.url, timeout=90).reindexer()
        try:
            state = await reindexer.begin("conformance")
            with (
                frozen(other.pid),
                pytest.raises(SinkUnavailable, match="not every node of the cluster has confirmed"),
            ):
                await reindexer.begin("conformance")
            await asyncio.to_thread(cluster.wait_for, nodes=NODES)
            assert await reindexer.begin("conformance") == state
            assert await reindexer.abandon()
        finally:
            await reindexer.close()
