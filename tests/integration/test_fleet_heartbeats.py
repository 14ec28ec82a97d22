"""The heartbeats of leaders at Kafka, and what they and the database disagree about."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from uuid import UUID, uuid4

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

import pytube
from pytube.config import load
from pytube.election.neli.claim import encode
from pytube.election.neli.shared import slot_of
from pytube.embedded.kafka_real import RealKafka
from pytube.health import listener as listener_module
from pytube.health.disagreements import disagreements
from pytube.health.listener import Listener
from pytube.health.watcher import FleetWatcher, Target
from pytube.model import Heartbeat
from tests.helpers.cli import run, run_json
from tests.helpers.proxy import Mode, Proxy
from tests.helpers.waiting import wait_until

Conn = psycopg.Connection[tuple[object, ...]]

Beats = list[tuple[str, int, Heartbeat]]
"""Topic, its partition, and what is sent there."""


@contextmanager
def sending(bootstrap: str, beats: Beats) -> Iterator[None]:
    """Send these, as workers would, until the end."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    over = threading.Event()

    def send() -> None:
        number = 0
        while not over.wait(0.1):
            number += 1
            for topic, partition, heartbeat in list(beats):
                producer.produce(topic, encode(heartbeat, number), partition=partition)
            producer.poll(0)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        producer.flush(5)


@pytest.fixture
def installation() -> str:
    """Its own topics at the broker that all tests share."""
    return uuid4().hex[:12]


@pytest.fixture
def folder(tmp_path: Path, dsn: str, conn: Conn, kafka_mock: str, installation: str) -> Path:
    """With the configuration of workers, which nobody runs."""
    conn.execute("SELECT tube_ensure_exists('t', 3)")
    write(tmp_path, dsn, kafka_mock, installation)
    return tmp_path


def write(folder: Path, dsn: str, bootstrap: str, installation: str, more: str = "") -> None:
    (folder / "pytube.toml").write_text(f"""
        [postgres]
        dsn = "{dsn}"
        [kafka]
        bootstrap_servers = "{bootstrap}"
        {more}
        [worker]
        installation = "{installation}"
        receive_deadline = 1.0
        session_timeout = 15.0
        [tube.t.sink]
        type = "callable"
        target = "{__name__}:sending"
    """)


def lead(conn: Conn, partition: int, client_id: str) -> Heartbeat:
    """Lead a partition, a while ago; what its worker is to send."""
    leader_id = uuid4()
    row = conn.execute(
        "SELECT tube_leader_acquire('t', 3, %(partition)s, %(leader)s, gen_random_uuid(), %(label)s,"
        " tube_leader_epoch('t', 3, %(partition)s), 'neli', '1 min')",
        {"partition": partition, "leader": leader_id, "label": client_id},
    ).fetchone()
    assert row is not None
    conn.execute(
        "UPDATE tube_leader SET acquired_at = now() - interval '1 min' WHERE leader_id = %s", (leader_id,)
    )
    return Heartbeat(client_id, leader_id, int(str(row[0])), 7, 0.5)


def test_what_the_heartbeats_and_the_database_disagree_about(
    conn: Conn, dsn: str, kafka_mock: str, installation: str, folder: Path
) -> None:
    topic = f"pytube.{installation}.t"
    well, silent, claimed = (lead(conn, number, label) for number, label in enumerate(("a", "b", "c")))
    stale = Heartbeat("d", uuid4(), 5, 0, 0.0)
    beats = [(topic, 0, well), (topic, 2, claimed), (topic, 2, stale), (topic, 1, stale)]
    with sending(kafka_mock, beats):
        found = run_json("status", "--fleet", dsn=dsn, folder=folder)
    assert found["not_read"] == []
    said = {(one["subject"], one["finding"].split(":")[0]) for one in found["disagreements"]}
    assert {one for one in said if "heartbeat" in one[1]} == {
        (
            "t partition 1",
            "its leader b renews its term in the database, and no heartbeat of it is heard at Kafka",
        ),
        (
            "t partition 1",
            f"d (epoch 5) sends heartbeats as its leader, and the database has b (epoch {silent.epoch})",
        ),
        ("t partition 2", "2 send heartbeats as its leader"),
    }
    workers = {one["client_id"]: one for one in found["workers"]}
    assert workers["a"]["heard_ago"] < 1
    assert workers["b"]["heard_ago"] is None
    assert workers["d"] | {"heard_ago": 0} == {
        "host": None,
        "client_id": "d",
        "instance": "-",
        "version": None,
        "elections": ["neli"],
        "seen_ago": None,
        "heard_ago": 0,
        "leads": [],
        "waits_for": [],
    }, "a worker that leads nothing is in the fleet, too"


