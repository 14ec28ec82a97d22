"""A table that was given to another owner: what its functions may do until an owner has looked, and after."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.capture import Conn, attach, make_tube, ops, pods, scalar
from tests.helpers.roles import roles

pytestmark = pytest.mark.every_server

MAY_PUT = """
    SELECT has_function_privilege(%s, p.oid, 'EXECUTE') FROM pg_proc AS p WHERE p.proname LIKE '%%doc\\_put%%'
"""


@pytest.fixture
def admin(any_dsn: str) -> Iterator[Conn]:
    """A superuser's session: `shop.doc` of `old`, with two rows, is attached, and was given to `new` then."""
    with roles(any_dsn, "old", "new") as conn:
        conn.execute("SET search_path = tube, public")
        conn.execute("CREATE SCHEMA shop AUTHORIZATION old; GRANT USAGE, CREATE ON SCHEMA shop TO new")
        conn.execute(
            "CREATE TABLE shop.doc (id bigint PRIMARY KEY, v int); ALTER TABLE shop.doc OWNER TO old"
        )
        make_tube(conn, predicate="v > 0")
        attach(conn, "shop.doc")
        yield conn


def as_new(admin: Conn, statement: str) -> None:
    admin.execute(f"SET ROLE new; {statement}; RESET ROLE".encode())


def test_its_writes_are_captured_and_a_truncate_asks_for_a_sweep(admin: Conn) -> None:
    """To read the table with the old owner's rights would be to run the new owner's code with them."""
    admin.execute("ALTER TABLE shop.doc OWNER TO new")
    as_new(admin, "INSERT INTO shop.doc VALUES (1, 1), (2, 0)")
    assert ops(admin) == [("I", 1)]
    as_new(admin, "TRUNCATE shop.doc")
    assert [payload["type"] for _, _, _, payload in pods(admin) if payload] == ["sweep"]
    admin.execute("SELECT tube_sync()")
    as_new(admin, "INSERT INTO shop.doc VALUES (3, 1); TRUNCATE shop.doc")
    assert ops(admin)[-2:] == [("D", 3), ("I", 3)], "its functions are the new owner's, who may read it"


def test_the_old_owner_can_touch_its_rows_no_more(admin: Conn) -> None:
    admin.execute("ALTER TABLE shop.doc OWNER TO new")
    assert [scalar(admin, MAY_PUT, (role,)) for role in ("new", "old")] == [False, True]
    assert scalar(admin, "SELECT tube_sync()") == 1
    assert [scalar(admin, MAY_PUT, (role,)) for role in ("new", "old")] == [True, True]
    assert scalar(admin, "SELECT tube_sync()") == 1, "now that nothing runs with the old owner's rights"
    assert [scalar(admin, MAY_PUT, (role,)) for role in ("new", "old")] == [True, False]
    assert scalar(admin, "SELECT tube_sync()") == 0


def test_all_of_an_owners_objects_are_given_and_followed_in_one_transaction(admin: Conn) -> None:
    """No event trigger sees REASSIGN OWNED, and the next owner may call nothing of ours until then."""
    with admin.transaction():
        admin.execute("REASSIGN OWNED BY old TO new")
        admin.execute("SELECT tube_sync()")
    as_new(admin, "INSERT INTO shop.doc VALUES (1, 1), (2, 0); TRUNCATE shop.doc")
    assert ops(admin) == [("D", 1), ("I", 1)]


@pytest.mark.parametrize("kind", ["agent", "capture"])
def test_settings_that_the_old_owner_left_are_taken_off(admin: Conn, kind: str) -> None:
    """REASSIGN OWNED gives functions away as they are."""
    function = scalar(
        admin, "SELECT oid::regproc::text FROM pg_proc WHERE proname LIKE %s", (f"%doc\\_{kind}\\_%",)
    )
    settings = "SELECT coalesce(proconfig::text, '') FROM pg_proc WHERE oid = %s::regproc"
    before = scalar(admin, settings, (function,))
    admin.execute(f"ALTER FUNCTION {function} SET search_path = shop, pg_catalog".encode())
    admin.execute("REASSIGN OWNED BY old TO new")
    admin.execute("SELECT tube_sync()")
    assert scalar(admin, settings, (function,)) == before
    admin.execute("SELECT tube_sync()")
    assert scalar(admin, "SELECT tube_sync()") == 0
