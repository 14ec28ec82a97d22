"""The worker's metrics in the terms of Prometheus, made at a scrape from the worker's counts.

Nothing here asks Postgres: a scrape costs the database nothing, and is answered while Postgres is down.
`pytube status --prometheus` reports what only the database knows, once for the fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar

import pytube
from pytube.model import PodClass
from pytube.outbox.inflight import InFlight as Records
from pytube.pipeline.inflight import InFlight
from pytube.sources.settled import Settled
from pytube.worker.host import Host
from pytube.worker.kafka import KafkaCluster
from pytube.worker.metrics import BOUNDS, Counters, Histogram, TubeMetrics, age
from pytube.worker.outbox import Outbox
from pytube.worker.outbox_worker import OutboxWorker
from pytube.worker.partition_worker import PartitionWorker
from pytube.worker.tube import Tube
from pytube.worker.tube_worker import TubeWorker

if TYPE_CHECKING:  # from the extra `metrics`
    from prometheus_client import Metric

_TUBE = ("tube",)
_PARTITION = ("tube", "partition")
_STATE = ("tube", "partition", "state")
_CLASS = ("tube", "partition", "class")
_CLASSES = {PodClass.INCREMENTAL: "incremental", PodClass.BACKFILL: "backfill"}

_Samples = Iterable[tuple[Sequence[str], float]]
"""The values of labels, and that of the metric."""
_OfHost = Callable[[Host], _Samples]
T = TypeVar("T")
_Labeled = tuple[Sequence[str], Callable[[T], float]]
"""The values of more labels, and the value, from the object that holds a partition's pods or records."""
_Table = Sequence[tuple[str, str, Sequence[str], _OfHost]]
"""Name without `pytube_`, text, labels without that of the host, and the samples of one host."""


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
    """A collector for a registry of `prometheus_client`.

    Metrics of a host have the label `host` with its name, where there are several.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._host = () if view.hosts[0].name is None else ("host",)

    def collect(self) -> Iterator[Metric]:
        """All metrics, with their present values."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        hosts = self._view.hosts
        gauges = [*_GAUGES, *(_OF_OUTBOXES if any(host.of_kind(Outbox) for host in hosts) else ())]
        yield from _families(GaugeMetricFamily, self._of_process(), hosts[:1])
        yield from _families(GaugeMetricFamily, gauges, hosts, self._host)
        yield from _families(CounterMetricFamily, _COUNTERS, hosts, self._host)
        yield from _families(GaugeMetricFamily, _OF_SINKS, hosts[:1])  # which hosts share
        yield from _families(CounterMetricFamily, _COUNTERS_OF_SINKS, hosts[:1])
        yield from self._of_durations()

    def _of_durations(self) -> Iterator[Metric]:
        from prometheus_client.core import HistogramMetricFamily

        for name, text, of in _HISTOGRAMS:
            family = HistogramMetricFamily(f"pytube_{name}", text, labels=(*self._host, *_TUBE))
            for host in self._view.hosts:
                for tube in host.of_kind(Tube).values():
                    histogram = of(tube.metrics)
                    bounds = [*map(str, BOUNDS), "+Inf"]
                    buckets = list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))
                    family.add_metric(
                        ((host.name, tube.name) if host.name else (tube.name,)), buckets, histogram.total
                    )
            yield family

    def _of_process(self) -> _Table:
        info = {"version": pytube.__version__, **self._view.labels}
        up: dict[str, bool] = {}
        for one in self._view.clusters:  # one with other options may have the same name
            up[one.bootstrap_servers] = up.get(one.bootstrap_servers, True) and one.reason is None
        return [
            (
                "worker_info",
                "Version and name of the worker.",
                tuple(info),
                lambda _: [(tuple(info.values()), 1)],
            ),
            ("worker_ready", "Whether /readyz answers 200.", (), _one(lambda _: self._view.is_ready())),
            (
                "kafka_up",
                "Whether the worker reaches a Kafka cluster that it needs.",
                ("bootstrap_servers",),
                lambda _: [((servers,), is_up) for servers, is_up in up.items()],
            ),
        ]


def _families(
    kind: Any, table: _Table, hosts: Sequence[Host], of_host: Sequence[str] = ()
) -> Iterator[Metric]:
    """The metrics of a table, by a class of `prometheus_client`; `of_host`: the label of the host, if any."""
    for name, text, labels, samples in table:
        family = kind(f"pytube_{name}", text, labels=(*of_host, *labels))
        for host in hosts:
            named = (host.name,) if of_host else ()
            for values, value in samples(host):
                family.add_metric((*named, *values), float(value))
        yield family


# --- the samples of one metric ---------------------------------------------------------------------


def _where(partition: tuple[str, int]) -> tuple[str, str]:
    return partition[0], str(partition[1])


