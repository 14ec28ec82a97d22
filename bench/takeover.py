"""How long a partition stands still when its leader dies, and when it leaves in order."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import psycopg

from bench.frame.page import Section, Target
from bench.frame.server import Server, connect
from bench.frame.workers import Process, leader_of, started, wait_for

SESSION_TIMEOUT = 15.0


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Take-over and hand-over",
        "Two workers with default settings (leases in Postgres, a session timeout of 15 s) share one "
        "partition, while a row is written every 20 ms. The leader gets SIGTERM, later the other one "
        "SIGKILL; from the signal to the first document that the successor's sink takes. Once each.",
    )
    dsn = server.database("bench_takeover")
    with connect(dsn) as admin:
        admin.execute(
            "CREATE TABLE public.x AS SELECT g::bigint AS id, 0 AS v FROM generate_series(1, 1000) g"
        )
        admin.execute("ALTER TABLE public.x ADD PRIMARY KEY (id)")
        admin.execute("SELECT tube_ensure_exists('t')")
        admin.execute("SELECT tube_table_ensure_attached('t', 'public.x', 0)")
    with (
        tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as folder,
        connect(dsn) as eye,
        ExitStack() as stack,
    ):
        over = threading.Event()
        writer = threading.Thread(target=_write, args=(dsn, over), daemon=True)
        writer.start()
        stack.callback(over.set)
        workers = {
            name: stack.enter_context(started(Path(folder), dsn, "t", name=name)) for name in ("one", "two")
        }
        wait_for(lambda: any(w.read() for w in workers.values()), "the first document")
        time.sleep(3.0)
        handed = _signal(eye, workers, signal.SIGTERM)
        workers["three"] = stack.enter_context(started(Path(folder), dsn, "t", name="three"))
        time.sleep(4.0)
        taken = _signal(eye, workers, signal.SIGKILL)
    section.table(
        ["", "seconds"],
        [["hand-over at SIGTERM", f"{handed:.2f}"], ["take-over after SIGKILL", f"{taken:.2f}"]],
    )
    section.targets += [
        Target("hand-over at SIGTERM", 1, handed, "at most", " s"),
        Target("take-over after SIGKILL, session timeout + 1 s", SESSION_TIMEOUT + 1, taken, "at most", " s"),
    ]
    server.drop("bench_takeover")
    return section


def _signal(eye: psycopg.Connection, workers: dict[str, Process], which: signal.Signals) -> float:
    """End the leader; seconds until another one's sink takes a document."""
    leader = leader_of(eye, "t")
    assert leader
    began = time.monotonic_ns()
    workers[leader].process.send_signal(which)
    others = [worker for name, worker in workers.items() if name != leader]
    wait_for(lambda: any(worker.read(began) for worker in others), "a successor", limit=60.0)
    return (min(at for worker in others for _, at in worker.read(began)) - began) / 1e9


def _write(dsn: str, over: threading.Event) -> None:
    number = 0
    with connect(dsn) as writer:
        while not over.wait(0.02):
            number = number % 1000 + 1
            writer.execute("UPDATE public.x SET v = v + 1 WHERE id = %s", [number])
