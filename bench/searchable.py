"""From a commit to a hit of a search in OpenSearch, and a full tube into an index."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import psycopg
from opensearchpy import AsyncOpenSearch

from bench.frame.page import Section, Target
from bench.frame.server import Server, connect
from bench.frame.statistics import percentile, spread
from bench.frame.tubes import fill
from pytube.config import Config
from pytube.embedded.search_server import OpenSearch
from pytube.worker import Worker

ROWS = 100_000
DRAINED = 40_000
ROUNDS = 3
DATABASE = "bench_searchable"
PROBES = 40
REFRESH = {
    "no": "the index refreshes itself each second",
    "wait_for": '`refresh = "wait_for"`',
    "yes": '`refresh = "yes"`: forced by each send',
}
PAUSE = 0.2, 1.2
"""Seconds from a hit to the next commit, at random: a hit comes right after a refresh, so that a fixed pause
would measure itself."""
POLL = 0.004
PGSYNC = {"no": 803.0, "yes": 142.0}
"""Milliseconds, p50: PGSync 7.3 on a machine like this, without and with a forced refresh."""
PGSYNC_LOAD = 8_400.0
"""Rows a second of its first load, of 100,000."""


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Into OpenSearch, end to end",
        "A worker with default settings reads rows of a table as JSON and writes them to an index of one "
        "shard on this machine; Postgres, OpenSearch, the worker and who measures share the cores.",
    )
    dsn = server.database(DATABASE)
    with connect(dsn) as admin, tempfile.TemporaryDirectory() as folder, OpenSearch(folder) as search:
        admin.execute(
            "CREATE TABLE public.x AS SELECT g::bigint AS id, 0 AS v, 'some words about ' || g AS text "
            f"FROM generate_series(0, {ROWS}) g"
        )
        admin.execute("ALTER TABLE public.x ADD PRIMARY KEY (id)")
        admin.execute("SELECT tube_ensure_exists('t')")
        admin.execute("SELECT tube_table_ensure_attached('t', 'public.x', 0)")
        admin.execute("VACUUM ANALYZE")
        asyncio.run(_measure(section, Bench(dsn, admin, search.url)))
    server.drop(DATABASE)
    return section


@dataclass(frozen=True, slots=True)
class Bench:
    """What is measured with."""

    dsn: str
    admin: psycopg.Connection
    url: str

    async def with_worker(self, index: str, refresh: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do `work` while a worker serves the tube."""
        sink = {
            "type": "opensearch",
            "url": self.url,
            "index": index,
            "refresh": refresh,
            "settings": {"number_of_shards": 1, "number_of_replicas": 0, "refresh_interval": "1s"},
        }
        worker = Worker(Config.model_validate({"postgres": {"dsn": self.dsn}, "tube": {"t": {"sink": sink}}}))
        await worker.start()
        try:
            while not worker.leads("t"):
                await asyncio.sleep(0.001)
            await work()
        finally:
            await worker.stop()

    async def drained(self, number: int) -> float:
        """Documents a second of a full tube into an empty index."""
        fill(self.admin, "t", DRAINED, 1)
        took = 0.0

        async def work() -> None:
            nonlocal took
            began = time.perf_counter()
            while self.admin.execute("SELECT FROM tube.t LIMIT 1").fetchone() is not None:
                await asyncio.sleep(0.01)
            took = time.perf_counter() - began

        await self.with_worker(f"full-{number}", "no", work)
        return DRAINED / took

    async def searchable(self, refresh: str) -> list[float]:
        """Milliseconds from the commit of a row to the first search that finds its new value."""
        found: list[float] = []

        async def work() -> None:
            async with AsyncOpenSearch(self.url) as client:
                for probe in range(-1, PROBES):  # the first one makes the index, and is left out
                    value = time.monotonic_ns() % 2_000_000_000
                    self.admin.execute("UPDATE public.x SET v = %s WHERE id = %s", [value, probe + 1])
                    began = time.perf_counter()
                    query = {"query": {"term": {"v": value}}}
                    while not (await client.count(body=query, index=f"idle-{refresh}"))["count"]:
                        await asyncio.sleep(POLL)
                    if probe >= 0:
                        found.append((time.perf_counter() - began) * 1000)
                    await asyncio.sleep(random.uniform(*PAUSE))

        await self.with_worker(f"idle-{refresh}", refresh, work)
        return found


async def _measure(section: Section, bench: Bench) -> None:
    drained = spread(
        [await bench.drained(number) for number in range(ROUNDS + 1)][1:]
    )  # a new server is slow
    section.say(
        f"A tube of {DRAINED:,} pods of 1 id into an empty index, from the start of the worker's line until "
        f"the tube is empty: {drained.text(0)} documents/s (PGSync 7.3: {PGSYNC_LOAD:,.0f}, in its own load "
        "of 100,000 rows).",
        drained=drained.text(0),
        pgsync=f"{PGSYNC_LOAD:,.0f}",
    )
    probes = {refresh: await bench.searchable(refresh) for refresh in REFRESH}
    section.say(
        f"From the return of a COMMIT to the first search that finds it, asked every {POLL * 1000:.0f} ms, "
        "with nothing else written, in milliseconds:"
    )
    section.table(
        ["", "probes", "p50", "p90", "p99", "PGSync's p50"],
        [
            [
                REFRESH[refresh],
                str(len(took)),
                *(f"{percentile(took, share):,.0f}" for share in (0.5, 0.9, 0.99)),
                f"{PGSYNC[refresh]:.0f}" if refresh in PGSYNC else "",
            ]
            for refresh, took in probes.items()
        ],
    )
    section.targets += [
        Target(
            "full tube into OpenSearch, documents/s, to PGSync's rows/s", 1.0, drained.middle / PGSYNC_LOAD
        ),
        *(
            Target(
                f"searchable, {REFRESH[refresh]}, p50 to PGSync's",
                1.0,
                percentile(probes[refresh], 0.5) / p50,
                "at most",
            )
            for refresh, p50 in PGSYNC.items()
        ),
    ]
