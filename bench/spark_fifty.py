"""A fan-out of fifty million ids, while a worker drains the tube and a writer goes on."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

from bench.frame.page import Section, Target
from bench.frame.server import Server, connect
from bench.frame.spark import MEMORY, TASKS, session
from bench.frame.workers import started, wait_for
from bench.spark_growth import Watch
from bench.spark_touch import keys
from pytube.spark import Touched, touch

IDS = 50_000_000
LIMIT = 300.0
"""Seconds."""
WRITES = 200
"""A second, of one row each."""


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Spark: fifty million",
        f"`touch` of {IDS:,} ids on `local[{TASKS}]` with {MEMORY} of heap, into a tube that one worker "
        "drains (without enrichment, into a sink that counts) and to whose table pgbench writes "
        f"{WRITES} rows a second.",
    )
    dsn = server.database("bench_spark_fifty")
    done: list[Touched] = []
    with (
        session() as spark,
        connect(dsn) as admin,
        tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as folder,
    ):
        admin.execute("SELECT tube_ensure_exists('t', 1)")
        admin.execute(
            "CREATE TABLE public.x AS SELECT g::bigint AS id, 0 AS v FROM generate_series(1, 10000) AS g"
        )
        admin.execute("ALTER TABLE public.x ADD PRIMARY KEY (id)")
        admin.execute("SELECT tube_table_ensure_attached('t', 'public.x', 100)")
        written: list[tuple[int, float]] = []
        with started(Path(folder), dsn, "t", name="one", target="tallying:tally", enrich="none") as worker:
            _wait_until_led(server, dsn)
            over = threading.Event()
            thread = threading.Thread(target=_write, args=(server, dsn, over, written))
            thread.start()
            watch = Watch()
            watch.during(
                lambda: done.append(touch(keys(spark, IDS), tubes="t", dsn=dsn, max_connections=TASKS))
            )
            delivered = sum(count for count, _ in worker.read())
            over.set()
            thread.join()
    if done[0].ids != IDS:
        raise RuntimeError(str(done[0]))
    seconds = done[0].seconds
    section.table(
        ["", "figure"],
        [
            ["seconds", f"{seconds:.0f}"],
            ["ids a second", f"{IDS / seconds:,.0f}"],
            ["documents that the worker delivered meanwhile", f"{delivered:,}"],
            ["rows that the writer wrote meanwhile, a second", f"{_rate(written):,.0f}"],
            ["driver's Python, MB", f"{watch.driver:,.0f}"],
            ["JVM (driver and executor), MB", f"{watch.java:,.0f}"],
            ["all Python workers of Spark, MB", f"{watch.workers:,.0f}"],
        ],
    )
    section.targets.append(Target("Spark: 50 M ids, seconds", LIMIT, seconds, "at most", " s"))
    server.drop("bench_spark_fifty")
    return section


def _wait_until_led(server: Server, dsn: str) -> None:
    with connect(dsn) as connection:
        wait_for(
            lambda: bool(
                connection.execute("SELECT 1 FROM tube_leaders('t') WHERE leader_id IS NOT NULL").fetchall()
            ),
            f"a leader at {server.postgres.pid}",
        )


def _write(server: Server, dsn: str, over: threading.Event, written: list[tuple[int, float]]) -> None:
    script = "\\set i random(1, 10000)\nUPDATE public.x SET v = v + 1 WHERE id = :i;"
    while not over.is_set():
        began = time.monotonic()
        rows = server.pgbench(dsn, script, clients=1, seconds=3, rate=WRITES)
        written.append((rows, time.monotonic() - began))


def _rate(written: list[tuple[int, float]]) -> float:
    return sum(rows for rows, _ in written) / sum(seconds for _, seconds in written)
