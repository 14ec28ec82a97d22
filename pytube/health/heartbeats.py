"""What was heard of heartbeats, which leaders send to Kafka under the election neli. Pure: see `listener`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

BEATING: Final = 1.0
"""Seconds within which a term that lives is heard: three heartbeats, which are 0.3 s apart at most."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The heartbeats of one term. Moments are of `time.monotonic()`."""

    client_id: str
    leader_id: UUID
    """Of the term. Where tubes share a topic, no term has it: there a process beats for all its terms."""
    epoch: int
    first_at: float
    last_at: float


@dataclass(frozen=True, slots=True)
class Heard:
    """What was heard of one host's workers, up to a moment of `time.monotonic()`."""

    at: float
    deadline: float
    """The workers' receive deadline: a leader that hears nothing of itself for longer may not send."""
    is_shared: bool = False
    """Whether all tubes share one leader topic."""
    beats: Mapping[tuple[str, int], Sequence[Beat]] = field(default_factory=dict)
    """By topic and its partition."""
    places: Mapping[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    """Topic and its partition, by tube or outbox and its partition."""
    since: Mapping[str, float] = field(default_factory=dict)
    """Since when a topic is listened to; one that the broker does not have is missing."""
    problem: str | None = None
    """Why nothing can be heard now."""
    until: float = 0.0
    """Up to when a silence is the leader's own: then the brokers of all silent partitions answered us."""

    def is_of(self, beat: Beat, leader: str | None, leader_id: UUID | None) -> bool:
        """Whether a beat is that of a leader in the database."""
        return beat.client_id == leader if self.is_shared else beat.leader_id == leader_id

    def beating(self, name: str, partition: int, read_at: float) -> list[Beat]:
        """Who was sending for a partition when the database was read.

        A term that began after that is newer than what was read. A term that was released just before it is
        left out: after `BEATING` more seconds of listening, a term has to be heard again.
        """
        since = min(read_at, self.at - BEATING)
        return [
            beat
            for beat in self.beats_for(name, partition)
            if beat.first_at < read_at and beat.last_at >= since
        ]

    def last_of(self, name: str, partition: int, leader: str | None, leader_id: UUID | None) -> float | None:
        """When a leader in the database was heard last; None: never."""
        beats = self.beats_for(name, partition)
        return max((beat.last_at for beat in beats if self.is_of(beat, leader, leader_id)), default=None)

    def beats_for(self, name: str, partition: int) -> Sequence[Beat]:
        """All that was heard of a partition of a tube or an outbox."""
        place = self.places.get((name, partition))
        return () if place is None else self.beats.get(place, ())

    def since_when(self, name: str, partition: int) -> float | None:
        """Since when a partition is listened to; None: there is no such topic, or we may not read it."""
        place = self.places.get((name, partition))
        return None if place is None else self.since.get(place[0])
