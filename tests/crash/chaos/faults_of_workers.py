"""Faults of worker processes: killed, stopped, ended, and struck at a point of their code."""

from __future__ import annotations

import signal
import time

from pytube.faults import Point
from tests.crash.chaos.crew import (
    DRAIN_LIMIT,
    ELDERS,
    END_LIMIT,
    MEMBERS,
    NOT_AVAILABLE,
    SESSION_TIMEOUT,
    Member,
)
from tests.crash.chaos.invariants import Invariant, Stopped, Violation
from tests.crash.chaos.monkey import Course, Fault, Scene
from tests.crash.chaos.outboxes import TRANSACTIONAL
from tests.helpers.armed import OF_TRANSACTIONS, OF_TUBES, Action

_LOOK = 0.2
_TIMES = 8
_REACH_LIMIT = 25.0
"""Seconds within which a worker should come to its fault point; then it is asked to end."""


def _mortal(scene: Scene) -> str:
    return scene.draw.choice([name for name in MEMBERS if name not in ELDERS])


def kill(scene: Scene) -> Course:
    """SIGKILL, and a start."""
    name = _mortal(scene)
    with scene.alone(name):
        scene.crew.kill(name)
        pause = scene.draw.uniform(0.0, 2 * SESSION_TIMEOUT)
        scene.tell(f"{name}, down for {pause:.1f} s")
        yield pause
        scene.crew.start(name)


def freeze(scene: Scene) -> Course:
    """SIGSTOP, for longer than the session lasts; any worker."""
    yield from _freeze(scene, scene.draw.uniform(1.1, 2.5) * SESSION_TIMEOUT)


def freeze_briefly(scene: Scene) -> Course:
    """SIGSTOP, for so long that trust lapses or nearly does."""
    yield from _freeze(scene, scene.draw.uniform(0.1, 0.9) * SESSION_TIMEOUT)


def _freeze(scene: Scene, seconds: float) -> Course:
    name = scene.draw.choice(list(MEMBERS))
    with scene.alone(name):
        scene.crew.signal(name, signal.SIGSTOP)
        scene.tell(f"{name}, for {seconds:.1f} s")
        yield seconds
        scene.crew.signal(name, signal.SIGCONT)


def terminate(scene: Scene) -> Course:
    """SIGTERM, and a start."""
    name = _mortal(scene)
    with scene.alone(name):
        member = scene.crew.members[name]
        codes = _codes(member)
        yield from _end(scene, name)
        code = member.process.returncode if member.process is not None else None
        if code not in codes:
            raise Stopped(
                Violation(Invariant.LIVING, f"{name} ended with {code} at SIGTERM: {member.log.tail()}")
            )
        yield scene.draw.uniform(0.0, 3.0)
        scene.crew.start(name)


def _codes(member: Member) -> set[int]:
    """How a worker may end that is asked to now: it may not listen yet, or have found a server down."""
    return {
        0,
        *([] if member.listens else [-signal.SIGTERM]),
        *([] if member.has_led else [NOT_AVAILABLE]),
    }


def churn(scene: Scene) -> Course:
    """One worker comes and goes, so that there is a rebalance a second."""
    name = _mortal(scene)
    with scene.alone(name):
        scene.tell(f"{name}, {_TIMES} times")
        for _ in range(_TIMES):
            scene.crew.kill(name)
            scene.crew.start(name)
            yield scene.draw.uniform(0.5, 2.0)


def _end(scene: Scene, name: str) -> Course:
    """SIGTERM, and wait until it has ended; too late is wrong."""
    member = scene.crew.members[name]
    member.excused = True
    began = time.monotonic()
    scene.crew.signal(name, signal.SIGTERM)
    while member.lives:
        if time.monotonic() > began + END_LIMIT:
            raise Stopped(
                Violation(Invariant.LIVING, f"{name} did not end within {END_LIMIT:g} s of SIGTERM")
            )
        yield _LOOK
    code = member.process.returncode if member.process is not None else None
    scene.tell(f"{name} ended with {code} after {time.monotonic() - began:.1f} s")


def strike_at_a_point(scene: Scene) -> Course:
    """A start with a fault at some pass of some point, and what has to follow."""
    name = _mortal(scene)
    points = OF_TUBES | {Point.AFTER_HANDOVER}
    if MEMBERS[name] == TRANSACTIONAL.election:
        points |= OF_TRANSACTIONS
    point = scene.draw.choice([point for point in Point if point in points])
    action = scene.draw.choice([Action.KILL, Action.STOP, Action.RAISE])
    nth = scene.draw.choice([1, 1, 2, 3, 5, 10, 30])
    with scene.alone(name):
        yield from _end(scene, name)
        scene.tell(f"{name} with {point}:{action}:{nth}")
        scene.crew.start(name, f"{point}:{action}:{nth}")
        yield from _wait_for_strike(scene, name, _REACH_LIMIT)
        member = scene.crew.members[name]
        if member.lives and not member.is_stopped:
            scene.crew.signal(name, signal.SIGTERM)  # some points are at the end, and others not come to
            yield from _wait_for_strike(scene, name, END_LIMIT)
        if member.is_stopped:
            pause = scene.draw.uniform(0.5, 2.0) * SESSION_TIMEOUT
            scene.tell(f"{name} is stopped, for {pause:.1f} s")
            yield pause
            scene.crew.signal(name, signal.SIGCONT)
            yield scene.draw.uniform(0.0, DRAIN_LIMIT)
            yield from _end(scene, name)
        scene.crew.kill(name)
        scene.crew.start(name)


def _wait_for_strike(scene: Scene, name: str, limit: float) -> Course:
    member = scene.crew.members[name]
    end = time.monotonic() + limit
    while member.lives and not member.is_stopped and time.monotonic() < end:
        yield _LOOK


FAULTS = [
    Fault("worker killed with SIGKILL", 3, kill),
    Fault("worker stopped for longer than its session", 2, freeze),
    Fault("worker stopped briefly", 1, freeze_briefly),
    Fault("worker ended with SIGTERM", 2, terminate),
    Fault("worker killed again and again", 0.5, churn),
    Fault("worker struck at a fault point", 4, strike_at_a_point),
]
