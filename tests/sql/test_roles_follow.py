"""DDL of owners who have no right of ours, and how it is followed: by a worker, or by an owner."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from pytube.db.install import ScriptError, install, uninstall
from tests.helpers.capture import (
    TUBE,
    Conn,
    asked,
    attach,
    make_tube,
    open_session,
    ops,
    pods,
    scalar,
    set_up,
    triggers,
    unfollow,
)
from tests.helpers.roles import as_role, database_name, roles
from tests.helpers.waiting import LIMIT

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]

TREE = """
    CREATE TABLE shop.log (id bigint, day int, n int, PRIMARY KEY (id, day)) PARTITION BY LIST (day);
    CREATE TABLE shop.log_1 PARTITION OF shop.log FOR VALUES IN (1);
"""
LATE = """
    CREATE TABLE shop.late (id bigint NOT NULL, day int NOT NULL, n int, PRIMARY KEY (id, day));
    INSERT INTO shop.late VALUES (21, 7);
    ALTER TABLE shop.log ATTACH PARTITION shop.late FOR VALUES IN (7);
"""


@pytest.fixture
def admin(any_dsn: str) -> Iterator[Conn]:
    """A superuser's session: a partitioned table of `keeper`, who has no right of ours, is attached."""
    with roles(any_dsn, "keeper", "worker") as conn:
        conn.execute("SET search_path = tube, public")
        conn.execute("GRANT tube_worker TO worker")
        conn.execute("CREATE SCHEMA shop AUTHORIZATION keeper")
        conn.execute("SET ROLE keeper")
        conn.execute(TREE.encode())
        conn.execute("RESET ROLE")
        make_tube(conn)
        attach(conn, "shop.log")
        yield conn


@pytest.fixture
def keeper(any_dsn: str, admin: Conn) -> Iterator[Conn]:
    """The owner's session."""
    assert admin.info.user == "postgres"
    with psycopg.connect(as_role(any_dsn, "keeper"), autocommit=True) as conn:
        yield conn


