"""Workers, writers, and roles with default privileges, who try to get more rights than they were granted."""

from __future__ import annotations

import re
from contextlib import suppress

import psycopg
import pytest

from tests.helpers.capture import Conn, attach, make_tube, ops, scalar
from tests.helpers.database import ROOT
from tests.helpers.roles import roles
from tests.helpers.terms import Claim, acquire
from tests.sql.attackers import KEEPER, MALLORY, World, function_of, use_all

TRAP = """
    CREATE TEMP TABLE {name} (place bigint, shard int, ids bigint[], op "char", payload jsonb, attempt uuid);
    GRANT ALL ON {name} TO PUBLIC;
    CREATE FUNCTION pg_temp.fire() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM evil.grasp(); RETURN NEW; END';
    CREATE TRIGGER fire BEFORE INSERT ON {name} FOR EACH ROW EXECUTE FUNCTION pg_temp.fire()
"""


@pytest.mark.parametrize("state", ["waiting", "split", "cancelled"])
def test_a_temporary_table_of_a_workers_stands_for_none_of_ours(world: World, state: str) -> None:
    """The table of a backfill's ids is there for a while only, and its name is known."""
    world.admin.execute("GRANT SELECT ON app.t TO worker")
    number = scalar(world.admin, "SELECT tube_backfill_create('es-live', 'app.t', 'id')")
    if state == "cancelled":
        world.admin.execute(f"SELECT tube_backfill_command({number}, 'cancel')".encode())
    trap = f"tube_backfill_ids_{number}"
    world.try_all(
        "worker",
        TRAP.format(name=trap),
        f"INSERT INTO {trap} (place) VALUES (0)",
        f"SELECT tube.tube_backfill_lock({number})",
        *([f"SELECT tube.tube_backfill_split({number}, 2)"] if state == "split" else []),
        f"SELECT tube.tube_backfill_collect({number})",
        f"SELECT tube.tube_backfill_range({number}, 0)",
        f"SELECT tube.tube_private_end_collect({number}, 1, NULL)",
        f"SELECT tube.tube_backfill_chunk({number}, 10)",
        "SELECT tube.tube_backfill_tidy()",
    )
    assert "worker" in world.struck, "the trap works"
    world.nobody_was_robbed("worker")


CASTS = """
    CREATE TYPE pg_temp.odd AS ENUM ('x');
    CREATE FUNCTION pg_temp.{0}_of_odd(pg_temp.odd) RETURNS {0} LANGUAGE plpgsql AS
        'BEGIN PERFORM evil.grasp(); RETURN NULL; END';
    CREATE CAST (pg_temp.odd AS {0}) WITH FUNCTION pg_temp.{0}_of_odd(pg_temp.odd) AS IMPLICIT;
    CREATE FUNCTION pg_temp.{0}s_of_odds(pg_temp.odd[]) RETURNS {0}[] LANGUAGE plpgsql AS
        'BEGIN PERFORM evil.grasp(); RETURN NULL; END';
    CREATE CAST (pg_temp.odd[] AS {0}[]) WITH FUNCTION pg_temp.{0}s_of_odds(pg_temp.odd[]) AS IMPLICIT
"""
"""Of a type of the caller's; each array has the casts of its elements besides."""
TAKES_ANY = {
    "tube_document_touch": "'{tube}', 'U', {ids}",
    "tube_sweep_touch": "'{tube}', 1, 0, '{term}', 0, {ids}",
}
"""The functions that run with our rights and take an array of any type."""


