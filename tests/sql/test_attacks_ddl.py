"""DDL between two looks: nothing is lost in silence by it, and no statement of anybody's fails over it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytube.db.install import install
from tests.helpers.capture import (
    TUBE,
    Conn,
    asked,
    attach,
    make_tube,
    open_session,
    ops,
    scalar,
    set_up,
    take,
)
from tests.helpers.database import preparing
from tests.sql.attackers import MALLORY, World

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]


def item_and_log(dsn: str) -> None:
    with open_session(dsn) as conn:
        set_up(conn)
        conn.execute(
            "CREATE TABLE public.log (id bigint PRIMARY KEY, value text) PARTITION BY RANGE (id);"
            "CREATE TABLE public.log_0 PARTITION OF public.log FOR VALUES FROM (0) TO (100);"
            "CREATE TABLE public.log_1 PARTITION OF public.log FOR VALUES FROM (100) TO (200)"
        )
        attach(conn, "public.log", 1)


prepare = preparing(item_and_log)


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version, with a tube, an attached table, and one in two parts."""
    with open_session(any_dsn) as conn:
        yield conn


def drop_trigger(conn: Conn, table: str, event: str) -> None:
    """Drop our trigger for an event, as its owner may."""
    name = scalar(
        conn,
        "SELECT quote_ident(tgname) FROM pg_trigger WHERE tgrelid = %s::regclass AND tgname LIKE %s",
        (table, f"%\\_{event}\\_trigger"),
    )
    conn.execute(f"DROP TRIGGER {name} ON {table}".encode())


@pytest.mark.parametrize("write", ["UPDATE public.log_0 SET value = 'b'", "TRUNCATE public.log_0"])
def test_a_part_that_leaves_is_written_to_and_comes_back(db: Conn, write: str) -> None:
    """In one transaction, so that no look is in between: its members are what they were."""
    db.execute("INSERT INTO public.log VALUES (1, 'a')")
    take(db)
    with db.transaction():
        db.execute("ALTER TABLE public.log DETACH PARTITION public.log_0")
        db.execute(write.encode())
        db.execute("ALTER TABLE public.log ATTACH PARTITION public.log_0 FOR VALUES FROM (0) TO (100)")
    assert asked(db) == ["backfill_schedule"]


def test_a_part_that_has_left_for_good_is_none_of_ours(db: Conn) -> None:
    db.execute("ALTER TABLE public.log DETACH PARTITION public.log_0")
    db.execute("SELECT tube_sync()")
    assert asked(db) == ["sweep"]
    take(db)
    db.execute("DELETE FROM tube.\"es-live\"; INSERT INTO public.log_0 VALUES (1, 'a')")
    assert asked(db) == []


@pytest.mark.parametrize(
    ("table", "event", "write"),
    [
        ("public.item", "insert", "INSERT INTO public.item VALUES (1)"),
        ("public.item", "update", "UPDATE public.item SET value = 'b'"),
        ("public.log_0", "insert", "INSERT INTO public.log_0 VALUES (2, 'a')"),
        ("public.log_0", "truncate", "TRUNCATE public.log_0"),
        ("public.log", "update", "UPDATE public.log SET value = 'b'"),
    ],
)
def test_triggers_that_were_gone_ask_for_a_backfill(db: Conn, table: str, event: str, write: str) -> None:
    """What was written meanwhile nothing has captured; nobody knows whether anything was."""
    db.execute("INSERT INTO public.item VALUES (7, 'a'); INSERT INTO public.log VALUES (7, 'a')")
    take(db)
    drop_trigger(db, table, event)
    db.execute(write.encode())
    assert take(db) == []
    assert scalar(db, "SELECT tube_sync()") == 1
    assert asked(db) == ["backfill_schedule"]
    db.execute(f'DELETE FROM tube."{TUBE}"'.encode())
    assert scalar(db, "SELECT tube_sync()") == 0
    assert asked(db) == []
    assert scalar(db, "SELECT count(*) FROM tube.tube_attachment WHERE waiting IS NOT NULL") == 0


def test_triggers_that_a_worker_finds_gone_ask_once_when_they_are_back(world: World) -> None:
    """Who may not make them looks twice a minute."""
    world.run(MALLORY, "INSERT INTO app.t VALUES (1, 1)")
    drop_trigger(world.admin, "app.t", "update")
    world.run(MALLORY, "UPDATE app.t SET v = 2")
    take(world.admin)
    for _ in range(2):
        world.run("worker", "SELECT tube.tube_sync()")
        assert asked(world.admin) == []
    world.admin.execute("SELECT tube_sync()")
    assert asked(world.admin) == ["backfill_schedule"]
    world.run("worker", "SELECT tube.tube_sync()")
    assert asked(world.admin) == ["backfill_schedule"]


VIRTUAL = {
    "predicate": "ALTER TABLE public.t DROP ok, ADD ok boolean GENERATED ALWAYS AS (base > 0) VIRTUAL",
    "columns": "ALTER TABLE public.t DROP v, ADD v int GENERATED ALWAYS AS (base * 2) VIRTUAL",
    "key": "ALTER TABLE public.t DROP id, ADD id bigint GENERATED ALWAYS AS (base + 1) VIRTUAL",
}


