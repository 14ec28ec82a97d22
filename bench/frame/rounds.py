"""Runs cases in turn: A B C, C B A, …, so that a slow minute of the machine strikes all alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.frame.readings import Reading, Readings

Case = Callable[[], float]
"""Does some work, and returns how many units it was."""


def interleave(
    readings: Readings,
    cases: Mapping[str, Case],
    rounds: int,
    before: Callable[[str], object] | None = None,
    elsewhere: Mapping[str, Readings] | None = None,
) -> dict[str, list[Reading]]:
    """The readings of each case, round by round. One round before them is thrown away.

    Every other round goes backwards, so that no case always follows the same neighbour. `before` is
    called with the case's name ahead of each reading, and not measured. `elsewhere` has the readings of
    cases that run on another server.
    """
    where = elsewhere or {}
    taken: dict[str, list[Reading]] = {name: [] for name in cases}
    for number in range(-1, rounds):
        order = list(cases) if number % 2 == 0 else list(cases)[::-1]
        for name in order:
            if before is not None:
                before(name)
            reading = where.get(name, readings).of(cases[name])
            if number >= 0:
                taken[name].append(reading)
    return taken


def cpu_each(taken: Mapping[str, list[Reading]], name: str) -> list[float]:
    """Microseconds of CPU per unit, of the server and of this process together, round by round."""
    return [reading.cpu_each + reading.own_cpu_each for reading in taken[name]]


def rates(taken: Mapping[str, list[Reading]], name: str) -> list[float]:
    """Units per second of one case, round by round."""
    return [reading.rate for reading in taken[name]]
