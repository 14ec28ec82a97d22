"""What the functions of owners find by a name in place of what was meant."""

from __future__ import annotations

import psycopg
import pytest

from tests.helpers.capture import make_tube, scalar
from tests.sql.attackers import KEEPER, MALLORY, World, function_of, seal_of

pytestmark = pytest.mark.every_server


def test_functions_named_like_the_agents_of_others(world: World) -> None:
    for table in ("acct", "vault"):
        agent = function_of(world, "agent", table)
        for arguments in ("oid, text, text", "oid, text[], text", "regclass, name[], name"):
            world.run(
                MALLORY,
                f"CREATE FUNCTION {agent}({arguments}) RETURNS boolean LANGUAGE plpgsql"
                " AS 'BEGIN PERFORM evil.grasp(); RETURN true; END'",
            )
    world.admin.execute("INSERT INTO bank.acct VALUES (1, 1); INSERT INTO bank.vault VALUES (1, 1)")
    world.admin.execute('TRUNCATE "tube"."es-live"')
    world.admin.execute("GRANT TRUNCATE ON bank.acct, bank.vault TO writer")
    world.run("writer", "TRUNCATE bank.acct", "TRUNCATE bank.vault")
    world.nobody_was_robbed()
    assert scalar(world.admin, """SELECT count(*) FROM "tube"."es-live" WHERE op = 'D'""") == 2


@pytest.mark.parametrize(
    "kind", ["TYPE pg_temp.record AS (op pg_temp.d, ids bigint[])", "DOMAIN pg_temp.record AS pg_temp.d"]
)
def test_a_writers_own_type_record(world: World, kind: str) -> None:
    world.run(
        "writer",
        "CREATE FUNCTION pg_temp.hit() RETURNS boolean LANGUAGE plpgsql"
        " AS 'BEGIN PERFORM evil.grasp(); RETURN true; END'",
        "GRANT EXECUTE ON FUNCTION pg_temp.hit() TO PUBLIC",
        "CREATE DOMAIN pg_temp.d AS text CHECK (pg_temp.hit())",
        f"CREATE {kind}",
        "SET search_path = pg_temp, pg_catalog",
        "INSERT INTO bank.vault VALUES (1, 1)",
        "INSERT INTO bank.acct VALUES (1, 1)",
        "UPDATE bank.vault SET id = 11",
        "UPDATE bank.acct SET id = 11",
    )
    world.nobody_was_robbed()
    assert scalar(world.admin, """SELECT count(*) FROM "tube"."es-live" WHERE op = 'D'""") > 0


@pytest.mark.parametrize(
    "made",
    [
        "FUNCTION {0}(rel regclass, triggers name[], op text, seal {1}) RETURNS evil.b",
        "FUNCTION {0}(rel regclass, triggers name[], op text, seal {1}) RETURNS boolean STRICT",
        "FUNCTION {0}(a regclass, b name[], c text, d {1}) RETURNS boolean",
        "FUNCTION {0}(rel regclass, triggers name[], op text, seal {1}) RETURNS SETOF boolean",
        "FUNCTION {0}(rel regclass, triggers name[], op text, seal {1} DEFAULT NULL) RETURNS boolean",
        "FUNCTION {0}(rel regclass, triggers name[], op text, seal {1}, OUT x boolean) RETURNS boolean",
        "PROCEDURE {0}(rel regclass, triggers name[], op text, seal {1})",
    ],
    ids=["result", "strict", "names", "set", "default", "out", "procedure"],
)
def test_an_agent_of_another_kind_is_made_again(world: World, made: str) -> None:
    agent = function_of(world, "agent", "t")
    was = scalar(world.admin, "SELECT prosrc FROM pg_proc WHERE oid = %s::regproc", (agent,))
    body = was if "RETURNS boolean" in made and "OUT" not in made else "BEGIN END"
    world.run(
        MALLORY,
        "CREATE DOMAIN evil.b AS boolean CHECK (evil.strike(1) = 1)",
        "GRANT USAGE ON TYPE evil.b TO PUBLIC",
        f"DROP FUNCTION {agent}",
        f"CREATE {made.format(agent, seal_of(world))} LANGUAGE plpgsql SECURITY DEFINER"
        f" SET search_path = pg_catalog, pg_temp AS $${body}$$",
    )
    world.struck.clear()
    for owner in (MALLORY, KEEPER):
        world.admin.execute(f"REASSIGN OWNED BY mallory TO {owner}".encode())
        world.admin.execute("SELECT tube.tube_sync()")
        assert scalar(world.admin, "SELECT tube.tube_sync()") == 0, "something is left to be done"
        ((kind, result, strict, arguments),) = world.admin.execute(
            "SELECT prokind, pg_get_function_result(oid), proisstrict, pg_get_function_arguments(oid)"
            " FROM pg_proc WHERE format('%%I.%%I', pronamespace::regnamespace, proname) = %s",
            (agent,),
        ).fetchall()
        assert (kind, result, strict) == ("f", "boolean", False)
        assert (
            arguments
            == f"rel regclass, triggers name[], op text, seal {seal_of(world, owner).removeprefix('tube.')}"
        )
    world.admin.execute("INSERT INTO app.t VALUES (77, 1); TRUNCATE app.t")
    world.nobody_was_robbed()
    assert scalar(world.admin, """SELECT count(*) FROM "tube"."es-live" WHERE op = 'D'""") > 0


def test_an_overload_in_place_of_an_agent(world: World) -> None:
    agent, seal = function_of(world, "agent", "t"), seal_of(world)
    world.run(
        MALLORY,
        f"DROP FUNCTION {agent}",
        f"CREATE FUNCTION {agent}(regclass, name[], varchar, {seal}) RETURNS boolean LANGUAGE plpgsql"
        " SECURITY INVOKER AS 'BEGIN PERFORM evil.grasp(); RETURN true; END'",
    )
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="is not what its owner has agreed to"):
        world.admin.execute(
            "SELECT tube.tube_private_call_agent(%s, NULL, 'app.t', NULL, 'D')",
            (f"{agent}(regclass, name[], text, {seal})",),
        )
    world.nobody_was_robbed()


@pytest.mark.parametrize("base", ["text", "jsonb", "integer"])
@pytest.mark.parametrize("table", ["acct", "vault"])
def test_a_writers_own_type_of_a_built_in_name_where_a_predicate_is_over_a_domain(
    world: World, base: str, table: str
) -> None:
    """The domain is the owner's, and without any check."""
    world.admin.execute(
        f"CREATE DOMAIN bank.word AS {base}; ALTER TABLE app.t ADD n {base};"
        "ALTER TABLE bank.vault ADD n bank.word; ALTER TABLE bank.acct ADD n bank.word;"
        "GRANT USAGE ON SCHEMA bank TO mallory; GRANT INSERT ON bank.acct, bank.vault TO mallory".encode()
    )
    make_tube(world.admin, predicate="n IS NOT NULL")
    of = "int4" if base == "integer" else base
    world.run(
        MALLORY,
        f'CREATE DOMAIN pg_temp."{base}" AS pg_catalog.{of} CHECK (evil.strike(1) = 1);'
        f"INSERT INTO bank.{table} VALUES (1, 1, NULL)",
    )
    world.nobody_was_robbed()
