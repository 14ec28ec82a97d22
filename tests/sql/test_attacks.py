"""Attempts to have code of one's own run with our rights, or to hide rows from us; each has to fail."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from tests.helpers.capture import (
    TABLE,
    TUBE,
    Conn,
    asked,
    attach,
    make_tube,
    open_session,
    ops,
    refusal,
    scalar,
    set_up_database,
    unfollow,
)
from tests.helpers.database import Prepare
from tests.helpers.roles import as_role, roles

FUNCTIONS = {
    # exact matches, which would be taken before those of pg_catalog that need a cast
    "format(text, text, text)": "text",
    "format(text, name, text)": "text",
    "strpos(text, text)": "int",
    "current_setting(text)": "text",
    "nextval(regclass)": "bigint",
    "pg_notify(text, text)": "void",
    "clock_timestamp()": "timestamptz",
    "left(text, int)": "text",
    "md5(text)": "text",
    "pg_typeof(bigint)": "regtype",
    "tube_private_wake_sleepers(text, int[])": "void",
    "tube_private_require(text)": "text",
    "same(int, int)": "boolean",
    "same(bigint, bigint)": "boolean",
    "same(text, text)": "boolean",
    "plus(bigint, bigint)": "bigint",
    "plus(int, int)": "int",
}
SHADOWS = (
    """
    CREATE SCHEMA evil;
    CREATE FUNCTION evil.strike() RETURNS void LANGUAGE plpgsql AS
        'BEGIN RAISE EXCEPTION ''code of the caller was run as %'', current_user; END';
"""
    + "".join(
        f"CREATE FUNCTION evil.{name} RETURNS {kind} LANGUAGE sql"
        f" AS 'SELECT evil.strike(); SELECT NULL::{kind}';\n"
        for name, kind in FUNCTIONS.items()
    )
    + """
    CREATE OPERATOR evil.= (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.same);
    CREATE OPERATOR evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.same);
    CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.same);
    CREATE OPERATOR evil.% (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.plus);
    CREATE OPERATOR evil.% (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.plus);
    CREATE OPERATOR evil.+ (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.plus);
    CREATE TABLE evil.tube_registry (tube text);
    CREATE TABLE evil.tube_sleeper (tube text);
    CREATE TABLE evil.tube_attachment (tube text);
    CREATE TABLE evil."es-live" (seq bigint);
    CREATE TABLE evil.pg_class (oid oid);
    CREATE TABLE evil.pg_proc (oid oid);
    CREATE DOMAIN evil.tube_shard AS text;
    GRANT USAGE ON SCHEMA evil TO PUBLIC;
"""
)
TEMPORARY = """
    CREATE TEMP TABLE tube_registry (tube text);
    CREATE TEMP TABLE tube_sleeper (tube text);
    CREATE TEMP TABLE tube_leader (tube text);
    CREATE TEMP TABLE tube_attachment (tube text);
    CREATE TEMP TABLE tube_parked (tube text);
    CREATE TEMP TABLE "es-live" (seq bigint);
    CREATE TEMP TABLE item (id text);
    CREATE TEMP TABLE pg_class (oid oid);
    CREATE TEMP TABLE pg_proc (oid oid);
    CREATE TEMP TABLE old_table (id bigint);
    CREATE TEMP TABLE new_table (id bigint);
    CREATE TYPE pg_temp.bigint AS ENUM ('x');
    CREATE FUNCTION pg_temp.format(text, text) RETURNS text LANGUAGE sql AS 'SELECT evil.strike(); SELECT $1';
"""
PATH = "SET search_path = evil, pg_temp, pg_catalog, public"

WRITES = """
    INSERT INTO public.item VALUES (1), (2), (3);
    UPDATE public.item SET value = 'x' WHERE id OPERATOR(pg_catalog.=) 1;
    UPDATE public.item SET id = 4 WHERE id OPERATOR(pg_catalog.=) 2;
    DELETE FROM public.item WHERE id OPERATOR(pg_catalog.=) 3
