"""Predicates and types that run code of their owner's, or come to do so when something is renamed."""

from __future__ import annotations

import psycopg
import pytest

from tests.helpers.capture import attach, make_tube, ops, scalar
from tests.sql.attackers import CASTS, KEEPER, MALLORY, World

DETACH_OTHERS = """
    SELECT tube_table_ensure_detached('es-live', t) FROM unnest('{bank.acct, bank.vault}'::regclass[]) AS t
"""

RENAMED = """
    ALTER TYPE evil.mood RENAME TO old_mood;
    CREATE DOMAIN evil.mood AS text CHECK (evil.strike(1) = 1);
"""


@pytest.mark.parametrize(
    "predicate",
    [
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
    ],
)
def test_a_predicate_that_runs_code_of_ones_own(world: World, predicate: str) -> None:
    world.admin.execute("GRANT tube_admin TO mallory")
    world.admin.execute(DETACH_OTHERS)
    with world.login(MALLORY) as mallory:
        mallory.execute("CREATE DOMAIN evil.checked AS integer CHECK (evil.strike(VALUE) = 1)")
        mallory.execute("CREATE DOMAIN pg_temp.temporary AS integer CHECK (evil.strike(VALUE) = 1)")
        mallory.execute("SET search_path = evil, pg_catalog")
        with pytest.raises(psycopg.Error) as refused:
            mallory.execute("SELECT tube.tube_ensure_exists('es-live', 4, %s)", (predicate,))
        assert refused.value.sqlstate == "TU105"
    assert world.struck == set()
    assert scalar(world.admin, "SELECT predicate FROM tube_registry") is None


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
