"""An acknowledged record is in its topic, also if the first batch for a new partition was refused.

A broker takes a producer's first batch whatever its sequence number is. So of two batches in flight, the
second could be written after the first was refused, and librdkafka would then call both of them written.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from pytube.config.loader import parse
from pytube.errors import BrokerUnavailable, ConfigError
from pytube.kafka.clients import Producers
from pytube.outbox import Message
from pytube.outbox.clients import outbox_clients
from pytube.outbox.inflight import InFlight, Rules
from pytube.outbox.producer import PlainProducer
from pytube.outbox.records import Record
from pytube.outbox.transactions import TransactionalProducer
from pytube.outbox.writer import DirectBackend
from tests.helpers.refusing_kafka import RefusingKafka, refusing_kafka
from tests.helpers.waiting import wait_until_async

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


@pytest.mark.parametrize("is_strict", [False, True])
async def test_a_fatal_error_loses_no_report(kafka: RefusingKafka, is_strict: bool) -> None:
    """And another producer goes on."""
    outgoing = PlainProducer(of_outbox(kafka.bootstrap), 1, strict=is_strict)
    records = InFlight(Rules(window=100))
    records.add([Record(number, 0.0, "new", f"k{number}", b"v") for number in range(20)])
    chunk = records.take(0.0)
    assert chunk is not None
    settled: list[Any] = []

    def is_settled() -> bool:
        with suppress(SystemError, KafkaException):  # a term ends by these
            settled.extend(outgoing.settled())
        return bool(settled)

    try:
        await outgoing.open((), "orders/1")
        kafka.refuse_next()
        outgoing.send(chunk)
        for lane in outgoing._lanes():
            for producer in lane.producers:
                kafka.fail(producer)
        await wait_until_async(is_settled, what="all its reports have come")
        assert settled[0][1]
        await wait_until_async(lambda: outgoing.has_room, what="what has failed is gone")
        settled.clear()
        outgoing.send(chunk)
        await wait_until_async(is_settled, what="another producer has sent them")
        assert settled == [(chunk, {})]
    finally:
        outgoing.stop()


def clients_of_librdkafka() -> int:
    """How many there are in this process: each has one thread of this name."""
    found = 0
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended
            found += (task / "comm").read_text() == "rdk:main\n"
    return found


@pytest.mark.parametrize("mode", ["windowed", "strict", "transactions"])
async def test_the_producers_of_a_term_end_with_it(kafka: RefusingKafka, mode: str) -> None:
    """Though a term that failed stays until the garbage collector finds it."""
    clients = of_outbox(kafka.bootstrap)
    gc.collect()
    gc.disable()
    try:
        before = clients_of_librdkafka()
        outgoing = (
            TransactionalProducer(clients, "ends.", 1, 0, 1, may_send=lambda: True, on_settled=lambda: None)
            if mode == "transactions"
            else PlainProducer(clients, 1, strict=mode == "strict")
        )
        await outgoing.open((), "orders/1")
        assert clients_of_librdkafka() > before
        outgoing.stop()
        await wait_until_async(lambda: clients_of_librdkafka() <= before, what="its producers have ended")
    finally:
        gc.enable()
    assert outgoing is not None, "it is still there"


async def test_the_producers_of_an_attempt_that_fails_end_before_its_error() -> None:
    """The event loop drops the error, and would wait for librdkafka's threads."""
    clients = Producers("127.0.0.1:1", 0.5, {})
    outgoing = TransactionalProducer(clients, "f.", 1, 0, 1, may_send=lambda: True, on_settled=lambda: None)
    gc.collect()
    gc.disable()
    try:
        before = clients_of_librdkafka()
        with pytest.raises(BrokerUnavailable) as caught:
            await outgoing.open((), "orders/1")
        await wait_until_async(lambda: clients_of_librdkafka() <= before, what="its producer has ended")
    finally:
        gc.enable()
    assert caught.value.args


@pytest.mark.parametrize("name", ["max.in.flight", "max.in.flight.requests.per.connection"])
def test_more_requests_at_a_time_are_refused(name: str) -> None:
    options: Mapping[str, object] = {name: 5}
    with pytest.raises(ConfigError, match=f"{name} can't be set there"):
        Producers("127.0.0.1:1", 10.0, options)
