"""What is told of tubes: their list, their figures, and the pods that wait in them."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.helpers.capture import TABLE, TUBE, Conn, make_tube, open_session, scalar, set_up


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version."""
    with open_session(any_dsn) as conn:
        yield conn


def test_list(db: Conn) -> None:
    make_tube(db, "alone", 1)
    set_up(db, predicate="id > 0", shard=7, shards=2)
    rows = db.execute("SELECT tube, predicate, partitions, tbl::text, shard FROM tube_list()").fetchall()
    assert rows == [("alone", None, 1, None, None), (TUBE, "id > 0", 4, "item", 7)]
    rows = db.execute("SELECT tube, root FROM tube_list(%s)", (TABLE,)).fetchall()
    assert rows == [(TUBE, True)]
    assert db.execute("SELECT * FROM tube_list('pg_class')").fetchall() == []
    db.execute(f"DROP TABLE {TABLE}")
    rows = db.execute("SELECT tube, tbl FROM tube_list()").fetchall()
    assert rows == [("alone", None), (TUBE, None)]


def test_list_in_a_transaction_that_may_not_write(db: Conn) -> None:
    set_up(db)
    db.execute(f"DROP TABLE {TABLE}")
    with db.transaction():
        db.execute("SET TRANSACTION READ ONLY")
        assert db.execute("SELECT tube, tbl FROM tube_list()").fetchall() == [(TUBE, None)]
        assert len(db.execute("SELECT * FROM tube_stats()").fetchall()) == 4


def test_stats(db: Conn) -> None:
    make_tube(db, partitions=2)
    insert = 'INSERT INTO tube."es-live" (op, shard, ids, payload) VALUES (%s, %s, %s, %s) RETURNING seq, ts'
    first = db.execute(insert, ("I", 0, [1], None)).fetchone()
    last = db.execute(insert, ("T", 4, [2], None)).fetchone()
    late = db.execute(insert, ("B", 2, [3], None)).fetchone()
    db.execute(insert, ("B", 1, [], '{"type": "backfill_end"}'))
    db.execute(insert, ("T", 1, [], '{"type": "backfill_start"}'))
    db.execute(insert, ("T", 3, [], '{"type": "backfill_start"}'))
    assert first is not None
    assert last is not None
    assert late is not None
    db.execute(
        "INSERT INTO tube_parked (tube, shard, id, op, seq, error, attempts, epoch)"
        " VALUES (%s, 3, '1', 'U', 1, 'no', 1, 1)",
        (TUBE,),
    )
    rows = db.execute(
        "SELECT partition, inc_count, inc_min_seq, inc_max_seq, inc_min_ts, inc_max_ts, backfill_count,"
        " backfill_min_seq, backfill_max_ts, control_count, parked FROM tube_stats()"
    ).fetchall()
    assert rows[0] == (0, "2", first[0], last[0], first[1], last[1], "1", late[0], late[1], "0", "0")
    assert rows[1][1:9] == ("0", None, None, None, None, "0", None, None)
    assert rows[1][9:] == ("backfill_end:1 backfill_start:2", "1")


def test_stats_of_many_pods_are_estimates(db: Conn) -> None:
    make_tube(db, partitions=2)
    db.execute(
        "INSERT INTO tube.\"es-live\" (op, shard, ids) SELECT CASE WHEN g % 4 < 2 THEN 'U' ELSE 'B' END, g,"
        " ARRAY[g] FROM generate_series(1, 40000) AS g"
    )
    db.execute('ANALYZE tube."es-live"')
    for row in db.execute("SELECT inc_count, backfill_count FROM tube_stats()"):
        for count in row:
            assert count[0] == "~"
            assert 5000 < int(count[1:]) < 20000


def fill(db: Conn, *, before: int = 0, pods: int = 1_000_000, shards: str = "g") -> None:
    """Pods of one statement, of which the planner knows nothing; behind so many of another tube's seqs."""
    db.execute('ALTER TABLE tube."es-live" SET (autovacuum_enabled = off)')
    db.execute("SELECT setval('tube.tube_seq', nextval('tube.tube_seq') + %s)", (before,))
    db.execute(
        f"INSERT INTO tube.\"es-live\" (op, shard, ids) SELECT 'U', {shards}, ARRAY[g]"
        f" FROM generate_series(1, {pods}) AS g"
    )


