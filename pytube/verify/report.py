"""What a verification has found, and the file that keeps where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from pytube.comparison import Difference, counted
from pytube.errors import ConfigError
from pytube.model import Id, Key

EXAMPLES = 20
"""Keys of each kind that a report names."""


@dataclass(slots=True)
class Report:
    """The compared keys, the differences, and the parts not checked."""

    tube: str
    compared: int = 0
    """Keys of the source that were compared with the sink."""
    missing: int = 0
    extra: int = 0
    different: int = 0
    parked: int = 0
    """Of the keys that differ, the parked ones: no touch delivers them."""
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
    """False: something that could be compared was not; `not_checked` says why."""
    examples: dict[str, list[tuple[int, Id]]] = field(default_factory=dict)
    """The first keys of each kind: missing, extra, different, waiting, changing, unsendable."""
    not_checked: list[str] = field(default_factory=list)
    """What a reader might think was checked."""
    seconds: float = 0.0

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs among all that could be compared.

        `not_checked` names the rest: a sample leaves keys out, and a sink that is not scanned may have more.
        """
        return self.is_complete and not (self.missing or self.extra or self.different or self._untold)

    @property
    def _untold(self) -> int:
        """Keys for which it is unknown whether they differ."""
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
    """The position of a verification. It is enough to resume."""

    fingerprint: str
    """Of the comparison: with another one, the file is not for this run."""
    report: Report
    table: int = 0
    """The index of the root table that is being compared; beyond the last: keys that only the sink has."""
    after: Id | None = None
    """The last id of it that was compared."""
    suspects: list[Key] = field(default_factory=list)
    """Keys that seemed to differ, and are to be looked at again."""

    def save(self, path: Path) -> None:
        """Write it, so that the file is either the old one or the new one; for us alone: ids may be names."""
        content = {
            "report": asdict(self.report),
            "table": self.table,
            "after": self.after,
            "suspects": self.suspects,
        }
        state = {_MARK: self.report.tube, "fingerprint": self.fingerprint, "checksum": _checksum(content)}
        new = path.with_name(path.name + ".new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(state | {"content": content}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)

    @classmethod
    def load(cls, path: Path, tube: str, fingerprint: str, told: Callable[[str], object]) -> Self | None:
        """Where a run stopped; None without the file, or it is of another comparison of the tube.

        That is reported: later changes may concern each key, so the comparison starts over, and its
        state takes the place of this one.

        Raises:
            ConfigError: the file can't be read, is damaged, or is not a state, or of another tube.
        """
        try:
            value = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path} can't be read: {error}; {_REMEDY}") from None
        if not isinstance(value, dict) or _MARK not in value:  # it may be anything, and would be replaced
            raise ConfigError(f"{path} is not a state of pytube verify; {_REMEDY}")
        if value[_MARK] != tube:
            raise ConfigError(f"{path} keeps where a run of tube {value[_MARK]!r} stopped; {_REMEDY}")
        if value.get("fingerprint") != fingerprint:  # another version of pytube may seal it otherwise, too
            told(
                f"{path} is of another comparison: options, configuration, attached tables, database or "
                "pytube's version have changed since: starting over"
            )
            return None
        content: Any = value.get("content")
        if value.get("checksum") != _checksum(content):
            raise ConfigError(f"{path} is damaged: its checksum is wrong; {_REMEDY}")
        suspects = [(shard, key) for shard, key in content["suspects"]]
        return cls(fingerprint, Report(**content["report"]), content["table"], content["after"], suspects)


_MARK = "pytube_verify"
"""By this field a file is known as a state; its value is the tube."""
_REMEDY = "remove it, or name another by --state"


def _checksum(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


KINDS = (*Difference, "waiting", "changing", "unsendable")
"""The kinds of keys that a report names."""
