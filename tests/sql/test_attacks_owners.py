"""Owners of attached tables, and admins, who try to get rights of others by what they make."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
import pytest

from tests.helpers.capture import Conn, asked, attach, make_tube, ops, scalar, unfollow
from tests.sql.attackers import (
    CASTS,
    KEEPER,
    MALLORY,
    SHADOW,
    World,
    function_of,
    plant_in_vault,
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
    make_tube(world.admin, predicate="v > 0 OR v IS NULL")
    evil = "LANGUAGE plpgsql AS 'BEGIN PERFORM evil.grasp(); RETURN NULL; END'"
    with world.login(MALLORY) as mallory:
        for kind in ("capture", "passes", "put"):
            for table in ("acct", "vault"):
                name = function_of(world, kind, table)
                signature = scalar(
                    world.admin, "SELECT pg_get_function_identity_arguments(%s::regproc)", (name,)
                )
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
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                mallory.execute(statement.encode())
    use_all(world)
    world.nobody_was_robbed()


# --- what an owner makes in the schema of the owners' functions ------------------------------------


def test_an_owner_creates_nothing_beside_the_functions_of_others(world: World) -> None:
    """Not even who attaches: the right to do so ends with the attach."""
    make_tube(world.admin, predicate="v > 0 OR v IS NULL")
    world.admin.execute("GRANT tube_admin TO mallory")
    world.run(
        MALLORY,
        "CREATE TABLE app.u (id bigint PRIMARY KEY, v integer)",
        "SELECT tube.tube_table_ensure_attached('es-live', 'app.u', 5)",
        "INSERT INTO app.u VALUES (1, 1)",
    )
    with world.login(MALLORY) as mallory:
        for name in [function_of(world, kind, "acct") for kind in ("capture", "passes")]:
            for statement in (
                f"CREATE FUNCTION {name}(smallint) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
                f"CREATE TYPE {name} AS (a integer)",
                f"ALTER FUNCTION {function_of(world, 'capture', 'u')} RENAME TO x",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    mallory.execute(statement.encode())
    use_all(world)
    world.nobody_was_robbed()


@pytest.mark.parametrize(
    "arguments", ["smallint", "anyelement", "integer, integer DEFAULT 1", "VARIADIC integer[]"]
)
def test_overloads_beside_the_functions_of_others(world: World, arguments: str) -> None:
    """By who opened the schema and left it open, as any admin may; the next look of anybody's closes it."""
    make_tube(world.admin, predicate="v > 0 OR v IS NULL")
    world.admin.execute("GRANT tube_admin TO mallory")
    world.run(MALLORY, "SELECT tube.tube_private_open_capture('app.t')")
    names = [function_of(world, "passes", table) for table in ("acct", "vault")]
    names += [f"tube_capture.{name}" for name in ("cardinality", "array_agg", "json_build_array")]
    for name in names:
        world.run(
            MALLORY,
            f"CREATE FUNCTION {name}({arguments}) RETURNS boolean LANGUAGE sql IMMUTABLE AS"
            " 'SELECT evil.strike(1) = 1'",
        )
    use_all(world)
    world.nobody_was_robbed()
    assert world.struck == set()
    world.admin.execute("ALTER TABLE app.t RENAME id TO key")
    world.admin.execute("SELECT tube_sync()")
    assert not scalar(world.admin, "SELECT has_schema_privilege('mallory', 'tube_capture', 'CREATE')")


@pytest.mark.parametrize("by", ["postgres", KEEPER])
def test_functions_that_wait_under_the_names_to_come(world: World, by: str) -> None:
    """Names can be told beforehand."""
    make_tube(world.admin, predicate="v > 0 OR v IS NULL")
    world.admin.execute("GRANT tube_admin TO keeper, mallory; GRANT USAGE ON SCHEMA evil TO keeper")
    world.admin.execute(
        "CREATE TABLE bank.fresh (id bigint PRIMARY KEY, v integer); ALTER TABLE bank.fresh OWNER TO keeper"
    )
    attach(world.admin, "bank.fresh", 9)
    found = world.admin.execute(
        "SELECT pg_get_functiondef(p.oid), p.oid::regprocedure::text FROM pg_proc AS p"
        " WHERE p.pronamespace = 'tube_capture'::regnamespace AND p.proname LIKE '%%fresh%%'"
    ).fetchall()
    assert len(found) == 2
    world.admin.execute("SELECT tube_table_ensure_detached('es-live', 'bank.fresh')")
    world.admin.execute("SET ROLE mallory")
    world.admin.execute(SHADOW)
    world.admin.execute("SELECT tube.tube_private_open_capture('app.t')")
    for definition, signature in found:
        world.admin.execute(definition.encode())
        world.admin.execute(f"ALTER FUNCTION {signature} SET search_path = evil, pg_catalog".encode())
    world.admin.execute("RESET ROLE")
    world.run(by, "SELECT tube.tube_table_ensure_attached('es-live', 'bank.fresh', 9)")
    world.try_all(KEEPER, "INSERT INTO bank.fresh VALUES (1, 1), (2, 2)", "TRUNCATE bank.fresh")
    world.try_all("postgres", "INSERT INTO bank.fresh VALUES (1, 1), (2, 2)", "TRUNCATE bank.fresh")
    world.nobody_was_robbed()
    assert world.struck == set()
    assert ops(world.admin) == [
        ("D", 1),
        ("D", 1),
        ("D", 2),
        ("D", 2),
        ("I", 1),
        ("I", 1),
        ("I", 2),
        ("I", 2),
    ]