def counted(db: Conn) -> list[int]:
    """The estimates of `tube_stats` of incremental pods, which `tube_load` has, too."""
    counts = [row[0] for row in db.execute("SELECT inc_count FROM tube_stats()")]
    assert all(count.isdigit() or count[0] == "~" for count in counts), counts
    numbers = [int(count.lstrip("~")) for count in counts]
    assert [row[0] for row in db.execute("SELECT waiting FROM tube_load()")] == numbers
    return numbers


def assert_about(db: Conn) -> None:
    """Each estimate is right to a factor of two at most."""
    truth = [
        row[0]
        for row in db.execute('SELECT count(*) FROM tube."es-live" GROUP BY shard % 4 ORDER BY shard % 4')
    ]
    told = counted(db)
    assert len(told) == len(truth)
    assert all(real / 2 <= count <= real * 2 for count, real in zip(told, truth, strict=True)), (told, truth)


@pytest.mark.every_server
def test_estimates_of_a_million_pods_that_were_never_analyzed(db: Conn) -> None:
    make_tube(db, partitions=4)
    fill(db)
    assert_about(db)
    db.execute('DELETE FROM tube."es-live" WHERE seq / 4 % 2 = 0')
    assert_about(db)
    db.execute('DELETE FROM tube."es-live" WHERE seq < (SELECT max(seq) - 100000 FROM tube."es-live")')
    assert_about(db)
    db.execute('DELETE FROM tube."es-live" WHERE seq < (SELECT max(seq) - 10000 FROM tube."es-live")')
    assert_about(db)  # a long queue of dead rows before few that live
    db.execute('VACUUM tube."es-live"')
    assert_about(db)


def test_estimates_of_partitions_of_which_one_has_ten_times_as_much(db: Conn) -> None:
    make_tube(db, partitions=4)
    fill(db, pods=130_000, shards="CASE WHEN g % 13 < 3 THEN g % 13 ELSE 3 END")
    assert_about(db)


def test_estimates_of_a_partition_whose_pods_came_at_another_time(db: Conn) -> None:
    make_tube(db, partitions=4)
    fill(db, pods=400_000, shards="3 * (g % 2)")
    fill(db, pods=4000, shards="1 + g % 2")
    fill(db, pods=400_000, shards="3 * (g % 2)")
    assert_about(db)


def test_estimates_where_other_tubes_draw_most_of_the_seqs(db: Conn) -> None:
    make_tube(db, partitions=4)
    fill(db, pods=1500)
    fill(db, before=10**12, pods=200_000)
    assert_about(db)


def ids_waiting(db: Conn) -> tuple[list[int], bool]:
    """What is said to wait in each partition, which is compared with the truth; whether it is an estimate."""
    truth = [
        row[0]
        for row in db.execute(
            'SELECT sum(cardinality(ids)) FROM tube."es-live" GROUP BY shard % 4 ORDER BY shard % 4'
        )
    ]
    rows = db.execute("SELECT ids, sampled FROM tube_ids_waiting() ORDER BY partition").fetchall()
    told = [row[0] for row in rows]
    if not rows[0][1]:
        assert told == truth
    assert all(real / 2 <= count <= real * 2 for count, real in zip(told, truth, strict=True)), (told, truth)
    return told, rows[0][1]


def fill_pods(db: Conn, ids: str, pods: int) -> None:
    db.execute(
        f"INSERT INTO tube.\"es-live\" (op, shard, ids) SELECT 'U', g % 4, {ids}"
        f" FROM generate_series(1, {pods}) AS g"
    )


