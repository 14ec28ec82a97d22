"""What a verification has found, and the file that keeps where it stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from pytube.comparison import Difference, Sums, counted
from pytube.errors import ConfigError
from pytube.model import Id, Key

EXAMPLES = 20
"""Keys of each kind that a report names."""


@dataclass(slots=True)
class Report:
    """What was compared, what differs, and what was not checked."""

    tube: str
    compared: int = 0
    """Keys of the source that were compared with the sink."""
    missing: int = 0
    extra: int = 0
    different: int = 0
    parked: int = 0
    """Of the keys that differ, those that are parked: no touch delivers them."""
    touched: int = 0
    """Keys that differ and were touched."""
    waiting: int = 0
    """Keys that seem to differ, and wait in the tube: they were not delivered in time."""
    changing: int = 0
    """Keys that seem to differ, and were other ones each time they were looked at."""
    skipped: int = 0
    """Keys of which a transform lets nothing be sent."""
    unsendable: int = 0
    """Keys whose documents can't be made, or that the sink would reject."""
    is_complete: bool = True
    """False: what was to be compared was not; `not_checked` says why."""
    examples: dict[str, list[tuple[int, Id]]] = field(default_factory=dict)
    """The first keys of each kind: missing, extra, different, waiting, changing, unsendable."""
    not_checked: list[str] = field(default_factory=list)
    """What a reader might think was checked."""
    seconds: float = 0.0

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs among what could be compared, and all could that was to be."""
        return self.is_complete and not (self.missing or self.extra or self.different or self._untold)

    @property
    def _untold(self) -> int:
        """Keys of which it could not be told whether they differ."""
        return self.waiting + self.changing + self.unsendable

    def note(self, kind: str, key: Key) -> None:
        """Count a key, and keep it as an example if it is one of the first."""
        setattr(self, kind, getattr(self, kind) + 1)
        named = self.examples.setdefault(kind, [])
        if len(named) < EXAMPLES:
            named.append(key)

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {"is_equal": self.is_equal, **asdict(self)}

    def __str__(self) -> str:
        return f"{counted(self.missing, self.extra, self.different)}, of {self.compared} keys compared"


@dataclass(slots=True)
class Progress:
    """Where a verification is. What is in it is enough to go on."""

    fingerprint: str
    """Of what is compared: with another one, the file is not for this run."""
    report: Report
    table: int = 0
    """Of the root tables, the one that is being compared; beyond the last: keys that only the sink has."""
    after: Id | None = None
    """The last id of it that was compared."""
    suspects: list[Key] = field(default_factory=list)
    """Keys that seemed to differ, and are to be looked at again."""
    sums: Sums = field(default_factory=Sums)
    """Of the keys found at the sink so far."""

    def save(self, path: Path) -> None:
        """Write it, so that the file is either the old one or the new one."""
        value = {
            "fingerprint": self.fingerprint,
            "report": asdict(self.report),
            "table": self.table,
            "after": self.after,
            "suspects": self.suspects,
            "counts": self.sums.counts,
            "sums": self.sums.sums,
        }
        new = path.with_name(path.name + ".new")
        with new.open("w") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)

    @classmethod
    def load(cls, path: Path, fingerprint: str) -> Self | None:
        """Where a run stopped; None when there is no such file, or it is of another comparison.

        Raises:
            ConfigError: the file can't be read.
        """
        try:
            value: Mapping[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{path} can't be read: {error}; remove it, or name another by --state"
            ) from None
        if value.get("fingerprint") != fingerprint:
            return None
        report = Report(**value["report"])
        suspects = [(shard, key) for shard, key in value["suspects"]]
        sums = Sums(value["counts"], value["sums"])
        return cls(fingerprint, report, value["table"], value["after"], suspects, sums)


KINDS = (*Difference, "waiting", "changing", "unsendable")
"""The kinds of keys that a report names."""
