"""Outboxes as a scenario needs them: filled, delivered by a worker process, judged by what consumers read."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.frame.workers import process, wait_for

TOPIC_PARTITIONS = 4
BYTES = 100
"""Of a value."""
IDEMPOTENT = {"enable.idempotence": True, "acks": "all", "partitioner": "murmur2_random"}
"""What all producers here have in common."""
DRAIN_LIMIT = 300.0
_READ_LIMIT = 60.0
_PAGE = 10_000
_FILL = """
    INSERT INTO {table}
        (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
    SELECT clock_timestamp(), %(topic)s, 'key ' || g %% %(keys)s, lpad(g::text, %(bytes)s, '0'),
        '{{}}', '{{}}'
    FROM generate_series(1, %(count)s) AS g
"""


def fill(connection: psycopg.Connection, table: str, topic: str, count: int, keys: int) -> None:
    """Write `count` records with values 1, 2, 3, … over `keys` keys in turn, in one transaction."""
    arguments = {"topic": topic, "keys": keys, "bytes": BYTES, "count": count}
    connection.execute(_FILL.format(table=table), arguments)


def messages(count: int, keys: int) -> list[tuple[str, bytes]]:
    """The keys and values of the records that `fill` writes."""
    return [(f"key {number % keys}", b"%0*d" % (BYTES, number)) for number in range(1, count + 1)]


def drained(connection: psycopg.Connection, table: str, worker: Deliverer) -> None:
    """Wait until the outbox is empty: all is confirmed by the broker, and deleted."""
    # The first by its index: what was deleted is not looked at again and again.
    first = f"SELECT id FROM {table} ORDER BY id LIMIT 1"
    deadline = time.monotonic() + DRAIN_LIMIT
    while connection.execute(first).fetchone() is not None:
        if worker.process.status() == psutil.STATUS_ZOMBIE:
            raise RuntimeError(f"the worker ended before {table} was drained")
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {DRAIN_LIMIT:g} s: {table} is drained")
        time.sleep(0.01)


class Topics:
    """Topics of a broker; each has four partitions, and is read once."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._count = 0

    def make(self) -> str:
        """A new topic; its name."""
        self._count += 1
        name = f"bench-{self._count}"
        self._admin.create_topics([NewTopic(name, TOPIC_PARTITIONS, 1)])[name].result(30)
        wait_for(lambda: self._is_led(name), f"the topic {name} has leaders")
        return name

    def _is_led(self, name: str) -> bool:
        found = self._admin.list_topics(name, timeout=10).topics[name]
        return found.error is None and all(one.leader >= 0 for one in found.partitions.values())

    def drop(self, name: str) -> None:
        """Away with it."""
        self._admin.delete_topics([name])[name].result(30)

    def count(self, name: str) -> int:
        """How many records a topic has."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "judge"})
        places = [TopicPartition(name, number) for number in range(TOPIC_PARTITIONS)]
        ends = [consumer.get_watermark_offsets(place, timeout=10)[1] for place in places]
        consumer.close()
        return sum(ends)

    def judge(self, name: str, count: int, keys: int) -> None:
        """Read a topic from its beginning, and drop it; fails unless it is complete and in order per key.

        Nothing has failed, so each record is there once, and those of a key are in the order of the ids.
        """
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "judge",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        consumer.assign([TopicPartition(name, n, OFFSET_BEGINNING) for n in range(TOPIC_PARTITIONS)])
        seen = 0
        last: dict[bytes, int] = {}
        deadline = time.monotonic() + _READ_LIMIT
        while seen < count:
            assert time.monotonic() < deadline, f"{seen} of {count} records came to {name}"
            for message in consumer.consume(_PAGE, timeout=1.0):
                assert message.error() is None, message.error()
                key, number = message.key() or b"", int(message.value() or b"")
                before = last.get(key)
                assert number == before + keys if before else number <= keys, f"{number} came after {before}"
                last[key] = number
                seen += 1
        assert not consumer.consume(1, timeout=0.2), f"{name} has more than {count} records"
        assert len(last) == min(keys, count)
        consumer.close()
        self.drop(name)


def produce(bootstrap: str, topic: str, sent: list[tuple[str, bytes]]) -> float:
    """Send messages from memory by the bare client, with headers as a worker's; how many."""
    producer = Producer({"bootstrap.servers": bootstrap, **IDEMPOTENT})
    reports = 0

    def report(error: object, _: object) -> None:
        nonlocal reports
        assert error is None
        reports += 1

    number = b"1"
    for key, value in sent:
        headers: list[tuple[str, str | bytes | None]] = [
            ("pytube-outbox-id", number),
            ("pytube-epoch", b"1"),
            ("pytube-enqueued", b"1767225600.123"),
        ]
        while True:
            try:
                producer.produce(topic, value, key, headers=headers, on_delivery=report)
                break
            except BufferError:
                producer.poll(0.01)
    producer.flush()
    assert reports == len(sent)
    return float(reports)


# --- workers --------------------------------------------------------------------------------------------

_CONFIG = """
[postgres]
dsn = "{dsn}"

[worker]
client_id = "${{CLIENT_ID}}"
"""
_OUTBOX = """
[outbox.{name}]
bootstrap_servers = "{bootstrap}"
{settings}
"""


@dataclass(frozen=True, slots=True)
class Deliverer:
    """A worker process of some outboxes."""

    process: psutil.Process

    @property
    def cpu(self) -> float:
        """Seconds of CPU that it has used."""
        times = self.process.cpu_times()
        return times.user + times.system

    @property
    def memory(self) -> float:
        """Resident, in MiB."""
        return self.process.memory_info().rss / 2**20


@contextmanager
def delivering(
    folder: Path, dsn: str, bootstrap: str, outboxes: Mapping[str, str], name: str
) -> Iterator[Deliverer]:
    """A worker that delivers `outboxes`, whose settings are given as lines of TOML; ended in order."""
    text = _CONFIG.format(dsn=dsn) + "".join(
        _OUTBOX.format(name=outbox, bootstrap=bootstrap, settings=settings)
        for outbox, settings in outboxes.items()
    )
    with process(folder, text, name) as started:
        try:
            yield Deliverer(psutil.Process(started.pid))
        finally:
            started.terminate()


def led(connection: psycopg.Connection, outbox: str) -> bool:
    """Whether somebody leads the only partition of an outbox."""
    row = connection.execute(
        "SELECT count(*) FROM tube_leaders(%s) WHERE leader_id IS NOT NULL", [outbox]
    ).fetchone()
    assert row
    return bool(row[0])
