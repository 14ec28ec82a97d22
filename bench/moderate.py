"""What a document costs, and how late it is, while single rows are updated at a moderate rate."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import psutil

from bench.frame.page import Section, Target
from bench.frame.server import Server, connect
from bench.frame.statistics import percentile
from bench.frame.workers import Process, started, wait_for
from pytube.embedded.redis import Redis
from pytube.embedded.search_server import OpenSearch

DATABASE = "bench_moderate"
PARTITIONS, SHARDS = 4, 16
ROWS = 40_000
RATES = (100, 1_000, 3_000)
"""Updates a second, each of another row and a transaction of its own."""
SECONDS = 6
BURST = 20_000
HOT_RATE = 1_000
GOAL_RATE = 1_000
GOAL_CPU = 0.15
"""Milliseconds for each document, of Postgres and of the worker."""
GOAL_P50 = 15.0
GOAL_BURST = 9.0
GOAL_HOT = 100.0


@dataclass(frozen=True, slots=True)
class SinkServer:
    """A sink's server: what the worker is told of it, and the process whose CPU counts."""

    options: Mapping[str, object] | None
    process: psutil.Process | None


@dataclass(frozen=True, slots=True)
class Taken:
    """What some updates took."""

    documents: int
    updates: int
    wall: float
    late: list[float]
    """Milliseconds from the commit to the answer of the sink, of each update's row."""
    postgres: float
    """CPU seconds of the whole server; so are those that follow, of a part of it or of another process."""
    writing: float
    """Of the session that updates the rows: the updates, their capture and their commits."""
    serving: float
    """Of the sessions of the worker."""
    worker: float
    sink: float

    def each(self, cpu: float) -> float:
        """Milliseconds of CPU for each update."""
        return cpu / self.updates * 1000

    @property
    def shares(self) -> tuple[float, ...]:
        """As in the table: all of Postgres; its writer, the worker's sessions, the rest; worker; sink."""
        rest = self.postgres - self.writing - self.serving
        return self.postgres, self.writing, self.serving, rest, self.worker, self.sink


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Single rows at a moderate rate",
        f"One session updates single rows, each in a transaction, so many times a second for {SECONDS} s. A "
        f"worker with default settings and leases leads all {PARTITIONS} partitions of the tube, over "
        f"{SHARDS} shards, and reads each row as JSON. Late: from the return of COMMIT (`synchronous_commit` "
        "off) to the sink's answer. CPU in milliseconds for each update: of all of Postgres, and of it the "
        "session that writes (the update, its capture and its commit), the sessions of the worker, and the "
        "rest (the WAL's writer, checkpoints, autovacuum, sessions that have ended); of the worker; and of "
        "the sink's server. The goal for Postgres is compared with the sessions of the worker: what the "
        "session that writes takes, it takes without a worker, too, and capture has targets of its own. All "
        "of Postgres is compared with the same goal beside it.",
    )
    for name, opened in (("no-op", _noop), ("redis", _redis), ("opensearch", _opensearch)):
        with opened() as target:
            _measure(server, section, name, target)
    return section


@contextmanager
def _noop() -> Iterator[SinkServer]:
    yield SinkServer(None, None)


@contextmanager
def _redis() -> Iterator[SinkServer]:
    with tempfile.TemporaryDirectory() as folder, Redis(Path(folder)) as redis:
        yield SinkServer({"type": "redis", "url": redis.url, "key": "{id}"}, psutil.Process(redis.pid))


@contextmanager
def _opensearch() -> Iterator[SinkServer]:
    with tempfile.TemporaryDirectory() as folder, OpenSearch(folder) as search:
        options = {
            "type": "opensearch",
            "url": search.url,
            "index": "moderate",
            "settings": {"number_of_shards": 1, "number_of_replicas": 0, "refresh_interval": "1s"},
        }
        yield SinkServer(options, psutil.Process(search.pid))


