"""Fan-out, the steps and backfill in chunks for keys that are uuids and texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest

from tests.helpers.capture import Conn, open_session, pods, refusal, scalar
from tests.helpers.database import Prepare
from tests.helpers.terms import Claim, acquire

ROWS = 1500


@pytest.fixture(params=["uuid", "text"])
def key_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def of_uuids(dsn: str) -> None:
    fill(dsn, "uuid", "gen_random_uuid()")


def of_texts(dsn: str) -> None:
    fill(dsn, "text", "'k \"' || g || E'\\\\,ü'")


@pytest.fixture
def prepare(request: pytest.FixtureRequest) -> Prepare | None:
    if "key_type" not in request.fixturenames:
        return None
    return of_uuids if request.getfixturevalue("key_type") == "uuid" else of_texts


@pytest.fixture
def db(dsn: str, key_type: str) -> Iterator[Conn]:
    """A session with an attached table of 1500 such keys over 8 shards; none is touched."""
    with open_session(dsn, client_encoding="utf8") as conn:
        assert scalar(conn, "SELECT pg_typeof(id)::text FROM public.doc LIMIT 1") == key_type
        yield conn


def fill(dsn: str, key_type: str, value: str) -> None:
    with open_session(dsn, client_encoding="utf8") as conn:
        conn.execute(f"CREATE TABLE public.doc (id {key_type} PRIMARY KEY, n int, off boolean)")
        conn.execute("SELECT tube_ensure_exists('docs', 2, 'off IS NOT TRUE', %s::regtype)", (key_type,))
        conn.execute("SELECT tube_table_ensure_attached('docs', 'public.doc', 10, 8)")
        conn.execute(f"INSERT INTO public.doc SELECT {value}, g FROM generate_series(1, {ROWS}) AS g")
        conn.execute("DELETE FROM docs")


def keys(conn: Conn) -> list[str]:
    """The ids in the tube, in the order of their pods; all are in their shards."""
    found = conn.execute(
        "SELECT k.id::text, shard, tube_shard_of(k.id, 10, 8) FROM docs,"
        " unnest(ids) WITH ORDINALITY AS k (id, place) ORDER BY seq, place"
    ).fetchall()
    assert all(shard == expected for _, shard, expected in found)
    return [key for key, _, _ in found]


def ids(conn: Conn) -> list[str]:
    return [key for (key,) in conn.execute("SELECT id::text FROM public.doc ORDER BY n").fetchall()]


def test_a_fan_out(db: Conn) -> None:
    query = "SELECT id, row_number() OVER () FROM public.doc ORDER BY n;"
    db.execute(
        "SELECT tube_pods_insert('docs', %s, 12, fetch_chunk_size => 400, insert_chunk_size => 100)", (query,)
    )
    order = {key: place for place, key in enumerate(ids(db))}
    for shard in range(10, 18):
        mine = [key for _, where, touched, _ in pods(db, "docs") if where == shard for key in touched]
        places = [order[str(key)] for key in mine]
        assert places == sorted(places)
    assert sorted(keys(db)) == sorted(order)
    db.execute("DELETE FROM docs")
    db.execute("SELECT tube_pods_insert('docs', 'SELECT id, 1 FROM public.doc WHERE n = 1', 99)")
    assert [(op, shard, len(touched)) for op, shard, touched, _ in pods(db, "docs")] == [("B", 99, 1)]


def test_a_fan_out_into_tubes_of_several_types(db: Conn) -> None:
    db.execute("SELECT tube_ensure_exists('numbers')")
    db.execute("SELECT tube_ensure_exists('names', key_type => 'text')")
    db.execute("SELECT tube_pods_insert('numbers,names', 'SELECT 7, 1', 3)")
    assert [*pods(db, "numbers"), *pods(db, "names")] == [("B", 3, [7], None), ("B", 3, ["7"], None)]
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        db.execute("SELECT tube_pods_insert('numbers,names', $$SELECT 'x', 1$$, 3)")


REFUSED: list[tuple[str, str]] = [
    ("tube_pods_put('docs', 10, 'T', '{1}')", "42804"),
    ("tube_keys_put('docs', 10, 'T', '{NULL}')", "22004"),
    ("tube_keys_put('docs', -1, 'T', '{}')", "TU106"),
    ("tube_keys_put('nothing', 1, 'T', '{}')", "TU102"),
    ("tube_pods_insert('docs', 'SELECT NULL::text, 1', 10)", "22004"),
    ("tube_pods_insert('docs', 'SELECT 1', 10)", "42601"),
]


def test_what_is_refused(db: Conn) -> None:
    for call, state in REFUSED:
        with refusal(state, call):
            db.execute(f"SELECT {call}".encode())
        assert keys(db) == [], call


def test_what_is_no_uuid_is_refused(db: Conn, key_type: str) -> None:
    if key_type == "text":
        db.execute("SELECT tube_keys_put('docs', 99, 'T', '{7}')")
        return
    for call in ("tube_keys_put('docs', 10, 'T', '{7}')", "tube_pods_insert('docs', 'SELECT 7, 1', 10)"):
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            db.execute(f"SELECT {call}".encode())


def test_the_steps(db: Conn) -> None:
    db.execute("UPDATE public.doc SET off = true WHERE n % 2 = 0")
    db.execute("DELETE FROM docs")
    step1 = scalar(db, "SELECT tube_backfill_step1()")
    db.execute("SELECT tube_backfill_step2()")
    db.execute("SELECT tube_backfill_step3(%s, 'docs', 'public.doc', 'n')", (step1,))
    assert sorted(keys(db)) == sorted(ids(db)[::2])
    ends = [payload for op, _, touched, payload in pods(db, "docs") if not touched and op == "B"]
    assert ends == [{"type": "backfill_end", "start_seq": step1}] * 8
    db.execute("DELETE FROM docs")
    db.execute("SELECT tube_backfill_step3(%s, 'docs', 'public.doc', 'id', 13)", (step1,))
    assert {shard for _, shard, _, _ in pods(db, "docs")} == {13}
    assert 0 < len(keys(db)) < ROWS / 2


def test_a_row_without_a_key(db: Conn, key_type: str) -> None:
    """It names no document: nothing touches it, and nothing fails."""
    said: list[str] = []
    db.add_notice_handler(lambda notice: said.append(f"{notice.severity} {notice.message_primary}"))
    db.execute(f"CREATE TABLE public.loose (id {key_type}, n int, off boolean)")
    db.execute("SELECT tube_table_ensure_attached('docs', 'public.loose', 50)")
    assert said == [
        "WARNING the key id of public.loose may be NULL",
        "WARNING nothing proves that the key id of public.loose is unique",
    ]
    db.execute("INSERT INTO public.loose VALUES (NULL, 1), (NULL, 2)")
    db.execute("UPDATE public.loose SET n = 3 WHERE n = 1")
    db.execute("DELETE FROM public.loose WHERE n = 2")
    assert pods(db, "docs") == []
    db.execute("SELECT tube_backfill_step3(tube_backfill_step1(), 'docs', 'public.loose', 'n')")
    assert keys(db) == []
    db.execute("DELETE FROM docs")
    value = scalar(db, "SELECT id::text FROM public.doc LIMIT 1")
    db.execute(f"INSERT INTO public.loose SELECT NULL UNION ALL SELECT %s::{key_type}", (value,))
    assert [(op, shard, ids) for op, shard, ids, _ in pods(db, "docs")] in (
        [("I", 50, [value])],
        [("I", 50, [UUID(value)])] if key_type == "uuid" else [],
    )
    db.execute("TRUNCATE public.loose")
    assert {op for op, *_ in pods(db, "docs")} == {"I", "D"}


def test_a_domain_over_a_key_type(db: Conn, key_type: str) -> None:
    db.execute(f"CREATE DOMAIN public.name AS {key_type} NOT NULL; CREATE DOMAIN public.key AS public.name")
    db.execute("CREATE TABLE public.named (id public.key PRIMARY KEY, n int, off boolean)")
    db.execute("SELECT tube_table_ensure_attached('docs', 'public.named', 60, 2)")
    db.execute("INSERT INTO public.named SELECT id, n, n > 10 FROM public.doc WHERE n <= 20")
    expected = ids(db)[:10]
    touched = {str(key) for _, shard, touched, _ in pods(db, "docs") for key in touched if shard in (60, 61)}
    assert touched == set(expected)
    db.execute("DELETE FROM docs")
    db.execute("UPDATE public.named SET off = false WHERE n = 11")
    db.execute("DELETE FROM public.named WHERE n = 1")
    assert sorted(op for op, *_ in pods(db, "docs")) == ["D", "I"]
    db.execute("DELETE FROM docs")
    db.execute("SELECT tube_backfill_step3(tube_backfill_step1(), 'docs', 'public.named', 'n')")
    assert {str(key) for _, _, touched, _ in pods(db, "docs") for key in touched} == set(ids(db)[1:11])


def test_in_chunks(db: Conn) -> None:
    db.execute("UPDATE public.doc SET off = true WHERE n % 2 = 0")
    db.execute("DELETE FROM docs")
    number = scalar(db, "SELECT tube_backfill_create('docs', 'public.doc', 'n')")
    assert scalar(db, "SELECT tube_backfill_lock(%s)", (number,))
    assert scalar(db, "SELECT tube_backfill_collect(%s)", (number,)) == ROWS // 2
    while scalar(db, "SELECT (tube_backfill_chunk(%s, 3)).state", (number,)) == "inserting":
        pass
    assert sorted(keys(db)) == sorted(ids(db)[::2])


@pytest.mark.parametrize("by", ["n", "id"])
def test_in_ranges(db: Conn, by: str) -> None:
    db.execute("UPDATE public.doc SET off = true WHERE n % 2 = 0")
    db.execute("DELETE FROM docs")
    number = scalar(db, "SELECT tube_backfill_create('docs', 'public.doc', %s)", (by,))
    assert scalar(db, "SELECT tube_backfill_lock(%s)", (number,))
    job = scalar(db, "SELECT tube_backfill_split(%s, 4)", (number,))
    assert scalar(db, "SELECT units FROM tube_job_list(%s)", (job,)) == 4
    rows = [scalar(db, "SELECT tube_backfill_range(%s, %s)", (number, unit)) for unit in (2, 0, 3, 1, 0)]
    assert sum(rows) == ROWS // 2
    assert scalar(db, "SELECT tube_backfill_join(%s)", (number,))
    assert sorted(keys(db)) == sorted(ids(db)[::2])


def test_a_related_table_in_ranges_names_each_document_once(db: Conn, key_type: str) -> None:
    db.execute(f"CREATE TABLE public.notes (doc {key_type}, n int, off boolean)")
    db.execute("SELECT tube_table_ensure_attached('docs', 'public.notes', 10, 8, 'doc')")
    db.execute("INSERT INTO notes SELECT id, n FROM public.doc, generate_series(1, 3) WHERE n <= 400")
    db.execute("INSERT INTO notes VALUES (NULL, 1)")
    db.execute("DELETE FROM docs")
    number = scalar(db, "SELECT tube_backfill_create('docs', 'public.notes', 'doc')")
    assert scalar(db, "SELECT tube_backfill_lock(%s)", (number,))
    db.execute("SELECT tube_backfill_split(%s, 3)", (number,))
    for unit in range(scalar(db, "SELECT units FROM tube_job_list()")):
        db.execute("SELECT tube_backfill_range(%s, %s)", (number, unit))
    assert scalar(db, "SELECT tube_backfill_join(%s)", (number,))
    assert sorted(keys(db)) == sorted(ids(db)[:400])


def test_a_related_table_names_each_document_once(db: Conn, key_type: str) -> None:
    db.execute(f"CREATE TABLE public.notes (doc {key_type}, n int, off boolean)")
    db.execute("SELECT tube_table_ensure_attached('docs', 'public.notes', 10, 8, 'doc')")
    db.execute("INSERT INTO notes SELECT id, n FROM public.doc, generate_series(1, 3) WHERE n <= 400")
    db.execute("INSERT INTO notes VALUES (NULL, 1)")
    db.execute("DELETE FROM docs")
    number = scalar(db, "SELECT tube_backfill_create('docs', 'public.notes', 'n')")
    assert scalar(db, "SELECT tube_backfill_lock(%s)", (number,))
    assert scalar(db, "SELECT tube_backfill_collect(%s)", (number,)) == 400
    db.execute("SELECT tube_backfill_chunk(%s, 1000)", (number,))
    assert sorted(keys(db)) == sorted(ids(db)[:400])
    db.execute("SELECT tube_backfill_command(%s, 'cancel')", (number,))
    assert keys(db) == []
    db.execute("SELECT tube_backfill_step3(tube_backfill_step1(), 'docs', 'public.notes', 'n')")
    assert sorted(keys(db)) == sorted(ids(db)[:400])


def test_texts_that_do_not_fit_into_a_page(any_dsn: str) -> None:
    """Neither in a pod, nor in what a backfill collects; a key that is as long can be parked."""
    with open_session(any_dsn, client_encoding="utf8") as conn:
        conn.execute("CREATE TABLE public.doc (id text, n int)")
        conn.execute("SELECT tube_ensure_exists('docs', key_type => 'text')")
        conn.execute("SELECT tube_table_ensure_attached('docs', 'public.doc', 0, id_col => 'id')")
        conn.execute(
            "INSERT INTO public.doc SELECT string_agg(md5((g * 1000 + p)::text), ''), g"
            " FROM generate_series(1, 300) AS g, generate_series(1, 100) AS p GROUP BY g"
        )
        conn.execute("DELETE FROM docs")
        number = scalar(conn, "SELECT tube_backfill_create('docs', 'public.doc', 'n')")
        assert scalar(conn, "SELECT tube_backfill_lock(%s)", (number,))
        assert scalar(conn, "SELECT tube_backfill_collect(%s)", (number,)) == 300
        conn.execute("SELECT tube_backfill_chunk(%s, 1000)", (number,))
        assert scalar(conn, "SELECT min(length(k)) FROM docs, unnest(ids) AS k") == 3200
        term = acquire(conn, Claim("docs", 1, 0))
        key = scalar(conn, "SELECT id FROM public.doc WHERE n = 1")
        item = {"shard": 0, "id": key, "op": "U", "seq": 1, "payload": None, "error": "x", "attempts": 1}
        for _ in range(2):
            conn.execute("SELECT tube_pods_park('docs', 1, 0, %s, %s)", (term.leader_id, json.dumps([item])))
            assert scalar(conn, "SELECT count(*) FROM tube_park_list()") == 1
        conn.execute("SELECT tube_pods_unpark('docs', 1, 0, %s, '{0}', %s)", (term.leader_id, [key]))
        assert scalar(conn, "SELECT count(*) FROM tube_park_list()") == 0


def test_touches_of_a_sweep(db: Conn, key_type: str) -> None:
    some = [
        key
        for (key,) in db.execute("SELECT id::text FROM doc WHERE tube_shard_of(id, 10, 8) = 11").fetchall()
    ]
    term = acquire(db, Claim("docs", 2, 1))
    touch = f"SELECT tube_sweep_touch('docs', 2, 1, %s, 11, %s::{key_type}[])"
    assert scalar(db, touch, (term.leader_id, some)) == (len(some) + 249) // 250
    assert sorted(keys(db)) == sorted(some)
