"""The lease election: leases, who may take which, and fair shares."""

from __future__ import annotations

import uuid
from typing import Any
from unittest.mock import ANY

import psycopg
import pytest

from tests.conftest import Connect
from tests.helpers.terms import Claim, Conn, acquire, make_tube, release, renew, scalar

TICK = "SELECT partitions, instances, free, mine FROM tube_lease_tick('queue', %s, 'x', '1 minute')"


@pytest.fixture(autouse=True)
def _tube(conn: Conn) -> None:
    make_tube(conn, partitions=3)


def leased(partition: int = 0, lease: str = "1 minute", instance: uuid.UUID | None = None) -> Claim:
    return Claim(
        partitions=3,
        partition=partition,
        election="lease",
        lease=lease,
        hold="10 seconds",
        instance_id=instance or uuid.uuid4(),
    )


def proved(partition: int = 0) -> Claim:
    return Claim(partitions=3, partition=partition, hold="10 seconds")


def age(conn: Conn, by: str) -> None:
    conn.execute("UPDATE tube_leader SET renewed_at = renewed_at - %s::interval", (by,))


def refused(conn: Conn, claim: Claim) -> str | None:
    with pytest.raises(psycopg.Error) as failed:
        acquire(conn, claim)
    return failed.value.sqlstate


def tick(conn: Conn, instance: uuid.UUID) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = conn.execute(TICK, (instance,)).fetchone()
    assert row is not None
    return row


def test_a_running_lease_keeps_others_out(conn: Conn) -> None:
    holder = acquire(conn, leased())
    assert refused(conn, leased()) == "TU004"
    age(conn, "59 seconds")
    assert refused(conn, leased()) == "TU004"
    age(conn, "2 seconds")
    new = acquire(conn, leased())
    assert new.epoch > holder.epoch


def test_a_renewal_prolongs_it(conn: Conn) -> None:
    holder = acquire(conn, leased())
    age(conn, "59 seconds")
    renew(conn, holder)
    age(conn, "59 seconds")
    assert refused(conn, leased()) == "TU004"


def test_a_released_lease_is_free_at_once(conn: Conn) -> None:
    assert release(conn, acquire(conn, leased()))
    acquire(conn, leased())


def test_a_process_may_take_its_own_over(conn: Conn) -> None:
    holder = acquire(conn, leased())
    again = acquire(conn, leased(instance=holder.instance_id))
    assert again.epoch > holder.epoch


def test_the_holder_leads_until_another_acquires(conn: Conn) -> None:
    holder = acquire(conn, leased())
    age(conn, "1 hour")
    renew(conn, holder)
    assert refused(conn, leased()) == "TU004"


def test_a_current_term_of_the_other_election_is_refused(conn: Conn) -> None:
    acquire(conn, leased(partition=0))
    acquire(conn, proved(partition=1))
    assert refused(conn, proved(partition=0)) == "TU005"
    assert refused(conn, leased(partition=1)) == "TU005"
    age(conn, "11 seconds")
    acquire(conn, leased(partition=1))
    assert refused(conn, proved(partition=0)) == "TU005", "the lease counts, not the hold"
    age(conn, "1 minute")
    acquire(conn, proved(partition=0))


def test_neli_takes_over_from_neli_at_any_time(conn: Conn) -> None:
    acquire(conn, proved())
    acquire(conn, proved())


def test_a_tick_counts_those_that_share(conn: Conn) -> None:
    one, other, third = (uuid.uuid4() for _ in range(3))
    assert tick(conn, one) == (3, 1, [0, 1, 2], [])
    assert tick(conn, other)[1] == 2
    assert tick(conn, third)[1] == 3
    conn.execute("SELECT tube_lease_leave('queue', %s)", (third,))
    conn.execute("SELECT tube_lease_leave('queue', %s)", (third,))
    assert tick(conn, one)[1] == 2
    conn.execute("UPDATE tube_instance SET seen_at = seen_at - interval '2 minutes'")
    assert tick(conn, other)[1] == 1
    assert scalar(conn, "SELECT count(*) FROM tube_instance") == 1
    assert tick(conn, one)[1] == 2


def test_a_tick_tells_what_is_free_and_what_is_mine(conn: Conn) -> None:
    one, other = uuid.uuid4(), uuid.uuid4()
    first = acquire(conn, leased(partition=2, instance=one))
    acquire(conn, leased(partition=0, instance=other))
    assert tick(conn, one)[2:] == ([1], [2])
    assert tick(conn, other)[2:] == ([1], [0])
    age(conn, "2 minutes")
    assert tick(conn, one)[2:] == ([0, 1], [2])
    renew(conn, first)
    assert tick(conn, other)[2:] == ([1, 2][:1], [0])
    assert release(conn, first)
    assert tick(conn, other)[2:] == ([1, 2], [0])


def test_a_tick_counts_a_proved_term_by_its_hold(conn: Conn) -> None:
    acquire(conn, proved(partition=1))
    assert tick(conn, uuid.uuid4())[2] == [0, 2]
    age(conn, "11 seconds")
    assert tick(conn, uuid.uuid4())[2] == [0, 1, 2]


def test_ticks_of_other_tubes_do_not_count(conn: Conn) -> None:
    make_tube(conn, "other")
    conn.execute("SELECT tube_lease_tick('other', %s, 'x', '1 minute')", (uuid.uuid4(),))
    assert tick(conn, uuid.uuid4())[1] == 1


