"""From a full outbox to Kafka: how fast, in which mode, what it costs Postgres, how much memory it takes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psycopg

from bench.frame.one_by_one import OneByOne, refill
from bench.frame.outboxes import Deliverer, Topics, delivering, drained, fill, led, messages, produce
from bench.frame.page import Section, Target
from bench.frame.readings import Reading
from bench.frame.rounds import interleave, rates
from bench.frame.server import Server, connect
from bench.frame.statistics import ratios, spread
from bench.frame.workers import wait_for
from pytube.embedded.kafka_real import RealKafka

RECORDS = 200_000
KEYS = 1000
ROUNDS = 3
FEW_KEYS = 10
FEW_KEYS_RECORDS = {"windowed": 100_000, "transactions": 100_000, "strict": 20_000}
ONE_BY_ONE = 8_000
"""So many of the full table's records; its speed does not change over the rest."""
ONE_BY_ONE_FEW_KEYS = 1_000
WAITING = (2_000, 200_000)
STRICT_PART = {FEW_KEYS: 8_000, KEYS: 60_000}
"""So many of the waiting records at most; the speed does not change over the rest."""
STRICT_TO_ONE_BY_ONE = {FEW_KEYS: 3.0, KEYS: 6.0}
TO_ONE_BY_ONE = 10.0
TO_PRODUCER = 0.5
WAL_LIMIT = 624.0
"""Bytes of WAL a record, which goharvest's own reaper has taken on a machine of this kind."""
MODES = {"windowed": "", "transactions": "transactions = true", "strict": 'mode = "strict"'}
BACKLOGS = (50_000, 2_000_000)
BACKLOG_SECONDS = 5.0
MEMORY_RATIO = 1.5
_BY_HAND = "public.by_hand"
_ADOPTED = "public.adopted"


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Outboxes: from a full table to Kafka",
        f"{RECORDS:,} records of 100 bytes over {KEYS:,} keys are written in one transaction. The clock runs "
        "from its commit until the table is empty, so that each record is confirmed by a broker on this "
        "machine and deleted. The worker is a process with defaults, and was idle. Producer: the bare client "
        "sends the same messages from memory, with as many headers; it reads, marks and deletes nothing. One "
        "by one: goharvest's way, rebuilt in Python (a query that marks 100, 8 senders, a barrier for "
        "each key, one DELETE for each record over 2 connections), over the first "
        f"{ONE_BY_ONE:,} of the same records. After each, a consumer reads all: none is missing, none is "
        "there twice, and those of a key are in order.",
    )
    dsn = server.database("bench_outbox")
    with (
        tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as name,
        RealKafka(Path(name) / "kafka") as kafka,
        connect(dsn) as admin,
    ):
        ground = Ground(server, dsn, admin, Topics(kafka.bootstrap), Path(name))
        many, few = ground.drains()
        strict = {(keys, size): ground.strict(keys, size) for keys in STRICT_PART for size in WAITING}
        backlogs = [ground.backlog(size) for size in BACKLOGS]
    server.drop("bench_outbox")
    _show_many(section, many)
    _show_few(section, few)
    _show_strict(section, strict)
    _show_backlogs(section, backlogs)
    return section


