"""Going to sleep and being woken, against writers that are under way."""

from __future__ import annotations

import pytest

from tests.conftest import Connect
from tests.helpers.capture import let_writers_notify
from tests.helpers.terms import TUBE, Claim, Conn, Term, acquire, make_tube, marked_seqs, release, scalar
from tests.isolation.conftest import NewSession
from tests.isolation.settling import Settling

SLEEP = "SELECT tube_sleep(%s, %s, %s, %s)"
TOUCH = "SELECT tube.queue_touch(%s::integer, '{1}', 'U')"


@pytest.fixture
def term(conn: Conn) -> Term:
    make_tube(conn, partitions=2)
    let_writers_notify(conn)
    return acquire(conn, Claim(partitions=2, partition=1))


def sleepers(conn: Conn) -> list[tuple[str, int]]:
    return conn.execute("SELECT tube, partition FROM tube_sleeper ORDER BY 1, 2").fetchall()


def listen(conn: Conn) -> None:
    conn.execute(f'LISTEN "{scalar(conn, "SELECT tube_channel(%s)", (TUBE,))}"')


def heard(conn: Conn, timeout: float = 10) -> list[str]:
    """The payloads of the notifications that came, at least one within `timeout`."""
    return [note.payload for note in conn.notifies(timeout=timeout, stop_after=1)]


def silent(conn: Conn) -> bool:
    # Notifications come before the answer of a statement sent after their commit.
    conn.execute("SELECT 1")
    return heard(conn, timeout=0) == []


def test_a_writer_wakes_the_sleeper_of_its_partition(conn: Conn, term: Term, connect: Connect) -> None:
    writer, other = connect(), connect()
    listen(conn)
    conn.execute(SLEEP, term.args)
    writer.execute(TOUCH, (0,))
    assert silent(conn), "the other partition has no sleeper"
    other.execute(TOUCH, (3,))
    assert heard(conn) == ["1"]
    conn.execute("SELECT tube_wake(%s, 1, %s)", (TUBE, term.leader_id))
    writer.execute(TOUCH, (1,))
    assert silent(conn)


BY_OTHERS = {
    "ids": "SELECT tube_pods_put('queue', 1, 'U', '{1}')",
    "keys": "SELECT tube_keys_put('queue', 1, 'U', '{1}')",
    "a fan-out": "SELECT tube_pods_insert('queue', 'SELECT 1::bigint, 1::bigint', 1)",
    "a control pod": 'SELECT queue_touch(1, \'{}\', \'B\', \'{"type": "sweep", "start_seq": "1"}\')',
    # By the leader itself, which goes back to sleep when the sweep ends.
    "a sweep": "SELECT tube_sweep_touch('queue', 2, 1, %(leader_id)s, 1, '{1}'::bigint[])",
}


@pytest.mark.parametrize("made", BY_OTHERS.values(), ids=BY_OTHERS.keys())
def test_pods_that_are_not_made_by_triggers_wake_it_too(
    conn: Conn, term: Term, connect: Connect, made: str
) -> None:
    maker = connect()
    listen(conn)
    conn.execute(SLEEP, term.args)
    maker.execute(made.encode(), {"leader_id": term.leader_id})
    assert heard(conn) == ["1"]


def test_a_writer_that_had_not_seen_the_sleeper_holds_up_the_settled_seq(
    conn: Conn, term: Term, session: NewSession
) -> None:
    writer = session()
    writer.begin()
    writer.run(TOUCH, (1,))
    # The order in which a worker goes to sleep.
    conn.execute(SLEEP, term.args)
    listen(conn)
    settling = Settling.begin(conn)
    assert marked_seqs(conn, term) == []
    assert not settling.done(conn), "it must not sleep long yet"
    writer.commit()
    assert settling.done(conn)
    assert len(marked_seqs(conn, term)) == 1


def test_a_writer_that_draws_after_the_settled_seq_sees_the_sleeper(
    conn: Conn, term: Term, session: NewSession
) -> None:
    writer = session()
    writer.begin()
    writer.run("SELECT 1")
    conn.execute(SLEEP, term.args)
    listen(conn)
    settling = Settling.begin(conn)
    assert marked_seqs(conn, term) == []
    assert settling.done(conn)
    writer.run(TOUCH, (1,))
    writer.commit()
    assert heard(conn) == ["1"]


def test_writers_and_a_sleeper_that_wakes_do_not_wait_for_each_other(
    conn: Conn, term: Term, session: NewSession
) -> None:
    conn.execute(SLEEP, term.args)
    one, other, waking = session(), session(), session()
    for each in (one, other):
        each.begin("ISOLATION LEVEL REPEATABLE READ")
        each.run(TOUCH, (1,))
    waking.begin()
    waking.run("SELECT tube_wake(%s, 1, %s)", (TUBE, term.leader_id))
    one.run(TOUCH, (1,))
    waking.commit()
    other.run(TOUCH, (1,))
    one.commit()
    other.commit()
    assert sleepers(conn) == []


def test_sleeping_twice_is_sleeping(conn: Conn, term: Term) -> None:
    conn.execute(SLEEP, term.args)
    conn.execute(SLEEP, term.args)
    assert sleepers(conn) == [(TUBE, 1)]
    conn.execute("SELECT tube_wake(%s, 1)", (TUBE,))
    conn.execute("SELECT tube_wake(%s, 1)", (TUBE,))
    assert sleepers(conn) == []


def test_a_sleep_after_a_wake_that_failed(conn: Conn, term: Term, connect: Connect) -> None:
    """That nobody sleeps is told at once, and not taken back; so the next sleep says it anew."""
    conn.execute(SLEEP, term.args)
    with conn.transaction(force_rollback=True):
        conn.execute("SELECT tube_wake(%s, 1, %s)", (TUBE, term.leader_id))
    listen(conn)
    conn.execute(SLEEP, term.args)
    connect().execute(TOUCH, (1,))
    assert heard(conn) == ["1"]


def test_a_new_term_does_not_inherit_the_sleep(conn: Conn, term: Term) -> None:
    conn.execute(SLEEP, term.args)
    acquire(conn, Claim(partitions=2, partition=1))
    assert sleepers(conn) == []


def test_a_release_ends_the_sleep(conn: Conn, term: Term) -> None:
    conn.execute(SLEEP, term.args)
    assert release(conn, term)
    assert sleepers(conn) == []


def test_an_old_leader_that_wakes_leaves_the_new_ones_sleep_alone(conn: Conn, term: Term) -> None:
    new = acquire(conn, Claim(partitions=2, partition=1))
    conn.execute(SLEEP, new.args)
    conn.execute("SELECT tube_wake(%s, 1, %s)", (TUBE, term.leader_id))
    assert sleepers(conn) == [(TUBE, 1)]
    conn.execute("SELECT tube_wake(%s, 1, %s)", (TUBE, new.leader_id))
    assert sleepers(conn) == []


def test_channels_of_tubes_differ_and_are_plain_names(conn: Conn) -> None:
    one, other = (scalar(conn, "SELECT tube_channel(%s)", (tube,)) for tube in ("a", "é \" ' -"))
    assert one != other
    assert one == scalar(conn, "SELECT 'pytube_' || md5('tube.a')")
    assert other.startswith("pytube_")
    assert len(other) == 39
