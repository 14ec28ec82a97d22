"""Members of tube_admin, and former owners, who try to get at the capture of another's table."""

from __future__ import annotations

import psycopg
import pytest

from tests.helpers.capture import asked, attach, make_tube, ops, scalar, unfollow
from tests.sql.attackers import KEEPER, MALLORY, World, function_of


def roots(world: World) -> object:
    """Which tables are the root of their shards."""
    return scalar(world.admin, "SELECT json_object_agg(tbl::text, root) FROM tube_list()")


def test_an_admin_makes_no_root_table_a_related_one(world: World) -> None:
    """Nor a related one a root, of whose vanished rows only a sweep would be asked."""
    world.admin.execute("GRANT tube_admin TO mallory")
    attach(world.admin, "bank.acct", 2)
    before = roots(world)
    for change in ('{"position": 9000}', '{"position": -1}', '{"shard": 77}', '{"position": null}'):
        world.try_all(
            MALLORY,
            f"SELECT tube.tube_private_provide(jsonb_populate_record(a, '{change}'))"
            " FROM tube.tube_attachment AS a",
            f"SELECT tube.tube_private_store(jsonb_populate_record(a, '{change}'), false)"
            " FROM tube.tube_attachment AS a",
        )
        assert roots(world) == before, change
    world.run(
        MALLORY,
        "SELECT tube.tube_private_begin_attach(a.tube, a.tbl, 77, 1, NULL, NULL, false)"
        " FROM tube.tube_attachment AS a WHERE a.shard = 2 AND tube.tube_private_is_root(a)",
    )
    world.admin.execute("SELECT tube_sync()")
    assert roots(world) == before
    ops(world.admin)
    world.run("writer", "INSERT INTO bank.vault VALUES (1)", "INSERT INTO bank.acct VALUES (2)")
    assert ops(world.admin) == [("I", 1), ("U", 2)]


def test_an_admin_takes_no_predicate_from_anothers_table(world: World) -> None:
    """By saying that it does not fit: its owner's next tube_sync would drop it."""
    make_tube(world.admin, predicate="v > 0")
    world.admin.execute("GRANT tube_admin TO mallory")
    world.try_all(
        MALLORY,
        *(
            f"SELECT tube.tube_private_store(jsonb_populate_record(a, '{{\"row_filter\": null}}'), {late})"
            " FROM tube.tube_attachment AS a"
            for late in ("false", "true")
        ),
    )
    world.admin.execute("SELECT tube_sync()")
    assert scalar(world.admin, "SELECT count(*) FROM tube_attachment WHERE row_filter = 'v > 0'") == 3
    world.run("writer", "INSERT INTO bank.acct VALUES (1, 1), (2, 0)")
    assert ops(world.admin) == [("I", 1)]


def test_an_overload_that_an_admin_leaves_is_dropped(world: World) -> None:
    """Beside it the guard can't tell whether a predicate fits: each write would ask for a backfill."""
    make_tube(world.admin, predicate="v > 0")
    world.admin.execute("GRANT tube_admin TO mallory")
    passes = function_of(world, "passes", "acct")
    world.run(
        MALLORY,
        "SELECT tube.tube_private_open_capture('app.t')",
        f"CREATE FUNCTION {passes}(smallint) RETURNS boolean LANGUAGE sql IMMUTABLE AS"
        " 'SELECT evil.strike(1) = 1'",
    )
    world.run("writer", "INSERT INTO bank.acct VALUES (1, 1)")
    assert asked(world.admin) == ["backfill_schedule"], "at the worst"
    ops(world.admin)
    world.run("worker", "SELECT tube.tube_sync()")
    world.run("writer", "INSERT INTO bank.acct VALUES (2, 1)")
    assert ops(world.admin) == [("I", 2)]
    world.nobody_was_robbed()


def test_no_two_attachments_have_one_digest(world: World) -> None:
    """By the digest their objects are found, and dropped; with 32 bits it can be looked for."""
    world.admin.execute(
        "UPDATE tube_attachment SET trigger_function = 'es-live_acct_capture_'"
        " || left(md5('mine ' || 'app.t'::regclass::oid), 8) WHERE tbl = 'bank.acct'::regclass"
    )
    name = "SELECT tube_private_capture_name('mine', 'app.t')"
    taken = scalar(world.admin, "SELECT right(trigger_function, 8) FROM tube_attachment WHERE shard = 1")
    assert scalar(world.admin, name)[-8:] != taken
    assert scalar(world.admin, name) == scalar(world.admin, name)
    with pytest.raises(psycopg.errors.UniqueViolation):  # of two that attach at once
        world.admin.execute(
            "UPDATE tube_attachment SET trigger_function = 'other_capture_' || %s WHERE shard = 2", (taken,)
        )


