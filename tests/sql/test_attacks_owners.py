"""Owners of attached tables, and admins, who try to get rights of others by what they make."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.helpers.capture import Conn, attach, detach, make_tube, ops, scalar
from tests.sql.attackers import (
    CASTS,
    KEEPER,
    MALLORY,
    SHADOW,
    World,
    function_of,
    plant_in_vault,
    seal_of,
    use_all,
)

# --- attacks that the first build allowed -----------------------------------------------------------


def test_what_a_truncate_plans_runs_as_the_owner(world: World) -> None:
    capture = function_of(world, "capture", "vault")
    world.run(
        MALLORY,
        "CREATE FUNCTION evil.g(integer) RETURNS integer LANGUAGE sql IMMUTABLE AS"
        " 'SELECT evil.strike(1) + $1'",
        "CREATE STATISTICS app.st ON (evil.g(v)), v FROM app.t",
        "CREATE INDEX ON app.t (evil.g(v))",
        "INSERT INTO app.t SELECT g, g FROM generate_series(1, 10) g",
        "ANALYZE app.t",
        "TRUNCATE app.t",
        "INSERT INTO app.t VALUES (1, 1)",
    )
    assert world.struck == {MALLORY}
    for name in (capture, function_of(world, "capture", "t")):
        with world.login(MALLORY) as mallory, pytest.raises(psycopg.errors.InsufficientPrivilege):
            mallory.execute(
                f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS ''"
                if name == capture
                else "SELECT * FROM tube.tube_registry"
            )
    # Writers and a TRUNCATE by somebody else run nothing but what mallory's table itself calls.
    use_all(world)
    world.nobody_was_robbed()


def test_an_admin_replaces_no_function_that_writers_run(world: World) -> None:
    world.admin.execute("GRANT tube_admin TO mallory")
    evil = "LANGUAGE plpgsql AS 'BEGIN PERFORM evil.grasp(); RETURN NULL; END'"
    with world.login(MALLORY) as mallory:
        for kind in ("capture", "agent", "put"):
            for table in ("acct", "vault"):
                name = function_of(world, kind, table)
                signature = scalar(
                    world.admin, "SELECT pg_get_function_identity_arguments(%s::regproc)", (name,)
                )
                signature = signature.replace("tube_seal_", "tube.tube_seal_")
                result = scalar(world.admin, "SELECT pg_get_function_result(%s::regproc)", (name,))
                for statement in (
                    f"CREATE OR REPLACE FUNCTION {name}({signature}) RETURNS {result} {evil}",
                    f"ALTER FUNCTION {name} SECURITY INVOKER",
                    f"ALTER FUNCTION {name} SET search_path = evil",
                    f"DROP FUNCTION {name}",
                ):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        mallory.execute(statement.encode())
    use_all(world)
    world.nobody_was_robbed()


def test_an_admin_makes_no_trigger_and_nothing_beside_a_table(world: World) -> None:
    world.admin.execute("GRANT tube_admin TO mallory")
    with world.login(MALLORY) as mallory:
        mallory.execute(
            "CREATE FUNCTION evil.fire() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN PERFORM evil.grasp(); RETURN NULL; END'"
        )
        for statement in (
            "CREATE TRIGGER zz AFTER INSERT ON bank.acct EXECUTE FUNCTION evil.fire()",
            "CREATE TRIGGER zz AFTER INSERT ON bank.vault EXECUTE FUNCTION evil.fire()",
            "CREATE FUNCTION bank.lower(varchar) RETURNS text LANGUAGE sql AS 'SELECT $1'",
            'CREATE TRIGGER zz AFTER INSERT ON tube."es-live" EXECUTE FUNCTION evil.fire()',
            "CREATE TRIGGER zz AFTER INSERT ON tube.tube_registry EXECUTE FUNCTION evil.fire()",
            "CREATE FUNCTION tube.lower(varchar) RETURNS text LANGUAGE sql AS 'SELECT $1'",
            "ALTER TABLE tube.tube_attachment ADD evil text",
            "UPDATE tube.tube_attachment SET row_filter = 'evil.strike() = 1'",
            "INSERT INTO tube.tube_registry (tube, predicate) VALUES ('x', 'evil.strike() = 1')",
            "SET ROLE tube_owner",
            "SET ROLE tube_nobody",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                mallory.execute(statement.encode())
    use_all(world)
    world.nobody_was_robbed()


# --- the agent of an owner ------------------------------------------------------------------------

BODY = "'BEGIN PERFORM evil.grasp(); RETURN true; END'"
REPLACE = "CREATE OR REPLACE FUNCTION {0} RETURNS boolean LANGUAGE plpgsql"
AGENTS = {
    "invoker": f"{REPLACE} SECURITY INVOKER AS {BODY}",
    "definer": f"{REPLACE} SECURITY DEFINER AS {BODY}",
    "our text, with other rights": "ALTER FUNCTION {0} SECURITY INVOKER SET search_path = evil, pg_catalog",
    "our text, with another path": "ALTER FUNCTION {0} SET search_path = evil, pg_catalog",
    # what tube_private_call_agent belongs to
    "a thief": (
        "CREATE OR REPLACE FUNCTION {0} RETURNS boolean LANGUAGE plpgsql SECURITY INVOKER AS $$ BEGIN"
        " PERFORM evil.grasp();"
        " ALTER FUNCTION tube.tube_private_call_agent(text, text, regclass, name[], text) SECURITY INVOKER;"
        " RETURN true; END $$"
    ),
    "a usurper": (
        "CREATE OR REPLACE FUNCTION {0} RETURNS boolean LANGUAGE plpgsql SECURITY INVOKER AS $$ BEGIN"
        " PERFORM evil.grasp(); SET ROLE tube_owner; PERFORM evil.grasp(); RETURN true; END $$"
    ),
    # A search path that is set for the session outlives the functions that pin their own.
    "a path that stays": (
        f"{REPLACE} SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ BEGIN"
        " PERFORM pg_catalog.set_config('search_path', 'evil, pg_catalog, tube', false); RETURN true; END $$"
    ),
    "a path for the transaction": (
        f"{REPLACE} SECURITY DEFINER AS $$ BEGIN"
        " PERFORM pg_catalog.set_config('search_path', 'evil, pg_catalog, tube', true); RETURN true; END $$"
    ),
    # It is run at the commit, with the rights of the session.
    "a cursor that stays": (
        f"{REPLACE} SECURITY DEFINER AS $$ BEGIN"
        " EXECUTE 'DECLARE stays CURSOR WITH HOLD FOR SELECT evil.grasp()'; RETURN true; END $$"
    ),
    "none": (
        "CREATE OR REPLACE FUNCTION {0} RETURNS boolean LANGUAGE plpgsql SECURITY INVOKER AS $$ BEGIN"
        " DROP OWNED BY tube_nobody; RETURN true; END $$"
    ),
}
OUTLIVING = {"a path that stays", "a path for the transaction", "a cursor that stays"}


def a_tree(world: World) -> str:
    """Attach a partitioned table of mallory's; the signature of its agent."""
    world.run(
        MALLORY,
        "CREATE TABLE app.log (id bigint, day integer, PRIMARY KEY (id, day)) PARTITION BY LIST (day)",
    )
    attach(world.admin, "app.log", 7)
    arguments = f"rel regclass, triggers name[], op text, seal {seal_of(world)}"
    return f"{function_of(world, 'agent', 'log')}({arguments})"


