"""The worker's metrics in the terms of Prometheus, made at a scrape from what the worker has counted.

Nothing here asks Postgres: a scrape costs the database nothing, and is answered while Postgres is down.
What only the database knows is told by `pytube status --prometheus`, once for the fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from time import time
from typing import TYPE_CHECKING

import pytube
from pytube.model import PodClass
from pytube.worker.host import Host
from pytube.worker.metrics import BOUNDS, Counters, Histogram, TubeMetrics
from pytube.worker.outbox import Outbox
from pytube.worker.outbox_worker import OutboxWorker
from pytube.worker.partition_worker import PartitionWorker
from pytube.worker.queue import Consumer
from pytube.worker.tube import Tube

if TYPE_CHECKING:  # from the extra `metrics`
    from prometheus_client import Metric

_TUBE = ("tube",)
_PARTITION = ("tube", "partition")
_CLASS = ("tube", "partition", "class")
_CLASSES = {PodClass.INCREMENTAL: "incremental", PodClass.BACKFILL: "backfill"}


@dataclass(frozen=True, slots=True)
class View:
    """What a scrape looks at."""

    hosts: Sequence[Host]
    labels: Mapping[str, str]
    """Of `pytube_worker_info`."""
    is_ready: Callable[[], bool]


class WorkerCollector:
    """A collector for a registry of `prometheus_client`.

    Of what belongs to a host the label `host` names it, where there are several.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._host = () if view.hosts[0].name is None else ("host",)

    def collect(self) -> Iterator[Metric]:
        """All metrics, with their present values."""
        yield from self._of_process()
        yield from self._of_databases()
        yield from self._of_led()
        yield from self._of_tubes()
        yield from self._of_outboxes()
        yield from self._of_gates()
        yield from self._of_shedding()
        yield from self._of_counters()
        yield from self._of_durations()

    def _by_host(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        samples: Callable[[Host], Iterable[tuple[Sequence[str], float]]],
    ) -> Metric:
        """A gauge with the samples of each host."""
        return _gauge(
            name,
            text,
            (*self._host, *labels),
            [(_key(host, *values), value) for host in self._view.hosts for values, value in samples(host)],
        )

    # --- the process ----------------------------------------------------------------------

    def _of_process(self) -> Iterator[Metric]:
        info = {"version": pytube.__version__, **self._view.labels}
        yield _gauge("worker_info", "Version and name of the worker.", tuple(info), [(info.values(), 1)])
        yield _gauge("worker_ready", "Whether /readyz answers 200.", (), [((), self._view.is_ready())])

    def _of_databases(self) -> Iterator[Metric]:
        yield self._by_host(
            "postgres_up", "Whether terms can be renewed.", (), lambda one: [((), one.database.renews)]
        )
        yield self._by_host(
            "postgres_sessions",
            "Sessions with Postgres: of services, and busy and idle ones of the pool.",
            ("use",),
            lambda one: [
                (("service",), one.database.services),
                (("busy",), one.database.pool.busy),
                (("idle",), one.database.pool.idle),
            ],
        )
        yield self._by_host(
            "postgres_pool_size",
            "Sessions that the pool may have.",
            (),
            lambda one: [((), one.database.pool.size)],
        )
        yield self._by_host(
            "settled_age_seconds",
            "How long the settled seq has been behind what was drawn.",
            (),
            lambda one: [((), one.database.settled.age)] if one.database.settled is not None else [],
        )
        yield self._by_host(
            "settled_long_writers",
            "Open transactions that hold back the settled seq.",
            (),
            lambda one: [((), one.database.settled.long_writers)] if one.database.settled is not None else [],
        )

    # --- partitions that are led ----------------------------------------------------------

    def _of_led(self) -> Iterator[Metric]:
        yield self._by_host(
            "partition_led",
            "Whether this worker leads the partition, and works on it or rests for a pause.",
            _PARTITION,
            lambda one: [
                ((name, str(number)), (name, number) in one.working() or (name, number) in one.resting())
                for name, queue in one.queues.items()
                for number in range(queue.partitions)
            ],
        )
        yield self._by_host(
            "partition_paused",
            "Whether this worker leads the partition, and it is paused.",
            _PARTITION,
            lambda one: [
                ((name, str(number)), (name, number) in one.resting())
                for name, queue in one.queues.items()
                for number in range(queue.partitions)
            ],
        )
        yield self._by_host("sink_up", "Whether the sink takes documents.", _PARTITION, _sinks_up)
        flags: list[tuple[str, str, Callable[[Consumer], float]]] = [
            ("source_up", "Whether rows can be read.", lambda one: one.source_is_up),
            ("partition_trusted", "Whether the term may send now.", lambda one: one.is_trusted),
        ]
        for name, text, value in flags:
            yield self._by_host(name, text, _PARTITION, partial(_values, value))

    def _of_outboxes(self) -> Iterator[Metric]:
        """What partitions of outboxes hold; nothing where no outbox is served."""
        if not any(host.of_kind(Outbox) for host in self._view.hosts):
            return
        now = time()
        yield self._by_host(
            "outbox_records",
            "Records of an outbox that the worker holds: waiting to be sent, or in flight.",
            ("tube", "partition", "state"),
            lambda host: [
                ((*_where(at), state), count)
                for at, one in _of_outboxes(host)
                for state, count in (
                    ("waiting", one.machine.held - one.machine.flying),
                    ("in_flight", one.machine.flying),
                )
            ],
        )
        yield self._by_host(
            "outbox_lag_seconds",
            "Age of the oldest record that is not delivered; 0 when there is none.",
            _PARTITION,
            lambda host: [(_where(at), _age(one.machine.oldest, now)) for at, one in _of_outboxes(host)],
        )
        yield self._by_host(
            "outbox_topics_down",
            "Topics that take nothing.",
            _PARTITION,
            lambda host: [(_where(at), len(one.machine.resting())) for at, one in _of_outboxes(host)],
        )

    def _of_tubes(self) -> Iterator[Metric]:
        """What partitions of tubes hold."""
        now = time()
        yield self._by_host(
            "keys_in_flight",
            "Keys that are being delivered.",
            _PARTITION,
            lambda host: [(_where(at), one.machine.flying) for at, one in _of_tubes(host)],
        )
        yield self._by_host(
            "lag_seconds",
            "Age of the oldest pod that is not delivered; 0 when there is none.",
            _CLASS,
            lambda host: [
                ((*_where(at), text), _age(one.machine.oldest(kind), now))
                for at, one in _of_tubes(host)
                for kind, text in _CLASSES.items()
            ],
        )
        yield self._by_host(
            "pods",
            "Pods that the worker holds: marked, not yet purged.",
            _CLASS,
            lambda host: [sample for at, one in _of_tubes(host) for sample in _pods(at, one)],
        )
        yield self._by_host(
            "keys_waiting",
            "Keys that wait to be delivered.",
            _CLASS,
            lambda host: [
                ((*_where(at), text), one.machine.waiting(kind))
                for at, one in _of_tubes(host)
                for kind, text in _CLASSES.items()
            ],
        )

    def _of_gates(self) -> Iterator[Metric]:
        """Of sinks, which hosts share."""
        from prometheus_client.core import CounterMetricFamily

        gates = [((name,), tube.gate) for name, tube in self._view.hosts[0].of_kind(Tube).items()]
        yield _gauge(
            "sink_requests",
            "Requests to the sink that are under way.",
            _TUBE,
            [(key, gate.in_flight) for key, gate in gates],
        )
        yield _gauge(
            "sink_requests_waiting",
            "Requests that wait for the limits of the sink.",
            _TUBE,
            [(key, gate.waiting) for key, gate in gates],
        )
        waited = CounterMetricFamily(
            "pytube_sink_limited_seconds", "Time that requests have waited for the limits.", labels=_TUBE
        )
        for key, gate in gates:
            waited.add_metric(key, gate.waited)
        yield waited

    def _of_shedding(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        yield self._by_host(
            "load_away",
            "Whether the worker leaves the tube to others for a while.",
            _TUBE,
            lambda host: [((name,), tube.metrics.is_away) for name, tube in host.of_kind(Tube).items()],
        )
        sheds = CounterMetricFamily(
            "pytube_load_sheds", "Times that it began to do so.", labels=(*self._host, *_TUBE)
        )
        for host in self._view.hosts:
            for name, tube in host.of_kind(Tube).items():
                sheds.add_metric(_key(host, name), tube.metrics.sheds)
        yield sheds

    # --- what was counted -----------------------------------------------------------------

    def _of_counters(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        counted = [
            (_key(host, name, str(number)), counters)
            for host in self._view.hosts
            for name, queue in (host.of_kind(Tube) | host.of_kind(Outbox)).items()
            for number, counters in queue.metrics.partitions.items()
        ]
        for name, text, value in _COUNTERS:
            counter = CounterMetricFamily(f"pytube_{name}", text, labels=(*self._host, *_PARTITION))
            for key, counters in counted:
                counter.add_metric(key, value(counters))
            yield counter
        for name, text, values in _COUNTERS_BY_CLASS:
            counter = CounterMetricFamily(f"pytube_{name}", text, labels=(*self._host, *_CLASS))
            for key, counters in counted:
                for kind, label in _CLASSES.items():
                    counter.add_metric((*key, label), values(counters)[kind])
            yield counter

    def _of_durations(self) -> Iterator[Metric]:
        from prometheus_client.core import HistogramMetricFamily

        for name, text, of in _HISTOGRAMS:
            family = HistogramMetricFamily(f"pytube_{name}", text, labels=(*self._host, *_TUBE))
            for host in self._view.hosts:
                for tube in host.of_kind(Tube).values():
                    histogram = of(tube.metrics)
                    bounds = [*map(str, BOUNDS), "+Inf"]
                    buckets = list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))
                    family.add_metric(_key(host, tube.name), buckets, histogram.total)
            yield family


