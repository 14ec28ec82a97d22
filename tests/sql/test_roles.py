"""Which role may do what: stated here for every function and every table, and compared with Postgres."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from pytube.sources import rights
from tests.helpers.capture import (
    TABLE,
    TUBE,
    Conn,
    attach,
    make_item,
    make_tube,
    open_session,
    scalar,
    set_up,
)
from tests.helpers.roles import as_role, roles

ADMIN, WORKER, WRITER, MONITOR = ROLES = ("tube_admin", "tube_worker", "tube_writer", "tube_monitor")

PRIVATE = {ADMIN}
SERVES = {ADMIN, WORKER}
LOOKS_ON = {ADMIN, WORKER, MONITOR}
TOUCHES = {ADMIN, WRITER}
ALL = set(ROLES)

FUNCTIONS: dict[str, set[str]] = {
    "tube_as_caller": TOUCHES,
    "tube_backfill_chunk": SERVES,
    "tube_backfill_collect": SERVES,
    "tube_backfill_command": PRIVATE,
    "tube_backfill_create": PRIVATE,
    "tube_backfill_holders": SERVES,
    "tube_backfill_join": SERVES,
    "tube_backfill_list": LOOKS_ON,
    "tube_backfill_lock": SERVES,
    "tube_backfill_note": SERVES,
    "tube_backfill_pressure": SERVES,
    "tube_backfill_range": SERVES,
    "tube_backfill_schedule": PRIVATE,
    "tube_backfill_split": SERVES,
    "tube_backfill_step1": SERVES,
    "tube_backfill_step2": SERVES,
    "tube_backfill_step3": SERVES,
    "tube_backfill_take": SERVES,
    "tube_backfill_tidy": SERVES,
    "tube_backfill_unlock": SERVES,
    "tube_channel": SERVES,
    "tube_ensure_absent": PRIVATE,
    "tube_ensure_exists": PRIVATE,
    "tube_index_fit": SERVES,
    "tube_index_sql": PRIVATE,
    "tube_job_begin": TOUCHES,
    "tube_job_done": TOUCHES,
    "tube_job_finish": TOUCHES,
    "tube_job_forget": TOUCHES,
    "tube_job_list": ALL,
    "tube_job_units": {ADMIN, WORKER, WRITER},
    "tube_leader_acquire": SERVES,
    "tube_leader_epoch": SERVES,
    "tube_leader_rebase": PRIVATE,
    "tube_leader_release": SERVES,
    "tube_leader_renew": SERVES,
    "tube_leader_wait": SERVES,
    "tube_leaders": LOOKS_ON,
    "tube_leaders_renew": SERVES,
    "tube_lease_leave": SERVES,
    "tube_lease_tick": SERVES,
    "tube_list": ALL,
    "tube_park_list": LOOKS_ON,
    "tube_pods_delete": SERVES,
    "tube_keys_as_caller": TOUCHES,
    "tube_keys_put": TOUCHES,
    "tube_pods_insert": TOUCHES,
    "tube_pods_mark": SERVES,
    "tube_pods_park": SERVES,
    "tube_pods_purge": SERVES,
    "tube_pods_put": TOUCHES,
    "tube_pods_reset": SERVES,
    "tube_pods_sql": SERVES,
    "tube_pods_unpark": SERVES,
    "tube_seq_advance": PRIVATE,
    "tube_settle_done": SERVES,
    "tube_settle_holders": SERVES,
    "tube_settle_left": SERVES,
    "tube_settle_seq": SERVES,
    "tube_shard_of": ALL,
    "tube_sleep": SERVES,
    "tube_stats": LOOKS_ON,
    "tube_stream_purge": SERVES,
    "tube_sweep_end": SERVES,
    "tube_sweep_ready": SERVES,
    "tube_sweep_touch": SERVES,
    "tube_sync": SERVES,
    "tube_sync_served": SERVES,
    "tube_table_ensure_attached": PRIVATE,
    "tube_table_ensure_detached": PRIVATE,
    "tube_terms": LOOKS_ON,
    "tube_wake": SERVES,
    "tube_wakes": SERVES,
    # generated for the tube and the table of the tests
    f"{TUBE}_touch": TOUCHES,
    "item_touch": TOUCHES,
}
"""All but `tube_private_…` and the functions of triggers, which are the admin's alone."""