def partition_comes(world: World, day: int) -> None:
    world.run(
        MALLORY,
        f"CREATE TABLE app.log_{day} PARTITION OF app.log FOR VALUES IN ({day})",
        f"INSERT INTO app.log_{day} VALUES ({day}, {day})",
    )


@pytest.mark.parametrize(
    "alter",
    [
        # What outlives a call of another role depends on the server.
        pytest.param(alter, id=name, marks=[pytest.mark.every_server] if name in OUTLIVING else [])
        for name, alter in AGENTS.items()
    ],
)
def test_an_agent_that_was_replaced_has_its_owners_rights_or_none(world: World, alter: str) -> None:
    agent = a_tree(world)
    world.admin.execute("SET ROLE mallory")
    world.admin.execute(SHADOW)
    world.admin.execute("RESET ROLE")
    world.run(MALLORY, alter.format(agent))
    partition_comes(world, 1)
    world.try_all("worker", "SELECT tube.tube_sync()")
    partition_comes(world, 2)
    world.try_all("postgres", "SELECT tube.tube_sync()")
    world.run(
        MALLORY, alter.format(agent), "DROP TABLE app.log_1", "ALTER TABLE app.log DETACH PARTITION app.log_2"
    )
    world.try_all("worker", "SELECT tube.tube_sync()")
    use_all(world)
    world.nobody_was_robbed("tube_nobody")
    assert scalar(world.admin, "SELECT prosecdef FROM pg_proc WHERE proname = 'tube_private_call_agent'")


