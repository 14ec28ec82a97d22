"""A table that was given to another owner: what its functions may do until an owner has looked, and after."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.capture import Conn, asked, attach, make_tube, ops, pods, scalar, take
from tests.helpers.roles import roles

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]

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


def test_its_writes_are_captured_once_an_owner_has_looked(admin: Conn) -> None:
    admin.execute("ALTER TABLE shop.doc OWNER TO new")
    as_new(admin, "INSERT INTO shop.doc VALUES (1, 1), (2, 0); TRUNCATE shop.doc")
    assert pods(admin) == []
    assert scalar(admin, "SELECT tube_sync()") == 1
    assert asked(admin) == ["backfill_schedule"]
    as_new(admin, "INSERT INTO shop.doc VALUES (3, 1); TRUNCATE shop.doc")
    assert ops(admin) == [("D", 3), ("I", 3)]


def test_the_old_owner_can_touch_its_rows_no_more(admin: Conn) -> None:
    assert [scalar(admin, MAY_PUT, (role,)) for role in ("new", "old")] == [False, True]
    admin.execute("ALTER TABLE shop.doc OWNER TO new")
    assert scalar(admin, "SELECT tube_sync()") == 1
    assert [scalar(admin, MAY_PUT, (role,)) for role in ("new", "old")] == [True, False]
    door = (
        "SELECT has_table_privilege(%s, c.oid, 'INSERT') FROM pg_class AS c"
        " WHERE c.relname LIKE '%%doc\\_door%%'"
    )
    assert [scalar(admin, door, (role,)) for role in ("new", "old")] == [True, False]
    assert scalar(admin, "SELECT tube_sync()") == 0


def test_no_write_fails_before_anybody_has_looked(admin: Conn) -> None:
    """Nothing tells of REASSIGN OWNED; the next owner has the function, and no right of ours so far."""
    admin.execute("REASSIGN OWNED BY old TO new")
    as_new(admin, "INSERT INTO shop.doc VALUES (1, 1); UPDATE shop.doc SET v = 2; TRUNCATE shop.doc")
    assert pods(admin) == []
    admin.execute("SET ROLE tube_worker; SELECT tube_sync(); RESET ROLE")
    assert asked(admin) == ["backfill_schedule"], "a worker gives the right, as the function is the owner's"
    as_new(admin, "INSERT INTO shop.doc VALUES (5, 1)")
    assert ops(admin) == [("I", 5)]


@pytest.mark.parametrize(
    "by",
    [
        "SELECT tube_table_ensure_attached('es-live', 'shop.doc', 0)",
        "SELECT tube_table_ensure_attached('es-live', 'shop.doc', 5)",
        "SELECT tube_ensure_exists('es-live', 4, 'v > 1')",
        "SELECT tube_private_provide(a) FROM tube_attachment AS a",
    ],
    ids=["attached again", "other shards", "another predicate", "only the rights"],
)
def test_whoever_gives_the_right_asks_for_what_was_missed(admin: Conn, by: str) -> None:
    """A migration, say, that attaches its tables each time, before a worker has looked."""
    admin.execute("REASSIGN OWNED BY old TO new")
    as_new(admin, "INSERT INTO shop.doc VALUES (1, 1)")
    admin.execute(by.encode())
    assert "backfill_schedule" in asked(admin)
    take(admin)
    as_new(admin, "INSERT INTO shop.doc VALUES (5, 2)")
    assert ops(admin) == [("I", 5)]


def test_all_of_an_owners_objects_are_given_and_followed_in_one_transaction(admin: Conn) -> None:
    """No event trigger sees REASSIGN OWNED, and the next owner may call nothing of ours until then."""
    with admin.transaction():
        admin.execute("REASSIGN OWNED BY old TO new")
        admin.execute("SELECT tube_sync()")
    as_new(admin, "INSERT INTO shop.doc VALUES (1, 1), (2, 0); TRUNCATE shop.doc")
    assert ops(admin) == [("D", 1), ("I", 1)]


def test_settings_that_the_old_owner_left_are_taken_off(admin: Conn) -> None:
    """REASSIGN OWNED gives functions away as they are."""
    function = scalar(
        admin, "SELECT oid::regproc::text FROM pg_proc WHERE proname LIKE '%%doc\\_capture\\_%%'"
    )
    settings = "SELECT coalesce(proconfig::text, '') FROM pg_proc WHERE oid = %s::regproc"
    before = scalar(admin, settings, (function,))
    admin.execute(f"ALTER FUNCTION {function} SET search_path = shop, pg_catalog".encode())
    admin.execute("REASSIGN OWNED BY old TO new")
    admin.execute("SELECT tube_sync()")
    assert scalar(admin, settings, (function,)) == before
    admin.execute("SELECT tube_sync()")
    assert scalar(admin, "SELECT tube_sync()") == 0
