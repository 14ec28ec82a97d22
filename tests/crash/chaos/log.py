"""The log of a worker, read as it grows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pytube.errors import BrokerUnavailable, DatabaseUnavailable

_TAIL = 1000
_OF_SERVERS = tuple(f"{error.__name__}: " for error in (DatabaseUnavailable, BrokerUnavailable))


@dataclass
class Log:
    """One file, over all lives of the worker. `path` need not be there yet."""

    path: Path
    _read: int = 0

    def news(self) -> list[dict[str, Any]]:
        """The whole lines that have come since the last call; those that are no JSON as `text`."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as log:
            log.seek(self._read)
            text = log.read()
        whole, end, _ = text.rpartition(b"\n")
        self._read += len(whole) + len(end)
        return [_entry(line) for line in whole.splitlines()]

    def tail(self) -> str:
        """Its last words."""
        return self.path.read_text(errors="replace")[-_TAIL:] if self.path.exists() else ""


def _entry(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    return entry if isinstance(entry, dict) else {"text": line.decode(errors="replace")}


def is_grave(entry: dict[str, Any]) -> bool:
    """Whether it tells of a fault of the program's.

    The sentence with which a command ends is plain text, and goes with its exit code. That several terms of a
    partition have ended because a server was not there, with less than a minute from one to the next, is what
    faults that follow each other bring about; whether it ends is seen by who leads when they are over.
    """
    if entry.get("event") == "terms_fail" and entry.get("reason", "").startswith(_OF_SERVERS):
        return False
    return entry.get("level") in ("error", "critical") or "Traceback" in entry.get("text", "")


def moment_of(entry: dict[str, Any]) -> float:
    """When it was said, in Unix seconds."""
    return datetime.fromisoformat(entry["timestamp"]).timestamp()
