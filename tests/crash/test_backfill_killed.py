"""A backfill whose client, workers and server are killed at odd moments is complete at the sink."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pytube.embedded.postgres import Postgres
from pytube.faults import Point
from tests.crash.conftest import MakeFleet
from tests.crash.fleet import Fleet
from tests.helpers.armed import OF_BACKFILLS, VARIABLE

SHARDS = 16
LINE = 200
"""Bytes of a line at the sink."""
IN_WORKERS = [
    Point.AFTER_TAKE,
    Point.BEFORE_COLLECT,
    Point.AFTER_COLLECT,
    Point.AFTER_CHUNK,
    Point.DURING_SWEEP,
    Point.BEFORE_SWEEP_END,
]


def fill(dsn: str, rows: int, ghosts: int, sink: Path) -> None:
    """A table of so many rows that nobody has touched, and documents at the sink that it does not have."""
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public") as conn:
        conn.execute("ALTER TABLE public.items DISABLE TRIGGER USER")
        conn.execute(
            "INSERT INTO public.items SELECT g, g %% 100, md5(g::text) FROM generate_series(4000, %s) g "
            "ON CONFLICT DO NOTHING",
            (rows,),
        )
        conn.execute("ALTER TABLE public.items ENABLE TRIGGER USER")
    line = (
        '{"tube":"items","shard":%d,"id":%d,"op":"upsert","token":"1","epoch":0,"counter":1,"seq":0,'
        '"at":1.0,"doc":{}}\n'
    )
    with sink.open("a") as file:
        file.writelines(line % (key % SHARDS, key) for key in range(rows + 1, rows + 1 + ghosts))


class Client:
    """`pytube backfill`, begun again whenever it has died."""

    def __init__(self, fleet: Fleet, *options: str) -> None:
        self._fleet = fleet
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, command: str = "start") -> None:
        with (self._fleet.folder / "client.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "pytube", "backfill", command, "--tube", "items"),
                    *("--dsn", self._fleet.dsn, *self._options),
                ],
                stdout=log,
                stderr=log,
            )

    def kill(self) -> bool:
        """Kill it; whether it was at work, with rows left to insert."""
        if self._process is None:
            return False
        lived = self._process.poll() is None
        self._process.kill()
        self._process.wait()
        # Nobody else inserts: what is left now was left when it was killed.
        return lived and state(self._fleet) == "inserting"

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def tend(self) -> None:
        """Resume when it has died, and there is something left to insert."""
        if self._process is None or self._process.poll() is not None:
            self.start("resume" if state(self._fleet) else "start")

    def move_on(self, moment: int) -> None:
        """Until the work is done so far, or finished."""

        def is_so_far() -> bool:
            self.tend()
            return done(self._fleet) > moment or state(self._fleet) == "finished"

        self._fleet.wait_until(is_so_far, f"the backfill gets to {moment}")


@pytest.fixture
def clients() -> Iterator[Callable[..., Client]]:
    made: list[Client] = []

    def make(fleet: Fleet, *options: str) -> Client:
        made.append(Client(fleet, *options))
        return made[-1]

    yield make
    for client in made:
        client.end()


def state(fleet: Fleet) -> str | None:
    """The state of the newest backfill; None when there is none."""
    rows = fleet.query("SELECT state FROM tube_backfill ORDER BY backfill_id DESC LIMIT 1")
    return str(rows[0][0]) if rows else None


def done(fleet: Fleet) -> int:
    """How far the newest is: rows inserted, and lines at the sink, about."""
    rows = fleet.query("SELECT rows_done FROM tube_backfill ORDER BY backfill_id DESC LIMIT 1")
    return (int(rows[0][0]) if rows else 0) + fleet.sink.stat().st_size // LINE


def strike(fleet: Fleet, postgres: Postgres, client: Client, *, rows: int, kills: int, seed: int) -> None:
    """Kill the client, a worker and the server in turn, each after a random part of the work."""
    draw = random.Random(seed)
    fill(fleet.dsn, rows, 500, fleet.sink)
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    fleet.wait_until_drained()  # the sink's lines count as work done, and are to be the backfill's
    client.start()
    met = []
    for number in range(kills):
        # The first as soon as anything is done: the client has most of its rows left to insert.
        client.move_on(done(fleet) + (draw.randint(1, max(2, rows // kills)) if number else 0))
        match ("client", "worker", "server")[number % 3]:
            case "client":
                met.append(client.kill())
            case "worker":
                chosen = draw.choice((1, 2))
                started = len(list(fleet.events(chosen, "worker_started")))
                fleet.kill(chosen)
                fleet.start(chosen)
                # The server is killed next, and a worker that finds no server at its start exits.
                fleet.wait_until(
                    lambda: len(list(fleet.events(chosen, "worker_started"))) > started,  # noqa: B023
                    "the worker is there again",
                )
            case "server":
                postgres.kill()
                postgres.start()
    assert met[0], "the first client had nothing left to insert when it was killed"
    client.move_on(sys.maxsize)
    complete(fleet)


def complete(fleet: Fleet) -> None:
    """The sink holds what the table does, and no ids are left behind."""
    fleet.wait_until_drained()
    assert fleet.terminate().count(0) == 2
    verdict = fleet.judge()
    assert verdict.is_good, verdict
    assert fleet.query("SELECT count(*) FROM pg_class WHERE relname LIKE 'tube_backfill_ids%'") == [(0,)]


def test_client_worker_and_server_are_killed(
    make_fleet: MakeFleet, postgres: Postgres, clients: Callable[..., Client]
) -> None:
    fleet = make_fleet(sweepable=True)
    # So slow that on a busy machine, too, most is left when the first is seen to have begun.
    client = clients(fleet, "--rate", "1000", "--chunk", "10")
    strike(fleet, postgres, client, rows=8_000, kills=3, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_two_million_rows_and_ten_kills(
    make_fleet: MakeFleet, postgres: Postgres, clients: Callable[..., Client]
) -> None:
    fleet = make_fleet(sweepable=True)
    strike(fleet, postgres, clients(fleet), rows=2_000_000, kills=10, seed=2)


def test_the_points_are_these() -> None:
    assert frozenset(IN_WORKERS) == OF_BACKFILLS


def test_each_point(make_fleet: MakeFleet) -> None:
    """A worker is killed at each in turn; the next one begins as the last was killed."""
    fleet = make_fleet(sweepable=True, session_timeout=2.0, receive_deadline=0.5, request_timeout=1.0)
    fill(fleet.dsn, 8000, 500, fleet.sink)
    payload = '{"type": "backfill_schedule", "tbl": "public.items", "order_col": "n"}'
    fleet.change(f"SELECT items_touch(0, '{{}}', 'B', '{payload}')")
    for point in IN_WORKERS:
        fleet.environment[VARIABLE] = f"{point}:kill"
        fleet.start(1)
        fleet.wait_until(lambda: fleet.processes[1].poll() is not None, f"the worker is killed at {point}")
        assert fleet.processes[1].returncode == -9, fleet.last_words()
    fleet.environment.clear()
    fleet.start(1, 2)
    fleet.wait_until(lambda: state(fleet) == "finished", "it is finished")
    assert fleet.query("SELECT count(*) FROM tube_backfill") == [(1,)]
    complete(fleet)
