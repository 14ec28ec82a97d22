"""Whether a long queue slows writers, the drain, or fills the worker's memory."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import psutil
import psycopg

from bench.frame.page import Section, Target
from bench.frame.server import Server, connect
from bench.frame.statistics import spread
from bench.frame.tubes import Term, fill
from bench.frame.workers import started, wait_for

SIZES = (10_000, 100_000, 1_000_000)
BIG = 10_000_000
ROWS = 100_000
LOAD = f"\\set i random(1, {ROWS})\nUPDATE public.x SET v = v + 1 WHERE id = :i;"
ROUNDS = 3
PIECES = 3


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Growth",
        "The same work with ever more pods of 1 id waiting: 1-row updates by pgbench with 4 clients "
        "(`synchronous_commit` off, 2 s, the median of 3), marking and purging through the procedures "
        "over one connection, and the peak of the resident memory of a worker process that drains the "
        "tube (rows as JSON, 3 s). With `BENCH_BIG=1` also with 10 million.",
    )
    sizes = (*SIZES, BIG) if os.environ.get("BENCH_BIG") else SIZES
    dsn = server.database("bench_growth")
    rows: list[list[str]] = []
    found: list[tuple[float, float, float]] = []
    with connect(dsn) as admin, connect(dsn, synchronous_commit="off") as drainer:
        admin.execute(
            f"CREATE TABLE public.x AS SELECT g::bigint AS id, 0 AS v FROM generate_series(1, {ROWS}) g"
        )
        admin.execute("ALTER TABLE public.x ADD PRIMARY KEY (id)")
        admin.execute("SELECT tube_ensure_exists('t')")
        admin.execute("SELECT tube_table_ensure_attached('t', 'public.x', 0)")
        admin.execute("VACUUM ANALYZE")
        tps: dict[int, list[float]] = {size: [] for size in sizes}
        speed: dict[int, list[float]] = {size: [] for size in sizes}
        memory: dict[int, float] = {}
        for number in range(ROUNDS):
            for size in sizes if number % 2 == 0 else sizes[::-1]:
                fill(admin, "t", size)
                tps[size].append(server.pgbench(dsn, LOAD, clients=4, seconds=2, commit=False) / 2)
                fill(admin, "t", size)
                speed[size] += _speeds(drainer)
                if number == 0:
                    memory[size] = _memory(dsn, admin)
        for size in sizes:
            middle = spread(tps[size])
            found.append((middle.middle, spread(speed[size]).middle, memory[size]))
            rows.append([f"{size:,}", middle.text(0), spread(speed[size]).text(0), f"{memory[size]:.0f}"])
    section.table(["pods waiting", "updates/s", "pods/s drained", "worker's memory, MiB"], rows)
    first, last = found[0], found[-1]
    section.targets += [
        Target("updates/s, most pods to fewest", 0.9, last[0] / first[0]),
        Target("drained, most pods to fewest", 0.9, last[1] / first[1]),
        Target("memory, most pods to fewest", 1.5, last[2] / first[2], "at most"),
    ]
    server.drop("bench_growth")
    return section


def _speeds(drainer: psycopg.Connection) -> list[float]:
    """Pods a second, of three pieces from the front of the queue."""
    term = Term(drainer, "t")
    speeds = []
    for _ in range(PIECES):
        began = time.perf_counter()
        done = term.drain(3000)
        speeds.append(done / (time.perf_counter() - began))
    drainer.execute("SELECT tube_leader_release('t', 1, 0, %s)", [term.leader_id])
    return speeds


def _memory(dsn: str, admin: psycopg.Connection) -> float:
    """MiB."""
    row = admin.execute("SELECT count(*) FROM tube.t").fetchone()
    with (
        tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as name,
        started(Path(name), dsn, "t", name="w") as worker,
    ):
        wait_for(lambda: bool(worker.read()), f"a document of {row}")
        process = psutil.Process(worker.process.pid)
        peak = 0.0
        until = time.monotonic() + 3.0
        while time.monotonic() < until:
            peak = max(peak, process.memory_info().rss / 2**20)
            time.sleep(0.02)
        worker.process.terminate()
        worker.process.wait()
    return peak
