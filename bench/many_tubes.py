"""What a worker process costs that serves many tubes and has nothing to do."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg

from bench.frame.page import Section, Target
from bench.frame.server import Server, connect
from bench.frame.workers import many, wait_for
from pytube.embedded.kafka_real import RealKafka

PARTITIONS = 4
SECONDS = 20.0
"""Of idleness that are measured, after all partitions have fallen asleep."""
START_LIMIT = 240.0
SETTLE = 12.0
"""Until the start is settled, and autovacuum, which comes every 5 s, is done with it."""
GOAL = 200
LEASES = (1, GOAL)
GROUPS = (1, 50)
"""Of consumer groups, one for each tube: 200 of them take minutes to start, and nobody should have them."""
ONE_GROUP = (1, GOAL)
SHARED_PARTITIONS = 12


@dataclass(frozen=True, slots=True)
class Idle:
    """One process with nothing to do."""

    tubes: int
    sessions: int
    transactions: float
    """A second."""
    worker_cpu: float
    """Share of one core."""
    server_cpu: float
    megabytes: float
    threads: int
    started: float
    """Seconds from the start of the process until it led all partitions."""


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Many tubes",
        "One worker process with default settings, as the command line runs it, that leads all partitions "
        f"of tubes of {PARTITIONS} partitions each, while nothing is written: its sessions, the "
        "transactions a second that the database counts, CPU of the process and of all processes of the "
        "server in shares of one core, memory and threads of the process, and how long it took to lead "
        "everything. "
        f"{SECONDS:g} s each. With leases in Postgres; and with neli on a real Kafka broker, with a consumer "
        f"group for each tube, and with one for all tubes (`kafka.shared_partitions = {SHARED_PARTITIONS}`).",
    )
    dsn = server.database("bench_many")
    with (
        tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as name,
        connect(dsn) as admin,
        ExitStack() as stack,
    ):
        for number in range(max(LEASES + GROUPS + ONE_GROUP)):
            admin.execute("SELECT tube_ensure_exists(%s, %s)", [f"t{number}", PARTITIONS])
        folder = Path(name)
        kafka = stack.enter_context(RealKafka(folder / "kafka"))
        lease = [_idle(server, dsn, folder, admin, tubes) for tubes in LEASES]
        broker = f'[kafka]\nbootstrap_servers = "{kafka.bootstrap}"\n'
        shared = f"{broker}shared_partitions = {SHARED_PARTITIONS}\n"
        groups = [_idle(server, dsn, folder, admin, tubes, broker) for tubes in GROUPS]
        group = [_idle(server, dsn, folder, admin, tubes, shared) for tubes in ONE_GROUP]
    kinds = {"leases": lease, "neli, a group for each tube": groups, "neli, one group": group}
    section.table(
        [
            "election",
            "tubes",
            "sessions",
            "transactions/s",
            "own CPU",
            "server CPU",
            "memory MiB",
            "threads",
            "leads after s",
        ],
        [_row(kind, idle) for kind, found in kinds.items() for idle in found],
    )
    most = lease[-1]
    section.targets += [
        Target(f"sessions for {GOAL} tubes", 10, most.sessions, "at most"),
        Target(f"transactions a second for {GOAL} idle tubes", 20, most.transactions, "at most", "/s"),
        Target(f"own CPU for {GOAL} idle tubes, % of a core", 2, most.worker_cpu * 100, "at most", " %"),
    ]
    server.drop("bench_many")
    return section


def _row(kind: str, idle: Idle) -> list[str]:
    return [
        kind,
        str(idle.tubes),
        str(idle.sessions),
        f"{idle.transactions:.1f}",
        f"{idle.worker_cpu:.1%}",
        f"{idle.server_cpu:.1%}",
        f"{idle.megabytes:.0f}",
        str(idle.threads),
        f"{idle.started:.1f}",
    ]


def _idle(
    server: Server, dsn: str, folder: Path, admin: psycopg.Connection, tubes: int, kafka: str = ""
) -> Idle:
    names = [f"t{number}" for number in range(tubes)]
    # What an earlier process released or has left is out of the way.
    wait_for(lambda: not _count(admin, "SELECT count(*) FROM tube_leaders()"), "no leader is left", 60)
    began = time.monotonic()
    with many(folder, dsn, names, name=f"many-{tubes}-{len(kafka)}", more=kafka) as process:
        everything = tubes * PARTITIONS
        wait_for(
            lambda: _count(admin, "SELECT count(*) FROM tube_leaders()") == everything, "leads", START_LIMIT
        )
        started = time.monotonic() - began
        asleep = "SELECT count(*) FROM tube_sleeper"
        wait_for(lambda: _count(admin, asleep) == everything, "all partitions sleep", START_LIMIT)
        time.sleep(SETTLE)
        worker = psutil.Process(process.pid)
        cpu, transactions = _cpu(worker), _transactions(admin)
        server_cpu, at = _server_cpu(server), time.monotonic()
        time.sleep(SECONDS)
        seconds = time.monotonic() - at
        return Idle(
            tubes,
            _count(admin, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pytube %'"),
            (_transactions(admin) - transactions) / seconds,
            (_cpu(worker) - cpu) / seconds,
            (_server_cpu(server) - server_cpu) / seconds,
            worker.memory_info().rss / 2**20,
            worker.num_threads(),
            started,
        )


def _count(admin: psycopg.Connection, statement: str) -> int:
    row = admin.execute(statement.encode()).fetchone()
    assert row is not None
    return int(row[0])


def _transactions(admin: psycopg.Connection) -> int:
    """As the statistics have them, which lag by a second; those of this session are a handful."""
    return _count(admin, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _server_cpu(server: Server) -> float:
    postmaster = psutil.Process(server.postgres.pid)
    times = [postmaster.cpu_times(), *(child.cpu_times() for child in postmaster.children())]
    return sum(one.user + one.system + one.children_user + one.children_system for one in times[:1]) + sum(
        one.user + one.system for one in times[1:]
    )
