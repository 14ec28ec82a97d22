"""Keys that are set aside with their error."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.helpers.database import preparing
from tests.helpers.terms import (
    TUBE,
    Claim,
    Conn,
    Term,
    acquire,
    make_tube,
    mark,
    park,
    park_item,
    pods,
    scalar,
    touch,
    with_tube_of_two,
)

prepare = preparing(with_tube_of_two, "term")


@pytest.fixture
def term(conn: Conn) -> Term:
    """Partition 0 of 2."""
    return acquire(conn, Claim(partitions=2, partition=0))


def parked(conn: Conn, *arguments: Any) -> list[dict[str, Any]]:
    places = ", ".join(["%s"] * len(arguments))
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(f"SELECT * FROM tube_park_list({places})", arguments).fetchall()


def unpark(conn: Conn, term: Term, shards: list[int] | None, ids: list[str] | None) -> int:
    return int(scalar(conn, "SELECT tube_pods_unpark(%s, %s, %s, %s, %s, %s)", (*term.args, shards, ids)))


def test_a_key_is_kept_with_its_error(conn: Conn, term: Term) -> None:
    assert park(conn, term, park_item(7, shard=4, seq=9, op="I", payload={"a": 1})) == 1
    (row,) = parked(conn)
    del row["park_id"], row["parked_at"], row["first_at"]
    assert row == {
        "tube": TUBE,
        "shard": 4,
        "id": "7",
        "op": "I",
        "seq": 9,
        "payload": {"a": 1},
        "error": "too bad",
        "attempts": 3,
        "epoch": term.epoch,
        "retried_at": None,
    }


def test_a_key_has_one_row_that_of_its_last_failure(conn: Conn, term: Term) -> None:
    park(conn, term, park_item(7, seq=5, error="old"), park_item(8))
    again = acquire(conn, Claim(partitions=2))
    assert park(conn, again, park_item(7, seq=6, error="new", attempts=4)) == 1
    rows = {row["id"]: row for row in parked(conn)}
    assert set(rows) == {"7", "8"}
    assert (rows["7"]["error"], rows["7"]["seq"], rows["7"]["attempts"]) == ("new", 6, 4)
    assert (rows["7"]["epoch"], rows["7"]["payload"]) == (again.epoch, None)


def test_of_a_key_given_twice_the_highest_seq_counts(conn: Conn, term: Term) -> None:
    assert park(conn, term, park_item(7, seq=6, error="new"), park_item(7, seq=5, error="old")) == 1
    assert [row["error"] for row in parked(conn)] == ["new"]


def test_equal_ids_of_two_shards_are_two_keys(conn: Conn, term: Term) -> None:
    assert park(conn, term, park_item(7, shard=0), park_item(7, shard=2)) == 2
    assert len(parked(conn)) == 2


def test_a_control_pod_has_one_row_per_seq(conn: Conn, term: Term) -> None:
    item = park_item(None, seq=9, payload={"type": "odd"})
    assert park(conn, term, item, park_item(None, seq=10)) == 2
    assert park(conn, term, {**item, "error": "again"}) == 1
    rows = {row["seq"]: row for row in parked(conn)}
    assert {seq: row["error"] for seq, row in rows.items()} == {9: "again", 10: "too bad"}
    assert rows[9]["payload"] == {"type": "odd"}


def test_parking_leaves_the_pods(conn: Conn, term: Term) -> None:
    touch(conn)
    mark(conn, term)
    before = pods(conn)
    park(conn, term, park_item(1))
    assert pods(conn) == before


def test_nothing_to_park(conn: Conn, term: Term) -> None:
    assert park(conn, term) == 0


@pytest.mark.parametrize(
    ("items", "state"),
    [
        ('[{"shard":1,"id":"1","op":"U","seq":1,"error":"x","attempts":1}]', "TU106"),
        ('[{"shard":-2,"id":"1","op":"U","seq":1,"error":"x","attempts":1}]', "TU106"),
        ('[{"id":"1","op":"U","seq":1,"error":"x","attempts":1}]', "23502"),
        ('[{"shard":0,"id":"1","op":"U","seq":1,"attempts":1}]', "23502"),
        ('{"shard":0}', "22023"),
        (None, "22023"),
    ],
)
def test_bad_items_are_refused_and_none_is_parked(
    conn: Conn, term: Term, items: str | None, state: str
) -> None:
    with pytest.raises(psycopg.Error) as failed:
        conn.execute("SELECT tube_pods_park(%s, %s, %s, %s, %s)", (*term.args, items))
    assert failed.value.sqlstate == state
    assert parked(conn) == []


def test_unparking_forgets_just_those_keys(conn: Conn, term: Term) -> None:
    park(conn, term, park_item(7), park_item(7, shard=2), park_item(8), park_item(None))
    assert unpark(conn, term, [0, 0, 4], ["7", "99", "7"]) == 1
    assert {(row["shard"], row["id"]) for row in parked(conn)} == {(2, "7"), (0, "8"), (0, None)}
    assert unpark(conn, term, [], []) == 0
    assert unpark(conn, term, None, None) == 0


def test_unparking_leaves_other_partitions_and_tubes(conn: Conn, term: Term) -> None:
    other = acquire(conn, Claim(partitions=2, partition=1))
    make_tube(conn, "other")
    elsewhere = acquire(conn, Claim(tube="other"))
    park(conn, other, park_item(7, shard=1))
    park(conn, elsewhere, park_item(7))
    assert unpark(conn, term, [1, 0], ["7", "7"]) == 0
    assert len(parked(conn)) == 2


@pytest.mark.parametrize(("shards", "ids"), [([0], ["1", "2"]), ([0], None), (None, ["1"])])
def test_unparking_needs_a_shard_for_each_id(
    conn: Conn, term: Term, shards: list[int] | None, ids: list[str] | None
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        unpark(conn, term, shards, ids)


def test_the_list_is_latest_first_of_one_tube_or_all_and_limited(conn: Conn, term: Term) -> None:
    make_tube(conn, "other")
    other = acquire(conn, Claim(tube="other"))
    park(conn, term, park_item(1))
    park(conn, other, park_item(2))
    park(conn, term, park_item(3))
    assert [row["id"] for row in parked(conn)] == ["3", "2", "1"]
    assert [row["id"] for row in parked(conn, TUBE)] == ["3", "1"]
    assert [row["id"] for row in parked(conn, None, 2)] == ["3", "2"]
    assert parked(conn, "none") == []
    assert parked(conn, TUBE, 0) == []


@pytest.mark.parametrize("limit", [-1, None])
def test_a_bad_limit_is_refused(conn: Conn, limit: int | None) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        parked(conn, None, limit)