def test_a_tube_that_waits_under_the_name_of_a_door(world: World) -> None:
    """The shards that a table will have can be guessed; its pods would go to the wrong tube."""
    world.admin.execute("GRANT tube_admin TO mallory")
    door = scalar(
        world.admin,
        "SELECT split_part(tube_private_function(jsonb_populate_record(a, '{\"shard\": 30}'), 'door'),"
        " '.', 2)"
        " FROM tube_attachment AS a WHERE a.tbl = 'bank.acct'::regclass",
    ).strip('"')
    with world.login(MALLORY) as mallory, pytest.raises(psycopg.Error) as refused:
        mallory.execute("SELECT tube.tube_ensure_exists(%s)", (door,))
    assert refused.value.sqlstate == "TU101"
    attach(world.admin, "bank.acct", 30)
    world.run("writer", "INSERT INTO bank.acct VALUES (1, 1)")
    assert ops(world.admin) == [("I", 1)]


@pytest.mark.parametrize("tag", ["body", "ddl", ""])
def test_the_name_of_a_tube_ends_no_quotation(world: World, tag: str) -> None:
    """It is in the bodies of functions that are made with our owner's rights."""
    world.admin.execute("GRANT tube_admin TO mallory")
    name = f"${tag}$;GRANT ALL ON SCHEMA tube TO mallory;SELECT ${tag}$"
    world.run(MALLORY, "SET check_function_bodies = off", f"SELECT tube.tube_ensure_exists('{name}')")
    assert not scalar(world.admin, "SELECT has_schema_privilege('mallory', 'tube', 'CREATE')")
    world.run(MALLORY, f"SELECT tube.tube_ensure_absent('{name}')")


@pytest.mark.parametrize("follows", [True, False], ids=["event triggers", "none"])
def test_a_former_owner_who_is_an_admin_replaces_no_function(world: World, follows: bool) -> None:
    """Where nothing has looked since the table was given away, it still fires for the next owner."""
    capture = function_of(world, "capture", "t")
    world.admin.execute("GRANT tube_admin TO mallory; GRANT USAGE ON SCHEMA app TO keeper")
    world.admin.execute(
        "CREATE TABLE app.other (id bigint PRIMARY KEY); ALTER TABLE app.other OWNER TO mallory"
    )
    if not follows:
        unfollow(world.admin)
    world.admin.execute("ALTER TABLE app.t OWNER TO keeper")
    evil = (
        f"CREATE OR REPLACE FUNCTION {capture}() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM evil.grasp(); RETURN NULL; END'"
    )
    world.try_all(MALLORY, evil, "SELECT tube.tube_private_open_capture('app.other')", evil)
    world.run(KEEPER, "INSERT INTO app.t VALUES (1, 1)")
    world.admin.execute("INSERT INTO app.t VALUES (2, 1)")
    world.nobody_was_robbed()
    assert world.struck == set()


def test_what_an_admin_leaves_of_an_attachment_that_is_none(world: World) -> None:
    """Neither keeps it another table from being followed or detached, nor a tube from being dropped."""
    world.admin.execute("GRANT tube_admin TO mallory; SELECT tube_ensure_exists('words')")
    world.admin.execute(
        "CREATE TABLE app.other (id bigint PRIMARY KEY); ALTER TABLE app.other OWNER TO mallory"
    )
    left = "SELECT count(*) FROM pg_class WHERE relname LIKE '%%\\_door\\_%%' AND relkind = 'v'"
    before = scalar(world.admin, left)
    world.run(
        MALLORY,
        "SELECT tube.tube_private_begin_attach('words', a.tbl, a.shard, a.shards, a.keys[1], NULL, false)"
        " FROM tube.tube_attachment AS a WHERE a.tube = 'es-live'",
        "SELECT tube.tube_private_begin_attach('es-live', 'app.other', 50, 1, NULL, NULL, false)",
    )
    assert scalar(world.admin, left) > before, "nothing was left"
    assert scalar(world.admin, "SELECT tube_sync()") == 0
    world.admin.execute("ALTER TABLE bank.acct RENAME TO account")
    world.admin.execute("SELECT tube_sync()")
    assert scalar(world.admin, "SELECT to_regproc('bank.account_touch') IS NOT NULL")
    for table in ("app.t", "bank.account", "bank.vault"):
        world.admin.execute("SELECT tube_table_ensure_detached('es-live', %s)", (table,))
    world.admin.execute("SELECT tube_drop('words'), tube_drop('es-live')")
    assert scalar(world.admin, left) == 0


def test_a_login_locks_no_table_by_what_event_triggers_call(world: World) -> None:
    """Between the change of owner and the next look, where there are no event triggers."""
    unfollow(world.admin)
    world.admin.execute("ALTER TABLE app.t OWNER TO keeper")
    with world.login(MALLORY) as mallory:
        mallory.execute("BEGIN")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="drop_routines"):
            mallory.execute("SELECT tube.tube_private_drop_routines(NULL, NULL)")
        mallory.execute("ROLLBACK")
        mallory.execute("BEGIN")
        with pytest.raises(psycopg.Error, match="event trigger"):
            mallory.execute("SELECT tube.tube_private_see_ddl('ALTER TABLE')")
        world.admin.execute("SET lock_timeout = '1s'")
        world.admin.execute("INSERT INTO app.t VALUES (1, 1)")