def test_the_agents_of_others_can_not_be_called(world: World) -> None:
    for name, table in (("acct", "bank.acct"), ("vault", "bank.vault")):
        agent = function_of(world, "agent", name)
        seal = seal_of(world, KEEPER if name == "acct" else "postgres")
        for role in (MALLORY, "worker", "writer", KEEPER if name == "vault" else MALLORY):
            with world.login(role) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(f"SELECT {agent}('{table}', NULL, 'D', NULL::{seal})".encode())
    with world.login(MALLORY) as mallory, pytest.raises(psycopg.errors.InsufficientPrivilege):
        mallory.execute("SELECT tube.tube_private_call_agent('app.t', NULL, 'app.t', NULL, NULL)")


# --- what an owner makes in the schema of the owners' functions ------------------------------------


def test_overloads_beside_the_functions_of_others(world: World) -> None:
    make_tube(world.admin, predicate="v > 0 OR v IS NULL")
    names = [
        function_of(world, kind, table) for kind in ("capture", "agent", "p") for table in ("acct", "vault")
    ]
    statements = [
        f"CREATE FUNCTION {name}({arguments}) RETURNS boolean LANGUAGE sql IMMUTABLE AS"
        " 'SELECT evil.strike(1) = 1'"
        for name in names
        for arguments in (
            "smallint",
            "bigint",
            "anyelement",
            "numeric",
            "text",
            "regclass, text[], text",
            "VARIADIC integer[]",
        )
    ]
    statements += [
        f"CREATE TYPE tube_capture.{name} AS (a integer)"
        for name in ("bool", "int4", "pg_class", "old_table", "new_table", "text")
    ]
    statements += [
        f"CREATE FUNCTION tube_capture.{name}(bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS"
        " 'SELECT evil.strike(1)::bigint'"
        for name in ("tube_private_key_bigint", "cardinality", "array_agg")
    ]
    world.try_all(MALLORY, *statements)
    made = (
        "SELECT count(*) FROM pg_proc WHERE proowner = 'mallory'::regrole"
        " AND pronamespace = 'tube_capture'::regnamespace"
    )
    assert scalar(world.admin, made) > 20
    use_all(world)
    world.nobody_was_robbed()
    assert world.struck == set()


@pytest.mark.parametrize("by", ["postgres", KEEPER])
def test_functions_that_wait_under_the_names_to_come(world: World, by: str) -> None:
    """Names can be told beforehand. What has a seal only its owner can make; settings are not taken over."""
    world.admin.execute("GRANT tube_admin TO keeper; GRANT USAGE ON SCHEMA evil TO keeper")
    world.admin.execute(
        "CREATE TABLE bank.fresh (id bigint PRIMARY KEY, v integer); ALTER TABLE bank.fresh OWNER TO keeper"
    )
    attach(world.admin, "bank.fresh", 9)
    found = world.admin.execute(
        "SELECT pg_get_functiondef(p.oid), p.oid::regprocedure::text FROM pg_proc AS p"
        " WHERE p.pronamespace = 'tube_capture'::regnamespace AND p.proname LIKE '%%fresh%%'"
    ).fetchall()
    world.admin.execute("SELECT tube_table_ensure_detached('es-live', 'bank.fresh')")
    world.admin.execute("SET ROLE mallory")
    world.admin.execute(SHADOW)
    for definition, signature in found:
        if "tube_seal_" in signature:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                world.admin.execute(definition.encode())
            continue
        world.admin.execute(definition.encode())
        world.admin.execute(f"ALTER FUNCTION {signature} SET search_path = evil, pg_catalog".encode())
        world.admin.execute(f"REVOKE ALL ON FUNCTION {signature} FROM PUBLIC".encode())
    world.admin.execute("RESET ROLE")
    world.try_all(by, "SELECT tube.tube_table_ensure_attached('es-live', 'bank.fresh', 9)")
    world.try_all(KEEPER, "INSERT INTO bank.fresh VALUES (1, 1), (2, 2)", "TRUNCATE bank.fresh")
    world.try_all("postgres", "INSERT INTO bank.fresh VALUES (1, 1), (2, 2)", "TRUNCATE bank.fresh")
    world.nobody_was_robbed()
    assert world.struck == set()


