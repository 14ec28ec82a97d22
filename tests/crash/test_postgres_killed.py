"""Postgres is killed by SIGKILL at odd moments: what it acknowledged is what the sink holds."""

from __future__ import annotations

import random

import pytest

from pytube.embedded.postgres import Postgres
from tests.crash.acknowledged import Acknowledged, differences
from tests.crash.conftest import MakeFleet
from tests.crash.fleet import Fleet


def killed_again_and_again(fleet: Fleet, postgres: Postgres, kills: int, seed: int) -> None:
    """Kill the server so often, each time after a random number of changes; judge at the end."""
    draw = random.Random(seed)
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    with Acknowledged(fleet.dsn) as writers:
        for _ in range(kills):
            moment = writers.count + draw.randint(50, 800)
            lines = fleet.sink_lines()
            fleet.wait_until(
                lambda: writers.count > moment and fleet.sink_lines() > lines,  # noqa: B023 # called at once
                "changes are acknowledged and delivered",
            )
            postgres.kill()
            postgres.start()
    assert writers.count > 50 * kills
    fleet.wait_until_drained()
    assert fleet.terminate() == [0, 0]
    assert differences(writers.journal, fleet.sink) == []
    verdict = fleet.judge()
    assert verdict.is_good, verdict


def test_what_was_acknowledged_is_what_the_sink_holds(make_fleet: MakeFleet, postgres: Postgres) -> None:
    killed_again_and_again(make_fleet(), postgres, kills=3, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_many_kills(make_fleet: MakeFleet, postgres: Postgres, seed: int) -> None:
    killed_again_and_again(make_fleet(), postgres, kills=15, seed=seed)
