"""Which role may do what: `rights.py` states it for every function and every table, Postgres has to agree."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest

from pytube.sources import queries
from tests.helpers.capture import (
    TABLE,
    Conn,
    attach,
    make_item,
    make_tube,
    open_session,
    ops,
    scalar,
    set_up,
)
from tests.helpers.database import preparing
from tests.helpers.outbox_sql import OUTBOX, make_outbox
from tests.helpers.roles import as_role, roles
from tests.sql.rights import (
    ADMIN,
    BYSTANDER,
    COLUMNS,
    DELETES,
    FUNCTIONS,
    INVOKERS,
    OWNER,
    OWNERS,
    PRIVATE,
    READS,
    ROLES,
    SHORTER,
    UNPINNED,
    WORKER,
    WRITER,
)

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]


def prepared(dsn: str) -> None:
    with open_session(dsn) as conn:
        set_up(conn, predicate="id > 0 OR value IS NULL")
        make_outbox(conn, OUTBOX)


prepare = preparing(prepared)


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version, with a tube that has a predicate, and an attached table."""
    with open_session(any_dsn) as conn:
        yield conn


def known(name: str) -> str:
    """The name of a function without the number that it was made with."""
    numbers = r"(?<=_touch_)[0-9a-f]{12}$|(?<=_)[0-9a-f]{8}(_[0-9a-f]{12}|_[0-9]+_[0-9]+(_[0-9])?)?$"
    return re.sub(numbers, "…", name)


def expected(name: str) -> set[str]:
    if name.startswith("tube_private_"):
        return PRIVATE.get(name, set())
    assert name in FUNCTIONS, (
        f"say in tests/sql/rights.py who may call {name}, and grant it in sql/grants.sql"
    )
    return FUNCTIONS[name]


def test_who_may_call_what(db: Conn, any_dsn: str) -> None:
    with roles(any_dsn, BYSTANDER):
        found = db.execute(
            "SELECT p.proname::text, coalesce(array_agg(r.rolname::text) FILTER"
            " (WHERE has_function_privilege(r.oid, p.oid, 'EXECUTE')), '{}') FROM pg_proc AS p, pg_roles AS r"
            " WHERE p.oid >= 16384 AND r.rolname = ANY(%s) GROUP BY p.oid",
            [[*ROLES, BYSTANDER]],
        ).fetchall()
    wrong = {name: sorted(may) for name, may in found if set(may) != expected(known(name))}
    assert wrong == {}
    names = {known(name) for name, _ in found}
    assert (set(FUNCTIONS) | set(PRIVATE)) - names == set()
    assert len(found) > 80


def test_who_may_do_what_in_our_schemas(db: Conn) -> None:
    rows = db.execute(
        "SELECT n.nspname, r.rolname, p.privilege FROM pg_namespace AS n, pg_roles AS r,"
        " unnest(ARRAY['USAGE', 'CREATE']) AS p (privilege)"
        " WHERE n.nspname IN ('tube', 'tube_capture') AND r.rolname = ANY(%s)"
        " AND has_schema_privilege(r.oid, n.oid, p.privilege)",
        [list(ROLES)],
    ).fetchall()
    assert set(rows) == {(schema, role, "USAGE") for schema in ("tube", "tube_capture") for role in ROLES}