@pytest.mark.parametrize("elements", [True, False])
@pytest.mark.parametrize("key_type", ["bigint", "uuid", "text"])
def test_no_cast_of_a_workers_runs_with_our_rights(world: World, key_type: str, elements: bool) -> None:
    world.admin.execute(f"CREATE TABLE app.u (id {key_type} PRIMARY KEY)".encode())
    world.admin.execute("GRANT SELECT ON app.u TO worker")
    world.admin.execute("SELECT tube_ensure_exists('odd', 1, NULL, %s::regtype)", [key_type])
    world.admin.execute("SELECT tube_table_ensure_attached('odd', 'app.u', 0)")
    number = scalar(world.admin, "SELECT tube_backfill_create('odd', 'app.u', 'id')")
    term = acquire(world.admin, Claim(tube="odd")).leader_id
    taking = world.admin.execute(
        "SELECT p.proname FROM pg_proc AS p WHERE p.pronamespace = 'tube'::regnamespace AND p.prosecdef"
        " AND EXISTS (SELECT FROM unnest('{admin,worker,writer,monitor}'::text[]) AS r"
        " WHERE has_function_privilege('tube_' || r, p.oid, 'EXECUTE')) AND EXISTS ("
        "SELECT FROM unnest(p.proargtypes) AS t JOIN pg_type AS y ON y.oid = t WHERE y.typtype = 'p')"
    )
    assert {name for (name,) in taking} == TAKES_ANY.keys()
    made = CASTS.format(key_type).split(";\n")
    assert len(made) == 5
    with world.login("worker") as worker:
        for statement in made if elements else [made[0], *made[3:]]:
            worker.execute(statement.encode())
        cast = "'x'::pg_temp.odd::{}" if elements else "'{{x}}'::pg_temp.odd[]::{}[]"
        worker.execute(f"SELECT {cast.format(key_type)}".encode())
        assert world.struck == {"worker"}, "the trap works"
        for name, arguments in TAKES_ANY.items():
            call = arguments.format(tube="odd", ids="'{x}'::pg_temp.odd[]", backfill=number, term=term)
            with pytest.raises(psycopg.Error) as refused:
                worker.execute(f"SELECT tube.{name}({call})".encode())
            assert refused.value.sqlstate == "42804", name
    world.nobody_was_robbed("worker")


def test_every_dynamic_statement_names_our_tables_with_their_schema() -> None:
    """A table that is missing would else be looked for in pg_temp, where the caller may have put one."""
    bare = re.compile(
        r"\b(?:FROM|INTO|UPDATE|JOIN|ONLY|TABLE|TABLE IF EXISTS|SEQUENCE) (?:%(?:\d\$)?I(?!\.)|tube_\w*%)"
    )
    found = [
        f"{file.name}: {line.strip()}"
        for file in sorted(ROOT.glob("sql/*/*.sql"))
        for line in file.read_text().splitlines()
        if file.parent.name != "migrations" and not line.startswith("--") and bare.search(line)
    ]
    assert found == []


def test_default_privileges_give_nobody_a_function_of_ours(any_dsn: str) -> None:
    with roles(any_dsn, "grantee", "vendor") as admin:
        admin.execute("SET search_path = tube, public")
        for owner in ("tube_owner", "vendor"):
            admin.execute(
                f"ALTER DEFAULT PRIVILEGES FOR ROLE {owner} GRANT EXECUTE ON FUNCTIONS TO grantee".encode()
            )
        admin.execute(
            "CREATE SCHEMA bank AUTHORIZATION vendor; CREATE TABLE bank.acct (id bigint PRIMARY KEY)"
        )
        admin.execute("ALTER TABLE bank.acct OWNER TO vendor")
        for role in ("vendor", "grantee"):
            admin.execute(
                f"ALTER DEFAULT PRIVILEGES FOR ROLE tube_owner GRANT ALL ON TABLES TO {role}".encode()
            )
        make_tube(admin, "other")
        attach(admin, "bank.acct", 1, tube="other")
        assert callable_by(admin, "grantee") == []
        rights = admin.execute(
            "SELECT a.grantee::regrole::text, a.privilege_type FROM pg_class AS c, aclexplode(c.relacl) AS a"
            " WHERE c.relkind = 'v' AND c.relname LIKE 'other%%' AND a.grantee <> c.relowner"
        )
        assert rights.fetchall() == [("vendor", "INSERT")]


def test_a_table_of_a_strangers_stops_no_tidying(world: World) -> None:
    world.admin.execute("CREATE TABLE tube.tube_backfill_ids_777 (id int)")
    assert scalar(world.admin, "SELECT tube_backfill_tidy()") == 0
    assert scalar(world.admin, "SELECT to_regclass('tube.tube_backfill_ids_777') IS NOT NULL")


