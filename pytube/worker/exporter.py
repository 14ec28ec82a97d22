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
                "Always 1; the labels have version and name of the worker.",
                tuple(info),
                lambda _: [(tuple(info.values()), 1)],
            ),
            ("worker_ready", "1 while `/readyz` answers 200.", (), _one(lambda _: self._view.is_ready())),
            (
                "kafka_up",
                "1 while the worker reaches this Kafka cluster; absent if it needs none.",
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
    ("postgres_up", "1 while terms can be renewed.", (), _one(lambda host: host.database.renews)),
    (
        "postgres_sessions",
        "Open sessions: `service`, and the pool's `busy` and `idle` ones.",
        ("use",),
        _sessions,
    ),
    (
        "postgres_pool_size",
        "Maximum sessions of the pool.",
        (),
        _one(lambda host: host.database.pool.size),
    ),
    (
        "settled_age_seconds",
        "How long the settled seq has been behind the last seq drawn, or 0; absent while unknown.",
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
        "1 while this worker leads the partition, also while paused.",
        _PARTITION,
        _every(lambda host, at: at in host.working() or at in host.resting()),
    ),
    (
        "partition_paused",
        "1 while this worker leads the partition, and it is paused or stopped.",
        _PARTITION,
        _every(lambda host, at: at in host.resting()),
    ),
    ("sink_up", "0 while the sink accepts nothing.", _PARTITION, _sinks_up),
    ("source_up", "0 while rows can't be read.", _PARTITION, _led(lambda one: one.source_is_up)),
    (
        "table_locked",
        "1 while pods can't be read because their table or records are locked.",
        _PARTITION,
        _led(lambda one: one.waits_for_lock),
    ),
    ("partition_trusted", "1 while the term may send.", _PARTITION, _led(lambda one: one.is_trusted)),
    (
        "keys_in_flight",
        "Keys being delivered, or waiting to be sent again.",
        _PARTITION,
        _of_tubes(((), lambda machine: machine.flying)),
    ),
    (
        "lag_seconds",
        "Age of the oldest pod that the worker holds, or 0; includes the clocks' offset.",
        _CLASS,
        _of_tubes(*_by_class(lambda machine, kind: age(machine.oldest_of(kind)))),
    ),
    (
        "pods",
        "Pods that the worker holds; more may wait in the tube.",
        _CLASS,
        _of_tubes(
            *_by_class(lambda machine, kind: machine.held(kind)),
            (("control",), lambda machine: machine.control),
        ),
    ),
    (
        "keys_waiting",
        "Keys waiting for delivery.",
        _CLASS,
        _of_tubes(*_by_class(lambda machine, kind: machine.waiting(kind))),
    ),
    (
        "load_away",
        "1 while the worker leaves the tube to others (load shedding).",
        _TUBE,
        lambda host: [((name,), name in host.away) for name in host.of_kind(Tube)],
    ),
]
_OF_OUTBOXES: _Table = [
    (
        "outbox_records",
        "Records that the worker holds, `waiting` or `in_flight`; more may wait in the outbox.",
        _STATE,
        _of_outboxes(
            (("waiting",), lambda machine: machine.held - machine.flying),
            (("in_flight",), lambda machine: machine.flying),
        ),
    ),
    (
        "outbox_lag_seconds",
        "Age of the oldest record that the worker holds, or 0.",
        _PARTITION,
        _of_outboxes(((), lambda machine: age(machine.oldest))),
    ),
    (
        "outbox_topics_down",
        "Topics that accept no records.",
        _PARTITION,
        _of_outboxes(((), lambda machine: len(machine.resting()))),
    ),
]
"""Shown where an outbox is served."""
_OF_SINKS: _Table = [
    (
        "sink_requests",
        "Batches in flight to the sink.",
        _TUBE,
        _each_tube(lambda tube: tube.gate.in_flight),
    ),
    (
        "sink_requests_waiting",
        "Batches that wait for the sink's limits: `rate`, `requests`, and its measured capacity.",
        _TUBE,
        _each_tube(lambda tube: tube.gate.waiting),
    ),
    (
        "sink_requests_limit",
        "Maximum batches in flight, by the sink's measured capacity.",
        _TUBE,
        _each_tube(lambda tube: tube.gate.control.requests),
    ),
    (
        "sink_batch_limit",
        "Maximum documents per batch, by the sink's measured capacity.",
        _TUBE,
        _each_tube(lambda tube: tube.gate.control.documents),
    ),
    (
        "sink_slow",
        "1 while these limits are lowered, because the sink answers late or puts documents off.",
        _TUBE,
        _each_tube(lambda tube: tube.gate.control.slow is not None),
    ),
]
"""Of sinks, which hosts share."""
_COUNTERS_OF_SINKS: _Table = [
    (
        "sink_limited_seconds",
        "Total time that batches have waited for these limits.",
        _TUBE,
        _each_tube(lambda tube: tube.gate.waited),
    ),
]
_COUNTERS: _Table = [
    (
        "load_sheds",
        "Times that the worker began to leave the tube to others.",
        _TUBE,
        _each_tube(lambda tube: tube.metrics.sheds),
    ),
    ("purged_pods", "Pods delivered and purged.", _PARTITION, _counted(lambda one: one.pods)),
    (
        "coalesced_touches",
        "Touches that joined a waiting key.",
        _PARTITION,
        _counted(lambda one: one.coalesced),
    ),
    ("terms", "Terms that began here.", _PARTITION, _counted(lambda one: one.terms)),
    ("fences", "Terms that learned that they were over.", _PARTITION, _counted(lambda one: one.fences)),
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
        "Documents sent again after a failure or a timeout; a down sink's do not count.",
        _CLASS,
        _counted_by_class(lambda one: one.retries),
    ),
    (
        "rejects",
        "Documents that the sink rejected.",
        _CLASS,
        _counted_by_class(lambda one: one.rejects),
    ),
    (
        "parked",
        "Documents parked: rejected, out of attempts, or of a shard without a table.",
        _CLASS,
        _counted_by_class(lambda one: one.parked),
    ),
]
_HISTOGRAMS: Sequence[tuple[str, str, Callable[[TubeMetrics], Histogram]]] = [
    ("read_duration_seconds", "Time to read the rows of a batch, failures included.", lambda one: one.reads),
    (
        "send_duration_seconds",
        "Time until the sink answered a batch, failures and timeouts included.",
        lambda one: one.sends,
    ),
]
