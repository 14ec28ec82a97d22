"""From commit to sink."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.frame.page import Section, Target
from bench.frame.server import Server, connect
from bench.frame.statistics import percentile
from bench.frame.workers import Process, started, wait_for

IDLE = {0.15: 150, 0.02: 400, 0.005: 800}
"""Seconds between probes, and how many: one by one, fifty a second, and a stream in which a line polls."""
TARGETED = (0.15, 0.02)
LOAD_PAUSE = 0.02
LOAD_PROBES = 350
LOAD_SECONDS = 8
ROWS = 50_000
LOAD = f"\\set i random(1, {ROWS})\nUPDATE public.x SET v = v + 1 WHERE id = :i;"


@dataclass(frozen=True, slots=True)
class Probes:
    """What some probes took."""

    milliseconds: list[float]
    worker_cpu: float
    """Share of one core."""
    server_cpu: float

    def row(self, name: str) -> list[str]:
        """A line of the table."""
        shares = (f"{percentile(self.milliseconds, share):.1f}" for share in (0.5, 0.9, 0.99, 1.0))
        cpu = (f"{share:.0%}" for share in (self.worker_cpu, self.server_cpu))
        return [name, str(len(self.milliseconds)), *shares, *cpu]


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Latency",
        "From the return of COMMIT at the writer (`synchronous_commit` off) to the call of the sink, "
        "in milliseconds, rows read as JSON; the worker is a process of its own, with defaults (leases "
        "in Postgres). Idle: single-row updates so far apart, and nothing else. Under load: the same "
        f"every {LOAD_PAUSE * 1000:.0f} ms, while pgbench with 4 clients updates single rows at half the "
        "rate that it reaches at most while the worker runs. CPU is in shares of one core; what the writers' "
        "sessions take is in the server's.",
    )
    dsn = _database(server)
    with (
        tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as name,
        started(Path(name), dsn, "t", name="one") as worker,
    ):
        probing = Probing(server, dsn, worker)
        probing.ready()
        quiet = probing.nothing(4.0)
        idle = {pause: probing.probe(pause, count) for pause, count in IDLE.items()}
        most = server.pgbench(dsn, LOAD, clients=4, seconds=4, commit=False) / 4
        loaded = probing.under_load(most / 2)
    names = {pause: f"idle, {pause * 1000:.0f} ms apart" for pause in IDLE}
    section.table(
        ["", "probes", "p50", "p90", "p99", "most", "worker's CPU", "server's CPU"],
        [
            *(found.row(names[pause]) for pause, found in idle.items()),
            loaded.row(f"under {most / 2:,.0f} updates/s (most: {most:,.0f})"),
        ],
    )
    section.say(
        f"With nothing written, the worker takes {quiet.worker_cpu:.1%} of a core, "
        f"the server {quiet.server_cpu:.1%}."
    )
    for pause in TARGETED:
        found = idle[pause].milliseconds
        section.targets += [
            Target(f"{names[pause]}, p50", 5, percentile(found, 0.5), "at most", " ms"),
            Target(f"{names[pause]}, p99", 25, percentile(found, 0.99), "at most", " ms"),
        ]
    section.targets.append(
        Target("half of the most, p99", 250, percentile(loaded.milliseconds, 0.99), "at most", " ms")
    )
    server.drop("bench_latency")
    return section


def _database(server: Server) -> str:
    dsn = server.database("bench_latency")
    probes = 1 + sum(IDLE.values()) + LOAD_PROBES
    with connect(dsn) as admin:
        admin.execute(
            "CREATE TABLE public.x AS SELECT g::bigint AS id, 0 AS v "
            f"FROM generate_series(1, {ROWS + probes}) g"
        )
        admin.execute("ALTER TABLE public.x ADD PRIMARY KEY (id)")
        admin.execute("SELECT tube_ensure_exists('t')")
        admin.execute("SELECT tube_table_ensure_attached('t', 'public.x', 0)")
        admin.execute("VACUUM ANALYZE")
    return dsn


class Probing:
    """Writes rows one by one, and looks when they came. Each probe has an id of its own."""

    def __init__(self, server: Server, dsn: str, worker: Process, rows: int = ROWS) -> None:
        """`rows`: the ids of probes begin after them."""
        self._server = server
        self._dsn = dsn
        self._worker = worker
        self._process = psutil.Process(worker.process.pid)
        self._readings = server.readings(dsn)
        self._next = rows

    def ready(self) -> None:
        """One document got through, and the worker fell asleep."""
        self._send(0.0, 1, None)
        wait_for(lambda: bool(self._worker.read()), "the first document")
        with connect(self._dsn) as eye:
            wait_for(lambda: eye.execute("SELECT FROM tube_sleeper").fetchone() is not None, "sleep")
        time.sleep(1.0)

    def nothing(self, seconds: float) -> Probes:
        """What worker and server take while nobody writes."""
        return Probes([], *self._shares(lambda: time.sleep(seconds)))

    def probe(self, pause: float, count: int, until: threading.Event | None = None) -> Probes:
        """So many probes, `pause` seconds apart; it ends early when `until` is set."""
        sent: dict[int, int] = {}
        shares = self._shares(lambda: sent.update(self._send(pause, count, until)))
        begun = min(sent.values()) - 10**9

        def came() -> dict[int, int]:
            return {key: at for key, at in reversed(self._worker.read(begun)) if key in sent}

        wait_for(lambda: len(came()) == len(sent), "all probes came")
        return Probes([max(0.0, (at - sent[key]) / 1e6) for key, at in came().items()], *shares)

    def under_load(self, rate: float) -> Probes:
        """Probes while others write so many rows a second."""
        over = threading.Event()

        def write() -> None:
            self._server.pgbench(self._dsn, LOAD, clients=4, seconds=LOAD_SECONDS, commit=False, rate=rate)
            over.set()

        with connect(self._dsn) as eye:
            wait_for(lambda: eye.execute("SELECT FROM tube.t LIMIT 1").fetchone() is None, "an empty tube")
        load = threading.Thread(target=write)
        load.start()
        time.sleep(1.0)
        found = self.probe(LOAD_PAUSE, LOAD_PROBES, over)
        load.join()
        return found

    def _send(self, pause: float, count: int, until: threading.Event | None) -> dict[int, int]:
        """When the commit of each id returned."""
        sent: dict[int, int] = {}
        with connect(self._dsn, synchronous_commit="off") as writer:
            while len(sent) < count and not (until is not None and until.is_set()):
                self._next += 1
                writer.execute("UPDATE public.x SET v = v + 1 WHERE id = %s", [self._next])
                sent[self._next] = time.monotonic_ns()
                time.sleep(pause)
        return sent

    def _shares(self, work: Callable[[], object]) -> tuple[float, float]:
        """What worker and server took of one core meanwhile."""

        def timed() -> float:
            began = time.perf_counter()
            work()
            return time.perf_counter() - began

        before = self._process.cpu_times()
        reading = self._readings.of(timed)
        after = self._process.cpu_times()
        own = after.user + after.system - before.user - before.system
        return own / reading.wall, reading.server_cpu / reading.wall
