"""Keys of several columns: what writers touch, what DDL makes of them, what is refused, and their shards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.helpers.capture import TUBE, Conn, asked, open_session, pods, refusal, scalar, state_of, unfollow
from tests.helpers.database import preparing
from tests.helpers.roles import as_role, database_name, roles

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "keys.json").read_text())
ATTACH = """
    SELECT tube_table_ensure_attached(%(tube)s, %(table)s, %(shard)s, %(shards)s, %(id_col)s, %(columns)s,
        %(replica)s, %(key_cols)s, %(shard_by)s)
"""


def attach(conn: Conn, table: str, key_cols: list[str] | None, **options: Any) -> None:
    defaults = dict.fromkeys(("id_col", "columns", "shard_by"))
    wanted = {"tube": TUBE, "shard": 0, "shards": 1, "replica": False, **defaults, **options}
    conn.execute(ATTACH, {**wanted, "table": table, "key_cols": key_cols})


def prepared(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute(
            "CREATE TABLE public.item (id bigint, value text, tenant integer, PRIMARY KEY (tenant, id))"
        )
        conn.execute("SELECT tube_ensure_exists(%s, 4, key_type => 'text'::regtype)", (TUBE,))
        attach(conn, "public.item", ["tenant", "id"])


prepare = preparing(prepared)


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version, with an empty `item` attached by its two columns."""
    with open_session(any_dsn) as conn:
        conn.execute("SET client_encoding = utf8")
        conn.add_notice_handler(lambda notice: said.append(f"{notice.severity}: {notice.message_primary}"))
        said.clear()
        yield conn


said: list[str] = []


def take(conn: Conn) -> list[tuple[str, str]]:
    """`(op, key)` of all touches, sorted; the tube is empty afterwards."""
    statement = sql.SQL("WITH gone AS (DELETE FROM tube.{} RETURNING op, ids) SELECT * FROM gone")
    rows = conn.execute(statement.format(sql.Identifier(TUBE))).fetchall()
    return sorted((op, key) for op, ids in rows for key in ids)


def shards(conn: Conn) -> dict[str, int]:
    """The shard of each key in the tube."""
    return {str(key): shard for _, shard, ids, _ in pods(conn, TUBE) for key in ids}


def rows(conn: Conn, statement: str) -> list[tuple[Any, ...]]:
    return conn.execute(statement.encode()).fetchall()


# --- writers --------------------------------------------------------------------------------------

MOVED = [("D", 1), ("D", 2), ("I", 10), ("I", 11)]
WRITES = [
    ("INSERT INTO item VALUES (9, '', 7)", [("I", "[7, 9]")]),
    ("INSERT INTO item VALUES (8, '', 7), (9, '', 7)", [("I", "[7, 8]"), ("I", "[7, 9]")]),
    ("UPDATE item SET value = 'n' WHERE (tenant, id) = (1, 1)", [("U", "[1, 1]")]),
    ("UPDATE item SET value = 'n' WHERE id = 1", [("U", "[1, 1]"), ("U", "[2, 1]")]),
    ("UPDATE item SET id = 5 WHERE (tenant, id) = (1, 1)", [("D", "[1, 1]"), ("I", "[1, 5]")]),
    ("UPDATE item SET tenant = 3 WHERE id = 1 AND tenant = 2", [("D", "[2, 1]"), ("I", "[3, 1]")]),
    ("UPDATE item SET id = id + 9 WHERE tenant = 1", [(op, f"[1, {id_}]") for op, id_ in MOVED]),
    ("DELETE FROM item WHERE (tenant, id) = (1, 2)", [("D", "[1, 2]")]),
    ("DELETE FROM item", [("D", "[1, 1]"), ("D", "[1, 2]"), ("D", "[2, 1]")]),
    ("TRUNCATE item", [("D", "[1, 1]"), ("D", "[1, 2]"), ("D", "[2, 1]")]),
    ("UPDATE item SET value = 'n' WHERE id = 77", []),
    (
        "INSERT INTO item VALUES (1, '', 1), (4, '', 1) ON CONFLICT (tenant, id) DO UPDATE SET value = 'n'",
        [("I", "[1, 4]"), ("U", "[1, 1]")],
    ),
    (
        "INSERT INTO item VALUES (1, '', 1) ON CONFLICT (tenant, id) DO UPDATE SET value = 'n'",
        [("U", "[1, 1]")],
    ),
    (
        (
            "MERGE INTO item USING (VALUES (1, 1), (1, 2), (5, 5)) AS v (t, i) ON tenant = t AND id = i"
            " WHEN MATCHED AND i = 2 THEN DELETE WHEN MATCHED THEN UPDATE SET value = 'n'"
            " WHEN NOT MATCHED THEN INSERT VALUES (i, '', t)"
        ),
        [("D", "[1, 2]"), ("I", "[5, 5]"), ("U", "[1, 1]")],
    ),
]


