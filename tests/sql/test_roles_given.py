"""A table that is given to another owner: its functions go with it, with the rights of who gives it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.helpers.capture import Conn, attach, make_tube, ops, scalar
from tests.helpers.roles import as_role, roles
from tests.sql.test_roles_follow import warned

pytestmark = pytest.mark.every_server

OWNERS = """
    SELECT DISTINCT p.proowner::regrole::text FROM pg_proc AS p
    WHERE p.pronamespace = 'tube_capture'::regnamespace OR p.proname = 'doc_touch'
"""
MAY_PUT = """
    SELECT has_function_privilege(%s, p.oid, 'EXECUTE') FROM pg_proc AS p WHERE p.proname LIKE '%%doc\\_put%%'
"""


@pytest.fixture
def admin(any_dsn: str) -> Iterator[Conn]:
    """A superuser's session: `shop.doc` of `old` is attached; `giver` is as `old`, and may name `new`."""
    with roles(any_dsn, "old", "new", "giver") as conn:
        conn.execute("SET search_path = tube, public")
        conn.execute("CREATE SCHEMA shop AUTHORIZATION old; GRANT ALL ON SCHEMA shop TO new, giver")
        options = "WITH INHERIT FALSE, SET TRUE" if conn.info.server_version >= 160000 else ""
        conn.execute(f"GRANT old TO giver; GRANT new TO giver {options}".encode())
        conn.execute(
            "CREATE TABLE shop.doc (id bigint PRIMARY KEY, v int); ALTER TABLE shop.doc OWNER TO old"
        )
        make_tube(conn, predicate="v > 0")
        attach(conn, "shop.doc")
        yield conn


@pytest.mark.parametrize("giver", ["postgres", "giver"])
def test_the_functions_go_with_the_table(any_dsn: str, admin: Conn, giver: str) -> None:
    with psycopg.connect(as_role(any_dsn, giver), autocommit=True) as conn:
        assert warned(conn, "ALTER TABLE shop.doc OWNER TO new") == (None, [])
    assert admin.execute(OWNERS.encode()).fetchall() == [("new",)]
    assert scalar(admin, "SELECT tube_sync()") == 1, "the old owner's right to put goes"
    assert [scalar(admin, MAY_PUT, (role,)) for role in ("new", "old")] == [True, False]
    assert scalar(admin, "SELECT tube_sync()") == 0
    with psycopg.connect(as_role(any_dsn, "new"), autocommit=True) as new:
        new.execute("INSERT INTO shop.doc VALUES (1, 1), (2, 0); TRUNCATE shop.doc")
    assert ops(admin) == [("D", 1), ("I", 1)]


def test_a_session_that_reads_literals_otherwise_gives_the_same_functions(admin: Conn) -> None:
    bodies = (
        "SELECT p.prosrc FROM pg_proc AS p WHERE p.pronamespace = 'tube_capture'::regnamespace ORDER BY 1"
    )
    before = admin.execute(bodies).fetchall()
    admin.execute("SET standard_conforming_strings = off; SET search_path = shop")
    assert warned(admin, "ALTER TABLE shop.doc OWNER TO new") == (None, [])
    assert admin.execute(bodies).fetchall() == before
    assert scalar(admin, "SHOW search_path") == "shop"


def test_it_is_taken_back_with_the_table(admin: Conn) -> None:
    with admin.transaction(force_rollback=True):
        admin.execute("ALTER TABLE shop.doc OWNER TO new")
    assert admin.execute(OWNERS.encode()).fetchall() == [("old",)]
    assert scalar(admin, "SELECT tube_sync()") == 0


def test_what_could_not_be_given_is_told_and_fails_nothing(any_dsn: str, admin: Conn) -> None:
    """The functions are still the first owner's, whose rights the second one does not have."""
    admin.execute("SET session_replication_role = replica")  # as if there were no event triggers
    admin.execute("ALTER TABLE shop.doc OWNER TO new")
    admin.execute("RESET session_replication_role; SET ROLE tube_owner")
    admin.execute(
        "SELECT tube_private_begin_sync(a.tube, a.tbl) FROM tube_attachment AS a"
    )  # as a worker does
    admin.execute("RESET ROLE")
    admin.execute("REVOKE new, old FROM giver; GRANT giver TO new")
    with psycopg.connect(as_role(any_dsn, "new"), autocommit=True) as new:
        _, (warning,) = warned(new, "ALTER TABLE shop.doc OWNER TO giver")
        assert warning.startswith(
            "functions of pytube keep the rights of the old owner of shop.doc: must be owner of"
        )
        assert "tube_sync()" in warning
    assert (
        scalar(admin, "SELECT relowner::regrole::text FROM pg_class WHERE oid = 'shop.doc'::regclass")
        == "giver"
    )
    admin.execute("INSERT INTO shop.doc VALUES (1, 1)")
    assert ops(admin) == [("I", 1)], "it is captured all the same"


def test_tables_that_are_not_attached_are_given_without_a_word(any_dsn: str, admin: Conn) -> None:
    admin.execute(
        "CREATE TABLE shop.other (x int); ALTER TABLE shop.other OWNER TO giver; REVOKE old FROM giver"
    )
    with psycopg.connect(as_role(any_dsn, "giver"), autocommit=True) as giver:
        assert not scalar(giver, "SELECT has_schema_privilege('tube', 'USAGE')")
        assert warned(giver, "ALTER TABLE shop.other OWNER TO new") == (None, [])
    assert admin.execute(OWNERS.encode()).fetchall() == [("old",)]