@pytest.mark.parametrize("how", ["ALTER TABLE app.t OWNER TO keeper", "REASSIGN OWNED BY mallory TO keeper"])
def test_an_owner_who_leaves_settings_to_the_next_one(world: World, how: str) -> None:
    world.admin.execute("SET ROLE mallory")
    world.admin.execute(SHADOW)
    world.admin.execute("RESET ROLE")
    capture = function_of(world, "capture", "t")
    world.run(MALLORY, f"ALTER FUNCTION {capture} SET search_path = evil, pg_catalog SECURITY INVOKER")
    world.admin.execute(f"{how}; GRANT USAGE, CREATE ON SCHEMA app TO keeper".encode())
    world.run("worker", "SELECT tube.tube_sync()")
    world.try_all("postgres", "INSERT INTO app.t VALUES (8, 1), (9, 2)", "TRUNCATE app.t")
    world.admin.execute("SELECT tube_sync()")
    world.try_all(KEEPER, "INSERT INTO app.t VALUES (1, 1), (2, 2)", "TRUNCATE app.t")
    world.nobody_was_robbed()
    assert world.struck == set()


def test_an_admin_changes_no_shards_of_anothers_table(world: World) -> None:
    world.admin.execute("GRANT tube_admin TO mallory")
    world.try_all(
        MALLORY,
        'SELECT tube.tube_private_provide(jsonb_populate_record(a, \'{"shard": 7, "shards": 3}\'))'
        " FROM tube.tube_attachment AS a",
        'SELECT tube.tube_private_provide(jsonb_populate_record(a, \'{"trigger_function": "x"}\'))'
        " FROM tube.tube_attachment AS a",
        'SELECT tube.tube_private_store(jsonb_populate_record(a, \'{"shard": 7, "shards": 3}\'), true)'
        " FROM tube.tube_attachment AS a",
        "SELECT tube.tube_table_ensure_attached('es-live', 'bank.acct', 7)",
    )
    shards = "SELECT array_agg(shard ORDER BY shard) FROM tube_list()"
    assert scalar(world.admin, shards) == [0, 1, 2]
    world.run("writer", "INSERT INTO bank.acct VALUES (1)", "UPDATE bank.acct SET v = 1")
    world.admin.execute("INSERT INTO bank.vault VALUES (1), (2)")
    assert ops(world.admin) == [("I", 1), ("I", 1), ("I", 2), ("U", 1)]


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
    assert asked(world.admin) == [], "its function went with its owner"


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
    assert ops(world.admin) == [], "it is not captured until she agrees"


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
        with suppress(psycopg.errors.InternalError_):  # the function is gone, as Postgres may find
            old.execute("INSERT INTO evil.x VALUES (2, 1, 'b')")
            old.execute("UPDATE evil.x SET n = 'a' WHERE id = 2")
            old.execute("TRUNCATE evil.x")
        old.execute("ROLLBACK")
    world.try_all(
        MALLORY,
        "INSERT INTO evil.x VALUES (3, 1, 'b')",
        "UPDATE evil.x SET n = 'a'",
        "ANALYZE evil.x",
        "TRUNCATE evil.x",
    )
    world.nobody_was_robbed()