@pytest.mark.parametrize(("write", "touches"), WRITES, ids=[write for write, _ in WRITES])
@pytest.mark.parametrize("columns", [None, ["value"]])
def test_what_a_statement_touches(
    db: Conn, write: str, touches: list[tuple[str, str]], columns: list[str] | None
) -> None:
    db.execute("INSERT INTO item VALUES (1, 'a', 1), (2, 'b', 1), (1, 'c', 2)")
    attach(db, "public.item", ["tenant", "id"], columns=columns)
    take(db)
    db.execute(write.encode())
    assert take(db) == touches


def test_an_update_of_what_does_not_count(db: Conn) -> None:
    db.execute("ALTER TABLE item ADD other text")
    db.execute("INSERT INTO item VALUES (1, 'a', 1), (2, 'b', 1), (1, 'c', 2)")
    attach(db, "public.item", ["tenant", "id"], columns=["value"])
    take(db)
    db.execute("UPDATE item SET other = 'n', value = value")
    db.execute("UPDATE item SET other = 'o' WHERE (tenant, id) = (1, 1)")
    assert take(db) == []
    db.execute("UPDATE item SET value = 'n' WHERE id = 1")
    assert take(db) == [("U", "[1, 1]"), ("U", "[2, 1]")]
    db.execute("UPDATE item SET tenant = tenant + 10 WHERE tenant = 2")
    assert take(db) == [("D", "[2, 1]"), ("I", "[12, 1]")]


def test_many_rows_come_in_pods_each_once(db: Conn) -> None:
    db.execute("INSERT INTO item SELECT g, '', g % 3 FROM generate_series(1, 11000) AS g")
    assert all(len(ids) <= 250 for _, _, ids, _ in pods(db, TUBE))
    assert len(take(db)) == 11000
    db.execute("UPDATE item SET tenant = tenant + 1")
    found = take(db)
    assert len(found) == 22000
    assert [op for op, _ in found].count("D") == 11000


def test_rows_pass_the_predicate_as_of_any_key(db: Conn) -> None:
    db.execute("SELECT tube_ensure_exists(%s, 4, $$value <> 'off'$$)", (TUBE,))
    db.execute("INSERT INTO item VALUES (1, 'a', 1), (2, 'off', 1)")
    assert take(db) == [("I", "[1, 1]")]
    db.execute("UPDATE item SET value = CASE id WHEN 1 THEN 'off' ELSE 'on' END")
    assert take(db) == [("D", "[1, 1]"), ("I", "[1, 2]")]
    db.execute("UPDATE item SET id = 9 WHERE id = 2")
    assert take(db) == [("D", "[1, 2]"), ("I", "[1, 9]")]


def test_a_row_with_a_null_in_its_key_makes_no_touch(db: Conn) -> None:
    db.execute("CREATE TABLE public.loose (a int, b text, n int)")
    attach(db, "public.loose", ["a", "b"], shard=1)
    assert said == ["WARNING: the key (a, b) of public.loose may be NULL"]
    db.execute("INSERT INTO loose VALUES (1, NULL), (NULL, 'x'), (NULL, NULL)")
    db.execute("INSERT INTO loose VALUES (2, NULL)")
    assert take(db) == []
    db.execute("INSERT INTO loose VALUES (3, 'x'), (3, NULL)")
    assert take(db) == [("I", '[3, "x"]')]
    db.execute("INSERT INTO loose VALUES (7, 'x'), (8, 'x'), (9, NULL), (NULL, 'x')")
    assert take(db) == [("I", '[7, "x"]'), ("I", '[8, "x"]')]
    db.execute("DELETE FROM loose WHERE a > 6")
    assert take(db) == [("D", '[7, "x"]'), ("D", '[8, "x"]')]
    db.execute("UPDATE loose SET b = 'y' WHERE a = 2")
    assert take(db) == [("I", '[2, "y"]')]
    db.execute("UPDATE loose SET a = NULL")
    assert take(db) == [("D", '[2, "y"]'), ("D", '[3, "x"]')]
    db.execute("TRUNCATE loose")
    assert take(db) == []


def test_rows_of_one_key_are_touched_once(db: Conn) -> None:
    db.execute("CREATE TABLE public.loose (a int NOT NULL, b text NOT NULL, n int)")
    attach(db, "public.loose", ["a", "b"], shard=1)
    db.execute("INSERT INTO loose VALUES (1, 'x', 1), (1, 'x', 2)")
    assert take(db) == [("I", '[1, "x"]')]


def test_a_row_that_replication_writes(db: Conn) -> None:
    attach(db, "public.item", ["tenant", "id"], columns=["value"], replica=True)
    db.execute("SET session_replication_role = replica")
    db.execute("INSERT INTO item VALUES (1, 'a', 1), (2, 'b', 1)")
    assert take(db) == [("I", "[1, 1]"), ("I", "[1, 2]")]
    db.execute("UPDATE item SET value = value WHERE id = 1")
    assert take(db) == []
    db.execute("UPDATE item SET tenant = 2 WHERE id = 1")
    db.execute("DELETE FROM item WHERE id = 2")
    assert take(db) == [("D", "[1, 1]"), ("D", "[1, 2]"), ("I", "[2, 1]")]


