"""`CREATE EXTENSION pytube`: the same as an installation by psql; dumps, updates, and drops."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest

from pytube import __version__
from pytube.config import parse
from pytube.db.install import install, uninstall
from pytube.errors import PytubeError, TubesNotEmpty
from pytube.events import Event, LeaderFenced
from pytube.health.doctor import examine
from pytube.health.findings import Level
from pytube.worker import Worker
from tests.extension.conftest import SQL, ExtensionServer, make_install
from tests.extension.facts import content, objects, wrong_members
from tests.helpers.capture import (
    TABLE,
    Conn,
    attach,
    make_tube,
    open_session,
    ops,
    pods,
    scalar,
    set_up,
    take,
)
from tests.helpers.database import INSTALL_SQL, ROOT, copy, psql_file
from tests.helpers.roles import as_role, database_name, roles
from tests.helpers.waiting import wait_until_async

pytestmark = pytest.mark.every_server

CREATE = "CREATE SCHEMA tube; CREATE EXTENSION pytube SCHEMA tube"
WORKER = """
[postgres]
dsn = "${DSN}"
[worker]
election = "lease"
[tube.es-live.sink]
type = "jsonl"
path = "${SINK}"
"""


def created(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(CREATE)


def in_use(dsn: str) -> None:
    """The extension, and something in each kind of table that a restore has to bring back."""
    created(dsn)
    with open_session(dsn) as conn:
        set_up(conn, predicate="id > 0", shards=4)
        conn.execute("SELECT outbox_ensure_exists('box')")
        conn.execute("CREATE TABLE public.log (id int, day int) PARTITION BY LIST (day)")
        conn.execute("CREATE TABLE public.log_1 PARTITION OF log FOR VALUES IN (1)")
        make_tube(conn, "other")
        attach(conn, "public.log", 7, tube="other")
        conn.execute(f"INSERT INTO {TABLE} VALUES (1), (2), (-1)")
        conn.execute("SELECT outbox_stash('box', 'topic', 'key', 'value')")
        conn.execute("SELECT tube_pause('other')")
        conn.execute("INSERT INTO tube_sleeper VALUES ('es-live', 0, 4)")
        conn.execute(
            "INSERT INTO tube_parked (tube, shard, id, op, seq, error, attempts, epoch)"
            " VALUES ('other', 7, '1', 'U', 1, 'no', 1, 1)"
        )


def refused(conn: Conn, statement: str) -> str:
    with pytest.raises(psycopg.Error) as raised:
        conn.execute(statement.encode())
    diag = raised.value.diag
    return f"{diag.message_primary} {diag.message_detail} {diag.message_hint}"


def owners_and_rights(conn: Conn) -> list[tuple[object, ...]]:
    """All objects without definitions: a function that is made again has the present number of its table."""
    return [(kind, name, owner, rights) for kind, name, _, owner, rights, _ in objects(conn)]


def test_it_is_the_same_as_by_psql(extended: ExtensionServer) -> None:
    server = extended.server
    with server.database(installed=True) as by_psql, server.database(installed=False, prepare=created) as dsn:
        with open_session(by_psql) as one, open_session(dsn) as other:
            assert objects(other) == objects(one)
            set_up(other)
            assert wrong_members(other) == []
        checks = list(examine(parse('[postgres]\ndsn = "${DSN}"', environment={"DSN": dsn})))
        assert [check for check in checks if check.level is Level.FAIL] == []


@pytest.mark.parametrize("options", [[], ["-Fc"]], ids=["script", "archive"])
def test_a_dump_brings_it_back(extended: ExtensionServer, options: list[str]) -> None:
    server = extended.server
    with (
        server.database(installed=False, prepare=in_use) as source,
        server.database(installed=False) as target,
    ):
        copy(server.postgres, source, target, *options)
        with open_session(source) as old, open_session(target) as new:
            assert objects(new) == objects(old)
            assert content(new) == content(old)
            assert scalar(new, "SELECT count(*) FROM tube_installation") == 1
            assert ops(new) == [("I", 1), ("I", 2)]
            new.execute(f"INSERT INTO {TABLE} VALUES (3), (-3)")
            new.execute("INSERT INTO log VALUES (9, 1); SELECT item_touch('{5}')")
            assert ops(new) == [("I", 3), ("T", 5)]
            new.execute("SELECT tube_sync()")
            new.execute("CREATE TABLE public.log_2 PARTITION OF log FOR VALUES IN (2)")
            new.execute("INSERT INTO log_2 VALUES (10, 2)")
            assert ops(new, "other") == [("I", 9), ("I", 10)]
            make_tube(new, "third")
            new.execute("SELECT tube_pause('third')")


def test_a_restore_without_owners_is_mended(extended: ExtensionServer) -> None:
    server = extended.server
    with (
        server.database(installed=False, prepare=in_use) as source,
        server.database(installed=False) as target,
    ):
        copy(server.postgres, source, target, "--no-owner")
        with open_session(source) as old, open_session(target) as new:
            before = owners_and_rights(old)
            assert owners_and_rights(new) != before
            new.execute("ALTER EXTENSION pytube UPDATE TO 'any'; ALTER EXTENSION pytube UPDATE")
            assert owners_and_rights(new) == before
            assert wrong_members(new) == []


def test_an_update_runs_the_migrations(extended: ExtensionServer, tmp_path: Path) -> None:
    server, made_up = extended.server, tmp_path / "sql"
    next_version(made_up)
    with (
        server.database(installed=False, prepare=in_use) as dsn,
        server.database(installed=False) as target,
        open_session(dsn) as conn,
    ):
        identity = scalar(conn, "SELECT installation FROM tube_installation")
        try:
            make_install(made_up, extended.variable)
            conn.execute("ALTER EXTENSION pytube UPDATE")
            assert scalar(conn, "SELECT extversion FROM pg_extension WHERE extname = 'pytube'") == "99.0.0"
            assert conn.execute("SELECT version_num FROM tube_version").fetchall() == [("9999",)]
            assert scalar(conn, "SELECT installation FROM tube_installation") == identity
            assert scalar(conn, "SELECT tube_private_news()") == "tube_owner"
            assert wrong_members(conn) == []
            made_again = "SELECT count(*) FROM pg_proc WHERE prosrc LIKE '%, made once more.%'"
            assert scalar(conn, made_again + " AND pronamespace = 'tube_capture'::regnamespace") == 2
            assert ops(conn) == [("I", 1), ("I", 2)]
            conn.execute(f"INSERT INTO {TABLE} VALUES (3), (-3); INSERT INTO tube_more VALUES (1)")
            assert pods(conn) != []
            copy(server.postgres, dsn, target)
            with open_session(target) as new:
                assert objects(new) == objects(conn)
                assert content(new) == content(conn)
        finally:
            make_install(SQL, extended.variable)


def next_version(folder: Path) -> None:
    """A copy of our SQL with a migration, a new function, and other generated functions."""
    shutil.copytree(SQL, folder)

    def edit(file: str, old: str, new: str) -> None:
        text = (folder / file).read_text()
        assert text.count(old) == 1
        (folder / file).write_text(text.replace(old, new))

    edit("pytube.control", f"'{__version__}'", "'99.0.0'")
    edit("Makefile", "BEFORE :=", f"BEFORE := {__version__}")
    number = re.findall(r"^\\set version (\d+)$", (SQL / "install.sql").read_text(), re.MULTILINE)[0]
    edit("install.sql", f"\\set version {number}", "\\set version 9999")
    edit("install.sql", "\\ir tubes/shared.sql", "\\ir migrations/9999_more.sql\n\\ir tubes/shared.sql")
    (folder / "migrations/9999_more.sql").write_text(
        'CREATE TABLE :"schema".tube_more (id int PRIMARY KEY);\n'
    )
    edit(
        "capture/body.sql",
        "-- Made by tube_private_capture_body.",
        "-- Made by tube_private_capture_body, made once more.",
    )
    with (folder / "operators/audit.sql").open("a") as file:
        file.write(
            'CREATE OR REPLACE FUNCTION :"schema".tube_private_news() RETURNS name'
            " LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog AS $$ SELECT current_user $$;\n"
        )


def test_a_drop_refuses_while_there_are_tubes(extended: ExtensionServer) -> None:
    server = extended.server
    with server.database(installed=False, prepare=in_use) as dsn, open_session(dsn) as conn:
        assert "other objects depend on it" in refused(conn, "DROP EXTENSION pytube")
        with pytest.raises(TubesNotEmpty, match="tables are attached"):
            uninstall(dsn)
        uninstall(dsn, force=True)
        left = {name for kind, name, *_ in objects(conn) if kind not in ("i", "constraint")}
        assert left == {"item", "log", "log_1"}


def test_a_drop_that_cascades_leaves_no_triggers(extended: ExtensionServer) -> None:
    server = extended.server
    with server.database(installed=False, prepare=in_use) as dsn, open_session(dsn) as conn:
        conn.execute("DROP EXTENSION pytube CASCADE")
        conn.execute(f"INSERT INTO {TABLE} VALUES (3)")
        assert [row for row in objects(conn) if "trigger" in row[0]] == []
        assert scalar(conn, 'SELECT count(*) FROM "es-live"') == 2
        conn.execute("DROP SCHEMA tube CASCADE; CREATE SCHEMA tube; CREATE EXTENSION pytube SCHEMA tube")


def test_it_is_not_mixed_with_an_installation_by_psql(extended: ExtensionServer) -> None:
    server = extended.server
    with server.database(installed=True) as dsn, open_session(dsn) as conn:
        before = objects(conn)
        assert "not made by CREATE EXTENSION" in refused(conn, "CREATE EXTENSION pytube SCHEMA tube")
        assert objects(conn) == before
    with server.database(installed=False, prepare=created) as dsn, open_session(dsn) as conn:
        before = objects(conn)
        with pytest.raises(PytubeError, match="run: ALTER EXTENSION pytube UPDATE"):
            install(dsn)
        assert objects(conn) == before


def test_beside_an_installation_by_psql(extended: ExtensionServer) -> None:
    server, other = extended.server, 'The "other"'
    with server.database(installed=False, prepare=created) as dsn, roles(dsn, ours=other):
        psql_file(server.postgres, dsn, INSTALL_SQL, schema=other)
        with open_session(dsn) as conn:
            set_up(conn)
            conn.execute("""SET search_path = "The ""other""\"""")
            conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY)")
            conn.execute("SELECT tube_ensure_exists('q')")
            conn.execute("SELECT tube_table_ensure_attached('q', 'public.goods', 1)")
            conn.execute("INSERT INTO public.item VALUES (1); INSERT INTO public.goods VALUES (2)")
            assert take(conn) == [("I", 0, 1)]
            conn.execute("SELECT tube.tube_ensure_absent('es-live'); DROP EXTENSION pytube")
            conn.execute("INSERT INTO public.goods VALUES (3)")
            assert scalar(conn, "SELECT count(*) FROM q") == 2
            assert (
                scalar(conn, "SELECT count(*) FROM pg_init_privs WHERE privtype = 'e' AND objoid >= 16384")
                == 0
            )


