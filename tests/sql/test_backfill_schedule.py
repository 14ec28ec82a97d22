"""tube_backfill_schedule: control pods that ask workers for a backfill."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.helpers.capture import (
    TUBE,
    Conn,
    attach,
    make_item,
    pods,
    scalar,
    set_up,
)
from tests.helpers.steps import step3, ten_rows


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version."""
    with ten_rows(any_dsn) as conn:
        yield conn


def schedule(conn: Conn, first: int | None, last: int | None, order_col: str = "id") -> int:
    return int(scalar(conn, "SELECT tube_backfill_schedule(%s, %s, %s, %s)", (TUBE, order_col, first, last)))


def test_schedule(db: Conn) -> None:
    make_item(db, 'public."an Item"')
    attach(db, 'public."an Item"', 20, 4)
    make_item(db, "public.other")
    attach(db, "public.other", 30)
    payload = {"type": "backfill_schedule", "order_col": "id"}
    assert schedule(db, 7, 23) == 2
    assert pods(db) == [
        ("B", 7, [], payload | {"tbl": "public.item"}),
        ("B", 20, [], payload | {"tbl": 'public."an Item"'}),
    ]
    assert schedule(db, 0, 100) == 1
    assert schedule(db, 0, 100) == 0
    db.execute('DELETE FROM "es-live"')
    step3(db)
    assert schedule(db, 0, 7) == 0, "an end waits"
    assert schedule(db, 8, 19) == 0


def test_schedule_passes_over_related_tables(conn: Conn) -> None:
    set_up(conn, shard=7)
    conn.execute("CREATE TABLE public.extra (id bigint)")
    attach(conn, "public.extra", 7)
    assert schedule(conn, 7, 7) == 1
    assert [payload["tbl"] for _, _, _, payload in pods(conn)] == ["public.item"]


@pytest.mark.parametrize(
    ("arguments", "state"),
    [
        ((5, 4, "id"), "22023"),
        ((None, 4, "id"), "22004"),
        ((1, None, "id"), "22004"),
        ((7, 7, "no"), "42703"),
    ],
)
def test_schedule_refuses(conn: Conn, arguments: tuple[Any, Any, str], state: str) -> None:
    set_up(conn, shard=7)
    with pytest.raises(psycopg.Error) as refused:
        schedule(conn, *arguments)
    assert refused.value.sqlstate == state
    with pytest.raises(psycopg.Error) as unknown:
        conn.execute("SELECT tube_backfill_schedule('nope', 'id', 1, 2)")
    assert unknown.value.sqlstate == "TU102"
