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


class NotNow(Exception):
    """What the fault needs is under another one."""


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
    strike: Callable[[Scene], Course]


class Monkey:
    """Strikes while there is time; `calm` brings all to an end."""

    def __init__(self, scene: Scene, faults: list[Fault], journal: Path) -> None:
        """`journal`: where each fault is written down with its time."""
        self._scene = scene
        self._faults = faults
        self._journal: TextIO = journal.open("a", buffering=1)
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

    def _strike(self) -> None:
        (fault,) = self._scene.draw.choices(self._faults, [fault.weight for fault in self._faults])
        if self._advance(fault.name, fault.strike(self._scene)):
            self.counts[fault.name] += 1

    def _go_on(self) -> None:
        due = [course for course in self._courses if course[0] <= time.monotonic()]
        for course in due:
            self._courses.remove(course)
            self._advance(course[1], course[2])

    def _advance(self, name: str, course: Course) -> bool:
        """Let a fault go on; whether it struck, or was over in order."""
        self._current = name
        try:
            pause = next(course)
        except StopIteration:
            return True
        except NotNow:
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
