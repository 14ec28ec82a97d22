"""Declared documents: companions of tubes, what relations lead to, and what goes with a tube."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql

from pytube.db.errors import translate
from pytube.errors import CompanionConflict, PytubeError, TubesNotEmpty, UnknownTube, WrongKind
from tests.helpers.capture import Conn, asked, let_writers_notify, open_session, pods, refusal, scalar, take
from tests.helpers.database import preparing
from tests.helpers.terms import Claim, acquire, mark, park, park_item

MAIN, COMPANION = "orders", "orders_relations"


def prepared(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("CREATE TABLE public.orders (id bigint PRIMARY KEY, customer bigint)")
        conn.execute("CREATE TABLE public.item (id bigint PRIMARY KEY, order_id bigint, product bigint)")
        conn.execute("CREATE TABLE public.product (id bigint PRIMARY KEY, name text)")
        conn.execute("SELECT tube_ensure_exists(%s, 4)", [MAIN])
        conn.execute("SELECT tube_table_ensure_attached(%s, 'public.orders', 0, 4)", [MAIN])
        conn.execute("SELECT tube_table_ensure_attached(%s, 'public.item', 0, 4, 'order_id')", [MAIN])
        ensure(conn)
        conn.execute(
            "SELECT tube_table_ensure_attached(%s, 'public.product', 12, columns => '{name}')", [COMPANION]
        )


prepare = preparing(prepared)


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session; the tube follows two tables by the order's key, its companion a third one."""
    with open_session(any_dsn) as conn:
        yield conn


def ensure(
    conn: Conn, tube: str | None = MAIN, companion: str | None = COMPANION, keys: str | None = "bigint"
) -> None:
    conn.execute("SELECT tube_companion_ensure(%s, %s, %s::regtype)", (tube, companion, keys))


def touch(
    conn: Conn,
    ids: list[Any] | None,
    op: str | None = "U",
    tube: str | None = MAIN,
    keys: LiteralString = "bigint",
) -> int:
    statement = sql.SQL("SELECT tube_document_touch(%s, %s, %s::{}[])").format(sql.SQL(keys))
    row = conn.execute(statement, (tube, op, ids)).fetchone()
    assert row
    return int(row[0])


def registered(conn: Conn, tube: str) -> tuple[str | None, str | None, int]:
    """What a tube is declared as, whose companion it is, and its version."""
    row = conn.execute(
        "SELECT declared, companion_of, version FROM tube_registry WHERE tube = %s", [tube]
    ).fetchone()
    assert row
    return row[0], row[1], row[2]


def tubes(conn: Conn) -> list[str]:
    return [row[0] for row in conn.execute("SELECT tube FROM tube_registry ORDER BY 1")]


# --- companions ----------------------------------------------------------------------------------------


def test_a_companion_is_a_tube_of_one_partition(db: Conn) -> None:
    ensure(db, companion="orders_relations_2", keys="text")
    rows = db.execute(
        "SELECT tube, companion_of, key_type::text, partitions, tbl FROM tube_documents()"
    ).fetchall()
    assert rows == [
        (MAIN, None, "bigint", 4, "public.orders"),
        (MAIN, None, "bigint", 4, "item"),
        (COMPANION, MAIN, "bigint", 1, "product"),
        ("orders_relations_2", MAIN, "text", 1, None),
    ]
    named = db.execute("SELECT tube_companions(%s)", [MAIN]).fetchall()
    assert [name for (name,) in named] == [COMPANION, "orders_relations_2"]
    assert db.execute("SELECT tube_companions(%s)", [COMPANION]).fetchall() == []


def test_what_is_attached_is_listed_as_it_is_attached(db: Conn) -> None:
    row = db.execute(
        "SELECT id_col, shard, shards, columns::text[] FROM tube_documents() WHERE tube = %s", [COMPANION]
    ).fetchone()
    assert row == ("id", 12, 1, ["name"])
    db.execute("DROP TABLE public.product")
    assert scalar(db, "SELECT count(tbl) FROM tube_documents() WHERE tube = %s", [COMPANION]) == 0


def test_one_that_is_there_stays_as_it_is(db: Conn) -> None:
    db.execute("SELECT tube_ensure_exists(%s, 3)", [COMPANION])
    before = db.execute("SELECT * FROM tube_registry ORDER BY tube").fetchall()
    ensure(db)
    assert db.execute("SELECT * FROM tube_registry ORDER BY tube").fetchall() == before
    db.execute("SELECT tube_ensure_exists(%s, 3)", [COMPANION])
    assert registered(db, COMPANION)[1] == MAIN


