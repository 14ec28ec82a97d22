"""The tube changes under its workers: they start new terms by themselves."""

from __future__ import annotations

import psycopg

from pytube.tubes.admin import Tubes
from tests.crash.conftest import MakeFleet
from tests.crash.fleet import Fleet
from tests.crash.load import Load


def repartition(fleet: Fleet, partitions: int) -> None:
    """As `pytube tube create items --partitions N` does, with writers and workers at it."""
    with psycopg.connect(fleet.dsn, autocommit=True) as connection:
        Tubes(connection).create("items", partitions)
    # by whom does not matter: the leader topic never shrinks, so one may have all that is left
    fleet.wait_until(
        lambda: sorted(fleet.leaders()) == list(range(partitions)),
        40,
        f"{partitions} partitions are led",
    )


def test_repartition_under_load(fleet: Fleet) -> None:
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    with Load(fleet.dsn):
        repartition(fleet, 2)
        repartition(fleet, 7)
        before = fleet.sink_lines()
        fleet.wait_until(lambda: fleet.sink_lines() > before + 200, 30, "documents arrive")
    fleet.wait_until_drained()
    assert fleet.terminate() == [0, 0]
    verdict = fleet.judge()
    assert verdict["good"], verdict


def test_a_tube_that_is_dropped_and_made_again(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    fleet.start(1)
    fleet.wait_for_leaders({1})
    fleet.wait_until_drained()
    with psycopg.connect(fleet.dsn, autocommit=True) as connection:
        tubes = Tubes(connection)
        tubes.drop("items")
        fleet.wait_until(
            lambda: "there is no tube" in fleet.log(1),
            20,
            "the worker says that the tube is gone",
        )
        tubes.create("items", 4)
        tubes.attach("items", "public.items", 0, 16)
        connection.execute("UPDATE public.items SET n = n + 1")
    fleet.wait_for_leaders({1})
    fleet.wait_until_drained()
    assert fleet.terminate() == [0]
    verdict = fleet.judge()
    assert verdict["good"], verdict
