"""The worker's metrics in the terms of Prometheus, made at a scrape from the worker's counts.

Nothing here asks Postgres: a scrape costs the database nothing, and is answered while Postgres is down.
`pytube status --prometheus` reports what only the database knows, once for the fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

import pytube
from pytube.model import PodClass
from pytube.pipeline.inflight import InFlight
from pytube.worker.host import Host
from pytube.worker.kafka import KafkaCluster
from pytube.worker.metrics import BOUNDS, Counters, age
from pytube.worker.outbox_worker import OutboxWorker
from pytube.worker.partition_worker import PartitionWorker
from pytube.worker.queues import Outbox, Tube
from pytube.worker.tube_worker import TubeWorker

if TYPE_CHECKING:  # from the extra `metrics`
    from prometheus_client import Metric

# --- the metrics ---------------------------------------------------------------------------------

_TUBE = ("tube",)
_PARTITION = ("tube", "partition")
_CLASS = ("tube", "partition", "class")

Described: TypeAlias = Mapping[str, tuple[str, Sequence[str]]]
"""Text and labels, without that of the host, by name without `pytube_`."""

OF_PROCESS: Described = {
    "worker_info": (
        "Always 1; the labels have version and name of the worker.",
        ("version", "client_id", "election"),
    ),
    "worker_ready": ("1 while `/readyz` answers 200.", ()),
    "kafka_up": (
        "1 while the worker reaches this Kafka cluster; absent if it needs none.",
        ("bootstrap_servers",),
    ),
}
GAUGES: Described = {
    "postgres_up": ("1 while terms can be renewed.", ()),
    "postgres_sessions": ("Open sessions: `service`, and the pool's `busy` and `idle` ones.", ("use",)),
    "postgres_pool_size": ("Maximum sessions of the pool.", ()),
    "settled_age_seconds": (
        "How long the settled seq has been behind the last seq drawn, or 0; absent while unknown.",
        (),
    ),
    "settled_long_writers": ("Open transactions that hold back the settled seq.", ()),
    "partition_led": ("1 while this worker leads the partition, also while paused.", _PARTITION),
    "partition_paused": (
        "1 while this worker leads the partition, and it is paused or stopped.",
        _PARTITION,
    ),
    "sink_up": ("0 while the sink accepts nothing.", _PARTITION),
    "source_up": ("0 while rows can't be read.", _PARTITION),
    "table_locked": (
        "1 while pods can't be read because their table or records are locked.",
        _PARTITION,
    ),
    "partition_trusted": ("1 while the term may send.", _PARTITION),
    "keys_in_flight": ("Keys being delivered, or waiting to be sent again.", _PARTITION),
    "lag_seconds": (
        "Age of the oldest pod that the worker holds, or 0; includes the clocks' offset.",
        _CLASS,
    ),
    "pods": ("Pods that the worker holds; more may wait in the tube.", _CLASS),
    "keys_waiting": ("Keys waiting for delivery.", _CLASS),
    "load_away": ("1 while the worker leaves the tube to others (load shedding).", _TUBE),
}
OF_OUTBOXES: Described = {
    "outbox_records": (
        "Records that the worker holds, `waiting` or `in_flight`; more may wait in the outbox.",
        ("tube", "partition", "state"),
    ),
    "outbox_lag_seconds": ("Age of the oldest record that the worker holds, or 0.", _PARTITION),
    "outbox_topics_down": ("Topics that accept no records.", _PARTITION),
}
"""Shown where an outbox is served."""
OF_SINKS: Described = {
    "sink_requests": ("Batches in flight to the sink.", _TUBE),
    "sink_requests_waiting": (
        "Batches that wait for the sink's limits: `rate`, `requests`, and its measured capacity.",
        _TUBE,
    ),
    "sink_requests_limit": ("Maximum batches in flight, by the sink's measured capacity.", _TUBE),
    "sink_batch_limit": ("Maximum documents per batch, by the sink's measured capacity.", _TUBE),
    "sink_slow": (
        "1 while these limits are lowered, because the sink answers late or puts documents off.",
        _TUBE,
    ),
}
"""Of sinks, which hosts share."""
COUNTERS_OF_SINKS: Described = {
    "sink_limited_seconds": ("Total time that batches have waited for these limits.", _TUBE),
}
COUNTERS: Described = {
    "load_sheds": ("Times that the worker began to leave the tube to others.", _TUBE),
    "purged_pods": ("Pods delivered and purged.", _PARTITION),
    "coalesced_touches": ("Touches that joined a waiting key.", _PARTITION),
    "terms": ("Terms that began here.", _PARTITION),
    "fences": ("Terms that learned that they were over.", _PARTITION),
    "trust_lapses": ("Times that no renewal of the term was answered in time.", _PARTITION),
    "touches": ("Touches marked.", _CLASS),
    "documents": ("Documents that the sink has acknowledged.", _CLASS),
    "skipped": ("Documents that transforms skipped.", _CLASS),
    "retries": ("Documents sent again after a failure or a timeout; a down sink's do not count.", _CLASS),
    "rejects": ("Documents that the sink rejected.", _CLASS),
    "parked": ("Documents parked: rejected, out of attempts, or of a shard without a table.", _CLASS),
}
HISTOGRAMS: Described = {
    "read_duration_seconds": ("Time to read the rows of a batch, failures included.", _TUBE),
    "send_duration_seconds": (
        "Time until the sink answered a batch, failures and timeouts included.",
        _TUBE,
    ),
}

# --- their values --------------------------------------------------------------------------------

_CLASSES = {PodClass.INCREMENTAL: "incremental", PodClass.BACKFILL: "backfill"}
_Samples: TypeAlias = Iterator[tuple[str, tuple[str, ...], float]]
"""The name of a metric, the values of its labels without the host's, and its value."""


