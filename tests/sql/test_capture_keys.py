"""Keys that are uuids and texts: captured, touched, spread, marked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.conftest import Servers
from tests.helpers.capture import Conn, open_session, pods, scalar
from tests.helpers.database import Prepare
from tests.helpers.terms import Claim, acquire

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "shards_of_keys.json").read_text())
ONE, TWO, THREE = (f"00000000-0000-4000-8000-00000000000{n}" for n in (1, 2, 3))
KEYS = {"uuid": (ONE, TWO, THREE), "text": ("a", "B", "ü'\\,{}")}


@pytest.fixture(params=["uuid", "text"])
def key_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _attached(dsn: str, key_type: str) -> None:
    with open_session(dsn) as conn:
        conn.execute(f"CREATE TABLE public.doc (id {key_type} PRIMARY KEY, n int, off boolean)")
        conn.execute(
            "SELECT tube_ensure_exists('docs', 2, 'off IS NOT TRUE', key_type => %s::regtype)", (key_type,)
        )
        conn.execute("SELECT tube_table_ensure_attached('docs', 'doc', 10, 8)")


def _uuids(dsn: str) -> None:
    _attached(dsn, "uuid")


def _texts(dsn: str) -> None:
    _attached(dsn, "text")


@pytest.fixture
def prepare(request: pytest.FixtureRequest) -> Prepare | None:
    if "db" not in request.fixturenames:
        return None
    return {"uuid": _uuids, "text": _texts}[request.getfixturevalue("key_type")]


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version, with a table of such keys attached, spread over 8 shards."""
    with open_session(any_dsn, client_encoding="utf8") as conn:
        yield conn


def take(conn: Conn) -> list[tuple[str, str]]:
    """`(op, id)` of all touches, sorted; all are in their shards. The tube is empty afterwards."""
    rows = conn.execute(
        "WITH gone AS (DELETE FROM docs RETURNING op, shard, ids) SELECT op, shard, k.id::text,"
        " tube_shard_of(k.id, 10, 8) FROM gone, unnest(ids) AS k (id)"
    ).fetchall()
    assert all(shard == expected for _, shard, _, expected in rows)
    return sorted((op, key) for op, _, key, _ in rows)


def test_shards_are_those_of_the_vectors(conn: Conn) -> None:
    for vector in VECTORS:
        statement = f"SELECT tube_shard_of(%(id)s::{vector['type']}, %(shard)s::int, %(shards)s::int)"
        assert scalar(conn, statement, vector) == vector["expected"], vector


def test_statements_of_one_row_and_of_many(db: Conn, key_type: str) -> None:
    one, two, three = KEYS[key_type]
    db.execute("INSERT INTO doc VALUES (%s)", (one,))
    assert take(db) == [("I", one)]
    db.execute("INSERT INTO doc VALUES (%s, 0, false), (%s, 0, true)", (two, three))
    assert take(db) == [("I", two)]
    db.execute("UPDATE doc SET n = 1")
    assert take(db) == sorted([("U", one), ("U", two)])
    db.execute("UPDATE doc SET off = NOT coalesce(off, false)")
    assert take(db) == sorted([("D", one), ("D", two), ("I", three)])
    db.execute("DELETE FROM doc WHERE id = %s", (three,))
    assert take(db) == [("D", three)]
    db.execute("UPDATE doc SET off = false")
    take(db)
    db.execute("UPDATE doc SET id = %s WHERE id = %s", (three, one))
    assert take(db) == sorted([("D", one), ("I", three)])
    db.execute("TRUNCATE doc")
    assert take(db) == sorted([("D", two), ("D", three)])


def test_many_ids_are_chunked(db: Conn, key_type: str) -> None:
    value = "gen_random_uuid()" if key_type == "uuid" else "'k' || g"
    db.execute(f"INSERT INTO doc SELECT {value} FROM generate_series(1, 3000) AS g")
    assert max(len(ids) for _, _, ids, _ in pods(db, "docs")) == 250
    assert len(take(db)) == 3000


def test_touch_functions(db: Conn, key_type: str) -> None:
    one, two, three = KEYS[key_type]
    db.execute(f"SELECT doc_touch(%s::{key_type}[])", ([one, two, one],))
    assert take(db) == sorted([("T", one), ("T", two)])
    shard = scalar(db, f"SELECT tube_shard_of(%s::{key_type}, 10, 8)", (three,))
    db.execute(f"SELECT docs_touch(%s, %s::{key_type}[], 'U')", (shard, [three]))
    assert take(db) == [("U", three)]
    with pytest.raises(psycopg.Error, match="is not in the shard") as refused:
        db.execute(f"SELECT docs_touch(%s, %s::{key_type}[], 'U')", ((shard - 9) % 8 + 10, [three]))
    assert refused.value.sqlstate == "TU106"