def test_who_may_read_and_write_what(db: Conn) -> None:
    rows = db.execute(
        "SELECT c.relname, r.rolname, p.privilege FROM pg_class AS c, pg_roles AS r,"
        " unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER'])"
        " AS p (privilege) WHERE c.relnamespace = 'tube'::regnamespace AND c.relkind IN ('r', 'v')"
        " AND r.rolname = ANY(%s) AND has_table_privilege(r.oid, c.oid, p.privilege)",
        [list(ROLES)],
    ).fetchall()
    tables = [
        name
        for (name,) in db.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'tube'::regnamespace AND relkind = 'r'"
        )
    ]
    readers = {(table, role, "SELECT") for table, roles in READS.items() for role in roles}
    assert set(rows) == readers | {(table, ADMIN, "SELECT") for table in tables} | DELETES
    columns = db.execute(
        "SELECT c.relname, r.rolname, p.privilege, array_agg(a.attname::text) FROM pg_class AS c"
        " JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped,"
        " pg_roles AS r,"
        " unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) AS p (privilege)"
        " WHERE c.relnamespace = 'tube'::regnamespace AND c.relkind IN ('r', 'v') AND r.rolname = ANY(%s)"
        " AND has_column_privilege(r.oid, c.oid, a.attnum, p.privilege)"
        " AND NOT has_table_privilege(r.oid, c.oid, p.privilege) GROUP BY 1, 2, 3",
        [list(ROLES)],
    ).fetchall()
    assert {(table, role, what): set(names) for table, role, what, names in columns} == COLUMNS
    may_draw = db.execute(
        "SELECT rolname, p.privilege FROM pg_roles,"
        " unnest(ARRAY['USAGE', 'SELECT', 'UPDATE']) AS p (privilege)"
        " WHERE rolname = ANY(%s) AND has_sequence_privilege(oid, 'tube.tube_seq', p.privilege)",
        [list(ROLES)],
    ).fetchall()
    assert set(may_draw) == {(WORKER, "USAGE"), (WRITER, "USAGE"), (ADMIN, "USAGE")}


def test_who_owns_what(db: Conn) -> None:
    functions = db.execute(
        "SELECT proname::text, pg_get_userbyid(proowner)::text FROM pg_proc WHERE oid >= 16384"
    ).fetchall()
    wrong = {name: owner for name, owner in functions if owner != OWNERS.get(known(name), OWNER)}
    assert wrong == {}
    assert set(OWNERS) <= {known(name) for name, _ in functions}
    others = db.execute(
        "SELECT DISTINCT pg_get_userbyid(relowner)::text FROM pg_class"
        " WHERE relnamespace = 'tube'::regnamespace"
        " UNION SELECT pg_get_userbyid(nspowner)::text FROM pg_namespace"
        " WHERE nspname IN ('tube', 'tube_capture')"
        " UNION SELECT pg_get_userbyid(typowner)::text FROM pg_type WHERE typnamespace = 'tube'::regnamespace"
    ).fetchall()
    assert others == [(OWNER,)]


def test_nobody_logs_in_as_one_of_ours_or_is_the_owner(db: Conn) -> None:
    rows = db.execute(
        "SELECT DISTINCT rolcanlogin, rolsuper, rolcreaterole, rolbypassrls FROM pg_roles"
        " WHERE rolname = ANY(%s)",
        [[*ROLES, OWNER]],
    ).fetchall()
    assert rows == [(False, False, False, False)]
    members = db.execute(
        "SELECT count(*) FROM pg_auth_members WHERE roleid::regrole::text = ANY(%s)", [[OWNER]]
    ).fetchone()
    assert members == (0,)


def test_the_owner_of_all_has_no_right_on_an_attached_table(db: Conn) -> None:
    assert not scalar(
        db,
        "SELECT has_any_column_privilege('tube_owner', 'public.item', 'SELECT, INSERT, UPDATE, REFERENCES')"
        " OR has_table_privilege('tube_owner', 'public.item', 'SELECT, INSERT, UPDATE, DELETE, TRIGGER')"
        " OR has_schema_privilege('tube_owner', 'public', 'CREATE')",
    )


def test_whose_rights_a_function_has_and_where_it_looks_names_up(db: Conn) -> None:
    """Those that only our owner may call have their caller's rights and path; all others are on a list."""
    rows = [
        (known(name), definer, path)
        for name, definer, path in db.execute(
            "SELECT p.proname::text, p.prosecdef, (SELECT substr(c, 13) FROM unnest(p.proconfig) AS c"
            " WHERE c LIKE 'search\\_path=%') FROM pg_proc AS p WHERE p.oid >= 16384"
            " AND NOT (p.proowner = 'tube_owner'::regrole AND NOT p.prosecdef"
            " AND NOT coalesce(p.proconfig::text LIKE '%search\\_path=%', false) AND NOT EXISTS ("
            " SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a"
            " WHERE a.grantee <> p.proowner))"
        ).fetchall()
    ]
    assert {name for name, definer, _ in rows if not definer} == INVOKERS
    assert {name for name, _, path in rows if path is None} == UNPINNED
    assert {name for name, _, path in rows if path == "pg_catalog, pg_temp"} == SHORTER
    assert {path for _, _, path in rows} == {None, "pg_catalog, pg_temp", "pg_catalog, tube, pg_temp"}