def test_an_owner_who_leaves_settings_to_the_next_one(world: World) -> None:
    world.admin.execute("SET ROLE mallory")
    world.admin.execute(SHADOW)
    world.admin.execute("RESET ROLE")
    for kind in ("agent", "capture"):
        world.run(
            MALLORY, f"ALTER FUNCTION {function_of(world, kind, 't')} SET search_path = evil, pg_catalog"
        )
    world.admin.execute("ALTER TABLE app.t OWNER TO keeper; GRANT USAGE, CREATE ON SCHEMA app TO keeper")
    world.admin.execute("SELECT tube_sync()")
    world.try_all(KEEPER, "INSERT INTO app.t VALUES (1, 1), (2, 2)", "TRUNCATE app.t")
    world.nobody_was_robbed()
    assert world.struck == set()


@pytest.mark.parametrize(
    ("synced_by", "options"),
    [(None, ""), ("worker", ""), (None, ", columns => '{v}'"), (None, ", replica => true")],
)
def test_the_next_owner_of_a_table_gets_nothing_of_the_last_one(
    world: World, synced_by: str | None, options: str
) -> None:
    """A superuser, or another owner, attached it; then it changed hands, and no owner looked."""
    make_tube(world.admin, predicate="v > 0 OR v IS NULL")
    for table, shard in (("bank.vault", 2), ("bank.acct", 1)) if options else ():
        attached = f"SELECT tube_table_ensure_attached('es-live', '{table}', {shard}{options})"
        world.admin.execute(attached.encode())
    world.run(MALLORY, "CREATE TYPE evil.mood AS ENUM ('0', '1')", CASTS.format("mood"))
    world.admin.execute("GRANT USAGE, CREATE ON SCHEMA bank TO mallory; SET client_min_messages = error")
    for table in ("bank.vault", "bank.acct"):
        world.admin.execute(f"ALTER TABLE {table} OWNER TO mallory".encode())
        world.run(MALLORY, f"INSERT INTO {table} VALUES (1)")
    world.admin.execute("RESET client_min_messages")
    if synced_by is not None:
        world.run(synced_by, "SELECT tube.tube_sync()")
    for table in ("bank.vault", "bank.acct"):
        world.try_all(
            MALLORY,
            f"ALTER TABLE {table} DROP CONSTRAINT {table.removeprefix('bank.')}_pkey",
            f"CREATE STATISTICS bank.st_{table.removeprefix('bank.')} ON (evil.inlined(v)), id FROM {table}",
            f"ANALYZE {table}",
            f"TRUNCATE {table}",
            f"ALTER TABLE {table} ALTER v TYPE evil.mood USING NULL",
            f"INSERT INTO {table} VALUES (1, '1'), (2, '0')",
            f"ALTER TABLE {table} ALTER id DROP NOT NULL",
            f"ALTER TABLE {table} ALTER id TYPE evil.mood USING NULL",
            f"INSERT INTO {table} VALUES ('1', '1'), ('0', '0')",
            f"TRUNCATE {table}",
        )
    world.nobody_was_robbed()


@contextmanager
def old_snapshot(world: World) -> Iterator[Conn]:
    """A transaction of mallory's whose catalogue is that of before bank.vault was given to her."""
    with world.login(MALLORY) as old:
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT FROM pg_class")
        world.admin.execute(
            "ALTER TABLE bank.vault OWNER TO mallory; GRANT USAGE, CREATE ON SCHEMA bank TO mallory"
        )
        yield old


def test_a_truncate_by_a_snapshot_from_before_the_table_was_given_away(world: World) -> None:
    with old_snapshot(world) as old:
        plant_in_vault(world)
        old.execute("TRUNCATE bank.vault")
        old.execute("COMMIT")
    world.nobody_was_robbed()
    swept = """SELECT count(*) FROM "tube"."es-live" WHERE payload ->> 'type' = 'sweep'"""
    assert scalar(world.admin, swept) == 1, "what it could not read is swept"


