"""What is wrong with one attached table, or slow, is no trouble of other tables, tubes and roles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.helpers.capture import (
    TUBE,
    Conn,
    asked,
    attach,
    make_item,
    make_tube,
    open_session,
    ops,
    scalar,
    set_up_database,
    triggers,
)
from tests.helpers.database import preparing
from tests.helpers.roles import as_role, roles

LOOKS = {"tube_private_follow_ddl", "tube_private_see_ddl", "tube_wakes"}
"""What an event trigger of ours may call where there is nothing to follow: it wakes workers."""


prepare = preparing(set_up_database)


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version, with `item` attached."""
    with open_session(any_dsn) as conn:
        yield conn


@contextmanager
def owners(any_dsn: str) -> Iterator[tuple[Conn, Conn]]:
    """`keeper`, whose table `shop.doc` is attached and lacks a trigger, and `other`, who has a table, too."""
    with roles(any_dsn, "keeper", "other") as admin:
        admin.execute("CREATE SCHEMA shop AUTHORIZATION keeper; CREATE SCHEMA theirs AUTHORIZATION other")
        with (
            psycopg.connect(as_role(any_dsn, "keeper"), autocommit=True) as keeper,
            psycopg.connect(as_role(any_dsn, "other"), autocommit=True) as other,
        ):
            keeper.execute("CREATE TABLE shop.doc (id bigint PRIMARY KEY)")
            other.execute("CREATE TABLE theirs.thing (x int)")
            with open_session(any_dsn) as conn:
                make_tube(conn)
                attach(conn, "shop.doc")
                (name, *_) = triggers(conn, "shop.doc")
            keeper.execute(f'DROP TRIGGER "{name}" ON shop.doc'.encode())
            yield keeper, other


def calls(conn: Conn, *statements: str) -> dict[str, int]:
    """How often the statements have each of our functions called; they are rolled back."""
    count = "SELECT funcname, calls FROM pg_stat_xact_user_functions"
    with conn.transaction(force_rollback=True):
        before = dict(conn.execute(count).fetchall())
        conn.execute("SET LOCAL track_functions = 'all'")
        for statement in statements:
            conn.execute(statement.encode())
        after = dict(conn.execute(count).fetchall())
    return {
        name: number - before.get(name, 0) for name, number in after.items() if number > before.get(name, 0)
    }


def test_a_table_that_cannot_be_followed_fails_nobody_elses_ddl(any_dsn: str) -> None:
    with owners(any_dsn) as (keeper, other):
        keeper.execute("REVOKE ALL ON shop.doc FROM keeper")
        other.execute("ALTER TABLE theirs.thing ADD y int")
        other.execute("DROP TABLE theirs.thing")


def test_a_trigger_that_lacks_is_its_owners_to_make(any_dsn: str) -> None:
    said: list[str] = []
    with owners(any_dsn) as (keeper, other), open_session(any_dsn) as admin:
        admin.execute("GRANT tube_worker TO other; GRANT tube_admin TO keeper")
        other.add_notice_handler(lambda notice: said.append(f"{notice.message_primary}"))
        other.execute("SELECT tube.tube_sync()")
        assert said == [f"shop.doc belongs to keeper, who has to agree to what tube '{TUBE}' does with it"]
        assert len(triggers(admin, "shop.doc")) == 3
        keeper.execute("SELECT tube.tube_sync()")
        assert len(triggers(admin, "shop.doc")) == 4
        assert scalar(admin, "SELECT tube_sync()") == 0


def test_nobody_elses_ddl_waits_for_a_table_that_lacks_a_trigger(any_dsn: str) -> None:
    with owners(any_dsn) as (keeper, other), keeper.transaction():
        keeper.execute("INSERT INTO shop.doc VALUES (1)")
        other.execute("SET statement_timeout = '60s'")
        other.execute("ALTER TABLE theirs.thing ADD y int")
        other.execute("CREATE TABLE theirs.heir () INHERITS (theirs.thing)")
        other.execute("DROP TABLE theirs.thing CASCADE")


def test_ddl_of_another_table_of_the_same_tube(db: Conn) -> None:
    make_item(db, "public.second")
    attach(db, "public.second", 5)
    db.execute(f'DROP TRIGGER "{triggers(db)[0]}" ON public.item')
    with open_session(db.info.dsn) as writer, writer.transaction():
        writer.execute("INSERT INTO public.item VALUES (1)")
        db.execute("SET statement_timeout = '60s'")
        db.execute("ALTER TABLE public.second RENAME id TO ident")
        db.execute("SET statement_timeout = '25s'")
        db.execute("SELECT tube_sync()")
        assert scalar(db, "SELECT id_col FROM tube_list('public.second')") == "ident"
        assert len(triggers(db)) == 3
    db.execute("SELECT tube_sync()")
    assert len(triggers(db)) == 4


