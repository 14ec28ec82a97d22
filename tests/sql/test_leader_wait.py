"""How long a new term waits for those before it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.helpers.terms import TUBE, Claim, Conn, Term, acquire, make_tube, release, scalar

NOTHING = timedelta(0)


def wait(conn: Conn, term: Term) -> timedelta:
    answer = scalar(conn, "SELECT tube_leader_wait(%s, %s, %s, %s)", term.args)
    assert isinstance(answer, timedelta)
    return answer


def between(low: float, wait: timedelta, high: float) -> bool:
    return timedelta(seconds=low) < wait <= timedelta(seconds=high)


def lead(conn: Conn, partitions: int = 1, partition: int = 0, hold: str = "1 hour") -> Term:
    return acquire(conn, Claim(partitions=partitions, partition=partition, hold=hold))


def test_the_first_term_does_not_wait(conn: Conn) -> None:
    make_tube(conn)
    assert wait(conn, lead(conn)) == NOTHING


def test_after_a_release_there_is_no_wait(conn: Conn) -> None:
    make_tube(conn)
    assert release(conn, lead(conn))
    assert wait(conn, lead(conn)) == NOTHING


def test_after_a_supersede_the_rest_of_its_hold(conn: Conn) -> None:
    make_tube(conn)
    lead(conn)
    conn.execute("UPDATE tube_leader SET renewed_at = clock_timestamp() - interval '40 minutes'")
    new = lead(conn, hold="1 minute")
    assert between(1100, wait(conn, new), 1200)


def test_the_longest_hold_of_all_earlier_terms_counts(conn: Conn) -> None:
    make_tube(conn)
    lead(conn, hold="2 hours")
    lead(conn, hold="1 minute")
    assert release(conn, lead(conn, hold="3 hours"))
    assert between(7000, wait(conn, lead(conn)), 7200)


def test_a_hold_that_has_passed_is_nothing(conn: Conn) -> None:
    make_tube(conn)
    lead(conn)
    conn.execute("UPDATE tube_leader SET renewed_at = clock_timestamp() - interval '61 minutes'")
    assert wait(conn, lead(conn)) == NOTHING


def test_other_tubes_do_not_count(conn: Conn) -> None:
    make_tube(conn)
    make_tube(conn, "other")
    acquire(conn, Claim(tube="other", hold="1 hour"))
    acquire(conn, Claim(tube="other", hold="1 hour"))
    assert wait(conn, lead(conn)) == NOTHING


@pytest.mark.parametrize(
    ("before", "after"), [(4, 2), (4, 6), (2, 4), (6, 4), (3, 2), (4, 4), (1, 5), (6, 3)]
)
def test_over_a_repartition_those_count_that_shared_a_shard(conn: Conn, before: int, after: int) -> None:
    for old in range(before):
        tube = f"{TUBE} {old}"
        make_tube(conn, tube, partitions=before)
        acquire(conn, Claim(tube=tube, partitions=before, partition=old, hold="1 hour"))
        if before == after:
            make_tube(conn, tube, partitions=before + 1)
        make_tube(conn, tube, partitions=after)
        waits = set()
        for new in range(after):
            term = acquire(conn, Claim(tube=tube, partitions=after, partition=new))
            if wait(conn, term) > NOTHING:
                waits.add(new)
        # Over all shards there can be, not by the rule that the function uses.
        shared = {shard % after for shard in range(before * after) if shard % before == old}
        assert waits == shared


def test_partitions_beside_it_do_not_count(conn: Conn) -> None:
    make_tube(conn, partitions=4)
    for partition in (0, 1, 3):
        lead(conn, 4, partition)
        lead(conn, 4, partition)
    assert wait(conn, lead(conn, 4, 2)) == NOTHING
