"""A partitioned table is attached as a whole, and its partitions may come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.helpers.capture import (
    TUBE,
    Conn,
    asked,
    attach,
    detach,
    make_tube,
    open_session,
    ops,
    pods,
    scalar,
    take,
    triggers,
    unfollow,
)
from tests.helpers.database import TestServer
from tests.helpers.roles import as_role, roles

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]

TREE = """
CREATE TABLE public.log (id bigint, day int, n int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE public.log_1 PARTITION OF public.log FOR VALUES FROM (1) TO (2);
CREATE TABLE public.log_2 (n int, gone text, day int NOT NULL, id bigint NOT NULL, PRIMARY KEY (id, day));
ALTER TABLE public.log_2 DROP COLUMN gone;
ALTER TABLE public.log ATTACH PARTITION public.log_2 FOR VALUES FROM (2) TO (3);
CREATE TABLE public.log_3 PARTITION OF public.log FOR VALUES FROM (3) TO (5) PARTITION BY RANGE (day);
CREATE TABLE public.log_3_3 PARTITION OF public.log_3 FOR VALUES FROM (3) TO (4);
"""

Follow = Callable[[Conn], None]


def attached_tree(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute(TREE)
        make_tube(conn)
        conn.execute("INSERT INTO log VALUES (1, 1), (2, 2), (3, 3)")
        attach(conn, "public.log")


@pytest.fixture
def db(any_server: TestServer) -> Iterator[Conn]:
    """A session on each version, with a tree of partitions attached, and a row in each leaf."""
    with any_server.database(installed=True, prepare=attached_tree) as dsn, open_session(dsn) as conn:
        conn.execute("SET search_path = public, tube")
        yield conn


@pytest.fixture(params=["event triggers", "no event triggers"])
def follow(request: pytest.FixtureRequest, db: Conn) -> Follow:
    """What follows DDL, with event triggers or without: a call of `tube_sync`."""
    if request.param == "no event triggers":
        unfollow(db)
    return sync


def sync(conn: Conn) -> None:
    """Event triggers may have left nothing to do."""
    assert scalar(conn, "SELECT tube_sync()") in (0, 1)


def has_sweep(conn: Conn) -> bool:
    return any((payload or {}).get("type") == "sweep" for _, _, _, payload in pods(conn))


def test_pg_tube_child_partition_writes_made_no_touch(db: Conn) -> None:
    db.execute("INSERT INTO log VALUES (4, 1), (5, 2), (6, 3)")
    db.execute("INSERT INTO log_1 VALUES (7, 1)")
    db.execute("INSERT INTO log_2 (id, day) VALUES (8, 2)")
    db.execute("INSERT INTO log_3 VALUES (9, 3)")
    db.execute("INSERT INTO log_3_3 VALUES (10, 3)")
    assert ops(db) == [("I", key) for key in range(4, 11)]
    db.execute("UPDATE log SET n = 1 WHERE id > 5")
    db.execute("UPDATE log_2 SET n = 2 WHERE id = 2")
    db.execute("DELETE FROM log_3 WHERE id = 9")
    assert ops(db) == [("D", 9), ("U", 2), *(("U", key) for key in range(6, 11))]


def test_a_row_that_moves_to_another_partition(db: Conn) -> None:
    db.execute("UPDATE log SET day = 3 WHERE id = 1")
    assert ops(db) == [("U", 1)]
    db.execute("UPDATE log SET id = 11, day = 1 WHERE id = 2")
    assert ops(db) == [("D", 2), ("I", 11)]


def test_a_row_that_a_merge_moves_to_another_partition_is_not_seen(db: Conn) -> None:
    """A fault of Postgres. Once it is mended, the pages need not warn of it."""
    merge = (
        "MERGE INTO log AS t USING unnest(%s::int[]) AS s (id) ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET day = 3, id = 11"
    )
    db.execute(merge.encode(), ([1],))
    assert ops(db) == []
    db.execute("UPDATE log SET day = 1, id = 1 WHERE id = 11")
    assert ops(db) == [("D", 11), ("I", 1)]
    db.execute(f"{merge} WHEN NOT MATCHED THEN INSERT VALUES (s.id, 1)".encode(), ([1, 12],))
    assert ops(db) == [("I", 11), ("I", 12)]


@pytest.mark.parametrize("stays", [1, 2])
def test_a_row_that_its_new_partition_does_not_take(db: Conn, stays: int) -> None:
    """It stands among the old rows, and not among the new ones; the one row there must not hide it."""
    db.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        "CREATE TRIGGER refuse BEFORE INSERT ON log_3_3 FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    goes = 3 - stays
    db.execute("UPDATE log SET day = CASE WHEN id = %s THEN 3 ELSE day END, n = 1 WHERE id < 3", (goes,))
    assert [row[0] for row in db.execute("SELECT id FROM log WHERE id < 3").fetchall()] == [stays]
    assert ops(db) == sorted([("U", stays), ("D", goes)])
    db.execute("UPDATE log SET day = 3 WHERE id = %s", (stays,))
    assert ops(db) == [("D", stays)]


@pytest.mark.parametrize(
    ("table", "gone"), [("log", [1, 2, 3]), ("log_1", [1]), ("log_3", [3]), ("log_3_3", [3])]
)
def test_truncate_touches_each_row_once(db: Conn, table: str, gone: list[int]) -> None:
    db.execute(f"TRUNCATE {table}")
    assert ops(db) == [("D", key) for key in gone]


def test_truncate_of_the_tree_at_repeatable_read(db: Conn) -> None:
    with db.transaction():
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        db.execute("TRUNCATE log")
    assert has_sweep(db)
    assert ops(db) == [("D", 1), ("D", 2), ("D", 3)]


def test_copy_and_the_touch_function(db: Conn) -> None:
    with db.cursor().copy("COPY log (id, day) FROM STDIN") as copy:
        copy.write_row((4, 1))
        copy.write_row((5, 3))
    db.execute("SELECT log_touch('{9}')")
    assert ops(db) == [("I", 4), ("I", 5), ("T", 9)]


def test_a_partition_that_is_made_later(db: Conn, follow: Follow) -> None:
    db.execute("CREATE TABLE log_4 PARTITION OF log FOR VALUES FROM (5) TO (6)")
    db.execute("CREATE TABLE log_3_4 PARTITION OF log_3 FOR VALUES FROM (4) TO (5)")
    follow(db)
    assert pods(db) == [], "nothing can have been missed"
    db.execute("INSERT INTO log VALUES (4, 5)")
    db.execute("INSERT INTO log_4 VALUES (5, 5)")
    db.execute("INSERT INTO log_3_4 VALUES (6, 4)")
    assert ops(db) == [("I", 4), ("I", 5), ("I", 6)]


def test_rows_come_with_a_partition_that_is_attached(db: Conn, follow: Follow) -> None:
    db.execute("CREATE TABLE late (id bigint NOT NULL, day int NOT NULL, n int, PRIMARY KEY (id, day))")
    db.execute("INSERT INTO late VALUES (21, 7), (22, 7)")
    db.execute("ALTER TABLE log ATTACH PARTITION late FOR VALUES FROM (7) TO (8)")
    follow(db)
    assert asked(db) == ["backfill_schedule"]
    assert ops(db) == []
    db.execute("DELETE FROM late WHERE id = 21")
    db.execute("UPDATE log SET n = 1 WHERE id = 22")
    assert ops(db) == [("D", 21), ("U", 22)]


@pytest.mark.parametrize("how", ["", " CONCURRENTLY"])
def test_rows_go_with_a_partition_that_is_detached(db: Conn, follow: Follow, how: str) -> None:
    db.execute(f"ALTER TABLE log DETACH PARTITION log_1{how}")
    follow(db)
    assert asked(db) == ["sweep"]
    assert ops(db) == []
    assert triggers(db, "log_1") == []
    db.execute("INSERT INTO log_1 VALUES (5, 1)")
    assert ops(db) == []


def test_a_tree_that_is_detached(db: Conn, follow: Follow) -> None:
    db.execute("ALTER TABLE log DETACH PARTITION log_3")
    follow(db)
    assert asked(db) == ["sweep"]
    assert triggers(db, "log_3") == triggers(db, "log_3_3") == []


def test_a_partition_that_is_dropped_is_swept(db: Conn, follow: Follow) -> None:
    db.execute("DROP TABLE log_3")
    follow(db)
    assert has_sweep(db)
    assert ops(db) == []
    db.execute("INSERT INTO log VALUES (5, 1)")
    assert ops(db) == [("I", 5)]


@pytest.mark.usefixtures("follow")
def test_partitions_that_come_and_go_in_one_transaction(db: Conn) -> None:
    with db.transaction():
        db.execute("CREATE TABLE log_7 PARTITION OF log FOR VALUES FROM (7) TO (8)")
        db.execute("INSERT INTO log VALUES (7, 7)")
        db.execute("ALTER TABLE log DETACH PARTITION log_7")
        db.execute("DROP TABLE log_7")
    sync(db)
    assert scalar(db, "SELECT tube_sync()") == 0
    assert {key for _, key in ops(db)} == {7}


def test_partitions_that_come_and_go_with_tube_sync_in_the_same_transaction(db: Conn, follow: Follow) -> None:
    with db.transaction():
        db.execute("CREATE TABLE log_7 PARTITION OF log FOR VALUES FROM (7) TO (8)")
        db.execute("INSERT INTO log_7 VALUES (7, 7)")
        follow(db)
        db.execute("INSERT INTO log_7 VALUES (8, 7)")
        db.execute("ALTER TABLE log DETACH PARTITION log_7")
        follow(db)
        db.execute("DROP TABLE log_7")
    assert asked(db)[-1] == "sweep"
    assert ("I", 8) in ops(db)
    assert scalar(db, "SELECT tube_sync()") == 0


def test_writes_between_the_ddl_and_tube_sync(db: Conn) -> None:
    """Without event triggers, those by the name of a new partition are found later, by a backfill."""
    unfollow(db)
    db.execute("CREATE TABLE log_7 PARTITION OF log FOR VALUES FROM (7) TO (8)")
    db.execute("INSERT INTO log VALUES (7, 7)")
    db.execute("UPDATE log SET day = 7 WHERE id = 1")
    db.execute("INSERT INTO log_7 VALUES (8, 7)")
    assert ops(db) == [("I", 7), ("U", 1)]
    sync(db)
    assert asked(db) == ["backfill_schedule"]
    take(db)
    db.execute("INSERT INTO log_7 VALUES (9, 7)")
    assert ops(db) == [("I", 9)]


def test_writes_of_a_new_partition_in_the_same_transaction(db: Conn) -> None:
    with db.transaction():
        db.execute("CREATE TABLE log_7 PARTITION OF log FOR VALUES FROM (7) TO (8)")
        db.execute("INSERT INTO log_7 VALUES (8, 7)")
        db.execute("DELETE FROM log_7")
    assert ops(db) == [("D", 8), ("I", 8)]
    sync(db)
    assert pods(db) == [], "nothing can have been missed"


def test_a_late_partition_asks_for_a_backfill(db: Conn) -> None:
    """What was deleted before it got its triggers made no touch; the sweep after the backfill finds it."""
    unfollow(db)
    db.execute("CREATE TABLE log_7 PARTITION OF log FOR VALUES FROM (7) TO (8)")
    db.execute("INSERT INTO log VALUES (7, 7)")
    db.execute("DELETE FROM log_7")
    sync(db)
    assert asked(db) == ["backfill_schedule"]
    assert ops(db) == [("I", 7)]
    assert scalar(db, "SELECT tube_sync()") == 0


def test_detached_from_the_tube(db: Conn) -> None:
    detach(db, "public.log")
    for table in ("log", "log_1", "log_2", "log_3", "log_3_3"):
        assert triggers(db, table) == []
    db.execute("CREATE TABLE log_7 PARTITION OF log FOR VALUES FROM (7) TO (8)")
    assert triggers(db, "log_7") == []


def test_a_catalogue_of_many_tables_is_not_read_for_each(db: Conn) -> None:
    db.execute("SET enable_seqscan = off")
    for table in ("log", "log_1"):
        plan = db.execute(
            f"EXPLAIN SELECT * FROM tube.tube_private_members('public.{table}')".encode()
        ).fetchall()
        assert not [line for (line,) in plan if "Seq Scan" in line], plan
        assert any("pg_class_oid_index" in line for (line,) in plan), plan


def test_replica_is_for_the_leaves(db: Conn) -> None:
    db.execute("SELECT tube_table_ensure_attached(%s, 'log', 0, replica => true)", (TUBE,))
    db.execute("SET session_replication_role = replica")
    db.execute("INSERT INTO log_2 (id, day) VALUES (5, 2)")
    db.execute("UPDATE log SET n = 3 WHERE id = 3")
    assert ops(db) == [("I", 5), ("U", 3)]


def test_a_foreign_partition_is_warned_of(db: Conn) -> None:
    """It keeps nothing else from being followed."""
    said: list[str] = []
    db.add_notice_handler(lambda notice: said.append(f"{notice.severity} {notice.message_primary}"))
    db.execute("CREATE FOREIGN DATA WRAPPER wrapper; CREATE SERVER far FOREIGN DATA WRAPPER wrapper")
    db.execute("ALTER TABLE log DROP CONSTRAINT log_pkey")
    db.execute("CREATE FOREIGN TABLE far_7 PARTITION OF log FOR VALUES FROM (7) TO (8) SERVER far")
    db.execute("CREATE TABLE log_8 PARTITION OF log FOR VALUES FROM (8) TO (9)")
    said.clear()
    db.execute("SELECT tube_sync()")
    assert any(one.startswith("WARNING") and "far_7" in one for one in said), said
    db.execute("INSERT INTO log_8 VALUES (8, 8)")
    db.execute("INSERT INTO log VALUES (5, 1)")
    assert ops(db) == [("I", 5), ("I", 8)]


@pytest.mark.parametrize(
    ("ddl", "why"),
    [
        ("ALTER TABLE log ATTACH PARTITION single FOR VALUES FROM (7) TO (8)", "it is a partition of log"),
        ("CREATE TABLE heir () INHERITS (single)", "other tables inherit from it"),
        ("ALTER TABLE single INHERIT elder", "it inherits from another table"),
    ],
    ids=["partition", "parent", "child"],
)
def test_an_attached_table_that_becomes_a_part_of_something(db: Conn, ddl: str, why: str) -> None:
    """That is not refused; it is detached, and said."""
    db.execute("CREATE TABLE single (id bigint NOT NULL, day int NOT NULL, n int, PRIMARY KEY (id, day))")
    db.execute("CREATE TABLE elder (id bigint)")
    make_tube(db, "other")
    attach(db, "public.single", tube="other")
    db.execute(ddl.encode())
    db.execute("INSERT INTO single VALUES (7, 7)")
    assert ops(db, "other") == [("I", 7)]
    said: list[str] = []
    db.add_notice_handler(lambda notice: said.append(f"{notice.message_primary}"))
    db.execute("SELECT tube_sync()")
    assert [one.replace("public.", "") for one in said] == [f"single is detached from tube 'other': {why}"]
    assert scalar(db, "SELECT count(*) FROM tube_list() WHERE tbl IS NULL") == 1
    db.execute("UPDATE single SET n = 2")
    assert ops(db, "other") == []
    assert scalar(db, "SELECT tube_sync()") == 0


@contextmanager
def owner_of_a_tree(any_dsn: str) -> Iterator[tuple[Conn, Conn, Conn]]:
    """A superuser, the owner of an attached `shop.log`, and a worker.

    In the schema `late`, the owner may create tables, and nothing more.
    """
    with roles(any_dsn, "shopper", "worker") as admin:
        admin.execute("CREATE SCHEMA shop AUTHORIZATION shopper; CREATE SCHEMA late")
        admin.execute("GRANT CREATE ON SCHEMA late TO shopper; GRANT tube_worker TO worker")
        with (
            open_session(any_dsn) as db,
            psycopg.connect(as_role(any_dsn, "shopper"), autocommit=True) as shopper,
            psycopg.connect(as_role(any_dsn, "worker"), autocommit=True) as worker,
        ):
            shopper.execute(
                "SET search_path = shop; CREATE TABLE log (id bigint, day int) PARTITION BY LIST (day)"
            )
            make_tube(db)
            attach(db, "shop.log", 0)
            yield db, shopper, worker


def test_partitions_in_a_schema_where_the_owner_may_only_create(any_dsn: str) -> None:
    """The DDL goes through; whoever looks next says who can help, until somebody can."""
    with owner_of_a_tree(any_dsn) as (db, shopper, worker):
        shopper.execute("CREATE TABLE late.log_1 PARTITION OF log FOR VALUES IN (1)")
        shopper.execute("INSERT INTO log VALUES (1, 1)")
        shopper.execute("UPDATE log SET id = 2")
        assert ops(db) == [("D", 1), ("I", 1), ("I", 2)]
        said: list[str] = []
        worker.add_notice_handler(lambda notice: said.append(f"{notice.message_primary}"))
        worker.execute("SELECT tube.tube_sync()")
        assert said
        assert all(TUBE in one for one in said)
        db.execute("GRANT USAGE ON SCHEMA late TO shopper")
        db.execute("SELECT tube_sync()")
        assert len(triggers(db, "late.log_1")) == 4
        assert asked(db) == ["backfill_schedule"]
        take(db)
        db.execute("UPDATE late.log_1 SET id = 3")
        assert ops(db) == [("D", 2), ("I", 3)]


def test_partitions_of_an_owner_without_any_right_of_ours(any_dsn: str) -> None:
    """By the event trigger, with the rights of whoever makes them."""
    with owner_of_a_tree(any_dsn) as (db, shopper, worker):
        shopper.execute("CREATE TABLE log_1 PARTITION OF log FOR VALUES IN (1)")
        shopper.execute("INSERT INTO log_1 VALUES (1, 1), (2, 1)")
        assert ops(db) == [("I", 1), ("I", 2)]
        worker.execute("SELECT tube.tube_sync()")
        assert pods(db) == []
        shopper.execute("ALTER TABLE log DETACH PARTITION log_1")
        worker.execute("SELECT tube.tube_sync()")
        shopper.execute("INSERT INTO log_1 VALUES (3, 1)")
        worker.execute("SELECT tube.tube_sync()")
        assert asked(db) == ["sweep"], "and what is no part any more is not captured"
        shopper.execute("DROP TABLE log_1")
        worker.execute("SELECT tube.tube_sync()")
        assert scalar(worker, "SELECT tube.tube_sync()") == 0


def test_a_partition_comes_beside_one_of_another_role_that_lacks_its_triggers(any_dsn: str) -> None:
    """The role that makes the new one has no right to repair the other."""
    with owner_of_a_tree(any_dsn) as (db, shopper, worker):
        shopper.execute("CREATE TABLE log_1 PARTITION OF log FOR VALUES IN (1)")
        shopper.execute("INSERT INTO log VALUES (1, 1)")
        db.execute("ALTER TABLE shop.log_1 OWNER TO worker")
        for name in triggers(db, "shop.log_1"):
            db.execute(f'DROP TRIGGER "{name}" ON shop.log_1'.encode())
        worker.execute("SELECT tube.tube_sync()")
        said: list[str] = []
        shopper.add_notice_handler(lambda notice: said.append(f"{notice.message_primary}"))
        shopper.execute("CREATE TABLE log_2 PARTITION OF log FOR VALUES IN (2)")
        assert said == []
        assert len(triggers(db, "shop.log_2")) == 4
        db.execute("SELECT tube_sync()")
        assert len(triggers(db, "shop.log_1")) == 4
        assert asked(db) == ["backfill_schedule"]


def test_a_function_that_is_not_the_owners_is_put_on_no_partition(any_dsn: str) -> None:
    with owner_of_a_tree(any_dsn) as (db, shopper, _):
        db.execute("UPDATE pg_proc SET proowner = 'worker'::regrole WHERE proname LIKE '%log\\_capture%'")
        shopper.execute("CREATE TABLE log_1 PARTITION OF log FOR VALUES IN (1)")
        assert triggers(db, "shop.log_1") == []


def test_several_tubes(db: Conn) -> None:
    make_tube(db, "other")
    attach(db, "public.log", 5, tube="other")
    db.execute("CREATE TABLE log_7 PARTITION OF log FOR VALUES FROM (7) TO (8)")
    db.execute("INSERT INTO log_7 VALUES (7, 7)")
    assert ops(db) == ops(db, "other") == [("I", 7)]


def test_keys_that_move_up_among_equal_rows(db: Conn) -> None:
    """With `columns` a row that another one has become makes no touch, and no D above all."""
    db.execute("SELECT tube_ensure_exists('seats', 1, 'NOT gone')")
    db.execute(
        "CREATE TABLE public.seat (id bigint, gone boolean DEFAULT false, n integer DEFAULT 0)"
        " PARTITION BY LIST (n); CREATE TABLE public.seat_0 PARTITION OF public.seat FOR VALUES IN (0)"
    )
    db.execute(
        "SELECT tube_table_ensure_attached('seats', 'public.seat', 0, id_col => 'id', columns => '{n}')"
    )
    db.execute("INSERT INTO public.seat VALUES (0), (1)")
    ops(db, "seats")
    db.execute("UPDATE public.seat SET id = id + 1")
    assert ops(db, "seats") == [("D", 0), ("I", 2)]
