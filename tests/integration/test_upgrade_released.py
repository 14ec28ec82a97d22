"""An installation of an older version, with attached tables, pods and writers, is upgraded in place."""

from __future__ import annotations

import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pytube.db.install import install
from pytube.db.script import ScriptError
from tests.helpers.capture import Conn, open_session, ops, scalar, triggers
from tests.helpers.database import ROOT, TestServer, psql_file
from tests.helpers.roles import KINDS, as_role, database_name, roles
from tests.helpers.snapshot import dump
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.every_server

PAUSE = 0.01
"""Seconds between two statements of a writer: some hundreds are written while an upgrade goes on."""

RELEASED = ROOT / "tests" / "released"
TABLES = """
CREATE TYPE app.mood AS ENUM ('sad', 'ok');
CREATE TABLE app.item (id bigint PRIMARY KEY, value text, mood app.mood DEFAULT 'ok');
CREATE TABLE app.log (id bigint, day int, PRIMARY KEY (id, day)) PARTITION BY LIST (day);
CREATE TABLE app.log_1 PARTITION OF app.log FOR VALUES IN (1);
CREATE TABLE app.comment (id bigint PRIMARY KEY, item bigint);
"""


@pytest.fixture(scope="module", params=["0001", "0004"])
def released(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installation script of that version, in a folder of its name."""
    folder: Path = tmp_path_factory.mktemp("released") / request.param
    folder.mkdir()
    folder.parent.chmod(0o755)
    with tarfile.open(RELEASED / f"{request.param}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "sql" / "install.sql"


def set_up(admin: Conn, owner: str) -> None:
    """Tubes, tables of an owner's that follow them, and pods that wait."""
    admin.execute(f"CREATE SCHEMA app AUTHORIZATION {owner}".encode())
    admin.execute(f"SET ROLE {owner}".encode())
    admin.execute(TABLES.encode())
    admin.execute("RESET ROLE")
    admin.execute("SELECT tube_ensure_exists('plain', 4), tube_ensure_exists('moody', 2, 'mood = ''ok''')")
    for statement in (
        "tube_table_ensure_attached('plain', 'app.item', 0, 4)",
        "tube_table_ensure_attached('moody', 'app.item', 3)",
        "tube_table_ensure_attached('plain', 'app.log', 7)",
        "tube_table_ensure_attached('plain', 'app.comment', 0, 4, id_col => 'item')",
    ):
        admin.execute(f"SELECT {statement}".encode())
    admin.execute("INSERT INTO app.item VALUES (1, 'a'), (2, 'b')")


@contextmanager
def installed(
    any_server: TestServer, released: Path, *, superuser: bool = True
) -> Iterator[tuple[str, str, str, psycopg.Connection[Any]]]:
    """A database with that version; its DSN, the installing role's, the prefix of its roles, a superuser."""
    with any_server.database(installed=False) as dsn:
        name = database_name(dsn)
        keeper, ours = f"keeper_{name}", f"ours_{name}"
        with roles(dsn, f"{keeper} CREATEROLE", ours=ours) as admin:
            admin.execute(f"GRANT CREATE ON DATABASE {name} TO {keeper}".encode())
            by = dsn if superuser else as_role(dsn, keeper)
            psql_file(any_server.postgres, by, released, roles=ours)
            with open_session(by) as conn:
                if superuser:
                    set_up(conn, keeper)
                else:
                    conn.execute("CREATE SCHEMA app")
                    set_up_own(conn)
            try:
                yield dsn, by, ours, admin
            finally:
                remove(admin)


def remove(admin: psycopg.Connection[Any]) -> None:
    """Our schemas, and the application's; event triggers of version 0001 would look at what is dropped."""
    for (name,) in admin.execute("SELECT evtname FROM pg_event_trigger").fetchall():
        admin.execute(sql.SQL("DROP EVENT TRIGGER {}").format(sql.Identifier(name)))
    admin.execute("DROP SCHEMA IF EXISTS app, tube, tube_capture CASCADE")


def set_up_own(conn: Conn) -> None:
    conn.execute(TABLES.encode())
    conn.execute("SELECT tube_ensure_exists('plain', 4), tube_ensure_exists('moody', 2, 'mood = ''ok''')")
    conn.execute("SELECT tube_table_ensure_attached('plain', 'app.item', 0, 4)")
    conn.execute("SELECT tube_table_ensure_attached('moody', 'app.item', 3)")
    conn.execute("SELECT tube_table_ensure_attached('plain', 'app.log', 7)")
    conn.execute("INSERT INTO app.item VALUES (1, 'a'), (2, 'b')")


class Writers:
    """Three sessions that insert ids, each its own, until they are stopped; maybe one that truncates."""

    def __init__(self, dsn: str, *, truncates: bool) -> None:
        self._stop = threading.Event()
        self.written: list[int] = []
        self.truncated = 0
        self.failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._write, args=(dsn, n)) for n in range(3)]
        if truncates:
            self._threads.append(threading.Thread(target=self._truncate, args=(dsn,)))
        for thread in self._threads:
            thread.start()

    def _write(self, dsn: str, number: int) -> None:
        key = 1_000_000 * (number + 1)
        try:
            with psycopg.connect(dsn, autocommit=True) as conn:
                while not self._stop.wait(PAUSE):
                    key += 1
                    conn.execute("INSERT INTO app.item VALUES (%s, 'w')", [key])
                    self.written.append(key)
        except psycopg.Error as error:
            self.failures.append(error)

    def _truncate(self, dsn: str) -> None:
        try:
            with psycopg.connect(dsn, autocommit=True) as conn:
                while not self._stop.wait(PAUSE):
                    conn.execute("TRUNCATE app.log")
                    self.truncated += 1
        except psycopg.Error as error:
            self.failures.append(error)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert self.failures == []