def callable_by(conn: Conn, role: str) -> list[str]:
    """The functions made for tables or tubes that a role may call."""
    rows = conn.execute(
        "SELECT p.oid::regprocedure::text FROM pg_proc AS p WHERE p.oid >= 16384"
        " AND p.prosrc LIKE E'\\n-- Made by tube\\\\_private\\\\_%%'"
        " AND has_function_privilege(%s, p.oid, 'EXECUTE')",
        (role,),
    ).fetchall()
    return [str(row[0]) for row in rows]


# --- hostile arguments ------------------------------------------------------------------------------

HOSTILE = "x'; ALTER ROLE mallory SUPERUSER; SELECT evil.grasp(); --"
VALUES: dict[str, list[str]] = {
    "text": [HOSTILE, "es-live", "SELECT evil.grasp(), 1", 'x"; SELECT evil.grasp(); --', "evil.grasp()"],
    "name": [HOSTILE[:60], "v", 'x"; SELECT evil.grasp(); --'],
    "regclass": ["bank.vault", "tube.tube_registry", "pg_catalog.pg_authid"],
    "text[]": ['{"SELECT evil.grasp()"}', '{"x\'; SELECT evil.grasp(); --"}'],
    "name[]": ['{v,"x\\"; SELECT evil.grasp(); --"}'],
    "jsonb": ['{"type": "x\'; SELECT evil.grasp(); --"}', "[]"],
    "integer": ["0", "-1"],
    "bigint": ["1", "-1"],
    "bigint[]": ["{1}"],
    "integer[]": ["{0}"],
    "uuid": ["00000000-0000-0000-0000-000000000001"],
    "uuid[]": ["{00000000-0000-0000-0000-000000000001}"],
    "boolean": ["true"],
    "interval": ["1 ms"],
    "timestamp with time zone": ["2000-01-01"],
    "double precision": ["1"],
    "character": ["B", "'"],
    "regtype": ["bigint"],
    "tube.tube_attachment": [],
    "anyarray": [],
    "anyelement": [],
}


def forged(world: World, table: str) -> list[str]:
    """Attachments that somebody made up, as text."""
    return [
        str(
            scalar(
                world.admin,
                "SELECT (jsonb_populate_record(a, %s::jsonb))::text FROM tube_attachment AS a"
                " WHERE a.tbl = %s::regclass",
                (change, table),
            )
        )
        for change in (
            '{"row_filter": "evil.strike(1) = 1"}',
            '{"keys": ["id) FROM app.t; SELECT evil.grasp(); --"]}',
            '{"trigger_function": "x\'; SELECT evil.grasp(); --"}',
            '{"touch_name": "x\\"; SELECT evil.grasp(); --"}',
            '{"columns": ["v", "x\\"; SELECT evil.grasp(); --"]}',
            '{"tube": "tube_registry"}',
        )
    ]


def calls(world: World, role: str) -> list[tuple[str, list[str]]]:
    """Each function of ours that `role` may call, with texts of hostile arguments for it."""
    found = world.admin.execute(
        "SELECT format('tube.%%I', p.proname), ARRAY(SELECT t::regtype::text FROM unnest(p.proargtypes) AS t)"
        " FROM pg_proc AS p"
        " WHERE p.oid >= 16384 AND p.pronamespace = 'tube'::regnamespace AND p.prokind = 'f'"
        " AND has_function_privilege(%s, p.oid, 'EXECUTE') AND p.proname NOT IN ('tube_leader_wait')",
        (role,),
    ).fetchall()
    attachments = [text for table in ("app.t", "bank.acct", "bank.vault") for text in forged(world, table)]
    made = []
    for name, types in found:
        for kind in dict.fromkeys(types):
            values = (
                attachments
                if "tube_attachment" in kind
                else VALUES.get(kind.removeprefix("pg_catalog."), ["x"])
            )
            for value in values:
                first = {
                    other: ("es-live" if other == "text" else (VALUES.get(other) or [attachments[0]])[0])
                    for other in types
                }
                made.append((name, types, [value if other == kind else first[other] for other in types]))
        if not types:
            made.append((name, types, []))
    return [
        (
            f"SELECT {name}({', '.join(f'%s::{kind}' for kind in types)})".replace(
                "::anyarray", "::bigint[]"
            ).replace("::anyelement", "::bigint"),
            arguments,
        )
        for name, types, arguments in made
    ]


