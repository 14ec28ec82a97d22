"""The three steps of a backfill, and the control pods that ask workers for one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.helpers.capture import (
    TABLE,
    TUBE,
    Conn,
    attach,
    make_item,
    make_tube,
    open_session,
    pods,
    refusal,
    scalar,
    set_up,
    take,
)
from tests.helpers.roles import as_role, roles
from tests.helpers.steps import ids, step3, ten_rows


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version."""
    with ten_rows(any_dsn) as conn:
        yield conn


def test_start_ids_end(db: Conn) -> None:
    start = step3(db, insert_chunk_size=4, fetch_chunk_size=8)
    control = {"start_seq": start}
    assert pods(db) == [
        ("T", 7, [], control | {"type": "backfill_start"}),
        ("B", 7, [1, 2, 3, 4], None),
        ("B", 7, [5, 6, 7, 8], None),
        ("B", 7, [9, 10], None),
        ("B", 7, [], control | {"type": "backfill_end"}),
    ]
    assert all(row[0] > int(start) for row in db.execute('SELECT seq FROM "es-live"'))


def test_ties_and_nulls_in_the_order(db: Conn) -> None:
    db.execute(f"UPDATE {TABLE} SET value = NULL WHERE id IN (2, 9)")
    take(db)
    step3(db, "value", fetch_chunk_size=3)
    found = ids(db)
    assert sorted(found) == list(range(1, 11))
    assert set(found[-2:]) == {2, 9}


@pytest.mark.parametrize(
    ("column", "written"), [("Created At", "Created At"), ("Created At", '"Created At"'), ("plain", "PLAIN")]
)
def test_columns_as_they_are_and_as_sql_writes_them(conn: Conn, column: str, written: str) -> None:
    set_up(conn, shard=7)
    conn.execute(f'ALTER TABLE {TABLE} ADD "{column}" int')
    conn.execute(f'INSERT INTO {TABLE} (id, "{column}") VALUES (1, 30), (2, 10), (3, 20)')
    take(conn)
    step3(conn, written)
    assert ids(conn) == [2, 3, 1]


def test_only_rows_inside_the_predicate(conn: Conn) -> None:
    set_up(conn, predicate="NOT deleted", shard=7)
    conn.execute(
        f"INSERT INTO {TABLE} VALUES (1, 'a', false), (2, 'b', true), (3, 'c', NULL), (4, 'd', false)"
    )
    take(conn)
    step3(conn)
    assert ids(conn) == [1, 4]


def test_a_spread_table_has_its_pods_in_all_its_shards(conn: Conn) -> None:
    set_up(conn, shard=10, shards=4)
    conn.execute(f"INSERT INTO {TABLE} SELECT g FROM generate_series(1, 1000) AS g")
    take(conn)
    step3(conn)
    found = pods(conn)
    for shard in range(10, 14):
        mine = [
            (op, keys, payload and payload["type"]) for op, where, keys, payload in found if where == shard
        ]
        assert mine[0] == ("T", [], "backfill_start")
        assert mine[-1] == ("B", [], "backfill_end")
        assert [key for _, keys, _ in mine for key in keys] == [
            key for key in range(1, 1001) if 10 + key % 4 == shard
        ]


def test_one_shard_of_a_spread_table(conn: Conn) -> None:
    set_up(conn, shard=10, shards=4)
    conn.execute(f"INSERT INTO {TABLE} SELECT g FROM generate_series(1, 20) AS g")
    take(conn)
    step3(conn, shard=12)
    assert {shard for _, shard, _, _ in pods(conn)} == {12}
    assert ids(conn) == [2, 6, 10, 14, 18]


def test_a_related_table_has_no_say_in_what_is_to_be(conn: Conn) -> None:
    set_up(conn, shard=7)
    conn.execute("CREATE TABLE public.extra (id bigint)")
    attach(conn, "public.extra", 7)
    conn.execute("INSERT INTO public.extra VALUES (3), (NULL), (1)")
    take(conn)
    step3(conn, table="public.extra")
    assert pods(conn) == [("B", 7, [1, 3], None)]


