"""DDL of owners who have no right of ours, and how it is followed: at once, by a worker, by an owner."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from pytube.db.install import install, uninstall
from tests.helpers.capture import (
    TUBE,
    Conn,
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


def test_partitions_of_an_owner_without_rights_come_and_go(admin: Conn, keeper: Conn) -> None:
    keeper.execute("CREATE TABLE shop.log_2 PARTITION OF shop.log FOR VALUES IN (2)")
    keeper.execute("INSERT INTO shop.log_2 VALUES (5, 2)")
    keeper.execute(LATE.encode())
    assert ops(admin) == [("I", 5), ("I", 21)]
    keeper.execute("DELETE FROM shop.late")
    keeper.execute("INSERT INTO shop.log_1 VALUES (1, 1)")
    keeper.execute("ALTER TABLE shop.log DETACH PARTITION shop.log_1")
    assert ops(admin) == [("D", 1), ("D", 21), ("I", 1)]
    assert triggers(admin, "shop.log_1") == []
    keeper.execute("DROP TABLE shop.log_2")
    assert has_sweep(admin)


def test_keys_of_an_owner_without_rights(admin: Conn, keeper: Conn) -> None:
    keeper.execute("ALTER TABLE shop.log RENAME id TO ident")
    keeper.execute("ALTER TABLE shop.log RENAME TO journal")
    keeper.execute("INSERT INTO shop.journal VALUES (1, 1)")
    keeper.execute("SELECT shop.journal_touch('{2}')")
    assert ops(admin) == [("I", 1), ("T", 2)]
    _, said = warned(keeper, "ALTER TABLE shop.journal DROP ident")
    assert [text.split(" |")[0] for text in said] == [
        f"shop.journal is detached from tube '{TUBE}': its key ident was dropped, or has another type"
    ]
    assert triggers(admin, "shop.journal") == triggers(admin, "shop.log_1") == []


def test_replicated_partitions_of_an_owner_without_rights(admin: Conn, keeper: Conn) -> None:
    """A trigger for replication has to be enabled by the owner: it is, within the DDL."""
    admin.execute("SELECT tube_table_ensure_attached(%s, 'shop.log', 0, replica => true)", (TUBE,))
    keeper.execute("CREATE TABLE shop.log_2 PARTITION OF shop.log FOR VALUES IN (2)")
    admin.execute("SET session_replication_role = replica")
    admin.execute("INSERT INTO shop.log_2 VALUES (5, 2)")
    assert ops(admin) == [("I", 5)]
    admin.execute("RESET session_replication_role")


def test_ddl_of_others_is_none_of_ours(admin: Conn, keeper: Conn) -> None:
    before = scalar(admin, "SELECT count(*) FROM pg_trigger")
    keeper.execute("CREATE TABLE shop.other (id int PRIMARY KEY)")
    keeper.execute("ALTER TABLE shop.other ADD n int")
    keeper.execute("CREATE TABLE shop.heir () INHERITS (shop.other)")
    keeper.execute("DROP TABLE shop.other CASCADE")
    assert scalar(admin, "SELECT count(*) FROM pg_trigger") == before
    assert scalar(admin, "SELECT relacl FROM pg_class WHERE relname = 'log_1'") is not None


# --- where no event trigger is ---------------------------------------------------------------------


def test_a_worker_says_what_it_may_not_do(any_dsn: str, admin: Conn, keeper: Conn) -> None:
    unfollow(admin)
    keeper.execute("CREATE TABLE shop.log_2 PARTITION OF shop.log FOR VALUES IN (2)")
    keeper.execute("INSERT INTO shop.log VALUES (4, 2)")
    keeper.execute("INSERT INTO shop.log_2 VALUES (5, 2), (6, 2)")
    keeper.execute("DELETE FROM shop.log_2 WHERE id = 6")
    assert ops(admin) == [("I", 4)], "what is written by the name of the attached table is seen"
    with open_session(as_role(any_dsn, "worker")) as worker:
        done, said = warned(worker, "SELECT tube_sync()")
        assert done == 0
        (told,) = said
        assert told == (
            f"shop.log is not followed by tube '{TUBE}': tube_admin, who owns pytube's functions,"
            " may not follow shop.log"
            " | GRANT SELECT, TRIGGER ON shop.log_2 TO tube_admin;"
        )
        keeper.execute(told.split("| ")[1].encode())
        assert warned(worker, "SELECT tube_sync()") == (1, [])
        assert has_sweep(admin), "for what was deleted unseen"
        assert ops(admin) == [("I", 4), ("I", 5)]
        assert warned(worker, "SELECT tube_sync()") == (0, [])


def test_a_partition_that_waits_for_a_grant_and_is_dropped(any_dsn: str, admin: Conn, keeper: Conn) -> None:
    """What was written to it by the name of the attached table is at the sink."""
    unfollow(admin)
    keeper.execute("CREATE TABLE shop.log_2 PARTITION OF shop.log FOR VALUES IN (2)")
    keeper.execute("INSERT INTO shop.log VALUES (4, 2)")
    with open_session(as_role(any_dsn, "worker")) as worker:
        assert warned(worker, "SELECT tube_sync()")[0] == 0
        keeper.execute("CREATE TABLE shop.log_3 PARTITION OF shop.log FOR VALUES IN (3)")
        keeper.execute("INSERT INTO shop.log_3 VALUES (5, 3)")
        assert warned(worker, "SELECT tube_sync()")[0] == 0
        keeper.execute("DROP TABLE shop.log_2")
        assert not has_sweep(admin)
        keeper.execute("GRANT SELECT, TRIGGER ON shop.log_3 TO tube_admin")
        assert warned(worker, "SELECT tube_sync()") == (1, [])
    assert has_sweep(admin)
    assert ops(admin) == [("I", 4), ("I", 5)]


def test_a_partition_whose_drop_is_all_that_is_left(any_dsn: str, admin: Conn, keeper: Conn) -> None:
    unfollow(admin)
    keeper.execute("CREATE TABLE shop.log_2 PARTITION OF shop.log FOR VALUES IN (2)")
    keeper.execute("INSERT INTO shop.log VALUES (4, 2)")
    with open_session(as_role(any_dsn, "worker")) as worker:
        assert warned(worker, "SELECT tube_sync()")[0] == 0
        keeper.execute("DROP TABLE shop.log_2")
        assert warned(worker, "SELECT tube_sync()") == (1, [])
    assert has_sweep(admin)


def test_one_table_that_cannot_be_followed_stops_no_other(any_dsn: str, admin: Conn, keeper: Conn) -> None:
    unfollow(admin)
    admin.execute("CREATE TABLE public.plain (id int PRIMARY KEY)")
    attach(admin, "public.plain", 5)
    keeper.execute("CREATE TABLE shop.log_2 PARTITION OF shop.log FOR VALUES IN (2)")
    admin.execute("ALTER TABLE public.plain RENAME id TO ident")
    with open_session(as_role(any_dsn, "worker")) as worker:
        assert len(warned(worker, "SELECT tube_sync()")[1]) == 1
    assert scalar(admin, "SELECT id_col FROM tube_list('public.plain')") == "ident"


def test_default_privileges_let_a_worker_follow(any_dsn: str, admin: Conn, keeper: Conn) -> None:
    unfollow(admin)
    keeper.execute("ALTER DEFAULT PRIVILEGES IN SCHEMA shop GRANT SELECT, TRIGGER ON TABLES TO tube_admin")
    keeper.execute(LATE.encode())
    with open_session(as_role(any_dsn, "worker")) as worker:
        assert warned(worker, "SELECT tube_sync()") == (1, [])
    assert ops(admin) == [("I", 21)]
    keeper.execute("DELETE FROM shop.late")
    assert ops(admin) == [("D", 21)]


def test_a_worker_takes_no_trigger_off(any_dsn: str, admin: Conn, keeper: Conn) -> None:
    """Only an owner may. The rows that are gone are touched all the same, once."""
    unfollow(admin)
    keeper.execute("INSERT INTO shop.log_1 VALUES (1, 1)")
    keeper.execute("ALTER TABLE shop.log DETACH PARTITION shop.log_1")
    ops(admin)
    with open_session(as_role(any_dsn, "worker")) as worker:
        _, said = warned(worker, "SELECT tube_sync()")
        assert said[0].startswith(
            f"tube '{TUBE}': shop.log_1 is no part of shop.log any more, and still has its triggers |"
        )
        assert ops(admin) == [("D", 1)]
        worker.execute("SELECT tube_sync()")
        assert ops(admin) == []
    keeper.execute("INSERT INTO shop.log_1 VALUES (2, 1)")
    assert ops(admin) == [("I", 2)], "too much, and no error"
    admin.execute("GRANT tube_admin TO keeper")
    assert warned(keeper, "SELECT tube.tube_sync()") == (1, [])
    assert triggers(admin, "shop.log_1") == []


def test_a_worker_detaches_nothing_of_somebody_else(any_dsn: str, admin: Conn, keeper: Conn) -> None:
    unfollow(admin)
    keeper.execute("ALTER TABLE shop.log DROP id")
    keeper.execute("INSERT INTO shop.log VALUES (1)")
    with open_session(as_role(any_dsn, "worker")) as worker:
        _, said = warned(worker, "SELECT tube_sync()")
    (told,) = said
    assert told == (
        f"shop.log is not followed by tube '{TUBE}': tube '{TUBE}': tube_admin may not change the triggers"
        " of shop.log, which belongs to keeper"
        " | Run, as a role that is in tube_admin and in keeper: SELECT tube.tube_sync();"
    )
    admin.execute("GRANT tube_admin TO keeper")
    keeper.execute("SELECT tube.tube_sync()")
    assert scalar(admin, "SELECT tbl FROM tube_list()") is None
    keeper.execute("INSERT INTO shop.log VALUES (1)")


def test_a_worker_enables_nothing_for_replication(any_dsn: str, admin: Conn, keeper: Conn) -> None:
    admin.execute("SELECT tube_table_ensure_attached(%s, 'shop.log', 0, replica => true)", (TUBE,))
    unfollow(admin)
    keeper.execute("CREATE TABLE shop.log_2 PARTITION OF shop.log FOR VALUES IN (2)")
    keeper.execute("GRANT SELECT, TRIGGER ON shop.log_2 TO tube_admin")
    with open_session(as_role(any_dsn, "worker")) as worker:
        _, said = warned(worker, "SELECT tube_sync()")
    assert "may not change the triggers of shop.log_2" in said[0]
    assert triggers(admin, "shop.log_2") == [], "no trigger that would fire for the wrong writers"
    admin.execute("SELECT tube_sync()")
    admin.execute("SET session_replication_role = replica")
    admin.execute("INSERT INTO shop.log_2 VALUES (5, 2)")
    assert ops(admin) == [("I", 5)]


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
            assert warned(conn, "SELECT tube_sync()") == (1, [])
            conn.execute("INSERT INTO shop.log_2 VALUES (5, 2)")
            conn.execute("ALTER TABLE shop.log RENAME id TO ident")
            conn.execute("INSERT INTO shop.log_2 VALUES (6, 2)")
            assert ops(conn) == [("I", 5), ("I", 21), ("U", 6)]
            assert warned(conn, "SELECT tube_sync()") == (1, [])
            # A superuser who installs over it makes the event triggers; an upgrade goes on without them.
            install(any_bare_dsn)
            assert scalar(conn, "SELECT count(*) FROM pg_event_trigger") == 6
            install(own)
            conn.execute("CREATE TABLE shop.log_3 PARTITION OF shop.log FOR VALUES IN (3)")
            conn.execute("INSERT INTO shop.log_3 VALUES (8, 3)")
            assert ops(conn) == [("I", 8)]
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
def test_an_attached_table_becomes_no_part(db: Conn, part: str) -> None:
    """What is written by another name would not be seen."""
    with pytest.raises(
        psycopg.Error, match=f"item is attached to tube '{TUBE}', and can't stay so"
    ) as refused:
        db.execute(part.encode())
    assert refused.value.sqlstate == "TU107"
    db.execute("INSERT INTO public.item VALUES (1)")
    assert ops(db) == [("I", 1)]
    db.execute("SELECT tube_table_ensure_detached(%s, 'public.item')", (TUBE,))
    db.execute(part.encode())


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())
def test_an_attached_table_that_became_a_part_is_detached(db: Conn, part: str) -> None:
    unfollow(db)
    db.execute(part.encode())
    _, said = warned(db, "SELECT tube_sync()")
    assert said[0].startswith(f"public.item is detached from tube '{TUBE}': ")
    assert scalar(db, "SELECT tbl FROM tube_list()") is None
    assert triggers(db) == []
