"""The sink `kafka` passes the suite at a real broker, with transactions and without."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from pytube.embedded.kafka_real import RealKafka
from pytube.model import Id, Key
from pytube.sinks.base import Sink
from pytube.sinks.kafka import KafkaSink
from pytube.testing import SinkContract

PARTITIONS = 2
topics = (f"copies-{number}" for number in itertools.count())


class Reader:
    """Reads a topic as a consumer that does not compare: the last record of a key wins."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.records: list[tuple[Key, Any, dict[str, str]]] = []
        """Key, value and headers, as they were read."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 1,
                "log_level": 0,
            }
        )
        self._next = dict.fromkeys(range(PARTITIONS), 0)

    def close(self) -> None:
        self._consumer.close()

    def read(self) -> dict[Key, Any]:
        """What the topic holds now."""
        self._consumer.assign([TopicPartition(self.topic, *place) for place in self._next.items()])
        left = set(self._next)
        while left:
            message = self._consumer.poll(10)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(message.partition())
                continue
            self._next[message.partition()] = message.offset() + 1
            headers = {name: value.decode() for name, value in message.headers()}
            key = key_of(message.key().decode(), int(headers["shard"]))
            value = message.value()
            self.records.append((key, None if value is None else json.loads(value), headers))
        held = {key: value for key, value, _ in self.records}
        deleted = {key: headers["op"] == "delete" for key, _, headers in self.records}
        return {key: value for key, value in held.items() if not deleted[key]}


def key_of(text: str, shard: int) -> Key:
    key: Id = json.loads(text)["id"]
    assert json.loads(text)["shard"] == shard
    return shard, key


class TestRecords(SinkContract):
    limit = 60.0
    transactional_id: str | None = None

    @pytest.fixture(autouse=True)
    def _topic(self, kafka_real: RealKafka) -> Iterator[None]:
        self.kafka = kafka_real
        self.topic = next(topics)
        self.reader: Reader | None = None
        yield
        if self.reader is not None:
            self.reader.close()

    def options(self) -> dict[str, object]:
        return {
            "bootstrap_servers": self.kafka.bootstrap,
            "topic": self.topic,
            "key_format": "json",
            "create_topic": True,
            "partitions": PARTITIONS,
            "topic_options": {"max.message.bytes": "2000000"},
            **({"transactional_id": self.transactional_id} if self.transactional_id else {}),
        }

    def make_sink(self) -> Sink:
        return KafkaSink.from_options(self.options())

    def unopenable_sink(self) -> Sink:
        return KafkaSink.from_options({**self.options(), "topic": "nobody-made-it", "create_topic": False})

    def read_back(self) -> dict[Key, Any]:
        if self.reader is None:
            self.reader = Reader(self.kafka.bootstrap, self.topic)
        return self.reader.read()

    def rejected_value(self) -> Any:
        return "x" * 2_100_000

    def stall(self) -> bool:
        os.kill(self.kafka.pid, signal.SIGSTOP)
        return True

    def unstall(self) -> None:
        os.kill(self.kafka.pid, signal.SIGCONT)


class TestTransactions(TestRecords):
    transactional_id = "test.{tube}.{partition}"
