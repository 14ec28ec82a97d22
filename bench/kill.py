"""How late changes arrive before, during and after the death of a worker, second by second."""

from __future__ import annotations

import signal
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.frame.page import Section
from bench.frame.server import Server, connect
from bench.frame.workers import Process, leaders, started, wait_for

TUBE = "t"
PARTITIONS, SHARDS = 4, 16
BEFORE, AFTER = 5, 25
"""Seconds of changes before the kill, and after it."""
PAUSE = 0.02
SETTLE = 3.0
"""Seconds after which the leaders that were elected stay."""
CAPTION = "Longest lag of the changes committed in a second"
OWN, OTHERS = "partitions of the killed worker, s", "other partitions, s"


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Lag through a kill",
        "Two workers with default settings (a session timeout of 15 s, leases in Postgres) share "
        f"{PARTITIONS} partitions, while another row is changed every {PAUSE * 1000:.0f} ms; each row once. "
        "One worker gets SIGKILL at second 0. From the return of COMMIT to the call of the sink; for each "
        "second, the longest.",
    )
    dsn = server.database("bench_kill")
    rows = round((BEFORE + AFTER) / PAUSE)
    with connect(dsn) as admin:
        admin.execute(
            f"CREATE TABLE public.x AS SELECT g::bigint AS id, 0 AS v FROM generate_series(1, {rows}) g"
        )
        admin.execute("ALTER TABLE public.x ADD PRIMARY KEY (id)")
        admin.execute("SELECT tube_ensure_exists(%s, %s)", [TUBE, PARTITIONS])
        admin.execute("SELECT tube_table_ensure_attached(%s, 'public.x', 0, %s)", [TUBE, SHARDS])
    with tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as name, ExitStack() as stack:
        workers = {
            one: stack.enter_context(started(Path(name), dsn, TUBE, name=one)) for one in ("first", "second")
        }
        wait_for(lambda: _each_leads_two(dsn, workers), "two partitions for each worker", limit=60.0)
        time.sleep(SETTLE)
        lags = _lags(dsn, rows, workers)
    server.drop("bench_kill")
    table = []
    for second in range(-BEFORE, AFTER):
        longest = [
            max((late for at, late, is_own in lags if is_own is own and int(at // 1) == second), default=0.0)
            for own in (True, False)
        ]
        table.append([str(second), *(f"{late:.3f}" for late in longest)])
    section.parts.append(CAPTION + ":")
    section.table(["second", OWN, OTHERS], table)
    return section


def _each_leads_two(dsn: str, workers: dict[str, Process]) -> bool:
    with connect(dsn) as eye:
        names = list(leaders(eye, TUBE).values())
    return all(names.count(name) == PARTITIONS // len(workers) for name in workers)


def _lags(dsn: str, rows: int, workers: dict[str, Process]) -> list[tuple[float, float, bool]]:
    """Of each change: seconds from the kill to its COMMIT, its lag, and whether it was the victim's."""
    victim, survivor = workers
    committed: dict[int, float] = {}
    with connect(dsn) as writer:
        own = {number for number, name in leaders(writer, TUBE).items() if name == victim}
        found = writer.execute(
            "SELECT id, tube_shard_of(id, 0, %s) %% %s FROM public.x ORDER BY id", [SHARDS, PARTITIONS]
        ).fetchall()
        began = time.monotonic()
        killed = 0.0
        for number, (key, _) in enumerate(found):
            if not killed and number * PAUSE >= BEFORE:
                workers[victim].process.send_signal(signal.SIGKILL)
                killed = time.monotonic()
            writer.execute("UPDATE public.x SET v = 1 WHERE id = %s", [key])
            committed[int(key)] = time.monotonic()
            time.sleep(max(0.0, began + (number + 1) * PAUSE - time.monotonic()))
    arrived: dict[int, float] = {}

    def all_arrived() -> bool:
        for name in (victim, survivor):
            for key, at in workers[name].read():
                arrived[key] = min(at / 1e9, arrived.get(key, at / 1e9))
        return len(arrived) == rows

    wait_for(all_arrived, "every change at the sink", limit=60.0)
    return [
        (committed[int(key)] - killed, max(0.0, arrived[int(key)] - committed[int(key)]), partition in own)
        for key, partition in found
    ]
