"""Real stores, and workers that are killed and stopped under load: the store ends equal to the table."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pytube.embedded.kafka_real import RealKafka
from tests.conftest import Servers
from tests.crash.conftest import MakeFleet
from tests.crash.fleet import Fleet
from tests.crash.judge import source
from tests.crash.load import Load
from tests.helpers.kafka_reader import Reader

Held = Callable[[], dict[int, Any]]

# Braces are written twice, because the fleet formats its configuration.
POSTGRES = """
type = "postgres"
dsn = "DSN"
table = "items"
columns = ["n", "note"]
types = {{ n = "bigint", note = "text" }}
create = true
"""
KAFKA = """
type = "kafka"
bootstrap_servers = "BOOTSTRAP"
topic = "items"
key_format = "json"
timeout = 2
create_topic = true
partitions = 2
transactional_id = "end-to-end.{{tube}}.{{partition}}"
"""


def one_dies_and_one_is_stopped(fleet: Fleet, held: Held) -> None:
    fleet.start(1, 2, 3)
    fleet.wait_for_leaders({1, 2, 3})
    with Load(fleet.dsn):
        fleet.wait_until(held, "documents arrive")
        fleet.kill(1)
        fleet.signal(2, signal.SIGSTOP)
        fleet.wait_for_leaders({3})
        fleet.signal(2, signal.SIGCONT)
        fleet.wait_for_leaders({2, 3})
    fleet.wait_until_drained()
    assert fleet.terminate() == [0, 0]
    assert held() == source(fleet.dsn)


@pytest.fixture
def target(servers: Servers) -> Iterator[str]:
    """Another database, on another server than the source."""
    with servers.get(18).database(installed=False) as dsn:
        yield dsn


def test_postgres(make_fleet: MakeFleet, target: str) -> None:
    def held() -> dict[int, Any]:
        with psycopg.connect(target) as connection:
            if connection.execute("SELECT to_regclass('items')").fetchone() == (None,):
                return {}
            rows = connection.execute("SELECT id, n, note, shard FROM items").fetchall()
        assert all(shard == key % 16 for key, _, _, shard in rows)
        return {key: {"id": key, "n": n, "note": note} for key, n, note, _ in rows}

    one_dies_and_one_is_stopped(make_fleet(sink_options=POSTGRES.replace("DSN", target)), held)


def test_kafka_with_transactions(make_fleet: MakeFleet, kafka_real: RealKafka) -> None:
    """A reader that does not compare: the order of the records alone counts."""
    options = KAFKA.replace("BOOTSTRAP", kafka_real.bootstrap)
    reader = Reader(kafka_real.bootstrap, "items")

    def held() -> dict[int, Any]:
        # A read of committed records may be behind by the last transaction; an empty tube has none left.
        settled = fleet.query("SELECT count(*) FROM tube.items") == [(0,)]
        return {int(key): value for (_, key), value in reader.read(settled=settled).items()}

    fleet = make_fleet(sink_options=options, request_timeout=3.0)
    one_dies_and_one_is_stopped(fleet, held)
    reader.close()
