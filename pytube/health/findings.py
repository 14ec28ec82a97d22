"""What a check of the doctor ends in."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Level(enum.StrEnum):
    """How bad it is. `warn` works, but worse than it could; `fail` does not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, what was found, and what to do about it."""

    subject: str
    level: Level
    finding: str
    remedy: str | None = None


def ok(subject: str, finding: str) -> Check:
    """All is well."""
    return Check(subject, Level.OK, finding)


def warn(subject: str, finding: str, remedy: str) -> Check:
    """It works, but worse than it could."""
    return Check(subject, Level.WARN, finding, remedy)


def fail(subject: str, finding: str, remedy: str) -> Check:
    """It does not work."""
    return Check(subject, Level.FAIL, finding, remedy)
