"""Workers that come and go without pause, and two that go by one name."""

from __future__ import annotations

import random
import time

import pytest

from tests.crash.conftest import LEASE_IN_SOAK, MakeFleet
from tests.crash.fleet import Fleet
from tests.crash.load import Load
from tests.helpers.waiting import wait_until

WORKERS = (1, 2, 3)
PAUSE = 1.0
"""Seconds from one change to the next."""

BUSY = 1.5
"""How many times as long all of them may take on a machine that has much to do."""

SINGLE = 30.0
"""Seconds within which another change can be made: those who were asked to end take their time."""

SLACK = 6.0
"""Seconds: for a group to settle and the wait of the new term, on a machine that has much to do."""


class Crowd:
    """Workers of a fleet, of which one joins or leaves at each step."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._draw = random.Random(1)
        self._ending: set[int] = set()
        self.steps: dict[str, int] = {"start": 0, "end": 0, "kill": 0}

    @property
    def living(self) -> list[int]:
        """Who has been started, and neither killed nor asked to end."""
        return [number for number in WORKERS if number not in self._ending and self._runs(number)]

    def _runs(self, number: int) -> bool:
        return self._fleet.processes[number].poll() is None

    def _start(self, number: int) -> None:
        self._ending.discard(number)
        self._fleet.start(number)

    @property
    def changes(self) -> int:
        """How many there were."""
        return sum(self.steps.values())

    def step(self) -> bool:
        """One more or one less; never none. False when that has to wait for somebody's end."""
        living = self.living
        absent = [number for number in WORKERS if not self._runs(number)]
        if absent and (len(living) == 1 or self._draw.random() < 0.5):
            self._start(self._draw.choice(absent))
            self.steps["start"] += 1
        elif len(living) == 1:
            return False
        elif self._draw.random() < 0.5:
            self._fleet.kill(self._draw.choice(living))
            self.steps["kill"] += 1
        else:
            chosen = self._draw.choice(living)
            self._ending.add(chosen)
            self._fleet.processes[chosen].terminate()
            self.steps["end"] += 1
        return True

    def gather(self) -> None:
        """All join, and are given partitions: nobody is stuck."""
        for number in WORKERS:
            if number in self._ending:
                self._fleet.processes[number].wait(timeout=30)
            if not self._runs(number):
                self._start(number)
        self._fleet.wait_for_leaders(set(WORKERS))

    def last_change(self) -> float:
        """One dies; seconds until the others lead all."""
        *rest, victim = WORKERS
        self._fleet.kill(victim)
        killed = time.monotonic()
        self._fleet.wait_for_leaders(set(rest), timeout=self._fleet.session_timeout + SLACK)
        return time.monotonic() - killed


def change(crowd: Crowd, times: int) -> float:
    """So many changes, one a second; seconds that they took."""
    began = time.monotonic()
    for _ in range(times):
        wait_until(crowd.step, what="somebody joins or leaves")
        changed = time.monotonic()
        wait_until(lambda: time.monotonic() > changed + PAUSE, what="a second is over")  # noqa: B023
    seconds = time.monotonic() - began
    assert crowd.changes == times
    assert seconds < times * PAUSE * BUSY + SINGLE, f"{times} changes took {seconds:.0f} s"
    return seconds


def rebalance(fleet: Fleet, times: int) -> None:
    """So many changes, one a second, under load; then everybody is there, and the sink is equal."""
    crowd = Crowd(fleet)
    fleet.start(*WORKERS)
    fleet.wait_for_leaders(set(WORKERS))
    with Load(fleet.dsn):
        took = change(crowd, times)
        crowd.gather()
        before = {number: fleet.sink_lines(number) for number in WORKERS}
        fleet.wait_until(
            lambda: all(fleet.sink_lines(number) > before[number] for number in WORKERS),
            "everybody delivers",
        )
        until_led = crowd.last_change()
    fleet.wait_until_drained()
    assert set(fleet.terminate()) == {0}
    verdict = fleet.judge()
    assert verdict.is_good, verdict
    print(  # noqa: T201
        f"{crowd.steps} in {took:.0f} s, all led {until_led:.1f} s after the last change,"
        f" {verdict.lines} lines"
    )


@pytest.mark.soak
@pytest.mark.parametrize("election", ["lease", "neli"])
def test_workers_come_and_go(make_fleet: MakeFleet, request: pytest.FixtureRequest, election: str) -> None:
    """`make test` has this of outboxes, whose elections are the same: test_outbox_rebalanced.py."""
    kafka = request.getfixturevalue("kafka_real").bootstrap if election == "neli" else None
    rebalance(make_fleet(kafka=kafka), 5)


@pytest.mark.soak
def test_fifty_rebalances_in_a_minute(fleet: Fleet) -> None:
    rebalance(fleet, 50)


def _instances(fleet: Fleet) -> dict[int, str]:
    rows = fleet.query("SELECT partition, instance_id::text FROM tube_leaders('items')")
    return dict(rows)


@pytest.mark.parametrize("election", LEASE_IN_SOAK)
def test_two_workers_of_one_name(
    make_fleet: MakeFleet, request: pytest.FixtureRequest, election: str
) -> None:
    """One configuration and one client_id: the name is a label, and tells nobody apart."""
    kafka = request.getfixturevalue("kafka_real").bootstrap if election == "neli" else None
    fleet = make_fleet(kafka=kafka, environment={"CLIENT_ID": "worker-1"})
    fleet.start(1, 2)
    fleet.wait_until(
        lambda: len(_instances(fleet)) == 4 and len(set(_instances(fleet).values())) == 2,
        "two instances share four partitions",
    )
    assert set(fleet.leaders().values()) == {1}, "they go by one name"
    with Load(fleet.dsn):
        fleet.wait_until(lambda: all(any(_delivered(fleet, number)) for number in (1, 2)), "both deliver")
        shared = _instances(fleet)
        fleet.kill(1)
        fleet.wait_until(
            lambda: len(_instances(fleet)) == 4 and len(set(_instances(fleet).values())) == 1,
            "one has them all",
        )
        (left,) = set(_instances(fleet).values())
        assert left in shared.values(), "it is the other one, and not a third"
    fleet.wait_until_drained()
    assert fleet.terminate() == [0]
    told = [{e["leader_id"] for e in fleet.events(number, "leader_acquired")} for number in (1, 2)]
    assert not told[0] & told[1], "no term is of both"
    verdict = fleet.judge()
    assert verdict.is_good, verdict


def _delivered(fleet: Fleet, number: int) -> list[int]:
    return [e["documents"] for e in fleet.events(number, "meter_read") if e["documents"]]
