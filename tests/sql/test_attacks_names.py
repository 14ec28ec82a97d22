"""Names of owners, types and sessions that are odd, or that somebody may not look up."""

from __future__ import annotations

import pytest

from tests.helpers.capture import attach, make_tube, ops, scalar
from tests.sql.attackers import World

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]


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
