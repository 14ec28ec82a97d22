"""From commit to sink."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

from bench.frame.page import Section, Target
from bench.frame.server import Server, connect
from bench.frame.statistics import percentile
from bench.frame.workers import Process, started, wait_for

PROBES = 150
LOAD_SECONDS = 8
PAUSE = 0.02
IDLE_PAUSE = 0.15
"""Seconds: pods that come within 0.1 s of each other are a stream, in which a worker polls."""
ROWS = 50_000
LOAD = f"\\set i random(1, {ROWS})\nUPDATE public.x SET v = v + 1 WHERE id = :i;"


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Latency",
        "From the return of COMMIT at the writer (`synchronous_commit` off) to the call of the sink, "
        "in milliseconds, rows read as JSON; the worker is a process of its own, with defaults. Idle: "
        f"{PROBES} single-row updates {IDLE_PAUSE * 1000:.0f} ms apart, and nothing else. "
        "Under load: the same every 20 ms, while pgbench with 4 clients updates "
        "single rows at half the rate that it reaches at most while the worker runs.",
    )
    dsn = server.database("bench_latency")
    with connect(dsn) as admin:
        admin.execute(
            "CREATE TABLE public.x AS SELECT g::bigint AS id, 0 AS v "
            f"FROM generate_series(1, {ROWS + PROBES * 4}) g"
        )
        admin.execute("ALTER TABLE public.x ADD PRIMARY KEY (id)")
        admin.execute("SELECT tube_ensure_exists('t')")
        admin.execute("SELECT tube_table_ensure_attached('t', 'public.x', 0)")
        admin.execute("VACUUM ANALYZE")
    with (
        tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as name,
        started(Path(name), dsn, "t", name="one") as worker,
    ):
        _ready(dsn, worker)
        idle = _probe(dsn, worker, ROWS + PROBES, until=None, pause=IDLE_PAUSE)
        most = server.pgbench(dsn, LOAD, clients=4, seconds=4, commit=False) / 4
        _drained(dsn)
        over = threading.Event()
        rate = most / 2
        load = threading.Thread(target=_load, args=(server, dsn, rate, over))
        load.start()
        time.sleep(1.0)
        loaded = _probe(dsn, worker, ROWS + 2 * PROBES, until=over)
        load.join()
    section.table(
        ["", "probes", "p50", "p90", "p99", "most"],
        [_row("idle", idle), _row(f"under {rate:,.0f} updates/s (most: {most:,.0f})", loaded)],
    )
    section.targets += [
        Target("idle, p50", 5, percentile(idle, 0.5), "at most", " ms"),
        Target("idle, p99", 25, percentile(idle, 0.99), "at most", " ms"),
        Target("half of the most, p99", 250, percentile(loaded, 0.99), "at most", " ms"),
    ]
    server.drop("bench_latency")
    return section


def _row(name: str, values: list[float]) -> list[str]:
    shares = (0.5, 0.9, 0.99, 1.0)
    return [name, str(len(values)), *(f"{percentile(values, share):.1f}" for share in shares)]


def _ready(dsn: str, worker: Process) -> None:
    """One document got through, and the worker fell asleep."""
    with connect(dsn) as writer:
        writer.execute(f"UPDATE public.x SET v = v + 1 WHERE id = {ROWS + 1}")
        wait_for(lambda: bool(worker.read()), "the first document")
        wait_for(
            lambda: writer.execute("SELECT FROM tube_sleeper").fetchone() is not None, "the worker sleeps"
        )
    time.sleep(1.0)


def _drained(dsn: str) -> None:
    with connect(dsn) as reader:
        wait_for(lambda: reader.execute("SELECT FROM tube.t LIMIT 1").fetchone() is None, "the tube is empty")


def _load(server: Server, dsn: str, rate: float, over: threading.Event) -> None:
    server.pgbench(dsn, LOAD, clients=4, seconds=LOAD_SECONDS, commit=False, rate=rate)
    over.set()


def _probe(
    dsn: str, worker: Process, first: int, until: threading.Event | None, pause: float = PAUSE
) -> list[float]:
    """Milliseconds of each probe, every one with an id of its own; it ends early when `until` is set."""
    sent: dict[int, int] = {}
    with connect(dsn, synchronous_commit="off") as writer:
        for key in range(first, first + PROBES):
            if until is not None and until.is_set():
                break
            writer.execute("UPDATE public.x SET v = v + 1 WHERE id = %s", [key])
            sent[key] = time.monotonic_ns()
            time.sleep(pause)
    begun = min(sent.values()) - 10**9

    def came() -> dict[int, int]:
        return {key: at for key, at in reversed(worker.read(begun)) if key in sent}

    wait_for(lambda: len(came()) == len(sent), "all probes came")
    return [max(0.0, (at - sent[key]) / 1e6) for key, at in came().items()]
