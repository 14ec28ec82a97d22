"""What a consumer reads of a topic that the sink `kafka` writes, with keys in JSON."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from pytube.model import Id, Key
from tests.helpers.waiting import wait_until

PARTITIONS = 2
"""Of the topics."""


class Reader:
    """Reads a topic as a consumer that does not compare: the last record of a key wins."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        """Nothing is read before `read`."""
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
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def read(self, *, settled: bool = True) -> dict[Key, Any]:
        """What the topic holds now.

        Args:
            settled: whether to wait for transactions. A commit is answered when it is sure to come; the
                broker shows its records a moment later.
        """
        if settled:
            wait_until(self._is_settled, what="no transaction is open")
        self._consumer.assign([TopicPartition(self.topic, *place) for place in self._next.items()])
        left = set(self._next)
        while left:
            message: Any = self._consumer.poll(10)
            assert message is not None, "the broker does not answer"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(message.partition())
                continue
            self._next[message.partition()] = message.offset() + 1
            headers = {name: value.decode() for name, value in message.headers()}
            key = _key_of(message.key().decode(), int(headers["shard"]))
            value = message.value()
            self.records.append((key, None if value is None else json.loads(value), headers))
        held = {key: value for key, value, _ in self.records}
        deleted = {key: headers["op"] == "delete" for key, _, headers in self.records}
        return {key: value for key, value in held.items() if not deleted[key]}

    def _is_settled(self) -> bool:
        try:
            return self._ends(IsolationLevel.READ_COMMITTED) == self._ends(IsolationLevel.READ_UNCOMMITTED)
        except KafkaException:  # the topic was created a moment ago
            return False

    def _ends(self, level: IsolationLevel) -> list[int]:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(self.topic, number): latest for number in self._next}
        answers = self._admin.list_offsets(asked, isolation_level=level, request_timeout=10)
        return [answers[place].result(10).offset for place in asked]


def _key_of(text: str, shard: int) -> Key:
    key: Id = json.loads(text)["id"]
    assert json.loads(text)["shard"] == shard
    return shard, key