def test_a_companion_captures_the_values_of_links(db: Conn) -> None:
    db.execute("INSERT INTO product VALUES (7, 'x')")
    db.execute("UPDATE product SET name = 'y'")
    assert take(db, COMPANION) == [("I", 12, 7), ("U", 12, 7)]


REFUSED: list[tuple[tuple[str | None, str | None, str | None], type[PytubeError] | None, str]] = [
    (("none", "c", "bigint"), UnknownTube, "there is no tube 'none'"),
    ((None, "c", "bigint"), UnknownTube, "there is no tube NULL"),
    ((MAIN, None, "bigint"), None, "NULL is not a valid tube name"),
    ((MAIN, "a,b", "bigint"), None, "is not a valid tube name: it has a comma"),
    ((MAIN, "c", None), None, "the type of a companion's keys is NULL"),
    ((MAIN, "c", "date"), None, "the keys of tube 'c' can't have the type date"),
    ((MAIN, COMPANION, "text"), None, f"the keys of tube '{COMPANION}' have the type bigint, not text"),
    ((COMPANION, "c", "bigint"), CompanionConflict, f"tube '{COMPANION}' is a companion of tube 'orders'"),
    (
        (MAIN, "other", "bigint"),
        CompanionConflict,
        "tube 'other' exists, and is not a companion of tube 'orders'",
    ),
    (
        ("other", COMPANION, "bigint"),
        CompanionConflict,
        "is not a companion of tube 'other', but of tube 'orders'",
    ),
    (
        (MAIN, MAIN, "bigint"),
        CompanionConflict,
        "tube 'orders' exists, and is not a companion of tube 'orders'",
    ),
    ((MAIN, "box", "bigint"), WrongKind, "'box' is an outbox, not a tube"),
    (("box", "c", "bigint"), WrongKind, "'box' is an outbox, not a tube"),
]


def test_what_can_be_no_companion(db: Conn) -> None:
    db.execute("SELECT tube_ensure_exists('other')")
    db.execute("SELECT outbox_ensure_exists('box')")
    before = db.execute("SELECT * FROM tube_registry ORDER BY tube").fetchall()
    for arguments, kind, says in REFUSED:
        with pytest.raises(psycopg.Error, match=says) as caught:
            ensure(db, *arguments)
        assert kind is None or type(translate(caught.value)) is kind, arguments
        assert db.execute("SELECT * FROM tube_registry ORDER BY tube").fetchall() == before, arguments


# --- the declaration -----------------------------------------------------------------------------------


def declare(conn: Conn, digest: str | None, tube: str | None = MAIN) -> None:
    conn.execute("SELECT tube_document_declare(%s, %s)", (tube, digest))


def test_a_declaration_is_seen_by_its_version(db: Conn) -> None:
    version = registered(db, MAIN)[2]
    declare(db, "d1")
    assert registered(db, MAIN) == ("d1", None, version + 1)
    declare(db, "d1")
    assert registered(db, MAIN)[2] == version + 1
    assert db.execute("SELECT DISTINCT tube, declared FROM tube_documents() ORDER BY 1").fetchall() == [
        (MAIN, "d1"),
        (COMPANION, None),
    ]
    declare(db, None)
    assert registered(db, MAIN) == (None, None, version + 2)


@pytest.mark.parametrize(
    ("tube", "says"),
    [
        ("none", "there is no tube 'none'"),
        (None, "there is no tube NULL"),
        ("box", "is an outbox"),
        (COMPANION, "is a companion of tube 'orders': it is not a document"),
    ],
)
def test_what_can_be_no_document(db: Conn, tube: str | None, says: str) -> None:
    db.execute("SELECT outbox_ensure_exists('box')")
    with pytest.raises(psycopg.Error, match=says):
        declare(db, "d1", tube)
    assert scalar(db, "SELECT count(declared) FROM tube_registry") == 0


# --- touches of documents ------------------------------------------------------------------------------


def test_ids_land_where_those_of_the_root_do(db: Conn) -> None:
    db.execute("INSERT INTO public.orders SELECT g FROM generate_series(-5, 5) AS g")
    at_root = [(shard, key) for _, shard, key in take(db, MAIN)]
    assert touch(db, [*range(-5, 6), None]) == 11
    assert [(shard, key) for _, shard, key in take(db, MAIN)] == at_root