# --- cases ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ground:
    """Where all of it happens."""

    server: Server
    dsn: str
    admin: psycopg.Connection
    topics: Topics
    folder: Path

    def drains(self) -> tuple[Taken, Taken]:
        """Over many keys, and over few: the worker, and what it is compared with."""
        for mode in MODES:
            self.admin.execute("SELECT outbox_ensure_exists(%s)", [mode])
        with delivering(self.folder, self.dsn, self.topics.bootstrap, MODES, "modes") as worker:
            wait_for(lambda: all(led(self.admin, mode) for mode in MODES), "the worker leads")
            many = self._in_turn(
                {
                    "windowed": Delivered(self, worker, "windowed", RECORDS, KEYS),
                    "producer": Produced(self, RECORDS, KEYS),
                    "one by one": ByHand(self, RECORDS, KEYS, ONE_BY_ONE),
                }
            )
            few = self._in_turn(
                {
                    **{
                        mode: Delivered(self, worker, mode, count, FEW_KEYS)
                        for mode, count in FEW_KEYS_RECORDS.items()
                    },
                    "one by one": ByHand(self, 10 * ONE_BY_ONE_FEW_KEYS, FEW_KEYS, ONE_BY_ONE_FEW_KEYS),
                }
            )
        return many, few

    def strict(self, keys: int, waiting: int) -> Taken:
        """In strict mode, from a table of ours and an adopted one, with so many records waiting."""
        part = min(waiting, STRICT_PART[keys])
        by_hand = min(waiting, ONE_BY_ONE_FEW_KEYS if keys == FEW_KEYS else ONE_BY_ONE)
        return self._in_turn(
            {
                "own": Waiting(self, "tube.own", waiting, keys, part),
                "adopted": Waiting(self, _ADOPTED, waiting, keys, part),
                "one by one": ByHand(self, waiting, keys, by_hand),
            }
        )

    def _in_turn(self, cases: Mapping[str, Case]) -> Taken:
        last: list[Case] = []

        def before(name: str) -> None:
            while last:
                last.pop().judge()
            cases[name].prepare()
            last.append(cases[name])

        readings = self.server.readings(self.dsn)
        taken = interleave(readings, {name: case.work for name, case in cases.items()}, ROUNDS, before)
        last.pop().judge()
        return Taken(taken, cases)

    def wal(self) -> int:
        """Bytes that the server has written to its log."""
        row = self.admin.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
        assert row
        return int(row[0])

    def backlog(self, size: int) -> Backlog:
        """The memory of a worker that begins with so many records."""
        outbox = f"b{size}"
        self.admin.execute("SELECT outbox_ensure_exists(%s)", [outbox])
        topic = self.topics.make()
        fill(self.admin, f"tube.{outbox}", topic, size, KEYS)
        self.admin.execute("CHECKPOINT")
        with delivering(self.folder, self.dsn, self.topics.bootstrap, {outbox: ""}, outbox) as worker:
            wait_for(lambda: self.topics.count(topic) > 0, f"a record of {outbox}")
            most = worker.memory  # all may be there by now
            until = time.monotonic() + BACKLOG_SECONDS
            while time.monotonic() < until and self.topics.count(topic) < size:
                most = max(most, worker.memory)
                time.sleep(0.02)
        delivered = self.topics.count(topic)
        self.topics.drop(topic)
        return Backlog(size, delivered, most)


class Case(Protocol):
    """One way to bring records to Kafka."""

    def prepare(self) -> None:
        """All that is not measured."""

    def work(self) -> float:
        """What is; how many records were delivered."""

    def judge(self) -> None:
        """What a consumer reads."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The readings of some cases, round by round."""

    readings: dict[str, list[Reading]]
    cases: Mapping[str, Case]

    def rates(self, name: str) -> list[float]:
        """Records per second."""
        return rates(self.readings, name)


@dataclass
class Delivered:
    """By the worker."""

    ground: Ground
    worker: Deliverer
    mode: str
    count: int
    keys: int
    topic: str = ""
    wal: list[float] = field(default_factory=list)
    """Bytes of WAL a record, from its INSERT to its DELETE."""
    cpu: list[float] = field(default_factory=list)
    """Microseconds of the worker's CPU a record."""
    _lsn: int = 0

    def prepare(self) -> None:
        """A transaction that is open, and at whose commit the records are there."""
        admin = self.ground.admin
        self.topic = self.ground.topics.make()
        admin.execute(f"TRUNCATE tube.{self.mode}")
        admin.execute("CHECKPOINT")
        self._lsn = self.ground.wal()
        admin.execute("BEGIN")
        fill(admin, f"tube.{self.mode}", self.topic, self.count, self.keys)

    def work(self) -> float:
        """Until the table is empty."""
        cpu = self.worker.cpu
        self.ground.admin.execute("COMMIT")
        drained(self.ground.admin, f"tube.{self.mode}", self.worker)
        self.wal.append((self.ground.wal() - self._lsn) / self.count)
        self.cpu.append((self.worker.cpu - cpu) / self.count * 1e6)
        return self.count

    def judge(self) -> None:
        """All are there."""
        self.ground.topics.judge(self.topic, self.count, self.keys)


