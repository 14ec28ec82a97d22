"""tube_pods_insert: what a query gives is touched, with its caller's rights and in bounded memory."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.errors import Diagnostic

from tests.conftest import Connect
from tests.helpers.capture import (
    TABLE,
    Conn,
    Touch,
    attach,
    make_item,
    make_tube,
    open_session,
    pods,
    refusal,
    scalar,
    take,
)
from tests.helpers.waiting import LIMIT

TUBE = "es-live"
IDS = "SELECT g, row_number() OVER () FROM generate_series(1, {count}) AS g"


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version, with a tube."""
    with open_session(any_dsn) as conn:
        make_tube(conn)
        yield conn


def insert(conn: Conn, query: str, shard: int | None = 7, tubes: str | None = TUBE, **more: Any) -> None:
    """Call it, with further arguments by name."""
    named = "".join(f", {name} => %({name})s" for name in more)
    conn.execute(
        f"SELECT tube.tube_pods_insert(%(tubes)s, %(query)s, %(shard)s{named})".encode(),
        {"tubes": tubes, "query": query, "shard": shard, **more},
    )


def notices(conn: Conn) -> list[str]:
    """Where the notices of the session go from here on."""
    heard: list[str] = []
    conn.add_notice_handler(lambda notice: heard.append(notice.message_primary or ""))
    return heard


def warnings(conn: Conn) -> list[tuple[str, str]]:
    """The same of warnings alone: message and hint."""
    heard: list[tuple[str, str]] = []

    def hear(notice: Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            heard.append((notice.message_primary or "", notice.message_hint or ""))

    conn.add_notice_handler(hear)
    return heard


def test_ids_come_in_the_order_of_the_query(db: Conn) -> None:
    insert(
        db, "SELECT g, 1 FROM generate_series(1000, 1, -1) AS g", fetch_chunk_size=300, insert_chunk_size=100
    )
    found = pods(db)
    assert [(op, shard, payload) for op, shard, _, payload in found] == [("B", 7, None)] * 10
    assert [key for _, _, ids, _ in found for key in ids] == list(range(1000, 0, -1))
    assert {len(ids) for _, _, ids, _ in found} == {100}


def test_several_tubes_in_one_transaction(db: Conn) -> None:
    make_tube(db, "two", partitions=1)
    insert(db, IDS.format(count=3), tubes="es-live, two,two", op="T")
    assert take(db) == take(db, "two") == [Touch("T", 7, key) for key in (1, 2, 3)]
    with pytest.raises(psycopg.Error) as unknown:
        insert(db, IDS.format(count=3), tubes="es-live,three")
    assert unknown.value.sqlstate == "TU102"
    assert take(db) == []


def test_names_may_have_blanks_at_their_ends(db: Conn) -> None:
    make_tube(db, " x ")
    insert(db, IDS.format(count=1), tubes="es-live, x ")
    assert len(take(db, " x ")) == len(take(db)) == 1


def test_each_id_of_a_spread_table_goes_to_its_shard(db: Conn) -> None:
    make_item(db)
    attach(db, shard=10, shards=4)
    insert(db, "SELECT g, 1 FROM generate_series(-50, 1000) AS g", shard=12, fetch_chunk_size=100)
    touches = take(db)
    assert sorted(touch.id for touch in touches) == list(range(-50, 1001))
    assert all(touch.shard == 10 + touch.id % 4 for touch in touches)


def test_ids_of_a_spread_shard_keep_their_order(db: Conn) -> None:
    make_item(db)
    attach(db, shard=0, shards=3)
    insert(db, "SELECT g, 1 FROM generate_series(3000, 1, -1) AS g", shard=0)
    for shard in range(3):
        ids = [key for _, where, ids, _ in pods(db) if where == shard for key in ids]
        assert ids == [key for key in range(3000, 0, -1) if key % 3 == shard]


def test_a_session_of_a_backfill_makes_pods_of_op_b(db: Conn) -> None:
    db.execute("SET application_name = 'my backfill 2'")
    insert(db, IDS.format(count=2), op="T")
    assert {touch.op for touch in take(db)} == {"B"}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 5, 1;  ",
        "SELECT 5, 1 -- the one",
        "WITH x AS (SELECT 5 AS id) SELECT id, row_number() OVER () FROM x ORDER BY 1",
        "VALUES (5, 1)",
        "SELECT 5::smallint AS same, 1 AS same",
        "SELECT 5::numeric, NULL",
        "SELECT '5', 'x'",
        "SELECT id, 1 FROM public.one FOR UPDATE",
    ],
)
def test_queries_as_they_come(conn: Conn, query: str) -> None:
    make_tube(conn)
    conn.execute("CREATE TABLE public.one AS SELECT 5 AS id")
    insert(conn, query)
    assert take(conn) == [Touch("B", 7, 5)]


