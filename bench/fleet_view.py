"""What it costs the database to look at the whole fleet once a second, as `pytube top` does."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pydantic import SecretStr

from bench.frame.page import Section, Target
from bench.frame.server import Server, connect
from pytube.db.database import Database
from pytube.health.fleet import MOST
from pytube.health.watcher import FleetWatcher

TUBES = 50
PARTITIONS = 4
PODS = 2000
"""In each partition and class of a full tube: far more than are counted."""
SECONDS = 20.0
GOAL = 1.0


@dataclass(frozen=True, slots=True)
class Watched:
    """Some seconds of it."""

    cpu: float
    samples: int
    reads: int
    took: float


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Fleet view",
        f"A sample of the whole fleet once a second, for {SECONDS:g} s: {TUBES} tubes of {PARTITIONS} "
        f"partitions, empty ones, and ones with {PODS} pods of each class in each partition, of which "
        f"{MOST} are counted. CPU of the server's process in shares of one core; how often "
        "backlogs were counted (a sample in between repeats what is known, where that takes long); and the "
        "median duration of a sample that counted them.",
    )
    dsn = server.database("bench_fleet_view")
    found = {}
    with (
        connect(dsn) as admin,
        closing(FleetWatcher([Database(SecretStr(dsn))], "pytube bench")) as watcher,
    ):
        for number in range(TUBES):
            admin.execute("SELECT tube_ensure_exists(%s, %s)", [f"t{number}", PARTITIONS])
        found["empty"] = _measure(watcher, dsn)
        for number in range(TUBES):
            admin.execute(
                f"INSERT INTO tube.t{number} (op, shard, ids)"
                f" SELECT CASE WHEN g %% 2 = 0 THEN 'U' ELSE 'B' END, (g / 2) %% {PARTITIONS}, ARRAY[g]"
                f" FROM generate_series(1, %s) AS g".encode(),
                [PODS * PARTITIONS * 2],
            )
        admin.execute("VACUUM ANALYZE")
        found["full"] = _measure(watcher, dsn)
    section.table(
        ["tubes", "server CPU", "samples", "partitions read", "took ms"],
        [
            [what, f"{one.cpu:.2%}", str(one.samples), str(one.reads), f"{one.took * 1000:.1f}"]
            for what, one in found.items()
        ],
    )
    section.targets += [
        Target(
            f"fleet view of {TUBES} {what} tubes once a second, % of a core",
            GOAL,
            one.cpu * 100,
            "at most",
            " %",
        )
        for what, one in found.items()
    ]
    server.drop("bench_fleet_view")
    return section


def _measure(watcher: FleetWatcher, dsn: str) -> Watched:
    sample = watcher.sample()
    assert len(sample.partitions) == TUBES * PARTITIONS, sample.down
    (pid,) = _pids(dsn)
    took, samples, counted_at = [], 0, sample.hosts[0].counted_at
    before, began = _cpu(pid), time.monotonic()
    while time.monotonic() < began + SECONDS:
        at = time.monotonic()
        sample = watcher.sample()
        if sample.hosts[0].counted_at != counted_at:
            took.append(time.monotonic() - at)
            counted_at = sample.hosts[0].counted_at
        samples += 1
        time.sleep(max(0.0, at + 1 - time.monotonic()))
    share = (_cpu(pid) - before) / (time.monotonic() - began)
    return Watched(share, samples, len(took), median(took))


def _pids(dsn: str) -> list[int]:
    with connect(dsn) as admin:
        rows = admin.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'pytube bench'")
        return [int(row[0]) for row in rows]


def _cpu(pid: int) -> float:
    """Seconds on a core, to the nanosecond: in ticks, a sample would be none or one."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