def test_the_root_is_the_first_in_the_lowest_shard(db: Conn) -> None:
    db.execute("SELECT tube_ensure_exists('many', 2)")
    for table, shard, shards in (("product", 6, 1), ("item", 2, 3), ("public.orders", 2, 3)):
        db.execute("SELECT tube_table_ensure_attached('many', %s::regclass, %s, %s)", (table, shard, shards))
    assert touch(db, [3, 4, 5], tube="many") == 3
    assert take(db, "many") == [("U", 2, 3), ("U", 3, 4), ("U", 4, 5)]
    db.execute("DROP TABLE item")
    assert touch(db, [4], tube="many") == 1
    assert take(db, "many") == [("U", 3, 4)]


@pytest.mark.parametrize("op", ["U", "B"])
def test_many_ids_are_pods_of_250(db: Conn, op: str) -> None:
    count = 4 * 5000 * 2 + 17
    assert touch(db, [None, *range(count), None], op) == count
    found = pods(db, MAIN)
    assert {(made, payload) for made, _, _, payload in found} == {(op, None)}
    assert sorted(key for _, _, ids, _ in found for key in ids) == list(range(count))
    assert max(len(ids) for _, _, ids, _ in found) == 250
    assert len(found) <= 1.1 * count / 250 + 4
    assert all(key % 4 == shard for _, shard, ids, _ in found for key in ids)


@pytest.mark.parametrize(("keys", "key"), [("uuid", uuid.uuid4()), ("text", "é\\'")])
def test_other_keys(db: Conn, keys: LiteralString, key: Any) -> None:
    db.execute(sql.SQL("CREATE TABLE public.other (id {} PRIMARY KEY)").format(sql.SQL(keys)))
    db.execute("SELECT tube_ensure_exists('others', 2, NULL, %s::regtype)", [keys])
    db.execute("SELECT tube_table_ensure_attached('others', 'public.other', 3, 100)")
    db.execute("INSERT INTO other VALUES (%s)", [key])
    ((_, shard, _),) = take(db, "others")
    assert touch(db, [key], tube="others", keys=keys) == 1
    assert take(db, "others") == [("U", shard, key)]


@pytest.mark.parametrize("keys", ["smallint", "integer"])
def test_smaller_numbers(db: Conn, keys: LiteralString) -> None:
    assert touch(db, [9], keys=keys) == 1
    assert take(db, MAIN) == [("U", 1, 9)]


@pytest.mark.parametrize("ids", [None, [], [None]])
def test_no_ids(db: Conn, ids: list[Any] | None) -> None:
    assert touch(db, ids) == 0
    assert pods(db, MAIN) == []


REFUSED_TOUCHES: list[tuple[dict[str, Any], str]] = [
    ({"tube": "none"}, "TU102"),
    ({"tube": None}, "TU102"),
    ({"tube": "box"}, "TU111"),
    ({"tube": "bare"}, "TU108"),
    ({"op": "I"}, "22023"),
    ({"op": "u"}, "22023"),
    ({"op": None}, "22004"),
    ({"keys": "text", "ids": ["x"]}, "22P02"),
    ({"keys": "uuid", "ids": [uuid.UUID(int=1)]}, "42846"),
    ({"keys": "numeric"}, "42804"),
    ({"keys": "date", "ids": ["2026-01-01"]}, "42804"),
]


def test_touches_that_are_refused(db: Conn) -> None:
    db.execute("SELECT tube_ensure_exists('bare')")
    db.execute("SELECT outbox_ensure_exists('box')")
    for arguments, state in REFUSED_TOUCHES:
        with refusal(state, arguments):
            touch(db, **{"ids": [1], **arguments})
        assert pods(db, MAIN) == [], arguments


def test_a_transaction_has_its_id_before_it_draws(db: Conn, any_dsn: str) -> None:
    """The settled seq rests on it."""
    with open_session(any_dsn) as other, db.transaction():
        touch(db, [1])
        writers = scalar(other, "SELECT tube_settle_writers(%s)::text[]", [MAIN])
        assert writers == [scalar(db, "SELECT pg_current_xact_id()::text")]


def test_those_are_woken_who_sleep_on_the_shards(db: Conn) -> None:
    let_writers_notify(db)
    db.execute(sql.SQL("LISTEN {}").format(sql.Identifier(scalar(db, "SELECT tube_channel(%s)", [MAIN]))))
    for partition in (1, 2):
        db.execute("INSERT INTO tube_sleeper VALUES (%s, %s, 4)", (MAIN, partition))
    flag = scalar(db, "SELECT 'tube_sleeps_' || number FROM tube_registry WHERE tube = %s", [MAIN])
    db.execute("SELECT setval(%s::regclass, 1)", [flag])
    touch(db, [1])
    db.execute("SELECT setval(%s::regclass, 2)", [flag])
    touch(db, [None])
    touch(db, [0, 3])
    touch(db, [2, 3])
    touch(db, [1])
    assert [note.payload for note in db.notifies(timeout=0)] == ["2", "1"]


