"""What it costs a worker to be scraped and to be traced, and what memory the keys that it holds take."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import psutil
import psycopg

from bench.frame.page import Section, Target
from bench.frame.readings import Reading
from bench.frame.rounds import interleave, rates
from bench.frame.server import Server, connect
from bench.frame.statistics import Spread, ratios, spread
from bench.frame.tubes import fill
from bench.sinks import counting, holding
from pytube.cli.worker import GARBAGE_THRESHOLDS
from pytube.config import Config
from pytube.events import Event, MeterRead
from pytube.worker import Worker

TOUCHES = 100_000
ROUNDS = 7
PARTITIONS = 4
SCRAPES = 30
SCRAPE_PAUSE = 0.2
HELD = (20_000, 200_000)
"""Keys that a partition holds."""
WORDS = {"off": "not traced", "on": "traced, spans sent to a collector"}


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Watching a worker, and its memory",
        "A worker in this process, with default settings and leases, whose sink does nothing.",
    )
    logging.getLogger("pytube").setLevel(logging.ERROR)
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)  # as the command `pytube worker` does
    dsn = server.database("bench_observing")
    with connect(dsn) as admin:
        for tube, partitions in (("t", 1), ("scraped", PARTITIONS)):
            admin.execute("SELECT tube_ensure_exists(%s, %s)", [tube, partitions])
        with subprocess.Popen(
            [sys.executable, "-m", "bench.sinks.receiving"], stdout=subprocess.PIPE
        ) as collector:
            try:
                assert collector.stdout is not None
                url = f"http://127.0.0.1:{int(collector.stdout.readline())}"
                _traced(server, section, dsn, admin, url)
            finally:
                collector.kill()
        _scraped(section, dsn)
        _held(section, dsn, admin)
    server.drop("bench_observing")
    return section


def _config(dsn: str, tube: str, worker: Mapping[str, object], **more: object) -> Config:
    settings = {
        "sink": {"type": "callable", "target": "bench.sinks.counting:count"},
        "enrich": {"mode": "none"},
    }
    return Config.model_validate(
        {"postgres": {"dsn": dsn}, "worker": worker, "tube": {tube: settings | more}}
    )


# --- traces -------------------------------------------------------------------------------------


def _traced(server: Server, section: Section, dsn: str, admin: psycopg.Connection, url: str) -> None:
    """The same full tube, emptied with and without."""
    settings: dict[str, bool | str] = {"off": False, "on": url}
    drained: dict[str, list[tuple[float, float]]] = {name: [] for name in settings}

    def work(name: str) -> float:
        drained[name].append(asyncio.run(_drain(_config(dsn, "t", {"tracing": settings[name]}))))
        return TOUCHES

    taken = interleave(
        server.readings(dsn),
        {name: lambda name=name: work(name) for name in settings},  # type: ignore[misc]
        ROUNDS,
        lambda _: fill(admin, "t", TOUCHES, 1),
    )
    parts = {
        name: _parts(taken[name], drained[name][1:]) for name in settings
    }  # the first one is thrown away
    section.say(
        f"A tube of {TOUCHES:,} pods of 1 id, not enriched, which is when a batch is cheapest and tracing "
        "dearest: five spans for at most 500 documents."
    )
    section.table(
        ["", "touches/s", "own CPU µs each"],
        [[WORDS[name], spread(rates(parts, name)).text(0), _cpu(parts[name]).text()] for name in settings],
    )
    cost = ratios([one.own_cpu_each for one in parts["on"]], [one.own_cpu_each for one in parts["off"]])
    section.say(f"Own CPU, traced to not traced: {cost.text()}.")


def _parts(readings: list[Reading], drained: list[tuple[float, float]]) -> list[Reading]:
    return [
        replace(reading, wall=wall, own_cpu=cpu)
        for reading, (wall, cpu) in zip(readings, drained, strict=True)
    ]


def _cpu(readings: list[Reading]) -> Spread:
    return spread([reading.own_cpu_each for reading in readings])


async def _drain(config: Config) -> tuple[float, float]:
    """Seconds, and CPU seconds, from the begin of the worker's line to the last document."""
    counting.counted = 0
    worker = Worker(config)
    await worker.start()
    while not worker.leads("t"):
        await asyncio.sleep(0.001)
    began, cpu = time.perf_counter(), time.process_time()
    while counting.counted < TOUCHES:
        await asyncio.sleep(0.002)
    found = time.perf_counter() - began, time.process_time() - cpu
    await worker.stop()
    return found


