"""Predicates: which are refused, that nothing changes then, and what a change of one does."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest

from tests.helpers.capture import TABLE, TUBE, Conn, attach, make_tube, open_session, ops, scalar, set_up
from tests.helpers.database import preparing
from tests.helpers.roles import as_role, roles

SET_UP = """
CREATE TYPE public.mood AS ENUM ('sad', 'ok');
CREATE DOMAIN public.score AS integer CHECK (VALUE >= 0);
CREATE DOMAIN public.tone AS public.mood;
CREATE TYPE public.pair AS (a int, b int);
CREATE TYPE public.span AS RANGE (SUBTYPE = int4);
CREATE FUNCTION public.secret(n bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
    'BEGIN RAISE EXCEPTION ''was run''; END';
CREATE FUNCTION public.no_arguments() RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
    'BEGIN RAISE EXCEPTION ''was run''; END';
CREATE FUNCTION public.same(a bigint, b bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT a = b';
CREATE OPERATOR public.=== (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = public.same);
CREATE TABLE public.canary (id int);
ALTER TABLE public.item ADD mood public.mood, ADD score public.score, ADD day date, ADD at timestamptz,
    ADD "Odd ""n"" one" int, ADD tone public.tone, ADD moods public.mood[], ADD pair public.pair,
    ADD span public.span, ADD scores public.score[], ADD numbers int[], ADD "ümlaut" int;
"""

REFUSED = {
    "does not parse": "id >",
    "is no condition": "id",
    "missing column": "missing = 1",
    "missing table": "other.id = 1",
    "unknown function": "nope(id)",
    "current time": "at > now()",
    "volatile": "random() > 0.5",
    "session setting": "current_setting('x') = 'y'",
    "stable cast": "day::timestamptz < '2020-01-01'",
    "subquery": "id IN (SELECT id FROM canary)",
    "aggregate": "count(id) > 1",
    "window": "row_number() OVER () > 1",
    "user's function": "public.secret(id)",
    "user's function of constants": "public.no_arguments()",
    "user's function, hidden": "CASE WHEN true THEN public.secret(id) END",
    "user's operator": "id OPERATOR(public.===) 1",
    "function of ours": "tube.tube_shard_of(id, 0, 1) = 0",
    "user's type": "mood = 'ok'::public.mood",
    "user's type without its schema": "mood = 'ok'::mood",
    "user's type by CAST": "CAST('ok' AS public.mood) = mood",
    "user's function, quoted": '"public"."secret"(id)',
    "user's function, spaced": "public . secret(id)",
    "user's function behind a comment": "public --\n . secret(id)",
    "user's function behind a literal": "value <> '' AND public.secret(id)",
    "user's function behind an escaped backslash": ("value <> E'\\\\' AND public.secret(id) AND value <> ''"),
    "user's function behind a literal in two lines": (
        "value <> E'a'\n'\\'' AND public.secret(id) AND value <> ''"
    ),
    "user's function behind two lines and a comment": (
        "value <> E'a' --\n --\n '\\'' AND public.secret(id) AND value <> ''"
    ),
    "user's function of a schema that is no word": "\N{GRINNING FACE}.secret(id)",
    "user's function behind what is no E": "\N{GRINNING FACE}e'\\' AND public.secret(id) AND value <> '",
    "user's function behind a number": "id > 1. AND public.secret(id)",
    "column of the table by its name": "item.id = 1",
    "block comment": "id = 1 /* one */",
    "dollar quotes": "value = $$x$$",
    "composite type": "pair IS NOT NULL",
    "range type of a user": "span IS NOT NULL",
    "array of domains": "scores IS NOT NULL",
    "bad literal": "day = 'no day'",
    "second statement": "true); DROP TABLE public.canary; SELECT (true",
    "second statement, comment": "true); DROP TABLE public.canary; --",
    "second statement, within CAST": "true AS boolean); DROP TABLE public.canary; SELECT CAST(true",
    "closes parenthesis": "id = 1) OR (id = 2",
    "closes parenthesis of CAST": "true AS boolean), CAST(true",
    "union": "true) UNION SELECT (true",
    "open comment": "true /*",
    "open quote": "value = 'x",
    "semicolon": "true;",
    "parameter": "id = $1",
    "system column": "xmin::text = '1'",
}

ALLOWED = [
    "id > 0",
    "NOT deleted",
    "mood = 'ok'",
    "mood IN ('sad', 'ok')",
    "tone = 'ok'",
    "moods = '{ok,sad}' OR 'ok' = ANY (moods)",
    "numbers = '{1}'",
    '"ümlaut" = 1',
    "value = 'a.b' AND value <> '/* */ $$ public.secret(id)'",
    "id > 1.5 AND id < 1e3 AND id > .5",
    "value <> E'\\' AND public.secret(id) AND value <> '",
    "value IN ('a',\n'b',\nE'c')",
    "value = 'it''s' AND id = 1",
    "score > 3",
    "value LIKE 'a%' -- a comment",
    "value = E'a\\'b' OR value = 'back\\slash'",
    "value ~ '<filter>' AND value <> '%s %I $1'",
    "day > '2020-02-01' AND at > '2020-01-01 00:00:00+02'",
    "at - '2020-01-01 00:00:00+00'::timestamptz > interval '-1 day 02:00:00'",
    '"Odd ""n"" one" IS NULL',
    "lower(value) = 'x'",
    "((id = 1) OR (id = 2))",
    "true",
]


def prepared(dsn: str) -> None:
    with open_session(dsn) as conn:
        set_up(conn)
        conn.execute(SET_UP)


prepare = preparing(prepared)


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version, with a table and what predicates may not call."""
    with open_session(any_dsn, client_encoding="utf8") as conn:
        yield conn


def state(conn: Conn) -> list[tuple[object, ...]]:
    """All that a predicate could change."""
    return (
        conn.execute(
            "SELECT r.*, a.*, r.xmin, a.xmin FROM tube_registry AS r JOIN tube_attachment AS a USING (tube)"
        ).fetchall()
        + conn.execute("SELECT oid, xmin FROM pg_proc WHERE oid >= 16384 ORDER BY oid").fetchall()
        + conn.execute("SELECT oid, xmin FROM pg_class WHERE oid >= 16384 ORDER BY oid").fetchall()
    )


def test_refused(db: Conn) -> None:
    make_tube(db, predicate="id > 0")
    before = state(db)
    for why, predicate in REFUSED.items():
        with pytest.raises(psycopg.Error) as refused:
            make_tube(db, predicate=predicate)
        assert refused.value.sqlstate == "TU105", (why, refused.value)
        assert "was run" not in str(refused.value), why
        assert predicate in (refused.value.diag.message_detail or ""), why
        assert state(db) == before, why


def test_refused_for_a_new_tube(db: Conn) -> None:
    for predicate in ("id >", "true); DROP TABLE public.canary; SELECT (true", "id = 1) OR (id = 2"):
        with pytest.raises(psycopg.Error) as refused:
            make_tube(db, "new", predicate=predicate)
        assert refused.value.sqlstate == "TU105"
    assert scalar(db, "SELECT count(*) FROM tube_registry") == 1


def test_allowed(db: Conn) -> None:
    db.execute(f"INSERT INTO {TABLE} (id, value) VALUES (1, 'a')")
    for predicate in ALLOWED:
        make_tube(db, predicate=predicate)
        db.execute(f"UPDATE {TABLE} SET value = value")
        assert scalar(db, "SELECT predicate FROM tube_list()") == predicate


def test_a_session_that_takes_backslashes_for_escapes_attaches_like_any_other(any_dsn: str) -> None:
    with open_session(any_dsn) as db:
        db.execute("SET standard_conforming_strings = off")
        set_up(db, predicate="value <> ''")
        db.execute("SET standard_conforming_strings = on")
        assert scalar(db, "SELECT tube_sync()") == 0
        names = db.execute("SELECT proname FROM pg_proc WHERE pronamespace = 'tube_capture'::regnamespace")
        for (name,) in names.fetchall():
            assert re.search(r"_p?[0-9a-f]{8}(_[0-9a-f]{12}|_[0-9]+_[0-9]+(_[0-9])?)?$", name), name
        db.execute(f"INSERT INTO {TABLE} (id, value) VALUES (1, ''), (2, 'a')")
        assert ops(db) == [("I", 2)]


def test_the_meaning_does_not_depend_on_the_writers_settings(db: Conn) -> None:
    make_tube(
        db, predicate="value = 'a\\b' AND day = '2020-03-04' AND at - '2020-01-01Z' > interval '-1 day 2:00'"
    )
    ops(db)
    db.execute("SET standard_conforming_strings = off")
    db.execute("SET datestyle = 'German'")
    db.execute("SET intervalstyle = 'sql_standard'")
    db.execute("SET timezone = 'Asia/Tokyo'")
    db.execute("SET search_path = pg_temp")
    db.execute(
        "INSERT INTO public.item (id, value, day, at) VALUES"
        " (1, E'a\\\\b', '04.03.2020', '31.12.2019 03:00:00 UTC'),"
        " (2, E'a\\\\b', '03.04.2020', '01.01.2021 00:00:00 UTC')"
    )
    db.execute("SET search_path = tube, public")
    assert ops(db) == [("I", 1)]


def test_a_null_keeps_it_and_an_empty_string_removes_it(db: Conn) -> None:
    make_tube(db, predicate="id > 10")
    version = scalar(db, "SELECT version FROM tube_registry")
    make_tube(db)
    assert scalar(db, "SELECT predicate FROM tube_list()") == "id > 10"
    assert scalar(db, "SELECT version FROM tube_registry") == version
    db.execute(f"INSERT INTO {TABLE} VALUES (1)")
    assert ops(db) == []
    make_tube(db, predicate=" ")
    assert scalar(db, "SELECT predicate FROM tube_list()") is None
    assert scalar(db, "SELECT version FROM tube_registry") == version + 1
    db.execute(f"INSERT INTO {TABLE} VALUES (2)")
    assert ops(db) == [("I", 2)]


def test_it_is_tried_on_every_attached_table(db: Conn) -> None:
    db.execute("CREATE TABLE public.plain (id int PRIMARY KEY)")
    attach(db, "public.plain", 1)
    before = state(db)
    with pytest.raises(psycopg.Error) as refused:
        make_tube(db, predicate="NOT deleted")
    assert refused.value.sqlstate == "TU105"
    assert "for plain" in str(refused.value) or "for public.plain" in str(refused.value)
    assert state(db) == before


def test_a_table_that_it_does_not_fit_is_not_attached(db: Conn) -> None:
    make_tube(db, predicate="NOT deleted")
    db.execute("CREATE TABLE public.plain (id int PRIMARY KEY)")
    with pytest.raises(psycopg.Error) as refused:
        attach(db, "public.plain", 1)
    assert refused.value.sqlstate == "TU105"
    assert scalar(db, "SELECT count(*) FROM tube_list()") == 1


def test_a_table_that_was_dropped_is_not_asked(db: Conn) -> None:
    db.execute("CREATE TABLE public.plain (id int PRIMARY KEY)")
    attach(db, "public.plain", 1)
    db.execute("DROP TABLE public.plain")
    make_tube(db, predicate="NOT deleted")
    assert scalar(db, "SELECT count(*) FROM tube_attachment") == 1
    assert scalar(db, "SELECT count(*) FROM pg_proc WHERE proname LIKE '%plain%' AND oid >= 16384") == 0


def test_tables_without_a_predicate_before_the_first_is_attached(conn: Conn) -> None:
    make_tube(conn, TUBE, predicate="anything > 0 AND other")
    conn.execute("CREATE TABLE public.t (id int PRIMARY KEY)")
    with pytest.raises(psycopg.Error) as refused:
        attach(conn, "public.t")
    assert refused.value.sqlstate == "TU105"


def test_a_virtual_generated_column(conn: Conn) -> None:
    conn.execute("CREATE TABLE public.v (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) VIRTUAL)")
    make_tube(conn, predicate="twice > 2")
    with pytest.raises(psycopg.Error) as refused:
        attach(conn, "public.v")
    assert refused.value.sqlstate == "TU105"


def test_another_predicate_asks_for_the_owner_of_each_attached_table(any_dsn: str) -> None:
    with roles(any_dsn, "one", "two") as admin:
        admin.execute("GRANT tube_admin TO one, two; GRANT CREATE ON SCHEMA public TO one, two")
        with (
            psycopg.connect(as_role(any_dsn, "one"), autocommit=True) as one,
            psycopg.connect(as_role(any_dsn, "two"), autocommit=True) as two,
            open_session(any_dsn) as db,
        ):
            for owner, shard in ((one, 1), (two, 2)):
                owner.execute("SET search_path = tube, public")
                name = f"public.of_{owner.info.user}"
                owner.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)".encode())
                if owner is one:
                    make_tube(one)
                attach(owner, name, shard)
            before = state(db)
            with pytest.raises(psycopg.Error, match="belongs to two, who has to agree") as refused:
                make_tube(one, predicate="n > 1")
            assert refused.value.sqlstate == "42501"
            assert state(db) == before
            admin.execute("GRANT two TO one")
            make_tube(one, predicate="n > 1")
            two.execute("INSERT INTO public.of_two VALUES (1, 1), (2, 2)")
            assert ops(db) == [("I", 2)]