def _measure(server: Server, section: Section, name: str, target: SinkServer) -> None:
    dsn = server.database(DATABASE)
    with connect(dsn) as admin:
        admin.execute(
            "CREATE TABLE public.x (id bigint PRIMARY KEY, v bigint, text text) WITH (fillfactor = 50);"
            f"INSERT INTO public.x SELECT g, 0, 'some words about ' || g FROM generate_series(0, {ROWS}) g"
        )
        admin.execute("SELECT tube_ensure_exists('t', %s)", [PARTITIONS])
    bare = _burst_alone(dsn) if name == "opensearch" else 0.0
    with connect(dsn) as admin:
        admin.execute("SELECT tube_table_ensure_attached('t', 'public.x', 0, %s)", [SHARDS])
        admin.execute("VACUUM ANALYZE")
    captured = _burst_alone(dsn) if name == "opensearch" else 0.0
    with connect(dsn) as admin:
        admin.execute("TRUNCATE tube.t")
    environment = {"BENCH_SINK": json.dumps(target.options)} if target.options else {}
    kind = "timed:send" if target.options else "stamping:stamp"
    with (
        tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as folder,
        patch.dict("os.environ", environment),
        started(Path(folder), dsn, "t", name="one", target=kind) as worker,
    ):
        writer = Writer(server, dsn, worker, target)
        writer.ready()
        rates = {rate: writer.write(rate, rate * SECONDS) for rate in RATES}
        hot = writer.write(HOT_RATE, HOT_RATE * SECONDS, rows=1)
        burst = writer.write(0, BURST) if name == "opensearch" else None
    server.drop(DATABASE)
    section.table(
        [
            f"{name}, updates/s",
            "documents",
            "late, p50 ms",
            "p99 ms",
            "Postgres",
            "its writer",
            "its worker's",
            "its rest",
            "worker",
            "sink",
        ],
        [
            [
                f"{rate:,}",
                f"{taken.documents:,}",
                *(f"{percentile(taken.late, share):.1f}" for share in (0.5, 0.99)),
                *(f"{taken.each(cpu):.3f}" for cpu in taken.shares),
            ]
            for rate, taken in rates.items()
        ],
    )
    often = hot.documents / hot.wall
    section.say(f"{name}: one row, updated {HOT_RATE:,} times a second, is sent {often:.0f} times a second.")
    section.targets.append(Target(f"{name}, one hot row, sends a second", GOAL_HOT, often, "at most"))
    if burst is not None:
        section.say(
            f"{BURST:,} updates one after the other take {bare:.1f} s without capture, {captured:.1f} s with "
            f"capture alone, and {burst.wall:.1f} s beside the worker, until the last one is at the sink."
        )
        at_goal = rates[GOAL_RATE]
        where = f"{name}, {GOAL_RATE:,} updates/s"
        section.targets += [
            *(
                Target(f"{where}, {whose} CPU, ms each", GOAL_CPU, at_goal.each(cpu), "at most")
                for whose, cpu in (
                    ("for the worker Postgres'", at_goal.serving),
                    ("all of Postgres'", at_goal.postgres),
                    ("the worker's", at_goal.worker),
                )
            ),
            Target(f"{where}, late, p50 ms", GOAL_P50, percentile(at_goal.late, 0.5), "at most"),
            Target(f"{name}, {BURST:,} updates beside the worker, s", GOAL_BURST, burst.wall, "at most"),
        ]


def _burst_alone(dsn: str) -> float:
    """Seconds that the burst takes while no worker runs."""
    with connect(dsn, synchronous_commit="off") as writer:
        began = time.perf_counter()
        for number in range(BURST):
            writer.execute("UPDATE public.x SET v = v + 1 WHERE id = %s", [number])
        return time.perf_counter() - began


class Writer:
    """Updates rows at a rate, and looks when they came, and what all took."""

    def __init__(self, server: Server, dsn: str, worker: Process, sink: SinkServer) -> None:
        self._dsn = dsn
        self._worker = worker
        self._processes = [psutil.Process(worker.process.pid), *([sink.process] if sink.process else [])]
        self._readings = server.readings(dsn)
        self._admin = connect(dsn)

    def ready(self) -> None:
        """All partitions are led, and the first documents got through."""
        self.write(200, 400)

    def write(self, rate: float, count: int, rows: int = ROWS) -> Taken:
        """So many updates, of one row after the other. Rate 0: as fast as they go."""
        begun: dict[int, int] = {}
        committed: dict[int, int] = {}
        since = time.monotonic_ns()
        writing = 0.0

        def work() -> float:
            nonlocal writing
            writing = self._write(rate, count, rows, begun, committed)
            wait_for(lambda: self._all_came(since, begun), "all documents", 120.0, pause=0.05)
            return count

        before = [_cpu(one) for one in self._processes]
        sessions = self._sessions()
        reading = self._readings.of(work)
        worker, sink = ([_cpu(one) - cpu for one, cpu in zip(self._processes, before, strict=True)] + [0.0])[
            :2
        ]
        serving = sum(cpu - sessions.get(pid, 0.0) for pid, cpu in self._sessions().items())
        came = self._worker.read(since)
        newest = dict(came)
        late = [(newest[key] - at) / 1e6 for key, at in committed.items()]
        wall = (max(newest.values()) - since) / 1e9
        return Taken(len(came), count, wall, late, reading.server_cpu, writing, serving, worker, sink)

    def _write(
        self, rate: float, count: int, rows: int, begun: dict[int, int], committed: dict[int, int]
    ) -> float:
        """Update the rows; the CPU seconds of the session that did it."""
        start = time.perf_counter()
        with connect(self._dsn, synchronous_commit="off") as writer:
            for number in range(count):
                pause = start + number / rate - time.perf_counter() if rate else 0.0
                if pause > 0:
                    time.sleep(pause)
                begun[number % rows] = time.monotonic_ns()
                writer.execute("UPDATE public.x SET v = v + 1 WHERE id = %s", [number % rows])
                committed[number % rows] = time.monotonic_ns()
            return _cpu(psutil.Process(writer.info.backend_pid))

    def _sessions(self) -> dict[int, float]:
        """The CPU seconds so far of each session of the worker, by process id."""
        rows = self._admin.execute(
            "SELECT pid FROM pg_stat_activity "
            "WHERE datname = current_database() AND starts_with(application_name, 'pytube')"
        )
        found: dict[int, float] = {}
        for (pid,) in rows:
            with suppress(psutil.NoSuchProcess):
                found[pid] = _cpu(psutil.Process(pid))
        return found

    def _all_came(self, since: int, begun: Mapping[int, int]) -> bool:
        newest = dict(self._worker.read(since))
        return all(newest.get(key, 0) >= at for key, at in begun.items())


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