@dataclass
class Waiting:
    """By a worker of its own in strict mode, the first `part` of a full table."""

    ground: Ground
    table: str
    count: int
    keys: int
    part: int
    _stack: ExitStack = field(default_factory=ExitStack)
    _last: int = 0
    """The id of the last record of that part."""

    def prepare(self) -> None:
        """An idle worker, and a transaction at whose commit the records are there."""
        admin, topics = self.ground.admin, self.ground.topics
        outbox = self.table.partition(".")[2]
        admin.execute("SELECT outbox_ensure_absent(%s)", [outbox])
        if self.table == _ADOPTED:
            refill(admin, self.table)
            admin.execute("SELECT outbox_adopt(%s, %s)", [outbox, self.table])
        else:
            admin.execute("SELECT outbox_ensure_exists(%s)", [outbox])
        settings = {outbox: MODES["strict"]}
        self._stack.enter_context(
            delivering(self.ground.folder, self.ground.dsn, topics.bootstrap, settings, outbox)
        )
        wait_for(lambda: led(admin, outbox), "the worker leads")
        admin.execute("BEGIN")
        fill(admin, self.table, topics.make(), self.count, self.keys)
        row = admin.execute(f"SELECT min(id) FROM {self.table}").fetchone()
        assert row
        self._last = row[0] + self.part - 1

    def work(self) -> float:
        """Until that part is deleted: keys take turns, so the ids are in order but for a few."""
        self.ground.admin.execute("COMMIT")
        first = f"SELECT id FROM {self.table} WHERE id <= %s ORDER BY id LIMIT 1"
        while self.ground.admin.execute(first, [self._last]).fetchone() is not None:
            time.sleep(0.01)
        return self.part

    def judge(self) -> None:
        """The worker ends; `Delivered` has what a consumer reads."""
        self._stack.close()


@dataclass
class Produced:
    """By the bare client, from memory."""

    ground: Ground
    count: int
    keys: int
    topic: str = ""
    sent: list[tuple[str, bytes]] = field(default_factory=list)

    def prepare(self) -> None:
        """A topic."""
        self.topic = self.ground.topics.make()
        self.sent = self.sent or messages(self.count, self.keys)

    def work(self) -> float:
        """Until all are confirmed."""
        return produce(self.ground.topics.bootstrap, self.topic, self.sent)

    def judge(self) -> None:
        """All are there."""
        self.ground.topics.judge(self.topic, self.count, self.keys)


@dataclass
class ByHand:
    """One by one, the first `part` of a full table."""

    ground: Ground
    count: int
    keys: int
    part: int
    topic: str = ""
    done: int = 0

    def prepare(self) -> None:
        """A table of goharvest's."""
        self.topic = self.ground.topics.make()
        refill(self.ground.admin, _BY_HAND)
        fill(self.ground.admin, _BY_HAND, self.topic, self.count, self.keys)
        self.ground.admin.execute(f"ANALYZE {_BY_HAND}")
        self.ground.admin.execute("CHECKPOINT")

    def work(self) -> float:
        """Until that part is deleted."""
        self.done = OneByOne(self.ground.dsn, _BY_HAND, self.ground.topics.bootstrap).drain(self.part)
        return self.done

    def judge(self) -> None:
        """What was deleted is there."""
        self.ground.topics.judge(self.topic, self.done, self.keys)


# --- what came of it ------------------------------------------------------------------------------------

