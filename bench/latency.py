"""From commit to sink."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.frame.by_hand import RoundTrip
from bench.frame.page import Section, Target
from bench.frame.server import Server, connect
from bench.frame.statistics import percentile
from bench.frame.workers import Process, started, wait_for

IDLE = {0.15: 60, 0.02: 400, 0.005: 800}
"""Seconds between probes, and how many: one by one, fifty a second, and a stream in which a line polls."""
STREAM = 0.005
STREAM_GOAL = 5.0
"""Milliseconds: a promise, and so the one target that the machine's speed is part of."""
TO_HAND = 8.0
"""p50 of single rows to the round trip by hand, which neither marks nor purges, and sends to no sink."""
P99_TO_HAND = 12.0
"""p99 to p99, where there are enough probes for one: the machine's own delays are in both."""
FEW = 100
"""Probes, of which there is no p99."""
LOAD_PAUSE = 0.02
LOAD_PROBES = 240
LOAD_SECONDS = 12
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

    def plus(self, other: Probes) -> Probes:
        """Both, which took equally long."""
        return Probes(
            self.milliseconds + other.milliseconds,
            (self.worker_cpu + other.worker_cpu) / 2,
            (self.server_cpu + other.server_cpu) / 2,
        )


@dataclass(frozen=True, slots=True)
class Compared:
    """Probes of a worker, and as many by hand that were taken between their halves."""

    worker: Probes
    by_hand: list[float]
    """Milliseconds."""

    def ratio(self, share: float) -> float:
        """Of the worker's percentile to that by hand."""
        return percentile(self.worker.milliseconds, share) / percentile(self.by_hand, share)

    def row(self, name: str) -> list[str]:
        """A line of the table that compares."""
        cells = [
            (f"{percentile(self.by_hand, share):.2f}", f"{self.ratio(share):.1f}") for share in (0.5, 0.99)
        ]
        return [name, *cells[0], *(cells[1] if self.has_p99 else ("", ""))]

    @property
    def has_p99(self) -> bool:
        """Whether there are enough probes for one."""
        return len(self.by_hand) >= FEW


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Latency",
        "From the return of COMMIT at the writer (`synchronous_commit` off) to the call of the sink, "
        "in milliseconds, rows read as JSON; the worker is a process of its own, with defaults (leases "
        "in Postgres). Idle: single-row updates so far apart, and nothing else. Under load: the same "
        f"every {LOAD_PAUSE * 1000:.0f} ms, while pgbench with 4 clients updates single rows at half the "
        "rate that it reaches at most while the worker runs. CPU is in shares of one core; what the writers' "
        "sessions take is in the server's. By hand: a session updates a row of an equal table without a tube "
        "and sends a NOTIFY in the same transaction; one that listens gets it, and another one reads the row "
        "as JSON, from the sending of the update to the row. Between the first and the second half of the "
        "worker's probes there are as many by hand, just as far apart and beside the same load.",
    )
    dsn = _database(server)
    with (
        tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as name,
        started(Path(name), dsn, "t", name="one") as worker,
        RoundTrip(dsn, ROWS) as by_hand,
    ):
        probing = Probing(server, dsn, worker)
        probing.ready()
        quiet = probing.nothing(4.0)
        idle = {pause: _compare(probing, by_hand, pause, count) for pause, count in IDLE.items()}
        most = server.pgbench(dsn, LOAD, clients=4, seconds=4, commit=False) / 4
        loaded = _under_load(server, dsn, probing, by_hand, most / 2)
    names = {pause: f"idle, {pause * 1000:.0f} ms apart" for pause in IDLE}
    load = f"under {most / 2:,.0f} updates/s (most: {most:,.0f})"
    section.table(
        ["", "probes", "p50", "p90", "p99", "most", "worker's CPU", "server's CPU"],
        [
            *(found.worker.row(names[pause]) for pause, found in idle.items()),
            loaded.worker.row(load),
        ],
    )
    section.table(
        ["", "p50 by hand", "ratio to it", "p99 by hand", "ratio to it"],
        [*(found.row(names[pause]) for pause, found in idle.items()), loaded.row(load)],
    )
    section.say(
        f"With nothing written, the worker takes {quiet.worker_cpu:.1%} of a core, "
        f"the server {quiet.server_cpu:.1%}."
    )
    stream = percentile(idle[STREAM].worker.milliseconds, 0.5)
    section.targets.append(Target(f"{names[STREAM]}, p50", STREAM_GOAL, stream, "at most", " ms"))
    for pause, found in idle.items():
        if pause != STREAM:
            section.targets.append(
                Target(f"{names[pause]}, p50 to by hand", TO_HAND, found.ratio(0.5), "at most")
            )
        if found.has_p99:
            section.targets.append(
                Target(f"{names[pause]}, p99 to by hand", P99_TO_HAND, found.ratio(0.99), "at most")
            )
    section.targets.append(
        Target("half of the most, p99 to by hand", P99_TO_HAND, loaded.ratio(0.99), "at most")
    )
    server.drop("bench_latency")
    return section


def _compare(
    probing: Probing, by_hand: RoundTrip, pause: float, count: int, until: threading.Event | None = None
) -> Compared:
    """Half of the worker's probes, all of those by hand, the other half."""
    first = probing.probe(pause, count // 2, until)
    found = by_hand.probe(pause, count, until)
    return Compared(first.plus(probing.probe(pause, count // 2, until)), found)


def _under_load(server: Server, dsn: str, probing: Probing, by_hand: RoundTrip, rate: float) -> Compared:
    """Probes while others write so many rows a second."""
    over = threading.Event()

    def write() -> None:
        server.pgbench(dsn, LOAD, clients=4, seconds=LOAD_SECONDS, commit=False, rate=rate)
        over.set()

    with connect(dsn) as eye:
        wait_for(lambda: eye.execute("SELECT FROM tube.t LIMIT 1").fetchone() is None, "an empty tube")
    load = threading.Thread(target=write)
    load.start()
    time.sleep(1.0)
    found = _compare(probing, by_hand, LOAD_PAUSE, LOAD_PROBES, over)
    load.join()
    return found


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
