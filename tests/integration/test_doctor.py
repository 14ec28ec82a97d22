"""What the doctor finds, and what it says to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from pytube.config import Config, parse
from pytube.health.doctor import Check, Level, examine
from tests.conftest import Connect
from tests.helpers.cli import run, run_json

pytestmark = pytest.mark.every_server

if TYPE_CHECKING:
    from pytube.embedded.kafka_real import RealKafka


def configured(dsn: str, more: str = "") -> Config:
    return parse(f'[postgres]\ndsn = "${{DSN}}"\n{more}', environment={"DSN": dsn})


def found(config: Config, subject: str, level: Level) -> list[Check]:
    return [check for check in examine(config) if check.subject == subject and check.level is level]


def one(config: Config, subject: str, level: Level) -> Check:
    checks = found(config, subject, level)
    assert len(checks) == 1, [c for c in examine(config) if c.subject == subject]
    return checks[0]


def test_all_is_well_on_every_server(any_dsn: str) -> None:
    checks = list(examine(configured(any_dsn)))
    assert [check for check in checks if check.level is Level.FAIL] == []
    subjects = {check.subject for check in checks}
    assert {"server", "SQL", "rights", "tube_seq", "connections", "pooler", "election"} <= subjects
    assert all(check.remedy for check in checks if check.level is not Level.OK)


def test_before_the_installation(bare_dsn: str) -> None:
    config = configured(bare_dsn)
    assert one(config, "SQL", Level.FAIL).remedy == "run `pytube install`"
    one(config, "rights", Level.OK)


def test_down() -> None:
    config = configured("postgresql://app:hunter2@127.0.0.1:1/app")
    check = one(config, "Postgres", Level.FAIL)
    assert "not available" in check.finding
    assert "hunter2" not in repr(check)


def test_rights(dsn: str, conn: psycopg.Connection) -> None:
    conn.execute("DROP ROLE IF EXISTS a_guest")
    conn.execute("CREATE ROLE a_guest LOGIN")
    guest = configured(psycopg.conninfo.make_conninfo(dsn, user="a_guest"))
    lacking = one(guest, "rights", Level.FAIL)
    assert lacking.finding == "a_guest may not do what a worker does"
    grants = re.findall("GRANT [^;]+", lacking.remedy or "")
    assert not any("ALL FUNCTIONS" in grant or "private" in grant for grant in grants), grants
    for grant in grants:
        conn.execute(grant)
    one(guest, "rights", Level.OK)


def test_sequence(dsn: str, conn: psycopg.Connection) -> None:
    conn.execute("ALTER SEQUENCE tube_seq CACHE 20")
    check = one(configured(dsn), "tube_seq", Level.FAIL)
    assert check.remedy is not None
    assert check.remedy.startswith('ALTER SEQUENCE "tube"."tube_seq" INCREMENT 1 CACHE 1')


def test_settings(dsn: str, conn: psycopg.Connection) -> None:
    row = conn.execute("SELECT current_database()").fetchone()
    assert row is not None
    conn.execute(f"ALTER DATABASE {row[0]} SET synchronous_commit = off")
    conn.execute(f"ALTER DATABASE {row[0]} SET idle_in_transaction_session_timeout = '5min'")
    config = configured(dsn)
    one(config, "synchronous_commit", Level.WARN)
    one(config, "idle transactions", Level.OK)


def test_old_transactions(dsn: str, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytube.health.doctor._OLD", 0.0)
    session = connect(autocommit=False, application_name="the forgotten one")
    session.execute("CREATE TABLE public.t ()")
    checks = found(configured(dsn), "transactions", Level.WARN)
    assert any("the forgotten one" in check.finding for check in checks)


def test_tubes_and_sinks(dsn: str, tmp_path: Path) -> None:
    more = f"""
        [tube.here.sink]
        type = "jsonl"
        path = "{tmp_path}/out"
        [tube.none.sink]
        type = "smoke-signals"
        [tube.bad.sink]
        type = "jsonl"
        path = "/nonexistent/folder/out"
    """
    run("tube", "create", "here", "--partitions", "3", dsn=dsn)
    config = configured(dsn, more)
    assert one(config, "tube here", Level.OK).finding == "3 partitions"
    assert one(config, "tube none", Level.FAIL).remedy == "pytube tube create none"
    one(config, "sink of here", Level.OK)
    assert "smoke-signals" in one(config, "sink of none", Level.FAIL).finding
    assert "/nonexistent/folder" in one(config, "sink of bad", Level.FAIL).finding


class TestBroker:
    MORE = '[kafka]\nbootstrap_servers = "{}"\n[tube.t.sink]\ntype = "jsonl"\npath = "/dev/null"\n'

    def test_down(self, dsn: str) -> None:
        check = one(configured(dsn, self.MORE.format("127.0.0.1:1")), "broker", Level.FAIL)
        assert "127.0.0.1:1 does not answer" in check.finding

    def test_a_bad_option(self, dsn: str) -> None:
        more = self.MORE.format("127.0.0.1:1").replace("[tube", 'options = { "no.such" = "hunter2" }\n[tube')
        check = one(configured(dsn, more), "broker", Level.FAIL)
        assert "refuses an option" in check.finding
        assert "hunter2" not in repr(check)

    def test_mock(self, dsn: str, kafka_mock: str) -> None:
        run("tube", "create", "t", dsn=dsn)
        one(configured(dsn, self.MORE.format(kafka_mock)), "broker", Level.OK)

    def test_real(self, dsn: str, kafka_real: RealKafka) -> None:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        run("tube", "create", "t", "--partitions", "2", dsn=dsn)
        more = f'[worker]\ninstallation = "{psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]}"\n'
        config = configured(dsn, more + self.MORE.format(kafka_real.bootstrap))
        topic = config.leader_topic("t")
        assert one(config, "topic of t", Level.OK).finding == f"{topic} is missing; a worker will give it 2"
        admin = AdminClient({"bootstrap.servers": kafka_real.bootstrap})
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result(10)
        finding = one(config, "topic of t", Level.OK).finding
        assert finding == f"{topic} has 1 partitions; a worker will give it 2"
        assert one(config, "session timeout", Level.OK).finding == "15 s"
        long = configured(
            dsn,
            "[worker]\nsession_timeout = 3600\n" + self.MORE.format(kafka_real.bootstrap),
        )
        assert "to 1800 s" in one(long, "session timeout", Level.FAIL).finding


class TestCommand:
    def test_exit_codes(self, dsn: str, bare_dsn: str) -> None:
        assert "ok   server: Postgres 18" in run("doctor", dsn=dsn).stdout
        failed = run("doctor", dsn=bare_dsn, code=1)
        assert "-> run `pytube install`" in failed.stdout
        assert "checks fail" in failed.stderr

    def test_json(self, dsn: str) -> None:
        checks = run_json("doctor", dsn=dsn)
        assert {"subject", "level", "finding", "remedy"} == set(checks[0])
