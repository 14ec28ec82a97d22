"""What a worker counts, the metrics that a scrape makes of that, and the hooks for traces of batches.

Counts are plain numbers, because the hot path counts; a scrape turns them into metrics. Nothing here asks
Postgres: a scrape costs the database nothing, and is answered while Postgres is down. `pytube status
--prometheus` reports what only the database knows, once for the fleet.

A batch is one delivery of keys. Its span has the children `mark`, `enrich`, `transform`, `send` and `purge`.
The hooks do nothing; `otel` implements them. So a worker that does not trace imports no OpenTelemetry.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import accumulate
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias
from uuid import UUID

import pytube
from pytube.errors import ConfigError, how_to_install
from pytube.events import LeaderAcquired, LeaderFenced, MeterRead, PartitionEvent, TrustLapsed
from pytube.model import Documents, Id, Pod, PodClass
from pytube.pipeline.inflight import Flight, InFlight
from pytube.sources.terms import Term

if TYPE_CHECKING:
    from prometheus_client import Metric  # from the extra `metrics`

    from pytube.worker.host import Host
    from pytube.worker.kafka import KafkaCluster

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
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus has them: cumulative, by their upper bounds."""
        return list(zip([*map(str, BOUNDS), "+Inf"], map(float, accumulate(self.counts)), strict=True))


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
        return self.partitions.setdefault(number, Counters())

    def count(self, event: PartitionEvent) -> None:
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


# --- metrics -------------------------------------------------------------------------------------


_TUBE = ("tube",)
_PARTITION = ("tube", "partition")
_CLASS = ("tube", "partition", "class")
CLASSES = {PodClass.INCREMENTAL: "incremental", PodClass.BACKFILL: "backfill"}
"""As the label `class` has them."""
Samples: TypeAlias = Iterator[tuple[str, tuple[str, ...], float]]
"""The name of a metric, the values of its labels without the host's, and its value."""


Kind = Literal["gauge", "counter", "histogram"]
Owner = Literal["process", "host", "outbox", "sink"]


