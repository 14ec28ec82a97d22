"""The application of an outbox's demonstration, which writes orders; a consumer checks what comes of them."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, LiteralString

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from pytube.db.connect import connect_sync
from pytube.demo.processes import DemoFailed
from pytube.demo.settings import PARTITIONS
from pytube.demo.source import Figures, Leader
from pytube.outbox.message import ENQUEUED, EPOCH, OUTBOX_ID, Message
from pytube.outbox.partitions import slot_of
from pytube.outbox.stash import stash

OUTBOX = "orders"
TOPIC = "order-events"
KEYS = 200
RATE = 100
"""Transactions per second."""
MOST = 6
"""Messages of a transaction."""
ROLLED_BACK = 10
"""One transaction of so many is rolled back."""
_GHOST = "rolled back"
_PAGE = 5_000
_TIMEOUT = 30.0

_FIGURES: Final[LiteralString] = """
    SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(create_time)), 0)::float8
    FROM tube.orders
"""
_LEADERS: Final[LiteralString] = """
    SELECT partition, client_id, epoch FROM tube_leaders(%s) WHERE leader_id IS NOT NULL ORDER BY partition
"""


class _Rollback(Exception):
    """The transaction is to be rolled back."""


class Orders:
    """The database with the outbox; in a thread of its own, an application that writes to it."""

    def __init__(self, dsn: str) -> None:
        """Nothing is written before `start`."""
        self.committed: Counter[str] = Counter()
        """How many records of each key are committed; their values are 1, 2, 3, …"""
        self.transactions = self.rolled_back = 0
        self._watcher = connect_sync(dsn, application_name="pytube demo")
        self._writer = connect_sync(dsn, application_name="pytube demo orders")
        self._stop = threading.Event()
        self._error: psycopg.Error | None = None
        self._thread = threading.Thread(target=self._run, name="orders", daemon=True)

    def make(self) -> None:
        """Make the outbox."""
        self._watcher.execute("SELECT outbox_ensure_exists(%s, %s)", [OUTBOX, PARTITIONS])

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def check(self) -> None:
        """Raise `DemoFailed` when it could not write."""
        if self._error is not None:
            raise DemoFailed(f"the application could not write: {self._error}")

    def finish(self) -> None:
        """Write no more."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_TIMEOUT)

    def close(self) -> None:
        """End it, and both sessions; once is enough."""
        self.finish()
        self._writer.close()
        self._watcher.close()

    def figures(self) -> Figures:
        """How things stand."""
        row = self._watcher.execute(_FIGURES).fetchone()
        assert row
        return Figures(self.committed.total(), row[0], row[0], row[1])

    def leaders(self) -> list[Leader]:
        """Who leads what, by partition; a dead one as well, until another takes over."""
        return [Leader(*row) for row in self._watcher.execute(_LEADERS, [OUTBOX]).fetchall()]

    def parked(self) -> int:
        """How many records were set aside."""
        return len(self._watcher.execute("SELECT FROM outbox_parked(%s, 1000)", [OUTBOX]).fetchall())

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due += 1 / RATE
            try:
                self._write()
            except psycopg.Error as error:
                self._error = error
                return

    def _write(self) -> None:
        """One transaction: a few orders change; some of them twice."""
        keys = [f"order-{random.randrange(KEYS)}" for _ in range(random.randint(1, MOST))]  # noqa: S311
        self.transactions += 1
        if self.transactions % ROLLED_BACK == 0:
            self.rolled_back += 1
            with suppress(_Rollback), self._writer.transaction():
                stash(self._writer, [Message(TOPIC, key, _GHOST) for key in keys], outbox=OUTBOX)
                raise _Rollback
            return
        counts = self.committed.copy()
        messages = []
        for key in keys:
            counts[key] += 1
            messages.append(Message(TOPIC, key, str(counts[key])))
        with self._writer.transaction():
            stash(self._writer, messages, outbox=OUTBOX)
        self.committed = counts


