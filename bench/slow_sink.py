"""A sink that is slower than its settings assume: what is lost to time-outs, and what is sent twice."""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

import psycopg
from aiohttp import ClientSession, web

from bench.frame.page import Section, Target
from bench.frame.server import Server, connect
from pytube.config import Config
from pytube.embedded.search_server import OpenSearch
from pytube.events import Event, SinkDown
from pytube.worker import Worker

DATABASE = "bench_slow_sink"
SERVERS = 4
"""Bulk requests that the index serves at a time; others wait."""
PER_DOCUMENT = 0.016
"""Seconds: 8 for a batch of 500."""
PARTITIONS = 4
ROWS = 25_000
"""Of each partition: more than are delivered."""
WARM_UP = {"default": 60.0, "hand": 15.0}
MEASURED = {"default": 120.0, "hand": 45.0}
BY_HAND: Mapping[str, Mapping[str, int]] = {
    "`batch_documents = 250`, `requests = 4`": {"batch_documents": 250, "requests": SERVERS},
    "`batch_documents = 100`, `requests = 8`": {"batch_documents": 100, "requests": 2 * SERVERS},
}
DEFAULTS = "the defaults"
TO_BEST = 0.8


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "A slow sink",
        f"OpenSearch behind a proxy that serves {SERVERS} bulk requests at a time, and takes "
        f"{PER_DOCUMENT * 1000:.0f} ms for each document: {500 * PER_DOCUMENT:.0f} s for a batch of 500, so "
        "that one that waits for another does not end within `request_timeout`, 10 s. It serves what was "
        f"given up, too. A worker with {PARTITIONS} partitions of 4 `sends`, and a backlog that does not "
        f"end. With settings chosen by hand for this sink, measured after {WARM_UP['hand']:.0f} s; with the "
        "default ones, after the first minute.",
    )
    dsn = server.database(DATABASE)
    with connect(dsn) as admin, tempfile.TemporaryDirectory() as folder, OpenSearch(folder) as search:
        _prepare(admin)
        found = {
            name: asyncio.run(_deliver(admin, dsn, search.url, number, given))
            for number, (name, given) in enumerate([*BY_HAND.items(), (DEFAULTS, {})])
        }
    server.drop(DATABASE)
    section.table(
        ["settings", "documents/s", "sent twice before that", "sent twice", "times that the sink was down"],
        [
            [name, f"{one.rate:.0f}", f"{one.repeats_before:,}", f"{one.repeats:,}", str(one.downs)]
            for name, one in found.items()
        ],
    )
    best = max(one.rate for name, one in found.items() if name != DEFAULTS)
    section.targets += [
        Target("slow OpenSearch: defaults to the best by hand", TO_BEST, found[DEFAULTS].rate / best),
        Target("slow OpenSearch: sent twice after a minute", 0, found[DEFAULTS].repeats, "at most"),
    ]
    return section


def _prepare(admin: psycopg.Connection) -> None:
    for shard in range(PARTITIONS):
        admin.execute(
            f"CREATE TABLE public.x{shard} AS SELECT g::bigint AS id, 'some words about ' || g AS text "
            f"FROM generate_series(1, {ROWS}) g"
        )
        admin.execute(f"ALTER TABLE public.x{shard} ADD PRIMARY KEY (id)")
    admin.execute("VACUUM ANALYZE")


def _make_tube(admin: psycopg.Connection) -> None:
    """A tube that was never at a sink: another index would look like one that was emptied."""
    admin.execute("SELECT tube_ensure_absent('t')")
    admin.execute("SELECT tube_ensure_exists('t', %s)", [PARTITIONS])
    for shard in range(PARTITIONS):
        admin.execute(f"SELECT tube_table_ensure_attached('t', 'public.x{shard}', {shard})")


@dataclass(frozen=True, slots=True)
class Found:
    """What one run has shown."""

    rate: float
    """New documents a second."""
    repeats_before: int
    repeats: int
    """Documents that were served again."""
    downs: int


START_LIMIT = 60.0


async def _deliver(
    admin: psycopg.Connection, dsn: str, url: str, number: int, given: Mapping[str, int]
) -> Found:
    """Deliver a backlog by a worker with these settings of its sink."""
    kind = "hand" if given else "default"
    _make_tube(admin)
    admin.execute(
        f"INSERT INTO tube.t (op, shard, ids) SELECT 'T', shard, ARRAY[g] "
        f"FROM generate_series(1, {ROWS}) g, generate_series(0, {PARTITIONS - 1}) shard"
    )
    downs: list[Event] = []
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(SlowProxy(url))
        sink = {
            "type": "opensearch",
            "url": proxy.url,
            "index": f"slow-{number}",
            "compress": False,
            "settings": {"number_of_shards": 1, "number_of_replicas": 0},
            **given,
        }
        config = {"postgres": {"dsn": dsn}, "worker": {"drain_limit": 0.0}, "tube": {"t": {"sink": sink}}}
        worker = Worker(Config.model_validate(config), on_event=lambda event: note(event, downs))
        await worker.start()
        stack.push_async_callback(worker.stop)
        async with asyncio.timeout(START_LIMIT):
            while not proxy.served:
                await asyncio.sleep(0.1)
        began = time.monotonic() + WARM_UP[kind]
        await asyncio.sleep(WARM_UP[kind] + MEASURED[kind])
        return proxy.found(began, began + MEASURED[kind], len(downs))


def note(event: Event, downs: list[Event]) -> None:
    """Keep what tells of an outage."""
    if isinstance(event, SinkDown):
        downs.append(event)


_ID = re.compile(rb'"_id":"([^"]*)"')


class SlowProxy:
    """Passes everything to the server, and bulk requests slowly, also those whose client has left."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._servers = asyncio.Semaphore(SERVERS)
        self._tasks: set[asyncio.Task[web.Response]] = set()
        self.served: list[tuple[float, list[bytes]]] = []
        """When which documents were served."""
        self.url = ""

    async def __aenter__(self) -> SlowProxy:
        self._client = ClientSession()
        application = web.Application(client_max_size=1 << 30)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._runner.cleanup()
        await self._client.close()

    def found(self, begin: float, end: float, downs: int) -> Found:
        """What was served, and what of it between these moments."""
        seen: Counter[bytes] = Counter()
        new = before = repeats = 0
        for at, ids in self.served:
            again = sum(seen[one] > 0 for one in ids)
            seen.update(ids)
            if at < begin:
                before += again
            elif at < end:
                repeats += again
                new += len(ids) - again
        return Found(new / (end - begin), before, repeats, downs)

    async def _handle(self, request: web.Request) -> web.Response:
        task = asyncio.create_task(self._pass(request, await request.read()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _pass(self, request: web.Request, body: bytes) -> web.Response:
        if request.path.endswith("/_bulk"):
            ids = _ID.findall(body)
            async with self._servers:
                await asyncio.sleep(len(ids) * PER_DOCUMENT)
                self.served.append((time.monotonic(), ids))
        async with self._client.request(
            request.method,
            f"{self._upstream}{request.path_qs}",
            data=body,
            headers={"content-type": request.headers.get("content-type", "application/json")},
        ) as answer:
            return web.Response(
                status=answer.status,
                body=await answer.read(),
                headers={"content-type": answer.headers.get("content-type", "application/json")},
            )
