"""What a `Leadership` asks of its runner."""

from __future__ import annotations

from typing import Protocol

from pytube.events import Event
from pytube.sources.session import Session
from pytube.sources.terms import Candidate
from pytube.worker.active_term import ActiveTerm
from pytube.worker.database import Database
from pytube.worker.limits import Limits
from pytube.worker.partition_worker import PartitionWorker


class Host(Protocol):
    """One tube in this process."""

    tube: str
    limits: Limits
    database: Database
    candidate: Candidate

    partitions: int
    """As far as is known; `reload_partitions` reads them anew."""

    stopping: bool
    """Whether the process ends, so that there is time to drain."""

    def emit(self, event: Event, /) -> None:
        """Emit an event."""

    def warn(self, message: str, **fields: object) -> None:
        """Log a warning."""

    async def reload_partitions(self) -> None:
        """Read the tube's partition count; `UnknownTube` when the tube is gone."""

    def make_partition_worker(self, active_term: ActiveTerm, session: Session) -> PartitionWorker:
        """The worker of one term, over a session of its own."""
