"""A leader is killed or ended while writers go on: nothing is lost, and nothing is old."""

from __future__ import annotations

import pytest

from tests.crash.conftest import LEASE_IN_SOAK
from tests.crash.fleet import Fleet
from tests.crash.load import Load
from tests.helpers.waiting import wait_until


@pytest.mark.parametrize("fleet", LEASE_IN_SOAK, indirect=True)
def test_a_leader_that_is_killed_under_load_loses_nothing(fleet: Fleet) -> None:
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    with Load(fleet.dsn):
        wait_until(lambda: fleet.sink_lines() > 500, what="documents arrive")
        fleet.kill(1)
        fleet.wait_for_leaders({2})
        fleet.start(1)
        fleet.wait_for_leaders({1, 2})
    fleet.wait_until_drained()
    assert fleet.terminate() == [0, 0]
    verdict = fleet.judge()
    assert verdict.is_good, verdict


def test_a_leader_that_is_ended_hands_over_and_exits_with_0(fleet: Fleet) -> None:
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    with Load(fleet.dsn):
        wait_until(lambda: fleet.sink_lines() > 500, what="documents arrive")
        assert fleet.terminate(1) == [0]
        fleet.wait_for_leaders({2})
    fleet.wait_until_drained()
    outcomes = fleet.query("SELECT DISTINCT outcome FROM tube_terms('items') WHERE client_id = 'worker-1'")
    assert outcomes == [("released",)], "the terms of the worker that was ended were released"
    assert fleet.terminate() == [0]
    verdict = fleet.judge()
    assert verdict.is_good, verdict