# --- scrapes ------------------------------------------------------------------------------------


def _scraped(section: Section, dsn: str) -> None:
    """CPU of this process, which is the scraper, too."""
    idle, scraped = asyncio.run(_shares(dsn))
    each = max(0.0, scraped - idle) / SCRAPES
    section.say(
        f"A scrape of `/metrics` with {PARTITIONS} partitions: {each * 1000:.2f} ms of CPU, which is that of "
        f"the worker and of who asks, so {each:.2%} of a core at a scrape a second."
    )
    section.targets.append(
        Target("/metrics at a scrape a second, of a core", 1.0, each * 100, "at most", " %")
    )


async def _shares(dsn: str) -> tuple[float, float]:
    """CPU seconds while nothing happens, and while it is scraped for as long."""
    worker = Worker(_config(dsn, "scraped", {"listen": "127.0.0.1:0"}))
    await worker.start()
    while len(worker.leads("scraped")) < PARTITIONS:
        await asyncio.sleep(0.01)
    await asyncio.sleep(2.0)  # until all fall asleep
    port = worker.listens_at
    assert port is not None
    took: list[float] = []
    for is_scraped in (False, True):
        cpu = time.process_time()
        for _ in range(SCRAPES):
            if is_scraped:
                await _get(port)
            await asyncio.sleep(SCRAPE_PAUSE)
        took.append(time.process_time() - cpu)
    await worker.stop()
    return took[0], took[1]


async def _get(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    assert b" 200 " in answer[:20], answer[:200]
    writer.close()


# --- memory -------------------------------------------------------------------------------------


def _held(section: Section, dsn: str, admin: psycopg.Connection) -> None:
    """Memory of a worker whose sink does not answer, with few keys and with many."""
    rows = []
    for ids in (1, 200):
        sizes = []
        for keys in HELD:
            fill(admin, "t", keys // ids, ids)
            # A process of its own: what an earlier worker has freed would be used again.
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                sizes.append(process.submit(_resident, dsn, keys).result())
        each = (sizes[1] - sizes[0]) / (HELD[1] - HELD[0])
        rows.append([f"pods of {ids} id{'s' if ids > 1 else ''}", f"{each:,.0f}"])
    admin.execute("TRUNCATE tube.t")
    few, many = HELD
    section.say(
        "Memory that grows with the keys that wait or fly, without their documents: the difference of the "
        f"resident memory of a worker's process that holds {few:,} keys, and of one that holds {many:,} "
        "(`keys_in_flight`), while its sink does not answer."
    )
    section.table(["", "B per key"], rows)


def _resident(dsn: str, keys: int) -> int:
    """Bytes of this process when it holds so many keys."""
    return asyncio.run(_hold(dsn, keys))


async def _hold(dsn: str, keys: int) -> int:
    sink = {"type": "callable", "target": "bench.sinks.holding:hold"}
    held = 0

    def note(event: Event) -> None:
        nonlocal held
        if isinstance(event, MeterRead):
            held = event.waiting + event.in_flight

    worker = Worker(_config(dsn, "t", {"meter_interval": 0.1}, sink=sink, keys_in_flight=keys), on_event=note)
    await worker.start()
    while held < keys:
        await asyncio.sleep(0.01)
    found = psutil.Process().memory_info().rss
    holding.release.set()
    await worker.stop()
    return found
