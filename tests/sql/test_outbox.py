"""Outboxes: made, changed, listed, dropped; and what they have in common with tubes, and what not."""

from __future__ import annotations

import psycopg
import pytest

from pytube.errors import SQLSTATES
from tests.helpers.outbox_sql import (
    ADOPTED,
    GOHARVEST_TABLE,
    OUTBOX,
    adopt,
    lead,
    make_outbox,
    mark,
    park,
    stash,
    waiting_ids,
)
from tests.helpers.terms import Conn, make_tube, scalar

COLUMNS = [
    ("id", "bigint"),
    ("create_time", "timestamp with time zone"),
    ("kafka_topic", "character varying(249)"),
    ("kafka_key", "text"),
    ("kafka_value", "text"),
    ("kafka_header_keys", "text[]"),
    ("kafka_header_values", "text[]"),
    ("leader_id", "uuid"),
    ("partition_key", "text"),
]


REFUSED = {
    "SELECT outbox_ensure_exists('')": "TU101 '' is not a valid outbox name: it is empty",
    "SELECT outbox_ensure_exists('a,b')": "TU101 'a,b' is not a valid outbox name: it has a comma",
    "SELECT outbox_ensure_exists('new', 0)": "TU103 an outbox can't have 0 partitions",
    "SELECT outbox_ensure_exists('b', 1, 'json')": "22023 the values of outbox 'b' can't have the type json",
    "SELECT outbox_ensure_exists('t')": "TU111 't' is a tube, not an outbox",
    "SELECT outbox_adopt('t', 'public.outbox')": "TU111 't' is a tube, not an outbox",
    "SELECT outbox_drop('none')": "TU102 there is no outbox 'none'",
    "SELECT outbox_drop('t')": "TU111 't' is a tube, not an outbox",
    "SELECT outbox_retry('t')": "TU111 't' is a tube, not an outbox",
    "SELECT outbox_index_sql('none', 2)": "TU102 there is no outbox 'none'",
    "SELECT outbox_index_sql('orders', 0)": "TU103 an outbox can't have 0 partitions",
    "SELECT outbox_stash('none', 't', 'k', 'v')": "TU102 there is no outbox 'none'",
    "SELECT outbox_parked(in_limit => -1)": "22023 in_limit is -1",
    "SELECT tube_ensure_exists('orders')": "TU111 'orders' is an outbox, not a tube",
    "SELECT tube_ensure_absent('orders')": "TU111 'orders' is an outbox, not a tube",
    "SELECT tube_drop('orders')": "TU111 'orders' is an outbox, not a tube",
    "SELECT tube_index_sql('orders', 2)": "TU111 'orders' is an outbox, not a tube",
    "SELECT tube_table_ensure_attached('orders', 'public.outbox')": "TU111 'orders' is an outbox, not a tube",
    "SELECT tube_table_ensure_detached('orders', 'public.outbox')": "TU111 'orders' is an outbox, not a tube",
    "SELECT tube_pods_insert('orders', 'SELECT 1, 1', 0)": "TU111 'orders' is an outbox, not a tube",
    "SELECT tube_pods_sql('orders', 1, 0)": "TU111 'orders' is an outbox, not a tube",
    "SELECT tube_pods_delete('orders', 1, 0, '{1}')": "TU111 'orders' is an outbox, not a tube",
    "SELECT tube_stream_purge('orders', 1)": "TU111 'orders' is an outbox, not a tube",
    "SELECT tube_backfill_schedule('orders', 'id', 0, 1)": "TU111 'orders' is an outbox, not a tube",
}
"""What is refused, and why, where `t` is a tube and `orders` an outbox."""


def refusal(conn: Conn, statement: str) -> str:
    """The SQLSTATE and the message of a statement that is refused."""
    with pytest.raises(psycopg.Error) as refused:
        conn.execute(statement)
    assert refused.value.diag.message_hint
    return f"{refused.value.sqlstate} {refused.value.diag.message_primary}"