@pytest.mark.parametrize(
    "ddl",
    ["ALTER TABLE public.other SET (fillfactor = 50)", "DROP TABLE public.other", "CREATE TABLE public.x ()"],
)
def test_the_cost_of_ddl_does_not_grow_with_the_attached_tables(db: Conn, ddl: str) -> None:
    db.execute("CREATE TABLE public.other (x int)")
    found = calls(db, ddl)
    assert set(found) <= LOOKS, "it was looked at, and no more"
    assert all(number == 1 for number in found.values())


@pytest.mark.parametrize(
    "ddl", ["ALTER TABLE public.item RENAME id TO ident", "ALTER TABLE public.item SET (fillfactor = 50)"]
)
def test_ddl_of_an_attached_table_only_wakes_workers(db: Conn, ddl: str) -> None:
    found = calls(db, ddl)
    whose = {"tube_private_function", "tube_private_capture_schema"}
    assert set(found) <= LOOKS | {"tube_channel"} | whose
    assert all(number == 1 for name, number in found.items() if name not in whose)


def test_the_cost_of_an_attach_does_not_grow_with_the_attached_tables(db: Conn) -> None:
    bodies = []
    for n in range(2):
        for k in range(3):
            make_item(db, f"public.item_{n}_{k}")
            attach(db, f"public.item_{n}_{k}", 10 + 3 * n + k)
        make_item(db, f"public.late_{n}")
        found = calls(db, f"SELECT tube_table_ensure_attached('{TUBE}', 'public.late_{n}', 100)")
        bodies.append((found["tube_private_capture_body"], found["tube_private_owner_ddl"]))
    assert bodies[0] == bodies[1]


