"""`pytube install` and `uninstall`: the same files that psql runs, run without it."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from pytube.db import version
from pytube.db.connect import connect_sync
from pytube.db.install import ScriptError, contents, install, run_file, run_page, uninstall
from pytube.errors import ConfigError, DatabaseUnavailable, SchemaMismatch, TubesNotEmpty, UsageError
from pytube.tubes.admin import Tubes
from tests.helpers.logs import capture_logs

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]


def objects(dsn: str, schema: str) -> int:
    """How many tables and functions the schema holds."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace(%(s)s))"
            " + (SELECT count(*) FROM pg_proc WHERE pronamespace = to_regnamespace(%(s)s))",
            {"s": sql.Identifier(schema).as_string()},
        ).fetchone()
    assert row is not None
    count: int = row[0]
    return count


def test_install_on_every_server_twice_and_away(any_bare_dsn: str) -> None:
    install(any_bare_dsn)
    first = objects(any_bare_dsn, "tube")
    assert first > 50
    install(any_bare_dsn)
    assert objects(any_bare_dsn, "tube") == first
    with connect_sync(any_bare_dsn) as connection:
        version.check(connection, "tube")
    uninstall(any_bare_dsn)
    assert objects(any_bare_dsn, "tube") == 0


def test_how_far_it_is(bare_dsn: str) -> None:
    seen: list[tuple[int, int, str]] = []
    install(bare_dsn, progress=lambda *one: seen.append(one))
    files = contents("install.sql")
    assert seen == [(number, len(files), file) for number, file in enumerate(files)]


def test_two_schemas_side_by_side(bare_dsn: str) -> None:
    name = 'Other "one"'
    install(bare_dsn)
    install(bare_dsn, name)
    for schema in ("tube", name):
        with connect_sync(bare_dsn, schema) as connection:
            Tubes(connection, schema).create(f"of {schema}")
            assert [row.tube for row in Tubes(connection, schema).list()] == [f"of {schema}"]
    uninstall(bare_dsn, name)
    assert objects(bare_dsn, name) == 0
    assert objects(bare_dsn, "tube") > 50


def test_within_a_transaction_of_the_caller(bare_dsn: str) -> None:
    with connect_sync(bare_dsn) as connection:
        with connection.transaction(force_rollback=True):
            run_page(connection, contents("install.sql"), "tube")
            assert version.installed(connection, "tube") == version.needed()
        assert version.installed(connection, "tube") is None