def test_a_predicate_that_was_replaced_before_all_of_an_owners_objects_are_given(world: World) -> None:
    make_tube(world.admin, predicate="v > 0")
    passes = function_of(world, "passes", "t")
    assert (
        scalar(world.admin, "SELECT obj_description(%s::regproc, 'pg_proc')", (passes,)) == "predicate: v > 0"
    )
    with world.login(MALLORY) as mallory, pytest.raises(psycopg.errors.InsufficientPrivilege):
        mallory.execute(
            f"CREATE OR REPLACE FUNCTION {passes}(v integer) RETURNS boolean LANGUAGE sql IMMUTABLE"
            " RETURN ts_rewrite('a', 'SELECT evil.grasp()::text::tsquery, ''b''::tsquery')"
            " IS NOT NULL".encode()
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
    columns = "SELECT keys[1] FROM tube.tube_attachment WHERE tbl = 'bank.acct'::regclass"
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


def test_a_table_that_changes_hands_is_written_to_before_and_after_an_owner_saw_it(world: World) -> None:
    world.admin.execute(
        "ALTER TABLE bank.acct OWNER TO mallory; GRANT USAGE, CREATE ON SCHEMA bank TO mallory"
    )
    world.run("writer", "INSERT INTO bank.acct VALUES (1)")
    world.run("worker", "SELECT tube.tube_sync()")
    world.run("writer", "INSERT INTO bank.acct VALUES (2)")
    assert ops(world.admin) == []
    world.run("postgres", "SELECT tube.tube_sync()")
    assert asked(world.admin) == ["backfill_schedule"]
    world.run("writer", "INSERT INTO bank.acct VALUES (3)")
    assert ops(world.admin) == [("I", 3)]


def test_functions_that_the_last_owner_has_made_stable(world: World) -> None:
    """A trigger function that does not see what its statement waited for would lose touches."""
    world.run(MALLORY, f"ALTER FUNCTION {function_of(world, 'capture', 't')} STABLE")
    world.admin.execute("REASSIGN OWNED BY mallory TO keeper")
    world.admin.execute("SELECT tube.tube_sync()")
    volatility = "SELECT provolatile FROM pg_proc WHERE oid = %s::regproc"
    assert scalar(world.admin, volatility, (function_of(world, "capture", "t"),)) == "v"


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


EACH_TRIGGER = """
    DO $$
    DECLARE
        name text;
    BEGIN
        FOREACH name IN ARRAY ARRAY(SELECT tgname FROM pg_trigger WHERE tgrelid = 'app.log_1'::regclass) LOOP
            EXECUTE format('DROP TRIGGER %I ON app.log_1', name);
            {}
        END LOOP;
    END $$
"""
TAKE_NAMES = """
    FOREACH name IN ARRAY ARRAY[name, replace(name, 'es-live', 'es-live_' || left(md5('es-live'), 8))] LOOP
        EXECUTE format('CREATE TRIGGER %I AFTER INSERT ON app.log_1 EXECUTE FUNCTION app.none()', name);
    END LOOP;
"""


@pytest.mark.each_value
@pytest.mark.parametrize("by", ["postgres", KEEPER])
@pytest.mark.parametrize("how", ["dropped", "taken", "locked"])
def test_the_owner_of_a_partition_keeps_nothing_else_from_being_followed(
    world: World, how: str, by: str
) -> None:
    """Triggers on it are theirs to drop, and names that these need are theirs to take."""
    world.admin.execute("GRANT CREATE ON SCHEMA bank TO mallory; GRANT USAGE ON SCHEMA app TO keeper")
    world.admin.execute(
        "CREATE TABLE bank.log (id bigint, day integer, v integer, PRIMARY KEY (id, day))"
        " PARTITION BY LIST (day);"
        "CREATE TABLE app.log_1 PARTITION OF bank.log FOR VALUES IN (1);"
        "CREATE TABLE bank.log_2 PARTITION OF bank.log FOR VALUES IN (2);"
        "ALTER TABLE bank.log OWNER TO keeper; ALTER TABLE bank.log_2 OWNER TO keeper;"
        "ALTER TABLE app.log_1 OWNER TO mallory; GRANT tube_worker TO keeper;"
    )
    make_tube(world.admin, predicate="v > 0")
    attach(world.admin, "bank.log", 6)
    none = "CREATE FUNCTION app.none() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
    unfollow(world.admin)
    world.run(MALLORY, none, EACH_TRIGGER.format(TAKE_NAMES if how == "taken" else ""))
    world.admin.execute("ALTER TABLE bank.log RENAME id TO key")
    world.run(KEEPER, "CREATE TABLE bank.log_3 PARTITION OF bank.log FOR VALUES IN (3)")
    with world.login(MALLORY) as mallory, world.login(by) as owner:
        if how == "locked":
            mallory.execute("BEGIN; LOCK TABLE app.log_1 IN SHARE MODE")
        warnings: list[str] = []
        owner.add_notice_handler(lambda notice: warnings.append(notice.message_primary or ""))
        owner.execute("SET lock_timeout = '3s'; SELECT tube.tube_sync()")
        mallory.execute("ROLLBACK")
    assert scalar(world.admin, "SELECT id_col FROM tube_list('bank.log')") == "key", warnings
    assert scalar(world.admin, "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'bank.log_3'::regclass") == 4
    if how != "dropped" or by == KEEPER:
        assert any("app.log_1" in one for one in warnings), warnings
    ops(world.admin)
    world.run(
        KEEPER, "INSERT INTO bank.log VALUES (1, 1, 1), (3, 3, 1)", "INSERT INTO bank.log_3 VALUES (4, 3, 1)"
    )
    assert ops(world.admin) == [("I", 1), ("I", 3), ("I", 4)]
    world.nobody_was_robbed()