_WORDS = {
    "windowed": "worker, windowed (the default)",
    "transactions": "worker, windowed, in transactions",
    "strict": "worker, strict",
    "producer": "producer",
    "one by one": "one by one",
}


def _rows(taken: Taken, to: str) -> list[list[str]]:
    return [
        [
            _WORDS[name],
            spread(taken.rates(name)).text(0),
            ratios(taken.rates(name), taken.rates(to)).text(2),
            f"{spread([r.cpu_each for r in taken.readings[name]]).middle:.1f}",
            spread(case.cpu).text(1) if isinstance(case, Delivered) else "",
        ]
        for name, case in taken.cases.items()
    ]


def _show_many(section: Section, many: Taken) -> None:
    head = ["", "records/s", "to the producer", "server's CPU, µs", "worker's CPU, µs"]
    section.table([f"{KEYS:,} keys", *head[1:]], _rows(many, "producer"))
    worker = many.cases["windowed"]
    assert isinstance(worker, Delivered)
    wal = spread(worker.wal)
    to_one = ratios(many.rates("windowed"), many.rates("one by one"))
    to_producer = ratios(many.rates("windowed"), many.rates("producer"))
    section.say(
        f"The worker to one by one: {to_one.text(1)} times. goharvest itself, in Go on a machine of this "
        f"kind: 3,900 records/s with 1000 keys, 790 with 10. WAL of a record from its INSERT to its DELETE: "
        f"{wal.text(0)} bytes; goharvest's mark and DELETE took {WAL_LIMIT:.0f}.",
        to_one_by_one=to_one.text(1),
    )
    section.targets += [
        Target("outbox: the worker to one by one, 1000 keys", TO_ONE_BY_ONE, to_one.middle),
        Target("outbox: the worker to a bare producer", TO_PRODUCER, to_producer.middle),
        Target("outbox: WAL a record, its whole life", WAL_LIMIT, wal.middle, "at most", " B"),
    ]


def _show_few(section: Section, few: Taken) -> None:
    head = [f"{FEW_KEYS} keys", "records/s", "to one by one", "server's CPU, µs", "worker's CPU, µs"]
    section.table(head, _rows(few, "one by one"))


def _show_strict(section: Section, strict: Mapping[tuple[int, int], Taken]) -> None:
    section.say("In strict mode, from a table of ours and from an adopted one, whatever waits:")
    rows = []
    least = dict.fromkeys(STRICT_TO_ONE_BY_ONE, float("inf"))
    for (keys, waiting), taken in strict.items():
        to = {name: ratios(taken.rates(name), taken.rates("one by one")) for name in ("own", "adopted")}
        least[keys] = min(least[keys], *(ratio.middle for ratio in to.values()))
        names = ("own", "adopted", "one by one")
        shown = [spread(taken.rates(name)).text(0) for name in names]
        rows.append([f"{keys:,}", f"{waiting:,}", *shown, *(ratio.text(1) for ratio in to.values())])
    section.table(
        ["keys", "waiting", "own, records/s", "adopted", "one by one", "own to one by one", "adopted to it"],
        rows,
    )
    section.targets += [
        Target(f"outbox: strict to one by one, {keys:,} keys, the least", limit, least[keys])
        for keys, limit in STRICT_TO_ONE_BY_ONE.items()
    ]


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a worker took that began with so many records."""

    size: int
    delivered: int
    memory: float
    """MiB."""


def _show_backlogs(section: Section, backlogs: list[Backlog]) -> None:
    section.say(
        f"The most memory of a worker process in its first {BACKLOG_SECONDS:.0f} s of deliveries, or until "
        "it had delivered all:"
    )
    section.table(
        ["records waiting", "delivered meanwhile", "MiB"],
        [[f"{b.size:,}", f"{b.delivered:,}", f"{b.memory:.0f}"] for b in backlogs],
    )
    ratio = backlogs[-1].memory / backlogs[0].memory
    section.targets.append(Target("outbox: memory, most records to fewest", MEMORY_RATIO, ratio, "at most"))
