"""A leader is stopped for longer than its session lasts, and goes on: it must do no harm."""

from __future__ import annotations

import signal

import pytest

from tests.crash.conftest import NELI_IN_SOAK
from tests.crash.fleet import Fleet
from tests.crash.load import Load
from tests.helpers.waiting import wait_until


@pytest.mark.parametrize("slow_fleet", NELI_IN_SOAK, indirect=True)
def test_a_leader_that_was_stopped_past_its_session_does_no_harm(slow_fleet: Fleet) -> None:
    """It is stopped with writes begun; others take over and write the same keys anew meanwhile."""
    fleet = slow_fleet
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    with Load(fleet.dsn):
        wait_until(lambda: fleet.sink_lines(1) > 100, what="worker 1 delivers")
        fleet.signal(1, signal.SIGSTOP)
        fleet.wait_for_leaders({2})
        before = fleet.sink_lines(2)
        wait_until(lambda: fleet.sink_lines(2) > before + 300, what="worker 2 rewrites the keys")
    fleet.wait_until_drained()
    fleet.signal(1, signal.SIGCONT)
    fleet.wait_for_leaders({1, 2})
    assert fleet.terminate() == [0, 0]
    verdict = fleet.judge()
    assert verdict.is_good, verdict