"""
WRITTEN = [("D", 2), ("D", 3), ("I", 1), ("I", 2), ("I", 3), ("I", 4), ("U", 1)]

CALLS = [
    "tube_ensure_exists('es-live', 2, 'id > 0')",
    "tube_ensure_exists('other', 3, 'value IS NULL')",
    "tube_table_ensure_attached('other', 'public.item', 7, 2)",
    "tube_table_ensure_attached('other', 'public.item', 9, 1)",
    "tube_index_sql('other', 8)",
    "tube_ensure_exists('other', 5)",
    "\"es-live_touch\"(0, '{5}', 'T')",
    "tube_list()",
    "tube_stats()",
    "tube_load()",
    "tube_instances()",
    "tube_kafka_report('00000000-0000-0000-0000-000000000002', 'me', '[]')",
    "tube_kafka_unreachable()",
    "tube_channel('es-live')",
    "tube_leader_epoch('es-live', 2, 0)",
    (
        "tube_leader_acquire('es-live', 2, 0, '00000000-0000-0000-0000-000000000001',"
        " '00000000-0000-0000-0000-000000000002', 'me', tube.tube_leader_epoch('es-live', 2, 0))"
    ),
    "tube_leader_wait('es-live', 2, 0, '00000000-0000-0000-0000-000000000001')",
    "tube_pods_mark('es-live', 2, 0, '00000000-0000-0000-0000-000000000001')",
    (
        "tube_pods_park('es-live', 2, 0, '00000000-0000-0000-0000-000000000001',"
        ' \'[{"shard":0,"id":"5","op":"T","seq":1,"error":"e","attempts":1}]\')'
    ),
    "tube_park_list()",
    "tube_pods_unpark('es-live', 2, 0, '00000000-0000-0000-0000-000000000001', '{0}', '{5}')",
    "tube_pods_reset('es-live', 2, 0, '00000000-0000-0000-0000-000000000001')",
    "tube_pods_purge('es-live', 2, 0, '00000000-0000-0000-0000-000000000001', '{1}')",
    "tube_sleep('es-live', 2, 0, '00000000-0000-0000-0000-000000000001')",
    "tube_wake('es-live', 0)",
    "tube_wakes()",
    "tube_leader_release('es-live', 2, 0, '00000000-0000-0000-0000-000000000001')",
    "tube_leaders()",
    "tube_terms('es-live')",
    "tube_lease_tick('es-live', '00000000-0000-0000-0000-000000000002', 'me', '5 seconds')",
    "tube_lease_ticks('{es-live}', '00000000-0000-0000-0000-000000000002', 'me', '5 seconds')",
    "tube_leaders_renew(NULL, '{00000000-0000-0000-0000-000000000001}')",
    "tube_lease_leave('es-live', '00000000-0000-0000-0000-000000000002')",
    "tube_lease_leave(NULL, '00000000-0000-0000-0000-000000000002')",
    "tube_settle_seq()",
    "tube_settle_holders('es-live')",
    "tube_settle_holders(NULL)",
    "tube_settle_writers(NULL)",
    "tube_pods_sql('es-live', 2, 0)",
    "tube_pods_delete('es-live', 2, 0, '{1}')",
    "tube_shard_of(7, 0, 4)",
    "tube_leader_rebase('es-live', 1)",
    "tube_table_ensure_detached('other', 'public.item')",
    "tube_id_column('public.item')",
    "tube_drop('other')",
]


@pytest.fixture
def prepare() -> Prepare:
    return set_up_database


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version, with a tube and an attached table."""
    with open_session(any_dsn) as conn:
        yield conn


# --- what is in the way of names ------------------------------------------------------------------