@pytest.mark.parametrize("ddl", VIRTUAL.values(), ids=VIRTUAL)
@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_a_column_that_becomes_a_virtual_one(dsn: str, ddl: str, isolation: str) -> None:
    """It has no value in the rows that a trigger sees, and to name it there fails the statement."""
    with open_session(dsn) as conn, open_session(dsn) as writer:
        conn.execute(
            "CREATE TABLE public.t (id bigint PRIMARY KEY, base int, ok boolean DEFAULT true,"
            " v int GENERATED ALWAYS AS (base * 2) STORED)"
        )
        make_tube(conn, predicate="ok")
        conn.execute("SELECT tube_table_ensure_attached('es-live', 'public.t', 0, columns => '{v}')")
        conn.execute("INSERT INTO public.t (id, base) VALUES (1, 1), (2, 2)")
        take(conn)
        writer.execute(f"BEGIN ISOLATION LEVEL {isolation}; SELECT count(*) FROM pg_class".encode())
        conn.execute(ddl.encode())
        writer.execute("UPDATE public.t SET base = base + 1")
        writer.execute("COMMIT")
        assert asked(conn) == ["backfill_schedule"]
        conn.execute("UPDATE public.t SET base = base + 1")
        conn.execute('SELECT tube_sync(); DELETE FROM tube."es-live"')
        conn.execute("UPDATE public.t SET base = base + 1")
        assert asked(conn) == (["backfill_schedule"] if "ok boolean" in ddl else [])
        assert ops(conn) == ([("U", 1), ("U", 2)] if "v int" in ddl else [])


def test_what_an_old_snapshot_has_planned_lasts_no_longer_than_it(db: Conn, any_dsn: str) -> None:
    """The guard is folded into plans, and an old snapshot can't tell one change of a column from another."""
    with open_session(any_dsn) as writer:
        db.execute("INSERT INTO public.item VALUES (1)")
        take(db)
        writer.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
        db.execute("ALTER TABLE public.item ALTER id SET STATISTICS 200")
        writer.execute("UPDATE public.item SET id = id; COMMIT")
        assert asked(db) == ["backfill_schedule"]
        db.execute(f'DELETE FROM tube."{TUBE}"')
        writer.execute("UPDATE public.item SET id = id")
        assert asked(db) == []
        assert ops(db) != []


@pytest.mark.parametrize("value", ["x", "5", '{"a": 1}', "[", "null"])
def test_a_setting_of_anybodys_fails_no_ddl(db: Conn, value: str) -> None:
    """A pool may hand the session on."""
    db.execute("SELECT set_config('pytube.rewritten', %s, false)", (value,))
    db.execute(
        "ALTER TABLE public.item ALTER value TYPE varchar(99), ADD at timestamptz DEFAULT clock_timestamp()"
    )
    assert scalar(db, "SELECT count(at) = count(*) FROM public.item")


TAKEN = {
    "touch": (
        "DROP FUNCTION app.t_touch",
        "CREATE FUNCTION app.t_touch(bigint[], character, jsonb, integer) RETURNS void LANGUAGE sql AS ''",
    ),
    "trigger": (
        'DROP TRIGGER "t_es-live_after_insert_trigger" ON app.t',
        "CREATE FUNCTION app.n() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        'CREATE TRIGGER "t_es-live_after_insert_trigger" AFTER DELETE ON app.t EXECUTE FUNCTION app.n()',
        f"""DO $$ BEGIN EXECUTE format('CREATE TRIGGER %I AFTER DELETE ON app.t EXECUTE FUNCTION app.n()',
            't_{TUBE}_' || left(md5('{TUBE}'), 8) || '_after_insert_trigger'); END $$""",
    ),
}


@pytest.mark.parametrize("taken", TAKEN.values(), ids=TAKEN)
def test_a_name_that_an_owner_has_taken_stops_no_installation(
    world: World, any_dsn: str, taken: tuple[str, ...]
) -> None:
    """It needs that name for their table; all else is brought in line."""
    world.run(MALLORY, *taken)
    drop_trigger(world.admin, "bank.acct", "insert")
    assert install(any_dsn).startswith("installed: version ")
    take(world.admin)
    world.run("writer", "INSERT INTO bank.acct VALUES (1, 1)")
    assert ops(world.admin) == [("I", 1)]


def test_a_backfill_reads_a_predicate_as_it_was_parsed(world: World) -> None:
    """With standard_conforming_strings off, what is in a literal here would be code."""
    world.admin.execute("ALTER TABLE bank.vault ADD s text DEFAULT 'x'")
    for table in ("app.t", "bank.acct"):
        world.admin.execute("SELECT tube_table_ensure_detached(NULL, %s)", (table,))
    make_tube(world.admin, predicate=r"s <> 'a\'' OR evil.strike() = 1 -- '")
    world.admin.execute("INSERT INTO bank.vault VALUES (1, 1); GRANT SELECT ON bank.vault TO worker")
    take(world.admin)
    world.admin.execute("ALTER ROLE worker SET standard_conforming_strings = off")
    with world.login("worker") as worker:
        step1 = scalar(worker, "SELECT tube.tube_backfill_step1()")
        worker.execute("SELECT tube.tube_backfill_step3(%s, 'es-live', 'bank.vault', 'id')", (step1,))
    assert take(world.admin)[0].id == 1
    world.nobody_was_robbed()


def test_a_part_that_is_locked_hides_no_id_column(db: Conn, any_dsn: str) -> None:
    """The doctor asks for all tables at once, and whoever owns a part may lock it for long."""
    db.execute(
        "CREATE TABLE public.day (id bigint, day int, PRIMARY KEY (id, day)) PARTITION BY LIST (day);"
        "CREATE TABLE public.day_1 PARTITION OF public.day FOR VALUES IN (1)"
    )
    attach(db, "public.day", 2)
    with open_session(any_dsn) as holder, holder.transaction():
        holder.execute("LOCK TABLE public.day_1 IN ACCESS EXCLUSIVE MODE")
        db.execute("SET statement_timeout = '5s'")
        assert scalar(db, "SELECT count(*) FROM tube_list() AS l, tube_id_column(l.tbl, l.id_col)") == 3
