"""The disk of the sink is full under load: the worker waits, and goes on by itself when there is room."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.crash.conftest import MakeFleet
from tests.crash.fleet import Fleet
from tests.crash.hosts import Disk
from tests.crash.load import Load


def _told(fleet: Fleet, number: int, name: str) -> Counter[int]:
    """How often a worker told it, by partition."""
    return Counter(event["partition"] for event in fleet.events(number, name))


@pytest.mark.parametrize("limited", [True, False], ids=["no_file_may_grow", "no_space_left"])
def test_a_full_disk_stops_the_worker_and_nothing_is_parked(
    make_fleet: MakeFleet, tmp_path: Path, limited: bool
) -> None:
    fleet = make_fleet(receive_deadline=2.5)
    disk = Disk(tmp_path, fleet.sink, limited=limited)
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    pids = [process.pid for process in fleet.processes.values()]
    with Load(fleet.dsn):
        fleet.wait_until(lambda: disk.lines > 500, "documents arrive")
        disk.fill(*pids)
        fleet.wait_until(
            lambda: len(_told(fleet, 1, "sink_down") + _told(fleet, 2, "sink_down")) == 4,
            "each partition tells that the sink is down",
        )
        full = disk.lines
        waiting = fleet.query("SELECT count(*) FROM tube.items")[0][0]
        fleet.wait_until(
            lambda: fleet.query("SELECT count(*) FROM tube.items")[0][0] > waiting + 300, "pods wait"
        )
        assert disk.lines == full, "nothing is written meanwhile"
        disk.free(*pids)
        before = disk.lines
        fleet.wait_until(lambda: disk.lines > before + 500, "documents arrive again")
    fleet.wait_until_drained()
    for number in (1, 2):
        down, up = _told(fleet, number, "sink_down"), _told(fleet, number, "sink_up")
        # Once per term: on a machine with much to do, partitions may change hands meanwhile.
        assert down <= _told(fleet, number, "leader_acquired"), "told once, not per failure"
        assert up, "and when it is over"
        assert up <= down
        reason = "File too large" if limited else "No space left"
        assert all(reason in event["reason"] for event in fleet.events(number, "sink_down"))
    assert fleet.terminate() == [0, 0]
    assert fleet.query("SELECT count(*) FROM tube_parked") == [(0,)]
    verdict = fleet.judge()
    assert verdict.is_good, verdict
    assert verdict.torn == 0


@pytest.mark.soak
def test_a_worker_that_is_killed_while_the_disk_is_full(make_fleet: MakeFleet, tmp_path: Path) -> None:
    """Its successor finds the same disk, and waits as it did."""
    fleet = make_fleet()
    disk = Disk(tmp_path, fleet.sink, limited=True)
    fleet.start(1)
    fleet.wait_for_leaders({1})
    with Load(fleet.dsn):
        fleet.wait_until(lambda: disk.lines > 500, "documents arrive")
        disk.fill(fleet.processes[1].pid)
        fleet.wait_until(lambda: len(_told(fleet, 1, "sink_down")) == 4, "the worker stops")
        fleet.kill(1)
        fleet.start(2)
        disk.fill(fleet.processes[2].pid)
        fleet.wait_until(lambda: len(_told(fleet, 2, "sink_down")) == 4, "the next worker stops")
        disk.free(fleet.processes[2].pid)
        before = disk.lines
        fleet.wait_until(lambda: disk.lines > before + 500, "documents arrive again")
    fleet.wait_until_drained()
    assert fleet.terminate() == [0]
    assert fleet.query("SELECT count(*) FROM tube_parked") == [(0,)]
    verdict = fleet.judge()
    assert verdict.is_good, verdict
    assert verdict.torn == 0
