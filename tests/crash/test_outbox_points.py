"""A worker of outboxes dies or freezes at each fault point; another one takes over, and order is kept.

Each point has a worker of its own, which serves all three outboxes of a database of its own, and dies at the
first of them that comes to the point. All are struck at once, so that they wait for their holds together.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytube.embedded.kafka_real import RealKafka
from pytube.faults import Point
from tests.crash.outbox_judge import MODES, TRANSACTIONS
from tests.crash.outboxes import Outboxes
from tests.crash.squad import AT_THE_END
from tests.helpers.armed import OF_OUTBOXES, OF_TRANSACTIONS, VARIABLE, Action
from tests.helpers.database import TestServer

OF_PARKING = {Point.BEFORE_PARK, Point.AFTER_PARK}
POINTS = sorted(OF_OUTBOXES | OF_TRANSACTIONS)


@pytest.fixture(scope="module")
def roomy_server() -> Iterator[TestServer]:
    """A server for many workers at once."""
    server = TestServer(18, {"max_prepared_transactions": "0", "max_connections": "500"})
    yield server
    server.close()


MakeOutboxes = Callable[[Point], Outboxes]


@pytest.fixture
def make(roomy_server: TestServer, tmp_path: Path, kafka_real: RealKafka) -> Iterator[MakeOutboxes]:
    with ExitStack() as stack:

        def make(point: Point) -> Outboxes:
            folder = tmp_path / point
            folder.mkdir()
            dsn = stack.enter_context(roomy_server.database(installed=True))
            return stack.enter_context(Outboxes(dsn, folder, kafka_real.bootstrap, partitions=1))

        yield make


def begin(outboxes: Outboxes, point: Point, action: Action, nth: int) -> dict[str, list[int]]:
    """Stash, and start the worker that is to be struck; what is to be parked, by outbox."""
    parked: dict[str, list[int]] = {}
    with outboxes.connect() as connection:
        for mode in MODES:
            outboxes.stash(connection, mode, [f"key-{number % 7}" for number in range(80)])
            if point in OF_PARKING:
                parked[mode] = outboxes.stash(connection, mode, ["poison"], topic="no topic")
    pass_ = 1 if point in AT_THE_END | OF_PARKING or point is Point.AFTER_ACQUIRE else nth
    outboxes.start(1, **{VARIABLE: f"{point}:{action}:{pass_}"})
    return parked


def strike(make: MakeOutboxes, action: Action, nth: int) -> None:
    """All points at once; the successors have all that is left, and what comes then."""
    scenes = {point: make(point) for point in POINTS}
    parked = {point: begin(outboxes, point, action, nth) for point, outboxes in scenes.items()}
    for point, outboxes in scenes.items():
        if point in AT_THE_END:
            outboxes.wait_until(lambda: any(map(outboxes.delivered, MODES)), "it delivers")  # noqa: B023
            outboxes.processes[1].terminate()
    for outboxes in scenes.values():
        outboxes.wait_until_struck(1, action)
        outboxes.start(2)
    for point, outboxes in scenes.items():
        outboxes.wait_until_drained(parked[point])
        if action is Action.STOP:
            outboxes.signal(1, signal.SIGCONT)
        with outboxes.connect() as connection:
            for mode in MODES:
                outboxes.stash(connection, mode, [f"key-{number % 7}" for number in range(30)])
    for point, outboxes in scenes.items():
        outboxes.wait_until_drained(parked[point])
        outboxes.terminate()
        late = outboxes.judge()
        assert late[TRANSACTIONS] == 0
        if action is Action.KILL:
            assert not any(late.values()), "a process that is gone sends nothing"


@pytest.mark.parametrize(
    ("action", "nth"),
    [
        (Action.KILL, 2),
        # In each run tests/crash/test_outbox_leaders.py stops a worker where it has most to send.
        *(pytest.param(Action.KILL, nth, marks=pytest.mark.soak) for nth in (1, 3, 6)),
        *(pytest.param(Action.STOP, nth, marks=pytest.mark.soak) for nth in (1, 2, 3, 6)),
    ],
)
def test_each_point(make: MakeOutboxes, action: Action, nth: int) -> None:
    strike(make, action, nth)