def test_mark_gives_keys_as_text(db: Conn, key_type: str) -> None:
    one = KEYS[key_type][0]
    db.execute("INSERT INTO doc VALUES (%s)", (one,))
    shard = scalar(db, f"SELECT tube_shard_of(%s::{key_type}, 10, 8)", (one,))
    claim = Claim("docs", 2, shard % 2)
    acquire(db, claim)
    found = db.execute(
        "SELECT op, shard, ids, keys FROM tube_pods_mark('docs', 2, %s, %s)", (shard % 2, claim.leader_id)
    ).fetchall()
    assert found == [("I", shard, None, [one])]


def test_replication_and_columns(db: Conn, key_type: str) -> None:
    one, two, _ = KEYS[key_type]
    db.execute("SELECT tube_table_ensure_attached('docs', 'doc', 10, 8, columns => '{n}', replica => true)")
    db.execute("SET session_replication_role = replica")
    db.execute("INSERT INTO doc VALUES (%s, 1)", (one,))
    db.execute("RESET session_replication_role")
    db.execute("INSERT INTO doc VALUES (%s, 1)", (two,))
    assert take(db) == sorted([("I", one), ("I", two)])
    db.execute("UPDATE doc SET n = n")
    assert take(db) == []
    db.execute("UPDATE doc SET n = 2 WHERE id = %s", (one,))
    assert take(db) == [("U", one)]


def test_texts_that_a_collation_holds_for_equal(servers: Servers) -> None:
    # Of our servers only the system's knows ICU.
    with servers.get("system").database(installed=True) as dsn, open_session(dsn) as conn:
        conn.execute(
            "CREATE COLLATION public.ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
        conn.execute("CREATE TABLE public.doc (id varchar(9) COLLATE public.ci, off boolean)")
        conn.execute("SELECT tube_ensure_exists('docs', 2, key_type => 'text')")
        conn.execute("SELECT tube_table_ensure_attached('docs', 'doc', 10, 8, 'id')")
        conn.execute("INSERT INTO doc VALUES ('a'), ('A')")
        assert take(conn) == [("I", "A"), ("I", "a")]
        conn.execute("SELECT doc_touch('{a,A}'::text[])")
        assert take(conn) == [("T", "A"), ("T", "a")]
        conn.execute("UPDATE doc SET id = upper(id)")
        assert take(conn) == [("D", "a"), ("U", "A")]


def test_columns_that_do_not_fit(db: Conn, key_type: str) -> None:
    db.execute("CREATE TABLE public.num (id int PRIMARY KEY)")
    with pytest.raises(psycopg.Error, match=f"and the tube's keys are {key_type}") as refused:
        db.execute("SELECT tube_table_ensure_attached('docs', 'num', 99)")
    assert refused.value.sqlstate == "TU104"


def test_the_type_of_a_tube_stays(db: Conn, key_type: str) -> None:
    db.execute("SELECT tube_ensure_exists('docs', 2)")
    db.execute("SELECT tube_ensure_exists('docs', 2, key_type => %s::regtype)", (key_type,))
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="not bigint"):
        db.execute("SELECT tube_ensure_exists('docs', 2, key_type => 'bigint')")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="can't have the type numeric"):
        db.execute("SELECT tube_ensure_exists('more', 2, key_type => 'numeric')")
    assert scalar(db, "SELECT DISTINCT key_type::text FROM tube_list()") == key_type
    db.execute("SELECT tube_ensure_absent('docs')")
    assert scalar(db, "SELECT count(*) FROM pg_proc WHERE proname IN ('docs_touch', 'doc_touch')") == 0


def test_one_table_in_tubes_of_two_types(db: Conn, key_type: str) -> None:
    db.execute("ALTER TABLE doc ADD number bigint")
    db.execute("SELECT tube_ensure_exists('numbers')")
    db.execute("SELECT tube_table_ensure_attached('numbers', 'doc', 0, id_col => 'number')")
    one = KEYS[key_type][0]
    db.execute("INSERT INTO doc VALUES (%s, 1, false, 77)", (one,))
    assert take(db) == [("I", one)]
    assert pods(db, "numbers") == [("I", 0, [77], None)]
    db.execute("SELECT doc_touch('{78}'::bigint[])")
    db.execute(f"SELECT doc_touch(%s::{key_type}[])", ([one],))
    assert take(db) == [("T", one)]
    assert [ids for _, _, ids, _ in pods(db, "numbers")] == [[77], [78]]


def test_parked_and_unparked(db: Conn, key_type: str) -> None:
    key = KEYS[key_type][2]
    claim = Claim("docs", 2, 0)
    acquire(db, claim)
    item = {"shard": 10, "id": key, "op": "U", "seq": 1, "payload": None, "error": "x", "attempts": 1}
    db.execute("SELECT tube_pods_park('docs', 2, 0, %s, %s)", (claim.leader_id, json.dumps([item])))
    assert scalar(db, "SELECT id FROM tube_park_list()") == key
    db.execute("SELECT tube_pods_unpark('docs', 2, 0, %s, '{10}', %s)", (claim.leader_id, [key]))
    assert scalar(db, "SELECT count(*) FROM tube_park_list()") == 0
