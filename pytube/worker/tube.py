"""What the partitions of one tube share in this process: sink, enricher, transforms and counters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from psycopg import AsyncConnection

from pytube.backfill.limits import BackfillLimits
from pytube.config import Config, TubeConfig
from pytube.db.session import SessionPool
from pytube.enrich import build_enricher
from pytube.enrich.check import Fault, check_enriching
from pytube.errors import ConfigError
from pytube.events import Event, PartitionEvent
from pytube.sinks import Sink
from pytube.transforms import Transforms
from pytube.worker.active_term import ActiveTerm
from pytube.worker.database import Database
from pytube.worker.gate import SinkGate
from pytube.worker.limits import Limits
from pytube.worker.metrics import TubeMetrics
from pytube.worker.partition_worker import PartitionWorker
from pytube.worker.queue import Queue
from pytube.worker.shared_sink import SharedSink
from pytube.worker.stepper import Stepper
from pytube.worker.tracing import Tracing


class Tube(Queue):
    """One tube as this process serves it."""

    limits: Limits

    def __init__(
        self,
        config: Config,
        name: str,
        sink: SharedSink,
        instance_id: UUID,
        pool: SessionPool,
        emit: Callable[[Event], None],
        tracing: Tracing,
        host: str | None = None,
    ) -> None:
        """Opens nothing.

        Args:
            config: the whole of it, as the tube's host has it.
            name: of the tube.
            sink: where its documents go; opened and closed by the caller.
            instance_id: of this process.
            pool: where rows are read.
            emit: receives events.
            tracing: of the process.
            host: the name of the host that has the tube, where there are several.

        Raises:
            ConfigError: the tube is not configured, or a transform is missing.
        """
        settings = config.tube(name)
        super().__init__(name, Limits.of(settings, config.worker), config, instance_id, pool, emit, host)
        self.tracing = tracing
        self.metrics = TubeMetrics()
        self.backfill_limits = BackfillLimits.of(settings.backfill)
        self.transforms = self._load_transforms(settings)
        self.enricher = build_enricher(settings.enrich, name, pool, config.postgres.answer_timeout)
        self._sink = sink
        self._enrich = settings.enrich

    @property
    def sink(self) -> Sink:
        """Where documents go."""
        return self._sink.sink

    @property
    def gate(self) -> SinkGate:
        """What each request to the sink passes."""
        return self._sink.gate

    @property
    def why_closed(self) -> str | None:
        """Why nothing can be sent yet; None once the sink has been opened."""
        return self._sink.why_closed

    def consume(self, active_term: ActiveTerm, database: Database) -> PartitionWorker:
        """What delivers the pods of the term's partition."""
        return PartitionWorker(active_term, self, database)

    async def step(self, active_term: ActiveTerm, database: Database, number: int) -> None:
        """Do a step that an operator asks for."""
        await Stepper(active_term, self, database).take(number)

    async def find_faults(self, connection: AsyncConnection) -> Sequence[Fault]:
        """What keeps documents from being read as configured, with the tables that are attached now."""
        return (await check_enriching(connection, self.name, self._enrich)).faults

    def count(self, event: PartitionEvent) -> None:
        """Count what happened to a term."""
        self.metrics.count(event)

    def _load_transforms(self, settings: TubeConfig) -> Transforms | None:
        splits = settings.sink.parts is not None
        try:
            return Transforms.load(settings.transforms, self.name, self.log, self.faults, splits=splits)
        except ConfigError as error:
            self.faults.log_sink("import", error)
            raise