@pytest.mark.parametrize("role", ["worker", "writer"])
def test_hostile_arguments_of_all_that_a_role_may_call(world: World, role: str) -> None:
    """What runs text that it is given runs it with the caller's rights."""
    tried = calls(world, role)
    assert len(tried) > 50
    done = 0
    with world.login(role) as conn:
        conn.execute("SET statement_timeout = '2s'")
        for statement, arguments in tried:
            with suppress(psycopg.Error), conn.transaction(force_rollback=True):
                conn.execute(statement.encode(), arguments)
                done += 1
    assert done > 10
    world.nobody_was_robbed(role)


@pytest.mark.parametrize("owner", ["worker", "writer"])
def test_a_worker_lets_nobody_in_beside_the_functions_of_owners(world: World, owner: str) -> None:
    """Not itself, by a temporary table, nor another role that has no attached table."""
    world.admin.execute(
        f"CREATE TABLE bank.other (id bigint); ALTER TABLE bank.other OWNER TO {owner}".encode()
    )
    world.try_all(
        "worker",
        "CREATE TEMP TABLE mine (id bigint); SELECT tube.tube_private_open_capture('mine')",
        "SELECT tube.tube_private_open_capture('bank.other')",
    )
    assert not scalar(world.admin, "SELECT has_schema_privilege(%s, 'tube_capture', 'CREATE')", (owner,))


def test_a_predicate_that_was_not_parsed(world: World) -> None:
    """An admin calls what `tube_ensure_exists` calls; others then bind what is stored."""
    world.admin.execute("GRANT tube_admin TO mallory")
    evil = "true); ALTER ROLE mallory SUPERUSER; SELECT (true"
    world.try_all(
        MALLORY,
        *(
            f"SELECT tube.tube_private_ensure_tube('es-live', {partitions}, $${text}$$, NULL)"
            for text in (evil, "evil.strike() = 1")
            for partitions in (1, 4)
        ),
        *(
            "DO $do$ DECLARE a tube.tube_attachment := (SELECT t FROM tube.tube_attachment AS t"
            f" WHERE t.tbl = 'app.t'::regclass); BEGIN a.row_filter := $${text}$$;"
            f" PERFORM tube.{function}; END $do$"
            for text in (evil, "evil.strike() = 1")
            for function in ("tube_private_provide(a)", "tube_private_store(a, false)")
        ),
    )
    use_all(world)
    assert (
        scalar(world.admin, "SELECT count(*) FROM tube_registry WHERE predicate ~ 'evil|SUPERUSER'")
        + scalar(world.admin, "SELECT count(*) FROM tube_attachment WHERE row_filter ~ 'evil|SUPERUSER'")
        == 0
    )
    world.nobody_was_robbed()


@pytest.mark.parametrize("role", ["worker", MALLORY])
def test_a_forged_attachment_changes_nothing_of_others(world: World, role: str) -> None:
    """Private functions take an attachment from their caller, and mind what is stored."""
    world.admin.execute("GRANT tube_admin TO mallory; GRANT USAGE ON SCHEMA app, bank TO mallory")
    with world.login(role) as conn:
        for change in (
            "a.tbl := 'app.t'::regclass::oid",
            "a.shard := 77" if role == "worker" else "a.shards := 0",  # an admin may give another shard
            "a.trigger_function := 'tube_private_wake_sleepers'",
            "a.touch_name := 'tube_touch_forged'",
            "a.tube := 'other'",
        ):
            for table in ("bank.acct", "bank.vault"):
                for function in (
                    "tube_private_provide(a)",
                    "tube_private_store(a, true)",
                    "tube_private_bring_in_line(a, true)",
                ):
                    statement = f"""
                        DO $do$ DECLARE a tube.tube_attachment := (
                            SELECT t FROM tube.tube_attachment AS t WHERE t.tbl = '{table}'::regclass);
                        BEGIN {change}; PERFORM tube.{function}; END $do$
                    """
                    with suppress(psycopg.Error):
                        conn.execute(statement.encode())
    world.run(KEEPER, "INSERT INTO bank.acct VALUES (1)")
    world.run("writer", "INSERT INTO bank.vault VALUES (1)")
    assert {
        (shard, keys[0]) for shard, keys in world.admin.execute('SELECT shard, ids FROM "es-live"').fetchall()
    } == {(1, 1), (2, 1)}
    world.nobody_was_robbed()


