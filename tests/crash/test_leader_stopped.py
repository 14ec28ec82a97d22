"""A leader is stopped for longer than its session lasts, and goes on: it must do no harm."""

from __future__ import annotations

import signal

from tests.crash.fleet import Fleet
from tests.crash.load import Load
from tests.helpers.waiting import wait_until


def test_a_leader_that_was_stopped_past_its_session_does_no_harm(fleet: Fleet) -> None:
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    with Load(fleet.dsn):
        wait_until(lambda: fleet.sink_lines() > 500, 30, "documents arrive")
        fleet.signal(1, signal.SIGSTOP)
        fleet.wait_for_leaders({2})
    fleet.wait_until_drained()
    fleet.signal(1, signal.SIGCONT)
    wait_until(
        lambda: any(fleet.events(1, "leader fenced")),
        20,
        f"worker 1 finds that it is fenced\n{fleet.last_words()}",
    )
    fleet.wait_for_leaders({1, 2})
    assert fleet.terminate() == [0, 0]
    verdict = fleet.judge()
    assert verdict["good"], verdict