NONSENSE: list[tuple[dict[str, Any], str]] = [
    ({"query": "SELECT 1"}, "42601"),
    ({"query": "SELECT 1, 2, 3"}, "42601"),
    ({"query": "SELEC 1, 2"}, "42601"),
    ({"query": None}, "22004"),
    ({"query": "SELECT NULL::int, 1"}, "22004"),
    ({"query": "SELECT 1.5, 1"}, "22P02"),
    ({"query": "SELECT 1, 1 FROM public.nowhere"}, "42P01"),
    ({"query": "SELECT 1, 1 / (g - 2) FROM generate_series(1, 3) AS g WHERE 1 / (g - 2) < 9"}, "22012"),
    ({"shard": -1}, "TU106"),
    ({"shard": None}, "TU106"),
    ({"op": "X"}, "22023"),
    ({"op": None}, "22023"),
    ({"fetch_chunk_size": 0}, "22023"),
    ({"fetch_chunk_size": None}, "22023"),
    ({"insert_chunk_size": -5}, "22023"),
    ({"insert_chunk_size": None}, "22023"),
    ({"tubes": None}, "TU102"),
    ({"tubes": ""}, "TU102"),
    ({"tubes": "es-live,"}, "TU102"),
]


def test_what_makes_no_sense_is_refused(conn: Conn) -> None:
    make_tube(conn)
    for arguments, state in NONSENSE:
        with refusal(state, arguments):
            insert(conn, **{"query": "SELECT 1, 1", **arguments})
        assert pods(conn) == [], arguments


def test_a_wrong_number_of_columns_is_said(conn: Conn) -> None:
    make_tube(conn)
    with pytest.raises(psycopg.Error, match="has not two columns"):
        insert(conn, "SELECT 1, 2, 3")


def test_huge_chunks_are_as_large_as_what_is_read_at_a_time(conn: Conn) -> None:
    make_tube(conn)
    huge = 2**31 - 1
    insert(conn, IDS.format(count=1_000_001), fetch_chunk_size=huge, insert_chunk_size=huge)
    assert [len(ids) for _, _, ids, _ in pods(conn)] == [1_000_000, 1]


def test_progress_is_told(conn: Conn) -> None:
    make_tube(conn)
    make_item(conn)
    attach(conn, shard=7)
    heard = notices(conn)
    insert(
        conn,
        "SELECT g, 1 FROM generate_series(1, 4) AS g WHERE g <> 3 OR pg_sleep(2.1) IS NOT NULL",
        approx_size=8,
        fetch_chunk_size=1,
    )
    put = "tube_pods_insert: insert_ids="
    assert re.fullmatch(
        rf"{put}3 insert_finished=f -- es-live: 3 ids of about 8 \(37 %\), \d a second", heard[0]
    )
    assert re.fullmatch(rf"{put}4 insert_finished=t -- es-live: 4 ids in 4 pods, in 2\.\d s", heard[1])
    assert len(heard) == 2


def test_a_shard_that_no_table_has_is_warned_of_once_before_the_query_runs(db: Conn) -> None:
    make_item(db)
    attach(db, shard=4, shards=4)
    db.execute("CREATE TABLE public.other (id bigint PRIMARY KEY)")
    attach(db, "public.other", 9)
    heard = warnings(db)
    insert(db, IDS.format(count=5), shard=6, fetch_chunk_size=2)
    insert(db, IDS.format(count=5), shard=9, fetch_chunk_size=2)
    assert heard == []
    with pytest.raises(psycopg.errors.DivisionByZero):
        insert(db, "SELECT 1 / (g - 1), 1 FROM generate_series(1, 2) AS g", shard=8)
    said, hint = heard.pop()
    assert said == (
        "no table that is attached to tube 'es-live' has the shard 8,"
        " so there are no rows to read for these ids"
    )
    assert "Give a shard of an attached table (4 to 7, 9), or attach the table that has this one." in hint
    insert(db, IDS.format(count=5), shard=8, fetch_chunk_size=2)
    assert heard == [(said, hint)]


def test_a_tube_without_a_table_is_warned_of(db: Conn) -> None:
    db.execute("SELECT tube_ensure_exists('two'), tube_ensure_exists('texts', 1, NULL, 'text')")
    make_item(db)
    attach(db, shard=7, tube="two")
    heard = warnings(db)
    insert(db, IDS.format(count=1), tubes="es-live,two,texts")
    assert [said for said, _ in heard] == [
        f"no table is attached to tube '{tube}', so there are no rows to read for ids in the shard 7"
        for tube in ("es-live", "texts")
    ]
    assert all(
        hint.endswith("Attach their table first, unless its consumers read no rows.") for _, hint in heard
    )
    heard.clear()
    db.execute(f"DROP TABLE {TABLE}")
    insert(db, IDS.format(count=1), tubes="two")
    assert len(heard) == 1