# --- a writer ----------------------------------------------------------------------------------------


def test_a_writer_with_a_path_and_temporary_objects_of_their_own(world: World) -> None:
    make_tube(world.admin, predicate="v > 0 OR v IS NULL")
    world.admin.execute("GRANT INSERT, UPDATE, DELETE, SELECT, TRUNCATE ON bank.acct, bank.vault TO mallory")
    world.admin.execute("GRANT USAGE ON SCHEMA bank TO mallory")
    with world.login(MALLORY) as mallory:
        for statement in (
            "CREATE TEMP TABLE pg_attribute (attrelid oid)",
            "CREATE TEMP TABLE pg_proc (oid oid)",
            "CREATE TEMP VIEW tube_registry AS SELECT evil.strike(1) AS tube",
            "CREATE TEMP VIEW tube_attachment AS SELECT evil.strike(1) AS tube",
            'CREATE TEMP VIEW "es-live" AS SELECT evil.strike(1) AS op',
            "CREATE TEMP TABLE new_table AS SELECT evil.strike(1) AS id",
            "CREATE DOMAIN pg_temp.int8 AS integer CHECK (evil.strike(1) = 1)",
            "CREATE DOMAIN pg_temp.text AS integer CHECK (evil.strike(1) = 1)",
            (
                "CREATE FUNCTION evil.gt(integer, integer) RETURNS boolean LANGUAGE sql AS"
                " 'SELECT evil.strike(1) = 1'"
            ),
            "CREATE OPERATOR evil.> (LEFTARG = integer, RIGHTARG = integer, FUNCTION = evil.gt)",
            (
                "CREATE FUNCTION evil.array_agg(bigint) RETURNS bigint[] LANGUAGE sql AS"
                " 'SELECT ARRAY[evil.strike(1)::bigint]'"
            ),
            "SET search_path = evil, pg_temp, pg_catalog, tube, bank",
            "SET standard_conforming_strings = off",
            "SET application_name = 'backfill''; SELECT evil.grasp(); --'",
            "SET datestyle = 'SQL, DMY'",
        ):
            mallory.execute(statement.encode())
        world.struck.clear()
        for table in ("bank.acct", "bank.vault"):
            for statement in (
                f"INSERT INTO {table} VALUES (1, 1), (2, 2)",
                f"UPDATE {table} SET v = 3",
                f"UPDATE {table} SET id = 9 WHERE id OPERATOR(pg_catalog.=) 1",
                f"DELETE FROM {table} WHERE id OPERATOR(pg_catalog.=) 9",
                f"TRUNCATE {table}",
            ):
                mallory.execute(statement.encode())
    assert world.struck == set()
    assert len(ops(world.admin)) > 8
    world.nobody_was_robbed()


def test_touch_functions_are_for_writers(world: World) -> None:
    with world.login(MALLORY) as mallory:
        mallory.execute("SELECT app.t_touch('{1}')")
        for statement in (
            "SELECT bank.acct_touch('{1}')",
            "SELECT tube.\"es-live_touch\"(0, '{1}', 'T')",
            f"SELECT {function_of(world, 'put', 'acct')}('I', '{{1}}')",
            f"SELECT {function_of(world, 'capture', 'acct')}()",
        ):
            with pytest.raises(psycopg.Error) as refused:
                mallory.execute(statement.encode())
            assert refused.value.sqlstate in ("42501", "0A000")
        # Of one's own, in its own shards, as a trigger would.
        mallory.execute(f"SELECT {function_of(world, 'put', 't')}('I', '{{5}}')".encode())
    assert ops(world.admin) == [("I", 5), ("T", 1)]
