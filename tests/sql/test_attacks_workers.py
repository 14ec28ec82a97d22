"""Workers, and roles with default privileges, who try to get rights of ours."""

from __future__ import annotations

import re

import pytest

from tests.helpers.capture import Conn, attach, make_tube, scalar
from tests.helpers.database import ROOT
from tests.helpers.roles import roles
from tests.sql.test_attacks_owners import MALLORY, World
from tests.sql.test_attacks_owners import world as world  # noqa: PLC0414 # a fixture

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
        f"SELECT tube.tube_private_store_pod({number}, 1, 0, '{{1}}'::bigint[])",
        f"SELECT tube.tube_private_put_range_pod({number}, 0, '{{1}}'::bigint[])",
        f"SELECT tube.tube_private_end_collect({number}, 1, NULL)",
        f"SELECT tube.tube_backfill_chunk({number}, 10)",
        "SELECT tube.tube_backfill_tidy()",
    )
    assert "worker" in world.struck, "the trap works"
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
    with roles(any_dsn, MALLORY, "keeper") as admin:
        admin.execute("SET search_path = tube, public")
        for owner in ("tube_owner", "keeper"):
            admin.execute(
                f"ALTER DEFAULT PRIVILEGES FOR ROLE {owner} GRANT EXECUTE ON FUNCTIONS TO mallory".encode()
            )
        admin.execute(
            "CREATE SCHEMA bank AUTHORIZATION keeper; CREATE TABLE bank.acct (id bigint PRIMARY KEY)"
        )
        admin.execute("ALTER TABLE bank.acct OWNER TO keeper")
        make_tube(admin, "other")
        attach(admin, "bank.acct", 1, tube="other")
        assert callable_by_mallory(admin) == []


def test_a_table_of_a_strangers_stops_no_tidying(world: World) -> None:
    world.admin.execute("CREATE TABLE tube.tube_backfill_ids_777 (id int)")
    assert scalar(world.admin, "SELECT tube_backfill_tidy()") == 0
    assert scalar(world.admin, "SELECT to_regclass('tube.tube_backfill_ids_777') IS NOT NULL")


def callable_by_mallory(conn: Conn) -> list[str]:
    """The functions made for tables or tubes that mallory may call."""
    rows = conn.execute(
        "SELECT p.oid::regprocedure::text FROM pg_proc AS p WHERE p.oid >= 16384"
        " AND p.prosrc LIKE E'\\n-- Made by tube\\\\_private\\\\_%'"
        " AND has_function_privilege('mallory', p.oid, 'EXECUTE')"
    ).fetchall()
    return [str(row[0]) for row in rows]
