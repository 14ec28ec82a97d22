"""Backfills in chunks, by the SQL alone."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors

from tests.conftest import Connect
from tests.helpers.capture import open_session
from tests.helpers.database import preparing

Connection = psycopg.Connection[Any]


def tube_of_items(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("CREATE TABLE public.items (id bigint PRIMARY KEY, n int)")
        conn.execute("INSERT INTO items SELECT g, nullif(g % 5, 0) FROM generate_series(1, 2000) g")
        conn.execute("SELECT tube_ensure_exists('t', 3)")
        conn.execute("SELECT tube_table_ensure_attached('t', 'public.items', shard => 1, shards => 4)")


prepare = preparing(tube_of_items, "items")


@pytest.fixture
def items(conn: Connection) -> Connection:
    """A tube of three partitions, and a table of 2000 rows that is spread over four shards."""
    return conn


def one(conn: Connection, statement: str, *values: Any) -> Any:
    row = conn.execute(statement, values).fetchone()
    assert row is not None
    return row[0]


def create(conn: Connection, order_col: str | None = None, *, supersede: bool = False) -> int:
    """Begin a backfill, and take it."""
    number = one(conn, "SELECT tube_backfill_create('t', 'public.items', %s, %s)", order_col, supersede)
    assert one(conn, "SELECT tube_backfill_lock(%s)", number)
    return int(number)


def chunk(conn: Connection, number: int, pods: int = 1000) -> dict[str, Any]:
    with conn.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        row = cursor.execute("SELECT * FROM tube_backfill_chunk(%s, %s)", (number, pods)).fetchone()
    assert row is not None
    return row


def whole(conn: Connection, order_col: str | None = None) -> int:
    """A backfill, all in one chunk."""
    number = create(conn, order_col)
    conn.execute("SELECT tube_backfill_collect(%s)", (number,))
    assert chunk(conn, number)["state"] == "delivering"
    return number


def ids(conn: Connection) -> list[int]:
    """The ids in the tube, in the order of their pods."""
    return [key for (array,) in conn.execute("SELECT ids FROM t ORDER BY seq").fetchall() for key in array]


def test_pods_and_control_pods(items: Connection) -> None:
    number = whole(items, "id")
    start_seq = one(items, "SELECT start_seq FROM tube_backfill")
    pods = items.execute("SELECT op, shard, cardinality(ids), payload FROM t ORDER BY seq").fetchall()
    payload = {"start_seq": str(start_seq), "backfill": number, "sweep": True}
    assert pods[:4] == [("T", shard, 0, payload | {"type": "backfill_start"}) for shard in (1, 2, 3, 4)]
    assert pods[-4:] == [("B", shard, 0, payload | {"type": "backfill_end"}) for shard in (1, 2, 3, 4)]
    assert [pod[:3] for pod in pods[4:-4]] == [("B", shard, 250) for shard in (1, 2, 3, 4)] * 2
    assert sorted(ids(items)) == list(range(1, 2001))
    assert one(items, "SELECT bool_and(shard = 1 + id %% 4) FROM t, unnest(ids) id")


def test_each_shard_is_in_order_with_ties_and_nulls(items: Connection) -> None:
    whole(items, "n")
    orders = dict(items.execute("SELECT id, n FROM items").fetchall())
    for shard in (1, 2, 3, 4):
        rows = items.execute("SELECT ids FROM t WHERE shard = %s ORDER BY seq", (shard,)).fetchall()
        keys = [key for (array,) in rows for key in array]
        assert len(keys) == 500
        values = [orders[key] or 99 for key in keys]
        assert values == sorted(values)


def test_a_chunk_that_is_rolled_back_moves_nothing(items: Connection) -> None:
    number = create(items)
    items.execute("SELECT tube_backfill_collect(%s)", (number,))
    assert chunk(items, number, 3)["pods_done"] == 3
    with items.transaction(force_rollback=True):
        assert chunk(items, number, 3)["pods_done"] == 6
    assert chunk(items, number, 3)["pods_done"] == 6
    last = chunk(items, number, 3)
    assert (last["pods_done"], last["rows_done"], last["state"]) == (8, 2000, "delivering")
    assert sorted(ids(items)) == list(range(1, 2001))
    assert one(items, "SELECT to_regclass(%s)", f"tube.tube_backfill_ids_{number}") is None


def test_an_empty_table(items: Connection) -> None:
    items.execute("DELETE FROM items")
    items.execute("DELETE FROM t")
    whole(items)
    assert one(items, "SELECT count(*) FROM t") == 8


def test_the_predicate_applies(items: Connection) -> None:
    items.execute("SELECT tube_ensure_exists('t', 3, 'n = 2')")
    whole(items)
    assert sorted(ids(items)) == list(range(2, 2001, 5))


def test_a_related_table_names_each_document_once_and_does_not_sweep(items: Connection) -> None:
    items.execute("CREATE TABLE public.notes (id bigint, at int)")
    items.execute("SELECT tube_table_ensure_attached('t', 'public.notes', shard => 1, shards => 4)")
    items.execute("INSERT INTO notes SELECT g %% 10, g FROM generate_series(1, 100) g".replace("%%", "%"))
    items.execute("INSERT INTO notes VALUES (NULL, 1)")
    items.execute("DELETE FROM t")
    number = one(items, "SELECT tube_backfill_create('t', 'public.notes', 'at')")
    assert one(items, "SELECT tube_backfill_lock(%s)", number)
    assert one(items, "SELECT tube_backfill_collect(%s)", number) == 10
    chunk(items, number)
    assert sorted(ids(items)) == list(range(10))
    sweeps = "SELECT DISTINCT payload -> 'sweep' FROM t WHERE payload ? 'type'"
    assert items.execute(sweeps).fetchall() == [(False,)]


def test_one_at_a_time(items: Connection) -> None:
    number = create(items)
    for _ in range(2):
        with pytest.raises(
            errors.DatabaseError, match=rf"already, by backfill {number} \(waiting\)"
        ) as refused:
            create(items)
        assert refused.value.sqlstate == "TU121"
    items.execute("SELECT tube_backfill_collect(%s)", (number,))
    chunk(items, number)
    with pytest.raises(errors.DatabaseError, match="delivering"):
        create(items)
    items.execute("SELECT tube_backfill_command(%s, 'cancel')", (number,))
    assert create(items) > number


def test_refused_while_an_end_of_somebody_else_waits(items: Connection) -> None:
    items.execute("""SELECT t_touch(2, '{}', 'B', '{"type": "backfill_end", "start_seq": "1"}')""")
    with pytest.raises(errors.DatabaseError, match="whose backfill_end waits"):
        create(items)
    assert create(items, supersede=True)


def test_supersede_takes_back_what_waits(items: Connection) -> None:
    old = create(items)
    items.execute("SELECT tube_backfill_collect(%s)", (old,))
    chunk(items, old, 5)
    items.execute("SET application_name = 'a backfill by hand'")
    items.execute("SELECT items_touch('{1,2}')")
    new = create(items, supersede=True)
    assert one(items, "SELECT state FROM tube_backfill WHERE backfill_id = %s", old) == "superseded"
    assert sorted(ids(items)) == [1, 2]
    assert one(items, "SELECT to_regclass(%s)", f"tube.tube_backfill_ids_{old}") is None
    assert chunk(items, old)["state"] == "superseded"
    items.execute("SELECT tube_backfill_collect(%s)", (new,))
    assert chunk(items, new)["rows_done"] == 2000
    assert one(
        items, "SELECT array_agg(DISTINCT (payload ->> 'backfill')::int) FROM t WHERE payload IS NOT NULL"
    ) == [new]


def test_pause_resume_cancel(items: Connection) -> None:
    number = create(items)
    items.execute("SELECT tube_backfill_collect(%s)", (number,))
    command = "SELECT (tube_backfill_command(%s, %s)).paused"
    assert one(items, command, number, "pause")
    assert chunk(items, number, 2)["pods_done"] == 0
    assert not one(items, command, number, "resume")
    assert chunk(items, number, 2)["pods_done"] == 2
    items.execute(command, (number, "cancel"))
    assert ids(items) == []
    for name in ("pause", "resume", "cancel"):
        with pytest.raises(errors.DatabaseError, match="is cancelled") as refused:
            items.execute(command, (number, name))
        assert refused.value.sqlstate == "TU124"
    with pytest.raises(errors.InvalidParameterValue):
        items.execute(command, (create(items), "stop"))


def test_only_who_has_it_works_on_it(items: Connection, connect: Connect) -> None:
    number = create(items)
    other = connect()
    assert one(items, "SELECT tube_backfill_lock(%s)", number), "again"
    assert not one(other, "SELECT tube_backfill_lock(%s)", number)
    for call in ("collect(%s)", "chunk(%s, 1)", "note(%s, 'x')"):
        with pytest.raises(errors.DatabaseError) as refused:
            other.execute(f"SELECT tube_backfill_{call}", (number,))
        assert refused.value.sqlstate == "TU123"
    pid = items.info.backend_pid
    assert one(other, "SELECT pid FROM tube_backfill_list('t')") == pid
    assert one(items, "SELECT tube_backfill_unlock(%s)", number)
    assert one(other, "SELECT tube_backfill_lock(%s)", number)
    with pytest.raises(errors.DatabaseError) as refused:
        items.execute("SELECT tube_backfill_lock(%s)", (number + 1,))
    assert refused.value.sqlstate == "TU122"


@pytest.mark.parametrize(
    "change",
    [
        "SELECT tube_table_ensure_detached('t', 'public.items')",
        "SELECT tube_table_ensure_attached('t', 'public.items', 1, 8)",
        "DROP TABLE items",
    ],
)
def test_a_table_that_changes_its_place_ends_the_backfill(items: Connection, change: str) -> None:
    number = create(items)
    items.execute("SELECT tube_backfill_collect(%s)", (number,))
    chunk(items, number, 2)
    items.execute(change)
    after = chunk(items, number, 2)
    assert (after["state"], after["pods_done"]) == ("failed", 2)
    assert "detached" in after["note"]


def test_a_tube_that_is_dropped_takes_the_ids_along(items: Connection) -> None:
    number = create(items)
    items.execute("SELECT tube_backfill_collect(%s)", (number,))
    items.execute("SELECT tube_ensure_absent('t')")
    assert one(items, "SELECT count(*) FROM pg_class WHERE relname LIKE 'tube_backfill_ids%%'") == 0


def test_to_look_at_many_costs_no_call_for_each(items: Connection) -> None:
    items.execute(
        "INSERT INTO tube_backfill "
        "(tube, tbl, table_name, order_col, shard, shards, root, by_worker, start_seq, position) "
        "SELECT 't', g::oid, 'gone', 'id', 1, 1, true, true, 1, 1 FROM generate_series(1, 500) AS g"
    )
    items.execute("SET track_functions = 'all'")
    with items.transaction():
        assert one(items, "SELECT count(*) FROM tube_backfill_list('t')") == 500
        assert one(items, "SELECT sum(calls) FROM pg_stat_xact_user_functions") < 10


def test_unknown_tables_and_columns(items: Connection) -> None:
    items.execute("CREATE TABLE public.others (id bigint)")
    for call, text in (
        ("'t', 'public.others'", "is not attached"),
        ("'t', 'public.items', 'nope'", "has no column 'nope'"),
        ("""'t', 'public.items', 'n"; DROP TABLE items; --'""", "has no column"),
    ):
        with pytest.raises(errors.DatabaseError, match=text) as refused:
            items.execute(f"SELECT tube_backfill_create({call})")
        assert refused.value.sqlstate == "TU108"


def test_pressure_counts_no_further_than_asked(items: Connection) -> None:
    whole(items)
    statement = "SELECT waiting, replica FROM tube_backfill_pressure('t', %s)"
    assert items.execute(statement, (5,)).fetchone() == (6, None)
    assert items.execute(statement, (100,)).fetchone() == (8, None), "control pods left out"


# --- what a worker asks ---------------------------------------------------------------------------


def term(conn: Connection, partition: int) -> tuple[Any, ...]:
    """A term over a partition of the tube; its pods are marked."""
    leader = uuid4()
    epoch = one(conn, "SELECT tube_leader_epoch('t', 3, %s)", partition)
    conn.execute(
        "SELECT tube_leader_acquire('t', 3, %s, %s, %s, 'me', %s, 'neli', '1s', NULL)",
        (partition, leader, uuid4(), epoch),
    )
    conn.execute("SELECT tube_pods_mark('t', 3, %s, %s)", (partition, leader))
    return ("t", 3, partition, leader)


def schedule(conn: Connection, payload: str) -> int:
    conn.execute("DELETE FROM t")
    conn.execute("SELECT t_touch(1, '{}', 'B', %s)", (payload,))
    return int(one(conn, "SELECT seq FROM t"))


TAKE = "SELECT tube_backfill_take(%s, %s, %s, %s, 1, %s)"


def test_a_schedule_is_taken_once_and_under_its_term(items: Connection) -> None:
    seq = schedule(items, '{"type": "backfill_schedule", "tbl": "public.items", "order_col": "n"}')
    mine = term(items, 1)
    number = one(items, TAKE, *mine, seq)
    assert one(items, "SELECT count(*) FROM t") == 0
    row = items.execute("SELECT backfill_id, order_col, by_worker, state FROM tube_backfill").fetchall()
    assert row == [(number, "n", True, "waiting")]
    assert one(items, TAKE, *mine, seq) is None

    seq = schedule(items, '{"type": "backfill_schedule", "tbl": "public.items", "order_col": "n"}')
    term(items, 1)
    with pytest.raises(errors.DatabaseError) as fenced:
        items.execute(TAKE, (*mine, seq))
    assert fenced.value.sqlstate == "TU001"


@pytest.mark.parametrize(
    ("payload", "sqlstate"),
    [
        ('{"type": "backfill_schedule", "tbl": "public.nothing", "order_col": "n"}', "TU108"),
        ('{"type": "backfill_schedule", "tbl": "a.b.c.d", "order_col": "n"}', "TU108"),
        ('{"type": "backfill_schedule", "tbl": "\\"", "order_col": "n"}', "TU108"),
        ('{"type": "backfill_schedule", "tbl": "hidden.items", "order_col": "n"}', "TU108"),
        ('{"type": "backfill_schedule"}', "TU108"),
        ('{"type": "backfill_schedule", "tbl": "public.items", "order_col": "nope"}', "TU108"),
    ],
)
def test_a_schedule_that_makes_no_sense_stays(items: Connection, payload: str, sqlstate: str) -> None:
    items.execute("CREATE SCHEMA hidden; CREATE TABLE hidden.items (n int)")
    seq = schedule(items, payload)
    with pytest.raises(errors.DatabaseError) as refused:
        items.execute(TAKE, (*term(items, 1), seq))
    assert refused.value.sqlstate == sqlstate
    assert one(items, "SELECT count(*) FROM t") == 1


def test_what_a_writer_asked_for_is_found_after_a_rename(items: Connection) -> None:
    """A migration renames a column, writes, and renames the table."""
    resync = '{"type": "backfill_schedule", "tbl": "public.items", "order_col": "id", "resync": true}'
    seq = schedule(items, resync)
    items.execute("ALTER TABLE items RENAME id TO key; ALTER TABLE items RENAME TO things")
    items.execute("CREATE TABLE public.items (other int)")
    number = one(items, TAKE, *term(items, 1), seq)
    assert items.execute("SELECT backfill_id, tbl::regclass::text FROM tube_backfill").fetchall() == [
        (number, "things")
    ]


def test_a_schedule_of_a_busy_table_stays(items: Connection) -> None:
    create(items)
    seq = schedule(items, '{"type": "backfill_schedule", "tbl": "public.items", "order_col": "n"}')
    with pytest.raises(errors.DatabaseError) as refused:
        items.execute(TAKE, (*term(items, 1), seq))
    assert refused.value.sqlstate == "TU121"
    assert one(items, "SELECT count(*) FROM t") == 1


def test_an_end_waits_for_the_pods_before_it(items: Connection) -> None:
    whole(items)
    mine = term(items, 1)  # the shards 1 and 4
    end = one(items, "SELECT seq FROM t WHERE shard = 1 AND payload ->> 'type' = 'backfill_end'")
    ready = "SELECT tube_sweep_ready(%s, %s, %s, %s, 1, %s)"
    assert not one(items, ready, *mine, end)
    items.execute("DELETE FROM t WHERE shard = 1 AND ids <> '{}'")
    assert one(items, ready, *mine, end), "those of the shard 4 do not matter"


def test_the_last_end_finishes_the_backfill(items: Connection) -> None:
    whole(items)
    ends = items.execute("SELECT shard, seq FROM t WHERE payload ->> 'type' = 'backfill_end'").fetchall()
    terms = {partition: term(items, partition) for partition in range(3)}
    for left, (shard, seq) in zip((3, 2, 1, 0), ends, strict=True):
        end = "SELECT tube_sweep_end(%s, %s, %s, %s, %s, %s)"
        assert one(items, end, *terms[shard % 3], shard, seq)
        assert not one(items, end, *terms[shard % 3], shard, seq), "twice is once"
        assert one(items, "SELECT ends_left FROM tube_backfill") == left
    assert one(items, "SELECT state FROM tube_backfill") == "finished"


def test_a_consumer_without_terms_ends_a_backfill_by_deleting_its_ends(items: Connection) -> None:
    whole(items)
    delete = (
        "SELECT tube_pods_delete('t', 3, %s, ARRAY(SELECT seq FROM t WHERE shard %% 3 = %s AND op = 'B'))"
    )
    before = one(items, "SELECT count(*) FROM t WHERE op = 'B'")
    assert one(items, delete, 1, 1) > 2
    row = items.execute("SELECT state, ends_left, ended_at FROM tube_backfill").fetchone()
    assert row == ("delivering", 2, None)
    assert one(items, delete, 0, 0) > 0
    assert one(items, delete, 2, 2) > 0
    assert before > 4
    row = items.execute("SELECT state, ends_left, ended_at > inserted_at FROM tube_backfill").fetchone()
    assert row == ("finished", 0, True)
    whole(items)


def test_ends_that_are_no_ends_are_deleted_like_any_pod(items: Connection) -> None:
    number = whole(items)
    items.execute("DELETE FROM t")
    for payload in (
        '{"type": "backfill_end", "backfill": "x"}',
        '{"type": "backfill_end", "backfill": 1e400}',
    ):
        items.execute("SELECT t_touch(1, '{}', 'B', %s)", (payload,))
    assert one(items, "SELECT tube_pods_delete('t', 3, 1, ARRAY(SELECT seq FROM t))") == 2
    items.execute("SELECT tube_backfill_command(%s, 'cancel')", (number,))
    items.execute("SELECT t_touch(1, '{}', 'B', %s)", (f'{{"type": "backfill_end", "backfill": {number}}}',))
    assert one(items, "SELECT tube_pods_delete('t', 3, 1, ARRAY(SELECT seq FROM t))") == 1
    assert one(items, "SELECT state FROM tube_backfill") == "cancelled"


def test_touches_of_a_sweep(items: Connection) -> None:
    items.execute("DELETE FROM t")
    mine = term(items, 1)
    touch = "SELECT tube_sweep_touch(%s, %s, %s, %s, %s, %s)"
    assert one(items, touch, *mine, 4, list(range(600))) == 3
    pods = items.execute("SELECT op, shard, cardinality(ids), payload FROM t ORDER BY seq").fetchall()
    assert pods == [("B", 4, 250, None), ("B", 4, 250, None), ("B", 4, 100, None)]
    with pytest.raises(errors.DatabaseError) as refused:
        items.execute(touch, (*mine, 3, [1]))
    assert refused.value.sqlstate == "TU106"


def test_the_steps_and_schedules_keep_away_from_a_table_that_is_being_backfilled(items: Connection) -> None:
    create(items)
    with pytest.raises(psycopg.Error) as refused:
        items.execute("SELECT tube_backfill_step3(tube_backfill_step1(), 't', 'public.items', 'id')")
    assert refused.value.sqlstate == "TU121"
    assert one(items, "SELECT tube_backfill_schedule('t', 'id', 0, 10)") == 0
    assert ids(items) == []


def test_rows_that_wait_are_those_that_were_inserted_and_not_delivered(items: Connection) -> None:
    items.execute("DELETE FROM t")
    number = create(items)

    def waiting() -> int:
        return int(one(items, "SELECT tube_backfill_waiting(%s)", number))

    assert waiting() == 0
    items.execute("SELECT tube_backfill_collect(%s)", (number,))
    done = chunk(items, number, 4)["rows_done"]
    assert waiting() == done > 0
    items.execute("SELECT t_touch(2, ARRAY[1]::bigint[], 'B')")  # of nobody's backfill
    assert chunk(items, number)["state"] == "delivering"
    assert waiting() == 2000
    (delivered,) = items.execute(
        "WITH gone AS (DELETE FROM t WHERE op = 'B' AND seq IN ("
        " SELECT seq FROM t WHERE ids <> '{}' AND payload IS NOT NULL ORDER BY seq LIMIT 3) RETURNING ids)"
        " SELECT sum(cardinality(ids)) FROM gone"
    ).fetchone() or (0,)
    assert 0 < delivered < 2000
    assert waiting() == 2000 - delivered
    items.execute("DELETE FROM t WHERE op = 'B'")
    assert waiting() == 0
    with pytest.raises(psycopg.Error) as refused:
        items.execute("SELECT tube_backfill_waiting(0)")
    assert refused.value.sqlstate == "TU122"


def test_rows_of_a_large_backfill_are_estimated(items: Connection) -> None:
    """Of more pods than are counted; half of the backfill pods in the tube are not its own."""
    number = whole(items)
    items.execute("DELETE FROM t")
    items.execute("UPDATE tube_backfill SET rows_done = 10000000")
    items.execute(
        "INSERT INTO t (op, shard, ids, payload) SELECT 'B', 1 + g % 4, ARRAY[g, g + 1],"
        " jsonb_build_object('backfill', CASE WHEN g % 8 < 4 THEN $1::bigint ELSE 999 END)"
        " FROM generate_series(1, 60000) AS g".replace("$1", str(number))
    )
    assert 40_000 < one(items, "SELECT tube_backfill_waiting(%s)", number) < 80_000