@pytest.mark.parametrize(
    ("key_type", "one", "many"),
    [
        ("bigint", "ARRAY[g]", "ARRAY(SELECT n + g FROM generate_series(1, 250) AS n)"),
        (
            "uuid",
            "ARRAY[gen_random_uuid()]",
            "ARRAY(SELECT gen_random_uuid() FROM generate_series(1, 250) WHERE g > 0)",
        ),
        ("text", "ARRAY[g::text]", "ARRAY(SELECT (n * g)::text FROM generate_series(1, 250) AS n)"),
    ],
)
def test_ids_that_wait_in_pods_of_many_and_of_one(db: Conn, key_type: str, one: str, many: str) -> None:
    db.execute("SELECT tube_ensure_exists('es-live', 4, key_type => %s)", (key_type,))
    fill_pods(db, many, 400)
    fill_pods(db, one, 2000)
    db.execute("INSERT INTO tube.\"es-live\" (op, shard, ids, payload) VALUES ('T', 1, '{}', '{}')")
    assert ids_waiting(db) == ([25_500] * 4, False)


def test_ids_that_wait_in_a_large_table_are_estimated(db: Conn) -> None:
    """What was delivered between two looks is seen, since both look at the same pages."""
    make_tube(db, partitions=4)
    fill_pods(db, "ARRAY(SELECT n + g FROM generate_series(1, 250) AS n)", 8000)
    fill(db, pods=400_000)
    before, is_sampled = ids_waiting(db)
    assert is_sampled
    db.execute(
        'DELETE FROM tube."es-live" WHERE seq IN (SELECT seq FROM tube."es-live" ORDER BY seq LIMIT 800)'
    )
    fewer = sum(before) - sum(ids_waiting(db)[0])
    assert 100_000 <= fewer <= 400_000, "200,000 were delivered"


def test_estimates_cost_little(db: Conn) -> None:
    make_tube(db, partitions=4)
    fill(db)
    for call, most in (("tube_stats()", 2000), ("tube_load()", 1000)):
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM {call}"
        db.execute(explain)  # which reads catalogs, too
        plan = scalar(db, explain)[0]["Plan"]
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < most


def test_stats_without_the_index_for_the_partitions_are_the_same(db: Conn) -> None:
    """As after a repartition whose index is not built yet."""
    make_tube(db, partitions=2)
    db.execute(
        "INSERT INTO tube.\"es-live\" (op, shard, ids) SELECT CASE WHEN g % 5 = 0 THEN 'B' ELSE 'U' END, g,"
        " ARRAY[g] FROM generate_series(1, 3000) AS g"
    )
    rows = db.execute("SELECT * FROM tube_stats()").fetchall()
    name = scalar(db, "SELECT name FROM tube_private_indexes('es-live') WHERE partitions = 2")
    db.execute(f"DROP INDEX {name}".encode())
    for row, other in zip(rows, db.execute("SELECT * FROM tube_stats()").fetchall(), strict=True):
        assert row[:4] + row[5:] == other[:4] + other[5:], "but for estimates"


@pytest.mark.every_server
@pytest.mark.parametrize("analysed", ["never", "when empty", "when full"])
def test_stats_are_cheap_on_a_full_tube(db: Conn, analysed: str) -> None:
    make_tube(db, partitions=4)
    db.execute('ALTER TABLE tube."es-live" SET (autovacuum_enabled = off)')
    if analysed == "when empty":
        db.execute('VACUUM ANALYZE tube."es-live"')
    db.execute(
        'INSERT INTO tube."es-live" (op, shard, ids)'
        " SELECT CASE WHEN g % 8 < 4 THEN 'U' ELSE 'B' END, g, ARRAY[g] FROM generate_series(1, 200000) AS g"
    )
    db.execute(
        'INSERT INTO tube."es-live" (op, shard, ids, payload)'
        " SELECT 'B', g, '{}', '{\"type\": \"backfill_end\"}' FROM generate_series(1, 20) AS g"
    )
    if analysed == "when full":
        db.execute('VACUUM ANALYZE tube."es-live"')
    explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM tube_stats()"
    db.execute(explain)  # which reads catalogs, too
    plan = scalar(db, explain)[0]["Plan"]
    touched = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    pages = scalar(db, "SELECT pg_relation_size('tube.\"es-live\"') / 8192")
    assert touched < pages / 2, (touched, pages)