# --- what is dropped -----------------------------------------------------------------------------------


def test_companions_go_with_their_tube(db: Conn) -> None:
    ensure(db, companion="orders_relations_2", keys="uuid")
    db.execute("INSERT INTO product VALUES (7)")
    db.execute("SELECT tube_ensure_absent(%s)", [MAIN])
    assert tubes(db) == []
    left = (
        "SELECT count(*) FROM pg_class WHERE relname LIKE 'orders_relations%' OR relname LIKE 'tube_sleeps%'"
    )
    assert scalar(db, left) == 0
    db.execute("INSERT INTO product VALUES (8)")


def test_a_tube_is_not_dropped_for_what_its_companions_have(db: Conn) -> None:
    db.execute("SELECT tube_table_ensure_detached(%s, 'public.orders')", [MAIN])
    db.execute("SELECT tube_table_ensure_detached(%s, 'public.item')", [MAIN])
    db.execute("INSERT INTO product VALUES (7)")
    refused = f"tube '{COMPANION}' is not dropped: "
    for mend, says in (
        ("SELECT tube_table_ensure_detached(%s, 'public.product')", "attached tables: 1; pods that wait: 1"),
        (sql.SQL("DELETE FROM {} WHERE %s <> ''").format(sql.Identifier(COMPANION)), "pods that wait: 1"),
    ):
        with pytest.raises(psycopg.Error, match=refused + says) as caught:
            db.execute("SELECT tube_drop(%s)", [MAIN])
        assert type(translate(caught.value)) is TubesNotEmpty
        db.execute(mend, [COMPANION])
    db.execute("SELECT tube_drop(%s)", [MAIN])
    assert tubes(db) == []


def test_a_companion_alone_goes_by_force_only(db: Conn) -> None:
    with pytest.raises(psycopg.Error, match="is a companion of tube 'orders'") as caught:
        db.execute("SELECT tube_drop(%s)", [COMPANION])
    assert type(translate(caught.value)) is CompanionConflict
    db.execute("SELECT tube_drop(%s, true)", [COMPANION])
    assert tubes(db) == [MAIN]
    ensure(db)
    db.execute("SELECT tube_ensure_absent(%s)", [COMPANION])
    assert tubes(db) == [MAIN]


GOES: dict[str, LiteralString] = {
    "detached": "SELECT tube_table_ensure_detached('orders_relations', 'public.product')",
    "detached from all": "SELECT tube_table_ensure_detached(NULL, 'public.product')",
    "its companion is dropped": "SELECT tube_drop('orders_relations', true)",
    "its companion is to be absent": "SELECT tube_ensure_absent('orders_relations')",
    "its link goes": "ALTER TABLE product DROP COLUMN id CASCADE; SELECT tube_sync()",
    "its table goes": "DROP TABLE product; SELECT tube_sync()",
}


@pytest.mark.every_server
@pytest.mark.each_value
@pytest.mark.parametrize("what", GOES)
@pytest.mark.parametrize("waits", ["pods", "parked", "nothing"])
def test_links_that_wait_in_a_relation_that_goes_are_made_good(db: Conn, what: str, waits: str) -> None:
    """Documents may show the rows still: by another link, or by another relation."""
    declare(db, "d1")
    if waits == "pods":
        db.execute("INSERT INTO product VALUES (7)")
    elif waits == "parked":
        park(db, acquire(db, Claim(tube=COMPANION)), park_item(7, shard=12))
    with db.transaction():
        db.execute(GOES[what])
        assert schedules(db) == ([] if waits == "nothing" else [(0, ASKED)])


def test_links_of_other_relations_ask_for_nothing(db: Conn) -> None:
    declare(db, "d1")
    db.execute("SELECT tube_table_ensure_attached(%s, 'public.item', 20, 1, 'product')", [COMPANION])
    db.execute("INSERT INTO item VALUES (1, 1, 1)")
    db.execute(GOES["detached"])
    assert schedules(db) == []


