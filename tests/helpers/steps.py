"""What tests of the three steps of a backfill share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.helpers.capture import TABLE, TUBE, Conn, open_session, pods, scalar, set_up, take


@contextmanager
def ten_rows(dsn: str) -> Iterator[Conn]:
    """A session, with a tube and a table in shard 7 that has ten rows."""
    with open_session(dsn) as conn:
        set_up(conn, shard=7)
        conn.execute(f"INSERT INTO {TABLE} SELECT g, 'v' || g % 3 FROM generate_series(1, 10) AS g")
        take(conn)
        yield conn


def step3(conn: Conn, order_col: str | None = "id", table: str | None = TABLE, **more: Any) -> str:
    """Steps 1 and 3; the start seq."""
    start = more.pop("step1", None) or scalar(conn, "SELECT tube_backfill_step1()")
    named = "".join(f", {name} => %({name})s" for name in more)
    conn.execute(
        f"SELECT tube_backfill_step3(%(step1)s, %(tube)s, %(tbl)s, %(order_col)s{named})".encode(),
        {"step1": start, "tube": TUBE, "tbl": table, "order_col": order_col, **more},
    )
    return str(start)


def ids(conn: Conn) -> list[int]:
    """All ids that wait, in the order of their pods."""
    return [key for _, _, keys, _ in pods(conn) for key in keys]