INVOKERS = {
    # what has to be done to a table of somebody else's is done with the rights of the caller
    "tube_ensure_absent",
    "tube_private_as_owner",
    "tube_private_attach",
    "tube_private_attachable",
    "tube_private_briefly",
    "tube_private_detach",
    "tube_private_follow",
    "tube_private_lacking",
    "tube_private_owned",
    "tube_private_patiently",
    "tube_private_privileges",
    "tube_private_sync",
    "tube_private_sync_all",
    "tube_private_sync_stale",
    "tube_private_sync_table",
    "tube_private_tree",
    "tube_private_untrigger",
    "tube_sync",
    "tube_table_ensure_attached",
    "tube_table_ensure_detached",
    # the query of a fan-out has the rights of its caller
    "tube_as_caller",
    "tube_keys_as_caller",
    "tube_pods_insert",
    # inlined wherever it is used
    "tube_shard_of",
}

READS: dict[str, set[str]] = {
    "tube_version": {WORKER, MONITOR},
    "tube_registry": {WORKER},
    "tube_attachment": {WORKER},
    "tube_parked": {WORKER, MONITOR},
    "tube_backfill": {WORKER, MONITOR},
    TUBE: {WORKER},
}
"""Who may read a table; nobody but the admin may write one, beside what follows."""

