"""Types, predicates and names that run code of somebody's, or come to do so when something is renamed."""

from __future__ import annotations

import pytest

from tests.helpers.capture import attach, make_tube, ops, refusal, scalar
from tests.sql.attackers import CASTS, KEEPER, MALLORY, World

DETACH_OTHERS = """
    SELECT tube_table_ensure_detached('es-live', t) FROM unnest('{bank.acct, bank.vault}'::regclass[]) AS t
"""

RENAMED = """
    ALTER TYPE evil.mood RENAME TO old_mood;
    CREATE DOMAIN evil.mood AS text CHECK (evil.strike(1) = 1);
"""


PREDICATES: list[str] = [
    "v::evil.checked IS NOT NULL",
    "CAST(v AS evil.checked) > 0",
    "'{1}'::evil.checked[] IS NOT NULL",
    "ARRAY[v]::checked[] IS NOT NULL",
    "evil.strike(v) = 1",
    "strike(v) = 1",
    "v::temporary > 0",
    "v OPERATOR(evil.=) 1",
    "(v).evil = 1",
    "EXISTS (SELECT evil.strike(1))",
    "v = 1) IS NULL OR (evil.strike(1) = 1",
    "v = 1); SELECT evil.strike(1",
    "v = 1 /* . */ OR evil.strike(1) = 1",
    "v = 1 OR e'\\'' = '' OR evil.strike(1) = 1 --'",
    'U&"\\0065vil".strike(1) = 1',
    "query_to_xml('SELECT evil.strike(1)', true, true, '') IS NULL",
    "set_config('role', 'postgres', false) = ''",
]


def test_a_predicate_that_runs_code_of_ones_own(world: World) -> None:
    world.admin.execute("GRANT tube_admin TO mallory")
    world.admin.execute(DETACH_OTHERS)
    with world.login(MALLORY) as mallory:
        mallory.execute("CREATE DOMAIN evil.checked AS integer CHECK (evil.strike(VALUE) = 1)")
        mallory.execute("CREATE DOMAIN pg_temp.temporary AS integer CHECK (evil.strike(VALUE) = 1)")
        mallory.execute("SET search_path = evil, pg_catalog")
        for predicate in PREDICATES:
            with refusal("TU105", predicate):
                mallory.execute("SELECT tube.tube_ensure_exists('es-live', 4, %s)", (predicate,))
            assert world.struck == set(), predicate
            assert scalar(world.admin, "SELECT predicate FROM tube_registry") is None, predicate


def write_moods(world: World) -> None:
    """Writes of the table with the enum: by its owner, a writer, and a superuser."""
    for role in (KEEPER, "writer", "postgres"):
        world.try_all(
            role,
            "INSERT INTO bank.feeling VALUES (1, 'good'), (2, 'bad')",
            "UPDATE bank.feeling SET state = 'good'",
            "UPDATE bank.feeling SET id = id + 100 WHERE id = 1",
            "DELETE FROM bank.feeling",
            "TRUNCATE bank.feeling",
        )


@pytest.mark.each_value
@pytest.mark.parametrize(
    "predicate", ["state = 'good'", "state IN ('good', 'bad')", "state > 'bad' AND id > 0"]
)
@pytest.mark.parametrize("plot", ["renamed", "casts", "both"])
def test_the_owner_of_an_enum_who_puts_something_else_in_its_place(
    world: World, predicate: str, plot: str
) -> None:
    world.run(
        MALLORY, "CREATE TYPE evil.mood AS ENUM ('bad', 'good'); GRANT USAGE ON TYPE evil.mood TO keeper"
    )
    world.admin.execute(
        "CREATE TABLE bank.feeling (id bigint PRIMARY KEY, state evil.mood);"
        " ALTER TABLE bank.feeling OWNER TO keeper"
    )
    world.admin.execute("GRANT ALL ON bank.feeling TO writer")
    make_tube(world.admin, "moods", predicate=predicate)
    attach(world.admin, "bank.feeling", 5, tube="moods")
    write_moods(world)
    ops(world.admin, "moods")
    if plot != "casts":
        world.run(MALLORY, RENAMED)
    if plot != "renamed":
        world.run(MALLORY, CASTS.format("mood" if plot == "casts" else "old_mood"))
    write_moods(world)
    world.run("worker", "SELECT tube.tube_sync()")
    world.run("postgres", "SELECT tube.tube_sync()")
    write_moods(world)
    world.try_all("postgres", f"SELECT tube.tube_ensure_exists('moods', 4, $$({predicate}) AND id > -1$$)")
    write_moods(world)
    world.try_all("postgres", "SELECT tube.tube_table_ensure_detached('moods', 'bank.feeling')")
    world.try_all("postgres", "SELECT tube.tube_table_ensure_attached('moods', 'bank.feeling', 5)")
    write_moods(world)
    world.nobody_was_robbed()
    assert world.struck == set()