@contextmanager
def warned(conn: Conn) -> Iterator[list[str]]:
    """The warnings that the session gets meanwhile."""
    said: list[str] = []

    def hear(notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            said.append(f"{notice.message_primary} / {notice.message_hint}")

    conn.add_notice_handler(hear)
    try:
        yield said
    finally:
        conn.remove_notice_handler(hear)


def relate_note(conn: Conn) -> None:
    conn.execute("CREATE TABLE public.note (item bigint)")
    conn.execute("SELECT tube_table_ensure_attached(%s, 'public.note', 0, id_col => 'item')", (TUBE,))


NEW_ROOT = "public.note was related and is now the root table of shards 0 to 0 of tube 'es-live'"


def test_a_related_table_becomes_the_root_when_that_goes(db: Conn) -> None:
    relate_note(db)
    oid = scalar(db, "SELECT 'public.item'::regclass::oid")
    db.execute("DROP TABLE public.item")
    db.execute("INSERT INTO public.note VALUES (1)")
    assert ops(db) == [("U", 1)], "nobody has looked yet"
    with warned(db) as said:
        assert scalar(db, "SELECT tube_sync()") == 1
    dropped, heir = said
    assert dropped.startswith(
        f"a table of tube 'es-live' was dropped, and is detached: oid {oid}, attached as item with "
        "shards 0 to 0 /"
    )
    assert "A backfill of a table that is attached with these shards sweeps them." in dropped
    assert heir.startswith(NEW_ROOT)
    assert "documents of the ids in item" in heir
    db.execute("INSERT INTO public.note VALUES (1)")
    assert ops(db) == [("I", 1)]
    with warned(db) as said:
        assert scalar(db, "SELECT tube_sync()") == 0
    assert said == []


@pytest.mark.parametrize(
    "statement",
    [
        f"SELECT tube_table_ensure_detached('{TUBE}', 'public.item')",
        "SELECT tube_table_ensure_detached(NULL, 'public.item')",
        f"SELECT tube_table_ensure_attached('{TUBE}', 'public.item', 7)",
    ],
)
def test_who_takes_the_root_away_is_told_of_the_next_one(db: Conn, statement: str) -> None:
    relate_note(db)
    with warned(db) as said:
        db.execute(statement.encode())
    assert said[0].startswith(NEW_ROOT)
    assert len([text for text in said if "root table" in text]) == 1
    db.execute("INSERT INTO public.note VALUES (1)")
    assert ops(db) == [("I", 1)], "at once"
    assert scalar(db, "SELECT tube_sync()") == 0


def test_a_related_table_that_goes_leaves_the_root(db: Conn) -> None:
    relate_note(db)
    with warned(db) as said:
        db.execute(f"SELECT tube_table_ensure_detached('{TUBE}', 'public.note')")
        relate = f"SELECT tube_table_ensure_attached('{TUBE}', 'public.note', 0, id_col => 'item')"
        db.execute(relate.encode())
        db.execute("SELECT tube_ensure_absent('es-live')")
    assert said == []


def test_all_tables_of_a_shard_that_were_dropped_are_told_of(db: Conn) -> None:
    relate_note(db)
    db.execute("DROP TABLE public.item, public.note")
    make_item(db, "public.next")
    with warned(db) as said:
        attach(db, "public.next")
    assert [text.split(" as ")[1].split(" ")[0] for text in said] == ["item", "note"]
    assert "Its documents stay at the sink" in said[0]
    assert "Documents that show its rows stay as they are" in said[1]
    db.execute("INSERT INTO public.next VALUES (1)")
    assert ops(db) == [("I", 1)]


def test_a_dropped_table_whose_name_was_too_long_to_be_kept_is_told_by_its_number(db: Conn) -> None:
    make_tube(db, "x" * 57)
    db.execute("CREATE TABLE public.short (id int PRIMARY KEY)")
    attach(db, "public.short", tube="x" * 57)
    oid = scalar(db, "SELECT 'public.short'::regclass::oid")
    db.execute("DROP TABLE public.short")
    with warned(db) as said:
        db.execute("SELECT tube_sync()")
    assert f"is detached: oid {oid}, attached with" in said[0]


def test_any_error_of_one_tube_stops_no_other(db: Conn) -> None:
    """`a` takes no control pods, so no backfill can be asked for there."""
    said: list[str] = []
    db.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
    make_tube(db, "a")
    db.execute("CREATE TABLE public.log (id bigint, day int) PARTITION BY LIST (day)")
    attach(db, "public.log", tube="a")
    db.execute("ALTER TABLE tube.a ADD CONSTRAINT no_controls CHECK (payload IS NULL)")
    db.execute("CREATE TABLE public.log_1 (id bigint, day int); INSERT INTO public.log_1 VALUES (1, 1)")
    db.execute("ALTER TABLE public.log ATTACH PARTITION public.log_1 FOR VALUES IN (1)")
    db.execute("ALTER TABLE public.item RENAME id TO ident")
    said.clear()
    assert scalar(db, "SELECT tube_sync()") == 1
    (told,) = said
    assert told.startswith("public.log is not followed by tube 'a': ")
    assert "no_controls" in told
    assert scalar(db, "SELECT id_col FROM tube_list('public.item')") == "ident"
    db.execute("ALTER TABLE tube.a DROP CONSTRAINT no_controls")
    assert scalar(db, "SELECT tube_sync()") == 1
    assert asked(db, "a") == ["backfill_schedule"]


def test_triggers_of_two_tubes_that_would_have_the_same_name(db: Conn) -> None:
    db.execute("CREATE TABLE public.a (id bigint PRIMARY KEY)")
    make_tube(db, "b_c")
    make_tube(db, "c")
    attach(db, "public.a", tube="b_c")
    db.execute("ALTER TABLE public.a RENAME TO a_b")
    attach(db, "public.a_b", tube="c")
    assert len(triggers(db, "public.a_b")) == 8
    db.execute("INSERT INTO public.a_b VALUES (1)")
    assert ops(db, "b_c") == ops(db, "c") == [("I", 1)]
    assert scalar(db, "SELECT tube_sync()") == 1, "the first's put has the name of the table"
    assert scalar(db, "SELECT tube_sync()") == 0


def test_locks_are_waited_for_in_all_not_one_by_one(db: Conn) -> None:
    """What one statement has waited is taken from the time of those behind it."""
    look = "INSERT INTO public.seen SELECT current_setting('lock_timeout')"
    db.execute("CREATE TABLE public.seen (timeout text)")
    db.execute(
        "SELECT tube_private_patiently(%s, 'a test')",
        ([look, "SELECT pg_sleep(0.05)", look, "SELECT pg_sleep(0.1)", look],),
    )
    first, second, third = (int(row[0].removesuffix("ms")) for row in db.execute("TABLE public.seen"))
    assert first == 100
    assert 1 <= second <= 60
    assert third == 1, "0 would be for ever"
