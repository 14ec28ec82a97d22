"""A cast of somebody's own is not even planned with our rights: Postgres would call parts of it at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.helpers.capture import TABLE, TUBE, Conn, make_tube, open_session, triggers, unfollow
from tests.helpers.roles import as_role, roles

KINDS = {
    "composite": "CREATE TYPE public.mine AS (a int, b int)",
    "enum": "CREATE TYPE public.mine AS ENUM ('x')",
}
CASTS = """
    CREATE FUNCTION public.strike(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
        'BEGIN RAISE EXCEPTION ''was run as %'', current_user; END';
    CREATE FUNCTION public.to_number(public.mine) RETURNS bigint LANGUAGE sql IMMUTABLE AS
        'SELECT public.strike(1)::bigint';
    CREATE CAST (public.mine AS bigint) WITH FUNCTION public.to_number(public.mine) AS IMPLICIT;
    CREATE FUNCTION public.to_words(public.mine) RETURNS text LANGUAGE sql IMMUTABLE AS
        'SELECT public.strike(1)::text';
    CREATE CAST (public.mine AS text) WITH FUNCTION public.to_words(public.mine) AS IMPLICIT;
"""
"""A function that is written in SQL becomes part of the plan, for which its constant parts are computed."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """How the type is made."""
    return KINDS[request.param]


@pytest.fixture(params=[False, True], ids=["statements", "rows"])
def app(request: pytest.FixtureRequest, any_dsn: str, kind: str) -> Iterator[Conn]:
    """The owner of the attached table, with casts that strike; `rows`: triggers for replication fire, too."""
    with open_session(any_dsn) as db:
        db.execute(f"CREATE TABLE {TABLE} (id bigint, value text)".encode())
        db.execute("CREATE TABLE public.other (n int)")
        make_tube(db, predicate="value = 'x' OR value IS NULL")
        db.execute(
            "SELECT tube_table_ensure_attached(%s, %s, 0, 1, replica => %s)", (TUBE, TABLE, request.param)
        )
        db.execute(kind)
        db.execute(CASTS)
        with roles(any_dsn, "app") as admin:
            for table in (TABLE, "public.other"):
                admin.execute(f"ALTER TABLE {table} OWNER TO app".encode())
            with psycopg.connect(as_role(any_dsn, "app"), autocommit=True) as app:
                for name in triggers(db, TABLE):
                    app.execute(f'ALTER TABLE {TABLE} ENABLE ALWAYS TRIGGER "{name}"'.encode())
                yield app


def retype(app: Conn, column: str, renamed: bool = False) -> None:
    """Give the column the type that has casts, and perhaps another name."""
    if renamed:
        app.execute(f"ALTER TABLE {TABLE} RENAME COLUMN {column} TO renamed".encode())
        column = "renamed"
    app.execute(f"ALTER TABLE {TABLE} ALTER COLUMN {column} TYPE public.mine USING NULL".encode())


def without_following(any_dsn: str) -> None:
    """As on a server where no event trigger may be made."""
    with open_session(any_dsn) as db:
        unfollow(db)


@contextmanager
def harmless() -> Iterator[None]:
    """The statement may be done, or be refused by us; it runs nobody's code."""
    refused = None
    try:
        yield
    except psycopg.Error as error:
        refused = error
    assert "was run as" not in str(refused)
    assert refused is None or refused.sqlstate in ("TU104", "23502")


WRITES = {
    "no row": f"UPDATE {TABLE} SET {{0}} = {{0}} WHERE false",
    "one row": f"INSERT INTO {TABLE} DEFAULT VALUES",
    "rows": f"INSERT INTO {TABLE} SELECT FROM generate_series(1, 3)",
    "changed": f"UPDATE {TABLE} SET {{0}} = {{0}}",
    "gone": f"DELETE FROM {TABLE}",
    "all gone": f"TRUNCATE {TABLE}",
}


@pytest.mark.parametrize("followed", [True, False], ids=["followed", "unfollowed"])
@pytest.mark.parametrize("column", ["id", "value"])
def test_a_cast_that_is_written_in_sql(app: Conn, any_dsn: str, column: str, followed: bool) -> None:
    if not followed:
        without_following(any_dsn)
    app.execute(f"INSERT INTO {TABLE} VALUES (1, 'x')".encode())
    retype(app, column)
    for statement in WRITES.values():
        with harmless(), app.transaction():
            app.execute("INSERT INTO public.other VALUES (1)")
            app.execute(statement.format(column).encode())


@pytest.mark.parametrize("renamed", [False, True], ids=["by its name", "renamed"])
@pytest.mark.parametrize("column", ["id", "value"])
@pytest.mark.parametrize("write", WRITES)
def test_a_cast_that_an_old_snapshot_does_not_show(
    app: Conn, any_dsn: str, column: str, write: str, renamed: bool
) -> None:
    without_following(any_dsn)
    app.execute(f"INSERT INTO {TABLE} VALUES (1, 'x')".encode())
    with psycopg.connect(as_role(any_dsn, "app")) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("INSERT INTO public.other VALUES (1)")
        retype(app, column, renamed)
        with harmless():
            old.execute(WRITES[write].format("renamed" if renamed else column).encode())