def test_an_old_snapshot_does_not_show_all_links_that_wait(db: Conn, any_dsn: str) -> None:
    declare(db, "d1")
    with open_session(any_dsn) as other, db.transaction():
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        db.execute("SELECT 1 FROM tube_registry")
        other.execute("INSERT INTO product VALUES (7)")
        db.execute(GOES["detached"])
    assert schedules(db) == [(0, ASKED)]


@pytest.mark.parametrize("statement", ["SELECT tube_ensure_absent(%s)", "SELECT tube_drop(%s, true)"])
def test_where_all_goes_nothing_is_asked_for(db: Conn, statement: LiteralString) -> None:
    declare(db, "d1")
    db.execute("INSERT INTO product VALUES (7)")
    said: list[str | None] = []
    db.add_notice_handler(lambda notice: said.append(notice.message_primary))
    db.execute(statement, [MAIN])
    assert (tubes(db), said) == ([], [])


def test_what_is_no_document_any_more_asks_for_nothing(db: Conn) -> None:
    db.execute("INSERT INTO product VALUES (7)")
    db.execute(GOES["detached"])
    assert schedules(db) == []


# --- what could not be captured ------------------------------------------------------------------------


def schedules(conn: Conn, tube: str = MAIN) -> list[tuple[int, dict[str, Any]]]:
    """Shard and payload of the control pods that wait."""
    return [(shard, payload) for _, shard, ids, payload in pods(conn, tube) if payload and not ids]


ASKED = {"type": "backfill_schedule", "tbl": "public.orders", "order_col": "id", "resync": True}


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_truncate_with_an_old_snapshot_asks_for_all_documents(db: Conn, any_dsn: str, level: str) -> None:
    """It does not see each row that goes, and a row that is gone leads to no document."""
    with open_session(any_dsn) as other, db.transaction():
        db.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        db.execute("SELECT 1 FROM tube_registry")
        other.execute("INSERT INTO product VALUES (5)")
        take(other, COMPANION)
        db.execute("TRUNCATE product")
    assert schedules(db) == [(0, ASKED)]
    assert asked(db, COMPANION) == []


def test_truncate_touches_each_link_that_was_there(db: Conn) -> None:
    db.execute("INSERT INTO product VALUES (5), (6)")
    take(db, COMPANION)
    db.execute("TRUNCATE product")
    assert take(db, COMPANION) == [("D", 12, 5), ("D", 12, 6)]
    assert schedules(db) == []


def test_one_request_waits_at_a_time(db: Conn) -> None:
    for _ in range(3):
        with db.transaction():
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            db.execute("TRUNCATE product")
    assert schedules(db) == [(0, ASKED)]
    db.execute(sql.SQL("UPDATE {} SET leader_id = gen_random_uuid()").format(sql.Identifier(MAIN)))
    with db.transaction():
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        db.execute("TRUNCATE product")
    assert schedules(db) == [(0, ASKED)] * 2, "one that a term has taken may have read the rows before"


def test_a_snapshot_from_before_the_document(any_dsn: str, db: Conn) -> None:
    """It shows neither the companion nor what its tube follows; what is generated knows."""
    db.execute("SELECT tube_ensure_absent(%s)", [MAIN])
    with open_session(any_dsn) as other, db.transaction():
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        db.execute("SELECT 1 FROM tube_registry")
        other.execute("SELECT tube_ensure_exists(%s, 4)", [MAIN])
        other.execute("SELECT tube_table_ensure_attached(%s, 'public.orders', 0, 4)", [MAIN])
        ensure(other)
        other.execute("SELECT tube_table_ensure_attached(%s, 'public.product', 12)", [COMPANION])
        db.execute("TRUNCATE product")
    ((shard, payload),) = schedules(db)
    assert (shard, payload["type"], payload["resync"]) == (0, "backfill_schedule", True)
    assert asked(db, COMPANION) == []
    term = acquire(db, Claim(tube=MAIN, partitions=4))
    (pod,) = mark(db, term)
    taken = "SELECT tube_backfill_take(%s, %s, %s, %s, %s, %s)"
    number = scalar(db, taken, (*term.args, shard, pod.seq))
    assert (
        scalar(db, "SELECT tbl::text FROM tube_backfill WHERE backfill_id = %s", [number]) == "public.orders"
    )


@pytest.fixture
def parted(db: Conn) -> Conn:
    """The session; a partitioned table is attached to the companion by `link`, and has one partition."""
    db.execute("CREATE TABLE public.part (id bigint, link bigint) PARTITION BY LIST (id)")
    db.execute("CREATE TABLE public.part_1 PARTITION OF public.part FOR VALUES IN (1)")
    db.execute("SELECT tube_table_ensure_attached(%s, 'public.part', 40, 1, 'link')", [COMPANION])
    db.execute("INSERT INTO part VALUES (1, 5)")
    assert take(db, COMPANION) == [("I", 40, 5)]
    return db


