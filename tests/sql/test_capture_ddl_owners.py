"""DDL of attached tables by owners who are nobody here, who change, or who have lost a right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.helpers.capture import (
    Conn,
    make_tube,
    open_session,
    ops,
    pods,
    scalar,
    set_up,
    take,
    triggers,
)
from tests.helpers.roles import as_role, roles
from tests.sql.test_capture_ddl import missed, sync

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]


@contextmanager
def owned_by_a_stranger(any_dsn: str) -> Iterator[tuple[Conn, Conn]]:
    """A superuser's session, and that of an owner who has no rights on us; `item` is his, and attached."""
    with (
        roles(any_dsn, "stranger"),
        open_session(any_dsn) as db,
        psycopg.connect(as_role(any_dsn, "stranger"), autocommit=True) as stranger,
    ):
        set_up(db, predicate="NOT deleted")
        db.execute("ALTER TABLE public.item OWNER TO stranger; CREATE SCHEMA away AUTHORIZATION stranger")
        yield db, stranger


@pytest.mark.parametrize("synced", [True, False], ids=["synced", "not synced"])
def test_an_owner_who_is_nobody_here_may_change_his_table(any_dsn: str, synced: bool) -> None:
    with owned_by_a_stranger(any_dsn) as (db, stranger):
        if synced:
            sync(db)
        stranger.execute("ALTER TABLE public.item RENAME id TO ident")
        stranger.execute("INSERT INTO public.item VALUES (3)")
        assert missed(db) == synced, "before, its writes are nobody's to capture"
        stranger.execute("ALTER TABLE public.item SET SCHEMA away")
        stranger.execute("ALTER TABLE away.item RENAME TO thing")
        stranger.execute("INSERT INTO away.thing VALUES (4)")
        stranger.execute("ALTER TABLE away.thing ALTER deleted DROP DEFAULT, ALTER deleted TYPE text")
        stranger.execute("UPDATE away.thing SET value = 'x' WHERE ident = 3")
        stranger.execute("ALTER TABLE away.thing DROP deleted, ADD more json")
        stranger.execute("DELETE FROM away.thing WHERE ident = 4")
        assert missed(db) == synced
        make_tube(db, predicate="")
        sync(db)
        assert missed(db) != synced
        stranger.execute("INSERT INTO away.thing VALUES (5)")
        assert ops(db) == [("I", 5)]
        stranger.execute("DROP TABLE away.thing")
        sync(db)
        assert scalar(db, "SELECT count(*) FROM tube_attachment") == 0


def test_a_table_with_another_owner_is_captured_once_they_agree(any_dsn: str) -> None:
    """Nothing fails meanwhile, and a backfill brings what was missed."""
    with owned_by_a_stranger(any_dsn) as (db, stranger):
        stranger.execute("INSERT INTO public.item VALUES (1, 'a', false), (2, 'b', true)")
        assert pods(db) == []
        assert triggers(db) == [], "the function of the owner before is dropped at once"
        sync(db)
        assert missed(db)
        owners = (
            "SELECT DISTINCT p.proowner::regrole::text FROM pg_proc AS p"
            " JOIN pg_trigger AS t ON t.tgfoid = p.oid WHERE t.tgrelid = 'public.item'::regclass"
        )
        assert scalar(db, owners) == "stranger"
        stranger.execute("UPDATE public.item SET deleted = NOT deleted")
        assert ops(db) == [("D", 1), ("I", 2)]
        stranger.execute("TRUNCATE public.item")
        assert ops(db) == [("D", 2)]


@pytest.mark.parametrize("gone", ["REVOKE ALL ON {door} FROM {owner}", "DROP OWNED BY other; {own}"])
def test_an_owner_who_has_no_right_on_the_door_any_more(any_dsn: str, gone: str) -> None:
    """No write fails, in sessions old and new; a worker gives the right back, and asks for a backfill."""
    with owned_by_a_stranger(any_dsn) as (db, stranger), roles(any_dsn, "other"):
        sync(db)
        take(db)
        stranger.execute("INSERT INTO public.item VALUES (1)")
        assert ops(db) == [("I", 1)]
        door = scalar(db, "SELECT oid::regclass::text FROM pg_class WHERE relname LIKE '%%item\\_door%%'")
        put = scalar(db, "SELECT oid::regprocedure::text FROM pg_proc WHERE proname LIKE '%%item\\_put%%'")
        own = f"REVOKE ALL ON FUNCTION {put} FROM stranger"
        db.execute(gone.format(door=door, owner="stranger", own=own).encode())
        stranger.execute("INSERT INTO public.item VALUES (2)")
        with psycopg.connect(as_role(any_dsn, "stranger"), autocommit=True) as fresh:
            fresh.execute("INSERT INTO public.item VALUES (3)")
            fresh.execute("TRUNCATE public.item")
        assert pods(db) == []
        sync(db)
        assert missed(db)
        stranger.execute("INSERT INTO public.item VALUES (4)")
        assert ops(db) == [("I", 4)]
