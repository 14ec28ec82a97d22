"""Numbers of things in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby


def say_count(number: int, noun: str) -> str:
    """`1 document`, `2 documents`; `noun` has a regular plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def is_or_are(number: int) -> str:
    """The verb that goes with so many."""
    return "is" if number == 1 else "are"


def runs_of(numbers: Sequence[int]) -> list[list[int]]:
    """Ascending numbers, cut where one is missing."""
    runs = groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    return [[number for _, number in run] for _, run in runs]


def name_partitions(numbers: Iterable[int]) -> str:
    """Which partitions: `partition 3`, or `partitions 0 to 2, 5`."""
    chosen = sorted(set(numbers))
    shown = ", ".join(
        " to ".join(map(str, (run[0], run[-1]))) if len(run) > 2 else ", ".join(map(str, run))
        for run in runs_of(chosen)
    )
    return f"partition {shown}" if len(chosen) == 1 else f"partitions {shown}"


def printable(text: str) -> str:
    """Without characters that do something to a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def harmless(text: str) -> str:
    """Lines in which every character can be seen: names and values of a database may hold any."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
