"""Companions of a tube, made and dropped by several at once; a relation emptied behind an old snapshot."""

from __future__ import annotations

import psycopg
import pytest

from tests.helpers.capture import Conn, asked, take
from tests.isolation.conftest import NewSession
from tests.isolation.sessions import Running

ENSURE = "SELECT tube_companion_ensure('orders', 'links', 'bigint')"
TUBES = "SELECT tube, companion_of FROM tube_registry ORDER BY tube"


@pytest.fixture
def db(conn: Conn) -> Conn:
    conn.execute("SELECT tube_ensure_exists('orders')")
    return conn


def refused(running: Running, says: str) -> None:
    with pytest.raises(psycopg.Error, match=says):
        running.rows()


def test_two_make_the_same_companion(db: Conn, session: NewSession) -> None:
    first, second = session(), session()
    first.begin()
    first.run(ENSURE)
    waiting = second.start(ENSURE)
    assert waiting.blocked(by=first)
    first.commit()
    waiting.rows()
    assert db.execute(TUBES).fetchall() == [("links", "orders"), ("orders", None)]


def test_somebody_makes_a_tube_of_that_name_meanwhile(db: Conn, session: NewSession) -> None:
    first, second = session(), session()
    first.begin()
    first.run("SELECT tube_ensure_exists('links')")
    waiting = second.start(ENSURE)
    assert waiting.blocked(by=first)
    first.commit()
    refused(waiting, "tube 'links' exists, and is not a companion of tube 'orders'")
    assert db.execute(TUBES).fetchall() == [("links", None), ("orders", None)]


def test_the_tube_is_dropped_while_a_companion_is_made(db: Conn, session: NewSession) -> None:
    first, second = session(), session()
    first.begin()
    first.run("SELECT tube_drop('orders')")
    waiting = second.start(ENSURE)
    assert waiting.blocked(by=first)
    first.commit()
    refused(waiting, "there is no tube 'orders'")
    assert db.execute(TUBES).fetchall() == []


def test_a_companion_is_made_while_the_tube_is_dropped(db: Conn, session: NewSession) -> None:
    """It goes with it."""
    first, second = session(), session()
    first.begin()
    first.run(ENSURE)
    waiting = second.start("SELECT tube_drop('orders')")
    assert waiting.blocked(by=first)
    first.commit()
    waiting.rows()
    assert db.execute(TUBES).fetchall() == []


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_relation_is_emptied_behind_an_old_snapshot(db: Conn, session: NewSession, level: str) -> None:
    """A row that it does not see goes as well: it may have been in any document."""
    db.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY)")
    db.execute("CREATE TABLE public.link (id bigint PRIMARY KEY, product bigint)")
    db.execute("SELECT tube_table_ensure_attached('orders', 'public.goods', 0)")
    db.execute(ENSURE)
    db.execute("SELECT tube_table_ensure_attached('links', 'public.link', 5, 1, 'product')")
    writer, other = session(), session()
    writer.begin(f"ISOLATION LEVEL {level}")
    writer.run("SELECT 1 FROM public.goods")
    other.run("INSERT INTO public.link VALUES (1, 8)")
    take(db, "links")
    writer.run("TRUNCATE public.link")
    assert (asked(db, "orders"), asked(db, "links")) == ([], [])
    writer.commit()
    assert (asked(db, "orders"), asked(db, "links")) == (["backfill_schedule"], [])
