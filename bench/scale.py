"""Large installations, simulated on one machine: `python -m bench.scale [PART …] [--partitions N …]`.

Parts are `one_tube`, `hosts`, and `elections`; all by default. The workers of the first two are processes as
an operator runs them, with default settings, while nothing is written. Those of the third are tasks of one
process, with the real lease election, without pipelines. It runs alone, not with the other benchmarks: it
needs hundreds of sessions. The figures are in docs/scale.md.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TypeAlias

import psutil
import psycopg

from bench import scale_elections
from bench.frame import machine
from bench.frame.page import table as markdown
from bench.frame.readings import cpu_of
from bench.frame.server import SETTINGS, Server, connect
from bench.frame.workers import process, wait_for
from pytube.embedded.postgres import Postgres

LIMIT = 600.0
_SERVER = {"max_connections": "2000", "max_wal_size": "2GB"}
_MAKE = "SELECT tube_ensure_exists('t' || n, %s) FROM generate_series(1, %s) AS n"
_SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pytube %'"
_COMMITS = "SELECT sum(xact_commit) FROM pg_stat_database WHERE datname LIKE 'scale%'"
_LED = "SELECT client_id, count(*) FROM tube_leaders() WHERE NOT lost GROUP BY client_id"
_ASLEEP = """
    SELECT count(*) FROM tube_sleeper JOIN tube_leader USING (tube, partition)
    WHERE client_id <> ALL (%s) AND leader_id IS NOT NULL
"""
"""Partitions whose worker has marked once, and found nothing: it works."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is of everything."""

    partitions: int = 1024
    """Of the only tube of `one_tube`."""
    pair: int = 2
    """Its processes."""
    hosts: int = 50
    tubes: int = 20
    """On each host."""
    tube_partitions: int = 4
    processes: int = 4
    """That serve all hosts."""
    fleet: int = 200
    """Simulated workers."""
    fleet_partitions: int = 1000
    """That they share: once in a single tube, and once in `fleet_tubes`."""
    fleet_tubes: int = 20
    die: int = 20
    """Of the fleet."""
    seconds: float = 60.0
    """Of idleness that are measured."""
    settle: float = 20.0
    """Seconds before that, for autovacuum, which comes every 5 s."""
    session_timeout: float = 15.0
    """Seconds; trust and requests last a third of it each."""


@dataclass
class Found:
    """What some processes cost that have nothing to do."""

    led: float = 0.0
    """Seconds from the start of the first process until each partition is led, and has been looked at."""
    most_sessions: int = 0
    """While they start, or take over."""
    sessions: int = 0
    own_cpu: list[float] = field(default_factory=list)
    """Seconds in an idle minute, process by process."""
    server_cpu: float = 0.0
    """Seconds in an idle minute, of all processes of the server."""
    start_cpu: tuple[float, float] = (0.0, 0.0)
    """Seconds of all workers, and of the server, until all is led."""
    commits: float = 0.0
    """A second."""
    megabytes: float = 0.0
    """Of the largest process."""
    shares: list[int] = field(default_factory=list)
    """Partitions, process by process."""
    taken_over: float = 0.0
    """Seconds from SIGKILL of one until the others lead its partitions."""
    works_again: float = 0.0
    """The same, until each has been looked at."""
    take_over_cpu: tuple[float, float] = (0.0, 0.0)
    """Seconds of the others, and of the server, until then."""

    def rows(self) -> list[list[str]]:
        """For the table."""
        return [
            ["all led, and looked at, after", f"{self.led:.0f} s"],
            ["CPU until then: workers, server", "{:.0f} s, {:.0f} s".format(*self.start_cpu)],
            ["partitions led by each process", ", ".join(map(str, sorted(self.shares)))],
            ["sessions: idle, most", f"{self.sessions}, {self.most_sessions}"],
            ["CPU of each process in an idle minute", _range(self.own_cpu)],
            ["CPU of the server in an idle minute", f"{self.server_cpu:.1f} s"],
            ["transactions a second", f"{self.commits:.0f}"],
            ["memory of the largest process", f"{self.megabytes:.0f} MiB"],
            ["one is killed: all are led again after", f"{self.taken_over:.1f} s"],
            ["and have been looked at after", f"{self.works_again:.1f} s"],
            ["CPU until then: workers, server", "{:.0f} s, {:.0f} s".format(*self.take_over_cpu)],
        ]


def _range(seconds: list[float]) -> str:
    return f"{min(seconds):.1f} to {max(seconds):.1f} s"


