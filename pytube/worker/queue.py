"""A queue that a worker serves: all that leaderships, elections and metrics know of it, and its limits.

A tube is one kind of queue. Each kind has a subclass, and works on its partitions in its own way: see
`Queue.consume`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self
from uuid import UUID

from psycopg import AsyncConnection

from pytube.config import Config, SinkConfig, TubeConfig, WorkerConfig
from pytube.db.session import SessionPool
from pytube.enrich.check import Fault
from pytube.errors import UnknownTube
from pytube.events import Event, PartitionEvent
from pytube.logs import Logger, UserFaults, host_fields
from pytube.sources.terms import Candidate, read_partitions
from pytube.worker.active_term import ActiveTerm
from pytube.worker.database import Database
from pytube.worker.partition_worker import PartitionWorker


@dataclass(slots=True)
class FailingTerms:
    """The terms of one partition that have ended here by the same failure, one after the other."""

    alike: str
    """The failure, without the parts that vary from term to term."""
    since: float
    """When the first one failed, by `time.monotonic()`."""
    terms: int = 0
    is_told: bool = False
    """Whether the database knows."""


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
        self.failing: dict[int, FailingTerms] = {}
        """By partition; they outlive the claims."""
        self._pool = pool

    @abstractmethod
    def consume(self, active_term: ActiveTerm, database: Database) -> PartitionWorker[Any]:
        """What works on the term's partition; it begins nothing yet."""

    async def step(self, active_term: ActiveTerm, database: Database, number: int) -> None:  # noqa: B027
        """Do a step that an operator asks for; only tubes have steps, so nothing is done here."""

    @abstractmethod
    async def find_faults(self, connection: AsyncConnection) -> Sequence[Fault]:
        """Why documents or records can't be read, as far as that shows before anything is read."""

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
            raise UnknownTube(
                f"there is no tube {self.name!r}; create it with `pytube tube create`, or declare it, and "
                "run `pytube apply`"
            )


# --- limits --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TermLimits:
    """Times of a term in seconds; see `SinkConfig` and `WorkerConfig` for what each means."""

    receive_deadline: float
    drain_limit: float
    request_timeout: float

    @property
    def hold(self) -> float:
        """How long after its last renewal a term's writes may still take effect."""
        return self.receive_deadline + self.request_timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(TermLimits):
    """The limits of a tube's partitions; see `TubeConfig` and `SinkConfig` for what each means."""

    batch_documents: int
    batch_bytes: int
    sends: int
    keys_in_flight: int
    mark_limit: int
    latency: float
    attempts: int
    backfill_share: float
    sweep_backlog: int
    """Backfill pods in the tube beyond which a sweep adds none."""
    stop_on_poison: bool
    park_limit: int | None
    park_documents: bool
    retry_on_touch: bool

    @classmethod
    def of(cls, tube: TubeConfig, worker: WorkerConfig) -> Self:
        """The limits of one tube's partitions."""
        return cls(
            receive_deadline=worker.receive_deadline,
            drain_limit=worker.drain_limit,
            request_timeout=tube.sink.request_timeout,
            batch_documents=batch_documents(tube.sink),
            batch_bytes=tube.sink.batch_bytes,
            sends=tube.sink.sends,
            keys_in_flight=tube.keys_in_flight,
            mark_limit=tube.mark_limit,
            latency=tube.latency,
            attempts=tube.attempts,
            backfill_share=tube.backfill_share,
            # More than a backfill itself keeps to, so that a backfill of hours holds no sweep up.
            sweep_backlog=2 * tube.backfill.backlog,
            stop_on_poison=tube.on_poison == "stop",
            park_limit=tube.park_limit,
            park_documents=tube.park_documents,
            retry_on_touch=tube.retry_on_touch,
        )


def batch_documents(sink: SinkConfig) -> int:
    """Of one batch: with a limit on the rate, no more than pass in a second, so that they pass evenly.

    A document that is split counts as all its parts, since the limits are limits of the sink.
    """
    most = sink.batch_documents if sink.rate is None else min(sink.batch_documents, int(sink.rate))
    return max(1, most // sink.writes)