class Described(NamedTuple):
    """A metric as Prometheus knows it."""

    kind: Kind
    name: str
    """Without `pytube_`, and a counter without `_total`."""
    labels: Sequence[str]
    """Without that of the host."""
    text: str
    of: Owner
    """Metrics of hosts and outboxes have the label of the host, where there are several; metrics of outboxes
    are shown where an outbox is served. Hosts share the sinks."""

    def family(self, of_host: Sequence[str] = ()) -> Any:
        """It without samples, as `prometheus_client` has it; `of_host`: the label of the host, if any."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        kinds = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}
        labels = (*of_host, *self.labels) if self.of in ("host", "outbox") else self.labels
        return kinds.get(self.kind, HistogramMetricFamily)(f"pytube_{self.name}", self.text, labels=labels)


_DESCRIBED: Mapping[tuple[Kind, Owner], Mapping[str, tuple[Sequence[str], str]]] = {
    ("gauge", "process"): {
        "worker_info": (
            ("version", "client_id", "election"),
            "Always 1; the labels have version and name of the worker.",
        ),
        "worker_ready": ((), "1 while `/readyz` answers 200."),
        "kafka_up": (
            ("bootstrap_servers",),
            "1 while the worker reaches this Kafka cluster; absent if it needs none.",
        ),
    },
    ("gauge", "host"): {
        "postgres_up": ((), "1 while terms can be renewed."),
        "postgres_sessions": (("use",), "Open sessions: `service`, and the pool's `busy` and `idle` ones."),
        "postgres_pool_size": ((), "Maximum sessions of the pool."),
        "settled_age_seconds": (
            (),
            "How long the settled seq has been behind the last seq drawn, or 0; absent while unknown.",
        ),
        "settled_long_writers": ((), "Open transactions that hold back the settled seq."),
        "partition_led": (_PARTITION, "1 while this worker leads the partition, also while paused."),
        "partition_paused": (
            _PARTITION,
            "1 while this worker leads the partition, and it is paused or stopped.",
        ),
        "sink_up": (_PARTITION, "0 while the sink accepts nothing."),
        "source_up": (_PARTITION, "0 while rows can't be read."),
        "table_locked": (_PARTITION, "1 while pods can't be read because their table or records are locked."),
        "partition_trusted": (_PARTITION, "1 while the term may send."),
        "keys_in_flight": (_PARTITION, "Keys being delivered, or waiting to be sent again."),
        "lag_seconds": (
            _CLASS,
            "Age of the oldest pod that the worker holds, or 0; includes the clocks' offset.",
        ),
        "pods": (_CLASS, "Pods that the worker holds; more may wait in the tube."),
        "keys_waiting": (_CLASS, "Keys waiting for delivery."),
        "load_away": (_TUBE, "1 while the worker leaves the tube to others (load shedding)."),
    },
    ("gauge", "outbox"): {
        "outbox_records": (
            ("tube", "partition", "state"),
            "Records that the worker holds, `waiting` or `in_flight`; more may wait in the outbox.",
        ),
        "outbox_lag_seconds": (_PARTITION, "Age of the oldest record that the worker holds, or 0."),
        "outbox_topics_down": (_PARTITION, "Topics that accept no records."),
    },
    ("gauge", "sink"): {
        "sink_requests": (_TUBE, "Batches in flight to the sink."),
        "sink_requests_waiting": (
            _TUBE,
            "Batches that wait for the sink's limits: `rate`, `requests`, and its measured capacity.",
        ),
        "sink_requests_limit": (_TUBE, "Maximum batches in flight, by the sink's measured capacity."),
        "sink_batch_limit": (_TUBE, "Maximum documents per batch, by the sink's measured capacity."),
        "sink_slow": (
            _TUBE,
            "1 while these limits are lowered, because the sink answers late or puts documents off.",
        ),
    },
    ("counter", "sink"): {
        "sink_limited_seconds": (_TUBE, "Total time that batches have waited for these limits."),
    },
    ("counter", "host"): {
        "load_sheds": (_TUBE, "Times that the worker began to leave the tube to others."),
        "purged_pods": (_PARTITION, "Pods delivered and purged."),
        "coalesced_touches": (_PARTITION, "Touches that joined a waiting key."),
        "terms": (_PARTITION, "Terms that began here."),
        "fences": (_PARTITION, "Terms that learned that they were over."),
        "trust_lapses": (_PARTITION, "Times that no renewal of the term was answered in time."),
        "touches": (_CLASS, "Touches marked."),
        "documents": (_CLASS, "Documents that the sink has acknowledged."),
        "skipped": (_CLASS, "Documents that transforms skipped."),
        "retries": (_CLASS, "Documents sent again after a failure or a timeout; a down sink's do not count."),
        "rejects": (_CLASS, "Documents that the sink rejected."),
        "parked": (_CLASS, "Documents parked: rejected, out of attempts, or of a shard without a table."),
    },
    ("histogram", "host"): {
        "read_duration_seconds": (_TUBE, "Time to read the rows of a batch, failures included."),
        "send_duration_seconds": (
            _TUBE,
            "Time until the sink answered a batch, failures and timeouts included.",
        ),
    },
}
"""Labels and text."""
METRICS = [
    Described(kind, name, labels, text, of)
    for (kind, of), described in _DESCRIBED.items()
    for name, (labels, text) in described.items()
]

_AT_ONCE = 500
"""Samples that are made before deliveries have their turn."""


@dataclass(frozen=True, slots=True)
class View:
    """What a scrape looks at."""

    hosts: Sequence[Host]
    labels: Mapping[str, str]
    """Of `pytube_worker_info`."""
    is_ready: Callable[[], bool]
    clusters: Sequence[KafkaCluster] = ()
    """Of Kafka, which the worker needs."""


def collect(view: View) -> Iterator[Metric | None]:
    """All metrics, with their present values; None now and then, before more of the work."""
    has_outboxes = any(queue.kind == "outbox" for host in view.hosts for queue in host.queues.values())
    of_host = () if view.hosts[0].name is None else ("host",)
    made = {one.name: one.family(of_host) for one in METRICS if one.of != "outbox" or has_outboxes}
    for number, (name, values, value) in enumerate(_samples(view), 1):
        made[name].add_metric(values, float(value))
        if number % _AT_ONCE == 0:
            yield None
    for host in view.hosts:
        named = () if host.name is None else (host.name,)
        for tube in host.tubes().values():
            for name, times in (("read", tube.metrics.reads), ("send", tube.metrics.sends)):
                made[f"{name}_duration_seconds"].add_metric((*named, tube.name), times.buckets(), times.total)
    yield from made.values()


def _samples(view: View) -> Samples:
    yield "worker_info", (pytube.__version__, *view.labels.values()), 1
    yield "worker_ready", (), view.is_ready()
    up: dict[str, bool] = {}
    for one in view.clusters:  # one with other options may have the same name
        up[one.bootstrap_servers] = up.get(one.bootstrap_servers, True) and one.reason is None
    for servers, is_up in up.items():
        yield "kafka_up", (servers,), is_up
    for host in view.hosts:
        named = () if host.name is None else (host.name,)
        for name, labels, value in _of_host(host):
            yield name, (*named, *labels), value
    for name, tube in {name: tube for host in view.hosts for name, tube in host.tubes().items()}.items():
        gate = tube.gate
        yield "sink_requests", (name,), gate.in_flight
        yield "sink_requests_waiting", (name,), gate.waiting
        yield "sink_requests_limit", (name,), gate.control.requests
        yield "sink_batch_limit", (name,), gate.control.documents
        yield "sink_slow", (name,), gate.control.slow is not None
        yield "sink_limited_seconds", (name,), gate.waited


def _of_host(host: Host) -> Samples:
    database = host.database
    yield "postgres_up", (), database.renews
    uses = {"service": database.services, "busy": database.pool.busy, "idle": database.pool.idle}
    for use, count in uses.items():
        yield "postgres_sessions", (use,), count
    yield "postgres_pool_size", (), database.pool.size
    if database.settled is not None:
        yield "settled_age_seconds", (), database.settled.age
        yield "settled_long_writers", (), database.settled.long_writers
    working, resting = host.working(), host.resting()
    for name, queue in list(host.queues.items()):
        for number in range(queue.partitions):
            at, where = (name, str(number)), (name, number)
            yield "partition_led", at, where in working or where in resting
            yield "partition_paused", at, where in resting
        for number, counters in list(queue.metrics.partitions.items()):
            yield from _of_counters((name, str(number)), counters)
        if queue.kind == "tube":
            yield "load_away", (name,), name in host.away
            yield "load_sheds", (name,), queue.metrics.sheds
    for name, number in host.waiting():  # without a sink they are led, too
        yield "sink_up", (name, str(number)), False
    for (name, number), worker in working.items():
        for metric, label, value in worker.gauges():
            yield metric, (name, str(number), *label), value


def _of_counters(at: tuple[str, str], counters: Counters) -> Samples:
    """Of a partition that was ever led."""
    yield "purged_pods", at, counters.pods
    yield "coalesced_touches", at, counters.coalesced
    yield "terms", at, counters.terms
    yield "fences", at, counters.fences
    yield "trust_lapses", at, counters.trust_lapses
    for kind, label in CLASSES.items():
        for name in ("touches", "documents", "skipped", "retries", "rejects", "parked"):
            yield name, (*at, label), getattr(counters, name)[kind]


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
