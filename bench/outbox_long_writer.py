"""What one writer that stays open for a minute costs the records of all others."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from bench.frame.outboxes import Deliverer, Topics, delivering, drained, fill, led
from bench.frame.page import Section, Target
from bench.frame.readings import Reading
from bench.frame.rounds import interleave, rates
from bench.frame.server import Server, connect
from bench.frame.statistics import percentile, ratios, spread
from bench.frame.workers import wait_for
from bench.outbox_latency import Arrivals
from pytube.embedded.kafka_real import RealKafka

ROUNDS = 3
OPEN = 60.0
"""Seconds that the writer has been open when the drain begins."""
PAUSE, SHORT = 0.01, 300
RECORDS = 100_000
KEYS = 1000
TO_NONE = 0.75
"""Rows that were deleted stay where they were while anybody could still see them, and marks go past them."""
OWN_RECORD = 5.0
"""Seconds from the long writer's commit until its own record has arrived."""
_STASH = "INSERT INTO tube.box (kafka_topic, kafka_key, kafka_value) VALUES (%s, %s, %s)"


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Outboxes: beside a writer that stays open",
        f"A session stashes a record and stays open for {OPEN:.0f} s; then, while it is still open, "
        f"{RECORDS:,} records over {KEYS:,} keys are committed at once, and the clock runs until all of "
        f"them are delivered and deleted. Early in the minute another session commits {SHORT} records, "
        f"{PAUSE * 1000:.0f} ms apart: milliseconds from its COMMIT to the consumer. "
        "By turns with the same without such a session.",
    )
    dsn = server.database("bench_outbox_long")
    with (
        tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as name,
        RealKafka(Path(name) / "kafka") as kafka,
        connect(dsn) as admin,
    ):
        admin.execute("SELECT outbox_ensure_exists('box')")
        topics = Topics(kafka.bootstrap)
        topic = topics.make()
        with (
            delivering(Path(name), dsn, kafka.bootstrap, {"box": ""}, "worker") as worker,
            Arrivals(kafka.bootstrap, topic) as arrivals,
        ):
            wait_for(lambda: led(admin, "box"), "the worker leads")
            # its producer has connected, the consumer has its partitions
            arrivals.probe(lambda number: _stash(admin, topic, number), 0.02, 50)
            cases = {
                "none": Drain(dsn, admin, worker, topics, arrivals, is_long=False),
                "long": Drain(dsn, admin, worker, topics, arrivals, is_long=True),
            }

            def before(name: str) -> None:
                for case in cases.values():
                    case.end()
                cases[name].prepare()

            works = {name: case.work for name, case in cases.items()}
            taken = interleave(server.readings(dsn), works, ROUNDS, before)
            for case in cases.values():
                case.end()
    server.drop("bench_outbox_long")
    _show(section, taken, cases)
    return section


@dataclass
class Drain:
    """A full table, with or without a session that has been open for long."""

    dsn: str
    admin: psycopg.Connection
    worker: Deliverer
    topics: Topics
    arrivals: Arrivals
    is_long: bool
    took: list[float] = field(default_factory=list)
    """Milliseconds of the short writer's records."""
    cpu: list[float] = field(default_factory=list)
    """Microseconds of the worker's CPU a record."""
    own: list[float] = field(default_factory=list)
    """Seconds from the long writer's commit until its record had arrived."""
    _writer: psycopg.Connection | None = None
    _topic: str = ""

    def prepare(self) -> None:
        """A minute beside the long writer, if any; a transaction at whose commit the records are there."""
        self.admin.execute("TRUNCATE tube.box")
        self.admin.execute("CHECKPOINT")
        began = time.monotonic()
        if self.is_long:
            self._writer = psycopg.connect(self.dsn)
            _stash(self._writer, self.arrivals.topic, -1)
        with connect(self.dsn, synchronous_commit="off") as short:
            topic = self.arrivals.topic
            self.took += self.arrivals.probe(lambda n: _stash(short, topic, n), PAUSE, SHORT, after=True)
        time.sleep(max(0.0, began + OPEN - time.monotonic()) if self.is_long else 0.0)
        self._topic = self.topics.make()
        self.admin.execute("BEGIN")
        fill(self.admin, "tube.box", self._topic, RECORDS, KEYS)

    def work(self) -> float:
        """Until all that can be seen is deleted."""
        cpu = self.worker.cpu
        self.admin.execute("COMMIT")
        drained(self.admin, "tube.box", self.worker)
        self.cpu.append((self.worker.cpu - cpu) / RECORDS * 1e6)
        return RECORDS

    def end(self) -> None:
        """The long writer commits; what a consumer reads is judged."""
        if self._writer is not None:
            with self._writer as writer:
                (took,) = self.arrivals.probe(lambda n: self._finish(writer, n), 0.0, 1, after=True)
            self.own.append(took / 1000)
            self._writer = None
        if self._topic:
            self.topics.judge(self._topic, RECORDS, KEYS)
            self._topic = ""

    def _finish(self, writer: psycopg.Connection, number: int) -> None:
        _stash(writer, self.arrivals.topic, number)
        writer.commit()


def _stash(session: psycopg.Connection, topic: str, number: int) -> None:
    session.execute(_STASH, [topic, f"key {number % 10}", str(number)])


def _show(section: Section, taken: dict[str, list[Reading]], cases: dict[str, Drain]) -> None:
    words = {"none": "none open", "long": f"one open for {OPEN:.0f} s"}
    section.table(
        ["", "records/s", "server's CPU, µs", "worker's CPU, µs", "short p50, ms", "p99"],
        [
            [
                words[name],
                spread(rates(taken, name)).text(0),
                f"{spread([reading.cpu_each for reading in taken[name]]).middle:.1f}",
                spread(case.cpu).text(1),
                f"{percentile(case.took, 0.5):.1f}",
                f"{percentile(case.took, 0.99):.1f}",
            ]
            for name, case in cases.items()
        ],
    )
    ratio = ratios(rates(taken, "long"), rates(taken, "none"))
    own = max(cases["long"].own)
    section.say(
        f"With it to without: {ratio.text(2)} times. Its own last record arrived {own * 1000:.0f} ms after "
        "its commit at most."
    )
    section.targets += [
        Target("outbox: records/s beside a writer open for a minute, to none", TO_NONE, ratio.middle),
        Target("outbox: the long writer's own record, after its commit", OWN_RECORD, own, "at most", " s"),
    ]
