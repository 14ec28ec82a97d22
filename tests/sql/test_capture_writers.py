"""Every way in which rows are written is seen, whoever writes and however the transaction ends."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest

from tests.helpers.capture import (
    TABLE,
    TUBE,
    Conn,
    attach,
    make_tube,
    open_session,
    ops,
    scalar,
    set_up,
    take,
)
from tests.helpers.database import preparing


def prepared(dsn: str) -> None:
    with open_session(dsn) as conn:
        set_up(conn, predicate="NOT deleted")
        conn.execute(f"INSERT INTO {TABLE} VALUES (1, 'a'), (2, 'b')")
        take(conn)


prepare = preparing(prepared)


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version, with `item` attached and two rows in it."""
    with open_session(any_dsn) as conn:
        yield conn


def test_copy(db: Conn) -> None:
    with db.cursor().copy(f"COPY {TABLE} (id, deleted) FROM STDIN") as copy:
        for key in range(10, 15):
            copy.write_row((key, key == 12))
    assert ops(db) == [("I", 10), ("I", 11), ("I", 13), ("I", 14)]


def test_merge(db: Conn) -> None:
    db.execute(
        f"MERGE INTO {TABLE} AS t USING (VALUES (1), (2), (3)) AS s (id) ON t.id = s.id"
        " WHEN MATCHED AND s.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET value = 'm'"
        " WHEN NOT MATCHED THEN INSERT VALUES (s.id, 'new', false)"
    )
    assert ops(db) == [("D", 1), ("I", 3), ("U", 2)]


def test_on_conflict(db: Conn) -> None:
    upsert = f"INSERT INTO {TABLE} VALUES (%s, 'x') ON CONFLICT (id) DO UPDATE SET value = excluded.value"
    db.execute(upsert, (1,))
    assert ops(db) == [("U", 1)]
    db.execute(upsert, (3,))
    assert ops(db) == [("I", 3)]
    db.execute(f"INSERT INTO {TABLE} VALUES (1), (4) ON CONFLICT DO NOTHING")
    assert ops(db) == [("I", 4)]


def test_a_writable_cte(db: Conn) -> None:
    db.execute(
        f"WITH gone AS (DELETE FROM {TABLE} WHERE id = 1 RETURNING id),"
        f" changed AS (UPDATE {TABLE} SET value = 'c' WHERE id = 2)"
        f" INSERT INTO {TABLE} SELECT id + 100 FROM gone"
    )
    assert ops(db) == [("D", 1), ("I", 101), ("U", 2)]


def test_cascades(db: Conn) -> None:
    db.execute(
        "CREATE TABLE public.part (id int PRIMARY KEY, item bigint REFERENCES public.item"
        " ON DELETE CASCADE ON UPDATE CASCADE)"
    )
    db.execute("SELECT tube_ensure_exists('parts')")
    attach(db, "public.part", 50, tube="parts")
    db.execute("INSERT INTO public.part VALUES (7, 1), (8, 1), (9, 2)")
    take(db, "parts")
    db.execute(f"UPDATE {TABLE} SET id = 5 WHERE id = 1")
    assert ops(db, "parts") == [("U", 7), ("U", 8)]
    assert ops(db) == [("D", 1), ("I", 5)]
    db.execute(f"DELETE FROM {TABLE}")
    assert ops(db, "parts") == [("D", 7), ("D", 8), ("D", 9)]


def test_a_rolled_back_savepoint(db: Conn) -> None:
    with db.transaction():
        db.execute(f"UPDATE {TABLE} SET value = 'x' WHERE id = 1")
        with db.transaction(force_rollback=True):
            db.execute(f"UPDATE {TABLE} SET value = 'x' WHERE id = 2")
        with db.transaction():
            db.execute(f"INSERT INTO {TABLE} VALUES (3)")
    assert ops(db) == [("I", 3), ("U", 1)]


def test_a_rolled_back_transaction(db: Conn) -> None:
    with db.transaction(force_rollback=True):
        db.execute(f"DELETE FROM {TABLE}")
    assert ops(db) == []


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_prepared_transaction(db: Conn, end: str) -> None:
    gid = f"t-{uuid.uuid4()}"
    # A leader that sleeps is woken by a NOTIFY, and such a transaction could not be prepared.
    db.execute("INSERT INTO tube_sleeper SELECT %s, p, 4 FROM generate_series(0, 3) AS p", (TUBE,))
    with db.transaction():
        db.execute(f"UPDATE {TABLE} SET value = 'x' WHERE id = 1")
        db.execute(f"UPDATE {TABLE} SET value = 'x'")
        db.execute("SELECT public.item_touch('{8}')")
        db.execute(f"PREPARE TRANSACTION '{gid}'")
    assert ops(db) == []
    db.execute(f"{end} PREPARED '{gid}'")
    assert ops(db) == ([("T", 8), ("U", 1), ("U", 1), ("U", 2)] if end == "COMMIT" else [])


