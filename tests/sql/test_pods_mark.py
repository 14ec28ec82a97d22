"""Marking, purging and giving back."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.helpers.database import preparing
from tests.helpers.terms import (
    TUBE,
    Claim,
    Conn,
    Term,
    acquire,
    fill,
    make_tube,
    mark,
    marked_seqs,
    pods,
    purge,
    reset,
    scalar,
    touch,
    with_tube_of_two,
)

prepare = preparing(with_tube_of_two, "term")


@pytest.fixture
def term(conn: Conn) -> Term:
    """Partition 1 of 2."""
    return acquire(conn, Claim(partitions=2, partition=1))


def test_a_mark_returns_the_pods_of_its_partition_in_order(conn: Conn, term: Term) -> None:
    backfill = touch(conn, 1, op="B")
    touch(conn, 0)
    first = touch(conn, 3, [5, 6], op="I")
    second = touch(conn, 1, [-7], op="D")
    later = touch(conn, 5, op="B")
    rows = mark(conn, term)
    assert [(r.seq, r.op, r.shard, r.ids) for r in rows] == [
        (first, "I", 3, [5, 6]),
        (second, "D", 1, [-7]),
        (backfill, "B", 1, [1]),
        (later, "B", 5, [1]),
    ]
    assert {(r.keys, r.payload) for r in rows} == {(None, None)}
    assert scalar(conn, "SELECT count(*) FROM tube.queue WHERE leader_id IS NULL") == 1


@pytest.mark.parametrize(
    ("written", "marked"),
    [("{1,NULL,3}", [1, 3]), ("{{4,5},{6,NULL}}", [4, 5, 6]), ("{NULL}", []), ("[5:6]={7,8}", [7, 8])],
)
def test_arrays_that_no_touch_makes_come_as_a_row_of_ids(
    conn: Conn, term: Term, written: str, marked: list[int]
) -> None:
    conn.execute("INSERT INTO tube.queue (op, shard, ids) VALUES ('T', 1, %s)", [written])
    assert [row.ids for row in mark(conn, term)] == [marked]


def test_pods_come_back_as_they_were_written(conn: Conn, term: Term) -> None:
    ids = list(range(1000))
    seq = scalar(
        conn,
        "INSERT INTO tube.queue (op, shard, ids) VALUES ('T', 1, %s) RETURNING seq",
        (ids,),
    )
    control = scalar(
        conn,
        "INSERT INTO tube.queue (op, shard, ids, payload) VALUES ('T', 1, '{}', %s) RETURNING seq",
        ('{"type": "x", "n": [1]}',),
    )
    many, none = mark(conn, term)
    assert (many.seq, many.ids) == (seq, ids)
    assert (none.seq, none.ids, none.payload) == (control, [], {"type": "x", "n": [1]})
    assert scalar(conn, "SELECT ts FROM tube.queue WHERE seq = %s", (seq,)) == many.ts


def test_what_is_marked_is_not_returned_again(conn: Conn, term: Term) -> None:
    seq = touch(conn, 1)
    assert marked_seqs(conn, term) == [seq]
    assert marked_seqs(conn, term) == []


def test_the_limit_is_for_both_classes_together(conn: Conn, term: Term) -> None:
    fill(conn, 6, shards=2)
    fill(conn, 6, op="B", shards=2)
    all_of_it = [r.seq for r in mark(conn, term, limit=4)]
    assert [r.op for r in mark(conn, term, limit=4)] == ["B", "B"]
    assert len(all_of_it) == 4
    reset(conn, term)
    assert [r.op for r in mark(conn, term, limit=2)] == ["U", "U"]


def test_backfill_can_be_left_out(conn: Conn, term: Term) -> None:
    touch(conn, 1, op="B")
    seq = touch(conn, 1)
    assert [r.seq for r in mark(conn, term, exclude_backfill=True)] == [seq]


def test_floors_are_per_class_and_exclusive(conn: Conn, term: Term) -> None:
    inc = [touch(conn, 1) for _ in range(3)]
    back = [touch(conn, 1, op="B") for _ in range(3)]
    assert marked_seqs(conn, term, floors=(inc[1], back[0])) == [inc[2], back[1], back[2]]
    assert marked_seqs(conn, term) == [inc[0], inc[1], back[0]]


def test_missing_floors_are_none(conn: Conn, term: Term) -> None:
    seq = touch(conn, 1)
    row = conn.execute(
        "SELECT seq FROM tube_pods_mark(%s, %s, %s, %s, 10, NULL, NULL, NULL, NULL)", term.args
    ).fetchone()
    assert row == (seq,)


@pytest.mark.parametrize("limit", [0, -1, None, 1_000_001])
def test_a_bad_limit_is_refused(conn: Conn, term: Term, limit: Any) -> None:
    touch(conn, 1)
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        mark(conn, term, limit=limit)
    assert set(pods(conn).values()) == {None}


def test_a_purge_deletes_just_those(conn: Conn, term: Term) -> None:
    mine = [touch(conn, 1), touch(conn, 1, op="B"), touch(conn, 1), touch(conn, 1, op="B")]
    assert marked_seqs(conn, term)
    unmarked, elsewhere = touch(conn, 1), touch(conn, 0)
    assert purge(conn, term, [mine[0], mine[1], unmarked, elsewhere, 10**12]) == 2
    assert list(pods(conn)) == [mine[2], mine[3], unmarked, elsewhere]
    assert purge(conn, term, [mine[0], mine[2], mine[2]]) == 1
    assert purge(conn, term, []) == 0
    assert purge(conn, term, [mine[3]]) == 1


def test_no_seqs_are_no_purge(conn: Conn, term: Term) -> None:
    touch(conn, 1)
    marked_seqs(conn, term)
    assert scalar(conn, "SELECT tube_pods_purge(%s, %s, %s, %s, NULL)", term.args) == 0
    assert scalar(conn, "SELECT tube_pods_purge(%s, %s, %s, %s, ARRAY[NULL]::bigint[])", term.args) == 0
    assert len(pods(conn)) == 1


def test_pods_of_another_term_are_left_alone(conn: Conn, term: Term) -> None:
    here, there = touch(conn, 1), touch(conn, 0)
    other = acquire(conn, Claim(partitions=2, partition=0))
    marked_seqs(conn, term)
    marked_seqs(conn, other)
    assert purge(conn, term, [here, there]) == 1
    assert reset(conn, term, [there]) == 0
    assert reset(conn, term) == 0
    assert pods(conn) == {there: other.leader_id}


def test_pods_that_an_earlier_term_marked_here_are_left_alone(conn: Conn, term: Term) -> None:
    """Of the same partition: neither a purge nor a reset reaches them before a mark took them over."""
    seqs = [touch(conn, 1), touch(conn, 1)]
    marked_seqs(conn, term)
    successor = acquire(conn, Claim(partitions=2, partition=1))
    assert purge(conn, successor, seqs) == 0
    assert reset(conn, successor, seqs) == 0
    assert reset(conn, successor) == 0
    assert pods(conn) == dict.fromkeys(seqs, term.leader_id)
    assert marked_seqs(conn, successor) == seqs
    assert purge(conn, successor, seqs) == 2


def test_a_reset_gives_back_some_or_all(conn: Conn, term: Term) -> None:
    mine = [touch(conn, 1), touch(conn, 1, op="B"), touch(conn, 1), touch(conn, 1, op="B")]
    marked_seqs(conn, term)
    assert reset(conn, term, [mine[2], mine[3], 10**12]) == 2
    assert reset(conn, term, []) == 0
    assert marked_seqs(conn, term) == [mine[2], mine[3]]
    assert reset(conn, term) == 4
    assert set(pods(conn).values()) == {None}
    assert marked_seqs(conn, term) == [mine[0], mine[2], mine[1], mine[3]]


def test_it_works_on_every_server_with_a_strange_name(any_dsn: str) -> None:
    tube = 'It\'s "odd" % é'
    with psycopg.connect(any_dsn, autocommit=True, options="-c search_path=tube") as conn:
        make_tube(conn, tube, partitions=4)
        term = acquire(conn, Claim(tube=tube, partitions=4, partition=3))
        seqs = [touch(conn, 3, tube=tube), touch(conn, 7, op="B", tube=tube), touch(conn, 11, tube=tube)]
        assert marked_seqs(conn, term) == [seqs[0], seqs[2], seqs[1]]
        assert reset(conn, term, seqs[:2]) == 2
        assert marked_seqs(conn, term) == seqs[:2]
        assert purge(conn, term, seqs) == 3
        assert pods(conn, tube) == {}


def test_results_do_not_depend_on_the_callers_settings(conn: Conn, term: Term) -> None:
    seqs = [touch(conn, 1), touch(conn, 1, op="B")]
    conn.execute("CREATE TABLE public.queue (seq bigint)")
    conn.execute("CREATE TABLE public.tube_leader (tube text)")
    conn.execute("SET search_path = public")
    conn.execute("SET enable_tidscan = off; SET enable_indexscan = off; SET enable_indexonlyscan = off")
    rows = conn.execute("SELECT seq FROM tube.tube_pods_mark(%s, %s, %s, %s)", term.args).fetchall()
    assert [row[0] for row in rows] == seqs
    assert scalar(conn, "SELECT tube.tube_pods_purge(%s, %s, %s, %s, %s)", (*term.args, seqs)) == 2
    assert scalar(conn, "SHOW enable_seqscan") == "on"


def test_tubes_do_not_share_pods(conn: Conn, term: Term) -> None:
    make_tube(conn, "other", partitions=2)
    touch(conn, 1, tube="other")
    seq = touch(conn, 1)
    assert marked_seqs(conn, term) == [seq]
    assert TUBE != "other"
