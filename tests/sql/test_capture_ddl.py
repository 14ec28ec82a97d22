"""An attached table that is renamed, moved, changed, dropped, dumped: touches go on, or it is detached."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

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
    triggers,
    unfollow,
)
from tests.helpers.database import TestServer

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]

Follow = Callable[[Conn], None]


def attached_item(dsn: str) -> None:
    with open_session(dsn) as conn:
        set_up(conn, predicate="NOT deleted", shards=2)
        conn.execute("INSERT INTO item VALUES (1, 'a'), (2, 'b')")
        take(conn)


@pytest.fixture
def db(any_server: TestServer) -> Iterator[Conn]:
    """A session on each version, with `item` attached and two rows in it."""
    with (
        any_server.database(installed=True, prepare=attached_item) as dsn,
        open_session(dsn, client_encoding="utf8") as conn,
    ):
        conn.execute("SET search_path = public, tube")
        yield conn


@pytest.fixture(
    params=[
        "tube_sync",
        "tube_sync, no event triggers",
        "nothing yet",
        pytest.param("nothing, no event triggers", marks=pytest.mark.soak),
    ]
)
def follow(request: pytest.FixtureRequest, db: Conn) -> Follow:
    """What follows DDL: a call of `tube_sync`, or nothing so far. Event triggers make no difference."""
    if "no event triggers" in request.param:
        unfollow(db)
    return sync if "tube_sync" in request.param else lambda _conn: None


def sync(conn: Conn) -> None:
    conn.execute("SELECT tube_sync()")


def missed(conn: Conn, follow: Follow | None = None) -> bool:
    """Whether writes were not captured, and one backfill was asked for; never after tube_sync."""
    found = asked(conn)
    assert found in ([], ["backfill_schedule"])
    assert not (found and follow is sync)
    take(conn)
    return bool(found)


def warnings_of(conn: Conn) -> list[str]:
    """What the server says from now on."""
    said: list[str] = []
    conn.add_notice_handler(lambda notice: said.append(f"{notice.message_primary}"))
    return said


def keys(conn: Conn) -> list[int]:
    return sorted(key for _, key in ops(conn))


def test_a_renamed_key(db: Conn, follow: Follow) -> None:
    db.execute("ALTER TABLE item RENAME id TO ident")
    follow(db)
    db.execute("INSERT INTO item VALUES (3)")
    db.execute("UPDATE item SET value = 'x' WHERE ident < 3")
    db.execute("UPDATE item SET ident = 4 WHERE ident = 1")
    db.execute("DELETE FROM item WHERE ident = 2")
    if follow is sync:
        db.execute("SELECT item_touch('{9}')")
        found = take(db)
        assert sorted(touch.id for touch in found) == [1, 1, 2, 2, 3, 4, 9]
        assert all(touch.shard == touch.id % 2 for touch in found)
        db.execute("TRUNCATE item")
        assert keys(db) == [3, 4]
    else:
        assert missed(db)
    db.execute("SELECT tube_sync()")
    assert db.execute("SELECT id_col, root FROM tube_list()").fetchall() == [("ident", True)]
    db.execute("INSERT INTO item VALUES (5)")
    assert ops(db) == [("I", 5)]


def test_two_columns_that_change_names(db: Conn, follow: Follow) -> None:
    """A column is what its name says, be it another one than before; then a backfill is asked for."""
    db.execute("ALTER TABLE item ADD other bigint DEFAULT 77")
    with db.transaction():
        db.execute("ALTER TABLE item RENAME id TO third")
        db.execute("ALTER TABLE item RENAME other TO id")
    follow(db)
    db.execute("UPDATE item SET value = 'x'")
    db.execute("TRUNCATE item")
    found = asked(db)
    assert set(keys(db)) == {77}
    said = warnings_of(db)
    sync(db)
    assert found + asked(db) == ["backfill_schedule"]
    if not found:
        (told,) = said
        assert told.endswith(f"for tube '{TUBE}': its key id has another column, type or label now")
    assert scalar(db, "SELECT tube_sync()") == 0
    db.execute("INSERT INTO item (third, id) VALUES (5, 6)")
    assert ops(db) == [("I", 6)]


def test_columns_before_the_key_that_are_dropped(db: Conn, follow: Follow) -> None:
    db.execute("CREATE TABLE wide (a int, id int PRIMARY KEY, b int, deleted boolean DEFAULT false)")
    attach(db, "public.wide", 10)
    db.execute("INSERT INTO wide VALUES (70, 1, 71)")
    take(db)
    db.execute("ALTER TABLE wide DROP a, ADD c int DEFAULT 72")
    follow(db)
    db.execute("UPDATE wide SET b = 0")
    assert ops(db) == [("U", 1)]


@pytest.mark.parametrize(
    ("ddl", "predicate"),
    [
        ("RENAME deleted TO removed", "NOT removed"),
        ("ALTER deleted DROP DEFAULT, ALTER deleted TYPE text", "deleted <> 'true'"),
    ],
)
def test_a_column_of_the_predicate_that_gets_another_name_or_type(
    db: Conn, follow: Follow, ddl: str, predicate: str
) -> None:
    """Each write asks for a backfill then, until the predicate fits again."""
    db.execute("UPDATE item SET deleted = true WHERE id = 2")
    take(db)
    db.execute(f"ALTER TABLE item {ddl}".encode())
    follow(db)
    db.execute("UPDATE item SET value = 'x'")
    assert missed(db)
    said = warnings_of(db)
    db.execute("SELECT tube_sync()")
    assert len(said) == 1
    assert "is refused for public.item" in said[0]
    for write in ("UPDATE item SET value = 'y'", "INSERT INTO item VALUES (5)", "TRUNCATE item"):
        db.execute(write.encode())
        assert missed(db), write
    make_tube(db, predicate=predicate)
    db.execute("INSERT INTO item VALUES (3, 'c', 'false'), (4, 'd', 'true')")
    assert keys(db) == [3]


def test_renamed_columns_that_count(db: Conn, follow: Follow) -> None:
    db.execute("SELECT tube_table_ensure_attached(%s, 'item', 0, 2, columns => '{value}')", (TUBE,))
    db.execute("ALTER TABLE item RENAME value TO worth")
    follow(db)
    db.execute("UPDATE item SET worth = 'x' WHERE id = 1")
    assert keys(db) == [1] if follow is sync else missed(db)
    db.execute("SELECT tube_sync()")
    assert scalar(db, "SELECT columns FROM tube_list()") == ["worth"]
    db.execute("UPDATE item SET worth = worth")
    assert keys(db) == []
    db.execute("ALTER TABLE item DROP worth")
    follow(db)
    db.execute("UPDATE item SET deleted = false")
    assert ops(db) == [("U", 1), ("U", 2)] if follow is sync else missed(db)
    db.execute("SELECT tube_sync()")
    assert scalar(db, "SELECT columns FROM tube_list()") is None
    db.execute("UPDATE item SET deleted = false")
    assert ops(db) == [("U", 1), ("U", 2)]


def test_renamed_columns_of_a_replicated_table(db: Conn, follow: Follow) -> None:
    db.execute("SELECT tube_table_ensure_attached(%s, 'item', 0, 2, replica => true)", (TUBE,))
    db.execute("ALTER TABLE item RENAME id TO ident")
    db.execute("ALTER TABLE item RENAME deleted TO removed")
    follow(db)
    db.execute("SET session_replication_role = replica")
    db.execute("INSERT INTO item VALUES (3)")
    db.execute("UPDATE item SET ident = 4 WHERE ident = 1")
    db.execute("DELETE FROM item WHERE ident = 2")
    assert missed(db), "the predicate does not fit any more"
    db.execute("TRUNCATE item")
    assert missed(db)


def test_a_table_and_a_schema_that_are_renamed_and_moved(db: Conn, follow: Follow) -> None:
    db.execute("CREATE SCHEMA elsewhere")
    db.execute("ALTER TABLE item RENAME TO thing")
    db.execute("ALTER TABLE thing SET SCHEMA elsewhere")
    db.execute("ALTER SCHEMA elsewhere RENAME TO somewhere")
    follow(db)
    db.execute("INSERT INTO somewhere.thing VALUES (3)")
    db.execute("UPDATE somewhere.thing SET value = 'x' WHERE id = 1")
    assert ops(db) == [("I", 3), ("U", 1)]
    db.execute("SELECT tube_sync()")
    assert scalar(db, "SELECT tbl::text FROM tube_list()") == "somewhere.thing"
    db.execute("SELECT somewhere.thing_touch('{9}')")
    assert ops(db) == [("T", 9)]
    assert scalar(db, "SELECT count(*) FROM pg_proc WHERE proname IN ('item_touch', 'thing_touch')") == 1


@pytest.mark.parametrize(
    "change", ["ALTER TABLE item DROP id", "ALTER TABLE item ALTER id TYPE text", "DROP TABLE item"]
)
def test_a_key_or_a_table_that_is_gone_is_detached(db: Conn, follow: Follow, change: str) -> None:
    said = warnings_of(db)
    db.execute(change)
    if not change.startswith("DROP"):
        follow(db)
        db.execute("INSERT INTO item SELECT FROM item WHERE false")
        db.execute(
            "INSERT INTO item (value) VALUES ('x')" if "DROP" in change else "INSERT INTO item VALUES ('7')"
        )
        db.execute("UPDATE item SET value = 'x'")
        db.execute("DELETE FROM item")
        db.execute("TRUNCATE item")
        assert missed(db, follow) or follow is sync
    db.execute("SELECT tube_sync()")
    if not change.startswith("DROP"):
        told = f"public.item is detached from tube '{TUBE}': its key id was dropped, or has another type"
        assert said.count(told) == 1
    assert scalar(db, "SELECT tbl FROM tube_list()") is None
    assert scalar(db, "SELECT count(*) FROM tube_attachment") == 0
    assert scalar(db, "SELECT to_regproc('public.item_touch')") is None
    if not change.startswith("DROP"):
        assert triggers(db, "item") == []


def test_a_key_that_becomes_wider(db: Conn, follow: Follow) -> None:
    db.execute("CREATE TABLE small (id smallint PRIMARY KEY, deleted boolean DEFAULT false)")
    attach(db, "public.small", 10)
    db.execute("INSERT INTO small VALUES (1)")
    db.execute("ALTER TABLE small ALTER id TYPE bigint")
    follow(db)
    db.execute("INSERT INTO small VALUES (3000000000)")
    assert keys(db) == [1, 3000000000]


def test_a_dropped_schema(db: Conn, follow: Follow) -> None:
    db.execute("CREATE SCHEMA sh0007; CREATE TABLE sh0007.t (id int PRIMARY KEY, deleted boolean)")
    attach(db, "sh0007.t", None)
    db.execute("DROP SCHEMA sh0007 CASCADE")
    follow(db)
    db.execute("SELECT tube_sync()")
    assert scalar(db, "SELECT count(*) FROM tube_attachment") == 1


def test_ddl_of_other_tables_changes_nothing(db: Conn) -> None:
    before = db.execute("SELECT oid, xmin FROM pg_proc WHERE oid >= 16384").fetchall()
    db.execute("CREATE TABLE other (id int PRIMARY KEY); ALTER TABLE other ADD n int; DROP TABLE other")
    db.execute("CREATE TEMP TABLE other (id int)")
    assert db.execute("SELECT oid, xmin FROM pg_proc WHERE oid >= 16384").fetchall() == before
    assert scalar(db, "SELECT tube_sync()") == 0


def test_ddl_and_pending_touches_in_one_transaction(db: Conn) -> None:
    with db.transaction():
        db.execute("INSERT INTO item VALUES (3)")
        db.execute("ALTER TABLE item RENAME id TO ident")
        db.execute("UPDATE item SET value = 'x' WHERE ident = 3")
        db.execute("ALTER TABLE item DROP ident")
    assert asked(db) == ["backfill_schedule"]
    assert ops(db) == [("I", 3)]
    sync(db)
    assert scalar(db, "SELECT tbl FROM tube_list()") is None


def test_tube_sync_within_the_transaction_of_the_ddl(db: Conn) -> None:
    """A migration may call it at its end: nothing is captured by a makeshift then."""
    with db.transaction():
        db.execute("ALTER TABLE item RENAME id TO ident")
        db.execute("SELECT tube_sync()")
        db.execute("INSERT INTO item VALUES (3)")
    assert ops(db) == [("I", 3)]
    assert scalar(db, "SELECT tube_sync()") == 0


def test_columns_with_the_names_of_what_triggers_are_told(db: Conn, follow: Follow) -> None:
    db.execute(
        "ALTER TABLE item ADD tg_relid jsonb, ADD tg_op int, ADD cap_key bool, ADD cap_done json, ADD x json"
    )
    follow(db)
    db.execute(
        "INSERT INTO item SELECT g, 'x', g = 7, '{}', 1, true, '1', '{}' FROM generate_series(3, 700) AS g"
    )
    assert len(keys(db)) == 697
    db.execute("UPDATE item SET tg_op = 2, deleted = id = 8 WHERE id BETWEEN 6 AND 9")
    assert ops(db) == [("D", 8), ("I", 7), ("U", 6), ("U", 9)]
    db.execute("TRUNCATE item")
    assert len(keys(db)) == 699


def test_a_renamed_column_under_load_asks_once(db: Conn) -> None:
    db.execute("ALTER TABLE item RENAME deleted TO removed")
    for key in range(3, 60):
        db.execute("INSERT INTO item VALUES (%s)", (key,))
    with db.transaction():
        db.execute("INSERT INTO item VALUES (60); INSERT INTO item VALUES (61)")
    assert asked(db) == ["backfill_schedule"]


def test_a_request_that_can_not_be_met_is_none(db: Conn) -> None:
    """Of somebody who may touch: no worker can take it, so that it answers no writer."""
    wrong = '{"type": "backfill_schedule", "tbl": "public.item", "order_col": "nope"}'
    db.execute("SELECT \"es-live_touch\"(0, '{}', 'B', %s)", (wrong,))
    db.execute("ALTER TABLE item RENAME deleted TO removed; INSERT INTO item VALUES (3)")
    assert asked(db) == ["backfill_schedule", "backfill_schedule"]


def test_an_old_snapshot_asks_for_itself(any_dsn: str) -> None:
    """It still sees a request that a worker has taken, whose backfill waits for nobody who writes later."""
    with open_session(any_dsn) as db, open_session(any_dsn) as old:
        set_up(db, predicate="NOT deleted")
        db.execute("ALTER TABLE item RENAME deleted TO removed")
        db.execute("INSERT INTO item VALUES (1)")
        assert asked(db) == ["backfill_schedule"]
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT FROM pg_class")
        take(db)
        old.execute("INSERT INTO item VALUES (2)")
        old.execute("COMMIT")
        assert asked(db) == ["backfill_schedule"]


def test_writes_by_old_snapshots_ask_once(any_dsn: str) -> None:
    """In one transaction and its subtransactions, and in those that find a request waiting."""
    with open_session(any_dsn) as db:
        set_up(db, predicate="NOT deleted")
        db.execute("ALTER TABLE item RENAME deleted TO removed")
        db.execute("SET default_transaction_isolation = 'repeatable read'")
        with db.transaction():
            for key in range(3):
                with db.transaction():
                    db.execute("INSERT INTO item VALUES (%s)", (key,))
                db.execute("UPDATE item SET value = 'x'")
        assert asked(db) == ["backfill_schedule"]
        for key in range(3, 6):
            db.execute("INSERT INTO item VALUES (%s)", (key,))
        assert asked(db) == ["backfill_schedule"]


def test_a_key_that_is_dropped_and_made_anew(db: Conn) -> None:
    """Its name and its type are as they were, and its values are others."""
    db.execute("ALTER TABLE item DROP id; ALTER TABLE item ADD id bigint NOT NULL DEFAULT 5")
    db.execute("UPDATE item SET value = 'x'")
    assert set(keys(db)) == {5}
    sync(db)
    assert asked(db) == ["backfill_schedule"]


def test_columns_called_like_what_plpgsql_has(any_dsn: str) -> None:
    with open_session(any_dsn) as db:
        db.execute(
            'CREATE TABLE public.item (id bigint PRIMARY KEY, found int, tg_op text, "new" int, r int)'
        )
        make_tube(db, predicate="found > 0 AND tg_op = 'x' AND r > 0")
        db.execute(
            "SELECT tube_table_ensure_attached(%s, 'public.item', 0, columns => '{found,new}')", (TUBE,)
        )
        db.execute("INSERT INTO public.item VALUES (1, 1, 'x', 1, 1), (2, 0, 'x', 1, 1), (3, 1, 'y', 1, 1)")
        db.execute("UPDATE public.item SET r = 2")
        assert ops(db) == [("I", 1)]
        db.execute('UPDATE public.item SET "new" = 2')
        assert ops(db) == [("U", 1)]


@pytest.mark.parametrize(
    ("made", "column", "gone"),
    [
        (
            "CREATE FUNCTION public.twice(int) RETURNS int IMMUTABLE RETURN $1 * 2",
            "extra int GENERATED ALWAYS AS (public.twice(n)) STORED",
            "DROP FUNCTION public.twice CASCADE",
        ),
        (
            "CREATE TEXT SEARCH CONFIGURATION public.plain (COPY = pg_catalog.simple)",
            "extra tsvector GENERATED ALWAYS AS (to_tsvector('public.plain', n::text)) STORED",
            "DROP TEXT SEARCH CONFIGURATION public.plain CASCADE",
        ),
        (
            'CREATE COLLATION public.own FROM "C"',
            "extra text COLLATE public.own",
            "DROP COLLATION public.own CASCADE",
        ),
        ("CREATE VIEW public.shape AS SELECT 1 AS x", "extra public.shape", "DROP VIEW public.shape CASCADE"),
    ],
    ids=["function", "text search", "collation", "view"],
)
def test_a_column_that_goes_with_what_it_is_made_of(db: Conn, made: str, column: str, gone: str) -> None:
    """The statement that drops it names no table."""
    db.execute(made.encode())
    db.execute(
        f"CREATE TABLE wide (id int PRIMARY KEY, n int, {column}, deleted boolean DEFAULT false)".encode()
    )
    db.execute("SELECT tube_table_ensure_attached(%s, 'wide', 10, columns => '{extra}')", (TUBE,))
    db.execute(gone.encode())
    db.execute("INSERT INTO wide VALUES (1, 1)")
    db.execute("UPDATE wide SET n = 2")
    assert missed(db)
    sync(db)
    assert scalar(db, "SELECT columns FROM tube_list('wide')") is None
    db.execute("INSERT INTO wide VALUES (2, 1)")
    db.execute("UPDATE wide SET n = 2 WHERE id = 2")
    assert ops(db) == [("I", 2), ("U", 2)]


def test_a_key_that_goes_with_its_collation(db: Conn) -> None:
    db.execute(
        "CREATE COLLATION public.own FROM \"C\"; SELECT tube_ensure_exists('texts', key_type => 'text')"
    )
    db.execute("CREATE TABLE named (id text COLLATE public.own PRIMARY KEY, n int)")
    attach(db, "public.named", tube="texts")
    db.execute("DROP COLLATION public.own CASCADE")
    db.execute("INSERT INTO named VALUES (1)")
    sync(db)
    assert triggers(db, "public.named") == []
    assert take(db, "texts") == []


@pytest.mark.parametrize("state", ["ALWAYS", "REPLICA", "DISABLE"])
def test_whether_a_trigger_is_enabled_is_its_owners_to_say(db: Conn, state: str) -> None:
    how = "DISABLE TRIGGER" if state == "DISABLE" else f"ENABLE {state} TRIGGER"
    letter = {"ALWAYS": "A", "REPLICA": "R", "DISABLE": "D"}[state]
    found = "SELECT DISTINCT tgenabled::text FROM pg_trigger WHERE tgrelid = 'item'::regclass"
    for name in triggers(db, "item"):
        db.execute(f'ALTER TABLE item {how} "{name}"'.encode())
    assert scalar(db, "SELECT tube_sync()") == 0
    db.execute("ALTER TABLE item RENAME id TO ident")
    assert scalar(db, "SELECT tube_sync()") == 1
    assert db.execute(found.encode()).fetchall() == [(letter,)]
    db.execute("INSERT INTO item VALUES (3)")
    assert ops(db) == ([("I", 3)] if state == "ALWAYS" else [])


def test_a_trigger_that_is_renamed_or_dropped(db: Conn, follow: Follow) -> None:
    """A renamed one works as before; a dropped one is made again."""
    before = triggers(db, "item")
    (insert,) = (name for name in before if "_insert_" in name)
    (delete,) = (name for name in before if "_delete_" in name)
    db.execute(f'ALTER TRIGGER "{insert}" ON item RENAME TO other; DROP TRIGGER "{delete}" ON item'.encode())
    follow(db)
    db.execute("INSERT INTO item VALUES (3)")
    assert ops(db) == [("I", 3)]
    sync(db)
    assert triggers(db, "item") == sorted({*before, "other"} - {insert})
    db.execute("DELETE FROM item WHERE id = 3")
    assert ops(db) == [("D", 3)]


def test_row_triggers_of_the_owners_by_our_function_keep_none_of_ours_away(db: Conn) -> None:
    function = scalar(db, "SELECT format('tube_capture.%I', trigger_function) FROM tube_attachment")
    before = triggers(db)
    for name in ("one", "two"):
        db.execute(
            f"CREATE TRIGGER {name} AFTER INSERT OR UPDATE OR DELETE ON item"
            f" FOR EACH ROW EXECUTE FUNCTION {function}()".encode()
        )
    (insert,) = (name for name in before if "_insert_" in name)
    db.execute(f'DROP TRIGGER "{insert}" ON item'.encode())
    sync(db)
    assert triggers(db) == before
    db.execute("INSERT INTO item VALUES (3, 'c')")
    assert ops(db) == [("I", 3)]


def test_rows_that_are_rewritten_are_told_of_and_not_touched(db: Conn) -> None:
    warnings = warnings_of(db)
    db.execute("ALTER TABLE item ALTER value TYPE integer USING length(value)")
    assert warnings == [f"all rows of public.item are rewritten, without touches in tube '{TUBE}'"]
    db.execute("ALTER TABLE item ADD stamp timestamptz DEFAULT clock_timestamp()")
    assert len(warnings) == 2
    db.execute("ALTER TABLE item SET UNLOGGED, ALTER value TYPE bigint")
    assert len(warnings) == 3
    assert keys(db) == []
    warnings.clear()
    db.execute("CREATE TABLE other (id int); ALTER TABLE other ALTER id TYPE bigint")
    db.execute("ALTER TABLE item SET LOGGED")
    assert warnings == []


def test_what_a_related_table_missed_is_found_by_a_backfill_of_its_root_table(db: Conn) -> None:
    """Its own backfill would find no row that went, nor the document that a row was in before."""
    db.execute("CREATE TABLE public.part (nr int PRIMARY KEY, item int, deleted boolean DEFAULT false)")
    db.execute("SELECT tube_table_ensure_attached(%s, 'public.part', 0, 2, id_col => 'item')", (TUBE,))
    db.execute("INSERT INTO part VALUES (1, 1), (2, 1)")
    db.execute('DROP TRIGGER "part_es-live_after_update_trigger" ON part')
    db.execute("UPDATE part SET item = 2 WHERE nr = 1")
    take(db)
    said = warnings_of(db)
    sync(db)
    why = "public.part had no triggers, and may have rows"
    assert said == [
        f"changes of public.part may be missing, so a backfill is asked for, for tube '{TUBE}': {why}"
    ]
    asks = f"SELECT payload ->> 'tbl' FROM tube.\"{TUBE}\" WHERE payload ->> 'type' = 'backfill_schedule'"
    assert db.execute(asks.encode()).fetchall() == [("public.item",)]


def test_parts_that_are_rewritten_are_told_of_as_one_table(conn: Conn) -> None:
    make_tube(conn)
    conn.execute(
        "CREATE TABLE public.parted (id int, v text, d int, PRIMARY KEY (id, d)) PARTITION BY RANGE (d);"
        " CREATE TABLE public.p1 PARTITION OF parted FOR VALUES FROM (0) TO (9);"
        " CREATE TABLE public.p2 PARTITION OF parted FOR VALUES FROM (9) TO (19)"
    )
    attach(conn, "public.parted", 5)
    warnings = warnings_of(conn)
    conn.execute("ALTER TABLE parted ALTER v TYPE integer USING length(v)")
    told = f"all rows of public.parted are rewritten, without touches in tube '{TUBE}'"
    assert warnings == [told]
    if conn.info.server_version >= 170000:
        conn.execute("ALTER TABLE parted ADD g integer GENERATED ALWAYS AS (d) STORED")
        warnings.clear()
        conn.execute("ALTER TABLE p2 ALTER g SET EXPRESSION AS (d + 1)")
        assert warnings == [told], "a part may be rewritten alone"


def test_a_look_at_tables_that_are_as_they_should_be_grows_with_their_number_alone(conn: Conn) -> None:
    """Workers look twice a minute. Functions called for a table may not be called for each pair of tables."""
    make_tube(conn, predicate="v > 0")
    conn.execute("SET track_functions = 'all'")
    calls = {}
    for tables in (4, 16):
        for number in range(tables):
            conn.execute(
                f"CREATE TABLE IF NOT EXISTS public.x{number} (id bigint PRIMARY KEY, v integer)".encode()
            )
            attach(conn, f"public.x{number}", number)
        conn.execute("SELECT pg_stat_reset()")
        assert scalar(conn, "SELECT tube_sync()") == 0
        conn.execute("SELECT pg_stat_force_next_flush()")
        calls[tables] = scalar(conn, "SELECT sum(calls) FROM pg_stat_user_functions")
    assert calls[16] < calls[4] * 5


def test_a_key_that_is_unique_no_more(db: Conn) -> None:
    """Ids of a statement are told apart as long as nothing proves that they differ."""
    db.execute("ALTER TABLE item DROP CONSTRAINT item_pkey")
    assert scalar(db, "SELECT tube_sync()") == 1
    db.execute("INSERT INTO item VALUES (5, 'a'), (5, 'b'), (6, 'c')")
    assert ops(db) == [("I", 5), ("I", 6)]
    assert scalar(db, "SELECT tube_sync()") == 0