def test_a_term_that_comes_and_one_that_goes_are_no_disagreement(
    conn: Conn, dsn: str, kafka_mock: str, installation: str, folder: Path
) -> None:
    topic = f"pytube.{installation}.t"
    beats = [(topic, number, lead(conn, number, "a")) for number in range(3)]
    config = load(folder / "pytube.toml")
    watcher = FleetWatcher([Target(SecretStr(dsn), config=config)])
    with closing(watcher), sending(kafka_mock, beats):
        assert [str(one) for one in disagreements(watcher.first_sample(), pytube.__version__)] == []
        beats[0] = (topic, 0, lead(conn, 0, "b"))
        wait_until(
            lambda: (
                {one.client_id for one in watcher.sample().workers if one.heard_ago is not None} == {"a", "b"}
            ),
            what="the new term is heard and led",
        )
        wait_until(
            lambda: disagreements(watcher.sample(), pytube.__version__) == [], what="the old one is not heard"
        )


def test_a_shared_leader_topic_tells_processes_apart(
    conn: Conn, dsn: str, kafka_mock: str, installation: str, folder: Path
) -> None:
    write(folder, dsn, kafka_mock, installation, "shared_partitions = 4")
    for number, label in enumerate(("a", "b", "c")):
        lead(conn, number, label)
    beats = [
        (f"pytube.{installation}", slot_of("t", number, 4), Heartbeat(label, uuid4(), 0, 0, 0.0))
        for number, label in ((0, "a"), (1, "b"), (1, "x"))
    ]
    with sending(kafka_mock, beats):
        found = run_json("status", "--fleet", dsn=dsn, folder=folder)["disagreements"]
    said = {
        (one["subject"], one["finding"].split(", and ")[0]) for one in found if "heartbeat" in one["finding"]
    }
    assert said == {
        ("t partition 1", "2 send heartbeats as its leader: b and x"),
        ("t partition 2", "its leader c renews its term in the database"),
    }


def test_a_watcher_that_alone_loses_kafka_calls_no_leader_silent(
    conn: Conn,
    dsn: str,
    kafka_real: RealKafka,
    kafka_proxy: Proxy,
    installation: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener_module, "_LOOK", 60.0)  # or a look at the topics may notice it first
    topic = f"pytube.{installation}.t"
    write(folder, dsn, kafka_proxy.address, installation)
    beats = [(topic, number, lead(conn, number, "a")) for number in range(3)]
    watcher = FleetWatcher([Target(SecretStr(dsn), config=load(folder / "pytube.toml"))])

    def said() -> list[str]:
        """What is said of a sample; what was not read first."""
        sample = watcher.sample()
        found = [str(one) for one in disagreements(sample, pytube.__version__)]
        return [*sample.hosts[0].not_read, *found]

    def hears_all() -> bool:
        return not said() and any(one.heard_ago is not None for one in watcher.sample().workers)

    def is_deaf() -> bool:
        found = said()
        assert not any("no heartbeat" in line for line in found), found
        return any("Kafka does not answer" in line for line in found)

    with closing(watcher), sending(kafka_real.bootstrap, beats):
        wait_until(hears_all, what="all leaders are heard")
        kafka_proxy.switch(Mode.HALF_OPEN)
        wait_until(is_deaf, what="it says that it hears nothing")
        kafka_proxy.switch(Mode.PASS)
        wait_until(hears_all, what="all leaders are heard again")
        beats[:] = beats[1:]
        wait_until(lambda: any("no heartbeat" in line for line in said()), what="one leader is silent")


