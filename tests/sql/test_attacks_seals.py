"""Seals: types by which a call of an owner's function fits no function of anybody else's."""

from __future__ import annotations

import psycopg
import pytest

from tests.helpers.capture import attach, make_tube, ops, scalar
from tests.sql.attackers import KEEPER, MALLORY, World, function_of, seal_of
from tests.sql.test_attacks_owners import a_tree, partition_comes

pytestmark = pytest.mark.every_server


def moody(world: World) -> None:
    """Have the tube a predicate over an enum, which its guard looks up."""
    world.admin.execute("CREATE TYPE bank.mood AS ENUM ('ok'); GRANT USAGE ON SCHEMA bank TO mallory")
    for attached in ("app.t", "bank.acct", "bank.vault"):
        world.admin.execute(f"ALTER TABLE {attached} ADD m bank.mood DEFAULT 'ok'".encode())
    make_tube(world.admin, predicate="v > 0 AND m = 'ok'")


@pytest.mark.parametrize("kind", ["agent", "p"])
@pytest.mark.parametrize("table", ["acct", "vault"])
def test_a_function_with_one_argument_more_that_has_a_default(world: World, kind: str, table: str) -> None:
    """Beside another owner's function it makes calls ambiguous, whose writes then fail."""
    moody(world)
    name = function_of(world, kind, table)
    types = scalar(
        world.admin,
        "SELECT array_agg(a.t::regtype::text ORDER BY a.n)"
        " FROM pg_proc, unnest(proargtypes) WITH ORDINALITY AS a (t, n) WHERE oid = %s::regproc",
        (name,),
    )
    seal = seal_of(world, KEEPER if table == "acct" else "postgres")
    assert seal == f"tube.{types[-1]}"
    with world.login(MALLORY) as mallory, pytest.raises(psycopg.errors.InsufficientPrivilege):
        mallory.execute(f"CREATE DOMAIN evil.sealed AS {seal}".encode())
    with world.login(MALLORY) as mallory, pytest.raises(psycopg.errors.InsufficientPrivilege):
        mallory.execute(f"GRANT USAGE ON TYPE {seal} TO mallory".encode())
    for last in (
        [seal],
        [f"{seal}[]"],
        ["anyenum"],
        ["anyelement"],
        ["VARIADIC anyarray"],
        [seal_of(world)],
        [],
    ):
        arguments = ", ".join(types[:-1] + last)
        world.try_all(
            MALLORY,
            *(
                f"CREATE FUNCTION {name}({arguments}{more}) RETURNS boolean LANGUAGE plpgsql"
                " AS 'BEGIN PERFORM evil.grasp(); RETURN true; END'"
                for more in ("", ", integer DEFAULT 1", ", VARIADIC integer[] DEFAULT NULL")
            ),
        )
    assert scalar(world.admin, "SELECT count(*) FROM pg_proc WHERE proowner = 'mallory'::regrole") > 10
    world.admin.execute('TRUNCATE "tube"."es-live"')
    world.admin.execute(
        f"INSERT INTO bank.{table} VALUES (1, 1), (2, 0); UPDATE bank.{table} SET v = 2".encode()
    )
    world.admin.execute(f"TRUNCATE bank.{table}".encode())
    world.nobody_was_robbed()
    assert set(ops(world.admin)) == {("D", 1), ("D", 2), ("I", 1), ("I", 2), ("U", 1)}


@pytest.mark.parametrize("table", ["acct", "vault"])
def test_a_range_over_a_seal(world: World, table: str) -> None:
    """It asks for no right on the seal, and has constructors of its name, with seals as arguments."""
    moody(world)
    seal = seal_of(world, KEEPER if table == "acct" else "postgres")
    for number, kind in enumerate(("agent", "p")):
        world.run(
            MALLORY,
            f"CREATE TYPE {function_of(world, kind, table)} AS RANGE"
            f" (subtype = {seal}, multirange_type_name = evil.m{number})",
        )
    assert scalar(world.admin, "SELECT tube_sync()") == 0
    make_tube(world.admin, predicate="v > 1 AND m = 'ok'")
    make_tube(world.admin, predicate="v > 0 AND m = 'ok'")
    world.admin.execute(
        f"INSERT INTO bank.{table} VALUES (1, 1), (2, 0); UPDATE bank.{table} SET v = 2".encode()
    )
    world.admin.execute(f"DELETE FROM bank.{table} WHERE id = 1; TRUNCATE bank.{table}".encode())
    assert set(ops(world.admin)) == {("D", 1), ("D", 2), ("I", 1), ("I", 2), ("U", 1)}