@pytest.mark.parametrize("how", ["predicate", "columns", "replica"])
def test_a_write_by_a_snapshot_from_before_a_column_got_a_type_of_theirs(world: World, how: str) -> None:
    world.admin.execute(
        "ALTER TABLE bank.vault ADD n text; ALTER TABLE bank.acct ADD n text; ALTER TABLE app.t ADD n text"
    )
    if how != "columns":
        make_tube(world.admin, predicate="n > 'a'")
    options = {"columns": ", columns => '{n}'", "replica": ", replica => true"}.get(how, "")
    world.admin.execute(f"SELECT tube_table_ensure_attached('es-live', 'bank.vault', 2{options})".encode())
    world.run(MALLORY, "CREATE TYPE evil.mood AS ENUM ('a', 'b')", CASTS.format("mood"))
    world.admin.execute("INSERT INTO bank.vault VALUES (1, 1, 'b')")
    with old_snapshot(world) as old:
        world.run(MALLORY, "ALTER TABLE bank.vault ALTER n TYPE evil.mood USING 'b'")
        ops(world.admin)
        old.execute("INSERT INTO bank.vault VALUES (2, 1, 'b'), (3, 1, 'b')")
        old.execute("UPDATE bank.vault SET n = 'a' WHERE id = 2")
        old.execute("DELETE FROM bank.vault WHERE id = 3")
        old.execute("COMMIT")
    world.nobody_was_robbed()
    assert {id_ for _, id_ in ops(world.admin)} == {2, 3}, "all that is written is touched"


@pytest.mark.parametrize("how", ["predicate", "columns"])
def test_a_trigger_that_the_last_owner_had_not_committed_yet(world: World, how: str) -> None:
    """With the function of app.t, which keeper gets, on a table that stays mallory's."""
    world.admin.execute("ALTER TABLE bank.vault ADD n text; ALTER TABLE bank.acct ADD n text")
    world.admin.execute("ALTER TABLE app.t ADD n text; GRANT USAGE, CREATE ON SCHEMA app TO keeper")
    if how == "predicate":
        make_tube(world.admin, predicate="n > 'a'")
    options = ", columns => '{n}'" if how == "columns" else ""
    world.admin.execute(f"SELECT tube_table_ensure_attached('es-live', 'app.t', 0{options})".encode())
    capture = function_of(world, "capture", "t")
    world.run(
        MALLORY,
        "CREATE TYPE evil.mood AS ENUM ('a', 'b')",
        CASTS.format("mood"),
        "CREATE TABLE evil.x (id bigint, v integer, n text)",
        "INSERT INTO evil.x VALUES (1, 1, 'b')",
    )
    with world.login(MALLORY) as making:
        making.execute("BEGIN")
        making.execute(
            "CREATE TRIGGER i AFTER INSERT ON evil.x REFERENCING NEW TABLE AS new_table"
            f" FOR EACH STATEMENT EXECUTE FUNCTION {capture}()".encode()
        )
        making.execute(
            "CREATE TRIGGER u AFTER UPDATE ON evil.x"
            " REFERENCING OLD TABLE AS old_table NEW TABLE AS new_table"
            f" FOR EACH STATEMENT EXECUTE FUNCTION {capture}()".encode()
        )
        making.execute(f"CREATE TRIGGER t BEFORE TRUNCATE ON evil.x EXECUTE FUNCTION {capture}()".encode())
        world.admin.execute("ALTER TABLE app.t OWNER TO keeper")
        world.admin.execute("SELECT tube_sync()")
        making.execute("COMMIT")
    with world.login(MALLORY) as old:
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT FROM pg_class")
        world.run(
            MALLORY,
            "CREATE STATISTICS evil.st ON (evil.inlined(v)), id FROM evil.x",
            "ALTER TABLE evil.x ALTER n TYPE evil.mood USING 'b'",
            "ANALYZE evil.x",
        )
        old.execute("INSERT INTO evil.x VALUES (2, 1, 'b')")
        old.execute("UPDATE evil.x SET n = 'a' WHERE id = 2")
        old.execute("TRUNCATE evil.x")
        old.execute("COMMIT")
    world.run(
        MALLORY,
        "INSERT INTO evil.x VALUES (3, 1, 'b')",
        "UPDATE evil.x SET n = 'a'",
        "ANALYZE evil.x",
        "TRUNCATE evil.x",
    )
    world.nobody_was_robbed()


