"""A queue that a worker serves: all that leaderships, elections and metrics know of it.

A tube is one kind of queue. Each kind has a subclass, and works on its partitions in its own way: see
`Queue.consume`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import UUID

from psycopg import AsyncConnection

from pytube.config import Config
from pytube.db.session import SessionPool
from pytube.enrich.check import Fault
from pytube.errors import UnknownTube
from pytube.events import Event, PartitionEvent
from pytube.logs import Logger, UserFaults, host_fields
from pytube.sources.terms import Candidate, read_partitions
from pytube.worker.active_term import ActiveTerm
from pytube.worker.database import Database
from pytube.worker.limits import TermLimits


class Consumer(Protocol):
    """Works on one partition of a queue for one term. It does not decide who leads."""

    async def run(self) -> None:
        """Work until the claim is revoked or the partition is paused; the caller then calls `drain`.

        Raises:
            NotLeader: the term is over.
            DatabaseUnavailable: a session was lost.
        """

    async def drain(self, limit: float) -> None:
        """After `run` has returned: let sends under way finish, purge what is done, reset the rest.

        A write that is still unanswered stays in `ActiveTerm.unanswered`, so that the term is not released.

        Args:
            limit: seconds for the sends.

        Raises:
            NotLeader: a send found that the term is over.
            DatabaseUnavailable: a session was lost.
        """

    async def abort(self) -> None:
        """After `run` or `drain` has failed: end all sends, write nothing more."""

    def read_metrics(self) -> PartitionEvent | None:
        """What was done since the last reading; None when that is not worth an event."""

    @property
    def sink_is_up(self) -> bool:
        """Whether the target takes what this partition sends, as far as is known."""

    @property
    def source_is_up(self) -> bool:
        """Whether what is to be sent can be read, as far as is known."""

    @property
    def is_trusted(self) -> bool:
        """Whether a write may begin now."""


class Queue(ABC):
    """One queue of one database, as this process serves it."""

    def __init__(
        self,
        name: str,
        limits: TermLimits,
        config: Config,
        instance_id: UUID,
        pool: SessionPool,
        emit: Callable[[Event], None],
        host: str | None = None,
    ) -> None:
        """Opens nothing.

        Args:
            name: as in the registry.
            limits: of its terms.
            config: the whole of it, as the queue's host has it.
            instance_id: of this process.
            pool: sessions with the database that has the queue.
            emit: receives events.
            host: the name of that database's host, where there are several.
        """
        self.name = name
        self.limits = limits
        self.log = Logger("pytube.worker", **host_fields(host), tube=name)
        self.faults = UserFaults(self.log)
        self.emit = emit
        self.candidate = Candidate(
            instance_id=instance_id,
            client_id=config.worker.client_id,
            election=config.election_kind,
            hold=limits.hold,
            lease=config.worker.session_timeout if config.election_kind == "lease" else None,
            host=host,
        )
        self.partitions = 0
        """As last read; 0 while the queue does not exist."""
        self.stopping = False
        """Whether the process ends, so that there is time to drain."""
        self._pool = pool

    @abstractmethod
    def consume(self, active_term: ActiveTerm, database: Database) -> Consumer:
        """What works on the term's partition; it begins nothing yet."""

    async def step(self, active_term: ActiveTerm, database: Database, number: int) -> None:  # noqa: B027
        """Do a step that an operator asks for; only tubes have steps, so nothing is done here."""

    @abstractmethod
    async def find_faults(self, connection: AsyncConnection) -> Sequence[Fault]:
        """Why what is to be sent can't be read, as far as that can be told before anything is read."""

    @abstractmethod
    def count(self, event: PartitionEvent) -> None:
        """Count what happened to a term."""

    @property
    @abstractmethod
    def why_closed(self) -> str | None:
        """Why nothing can be sent yet; None once the target has been opened.

        Until then a term waits before it marks anything. A target that goes down later is the consumer's
        concern.
        """

    async def reload_partitions(self) -> None:
        """Read the partition count again.

        Raises:
            UnknownTube: the queue does not exist.
            DatabaseUnavailable: Postgres can't be asked.
        """
        self.partitions = (await read_partitions(self._pool, [self.name])).get(self.name, 0)
        self.check_exists()

    def check_exists(self) -> None:
        """Raise `UnknownTube` if the queue did not exist when its partition count was last read."""
        if not self.partitions:
            raise UnknownTube(f"there is no tube {self.name!r}; create it with `pytube tube create`")