def test_a_related_table_names_each_document_once(conn: Conn) -> None:
    set_up(conn, shard=7)
    conn.execute("CREATE TABLE public.notes (item bigint, at int)")
    conn.execute("SELECT tube_table_ensure_attached('es-live', 'public.notes', 7, id_col => 'item')")
    conn.execute(
        "INSERT INTO public.notes VALUES (3, 9), (3, 1), (1, 5), (NULL, 0), (2, NULL), (1, 2), (3, 5)"
    )
    take(conn)
    step3(conn, "at", "public.notes", fetch_chunk_size=1)
    assert ids(conn) == [3, 1, 2]


def test_a_row_of_a_root_table_without_id_is_left_out(conn: Conn) -> None:
    make_tube(conn)
    conn.execute("CREATE TABLE public.loose (id bigint)")
    conn.execute("INSERT INTO public.loose VALUES (1), (NULL)")
    attach(conn, "public.loose", 7)
    step3(conn, table="public.loose")
    assert ids(conn) == [1]


def test_it_is_skipped_while_an_end_waits(db: Conn) -> None:
    heard: list[str] = []
    step3(db)
    before = pods(db)
    db.add_notice_handler(lambda notice: heard.append(notice.message_primary or ""))
    step3(db)
    assert pods(db) == before
    assert len(heard) == 1
    assert "is skipped: a backfill_end of an earlier one waits" in heard[0]
    db.execute("DELETE FROM \"es-live\" WHERE payload ->> 'type' = 'backfill_end'")
    step3(db)
    assert len(pods(db)) > len(before)


def test_two_sessions_at_once(db: Conn, any_dsn: str) -> None:
    with open_session(any_dsn) as other, other.transaction():
        step3(other)
        with pytest.raises(psycopg.errors.LockNotAvailable, match="another session"):
            step3(db)
    heard: list[str] = []
    db.add_notice_handler(lambda notice: heard.append(notice.message_primary or ""))
    step3(db)
    assert "is skipped" in heard[0]


def test_it_may_be_repeated_after_a_rollback(db: Conn) -> None:
    with db.transaction(force_rollback=True):
        step3(db)
    assert pods(db) == []
    step3(db)
    assert sorted(ids(db)) == list(range(1, 11))


NONSENSE: list[tuple[dict[str, Any], str]] = [
    ({"table": "pg_class"}, "TU108"),
    ({"table": None}, "TU108"),
    ({"order_col": "nope"}, "42703"),
    ({"order_col": "id; DROP TABLE x"}, "42703"),
    ({"order_col": "ctid"}, "42703"),
    ({"order_col": None}, "22004"),
    ({"shard": 8}, "TU106"),
    ({"shard": -1}, "TU106"),
    ({"step1": "x"}, "22023"),
    ({"step1": "9999999999999"}, "22023"),
    ({"fetch_chunk_size": 0}, "22023"),
    ({"insert_chunk_size": 0}, "22023"),
]


def test_what_makes_no_sense_is_refused(conn: Conn) -> None:
    set_up(conn, shard=7)
    for arguments, state in NONSENSE:
        with refusal(state, arguments):
            step3(conn, **arguments)
        assert pods(conn) == [], arguments


def test_row_level_security_hides_no_row_unnoticed(conn: Conn, dsn: str) -> None:
    set_up(conn, shard=7)
    conn.execute(f"INSERT INTO {TABLE} VALUES (1), (2)")
    conn.execute(f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY")
    conn.execute(f"CREATE POLICY none ON {TABLE} USING (false)")
    take(conn)
    with roles(dsn, "worker") as admin:
        admin.execute("GRANT tube_worker TO worker")
        with open_session(as_role(dsn, "worker")) as worker:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                step3(worker)
            admin.execute(f"GRANT SELECT ON {TABLE} TO worker".encode())
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
                step3(worker)
            assert pods(conn) == []
            admin.execute("ALTER ROLE worker BYPASSRLS")
            step3(worker)
    assert ids(conn) == [1, 2]


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
