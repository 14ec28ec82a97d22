"""Whether a long queue slows writers, the drain, or fills the worker's memory."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg

from bench.frame.page import Section, Target
from bench.frame.server import Server, connect
from bench.frame.statistics import ratios, spread
from bench.frame.tubes import Term, fill
from bench.frame.workers import started, wait_for

SIZES = (10_000, 1_000_000, 10_000_000)
REFILLED = 100_000
"""Tubes of so many pods or fewer are filled anew for each figure; to longer ones, what it adds is little."""
ROWS = 100_000
ROUNDS = 3
PIECE = 3000
PIECES = 3
WORKER_SECONDS = 3.0


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Growth",
        "The same work with ever more pods of 1 id waiting: 1-row updates by pgbench with 4 clients "
        f"(`synchronous_commit` off, 2 s, the median of {ROUNDS}), marking and purging through the "
        "procedures over one connection, and the peak of the resident memory of a worker process that "
        f"drains the tube (rows as JSON, {WORKER_SECONDS:.0f} s). Each length is a tube and a table of its "
        "own, so that all are measured in turn; a `CHECKPOINT` comes after they are filled, and before each "
        "drain.",
    )
    dsn = server.database("bench_growth")
    with connect(dsn) as admin, connect(dsn, synchronous_commit="off") as drainer:
        queues = [Queue(server, dsn, admin, size) for size in SIZES]
        filled = time.perf_counter()
        for queue in queues:
            queue.make()
        filled = time.perf_counter() - filled
        admin.execute("CHECKPOINT")
        for number in range(ROUNDS):
            for queue in queues if number % 2 == 0 else queues[::-1]:
                queue.load()
                queue.drain(drainer)
        for queue in queues:
            queue.work()
        row = admin.execute(
            "SELECT pg_total_relation_size(%s::regclass)", [f"tube.{queues[-1].name}"]
        ).fetchone()
    assert row
    section.table(
        ["pods waiting", "updates/s", "pods/s drained", "worker's memory, MiB"],
        [[f"{q.size:,}", spread(q.tps).text(0), spread(q.speeds).text(0), f"{q.memory:.0f}"] for q in queues],
    )
    section.say(
        f"The longest takes {row[0] / 2**30:.1f} GiB with its index; all were filled in {filled:.0f} s, "
        "by INSERT … SELECT."
    )
    first, last = queues[0], queues[-1]
    section.targets += [
        Target("updates/s, most pods to fewest", 0.9, ratios(last.tps, first.tps).middle),
        Target("drained, most pods to fewest", 0.9, ratios(last.speeds, first.speeds).middle),
        Target("memory, most pods to fewest", 1.5, last.memory / first.memory, "at most"),
    ]
    server.drop("bench_growth")
    return section


@dataclass
class Queue:
    """A tube with so many pods, the table that feeds it, and what was measured of it."""

    server: Server
    dsn: str
    admin: psycopg.Connection
    size: int
    tps: list[float] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)
    memory: float = 0.0
    """MiB."""

    @property
    def name(self) -> str:
        """Of the tube and of the table."""
        return f"q{self.size}"

    def make(self) -> None:
        """Table and tube; full."""
        name = self.name
        self.admin.execute(
            f"CREATE TABLE public.{name} AS SELECT g::bigint AS id, 0 AS v FROM generate_series(1, {ROWS}) g"
        )
        self.admin.execute(f"ALTER TABLE public.{name} ADD PRIMARY KEY (id)")
        self.admin.execute("SELECT tube_ensure_exists(%s)", [name])
        self.admin.execute("SELECT tube_table_ensure_attached(%s, %s::regclass, 0)", [name, f"public.{name}"])
        self.admin.execute(f"VACUUM ANALYZE public.{name}")
        fill(self.admin, name, self.size)

    def load(self) -> None:
        """Measure writers."""
        self._refill()
        script = f"\\set i random(1, {ROWS})\nUPDATE public.{self.name} SET v = v + 1 WHERE id = :i;"
        self.tps.append(self.server.pgbench(self.dsn, script, clients=4, seconds=2, commit=False) / 2)

    def drain(self, drainer: psycopg.Connection) -> None:
        """Measure pieces from the front of the queue."""
        self._refill()
        # Else only the long ones, which are not filled anew, would write whole pages to the WAL.
        self.admin.execute("CHECKPOINT")
        term = Term(drainer, self.name)
        for _ in range(PIECES):
            began = time.perf_counter()
            done = term.drain(PIECE)
            self.speeds.append(done / (time.perf_counter() - began))
        drainer.execute("SELECT tube_leader_release(%s, 1, 0, %s)", [self.name, term.leader_id])

    def work(self) -> None:
        """Measure a worker's memory."""
        with (
            tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as folder,
            started(Path(folder), self.dsn, self.name, name="w", target="tallying:tally") as worker,
        ):
            wait_for(lambda: bool(worker.read()), f"a document of {self.name}")
            process = psutil.Process(worker.process.pid)
            until = time.monotonic() + WORKER_SECONDS
            while time.monotonic() < until:
                self.memory = max(self.memory, process.memory_info().rss / 2**20)
                time.sleep(0.02)

    def _refill(self) -> None:
        if self.size <= REFILLED:
            fill(self.admin, self.name, self.size)
