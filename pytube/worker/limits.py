"""The limits that the partitions of one queue keep to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pytube.config import SinkConfig, TubeConfig, WorkerConfig


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
            batch_documents=_batch_documents(tube.sink),
            batch_bytes=tube.sink.batch_bytes,
            sends=tube.sink.sends,
            keys_in_flight=tube.keys_in_flight,
            mark_limit=tube.mark_limit,
            attempts=tube.attempts,
            backfill_share=tube.backfill_share,
            # More than a backfill itself keeps to, so that one that goes on for hours holds no sweep up.
            sweep_backlog=2 * tube.backfill.backlog,
            stop_on_poison=tube.on_poison == "stop",
            park_limit=tube.park_limit,
            park_documents=tube.park_documents,
            retry_on_touch=tube.retry_on_touch,
        )


def _batch_documents(sink: SinkConfig) -> int:
    """Of one batch: with a limit on the rate, no more than pass in a second, so that they pass evenly.

    A document that is split counts as all its parts, since the limits are those of the sink.
    """
    most = sink.batch_documents if sink.rate is None else min(sink.batch_documents, int(sink.rate))
    return max(1, most // sink.writes)