def _sinks_up(host: Host) -> list[tuple[Sequence[str], float]]:
    """Of the partitions that are worked on; those whose sink has not been opened are led, too."""
    up = {at: one.sink_is_up for at, one in host.working().items()}
    return [(_where(at), is_up) for at, is_up in (up | dict.fromkeys(host.waiting(), False)).items()]


def _values(value: Callable[[Consumer], float], host: Host) -> list[tuple[Sequence[str], float]]:
    return [(_where(at), value(one)) for at, one in host.working().items()]


def _of_tubes(host: Host) -> Iterator[tuple[tuple[str, int], PartitionWorker]]:
    """What works on partitions of tubes."""
    for at, one in host.working().items():
        if isinstance(one, PartitionWorker):
            yield at, one


def _of_outboxes(host: Host) -> Iterator[tuple[tuple[str, int], OutboxWorker]]:
    """What works on partitions of outboxes."""
    for at, one in host.working().items():
        if isinstance(one, OutboxWorker):
            yield at, one


_COUNTERS: Sequence[tuple[str, str, Callable[[Counters], int]]] = [
    ("purged_pods", "Pods delivered and purged.", lambda one: one.pods),
    ("coalesced_touches", "Touches that joined a key that waited.", lambda one: one.coalesced),
    ("terms", "Terms that began here.", lambda one: one.terms),
    ("fences", "Terms that found that they were over.", lambda one: one.fences),
    ("trust_lapses", "Times that no proof of leadership came in time.", lambda one: one.trust_lapses),
]
_COUNTERS_BY_CLASS: Sequence[tuple[str, str, Callable[[Counters], Sequence[int]]]] = [
    ("touches", "Touches marked.", lambda one: one.touches),
    ("documents", "Documents that the sink has acknowledged.", lambda one: one.documents),
    ("skipped", "Documents that transforms skipped.", lambda one: one.skipped),
    ("retries", "Documents sent again.", lambda one: one.retries),
    ("rejects", "Documents that the sink refused for good.", lambda one: one.rejects),
    ("parked", "Documents parked.", lambda one: one.parked),
]
_HISTOGRAMS: Sequence[tuple[str, str, Callable[[TubeMetrics], Histogram]]] = [
    ("read_duration_seconds", "Time to read the rows of a batch.", lambda one: one.reads),
    ("send_duration_seconds", "Time until the sink answers a batch.", lambda one: one.sends),
]


def _key(host: Host, *values: str) -> tuple[str, ...]:
    """The values of labels, that of the host first where it has a name."""
    return values if host.name is None else (host.name, *values)


def _where(partition: tuple[str, int]) -> tuple[str, str]:
    return partition[0], str(partition[1])


def _age(since: float | None, now: float) -> float:
    return 0.0 if since is None else max(0.0, now - since)


def _pods(at: tuple[str, int], one: PartitionWorker) -> Iterator[tuple[tuple[str, ...], int]]:
    for kind, label in _CLASSES.items():
        yield (*_where(at), label), one.machine.held(kind)
    yield (*_where(at), "control"), one.machine.control


def _gauge(
    name: str, text: str, labels: Sequence[str], samples: Iterable[tuple[Iterable[str], float]]
) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(f"pytube_{name}", text, labels=labels)
    for values, value in samples:
        family.add_metric(list(values), float(value))
    return family