def test_without_superuser(extended: ExtensionServer) -> None:
    """Whoever could make functions in the schema meanwhile could have them run by superusers."""
    with extended.server.database(installed=False) as dsn:
        name = database_name(dsn)
        with roles(dsn, f"app_{name}", ours="Shop 7") as admin:
            admin.execute(f"GRANT CREATE ON DATABASE {name} TO app_{name}".encode())
            with psycopg.connect(as_role(dsn, f"app_{name}"), autocommit=True) as app:
                app.execute("CREATE SCHEMA own")
                assert f"belongs to app_{name}" in refused(app, "CREATE EXTENSION pytube SCHEMA own")
                assert "needs a separate schema" in refused(app, "CREATE EXTENSION pytube")
                admin.execute('CREATE SCHEMA "Shop 7"')
                admin.execute(f'GRANT ALL ON SCHEMA "Shop 7" TO app_{name}'.encode())
                create = 'CREATE EXTENSION pytube SCHEMA "Shop 7"'
                assert f'create in the schema "Shop 7": app_{name}' in refused(app, create)
                admin.execute(f'REVOKE CREATE ON SCHEMA "Shop 7" FROM app_{name}'.encode())
                app.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                assert "this runs at READ COMMITTED only" in refused(app, create)
                app.execute("ROLLBACK")
                app.execute(create)
                owners = "SELECT DISTINCT proowner::regrole::text FROM pg_proc WHERE oid >= 16384"
                assert admin.execute(owners).fetchall() == [('"Shop 7_owner"',)]
                app.execute("DROP EXTENSION pytube")
                there = (
                    "SELECT count(*) FROM pg_roles WHERE starts_with(rolname, 'Shop 7_') AND NOT rolcanlogin"
                )
                assert scalar(admin, there) == 5