def test_a_predicate_that_was_replaced_before_all_of_an_owners_objects_are_given(world: World) -> None:
    make_tube(world.admin, predicate="v > 0")
    passes = function_of(world, "p", "t")
    tag = scalar(world.admin, "SELECT obj_description(%s::regproc, 'pg_proc')", (passes,))
    assert tag == "predicate: v > 0"
    world.run(
        MALLORY,
        f"CREATE OR REPLACE FUNCTION {passes}(v integer) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE"
        # built in, as is asked, and runs any query
        " RETURN ts_rewrite('a', 'SELECT evil.grasp()::text::tsquery, ''b''::tsquery') IS NOT NULL",
    )
    world.admin.execute("REASSIGN OWNED BY mallory TO keeper")
    world.admin.execute("SELECT tube.tube_sync()")
    assert scalar(world.admin, "SELECT tube.tube_sync()") == 0, "something is left to be done"
    world.admin.execute("INSERT INTO app.t VALUES (1, 1), (2, 0)")
    world.nobody_was_robbed()
    assert ops(world.admin) == [("I", 1)]


def test_an_owner_keeps_no_other_table_from_being_followed(world: World) -> None:
    """Their table needs a name that is taken; keeper's is looked at all the same."""
    world.run(
        MALLORY,
        "CREATE FUNCTION app.u_touch(bigint[], char, jsonb, integer) RETURNS void LANGUAGE sql RETURN NULL",
        "ALTER TABLE app.t RENAME TO u",
    )
    world.admin.execute("ALTER TABLE bank.acct RENAME id TO key")
    warnings: list[str] = []
    world.admin.add_notice_handler(lambda notice: warnings.append(notice.message_primary or ""))
    world.admin.execute("SELECT tube.tube_sync()")
    assert any("app.u" in one and "there is a function app.u_touch" in one for one in warnings), warnings
    columns = "SELECT id_col FROM tube.tube_attachment WHERE tbl = 'bank.acct'::regclass"
    assert scalar(world.admin, columns) == "key"


def test_a_table_is_given_away_and_followed_in_one_transaction(world: World) -> None:
    make_tube(world.admin, predicate="v > 0 OR v IS NULL")
    world.admin.execute("GRANT USAGE, CREATE ON SCHEMA bank TO mallory")
    with world.admin.transaction():
        world.admin.execute("ALTER TABLE bank.vault OWNER TO mallory")
        world.admin.execute("SELECT tube_sync()")
    world.run(
        MALLORY,
        "ALTER TABLE bank.vault DROP CONSTRAINT vault_pkey",
        "CREATE STATISTICS bank.st ON (evil.inlined(v)), id FROM bank.vault",
        "INSERT INTO bank.vault VALUES (1)",
        "ANALYZE bank.vault",
        "TRUNCATE bank.vault",
    )
    assert ops(world.admin) == [("D", 1), ("I", 1)]
    world.nobody_was_robbed()


def test_a_table_that_changes_hands_is_written_to_before_and_after_a_worker_saw_it(world: World) -> None:
    world.admin.execute(
        "ALTER TABLE bank.acct OWNER TO mallory; GRANT USAGE, CREATE ON SCHEMA bank TO mallory"
    )
    world.run("writer", "INSERT INTO bank.acct VALUES (1)")
    world.run("worker", "SELECT tube.tube_sync()")
    world.run("writer", "INSERT INTO bank.acct VALUES (2)")
    world.run("postgres", "SELECT tube.tube_sync()")
    world.run("writer", "INSERT INTO bank.acct VALUES (3)")
    assert ops(world.admin) == [("I", 1), ("I", 2), ("I", 3)]


