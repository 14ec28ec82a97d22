"""What another partition or another worker gives, and what it costs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import psycopg

from bench.frame.page import Section
from bench.frame.readings import Reading
from bench.frame.rounds import interleave, rates
from bench.frame.server import Server, connect
from bench.frame.statistics import ratios, spread
from bench.frame.workers import Process, leaders, started, wait_for

WORKERS = {1: (1, 2), 4: (1, 2, 4), 16: (1, 4)}
"""By the number of partitions; a second worker stands by where there is but one partition."""
PARTITIONS = tuple(WORKERS)
PODS = 200_000
ROUNDS = 3
WARM_UP = 20_000
CLIENTS = 4
SECONDS = 2
_FILL = """
    WITH filled AS (
        INSERT INTO tube.{tube} (op, shard, ids)
        SELECT 'U', g % {partitions}, ARRAY[g] FROM generate_series(1, {pods}) AS g
    )
    SELECT pg_notify(tube_channel('{tube}'), p::text) FROM generate_series(0, {partitions} - 1) AS p
"""
"""Workers that sleep are woken at the commit, all at once."""


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Partitions and workers",
        f"A tube with 1, 4 and 16 partitions, fed by a table of {PODS:,} rows that is spread over as many "
        f"shards. Writers: 1-row updates by pgbench with {CLIENTS} clients, `synchronous_commit` off, nobody "
        "drains. Workers: 1 to 4 processes of `pytube worker` with default settings (leases in "
        "Postgres, rows as JSON, a sink that counts) have shared the partitions evenly when "
        f"{PODS:,} pods of 1 id, all distinct, are committed at once; from there to the last document. "
        f"{ROUNDS} times each. CPU is what "
        "all workers together, and the server, take for a touch. With more workers than partitions the rest "
        "stand by.",
    )
    dsn = server.database("bench_fleet")
    with connect(dsn) as admin:
        for partitions in PARTITIONS:
            _make(admin, partitions)
        _writers(server, dsn, admin, section)
        for partitions in PARTITIONS:
            admin.execute(f"TRUNCATE tube.{_name(partitions)}")
        rows = [row for partitions in PARTITIONS for row in _drained(server, dsn, admin, partitions)]
    section.table(
        [
            "partitions",
            "workers",
            "touches/s",
            "to 1 worker, 1 partition",
            "workers' CPU µs",
            "server's CPU µs",
        ],
        [row.cells(spread(rows[0].rates).middle) for row in rows],
    )
    server.drop("bench_fleet")
    return section


def _name(partitions: int) -> str:
    return f"p{partitions}"


def _make(admin: psycopg.Connection, partitions: int) -> None:
    name = _name(partitions)
    admin.execute(
        f"CREATE TABLE public.{name} AS SELECT g::bigint AS id, 0 AS v FROM generate_series(1, {PODS}) g"
    )
    admin.execute(f"ALTER TABLE public.{name} ADD PRIMARY KEY (id)")
    admin.execute("SELECT tube_ensure_exists(%s, %s)", [name, partitions])
    admin.execute(
        "SELECT tube_table_ensure_attached(%s, %s::regclass, 0, shards => %s)",
        [name, f"public.{name}", partitions],
    )
    admin.execute(f"VACUUM ANALYZE public.{name}")


# --- writers ------------------------------------------------------------------------------


def _writers(server: Server, dsn: str, admin: psycopg.Connection, section: Section) -> None:
    def work(partitions: int) -> float:
        """So many updates."""
        script = f"\\set i random(1, {PODS})\nUPDATE public.{_name(partitions)} SET v = v + 1 WHERE id = :i;"
        return server.pgbench(dsn, script, clients=CLIENTS, seconds=SECONDS, commit=False)

    taken = interleave(
        server.readings(dsn),
        {_name(partitions): partial(work, partitions) for partitions in PARTITIONS},
        ROUNDS,
        lambda name: admin.execute(f"TRUNCATE tube.{name}"),
    )
    first = _name(PARTITIONS[0])
    section.table(
        ["partitions", "updates/s", "ratio to 1"],
        [
            [
                name[1:],
                spread(rates(taken, name)).text(0),
                ratios(rates(taken, name), rates(taken, first)).text(),
            ]
            for name in taken
        ],
    )


# --- workers ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """So many partitions, so many workers."""

    partitions: int
    workers: int
    readings: list[Reading]
    own_cpu: list[float]
    """Seconds of all workers, reading by reading."""

    @property
    def rates(self) -> list[float]:
        """Touches a second."""
        return [reading.rate for reading in self.readings]

    def cells(self, base: float) -> list[str]:
        """A line of the table; `base` is the rate to compare with."""
        own = spread([cpu / r.amount * 1e6 for cpu, r in zip(self.own_cpu, self.readings, strict=True)])
        found = spread(self.rates)
        return [
            str(self.partitions),
            str(self.workers),
            found.text(0),
            f"{found.middle / base:.2f}",
            f"{own.middle:.1f}",
            f"{spread([r.cpu_each for r in self.readings]).middle:.1f}",
        ]


def _drained(server: Server, dsn: str, admin: psycopg.Connection, partitions: int) -> Iterator[Row]:
    """With ever more workers."""
    with tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as folder, ExitStack() as stack:
        fleet = Fleet(server, dsn, admin, partitions)
        for workers in WORKERS[partitions]:
            while len(fleet.workers) < workers:
                name = f"w{len(fleet.workers) + 1}"
                worker = started(Path(folder), dsn, fleet.tube, name=name, target="tallying:tally")
                fleet.workers.append(stack.enter_context(worker))
            fleet.wait_even()
            fleet.warm_up()
            yield fleet.measured()


class Fleet:
    """Workers that share a tube."""

    def __init__(self, server: Server, dsn: str, admin: psycopg.Connection, partitions: int) -> None:
        self.tube = _name(partitions)
        self.workers: list[Process] = []
        self._admin = admin
        self._partitions = partitions
        self._readings = server.readings(dsn)

    def wait_even(self) -> None:
        """Until each leads its share."""
        count = len(self.workers)
        least, more = divmod(self._partitions, count)
        shares = sorted([least + 1] * more + [least] * (count - more))

        def even() -> bool:
            led = list(leaders(self._admin, self.tube).values())
            return sorted(led.count(f"w{number + 1}") for number in range(count)) == shares

        wait_for(even, f"{count} workers share {self._partitions} partitions", limit=60.0)
        time.sleep(1.0)

    def measured(self) -> Row:
        """Fill and drain, again and again."""
        row = Row(self._partitions, len(self.workers), [], [])
        for _ in range(ROUNDS):
            self._fill(PODS)
            cpu = self._cpu()
            row.readings.append(self._readings.of(lambda: self._drain(PODS)))
            row.own_cpu.append(self._cpu() - cpu)
        return row

    def warm_up(self) -> None:
        """All have worked once."""
        self._fill(WARM_UP)
        self._drain(WARM_UP)

    def _fill(self, pods: int) -> None:
        """Into the emptied tube; not committed."""
        wait_for(
            lambda: self._admin.execute(f"SELECT FROM tube.{self.tube} LIMIT 1").fetchone() is None,
            "it is empty",
        )
        self._admin.execute(f"VACUUM ANALYZE tube.{self.tube}")
        self._admin.execute("BEGIN")
        self._admin.execute(_FILL.format(tube=self.tube, partitions=self._partitions, pods=pods))

    def _drain(self, pods: int) -> float:
        """Commit, and wait for the last document."""
        since = time.monotonic_ns()
        self._admin.execute("COMMIT")
        wait_for(lambda: self._came(since) >= pods, f"{pods} documents", limit=120.0)
        return pods

    def _came(self, since: int) -> int:
        return sum(count for worker in self.workers for count, _ in worker.read(since))

    def _cpu(self) -> float:
        times = [psutil.Process(worker.process.pid).cpu_times() for worker in self.workers]
        return sum(each.user + each.system for each in times)
