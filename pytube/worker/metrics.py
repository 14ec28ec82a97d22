"""What a worker counts, and the hooks for traces of batches.

Counts are plain numbers, because the hot path counts; a scrape turns them into metrics.

A batch is one delivery of keys. Its span has the children `mark`, `enrich`, `transform`, `send` and `purge`.
The hooks do nothing; `otel` implements them. So a worker that does not trace imports no OpenTelemetry.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal, Self
from uuid import UUID

from pytube.errors import ConfigError, how_to_install
from pytube.events import LeaderAcquired, LeaderFenced, MeterRead, PartitionEvent, TrustLapsed
from pytube.model import Documents, Id, Pod
from pytube.pipeline.inflight import Flight, InFlight
from pytube.sources.terms import Term

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the histograms' buckets, in seconds."""


class Histogram:
    """Durations, counted by bucket."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        """One bucket for each of `BOUNDS`, and one for longer times; not cumulative."""
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


def _per_class() -> list[int]:
    return [0, 0]


@dataclass(slots=True)
class Counters:
    """Totals of one partition since the process began, over all its terms. Lists are by `PodClass`."""

    pods: int = 0
    touches: list[int] = field(default_factory=_per_class)
    coalesced: int = 0
    documents: list[int] = field(default_factory=_per_class)
    skipped: list[int] = field(default_factory=_per_class)
    retries: list[int] = field(default_factory=_per_class)
    rejects: list[int] = field(default_factory=_per_class)
    parked: list[int] = field(default_factory=_per_class)
    terms: int = 0
    fences: int = 0
    trust_lapses: int = 0
    _read: tuple[int, ...] = ()
    """The totals of the last reading."""
    _read_at: float = 0.0
    _was_idle: bool = False

    def begin_reading(self) -> None:
        """A term begins: the next reading counts from now."""
        self._read, self._read_at, self._was_idle = self._totals(), time.monotonic(), False

    def _totals(self) -> tuple[int, ...]:
        return self.pods, *map(sum, (self.touches, self.documents, self.skipped, self.parked))

    def read(self, where: tuple[str, int], held: int, flying: int, oldest: float | None) -> MeterRead | None:
        """The counts since the last reading, with the keys or records held, and the number of them in flight.

        None when the partition is idle and was at the last reading: with many tubes, an event for each of
        them every few seconds would be noise. Pods carry the database's time, so the lag includes the clocks'
        offset.
        """
        now, totals = time.monotonic(), self._totals()
        counts = (total - before for total, before in zip(totals, self._read, strict=True))
        pods, touches, documents, skipped, parked = counts
        event = MeterRead(
            tube=where[0],
            partition=where[1],
            interval=now - self._read_at,
            pods=pods,
            touches=touches,
            documents=documents,
            skipped=skipped,
            parked=parked,
            waiting=held - flying,
            in_flight=flying,
            lag=age(oldest),
        )
        self._read, self._read_at = totals, now
        was_idle, self._was_idle = self._was_idle, not (pods or touches or held)
        return None if was_idle and self._was_idle else event


class TubeMetrics:
    """What the process has counted of one tube."""

    def __init__(self) -> None:
        self.reads = Histogram()
        """How long reads of rows took, whatever came of them."""
        self.sends = Histogram()
        """How long the sink took to answer a batch, whatever it answered; timeouts count, too."""
        self.partitions: dict[int, Counters] = {}
        self.sheds = 0
        """How often the process has given the tube up to others."""

    def partition(self, number: int) -> Counters:
        """The counters of one partition; its later terms continue them."""
        return self.partitions.setdefault(number, Counters())

    def count(self, event: PartitionEvent) -> None:
        """Count what happened to a term."""
        counters = self.partition(event.partition)
        match event:
            case LeaderAcquired():
                counters.terms += 1
            case LeaderFenced():
                counters.fences += 1
            case TrustLapsed():
                counters.trust_lapses += 1


def age(since: float | None) -> float:
    """Seconds since then, by this machine's clock; 0 when nothing waits."""
    return 0.0 if since is None or not isfinite(since) else max(0.0, time.time() - since)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a partition says of itself at the end of a cycle. Moments are Unix times."""

    term: UUID
    longest_waiting: float | None
    """When the pod was inserted whose key has waited longest to be sent; None when none waits."""
    documents: int
    """Documents that the sink has acknowledged, of all terms."""
    sink_is_up: bool
    down_at: float = float("-inf")
    """When the sink or the source was last down, as far as is known."""
    refused_at: float = float("-inf")
    """When the last request began that was refused, since the sink has been down."""


SINK_NOT_OPEN = Reading(UUID(int=0), None, 0, sink_is_up=False)
"""Of a partition whose sink this process could not open yet."""


# --- traces --------------------------------------------------------------------------------------


Step = Literal["enrich", "transform", "send"]


class BatchTrace:
    """The trace of one batch. Within it (`with trace:`), an error that is raised ends the span."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, stack: object) -> None:
        """Nothing to end."""

    def step(
        self,
        name: Step,  # noqa: ARG002
        documents: Documents | None = None,  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """A child span around a piece of work; `documents` are the ones to send."""
        return nullcontext()

    def delivered(self, counts: Mapping[str, int], machine: InFlight) -> None:
        """The outcome was handled: `counts` has the numbers of its keys by result, the worst first.

        The span ends now if no pod is done with this batch, else when a pod of it is purged.
        """


UNTRACED = BatchTrace()


class PartitionTraces:
    """The traces of one term."""

    def exchange(
        self,
        exchange: Coroutine[Any, Any, list[Pod]],
        done: Iterable[int],  # noqa: ARG002
    ) -> Coroutine[Any, Any, list[Pod]]:
        """An exchange that purges the pods `done` and returns the pods that it marks."""
        return exchange

    def batch(
        self,
        flight: Flight,  # noqa: ARG002
        groups: Mapping[int, Sequence[Id]],  # noqa: ARG002
    ) -> BatchTrace:
        """Begin the trace of a batch of these keys of the flight."""
        return UNTRACED

    def close(self) -> None:
        """The term is over: end the spans that are open."""


_UNTRACED = PartitionTraces()


class Tracing:
    """The traces of a process."""

    def partition(self, term: Term) -> PartitionTraces:  # noqa: ARG002
        """The traces of one term."""
        return _UNTRACED

    async def close(self) -> None:
        """Send the remaining spans."""


def build_tracing(setting: bool | str, client_id: str) -> Tracing:
    """The traces of a process as `worker.tracing` asks for.

    Raises:
        ConfigError: a package is missing, or a variable of OpenTelemetry asks for what there is not.
    """
    if setting is False:
        return Tracing()
    try:
        from pytube.worker.otel import OpenTelemetry
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"key worker.tracing needs the package {error.name}: {how_to_install('tracing')}"
        ) from error
    return OpenTelemetry.build(setting, client_id)
