"""What a backfill costs those who write meanwhile, and those who wait for their changes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.frame.page import Section, Target
from bench.frame.server import Server, connect
from bench.frame.statistics import percentile, ratios, spread
from bench.frame.workers import ROOT, started, wait_for
from bench.latency import Probes, Probing

ROWS = 500_000
PROBES = 600
"""Of each case: with fewer, a single hiccup of the machine is in the p99."""
TURNS = 4
"""In which they are taken, there and back."""
PAUSE = 0.02
SECONDS = 3
ROUNDS = 2
RATE = 10_000
"""Rows a second of the backfill that is told to spare the machine."""
NONE = "no backfill"
CASES: dict[str, tuple[str, ...] | None] = {
    NONE: None,
    "backfill": (),
    f"backfill of {RATE:,} rows/s": ("--rate", str(RATE)),
}
WRITE = f"\\set i random(1, {ROWS})\nUPDATE public.x SET v = v + 1 WHERE id = :i;"


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Backfill",
        f"A table of {ROWS:,} rows is backfilled again and again, by `pytube backfill start` as it comes, "
        f"or with `--rate {RATE}`; one worker with defaults reads the rows as JSON, and its sink takes them "
        "at once, so that worker, writers and server fight for the cores. Writers: pgbench with 4 clients, "
        "single-row updates, `synchronous_commit` off, at half the rate that they reach with the worker "
        "alone, or as fast as they can; ratios to the same without a backfill. Latency: single-row updates "
        "20 ms apart, as under Latency, with each kind of backfill in turn.",
    )
    dsn = _database(server)
    os.environ["BENCH_STAMPS_FROM"] = str(ROWS + 1)
    with (
        tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as name,
        started(Path(name), dsn, "t", name="one") as worker,
    ):
        del os.environ["BENCH_STAMPS_FROM"]
        probing = Probing(server, dsn, worker, ROWS)
        probing.ready()
        _latency(section, probing, dsn)
        _writers(section, server, dsn)
    server.drop("bench_backfill")
    return section


def _database(server: Server) -> str:
    dsn = server.database("bench_backfill")
    with connect(dsn) as admin:
        admin.execute(
            "CREATE TABLE public.x AS SELECT g::bigint AS id, 0 AS v "
            f"FROM generate_series(1, {ROWS + 1 + len(CASES) * PROBES}) g"
        )
        admin.execute("ALTER TABLE public.x ADD PRIMARY KEY (id)")
        admin.execute("SELECT tube_ensure_exists('t')")
        admin.execute("SELECT tube_table_ensure_attached('t', 'public.x', 0)")
        admin.execute("VACUUM ANALYZE")
    return dsn


class Filling:
    """Within it, the table is being backfilled, again as soon as it was."""

    def __init__(self, dsn: str, *options: str) -> None:
        self._dsn = dsn
        self._options = options
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        with connect(self._dsn) as eye:
            begun = "SELECT FROM tube_backfill WHERE state = 'inserting' AND rows_done > 0"
            wait_for(lambda: eye.execute(begun).fetchone() is not None, "the backfill begins")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._process is not None:
            self._process.kill()
        self._thread.join()
        with connect(self._dsn) as eye:
            eye.execute(
                "SELECT tube_backfill_command(backfill_id, 'cancel') FROM tube_backfill "
                "WHERE state IN ('waiting', 'inserting', 'delivering')"
            )
            empty = "SELECT FROM tube.t LIMIT 1"
            wait_for(lambda: eye.execute(empty).fetchone() is None, "an empty tube")

    def _run(self) -> None:
        while not self._stop.is_set():
            self._process = subprocess.Popen(
                [
                    *(
                        sys.executable,
                        "-m",
                        "pytube",
                        "backfill",
                        "start",
                        "--tube",
                        "t",
                        "--wait",
                        "--supersede",
                    ),
                    *("--dsn", self._dsn, *self._options),
                ],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            self._process.wait()


def _meanwhile(dsn: str, options: tuple[str, ...] | None) -> AbstractContextManager[object]:
    """A backfill with such options, or none."""
    return nullcontext() if options is None else Filling(dsn, *options)


def _latency(section: Section, probing: Probing, dsn: str) -> None:
    found: dict[str, Probes] = {}
    for name in [*CASES, *reversed(CASES)] * (TURNS // 2):
        with _meanwhile(dsn, CASES[name]):
            probes = probing.probe(PAUSE, PROBES // TURNS)
        found[name] = found[name].plus(probes) if name in found else probes
    section.table(
        ["", "probes", "p50", "p90", "p99", "most", "worker's CPU", "server's CPU"],
        [probes.row(name) for name, probes in found.items()],
    )
    before = percentile(found[NONE].milliseconds, 0.99)
    for name, probes in found.items():
        if name != NONE:
            after = percentile(probes.milliseconds, 0.99)
            section.targets.append(Target(f"latency p99, {name}, to none", 2, after / before, "at most"))


def _writers(section: Section, server: Server, dsn: str) -> None:
    half = server.pgbench(dsn, WRITE, clients=4, seconds=SECONDS, commit=False) / SECONDS / 2
    table: list[list[str]] = []
    for words, rate in ((f"at half of the most ({half:,.0f}/s)", half), ("as fast as they can", 0.0)):
        taken: dict[str, list[float]] = {name: [] for name in CASES}
        for number in range(ROUNDS):
            for name in list(CASES) if number % 2 == 0 else list(CASES)[::-1]:
                taken[name].append(_write(server, dsn, rate, CASES[name]))
        for name, found in taken.items():
            to_none = ratios(found, taken[NONE])
            table.append([f"{words}, {name}", spread(found).text(0), to_none.text()])
            if name != NONE:
                section.targets.append(
                    Target(f"writers {words.split(' (')[0]}, {name}, to none", 0.9, to_none.middle)
                )
    section.table(["writers", "updates/s", "ratio to no backfill"], table)


def _write(server: Server, dsn: str, rate: float, options: tuple[str, ...] | None) -> float:
    """Updates a second."""
    with _meanwhile(dsn, options):
        return server.pgbench(dsn, WRITE, clients=4, seconds=SECONDS, commit=False, rate=rate) / SECONDS