def test_an_update_without_superuser(extended: ExtensionServer) -> None:
    with extended.server.database(installed=False) as dsn:
        name = database_name(dsn)
        with roles(dsn, f"app_{name}", ours="Shop 7") as admin:
            admin.execute(f'GRANT CREATE ON DATABASE {name} TO app_{name}; CREATE SCHEMA "Shop 7"'.encode())
            with psycopg.connect(as_role(dsn, f"app_{name}"), autocommit=True) as app:
                app.execute('CREATE EXTENSION pytube SCHEMA "Shop 7"')
                admin.execute(f'GRANT "Shop 7_admin" TO app_{name}'.encode())
                app.execute('CREATE SCHEMA own; SET search_path = "Shop 7"')
                app.execute("CREATE TABLE own.item (id bigint PRIMARY KEY)")
                app.execute("SELECT tube_ensure_exists('es-live', 1, 'id > 0')")
                app.execute("SELECT tube_table_ensure_attached('es-live', 'own.item', 0)")
                before = owners_and_rights(admin)
                app.execute("ALTER EXTENSION pytube UPDATE TO 'any'; ALTER EXTENSION pytube UPDATE")
                assert owners_and_rights(admin) == before
                app.execute("INSERT INTO own.item VALUES (1), (-1)")
                touched = app.execute('SELECT op, ids FROM "Shop 7"."es-live"').fetchall()
                assert touched == [("I", [1])]


