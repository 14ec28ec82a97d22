"""Parked records: set aside, held keys, retried, dropped."""

from __future__ import annotations

import json
from typing import Any, LiteralString

import psycopg
import pytest

from pytube.outbox import admin, queries
from pytube.outbox.admin import Outboxes
from tests.helpers.outbox_sql import (
    ADOPTED,
    adopt,
    drop_parked,
    lead,
    make_outbox,
    mark,
    marked_ids,
    park,
    parked_ids,
    purge,
    retry,
    stash,
    waiting_ids,
)
from tests.helpers.terms import Conn, scalar


def test_a_parked_record_stays_where_it_is_and_no_mark_returns_it(conn: Conn) -> None:
    make_outbox(conn)
    first, second = stash(conn, key="a"), stash(conn, key="b")
    term = lead(conn)
    assert park(conn, term, first) == [], "not marked, so not this term's"
    assert marked_ids(conn, term) == [first, second]
    assert park(conn, term, first) == [first]
    assert park(conn, term, first) == []
    assert waiting_ids(conn) == [first, second]
    assert purge(conn, term, [first, second]) == 1
    assert marked_ids(conn, lead(conn)) == []
    (row,) = conn.execute(
        "SELECT id, topic, key, error, attempts, hold, behind FROM outbox_parked()"
    ).fetchall()
    assert row == (first, "t", "a", "too bad", 3, False, False)


def test_a_held_key_has_its_later_records_wait_behind_it(conn: Conn) -> None:
    make_outbox(conn)
    first, second, other = stash(conn), stash(conn), stash(conn, key="other")
    term = lead(conn)
    mark(conn, term)
    assert park(conn, term, other) == [other]
    assert park(conn, term, first, hold=True) == [first]
    assert park(conn, term, second, behind=True, hold=True) == [second]
    third = stash(conn)
    free = stash(conn, topic="another")
    # A later leader is told, and so need not remember.
    term = lead(conn)
    assert [(record.id, record.held) for record in mark(conn, term)] == [(third, True), (free, False)]
    assert park(conn, term, third, behind=True) == [third]
    assert park(conn, term, free, behind=True) == [], "nothing holds its key"
    # Whichever is named, all of the key go, in order.
    assert retry(conn, [second]) == 3
    assert parked_ids(conn) == [other]
    assert [(record.id, record.retried) for record in mark(conn, term, floor=free)] == [
        (first, True),
        (second, True),
        (third, True),
    ]


def test_the_list_begins_with_the_latest_that_failed(conn: Conn) -> None:
    make_outbox(conn)
    failed = [stash(conn, key="a"), stash(conn, key="b")]
    behind = [stash(conn, key="a"), stash(conn, key="b")]
    term = lead(conn)
    mark(conn, term)
    for one in failed:
        park(conn, term, one, hold=True)
    for one in behind:
        park(conn, term, one, behind=True)
    rows = conn.execute("SELECT id FROM outbox_parked('orders')").fetchall()
    assert [id_ for (id_,) in rows] == [*reversed(failed), *reversed(behind)]
    assert len(conn.execute("SELECT FROM outbox_parked('orders', 2) AS k WHERE NOT k.behind").fetchall()) == 2


def test_a_record_and_those_behind_it_are_parked_in_one_call(conn: Conn) -> None:
    make_outbox(conn)
    ids = [stash(conn), stash(conn)]
    term = lead(conn)
    mark(conn, term)
    items = [
        {"id": ids[1], "error": "behind", "attempts": 0, "behind": True},
        {"id": ids[0], "error": "too bad", "attempts": 1},
    ]
    statement = "SELECT outbox_records_park(%s, %s, %s, %s, %s, true)"
    assert scalar(conn, statement, (*term.args, json.dumps(items))) == ids


def test_a_key_that_is_skipped_holds_nothing(conn: Conn) -> None:
    make_outbox(conn)
    first, second = stash(conn), stash(conn)
    term = lead(conn)
    mark(conn, term)
    assert park(conn, term, first) == [first]
    assert park(conn, term, second, behind=True) == []
    assert not mark(conn, lead(conn))[0].held


