"""How many touches a second one worker brings from a full tube to a sink that counts."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import LiteralString

import psycopg
import structlog

from bench.frame.page import Section, Target
from bench.frame.readings import Reading
from bench.frame.rounds import interleave, rates
from bench.frame.server import Server, connect
from bench.frame.statistics import ratios, spread
from bench.frame.tubes import fill
from bench.sinks import counting
from pytube.cli.worker import GARBAGE_THRESHOLD
from pytube.config import Config
from pytube.worker import Worker

ROWS = 400_000
ROUNDS = 4
READS: dict[str, LiteralString] = {
    "read": "SELECT r.id::bigint, row_to_json(r.*)::text FROM public.x AS r WHERE r.id = ANY (%s)",
    "read typed": "SELECT r.id, r.name, r.v FROM public.x AS r WHERE r.id = ANY (%s)",
}
CASES = {
    "none 1": ("none", 1, 150_000),
    "none 200": ("none", 200, 400_000),
    "row 1": ("row", 1, 100_000),
    "row 200": ("row", 200, 300_000),
}


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Worker",
        "One worker in one process and one partition, with default settings: a tube that is full of "
        "distinct ids, to a coroutine that counts. Time runs from the start of the worker's line to "
        "the last document, so the time before it leads is left out. Beside it what one psycopg "
        "connection reads of the same rows, 500 ids a statement, one statement after the other, "
        "fetched as tuples: as ready-made JSON text, which is what an enriching worker asks for, and as "
        "the three columns of the table. The reader of JSON does nothing else: it neither marks nor "
        "purges; the targets are against it all the same. CPU of the worker's process is its own.",
    )
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)  # as the command `pytube worker` does
    dsn = server.database("bench_worker")
    with connect(dsn) as admin:
        admin.execute(
            "CREATE TABLE public.x AS SELECT g::bigint AS id, 'name ' || g AS name, g AS v FROM "
            f"generate_series(0, {ROWS}) g"
        )
        admin.execute("ALTER TABLE public.x ADD PRIMARY KEY (id)")
        admin.execute("SELECT tube_ensure_exists('t')")
        admin.execute("SELECT tube_table_ensure_attached('t', 'public.x', 0)")
        admin.execute("VACUUM ANALYZE")
        cpu: dict[str, list[float]] = {name: [] for name in CASES}
        seconds: dict[str, list[float]] = {name: [] for name in CASES}

        def case(name: str) -> Callable[[], float]:
            mode, _, count = CASES[name]

            def work() -> float:
                wall, own = asyncio.run(_drain(dsn, mode, count))
                seconds[name].append(count / wall)
                cpu[name].append(own / count * 1e6)
                return count

            return work

        def before(name: str) -> None:
            if name in CASES:
                _, ids, count = CASES[name]
                fill(admin, "t", count // ids, ids)

        taken = interleave(
            server.readings(dsn),
            {
                **{name: case(name) for name in CASES},
                **{name: partial(_read, admin, statement) for name, statement in READS.items()},
            },
            ROUNDS,
            before,
        )
        _show(section, taken, seconds, cpu)
    server.drop("bench_worker")
    return section


def _show(
    section: Section,
    taken: dict[str, list[Reading]],
    seconds: dict[str, list[float]],
    cpu: dict[str, list[float]],
) -> None:
    read = rates(taken, "read")
    rows = [
        [
            f"{'no enrichment' if mode == 'none' else 'rows as JSON'}, pods of {ids}",
            spread(seconds[name][1:]).text(0),
            ratios(seconds[name][1:], read).text(),
            f"{spread(cpu[name][1:]).middle:.1f}",
            f"{spread([r.cpu_each for r in taken[name]]).middle:.1f}",
            f"{spread([r.wal_each for r in taken[name]]).middle:.0f}",
        ]
        for name, (mode, ids, _) in CASES.items()
    ]
    for name, what in {"read": "JSON text", "read typed": "typed columns"}.items():
        rows.append(
            [
                f"one connection that reads {what}",
                spread(rates(taken, name)).text(0),
                ratios(rates(taken, name), read).text(),
                f"{spread([r.own_cpu / r.amount * 1e6 for r in taken[name]]).middle:.1f}",
                f"{spread([r.cpu_each for r in taken[name]]).middle:.1f}",
                "0",
            ]
        )
    section.table(["", "touches/s", "ratio to reading JSON", "own CPU µs", "server CPU µs", "WAL B"], rows)
    middle = {name: spread(values[1:]).middle for name, values in seconds.items()}
    section.targets += [
        Target("no enrichment, pods of 1 id", 160_000, middle["none 1"], unit="/s"),
        Target("no enrichment, pods of 200 ids", 1_000_000, middle["none 200"], unit="/s"),
        Target("rows as JSON, pods of 1 id, to reading JSON", 0.5, ratios(seconds["row 1"][1:], read).middle),
        Target(
            "rows as JSON, pods of 200 ids, to reading JSON", 0.5, ratios(seconds["row 200"][1:], read).middle
        ),
    ]


def _read(connection: psycopg.Connection, statement: LiteralString) -> float:
    rows = 0
    for first in range(0, 150_000, 500):
        rows += len(connection.execute(statement, [list(range(first, first + 500))]).fetchall())
    return rows


async def _drain(dsn: str, mode: str, count: int) -> tuple[float, float]:
    """Seconds, and CPU seconds of this process, from the first line's begin to the last document."""
    config = Config.model_validate(
        {
            "postgres": {"dsn": dsn},
            "tube": {
                "t": {
                    "sink": {"type": "callable", "target": "bench.sinks.counting:count"},
                    "enrich": {"mode": mode},
                }
            },
        }
    )
    counting.counted = 0
    worker = Worker(config)
    await worker.start()
    while not worker.leads("t"):
        await asyncio.sleep(0.001)
    began, cpu = time.perf_counter(), time.process_time()
    while counting.counted < count:
        await asyncio.sleep(0.002)
    result = time.perf_counter() - began, time.process_time() - cpu
    await worker.stop()
    return result