Part: TypeAlias = Callable[[Server, Size], Found]


def one_tube(server: Server, size: Size) -> Found:
    """Two processes share a tube with very many partitions."""
    with _databases(server, 1, 1, size.partitions) as dsns:
        return _measure(server, dsns, size.partitions, 1, size.pair, size)


def hosts(server: Server, size: Size) -> Found:
    """A few processes serve many hosts with many tubes; databases of one server stand for hosts."""
    with _databases(server, size.hosts, size.tubes, size.tube_partitions) as dsns:
        everything = size.hosts * size.tubes * size.tube_partitions
        return _measure(server, dsns, everything, size.tubes, size.processes, size)


# --- databases ---------------------------------------------------------------------------------------


@contextmanager
def _databases(server: Server, count: int, tubes: int, partitions: int) -> Iterator[list[str]]:
    """DSNs of databases with tubes; dropped at the end."""
    names = [f"scale{number}" for number in range(count)]
    with connect(server.database(names[0])) as first:
        first.execute(_MAKE, [partitions, tubes])
    with psycopg.connect(server.postgres.dsn(), autocommit=True) as admin:
        for name in names[1:]:
            admin.execute(f"CREATE DATABASE {name} TEMPLATE {names[0]} STRATEGY file_copy")
    try:
        yield [server.postgres.dsn(name) for name in names]
    finally:
        for name in names:
            server.drop(name)


def _config(dsns: Sequence[str], tubes: int, timeout: float) -> str:
    lines = ["[worker]", 'client_id = "${CLIENT_ID}"']
    lines += [f"session_timeout = {timeout}", f"receive_deadline = {timeout / 3}"]
    if len(dsns) == 1:
        lines += ["[postgres]", f'dsn = "{dsns[0]}"']
    else:
        for number, dsn in enumerate(dsns):
            lines += [f"[postgres.hosts.h{number}]", f'dsn = "{dsn}"']
    for number in range(1, tubes + 1):
        lines += [f"[tube.t{number}.sink]", 'type = "callable"', 'target = "bench.sinks.counting:count"']
        lines += [f"request_timeout = {timeout / 3}", f"[tube.t{number}.enrich]", 'mode = "row"']
    return "\n".join(lines)


# --- processes ---------------------------------------------------------------------------------------


class Eye:
    """Looks at all databases, from sessions that aren't counted."""

    def __init__(self, server: Server, dsns: Sequence[str], stack: ExitStack) -> None:
        self._all = [stack.enter_context(connect(dsn)) for dsn in dsns]
        self.server = server
        self.workers: list[psutil.Process] = []
        self.most_sessions = 0

    def count(self, statement: str) -> int:
        """The only value of a statement that is about the whole server."""
        row = self._all[0].execute(statement.encode()).fetchone()
        assert row is not None
        return int(row[0])

    def sessions(self) -> int:
        """Of workers, now."""
        if self.workers and self.workers[-1].status() == psutil.STATUS_ZOMBIE:
            raise RuntimeError("a worker has ended")
        found = self.count(_SESSIONS)
        self.most_sessions = max(self.most_sessions, found)
        return found

    def shares(self) -> dict[str, int]:
        """Partitions led, by worker."""
        found: dict[str, int] = {}
        for one in self._all:
            for name, count in one.execute(_LED):
                found[name] = found.get(name, 0) + count
        return found

    def are_led(self, everything: int, dead: Sequence[str] = ()) -> bool:
        """Whether somebody alive leads each partition."""
        self.sessions()
        return sum([count for name, count in self.shares().items() if name not in dead]) == everything

    def are_asleep(self, everything: int, dead: Sequence[str] = ()) -> bool:
        """Whether each partition is led, and was looked at."""
        self.sessions()
        rows = [one.execute(_ASLEEP, [list(dead)]).fetchone() for one in self._all]
        return sum(int(row[0]) for row in rows if row) == everything

    def server_cpu(self) -> float:
        """Seconds, since the server was started."""
        return cpu_of(self.server.postgres.pid)


