"""Old snapshots in the middle of somebody's DDL: by subtransactions, of which a snapshot tells nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.helpers.capture import Conn, asked, attach, make_tube, ops
from tests.sql.attackers import CASTS, MALLORY, World, plant_in_vault

BLOCK = "DO $$ BEGIN {}; EXCEPTION WHEN lock_not_available THEN END $$"
SAVEPOINT = "SAVEPOINT a; {}; RELEASE SAVEPOINT a"


@contextmanager
def amid(world: World, changing: str, statement: str, reader: str) -> Iterator[Conn]:
    """A transaction of `reader` whose snapshot is taken while the statement is not committed yet."""
    with world.login(changing) as change, world.login(reader) as old:
        change.execute("BEGIN")
        change.execute("SELECT pg_current_xact_id()")
        change.execute(statement.encode())
        world.admin.execute("SELECT pg_current_xact_id()")  # the snapshot ends beyond the subtransaction
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT FROM pg_class")
        change.execute("COMMIT")
        yield old
        old.execute("COMMIT")


def texts(world: World, how: str) -> None:
    """The tables get a column of texts, which a predicate, or `columns`, is about."""
    for table in ("bank.vault", "bank.acct", "app.t"):
        world.admin.execute(f"ALTER TABLE {table} ADD n text".encode())
    if how == "predicate":
        make_tube(world.admin, predicate="n > 'a'")
    else:
        attached = "SELECT tube_table_ensure_attached('es-live', 'bank.vault', 2, columns => '{n}')"
        world.admin.execute(attached)
    world.run(MALLORY, "CREATE TYPE evil.mood AS ENUM ('a', 'b')", CASTS.format("mood"))


@pytest.mark.every_server
@pytest.mark.parametrize("how", [SAVEPOINT, BLOCK], ids=["savepoint", "block"])
def test_a_table_that_is_given_away_in_a_subtransaction(world: World, how: str) -> None:
    """As a migration does that runs in a savepoint."""
    world.admin.execute("GRANT USAGE, CREATE ON SCHEMA bank TO mallory")
    given = how.format("ALTER TABLE bank.vault OWNER TO mallory")
    with amid(world, "postgres", given, MALLORY) as old:
        plant_in_vault(world)
        old.execute("TRUNCATE bank.vault")
    world.nobody_was_robbed()


@pytest.mark.parametrize("how", ["predicate", "columns"])
def test_a_column_of_a_type_of_theirs_in_a_subtransaction(world: World, how: str) -> None:
    texts(world, how)
    world.admin.execute("INSERT INTO bank.vault VALUES (1, 1, 'b')")
    world.admin.execute(
        "ALTER TABLE bank.vault OWNER TO mallory; GRANT USAGE, CREATE ON SCHEMA bank TO mallory"
    )
    changed = SAVEPOINT.format("ALTER TABLE bank.vault ALTER n TYPE evil.mood USING 'b'")
    with amid(world, MALLORY, changed, MALLORY) as old:
        ops(world.admin)
        old.execute("INSERT INTO bank.vault VALUES (2, 1, 'b'), (3, 1, 'b')")
        old.execute("UPDATE bank.vault SET n = 'a' WHERE id = 2")
    world.nobody_was_robbed()
    assert ops(world.admin) == [], "she has not agreed"


@pytest.mark.every_server
def test_a_column_of_a_partition_that_left_in_a_subtransaction(world: World) -> None:
    """She owns a part of keeper's tree, and takes a part of that away: keeper's trigger stays on it."""
    texts(world, "predicate")
    a_tree_of_keepers(world, "text")
    world.run(MALLORY, "ALTER TABLE app.log_1 DETACH PARTITION app.log_1a")
    changed = SAVEPOINT.format("ALTER TABLE app.log_1a ALTER n TYPE evil.mood USING 'b'")
    with amid(world, MALLORY, changed, MALLORY) as old:
        ops(world.admin)
        old.execute("INSERT INTO app.log_1a VALUES (2, 1, 'b'), (3, 1, 'b')")
    world.nobody_was_robbed()
    assert ops(world.admin) == [], "it is no part any more"


@pytest.mark.parametrize("how", ["{}", SAVEPOINT], ids=["plain", "savepoint"])
def test_a_write_by_a_snapshot_from_amid_a_migration(world: World, how: str) -> None:
    """No attack: a type is changed, and somebody writes at REPEATABLE READ; the write must not fail."""
    texts(world, "predicate")
    changed = how.format("ALTER TABLE bank.acct ALTER n TYPE integer USING 1")
    with amid(world, "postgres", changed, "writer") as old:
        ops(world.admin)
        old.execute("INSERT INTO bank.acct VALUES (2, 1, 1), (3, 1, 1)")
    assert asked(world.admin) == ["backfill_schedule"]


def test_a_domain_whose_name_is_another_types_on_a_partition_that_left(world: World) -> None:
    """At READ COMMITTED: the domain is mallory's, and another type has its name by now."""
    texts(world, "predicate")
    world.run(MALLORY, "CREATE DOMAIN evil.word AS text")
    a_tree_of_keepers(world, "evil.word")
    ops(world.admin)
    world.run(
        MALLORY,
        "ALTER TABLE app.log_1 DETACH PARTITION app.log_1a",
        "ALTER DOMAIN evil.word RENAME TO was",
        "CREATE TYPE evil.word AS ENUM ('a', 'b')",
        CASTS.format("word"),
        "ALTER TABLE app.log_1a ALTER n TYPE evil.word USING 'b'",
        "INSERT INTO app.log_1a VALUES (1, 1, 'b')",
    )
    world.nobody_was_robbed()
    assert ops(world.admin) == [], "it is no part any more"


def a_tree_of_keepers(world: World, kind: str) -> None:
    """A partitioned table, attached, a part of which is mallory's, and has a part."""
    world.admin.execute("GRANT USAGE ON SCHEMA app TO keeper; GRANT CREATE, USAGE ON SCHEMA bank TO mallory")
    world.admin.execute(
        f"CREATE TABLE bank.log (id bigint, day integer, n {kind}) PARTITION BY LIST (day);"
        "CREATE TABLE app.log_1 PARTITION OF bank.log FOR VALUES IN (1, 2) PARTITION BY LIST (day);"
        "ALTER TABLE bank.log OWNER TO keeper; ALTER TABLE app.log_1 OWNER TO mallory".encode()
    )
    world.run(MALLORY, "CREATE TABLE app.log_1a PARTITION OF app.log_1 FOR VALUES IN (1)")
    attach(world.admin, "bank.log", 6)