def _one(value: Callable[[Host], float]) -> _OfHost:
    return lambda host: [((), value(host))]


def _settled(value: Callable[[Settled], float]) -> _OfHost:
    """Of the settled seq, where it was read."""
    return lambda host: [] if host.database.settled is None else [((), value(host.database.settled))]


def _sessions(host: Host) -> _Samples:
    database = host.database
    uses = {"service": database.services, "busy": database.pool.busy, "idle": database.pool.idle}
    return [((use,), count) for use, count in uses.items()]


def _every(value: Callable[[Host, tuple[str, int]], float]) -> _OfHost:
    """Of each partition of each queue that is served, led or not."""
    return lambda host: [
        (_where((name, number)), value(host, (name, number)))
        for name, queue in host.queues.items()
        for number in range(queue.partitions)
    ]


def _sinks_up(host: Host) -> _Samples:
    """Of the partitions that are worked on; those whose sink has not been opened are led, too."""
    up = {at: one.sink_is_up for at, one in host.working().items()}
    return [(_where(at), is_up) for at, is_up in (up | dict.fromkeys(host.waiting(), False)).items()]


def _led(value: Callable[[PartitionWorker[Any]], float]) -> _OfHost:
    """Of each partition that is worked on."""
    return lambda host: [(_where(at), value(one)) for at, one in host.working().items()]


def _of_tubes(*values: _Labeled[InFlight]) -> _OfHost:
    """Of each partition of a tube that is worked on, with more labels."""
    return lambda host: [
        ((*_where(at), *labels), value(one.machine))
        for at, one in host.working().items()
        if isinstance(one, TubeWorker)
        for labels, value in values
    ]


def _of_outboxes(*values: _Labeled[Records]) -> _OfHost:
    """Of each partition of an outbox that is worked on, with more labels."""
    return lambda host: [
        ((*_where(at), *labels), value(one.machine))
        for at, one in host.working().items()
        if isinstance(one, OutboxWorker)
        for labels, value in values
    ]


def _by_class(value: Callable[[InFlight, PodClass], float]) -> list[_Labeled[InFlight]]:
    def of(kind: PodClass) -> Callable[[InFlight], float]:
        return lambda machine: value(machine, kind)

    return [((label,), of(kind)) for kind, label in _CLASSES.items()]


def _each_tube(value: Callable[[Tube], float]) -> _OfHost:
    return lambda host: [((name,), value(tube)) for name, tube in host.of_kind(Tube).items()]


def _counted(value: Callable[[Counters], float]) -> _OfHost:
    """Of each partition that was ever led."""
    return lambda host: [
        (_where((name, number)), value(counters))
        for name, queue in (host.of_kind(Tube) | host.of_kind(Outbox)).items()
        for number, counters in queue.metrics.partitions.items()
    ]


def _counted_by_class(values: Callable[[Counters], Sequence[int]]) -> _OfHost:
    return lambda host: [
        ((*at, label), value)
        for kind, label in _CLASSES.items()
        for at, value in _counted(lambda one: values(one)[kind])(host)  # noqa: B023 # it is called at once
    ]


# --- the metrics -----------------------------------------------------------------------------------

