"""Too much, or nonsense: refused as a whole with a clear error, or taken as a whole."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.helpers.capture import TABLE, Conn, open_session, refusal, scalar, set_up, set_up_database
from tests.helpers.database import preparing

prepare = preparing(set_up_database)


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version, with a tube and an attached table."""
    with open_session(any_dsn) as conn:
        yield conn


def nothing_was_done(conn: Conn) -> bool:
    return bool(scalar(conn, 'SELECT count(*) = 0 FROM "es-live"'))


@pytest.mark.parametrize(
    "payload",
    [
        # A byte more than a string of jsonb may have, and more than all of it; each takes seconds.
        pytest.param("to_jsonb(repeat('x', 268435456))", marks=pytest.mark.soak),
        pytest.param(
            "jsonb_build_array(repeat('x', 200000000), repeat('y', 200000000))", marks=pytest.mark.soak
        ),
        "(repeat('[', 500000) || repeat(']', 500000))::jsonb",
        '\'{"a": "\\u0000"}\'::jsonb',
        "'{'::jsonb",
    ],
)
def test_a_payload_that_cannot_be(conn: Conn, payload: str) -> None:
    set_up(conn)
    with conn.transaction():
        conn.execute("SELECT public.item_touch('{1}')")
        with pytest.raises(psycopg.Error) as refused, conn.transaction():
            conn.execute(f"SELECT public.item_touch('{{2,3}}', 'T', {payload})".encode())
        assert refused.value.sqlstate in ("54000", "54001", "22P05", "22P02"), refused.value
    rows = conn.execute('SELECT ids, payload FROM "es-live"').fetchall()
    assert rows == [([1], None)], "what came before in the transaction is there, and no more"


def test_a_large_payload_is_kept_as_it_is(conn: Conn) -> None:
    set_up(conn)
    conn.execute("SELECT public.item_touch('{1}', 'T', to_jsonb(repeat('x', 5000000)))")
    assert scalar(conn, "SELECT length(payload #>> '{}') FROM \"es-live\"") == 5_000_000
    conn.execute("SELECT public.item_touch('{}', 'T', to_jsonb(repeat('x', 5000000)))")
    assert scalar(conn, "SELECT control_count FROM tube_stats() WHERE partition = 0") == "other:1"


@pytest.mark.soak  # seconds of CPU; test_capture_bulk.py passes the limits with fewer
def test_a_million_ids(db: Conn) -> None:
    db.execute("SELECT public.item_touch(ARRAY(SELECT generate_series(1, 1000000)))")
    row = db.execute(
        'SELECT count(*), sum(cardinality(ids)), max(cardinality(ids)) FROM "es-live"'
    ).fetchone()
    assert row == (4000, 1_000_000, 250)
    distinct = scalar(db, 'SELECT count(DISTINCT i) FROM "es-live", unnest(ids) AS i')
    assert distinct == 1_000_000
    db.execute('TRUNCATE "es-live"')
    db.execute("""SELECT "es-live_touch"(0, ARRAY(SELECT generate_series(1, 1000000)), 'T', NULL, 1000000)""")
    assert scalar(db, 'SELECT cardinality(ids) FROM "es-live"') == 1_000_000


@pytest.mark.soak
def test_a_statement_of_a_million_rows(conn: Conn) -> None:
    set_up(conn)
    conn.execute(f"INSERT INTO {TABLE} SELECT generate_series(1, 1000000)".encode())
    row = conn.execute('SELECT count(*), sum(cardinality(ids)) FROM "es-live"').fetchone()
    assert row == (4000, 1_000_000)


NONSENSE: list[tuple[str, str]] = [
    ("public.item_touch('{1,NULL,2}')", "22004"),
    ("public.item_touch('{NULL}')", "22004"),
    ("public.item_touch(ARRAY(SELECT nullif(i, 999999) FROM generate_series(1, 1000000) AS i))", "22004"),
    ("public.item_touch('{{1,2},{3,4}}')", "0A000"),
    ("public.item_touch('{1}', 'X')", "22023"),
    ("public.item_touch('{1}', '')", "22023"),
    ("public.item_touch('{1}', NULL)", "22023"),
    ("public.item_touch('{1}', 'T', NULL, 0)", "22023"),
    ("public.item_touch('{1}', 'T', NULL, -1)", "22023"),
    ("public.item_touch('{1}', 'T', NULL, NULL)", "22023"),
    ("public.item_touch('{9223372036854775808}')", "22003"),
    ("public.item_touch('{1.5}')", "22P02"),
    ("tube.\"es-live_touch\"(-1, '{1}', 'T')", "TU106"),
    ("tube.\"es-live_touch\"(NULL, '{1}', 'T')", "TU106"),
    ("tube.\"es-live_touch\"(2147483648, '{1}', 'T')", "42883"),
]


def test_nonsense_is_refused(db: Conn) -> None:
    for call, state in NONSENSE:
        with refusal(state, call) as error:
            db.execute(f"SELECT {call}".encode())
        assert error.value.diag.message_primary, call
        assert nothing_was_done(db), call
