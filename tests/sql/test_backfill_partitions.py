"""Backfills of partitioned tables: in chunks and by the steps."""

from __future__ import annotations

import pytest

from tests.helpers.capture import Conn, open_session, scalar
from tests.helpers.database import preparing


def attached_items(dsn: str) -> None:
    """A table of 3000 rows in partitions, one of which is partitioned again, over four shards of a tube."""
    with open_session(dsn) as conn:
        conn.execute(
            "CREATE TABLE public.items (id bigint, n int, PRIMARY KEY (id, n)) PARTITION BY RANGE (n)"
        )
        conn.execute("CREATE TABLE public.items_low PARTITION OF items FOR VALUES FROM (0) TO (1000)")
        conn.execute(
            "CREATE TABLE public.items_mid PARTITION OF items FOR VALUES FROM (1000) TO (2000)"
            " PARTITION BY HASH (id)"
        )
        for rest in (0, 1):
            conn.execute(
                f"CREATE TABLE public.items_mid_{rest} PARTITION OF items_mid"
                f" FOR VALUES WITH (MODULUS 2, REMAINDER {rest})"
            )
        conn.execute("CREATE TABLE public.items_rest PARTITION OF items DEFAULT")
        conn.execute("SELECT tube_ensure_exists('t', 3)")
        conn.execute("SELECT tube_table_ensure_attached('t', 'public.items', shard => 1, shards => 4)")
        # n does not run with the ids.
        conn.execute("INSERT INTO items SELECT g, (g * 7) % 3000 FROM generate_series(1, 3000) AS g")
        conn.execute("DELETE FROM t")


prepare = preparing(attached_items, "items")


@pytest.fixture
def items(conn: Conn) -> Conn:
    """A session with what `attached_items` makes."""
    return conn


def begin(conn: Conn, order_col: str = "n") -> int:
    number = scalar(conn, "SELECT tube_backfill_create('t', 'public.items', %s)", (order_col,))
    assert scalar(conn, "SELECT tube_backfill_lock(%s)", (number,))
    return int(number)


def finish(conn: Conn, number: int) -> None:
    conn.execute("SELECT tube_backfill_collect(%s)", (number,))
    while scalar(conn, "SELECT (tube_backfill_chunk(%s, 3)).state", (number,)) == "inserting":
        pass


def ids(conn: Conn) -> list[int]:
    rows = conn.execute("SELECT shard, ids FROM t ORDER BY seq").fetchall()
    assert all(shard == 1 + key % 4 for shard, array in rows for key in array)
    return [key for _, array in rows for key in array]


def test_every_row_of_every_partition_once_and_in_order(items: Conn) -> None:
    finish(items, begin(items))
    assert sorted(ids(items)) == list(range(1, 3001))
    order = dict(items.execute("SELECT id, n FROM items").fetchall())
    for shard in (1, 2, 3, 4):
        values = [order[key] for key in ids(items) if 1 + key % 4 == shard]
        assert values == sorted(values)


def test_partitions_that_come_and_go_before_the_ids_are_collected(items: Conn) -> None:
    number = begin(items)
    items.execute("ALTER TABLE items DETACH PARTITION items_low")
    items.execute("CREATE TABLE public.items_new (LIKE items INCLUDING ALL)")
    items.execute("INSERT INTO items_new SELECT g, g % 1000 FROM generate_series(5001, 5100) AS g")
    items.execute("ALTER TABLE items ATTACH PARTITION items_new FOR VALUES FROM (0) TO (1000)")
    items.execute("DELETE FROM t")
    finish(items, number)
    assert sorted(ids(items)) == [
        key for (key,) in items.execute("SELECT id FROM items ORDER BY 1").fetchall()
    ]
    assert scalar(items, "SELECT rows_done FROM tube_backfill") == 2100


def test_a_partition_that_is_dropped_while_pods_are_inserted(items: Conn) -> None:
    """Its rows were there when the ids were collected: their touches come, and delete the documents."""
    number = begin(items)
    items.execute("SELECT tube_backfill_collect(%s)", (number,))
    items.execute("DROP TABLE items_mid")
    items.execute("DELETE FROM t")
    finish(items, number)
    assert sorted(ids(items)) == list(range(1, 3001))
    assert scalar(items, "SELECT state FROM tube_backfill") == "delivering"


def test_the_predicate_applies_in_all_partitions(items: Conn) -> None:
    items.execute("SELECT tube_ensure_exists('t', 3, 'id % 10 = 0')")
    items.execute("DELETE FROM t")
    finish(items, begin(items, "id"))
    assert sorted(ids(items)) == list(range(10, 3001, 10))


def test_the_steps(items: Conn) -> None:
    step1 = scalar(items, "SELECT tube_backfill_step1()")
    items.execute("SELECT tube_backfill_step2()")
    items.execute("SELECT tube_backfill_step3(%s, 't', 'public.items', 'n')", (step1,))
    assert sorted(ids(items)) == list(range(1, 3001))
    items.execute("DELETE FROM t")
    items.execute("SELECT tube_backfill_step3(%s, 't', 'public.items', 'n', 3)", (step1,))
    assert sorted(ids(items)) == list(range(2, 3001, 4))