async def test_a_worker_goes_on_after_a_restore_and_an_update(
    extended: ExtensionServer, tmp_path: Path
) -> None:
    server, sink, events = extended.server, tmp_path / "sink.jsonl", list[Event]()
    with (
        server.database(installed=False, prepare=in_use) as source,
        server.database(installed=False) as target,
    ):
        copy(server.postgres, source, target)
        worker = Worker(parse(WORKER, environment={"DSN": target, "SINK": str(sink)}), on_event=events.append)
        await worker.start()
        try:
            await wait_until_async(lambda: delivered(sink) == {1, 2}, what="what was dumped is delivered")
            with open_session(target) as conn:
                asleep = "SELECT count(*) FROM tube_sleeper WHERE tube = 'es-live'"
                await wait_until_async(lambda: scalar(conn, asleep) == 4, what="all partitions sleep")
                conn.execute("ALTER EXTENSION pytube UPDATE TO 'any'; ALTER EXTENSION pytube UPDATE")
                conn.execute(f"INSERT INTO {TABLE} VALUES (3), (-3)")
            await wait_until_async(lambda: delivered(sink) == {1, 2, 3}, what="and what comes later")
        finally:
            await worker.stop()
        assert [event for event in events if isinstance(event, LeaderFenced)] == []


def delivered(sink: Path) -> set[int]:
    """The ids of the documents in a file."""
    return {int(json.loads(line)["id"]) for line in sink.read_text().splitlines()} if sink.exists() else set()


def test_its_versions_are_the_projects() -> None:
    control = (SQL / "pytube.control").read_text()
    meta = json.loads((SQL / "META.json").read_text())
    assert f"default_version = '{__version__}'\n" in control
    assert meta["version"] == meta["provides"]["pytube"]["version"] == __version__
    (before,) = re.findall(r"^BEFORE :=(.*)$", (SQL / "Makefile").read_text(), re.MULTILINE)
    released = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sorted(before.split()) == sorted({*released} - {__version__})


def test_without_pg_config_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        ["make", "-C", str(SQL), "install", f"PG_CONFIG={tmp_path}/none"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "does not run: give PG_CONFIG=" in done.stderr