@pytest.mark.parametrize(
    ("arguments", "state"),
    [
        (("none", uuid.uuid4(), "x", "1 minute"), "TU102"),
        (("queue", None, "x", "1 minute"), "22004"),
        (("queue", uuid.uuid4(), None, "1 minute"), "22004"),
        (("queue", uuid.uuid4(), "x", "0 minutes"), "22023"),
        (("queue", uuid.uuid4(), "x", None), "22023"),
    ],
)
def test_bad_ticks_are_refused(conn: Conn, arguments: tuple[Any, ...], state: str) -> None:
    with pytest.raises(psycopg.Error) as failed:
        conn.execute("SELECT tube_lease_tick(%s, %s, %s, %s)", arguments)
    assert failed.value.sqlstate == state
    assert scalar(conn, "SELECT count(*) FROM tube_instance") == 0


def test_the_processes_of_a_tube_are_ranked_from_0_on(conn: Conn) -> None:
    instances = [uuid.uuid4() for _ in range(3)]
    for instance in instances:
        tick(conn, instance)
    statement = "SELECT rank FROM tube_lease_tick('queue', %s, 'x', '1 minute')"
    ranks = [scalar(conn, statement, (instance,)) for instance in instances]
    assert sorted(ranks) == [0, 1, 2]


# --- all tubes of a process -----------------------------------------------------------------------


def ticks(conn: Conn, instance: uuid.UUID, *tubes: str) -> dict[str, tuple[Any, ...]]:
    statement = "SELECT * FROM tube_lease_ticks(%s, %s, 'x', '1 minute')"
    return {row[0]: row[1:] for row in conn.execute(statement, (list(tubes), instance))}


def test_a_tick_for_many_tubes_is_one_for_each(conn: Conn) -> None:
    make_tube(conn, "wide", 5)
    one = uuid.uuid4()
    acquire(conn, leased(partition=2, instance=one))
    assert ticks(conn, one, "queue", "wide", "none") == {
        "queue": (3, 1, [0, 1], [2], 0),
        "wide": (5, 1, [0, 1, 2, 3, 4], [], 0),
    }
    assert ticks(conn, uuid.uuid4()) == {}
    assert ticks(conn, uuid.uuid4(), "wide") == {"wide": (5, 2, [0, 1, 2, 3, 4], [], ANY)}


def test_the_odd_partitions_of_many_tubes_are_not_all_one_process_s(conn: Conn) -> None:
    tubes = [f"t{number}" for number in range(16)]
    for tube in tubes:
        make_tube(conn, tube, 1)
    one, other = uuid.uuid4(), uuid.uuid4()
    ticks(conn, one, *tubes)
    second = {tube: row[-1] for tube, row in ticks(conn, other, *tubes).items()}
    first = {tube: row[-1] for tube, row in ticks(conn, one, *tubes).items()}
    assert all({first[tube], second[tube]} == {0, 1} for tube in tubes)
    assert {*first.values()} == {0, 1}


def test_a_tube_that_is_just_changed_is_left_out_and_holds_up_no_other(conn: Conn, connect: Connect) -> None:
    make_tube(conn, "wide", 5)
    one = uuid.uuid4()
    with connect(autocommit=False) as admin:
        admin.execute("SELECT FROM tube_registry WHERE tube = 'wide' FOR UPDATE")
        assert ticks(conn, one, "queue", "wide").keys() == {"queue"}
        with pytest.raises(psycopg.errors.LockNotAvailable, match="just being changed"):
            conn.execute("SELECT tube_lease_tick('wide', %s, 'x', '1 minute')", (one,))
    assert ticks(conn, one, "queue", "wide").keys() == {"queue", "wide"}


def test_a_process_that_was_seen_just_now_is_not_written_again(conn: Conn) -> None:
    one = uuid.uuid4()
    written = "SELECT xmin::text FROM tube_instance WHERE instance_id = %s"
    ticks(conn, one, "queue")
    first = scalar(conn, written, (one,))
    with conn.transaction():
        ticks(conn, one, "queue")
        assert scalar(conn, "SELECT pg_current_xact_id_if_assigned()") is None, "not even a lock is written"
    assert scalar(conn, written, (one,)) == first
    conn.execute("UPDATE tube_instance SET seen_at = seen_at - interval '13 seconds'")  # a fifth is 12
    first = scalar(conn, written, (one,))
    ticks(conn, one, "queue")
    assert scalar(conn, written, (one,)) != first


def test_a_process_leaves_all_its_tubes_at_once(conn: Conn) -> None:
    make_tube(conn, "wide", 5)
    one, other = uuid.uuid4(), uuid.uuid4()
    for instance in (one, other):
        ticks(conn, instance, "queue", "wide")
    conn.execute("SELECT tube_lease_leave(NULL, %s)", (one,))
    left = conn.execute("SELECT tube, instance_id FROM tube_instance ORDER BY 1").fetchall()
    assert left == [("queue", other), ("wide", other)]


def test_terms_of_many_tubes_are_renewed_at_once(conn: Conn) -> None:
    make_tube(conn, "wide", 5)
    terms = [acquire(conn, leased()), acquire(conn, Claim(tube="wide", partitions=5))]
    over = acquire(conn, leased(partition=1))
    assert release(conn, over)
    age(conn, "5 seconds")
    ids = [term.leader_id for term in (*terms, over)]
    found = conn.execute("SELECT leader_id, renewed FROM tube_leaders_renew(NULL, %s)", (ids,)).fetchall()
    assert sorted(found) == sorted((term.leader_id, True) for term in terms)
    late = "SELECT count(*) FROM tube_leaders() WHERE renewed_at < clock_timestamp() - interval '4 seconds'"
    assert scalar(conn, late) == 0
