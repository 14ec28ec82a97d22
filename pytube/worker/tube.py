"""What the partitions of one tube share in this process: sink, enricher, limits, and the partition count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self
from uuid import UUID

from pytube.backfill.limits import BackfillLimits
from pytube.config import Config, SinkConfig, TubeConfig, WorkerConfig
from pytube.db.session import SessionPool
from pytube.enrich import build_enricher
from pytube.errors import ConfigError, PytubeError, SinkError, UnknownTube
from pytube.events import Event
from pytube.logs import Logger, UserFaults
from pytube.sinks import Sink, build_sink
from pytube.sources.terms import Candidate, read_partitions
from pytube.transforms import Transforms
from pytube.worker.gate import SinkGate
from pytube.worker.metrics import TubeMetrics


@dataclass(frozen=True, slots=True)
class Limits:
    """Times are seconds; see `TubeConfig`, `SinkConfig` and `WorkerConfig` for what each means."""

    receive_deadline: float
    drain_limit: float
    request_timeout: float
    batch_documents: int
    batch_bytes: int
    sends: int
    keys_in_flight: int
    mark_limit: int
    attempts: int
    backfill_share: float
    sweep_backlog: int
    """Backfill pods in the tube beyond which a sweep adds none."""

    @classmethod
    def of(cls, tube: TubeConfig, worker: WorkerConfig) -> Self:
        """The limits of one tube's partitions."""
        return cls(
            receive_deadline=worker.receive_deadline,
            drain_limit=worker.drain_limit,
            request_timeout=tube.sink.request_timeout,
            batch_documents=_batch_documents(tube.sink),
            batch_bytes=tube.sink.batch_bytes,
            sends=tube.sink.sends,
            keys_in_flight=tube.keys_in_flight,
            mark_limit=tube.mark_limit,
            attempts=tube.attempts,
            backfill_share=tube.backfill_share,
            # More than a backfill itself keeps to, so that one that goes on for hours holds no sweep up.
            sweep_backlog=2 * tube.backfill.backlog,
        )

    @property
    def hold(self) -> float:
        """How long after its last renewal a term's writes may still take effect."""
        return self.receive_deadline + self.request_timeout


def _batch_documents(sink: SinkConfig) -> int:
    """Of one batch: with a limit on the rate, no more than pass in a second, so that they pass evenly."""
    if sink.rate is None:
        return sink.batch_documents
    return min(sink.batch_documents, max(1, int(sink.rate)))


class Tube:
    """One tube as this process serves it."""

    def __init__(
        self,
        config: Config,
        name: str,
        instance_id: UUID,
        pool: SessionPool,
        emit: Callable[[Event], None],
    ) -> None:
        """Opens nothing.

        Args:
            config: the whole of it.
            name: of the tube.
            instance_id: of this process.
            pool: where rows are read.
            emit: receives events.

        Raises:
            ConfigError: the tube is not configured, its sink refuses the options, or a transform is missing.
        """
        settings = config.tube(name)
        self.name = name
        self.log = Logger("pytube.worker", tube=name)
        self.faults = UserFaults(self.log)
        self.emit = emit
        self.metrics = TubeMetrics()
        self.limits = Limits.of(settings, config.worker)
        self.gate = SinkGate.of(settings)
        self.backfill_limits = BackfillLimits.of(settings.backfill)
        self.sink = self._build_sink(settings.sink)
        self.transforms = self._load_transforms(settings.transforms)
        self.enricher = build_enricher(settings.enrich, name, pool, config.postgres.answer_timeout)
        self.candidate = Candidate(
            instance_id=instance_id,
            client_id=config.worker.client_id,
            election=config.election_kind,
            hold=self.limits.hold,
            lease=config.worker.session_timeout if config.election_kind == "lease" else None,
        )
        self.partitions = 0
        """As last read; 0 while the tube does not exist."""
        self.stopping = False
        """Whether the process ends, so that there is time to drain."""
        self._pool = pool

    def _build_sink(self, settings: SinkConfig) -> Sink:
        try:
            return build_sink(settings.type, settings.options, request_timeout=settings.request_timeout)
        except ConfigError as error:
            self.faults.log_sink("from_options", error)
            raise

    def _load_transforms(self, targets: Sequence[str]) -> Transforms | None:
        try:
            return Transforms.load(targets, self.name, self.log, self.faults)
        except ConfigError as error:
            self.faults.log_sink("import", error)
            raise

    async def open_sink(self) -> None:
        """Open the sink.

        Raises:
            PytubeError: the sink can't be opened; what else it raises is a `SinkError`.
        """
        try:
            await self.sink.open()
        except PytubeError as error:
            self.faults.log_sink("open", error)
            raise
        except Exception as error:
            self.faults.log_sink("open", error)
            raise SinkError(
                f"the sink of tube {self.name!r} can't be opened: {type(error).__name__}: {error}"
            ) from error

    async def close_sink(self) -> None:
        """Close the sink; raises what the sink raises."""
        try:
            await self.sink.close()
        except Exception as error:
            self.faults.log_sink("close", error)
            raise

    async def reload_partitions(self) -> None:
        """Read the partition count anew.

        Raises:
            UnknownTube: the tube does not exist.
            DatabaseUnavailable: Postgres can't be asked.
        """
        self.partitions = (await read_partitions(self._pool, [self.name])).get(self.name, 0)
        self.check_exists()

    def check_exists(self) -> None:
        """Raise `UnknownTube` if the tube did not exist when its partition count was last read."""
        if not self.partitions:
            raise UnknownTube(f"there is no tube {self.name!r}; create it with `pytube tube create`")
