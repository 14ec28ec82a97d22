"""What a term does with records: marks, purges, resets; in which order, and which are passed over."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pytube.db.session import Session
from pytube.outbox import source as source_queries
from pytube.outbox.partitions import slot_of
from pytube.outbox.source import OutboxSource
from pytube.sources import terms
from tests.helpers.capture import open_session
from tests.helpers.outbox_sql import (
    ADOPTED,
    OUTBOX,
    adopt,
    lead,
    make_outbox,
    mark,
    marked_ids,
    park,
    purge,
    purge_sent,
    reset,
    retry,
    stash,
    waiting_ids,
)
from tests.helpers.terms import Conn, scalar

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "outbox_slots.json").read_text())

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]

Make = Callable[..., None]


@pytest.fixture
def conn(any_dsn: str) -> Iterator[Conn]:
    """A session on each version."""
    with open_session(any_dsn) as conn:
        yield conn


@pytest.mark.parametrize("make", [make_outbox, adopt], ids=["own", "adopted"])
def test_records_come_by_id_once_for_a_term_and_go_when_they_are_purged(conn: Conn, make: Make) -> None:
    make(conn)
    ids = [
        stash(conn, key=str(number), value=f"ä{number}", headers='[["h", "1"], ["h", "2"]]')
        for number in range(7)
    ]
    term = lead(conn)
    records = mark(conn, term, 3)
    assert [record.id for record in records] == ids[:3]
    assert records[0].kafka_value == "ä0".encode()
    assert (records[0].kafka_topic, records[0].kafka_key) == ("t", "0")
    assert (records[0].kafka_header_keys, records[0].kafka_header_values) == (["h", "h"], ["1", "2"])
    assert marked_ids(conn, term) == ids[3:]
    assert marked_ids(conn, term) == []
    assert reset(conn, term, [ids[1], ids[5], 0]) == 2
    assert marked_ids(conn, term, floor=ids[1]) == [ids[5]]
    assert marked_ids(conn, term) == [ids[1]]
    assert purge(conn, term, ids[::2]) == 4
    assert purge(conn, term, ids[::2]) == 0
    assert purge(conn, term, []) == 0
    assert reset(conn, term) == 3
    new = lead(conn)
    with pytest.raises(psycopg.Error) as fenced:
        mark(conn, term)
    assert fenced.value.sqlstate == "TU001"
    assert marked_ids(conn, new) == ids[1::2]
    # far from each other, as when one topic waits for long
    far = [ids[1], ids[5]]
    assert purge(conn, new, far) == 2
    assert waiting_ids(conn, str(scalar(conn, "SELECT tbl FROM outbox_list()"))) == [ids[3]]


@pytest.mark.parametrize("make", [make_outbox, adopt], ids=["own", "adopted"])
def test_what_earlier_terms_have_sent_goes_from_the_partition_whoever_has_marked_it(
    conn: Conn, make: Make
) -> None:
    make(conn, partitions=2)
    ids = [stash(conn, key=str(number)) for number in range(20)]
    old, other = lead(conn, 0, 2), lead(conn, 1, 2)
    in_first = marked_ids(conn, old, 4)
    in_second = marked_ids(conn, other)
    term = lead(conn, 0, 2)
    with pytest.raises(psycopg.Error) as fenced:
        purge_sent(conn, old, ids)
    assert fenced.value.sqlstate == "TU001"
    assert purge_sent(conn, term, in_first, until="2001-01-01") == 0, "later records got these ids"
    assert purge_sent(conn, term, [*in_first, *in_second, 0]) == 4
    assert purge_sent(conn, term, []) == 0
    assert waiting_ids(conn, str(scalar(conn, "SELECT tbl FROM outbox_list()"))) == [
        number for number in ids if number not in in_first
    ]


def test_a_term_learns_of_all_earlier_ones_that_had_records_of_its_partition(conn: Conn) -> None:
    """One that was released, too: it may have lost its session before it could purge what it had sent."""
    make_outbox(conn, partitions=4)
    before = {number: lead(conn, number, 4) for number in range(4)}
    released, superseded = before[2], before[0]
    assert scalar(conn, "SELECT tube_leader_release(%s, %s, %s, %s)", released.args) is True
    again = lead(conn, 2, 4)
    make_outbox(conn, partitions=2)
    lead(conn, 0, 2)
    arguments = {"tube": OUTBOX, "partitions": 2, "partition": 0}
    _, _, earlier, _ = conn.execute(source_queries.OUTBOX, arguments).fetchone() or ((), (), [], "")
    expected = sorted([4, old.partition, old.epoch] for old in (released, superseded, again))
    assert sorted(term[:3] for term in earlier) == expected
    now = scalar(conn, "SELECT extract(epoch FROM clock_timestamp())::float8")
    assert all(now < until < now + 3600 for *_, until in earlier), "renewed just now"


async def test_a_term_learns_of_however_many_earlier_ones(any_dsn: str, conn: Conn) -> None:
    make_outbox(conn)
    earlier = [lead(conn).epoch for _ in range(200)]
    term = lead(conn)
    session = await Session.open(any_dsn, "tube", "worker")
    source = OutboxSource(session, terms.Term(OUTBOX, 1, 0, term.epoch, term.leader_id))
    await source.load()
    await session.close()
    assert sorted(one.epoch for one in source.earlier) == earlier


def test_a_new_term_takes_over_what_another_one_had_marked(conn: Conn) -> None:
    make_outbox(conn)
    ids = [stash(conn), stash(conn)]
    old = lead(conn)
    assert marked_ids(conn, old) == ids
    new = lead(conn)
    assert marked_ids(conn, new) == ids
    assert purge(conn, new, ids) == 2


def test_a_tombstone_has_no_value_and_a_binary_one_stays_as_it_is(conn: Conn) -> None:
    make_outbox(conn, value_type="bytea")
    conn.execute(
        r"SELECT outbox_stash('orders', 't', 'k', '\x00ff'::bytea), outbox_stash('orders', 't', 'k', 'ä')"
    )
    stash(conn, value=None)
    assert [record.kafka_value for record in mark(conn, lead(conn))] == [b"\x00\xff", "ä".encode(), None]


@pytest.mark.parametrize("make", [make_outbox, adopt], ids=["own", "adopted"])
def test_each_record_is_in_the_partition_of_its_key(conn: Conn, make: Make) -> None:
    make(conn, partitions=3)
    index = scalar(conn, "SELECT outbox_index_sql('orders', 3)")
    assert (index is None) == (make is make_outbox), "an own table is made with its index"
    if index is not None:
        conn.execute(index)
    keys = ["a", "b", "c", "ключ", ""]
    ids = {stash(conn, key=key): key for key in keys * 4}
    found: dict[str, set[int]] = {}
    for partition in range(3):
        for record in mark(conn, lead(conn, partition, 3)):
            assert slot_of("t", record.kafka_key, record.id) % 3 == partition
            found.setdefault(ids.pop(record.id), set()).add(partition)
    assert ids == {}
    assert all(len(partitions) == 1 for partitions in found.values())
    rows = conn.execute("SELECT partition, count FROM outbox_stats() ORDER BY partition").fetchall()
    assert sum(int(count) for _, count in rows) == 20


def test_slots_are_the_same_in_python(conn: Conn) -> None:
    make_outbox(conn)
    slot = scalar(conn, "SELECT tube_private_outbox_slot(false)")
    for vector in VECTORS:
        found = scalar(
            conn,
            f"SELECT {slot} FROM (SELECT %(topic)s::varchar(249) AS kafka_topic, %(key)s::text AS kafka_key,"
            " NULL::text AS partition_key, %(id)s::bigint AS id) AS r",
            vector,
        )
        assert found == vector["expected"] == slot_of(vector["topic"], vector["key"], vector["id"])


def test_the_partition_key_orders_in_place_of_the_key(conn: Conn) -> None:
    make_outbox(conn, partitions=64)
    ids = {stash(conn, key=str(number), partition_key="one") for number in range(5)}
    partition = slot_of("t", "one", 0) % 64
    records = mark(conn, lead(conn, partition, 64))
    assert {record.id for record in records} == ids
    assert {record.partition_key for record in records} == {"one"}


def test_records_without_a_key_are_spread(conn: Conn) -> None:
    make_outbox(conn, partitions=2)
    for _ in range(20):
        stash(conn, key=None)
    counts = [len(mark(conn, lead(conn, partition, 2))) for partition in range(2)]
    assert sum(counts) == 20
    assert min(counts) > 0


@pytest.mark.parametrize("limit", ["0", "1000001", "NULL"])
def test_a_limit_that_makes_no_sense_is_refused(conn: Conn, limit: str) -> None:
    make_outbox(conn)
    given = "'{}', {}, {}, '{}'".format(*lead(conn).args)
    with pytest.raises(psycopg.Error, match=f"records_limit is {limit}") as refused:
        conn.execute(f"SELECT * FROM outbox_records_mark({given}, {limit})")
    assert refused.value.sqlstate == "22023"


@pytest.mark.parametrize(
    ("partitions", "partition", "state"), [(2, 0, "TU002"), (1, 1, "TU103"), (1, 0, "TU001")]
)
def test_what_is_no_term_of_the_outbox_is_refused(
    conn: Conn, partitions: int, partition: int, state: str
) -> None:
    make_outbox(conn)
    lead(conn)
    for call in ("mark({})", "purge({}, '{{1}}')", "reset({})", "park({}, '[]')"):
        given = f"'{OUTBOX}', {partitions}, {partition}, '{uuid.uuid4()}'"
        with pytest.raises(psycopg.Error) as refused:
            conn.execute(f"SELECT outbox_records_{call.format(given)}")
        assert refused.value.sqlstate == state


def test_marks_stay_within_their_pages(conn: Conn) -> None:
    """No index holds leader_id, and there is room: else each mark would write into every index."""
    make_outbox(conn, partitions=2)
    conn.execute(
        "SELECT outbox_stash_many('orders', array_fill('t'::text, '{500}'),"
        " (SELECT array_agg(i::text) FROM generate_series(1, 500) AS i),"
        " array_fill(repeat('v', 100), '{500}'))"
    )
    marked = sum(len(mark(conn, lead(conn, partition, 2))) for partition in range(2))
    assert marked == 500
    conn.execute("SELECT pg_stat_force_next_flush()")
    updates, hot = conn.execute(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'orders'"
    ).fetchone() or (0, 0)
    assert (updates, hot) == (500, 500)


def test_a_mark_looks_at_no_more_than_it_takes(conn: Conn) -> None:
    """Whatever the statistics say: they were taken while the outbox was empty."""
    make_outbox(conn, partitions=2)
    conn.execute("ANALYZE orders")
    conn.execute(
        "SELECT outbox_stash_many('orders', array_fill('t'::text, '{5000}'),"
        " (SELECT array_agg(i::text) FROM generate_series(1, 5000) AS i), array_fill('v'::text, '{5000}'))"
    )
    term = lead(conn, 0, 2)
    assert len(mark(conn, term, 10)) == 10
    conn.execute("SELECT pg_stat_force_next_flush()")
    conn.execute("SELECT pg_stat_reset_single_table_counters('orders'::regclass)")
    assert len(mark(conn, term, 10)) == 10
    conn.execute("SELECT pg_stat_force_next_flush()")
    sequential, fetched = conn.execute(
        "SELECT seq_tup_read, idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'orders'"
    ).fetchone() or (0, 0)
    assert sequential == 0
    assert fetched < 200


def test_a_retried_record_comes_whatever_the_floor_and_is_told_apart(conn: Conn) -> None:
    make_outbox(conn)
    ids = [stash(conn, key=str(number)) for number in range(4)]
    term = lead(conn)
    assert marked_ids(conn, term) == ids
    assert park(conn, term, ids[0], ids[2]) == [ids[0], ids[2]]
    assert marked_ids(conn, term) == []
    assert retry(conn, [ids[2]]) == 1
    late = stash(conn)
    records = mark(conn, term, floor=ids[3])
    assert [(record.id, record.retried) for record in records] == [(ids[2], True), (late, False)]
    assert retry(conn) == 1
    assert [(record.id, record.retried) for record in mark(conn, term, 1, late)] == [(ids[0], True)]
    assert marked_ids(conn, lead(conn)) == [*ids, late]


def test_a_retried_record_overtakes_no_earlier_one_of_its_key(conn: Conn) -> None:
    """A term had marked the first of those that are to be sent again, and ended."""
    make_outbox(conn)
    ids = [stash(conn), stash(conn), stash(conn)]
    term = lead(conn)
    mark(conn, term)
    park(conn, term, ids[0], hold=True)
    park(conn, term, *ids[1:], behind=True)
    assert retry(conn) == 3
    assert marked_ids(conn, term, 1, floor=ids[2]) == [ids[0]]
    term = lead(conn)
    assert [marked_ids(conn, term, 1), marked_ids(conn, term, 1), marked_ids(conn, term, 1)] == [
        [ids[0]],
        [ids[1]],
        [ids[2]],
    ]
    # The same within a term that gives it back.
    park(conn, term, ids[0], hold=True)
    park(conn, term, *ids[1:], behind=True)
    retry(conn)
    assert marked_ids(conn, term, 1, floor=ids[2]) == [ids[0]]
    assert reset(conn, term, [ids[0]]) == 1
    assert marked_ids(conn, term, floor=ids[0] - 1) == ids


def test_a_mark_that_is_not_full_has_seen_all_though_some_retried_ones_were_marked(conn: Conn) -> None:
    """Who gets fewer than the limit goes past all that is settled: what was left out would not come again."""
    make_outbox(conn)
    ids = [stash(conn, key=None) for _ in range(2)]
    term = lead(conn)
    assert marked_ids(conn, term) == ids
    park(conn, term, *ids)
    assert retry(conn) == 2
    term = lead(conn)
    assert marked_ids(conn, term, limit=2) == ids
    park(conn, term, ids[0])
    assert retry(conn) == 1, "both are listed now, and the second one is marked"
    late = stash(conn, key=None)
    assert marked_ids(conn, term, limit=2, floor=ids[1]) == [ids[0], late]


def test_row_level_security_that_hides_records_is_an_error(conn: Conn, any_dsn: str) -> None:
    adopt(conn)
    stash(conn)
    term = lead(conn)
    conn.execute(f"ALTER TABLE {ADOPTED} ENABLE ROW LEVEL SECURITY")
    conn.execute("GRANT USAGE ON SCHEMA public TO tube_worker")
    with open_session(any_dsn) as worker:
        worker.execute("SET ROLE tube_worker")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            mark(worker, term)
        conn.execute(f"ALTER TABLE {ADOPTED} DISABLE ROW LEVEL SECURITY")
        assert len(mark(worker, term)) == 1
