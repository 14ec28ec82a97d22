"""The long runs, by `make soak`; too long for every change."""

from __future__ import annotations

import itertools
import os
import subprocess
import time

import psycopg
import pytest

from pytube.embedded.kafka_real import RealKafka
from pytube.embedded.postgres import Postgres
from tests.crash.conftest import MakeFleet
from tests.crash.load import Load
from tests.helpers.waiting import wait_until

SECONDS = float(os.environ.get("SOAK_SECONDS", "120"))
PAUSE = 10.0


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 300)
def test_three_workers_one_killed_every_ten_seconds(
    make_fleet: MakeFleet, kafka_real: RealKafka, postgres: Postgres
) -> None:
    """Under pgbench and our own load; equal in the end, and the log shows every term."""
    fleet = make_fleet(kafka=kafka_real.bootstrap)
    bench = [str(postgres.bin("pgbench")), "-q", fleet.dsn]
    subprocess.run([*bench[:-1], "-i", bench[-1]], check=True, capture_output=True)
    fleet.start(1, 2, 3)
    fleet.wait_for_leaders({1, 2, 3})
    end = time.monotonic() + SECONDS
    pgbench = subprocess.Popen(
        [*bench[:1], "-n", "-c", "2", "-R", "200", "-T", str(int(SECONDS)), bench[-1]],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    kills = 0
    with Load(fleet.dsn):
        for victim in itertools.cycle((1, 2, 3)):
            if time.monotonic() > end:
                break
            began = time.monotonic()
            fleet.kill(victim)
            fleet.start(victim)
            kills += 1
            wait_until(lambda: time.monotonic() > began + PAUSE, PAUSE + 5, "ten seconds are over")  # noqa: B023 # called at once
    assert pgbench.wait() == 0
    fleet.wait_until_drained(120)
    assert fleet.terminate() == [0, 0, 0]
    verdict = fleet.judge()
    assert verdict["good"], verdict
    assert kills >= SECONDS / PAUSE - 2
    with psycopg.connect(fleet.dsn) as connection:
        recorded = {
            str(leader_id)
            for (leader_id,) in connection.execute(
                "SELECT leader_id FROM tube.tube_term WHERE tube = 'items'"
            )
        }
    told = {event["leader_id"] for number in (1, 2, 3) for event in fleet.events(number, "leader acquired")}
    assert told <= recorded, "a term without a record"
    print(f"{kills} kills, {len(recorded)} terms, {len(told)} of them worked, {verdict['lines']} lines")  # noqa: T201
