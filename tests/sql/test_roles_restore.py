"""A dump, restored: owners and grants are kept, and where they were left out they are mended."""

from __future__ import annotations

import psycopg
import pytest

from tests.helpers.capture import TABLE, Conn, attach, make_tube, open_session, scalar, set_up, take
from tests.helpers.database import INSTALL_SQL, TestServer, copy, psql_file
from tests.helpers.roles import as_role, roles
from tests.sql.rights import OWNER, ROLES

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]


def rights(conn: Conn) -> list[tuple[object, ...]]:
    """Who owns what of ours and of the attached table, and who may do what with it."""
    return conn.execute(
        "SELECT p.oid::regprocedure::text,"
        " pg_get_userbyid(p.proowner)::text, r.rolname::text,"
        " has_function_privilege(r.oid, p.oid, 'EXECUTE') AS may FROM pg_proc AS p, pg_roles AS r"
        " WHERE p.oid >= 16384 AND r.rolname = ANY(%(roles)s)"
        " UNION ALL SELECT c.oid::regclass || ' ' || a.privilege, pg_get_userbyid(c.relowner), r.rolname,"
        "  has_table_privilege(r.oid, c.oid, a.privilege) FROM pg_class AS c, pg_roles AS r,"
        "  unnest(ARRAY['SELECT', 'INSERT', 'TRIGGER']) AS a (privilege)"
        "  WHERE c.oid >= 16384 AND c.relkind = 'r' AND r.rolname = ANY(%(roles)s)"
        " UNION ALL SELECT c.oid::regclass || ' INSERT some', pg_get_userbyid(c.relowner), r.rolname,"
        "  has_any_column_privilege(r.oid, c.oid, 'INSERT') FROM pg_class AS c, pg_roles AS r"
        "  WHERE c.oid >= 16384 AND c.relkind = 'r' AND r.rolname = ANY(%(roles)s)"
        " UNION ALL SELECT c.oid::regclass::text, pg_get_userbyid(c.relowner), r.rolname,"
        "  has_sequence_privilege(r.oid, c.oid, 'USAGE') FROM pg_class AS c, pg_roles AS r"
        "  WHERE c.oid >= 16384 AND c.relkind = 'S' AND r.rolname = ANY(%(roles)s)"
        " UNION ALL SELECT n.nspname, pg_get_userbyid(n.nspowner), r.rolname,"
        "  has_schema_privilege(r.oid, n.oid, 'USAGE') FROM pg_namespace AS n, pg_roles AS r"
        "  WHERE n.nspname IN ('tube', 'tube_capture', 'public') AND r.rolname = ANY(%(roles)s)"
        " ORDER BY 1, 2, 3, 4",
        {"roles": [*ROLES, OWNER]},
    ).fetchall()


def works(dsn: str) -> None:
    """Capture, touches and administration go on; each role does what it is for."""
    with roles(dsn, "app", "worker") as admin:
        admin.execute(f"GRANT INSERT ON {TABLE} TO app".encode())
        admin.execute("GRANT tube_writer TO app; GRANT tube_worker TO worker")
        with psycopg.connect(as_role(dsn, "app"), autocommit=True) as app:
            app.execute(f"INSERT INTO {TABLE} VALUES (11)".encode())
            app.execute("SELECT public.item_touch('{12}')")
        with open_session(as_role(dsn, "worker")) as worker:
            assert scalar(worker, 'SELECT count(*) FROM "es-live"') == 3
            assert scalar(worker, "SELECT count(*) FROM tube_stats()") == 4
    with open_session(dsn) as conn:
        assert take(conn) == [("I", 0, 1), ("I", 0, 11), ("T", 0, 12)]
        make_tube(conn, partitions=8, predicate="id > 0")
        attach(conn, shard=3)
        conn.execute(f"INSERT INTO {TABLE} VALUES (20), (-20)".encode())
        assert take(conn) == [("I", 3, 20)]


def test_owners_and_grants_are_kept(any_server: TestServer, any_dsn: str) -> None:
    with open_session(any_dsn) as conn:
        set_up(conn)
        conn.execute(f"INSERT INTO {TABLE} VALUES (1)".encode())
        before = rights(conn)
    with any_server.database(installed=False) as target:
        copy(any_server.postgres, any_dsn, target)
        with open_session(target) as conn:
            assert rights(conn) == before
        works(target)


@pytest.mark.parametrize("options", [("--no-owner",), ("--no-owner", "--no-privileges")], ids=" ".join)
def test_a_restore_without_owners_is_mended(
    any_server: TestServer, any_dsn: str, options: tuple[str, ...]
) -> None:
    with open_session(any_dsn) as conn:
        set_up(conn)
        conn.execute(f"INSERT INTO {TABLE} VALUES (1)".encode())
        before = rights(conn)
    with any_server.database(installed=False) as target:
        copy(any_server.postgres, any_dsn, target, *options)
        with open_session(target) as conn:
            assert rights(conn) != before
            psql_file(any_server.postgres, target, INSTALL_SQL)
            touch_of_owner = [row for row in rights(conn) if row not in before]
            assert touch_of_owner == []
        works(target)


def test_owners_of_attached_tables_keep_their_functions(any_server: TestServer, any_dsn: str) -> None:
    """Their writes are captured as before, without an installation in between."""
    with roles(any_dsn, "keeper") as admin:
        admin.execute("SET search_path = tube")
        admin.execute("CREATE SCHEMA shop AUTHORIZATION keeper")
        admin.execute("SET ROLE keeper; CREATE TABLE shop.goods (id bigint PRIMARY KEY, n int); RESET ROLE")
        make_tube(admin, predicate="n > 0")
        attach(admin, "shop.goods", 5)
        with any_server.database(installed=False) as target:
            copy(any_server.postgres, any_dsn, target)
            with open_session(target) as conn:
                owners = "SELECT DISTINCT proowner::regrole::text FROM pg_proc WHERE proname LIKE '%goods%'"
                of_ours = " AND pronamespace <> 'tube'::regnamespace"
                assert conn.execute((owners + of_ours).encode()).fetchall() == [("keeper",)]
                with psycopg.connect(as_role(target, "keeper"), autocommit=True) as keeper:
                    keeper.execute("INSERT INTO shop.goods VALUES (1, 1), (2, 0)")
                    keeper.execute("SELECT shop.goods_touch('{7}')")
                assert take(conn) == [("I", 5, 1), ("T", 5, 7)]
                conn.execute("SELECT tube_sync()")
                conn.execute("INSERT INTO shop.goods VALUES (3, 1), (4, 0)")
                assert take(conn) == [("I", 5, 3)]
                conn.execute("DROP OWNED BY keeper CASCADE")