def test_a_failed_install_leaves_nothing(bare_dsn: str) -> None:
    with psycopg.connect(bare_dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA tube; CREATE TABLE tube.mine ()")
    with pytest.raises(ScriptError, match=r"prepare\.sql: .*is not pytube's"):
        install(bare_dsn)
    assert objects(bare_dsn, "tube") == 1


def test_a_reserved_schema_is_refused(bare_dsn: str) -> None:
    with pytest.raises(ScriptError, match="can't be installed into the schema 'public'"):
        install(bare_dsn, "public")


def test_a_role_without_rights(bare_dsn: str) -> None:
    with psycopg.connect(bare_dsn, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS nobody_at_all")
        connection.execute("CREATE ROLE nobody_at_all LOGIN CREATEROLE")
    with pytest.raises(ScriptError, match=r"prepare\.sql: permission denied for database"):
        install(psycopg.conninfo.make_conninfo(bare_dsn, user="nobody_at_all"), roles="nobodys")
    with pytest.raises(ScriptError, match="roles can't be named after 'pg_x'"):
        install(bare_dsn, roles="pg_x")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files are run from."""
    monkeypatch.setattr("pytube.db.install.sql_dir", lambda: tmp_path)
    return tmp_path


def test_what_postgres_says_goes_to_the_log(bare_dsn: str, folder: Path) -> None:
    (folder / "x.sql").write_text("DO $$BEGIN RAISE NOTICE 'so it is'; RAISE WARNING 'beware'; END$$;")
    with connect_sync(bare_dsn) as connection, capture_logs() as told:
        run_file(connection, "x.sql", {})
    assert [(entry["log_level"], entry["event"], entry["text"]) for entry in told] == [
        ("info", "postgres_said", "so it is"),
        ("warning", "postgres_said", "beware"),
    ]


def test_a_failing_statement_is_named_by_file_and_line(bare_dsn: str, folder: Path) -> None:
    (folder / "x.sql").write_text("CREATE TABLE public.t ();\nSELECT :'é',\n  nothing\nFROM public.t;\n")
    (folder / "y.sql").write_text("DO $$BEGIN RAISE 'no'; END$$;")
    with connect_sync(bare_dsn) as connection:
        with pytest.raises(ScriptError, match=r'x\.sql:3: column "nothing" does not exist'):
            run_file(connection, "x.sql", {"é": "éé"})
        with pytest.raises(ScriptError, match=r"y\.sql: no$"):
            run_file(connection, "y.sql", {})
        assert connection.execute("SELECT to_regclass('public.t')").fetchone() == (None,)


class TestUninstall:
    def test_refused_while_pods_wait(self, dsn: str, conn: psycopg.Connection) -> None:
        Tubes(conn).create("busy")
        conn.execute("SELECT busy_touch(0, '{1,2}', 'T')")
        with pytest.raises(UsageError, match="busy"):
            uninstall(dsn)
        assert conn.execute("SELECT count(*) FROM busy").fetchone() == (1,)
        uninstall(dsn, force=True)
        assert objects(dsn, "tube") == 0

    def test_takes_triggers_away(self, dsn: str, conn: psycopg.Connection) -> None:
        conn.execute("CREATE TABLE public.t (id bigint PRIMARY KEY)")
        Tubes(conn).create("one")
        Tubes(conn).attach("one", "public.t", 1)
        with pytest.raises(TubesNotEmpty, match=r"tables are attached.*: public\.t \(Detach"):
            uninstall(dsn)
        uninstall(dsn, force=True)
        conn.execute("INSERT INTO public.t VALUES (1)")
        assert conn.execute("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal").fetchone() == (0,)
        assert conn.execute("SELECT count(*) FROM pg_proc WHERE proname ~ '_touch$'").fetchone() == (0,)

    def test_of_nothing(self, bare_dsn: str) -> None:
        with pytest.raises(UsageError, match="pytube is not installed in the schema 'tube'"):
            uninstall(bare_dsn)


class TestVersion:
    def test_missing(self, bare_dsn: str) -> None:
        with (
            connect_sync(bare_dsn) as connection,
            pytest.raises(SchemaMismatch, match="not installed in the schema 'tube'; run `pytube install`"),
        ):
            version.check(connection, "tube")

    def test_older(self, conn: psycopg.Connection) -> None:
        conn.execute("UPDATE tube_version SET version_num = '0000'")
        with pytest.raises(SchemaMismatch, match="of version 0000, and .* is needed; run `pytube install`"):
            version.check(conn, "tube")

    def test_newer(self, dsn: str, conn: psycopg.Connection) -> None:
        conn.execute("UPDATE tube_version SET version_num = '9999'")
        with pytest.raises(SchemaMismatch, match="of version 9999, newer than .* install a newer pytube"):
            version.check(conn, "tube")
        with pytest.raises(SchemaMismatch, match="newer"):
            install(dsn)


class TestConnecting:
    def test_nothing_listens(self) -> None:
        with pytest.raises(DatabaseUnavailable) as caught:
            install("postgresql://app:hunter2@127.0.0.1:1/app")
        assert "hunter2" not in str(caught.value)

    @pytest.mark.parametrize(
        "dsn", ["app hunter2", "postgresql://app:hunter@2@127.0.0.1:1/app", "pass=hunter2"]
    )
    def test_a_connection_string_that_is_none(self, dsn: str) -> None:
        with pytest.raises(ConfigError) as caught:
            connect_sync(dsn)
        assert "hunter" not in str(caught.value)

    def test_settings(self, bare_dsn: str) -> None:
        with connect_sync(bare_dsn) as connection:
            name = connection.info.dbname
            connection.execute(
                f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'".encode()
            )
        with connect_sync(
            bare_dsn, 'a"b', application_name="my BACKFILL job", lock_timeout=2.5
        ) as connection:
            row = connection.execute(
                "SELECT current_setting('search_path'), current_setting('application_name'),"
                " current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'),"
                " current_setting('transaction_isolation'), current_setting('jit')"
            ).fetchone()
        assert row == ('"a""b", "public"', "my back-fill job", "2500ms", "10s", "read committed", "off")

    def test_a_client_whose_machine_vanished_is_noticed(self, bare_dsn: str) -> None:
        with connect_sync(bare_dsn, "a") as connection:
            row = connection.execute(
                "SELECT current_setting('tcp_keepalives_idle'), current_setting('tcp_keepalives_interval'),"
                " current_setting('tcp_keepalives_count')"
            ).fetchone()
        assert row == ("10", "3", "3")