def test_partitions(db: Conn) -> None:
    db.execute(
        "CREATE TABLE public.log (id bigint, day date, PRIMARY KEY (day, id)) PARTITION BY RANGE (day)"
    )
    db.execute("CREATE TABLE public.log_1 PARTITION OF log FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')")
    db.execute("CREATE TABLE public.log_2 (day date NOT NULL, id bigint NOT NULL, PRIMARY KEY (day, id))")
    db.execute("ALTER TABLE log ATTACH PARTITION log_2 FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')")
    attach(db, "public.log", ["id", "day"], shard=1)
    db.execute("SET datestyle = 'SQL, DMY'")
    db.execute("INSERT INTO log VALUES (1, date '2026-01-05'), (1, date '2026-02-05')")
    assert take(db) == [("I", '[1, "2026-01-05"]'), ("I", '[1, "2026-02-05"]')]
    db.execute("UPDATE log SET day = day + 30 WHERE day = date '2026-01-05'")
    assert take(db) == [("D", '[1, "2026-01-05"]'), ("I", '[1, "2026-02-04"]')]
    db.execute("DELETE FROM log_2 WHERE day = date '2026-02-05'")
    assert take(db) == [("D", '[1, "2026-02-05"]')]
    db.execute("TRUNCATE log")
    assert take(db) == [("D", '[1, "2026-02-04"]')]


# --- types ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", VECTORS["keys"], ids=lambda vector: str(vector["text"]))
def test_the_vectors(db: Conn, vector: dict[str, Any]) -> None:
    db.execute("""CREATE TYPE public.mood AS ENUM ('ok', 'b"ad')""")
    types = ["public.mood" if name == "enum" else name for name in vector["types"]]
    names = [f"c{place}" for place in range(len(types))]
    columns = ", ".join(f"{name} {of} NOT NULL" for name, of in zip(names, types, strict=True))
    db.execute(f"CREATE TABLE public.made ({columns}, PRIMARY KEY ({', '.join(names)}))".encode())
    place, shard, count = vector["place"], vector["shard"], vector["shards"]
    spread = None if place is None else names[place]
    attach(db, "public.made", names, shard=shard, shards=count, shard_by=spread)
    marks = ", ".join(["%s"] * len(names))
    db.execute(f"INSERT INTO made VALUES ({marks})".encode(), vector["values"])
    assert shards(db) == {vector["text"]: vector["expected"]}
    assert scalar(db, "SELECT tube_key_part(%s, %s)", (vector["text"], place)) == vector["part"]
    take(db)
    db.execute("SELECT tube_keys_put(%s, %s, 'T', %s)", (TUBE, shard, [vector["text"]]))
    db.execute("SELECT made_touch(%s)", ([vector["text"]],))
    db.execute("SELECT tube_document_touch(%s, 'U', %s::text[])", (TUBE, [vector["text"]]))
    assert [where for _, where, _, _ in pods(db, TUBE)][:2] == [vector["expected"]] * 2


def test_types_that_are_made_of_others(db: Conn) -> None:
    db.execute("CREATE DOMAIN public.code AS varchar(5) CHECK (VALUE <> '')")
    db.execute("CREATE DOMAIN public.kind AS public.code")
    db.execute("CREATE DOMAIN public.number AS smallint")
    db.execute(
        "CREATE TABLE public.made (a number, b kind, c varchar(5), d smallint, PRIMARY KEY (a, b, c, d))"
    )
    attach(db, "public.made", ["a", "b", "c", "d"], shard=1)
    db.execute("INSERT INTO made VALUES (1, 'é', 'x', 2)")
    db.execute("INSERT INTO made VALUES (1, 'f', 'x', 2), (1, 'g', 'x', 2)")
    assert take(db) == [("I", f'[1, "{kind}", "x", 2]') for kind in ("f", "g", "é")]


SEVERAL_TEXTS = [
    "numeric",
    "real",
    "double precision",
    "char(5)",
    '"char"',
    "name",
    "timestamp",
    "timestamptz",
    "time",
    "interval",
    "bytea",
    "json",
    "jsonb",
    "inet",
    "int[]",
    "public.moods",
    "public.pair",
    "public.citext_like",
]


def test_types_whose_equal_values_have_several_texts(db: Conn) -> None:
    db.execute("CREATE TYPE public.mood AS ENUM ('ok')")
    db.execute("CREATE DOMAIN public.moods AS public.mood")
    db.execute("CREATE TYPE public.pair AS (a int, b int)")
    db.execute("CREATE DOMAIN public.citext_like AS numeric")
    for of in SEVERAL_TEXTS:
        db.execute(f"CREATE TABLE public.made (a int, b {of})".encode())
        with refusal("TU104", of) as error:
            attach(db, "public.made", ["a", "b"], shard=1)
        assert "can't be a part of a key" in str(error.value), of
        db.execute("DROP TABLE public.made")


