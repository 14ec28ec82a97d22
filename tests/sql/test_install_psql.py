"""`sql/install.sql` and `sql/uninstall.sql` by real psql, on every version."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pytube.db.version import needed
from pytube.embedded.postgres import Postgres
from tests.helpers.capture import (
    TABLE,
    Conn,
    attach,
    make_tube,
    open_session,
    scalar,
    set_up,
    take,
    triggers,
)
from tests.helpers.database import INSTALL_SQL, ROOT, TestServer, psql_file
from tests.helpers.roles import as_role, database_name, roles

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]

UNINSTALL_SQL = ROOT / "sql" / "uninstall.sql"


def fails(postgres: Postgres, dsn: str, file: Path, **variables: str) -> str:
    """Run `file`, which has to fail; what psql said."""
    command = [str(postgres.bin("psql")), "-X", "-q", "-d", dsn, "-f", str(file)]
    for name, value in variables.items():
        command += ["-v", f"{name}={value}"]
    done = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 3, done.stdout
    return done.stdout


def all_objects(dsn: str) -> list[Any]:
    """Whatever could be left behind anywhere in the database."""
    with psycopg.connect(dsn) as conn:
        return conn.execute(
            "SELECT 'schema', nspname::text FROM pg_namespace"
            " WHERE nspname NOT LIKE 'pg\\_temp%' AND nspname NOT LIKE 'pg\\_toast\\_temp%'"
            " UNION ALL SELECT 'relation', oid::regclass::text FROM pg_class"
            "  WHERE oid >= 16384 AND relkind <> 't' AND relnamespace <> 'pg_toast'::regnamespace"
            " UNION ALL SELECT 'function', oid::regprocedure::text FROM pg_proc WHERE oid >= 16384"
            " UNION ALL SELECT 'trigger', tgname::text FROM pg_trigger WHERE NOT tgisinternal"
            " UNION ALL SELECT 'type', oid::regtype::text FROM pg_type WHERE oid >= 16384 ORDER BY 1, 2"
        ).fetchall()


def test_twice_in_a_row(any_server: TestServer, any_bare_dsn: str) -> None:
    psql_file(any_server.postgres, any_bare_dsn, INSTALL_SQL)
    before = all_objects(any_bare_dsn)
    with open_session(any_bare_dsn) as conn:
        set_up(conn)
    with_tube = all_objects(any_bare_dsn)
    psql_file(any_server.postgres, any_bare_dsn, INSTALL_SQL)
    assert all_objects(any_bare_dsn) == with_tube
    assert len(with_tube) > len(before) > 50
    with open_session(any_bare_dsn) as conn:
        assert conn.execute("SELECT version_num FROM tube.tube_version").fetchall() == [(needed(),)]
        conn.execute(f"INSERT INTO {TABLE} VALUES (1)")
        assert take(conn) == [("I", 0, 1)]


def test_inside_a_callers_transaction(any_server: TestServer, any_bare_dsn: str, tmp_path: Path) -> None:
    before = all_objects(any_bare_dsn)
    script = tmp_path / "caller.sql"
    script.write_text(
        f"BEGIN;\n\\i {INSTALL_SQL}\n"
        "SELECT count(*) = 0 AS absent FROM pg_namespace WHERE nspname = 'other' \\gset\n"
        "\\if :absent\n\\echo MISSING\n\\endif\n"
        f"\\i {INSTALL_SQL}\nROLLBACK;\n"
    )
    out = psql_file(any_server.postgres, any_bare_dsn, script, schema="other")
    assert "MISSING" not in out
    assert all_objects(any_bare_dsn) == before


def said(postgres: Postgres, dsn: str, *arguments: str) -> list[str]:
    """All that psql printed, lines."""
    command = [str(postgres.bin("psql")), "-X", "-d", dsn, *arguments]
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.stdout.splitlines()


def test_it_says_what_is_installed_and_no_more(postgres: Postgres, bare_dsn: str) -> None:
    names = "tube_admin, tube_worker, tube_writer and tube_monitor"
    facts = [
        f"installed: version {needed()} in the schema tube, with the roles {names}",
        "event triggers: made; workers follow changes of attached tables at once",
    ]
    assert said(postgres, bare_dsn, "-f", str(INSTALL_SQL)) == facts
    assert said(postgres, bare_dsn, "-f", str(INSTALL_SQL)) == facts
    assert said(postgres, bare_dsn, "-q", "-f", str(INSTALL_SQL)) == []
    assert said(postgres, bare_dsn, "-f", str(UNINSTALL_SQL)) == ["uninstalled from the schema tube"]


def test_without_the_right_to_make_event_triggers_it_says_so(postgres: Postgres, bare_dsn: str) -> None:
    name = database_name(bare_dsn)
    with roles(bare_dsn, f"app_{name} CREATEROLE", ours=f"ours_{name}") as admin:
        admin.execute(f"GRANT CREATE ON DATABASE {name} TO app_{name}".encode())
        own = as_role(bare_dsn, f"app_{name}")
        facts = said(postgres, own, "-v", f"roles=ours_{name}", "-f", str(INSTALL_SQL))
        assert f"in the schema tube, with the roles ours_{name}_admin, " in facts[-2]
        assert facts[-1].startswith(f"event triggers: none, as app_{name} may not make any; ")
        psql_file(postgres, own, UNINSTALL_SQL)


def test_psql_is_left_as_it_was(postgres: Postgres, bare_dsn: str, tmp_path: Path) -> None:
    script = tmp_path / "caller.sql"
    script.write_text(
        "SET search_path = one, two;\n\\set ON_ERROR_STOP off\n"
        f"\\i {INSTALL_SQL}\n\\set schema other\n\\i {INSTALL_SQL}\n"
        "SHOW search_path;\nnonsense;\n\\echo :QUIET :ON_ERROR_STOP :roles.\n"
        f"\\i {UNINSTALL_SQL}\n"
    )
    with roles(bare_dsn, ours="other"):
        printed = said(postgres, bare_dsn, "-A", "-t", "-f", str(script))
    assert printed[0] == "SET"
    assert [line.split(",")[0] for line in printed if line.startswith("installed")] == [
        f"installed: version {needed()} in the schema tube",
        f"installed: version {needed()} in the schema other",
    ]
    assert "one, two" in printed
    assert any("nonsense" in line for line in printed)
    assert printed[-2:] == ["off off .", "uninstalled from the schema other"]


def test_a_schema_with_a_strange_name(any_server: TestServer, any_bare_dsn: str) -> None:
    before = all_objects(any_bare_dsn)
    name = 'Tube\'s "own" schema'
    psql_file(any_server.postgres, any_bare_dsn, INSTALL_SQL, schema=name)
    with psycopg.connect(any_bare_dsn, autocommit=True) as conn:
        conn.execute("CREATE TABLE public.t (id int PRIMARY KEY)")
        own = sql.Identifier(name)
        conn.execute(sql.SQL("SELECT {}.tube_ensure_exists('q', 2, 'id > 0')").format(own))
        conn.execute(sql.SQL("SELECT {}.tube_table_ensure_attached('q', 'public.t', 3)").format(own))
        conn.execute("INSERT INTO public.t VALUES (1), (-1)")
        assert conn.execute(sql.SQL("SELECT ids FROM {}.q").format(own)).fetchall() == [([1],)]
        conn.execute("DROP TABLE public.t")
    psql_file(any_server.postgres, any_bare_dsn, UNINSTALL_SQL, schema=name, force="1")
    assert all_objects(any_bare_dsn) == before


@pytest.mark.parametrize("schema", ["public", "pg_tube", "information_schema", "", "x" * 64])
def test_schemas_that_cannot_be_ours(postgres: Postgres, bare_dsn: str, schema: str) -> None:
    before = all_objects(bare_dsn)
    assert "can't be installed into the schema" in fails(postgres, bare_dsn, INSTALL_SQL, schema=schema)
    assert all_objects(bare_dsn) == before


def test_a_schema_of_somebody_else(postgres: Postgres, bare_dsn: str) -> None:
    with psycopg.connect(bare_dsn) as conn:
        conn.execute("CREATE SCHEMA tube CREATE TABLE theirs (id int)")
    before = all_objects(bare_dsn)
    assert "is not pytube's" in fails(postgres, bare_dsn, INSTALL_SQL)
    assert all_objects(bare_dsn) == before


def test_an_empty_schema_is_taken(postgres: Postgres, bare_dsn: str) -> None:
    with psycopg.connect(bare_dsn) as conn:
        conn.execute("CREATE SCHEMA tube")
        conn.execute("GRANT ALL ON SCHEMA tube TO PUBLIC")
    psql_file(postgres, bare_dsn, INSTALL_SQL)
    with psycopg.connect(bare_dsn) as conn:
        assert (
            scalar(conn, "SELECT nspacl::text FROM pg_namespace WHERE nspname = 'tube'")
            == "{tube_owner=UC/tube_owner,=U/tube_owner}"
        )


def test_a_newer_installation_is_left_alone(postgres: Postgres, bare_dsn: str) -> None:
    psql_file(postgres, bare_dsn, INSTALL_SQL)
    with psycopg.connect(bare_dsn) as conn:
        conn.execute("UPDATE tube.tube_version SET version_num = '0099'")
    said = fails(postgres, bare_dsn, INSTALL_SQL)
    assert "is at version 0099" in said
    assert "or with a newer one" in said


def test_it_stops_at_the_first_error(postgres: Postgres, bare_dsn: str) -> None:
    psql_file(postgres, bare_dsn, INSTALL_SQL)
    with psycopg.connect(bare_dsn) as conn:
        conn.execute("DROP TABLE tube.tube_parked CASCADE")
        conn.execute("UPDATE tube.tube_version SET version_num = ''")
    before = all_objects(bare_dsn)
    said = fails(postgres, bare_dsn, INSTALL_SQL)
    assert said.count("ERROR") == 1
    assert all_objects(bare_dsn) == before


def test_public_may_only_call_what_answers_for_its_caller(conn: Conn) -> None:
    """What owners of attached tables call, who may have no right of ours; and whoever runs DDL."""
    set_up(conn)
    conn.execute("CREATE ROLE bystander")
    try:
        for schema in ("tube", "tube_capture"):
            assert not scalar(conn, "SELECT has_schema_privilege('bystander', %s, 'CREATE')", (schema,))
        rows = conn.execute(
            "SELECT DISTINCT p.proname::text FROM pg_proc AS p WHERE p.oid >= 16384"
            " AND has_function_privilege('bystander', p.oid, 'EXECUTE') ORDER BY 1"
        ).fetchall()
        assert [name for (name,) in rows] == [
            "item_touch",
            "tube_key_part",
            "tube_key_types",
            "tube_private_elsewhere",
            "tube_private_fits",
            "tube_private_is_replaced",
            "tube_private_may_read",
            "tube_private_see_ddl",
            "tube_shard_of",
        ]
        rows = conn.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'tube'::regnamespace"
            " AND relkind IN ('r', 'S', 'v')"
            " AND has_table_privilege('bystander', oid, 'SELECT, INSERT, UPDATE, DELETE')"
        ).fetchall()
        assert rows == []
    finally:
        conn.execute("DROP ROLE bystander")


def test_generated_functions_are_brought_up_to_date(postgres: Postgres, dsn: str) -> None:
    with open_session(dsn) as conn:
        set_up(conn)
        make_tube(conn, "other")
        attach(conn, tube="other")
        for name in [
            row[0]
            for row in conn.execute(
                "SELECT p.oid::regproc::text FROM pg_proc AS p JOIN pg_trigger AS t ON t.tgfoid = p.oid"
                f" WHERE t.tgrelid = '{TABLE}'::regclass AND t.tgtype & 4 > 0"
            )
        ]:
            conn.execute(
                f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql"
                " AS 'BEGIN RETURN NULL; END'"
            )
        conn.execute(f"INSERT INTO {TABLE} VALUES (1)")
        assert take(conn) == []
        psql_file(postgres, dsn, INSTALL_SQL)
        conn.execute(f"INSERT INTO {TABLE} VALUES (2)")
        assert take(conn) == take(conn, "other") == [("I", 0, 2)]


def test_a_predicate_that_does_not_fit_any_more_is_said_with_its_remedy(postgres: Postgres, dsn: str) -> None:
    with open_session(dsn) as conn:
        set_up(conn)
        make_tube(conn, predicate="value <> ''")
        conn.execute(f"ALTER TABLE {TABLE} RENAME value TO content")
    told = "\n".join(said(postgres, dsn, "-f", str(INSTALL_SQL)))
    assert "WARNING:  public.item is not followed by tube 'es-live': " in told
    assert "value" in told.splitlines()[0]
    assert "DETAIL:  Until it fits again, writes of public.item ask for a backfill, which waits, and " in told
    assert "HINT:  Give the tube another one: tube_ensure_exists, predicate => SQL." in told


@pytest.mark.parametrize(
    ("using", "rest"),
    [
        (
            "",
            [
                "DETAIL:  It stays as it was.",
                "HINT:  Once that is fixed, its owner runs: SELECT tube.tube_sync();",
            ],
        ),
        (", DETAIL = 'long ago', HINT = 'Ask.'", ["DETAIL:  long ago", "HINT:  Ask."]),
    ],
)
def test_a_table_that_can_not_be_followed_keeps_nothing_else_from_being_installed(
    postgres: Postgres, dsn: str, using: str, rest: list[str]
) -> None:
    with open_session(dsn) as conn:
        set_up(conn)
        conn.execute(
            "CREATE FUNCTION public.refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN"
            " IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands()"
            "   WHERE object_identity LIKE '%public.item') THEN"
            f" RAISE EXCEPTION USING ERRCODE = 'duplicate_object', MESSAGE = 'it was taken'{using};"
            " END IF; END$$;"
            "CREATE EVENT TRIGGER refuse ON ddl_command_end WHEN TAG IN ('CREATE TRIGGER')"
            " EXECUTE FUNCTION public.refuse();"
            f'DROP TRIGGER "{triggers(conn)[0]}" ON {TABLE}'
        )
    told = said(postgres, dsn, "-f", str(INSTALL_SQL))
    assert told[0].endswith(f"WARNING:  {TABLE} is not followed by tube 'es-live': it was taken")
    assert told[1:3] == rest
    assert told[-2].startswith("installed: version ")


def test_a_table_that_can_not_stay_attached_keeps_nothing_from_being_installed(
    postgres: Postgres, dsn: str
) -> None:
    with open_session(dsn) as conn:
        set_up(conn)
        conn.execute(f"ALTER TABLE {TABLE} DROP id CASCADE")
        told = said(postgres, dsn, "-f", str(INSTALL_SQL))
        assert f"WARNING:  {TABLE} is detached from tube 'es-live': its key id was dropped" in told[0]
        assert not any("is not followed" in line for line in told), told
        assert scalar(conn, "SELECT tbl FROM tube_list()") is None


def test_uninstall_leaves_nothing(any_server: TestServer, any_bare_dsn: str) -> None:
    with psycopg.connect(any_bare_dsn, autocommit=True) as conn:
        conn.execute("CREATE TABLE public.item (id bigint PRIMARY KEY, value text, deleted boolean)")
        conn.execute('CREATE SCHEMA "Sh 7" CREATE TABLE "It\'s" (id int)')
    before = all_objects(any_bare_dsn)
    psql_file(any_server.postgres, any_bare_dsn, INSTALL_SQL)
    with open_session(any_bare_dsn) as conn:
        make_tube(conn, predicate="id > 0")
        attach(conn, TABLE, 0, 16)
        make_tube(conn, "a second 'one'")
        attach(conn, '"Sh 7"."It\'s"', None, tube="a second 'one'")
        assert triggers(conn)
    psql_file(any_server.postgres, any_bare_dsn, UNINSTALL_SQL, force="1")
    assert all_objects(any_bare_dsn) == before


def test_uninstall_refuses_while_tubes_hold_pods(postgres: Postgres, dsn: str) -> None:
    with open_session(dsn) as conn:
        set_up(conn)
        conn.execute(f"INSERT INTO {TABLE} VALUES (1)")
    before = all_objects(dsn)
    said = fails(postgres, dsn, UNINSTALL_SQL)
    assert "there are pods in the tubes 'es-live'" in said
    assert "force=1" in said
    assert all_objects(dsn) == before
    psql_file(postgres, dsn, UNINSTALL_SQL, force="1")
    with psycopg.connect(dsn) as plain:
        assert triggers(plain) == []
        assert scalar(plain, "SELECT to_regnamespace('tube')") is None
    assert "is not installed" in fails(postgres, dsn, UNINSTALL_SQL)


def test_uninstall_refuses_while_tables_are_attached(postgres: Postgres, dsn: str) -> None:
    with open_session(dsn) as conn:
        set_up(conn)
        conn.execute("CREATE SCHEMA many")
        for number in range(21):
            conn.execute(f"CREATE TABLE many.t{number:02} (id int PRIMARY KEY)")
            attach(conn, f"many.t{number:02}", number + 1)
        before = all_objects(dsn)
        refused = fails(postgres, dsn, UNINSTALL_SQL)
        assert "many.t00, many.t01, " in refused
        assert ", many.t19 and 2 more" in refused
        assert "force=1" in refused
        assert all_objects(dsn) == before
        conn.execute("DROP TABLE public.item; DROP SCHEMA many CASCADE")
    psql_file(postgres, dsn, UNINSTALL_SQL)


def test_uninstall_spares_what_others_made(postgres: Postgres, dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute("CREATE TABLE tube.theirs (id int)")
    before = all_objects(dsn)
    assert "cannot drop schema" in fails(postgres, dsn, UNINSTALL_SQL)
    assert all_objects(dsn) == before
