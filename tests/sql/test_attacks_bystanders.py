"""What keeps others from their work, or acts in their name, without any right of theirs."""

from __future__ import annotations

from tests.helpers.capture import TUBE
from tests.helpers.terms import Claim, acquire
from tests.sql.attackers import MALLORY, World

# --- locks ----------------------------------------------------------------------------------------------


def test_a_login_keeps_no_worker_from_waking_and_no_term_from_beginning(world: World) -> None:
    """By all advisory locks of the session of a worker that begins, sleeps and wakes, whatever their keys."""
    with world.login(MALLORY) as mallory:
        world.admin.execute("SET lock_timeout = '5s'")
        world.admin.execute("BEGIN")
        term = acquire(world.admin, Claim(tube=TUBE, partitions=4))
        world.admin.execute("SELECT tube_sleep(%s, 4, 0, %s)", (TUBE, term.leader_id))
        world.admin.execute("SELECT tube_wake(%s, 0, %s)", (TUBE, term.leader_id))
        world.admin.execute("SELECT tube_sleep(%s, 4, 0, %s)", (TUBE, term.leader_id))
        taken = world.admin.execute(
            "SELECT classid::bigint << 32 | objid::bigint FROM pg_locks"
            " WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        ).fetchall()
        world.admin.execute("COMMIT")
        for (key,) in taken:
            mallory.execute("SELECT pg_advisory_lock(%s)", (key,))
        world.admin.execute("SELECT tube_wake(%s, 0, %s)", (TUBE, term.leader_id))
        world.admin.execute("SELECT tube_sleep(%s, 4, 0, %s)", (TUBE, term.leader_id))
        assert acquire(world.admin, Claim(tube=TUBE, partitions=4)).epoch > term.epoch
