"""Outboxes for tests of their delivery: workers in this process, and what a consumer may find."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from pytube.config import Config, load
from pytube.events import Event
from pytube.outbox.stash import EPOCH, OUTBOX_ID
from pytube.worker import Worker
from tests.helpers.waiting import wait_until, wait_until_async

OUTBOX = "orders"
topics = (f"orders-{number}" for number in itertools.count())
"""Names of topics that no other test uses."""


def configured(folder: Path, dsn: str, bootstrap: str, settings: str = "", **worker: object) -> Config:
    """A configuration with the outbox `orders` alone, whose workers elect by lease.

    Args:
        folder: where its file goes.
        dsn: of the database.
        bootstrap: of the broker.
        settings: more lines of `[outbox.orders]`.
        worker: more settings of `[worker]`.
    """
    path = folder / f"{uuid4().hex[:8]}.toml"
    more = "\n".join(f"{name} = {value}" for name, value in worker.items())
    path.write_text(
        f"""
[postgres]
dsn = "{dsn}"
[worker]
election = "lease"
installation = "{folder.name}"
{more}
[outbox.{OUTBOX}]
bootstrap_servers = "{bootstrap}"
{settings}
"""
    )
    return load(path)


@asynccontextmanager
async def running(config: Config, workers: int = 1) -> AsyncIterator[list[Event]]:
    """Workers of the configuration run within; what they tell of."""
    events: list[Event] = []
    started: list[Worker] = []
    try:
        for _ in range(workers):
            worker = Worker(config, on_event=events.append)
            await worker.start()
            started.append(worker)
        yield events
    finally:
        for worker in started:
            await worker.stop()


def create_topic(bootstrap: str, topic: str, partitions: int = 3, **settings: str) -> None:
    """Make a topic; names of settings have `_` in place of dots."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    config = {name.replace("_", "."): value for name, value in settings.items()}
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
    for made in admin.create_topics([new]).values():
        made.result(30)


# --- the table ----------------------------------------------------------------------------------


def stash(
    conn: psycopg.Connection[Any], topic: str, keys: Sequence[str | None], *, size: int = 10
) -> dict[str | None, list[int]]:
    """Stash a record of each key, in this order; the ids of each key."""
    rows = conn.execute(
        f"INSERT INTO tube.{OUTBOX} (kafka_topic, kafka_key, kafka_value)"
        " SELECT %s, key, repeat('x', %s) FROM unnest(%s::text[]) WITH ORDINALITY AS k (key, n) ORDER BY n"
        " RETURNING kafka_key, id",
        (topic, size, list(keys)),
    ).fetchall()
    stashed: dict[str | None, list[int]] = defaultdict(list)
    for key, number in rows:
        stashed[key].append(number)
    return stashed


def waiting(conn: psycopg.Connection[Any]) -> list[int]:
    """The ids that are in the outbox, parked ones too."""
    return [number for (number,) in conn.execute(f"SELECT id FROM tube.{OUTBOX} ORDER BY id")]


async def until_waiting(conn: psycopg.Connection[Any], ids: Sequence[int] = ()) -> None:
    """Wait until these alone are in the outbox."""
    await wait_until_async(
        lambda: waiting(conn) == list(ids), what=lambda: f"in the outbox is {waiting(conn)[:20]}"
    )


# --- the consumer -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """A record as a consumer reads it."""

    partition: int
    key: str | None
    value: bytes | None
    headers: dict[str, str]
    offset: int = 0

    @property
    def id(self) -> int:
        """Its id in the outbox."""
        return int(self.headers[OUTBOX_ID])

    @property
    def epoch(self) -> int:
        """The epoch that it was sent in."""
        return int(self.headers[EPOCH])


def read(
    bootstrap: str, topic: str, *, committed: bool = False, start: Mapping[int, int] | None = None
) -> list[Seen]:
    """All records of a topic, by partition and offset.

    Args:
        bootstrap: of the broker.
        topic: its name.
        committed: only those of committed transactions. A commit is answered when it is sure to come; the
            broker shows its records a moment later, so that is waited for.
        start: the offset to begin at, by partition; by default the first.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.wait.max.ms": 1,
            "log_level": 0,
        }
    )
    try:
        left = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        if committed:
            wait_until(lambda: _is_settled(bootstrap, topic, left), what="no transaction is open")
        consumer.assign([TopicPartition(topic, number, (start or {}).get(number, 0)) for number in left])
        seen: list[Seen] = []
        while left:
            message: Any = consumer.poll(30)
            assert message is not None, "the broker does not answer"
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                left.discard(message.partition())
                continue
            key, headers = message.key(), message.headers() or []
            seen.append(
                Seen(
                    message.partition(),
                    None if key is None else key.decode(),
                    message.value(),
                    {name: value.decode() for name, value in headers if value is not None},
                    message.offset(),
                )
            )
    finally:
        consumer.close()
    return sorted(seen, key=lambda one: one.partition)


_NOT_SETTLED = {
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
}
"""Of a broker that has just come back: it may know for a moment less of its partitions than the client."""


def _is_settled(bootstrap: str, topic: str, partitions: Iterable[int]) -> bool:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    ends = []
    for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        asked = {TopicPartition(topic, number): latest for number in partitions}
        answers = admin.list_offsets(asked, isolation_level=level, request_timeout=10)
        try:
            ends.append([answers[place].result(10).offset for place in asked])
        except KafkaException as error:
            if error.args[0].code() not in _NOT_SETTLED:
                raise
            return False
    return ends[0] == ends[1]


# --- what it may find ---------------------------------------------------------------------------


def by_key(seen: Iterable[Seen]) -> dict[str | None, list[int]]:
    """The ids of each key, as they were read. A key is in one partition, so this is their order."""
    found: dict[str | None, list[int]] = defaultdict(list)
    for one in seen:
        found[one.key].append(one.id)
    return found


def check_complete(seen: Iterable[Seen], stashed: Mapping[str | None, Sequence[int]]) -> None:
    """Each record was written, and of each key the first occurrences are in the order of their ids."""
    found = by_key(seen)
    for key, ids in stashed.items():
        first = list(dict.fromkeys(found[key]))
        assert sorted(first) == list(ids), f"of key {key!r} are missing {set(ids) - set(first)}"
        assert key is None or first == list(ids), (
            f"first occurrences of key {key!r} are out of order: {first}"
        )


def check_windowed(seen: Iterable[Seen], window: int) -> None:
    """What comes again of a key comes from a place at most `window` records back, and in order from there."""
    records: dict[str | None, list[Seen]] = defaultdict(list)
    for one in seen:
        records[one.key].append(one)
    for key, found in records.items():
        place = {number: index for index, number in enumerate(sorted({one.id for one in found}))}
        for index, (before, after) in enumerate(itertools.pairwise(place[one.id] for one in found)):
            around = found[max(0, index - window) : index + window]
            assert key is None or before - window < after <= before + 1, (
                f"key {key!r}, ids and epochs around record {found[index].id}: "
                f"{[(one.id, one.epoch) for one in around]}"
            )


def check_strict(seen: Iterable[Seen]) -> None:
    """The only repeat is of the record of the key right before."""
    check_windowed(seen, 1)


def check_exactly_once(seen: Iterable[Seen]) -> None:
    """Nothing comes again."""
    for key, ids in by_key(seen).items():
        assert len(set(ids)) == len(ids), f"key {key!r}: {ids}"
