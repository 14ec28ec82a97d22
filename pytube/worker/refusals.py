"""Tubes and outboxes that a running process is asked to serve and refuses, and why."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any, Final

USE: Final = "refused"
"""Kafka clusters that can't be reached have other uses, in the same table of the database."""


class Refusals:
    """By name, why each is refused. The hosts of the process report it, so that `status` can say it."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, float]] = {}
        """The latest reason, and since when the name is refused."""

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def reasons(self) -> dict[str, str]:
        """By name."""
        return {name: reason for name, (reason, _) in self._found.items()}

    def note(self, reasons: Mapping[str, str]) -> None:
        """These are refused now, and no others."""
        now = time.monotonic()
        self._found = {
            name: (reason, self._found[name][1] if name in self._found else now)
            for name, reason in reasons.items()
        }

    def keep(self, names: Collection[str]) -> None:
        """No others than these are refused any more."""
        self._found = {name: found for name, found in self._found.items() if name in names}

    def report(self) -> list[dict[str, Any]]:
        """The report, as `tube_kafka_report` takes it."""
        now = time.monotonic()
        return [
            {"tube": name, "use": USE, "bootstrap_servers": "", "reason": reason, "seconds": now - since}
            for name, (reason, since) in self._found.items()
        ]
