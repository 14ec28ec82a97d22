"""The sink `opensearch` while its server dies, hangs or is slow, and under a real worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.config import load
from pytube.embedded.search_server import SearchServer
from pytube.errors import SinkError, SinkTimeout, SinkUnavailable
from pytube.events import Event, SweepFinished
from pytube.model import OK, Stale, Token
from pytube.testing import batch
from pytube.worker import Worker
from tests.helpers import cli
from tests.helpers.opensearch import Index, an_index, opened
from tests.helpers.proxy import Mode, Proxy
from tests.helpers.waiting import wait_until_async


@pytest.fixture
def index(opensearch: SearchServer) -> Iterator[Index]:
    with an_index(opensearch.url) as index:
        yield index


@pytest.fixture
def proxy(opensearch: SearchServer) -> Iterator[Proxy]:
    with Proxy(opensearch.port) as proxy:
        yield proxy


async def test_killed_in_the_middle_of_a_batch(index: Index, opensearch: SearchServer) -> None:
    values = {key: {"n": key} for key in range(1500)}
    # A request for each document, so that the server dies between two of them.
    async with opened(index, bulk_bytes=1) as sink, opened(index) as other:
        assert await sink.send(batch({-1: None}, token=(6, 1))) == [OK]
        sending = asyncio.create_task(sink.send(batch(values, token=(5, 1))))
        await wait_until_async(lambda: len(index.hits()) > 0, what="some of them are written")
        await asyncio.to_thread(opensearch.kill)
        await asyncio.wait({sending})
        error = sending.exception()
        assert error is not None or any(result != OK for result in sending.result())
        assert error is None or isinstance(error, SinkTimeout | SinkUnavailable)
        with pytest.raises(SinkUnavailable):
            await sink.send(batch({1: {}}, token=(5, 2)))
        await asyncio.to_thread(opensearch.start)
        assert await other.send(batch(values, token=(5, 3))) == [OK] * len(values)
        assert await sink.send(batch({-1: {"late": 1}}, token=(5, 9))) == [Stale(int(Token(6, 1)))]
    assert index.values() == {(0, key): value for key, value in values.items()}


@pytest.mark.soak
async def test_an_orderly_restart_forgets_tombstones(index: Index, opensearch: SearchServer) -> None:
    """What docs/sinks/opensearch.md says is missing; documents that are there are compared all the same."""
    async with opened(index) as sink:
        assert await sink.send(batch({1: None, 2: {"v": 1}}, token=(6, 1))) == [OK, OK]
        await asyncio.to_thread(opensearch.restart)
        late = await sink.send(batch({1: {"late": 1}, 2: {"late": 1}}, token=(5, 1)))
    assert late == [OK, Stale(int(Token(6, 1)))]


async def test_an_answer_that_is_lost(index: Index, proxy: Proxy) -> None:
    """The write is done, and nobody knows; what is sent under a new token wins."""
    url = f"http://{proxy.address}"
    async with opened(index, url=url) as sink, opened(index, url=url, timeout=0.3) as impatient:
        proxy.switch(Mode.ANSWERS_LOST)
        late = batch({1: {"v": 1}}, token=(5, 1))
        sending = asyncio.create_task(sink.send(late))
        await wait_until_async(lambda: index.values() == {(0, 1): {"v": 1}}, what="it is written")
        sending.cancel()
        await asyncio.wait({sending})
        await sink.abandon(late)
        with pytest.raises(SinkTimeout, match="no whole answer"):
            await impatient.send(batch({2: {}}))
        proxy.switch(Mode.PASS)
        assert await sink.send(batch({1: {"v": 2}}, token=(5, 2))) == [OK]
        assert index.values()[0, 1] == {"v": 2}


async def test_a_server_that_cannot_be_reached(index: Index, proxy: Proxy) -> None:
    async with opened(index, url=f"http://{proxy.address}") as sink:
        proxy.switch(Mode.CUT)
        with pytest.raises(SinkError):  # it may find its connection closed only as it sends
            await sink.send(batch({1: {}}))
        with pytest.raises(SinkUnavailable, match="can't be reached"):
            await sink.send(batch({1: {}}))
        proxy.switch(Mode.HALF_OPEN)
        with pytest.raises(SinkUnavailable):
            await index.sink(url=f"http://{proxy.address}", timeout=0.3).open()
        proxy.switch(Mode.SLOW, delay=0.1, rate=20_000)
        assert await sink.send(batch({1: {"text": "x" * 10_000}})) == [OK]


# --- a real worker --------------------------------------------------------------------------


@pytest.fixture
def folder(dsn: str, conn: psycopg.Connection[Any], index: Index, tmp_path: Path) -> Path:
    conn.execute("CREATE TABLE public.items (id bigint PRIMARY KEY, n int)")
    conn.execute("SELECT tube_ensure_exists('items', 2)")
    conn.execute("SELECT tube_table_ensure_attached('items', 'public.items', shard => 0, shards => 4)")
    (tmp_path / "pytube.toml").write_text(
        f'[postgres]\ndsn = "{dsn}"\n[tube.items.sink]\ntype = "opensearch"\nurl = "{index.server}"\n'
        f'index = "{index.name}"\nkey = "{{id}}"\n'
        "[tube.items.sink.settings]\nnumber_of_replicas = 0\n"
        '[tube.items.sink.mappings.properties.n]\ntype = "integer"\n'
    )
    return tmp_path


async def test_a_worker_makes_the_index_equal_to_the_table(
    folder: Path, conn: psycopg.Connection[Any], index: Index
) -> None:
    def held() -> dict[Any, Any]:
        return {id_: value for (_, id_), value in index.values().items()}

    def rows() -> dict[Any, Any]:
        return dict(conn.execute("SELECT id, row_to_json(items) FROM public.items").fetchall())

    # What a worker of long ago left, and the table does not have.
    async with opened(index, key="{id}", mappings={}) as sink:
        await sink.send(batch({(9001 % 4, 9001): {"id": 9001}}, tube="items", token=(1, 1), seq=0))
    events: list[Event] = []
    worker = Worker(load(folder / "pytube.toml"), on_event=events.append)
    await worker.start()
    try:
        conn.execute("INSERT INTO public.items SELECT g, g FROM generate_series(1, 500) g")
        conn.execute("UPDATE public.items SET n = -n WHERE id % 3 = 0")
        conn.execute("DELETE FROM public.items WHERE id % 5 = 0")
        await wait_until_async(lambda: {k: v for k, v in held().items() if k < 9000} == rows())
        assert 9001 in held()
        await asyncio.to_thread(cli.run, "backfill", "start", "--tube", "items", "--wait", folder=folder)
        await wait_until_async(lambda: held() == rows(), what="what the table never had is swept")
    finally:
        await worker.stop()
    assert sum(event.keys for event in events if isinstance(event, SweepFinished)) == 1