def _measure(
    server: Server, dsns: Sequence[str], everything: int, tubes: int, processes: int, size: Size
) -> Found:
    found = Found()
    with tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as name, ExitStack() as stack:
        eye = Eye(server, dsns, stack)
        names = [f"w{number}" for number in range(1, processes + 1)]
        began, server_cpu = time.monotonic(), eye.server_cpu()
        workers = [
            _started(stack, Path(name), _config(dsns, tubes, size.session_timeout), one) for one in names
        ]
        eye.workers = workers
        fair = everything // processes - everything // 10
        _wait(lambda: eye.are_led(everything) and eye.are_asleep(everything), "all partitions are led")
        found.led = time.monotonic() - began
        found.start_cpu = _cpu(workers), eye.server_cpu() - server_cpu
        _wait(lambda: len(eye.shares()) == processes and min(eye.shares().values()) >= fair, "fair shares")
        _wait(lambda: eye.are_asleep(everything), "all partitions sleep")
        time.sleep(size.settle)
        _idle(eye, workers, size.seconds, found)
        found.shares = list(eye.shares().values())
        others = workers[1:]
        killed, own_cpu, server_cpu = time.monotonic(), _cpu(others), eye.server_cpu()
        workers[0].send_signal(signal.SIGKILL)
        _wait(lambda: eye.are_led(everything, names[:1]), "the others lead all")
        found.taken_over = time.monotonic() - killed
        _wait(lambda: eye.are_asleep(everything, names[:1]), "the others have looked at all")
        found.works_again = time.monotonic() - killed
        found.take_over_cpu = _cpu(others) - own_cpu, eye.server_cpu() - server_cpu
        found.most_sessions = eye.most_sessions
    return found


def _started(stack: ExitStack, folder: Path, config: str, name: str) -> psutil.Process:
    running = stack.enter_context(process(folder, config, name))
    stack.callback(running.kill)
    return psutil.Process(running.pid)


def _cpu(workers: Sequence[psutil.Process]) -> float:
    return sum([cpu_of(one.pid) for one in workers])


def _wait(condition: Callable[[], bool], what: str) -> None:
    wait_for(condition, what, LIMIT, pause=0.25)


def _idle(eye: Eye, workers: Sequence[psutil.Process], seconds: float, found: Found) -> None:
    """What a stretch of idleness costs, as of a minute."""
    own, server, commits = [cpu_of(one.pid) for one in workers], eye.server_cpu(), eye.count(_COMMITS)
    began = time.monotonic()
    time.sleep(seconds)
    seconds = time.monotonic() - began
    minutes = seconds / 60
    found.own_cpu = [(cpu_of(one.pid) - was) / minutes for one, was in zip(workers, own, strict=True)]
    found.server_cpu = (eye.server_cpu() - server) / minutes
    found.commits = (eye.count(_COMMITS) - commits) / seconds
    found.sessions = eye.sessions()
    found.megabytes = max(one.memory_info().rss for one in workers) / 2**20


# --- workers without pipelines -----------------------------------------------------------------------


def elections(server: Server, size: Size) -> list[tuple[int, scale_elections.Found]]:
    """By the number of tubes in which the partitions are."""
    found = []
    for tubes in sorted({1, size.fleet_tubes}):
        with _databases(server, 1, tubes, size.fleet_partitions // tubes) as (dsn,):
            simulation = scale_elections.measured(
                dsn, server.postgres.pid, size.fleet, tubes, size.die, size.seconds, size.session_timeout
            )
            found.append((tubes, asyncio.run(simulation)))
    return found


# --- the program -------------------------------------------------------------------------------------


@contextmanager
def running() -> Iterator[Server]:
    """A server that takes hundreds of sessions."""
    with tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        with Postgres(Path(folder) / "pg", settings=SETTINGS | _SERVER) as postgres:
            yield Server(postgres)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale")
    parser.add_argument("parts", nargs="*", default=["one_tube", "hosts", "elections"])
    for one in fields(Size):
        parser.add_argument(f"--{one.name.replace('_', '-')}", type=type(one.default), default=one.default)
    asked = vars(parser.parse_args())
    parts = asked.pop("parts")
    size = Size(**asked)
    with running() as server:
        print(markdown(["", ""], machine.describe(server.postgres.dsn())), size, sep="\n\n", flush=True)
        for part in parts:
            if part == "elections":
                for tubes, fleet in elections(server, size):
                    print(f"\n## elections, tubes: {tubes}\n\n{_table(fleet.rows())}", flush=True)
            else:
                processes: Part = {"one_tube": one_tube, "hosts": hosts}[part]
                found = processes(server, size)
                print(f"\n## {part}\n\n{_table(found.rows())}", flush=True)


def _table(rows: list[list[str]]) -> str:
    return markdown(["", "found"], rows)


if __name__ == "__main__":
    main()
