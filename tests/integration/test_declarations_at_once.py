"""Two apply the same file at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.helpers.declarations import BASE, apply, plans, session
from tests.helpers.terms import Conn
from tests.helpers.waiting import wait_until

SCHEMA = "CREATE SCHEMA shop; CREATE TABLE shop.products (id bigint PRIMARY KEY)"
TUBE = """
[tube.stock]
partitions = 2
[tube.stock.sink]
type = "jsonl"
path = "stock.jsonl"
[tube.stock.tables."shop.products"]
"""
OUTBOX = "[outbox.events]\npartitions = 2\n"
WRITES = {
    "stock": (TUBE, "INSERT INTO shop.products VALUES (1)"),
    "events": (OUTBOX, "SELECT tube.outbox_stash('events', 't', 'k', 'v')"),
}
WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%INDEX CONCURRENTLY%'
"""
INDEXES = """
    SELECT substring(c.relname FROM '_p[0-9]+_idx.*'), i.indisvalid
    FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
    WHERE i.indrelid = %s::regclass AND c.relname ~ '_p[0-9]+_idx'
"""


@pytest.mark.parametrize("name", WRITES)
def test_other_partitions(dsn: str, conn: Conn, connect: Callable[[], Conn], name: str) -> None:
    """Each would wait for the other's build of the same index: one of them is broken off, and looks anew."""
    conn.execute(SCHEMA.encode())
    section, write = WRITES[name]
    apply(dsn, BASE + section)
    one = plans(dsn, BASE + section.replace("partitions = 2", "partitions = 3"))[name]
    writer = connect()
    writer.execute("BEGIN")
    writer.execute(write.encode())

    def do() -> None:
        with session(dsn) as declarations:
            declarations.apply(one)

    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(do) for _ in range(2)]
        wait_until(lambda: conn.execute(WAITING).fetchone() == (2,), what="two builds that wait")
        writer.execute("ROLLBACK")
        for each in done:
            each.result()
    assert conn.execute(INDEXES, [f"tube.{name}"]).fetchall() == [("_p3_idx", True)]