def test_a_writer_with_shadows_in_the_path(db: Conn, any_dsn: str) -> None:
    db.execute(SHADOWS)
    db.execute("INSERT INTO tube_sleeper SELECT %s, p, 4 FROM generate_series(0, 3) AS p", (TUBE,))
    db.execute("ALTER DATABASE " + str(scalar(db, "SELECT current_database()")) + " SET pytube.wake = on")
    with roles(any_dsn, "app") as admin:
        admin.execute(f"GRANT INSERT, UPDATE, DELETE, SELECT ON {TABLE} TO app".encode())
        with psycopg.connect(as_role(any_dsn, "app"), autocommit=True) as app:
            app.execute(TEMPORARY)
            app.execute(PATH)
            app.execute(WRITES.encode())
            with pytest.raises(psycopg.errors.RaiseException, match="was run as app"):
                app.execute("SELECT 1 = 1")
    assert ops(db) == WRITTEN


def test_an_admin_with_shadows_in_the_path(db: Conn, any_dsn: str) -> None:
    db.execute(SHADOWS)
    with psycopg.connect(any_dsn, autocommit=True) as conn:
        conn.execute(TEMPORARY)
        conn.execute(PATH)
        conn.execute(WRITES.encode())
        conn.execute("SELECT public.item_touch('{9}')")
        for call in CALLS:
            # with the ANALYZE of a queue, a plan of another kind, too
            conn.execute(f"SELECT * FROM tube.{call}".encode())
    assert [name for (name,) in db.execute("SELECT tube FROM tube_registry").fetchall()] == [TUBE]
    assert scalar(db, "SELECT predicate FROM tube_registry") == "id > 0"


def test_a_function_in_place_of_the_touch_function_stays_whose_it_is(db: Conn, any_dsn: str) -> None:
    """Taken for ours, it could be changed by its owner at any time, and writers would run it."""
    with roles(any_dsn, "app") as admin:
        admin.execute("CREATE SCHEMA shop AUTHORIZATION app")
        with psycopg.connect(as_role(any_dsn, "app"), autocommit=True) as app:
            app.execute("CREATE TABLE shop.goods (id int PRIMARY KEY)")
            app.execute(
                "CREATE FUNCTION shop.goods_touch(ids bigint[], op char DEFAULT 'T',"
                " payload jsonb DEFAULT NULL, chunk_size integer DEFAULT 250)"
                " RETURNS void LANGUAGE sql BEGIN ATOMIC SELECT; END"
            )
        with pytest.raises(psycopg.Error) as refused:
            attach(db, "shop.goods", 5)
        assert refused.value.sqlstate == "TU107"


# --- names that hold SQL ----------------------------------------------------------------------------

NAMES = [
    "x'; DROP TABLE public.canary; --",
    'x"; DROP TABLE public.canary; --',
    "x'); DROP TABLE public.canary; SELECT ('",
    "$$; DROP TABLE public.canary; $$",
    "$template$ || 1",
    "%s %I %L %1$s %%",
    "<queue> <id> <filter>",
    "back\\slash' \\",
    "' || evil() || '",
    "a -- b",
    "/* a",
    ":schema :'schema' {s}",
    "tube_registry ",
]


def test_names_that_hold_sql(db: Conn) -> None:
    db.execute("CREATE TABLE public.canary (id int)")
    for number, name in enumerate(NAMES):
        db.execute("SELECT tube_ensure_exists(%s, 2, %s)", (name, "value IS NULL OR value <> 'x''; --'"))
        table = sql.Identifier("public", f"{number} {name}"[:63])
        key = sql.Identifier(name)
        db.execute(sql.SQL("CREATE TABLE {} ({} bigint PRIMARY KEY, value text)").format(table, key))
        db.execute("SELECT tube_table_ensure_attached(%s, %s, 3, 4)", (name, table.as_string()))
        db.execute(sql.SQL("INSERT INTO {} VALUES (1), (2)").format(table))
        db.execute(sql.SQL("UPDATE {} SET value = 'y'").format(table))
        db.execute(sql.SQL("DELETE FROM {}").format(table))
        db.execute(sql.SQL("SELECT {}(4, '{{5}}', 'T')").format(sql.Identifier("tube", f"{name}_touch")))
        db.execute("SELECT tube_index_sql(%s, 8), tube_ensure_exists(%s, 8)", (name, name))
        db.execute("SELECT * FROM tube_stats()")
        statement = scalar(db, "SELECT tube_pods_sql(%s, 8, 4)", (name,))
        assert [row[1] for row in db.execute(statement.encode()).fetchall()][-1] == "T"
        term = (name, 8, 4, uuid4())
        db.execute(
            "SELECT tube_leader_acquire(%s, %s, %s, %s, %s, %s, tube_leader_epoch(%s, 8, 4))",
            (*term, uuid4(), name, name),
        )
        assert len(db.execute("SELECT * FROM tube_pods_mark(%s, %s, %s, %s)", term).fetchall()) > 1
        assert scalar(db, "SELECT tube_pods_reset(%s, %s, %s, %s)", term) > 1
        assert [op for op, _ in ops(db, name)] == ["D", "D", "I", "I", "T", "U", "U"]
        db.execute("SELECT tube_table_ensure_detached(%s, %s)", (name, table.as_string()))
        db.execute("SELECT tube_ensure_absent(%s)", (name,))
    assert scalar(db, "SELECT count(*) FROM public.canary") == 0
    assert scalar(db, "SELECT count(*) FROM tube_registry") == 1