def test_what_could_not_be_heard_is_told(conn: Conn, dsn: str, folder: Path, installation: str) -> None:
    lead(conn, 0, "a")
    unread = run_json("status", "--fleet", dsn=dsn)["not_read"]
    assert [line.split(":")[0] for line in unread] == ["heartbeats of workers at Kafka were not read"]
    write(folder, dsn, "127.0.0.1:1", installation)
    found = run("status", "--fleet", dsn=dsn, folder=folder)
    assert "heartbeats of workers at Kafka were not read: Kafka does not answer" in found.stderr
    assert "no heartbeat" not in found.stderr, "what was not listened to is not silent"


def test_the_broker_of_another_database_is_not_compared_with(
    conn: Conn, dsn: str, kafka_mock: str, installation: str, folder: Path
) -> None:
    """As when --dsn names staging, and the configuration that lies here is production's."""
    lead(conn, 0, "a")
    write(folder, make_conninfo(dsn, dbname="production"), kafka_mock, installation)
    stranger = Heartbeat("b", uuid4(), 5, 0, 0.0)
    with sending(kafka_mock, [(f"pytube.{installation}.t", 0, stranger)]):
        found = run_json("status", "--fleet", dsn=dsn, folder=folder)
    assert not [one for one in found["disagreements"] if "heartbeat" in one["finding"]]
    assert [worker["client_id"] for worker in found["workers"]] == ["a"]
    (unread,) = found["not_read"]
    assert unread.startswith(
        "heartbeats of workers at Kafka were not read: --dsn (PYTUBE_DSN) or --schema names"
    )


def test_a_topic_that_is_not_there_is_told(
    conn: Conn, kafka_mock: str, dsn: str, folder: Path, installation: str
) -> None:
    config = load(folder / "pytube.toml")
    with closing(FleetWatcher([Target(SecretStr(dsn), config=config)])) as watcher:

        def unread() -> list[str]:
            return [line for host in watcher.sample().hosts for line in host.not_read]

        wait_until(lambda: unread() == [], what="nobody leads, so that nothing is missed")
        lead(conn, 0, "a")
        wait_until(
            lambda: unread()[:1] != [] and f"pytube.{installation}.t" in unread()[0], what="it is missed"
        )
        with sending(kafka_mock, [(f"pytube.{installation}.t", 0, Heartbeat("a", UUID(int=1), 1, 0, 0.0))]):
            wait_until(lambda: unread() == [], what="the topic that was made is listened to")


def test_a_topic_that_may_not_be_read_is_not_silent(folder: Path) -> None:
    """The broker shows it, and says once that it may not be read."""
    listener = Listener(load(folder / "pytube.toml"))
    listener._places = {("t", 0): ("mine", 0), ("u", 0): ("other", 0)}
    listener._since = {"mine": 1.0, "other": 1.0}
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    message = SimpleNamespace(error=lambda: refused, topic=lambda: "mine", partition=lambda: 0)
    listener._take(cast("Message", message))
    assert listener.heard().since == {"other": 1.0}
    listener._look(cast("Consumer", FakeConsumer("mine", "other")))
    assert listener.heard().since.keys() == {"other"}
    assert listener.heard().problem is None


class FakeConsumer:
    """Listens to nothing, at a broker that shows these topics."""

    def __init__(self, *topics: str) -> None:
        self.topics = {topic: SimpleNamespace(partitions={0: SimpleNamespace(leader=1)}) for topic in topics}

    def list_topics(self, timeout: float) -> object:
        del timeout
        return self

    def assignment(self) -> list[TopicPartition]:
        return []

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Nothing is fetched."""

    incremental_unassign = incremental_assign
