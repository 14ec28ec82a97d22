"""A cast of an owner's own is planned, and run, with the rights of that owner, whoever writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import psycopg
import pytest

from tests.helpers.capture import (
    TABLE,
    TUBE,
    Conn,
    attach,
    make_tube,
    open_session,
    ops,
    scalar,
    take,
    triggers,
)
from tests.helpers.roles import as_role, roles


class Kind(NamedTuple):
    """A type of the owner's."""

    name: str
    made: str


KINDS = {
    "composite": Kind("public.mine", "CREATE TYPE public.mine AS (a int, b int)"),
    "enum": Kind("public.mine", "CREATE TYPE public.mine AS ENUM ('x')"),
    "enums": Kind("public.mine[]", "CREATE TYPE public.mine AS ENUM ('x')"),
    "domains": Kind("public.mine[]", "CREATE DOMAIN public.mine AS text"),
}
CASTS = """
    CREATE FUNCTION public.strike(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
        'BEGIN IF current_user <> ''app'' THEN RAISE EXCEPTION ''was run as %'', current_user; END IF;
        RETURN 7; END';
    CREATE FUNCTION public.to_number({0}) RETURNS bigint LANGUAGE sql IMMUTABLE AS
        'SELECT public.strike(1)::bigint';
    CREATE CAST ({0} AS bigint) WITH FUNCTION public.to_number({0}) AS IMPLICIT;
    CREATE FUNCTION public.to_words({0}) RETURNS text LANGUAGE sql IMMUTABLE AS
        'SELECT public.strike(1)::text';
    CREATE CAST ({0} AS text) WITH FUNCTION public.to_words({0}) AS IMPLICIT;
"""
"""A function that is written in SQL becomes part of the plan, for which its constant parts are computed."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """The type that a column gets."""
    return KINDS[request.param]


@pytest.fixture(params=[False, True], ids=["statements", "rows"])
def app(request: pytest.FixtureRequest, any_dsn: str, kind: Kind) -> Iterator[Conn]:
    """The owner of the attached table, with casts that strike; `rows`: triggers for replication fire, too."""
    with open_session(any_dsn) as db:
        db.execute(f"CREATE TABLE {TABLE} (id bigint, value text)".encode())
        db.execute("CREATE TABLE public.other (n int)")
        make_tube(db, predicate="value = 'x' OR value IS NULL")
        db.execute(
            "SELECT tube_table_ensure_attached(%s, %s, 0, 1, replica => %s)", (TUBE, TABLE, request.param)
        )
        db.execute(kind.made)
        db.execute(CASTS.format(kind.name).encode())
        with roles(any_dsn, "app") as admin:
            for table in (TABLE, "public.other"):
                admin.execute(f"ALTER TABLE {table} OWNER TO app".encode())
            admin.execute("GRANT CREATE ON SCHEMA public TO app")
            admin.execute("SET search_path = tube; SELECT tube_sync()")
            with psycopg.connect(as_role(any_dsn, "app"), autocommit=True) as app:
                for name in triggers(db, TABLE):
                    app.execute(f'ALTER TABLE {TABLE} ENABLE ALWAYS TRIGGER "{name}"'.encode())
                yield app


@pytest.fixture
def writers(any_dsn: str, app: Conn) -> Iterator[list[Conn]]:
    """Who writes, one after the other: the owner, and a superuser, in sessions of their own."""
    assert app.info.user == "app"
    with ExitStack() as stack:
        yield [
            stack.enter_context(psycopg.connect(as_role(any_dsn, name), autocommit=True))
            for name in ("app", "postgres")
        ]


def take_snapshots(writers: list[Conn]) -> None:
    """Each of them has a snapshot from now on."""
    for writer in writers:
        writer.autocommit = False
        writer.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        writer.execute("INSERT INTO public.other VALUES (1)")


def retype(app: Conn, kind: Kind, column: str) -> None:
    """Give the column the type that has casts."""
    app.execute(f"ALTER TABLE {TABLE} ALTER COLUMN {column} TYPE {kind.name} USING NULL".encode())


WRITES = [
    f"UPDATE {TABLE} SET {{0}} = {{0}} WHERE false",
    f"INSERT INTO {TABLE} DEFAULT VALUES",
    f"INSERT INTO {TABLE} SELECT FROM generate_series(1, 3)",
    f"UPDATE {TABLE} SET {{0}} = {{0}}",
    f"DELETE FROM {TABLE}",
    f"TRUNCATE {TABLE}",
]


def states(conn: Conn, column: str) -> set[str | None]:
    """What becomes of each write, after another one in its transaction: an SQLSTATE; None: it was done."""
    found: set[str | None] = set()
    for statement in WRITES:
        refused: psycopg.Error | None = None
        try:
            with conn.transaction():
                conn.execute("INSERT INTO public.other VALUES (1)")
                conn.execute(statement.format(column).encode())
        except psycopg.Error as error:
            refused = error
        assert "was run as" not in str(refused)
        found.add(refused.sqlstate if refused is not None else None)
    return found


@pytest.mark.each_value
@pytest.mark.parametrize("column", ["id", "value"])
def test_a_cast_that_is_written_in_sql(app: Conn, writers: list[Conn], kind: Kind, column: str) -> None:
    app.execute(f"INSERT INTO {TABLE} VALUES (1, 'x')".encode())
    retype(app, kind, column)
    for writer in writers:
        writer.autocommit = False
        assert scalar(writer, f"SELECT count(*) FROM {TABLE}") == 1
        assert states(writer, column) == {None}
        writer.rollback()  # so that the next one meets the row, too


@pytest.mark.each_value
@pytest.mark.parametrize("column", ["id", "value"])
def test_a_type_that_an_old_snapshot_does_not_show(
    app: Conn, writers: list[Conn], kind: Kind, column: str
) -> None:
    app.execute(f"INSERT INTO {TABLE} VALUES (1, 'x')".encode())
    take_snapshots(writers)
    retype(app, kind, column)
    for writer in writers:
        assert states(writer, column) <= {None, "40001"}
        writer.rollback()


@pytest.mark.each_value
@pytest.mark.parametrize("column", ["id", "value"])
def test_a_type_and_a_name_that_an_old_snapshot_does_not_show(
    app: Conn, writers: list[Conn], kind: Kind, column: str
) -> None:
    app.execute(f"INSERT INTO {TABLE} VALUES (1, 'x')".encode())
    take_snapshots(writers)
    app.execute(f"ALTER TABLE {TABLE} RENAME COLUMN {column} TO renamed".encode())
    retype(app, kind, "renamed")
    for writer in writers:
        assert states(writer, "renamed") <= {None, "40001"}
        writer.rollback()


def test_a_column_that_is_quoted_by_the_session(any_dsn: str) -> None:
    """Whether a predicate names a column does not depend on how a session has names written."""
    with open_session(any_dsn) as db:
        db.execute(f"CREATE TABLE {TABLE} (id bigint, value text, val text)".encode())
        make_tube(db, predicate="value = 'x'")
        attach(db)
        db.execute("SET quote_all_identifiers = on")
        db.execute(f"ALTER TABLE {TABLE} RENAME id TO key".encode())
        db.execute("SELECT tube_sync()")
        assert db.execute(
            "SELECT a.keys[1], c.name FROM tube_attachment AS a,"
            " tube_private_predicate_columns(a.tbl, a.row_filter) AS c"
        ).fetchall() == [("key", "value")]


def test_a_name_within_a_name_is_another_one(any_dsn: str) -> None:
    """A column that the predicate does not mean may have any type."""
    with open_session(any_dsn) as db:
        db.execute("CREATE TYPE public.mine AS (a int)")
        db.execute(f"CREATE TABLE {TABLE} (id bigint, value text, a public.mine, val public.mine)".encode())
        make_tube(db, predicate="value = 'x'")
        attach(db)
        db.execute(f"INSERT INTO {TABLE} VALUES (1, 'x', ROW(1), ROW(2)), (2, 'y', NULL, NULL)".encode())
        assert ops(db) == [("I", 1)]


@pytest.mark.parametrize(
    ("made", "refused"),
    [
        ("CREATE DOMAIN public.mine AS int CHECK (public.strike(VALUE) > 0)", False),
        ("CREATE TYPE public.mine AS ENUM ('1', '2', '3')", False),
        ("CREATE TYPE public.mine AS (a int)", True),
    ],
)
def test_the_bounds_of_a_backfill_call_nothing(any_dsn: str, made: str, refused: bool) -> None:
    with open_session(any_dsn) as db:
        db.execute(
            "CREATE FUNCTION public.strike(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS"
            " 'BEGIN IF current_user = ''tube_owner'' THEN RAISE EXCEPTION ''run''; END IF; RETURN 1; END'"
        )
        db.execute(made.encode())
        db.execute(
            "CREATE FUNCTION public.words(public.mine) RETURNS text LANGUAGE sql IMMUTABLE AS"
            " 'SELECT public.strike(1)::text'"
        )
        db.execute("SET client_min_messages = error")  # of a domain, Postgres passes over casts
        db.execute("CREATE CAST (public.mine AS text) WITH FUNCTION public.words(public.mine)")
        db.execute(f"CREATE TABLE {TABLE} (id bigint PRIMARY KEY, by public.mine)".encode())
        make_tube(db)
        attach(db)
        rows = "(1, '1'), (2, '2'), (3, '3')" if not refused else "(1, '(1)'), (2, '(2)'), (3, '(3)')"
        db.execute(f"INSERT INTO {TABLE} VALUES {rows}".encode())
        take(db)
        number = scalar(db, "SELECT tube_backfill_create(%s, %s, 'by')", (TUBE, TABLE))
        db.execute("SELECT tube_backfill_lock(%s)", (number,))
        if refused:
            with pytest.raises(psycopg.Error) as error:
                db.execute("SELECT tube_backfill_split(%s, 3)", (number,))
            assert error.value.sqlstate == "TU104"
            return
        db.execute("SELECT tube_backfill_split(%s, 3)", (number,))
        ranges = scalar(db, "SELECT units FROM tube_job_list() LIMIT 1")
        for unit in range(ranges):
            db.execute("SELECT tube_backfill_range(%s, %s)", (number, unit))
        assert {key for op, key in ops(db) if op == "B"} == {1, 2, 3}
