"""Every way to the newest version ends in the same database, which is the one in the snapshot."""

from __future__ import annotations

import re

import psycopg
import pytest

from pytube.db.connect import connect_sync
from pytube.db.install import contents, install, run_page, upgrade
from pytube.db.migrate import migrate
from pytube.db.version import installed, migrations_dir, needed, sql_dir
from pytube.embedded.postgres import Postgres
from pytube.errors import SchemaMismatch
from pytube.tubes.admin import Tubes
from tests.conftest import Servers
from tests.helpers.database import INSTALL_SQL, psql_file
from tests.helpers.roles import roles
from tests.helpers.snapshot import SNAPSHOT, dump

NAMES = sorted(path.stem for path in (sql_dir() / "migrations").glob("*.sql"))
RENEW = "if this is meant, run: python -m tests.helpers.snapshot"


def test_each_sql_file_has_its_revision() -> None:
    revisions = sorted(path.stem for path in (migrations_dir() / "versions").glob("*.py"))
    assert revisions == NAMES
    assert needed() == NAMES[-1].split("_")[0]


def test_install_sql_runs_each_migration() -> None:
    assert [f"migrations/{name}.sql" for name in NAMES] == [
        file for file in contents("install.sql") if file.startswith("migrations/")
    ]
    assert re.findall(r"^\\set version (\S+)$", INSTALL_SQL.read_text(), re.MULTILINE) == [needed()]


def test_installed_is_the_snapshot(bare_dsn: str, postgres: Postgres) -> None:
    install(bare_dsn)
    assert dump(postgres, bare_dsn) == SNAPSHOT.read_text(), RENEW


def test_by_psql_it_is_the_same(bare_dsn: str, postgres: Postgres) -> None:
    psql_file(postgres, bare_dsn, INSTALL_SQL)
    psql_file(postgres, bare_dsn, INSTALL_SQL)
    assert dump(postgres, bare_dsn) == SNAPSHOT.read_text(), RENEW


def test_by_psql_and_without_it_is_the_same_whatever_the_names(servers: Servers, postgres: Postgres) -> None:
    schema, ours = """It's :"tube" $$""", """Its "ow'n" \\ :'roles'"""
    dumps = []
    for way in ("psql", "pytube"):
        with servers.get(18).database(installed=False) as dsn, roles(dsn, ours=ours):
            if way == "psql":
                psql_file(postgres, dsn, INSTALL_SQL, schema=schema, roles=ours)
            else:
                install(dsn, schema, ours)
            dumps.append(dump(postgres, dsn, schema))
    assert dumps[0] == dumps[1]
    assert dumps[0].count("CREATE FUNCTION") > 100


def test_by_alembic_it_is_the_same(bare_dsn: str, postgres: Postgres) -> None:
    upgrade(bare_dsn)
    upgrade(bare_dsn)
    assert dump(postgres, bare_dsn) == SNAPSHOT.read_text(), RENEW


@pytest.mark.parametrize("name", NAMES)
def test_from_each_version_it_is_the_same(bare_dsn: str, postgres: Postgres, name: str) -> None:
    revision = name.split("_", maxsplit=1)[0]
    with connect_sync(bare_dsn) as connection:
        files = contents("install.sql")
        until = files.index(f"migrations/{name}.sql")
        run_page(connection, files[: until + 1], "tube", migrate=migrate)
        assert installed(connection, "tube") == revision
    upgrade(bare_dsn)
    assert dump(postgres, bare_dsn) == SNAPSHOT.read_text(), RENEW


def test_an_upgrade_in_use_keeps_tubes_and_pods(dsn: str, conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE public.t (id bigint PRIMARY KEY)")
    Tubes(conn).create("one", 2)
    Tubes(conn).attach("one", "public.t", 1)
    conn.execute("INSERT INTO public.t VALUES (1)")
    upgrade(dsn)
    install(dsn)
    conn.execute("INSERT INTO public.t VALUES (2)")
    assert conn.execute("SELECT array_agg(ids ORDER BY seq) FROM one").fetchone() == ([[1], [2]],)


def test_a_failed_upgrade_changes_nothing(bare_dsn: str) -> None:
    install(bare_dsn)
    with psycopg.connect(bare_dsn, autocommit=True) as connection:
        connection.execute("UPDATE tube.tube_version SET version_num = '9999'")
        with pytest.raises(SchemaMismatch, match="install a newer pytube"):
            upgrade(bare_dsn)
        row = connection.execute("SELECT version_num FROM tube.tube_version").fetchone()
    assert row == ("9999",)
