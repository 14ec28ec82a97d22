"""The model explains a trace that real workers left, and none that is false in one place.

`tests/crash/test_traces.py` records traces.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytube.faults import Point
from tests.model.handover import Model
from tests.model.trace import KILLED, SeenWrite, Trace, unexplained

DELIVERED = (Point.BEFORE_ENRICH, Point.BEFORE_SEND, Point.AFTER_SEND, Point.AFTER_PURGE)
FIRST = (
    Point.AFTER_ACQUIRE,
    Point.AFTER_MARK,
    *DELIVERED,
    Point.AFTER_MARK,
    Point.BEFORE_ENRICH,
    Point.BEFORE_SEND,
)
SECOND = (Point.AFTER_ACQUIRE, Point.AFTER_MARK, *DELIVERED, Point.AFTER_RELEASE)
WRITES = (SeenWrite(1, 1, 1), SeenWrite(2, 1, 2))
TRACE = Trace(
    tuple((0, point) for point in (*FIRST, KILLED)) + tuple((1, point) for point in SECOND), (0, 1), WRITES
)
"""A worker is killed before its second send; another one takes over."""
MODEL = Model(epochs=2, reads=2, kills=True, renewals=True)


def _exchanged(points: tuple[tuple[int, str], ...], one: int, other: int) -> tuple[tuple[int, str], ...]:
    moved = list(points)
    moved[one], moved[other] = moved[other], moved[one]
    return tuple(moved)


def test_what_workers_did_is_explained() -> None:
    assert unexplained(MODEL, TRACE) is None


def test_a_write_that_the_kill_cut_off_may_have_arrived() -> None:
    late = replace(TRACE, writes=(WRITES[0], SeenWrite(1, 2, 2), WRITES[1]))
    assert unexplained(MODEL, late) is None


def test_a_process_that_takes_another_ones_place_has_its_own_release_to_come_to() -> None:
    """The killed one may have released in the database: nobody comes to the point of that any more."""
    again = (*FIRST[:6], KILLED, *SECOND)
    points = tuple((0, point) for point in again)
    assert unexplained(MODEL, Trace(points, (0, 0), WRITES)) is None
    early = (*again[:-5], Point.AFTER_RELEASE, *again[-5:-1])
    assert unexplained(MODEL, Trace(tuple((0, point) for point in early), (0, 0), WRITES)) is not None


@pytest.mark.parametrize(
    "false",
    [
        pytest.param(
            replace(TRACE, writes=(*WRITES, SeenWrite(1, 2, 2))),
            id="the first worker writes after the second one",
        ),
        pytest.param(
            replace(TRACE, writes=(WRITES[0], SeenWrite(2, 1, 1))), id="an older version comes last"
        ),
        pytest.param(replace(TRACE, writes=(WRITES[0], SeenWrite(2, 2, 2))), id="a token is left out"),
        pytest.param(replace(TRACE, writes=WRITES[1:]), id="what was answered did not arrive"),
        pytest.param(replace(TRACE, terms=(0, 0)), id="a worker delivers in the term of another"),
        pytest.param(
            replace(TRACE, points=_exchanged(TRACE.points, 4, 5)), id="a pod is purged before the answer"
        ),
        pytest.param(
            replace(TRACE, points=tuple(one for one in TRACE.points if one != (0, Point.AFTER_MARK))),
            id="nothing is marked",
        ),
        pytest.param(
            replace(TRACE, points=(*TRACE.points[:-1], *TRACE.points[-5:])), id="a delivery of no pod"
        ),
        pytest.param(
            replace(TRACE, points=_exchanged(TRACE.points, 1, 2)), id="a delivery before the mark's answer"
        ),
        pytest.param(
            replace(TRACE, points=TRACE.points[:3] + TRACE.points[4:]), id="a send that nobody came to"
        ),
        pytest.param(
            replace(TRACE, points=(*TRACE.points[:3], *TRACE.points[3:4] * 2, *TRACE.points[4:])),
            id="a send twice after one read",
        ),
        pytest.param(
            replace(TRACE, points=(*TRACE.points[:-5], TRACE.points[-1], *TRACE.points[-5:])),
            id="a delivery after the release",
        ),
    ],
)
def test_a_false_trace_is_not(false: Trace) -> None:
    assert unexplained(MODEL, false) is not None
