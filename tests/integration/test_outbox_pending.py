"""A broker that holds the receipt of an outbox back for ever, as one did that was killed in a transaction."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from pytube.embedded.kafka_real import NODE, RealKafka
from pytube.embedded.process import HOST
from tests.helpers.outbox import OUTBOX, configured, create_topic, read, running, stash, topics, until_waiting
from tests.helpers.proxy import Proxy

_TXN_OFFSET_COMMIT = 28


@pytest.fixture
def unverified(kafka_real: RealKafka) -> Iterator[None]:
    """Meanwhile the broker takes offsets of transactions that are over; so did all before Kafka 3.7."""
    set_verification(kafka_real, on=False)
    yield
    set_verification(kafka_real, on=True)


def set_verification(kafka: RealKafka, *, on: bool) -> None:
    entry = ConfigEntry(
        "transaction.partition.verification.enable",
        str(on).lower(),
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ResourceType.BROKER, str(NODE), incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)


def last_receipt(requests: list[bytes]) -> bytes:
    """The last request by which a producer sent offsets, as it was sent."""
    found = []
    for chunk in requests:
        at = 0
        while at + 6 <= len(chunk):
            size, kind = struct.unpack_from(">ih", chunk, at)
            if kind == _TXN_OFFSET_COMMIT:
                found.append(chunk[at : at + 4 + size])
            at += 4 + size
    return found[-1]


def send_late(kafka: RealKafka, request: bytes) -> None:
    """Send a request once more, and read its answer."""
    with socket.create_connection((HOST, kafka.port)) as connection:
        connection.sendall(request)
        assert connection.recv(4096)


def gives_offsets(bootstrap: str, group: str, topic: str) -> bool:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        consumer.committed([TopicPartition(topic, 0)], 2.0)
    except KafkaException:
        return False
    finally:
        consumer.close()
    return True


@pytest.mark.usefixtures("unverified")
async def test_a_receipt_that_the_broker_holds_back_stops_no_partition(
    conn: psycopg.Connection[Any], dsn: str, kafka_real: RealKafka, kafka_proxy: Proxy, tmp_path: Path
) -> None:
    conn.execute("SELECT outbox_ensure_exists(%s)", (OUTBOX,))
    topic = next(topics)
    create_topic(kafka_real.bootstrap, topic)
    config = configured(
        tmp_path, dsn, kafka_proxy.address, "transactions = true\nmessage_timeout = 2.0", drain_limit=5.0
    )
    kafka_proxy.requests = []
    stash(conn, topic, ["a"])
    async with running(config):
        await until_waiting(conn)
    send_late(kafka_real, last_receipt(kafka_proxy.requests))
    group = f"pytube.{tmp_path.name.replace('_', '__')}.{OUTBOX}.1.0"
    assert not gives_offsets(kafka_real.bootstrap, group, topic)
    stash(conn, topic, ["b"])
    async with running(config):
        await until_waiting(conn)
    assert gives_offsets(kafka_real.bootstrap, group, topic)
    seen = read(kafka_real.bootstrap, topic, committed=True)
    assert sorted(str(record.key) for record in seen) == ["a", "b"]