def test_an_owner_keeps_no_other_from_another_predicate(world: World) -> None:
    """By functions with the names of theirs, or a view of one."""
    make_tube(world.admin, predicate="v > 0")
    passes = [
        str(name)
        for (name,) in world.admin.execute(
            "SELECT p.oid::regproc::text FROM pg_proc AS p WHERE p.proname LIKE '%\\_acct\\_p%'"
            " AND p.prorettype = 'boolean'::regtype AND p.prosqlbody IS NOT NULL"
        ).fetchall()
    ]
    assert passes
    for name in passes:
        world.run(
            MALLORY,
            f"CREATE VIEW evil.watch AS SELECT {name}(1, NULL::{seal_of(world, KEEPER)}) AS x",
            f"CREATE FUNCTION {name}(text, text) RETURNS boolean LANGUAGE sql RETURN true",
            f'CREATE FUNCTION {name[:-7]}ffffff"(text) RETURNS boolean LANGUAGE sql RETURN true',
            f"CREATE VIEW evil.watch_other AS SELECT {name[:-7]}ffffff\"('x') AS x",
        )
    for predicate in ("v > 1", "v > 2", "v > 0"):
        make_tube(world.admin, predicate=predicate)
        assert scalar(world.admin, "SELECT tube_sync()") == 0
    world.run("writer", "INSERT INTO bank.acct VALUES (1, 1), (2, 0)")
    assert ops(world.admin) == [("I", 1)]


def test_what_tube_sync_gives_to_the_next_owner_never_runs_as_them(world: World) -> None:
    """A function with the name of an old predicate's, which a statement under way might still call."""
    make_tube(world.admin, predicate="v > 0")
    passes = function_of(world, "p", "t")[:-7]
    world.run(
        MALLORY,
        f'CREATE FUNCTION {passes}ffffff"() RETURNS integer LANGUAGE sql SECURITY DEFINER'
        " AS 'SELECT evil.grasp()'",
    )
    world.admin.execute("GRANT USAGE, CREATE ON SCHEMA app TO keeper")
    with world.admin.transaction():
        world.admin.execute("ALTER TABLE app.t OWNER TO keeper")
        world.admin.execute("SELECT tube_sync()")
    world.try_all(MALLORY, f'SELECT {passes}ffffff"()')
    world.nobody_was_robbed()


def test_an_owner_keeps_no_other_table_from_being_detached(world: World) -> None:
    name = function_of(world, "capture", "acct").replace("_capture_", "_p")[:-1] + '_ffffff"'
    world.run(MALLORY, f"CREATE PROCEDURE {name}() LANGUAGE sql AS ''")
    detach(world.admin, "bank.acct")
    assert scalar(world.admin, "SELECT count(*) FROM tube.tube_attachment") == 2


def test_functions_that_the_last_owner_has_made_stable(world: World) -> None:
    """A trigger function that does not see what its statement waited for would lose touches."""
    for kind in ("capture", "agent"):
        world.run(MALLORY, f"ALTER FUNCTION {function_of(world, kind, 't')} STABLE")
    world.admin.execute("REASSIGN OWNED BY mallory TO keeper")
    world.admin.execute("SELECT tube.tube_sync()")
    for kind in ("capture", "agent"):
        volatility = "SELECT provolatile FROM pg_proc WHERE oid = %s::regproc"
        assert scalar(world.admin, volatility, (function_of(world, kind, "t"),)) == "v"


# --- partitions of somebody else --------------------------------------------------------------------


def test_the_owner_of_a_partition_gets_nothing_of_the_owner_of_the_table(world: World) -> None:
    world.admin.execute("GRANT CREATE ON SCHEMA bank TO mallory; GRANT USAGE ON SCHEMA app TO keeper")
    world.admin.execute(
        "CREATE TABLE bank.log (id bigint, day integer, PRIMARY KEY (id, day)) PARTITION BY LIST (day);"
        "CREATE TABLE app.log_1 PARTITION OF bank.log FOR VALUES IN (1);"
        "ALTER TABLE bank.log OWNER TO keeper; ALTER TABLE app.log_1 OWNER TO mallory"
    )
    attach(world.admin, "bank.log", 6)
    world.run(
        MALLORY,
        "CREATE STATISTICS app.st ON (evil.inlined(day)), id FROM app.log_1",
        "CREATE INDEX ON app.log_1 (evil.inlined(day))",
        "INSERT INTO app.log_1 VALUES (1, 1), (2, 1)",
        "UPDATE app.log_1 SET id = id + 1 WHERE id = 2",
        "TRUNCATE app.log_1",
    )
    # Who owns a table may let others read it, who then plan by what it has.
    world.run(
        MALLORY,
        "GRANT SELECT ON app.log_1 TO keeper",
        "INSERT INTO app.log_1 VALUES (1, 1), (2, 1)",
        "ANALYZE app.log_1",
        "TRUNCATE app.log_1",
        "DELETE FROM app.log_1",
    )
    world.nobody_was_robbed()