# --- predicates -------------------------------------------------------------------------------------

# The owner of the table may run what they have made; nobody else does.
STRIKES = """
    CREATE FUNCTION public.only_app() RETURNS void LANGUAGE plpgsql AS
        'BEGIN IF current_user <> ''app'' THEN RAISE EXCEPTION ''was run as %'', current_user; END IF; END';
    CREATE FUNCTION public.strike(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
        'BEGIN PERFORM public.only_app(); RETURN true; END';
    CREATE DOMAIN public.checked AS text CHECK (public.strike(VALUE));
    CREATE TYPE public.pair AS (a int, b int);
    CREATE FUNCTION public.strike(public.pair) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS
        'BEGIN PERFORM public.only_app(); RETURN 7; END';
    CREATE CAST (public.pair AS bigint) WITH FUNCTION public.strike(public.pair) AS IMPLICIT;
    CREATE FUNCTION public.strike_text(public.pair) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
        'BEGIN PERFORM public.only_app(); RETURN ''x''; END';
    CREATE CAST (public.pair AS text) WITH FUNCTION public.strike_text(public.pair) AS IMPLICIT;
"""


PREDICATES: list[str] = [
    "value::public.checked IS NOT NULL",
    "'x'::public.checked IS NOT NULL",
    "ROW(1, 2)::public.pair > 1",
    "lower(ROW(1, 2)::public.pair) = 'x'",
    "value::xml IS NOT NULL AND public.strike(value)",
    "EXISTS (SELECT FROM tube.tube_registry)",
    "id = ANY (ARRAY(SELECT 1))",
    "pg_sleep(1) IS NULL",
    "pg_read_file('/etc/passwd') = ''",
    "set_config('role', 'none', false) = ''",
    "current_user = 'app'",
    "nextval('tube.tube_seq') > 0",
    "query_to_xml('SELECT 1', true, true, '') IS NULL",
]


def test_a_predicate_that_would_run_code(db: Conn) -> None:
    db.execute(STRIKES)
    for predicate in PREDICATES:
        with refusal("TU105", predicate) as error:
            make_tube(db, predicate=predicate)
        assert "was run as" not in str(error.value)
        assert scalar(db, "SELECT predicate FROM tube_registry") is None, predicate


@pytest.fixture
def robbed(db: Conn, any_dsn: str) -> Iterator[Conn]:
    """The table belongs to `app`, the predicate names a column of it, and there are casts that strike."""
    make_tube(db, predicate="value = 'x' OR value IS NULL")
    db.execute(STRIKES)
    with roles(any_dsn, "app") as admin:
        admin.execute(f"ALTER TABLE {TABLE} OWNER TO app".encode())
        admin.execute("GRANT CREATE ON SCHEMA public TO app")
        db.execute("SELECT tube_sync()")
        yield db


RETYPES = [
    "ALTER TABLE public.item DROP COLUMN {0}; ALTER TABLE public.item ADD COLUMN {0} public.pair",
    "ALTER TABLE public.item ALTER COLUMN {0} TYPE public.pair USING NULL",
]