def test_a_writer_without_privileges_on_our_schema(db: Conn) -> None:
    name = f"writer_{uuid.uuid4().hex}"
    db.execute(f"CREATE ROLE {name}")
    db.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {TABLE} TO {name}")
    db.execute(f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY")
    db.execute(f"CREATE POLICY own ON {TABLE} USING (id <> 2)")
    try:
        with db.transaction():
            db.execute(f"SET LOCAL ROLE {name}")
            db.execute("SET LOCAL search_path = pg_temp")
            db.execute("CREATE TEMP TABLE tube_sleeper (tube text, partition int, partitions int)")
            db.execute(f"INSERT INTO {TABLE} VALUES (3), (4)")
            db.execute(f"UPDATE {TABLE} SET value = 'x' WHERE id = 3")
            db.execute(f"DELETE FROM {TABLE} WHERE id = 4")
        assert ops(db) == [("D", 4), ("I", 3), ("I", 4), ("U", 3)]
        with db.transaction(force_rollback=True):
            db.execute(f"SET LOCAL ROLE {name}")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                db.execute("SELECT public.item_touch('{1}')")
    finally:
        db.execute(f"DROP OWNED BY {name}")
        db.execute(f"DROP ROLE {name}")


def test_the_owner_of_a_table_may_use_its_touch_function(db: Conn) -> None:
    name = f"owner_{uuid.uuid4().hex}"
    db.execute(f"CREATE ROLE {name}")
    db.execute("CREATE TABLE public.theirs (id int PRIMARY KEY)")
    db.execute(f"ALTER TABLE public.theirs OWNER TO {name}")
    try:
        db.execute("SELECT tube_ensure_exists('theirs')")
        attach(db, "public.theirs", tube="theirs")
        with db.transaction():
            db.execute(f"SET LOCAL ROLE {name}")
            db.execute("SELECT public.theirs_touch('{1}')")
        assert ops(db, "theirs") == [("T", 1)]
    finally:
        db.execute("SELECT tube_ensure_absent('theirs')")
        db.execute(f"DROP OWNED BY {name}")
        db.execute(f"DROP ROLE {name}")


def test_another_search_path(db: Conn) -> None:
    db.execute("CREATE SCHEMA evil")
    db.execute("CREATE FUNCTION evil.bool_is_not(boolean) RETURNS boolean LANGUAGE sql AS 'SELECT false'")
    db.execute("CREATE FUNCTION evil.cardinality(anyarray) RETURNS int LANGUAGE sql AS 'SELECT 1/0'")
    db.execute(
        "CREATE FUNCTION evil.array_agg(bigint) RETURNS bigint[] LANGUAGE sql AS 'SELECT NULL::bigint[]'"
    )
    db.execute('CREATE TABLE evil."es-live" (LIKE tube."es-live")')
    db.execute("SET search_path = evil, pg_catalog")
    db.execute(f"UPDATE {TABLE} SET value = 'x'")
    db.execute(f"UPDATE {TABLE} SET value = 'x' WHERE id = 1")
    db.execute("SELECT public.item_touch('{5}')")
    db.execute("SET search_path = tube, public")
    assert ops(db) == [("T", 5), ("U", 1), ("U", 1), ("U", 2)]
    assert scalar(db, 'SELECT count(*) FROM evil."es-live"') == 0


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_higher_isolation_levels(db: Conn, level: str) -> None:
    with db.transaction():
        db.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        db.execute(f"UPDATE {TABLE} SET value = 'x'")
        db.execute(f"DELETE FROM {TABLE} WHERE id = 2")
    assert ops(db) == [("D", 2), ("U", 1), ("U", 2)]


def test_a_trigger_that_changes_the_row(db: Conn) -> None:
    db.execute(
        "CREATE FUNCTION public.negate() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN NEW.id := -NEW.id; RETURN NEW; END'"
    )
    db.execute(f"CREATE TRIGGER a BEFORE INSERT ON {TABLE} FOR EACH ROW EXECUTE FUNCTION public.negate()")
    db.execute(f"INSERT INTO {TABLE} VALUES (3), (4)")
    assert ops(db) == [("I", -4), ("I", -3)]


def test_a_view_over_the_table(db: Conn) -> None:
    db.execute("CREATE VIEW public.items AS SELECT * FROM public.item")
    db.execute("UPDATE public.items SET value = 'x' WHERE id = 1")
    assert ops(db) == [("U", 1)]


def test_a_writers_cost_does_not_grow_with_the_partitions(conn: Conn) -> None:
    set_up(conn, shards=16)
    costs = []
    for partitions in (1, 1024):
        make_tube(conn, partitions=partitions)
        conn.execute(f"INSERT INTO {TABLE} VALUES ({partitions})")
        before = scalar(conn, "SELECT pg_current_wal_insert_lsn()")
        for _ in range(20):
            conn.execute(f"UPDATE {TABLE} SET value = 'x' WHERE id = {partitions}")
        costs.append(int(scalar(conn, "SELECT pg_current_wal_insert_lsn() - %s::pg_lsn", (before,))))
    assert costs[1] < costs[0] * 1.5, costs
