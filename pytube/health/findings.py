"""What a check of the doctor ends in."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from pytube.config import Config
from pytube.health.kinds import Kind


class Level(enum.StrEnum):
    """How bad it is. `warn` works, but worse than it could; `fail` does not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """A subject, the finding about it, and the remedy."""

    subject: str
    level: Level
    finding: str
    remedy: str | None = None
    kind: Kind | None = None
    """Of a trouble, which has a section in the reference."""


def ok(subject: str, finding: str) -> Check:
    """All is well."""
    return Check(subject, Level.OK, finding)


def warn(subject: str, finding: str, remedy: str) -> Check:
    """It works, but worse than it could."""
    return Check(subject, Level.WARN, finding, remedy)


def fail(subject: str, finding: str, remedy: str) -> Check:
    """It does not work."""
    return Check(subject, Level.FAIL, finding, remedy)


def is_expected(config: Config, name: str) -> bool:
    """Whether a tube or an outbox is to be served: the configuration names it.

    Without a configuration file it is unknown who serves which; then all are.
    """
    return not (config.tubes or config.outboxes) or name in config.tubes or name in config.outboxes


def judged(check: Check, config: Config, name: str) -> Check:
    """The finding on a tube or an outbox: a warning at most where this configuration does not name it.

    Workers with another configuration may serve it.
    """
    if is_expected(config, name):
        return check
    level = Level.WARN if check.level is Level.FAIL else check.level
    return replace(check, level=level, finding=f"{check.finding} (this configuration does not name it)")
