"""The demonstration of an outbox: an application that writes orders, workers, and a consumer that checks."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, LiteralString

import psycopg
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from pytube.db.connect import connect_sync
from pytube.db.install import install
from pytube.demo.screen import (
    Acts,
    DemoFailed,
    Figures,
    Latency,
    Leader,
    Takeover,
    lag_through,
    suggest,
    verdict,
    wrong_exits,
)
from pytube.demo.stage import (
    PARTITIONS,
    TIMEOUT,
    Broker,
    Election,
    Serving,
    Stage,
    Topic,
    Workers,
    on_stage,
)
from pytube.outbox.partitions import slot_of
from pytube.outbox.stash import ENQUEUED, EPOCH, OUTBOX_ID, Message, stash

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
            self._thread.join(TIMEOUT)

    def close(self) -> None:
        """End it, and both sessions; once is enough."""
        self.finish()
        self._writer.close()
        self._watcher.close()

    def figures(self) -> Figures:
        """How things stand."""
        row = self._watcher.execute(_FIGURES).fetchone()
        assert row
        return Figures(row[0], row[0], row[1])

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


class Reader:
    """A consumer of the topic."""

    def __init__(self, bootstrap: str, checker: Checker, *, makes_topic: bool) -> None:
        """Begin to read the topic; `makes_topic`: a mock of a cluster has each that it is asked for."""
        self._checker = checker
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        try:
            if makes_topic:
                admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(TIMEOUT)
            places = admin.list_topics(TOPIC, timeout=TIMEOUT).topics[TOPIC].partitions
        except KafkaException as error:
            raise DemoFailed(f"Kafka has no topic for the demo: {error}") from error
        # Else the mock of a cluster keeps records back for half a second.
        self._topic = Topic(bootstrap, TOPIC, places, fetch_wait_max_ms=20)
        self.close = self._topic.close

    def finish(self) -> None:
        """Read to the end of the topic as it is now."""
        too_late = DemoFailed(f"the consumer did not get all of {TOPIC} within {TIMEOUT:g} s")
        self._topic.read_to_end(self.poll, too_late)

    def poll(self) -> bool:
        """Read what has come; whether there was something."""
        try:
            messages = self._topic.records(wait=0.01)
        except KafkaException as error:
            raise DemoFailed(f"the consumer can't read any more: {error}") from error
        for message in messages:
            headers: Any = message.headers() or ()
            key, value = _text(message.key()), _text(message.value())
            self._checker.take(key, value, dict(headers), time.time())
        return bool(messages)


def _text(value: str | bytes | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


# --- the story -----------------------------------------------------------------------------------

_DRAIN_LIMIT = 60.0
_MESSAGE_TIMEOUT = 2.0
_SESSION_TIMEOUT = 6.0
"""Seconds: short, so that the take-over fits; what a dead worker had handed over has to be over then."""


def run(*, kafka: Broker, election: Election, seconds: float, directory: Path | None) -> int:
    """See `pytube.demo.main`. A broker there is in any case."""
    return on_stage(
        directory,
        kafka,
        election,
        lambda stage: OutboxStory(stage, makes_topic=kafka == "real").play(seconds),
    )


class OutboxStory:
    """One demonstration."""

    def __init__(self, stage: Stage, *, makes_topic: bool) -> None:
        """Make the outbox and the configurations; `makes_topic`: the broker has to be told of the topic."""
        self._screen, self._directory = stage.screen, stage.path
        dsn, bootstrap = stage.servers.dsn, stage.servers.bootstrap
        assert bootstrap is not None, "an outbox needs a broker"
        install(dsn)
        self._orders = Orders(dsn)
        stage.stack.callback(self._orders.close)
        self._orders.make()
        settings = {"bootstrap_servers": bootstrap, "message_timeout": _MESSAGE_TIMEOUT}
        serving = Serving(("--outbox", OUTBOX), f'outbox."{OUTBOX}"', lambda _: settings, _SESSION_TIMEOUT)
        self._workers = Workers(stage, serving)
        self._checker = checker = Checker()
        self._reader = Reader(bootstrap, checker, makes_topic=makes_topic)
        stage.stack.callback(self._reader.close)
        self._acts = Acts(
            self._screen,
            self._workers,
            self._orders,
            self._reader.poll,
            lambda: checker.arrived,
            checker.first,
        )
        self._acts.checks.append(self._orders.check)

    def play(self, seconds: float) -> int:
        """Everything, with load for `seconds` or as long as the take-over needs; the exit code."""
        screen, acts = self._screen, self._acts
        screen.step(f"pytube is installed; the outbox {OUTBOX} is made")
        acts.start()
        screen.step("three workers start")
        acts.share(PARTITIONS)
        self._orders.start()
        screen.step(
            f"the application starts: {RATE} transactions per second, of 1 to {MOST} messages for {TOPIC} "
            f"over {KEYS} keys; one of {ROLLED_BACK} is rolled back"
        )
        begun = time.monotonic()
        acts.load_until(begun + seconds / 2)
        takeover = acts.take_over(self._orders.leaders()[0].client)
        acts.load_until(max(begun + seconds, time.monotonic() + seconds / 8))
        self._orders.finish()
        self._orders.check()
        lasted = time.monotonic() - begun
        screen.step("the application is stopped; what waits is delivered")
        acts.drain(_DRAIN_LIMIT, "the outbox was not drained")
        exits = self._workers.stop()
        self._reader.finish()
        return self._report(takeover, lasted, exits)

    def _report(self, takeover: Takeover, lasted: float, exits: dict[str, int]) -> int:
        orders, checker, screen = self._orders, self._checker, self._screen
        before = Latency.of(took for at, took in checker.latencies if at < takeover.at)
        screen.heading("What was seen")
        screen.facts(
            {
                "transactions": f"{orders.transactions:,} in {lasted:.0f} s, {orders.rolled_back:,} of them "
                "rolled back",
                "records": f"{orders.committed.total():,} committed, over {len(orders.committed):,} keys",
                "consumer": f"{checker.arrived:,} came, {checker.repeats:,} of them twice (due to the kill)",
                "INSERT to consumer": f"{before}, before the kill",
                "take-over": str(takeover),
                "lag": lag_through(
                    [(at - took, took) for at, took in checker.latencies], takeover.at, takeover.victim
                ),
            }
        )
        wrong = [*checker.wrong, *checker.missing(orders.committed), *wrong_exits(exits)]
        if parked := orders.parked():
            wrong.append(f"{parked:,} records were set aside with an error")
        if not checker.arrived:
            wrong.append("no record came, so nothing was checked")
        code = verdict(
            screen,
            self._directory,
            wrong[:10],
            f"COMPLETE AND IN ORDER: all {checker.arrived:,} committed records came to the consumer, "
            "those of each key in order, and nothing that was rolled back.",
        )
        if not code:
            suggest(
                screen,
                ("demo", "a copy of three tables, compared row by row"),
                ("dev postgres", "a Postgres server to try the quick start with"),
                ("outbox --help", "the commands for outboxes"),
            )
        return code
