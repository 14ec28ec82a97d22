"""Fan-outs of more and more ids: whether an id costs the same, and memory stays where it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise

import psutil

from bench.frame.page import Section, Target
from bench.frame.server import Server, connect
from bench.frame.spark import MEMORY, TASKS, session
from bench.spark_touch import keys
from pytube.spark import Touched, touch

SIZES = (1_000_000, 4_000_000, 16_000_000)
ROUNDS = 3
_EVERY = 0.2


class Watch:
    """The greatest memory of this process, of its JVM and of all Python workers, in MB, while it is open."""

    def __init__(self) -> None:
        self.driver = self.java = self.workers = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def during(self, work: Callable[[], object]) -> None:
        """Watch a piece of work."""
        self._thread.start()
        try:
            work()
        finally:
            self._over.set()
            self._thread.join()

    def _watch(self) -> None:
        own = psutil.Process()
        while not self._over.wait(_EVERY):
            java = workers = 0.0
            for child in own.children(recursive=True):
                try:
                    size = child.memory_full_info().pss if child.name() != "java" else child.memory_info().rss
                    if child.name() == "java":
                        java += size
                    elif "python" in child.name():
                        workers += size
                except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                    continue
            self.driver = max(self.driver, own.memory_info().rss / 1e6)
            self.java = max(self.java, java / 1e6)
            self.workers = max(self.workers, workers / 1e6)


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Spark: fan-outs that grow",
        f"`touch` as above, of more and more ids, on `local[{TASKS}]` with {MEMORY} of heap; best of "
        f"{ROUNDS}. A job costs something by itself, whatever its size. Memory is the greatest that was "
        "seen: of the driver's Python, of the JVM (driver and executor in one), and of all Python workers.",
    )
    dsn = server.database("bench_spark_growth")
    seconds = dict.fromkeys(SIZES, 1e9)
    watches: dict[int, Watch] = {}
    with session() as spark, connect(dsn) as admin:
        admin.execute("SELECT tube_ensure_exists('t', 4)")

        def fan_out(size: int) -> None:
            admin.execute("TRUNCATE tube.t")
            admin.execute("CHECKPOINT")
            watch = watches[size] = Watch()
            done: list[Touched] = []
            watch.during(
                lambda: done.append(touch(keys(spark, size), tubes="t", dsn=dsn, max_connections=TASKS))
            )
            seconds[size] = min(seconds[size], done[0].seconds)

        fan_out(SIZES[0])
        for _ in range(ROUNDS):
            for size in SIZES:
                fan_out(size)
    each = {size: taken / size * 1e6 for size, taken in seconds.items()}
    more = [(seconds[high] - seconds[low]) / (high - low) * 1e6 for low, high in pairwise(SIZES)]
    section.table(
        ["ids", "µs an id", "µs for each id more", "driver MB", "JVM MB", "Python workers MB"],
        [
            [
                f"{size:,}",
                f"{each[size]:.3f}",
                further,
                f"{watches[size].driver:,.0f}",
                f"{watches[size].java:,.0f}",
                f"{watches[size].workers:,.0f}",
            ]
            for size, further in zip(SIZES, ["", *(f"{cost:.3f}" for cost in more)], strict=True)
        ],
    )
    flat = max(each.values()) / min(each.values())
    section.targets.append(
        Target("Spark: time an id, the dearest to the cheapest size", 1.2, flat, "at most")
    )
    section.targets.append(
        Target("Spark: time for each id more, 4 M to 16 M and 1 M to 4 M", 1.2, more[-1] / more[0], "at most")
    )
    grown = watches[SIZES[-1]].driver / watches[SIZES[0]].driver
    section.targets.append(Target("Spark: driver's memory, 16 M ids to 1 M", 1.2, grown, "at most"))
    server.drop("bench_spark_growth")
    return section
