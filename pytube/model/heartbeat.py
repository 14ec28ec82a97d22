"""What a leader says of itself on the leader topic, several times a second."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One beat of one term: who leads, and how far it is."""

    client_id: str
    leader_id: UUID
    epoch: int
    purged_seq: int
    """The highest seq that this term has purged; 0 when none."""
    lag: float
    """Seconds between the commit of the last purged pod and its purge; 0 when idle."""
