"""Whether the model allows what real workers did: a way through its states that explains their trace.

A trace is what can be seen: the fault points that workers came to, in order, and the writes in the order of
the sink. Between them anything may have happened that the model allows and nobody sees: time, changes,
renewals, and what a worker does in a database without coming to the point behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from pytube.faults import Point
from tests.model.handover import Model, State, Worker

KILLED: Final = "kill"
"""In a trace: the process has ended, and another one goes on under its number."""

STEPS: Final[dict[str, str]] = {
    Point.AFTER_ACQUIRE: "acquired",
    Point.AFTER_MARK: "mark",
    Point.BEFORE_ENRICH: "take",
    Point.AFTER_SEND: "answer",
    Point.AFTER_PURGE: "purge",
    Point.AFTER_RELEASE: "release",
}
"""The step of the model that a worker has taken when it comes to a point."""
_NAMES: Final = {**STEPS, KILLED: KILLED}
_IN_THE_DATABASE: Final = frozenset({"mark", "purge", "release"})
"""They take effect before the worker comes to the point; meanwhile others, and the worker, may do more."""
_IS_SENDING: Final = "is sending"
"""What a worker owes that has come to the point before a send: the send, or to give up."""


class SeenWrite(NamedTuple):
    """A document that arrived at the sink."""

    epoch: int
    """Which one of the terms, from 1."""
    read: int
    """The counter of its token."""
    version: int


@dataclass(frozen=True, slots=True)
class Trace:
    """What was seen."""

    points: tuple[tuple[int, str], ...]
    """The worker's number and the point, or `KILLED`, in order."""
    terms: tuple[int, ...]
    """The number of the worker that led each term."""
    writes: tuple[SeenWrite, ...]

    def is_possible(self, epoch: int, read: int, version: int) -> bool:
        """Whether a delivery may have read this version: another one arrived if not."""
        found = [one.version for one in self.writes if (one.epoch, one.read) == (epoch, read)]
        return not found or version in found


class _Place(NamedTuple):
    """How much of a trace is explained, and by which state."""

    state: State
    points: int = 0
    writes: int = 0
    owed: frozenset[tuple[int, str]] = frozenset()
    """Steps that workers have taken in the database, and have not come to the point of; `_IS_SENDING`."""

    def explained(self) -> int:
        return self.points + self.writes


def unexplained(model: Model, trace: Trace) -> str | None:
    """What the model can't explain, after the longest explanation there is; None: it explains all.

    Args:
        model: as large as what happened: workers, terms, versions of the row.
        trace: of workers that no longer run.
    """
    whole = len(trace.points) + len(trace.writes)
    best = first = _Place(model.first())
    seen, open_places = {first}, [first]
    while open_places:
        place = open_places.pop()
        best = max(best, place, key=_Place.explained)
        if place.explained() == whole:
            return None
        # What explains something is looked at first.
        for following in sorted(_following(model, trace, place), key=_Place.explained):
            if following not in seen:
                seen.add(following)
                open_places.append(following)
    return f"{trace.points[best.points :][:3]}, {trace.writes[best.writes :][:1]}, at {best}"


def _following(model: Model, trace: Trace, place: _Place) -> Iterator[_Place]:
    number, point = trace.points[place.points] if place.points < len(trace.points) else (-1, "")
    seen = number, _NAMES.get(point, point)
    passed = place._replace(points=place.points + 1)
    if point == KILLED:
        passed = passed._replace(owed=_of_others(place, number))
    if point and (owed := _without_step(place, number, point)) is not None:
        yield passed._replace(owed=owed)
    for step in model.successors(place.state):
        moved = place._replace(state=step.state)
        who, _, name = step.name.partition(" ")
        if not (who.startswith("w") and who[1:].isdigit()):
            yield from _alone(trace, place, moved, name)
        elif (doer := (int(who[1:]), name)) == seen and name not in _IN_THE_DATABASE:
            if name != "take" or (number, "mark") not in place.owed:  # else it knows nothing of the pod
                yield passed._replace(state=step.state)
        elif _may_be_unseen(trace, place, step.state, doer):
            yield moved._replace(owed=_owed(place, doer))


def _without_step(place: _Place, number: int, point: str) -> frozenset[tuple[int, str]] | None:
    """What is owed after a worker comes to a point without a step of the model; None: it can't."""
    worker, step = place.state.workers[number], (number, _NAMES.get(point, point))
    if step in place.owed:
        return place.owed - {step}
    if point == Point.BEFORE_SEND and worker.version is not None:
        sending = (number, _IS_SENDING)
        return None if sending in place.owed else place.owed | {sending}
    if (
        point in {Point.AFTER_RELEASE, KILLED} and worker == Worker()
    ):  # nothing is left to release, or to lose
        return place.owed if point == Point.AFTER_RELEASE else _of_others(place, number)
    return None


def _of_others(place: _Place, number: int) -> frozenset[tuple[int, str]]:
    """What is owed once a worker is killed, which owes nothing any more."""
    return frozenset(one for one in place.owed if one[0] != number)


def _owed(place: _Place, doer: tuple[int, str]) -> frozenset[tuple[int, str]]:
    """What is owed after a step that is not seen."""
    number, name = doer
    is_over = name in {"send", "gives up", "ends", "release"}
    owed = place.owed - {(number, _IS_SENDING)} if is_over else place.owed
    return owed | {doer} if name in _IN_THE_DATABASE else owed


def _may_be_unseen(trace: Trace, place: _Place, after: State, doer: tuple[int, str]) -> bool:
    """Whether a worker can take the step without coming to its point now."""
    number, name = doer
    before, worker = place.state.workers[number], after.workers[number]
    if name == "acquire":  # after the last point of its earlier term
        owes = any(one[0] == number for one in place.owed)
        return trace.terms[after.leader - 1] == number and not owes
    if name == "send":
        return (number, _IS_SENDING) in place.owed
    if name == "read":
        return trace.is_possible(worker.epoch, worker.reads, worker.version or 0)
    if name == "gives up":
        return all((one.epoch, one.read) != (before.epoch, before.reads) for one in trace.writes)
    coming = [_NAMES.get(point, point) for who, point in trace.points[place.points :] if who == number]
    life = coming[: coming.index(KILLED)] if KILLED in coming else coming
    # A process that is killed may have done more than it came to the point of.
    is_possible = name in life if name in _IN_THE_DATABASE else name not in _NAMES.values()
    return name != KILLED and doer not in place.owed and (is_possible or (KILLED in coming and not life))


def _alone(trace: Trace, place: _Place, moved: _Place, name: str) -> Iterator[_Place]:
    """Time, a change, or a write that takes effect."""
    if not name.startswith("of w"):
        yield moved
        return
    applied = {one for one in moved.state.writes if one.applied} - set(place.state.writes)
    following = trace.writes[place.writes : place.writes + 1]
    if any((one.epoch, one.read, one.version) in following for one in applied):
        yield moved._replace(writes=place.writes + 1)