@dataclass(slots=True)
class Checker:
    """Judges what a consumer reads: each key's records 1, 2, 3, …, with repeats of what has come before."""

    arrived: int = 0
    """Records, without repeats."""
    repeats: int = 0
    wrong: list[str] = field(default_factory=list)
    """What must not be, a sentence each."""
    latencies: list[tuple[float, float]] = field(default_factory=list)
    """When each record came, in Unix time, and how many seconds after it was written."""
    first: dict[tuple[int, int], float] = field(default_factory=dict)
    """When the first record of each term came, by partition of the outbox and epoch."""
    _last: Counter[str] = field(default_factory=Counter)

    def take(self, key: str, value: str, headers: Mapping[str, bytes], at: float) -> None:
        """Judge one record that came at the Unix time `at`."""
        record = int(headers[OUTBOX_ID])
        where = slot_of(TOPIC, key, record) % PARTITIONS, int(headers[EPOCH])
        self.first.setdefault(where, at)
        if value == _GHOST:
            self.wrong.append(f"{key}: the record {record} came, and its transaction was rolled back")
            return
        number, last = int(value), self._last[key]
        if number <= last:
            self.repeats += 1
            return
        if number > last + 1:
            self.wrong.append(f"{key}: number {number} came after {last}")
        self._last[key] = number
        self.arrived += 1
        self.latencies.append((at, at - float(headers[ENQUEUED])))

    def missing(self, committed: Mapping[str, int]) -> list[str]:
        """The keys of which not all has come, a sentence each."""
        return [
            f"{key}: {count} records are committed, and {self._last[key]} have come"
            for key, count in committed.items()
            if self._last[key] < count
        ]

    def first_after(self, partition: int, epoch: int) -> float | None:
        """When the first record of a later term than `epoch` came; None when none has yet."""
        return min((at for (p, e), at in self.first.items() if p == partition and e > epoch), default=None)


class Reader:
    """A consumer of the topic."""

    def __init__(self, bootstrap: str, checker: Checker, *, makes_topic: bool) -> None:
        """Begin to read the topic; `makes_topic`: a mock of a cluster has each that it is asked for."""
        self._checker = checker
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        try:
            if makes_topic:
                admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(_TIMEOUT)
            places = admin.list_topics(TOPIC, timeout=_TIMEOUT).topics[TOPIC].partitions
        except KafkaException as error:
            raise DemoFailed(f"Kafka has no topic for the demo: {error}") from error
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "demo",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,  # else the mock of a cluster keeps records back for half a second
                "log_level": 0,
            }
        )
        self._places = [TopicPartition(TOPIC, place, OFFSET_BEGINNING) for place in places]
        self._consumer.assign(self._places)
        self.close = self._consumer.close

    def finish(self) -> None:
        """Read to the end of the topic as it is now."""
        ends = [self._consumer.get_watermark_offsets(place, timeout=_TIMEOUT)[1] for place in self._places]
        deadline = time.monotonic() + _TIMEOUT
        while not self._is_at(ends):
            if time.monotonic() > deadline:
                raise DemoFailed(f"the consumer did not get all of {TOPIC} within {_TIMEOUT:g} s")
            self.poll()

    def _is_at(self, ends: Sequence[int]) -> bool:
        """Whether all was read up to there; a position is negative until something was."""
        positions = self._consumer.position(self._places)
        return all(not end or at.offset >= end for at, end in zip(positions, ends, strict=True))

    def poll(self) -> bool:
        """Read what has come; whether there was something."""
        try:
            messages = self._consumer.consume(_PAGE, timeout=0.01)
        except KafkaException as error:
            raise DemoFailed(f"the consumer can't read any more: {error}") from error
        for message in messages:
            if message.error() is None:
                headers: Any = message.headers() or ()
                key, value = _text(message.key()), _text(message.value())
                self._checker.take(key, value, dict(headers), time.time())
        return bool(messages)


def _text(value: str | bytes | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""
