"""What is known of the sinks of tubes: marks that are new, seen, gone; and when a loss is made up for."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier

from tests.helpers.capture import open_session
from tests.helpers.database import preparing

Conn = psycopg.Connection[Any]
TUBE = "es"


def two_tables(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("CREATE TABLE public.items (id bigint PRIMARY KEY)")
        conn.execute("CREATE TABLE public.more (id bigint PRIMARY KEY)")
        conn.execute("SELECT tube_ensure_exists(%s)", [TUBE])
        conn.execute("SELECT tube_table_ensure_attached(%s, 'public.items', shard => 0)", [TUBE])
        conn.execute("SELECT tube_table_ensure_attached(%s, 'public.more', shard => 1)", [TUBE])


prepare = preparing(two_tables, "tube")


@pytest.fixture
def tube(conn: Conn) -> Conn:
    return conn


def note(conn: Conn, held: str | None) -> tuple[str | None, bool, bool, bool]:
    """What is wanted; whether the sink counts as emptied; whether that is new; whether it is over."""
    row = conn.execute(
        "SELECT wanted, emptied_at IS NOT NULL, is_new, is_over FROM tube_sink_note(%s, %s)", [TUBE, held]
    ).fetchone()
    assert row is not None
    wanted, is_emptied, is_new, is_over = row
    return wanted, is_emptied, bool(is_new), bool(is_over)


def makes(conn: Conn) -> bool:
    """Whether a worker may make what is missing."""
    row = conn.execute("SELECT makes FROM tube_sink_list() WHERE tube = %s", [TUBE]).fetchone()
    return row is None or row[0]


def backfill(conn: Conn, table: str, state: str) -> None:
    """A backfill that begins now, and comes to that state."""
    number = conn.execute(
        "SELECT tube_backfill_create(%s, %s::regclass, NULL, true, true)", [TUBE, f"public.{table}"]
    ).fetchone()
    assert number is not None
    conn.execute("UPDATE tube_backfill SET state = %s WHERE backfill_id = %s", [state, number[0]])


WELL = (None, False, False, False)


def test_a_new_sink_is_marked_and_remembered(tube: Conn) -> None:
    assert makes(tube)
    wanted, *rest = note(tube, None)
    assert wanted is not None
    assert TUBE in wanted
    assert rest == [False, False, False]
    assert note(tube, None)[0] == wanted, "every worker writes the same one"
    assert makes(tube)
    assert note(tube, wanted) == WELL
    assert note(tube, wanted) == WELL
    assert not makes(tube)


def test_a_sink_that_has_a_mark_is_known_by_that(tube: Conn) -> None:
    """The server's own name for it; or another database's workers have left it."""
    assert note(tube, "uuid") == WELL
    assert not makes(tube)
    assert note(tube, None) == (None, True, True, False)


def test_what_was_made_may_have_a_name_of_its_own(tube: Conn) -> None:
    assert note(tube, None)[0] is not None
    assert note(tube, "uuid") == WELL
    assert note(tube, "uuid") == WELL


@pytest.mark.parametrize("held", [None, "another"])
def test_a_loss_stays_until_all_tables_are_filled_again(tube: Conn, held: str | None) -> None:
    backfill(tube, "items", "finished")  # before the loss: it says nothing
    note(tube, "uuid")
    assert note(tube, held) == (None, True, True, False)
    assert note(tube, held) == (None, True, False, False), "told once"
    assert not makes(tube)
    backfill(tube, "items", "cancelled")
    assert note(tube, held) == (None, True, False, False)
    backfill(tube, "items", "waiting")
    wanted, is_emptied, *_ = note(tube, held)
    assert is_emptied
    assert (wanted is None) == (held is not None)
    assert makes(tube) == (held is None)
    now = held or wanted
    assert note(tube, now) == (None, True, False, False)
    tube.execute("UPDATE tube_backfill SET state = 'finished'")
    assert note(tube, now) == (None, True, False, False), "the other table lacks"
    backfill(tube, "more", "finished")
    assert note(tube, now) == (None, False, False, True)
    assert note(tube, now) == WELL


def test_a_second_loss_while_it_is_filled(tube: Conn) -> None:
    note(tube, "uuid")
    note(tube, None)
    backfill(tube, "items", "finished")
    backfill(tube, "more", "waiting")
    wanted = note(tube, None)[0]
    assert note(tube, wanted) == (None, True, False, False)
    assert note(tube, None) == (None, True, True, False)
    tube.execute("UPDATE tube_backfill SET state = 'finished'")
    assert note(tube, None) == (None, True, False, False), "these began before it"


def test_it_can_be_accepted(tube: Conn) -> None:
    def accept(before: str | None) -> bool:
        row = tube.execute("SELECT tube_sink_accept(%s, %s)", [TUBE, before]).fetchone()
        assert row is not None
        return bool(row[0])

    note(tube, "uuid")
    assert not accept(None)
    note(tube, "another")
    assert not accept("-infinity"), "what was found since is another loss"
    assert accept(None)
    assert note(tube, "another") == WELL
    assert note(tube, "uuid") == (None, True, True, False)
    assert accept("infinity")
    assert note(tube, None)[0] is not None, "what is missing is made"
    actions = tube.execute("SELECT action, tube FROM tube_audit_list(%s)", [TUBE]).fetchall()
    assert actions.count(("sink accept", TUBE)) == 2


def test_a_tube_that_is_made_again_is_new(tube: Conn) -> None:
    note(tube, "uuid")
    tube.execute("SELECT tube_ensure_absent(%s)", [TUBE])
    assert tube.execute("SELECT * FROM tube_sink_list()").fetchall() == []
    with pytest.raises(psycopg.Error, match="there is no tube"):
        note(tube, "uuid")
    tube.execute("SELECT tube_ensure_exists(%s)", [TUBE])
    assert note(tube, "another") == WELL


def test_a_copy_of_the_database_is_another_source(tube: Conn, dsn: str) -> None:
    """Its notes at the same sink are not ours, though it has our installation and our server."""
    ours_is = str(conninfo_to_dict(dsn)["dbname"])
    copy = f"{ours_is}_copy"

    def source(conn: Conn) -> str:
        row = conn.execute("SELECT DISTINCT source FROM tube_sink_list()").fetchone()
        assert row is not None
        return str(row[0])

    note(tube, "uuid")
    ours = source(tube)
    assert source(tube) == ours
    installation, server, timeline, database = ours.split(":")
    assert tube.execute("SELECT installation::text FROM tube_installation").fetchall() == [(installation,)]
    assert tube.execute("SELECT system_identifier::text FROM pg_control_system()").fetchall() == [(server,)]
    assert timeline == "1"
    with psycopg.connect(make_conninfo(dsn, dbname="postgres"), autocommit=True) as admin:
        tube.close()
        admin.execute(SQL("CREATE DATABASE {} TEMPLATE {}").format(Identifier(copy), Identifier(ours_is)))
        try:
            with open_session(make_conninfo(dsn, dbname=copy)) as conn:
                theirs = source(conn)
        finally:
            admin.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(copy)))
    assert theirs.split(":")[:3] == [installation, server, timeline]
    assert theirs.split(":")[3] not in ("", database)


def test_the_list_has_the_marks_of_sinks_that_are_well_alone(tube: Conn) -> None:
    """A worker that finds such a mark notes nothing, so it is there only while there is nothing to note."""

    def listed() -> str | None:
        row = tube.execute("SELECT mark FROM tube_sink_list() WHERE tube = %s", [TUBE]).fetchone()
        return None if row is None else row[0]

    wanted = note(tube, None)[0]
    assert wanted is not None
    assert listed() is None
    assert note(tube, wanted) == WELL
    assert listed() == wanted
    note(tube, None)
    assert listed() is None
    backfill(tube, "items", "waiting")
    again = note(tube, None)[0]
    note(tube, again)
    assert listed() is None, "its documents are not there again yet"