@pytest.mark.parametrize(
    "revoked",
    [
        "USAGE ON SEQUENCE tube.tube_seq",
        "ALL ON ALL SEQUENCES IN SCHEMA tube",
        "ALL ON ALL TABLES IN SCHEMA tube",
        "ALL ON ALL FUNCTIONS IN SCHEMA tube",
    ],
)
def test_a_right_that_is_revoked_fails_no_open_session(world: World, revoked: str) -> None:
    """Its plans were made while the owner had it."""
    with world.login("writer") as writer:
        writer.execute("INSERT INTO bank.acct VALUES (1, 1)")
        writer.execute("UPDATE bank.acct SET v = 2")
        world.admin.execute(f"REVOKE {revoked} FROM keeper".encode())
        writer.execute("INSERT INTO bank.acct VALUES (2, 1)")
        writer.execute("UPDATE bank.acct SET v = 3")
        ops(world.admin)
        world.run("worker", "SELECT tube.tube_sync()")
        assert asked(world.admin) == ["backfill_schedule"]
        ops(world.admin)
        writer.execute("INSERT INTO bank.acct VALUES (3, 1)")
    assert ops(world.admin) == [("I", 3)]


@pytest.mark.parametrize("predicate", ["10 / v > 0", ""])
def test_an_admin_sets_no_predicate_of_anothers_table(world: World, predicate: str) -> None:
    """By what `tube_ensure_exists` calls: owners would take it over by their next tube_sync."""
    make_tube(world.admin, predicate="v > 0")
    world.admin.execute("GRANT tube_admin TO mallory")
    world.admin.execute("ALTER TABLE bank.vault OWNER TO keeper")
    world.run(MALLORY, "SELECT count(*) FROM tube.tube_private_ensure_tube('es-live', 4, '', NULL)")
    world.try_all(
        MALLORY,
        f"SELECT tube.tube_private_ensure_tube('es-live', 4, '{predicate}', NULL)",
        f"SELECT tube.tube_private_set_predicate('es-live', '{predicate}')",
        "SELECT tube.tube_table_ensure_detached('es-live', 'app.t'),"
        f" tube.tube_private_set_predicate('es-live', '{predicate}')",
        f"SELECT tube.tube_ensure_exists('es-live', 4, '{predicate}')",
        "SELECT tube.tube_private_store(jsonb_populate_record(a, '{\"row_filter\": null}'), true)"
        " FROM tube.tube_attachment AS a",
        f"SELECT tube.tube_private_set_predicate('es-live', '{predicate}')",
    )
    assert scalar(world.admin, "SELECT predicate FROM tube_registry") == "v > 0"
    world.run(KEEPER, "SET search_path = tube; SELECT 1")
    world.admin.execute("SELECT tube_sync()")
    world.run("writer", "INSERT INTO bank.acct VALUES (1, 1), (2, 0)")
    assert ops(world.admin) == [("I", 1)]


def test_no_other_shards_have_the_put_of_anothers_table(world: World) -> None:
    """Digests of 24 bits of 1 and 1 and of these are the same: whoever names shards can look for such."""
    world.admin.execute("GRANT tube_admin TO mallory")
    world.try_all(
        MALLORY,
        'SELECT tube.tube_private_provide(jsonb_populate_record(a, \'{"shard": 2102, "shards": 2417}\'))'
        " FROM tube.tube_attachment AS a WHERE a.shard = 1",
    )
    world.run("writer", "INSERT INTO bank.acct VALUES (1), (2)")
    assert {shard for (shard,) in world.admin.execute('SELECT shard FROM "es-live"').fetchall()} == {1}


@pytest.mark.parametrize(
    "revoked",
    ["USAGE ON SCHEMA tube, tube_capture", "EXECUTE ON FUNCTION tube.tube_private_see_ddl"],
)
def test_a_right_of_everybodys_that_is_revoked_fails_no_statement(world: World, revoked: str) -> None:
    with world.login("writer") as writer:
        writer.execute("INSERT INTO bank.acct VALUES (1, 1)")
        world.admin.execute(f"REVOKE {revoked} FROM PUBLIC".encode())
        writer.execute("INSERT INTO bank.acct VALUES (2, 1)")
        world.run("writer", "INSERT INTO bank.acct VALUES (3, 1)", "UPDATE bank.acct SET v = 3")
        world.run(
            KEEPER,
            "CREATE TABLE bank.log (id bigint, day integer, PRIMARY KEY (id, day)) PARTITION BY LIST (day)",
            "CREATE TABLE bank.log_1 PARTITION OF bank.log FOR VALUES IN (1)",
            "ALTER TABLE bank.acct ADD more integer",
            "CREATE TEMPORARY TABLE mine (id integer)",
        )
    assert ops(world.admin) == [("I", 1), ("I", 2), ("I", 3), ("U", 1), ("U", 2), ("U", 3)]