REFUSED: list[tuple[Any, dict[str, Any], str, str]] = [
    (["tenant"], {}, "TU104", "two to eight"),
    (["tenant", "tenant"], {}, "TU104", "each once"),
    ([], {}, "TU104", "two to eight"),
    (["tenant", "id"] * 5, {}, "TU104", "two to eight"),
    (["tenant", "none"], {}, "TU104", 'has no column "none"'),
    (["tenant", None], {}, "TU104", "two to eight"),
    (["tenant", "id"], {"id_col": "id"}, "TU104", "one of the two"),
    (["tenant", "id"], {"tube": "numbers"}, "TU104", "key_type => 'text'"),
    (["tenant", "id"], {"shard_by": "value"}, "TU106", "one of key_cols"),
    (None, {"shard_by": "id", "id_col": "value"}, "TU106", "one of key_cols"),
    (None, {}, "TU104", "key_cols => '{nr,tenant}'"),
]


def test_what_is_refused(db: Conn) -> None:
    db.execute("SELECT tube_ensure_exists('numbers')")
    db.execute("CREATE TABLE public.nameless (tenant int, nr int, PRIMARY KEY (nr, tenant))")
    for key_cols, options, state, said_so in REFUSED:
        table = "public.item" if key_cols or options else "public.nameless"
        with refusal(state, (key_cols, options)) as error:
            attach(db, table, key_cols, shard=1, **options)
        assert said_so in f"{error.value} {error.value.diag.message_hint}"


@pytest.mark.parametrize("name", ["text", "json"])
def test_a_cast_that_somebody_made_never_runs(db: Conn, name: str) -> None:
    db.execute("CREATE TYPE public.mood AS ENUM ('ok', 'bad')")
    db.execute(
        f"CREATE FUNCTION public.strike(mood) RETURNS {name} LANGUAGE plpgsql AS"
        " $$BEGIN RAISE 'struck'; END$$".encode()
    )
    db.execute(f"CREATE CAST (mood AS {name}) WITH FUNCTION public.strike(mood) AS ASSIGNMENT".encode())
    db.execute("CREATE TABLE public.made (a mood, b mood, PRIMARY KEY (a, b))")
    attach(db, "public.made", ["a", "b"], shard=1, replica=True)
    db.execute("INSERT INTO made VALUES ('ok', 'ok')")
    db.execute("INSERT INTO made VALUES ('ok', 'bad'), ('bad', 'bad')")
    db.execute("UPDATE made SET a = 'bad' WHERE b = 'ok'::mood")
    db.execute("TRUNCATE made")
    assert len(take(db)) == 8


# --- DDL --------------------------------------------------------------------------------------------


@pytest.fixture(params=["event triggers", "no event triggers"])
def followed(request: pytest.FixtureRequest, db: Conn) -> Conn:
    if request.param == "no event triggers":
        unfollow(db)
    db.execute("INSERT INTO item VALUES (1, 'a', 1)")
    take(db)
    return db


def test_renamed_columns(followed: Conn) -> None:
    followed.execute("ALTER TABLE item RENAME tenant TO owner")
    followed.execute("INSERT INTO item VALUES (2, 'b', 1)")
    assert asked(followed) or take(followed) == [("I", "[1, 2]")]
    followed.execute("SELECT tube_sync()")
    assert rows(followed, "SELECT id_col, key_cols FROM tube_list()") == [("owner", ["owner", "id"])]
    take(followed)
    followed.execute("ALTER TABLE item RENAME id TO nr")
    followed.execute("SELECT tube_sync()")
    assert rows(followed, "SELECT id_col, key_cols FROM tube_list()") == [("owner", ["owner", "nr"])]
    followed.execute("UPDATE item SET value = 'c'")
    assert take(followed)[-2:] == [("U", "[1, 1]"), ("U", "[1, 2]")]
    assert scalar(followed, "SELECT tube_sync()") == 0


@pytest.mark.parametrize(
    ("renames", "key_cols"),
    [
        (["tenant TO was", "id TO tenant"], ["was", "tenant"]),
        (["id TO was", "tenant TO id"], ["id", "was"]),
        (["id TO x", "tenant TO id", "x TO tenant"], ["tenant", "id"]),
    ],
)
def test_a_chain_of_renames(followed: Conn, renames: list[str], key_cols: list[str]) -> None:
    for rename in renames:
        followed.execute(f"ALTER TABLE item RENAME {rename}".encode())
    followed.execute("SELECT tube_sync()")
    assert rows(followed, "SELECT key_cols FROM tube_list()") == [(key_cols,)]
    take(followed)
    followed.execute("UPDATE item SET value = 'c'")
    assert take(followed) == [("U", "[1, 1]")]
    assert scalar(followed, "SELECT tube_sync()") == 0


