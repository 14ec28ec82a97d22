"""The demonstration of an outbox: an application that writes orders, workers, and a consumer that checks."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from pytube.demo.copies import Topic
from pytube.demo.screen import DemoFailed, Takeover, lag_through, percentiles, verdict
from pytube.demo.stage import PARTITIONS, TIMEOUT, Stage, Story, Writer
from pytube.outbox.stash import ENQUEUED, OUTBOX_ID, Message, stash

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


class Orders(Writer):
    """An application that writes to the outbox."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn, "application", 1 / RATE)
        self.committed: Counter[str] = Counter()
        """How many records of each key are committed; their values are 1, 2, 3, …"""
        self.transactions = self.rolled_back = 0

    def write(self) -> None:
        """One transaction: a few orders change; some of them twice."""
        keys = [f"order-{random.randrange(KEYS)}" for _ in range(random.randint(1, MOST))]  # noqa: S311
        self.transactions += 1
        counts = self.committed.copy()
        messages = []
        for key in keys:
            counts[key] += 1
            messages.append(Message(TOPIC, key, str(counts[key])))
        if self.transactions % ROLLED_BACK == 0:
            self.rolled_back += 1
            messages = [Message(TOPIC, key, _GHOST) for key in keys]
        with self.connection.transaction() as transaction:
            stash(self.connection, messages, outbox=OUTBOX)
            if messages[0].value == _GHOST:
                raise psycopg.Rollback(transaction)
        if messages[0].value != _GHOST:
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
    _last: Counter[str] = field(default_factory=Counter)

    def take(self, key: str, value: str, headers: Mapping[str, bytes], at: float) -> None:
        """Judge one record that came at the Unix time `at`."""
        if value == _GHOST:
            record = headers[OUTBOX_ID].decode()
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


def _topic(bootstrap: str, *, makes_it: bool) -> Topic:
    """What a consumer of the topic reads."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        if makes_it:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(TIMEOUT)
        places = admin.list_topics(TOPIC, timeout=TIMEOUT).topics[TOPIC].partitions
    except KafkaException as error:
        raise DemoFailed(f"Kafka has no topic for the demo: {error}") from error
    # Else the mock of a cluster keeps records back for half a second.
    return Topic(bootstrap, TOPIC, places, fetch_wait_max_ms=20)


def _text(value: str | bytes | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


# --- the story -----------------------------------------------------------------------------------

_DRAIN_LIMIT = 60.0
_MESSAGE_TIMEOUT = 2.0
_SESSION_TIMEOUT = 6.0
"""Seconds: short, so that the take-over fits; what a dead worker had handed over has to be over then."""


class OutboxStory(Story):
    """One demonstration."""

    KIND = "outbox"
    NAME = OUTBOX
    FIGURES = """
        SELECT count(*), count(*),
            coalesce(extract(epoch FROM clock_timestamp() - min(create_time)), 0)::float8
        FROM tube.orders
    """

    def __init__(self, stage: Stage, *, makes_topic: bool) -> None:
        """`makes_topic`: the broker has to be told of the topic; a mock of a cluster has every one."""
        super().__init__(stage)
        self.connection.execute("SELECT outbox_ensure_exists(%s, %s)", [OUTBOX, PARTITIONS])
        assert stage.bootstrap is not None, "an outbox needs a broker"
        self._orders = Orders(self.dsn)
        stage.stack.callback(self._orders.close)
        self._checker = Checker()
        self._topic = _topic(stage.bootstrap, makes_it=makes_topic)
        stage.stack.callback(self._topic.close)
        self.checks.append(self._orders.check)

    @property
    def arrived(self) -> int:
        """Records."""
        return self._checker.arrived

    def poll(self) -> bool:
        """What has come to the consumer."""
        try:
            messages = self._topic.records(wait=0.01)
        except KafkaException as error:
            raise DemoFailed(f"the consumer can't read any more: {error}") from error
        for message in messages:
            headers: Any = message.headers() or ()
            key, value = _text(message.key()), _text(message.value())
            self._checker.take(key, value, dict(headers), time.time())
        return bool(messages)

    def play(self, seconds: float) -> int:
        """Everything, with load for `seconds` or as long as the take-over needs; the exit code."""
        screen, orders = self.screen, self._orders
        screen.step(f"pytube is installed; the outbox {OUTBOX} is made")
        settings = {"bootstrap_servers": self.stage.bootstrap, "message_timeout": _MESSAGE_TIMEOUT}
        self.start(settings, session_timeout=_SESSION_TIMEOUT, meter_interval=5.0)
        screen.step("three workers start")
        self.share()
        orders.start()
        screen.step(
            f"the application starts: {RATE} transactions per second, of 1 to {MOST} messages for {TOPIC} "
            f"over {KEYS} keys; one of {ROLLED_BACK} is rolled back"
        )
        begun = time.monotonic()
        takeover = self.load(seconds, lambda: self.leaders()[0].client)
        orders.finish()
        orders.check()
        lasted = time.monotonic() - begun
        screen.step("the application is stopped; what waits is delivered")
        self.drain(_DRAIN_LIMIT, "the outbox was not drained")
        exits = self.stop()
        too_late = DemoFailed(f"the consumer did not get all of {TOPIC} within {TIMEOUT:g} s")
        self._topic.read_to_end(self.poll, too_late)
        return self._report(takeover, lasted, exits)

    def _report(self, takeover: Takeover, lasted: float, exits: list[str]) -> int:
        orders, checker, screen = self._orders, self._checker, self.screen
        before = percentiles(took for at, took in checker.latencies if at < takeover.at)
        lag = [(at - took, took) for at, took in checker.latencies]
        screen.facts(
            "What was seen",
            {
                "transactions": f"{orders.transactions:,} in {lasted:.0f} s, {orders.rolled_back:,} of them "
                "rolled back",
                "records": f"{orders.committed.total():,} committed, over {len(orders.committed):,} keys",
                "consumer": f"{checker.arrived:,} came, {checker.repeats:,} of them twice (due to the kill)",
                "INSERT to consumer": f"{before}, before the kill",
                "take-over": str(takeover),
                "lag": lag_through(lag, takeover.at, takeover.victim),
            },
        )
        wrong = [*checker.wrong, *checker.missing(orders.committed), *exits]
        if parked := len(self.rows("SELECT FROM outbox_parked(%s, 1000)", OUTBOX)):
            wrong.append(f"{parked:,} records were set aside with an error")
        if not checker.arrived:
            wrong.append("no record came, so nothing was checked")
        return verdict(
            screen,
            self.stage.path,
            wrong[:10],
            f"COMPLETE AND IN ORDER: all {checker.arrived:,} committed records came to the consumer, "
            "those of each key in order, and nothing that was rolled back.",
            {
                "demo": "a copy of three tables, compared row by row",
                "dev postgres": "a Postgres server to try the quick start with",
                "outbox --help": "the commands for outboxes",
            },
        )