@pytest.mark.parametrize(
    ("shard", "shards", "counts", "expected"),
    [
        (42, 1, [0, 0, 1, 0], [None, None, "42", None]),
        (0, 16, [4, 4, 4, 4], ["0,4,8,12", "1,5,9,13", "2,6,10,14", "3,7,11,15"]),
        (
            1,
            100,
            [25, 25, 25, 25],
            ["4,8,12,16,20,24,28,32,36,40,... (25)"]
            + [
                f"{first},{','.join(str(first + 4 * n) for n in range(1, 10))},... (25)"
                for first in (1, 2, 3)
            ],
        ),
        (5, 2, [0, 1, 1, 0], [None, "5", "6", None]),
    ],
)
def test_the_shards_of_a_partition(
    conn: Conn, shard: int, shards: int, counts: list[int], expected: list[str | None]
) -> None:
    set_up(conn, shard=shard, shards=shards)
    assert [row[0] for row in conn.execute("SELECT shards FROM tube_stats()")] == counts
    assert [row[0] for row in conn.execute("SELECT shard_list FROM tube_stats()")] == expected


def test_a_dropped_table_has_no_shards(conn: Conn) -> None:
    set_up(conn, partitions=1, shard=3)
    conn.execute(f"DROP TABLE {TABLE}")
    assert conn.execute("SELECT shards, shard_list FROM tube_stats()").fetchall() == [(0, None)]


def test_shards_of_two_tables_count_twice_and_are_listed_once(conn: Conn) -> None:
    set_up(conn, partitions=2, shard=0, shards=3)
    conn.execute("CREATE TABLE public.note (id bigint PRIMARY KEY, item_id bigint)")
    conn.execute("SELECT tube_table_ensure_attached(%s, 'public.note', 0, 3, 'item_id')", (TUBE,))
    assert conn.execute("SELECT shards, shard_list FROM tube_stats()").fetchall() == [(4, "0,2"), (2, "1")]


def test_pods_in_processing_order(db: Conn) -> None:
    make_tube(db, partitions=2)
    for op in ("B", "I", "B", "T"):
        db.execute(
            "INSERT INTO tube.\"es-live\" (op, shard, ids) VALUES (%s, 2, '{1,2}'), (%s, 3, '{9}')", (op, op)
        )
    query = scalar(db, "SELECT tube_pods_sql(%s, 2, 0)", (TUBE,))
    rows = db.execute(query.encode()).fetchall()
    assert [(row[1], row[2], row[3]) for row in rows] == [(op, 2, "{1,2}") for op in ("I", "T", "B", "B")]
    seqs = [row[0] for row in rows]
    assert seqs == sorted(seqs[:2]) + sorted(seqs[2:])
    query = scalar(db, "SELECT tube_pods_sql(%s, 2, 0, true)", (TUBE,))
    assert [row[1] for row in db.execute(query.encode())] == ["I", "T"]
    everything = [row[0] for row in db.execute('SELECT seq FROM tube."es-live"')]
    assert scalar(db, "SELECT tube_pods_delete(%s, 2, 0, %s)", (TUBE, everything)) == 4
    assert scalar(db, "SELECT tube_pods_delete(%s, 2, 0, %s)", (TUBE, everything)) == 0


@pytest.mark.parametrize(
    ("arguments", "state"), [(("nope", 2, 0), "TU102"), ((TUBE, 3, 0), "TU002"), ((TUBE, 2, 2), "TU103")]
)
def test_pods_of_what_is_not_there(conn: Conn, arguments: tuple[str, int, int], state: str) -> None:
    make_tube(conn, partitions=2)
    for call in ("tube_pods_sql(%s, %s, %s)", "tube_pods_delete(%s, %s, %s, '{1}')"):
        with pytest.raises(psycopg.Error) as refused:
            conn.execute(f"SELECT {call}", arguments)
        assert refused.value.sqlstate == state