@pytest.mark.each_value
@pytest.mark.parametrize("predicate", ["v > 0.5", "v = 1", "abs(v) > 0", "v IS NOT NULL", "v::text = '1'"])
@pytest.mark.parametrize("role", ["postgres", "worker", KEEPER])
def test_a_column_that_becomes_an_enum_with_casts_of_its_own(world: World, predicate: str, role: str) -> None:
    """Who follows that, or sets another predicate, is not the owner, and yet has the owner's rights."""
    world.admin.execute("GRANT tube_admin TO mallory; GRANT mallory TO keeper; GRANT tube_admin TO keeper")
    world.admin.execute(DETACH_OTHERS)
    make_tube(world.admin, predicate=predicate)
    world.run(MALLORY, "CREATE TYPE evil.mood AS ENUM ('0', '1')", CASTS.format("mood"))
    world.run(MALLORY, "ALTER TABLE app.t ALTER v TYPE evil.mood USING NULL")
    world.try_all(
        role,
        "SELECT tube.tube_sync()",
        f"SELECT tube.tube_ensure_exists('es-live', 4, $$({predicate}) AND id > -1$$)",
    )
    world.admin.execute("REVOKE mallory FROM keeper")
    world.nobody_was_robbed()


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


def test_a_table_is_detached_whose_enum_nobody_else_may_see(world: World) -> None:
    world.admin.execute("CREATE TYPE bank.mood AS ENUM ('ok'); GRANT USAGE ON SCHEMA bank TO mallory")
    for attached in ("app.t", "bank.acct", "bank.vault"):
        world.admin.execute(f"ALTER TABLE {attached} ADD m bank.mood DEFAULT 'ok'".encode())
    make_tube(world.admin, predicate="v > 0 AND m = 'ok'")
    world.admin.execute("REVOKE USAGE ON SCHEMA bank FROM PUBLIC, mallory, worker, writer")
    world.admin.execute("SELECT tube_table_ensure_detached('es-live', 'bank.acct')")
    world.admin.execute("SELECT tube_ensure_absent('es-live')")
    left = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'tube_capture'::regnamespace"
    assert scalar(world.admin, left) == 0


@pytest.mark.parametrize("owner", ["my, role", "a DEFAULT b", 'o"dd', "-"])
def test_owners_with_odd_names(world: World, owner: str) -> None:
    name = '"' + owner.replace('"', '""') + '"'
    world.admin.execute(f"CREATE ROLE {name}; GRANT USAGE ON SCHEMA bank TO {name}".encode())
    try:
        world.admin.execute("CREATE TABLE bank.odd (id bigint PRIMARY KEY, v integer)")
        world.admin.execute(f"ALTER TABLE bank.odd OWNER TO {name}".encode())
        attach(world.admin, "bank.odd", 9)
        world.admin.execute("INSERT INTO bank.odd VALUES (1, 1); TRUNCATE bank.odd")
        assert ops(world.admin) == [("D", 1), ("I", 1)]
        assert scalar(world.admin, "SELECT tube_sync()") == 0
    finally:
        world.admin.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}".encode())


def test_a_session_that_quotes_all_identifiers(world: World) -> None:
    make_tube(world.admin, predicate="v > 0")
    world.admin.execute("SET quote_all_identifiers = on")
    world.admin.execute("SELECT tube_table_ensure_attached('es-live', 'bank.acct', 1, columns => '{v}')")
    assert scalar(world.admin, "SELECT tube_sync()") == 0
    world.admin.execute("INSERT INTO bank.acct VALUES (1, 1), (2, 0)")
    assert ops(world.admin) == [("I", 1)]