def test_a_chain_of_renames_in_columns(db: Conn) -> None:
    db.execute("CREATE TABLE public.made (a int, b int, v int, w int, n int, PRIMARY KEY (a, b))")
    attach(db, "public.made", ["a", "b"], shard=1, columns=["v", "w"])
    db.execute("INSERT INTO made VALUES (1, 1)")
    db.execute("ALTER TABLE made RENAME v TO x")
    db.execute("ALTER TABLE made RENAME w TO v")
    db.execute("SELECT tube_sync()")
    assert scalar(db, "SELECT columns FROM tube_list('made')") == ["x", "v"]
    db.execute("ALTER TABLE made DROP x")
    db.execute("ALTER TABLE made RENAME v TO x")
    db.execute("SELECT tube_sync()")
    assert scalar(db, "SELECT columns FROM tube_list('made')") == ["x"]
    take(db)
    db.execute("UPDATE made SET n = 1")
    assert take(db) == []
    db.execute("UPDATE made SET x = 1")
    assert take(db) == [("U", "[1, 1]")]
    assert scalar(db, "SELECT tube_sync()") == 0


def test_a_part_that_is_gone_and_whose_name_another_has(followed: Conn) -> None:
    followed.execute("ALTER TABLE item DROP tenant CASCADE")
    followed.execute("ALTER TABLE item RENAME id TO tenant")
    followed.execute("UPDATE item SET value = 'c'")
    followed.execute("SELECT tube_sync()")
    assert rows(followed, "SELECT tbl FROM tube_list()") == [(None,)]
    assert any("its key (tenant, id) was dropped, or has another type" in text for text in said)


def test_columns_that_change_places(followed: Conn) -> None:
    followed.execute("ALTER TABLE item RENAME id TO was")
    followed.execute("ALTER TABLE item ADD id bigint NOT NULL DEFAULT 5")
    followed.execute("SELECT tube_sync()")
    assert rows(followed, "SELECT key_cols FROM tube_list()") == [(["tenant", "id"],)]
    assert "backfill_schedule" in asked(followed), "its rows have other keys"
    followed.execute("UPDATE item SET value = 'c'")
    assert take(followed)[-1] == ("U", "[1, 5]")


@pytest.mark.parametrize("ddl", ["DROP id CASCADE", "ALTER id TYPE numeric", "ALTER tenant TYPE float"])
def test_a_part_that_is_gone(followed: Conn, ddl: str) -> None:
    followed.execute(f"ALTER TABLE item {ddl}".encode())
    followed.execute("UPDATE item SET value = 'c'")
    followed.execute("SELECT tube_sync()")
    assert rows(followed, "SELECT tbl FROM tube_list()") == [(None,)]
    assert any("its key (tenant, id) was dropped, or has another type" in text for text in said)


def test_a_part_that_gets_another_type(followed: Conn) -> None:
    followed.execute("ALTER TABLE item ALTER tenant TYPE bigint, ALTER id TYPE text")
    followed.execute("UPDATE item SET value = 'c'")
    followed.execute("SELECT tube_sync()")
    take(followed)
    followed.execute("UPDATE item SET value = 'd'")
    assert take(followed) == [("U", '[1, "1"]')]


def test_an_enum_that_becomes_something_else(db: Conn) -> None:
    db.execute("CREATE TYPE public.mood AS ENUM ('ok', 'bad')")
    db.execute("CREATE TABLE public.made (a int, m mood, n int, PRIMARY KEY (a, m))")
    attach(db, "public.made", ["a", "m"], shard=1)
    db.execute("ALTER TYPE mood RENAME VALUE 'bad' TO 'worse'")
    db.execute("ALTER TYPE mood RENAME TO state")
    db.execute("INSERT INTO made VALUES (1, 'worse')")
    db.execute("SELECT tube_sync()")
    db.execute("UPDATE made SET n = 1")
    assert take(db)[-1] == ("U", '[1, "worse"]')
    db.execute("ALTER TABLE made ALTER m TYPE text")
    db.execute("INSERT INTO made VALUES (2, 'ok')")
    db.execute("SELECT tube_sync()")
    take(db)
    db.execute("UPDATE made SET n = 2 WHERE a = 2")
    assert take(db) == [("U", '[2, "ok"]')]
    db.execute("ALTER TABLE made ALTER m TYPE numeric USING 1")
    db.execute("UPDATE made SET n = 3")
    db.execute("SELECT tube_sync()")
    assert "public.made" not in [table for (table,) in rows(db, "SELECT tbl::text FROM tube_list()")]


@pytest.fixture
def labeled(followed: Conn) -> Conn:
    """An empty `item` beside `made`, which has an enum in its key, and a row."""
    followed.execute("CREATE TYPE public.mood AS ENUM ('bad', 'ok')")
    followed.execute("CREATE TABLE public.made (a int, m mood, n int, PRIMARY KEY (a, m))")
    attach(followed, "public.made", ["a", "m"], shard=1)
    followed.execute("INSERT INTO made VALUES (1, 'ok')")
    take(followed)
    return followed