_GAUGES: _Table = [
    ("postgres_up", "Whether terms can be renewed.", (), _one(lambda host: host.database.renews)),
    (
        "postgres_sessions",
        "Sessions with Postgres: of services, and busy and idle ones of the pool.",
        ("use",),
        _sessions,
    ),
    (
        "postgres_pool_size",
        "Sessions that the pool may have.",
        (),
        _one(lambda host: host.database.pool.size),
    ),
    (
        "settled_age_seconds",
        "How long the settled seq has been behind the last seq drawn.",
        (),
        _settled(lambda settled: settled.age),
    ),
    (
        "settled_long_writers",
        "Open transactions that hold back the settled seq.",
        (),
        _settled(lambda settled: settled.long_writers),
    ),
    (
        "partition_led",
        "Whether this worker leads the partition, and works on it or rests for a pause.",
        _PARTITION,
        _every(lambda host, at: at in host.working() or at in host.resting()),
    ),
    (
        "partition_paused",
        "Whether this worker leads the partition, and it is paused.",
        _PARTITION,
        _every(lambda host, at: at in host.resting()),
    ),
    ("sink_up", "Whether the sink takes documents.", _PARTITION, _sinks_up),
    ("source_up", "Whether rows can be read.", _PARTITION, _led(lambda one: one.source_is_up)),
    (
        "table_locked",
        "Whether another session's lock on the table or its records keeps the worker from reading it.",
        _PARTITION,
        _led(lambda one: one.waits_for_lock),
    ),
    ("partition_trusted", "Whether the term may send now.", _PARTITION, _led(lambda one: one.is_trusted)),
    (
        "keys_in_flight",
        "Keys that are being delivered.",
        _PARTITION,
        _of_tubes(((), lambda machine: machine.flying)),
    ),
    (
        "lag_seconds",
        "Age of the oldest pod that is not delivered; 0 when there is none.",
        _CLASS,
        _of_tubes(*_by_class(lambda machine, kind: age(machine.oldest_of(kind)))),
    ),
    (
        "pods",
        "Pods that the worker holds: marked, not yet purged.",
        _CLASS,
        _of_tubes(
            *_by_class(lambda machine, kind: machine.held(kind)),
            (("control",), lambda machine: machine.control),
        ),
    ),
    (
        "keys_waiting",
        "Keys that wait to be delivered.",
        _CLASS,
        _of_tubes(*_by_class(lambda machine, kind: machine.waiting(kind))),
    ),
    (
        "load_away",
        "Whether the worker leaves the tube to others for a while.",
        _TUBE,
        lambda host: [((name,), name in host.away) for name in host.of_kind(Tube)],
    ),
]
_OF_OUTBOXES: _Table = [
    (
        "outbox_records",
        "Records of an outbox that the worker holds: waiting to be sent, or in flight.",
        _STATE,
        _of_outboxes(
            (("waiting",), lambda machine: machine.held - machine.flying),
            (("in_flight",), lambda machine: machine.flying),
        ),
    ),
    (
        "outbox_lag_seconds",
        "Age of the oldest record that is not delivered; 0 when there is none.",
        _PARTITION,
        _of_outboxes(((), lambda machine: age(machine.oldest))),
    ),
    (
        "outbox_topics_down",
        "Topics that take nothing.",
        _PARTITION,
        _of_outboxes(((), lambda machine: len(machine.resting()))),
    ),
]
"""Shown where an outbox is served."""
_OF_SINKS: _Table = [
    (
        "sink_requests",
        "Requests to the sink that are under way.",
        _TUBE,
        _each_tube(lambda tube: tube.gate.in_flight),
    ),
    (
        "sink_requests_waiting",
        "Requests that wait for the limits of the sink.",
        _TUBE,
        _each_tube(lambda tube: tube.gate.waiting),
    ),
    (
        "sink_requests_limit",
        "Requests that may be under way: what the sink bears, as far as it has shown.",
        _TUBE,
        _each_tube(lambda tube: tube.gate.control.requests),
    ),
    (
        "sink_batch_limit",
        "Documents that a request may have: what the sink bears, as far as it has shown.",
        _TUBE,
        _each_tube(lambda tube: tube.gate.control.documents),
    ),
    (
        "sink_slow",
        "Whether these limits were lowered, because the sink answers late or puts documents off.",
        _TUBE,
        _each_tube(lambda tube: tube.gate.control.slow is not None),
    ),
]
"""Of sinks, which hosts share."""
_COUNTERS_OF_SINKS: _Table = [
    (
        "sink_limited_seconds",
        "Time that requests have waited for the limits.",
        _TUBE,
        _each_tube(lambda tube: tube.gate.waited),
    ),
]
_COUNTERS: _Table = [
    ("load_sheds", "Times that it began to do so.", _TUBE, _each_tube(lambda tube: tube.metrics.sheds)),
    ("purged_pods", "Pods delivered and purged.", _PARTITION, _counted(lambda one: one.pods)),
    (
        "coalesced_touches",
        "Touches that joined a key that waited.",
        _PARTITION,
        _counted(lambda one: one.coalesced),
    ),
    ("terms", "Terms that began here.", _PARTITION, _counted(lambda one: one.terms)),
    ("fences", "Terms that found that they were over.", _PARTITION, _counted(lambda one: one.fences)),
    (
        "trust_lapses",
        "Times that no renewal of the term was answered in time.",
        _PARTITION,
        _counted(lambda one: one.trust_lapses),
    ),
    ("touches", "Touches marked.", _CLASS, _counted_by_class(lambda one: one.touches)),
    (
        "documents",
        "Documents that the sink has acknowledged.",
        _CLASS,
        _counted_by_class(lambda one: one.documents),
    ),
    ("skipped", "Documents that transforms skipped.", _CLASS, _counted_by_class(lambda one: one.skipped)),
    (
        "retries",
        "Documents sent again after the sink had failed them.",
        _CLASS,
        _counted_by_class(lambda one: one.retries),
    ),
    (
        "rejects",
        "Documents that the sink refused for good.",
        _CLASS,
        _counted_by_class(lambda one: one.rejects),
    ),
    ("parked", "Documents parked.", _CLASS, _counted_by_class(lambda one: one.parked)),
]
_HISTOGRAMS: Sequence[tuple[str, str, Callable[[TubeMetrics], Histogram]]] = [
    ("read_duration_seconds", "Time to read the rows of a batch.", lambda one: one.reads),
    ("send_duration_seconds", "Time until the sink answers a batch.", lambda one: one.sends),
]
