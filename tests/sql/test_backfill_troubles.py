"""What ends a backfill in chunks before its time, and whom it makes wait."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from psycopg import errors

from tests.conftest import Connect
from tests.helpers.waiting import LIMIT, wait_until
from tests.sql.test_backfill import TAKE, Connection, chunk, create, items, one, prepare, term

__all__ = ["items", "prepare"]  # fixtures

REATTACH = "SELECT tube_table_ensure_attached('t', 'public.items', shard => 1, shards => 4, id_col => 'n')"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("SELECT tube_table_ensure_detached('t', 'public.items'); " + REATTACH, "was detached"),
        (REATTACH, "by another column"),
        ("SELECT tube_ensure_exists('t', 3, 'n > 2')", "another predicate"),
    ],
)
def test_an_attachment_that_changes_ends_the_backfill(items: Connection, change: str, why: str) -> None:
    """Its ids are not those that are to be touched any more."""
    number = create(items)
    items.execute("SELECT tube_backfill_collect(%s)", (number,))
    chunk(items, number, 2)
    items.execute(change)
    after = chunk(items, number, 2)
    assert (after["state"], after["pods_done"]) == ("failed", 2)
    assert why in after["note"]
    assert create(items)


def test_what_changes_before_the_ids_are_collected_and_a_new_name_end_nothing(items: Connection) -> None:
    number = create(items)
    items.execute("SELECT tube_ensure_exists('t', 3, 'n > 2')")
    assert one(items, "SELECT tube_backfill_collect(%s)", number) == 800
    items.execute("ALTER TABLE items RENAME id TO number")
    assert chunk(items, number)["state"] == "delivering"


def test_an_order_that_there_is_not(items: Connection) -> None:
    items.execute("ALTER TABLE items ADD j json, ADD p point, ADD a int[], ADD d varchar(3)")
    for column in ("j", "p"):
        with pytest.raises(errors.DatabaseError, match="whose values have no order") as refused:
            create(items, column)
        assert refused.value.sqlstate == "TU108"
    for column in ("a", "d", "n"):
        number = create(items, column)
        items.execute("SELECT tube_backfill_command(%s, 'cancel')", (number,))


def test_a_table_that_can_not_be_read_has_failed_and_is_free_again(items: Connection) -> None:
    number = create(items, "n")
    items.execute("ALTER TABLE items DROP n")
    assert one(items, "SELECT tube_backfill_collect(%s)", number) is None
    state = items.execute("SELECT state, note FROM tube_backfill").fetchone()
    assert state == ("failed", 'column "n" does not exist')
    assert one(items, "SELECT count(*) FROM pg_class WHERE relname LIKE 'tube_backfill_ids%%'") == 0
    assert create(items)


def test_a_backfill_that_writers_ask_for_waits_until_the_predicate_fits(items: Connection) -> None:
    """It could not read the table, and would have failed, with nobody to ask again."""
    items.execute("SELECT tube_ensure_exists('t', 3, 'n > 2')")
    items.execute("ALTER TABLE items RENAME n TO m")
    items.execute("UPDATE items SET m = 5 WHERE id = 1")
    seq = one(items, "SELECT seq FROM t WHERE payload ? 'resync'")
    mine = term(items, 1)
    items.execute("SELECT tube_sync()")
    with pytest.raises(errors.DatabaseError, match="the predicate is not in force") as refused:
        items.execute(TAKE, (*mine, seq))
    assert refused.value.sqlstate == "TU121"
    items.execute("SELECT tube_ensure_exists('t', 3, 'm > 2')")
    number = one(items, TAKE, *mine, seq)
    items.execute("SELECT tube_backfill_lock(%s)", (number,))
    assert one(items, "SELECT tube_backfill_collect(%s)", number) > 0


COMMANDS = {
    "pause": "SELECT tube_backfill_command(%(number)s, 'pause')",
    "cancel": "SELECT tube_backfill_command(%(number)s, 'cancel')",
    "supersede": "SELECT tube_backfill_create('t', 'public.items', NULL, true)",
    "drop the tube": "DELETE FROM tube_registry",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_nobody_waits_until_the_ids_are_collected(items: Connection, connect: Connect, command: str) -> None:
    number = create(items)
    ids_left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'tube_backfill_ids%%'"
    other = connect()
    other.execute("SET lock_timeout = '60s'")
    # Whoever reads has to wait within the collecting: for the table, which is locked.
    holder = connect(autocommit=False)
    holder.execute("LOCK TABLE items IN ACCESS EXCLUSIVE MODE")
    with ThreadPoolExecutor() as pool:
        collected = pool.submit(one, items, "SELECT tube_backfill_collect(%s)", number)
        try:
            wait_until(
                lambda: one(other, "SELECT pg_blocking_pids(%s) <> '{}'", items.info.backend_pid),
                what="the collecting waits for the table",
            )
            other.execute(COMMANDS[command], {"number": number})
        finally:
            holder.rollback()
        total = collected.result(timeout=LIMIT)
    if command == "pause":
        assert total == 2000
        assert other.execute("SELECT state, paused FROM tube_backfill").fetchone() == ("inserting", True)
    else:
        assert total is None
        assert one(other, ids_left) == 0
        states = [
            state for (state,) in other.execute("SELECT state FROM tube_backfill ORDER BY 1").fetchall()
        ]
        assert states == {"cancel": ["cancelled"], "supersede": ["superseded", "waiting"]}.get(command, [])