def test_ids_in_pieces_are_warned_of_with_the_last(db: Conn) -> None:
    heard = warnings(db)
    for function, tube in (("tube_pods_put", TUBE), ("tube_keys_put", TUBE)):
        call = f"SELECT {function}(%s, 3, 'T', %s, 250, %s)".encode()
        db.execute(call, (tube, "{1,2}", False))
        db.execute(call, (tube, "{3,4}", False))
        assert heard == []
        db.execute(call, (tube, "{5}", True))
        assert len(heard) == 1
        heard.clear()


def test_the_query_sees_what_its_caller_sees(conn: Conn, dsn: str) -> None:
    """Its rights, search_path, temporary tables and row-level security, and not those of our owner."""
    make_tube(conn)
    role = f"caller_{uuid.uuid4().hex}"
    conn.execute(f"CREATE ROLE {role} LOGIN")
    conn.execute("CREATE TABLE public.secret AS SELECT 1 AS id")
    conn.execute("CREATE SCHEMA mine")
    conn.execute("CREATE TABLE mine.item AS SELECT g AS id FROM generate_series(1, 3) AS g")
    conn.execute("ALTER TABLE mine.item ENABLE ROW LEVEL SECURITY")
    conn.execute("CREATE POLICY odd ON mine.item USING (id <> 2)")
    conn.execute(f"GRANT USAGE ON SCHEMA mine, tube TO {role}")
    conn.execute(f"GRANT SELECT ON mine.item TO {role}")
    conn.execute(
        f"GRANT EXECUTE ON FUNCTION tube.tube_pods_insert, tube.tube_as_caller, tube.tube_pods_put TO {role}"
    )
    with psycopg.connect(dsn, user=role, autocommit=True, options="-c search_path=mine") as caller:
        insert(caller, "SELECT id, 1 FROM item")
        assert [touch.id for touch in take(conn)] == [1, 3]
        caller.execute("CREATE TEMP TABLE item AS SELECT 9 AS id")
        insert(caller, "SELECT id, 1 FROM item")
        assert [touch.id for touch in take(conn)] == [9]
        for query in ("SELECT id, 1 FROM public.secret", "SELECT shard, 1 FROM tube.tube_attachment"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                insert(caller, query)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            caller.execute("INSERT INTO tube.\"es-live\" (op, shard, ids) VALUES ('T', 1, '{1}')")
        assert scalar(caller, "SHOW search_path") == "mine"
    conn.execute(f"DROP OWNED BY {role}")
    conn.execute(f"DROP ROLE {role}")


def test_functions_of_the_query_run_under_the_callers_search_path(conn: Conn) -> None:
    make_tube(conn)
    conn.execute("CREATE SCHEMA mine")
    conn.execute(
        "CREATE FUNCTION mine.path(i bigint) RETURNS bigint LANGUAGE plpgsql AS"
        " $$ BEGIN RETURN CASE current_setting('search_path') WHEN 'mine, public' THEN i ELSE -1 END; END $$"
    )
    conn.execute("SET search_path = mine, public")
    insert(conn, "SELECT path(g), 1 FROM generate_series(1, 5) AS g", fetch_chunk_size=2)
    assert [touch.id for touch in take(conn)] == [1, 2, 3, 4, 5]


def test_a_query_may_itself_insert_pods(conn: Conn) -> None:
    make_tube(conn)
    make_tube(conn, "two")
    insert(
        conn,
        "SELECT g, 1 FROM generate_series(1, 2) AS g"
        " WHERE tube.tube_pods_insert('two', 'SELECT 8, 1', 1)::text IS NOT NULL",
    )
    assert [touch.id for touch in take(conn)] == [1, 2]
    assert [touch.id for touch in take(conn, "two")] == [8, 8]


def test_a_worker_that_sleeps_is_woken_once_per_partition(conn: Conn, connect: Connect) -> None:
    make_tube(conn, partitions=4)
    conn.execute("INSERT INTO tube.tube_sleeper SELECT %s, p, 4 FROM generate_series(0, 3) AS p", (TUBE,))
    listener = connect()
    listener.execute(f"LISTEN {scalar(conn, 'SELECT tube.tube_channel(%s)', (TUBE,))}")
    conn.execute("SET pytube.wake = on")
    insert(conn, IDS.format(count=10), shard=7, fetch_chunk_size=2)
    assert [message.payload for message in listener.notifies(timeout=LIMIT, stop_after=1)] == ["3"]
    make_item(conn)
    attach(conn, shard=3, shards=2)
    insert(conn, IDS.format(count=10), shard=3, fetch_chunk_size=2)
    assert sorted(message.payload for message in listener.notifies(timeout=LIMIT, stop_after=2)) == ["0", "3"]
