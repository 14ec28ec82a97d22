"""DDL on attached tables by transactions that are too old to see all, or that somebody else's holds up."""

from __future__ import annotations

import pytest

from tests.conftest import Connect
from tests.helpers.capture import (
    TUBE,
    Conn,
    asked,
    attach,
    make_item,
    make_tube,
    open_session,
    ops,
    pods,
    scalar,
    set_up,
    take,
    triggers,
    unfollow,
)
from tests.helpers.database import preparing
from tests.isolation.conftest import NewSession

TREE = """
CREATE TABLE public.log (id bigint, day int, PRIMARY KEY (id, day)) PARTITION BY LIST (day);
CREATE TABLE public.log_1 PARTITION OF public.log FOR VALUES IN (1);
"""
LATE = "CREATE TABLE public.late (id bigint NOT NULL, day int NOT NULL, PRIMARY KEY (id, day))"
ATTACH = "ALTER TABLE public.log ATTACH PARTITION public.late FOR VALUES IN (2)"
SYNC = "SELECT tube_sync()"
ATTACH_TUBE = "SELECT tube_table_ensure_attached(%s, %s, 0)"


def attached_log(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute(TREE.encode())
        make_tube(conn)
        attach(conn, "public.log")


prepare = preparing(attached_log, "tree")


@pytest.fixture
def tree(conn: Conn) -> Conn:
    """A session; `log` is attached, with a partition."""
    return conn


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_partition_comes_by_a_transaction_that_cannot_see_its_rows(
    tree: Conn, session: NewSession, level: str
) -> None:
    tree.execute(LATE)
    old = session()
    old.begin(f"ISOLATION LEVEL {level}")
    old.run("SELECT 1")
    tree.execute("INSERT INTO public.late VALUES (77, 2)")
    old.run(ATTACH)
    old.run(SYNC)
    old.commit()
    assert "backfill_schedule" in asked(tree)
    ((shard, payload),) = [
        (shard, payload)
        for _, shard, _, payload in pods(tree)
        if payload and payload["type"] == "backfill_schedule"
    ]
    assert (shard, payload["tbl"], payload["order_col"]) == (0, "public.log", "id")
    tree.execute("DELETE FROM public.late")
    assert ops(tree) == [("D", 77)]


def test_a_partition_that_came_by_an_old_transaction_is_followed_by_a_new_one(
    tree: Conn, session: NewSession
) -> None:
    tree.execute(LATE)
    old = session()
    old.begin("ISOLATION LEVEL REPEATABLE READ")
    old.run("SELECT 1")
    tree.execute("INSERT INTO public.late VALUES (77, 2)")
    old.run(ATTACH)
    old.commit()
    assert pods(tree) == []
    tree.execute(SYNC)
    assert asked(tree) == ["backfill_schedule"]


def test_an_empty_partition_comes_by_an_old_transaction(tree: Conn, session: NewSession) -> None:
    tree.execute(LATE)
    old = session()
    old.begin("ISOLATION LEVEL REPEATABLE READ")
    old.run("SELECT 1")
    old.run(ATTACH)
    old.run("CREATE TABLE public.log_3 PARTITION OF public.log FOR VALUES IN (3)")
    old.run(SYNC)
    old.commit()
    assert "backfill_schedule" not in asked(tree), "nothing can be missed"
    tree.execute("INSERT INTO public.log_3 VALUES (3, 3)")
    tree.execute("INSERT INTO public.late VALUES (2, 2)")
    assert ops(tree) == [("I", 2), ("I", 3)]


def test_a_partition_goes_by_a_transaction_that_cannot_see_its_rows(tree: Conn, session: NewSession) -> None:
    old = session()
    old.begin("ISOLATION LEVEL REPEATABLE READ")
    old.run("SELECT 1")
    tree.execute("INSERT INTO public.log VALUES (77, 1)")
    take(tree)
    old.run("ALTER TABLE public.log DETACH PARTITION public.log_1")
    old.run(SYNC)
    old.commit()
    assert "sweep" in asked(tree)


def test_attaching_while_a_partition_comes(conn: Conn, session: NewSession) -> None:
    """The attach waits for that transaction, and sees what it has left."""
    conn.execute(TREE.encode())
    make_tube(conn)
    conn.execute(LATE)
    conn.execute("INSERT INTO public.late VALUES (7, 2)")
    owner, admin = session(), session()
    owner.begin()
    owner.run(ATTACH)
    attaching = admin.start(ATTACH_TUBE, (TUBE, "public.log"))
    assert attaching.blocked(by=owner)
    owner.commit()
    attaching.rows()
    assert len(triggers(conn, "public.late")) == 4
    conn.execute("DELETE FROM public.late WHERE id = 7")
    assert ops(conn) == [("D", 7)]
    assert scalar(conn, SYNC) == 0


def test_a_partition_made_by_a_transaction_older_than_the_attach(conn: Conn, session: NewSession) -> None:
    """It sees no attachment. The next look finds the partition, and what was deleted."""
    conn.execute(TREE.encode())
    make_tube(conn)
    old = session()
    old.begin("ISOLATION LEVEL REPEATABLE READ")
    old.run("SELECT 1")
    attach(conn, "public.log")
    old.run("CREATE TABLE public.log_2 PARTITION OF public.log FOR VALUES IN (2)")
    old.commit()
    conn.execute("INSERT INTO public.log VALUES (1, 2), (2, 2)")
    conn.execute("DELETE FROM public.log_2 WHERE id = 1")
    take(conn)
    conn.execute(SYNC)
    assert asked(conn) == ["backfill_schedule"]
    take(conn)
    conn.execute("DELETE FROM public.log_2")
    assert ops(conn) == [("D", 2)]
    conn.execute("CREATE TABLE public.log_4 PARTITION OF public.log FOR VALUES IN (4)")
    conn.execute(SYNC)
    assert pods(conn) == [], "a partition that never had a row needs no sweep"


def test_a_partition_is_made_while_another_table_is_being_attached(
    tree: Conn, session: NewSession, connect: Connect
) -> None:
    """An attach that can't have its locks holds none meanwhile, nor the tube."""
    make_item(tree)
    slow, admin = session(), session()
    slow.begin()
    slow.run("INSERT INTO public.item VALUES (1)")
    attaching = admin.start(ATTACH_TUBE.replace("0)", "1)"), (TUBE, "public.item"))
    assert attaching.blocked(by=slow)
    quick = connect(options="-c search_path=tube,public -c statement_timeout=60s")
    for day in range(2, 6):
        quick.execute(f"CREATE TABLE public.log_{day} PARTITION OF public.log FOR VALUES IN ({day})".encode())
    tree.execute("SET statement_timeout = '60s'")
    tree.execute(SYNC)
    slow.commit()
    attaching.rows()
    tree.execute("INSERT INTO public.log_5 VALUES (5, 5)")
    tree.execute("INSERT INTO public.item VALUES (2)")
    assert ops(tree) == [("I", 2), ("I", 5)]


def test_ddl_while_a_transaction_that_attached_stays_open(tree: Conn, session: NewSession) -> None:
    """It waits for nobody, nor do writers; only what follows it has to wait, and gives up."""
    make_item(tree)
    admin = session()
    admin.begin()
    admin.run(ATTACH_TUBE.replace("0)", "1)"), (TUBE, "public.item"))
    tree.execute("SET statement_timeout = '60s'")
    tree.execute("CREATE TABLE public.log_2 PARTITION OF public.log FOR VALUES IN (2)")
    tree.execute("ALTER TABLE public.log DETACH PARTITION public.log_1")
    tree.execute("ALTER TABLE public.log RENAME id TO ident")
    tree.execute("INSERT INTO public.log VALUES (4, 2)")
    assert asked(tree) == ["backfill_schedule"]
    take(tree)
    tree.execute("SET statement_timeout = 0")
    said: list[str] = []
    tree.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
    assert scalar(tree, SYNC) == 0
    (told,) = said
    assert told.startswith(f"public.log is not followed by tube '{TUBE}': ")
    admin.commit()
    assert scalar(tree, SYNC) == 1
    take(tree)
    tree.execute("INSERT INTO public.log_2 VALUES (5, 2)")
    assert ops(tree) == [("I", 5)]


def test_partitions_of_two_tables_of_one_tube_come_at_the_same_time(tree: Conn, session: NewSession) -> None:
    tree.execute("CREATE TABLE public.second (id bigint, day int) PARTITION BY LIST (day)")
    attach(tree, "public.second", 1)
    first, second = session(), session()
    for one, table in ((first, "log"), (second, "second")):
        one.begin()
        one.run(f"CREATE TABLE public.{table}_5 PARTITION OF public.{table} FOR VALUES IN (5)")
    first.commit()
    second.commit()
    tree.execute("INSERT INTO public.log_5 VALUES (1, 5)")
    tree.execute("INSERT INTO public.second_5 VALUES (2, 5)")
    assert ops(tree) == [("I", 1), ("I", 2)]


def test_a_table_is_attached_otherwise_while_its_partitions_come(tree: Conn, session: NewSession) -> None:
    """Both work on the one attachment, one after the other."""
    owner, admin = session(), session()
    owner.begin()
    owner.run("CREATE TABLE public.log_5 PARTITION OF public.log FOR VALUES IN (5)")
    owner.run(SYNC)
    attaching = admin.start("SELECT tube_table_ensure_attached(%s, 'public.log', 0, 4)", (TUBE,))
    assert attaching.blocked(by=owner)
    owner.commit()
    attaching.rows()
    tree.execute("INSERT INTO public.log_5 VALUES (6, 5)")
    assert [(touch.op, touch.shard, touch.id) for touch in take(tree)] == [("I", 2, 6)]
    assert scalar(tree, SYNC) == 0


def test_a_partition_comes_beside_a_busy_one_that_lacks_its_triggers(tree: Conn, session: NewSession) -> None:
    """That one is for tube_sync: the DDL of the other neither waits for its writers, nor makes them wait."""
    tree.execute(LATE)
    for name in triggers(tree, "public.log_1"):
        tree.execute(f'DROP TRIGGER "{name}" ON public.log_1'.encode())
    writer, owner = session(), session()
    writer.begin()
    writer.run("INSERT INTO public.log_1 VALUES (1, 1)")
    tree.execute(SYNC)
    assert triggers(tree, "public.log_1") == [], "it could not be had"
    owner.begin()
    owner.run(ATTACH)
    assert len(triggers(owner.conn, "public.late")) == 4
    owner.rollback()
    writer.commit()
    owner.begin()
    owner.run(ATTACH)
    tree.execute("SET lock_timeout = '5s'")
    tree.execute("INSERT INTO public.log_1 VALUES (2, 1)")
    owner.commit()
    assert scalar(tree, SYNC) == 1
    assert len(triggers(tree, "public.log_1")) == 4


def test_a_detached_partition_blocks_nobody_while_a_sweep_is_asked_for(
    tree: Conn, session: NewSession, connect: Connect
) -> None:
    tree.execute("CREATE TABLE public.log_2 PARTITION OF public.log FOR VALUES IN (2)")
    tree.execute(SYNC)
    tree.execute("INSERT INTO public.log VALUES (1, 1)")
    take(tree)
    tree.execute("ALTER TABLE public.log DETACH PARTITION public.log_1 CONCURRENTLY")
    holder, worker = session(), session()
    holder.begin()
    holder.run(f'LOCK TABLE tube."{TUBE}" IN EXCLUSIVE MODE')
    looking = worker.start(SYNC)
    assert looking.blocked(by=holder), "it is at the control pod"
    quick = connect(options="-c search_path=tube,public -c lock_timeout=100ms")
    assert quick.execute("SELECT * FROM public.log").fetchall() == []
    assert quick.execute("UPDATE public.log SET day = 2 WHERE id = 5").rowcount == 0
    holder.commit()
    looking.rows()
    assert asked(tree) == ["sweep"]


def test_two_look_at_the_same_time(tree: Conn, session: NewSession) -> None:
    """One backfill is asked for."""
    tree.execute(LATE)
    tree.execute("INSERT INTO public.late VALUES (77, 2)")
    tree.execute(ATTACH)
    first, second = session(), session()
    first.begin()
    first.run(SYNC)
    late = second.start(SYNC)
    assert late.blocked(by=first)
    first.commit()
    late.rows()
    assert asked(tree) == ["backfill_schedule"]


@pytest.mark.parametrize(
    "ddl", ["RENAME id TO ident", "RENAME deleted TO removed", "DROP deleted", "DROP value"]
)
def test_a_writer_waits_for_ddl_and_tube_sync(conn: Conn, session: NewSession, ddl: str) -> None:
    """What it finds then are the triggers of before, in its plans, and functions of after."""
    set_up(conn, predicate="NOT deleted" if "deleted" not in ddl else "deleted IS NOT TRUE")
    conn.execute("SELECT tube_table_ensure_attached(%s, 'public.item', 0, columns => '{value}')", (TUBE,))
    conn.execute("INSERT INTO public.item VALUES (1), (2)")
    owner, writer = session(), session()
    writer.run("INSERT INTO public.item VALUES (3)")
    take(conn)
    owner.begin()
    owner.run(f"ALTER TABLE public.item {ddl}")
    owner.run(SYNC)
    late = writer.start("INSERT INTO public.item VALUES (4), (5)")
    assert late.blocked(by=owner)
    owner.commit()
    late.rows()
    if "deleted" in ddl:
        assert asked(conn) == ["backfill_schedule"], "the predicate does not fit any more"
    else:
        assert {key for _, key in ops(conn)} == {4, 5}


def test_a_writer_older_than_a_renamed_column(conn: Conn, session: NewSession) -> None:
    """Without event triggers: it sees the old names in the catalogue, and writes by those of now."""
    set_up(conn, predicate="NOT deleted")
    conn.execute("SELECT tube_table_ensure_attached(%s, 'public.item', 0, columns => '{value}')", (TUBE,))
    unfollow(conn)
    conn.execute("INSERT INTO public.item VALUES (1), (2), (3)")
    take(conn)
    old = session()
    old.begin("ISOLATION LEVEL REPEATABLE READ")
    old.run("SELECT 1")
    conn.execute("ALTER TABLE public.item RENAME id TO ident")
    conn.execute("ALTER TABLE public.item RENAME value TO worth")
    conn.execute("ALTER TABLE public.item RENAME deleted TO removed")
    old.run("UPDATE public.item SET worth = 'x' WHERE ident = 1")
    old.run("UPDATE public.item SET ident = 4 WHERE ident = 2")
    old.run("INSERT INTO public.item VALUES (5)")
    old.run("DELETE FROM public.item WHERE ident = 3")
    old.commit()
    assert asked(conn) == ["backfill_schedule"]
    take(conn)
    old.begin("ISOLATION LEVEL REPEATABLE READ")
    old.run("SELECT 1")
    conn.execute(SYNC)
    conn.execute("ALTER TABLE public.item RENAME ident TO number")
    old.run("TRUNCATE public.item")
    old.commit()
    assert asked(conn) == ["backfill_schedule"]


def test_a_writer_older_than_a_dropped_key(conn: Conn, session: NewSession) -> None:
    set_up(conn)
    unfollow(conn)
    old = session()
    old.begin("ISOLATION LEVEL REPEATABLE READ")
    old.run("SELECT 1")
    conn.execute("ALTER TABLE public.item DROP id")
    old.run("INSERT INTO public.item (value) VALUES ('x')")
    old.commit()
    assert ops(conn) == []


def test_writes_that_are_rolled_back_leave_none_of_others_out(conn: Conn, session: NewSession) -> None:
    """What one transaction asks for is no answer to another one while it may still be rolled back."""
    set_up(conn)
    conn.execute("ALTER TABLE public.item RENAME id TO ident")
    first, second = session(), session()
    first.begin()
    first.run("INSERT INTO public.item VALUES (1)")
    second.begin()
    second.run("INSERT INTO public.item VALUES (2)")
    first.rollback()
    second.commit()
    assert asked(conn) == ["backfill_schedule"]


def test_a_backfill_that_may_be_under_way_is_no_answer(conn: Conn) -> None:
    set_up(conn)
    conn.execute("ALTER TABLE public.item RENAME id TO ident; INSERT INTO public.item VALUES (1)")
    conn.execute(f'UPDATE tube."{TUBE}" SET leader_id = gen_random_uuid()'.encode())
    conn.execute("INSERT INTO public.item VALUES (2)")
    assert asked(conn) == ["backfill_schedule"] * 2
