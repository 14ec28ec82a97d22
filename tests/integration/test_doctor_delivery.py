"""What the doctor says of tubes and outboxes that are not delivered, and of what a worker lacks to start."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka.admin import AdminClient

from pytube.config import Config, parse
from pytube.errors import how_to_install
from pytube.health.doctor import examine
from pytube.health.findings import Check, Level
from tests.helpers import outbox_sql, terms
from tests.helpers.capture import Conn
from tests.helpers.roles import as_role, roles
from tests.helpers.terms import Claim

SECTION = '[tube.queue.sink]\ntype = "jsonl"\npath = "/dev/null"\n'
OTHER = '[tube.other.sink]\ntype = "jsonl"\npath = "/dev/null"\n'
STEP = {"shard": 0, "id": "7", "error": "no", "attempts": 5}


def configured(dsn: str, more: str = SECTION) -> Config:
    return parse(f'[postgres]\ndsn = "${{DSN}}"\n{more}', environment={"DSN": dsn})


def checks(dsn: str, subject: str, more: str = SECTION) -> list[Check]:
    return [check for check in examine(configured(dsn, more)) if check.subject == subject]


def one(dsn: str, subject: str, level: Level, more: str = SECTION) -> Check:
    found = checks(dsn, subject, more)
    assert [check.level for check in found].count(level) == 1, found
    return next(check for check in found if check.level is level)


def touched(conn: Conn, ago: str, shard: int = 0) -> None:
    """One pod that has waited for so long."""
    terms.touch(conn, shard)
    conn.execute("UPDATE tube.queue SET ts = clock_timestamp() - %s::interval WHERE shard = %s", [ago, shard])


class TestLeaders:
    def test_led_by_somebody(self, dsn: str, conn: Conn) -> None:
        terms.make_tube(conn)
        terms.acquire(conn)
        touched(conn, "1 hour")
        assert one(dsn, "leaders", Level.OK).finding == (
            "1 partition looked at: led, not paused or stopped, and no sink or source is reported down; "
            "`pytube status` shows how far behind they are"
        )

    def test_nobody_leads_and_pods_wait(self, dsn: str, conn: Conn) -> None:
        terms.make_tube(conn, partitions=4)
        terms.acquire(conn, Claim(partitions=4, partition=3))
        touched(conn, "3 minutes")
        touched(conn, "1 minute", shard=2)
        late = one(dsn, "leaders of queue", Level.FAIL)
        assert late.finding == "no worker leads partitions 0, 2; pods queued there: 2, the oldest for 3 min"
        assert late.remedy is not None
        assert late.remedy.startswith("start a worker: pytube worker --tube queue; if one runs, see its log")
        idle = one(dsn, "leaders of queue", Level.WARN)
        assert idle.finding == "no worker leads partition 1; nothing is queued there"
        assert checks(dsn, "leaders") == []

    def test_a_hand_over_is_no_failure(self, dsn: str, conn: Conn) -> None:
        """Pods have waited for long, and the last term has ended this moment."""
        terms.make_tube(conn)
        touched(conn, "1 hour")
        terms.release(conn, terms.acquire(conn))
        one(dsn, "leaders of queue", Level.WARN)
        conn.execute("UPDATE tube.tube_term SET ended_at = ended_at - interval '1 minute'")
        one(dsn, "leaders of queue", Level.FAIL)

    def test_nothing_waits_and_the_last_term_ended_long_ago(self, dsn: str, conn: Conn) -> None:
        terms.make_tube(conn)
        terms.release(conn, terms.acquire(conn))
        conn.execute("UPDATE tube.tube_term SET ended_at = ended_at - interval '1 hour'")
        idle = one(dsn, "leaders of queue", Level.WARN)
        assert idle.finding == "no worker leads partition 0; nothing is queued there"
        assert len(checks(dsn, "leaders of queue")) == 1

    def test_no_tube_at_all(self, dsn: str) -> None:
        assert one(dsn, "leaders", Level.OK, "").finding == "there is no tube and no outbox yet"

    def test_of_an_outbox(self, dsn: str, conn: Conn, kafka_mock: str) -> None:
        more = f'[outbox.orders]\nbootstrap_servers = "{kafka_mock}"\n'
        outbox_sql.make_outbox(conn)
        one(dsn, "leaders of orders", Level.WARN, more)
        outbox_sql.stash(conn)
        conn.execute("UPDATE tube.orders SET create_time = create_time - interval '1 hour'")
        late = one(dsn, "leaders of orders", Level.FAIL, more)
        assert late.finding == "no worker leads partition 0; records queued there: 1, the oldest for 60 min"
        assert "pytube worker --outbox orders" in str(late.remedy)


class TestPauses:
    @pytest.fixture
    def led(self, conn: Conn) -> Conn:
        """A tube of two partitions, led by a worker, in which a pod waits for long."""
        terms.make_tube(conn, partitions=2)
        for partition in range(2):
            terms.acquire(conn, Claim(partitions=2, partition=partition))
        touched(conn, "1 hour")
        return conn

    def test_stopped_by_poison(self, dsn: str, led: Conn) -> None:
        term = terms.acquire(led, Claim(partitions=2))
        led.execute(
            "SELECT tube_pods_stop(%s, %s, %s, %s, 'poison', '0/7: no', %s)", (*term.args, json.dumps([STEP]))
        )
        stopped = one(dsn, "tube queue", Level.FAIL)
        assert stopped.finding == "stopped, by poison: 0/7: no"
        assert str(stopped.remedy).endswith("then: pytube resume queue")
        assert checks(dsn, "leaders") == []

    def test_paused_by_somebody(self, dsn: str, led: Conn) -> None:
        led.execute("SELECT tube_pause('queue', reason => 'the index moves')")
        paused = one(dsn, "tube queue", Level.WARN)
        assert paused.finding == "paused until it is resumed: by postgres: the index moves"
        assert paused.remedy == "pytube resume queue"

    def test_a_partition_for_a_while(self, dsn: str, led: Conn) -> None:
        led.execute("SELECT tube_pause('queue', 1, '1 hour')")
        until = terms.scalar(led, "SELECT until::text FROM tube_pause_list()")
        assert one(dsn, "partition 1 of queue", Level.WARN).finding == (f"paused until {until}: by postgres")

    def test_paused_and_nobody_leads(self, dsn: str, conn: Conn) -> None:
        """What waits there waits for the end of the pause."""
        terms.make_tube(conn)
        touched(conn, "1 hour")
        conn.execute("SELECT tube_pause('queue')")
        one(dsn, "tube queue", Level.WARN)
        assert one(dsn, "leaders of queue", Level.WARN).finding == "no worker leads partition 0"


class TestOfWhom:
    def test_a_tube_that_is_not_configured(self, dsn: str, conn: Conn) -> None:
        terms.make_tube(conn)
        touched(conn, "1 hour")
        one(dsn, "leaders of queue", Level.FAIL)
        late = one(dsn, "leaders of queue", Level.WARN, OTHER)
        assert late.finding.endswith("the oldest for 60 min (this configuration does not name it)")
        assert one(dsn, "tube queue", Level.OK, OTHER).finding == (
            "1 partition (this configuration does not name it)"
        )

    def test_without_a_configuration_all_count(self, dsn: str, conn: Conn) -> None:
        terms.make_tube(conn)
        touched(conn, "1 hour")
        one(dsn, "leaders of queue", Level.FAIL, "")

    def test_an_outbox_that_is_not_there(self, dsn: str, dead_broker: str) -> None:
        more = f'[outbox.orders]\nbootstrap_servers = "{dead_broker}"\n'
        assert one(dsn, "outbox orders", Level.FAIL, more).remedy == "pytube outbox create orders"


def test_kafka_is_told_of_where_a_tube_of_this_configuration_needs_it(dsn: str, conn: Conn) -> None:
    conn.execute("SELECT tube_ensure_exists('queue'), tube_ensure_exists('foreign')")
    there = {
        "use": "election",
        "bootstrap_servers": "k:1",
        "reason": "refused",
        "seconds": 60,
    }
    report = "SELECT tube_kafka_report(%s, 'w', %s)"
    conn.execute(report, [uuid4(), json.dumps([there | {"tube": "foreign"}])])
    assert checks(dsn, "Kafka") == []
    assert checks(dsn, "leaders of foreign"), "its partitions are told of, as nothing else tells of them"
    conn.execute(report, [uuid4(), json.dumps([there | {"tube": "queue"}])])
    said = one(dsn, "Kafka", Level.FAIL).finding
    assert said.endswith("no worker can be elected for partitions of: queue")
    assert checks(dsn, "leaders of queue") == []


def test_a_dead_broker_fails_once(dsn: str, conn: Conn, dead_broker: str) -> None:
    """Of the election and an outbox; and when workers have reported it, in their line alone."""
    conn.execute("SELECT tube_ensure_exists('queue'), outbox_ensure_exists('evt')")
    more = f'[kafka]\nbootstrap_servers = "{dead_broker}"\n[outbox.evt]\n'

    def dead() -> list[str]:
        found = (check for check in examine(configured(dsn, more)) if check.level is Level.FAIL)
        return [check.subject for check in found if dead_broker in check.finding]

    assert dead() == ["broker"]
    lost = {"use": "delivery", "bootstrap_servers": dead_broker, "reason": "refused", "seconds": 60}
    conn.execute("SELECT tube_kafka_report(%s, 'w', %s)", [uuid4(), json.dumps([lost | {"tube": "evt"}])])
    assert dead() == ["Kafka"]


def test_parked_documents(dsn: str, conn: Conn) -> None:
    terms.make_tube(conn)
    term = terms.acquire(conn)
    items = [{"seq": 1, "op": "U", "shard": 0, "id": str(n), "error": "no", "attempts": 5} for n in (7, 8)]
    conn.execute("SELECT tube_pods_park(%s, %s, %s, %s, %s)", (*term.args, json.dumps(items)))
    parked = one(dsn, "tube queue", Level.WARN)
    assert parked.finding == "2 documents parked, one of them: no"
    assert "pytube park list queue" in str(parked.remedy)


def test_a_sink_that_was_emptied_has_one_remedy(dsn: str, conn: Conn, tmp_path: Path) -> None:
    """What is found when the sink is opened follows from the loss, and its remedy would leave it as it is."""
    more = SECTION.replace("/dev/null", f"{tmp_path}/gone")
    terms.make_tube(conn)
    terms.acquire(conn)
    assert "see above" not in str(one(dsn, "sink of queue", Level.WARN, more).remedy)
    for held in ("mark", None):
        conn.execute("SELECT tube_sink_note('queue', %s)", [held])
    lost = one(dsn, "documents of queue", Level.FAIL, more)
    assert "pytube backfill start queue" in str(lost.remedy)
    assert str(one(dsn, "sink of queue", Level.WARN, more).remedy).startswith(
        "see above: documents of queue; if this is still said then: "
    )


def test_a_role_that_looks_on_sees_it(any_dsn: str) -> None:
    with roles(any_dsn, "looker") as admin:
        admin.execute("SET search_path = tube")
        admin.execute("GRANT tube_monitor TO looker")
        terms.make_tube(admin)
        touched(admin, "1 hour")
        one(as_role(any_dsn, "looker"), "leaders of queue", Level.FAIL)


class TestBrokers:
    MORE = '[worker]\nelection = "lease"\n[kafka]\nbootstrap_servers = "{}"\n[outbox.a]\n[outbox.b]\n'

    def test_under_leases(self, dsn: str, kafka_mock: str) -> None:
        more = self.MORE.format(kafka_mock)
        assert one(dsn, "broker of a, b", Level.OK, more).finding == (
            f"{kafka_mock} answers; topics of records were not looked at"
        )
        one(dsn, "election", Level.OK, more)

    def test_down(self, dsn: str, dead_broker: str) -> None:
        down = one(dsn, "broker of a, b", Level.FAIL, self.MORE.format(dead_broker))
        assert down.finding.startswith(f"{dead_broker} does not answer: ")

    def test_one_of_its_own_and_options(self, dsn: str, kafka_mock: str) -> None:
        more = self.MORE.format(kafka_mock) + '[outbox.c]\nkafka_options = { "no.such" = "hunter2" }\n'
        one(dsn, "broker of a, b", Level.OK, more)
        refused = one(dsn, "broker of c", Level.FAIL, more)
        assert refused.remedy == 'correct [outbox."c"]'
        assert "hunter2" not in repr(refused)
        assert checks(dsn, "worker", more) == [], "it was told once"


def test_a_cluster_is_asked_once(dsn: str, kafka_mock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    ask = AdminClient.list_topics

    def counted(self: AdminClient, *arguments: Any, **options: Any) -> Any:
        asked.append(self)
        return ask(self, *arguments, **options)

    monkeypatch.setattr(AdminClient, "list_topics", counted)
    more = f'[kafka]\nbootstrap_servers = "{kafka_mock}"\n[outbox.orders]\n[outbox.mail]\n'
    one(dsn, "broker", Level.OK, more)
    assert len(asked) == 1
    one(dsn, "broker of orders, mail", Level.OK, more)
    assert len(asked) == 2, "once by each doctor"
    more += f'[outbox.far]\nbootstrap_servers = "{kafka_mock}"\n'
    more += 'kafka_options = { "socket.timeout.ms" = 5000 }\n'
    one(dsn, "broker of far", Level.OK, more)
    assert len(asked) == 4, "with other options it is another cluster"


class TestStart:
    """What a worker refuses when it starts."""

    @pytest.fixture(params=["metrics", "tracing"])
    def missing(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
        module = {"metrics": "prometheus_client", "tracing": "opentelemetry"}[request.param]
        for name in [name for name in sys.modules if name.split(".")[0] == module]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.delitem(sys.modules, "pytube.worker.otel", raising=False)
        monkeypatch.setitem(sys.modules, module, None)
        return str(request.param)

    def test_a_package_is_missing(self, dsn: str, conn: Conn, missing: str) -> None:
        terms.make_tube(conn)
        more = {"metrics": 'listen = "127.0.0.1:0"', "tracing": "tracing = true"}[missing]
        refused = one(dsn, "worker", Level.FAIL, f"[worker]\n{more}\n{SECTION}")
        assert how_to_install(missing) in refused.finding

    def test_all_is_there(self, dsn: str, conn: Conn) -> None:
        terms.make_tube(conn)
        more = f'[worker]\nlisten = "127.0.0.1:9187"\ntracing = "http://127.0.0.1:1"\n{SECTION}'
        assert one(dsn, "worker", Level.OK, more).finding == (
            "can be made as configured: packages and options; whether 127.0.0.1:9187 is free was not tried"
        )

    def test_nothing_to_serve(self, dsn: str) -> None:
        one(dsn, "worker", Level.WARN, "")


def test_an_old_reading_role_is_told_so(dsn: str) -> None:
    """A role without rights on what is looked at reads no good news."""
    with roles(dsn, "guest") as admin:
        admin.execute("GRANT USAGE ON SCHEMA tube TO guest; GRANT SELECT ON tube.tube_version TO guest")
        admin.execute("GRANT EXECUTE ON FUNCTION tube.tube_list, tube.outbox_list TO guest")
        guest = psycopg.conninfo.make_conninfo(dsn, user="guest")
        finding = "were not looked at, as this role may not"
        assert one(guest, "leaders", Level.WARN).finding == finding
