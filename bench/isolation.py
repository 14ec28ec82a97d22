"""A tube's latency while the sink of another tube in the same process hangs."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from bench.frame.page import Section, Target
from bench.frame.server import Server, connect
from bench.frame.statistics import percentile
from bench.frame.workers import Process, started, wait_for
from bench.latency import Probing

GOAL = 1.2
"""p99 of the healthy tube while the other one's sink hangs, to its p99 while that is idle."""
ROUNDS = 6
PROBES = 400
PAUSE = 0.005
ROWS = 20_000
"""That wait in the tube whose sink hangs."""
_HUNG = """
[tube.hung.sink]
type = "callable"
target = "bench.sinks.hanging:hang"
request_timeout = 1.0

[tube.hung.enrich]
mode = "row"
"""


@dataclass
class Case:
    """The probes of all rounds."""

    milliseconds: list[float] = field(default_factory=list)

    def row(self, name: str) -> list[str]:
        """A line of the table."""
        shares = (f"{percentile(self.milliseconds, share):.2f}" for share in (0.5, 0.9, 0.99, 1.0))
        return [name, str(len(self.milliseconds)), *shares]


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "A hanging sink beside",
        "One worker process serves two tubes. Single-row updates of the first one's table "
        f"every {PAUSE * 1000:.0f} ms, from the return of COMMIT to the call of the sink, in milliseconds: "
        f"while the other tube is idle, and while its sink hangs with {ROWS:,} rows waiting, so that sends "
        f"run into their time limit of 1 s. {ROUNDS} rounds of {PROBES} probes each, in "
        "turn.",
    )
    dsn = _database(server)
    idle, hanging = Case(), Case()
    with (
        tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as name,
        started(Path(name), dsn, "t", name="one", more=_HUNG) as worker,
        connect(dsn) as admin,
    ):
        probing = Probing(server, dsn, worker, ROWS)
        probing.ready()
        for number in range(ROUNDS):
            for case in (idle, hanging) if number % 2 == 0 else (hanging, idle):
                _prepare(admin, worker, hangs=case is hanging)
                case.milliseconds += probing.probe(PAUSE, PROBES).milliseconds
        _prepare(admin, worker, hangs=False)
    section.table(
        ["the other tube", "probes", "p50", "p90", "p99", "most"],
        [idle.row("idle"), hanging.row("its sink hangs")],
    )
    ratio = percentile(hanging.milliseconds, 0.99) / percentile(idle.milliseconds, 0.99)
    section.targets.append(Target("p99 beside a sink that hangs, to idle", GOAL, ratio, "at most"))
    server.drop("bench_isolation")
    return section


def _prepare(admin: psycopg.Connection, worker: Process, *, hangs: bool) -> None:
    """Have the other tube's sink hang with a backlog, or be idle.

    It is idle first in either case: otherwise the worker would take up the new backlog, which costs it some
    40 ms, among the first probes.
    """
    flag = Path(f"{worker.stamps}.hang")
    flag.unlink(missing_ok=True)
    wait_for(lambda: admin.execute("SELECT FROM tube.hung LIMIT 1").fetchone() is None, "it is idle", 90)
    if hangs:
        flag.touch()
        admin.execute("UPDATE public.hung SET v = v + 1")
        # What hangs in a thread can't be called off: the worker sends no more, and the sink counts as slow.
        slow = "SELECT FROM tube_hindered_list() WHERE tube = 'hung'"
        wait_for(lambda: admin.execute(slow.encode()).fetchone() is not None, "the sink is seen to hang")


def _database(server: Server) -> str:
    dsn = server.database("bench_isolation")
    probes = 1 + 2 * ROUNDS * PROBES
    with connect(dsn) as admin:
        for table, tube, rows in (("x", "t", ROWS + probes), ("hung", "hung", ROWS)):
            admin.execute(
                f"CREATE TABLE public.{table} AS SELECT g::bigint AS id, 0 AS v "
                f"FROM generate_series(1, {rows}) g"
            )
            admin.execute(f"ALTER TABLE public.{table} ADD PRIMARY KEY (id)")
            admin.execute("SELECT tube_ensure_exists(%s)", [tube])
            admin.execute("SELECT tube_table_ensure_attached(%s, %s, 0)", [tube, f"public.{table}"])
        admin.execute("VACUUM ANALYZE")
    return dsn
