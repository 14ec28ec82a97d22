"""What is noted of tubes and outboxes that a file declares."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.helpers.capture import Conn, open_session
from tests.helpers.database import preparing


def prepared(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("CREATE TABLE public.orders (id bigint PRIMARY KEY, total numeric)")
        conn.execute("CREATE TABLE public.items (id bigint PRIMARY KEY)")
        conn.execute("SELECT tube_ensure_exists('stock'), outbox_ensure_exists('box')")
        conn.execute("SELECT tube_table_ensure_attached('stock', 'public.orders', 0)")
        conn.execute("SELECT tube_table_ensure_attached('stock', 'public.items', 1)")


prepare = preparing(prepared, "dsn")


@pytest.fixture
def db(dsn: str) -> Iterator[Conn]:
    """A session; a tube with two tables, and an outbox."""
    with open_session(dsn) as conn:
        yield conn


def noted(db: Conn) -> list[tuple[object, ...]]:
    return db.execute(
        "SELECT tube, kind, applied, made, tbl::text, attached FROM tube_applied() ORDER BY tube, tbl::text"
    ).fetchall()


BY_HAND = [
    ("box", "outbox", None, False, None, None),
    ("stock", "tube", None, False, "items", False),
    ("stock", "tube", None, False, "orders", False),
]


def test_what_is_made_by_hand_is_not_noted(db: Conn) -> None:
    assert noted(db) == BY_HAND


def test_it_is_noted_until_nothing_declares_it(db: Conn) -> None:
    db.execute("SELECT tube_applied_set('stock', 'd1', true), tube_applied_set('box', 'd2')")
    db.execute("SELECT tube_applied_attached('stock', 'public.orders')")
    assert [row[2:4] + row[5:] for row in noted(db)] == [
        ("d2", False, None),
        ("d1", True, False),
        ("d1", True, True),
    ]
    db.execute("SELECT tube_applied_set('stock', 'd3')")
    assert noted(db)[1][2:4] == ("d3", True), "who has made it stays"
    db.execute("SELECT tube_applied_set('stock', NULL), tube_applied_set('box', NULL)")
    assert [row[2:4] + row[5:] for row in noted(db)] == [row[2:4] + row[5:] for row in BY_HAND]


def test_it_outlasts_a_change_of_the_attachment_and_goes_with_it(db: Conn) -> None:
    db.execute("SELECT tube_applied_set('stock', 'd1', true)")
    db.execute("SELECT tube_applied_attached('stock', 'public.orders')")
    db.execute("SELECT tube_table_ensure_attached('stock', 'public.orders', 4, 2, 'id', '{total}')")
    assert noted(db)[2][5] is True
    db.execute("SELECT tube_table_ensure_detached('stock', 'public.orders')")
    db.execute("SELECT tube_table_ensure_attached('stock', 'public.orders', 0)")
    assert noted(db)[2][5] is False, "that was somebody else"


def test_a_document_says_it_all(db: Conn) -> None:
    db.execute("SELECT tube_applied_set('stock', 'd1', true)")
    db.execute("SELECT tube_applied_attached('stock', 'public.orders')")
    db.execute("SELECT tube_document_declare('stock', 'e1')")
    assert {row[2:4] + row[5:] for row in noted(db)[1:]} == {(None, False, False)}


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("SELECT tube_applied_set('none', 'd1')", "there is no tube or outbox 'none'"),
        ("SELECT tube_applied_set(NULL, 'd1')", "there is no tube or outbox NULL"),
        ("SELECT tube_applied_set('stock_relations', 'd1')", "is a companion of tube 'stock'"),
        ("SELECT tube_applied_attached('none', 'public.orders')", "there is no tube 'none'"),
        ("SELECT tube_applied_attached('box', 'public.orders')", "is an outbox"),
    ],
)
def test_what_is_refused(db: Conn, statement: str, says: str) -> None:
    db.execute("SELECT tube_companion_ensure('stock', 'stock_relations', 'bigint')")
    with pytest.raises(psycopg.Error, match=says):
        db.execute(statement.encode())