def test_a_record_without_a_key_holds_nothing(conn: Conn) -> None:
    make_outbox(conn)
    first, second = stash(conn, key=None), stash(conn, key=None)
    term = lead(conn)
    mark(conn, term)
    assert park(conn, term, first, hold=True) == [first]
    assert park(conn, term, second, behind=True) == []
    assert retry(conn, [first]) == 1


def test_retries_may_be_chosen_by_topic_and_key(conn: Conn) -> None:
    make_outbox(conn)
    ids = [stash(conn, key=key, topic=topic) for topic in ("t", "u") for key in ("a", "b")]
    term = lead(conn)
    mark(conn, term)
    park(conn, term, *ids)
    assert retry(conn, topic="t", key="b") == 1
    assert retry(conn, key="a") == 2
    assert parked_ids(conn) == ids[3:]
    assert retry(conn) == 1
    assert retry(conn) == 0
    assert sorted(marked_ids(conn, term)) == ids


def test_retries_in_pieces_keep_a_held_key_together(conn: Conn) -> None:
    make_outbox(conn)
    held, other = [stash(conn), stash(conn), stash(conn)], stash(conn, key="other")
    term = lead(conn)
    mark(conn, term)
    park(conn, term, held[0], hold=True)
    park(conn, term, *held[1:], behind=True)
    park(conn, term, other)
    seen = scalar(conn, "SELECT pg_current_snapshot()::text")
    late = stash(conn)
    mark(conn, term)
    park(conn, term, late, behind=True)
    new = stash(conn, key="new")
    mark(conn, term)
    park(conn, term, new)
    assert retry(conn, in_seen=seen, in_limit="1") == 4, "and what has come behind it since"
    assert parked_ids(conn) == [other, new]
    assert retry(conn, in_seen=seen, in_limit="1") == 1
    assert retry(conn, in_seen=seen, in_limit="1") == 0
    assert parked_ids(conn) == [new]
    assert [record.id for record in mark(conn, term, floor=new)] == [*held, other, late]