def test_the_table_is_one_that_goharvest_could_read(conn: Conn) -> None:
    make_outbox(conn)
    rows = conn.execute(
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = 'orders'::regclass AND attnum > 0 ORDER BY attnum"
    ).fetchall()
    assert rows == COLUMNS
    make_outbox(conn, "raw", value_type="bytea")
    assert (
        scalar(conn, "SELECT pg_typeof(kafka_value)::text FROM (VALUES (1)) AS v LEFT JOIN raw ON true")
        == "bytea"
    )


def test_an_outbox_made_again_is_left_alone(conn: Conn) -> None:
    make_outbox(conn, value_type="bytea")
    term = lead(conn)
    make_outbox(conn)  # keeps its type
    assert mark(conn, term) == []
    assert refusal(conn, "SELECT outbox_ensure_exists('orders', 1, 'text')").startswith("22023 ")


def test_repartitioning_ends_the_terms_and_builds_the_index(conn: Conn) -> None:
    make_outbox(conn)
    term = lead(conn)
    stash(conn)
    make_outbox(conn, partitions=4)
    with pytest.raises(psycopg.Error) as refused:
        mark(conn, term)
    assert refused.value.sqlstate == "TU002"
    indexes = conn.execute(
        "SELECT indexname FROM pg_indexes WHERE tablename = 'orders' ORDER BY 1"
    ).fetchall()
    assert [name.rpartition("_p")[2] for (name,) in indexes] == ["4_idx", "key"]
    make_outbox(conn, partitions=1)
    assert scalar(conn, "SELECT count(*) FROM pg_indexes WHERE tablename = 'orders'") == 1


def test_what_is_refused_is_said(conn: Conn) -> None:
    make_tube(conn, "t")
    make_outbox(conn)
    conn.execute(GOHARVEST_TABLE)
    assert {statement: refusal(conn, statement) for statement in REFUSED} == REFUSED
    assert {message[:5] for message in REFUSED.values()} <= {*SQLSTATES, "22023"}


def test_a_term_of_an_outbox_has_no_pods_and_one_of_a_tube_no_records(conn: Conn) -> None:
    make_tube(conn)
    make_outbox(conn)
    for kind, term in (("tube_pods", lead(conn)), ("outbox_records", lead(conn, outbox="queue"))):
        given = "'{}', {}, {}, '{}'".format(*term.args)
        for call in ("mark({})", "purge({}, '{{1}}')", "reset({})", "park({}, '[]')"):
            assert refusal(conn, f"SELECT {kind}_{call.format(given)}").startswith("TU111 ")


def test_what_lists_tubes_passes_over_outboxes(conn: Conn) -> None:
    make_outbox(conn, partitions=2)
    stash(conn)
    for function in ("tube_list()", "tube_stats()"):
        assert conn.execute(f"SELECT * FROM {function}").fetchall() == []
    assert scalar(conn, "SELECT tube_index_fit()") == 0
    assert scalar(conn, "SELECT tube_sync()") == 0
    lead(conn, partitions=2)
    assert conn.execute("SELECT tube, partition FROM tube_leaders()").fetchall() == [(OUTBOX, 0)]


def test_an_outbox_with_records_is_dropped_by_force_only(conn: Conn) -> None:
    make_outbox(conn)
    stash(conn)
    assert (
        refusal(conn, "SELECT outbox_drop('orders')")
        == "TU109 outbox 'orders' is not dropped: records that wait: 1"
    )
    conn.execute(
        "INSERT INTO tube_outbox_parked (outbox, id, topic, key, slot, error, attempts, epoch, hold, behind)"
        " SELECT 'orders', r.id, 't', 'k', 0, 'no', 1, 1, false, false FROM orders AS r"
    )
    with pytest.raises(psycopg.Error, match="records that wait: 1, parked ones among them: 1") as refused:
        conn.execute("SELECT outbox_drop('orders')")
    assert "retry or discard" in str(refused.value.diag.message_hint)
    assert scalar(conn, "SELECT count(*) FROM orders") == 1
    conn.execute("SELECT outbox_drop('orders', true)")
    assert scalar(conn, "SELECT to_regclass('orders')") is None
    conn.execute("SELECT outbox_ensure_absent('orders')")
    assert (
        conn.execute("SELECT relname FROM pg_class WHERE relname LIKE 'tube\\_sleeps\\_%'").fetchall() == []
    )
    make_outbox(conn)
    conn.execute("SELECT outbox_drop('orders')")