@pytest.mark.parametrize("superuser", [True, False])
def test_tubes_that_hold_pods_lose_no_touch(any_server: TestServer, released: Path, superuser: bool) -> None:
    with installed(any_server, released, superuser=superuser) as (dsn, by, ours, admin):
        renewed = ("tube_stats()", "tube_leaders(text)")
        for function in renewed:
            keeper = f"keeper_{database_name(dsn)}"
            admin.execute(f"GRANT EXECUTE ON FUNCTION tube.{function} TO {keeper}".encode())
        with psycopg.connect(dsn, autocommit=True) as conn:
            before = conn.execute("SELECT oid FROM pg_trigger ORDER BY oid").fetchall()
        before_this = released.parent.parent.name
        # 0002 changes what a TRUNCATE of 0001 reads.
        writers = Writers(dsn, truncates=before_this > "0001")
        try:
            wait_until(lambda: len(writers.written) > 30, what="they write")
            said = install(by)
            so_far, emptied = len(writers.written), writers.truncated
            wait_until(lambda: len(writers.written) > so_far + 30, what="they go on")
            wait_until(lambda: writers.truncated > emptied or before_this == "0001", what="that one, too")
        finally:
            writers.stop()
        assert (
            f"upgraded: version 0006 (before: {before_this}) in the schema tube,"
            f" with the roles {ours}_admin" in said
        )
        with open_session(dsn) as conn:
            kept = "SELECT oid FROM pg_trigger WHERE tgname LIKE '%%after%%' ORDER BY oid"
            assert {row[0] for row in conn.execute(kept.encode()).fetchall()} <= {row[0] for row in before}
            expected = sorted([1, 2, *writers.written])
            assert sorted(key for _, key in ops(conn, "plain")) == expected
            assert sorted(key for _, key in ops(conn, "moody")) == expected
            owner = scalar(
                conn, "SELECT pg_get_userbyid(relowner)::text FROM pg_class WHERE relname = 'item'"
            )
            owners = conn.execute(
                "SELECT DISTINCT pg_get_userbyid(proowner)::text FROM pg_proc"
                " WHERE pronamespace = 'tube_capture'::regnamespace OR proname LIKE '%_touch'"
                " AND pronamespace = 'app'::regnamespace"
            ).fetchall()
            assert owners == [(owner,)]
            conn.execute("INSERT INTO app.log VALUES (7, 1)")
            conn.execute("UPDATE app.item SET mood = 'sad' WHERE id = 1")
            conn.execute("SELECT app.item_touch('{9}')")
            assert ops(conn, "plain") == [("I", 7), ("T", 9), ("U", 1)]
            assert ops(conn, "moody") == [("D", 1), ("T", 9)]
            assert scalar(conn, "SELECT tube_sync()") == 0
            assert scalar(conn, "SELECT max(shard_list) FROM tube_stats()")
            for function in renewed:
                kept = f"SELECT has_function_privilege('keeper_{conn.info.dbname}', '{function}', 'EXECUTE')"
                assert scalar(conn, kept), function
            left_over = conn.execute(
                "SELECT has_table_privilege(%s, 'app.item', 'SELECT'),"
                " has_table_privilege(%s, 'app.log_1', 'TRIGGER'), has_schema_privilege(%s, 'app', 'CREATE')",
                [f"{ours}_admin"] * 3,
            ).fetchone()
            assert left_over == (False, False, False)
            assert len(triggers(conn, "app.log_1")) == 4
        assert admin.execute(
            "SELECT count(*) FROM pg_proc WHERE proname = 'tube_sync_served'"
        ).fetchone() == (0,)


def test_another_database_of_the_server_was_upgraded_before(any_server: TestServer, released: Path) -> None:
    """The roles are those of both."""
    with (
        installed(any_server, released) as (_, by, ours, _),
        any_server.database(installed=False) as second,
    ):
        psql_file(any_server.postgres, second, released, roles=ours)
        assert "upgraded" in install(by, roles=ours)
        assert "upgraded" in install(second, roles=ours)
        with psycopg.connect(second, autocommit=True) as conn:
            remove(conn)


def test_what_is_ours_is_as_in_a_fresh_installation(any_server: TestServer, released: Path) -> None:
    with any_server.database(installed=False) as old, any_server.database(installed=False) as fresh:
        ours = f"ours_{database_name(old)}"
        with roles(old, ours=ours):
            psql_file(any_server.postgres, old, released, roles=ours)
            install(old)
            install(fresh, roles=ours)
            try:
                assert dump(any_server.postgres, old) == dump(any_server.postgres, fresh)
            finally:
                for dsn in (old, fresh):
                    with psycopg.connect(dsn, autocommit=True) as conn:
                        remove(conn)


def test_an_upgrade_by_who_owns_no_table_changes_nothing(any_server: TestServer, released: Path) -> None:
    """It says whose consent is missing; the installation goes on as it is."""
    with installed(any_server, released) as (dsn, _, ours, admin):
        name = database_name(dsn)
        with roles(dsn, f"other_{name} CREATEROLE"):
            for kind in KINDS:
                if kind not in ("owner", "nobody"):
                    admin.execute(f"GRANT {ours}_{kind} TO other_{name}".encode())
            with pytest.raises(ScriptError):
                install(as_role(dsn, f"other_{name}"), roles=ours)
        with open_session(dsn) as conn:
            conn.execute("INSERT INTO app.item VALUES (3, 'c')")
            assert scalar(conn, "SELECT version_num FROM tube_version") == released.parent.parent.name
            assert ops(conn, "plain") == [("I", 1), ("I", 2), ("I", 3)]