def test_a_retry_in_pieces_ends_though_records_fail_again_at_once(
    conn: Conn, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two operators, and a worker that parks between any two pieces."""
    make_outbox(conn)
    ids = [stash(conn, key=key) for key in "abcd"]
    term = lead(conn)
    mark(conn, term)
    park(conn, term, *ids)
    pieces = []
    value = Outboxes._value

    def piece(self: Outboxes, query: LiteralString, **parameters: Any) -> Any:
        done = value(self, query, **parameters)
        if query == queries.RETRY:
            pieces.append(done)
            assert len(pieces) < 10, "it never ends"
            retry(conn, ids[3:])
            new = stash(conn, key=str(len(pieces)))
            park(conn, term, *marked_ids(conn, term), new)
        return done

    monkeypatch.setattr(admin, "AT_ONCE", 1)
    monkeypatch.setattr(Outboxes, "_value", piece)
    with psycopg.connect(dsn, autocommit=True) as operator:
        assert Outboxes(operator).retry("orders") == 3, "the fourth one failed again, for another operator"
    assert pieces == [1, 1, 1, 0]
    assert len(parked_ids(conn)) == 4 + len(pieces)


def test_a_retried_record_that_fails_again_stays_parked(conn: Conn) -> None:
    """Also where a mark met it by itself, between the retry and the mark that would have returned it."""
    make_outbox(conn)
    first = stash(conn)
    term = lead(conn)
    mark(conn, term)
    park(conn, term, first)
    retry(conn)
    listed = conn.execute("DELETE FROM tube_outbox_retry RETURNING outbox, id, slot").fetchone()
    assert marked_ids(conn, term) == [first]
    conn.execute("INSERT INTO tube_outbox_retry VALUES (%s, %s, %s)", listed)
    assert park(conn, term, first) == [first]
    assert marked_ids(conn, term, floor=first) == []


@pytest.mark.parametrize("adopted", [False, True])
def test_a_dropped_record_is_gone_and_what_it_held_is_sent(conn: Conn, adopted: bool) -> None:
    (adopt if adopted else make_outbox)(conn)
    first, second, third = stash(conn), stash(conn), stash(conn)
    term = lead(conn)
    mark(conn, term)
    park(conn, term, first, hold=True)
    park(conn, term, second, third, behind=True)
    assert drop_parked(conn, second, 999) == 1
    assert parked_ids(conn) == [first, third]
    assert drop_parked(conn, first) == 1
    assert waiting_ids(conn, ADOPTED if adopted else "tube.orders") == [third]
    assert marked_ids(conn, term, floor=0 if adopted else third) == [third]


def test_what_is_parked_goes_with_its_outbox(conn: Conn) -> None:
    adopt(conn)
    first = stash(conn)
    term = lead(conn)
    mark(conn, term)
    park(conn, term, first)
    conn.execute("SELECT outbox_drop('orders')")
    assert parked_ids(conn) == []
    conn.execute("SELECT outbox_adopt('orders', 'public.outbox')")
    assert marked_ids(conn, lead(conn)) == [first]


def test_what_is_no_array_of_items_is_refused(conn: Conn) -> None:
    make_outbox(conn)
    term = lead(conn)
    mark(conn, term)
    for items in ("{}", "null", None):
        with pytest.raises(psycopg.Error, match="items is not a JSON array") as refused:
            conn.execute("SELECT outbox_records_park(%s, %s, %s, %s, %s)", (*term.args, items))
        assert refused.value.sqlstate == "22023"
    id_ = stash(conn)
    mark(conn, term)
    with pytest.raises(psycopg.errors.NotNullViolation):
        conn.execute("SELECT outbox_records_park(%s, %s, %s, %s, %s)", (*term.args, f'[{{"id": {id_}}}]'))


def test_an_older_snapshot_is_refused_where_it_could_miss_what_is_held(conn: Conn) -> None:
    make_outbox(conn)
    for call in ("outbox_retry('orders')", "outbox_parked_drop('orders', '{1}')"):
        conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        with pytest.raises(psycopg.Error, match="READ COMMITTED only") as refused:
            conn.execute(f"SELECT {call}")
        conn.execute("ROLLBACK")
        assert refused.value.sqlstate == "25001"


def test_who_retries_or_discards_is_written_down(conn: Conn) -> None:
    make_outbox(conn)
    first, second = stash(conn, key="a"), stash(conn, key="b")
    term = lead(conn)
    mark(conn, term)
    park(conn, term, first, second)
    assert retry(conn, [99]) == 0, "nothing is done, and nothing written"
    assert retry(conn, [first]) == 1
    assert drop_parked(conn, second) == 1
    rows = conn.execute("SELECT action, tube, details FROM tube_audit ORDER BY audit_id").fetchall()
    assert rows == [
        ("outbox parked retry", "orders", {"ids": [str(first)], "count": 1}),
        ("outbox parked discard", "orders", {"ids": [str(second)], "count": 1}),
    ]


def test_a_retry_of_an_adopted_table_leaves_nothing_on_a_list(conn: Conn) -> None:
    adopt(conn)
    conn.execute(
        f"INSERT INTO {ADOPTED} (create_time, kafka_topic, kafka_key, kafka_header_keys, kafka_header_values)"
        " VALUES (now(), 't', 'k', '{}', '{}')"
    )
    term = lead(conn)
    (marked,) = marked_ids(conn, term)
    park(conn, term, marked)
    assert retry(conn) == 1
    assert scalar(conn, "SELECT count(*) FROM tube_outbox_retry") == 0
    assert marked_ids(conn, term) == [marked]


def test_a_freed_record_is_found_behind_those_that_the_term_has(conn: Conn) -> None:
    """The list of what is to be sent again also has what marks have found by themselves since."""
    make_outbox(conn)
    many = [stash(conn, key=f"a{number}") for number in range(25)]
    first = stash(conn, key="k")
    term = lead(conn)
    assert marked_ids(conn, term) == [*many, first]
    park(conn, term, *many)
    park(conn, term, first, hold=True)
    term = lead(conn)
    retry(conn, many)
    assert marked_ids(conn, term) == many
    retry(conn, [first])
    second = stash(conn, key="k")
    assert marked_ids(conn, term, limit=10, floor=first) == [first, second]
