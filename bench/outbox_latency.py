"""From the commit of a message to the consumer of its topic, beside a bare producer's way there."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from bench.frame.outboxes import IDEMPOTENT, TOPIC_PARTITIONS, Topics, delivering, led
from bench.frame.page import Section, Target
from bench.frame.server import Server, connect
from bench.frame.statistics import percentile
from bench.frame.workers import wait_for
from pytube.embedded.kafka_real import RealKafka

PAUSES = {0.15: 40, 0.02: 200}
"""Seconds between messages, and how many of a half."""
HALVES = 2
FIRST = 30.0
"""Milliseconds of the first record of a term: its producer has connected by then."""
TO_PRODUCER = 6.0
"""p50 to that of a bare producer, whose message neither waits in a table nor is looked for."""
_WRITE = "INSERT INTO tube.box (kafka_topic, kafka_key, kafka_value) VALUES (%s, %s, %s)"
_ARRIVE_LIMIT = 30.0


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Outboxes: from commit to consumer",
        "From the return of a COMMIT of one record (`synchronous_commit` off) to the consumer that has read "
        "its message, in milliseconds; nothing else happens. The worker is a process with defaults. Bare: a "
        "producer with `linger.ms` 0 in this process sends the same message, from the call of `produce`. "
        "Both by turns, in halves.",
    )
    dsn = server.database("bench_outbox_latency")
    rows = []
    with (
        tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as name,
        RealKafka(Path(name) / "kafka") as kafka,
        connect(dsn, synchronous_commit="off") as writer,
    ):
        writer.execute("SELECT outbox_ensure_exists('box')")
        topic = Topics(kafka.bootstrap).make()
        producer = Producer({"bootstrap.servers": kafka.bootstrap, **IDEMPOTENT, "linger.ms": 0})

        def stash(number: int) -> None:
            writer.execute(_WRITE, [topic, f"key {number % 10}", str(number)])

        def produce(number: int) -> None:
            producer.produce(topic, str(number), f"key {number % 10}")

        with (
            delivering(Path(name), dsn, kafka.bootstrap, {"box": ""}, "worker"),
            Arrivals(kafka.bootstrap, topic) as arrivals,
        ):
            wait_for(lambda: led(writer, "box"), "the worker leads")
            arrivals.probe(produce, 0.02, 50)  # the consumer has its partitions, the broker knows the topic
            (first,) = arrivals.probe(stash, 0.0, 1, after=True)
            arrivals.probe(stash, 0.02, 20)
            arrivals.probe(produce, 0.02, 20)
            for pause, count in PAUSES.items():
                through: list[float] = []
                bare: list[float] = []
                for _ in range(HALVES):
                    through += arrivals.probe(stash, pause, count, after=True)
                    bare += arrivals.probe(produce, pause, count)
                shown = [
                    f"{percentile(found, share):.1f}" for found in (through, bare) for share in (0.5, 0.99)
                ]
                rows.append([f"{pause * 1000:.0f} ms apart", str(len(through)), *shown])
                ratio = percentile(through, 0.5) / percentile(bare, 0.5)
                section.targets.append(
                    Target(
                        f"outbox: commit to consumer, {pause * 1000:.0f} ms apart, p50 to bare",
                        TO_PRODUCER,
                        ratio,
                        "at most",
                    )
                )
        producer.flush()
    server.drop("bench_outbox_latency")
    section.say(f"The first record of the term, a second after it began: {first:.1f} ms.")
    section.targets.append(
        Target("outbox: commit to consumer, first record of a term", FIRST, first, "at most", " ms")
    )
    section.table(["", "messages", "p50", "p99", "bare p50", "bare p99"], rows)
    return section


@dataclass
class Arrivals:
    """A consumer of a topic, in its own thread, and when each message came to it."""

    bootstrap: str
    topic: str
    _came: dict[int, int] = field(default_factory=dict)
    _arrived: threading.Condition = field(default_factory=threading.Condition)
    _over: threading.Event = field(default_factory=threading.Event)
    _next: int = 0

    def probe(
        self, send: Callable[[int], None], pause: float, count: int, *, after: bool = False
    ) -> list[float]:
        """Milliseconds that messages took, sent `pause` seconds apart; `after`: from the return of `send`."""
        sent: dict[int, int] = {}
        while len(sent) < count:
            self._next += 1
            began = time.monotonic_ns()
            send(self._next)
            sent[self._next] = time.monotonic_ns() if after else began
            time.sleep(pause)
        with self._arrived:
            if not self._arrived.wait_for(lambda: sent.keys() <= self._came.keys(), _ARRIVE_LIMIT):
                raise TimeoutError(f"not within {_ARRIVE_LIMIT:g} s: all messages came")
        # The message may be there before the writer hears of its own commit.
        return [max(0.0, (self._came[number] - at) / 1e6) for number, at in sent.items()]

    def _read(self) -> None:
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "arrivals", "fetch.wait.max.ms": 100}
        )
        consumer.assign([TopicPartition(self.topic, n, OFFSET_BEGINNING) for n in range(TOPIC_PARTITIONS)])
        while not self._over.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            with self._arrived:
                self._came[int(message.value() or b"")] = time.monotonic_ns()
                self._arrived.notify_all()
        consumer.close()

    def __enter__(self) -> Arrivals:
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