def test_a_worker_needs_no_more_than_its_role() -> None:
    assert {name for name in queries.FUNCTIONS if WORKER not in FUNCTIONS[name]} == set()
    assert {name for name in queries.TABLES if WORKER not in READS[name]} == set()


@pytest.mark.usefixtures("db")
def test_a_writer_of_the_table_needs_no_right_of_ours(any_dsn: str) -> None:
    with roles(any_dsn, "app") as admin:
        admin.execute(f"GRANT INSERT, UPDATE, DELETE, SELECT ON {TABLE} TO app".encode())
        with psycopg.connect(as_role(any_dsn, "app"), autocommit=True) as app:
            app.execute(f"INSERT INTO {TABLE} VALUES (1), (2)".encode())
            app.execute(f"UPDATE {TABLE} SET value = 'x' WHERE id = 1".encode())
            app.execute(f"DELETE FROM {TABLE} WHERE id = 1".encode())
            for statement in (
                'SELECT count(*) FROM tube."es-live"',
                "SELECT tube.tube_list()",
                "SELECT public.item_touch('{1}')",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    app.execute(statement.encode())
        assert scalar(admin, 'SELECT count(*) FROM tube."es-live"') == 3


@pytest.mark.usefixtures("db")
def test_a_member_of_writer_touches_and_no_more(any_dsn: str) -> None:
    with roles(any_dsn, "app") as admin:
        admin.execute("GRANT tube_writer TO app")
        with psycopg.connect(as_role(any_dsn, "app"), autocommit=True) as app:
            app.execute("SELECT public.item_touch('{1}')")
            app.execute("""SELECT tube."es-live_touch"(0, '{2}', 'T')""")
            for statement in (
                'SELECT count(*) FROM tube."es-live"',
                "SELECT * FROM tube.tube_registry",
                "SELECT tube.tube_ensure_exists('mine')",
                "SELECT tube.tube_ensure_absent('es-live')",
                f"SELECT tube.tube_table_ensure_attached('es-live', '{TABLE}', 1)",
                f"SELECT tube.tube_table_ensure_detached('es-live', '{TABLE}')",
                "SELECT tube.tube_private_cursor_error('DROP TABLE tube.tube_registry')",
                "SELECT setval('tube.tube_seq', 1)",
                "INSERT INTO tube.\"es-live\" (seq, op, shard, ids) VALUES (1, 'U', 0, '{1}')",
                "INSERT INTO tube.\"es-live\" (op, shard, ids, ts) VALUES ('U', 0, '{1}', now())",
                "INSERT INTO tube.\"es-live\" (op, shard, ids, leader_id) VALUES ('U', 0, '{1}', NULL)",
                "INSERT INTO tube.\"es-live\" (op, shard, ids) VALUES ('U', 0, '{1}') RETURNING seq",
                "UPDATE tube.\"es-live\" SET op = 'U'",
                'DELETE FROM tube."es-live"',
                "SELECT tube.tube_stream_purge('es-live', 1)",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    app.execute(statement.encode())
        assert scalar(admin, 'SELECT count(*) FROM tube."es-live"') == 2


@pytest.mark.usefixtures("db")
def test_an_owner_who_is_an_admin_attaches_and_detaches(any_dsn: str) -> None:
    with roles(any_dsn, "app") as admin:
        admin.execute("GRANT tube_admin TO app")
        admin.execute("CREATE SCHEMA shop AUTHORIZATION app")
        with open_session(as_role(any_dsn, "app")) as app:
            make_item(app, "shop.goods")
            attach(app, "shop.goods", 7)
            app.execute("INSERT INTO shop.goods VALUES (1)")
            app.execute("SELECT shop.goods_touch('{1}')")
            assert scalar(app, 'SELECT count(*) FROM tube."es-live" WHERE shard = 7') == 2
            attach(app, "shop.goods", 8)
            app.execute("SELECT tube_table_ensure_detached('es-live', 'shop.goods')")
            assert scalar(app, "SELECT to_regproc('shop.goods_touch')") is None


@pytest.fixture
def goods(any_dsn: str, db: Conn) -> Iterator[Conn]:
    """A superuser's session; `shop.goods` belongs to shopkeeper, and app is in tube_admin."""
    assert db.info.user == "postgres"
    with roles(any_dsn, "app", "shopkeeper") as admin:
        admin.execute("GRANT tube_admin TO app")
        admin.execute("CREATE SCHEMA shop AUTHORIZATION shopkeeper")
        admin.execute("GRANT USAGE ON SCHEMA shop TO app")
        admin.execute(
            "SET ROLE shopkeeper; CREATE TABLE shop.goods (id int PRIMARY KEY, value text); RESET ROLE"
        )
        yield admin


def test_only_an_owner_attaches_a_table(goods: Conn, any_dsn: str) -> None:
    """Not an admin, nor an owner who is no admin; both together, without a grant to us."""
    with open_session(as_role(any_dsn, "app")) as app:
        goods.execute("GRANT ALL ON shop.goods TO app; GRANT ALL ON SCHEMA shop TO app")
        with pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
            attach(app, "shop.goods", 7)
        said = refused.value.diag
        assert said.message_primary == (
            "shop.goods belongs to shopkeeper, who has to agree to what tube 'es-live' does with it"
        )
        assert said.message_hint == (
            "Do it as shopkeeper, or as a role that has its rights and the rights of tube_admin."
        )
        assert scalar(app, "SELECT count(*) FROM tube_attachment") == 1
        with (
            open_session(as_role(any_dsn, "shopkeeper")) as shopkeeper,
            pytest.raises(psycopg.errors.InsufficientPrivilege, match="function tube_table_ensure_attached"),
        ):
            shopkeeper.execute("SELECT tube.tube_table_ensure_attached('es-live', 'shop.goods', 7)")
        goods.execute("REVOKE ALL ON shop.goods FROM app; REVOKE ALL ON SCHEMA shop FROM app")
        goods.execute("GRANT shopkeeper TO app")
        attach(app, "shop.goods", 7)
        goods.execute("INSERT INTO shop.goods VALUES (1)")
        assert scalar(app, 'SELECT count(*) FROM tube."es-live"') == 1


def test_an_admin_detaches_and_drops_without_a_right_on_the_table(goods: Conn, any_dsn: str) -> None:
    goods.execute("SET search_path = tube")
    make_tube(goods, "other")
    with open_session(as_role(any_dsn, "app")) as app:
        for statement in (
            "SELECT tube_table_ensure_detached('es-live', 'shop.goods')",
            "SELECT tube_table_ensure_detached(NULL, 'shop.goods')",
            "SELECT tube_ensure_absent('other')",
        ):
            for tube in ("es-live", "other"):
                attach(goods, "shop.goods", 7, tube=tube)
            app.execute(statement.encode())
            make_tube(goods, "other")
        assert scalar(app, "SELECT count(*) FROM tube_attachment WHERE tube = 'other'") == 0
        app.execute("SELECT tube_table_ensure_detached(NULL, 'shop.goods')")
    assert scalar(goods, "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'shop.goods'::regclass") == 0
    assert scalar(goods, "SELECT count(*) FROM pg_proc WHERE proowner = 'shopkeeper'::regrole") == 0


def test_a_predicate_is_agreed_to_by_the_owner_of_each_table(goods: Conn, any_dsn: str) -> None:
    goods.execute("SET search_path = tube")
    attach(goods, "shop.goods", 7)
    with open_session(as_role(any_dsn, "app")) as app:
        with pytest.raises(
            psycopg.errors.InsufficientPrivilege, match="belongs to postgres, who has to agree"
        ):
            make_tube(app, predicate="id > 7")
        goods.execute("SELECT tube_table_ensure_detached('es-live', 'public.item')")
        with pytest.raises(
            psycopg.errors.InsufficientPrivilege, match="belongs to shopkeeper, who has to agree"
        ):
            make_tube(app, predicate="id > 7")
        goods.execute("GRANT shopkeeper TO app")
        make_tube(app, predicate="id > 7")
    assert scalar(goods, "SELECT row_filter FROM tube_attachment") == "id > 7"


def test_a_touch_function_serves_writers_and_the_owner_of_now(goods: Conn, any_dsn: str) -> None:
    goods.execute("SET search_path = tube")
    attach(goods, "shop.goods", 7)
    touch = b"SELECT shop.goods_touch('{1}')"
    with (
        psycopg.connect(as_role(any_dsn, "app"), autocommit=True) as app,
        psycopg.connect(as_role(any_dsn, "shopkeeper"), autocommit=True) as shopkeeper,
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="tube_touch_"):
            app.execute(touch)
        shopkeeper.execute(touch)
        goods.execute("ALTER TABLE shop.goods OWNER TO app")
        goods.execute("GRANT CREATE ON SCHEMA shop TO app")
        assert scalar(goods, "SELECT tube_sync()") == 1
        app.execute(touch)
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="tube_touch_"):
            shopkeeper.execute(touch)
        goods.execute("INSERT INTO shop.goods VALUES (3)")
    assert sorted(op for op, _ in ops(goods)) == ["I", "T", "T"]
    assert scalar(goods, "SELECT count(*) FROM pg_proc WHERE proowner = 'shopkeeper'::regrole") == 0
    assert scalar(goods, "SELECT tube_sync()") == 0


def test_what_others_may_call_has_a_path_of_its_own_or_needs_none(conn: Conn) -> None:
    """PL/pgSQL takes the types of its variables by the path of the first call in a session."""
    found = conn.execute(
        "SELECT p.oid::regprocedure::text FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang"
        " WHERE p.pronamespace = 'tube'::regnamespace AND l.lanname = 'plpgsql'"
        " AND NOT EXISTS (SELECT FROM unnest(p.proconfig) AS s WHERE s LIKE 'search_path=%')"
        " AND EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a"
        " WHERE a.grantee <> p.proowner)"
    ).fetchall()
    assert found == []


def test_two_owners_who_attach_at_once_wait_for_each_other(dsn: str, conn: Conn) -> None:
    """Grants on our schemas at the same time would fail each other."""
    make_tube(conn)
    make_tube(conn, "other")
    make_item(conn, "public.one")
    make_item(conn, "public.two")
    with roles(dsn, "ann", "bob") as admin:
        admin.execute("GRANT tube_admin TO ann, bob; GRANT CREATE ON SCHEMA public TO ann, bob")
        admin.execute("ALTER TABLE public.one OWNER TO ann; ALTER TABLE public.two OWNER TO bob")
        with open_session(as_role(dsn, "ann")) as ann, open_session(as_role(dsn, "bob")) as bob:
            with ann.transaction():
                attach(ann, "public.one", 1)
                bob.execute("SET statement_timeout = '200ms'")
                with pytest.raises(psycopg.errors.QueryCanceled):
                    attach(bob, "public.two", 2, tube="other")
                bob.execute("RESET statement_timeout")
            attach(bob, "public.two", 2, tube="other")
    assert scalar(conn, "SELECT count(*) FROM tube_attachment") == 2


def test_each_public_function_has_a_comment(conn: Conn) -> None:
    rows = conn.execute(
        "SELECT p.proname::text, obj_description(p.oid, 'pg_proc') FROM pg_proc AS p"
        " WHERE p.pronamespace = 'tube'::regnamespace"
        r" AND p.proname LIKE 'tube\_%' AND p.proname NOT LIKE 'tube\_private\_%'"
    ).fetchall()
    assert len(rows) > 60
    assert {name for name, comment in rows if comment is None} == set()
    assert [name for name, text in rows if text and not (text[0].isupper() and text.endswith("."))] == []