def outcome(conn: Conn, statement: str) -> str | None:
    """The SQLSTATE of a statement, None if it succeeds; no code of the owner's runs as another."""
    refused: psycopg.Error | None = None
    try:
        conn.execute(statement.encode())
    except psycopg.Error as error:
        refused = error
    assert "was run as" not in str(refused)
    return None if refused is None else refused.sqlstate


@pytest.mark.each_value
@pytest.mark.parametrize("writer", ["app", "postgres"])
@pytest.mark.parametrize("column", ["id", "value"])
@pytest.mark.parametrize("how", RETYPES)
def test_a_column_that_gets_a_type_with_a_cast_of_its_own(
    robbed: Conn, any_dsn: str, column: str, writer: str, how: str
) -> None:
    """A cast is looked up when the trigger is planned: with the owner's rights, whoever writes."""
    with psycopg.connect(as_role(any_dsn, "app"), autocommit=True) as app:
        app.execute("ALTER TABLE public.item DROP CONSTRAINT item_pkey")
        app.execute("ALTER TABLE public.item ALTER id DROP NOT NULL")
        app.execute(how.format(column).encode())
    other = "7" if column == "value" else "'x'"
    other_column = "id" if column == "value" else "value"
    found = set()
    with psycopg.connect(as_role(any_dsn, writer), autocommit=True) as conn:
        for statement in (
            f"INSERT INTO {TABLE} ({column}, {other_column}) VALUES (ROW(1, 2), {other})",
            f"UPDATE {TABLE} SET {column} = ROW(3, 4)",
            f"TRUNCATE {TABLE}",
        ):
            found.add(outcome(conn, statement))
    assert asked(robbed) == ["backfill_schedule"]
    assert found == {None}, "no write fails"
    robbed.execute("SELECT tube_sync()")
    assert scalar(robbed, "SELECT tbl FROM tube_list()") == ("item" if column == "value" else None)


@pytest.mark.parametrize("column", ["id", "value"])
@pytest.mark.parametrize("statement", ["INSERT INTO public.item DEFAULT VALUES", "TRUNCATE public.item"])
def test_an_old_snapshot_hides_no_new_type(robbed: Conn, any_dsn: str, column: str, statement: str) -> None:
    """What the catalogue shows may be old; what a statement is planned by is not."""
    with psycopg.connect(as_role(any_dsn, "app")) as app:
        app.execute("ALTER TABLE public.item DROP CONSTRAINT item_pkey")
        app.execute("ALTER TABLE public.item ALTER id DROP NOT NULL")
        app.commit()
    with psycopg.connect(any_dsn) as writer:
        writer.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        writer.execute("SELECT FROM pg_class LIMIT 1")
        robbed.execute(RETYPES[1].format(column).encode())
        robbed.execute("SET session_replication_role = replica")
        robbed.execute(f"INSERT INTO {TABLE} ({column}) VALUES (ROW(1, 2))".encode())
        robbed.execute("RESET session_replication_role")
        assert outcome(writer, statement) is None


def test_a_backfill_reads_with_the_rights_of_its_caller(robbed: Conn, any_dsn: str) -> None:
    """What the owner of a table has made may run as whoever reads the table, and as nobody else."""
    robbed.execute(f"INSERT INTO {TABLE} VALUES (1)".encode())
    robbed.execute(RETYPES[1].format("value").encode())
    robbed.execute("ALTER ROLE app RENAME TO owner_of_item")
    with roles(any_dsn, "worker") as admin:
        admin.execute("GRANT tube_worker TO worker")
        admin.execute(f"GRANT SELECT ON {TABLE} TO worker".encode())
        with open_session(as_role(any_dsn, "worker")) as worker:
            start = scalar(worker, "SELECT tube_backfill_step1()")
            with pytest.raises(psycopg.Error, match="was run as worker"):
                worker.execute("SELECT tube_backfill_step3(%s, %s, %s, 'id')", (start, TUBE, TABLE))
            made = scalar(robbed, "SELECT tube_backfill_create(%s, %s)", (TUBE, TABLE))
            worker.execute("SELECT tube_backfill_lock(%s)", (made,))
            with pytest.raises(psycopg.Error, match="was run as worker"):
                worker.execute("SELECT tube_backfill_collect(%s)", (made,))
    robbed.execute("ALTER ROLE owner_of_item RENAME TO app")


