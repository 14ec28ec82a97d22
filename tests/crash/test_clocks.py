"""The wall clock of a worker is set, and its machine is suspended: trust looks at neither's time."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.crash.conftest import LEASE_IN_SOAK, MakeFleet
from tests.crash.fleet import Fleet
from tests.crash.hosts import Clocks
from tests.crash.load import Load

HOUR = 3600
PATIENCE = 150
"""Seconds: until a member that librdkafka's waits have made late is let into the group again."""


def goes_on(fleet: Fleet, clocks: Clocks, jump: int) -> None:
    """The wall clock of worker 1 jumps; both deliver. By lease nobody notices.

    librdkafka waits by the wall clock: under neli a jump may cost worker 1 its terms, and it gets others.
    """
    terms = _terms(fleet)
    clocks.set_wall_clock(jump)
    before = {number: fleet.sink_lines(number) for number in (1, 2)}
    fleet.wait_until(
        lambda: all(fleet.sink_lines(number) > before[number] + 50 for number in (1, 2)),
        f"both deliver after a jump to {jump} s",
    )
    if fleet.kafka is None:
        assert _terms(fleet) == terms, "a jump of the wall clock is no reason for another term"
    assert abs(_written_at(fleet) - time.time() - jump) < HOUR / 4, "the clock did jump"


def _written_at(fleet: Fleet) -> float:
    """When worker 1 wrote last, by its own wall clock."""
    whole = fleet.sink.read_bytes().split(b"\n")[:-1]  # of the last line only a part may be written yet
    lines = [line for line in whole if b'"client":"worker-1"' in line]
    return float(json.loads(lines[-1])["at"])


def _terms(fleet: Fleet) -> list[tuple[object, ...]]:
    return fleet.query("SELECT partition, leader_id FROM tube_leaders('items')")


def make(
    make_fleet: MakeFleet,
    clocks: dict[str, str],
    *,
    kafka: str | None,
    slow: bool,
    session_timeout: float = 6.0,
) -> Fleet:
    """Two workers; the first lives by clocks of its own."""
    fleet = make_fleet(kafka=kafka, slow=slow, session_timeout=session_timeout, environments={1: clocks})
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    return fleet


@pytest.mark.timeout(4 * PATIENCE)
@pytest.mark.parametrize("election", LEASE_IN_SOAK)
def test_the_wall_clock_jumps_by_an_hour(
    make_fleet: MakeFleet, tmp_path: Path, request: pytest.FixtureRequest, election: str
) -> None:
    kafka = request.getfixturevalue("kafka_real").bootstrap if election == "neli" else None
    clocks = Clocks(tmp_path)
    # By lease nothing else is to end a term, such as a machine that is busy for seconds.
    session_timeout = 6.0 if kafka else 60.0
    fleet = make(make_fleet, clocks.wall, kafka=kafka, slow=False, session_timeout=session_timeout)
    with Load(fleet.dsn):
        for jump in (HOUR, 0, -HOUR):
            goes_on(fleet, clocks, jump)
    fleet.wait_until_drained()
    assert fleet.terminate() == [0, 0]
    verdict = fleet.judge()
    assert verdict.is_good, verdict


def test_a_machine_that_was_suspended_does_no_harm(make_fleet: MakeFleet, tmp_path: Path) -> None:
    """With writes begun; afterwards its monotonic clock says that no time has passed."""
    clocks = Clocks(tmp_path)
    fleet = make(make_fleet, clocks.machine, kafka=None, slow=True)
    with Load(fleet.dsn):
        fleet.wait_until(lambda: fleet.sink_lines(1) > 100, "worker 1 delivers")
        fleet.signal(1, signal.SIGSTOP)
        stopped = time.monotonic()
        fleet.wait_for_leaders({2})
        before = fleet.sink_lines(2)
        fleet.wait_until(lambda: fleet.sink_lines(2) > before + 300, "worker 2 rewrites the keys")
    fleet.wait_until_drained()
    written = fleet.sink_lines(1)
    clocks.sleep(time.monotonic() - stopped)
    fleet.signal(1, signal.SIGCONT)
    fleet.wait_for_leaders({1, 2})
    assert fleet.terminate() == [0, 0]
    assert fleet.sink_lines(1) == written, "nothing was written under the terms of before"
    verdict = fleet.judge()
    assert verdict.is_good, verdict
