"""What real workers do is what the model of the hand-over allows: `tests/model`.

One row, so that the model's one key is the tube; its column `n` is the version that the model counts.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytube.faults import Point
from pytube.model import Token
from tests.crash.fleet import Fleet
from tests.helpers.armed import TRACE_VARIABLE, VARIABLE, Action
from tests.model.handover import Model
from tests.model.trace import KILLED, STEPS, SeenWrite, Trace, unexplained

POINTS = [
    pytest.param(Point.AFTER_ACQUIRE, marks=pytest.mark.soak),
    Point.AFTER_MARK,
    pytest.param(Point.BEFORE_ENRICH, marks=pytest.mark.soak),
    Point.BEFORE_SEND,
    pytest.param(Point.AFTER_SEND, marks=pytest.mark.soak),
    pytest.param(Point.BEFORE_PURGE, marks=pytest.mark.soak),
    pytest.param(Point.AFTER_PURGE, marks=pytest.mark.soak),
    pytest.param(Point.BEFORE_RELEASE, marks=pytest.mark.soak),
    pytest.param(Point.AFTER_RELEASE, marks=pytest.mark.soak),
]
"""At two of them each run strikes; the long runs strike at all."""


@dataclass
class Recorded:
    """Two workers of a tube with one row, and all that they do."""

    fleet: Fleet
    version: int = 1

    def start(self, number: int, fault: str | None = None) -> None:
        environment = {TRACE_VARIABLE: str(self._file(number))}
        self.fleet.environments[number] = environment | ({VARIABLE: fault} if fault else {})
        self.fleet.start(number)

    def change(self, times: int = 1) -> None:
        """Change the row, each time in a transaction of its own."""
        for _ in range(times):
            self.fleet.change("UPDATE public.items SET n = n + 1")
            self.version += 1

    def wait_for(self, number: int, point: Point, times: int = 1) -> None:
        """Until a worker has come to a point so many times."""
        self.fleet.wait_until(
            lambda: sum(seen == point for _, seen in self._points(number)) >= times,
            f"worker {number} comes to {point}",
        )

    def note_killed(self, number: int) -> None:
        """The process is no more."""
        self.fleet.processes[number].wait()
        with self._file(number).open("a") as file:
            file.write(f"{time.monotonic_ns()} {KILLED}\n")

    def trace(self) -> Trace:
        """Of workers that no longer run."""
        terms = self.fleet.query("SELECT epoch, client_id FROM tube_terms('items') ORDER BY epoch")
        epochs = [epoch for epoch, _ in terms]
        writes = []
        for text in self.fleet.sink.read_text().splitlines():
            line = json.loads(text)
            token = Token.parse(line["token"])
            writes.append(SeenWrite(epochs.index(token.epoch) + 1, token.counter, line["doc"]["n"]))
        led = tuple(int(client.removeprefix("worker-")) - 1 for _, client in terms)
        points = sorted(
            (at, number - 1, point)
            for number in (1, 2)
            for at, point in self._points(number)
            if point in {*STEPS, Point.BEFORE_SEND, KILLED}
        )
        return Trace(tuple((number, point) for _, number, point in points), led, tuple(writes))

    def model(self, trace: Trace) -> Model:
        return Model(
            versions=self.version,
            epochs=len(trace.terms),
            reads=sum(point == Point.BEFORE_ENRICH for _, point in trace.points),
            kills=True,
            renewals=True,
        )

    def _points(self, number: int) -> list[tuple[int, str]]:
        path = self._file(number)
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(int(at), point) for at, point in lines]

    def _file(self, number: int) -> Path:
        return self.fleet.folder / f"trace-{number}"


@pytest.fixture
def recorded(dsn: str, tmp_path: Path) -> Iterator[Recorded]:
    with Fleet(dsn, tmp_path, session_timeout=3.0, receive_deadline=1.0, request_timeout=1.0) as fleet:
        fleet.change(
            "CREATE TABLE public.items (id bigint PRIMARY KEY, n bigint NOT NULL)",
            "SELECT tube.tube_ensure_exists('items', 1)",
            "SELECT tube.tube_table_ensure_attached('items', 'public.items', shard => 1, shards => 1)",
            "INSERT INTO public.items VALUES (1, 1)",
        )
        yield Recorded(fleet)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("action", [Action.KILL, Action.STOP])
def test_a_worker_is_struck_and_another_one_takes_over(
    recorded: Recorded, action: Action, point: Point
) -> None:
    fleet = recorded.fleet
    of_the_end = point in {Point.BEFORE_RELEASE, Point.AFTER_RELEASE}
    recorded.start(1, f"{point}:{action}:{1 if of_the_end or point is Point.AFTER_ACQUIRE else 2}")
    recorded.wait_for(1, Point.AFTER_ACQUIRE)
    if point is not Point.AFTER_ACQUIRE:
        recorded.wait_for(1, Point.AFTER_PURGE)
        recorded.change(2)
    if of_the_end:
        fleet.signal(1, signal.SIGTERM)
    recorded.wait_for(1, point, 1 if of_the_end or point is Point.AFTER_ACQUIRE else 2)
    if action is Action.KILL:
        recorded.note_killed(1)
    recorded.start(2)
    recorded.change(2)
    recorded.wait_for(2, Point.AFTER_PURGE)
    if action is Action.STOP:
        fleet.signal(1, signal.SIGCONT)
    recorded.change()
    fleet.wait_until_drained()
    fleet.terminate()
    trace = recorded.trace()
    assert unexplained(recorded.model(trace), trace) is None, trace