def test_a_table_that_became_a_view_is_not_read(db: Conn, any_dsn: str) -> None:
    """Up to Postgres 15 the owner of an empty table can make a view of it, which calls their functions."""
    unfollow(db)
    db.execute("CREATE TABLE public.bare (id bigint)")
    attach(db, "public.bare", shard=5)
    with roles(any_dsn, "app") as admin:
        admin.execute("ALTER TABLE public.bare OWNER TO app; GRANT CREATE ON SCHEMA public TO app")
        with psycopg.connect(as_role(any_dsn, "app"), autocommit=True) as app:
            # Immutable: called as soon as a query is planned.
            app.execute(
                "CREATE FUNCTION public.strike() RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS"
                " 'BEGIN RAISE EXCEPTION ''code of the owner was run as %'', current_user; END'"
            )
            for (name,) in app.execute(
                "SELECT tgname FROM pg_trigger WHERE tgrelid = 'public.bare'::regclass"
            ).fetchall():
                app.execute(sql.SQL("DROP TRIGGER {} ON public.bare").format(sql.Identifier(name)))
            app.execute("VACUUM public.bare")  # forgets that it had triggers
            rule = 'CREATE RULE "_RETURN" AS ON SELECT TO public.bare DO INSTEAD SELECT public.strike() AS id'
            if db.info.server_version >= 160000:
                with pytest.raises(psycopg.Error, match="cannot have ON SELECT rules"):
                    app.execute(rule.encode())
                return
            app.execute(rule.encode())
        start = scalar(db, "SELECT tube_backfill_step1()")
        made = scalar(db, "SELECT tube_backfill_create(%s, 'public.bare')", (TUBE,))
        db.execute("SELECT tube_backfill_lock(%s)", (made,))
        assert scalar(db, "SELECT tube_backfill_collect(%s)", (made,)) is None
        assert "it is a view" in scalar(db, "SELECT note FROM tube_backfill WHERE state = 'failed'")
        with pytest.raises(psycopg.Error) as refused:
            db.execute("SELECT tube_backfill_step3(%s, %s, 'public.bare', 'id')", (start, TUBE))
        assert refused.value.sqlstate == "TU107", refused.value


# --- row-level security -----------------------------------------------------------------------------


def test_policies_hide_no_touch_from_us(db: Conn, any_dsn: str) -> None:
    with roles(any_dsn, "app", "keeper") as admin:
        admin.execute(f"INSERT INTO {TABLE} SELECT i, 'app' FROM generate_series(1, 4) i".encode())
        admin.execute(f"UPDATE {TABLE} SET value = 'other' WHERE id > 2".encode())
        ops(db)
        admin.execute(f"ALTER TABLE {TABLE} OWNER TO keeper".encode())
        admin.execute(f"GRANT ALL ON {TABLE} TO app".encode())
        admin.execute(f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY".encode())
        admin.execute(f"ALTER TABLE {TABLE} FORCE ROW LEVEL SECURITY".encode())
        admin.execute(f"CREATE POLICY own ON {TABLE} USING (value = current_user) WITH CHECK (true)".encode())
        make_tube(db, predicate="id > 0")
        attach(db, shard=1)
        with psycopg.connect(as_role(any_dsn, "app"), autocommit=True) as app:
            app.execute("SET row_security = on")
            app.execute(f"DELETE FROM {TABLE}".encode())
            app.execute(f"INSERT INTO {TABLE} VALUES (7, 'hidden from the writer')".encode())
        assert ops(db) == [("D", 1), ("D", 2), ("I", 7)]
        assert scalar(admin, f"SELECT count(*) FROM {TABLE}") == 3