DDL: dict[str, LiteralString] = {
    "a partition leaves": "ALTER TABLE part DETACH PARTITION part_1",
    "a partition is dropped": "DROP TABLE part_1",
    "a partition comes with rows": (
        "CREATE TABLE p2 (id bigint, link bigint); INSERT INTO p2 VALUES (2, 9);"
        " ALTER TABLE part ATTACH PARTITION p2 FOR VALUES IN (2)"
    ),
    "triggers are lost": (
        "DO $$ DECLARE t name; BEGIN"
        " FOR t IN SELECT tgname FROM pg_trigger WHERE tgrelid = 'part_1'::regclass LOOP"
        " EXECUTE format('DROP TRIGGER %I ON part_1', t); END LOOP; END $$"
    ),
    "the link is another column": "ALTER TABLE part RENAME link TO was; ALTER TABLE part ADD link bigint",
}


@pytest.mark.every_server
@pytest.mark.each_value
@pytest.mark.parametrize("what", DDL)
def test_what_ddl_has_changed_asks_for_all_documents(parted: Conn, what: str) -> None:
    with parted.transaction():
        parted.execute(DDL[what])
        parted.execute("SELECT tube_sync()")
    assert schedules(parted) == [(0, ASKED)]
    assert asked(parted, COMPANION) == []


# --- what takes a tube for a copy ----------------------------------------------------------------------


def test_a_backfill_of_a_relation_names_each_link_once_and_sweeps_nothing(db: Conn) -> None:
    db.execute("SELECT tube_table_ensure_attached(%s, 'public.item', 20, 1, 'product')", [COMPANION])
    db.execute("INSERT INTO item SELECT g, g, g % 3 FROM generate_series(1, 9) AS g")
    take(db, COMPANION)
    start = scalar(db, "SELECT tube_backfill_step1()")
    db.execute("SELECT tube_backfill_step3(%s, %s, 'public.item', 'product')", (start, COMPANION))
    assert pods(db, COMPANION) == [("B", 20, [0, 1, 2], None)]
    take(db, COMPANION)
    number = scalar(db, "SELECT tube_backfill_create(%s, 'public.item')", [COMPANION])
    assert scalar(db, "SELECT tube_backfill_lock(%s)", [number])
    assert scalar(db, "SELECT tube_backfill_collect(%s)", [number]) == 3
    db.execute("SELECT tube_backfill_chunk(%s, 100)", [number])
    assert {payload["sweep"] for _, payload in schedules(db, COMPANION)} == {False}
    assert scalar(db, "SELECT state FROM tube_backfill") == "delivering"


def test_no_companion_has_a_copy_that_is_to_be_verified(db: Conn) -> None:
    db.execute("SELECT tube_source_check()")
    db.execute("UPDATE tube_source SET timeline = 77")
    listed = "SELECT tube FROM tube_unverified_list()"
    assert db.execute(listed).fetchall() == [(MAIN,)]
    assert scalar(db, "SELECT tube_source_check()") is not None
    assert db.execute(listed).fetchall() == [(MAIN,)]


def test_what_waits_in_companions_is_counted_up_to_a_number(db: Conn) -> None:
    waiting = "SELECT companion, pods, links, since > now() - '1 hour'::interval, parked"
    waiting += " FROM tube_relations_waiting(%s, %s)"
    assert db.execute(waiting.encode(), (MAIN, 9)).fetchall() == []
    ensure(db, companion="other", keys="uuid")
    for shard in range(5):
        db.execute("SELECT orders_relations_touch(%s, '{1,2}', 'B')", [shard])
    db.execute("SELECT orders_relations_touch(3, '{1,2,3}', 'U')")
    park(db, acquire(db, Claim(tube="other")), park_item(7))
    assert db.execute(waiting.encode(), (MAIN, 9)).fetchall() == [
        (COMPANION, 6, 13, True, 0),
        ("other", 0, 0, None, 1),
    ]
    assert db.execute(waiting.encode(), (MAIN, 2)).fetchall()[0] == (COMPANION, 2, 5, True, 0)
    assert db.execute(waiting.encode(), (COMPANION, 9)).fetchall() == []
    with pytest.raises(psycopg.Error, match="there is no tube 'none'"):
        db.execute(waiting.encode(), ("none", 9))
