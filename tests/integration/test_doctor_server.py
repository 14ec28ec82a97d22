"""What the doctor says of the server's disk, writers that wake nobody, partitions that nothing reaches."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from signal import SIGSTOP

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pytube.health.doctor import examine
from pytube.health.findings import Check, Level
from tests.helpers.capture import Conn, attach, make_item, make_tube, open_session, scalar
from tests.helpers.database import TestServer
from tests.helpers.roles import as_role, database_name, roles
from tests.helpers.waiting import wait_until
from tests.integration.test_doctor import configured

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]


def checks(dsn: str, subject: str, more: str = "") -> list[Check]:
    return [check for check in examine(configured(dsn, more)) if check.subject == subject]


def one(dsn: str, subject: str, level: Level) -> Check:
    (check,) = checks(dsn, subject)
    assert check.level is level, check
    return check


@pytest.fixture
def session(any_dsn: str) -> Iterator[Conn]:
    with open_session(any_dsn) as conn:
        yield conn


class TestSlots:
    @pytest.fixture
    def slot(self, session: Conn) -> Iterator[str]:
        """A slot that holds WAL from now on; nobody uses it."""
        session.execute("SELECT pg_create_physical_replication_slot('the_copy', true)")
        yield "the_copy"
        session.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
        session.execute("SELECT pg_reload_conf()")
        session.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")

    def fill(self, session: Conn) -> None:
        """Write more segments of WAL than `max_wal_size` allows."""
        for _ in range(10):
            session.execute("SELECT pg_logical_emit_message(false, 'x', 'x')")
            session.execute("SELECT pg_switch_wal()")

    def test_none(self, any_dsn: str) -> None:
        one(any_dsn, "replication slots", Level.OK)

    def test_one_that_nobody_uses(self, any_dsn: str, session: Conn, slot: str) -> None:
        self.fill(session)
        with roles(any_dsn, "looker IN ROLE tube_monitor"):
            for dsn in (any_dsn, as_role(any_dsn, "looker")):
                check = one(dsn, f"replication slot {slot}", Level.WARN)
                assert check.finding.startswith("it has no consumer, and retains 1")
                assert " MB of WAL, more with each write, until the disk is full" in check.finding
        check = one(any_dsn, f"replication slot {slot}", Level.WARN)
        session.execute(str(check.remedy).partition("as a superuser: ")[2].encode())
        one(any_dsn, "replication slots", Level.OK)

    def test_one_whose_consumer_is_behind(
        self, any_dsn: str, any_server: TestServer, session: Conn, slot: str, tmp_path: Path
    ) -> None:
        tmp_path.chmod(0o777)
        program = any_server.postgres.bin("pg_receivewal")
        with subprocess.Popen([program, "-d", any_dsn, "-S", slot, "-D", tmp_path]) as consumer:
            try:
                wait_until(
                    lambda: session.execute("SELECT active FROM pg_replication_slots").fetchone() == (True,),
                    what="the slot is used",
                )
                assert checks(any_dsn, "replication slots")[0].level is Level.OK
                consumer.send_signal(SIGSTOP)
                self.fill(session)
                check = one(any_dsn, f"replication slot {slot}", Level.WARN)
            finally:
                consumer.kill()
        assert check.finding.startswith("its consumer is behind, and it holds back 1")
        wait_until(
            lambda: session.execute("SELECT active FROM pg_replication_slots").fetchone() == (False,),
            what="the slot is free again",
        )

    def test_one_that_lost_its_wal(self, any_dsn: str, session: Conn, slot: str) -> None:
        session.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '16MB'")
        session.execute("SELECT pg_reload_conf()")
        self.fill(session)
        session.execute("CHECKPOINT")
        check = one(any_dsn, f"replication slot {slot}", Level.WARN)
        assert check.finding.startswith("lost WAL")
        assert str(check.remedy).endswith("drop the slot: SELECT pg_drop_replication_slot('the_copy')")


class TestReplicationRole:
    """With `session_replication_role` as replica, a role writes past the triggers."""

    @pytest.fixture
    def people(self, any_dsn: str, session: Conn) -> Iterator[Conn]:
        make_tube(session)
        make_item(session, "public.item")
        attach(session, "public.item", 0)
        with roles(any_dsn, "loader") as admin:
            yield admin

    def found(self, dsn: str) -> list[Check]:
        return checks(dsn, "replication role")

    def test_of_roles_and_of_all(self, any_dsn: str, people: Conn) -> None:
        database = database_name(any_dsn)
        assert self.found(any_dsn) == []
        for change, level, who in (
            ("ROLE loader", Level.WARN, "role loader"),
            (f"ROLE loader IN DATABASE {database}", Level.WARN, "role loader"),
            (f"DATABASE {database}", Level.FAIL, "all roles without their own setting"),
        ):
            people.execute(f"ALTER {change} SET session_replication_role = 'Replica'".encode())
            (check,) = self.found(any_dsn)
            assert check.level is level
            assert check.finding == (
                f"session_replication_role is replica for {who}: writes to tables attached without --replica "
                "are missed"
            )
            people.execute(str(check.remedy).partition("run: ")[2].partition(";")[0].encode())
            assert self.found(any_dsn) == []

    def test_tables_that_follow_replication_miss_nothing(
        self, any_dsn: str, session: Conn, people: Conn
    ) -> None:
        people.execute("ALTER ROLE loader SET session_replication_role = replica")
        assert len(self.found(any_dsn)) == 1
        session.execute("SELECT tube_table_ensure_attached('es-live', 'public.item', 0, replica => true)")
        assert self.found(any_dsn) == []


class TestTables:
    def test_a_table_that_was_dropped(self, any_dsn: str, session: Conn) -> None:
        """A new one of its name is another table."""
        make_tube(session)
        make_item(session, "public.item")
        attach(session, "public.item", 0)
        assert checks(any_dsn, "tables of es-live") == []
        session.execute("DROP TABLE public.item")
        session.execute("SELECT tube_sync()")
        make_item(session, "public.item")
        check = one(any_dsn, "tables of es-live", Level.WARN)
        assert check.finding.startswith("none is attached, so no write is captured")
        by_hand = """
            [tube."es-live".enrich]
            mode = "none"
            [tube."es-live".sink]
            type = "jsonl"
            path = "/dev/null"
        """
        assert checks(any_dsn, "tables of es-live", by_hand) == []


class TestBackfills:
    @pytest.fixture
    def begun(self, any_dsn: str, session: Conn) -> int:
        """The number of one that was begun, and that nobody works on."""
        make_tube(session)
        make_item(session, "public.item")
        attach(session, "public.item", 0)
        one(any_dsn, "backfills", Level.OK)
        return int(scalar(session, "SELECT tube_backfill_create('es-live', 'public.item')"))

    def test_nobody_works_on_it(self, any_dsn: str, session: Conn, begun: int) -> None:
        check = one(any_dsn, "backfill of public.item", Level.WARN)
        assert check.finding == "no process works on it, so not all rows are sent to es-live"
        assert str(check.remedy).endswith("pytube backfill resume es-live --table public.item")
        session.execute("SELECT tube_backfill_lock(%s)", [begun])
        one(any_dsn, "backfills", Level.OK)

    def test_it_is_paused(self, any_dsn: str, session: Conn, begun: int) -> None:
        session.execute("SELECT tube_backfill_command(%s, 'pause')", [begun])
        check = one(any_dsn, "backfill of public.item", Level.WARN)
        assert check.finding == "it is paused, so not all rows are sent to es-live"

    def test_it_failed(self, any_dsn: str, session: Conn, begun: int) -> None:
        """It read with the rights of a role that may not read the table."""
        with roles(any_dsn, "filler IN ROLE tube_worker"), open_session(as_role(any_dsn, "filler")) as filler:
            filler.execute("SELECT tube_backfill_lock(%s)", [begun])
            assert scalar(filler, "SELECT tube_backfill_collect(%s)", (begun,)) is None
        check = one(any_dsn, "backfill of public.item", Level.FAIL)
        assert check.finding == (
            "it failed, so documents of es-live may be missing or old: permission denied for table item"
        )
        assert check.remedy == "fix the cause, then: pytube backfill start es-live --table public.item"
        session.execute("SELECT tube_backfill_lock(tube_backfill_create('es-live', 'public.item'))")
        one(any_dsn, "backfills", Level.OK)


class TestWake:
    """The tests' servers allow prepared transactions: a worker sleeps if its role has `pytube.wake` on."""

    @pytest.fixture
    def people(self, any_dsn: str) -> Iterator[Conn]:
        with roles(
            any_dsn, "sleeper IN ROLE tube_worker", "writer", "silent", "looker IN ROLE tube_monitor"
        ) as admin:
            yield admin

    def dsn(self, any_dsn: str, role: str = "sleeper") -> str:
        return make_conninfo(as_role(any_dsn, role), options="-c pytube.wake=on")

    def test_off_for_a_role(self, any_dsn: str, people: Conn) -> None:
        one(self.dsn(any_dsn), "wake-ups", Level.OK)
        people.execute("ALTER ROLE writer SET pytube.wake = off")
        people.execute("ALTER ROLE silent SET pytube.wake = 'False'")
        people.execute("ALTER ROLE looker SET pytube.wake = 'yes'")
        for role in ("sleeper", "looker"):
            found = checks(self.dsn(any_dsn, role), "wake-ups")
            assert [(check.level, check.finding.partition(" wake")[0]) for check in found] == [
                (Level.WARN, "writes of role silent"),
                (Level.WARN, "writes of role writer"),
            ]
        for check in checks(self.dsn(any_dsn), "wake-ups"):
            people.execute(str(check.remedy).partition("run: ")[2].partition(";")[0].encode())
        one(self.dsn(any_dsn), "wake-ups", Level.OK)

    def test_off_where_a_setting_is_nearer(self, any_dsn: str, people: Conn) -> None:
        name = database_name(any_dsn)
        people.execute("ALTER ROLE writer SET pytube.wake = off")
        people.execute(f"ALTER ROLE writer IN DATABASE {name} SET pytube.wake = on".encode())
        one(self.dsn(any_dsn), "wake-ups", Level.OK)
        people.execute(f"ALTER ROLE writer IN DATABASE {name} SET pytube.wake = off".encode())
        check = one(self.dsn(any_dsn), "wake-ups", Level.WARN)
        assert f'run: ALTER ROLE "writer" IN DATABASE "{name}" RESET pytube.wake;' in str(check.remedy)
        people.execute("ALTER ROLE writer IN DATABASE postgres SET pytube.wake = off")
        people.execute(f"ALTER ROLE writer IN DATABASE {name} RESET pytube.wake".encode())
        people.execute("ALTER ROLE writer RESET pytube.wake")
        one(self.dsn(any_dsn), "wake-ups", Level.OK)

    def test_off_for_the_database(self, any_dsn: str, people: Conn) -> None:
        """Workers poll then, unless it is on for theirs."""
        name = database_name(any_dsn)
        people.execute(f"ALTER DATABASE {name} SET pytube.wake = off".encode())
        one(as_role(any_dsn, "sleeper"), "wake-ups", Level.OK)
        check = one(self.dsn(any_dsn), "wake-ups", Level.WARN)
        assert f"roles of database {name} without their own setting" in check.finding
        people.execute(str(check.remedy).partition("run: ")[2].partition(";")[0].encode())
        one(self.dsn(any_dsn), "wake-ups", Level.OK)