def warned(conn: Conn, statement: str) -> tuple[object, list[str]]:
    """What a statement gives, and what it warns of, with hints."""
    said: list[str] = []

    def hear(notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            said.append(f"{notice.message_primary} | {notice.message_hint}")

    conn.add_notice_handler(hear)
    cursor = conn.execute(statement.encode())
    result = cursor.fetchone() if cursor.description else None
    conn.remove_notice_handler(hear)
    return None if result is None else result[0], said


def has_sweep(conn: Conn) -> bool:
    return any((payload or {}).get("type") == "sweep" for _, _, _, payload in pods(conn))


@pytest.fixture
def worker(any_dsn: str, admin: Conn) -> Iterator[Conn]:
    """A worker's session: it owns nothing, and may not read the table."""
    assert admin.info.user == "postgres"
    with open_session(as_role(any_dsn, "worker")) as conn:
        yield conn


ASKED = (
    f"shop.log belongs to keeper, who has to agree to what tube '{TUBE}' does with it"
    " | Until then its writes may ask for backfills, or not be captured."
    " Run as keeper: SELECT tube.tube_sync();"
)


def test_partitions_that_come_and_go(admin: Conn, keeper: Conn, worker: Conn) -> None:
    keeper.execute("CREATE TABLE shop.log_2 PARTITION OF shop.log FOR VALUES IN (2)")
    keeper.execute("INSERT INTO shop.log VALUES (4, 2)")
    keeper.execute("INSERT INTO shop.log_2 VALUES (5, 2), (6, 2)")
    keeper.execute("DELETE FROM shop.log_2 WHERE id = 6")
    assert ops(admin) == [("D", 6), ("I", 4), ("I", 5), ("I", 6)], "at once, by the event trigger"
    keeper.execute(LATE.encode())
    done, (told,) = warned(worker, "SELECT tube_sync()")
    assert done == 1
    assert told.startswith(
        f"changes of shop.log may be missing, so a backfill is asked for, for tube '{TUBE}': shop.late had"
    )
    assert asked(admin) == ["backfill_schedule"]
    ops(admin)
    assert warned(worker, "SELECT tube_sync()") == (0, [])
    assert len(triggers(admin, "shop.log_2")) == len(triggers(admin, "shop.late")) == 4
    keeper.execute("DELETE FROM shop.late")
    keeper.execute("INSERT INTO shop.log_1 VALUES (1, 1)")
    assert ops(admin) == [("D", 21), ("I", 1)]
    keeper.execute("DROP TABLE shop.log_2")
    assert warned(worker, "SELECT tube_sync()") == (1, [])
    assert has_sweep(admin)


def test_a_worker_asks_the_owner_to_take_triggers_off(admin: Conn, keeper: Conn, worker: Conn) -> None:
    """The rows that are gone are swept, once; what is written by then is none of the tube's."""
    keeper.execute("INSERT INTO shop.log_1 VALUES (1, 1)")
    keeper.execute("ALTER TABLE shop.log DETACH PARTITION shop.log_1")
    ops(admin)
    assert warned(worker, "SELECT tube_sync()")[1] == [ASKED]
    assert asked(admin) == ["sweep"]
    ops(admin)
    worker.execute("SELECT tube_sync()")
    keeper.execute("INSERT INTO shop.log_1 VALUES (2, 1)")
    assert pods(admin) == []
    admin.execute("GRANT tube_admin TO keeper")
    assert warned(keeper, "SELECT tube.tube_sync()") == (1, [])
    assert triggers(admin, "shop.log_1") == []


def test_names_of_an_owner_without_rights(admin: Conn, keeper: Conn, worker: Conn) -> None:
    """A worker can't change an owner's functions; it reads by the names of now, and writes ask."""
    keeper.execute("ALTER TABLE shop.log RENAME id TO ident")
    keeper.execute("ALTER TABLE shop.log RENAME TO journal")
    keeper.execute("INSERT INTO shop.journal VALUES (1, 1)")
    assert asked(admin) == ["backfill_schedule"]
    ops(admin)
    assert warned(worker, "SELECT tube_sync()")[1] == [ASKED.replace("shop.log", "shop.journal")]
    assert scalar(admin, "SELECT id_col FROM tube_list()") == "ident"
    keeper.execute("INSERT INTO shop.journal VALUES (2, 1)")
    assert asked(admin) == ["backfill_schedule"]
    ops(admin)
    admin.execute("GRANT tube_admin TO keeper")
    assert warned(keeper, "SELECT tube.tube_sync()") == (1, [])
    assert warned(worker, "SELECT tube_sync()") == (0, [])
    keeper.execute("INSERT INTO shop.journal VALUES (3, 1)")
    keeper.execute("SELECT shop.journal_touch('{4}')")
    assert ops(admin) == [("I", 3), ("T", 4)]


def test_a_worker_detaches_a_table_without_its_key(admin: Conn, keeper: Conn, worker: Conn) -> None:
    keeper.execute("ALTER TABLE shop.log DROP id")
    keeper.execute("INSERT INTO shop.log VALUES (1)")
    _, (told,) = warned(worker, "SELECT tube_sync()")
    assert told == (
        f"shop.log is detached from tube '{TUBE}': its key id was dropped, or has another type"
        " | Attach it again by another column: id_col => COLUMN, or several: key_cols => COLUMNS."
    )
    assert scalar(admin, "SELECT tbl FROM tube_list()") is None
    assert triggers(admin, "shop.log") == triggers(admin, "shop.log_1") == []
    keeper.execute("INSERT INTO shop.log VALUES (1)")


def test_replicated_partitions_of_an_owner_without_rights(admin: Conn, keeper: Conn, worker: Conn) -> None:
    """A trigger for replication has to be enabled, too, as the event trigger does."""
    admin.execute("SELECT tube_table_ensure_attached(%s, 'shop.log', 0, replica => true)", (TUBE,))
    keeper.execute("CREATE TABLE shop.log_2 PARTITION OF shop.log FOR VALUES IN (2)")
    assert warned(worker, "SELECT tube_sync()") == (0, [])
    admin.execute("SET session_replication_role = replica")
    admin.execute("INSERT INTO shop.log_2 VALUES (5, 2)")
    assert ops(admin) == [("I", 5)]
    admin.execute("RESET session_replication_role")


def test_ddl_of_others_is_none_of_ours(admin: Conn, keeper: Conn, worker: Conn) -> None:
    before = scalar(admin, "SELECT count(*) FROM pg_trigger")
    keeper.execute("CREATE TABLE shop.other (id int PRIMARY KEY)")
    keeper.execute("ALTER TABLE shop.other ADD n int")
    keeper.execute("CREATE TABLE shop.heir () INHERITS (shop.other)")
    assert warned(worker, "SELECT tube_sync()") == (0, [])
    keeper.execute("DROP TABLE shop.other CASCADE")
    assert scalar(admin, "SELECT count(*) FROM pg_trigger") == before
    assert scalar(admin, "SELECT relacl FROM pg_class WHERE relname = 'log_1'") is None, "nor are grants"


def test_a_partition_of_somebody_else(admin: Conn, keeper: Conn, worker: Conn) -> None:
    """Who gives it away is no owner of it any more; its triggers stay, and run as the owner of the table."""
    keeper.execute("CREATE TABLE shop.log_2 PARTITION OF shop.log FOR VALUES IN (2)")
    admin.execute("ALTER TABLE shop.log_2 OWNER TO worker")
    keeper.execute("INSERT INTO shop.log VALUES (4, 2)")
    admin.execute("INSERT INTO shop.log_2 VALUES (5, 2)")
    assert ops(admin) == [("I", 4), ("I", 5)]
    admin.execute("TRUNCATE shop.log_2")
    assert asked(admin) == ["sweep"], "nor are its rows read with the rights of that one"
    assert warned(worker, "SELECT tube_sync()") == (0, [])


def test_a_partition_that_waits_for_its_triggers_and_is_dropped(
    admin: Conn, keeper: Conn, worker: Conn
) -> None:
    """What was written to it by the name of the attached table is at the sink."""
    unfollow(admin)
    keeper.execute("CREATE TABLE shop.log_2 PARTITION OF shop.log FOR VALUES IN (2)")
    keeper.execute("INSERT INTO shop.log VALUES (4, 2)")
    worker.execute("SELECT tube_sync()")
    assert not has_sweep(admin)
    admin.execute("DROP TABLE shop.log_2")
    assert warned(worker, "SELECT tube_sync()") == (1, [])
    assert has_sweep(admin)


def test_one_table_that_cannot_be_followed_stops_no_other(admin: Conn, keeper: Conn, worker: Conn) -> None:
    admin.execute("CREATE TABLE public.plain (id int PRIMARY KEY)")
    attach(admin, "public.plain", 5)
    admin.execute("ALTER TABLE public.plain RENAME id TO ident")
    keeper.execute("DROP TABLE shop.log_1")
    done, said = warned(worker, "SELECT tube_sync()")
    assert (done, len(said)) == (2, 1)
    assert said[0].startswith("public.plain belongs to postgres, who has to agree")
    assert asked(admin) == ["sweep"]
    assert warned(admin, "SELECT tube_sync()") == (1, [])
    assert scalar(admin, "SELECT id_col FROM tube_list('public.plain')") == "ident"


def test_a_partition_that_is_locked_stops_no_other(admin: Conn, keeper: Conn, worker: Conn) -> None:
    """By its owner, or by a VACUUM FULL: to ask Postgres for the tree would wait for that."""
    admin.execute("CREATE TABLE public.plain (id int PRIMARY KEY)")
    attach(admin, "public.plain", 5)
    admin.execute("ALTER TABLE public.plain RENAME id TO ident")
    admin.execute("SET lock_timeout = '2s'")
    with keeper.transaction():
        keeper.execute("LOCK TABLE shop.log_1")
        worker.execute("SELECT tube_sync()")
        assert warned(admin, "SELECT tube_sync()") == (1, [])
    assert scalar(admin, "SELECT id_col FROM tube_list('public.plain')") == "ident"


# --- where no event trigger is ---------------------------------------------------------------------


def test_an_installation_without_superuser_follows_by_tube_sync(any_bare_dsn: str) -> None:
    name = database_name(any_bare_dsn)
    app, ours = f"app_{name}", f"ours_{name}"
    own = as_role(any_bare_dsn, app)
    with roles(any_bare_dsn, f"{app} CREATEROLE", ours=ours) as superuser:
        superuser.execute(f"GRANT CREATE ON DATABASE {name} TO {app}".encode())
        superuser.execute(f"CREATE SCHEMA shop AUTHORIZATION {app}".encode())
        install(own, roles=ours)
        assert scalar(superuser, "SELECT count(*) FROM pg_event_trigger") == 0
        with open_session(own) as conn:
            conn.execute(TREE.encode())
            make_tube(conn)
            attach(conn, "shop.log")
            conn.execute("CREATE TABLE shop.log_2 PARTITION OF shop.log FOR VALUES IN (2)")
            conn.execute(LATE.encode())
            assert scalar(conn, "SELECT tube_sync()") == 1
            assert asked(conn) == ["backfill_schedule"]
            conn.execute("INSERT INTO shop.log_2 VALUES (5, 2)")
            assert ops(conn) == [("I", 5)]
            conn.execute("ALTER TABLE shop.log RENAME id TO ident")
            conn.execute("INSERT INTO shop.log_2 VALUES (6, 2)")
            assert asked(conn) == ["backfill_schedule"]
            ops(conn)
            assert warned(conn, "SELECT tube_sync()") == (1, [])
            # A superuser who installs makes event triggers, once nobody else can act in their name.
            with pytest.raises(ScriptError, match="could act as") as refused:
                install(any_bare_dsn)
            remedy = re.search(r"REVOKE [^;]*", str(refused.value))
            assert remedy
            superuser.execute(remedy[0].encode())
            install(any_bare_dsn)
            assert scalar(conn, "SELECT count(*) FROM pg_event_trigger") > 0
            with open_session(any_bare_dsn) as serving:
                channel = scalar(serving, "SELECT tube_channel(%s)", (TUBE,))
                serving.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                conn.execute("SET pytube.wake = on")
                conn.execute("CREATE TABLE shop.log_3 PARTITION OF shop.log FOR VALUES IN (3)")
                assert [told.payload for told in serving.notifies(timeout=LIMIT, stop_after=1)] == ["ddl"]
                conn.execute("INSERT INTO shop.log_3 VALUES (8, 3)")
                assert ops(serving) == [("I", 8)]
                assert warned(serving, "SELECT tube_sync()") == (0, [])
        uninstall(any_bare_dsn, force=True)


# --- tables that become part of something ------------------------------------------------------------

PARTS = {
    "partition": "ALTER TABLE public.whole ATTACH PARTITION public.item FOR VALUES FROM (0) TO (9)",
    "heir": "ALTER TABLE public.item INHERIT public.parent",
    "parent": "CREATE TABLE public.child () INHERITS (public.item)",
}


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session with an attached table, and others that it may become part of."""
    with open_session(any_dsn) as conn:
        set_up(conn)
        conn.execute(
            "CREATE TABLE public.whole (LIKE public.item INCLUDING DEFAULTS) PARTITION BY RANGE (id)"
        )
        conn.execute("CREATE TABLE public.parent (id bigint NOT NULL)")
        yield conn


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())
def test_an_attached_table_that_became_a_part_is_detached(db: Conn, part: str) -> None:
    """What is written by another name would not be seen."""
    db.execute(part.encode())
    _, said = warned(db, "SELECT tube_sync()")
    assert said[0].startswith(f"public.item is detached from tube '{TUBE}': ")
    assert scalar(db, "SELECT tbl FROM tube_list()") is None
    assert triggers(db) == []
