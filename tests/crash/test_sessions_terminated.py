"""All sessions of the database are ended again and again under load: workers go on by themselves."""

from __future__ import annotations

import itertools
import time

import psycopg
import pytest

from tests.crash.conftest import MakeFleet
from tests.crash.fleet import Fleet
from tests.crash.load import Load
from tests.crash.test_servers_restarted import go_on
from tests.helpers.waiting import wait_until

OUTAGES = 4
TERMINATE = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


def terminate_all(fleet: Fleet) -> int:
    """End every other session of the database; how many there were."""
    return int(fleet.query(TERMINATE)[0][0])


def outages(fleet: Fleet, number: int) -> tuple[int, int]:
    """How often a worker told that the database is down, and that it is up again."""
    return len(list(fleet.events(number, "database_down"))), len(list(fleet.events(number, "database_up")))


def test_all_sessions_terminated_again_and_again(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    with Load(fleet.dsn):
        for outage in range(1, OUTAGES + 1):
            go_on(fleet, "the start")
            assert terminate_all(fleet) > 10
            for number in (1, 2):
                fleet.wait_until(
                    lambda: outages(fleet, number) == (outage, outage),  # noqa: B023 # called at once
                    f"worker {number} told outage {outage} once, and its end",
                )
        go_on(fleet, "the last")
    fleet.wait_until_drained()
    assert fleet.terminate() == [0, 0]
    verdict = fleet.judge()
    assert verdict.is_good, verdict
    for number in (1, 2):
        assert outages(fleet, number) == (OUTAGES, OUTAGES), "told once per outage"


@pytest.mark.soak
def test_a_storm_of_terminations(make_fleet: MakeFleet) -> None:
    """Faster than a worker reconnects: it may take as long, but it comes back, and floods no log."""
    fleet = make_fleet(comparing=True)
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    rounds = 0
    with Load(fleet.dsn), psycopg.connect(fleet.dsn, autocommit=True) as storm:
        go_on(fleet, "the start")
        end = time.monotonic() + 30
        for pause in itertools.cycle((0.05, 0.3, 1.0)):
            if time.monotonic() > end:
                break
            storm.execute(TERMINATE)
            rounds += 1
            began = time.monotonic()
            wait_until(lambda: time.monotonic() > began + pause, what="the pause is over")  # noqa: B023
        go_on(fleet, "the storm")
    fleet.wait_until_drained()
    assert fleet.terminate() == [0, 0]
    verdict = fleet.judge()
    assert verdict.is_good, verdict
    for number in (1, 2):
        downs, ups = outages(fleet, number)
        assert downs == ups <= rounds