WRITES: dict[str, dict[str, set[str]]] = {TUBE: {WRITER: {"op", "shard", "ids", "payload"}}}
"""Who may insert, and into which columns only."""


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version, with a tube and an attached table."""
    with open_session(any_dsn) as conn:
        set_up(conn)
        yield conn


def expected(name: str, returns: str) -> set[str]:
    if name.startswith("tube_private_") or returns in ("trigger", "event_trigger"):
        return PRIVATE
    assert name in FUNCTIONS, f"say in FUNCTIONS who may call {name}, and grant it in sql/grants.sql"
    return FUNCTIONS[name]


def test_who_may_call_what(db: Conn) -> None:
    found = db.execute(
        "SELECT p.proname, p.prorettype::regtype::text, array_agg(r.rolname::text) FILTER"
        " (WHERE has_function_privilege(r.oid, p.oid, 'EXECUTE')) FROM pg_proc AS p, pg_roles AS r"
        " WHERE p.oid >= 16384 AND r.rolname = ANY(%s) GROUP BY p.oid",
        [list(ROLES)],
    ).fetchall()
    wrong = {
        name: sorted(may or []) for name, returns, may in found if set(may or []) != expected(name, returns)
    }
    assert wrong == {}
    assert set(FUNCTIONS) <= {name for name, _, _ in found}
    assert len(found) > 80


def test_who_may_read_and_write_what(db: Conn) -> None:
    rows = db.execute(
        "SELECT c.relname, r.rolname, p.privilege FROM pg_class AS c, pg_roles AS r,"
        " unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER'])"
        " AS p (privilege) WHERE c.relnamespace = 'tube'::regnamespace AND c.relkind IN ('r', 'v')"
        " AND r.rolname = ANY(%s) AND has_table_privilege(r.oid, c.oid, p.privilege)",
        [[WORKER, WRITER, MONITOR]],
    ).fetchall()
    assert set(rows) == {(table, role, "SELECT") for table, readers in READS.items() for role in readers}
    columns = db.execute(
        "SELECT c.relname, r.rolname, p.privilege, array_agg(a.attname::text) FROM pg_class AS c"
        " JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped,"
        " pg_roles AS r,"
        " unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) AS p (privilege)"
        " WHERE c.relnamespace = 'tube'::regnamespace AND c.relkind IN ('r', 'v') AND r.rolname = ANY(%s)"
        " AND has_column_privilege(r.oid, c.oid, a.attnum, p.privilege)"
        " AND NOT has_table_privilege(r.oid, c.oid, p.privilege) GROUP BY 1, 2, 3",
        [[WORKER, WRITER, MONITOR]],
    ).fetchall()
    assert {(table, role, what): set(names) for table, role, what, names in columns} == {
        (table, role, "INSERT"): names for table, may in WRITES.items() for role, names in may.items()
    }
    may_draw = db.execute(
        "SELECT rolname, p.privilege FROM pg_roles,"
        " unnest(ARRAY['USAGE', 'SELECT', 'UPDATE']) AS p (privilege)"
        " WHERE rolname = ANY(%s) AND has_sequence_privilege(oid, 'tube.tube_seq', p.privilege)",
        [[WORKER, WRITER, MONITOR]],
    ).fetchall()
    assert may_draw == [(WRITER, "USAGE")]


def test_the_owner_of_all_is_the_admin_who_may_not_log_in(db: Conn) -> None:
    owners = db.execute(
        "SELECT DISTINCT pg_get_userbyid(p.proowner)::text FROM pg_proc AS p WHERE p.oid >= 16384"
        " UNION SELECT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = 'tube'::regnamespace"
    ).fetchall()
    assert owners == [(ADMIN,)]
    rows = db.execute(
        "SELECT DISTINCT rolcanlogin, rolsuper, rolcreaterole, rolbypassrls FROM pg_roles"
        " WHERE rolname = ANY(%s)",
        [list(ROLES)],
    ).fetchall()
    assert rows == [(False, False, False, False)]


def test_every_function_pins_its_search_path(db: Conn) -> None:
    rows = db.execute(
        "SELECT p.proname, p.prosecdef,"
        " coalesce('search_path=pg_catalog, tube, pg_temp' = ANY (p.proconfig), false)"
        " FROM pg_proc AS p WHERE p.oid >= 16384"
    ).fetchall()
    assert {name for name, definer, _ in rows if not definer} == INVOKERS
    # Its operators were bound when it was made.
    assert [name for name, _, pinned in rows if not pinned] == ["tube_shard_of"] * 3


def test_a_worker_needs_no_more_than_its_role() -> None:
    assert {name for name in rights.FUNCTIONS if WORKER not in FUNCTIONS[name]} == set()
    assert {name for name in rights.TABLES if WORKER not in READS[name]} == set()


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


@pytest.mark.usefixtures("db")
def test_an_admin_who_may_not_grant_is_told_what_lacks(any_dsn: str) -> None:
    with roles(any_dsn, "app", "shopkeeper") as admin:
        admin.execute("GRANT tube_admin TO app")
        admin.execute("CREATE SCHEMA shop AUTHORIZATION shopkeeper")
        admin.execute("GRANT USAGE ON SCHEMA shop TO app")
        admin.execute("SET ROLE shopkeeper; CREATE TABLE shop.goods (id int PRIMARY KEY); RESET ROLE")
        with open_session(as_role(any_dsn, "app")) as app:
            with pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
                attach(app, "shop.goods", 7)
            said = refused.value.diag
            assert said.message_primary == (
                "tube_admin, who owns pytube's functions, may not attach shop.goods, and app may not grant it"
            )
            hint = said.message_hint or ""
            assert hint == (
                "GRANT USAGE, CREATE ON SCHEMA shop TO tube_admin; "
                "GRANT SELECT, TRIGGER ON shop.goods TO tube_admin;"
            )
            assert scalar(app, "SELECT count(*) FROM tube_attachment") == 1
            with psycopg.connect(as_role(any_dsn, "shopkeeper"), autocommit=True) as shopkeeper:
                shopkeeper.execute(hint.encode())
            attach(app, "shop.goods", 7)
            admin.execute("INSERT INTO shop.goods VALUES (1)")
            assert scalar(app, 'SELECT count(*) FROM tube."es-live"') == 1

            for statement, what in (
                ("SELECT tube_table_ensure_detached('es-live', 'shop.goods')", "tube 'es-live'"),
                ("SELECT tube_table_ensure_detached(NULL, 'shop.goods')", "tube 'es-live'"),
                ("SELECT tube_ensure_absent('es-live')", "tube 'es-live'"),
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
                    app.execute(statement.encode())
                assert refused.value.diag.message_primary is not None
                assert refused.value.diag.message_primary.startswith(
                    f"{what}: app may not change the triggers of "
                )
                assert "Do it as " in (refused.value.diag.message_hint or "")
            assert scalar(admin, "SELECT count(*) FROM tube.tube_attachment") == 2
            admin.execute("GRANT shopkeeper TO app")
            app.execute("SELECT tube_table_ensure_detached(NULL, 'shop.goods')")


def test_two_at_once_who_grant_on_one_schema(dsn: str, conn: Conn) -> None:
    """Grants on one schema at the same time would fail each other; the second waits for the first."""
    make_tube(conn)
    make_tube(conn, "other")
    make_item(conn, "public.one")
    make_item(conn, "public.two")
    with open_session(dsn) as other:
        with conn.transaction():
            attach(conn, "public.one", 1)
            other.execute("SET statement_timeout = '200ms'")
            with pytest.raises(psycopg.errors.QueryCanceled):
                attach(other, "public.two", 2, tube="other")
            other.execute("RESET statement_timeout")
        attach(other, "public.two", 2, tube="other")
    assert scalar(conn, "SELECT count(*) FROM tube_attachment") == 2