def _of_host(host: Host) -> _Samples:
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
        if isinstance(queue, Tube):
            yield "load_away", (name,), name in host.away
            yield "load_sheds", (name,), queue.metrics.sheds
    for name, number in host.waiting():  # without a sink they are led, too
        yield "sink_up", (name, str(number)), False
    for (name, number), worker in working.items():
        yield from _of_worker((name, str(number)), worker)


def _of_worker(at: tuple[str, str], worker: PartitionWorker[Any]) -> _Samples:
    yield "sink_up", at, worker.sink_is_up
    yield "source_up", at, worker.source_is_up
    yield "table_locked", at, worker.waits_for_lock
    yield "partition_trusted", at, worker.is_trusted
    if isinstance(worker, TubeWorker):
        yield from _of_pods(at, worker.machine)
    elif isinstance(worker, OutboxWorker):
        records = worker.machine
        yield "outbox_records", (*at, "waiting"), records.held - records.flying
        yield "outbox_records", (*at, "in_flight"), records.flying
        yield "outbox_lag_seconds", at, age(records.oldest)
        yield "outbox_topics_down", at, len(records.resting())


def _of_pods(at: tuple[str, str], machine: InFlight) -> _Samples:
    yield "keys_in_flight", at, machine.flying
    for kind, label in _CLASSES.items():
        yield "lag_seconds", (*at, label), age(machine.oldest_of(kind))
        yield "pods", (*at, label), machine.held(kind)
        yield "keys_waiting", (*at, label), machine.waiting(kind)
    yield "pods", (*at, "control"), machine.control


def _of_counters(at: tuple[str, str], counters: Counters) -> _Samples:
    """Of a partition that was ever led."""
    yield "purged_pods", at, counters.pods
    yield "coalesced_touches", at, counters.coalesced
    yield "terms", at, counters.terms
    yield "fences", at, counters.fences
    yield "trust_lapses", at, counters.trust_lapses
    for kind, label in _CLASSES.items():
        for name in ("touches", "documents", "skipped", "retries", "rejects", "parked"):
            yield name, (*at, label), getattr(counters, name)[kind]


def _of_sinks(host: Host) -> _Samples:
    for name, tube in host.of_kind(Tube).items():
        gate = tube.gate
        yield "sink_requests", (name,), gate.in_flight
        yield "sink_requests_waiting", (name,), gate.waiting
        yield "sink_requests_limit", (name,), gate.control.requests
        yield "sink_batch_limit", (name,), gate.control.documents
        yield "sink_slow", (name,), gate.control.slow is not None
        yield "sink_limited_seconds", (name,), gate.waited


# --- a scrape ------------------------------------------------------------------------------------

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


class WorkerCollector:
    """Makes the metrics. Where there are several hosts, metrics of a host have the label `host`."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._host = () if view.hosts[0].name is None else ("host",)

    def collect(self) -> Iterator[Metric | None]:
        """All metrics, with their present values; None now and then, before more of the work."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        hosts = self._view.hosts
        outboxes = OF_OUTBOXES if any(host.of_kind(Outbox) for host in hosts) else {}
        made: dict[str, Any] = {
            **_families(GaugeMetricFamily, OF_PROCESS),
            **_families(GaugeMetricFamily, {**GAUGES, **outboxes}, self._host),
            **_families(CounterMetricFamily, COUNTERS, self._host),
            **_families(GaugeMetricFamily, OF_SINKS),
            **_families(CounterMetricFamily, COUNTERS_OF_SINKS),
            **_families(HistogramMetricFamily, HISTOGRAMS, self._host),
        }
        for number, (name, labels, value) in enumerate(self._samples(), 1):
            made[name].add_metric(labels, float(value))
            if number % _AT_ONCE == 0:
                yield None
        for host in hosts:
            self._add_durations(host, made)
        yield from made.values()

    def _samples(self) -> _Samples:
        view = self._view
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
        yield from _of_sinks(view.hosts[0])

    def _add_durations(self, host: Host, made: Mapping[str, Any]) -> None:
        named = () if host.name is None else (host.name,)
        bounds = [*map(str, BOUNDS), "+Inf"]
        for tube in host.of_kind(Tube).values():
            metrics = tube.metrics
            for name, histogram in zip(HISTOGRAMS, (metrics.reads, metrics.sends), strict=True):
                buckets = list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))
                made[name].add_metric((*named, tube.name), buckets, histogram.total)


def _families(kind: Any, described: Described, of_host: Sequence[str] = ()) -> dict[str, Any]:
    """Empty metrics of a class of `prometheus_client`; `of_host`: the label of the host, if any."""
    return {
        name: kind(f"pytube_{name}", text, labels=(*of_host, *labels))
        for name, (text, labels) in described.items()
    }