def test_an_index_that_another_session_has_dropped_meanwhile(conn: Conn) -> None:
    adopt(conn, partitions=2)
    for partitions in (2, 3):
        conn.execute(scalar(conn, "SELECT outbox_index_sql('orders', %s)", (partitions,)))
    drop = scalar(conn, "SELECT outbox_index_sql('orders', 2)")
    assert drop.startswith("DROP INDEX CONCURRENTLY ")
    conn.execute(drop)
    conn.execute(drop)
    assert scalar(conn, "SELECT outbox_index_sql('orders', 2)") is None


def test_an_adopted_table_is_let_go_with_its_records(conn: Conn) -> None:
    adopt(conn, partitions=2, wake=True)
    build = scalar(conn, "SELECT outbox_index_sql('orders', 2)")
    conn.execute(build)
    assert scalar(conn, "SELECT outbox_index_sql('orders', 2)") is None
    id_ = stash(conn)
    conn.execute("SELECT outbox_drop('orders')")
    assert waiting_ids(conn, ADOPTED) == [id_]
    left = conn.execute(
        "SELECT (SELECT count(*) FROM pg_trigger WHERE tgrelid = c.oid),"
        " (SELECT count(*) FROM pg_index WHERE indrelid = c.oid),"
        " has_table_privilege('tube_worker', c.oid, 'SELECT')"
        " FROM pg_class AS c WHERE c.oid = 'public.outbox'::regclass"
    ).fetchone()
    assert left == (0, 1, False)


def test_an_outbox_whose_adopted_table_is_gone_says_so_and_can_be_dropped(conn: Conn) -> None:
    adopt(conn)
    term = lead(conn)
    conn.execute(f"DROP TABLE {ADOPTED}")
    with pytest.raises(psycopg.Error, match="the table of outbox 'orders' was dropped") as refused:
        mark(conn, term)
    assert refused.value.sqlstate == "TU108"
    (row,) = conn.execute("SELECT count, problem FROM outbox_stats()").fetchall()
    assert row[0] is None
    assert row[1] is not None
    conn.execute("SELECT outbox_drop('orders')")
    assert conn.execute("SELECT * FROM outbox_list()").fetchall() == []


def test_statistics_tell_what_waits_and_what_is_parked(conn: Conn) -> None:
    make_outbox(conn)
    ids = [stash(conn, key=str(number)) for number in range(3)]
    term = lead(conn)
    mark(conn, term)
    park(conn, term, ids[0])
    (row,) = conn.execute("SELECT count, min_id, max_id, parked, problem FROM outbox_stats()").fetchall()
    assert row == ("2", ids[1], ids[2], "1", None)
    conn.execute(
        "SELECT outbox_stash_many('orders', array_fill('t'::text, '{1500}'), NULL,"
        " array_fill('v'::text, '{1500}'))"
    )
    assert scalar(conn, "SELECT count FROM outbox_stats()") == "~1502"


@pytest.mark.every_server
@pytest.mark.parametrize("partitions", [1, 4])
def test_estimates_of_many_records_that_were_never_analyzed(conn: Conn, partitions: int) -> None:
    make_outbox(conn, partitions=partitions)
    conn.execute("ALTER TABLE orders SET (autovacuum_enabled = off)")
    conn.execute(
        "INSERT INTO orders (kafka_topic, kafka_key, kafka_value)"
        " SELECT 't', g::text, 'v' FROM generate_series(1, 200000) AS g"
    )

    def assert_about(records: int) -> None:
        counts = [row[0] for row in conn.execute("SELECT count FROM outbox_stats()")]
        assert all(count.startswith("~") for count in counts), counts
        each = records / partitions
        assert all(each / 2 <= int(count[1:]) <= each * 2 for count in counts), counts

    assert_about(200_000)
    conn.execute("DELETE FROM orders WHERE id <= (SELECT max(id) - 20000 FROM orders)")
    assert_about(20_000)
