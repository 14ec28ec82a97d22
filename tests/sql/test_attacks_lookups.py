"""What the functions of owners find by a name in place of what was meant."""

from __future__ import annotations

import pytest

from tests.helpers.capture import make_tube, scalar
from tests.sql.attackers import MALLORY, World

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]


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
