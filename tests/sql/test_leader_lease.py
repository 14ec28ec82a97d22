"""The lease election: leases, who may take which, and fair shares."""

from __future__ import annotations

import uuid
from typing import Any

import psycopg
import pytest

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
    ranks = [conn.execute(statement, (instance,)).fetchone() for instance in sorted(instances)]
    assert ranks == [(0,), (1,), (2,)]
