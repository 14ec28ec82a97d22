"""A partition is read by the index for another number of partitions until its own is there."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.helpers.terms import (
    Claim,
    Conn,
    acquire,
    fill,
    make_tube,
    marked_seqs,
    pods,
    purge,
    reset,
    scalar,
)

NUMBERS = [1, 2, 3, 4, 6, 7, 8, 12]
ALL = "SELECT shard, {} FROM generate_series(0, 200) AS s (shard)"


@pytest.fixture
def server(any_dsn: str) -> Iterator[Conn]:
    """A session to each version's server."""
    with psycopg.connect(any_dsn, autocommit=True, options="-c search_path=tube") as conn:
        yield conn


def repartition(conn: Conn, partitions: int) -> None:
    """As it is where the table can't be had: its index stays as it was."""
    with psycopg.connect(conn.info.dsn, options="-c search_path=tube") as writer:
        writer.execute("INSERT INTO queue (op, shard, ids) VALUES ('U', 0, '{0}')")
        make_tube(conn, partitions=partitions)
        writer.rollback()


@pytest.mark.parametrize("cut", NUMBERS)
def test_slices_are_the_partition(conn: Conn, cut: int) -> None:
    make_tube(conn, partitions=cut)
    for partitions in NUMBERS:
        for partition in range(partitions):
            row = conn.execute(
                "SELECT * FROM tube_private_slices('queue', %s, %s)", (partitions, partition)
            ).fetchone()
            assert row is not None
            whole, slices = row
            wanted = [shard for shard in range(201) if shard % partitions == partition]
            columns = ", ".join(f"({condition})" for condition in (whole, *slices))
            found = conn.execute(ALL.format(columns).encode()).fetchall()
            assert [shard for shard, in_whole, *_ in found if in_whole] == wanted
            assert sorted(shard for shard, _, *each in found for one in each if one) == wanted
            assert len(slices) == 1 or partitions % cut, "more partitions by a factor need no merging"


@pytest.mark.parametrize(("before", "after"), [(4, 8), (8, 4), (3, 4), (4, 1)])
def test_pods_are_taken_in_order_by_the_index_of_before(server: Conn, before: int, after: int) -> None:
    make_tube(server, partitions=before)
    fill(server, 300, shards=24)
    fill(server, 300, op="B", shards=24)
    repartition(server, after)
    assert server.execute("SELECT partitions FROM tube_private_indexes('queue')").fetchall() == [(before,)]
    for partition in range(after):
        term = acquire(server, Claim(partitions=after, partition=partition))
        query = scalar(server, "SELECT tube_pods_sql('queue', %s, %s)", (after, partition))
        wanted = [row[0] for row in server.execute(query.encode())]
        assert [
            row[0]
            for row in server.execute(
                "SELECT seq FROM queue WHERE shard %% %s = %s ORDER BY op = 'B', seq", (after, partition)
            )
        ] == wanted
        taken: list[int] = []
        while seqs := marked_seqs(server, term, limit=40):
            taken += seqs
        assert taken == wanted
        assert reset(server, term, taken[:10]) == 10
        assert marked_seqs(server, term, limit=40) == taken[:10]
        assert reset(server, term) == len(taken)
        assert marked_seqs(server, term) == taken
        assert purge(server, term, taken) == len(taken)
        fill(server, 1)
        (seq,) = pods(server).keys() - set(wanted) if after == 1 else [max(pods(server))]
        assert scalar(server, "SELECT tube_pods_delete('queue', %s, 0, %s)", (after, [seq])) == 1
    assert not pods(server)


def test_few_pods_touch_few_pages(server: Conn) -> None:
    make_tube(server, partitions=4)
    fill(server, 40_000, shards=24)
    for partitions in (8, 6, 2):
        repartition(server, partitions)
        term = acquire(server, Claim(partitions=partitions, partition=1))
        plan = scalar(
            server,
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM tube_pods_mark('queue', %s, 1, %s, 10)",
            (partitions, term.leader_id),
        )
        # A thousand and more to look at all of them.
        assert plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"] < 500
