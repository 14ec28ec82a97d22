"""The tube changes under its workers: they start new terms by themselves."""

from __future__ import annotations

import signal

import psycopg
import pytest

from pytube.tubes.admin import Tubes
from tests.crash.conftest import LEASE_IN_SOAK, NELI_IN_SOAK, MakeFleet
from tests.crash.fleet import Fleet
from tests.crash.load import KEYS, Load


def repartition(fleet: Fleet, partitions: int) -> None:
    """As `pytube tube create items --partitions N` does, with writers and workers at it."""
    with psycopg.connect(fleet.dsn, autocommit=True) as connection:
        Tubes(connection).create("items", partitions)
    # by whom does not matter: the leader topic never shrinks, so one may have all that is left
    fleet.wait_until(
        lambda: sorted(fleet.leaders()) == list(range(partitions)),
        f"{partitions} partitions are led",
    )


@pytest.mark.parametrize("fleet", NELI_IN_SOAK, indirect=True)
def test_repartition_under_load(fleet: Fleet) -> None:
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    with Load(fleet.dsn):
        repartition(fleet, 2)
        repartition(fleet, 7)
        before = fleet.sink_lines()
        fleet.wait_until(lambda: fleet.sink_lines() > before + 100, "documents arrive")
    fleet.wait_until_drained()
    assert fleet.terminate() == [0, 0]
    verdict = fleet.judge()
    assert verdict.is_good, verdict


def test_a_tube_that_is_dropped_and_made_again(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    fleet.start(1)
    fleet.wait_for_leaders({1})
    fleet.wait_until_drained()
    with psycopg.connect(fleet.dsn, autocommit=True) as connection:
        tubes = Tubes(connection)
        tubes.drop("items", force=True)
        fleet.wait_until(
            lambda: "there is no tube" in fleet.log(1),
            "the worker says that the tube is gone",
        )
        tubes.create("items", 4)
        tubes.attach("items", "public.items", 0, 16)
        connection.execute("UPDATE public.items SET n = n + 1")
    fleet.wait_for_leaders({1})
    fleet.wait_until_drained()
    assert fleet.terminate() == [0]
    verdict = fleet.judge()
    assert verdict.is_good, verdict


@pytest.mark.parametrize("fleet", LEASE_IN_SOAK, indirect=True)
def test_a_tube_is_dropped_under_load(fleet: Fleet) -> None:
    """Its workers deliver just then. They lose their terms, and begin new ones in the tube that follows."""
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    with psycopg.connect(fleet.dsn, autocommit=True) as connection, Load(fleet.dsn) as load:
        tubes = Tubes(connection)
        delivering(fleet, "before the drop")
        tubes.drop("items", force=True)
        for number in (1, 2):
            fleet.wait_until(
                lambda: "there is no tube" in fleet.log(number),  # noqa: B023 # called at once
                f"worker {number} says that the tube is gone",
            )
        written = load.committed
        fleet.wait_until(lambda: load.committed > written + 50, "writers go on without the tube")
        tubes.create("items", 4)
        tubes.attach("items", "public.items", 0, 16)
        fleet.wait_for_leaders({1, 2})
        delivering(fleet, "after it was made again")
    with psycopg.connect(fleet.dsn, autocommit=True) as connection:
        # what was changed while the tube was not there is known by nobody, nor the pods that went with it
        connection.execute(f"SELECT public.items_touch(ARRAY(SELECT generate_series(1, {KEYS})))")
    fleet.wait_until_drained()
    assert fleet.terminate() == [0, 0]
    verdict = fleet.judge()
    assert verdict.is_good, verdict


def delivering(fleet: Fleet, when: str) -> None:
    """Until each of two workers has delivered more."""
    before = {number: fleet.sink_lines(number) for number in (1, 2)}
    fleet.wait_until(
        lambda: all(fleet.sink_lines(number) > before[number] + 50 for number in (1, 2)),
        f"both deliver {when}",
    )


@pytest.mark.parametrize(
    "kafka",
    [None, pytest.param("kafka_real", marks=pytest.mark.soak)],
    ids=["lease", "neli"],
)
def test_workers_killed_while_it_is_repartitioned(
    make_fleet: MakeFleet, request: pytest.FixtureRequest, kafka: str | None
) -> None:
    fleet = make_fleet(kafka=kafka and request.getfixturevalue(kafka).bootstrap)
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    with Load(fleet.dsn):
        for partitions, victim in ((2, 1), (7, 2)):
            fleet.kill(victim)
            repartition(fleet, partitions)
            fleet.start(victim)
            fleet.kill(3 - victim)
            fleet.start(3 - victim)
        before = fleet.sink_lines()
        fleet.wait_until(lambda: fleet.sink_lines() > before + 100, "documents arrive")
    fleet.wait_until_drained()
    assert fleet.terminate() == [0, 0]
    verdict = fleet.judge()
    assert verdict.is_good, verdict


def test_a_tube_made_again_with_other_partitions_while_pods_wait(make_fleet: MakeFleet) -> None:
    """The pods go with the tube, so all rows are touched. Its leader sleeps over all of that."""
    fleet = make_fleet()
    fleet.start(1)
    fleet.wait_for_leaders({1})
    fleet.wait_until_drained()
    with psycopg.connect(fleet.dsn, autocommit=True) as connection, Load(fleet.dsn):
        fleet.signal(1, signal.SIGSTOP)
        fleet.wait_until(
            lambda: connection.execute("SELECT count(*) > 100 FROM tube.items").fetchone() == (True,),
            "pods wait",
        )
        tubes = Tubes(connection)
        tubes.drop("items", force=True)
        tubes.create("items", 7)
        tubes.attach("items", "public.items", 0, 16)
        fleet.signal(1, signal.SIGCONT)
        fleet.wait_for_leaders({1}, partitions=7)
    with psycopg.connect(fleet.dsn, autocommit=True) as connection:
        # rows that were deleted while the tube was not there are known by nobody
        connection.execute(f"SELECT public.items_touch(ARRAY(SELECT generate_series(1, {KEYS})))")
    fleet.wait_until_drained()
    assert fleet.terminate() == [0]
    verdict = fleet.judge()
    assert verdict.is_good, verdict