def test_a_table_that_is_given_away_takes_no_seal_with_it(world: World) -> None:
    moody(world)
    seal = seal_of(world, KEEPER)
    world.admin.execute("GRANT CREATE ON SCHEMA bank TO mallory; ALTER TABLE bank.acct OWNER TO mallory")
    while scalar(world.admin, "SELECT tube_sync()"):
        pass
    sealed = (
        "SELECT array_agg(DISTINCT proowner::regrole::text) FROM pg_proc"
        " WHERE %s::regtype = ANY (proargtypes)"
    )
    assert scalar(world.admin, sealed, (seal,)) is None
    assert scalar(world.admin, sealed, (seal_of(world),)) == [MALLORY]


def test_a_seal_that_somebody_else_has_is_one_no_more(world: World) -> None:
    """A function that was given away with it, or a right on it."""
    moody(world)
    world.admin.execute(f"ALTER FUNCTION {function_of(world, 'p', 'vault')} OWNER TO mallory".encode())
    was = seal_of(world, "postgres")
    assert scalar(world.admin, "SELECT tube_sync()") == 1
    assert scalar(world.admin, "SELECT tube_sync()") == 0
    seal = seal_of(world, "postgres")
    assert seal not in (was, "None")
    world.admin.execute(f"GRANT USAGE ON TYPE {seal} TO PUBLIC".encode())
    assert scalar(world.admin, "SELECT tube_sync()") == 1
    assert scalar(world.admin, "SELECT tube_sync()") == 0
    assert seal_of(world, "postgres") not in (was, seal, "None")
    world.admin.execute("INSERT INTO bank.vault VALUES (1, 1), (2, 0); TRUNCATE bank.vault")
    assert ops(world.admin) == [("D", 1), ("I", 1)]


def test_an_owner_with_another_name_and_a_role_with_theirs(world: World) -> None:
    a_tree(world)
    seal = seal_of(world)
    world.admin.execute("GRANT CREATE ON SCHEMA app TO keeper; ALTER ROLE mallory RENAME TO mallory_was")
    try:
        world.admin.execute("CREATE ROLE mallory; GRANT CREATE ON SCHEMA app TO mallory")
        assert seal_of(world) == "None"
        assert seal_of(world, "mallory_was") == seal
        world.admin.execute("CREATE TABLE app.u (id bigint PRIMARY KEY); ALTER TABLE app.u OWNER TO mallory")
        attach(world.admin, "app.u", 8)
        assert seal_of(world) not in ("None", seal)
        world.admin.execute("DROP TABLE app.u; DROP OWNED BY mallory; DROP ROLE mallory")
        world.admin.execute("CREATE TABLE app.log_1 PARTITION OF app.log FOR VALUES IN (1)")
        world.admin.execute("ALTER TABLE app.log_1 OWNER TO mallory_was")
    finally:
        world.admin.execute("ALTER ROLE mallory_was RENAME TO mallory")
    world.run("worker", "SELECT tube.tube_sync()")
    triggers = "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'app.log_1'::regclass"
    assert scalar(world.admin, triggers) == 4, "a worker has the agent put them there"
    assert scalar(world.admin, "SELECT tube_sync()") == 0


def test_a_session_that_quotes_all_identifiers_follows_partitions(world: World) -> None:
    a_tree(world)
    partition_comes(world, 1)
    with world.login("worker") as worker:
        worker.execute("SET quote_all_identifiers = on")
        worker.execute("SELECT tube.tube_sync()")
    with world.login("postgres") as admin:
        admin.execute("SET quote_all_identifiers = on")
        admin.execute("SELECT tube.tube_table_ensure_attached('es-live', 'app.log', 7, id_col => 'id')")
    partition_comes(world, 2)
    world.run("worker", "SELECT tube.tube_sync()")
    triggers = "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'app.log_2'::regclass"
    assert scalar(world.admin, triggers) == 4


def test_a_table_is_detached_whose_enum_nobody_else_may_see(world: World) -> None:
    moody(world)
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


def test_who_may_use_a_seal(world: World) -> None:
    for statement in (
        "CREATE DOMAIN evil.d AS {0}",
        "CREATE TABLE evil.c (c {0})",
        "CREATE VIEW evil.c AS SELECT NULL::{0} AS c",
        "CREATE FUNCTION evil.c({0}) RETURNS integer LANGUAGE sql RETURN 1",
        "CREATE FUNCTION evil.c() RETURNS {0} LANGUAGE sql RETURN NULL",
        "ALTER TYPE {0} ADD VALUE 'x'",
        "ALTER TYPE {0} RENAME TO tube_seal_0",
    ):
        for owner in (KEEPER, "postgres"):
            with world.login(MALLORY) as mallory, pytest.raises(psycopg.errors.InsufficientPrivilege):
                mallory.execute(statement.format(seal_of(world, owner)).encode())
