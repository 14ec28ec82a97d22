"""Statements of very many rows: their ids are not gathered into one array."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.capture import TUBE, Conn, attach, make_tube, open_session, scalar

LARGE = 100_000


def lower_the_limit(conn: Conn, rows: int) -> None:
    """As though `rows` were very many: the generated function of the one attachment, with another number."""
    text: str = scalar(
        conn,
        "SELECT pg_get_functiondef(trigger_function::regproc) FROM (SELECT format('tube_capture.%I',"
        " trigger_function) AS trigger_function FROM tube_attachment) AS a",
    )
    assert text.count("100000") >= 2
    assert text.count("100001") >= 2
    text = text.replace("100000", str(rows)).replace("100001", str(rows + 1))
    conn.execute(text.encode())


def touched(conn: Conn) -> list[tuple[str, int, int]]:
    """By op: how many ids, how many different ones, and the largest pod. Empties the tube."""
    rows: Any = conn.execute(
        "SELECT op, count(id), count(DISTINCT id), max(cardinality(ids))"
        f' FROM tube."{TUBE}", unnest(ids) AS id GROUP BY op ORDER BY op'.encode()
    ).fetchall()
    conn.execute(f'TRUNCATE tube."{TUBE}"'.encode())
    assert all(most <= 250 for *_, most in rows)
    return [tuple(row[:3]) for row in rows]


@pytest.mark.parametrize("kind", ["plain", "partitioned"])
@pytest.mark.parametrize("limit", [400, 1_000_000])
def test_every_id_once_whatever_the_number_of_rows(any_dsn: str, kind: str, limit: int) -> None:
    with open_session(any_dsn) as conn:
        make_tube(conn)
        rest = {"plain": "", "partitioned": "PARTITION BY RANGE (id)"}[kind]
        conn.execute(f"CREATE TABLE public.item (id bigint PRIMARY KEY, n int) {rest}".encode())
        if kind == "partitioned":
            conn.execute("CREATE TABLE public.item_0 PARTITION OF public.item FOR VALUES FROM (0) TO (10000)")
        attach(conn, shards=2)
        lower_the_limit(conn, limit)
        conn.execute("INSERT INTO public.item SELECT g, 0 FROM generate_series(1, 1000) AS g")
        assert touched(conn) == [("I", 1000, 1000)]
        conn.execute("UPDATE public.item SET n = 1")
        assert touched(conn) == [("U", 1000, 1000)]
        conn.execute("UPDATE public.item SET id = id + 500 WHERE id > 500")
        assert touched(conn) == [("D", 500, 500), ("I", 500, 500)]
        conn.execute("DELETE FROM public.item")
        assert touched(conn) == [("D", 1000, 1000)]
        conn.execute("SET application_name = 'backfill'")
        conn.execute("INSERT INTO public.item SELECT g, 0 FROM generate_series(1, 1000) AS g")
        assert touched(conn) == [("B", 1000, 1000)]


@pytest.mark.soak
def test_more_than_a_gigabyte_of_ids(conn: Conn) -> None:
    """One array holds no more than that; a statement that was refused for it was the application's."""
    make_text = "repeat(md5(g::text), 320)"
    conn.execute("SELECT tube_ensure_exists(%s, 4, key_type => 'text')", (TUBE,))
    conn.execute("CREATE TABLE public.item (id text)")
    attach(conn)
    conn.execute(f"INSERT INTO public.item SELECT {make_text} FROM generate_series(1, 110000) AS g".encode())
    pods = scalar(conn, f'SELECT count(*) FROM tube."{TUBE}"')
    assert pods == LARGE * 11 // 10 // 250


def test_columns_of_rows_beyond_the_limit_are_looked_at(conn: Conn) -> None:
    """Few rows pass the predicate; what changed stands behind all that an array holds."""
    make_tube(conn, predicate="n > 0")
    conn.execute("CREATE TABLE public.item (id bigint PRIMARY KEY, n int, note text)")
    conn.execute("SELECT tube_table_ensure_attached(%s, 'public.item', 0, columns => '{note}')", (TUBE,))
    lower_the_limit(conn, 100)
    conn.execute("INSERT INTO public.item SELECT g, (g > 990)::int, 'x' FROM generate_series(1, 1000) AS g")
    touched(conn)
    conn.execute("UPDATE public.item SET note = CASE WHEN id = 1000 THEN 'y' ELSE note END")
    assert touched(conn) == [("U", 1, 1)]
    conn.execute("UPDATE public.item SET note = note")
    assert touched(conn) == []
