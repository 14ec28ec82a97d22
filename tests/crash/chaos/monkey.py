"""The monkey: strikes with a randomly drawn fault every few seconds, and sees each to its end."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import psycopg

from tests.crash.chaos.arena import Arena
from tests.crash.chaos.crew import Crew

SHORTEST, LONGEST = 3.0, 10.0
"""Seconds from one fault to the next."""

CALM_LIMIT = 90.0
"""Seconds within which all faults under way come to their end."""


_SCALE = 2
"""How often a fault of weight 1 is drawn in a round; the least weight is 0.5."""


class NotNow(Exception):
    """What the fault needs is under another one, or not to be had."""


@dataclass
class Scene:
    """What faults act upon."""

    arena: Arena
    crew: Crew
    draw: random.Random
    tell: Callable[[str], None] = print
    taken: set[str] = field(default_factory=set)

    @contextmanager
    def alone(self, *targets: str) -> Iterator[None]:
        """Keep other faults from these targets. Raises `NotNow` when one has them."""
        if self.taken & set(targets):
            raise NotNow
        self.taken |= set(targets)
        try:
            yield
        finally:
            self.taken -= set(targets)


Course = Iterator[float]
"""A fault on its way: gives the seconds until it wants to go on, and ends when it is over."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault."""

    name: str
    weight: float
    """A multiple of 0.5: how often it comes, compared with others."""
    strike: Callable[[Scene], Course]


class Monkey:
    """Strikes while there is time. Faults come in shuffled rounds, each as often as its weight says."""

    def __init__(self, scene: Scene, faults: list[Fault], journal: Path) -> None:
        """`journal`: where each fault is written down with its time."""
        self._scene = scene
        self._faults = faults
        self._journal: TextIO = journal.open("a", buffering=1)
        self._round: list[Fault] = []
        """What is still to come of it, from the end."""
        self._owed: list[Fault] = []
        """What came to nothing, so that the next round has it once more."""
        self._insists = False
        self._courses: list[tuple[float, str, Course]] = []
        self._next = 0.0
        self._current = ""
        scene.tell = self._tell
        self.counts: Counter[str] = Counter()

    def begin(self) -> None:
        """The first fault comes after a pause."""
        self._next = time.monotonic() + self._scene.draw.uniform(SHORTEST, LONGEST)

    def step(self) -> None:
        """Do what is due."""
        self._go_on()
        if time.monotonic() >= self._next:
            self._strike()
            self.begin()

    @property
    def is_calm(self) -> bool:
        """Whether all faults are over."""
        return not self._courses

    def go_on(self) -> None:
        """See faults to their end, and strike no more."""
        self._go_on()

    @property
    def missing(self) -> list[str]:
        """Faults that have not struck yet."""
        return [fault.name for fault in self._faults if not self.counts[fault.name]]

    def insist(self) -> None:
        """Draw those that are missing and no others, until none is."""
        self._insists = True
        self._round = []

    def _strike(self) -> None:
        if not self._round:
            self._round = self._next_round()
        fault = self._round.pop()
        if self._advance(fault.name, fault.strike(self._scene)):
            self.counts[fault.name] += 1
        elif fault not in self._owed:
            self._owed.append(fault)

    def _next_round(self) -> list[Fault]:
        if self._insists and self.missing:
            return [fault for fault in self._faults if fault.name in self.missing]
        faults = [fault for fault in self._faults for _ in range(round(fault.weight * _SCALE))]
        faults += self._owed
        self._owed = []
        self._scene.draw.shuffle(faults)
        return faults

    def _go_on(self) -> None:
        due = [course for course in self._courses if course[0] <= time.monotonic()]
        for course in due:
            self._courses.remove(course)
            self._advance(course[1], course[2])

    def _advance(self, name: str, course: Course) -> bool:
        """Let a fault go on; whether it is under way. One that is over at once has done nothing."""
        self._current = name
        try:
            pause = next(course)
        except (StopIteration, NotNow):
            return False
        except psycopg.Error as error:
            # The server is down, or went away meanwhile: that fault came to nothing.
            self._tell(f"came to nothing: {error}")
            return False
        self._courses.append((time.monotonic() + pause, name, course))
        return True

    def _tell(self, what: str) -> None:
        record = {"at": round(time.time(), 3), "fault": self._current, "what": what}
        self._journal.write(json.dumps(record) + "\n")
