"""A worker dies or freezes at each fault point, and another takes over: nothing is lost, or old."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytube.faults import Point
from tests.crash.squad import Squad, Writer
from tests.helpers.armed import OF_TUBES, Action
from tests.helpers.database import TestServer

ACTIONS = (Action.KILL, Action.STOP)
MIXED = (1, 1, 1, 200)


@pytest.fixture(scope="module")
def roomy_server() -> Iterator[TestServer]:
    """A server for many workers at once."""
    server = TestServer(18, {"max_prepared_transactions": "0", "max_connections": "500"})
    yield server
    server.close()


@pytest.fixture
def dsn(roomy_server: TestServer) -> Iterator[str]:
    with roomy_server.database(installed=True) as dsn:
        yield dsn


@pytest.fixture(params=["lease", "neli"])
def kafka(request: pytest.FixtureRequest) -> str | None:
    """The election: over a real broker, or none."""
    if request.param == "lease":
        return None
    return str(request.getfixturevalue("kafka_real").bootstrap)


def strike(
    dsn: str, folder: Path, kafka: str | None, action: Action, sizes: tuple[int, ...], nth: int
) -> None:
    """All points at once, each at a worker of its own."""
    with Squad(dsn, folder, [point for point in Point if point in OF_TUBES], action, kafka, nth) as squad:
        # The tenth document that is refused has to come in time, too.
        with Writer(dsn, squad.tubes, sizes, pause=0.01 if nth > 2 else 0.05):
            squad.start_victims()
            squad.wait_until_all_are_struck()
            squad.rescue()
            if action is Action.STOP:
                squad.resume()
        squad.drain()
        assert squad.judge() == {}


@pytest.mark.parametrize(
    ("kafka", "action"), [("lease", Action.KILL), ("neli", Action.STOP)], indirect=["kafka"]
)
def test_each_point(dsn: str, tmp_path: Path, kafka: str | None, action: Action) -> None:
    """Pods of one id and of 200, mixed. The points are the same whatever elects."""
    strike(dsn, tmp_path, kafka, action, MIXED, nth=2)


@pytest.mark.soak
@pytest.mark.parametrize("nth", [1, 2, 3, 10])
@pytest.mark.parametrize("size", [1, 200])
@pytest.mark.parametrize("action", ACTIONS)
def test_each_point_pass_and_size(
    dsn: str, tmp_path: Path, kafka: str | None, action: Action, size: int, nth: int
) -> None:
    """Pods of one size alone, and other passes of the points."""
    strike(dsn, tmp_path, kafka, action, (size,), nth)