class TestPartitions:
    def test_one_that_no_shard_reaches(self, any_dsn: str, session: Conn) -> None:
        make_tube(session, "t", 2)
        one(any_dsn, "partitions", Level.OK)
        make_item(session, "public.item")
        attach(session, "public.item", 0, tube="t")
        with roles(any_dsn, "looker IN ROLE tube_monitor"):
            for dsn in (any_dsn, as_role(any_dsn, "looker")):
                check = one(dsn, "partitions of t", Level.WARN)
                assert check.finding.startswith(
                    "no shard of its tables maps to partition 1 of 2, so no pods arrive there"
                )
        check = one(any_dsn, "partitions of t", Level.WARN)
        assert "pytube tube create t --partitions 1;" in str(check.remedy)
        make_item(session, "public.other")
        attach(session, "public.other", 7, tube="t")
        one(any_dsn, "partitions", Level.OK)

    def test_a_tube_that_is_not_named(self, any_dsn: str, session: Conn) -> None:
        make_tube(session, "t", 8)
        make_item(session, "public.item")
        attach(session, "public.item", 9, tube="t")
        more = '[tube.other.sink]\ntype = "jsonl"\npath = "/dev/null"\n'
        (check,) = checks(any_dsn, "partitions of t", more)
        assert "partitions 0, 2 to 7 of 8" in check.finding
        assert check.finding.endswith("(this configuration does not name it)")


def test_what_a_role_can_not_see_is_said(any_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytube.health.server._OLD", 0.0)
    with (
        roles(any_dsn, "looker IN ROLE tube_monitor") as admin,
        psycopg.connect(any_dsn, application_name="the forgotten one") as forgotten,
    ):
        forgotten.execute("CREATE TABLE public.late ()")
        looker = as_role(any_dsn, "looker")
        check = one(looker, "transactions", Level.OK)
        assert check.finding.startswith("none of this role's that wrote is open")
        assert "others are hidden from it" in check.finding
        used = int(one(looker, "connections", Level.OK).finding.split()[0])
        assert used >= 3
        admin.execute(check.finding.partition("(")[2].partition(" shows")[0].encode())
        found = checks(looker, "transactions")
        assert any("the forgotten one" in check.finding for check in found)