RETYPED = "ALTER TABLE made ALTER a TYPE text"
RELABELED = "ALTER TYPE mood RENAME VALUE 'ok' TO 'good'"
SWAPPED = [
    "ALTER TYPE mood RENAME VALUE 'ok' TO 'x'",
    "ALTER TYPE mood RENAME VALUE 'bad' TO 'ok'",
    "ALTER TYPE mood RENAME VALUE 'x' TO 'bad'",
]
OTHER_NAME = ["ALTER TABLE made RENAME a TO b", "ALTER TABLE made DROP m"]


@pytest.mark.parametrize(
    ("ddl", "key", "columns"),
    [
        ([RETYPED], '["1", "ok"]', "a, m"),
        (["ALTER TABLE made ALTER m TYPE text"], '[1, "ok"]', "a, m"),
        (
            [
                "CREATE TYPE public.state AS ENUM ('ok', 'bad')",
                "ALTER TABLE made ALTER m TYPE public.state USING m::text::public.state",
            ],
            '[1, "ok"]',
            "a, m",
        ),
        ([RELABELED], '[1, "good"]', "a, m"),
        ([RELABELED, "ALTER TYPE mood ADD VALUE 'so so' BEFORE 'bad'"], '[1, "good"]', "a, m"),
        ([RELABELED, "ALTER TYPE mood ADD VALUE 'ok'"], '[1, "good"]', "a, m"),
        (SWAPPED, '[1, "bad"]', "a, m"),
        ([RELABELED, "ALTER TABLE made RENAME m TO l"], '[1, "good"]', "a, l"),
        ([*OTHER_NAME, "ALTER TABLE made ADD m int NOT NULL DEFAULT 5"], "[1, 5]", "b, m"),
        ([*OTHER_NAME, "ALTER TABLE made ADD m mood NOT NULL DEFAULT 'bad'"], '[1, "bad"]', "b, m"),
    ],
)
@pytest.mark.parametrize("by", ["tube_sync()", "attach"])
def test_a_key_whose_texts_are_others_asks_for_a_backfill(
    labeled: Conn, ddl: list[str], key: str, columns: str, by: str
) -> None:
    version = scalar(labeled, "SELECT version FROM tube_registry")
    for statement in ddl:
        labeled.execute(statement.encode())
    said.clear()
    if by == "attach":
        attach(labeled, "public.made", columns.split(", "), shard=1)
    labeled.execute("SELECT tube_sync()")
    assert "backfill_schedule" in asked(labeled)
    assert any(f"its key ({columns}) has another column, type or label now" in text for text in said)
    assert scalar(labeled, "SELECT version FROM tube_registry") > version
    take(labeled)
    labeled.execute("SELECT tube_sync()")
    assert asked(labeled) == []
    labeled.execute("UPDATE made SET n = 1")
    assert take(labeled) == [("U", key)]


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TYPE mood ADD VALUE 'so so' BEFORE 'ok'",
        "ALTER TYPE mood RENAME TO state",
        "ALTER TABLE made ALTER a TYPE bigint",
        "ALTER TABLE made ALTER n TYPE text",
    ],
)
def test_a_key_whose_texts_stay_the_same_asks_for_nothing(labeled: Conn, ddl: str) -> None:
    labeled.execute(ddl.encode())
    labeled.execute("SELECT tube_sync()")
    assert asked(labeled) == []
    labeled.execute("UPDATE made SET n = NULL")
    assert take(labeled) == [("U", '[1, "ok"]')]
    assert scalar(labeled, "SELECT tube_sync()") == 0


def test_another_way_of_attaching(db: Conn) -> None:
    db.execute("INSERT INTO item VALUES (1, 'a', 1)")
    take(db)
    attach(db, "public.item", ["id", "tenant"])
    before, now = "by (tenant, id) with shards 0 to 0", "by (id, tenant) with shards 0 to 0"
    assert said == [f"WARNING: public.item, attached to tube 'es-live' {before}, is now attached {now}"]
    db.execute("UPDATE item SET id = 2")
    assert take(db) == [("D", "[1, 1]"), ("I", "[2, 1]")]
    attach(db, "public.item", ["id", "tenant"])
    assert len(said) == 1
    attach(db, "public.item", ["id", "tenant"], shards=4, shard_by="tenant")
    attach(db, "public.item", None, id_col="value", shards=4)
    assert [text.split(":")[0] for text in said] == ["WARNING"] * 3
    db.execute("UPDATE item SET value = 'b'")
    assert take(db) == [("D", "a"), ("I", "b")]


@pytest.mark.parametrize("key_cols", [["tenant", "id"], ["nr", "tenant"]])
def test_a_renamed_part_is_the_same(db: Conn, key_cols: list[str]) -> None:
    if "nr" in key_cols:
        db.execute("ALTER TABLE item RENAME id TO nr")
        said.clear()
        attach(db, "public.item", ["tenant", "nr"])
        assert [text for text in said if "is now attached" in text and text.startswith("WARNING")] == []
    attach(db, "public.item", key_cols)
    assert any(text.startswith("WARNING: public.item, attached") for text in said) is ("nr" in key_cols)


