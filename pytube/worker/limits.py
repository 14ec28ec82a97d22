"""The limits of one partition, gathered from the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pytube.config import TubeConfig, WorkerConfig


@dataclass(frozen=True, slots=True)
class Limits:
    """Times are seconds; see `TubeConfig`, `SinkConfig` and `WorkerConfig` for what each means."""

    receive_deadline: float
    drain_limit: float
    meter_interval: float
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
            meter_interval=worker.meter_interval,
            request_timeout=tube.sink.request_timeout,
            batch_documents=tube.sink.batch_documents,
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

    @property
    def renew_interval(self) -> float:
        """How often a term is renewed in the database: several times within the deadline."""
        return self.receive_deadline / 5
