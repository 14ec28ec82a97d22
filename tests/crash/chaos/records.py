"""What is written down during a run, as values. Times are Unix seconds of the one machine's clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytube.model import Token
from pytube.sinks.jsonl import Line

Key = tuple[int, int]
"""`(shard, id)`."""


@dataclass(slots=True)
class Call:
    """One batch as the sink saw it."""

    name: str
    token: Token
    began: float
    versions: Mapping[Key, int | None]
    """What each document held: the row's `n`, or None for a delete."""
    ended: float | None = None
    """When it was answered; None when the process died first."""
    failed: bool = False
    """Whether the batch as a whole was answered with an error, or with nothing in time."""
    refused: frozenset[Key] = frozenset()
    delayed: frozenset[Key] = frozenset()
    pid: int = 0
    """The process that made it."""

    @property
    def answered(self) -> set[Key]:
        """The keys that it took, or refused for good."""
        return set() if self.failed or self.ended is None else set(self.versions) - self.delayed


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that was committed."""

    seq: int
    xid: int
    shard: int
    ids: Sequence[int]
    ts: float


@dataclass(frozen=True, slots=True)
class Purge:
    """A pod that was deleted; `leader_id` is whose mark it bore."""

    seq: int
    leader_id: str | None
    at: float


@dataclass(frozen=True, slots=True)
class Change:
    """A row that was committed; `n` is None when the tube does not follow it any more: deleted, or hidden."""

    xid: int
    key: Key
    n: int | None


@dataclass(frozen=True, slots=True)
class Term:
    """A term as the database recorded it."""

    leader_id: str
    epoch: int
    partitions: int
    partition: int
    hold: float
    acquired_at: float
    renewed_at: float
    ended_at: float | None = None
    outcome: str | None = None

    def covers(self, shard: int) -> bool:
        """Whether the shard is in its partition."""
        return shard % self.partitions == self.partition

    def shares_a_shard_with(self, other: Term) -> bool:
        """Whether some shard is in the partitions of both."""
        shorter, longer = sorted((self, other), key=lambda term: term.partitions)
        reach = shorter.partitions * longer.partitions
        return any(shorter.covers(shard) for shard in range(longer.partition, reach, longer.partitions))

    @property
    def runs_out(self) -> float:
        """From when on nobody has to expect a write of it."""
        if self.outcome == "released" and self.ended_at is not None:
            return self.ended_at
        return self.renewed_at + self.hold


@dataclass
class Window:
    """All that was written down about one tube between two checkpoints, when it is quiet again."""

    tube: str
    receive_deadline: float
    request_timeout: float
    lines: Sequence[Line] = ()
    """What the sink holds, in order of arrival."""
    calls: Sequence[Call] = ()
    pods: Sequence[Pod] = ()
    purges: Sequence[Purge] = ()
    changes: Sequence[Change] = ()
    """Those of a key in the order of their commits."""
    terms: Sequence[Term] = ()
    """All that there ever were."""
    renewals: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """When terms were renewed, by their ids, in order; of earlier windows those of the last minute."""
    told: Mapping[str, float] = field(default_factory=dict)
    """When workers said that they had begun which term."""
    parked: frozenset[Key] = frozenset()
    rows: Mapping[Key, Any] = field(default_factory=dict)
    """What the source holds."""
    follows_all: bool = True
    """Whether every change makes a touch; a predicate lets some pass."""
    left: int = 0
    """Pods that are still there."""