def test_another_key_of_a_related_table_is_a_notice(db: Conn) -> None:
    db.execute("CREATE TABLE public.part (id int PRIMARY KEY, item bigint, tenant bigint)")
    attach(db, "public.part", ["tenant", "item"])
    said.clear()
    attach(db, "public.part", ["item", "tenant"])
    assert [text.split(":")[0] for text in said] == ["NOTICE"]


# --- rights -----------------------------------------------------------------------------------------


def test_whose_rights_capture_has(db: Conn, any_dsn: str) -> None:
    name = database_name(any_dsn)
    keeper, writer = f"keeper_{name}", f"writer_{name}"
    with roles(any_dsn, f"{keeper} IN ROLE tube_admin", writer) as admin:
        admin.execute(f"GRANT CREATE, USAGE ON SCHEMA public TO {keeper}".encode())
        with open_session(as_role(any_dsn, keeper)) as conn:
            conn.execute("CREATE TYPE public.mood AS ENUM ('ok', 'bad')")
            conn.execute("CREATE TABLE public.made (a int, b text, m mood, PRIMARY KEY (a, b, m))")
            attach(conn, "public.made", ["a", "b", "m"], shard=1, shards=4, shard_by="b")
            conn.execute(f"GRANT INSERT, SELECT, UPDATE, DELETE ON made TO {writer}".encode())
        with open_session(as_role(any_dsn, writer)) as conn:
            conn.execute("INSERT INTO public.made VALUES (1, 'x', 'ok')")
            conn.execute("INSERT INTO public.made VALUES (2, 'x', 'ok'), (3, 'y', 'bad')")
            conn.execute("UPDATE public.made SET b = 'z' WHERE a = 3")
            conn.execute("DELETE FROM public.made")
        assert len(take(db)) == 8


# --- shards and touches by hand -----------------------------------------------------------------------


def test_a_tenant_has_one_shard(db: Conn) -> None:
    attach(db, "public.item", ["tenant", "id"], shards=64, shard_by="tenant")
    db.execute("INSERT INTO item SELECT g, '', g % 5 FROM generate_series(1, 500) AS g")
    db.execute("INSERT INTO item VALUES (1000, '', 3)")
    by_tenant: dict[int, set[int]] = {}
    for key, shard in shards(db).items():
        by_tenant.setdefault(json.loads(key)[0], set()).add(shard)
    assert [len(found) for found in by_tenant.values()] == [1] * 5
    assert len(set.union(*by_tenant.values())) > 1
    take(db)
    db.execute("UPDATE item SET tenant = 4 WHERE tenant = 3 AND id = 1000")
    assert shards(db) == {"[3, 1000]": by_tenant[3].copy().pop(), "[4, 1000]": by_tenant[4].copy().pop()}


def test_ids_by_hand_that_are_no_keys(db: Conn) -> None:
    attach(db, "public.item", ["tenant", "id"], shards=8, shard_by="id")
    odd = [
        "",
        "7",
        "[7",
        "[7, 12]",
        "[1",
        '["',
        '["\\',
        "[]",
        "[1,2]",
        "{}",
        "null",
        '[1, "',
        "x\ny",
        "[" * 5000,
    ]
    db.execute("SELECT item_touch(%s)", (odd,))
    assert set(shards(db)) == set(odd)
    found = shards(db)
    take(db)
    db.execute("SELECT tube_keys_put(%s, 0, 'T', %s)", (TUBE, odd))
    assert shards(db) == found
    take(db)
    db.execute("SELECT tube_document_touch(%s, 'U', %s::text[])", (TUBE, odd))
    assert shards(db) == found
    wrong = (found["[7, 12]"] + 1) % 8
    with pytest.raises(psycopg.Error) as refused:
        db.execute('SELECT "es-live_touch"(%s, %s, %s)', (wrong, ["[7, 12]"], "T"))
    assert state_of(refused.value) == "TU106"
    assert "tube_shard_of(tube_key_part(id, 1), 0, 8)" in str(refused.value.diag.message_hint)


def test_related_tables(db: Conn) -> None:
    db.execute("CREATE TABLE public.part (id int PRIMARY KEY, item bigint, tenant smallint)")
    attach(db, "public.item", ["tenant", "id"], shards=8, shard_by="tenant")
    for key_cols, shard_by, state in [
        (["tenant", "item"], None, "TU106"),
        (["tenant", "item"], "item", "TU106"),
        (["tenant", "item", "id"], "tenant", "TU104"),
    ]:
        with pytest.raises(psycopg.Error) as refused:
            attach(db, "public.part", key_cols, shards=8, shard_by=shard_by)
        assert state_of(refused.value) == state
    said.clear()
    attach(db, "public.part", ["tenant", "item"], shards=8, shard_by="tenant")
    assert said == []
    db.execute("INSERT INTO item VALUES (5, '', 3)")
    (where,) = shards(db).values()
    take(db)
    db.execute("INSERT INTO part VALUES (1, 5, 3), (2, 5, 3), (3, NULL, 3)")
    assert shards(db) == {"[3, 5]": where}
    assert take(db) == [("U", "[3, 5]")]
    with pytest.raises(psycopg.Error) as refused:
        attach(db, "public.item", ["tenant", "id"], shards=8, shard_by="id")
    assert state_of(refused.value) == "TU106"


