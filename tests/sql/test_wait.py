"""What is left of a tube, who is told of purges, and which pods a key waits in."""

from __future__ import annotations

import uuid
from typing import Any

import psycopg
import pytest

from pytube.errors import UnknownTube
from tests.conftest import Connect
from tests.helpers.terms import (
    TUBE,
    Claim,
    Conn,
    acquire,
    make_tube,
    mark,
    park,
    park_item,
    pods,
    purge,
    scalar,
    touch,
)


def undelivered(conn: Conn, up_to: int = 2**62) -> dict[int, int]:
    rows = conn.execute("SELECT * FROM tube_undelivered(%s, %s)", [TUBE, up_to]).fetchall()
    return {partition: least for partition, _, least in rows}


def test_what_is_left_by_partition(conn: Conn) -> None:
    make_tube(conn, partitions=3)
    assert undelivered(conn) == {}
    for shard, op in ((0, "B"), (0, "U"), (2, "B")):
        touch(conn, shard=shard, op=op)
    first, second, third = sorted(pods(conn))
    assert undelivered(conn) == {0: first, 2: third}
    assert undelivered(conn, up_to=second) == {0: first}
    assert undelivered(conn, up_to=first - 1) == {}


def test_what_is_left_soon_after_a_repartition(conn: Conn) -> None:
    """While the index is that for another number of partitions."""
    make_tube(conn, partitions=4)
    for shard in range(6):
        touch(conn, shard=shard)
    seqs = sorted(pods(conn))
    conn.execute("SELECT tube_ensure_exists(%s, 6)", [TUBE])
    assert undelivered(conn) == dict(enumerate(seqs))


def test_a_purge_tells_those_who_wait_and_nobody_else(conn: Conn, connect: Connect) -> None:
    make_tube(conn, partitions=2)
    term = acquire(conn, Claim(partitions=2, partition=1))
    for _ in range(2):
        touch(conn, shard=1)
    first, second = (pod.seq for pod in mark(conn, term))
    watcher = connect()
    channel = scalar(watcher, "SELECT tube_delivered_channel(%s)", [TUBE])
    watcher.execute(f"LISTEN {channel}")
    purge(conn, term, [])
    watcher.execute("SELECT tube_delivered_watch(%s)", [TUBE])
    purge(conn, term, [first])
    purge(conn, term, [second])
    said = [n.payload for n in watcher.notifies(timeout=10, stop_after=2)]
    assert said == [f"2 1 {second}", "2 1 0"]
    watcher.execute("SELECT pg_advisory_unlock_all()")
    purge(conn, term, [])
    conn.execute("SELECT pg_notify(%s, 'last')", [channel])
    assert [n.payload for n in watcher.notifies(timeout=10, stop_after=1)] == ["last"]


def test_who_begins_to_wait_while_a_purge_is_open_sees_what_it_did(conn: Conn, connect: Connect) -> None:
    make_tube(conn)
    term = acquire(conn)
    touch(conn)
    seqs = [pod.seq for pod in mark(conn, term)]
    watcher = connect()
    watcher.execute("SET lock_timeout = '20ms'")
    with conn.transaction():
        purge(conn, term, seqs)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            watcher.execute("SELECT tube_delivered_watch(%s)", [TUBE])
    watcher.execute("SELECT tube_delivered_watch(%s)", [TUBE])
    assert undelivered(watcher) == {}


@pytest.mark.parametrize("keys", ["bigint", "uuid", "text"])
def test_the_pods_of_a_key(conn: Conn, keys: str) -> None:
    conn.execute("SELECT tube_ensure_exists(%s, 2, NULL, %s)", [TUBE, keys])
    mine, other = ("7", "8") if keys == "bigint" else (str(uuid.uuid4()), str(uuid.uuid4()))

    def put(shard: int, op: str, *ids: str) -> None:
        conn.execute("SELECT tube_keys_put(%s, %s, %s, %s)", [TUBE, shard, op, list(ids)])

    for shard, op, ids in ((1, "B", [mine]), (1, "U", [other, mine]), (1, "U", [other]), (3, "U", [mine])):
        put(shard, op, *ids)
    term = acquire(conn, Claim(partitions=2, partition=1))
    mark_one = "SELECT seq FROM tube_pods_mark(%s, %s, %s, %s, 1)"
    marked = scalar(conn, mark_one, term.args)
    backfill, update, *_ = sorted(pods(conn))

    def found(most: int = 1000) -> list[tuple[Any, ...]]:
        statement = "SELECT seq, op, keys, marked_by, looked_at FROM tube_pods_of(%s, 1, %s, %s)"
        return conn.execute(statement, [TUBE, mine, most]).fetchall()

    assert marked == update
    assert found() == [(update, "U", 2, term.leader_id, 4), (backfill, "B", 1, None, 4)]
    assert found(most=1) == [(update, "U", 2, term.leader_id, 1)]
    (nothing,) = conn.execute("SELECT seq, looked_at FROM tube_pods_of(%s, 0, %s)", [TUBE, mine])
    assert nothing == (None, 0)


def test_how_many_keys_are_parked(conn: Conn) -> None:
    make_tube(conn)
    statement = "SELECT parked, shard FROM tube_delivered_parked(%s)"
    assert conn.execute(statement, [TUBE]).fetchall() == []
    park(conn, acquire(conn), park_item(7, shard=4), park_item(8, shard=4), park_item(None, seq=3))
    assert conn.execute(statement, [TUBE]).fetchall() == [(2, 4)]


@pytest.mark.parametrize(
    "call",
    [
        "tube_undelivered('none', 1)",
        "tube_delivered_watch('none')",
        "tube_delivered_parked('none')",
        "tube_pods_of('none', 0, '1')",
    ],
)
def test_unknown_tube(conn: Conn, call: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        conn.execute(f"SELECT * FROM {call}")
    assert caught.value.sqlstate == "TU102", UnknownTube
