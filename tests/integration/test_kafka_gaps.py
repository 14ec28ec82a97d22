"""An acknowledged record is in its topic, also if the first batch for a new partition was refused.

A broker takes a producer's first batch whatever its sequence number is. So of two batches in flight, the
second could be written after the first was refused, and librdkafka would then call both of them written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Producer

from pytube.config.loader import parse
from pytube.errors import ConfigError
from pytube.kafka.clients import Producers
from pytube.outbox import Message
from pytube.outbox.clients import outbox_clients
from pytube.outbox.writer import DirectBackend
from tests.helpers.refusing_kafka import RefusingKafka, refusing_kafka

RECORDS = 5


@pytest.fixture
def kafka() -> Iterator[RefusingKafka]:
    with refusing_kafka() as kafka:
        yield kafka


def of_outbox(bootstrap: str, **options: str) -> Producers:
    lines = "\n".join(f"{name} = {value}" for name, value in options.items())
    text = f"""
[postgres]
dsn = "postgresql://x"
[kafka]
bootstrap_servers = "{bootstrap}"
[outbox.orders]
kafka_options = {{ "batch.num.messages" = 1 }}
{lines}
"""
    return outbox_clients(parse(text, environment={}), "orders")


def windowed(bootstrap: str) -> Producer:
    gapless = {"message.timeout.ms": 0, "enable.gapless.guarantee": True}
    return of_outbox(bootstrap).producer(settings=gapless)


def strict(bootstrap: str) -> Producer:
    return of_outbox(bootstrap, mode='"strict"').producer()


def in_transactions(bootstrap: str) -> Producer:
    producer = of_outbox(bootstrap, transactions="true").producer("orders-0")
    producer.init_transactions(10)
    producer.begin_transaction()
    return producer


def of_the_sink(bootstrap: str) -> Producer:
    return Producers(bootstrap, 10.0, {"linger.ms": 0, "batch.num.messages": 1}).producer()


@pytest.mark.parametrize("make", [windowed, strict, in_transactions, of_the_sink])
def test_what_is_acknowledged_is_in_the_topic(kafka: RefusingKafka, make: Callable[[str], Producer]) -> None:
    producer = make(kafka.bootstrap)
    reports: list[Any] = []
    kafka.refuse_next()
    for number in range(RECORDS):
        producer.produce("new", str(number), partition=0, on_delivery=lambda error, _: reports.append(error))
        producer.poll(0.01)
    producer.flush(30)
    assert reports == [None] * RECORDS
    if make is in_transactions:
        producer.commit_transaction(10)
    assert kafka.count("new") >= RECORDS


def test_what_is_sent_without_an_outbox_is_in_the_topic(kafka: RefusingKafka) -> None:
    backend = DirectBackend({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0, "batch.num.messages": 1})
    kafka.refuse_next()
    messages = [Message("new", "k", str(number)) for number in range(RECORDS)]
    backend.publish("orders", None, messages)
    assert sum(kafka.count("new", partition) for partition in range(4)) == RECORDS


@pytest.mark.parametrize("name", ["max.in.flight", "max.in.flight.requests.per.connection"])
def test_more_requests_at_a_time_are_refused(name: str) -> None:
    options: Mapping[str, object] = {name: 5}
    with pytest.raises(ConfigError, match=f"{name} can't be set there"):
        Producers("127.0.0.1:1", 10.0, options)