@pytest.mark.parametrize(
    ("key_cols", "id_col", "said_so"),
    [
        (
            ["item", "tenant"],
            None,
            "(text, bigint): public.item, which has its shards, has the key (tenant, id) (bigint, bigint)",
        ),
        (["tenant", "day"], None, "(tenant, day) (bigint, date)"),
        (None, "item", "by item (text)"),
    ],
)
def test_related_tables_that_never_touch_the_root(
    db: Conn, key_cols: list[str] | None, id_col: str | None, said_so: str
) -> None:
    db.execute("CREATE TABLE public.part (id int PRIMARY KEY, item text, tenant bigint, day date)")
    with pytest.raises(psycopg.Error) as refused:
        attach(db, "public.part", key_cols, id_col=id_col)
    assert state_of(refused.value) == "TU104"
    assert said_so in str(refused.value)


def test_a_label_and_the_same_text_are_one_key(db: Conn) -> None:
    db.execute("CREATE TYPE public.mood AS ENUM ('ok')")
    db.execute("CREATE TABLE public.made (a int, m mood, PRIMARY KEY (a, m))")
    db.execute("CREATE TABLE public.part (a bigint, m varchar)")
    attach(db, "public.made", ["a", "m"], shard=1)
    attach(db, "public.part", ["a", "m"], shard=1)
    db.execute("INSERT INTO part VALUES (1, 'ok')")
    assert take(db) == [("U", '[1, "ok"]')]


def test_a_text_that_holds_the_key_of_a_root_by_one_column(db: Conn) -> None:
    db.execute("CREATE TABLE public.made (id text PRIMARY KEY)")
    attach(db, "public.made", None, shard=1)
    with pytest.raises(psycopg.Error) as refused:
        attach(db, "public.item", ["tenant", "id"], shard=1)
    assert state_of(refused.value) == "TU104"


@pytest.mark.parametrize("place", [-1, 8, 300, 2**31 - 1])
def test_a_part_that_no_key_has(db: Conn, place: int) -> None:
    assert scalar(db, "SELECT tube_key_part('[1, 2]', %s)", (place,)) == "[1, 2]"
    assert scalar(db, f"SELECT tube_key_part('[1, 2]', {place})") == "[1, 2]"


# --- backfills ----------------------------------------------------------------------------------------


def test_a_backfill_in_steps(db: Conn) -> None:
    attach(db, "public.item", ["tenant", "id"], shards=4, shard_by="tenant")
    db.execute("INSERT INTO item SELECT g, '', g % 3 FROM generate_series(1, 300) AS g")
    found = shards(db)
    take(db)
    start = scalar(db, "SELECT tube_backfill_step1()")
    db.execute("SELECT tube_backfill_step2()")
    db.execute("SELECT tube_backfill_step3(%s, %s, 'public.item', 'id')", (start, TUBE))
    assert shards(db) == found
    take(db)
    start = scalar(db, "SELECT tube_backfill_step1()")
    db.execute("SELECT tube_backfill_step2()")
    one = found["[2, 2]"]
    db.execute("SELECT tube_backfill_step3(%s, %s, 'public.item', 'tenant', %s)", (start, TUBE, one))
    assert shards(db) == {key: shard for key, shard in found.items() if shard == one}


def test_a_backfill_in_chunks(db: Conn) -> None:
    attach(db, "public.item", ["tenant", "id"], shards=4)
    db.execute("INSERT INTO item SELECT g, '', g % 3 FROM generate_series(1, 700) AS g")
    found = shards(db)
    take(db)
    number = scalar(db, "SELECT tube_backfill_create(%s, 'public.item')", (TUBE,))
    db.execute("SELECT tube_backfill_lock(%s)", (number,))
    assert scalar(db, "SELECT tube_backfill_collect(%s)", (number,)) == 700
    db.execute("ALTER TABLE item RENAME id TO nr")
    assert scalar(db, "SELECT (tube_backfill_chunk(%s, 100)).state", (number,)) == "delivering"
    assert shards(db) == found


def test_a_backfill_ends_where_the_key_becomes_another(db: Conn) -> None:
    db.execute("INSERT INTO item VALUES (1, 'a', 1)")
    number = scalar(db, "SELECT tube_backfill_create(%s, 'public.item')", (TUBE,))
    db.execute("SELECT tube_backfill_lock(%s)", (number,))
    assert scalar(db, "SELECT tube_backfill_collect(%s)", (number,)) == 1
    attach(db, "public.item", ["id", "tenant"])
    assert scalar(db, "SELECT (tube_backfill_chunk(%s, 100)).state", (number,)) == "failed"
