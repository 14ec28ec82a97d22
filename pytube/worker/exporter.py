"""The worker's metrics in the terms of Prometheus, made at a scrape from what the worker has counted.

Nothing here asks Postgres: a scrape costs the database nothing, and is answered while Postgres is down.
What only the database knows is told by `pytube status --prometheus`, once for the fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from time import time
from typing import TYPE_CHECKING

import pytube
from pytube.model import PodClass
from pytube.worker.database import Database
from pytube.worker.metrics import BOUNDS, Counters, Histogram, TubeMetrics
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

    tubes: Mapping[str, Tube]
    database: Database
    labels: Mapping[str, str]
    """Of `pytube_worker_info`."""
    working: Callable[[], Mapping[tuple[str, int], Consumer]]
    """The partitions that this process works on now."""
    waiting: Callable[[], Collection[tuple[str, int]]]
    """The partitions that it leads, and of which the sink has not been opened."""
    is_ready: Callable[[], bool]


class WorkerCollector:
    """A collector for a registry of `prometheus_client`."""

    def __init__(self, view: View) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        """All metrics, with their present values."""
        yield from self._of_process()
        yield from self._of_led()
        yield from self._of_gates()
        yield from self._of_shedding()
        yield from self._of_counters()
        yield from self._of_durations()

    # --- the process ----------------------------------------------------------------------

    def _of_process(self) -> Iterator[Metric]:
        database, settled = self._view.database, self._view.database.settled
        info = {"version": pytube.__version__, **self._view.labels}
        yield _gauge("worker_info", "Version and name of the worker.", tuple(info), [(info.values(), 1)])
        yield _plain("worker_ready", "Whether /readyz answers 200.", self._view.is_ready())
        yield _plain("postgres_up", "Whether terms can be renewed.", database.renews)
        sessions = {"service": database.services, "busy": database.pool.busy, "idle": database.pool.idle}
        yield _gauge(
            "postgres_sessions",
            "Sessions with Postgres: of services, and busy and idle ones of the pool.",
            ("use",),
            [((use,), count) for use, count in sessions.items()],
        )
        yield _plain("postgres_pool_size", "Sessions that the pool may have.", database.pool.size)
        yield _gauge(
            "settled_age_seconds",
            "How long the settled seq has been behind what was drawn.",
            (),
            [((), settled.age)] if settled is not None else [],
        )
        yield _gauge(
            "settled_long_writers",
            "Open transactions that hold back the settled seq.",
            (),
            [((), settled.long_writers)] if settled is not None else [],
        )

    # --- partitions that are led ----------------------------------------------------------

    def _of_led(self) -> Iterator[Metric]:
        working = self._view.working()
        where = [
            (name, number) for name, tube in self._view.tubes.items() for number in range(tube.partitions)
        ]
        yield _gauge(
            "partition_led",
            "Whether this worker leads the partition and works on it.",
            _PARTITION,
            [(_key(one), one in working) for one in where],
        )
        sinks = {at: one.sink_is_up for at, one in working.items()}
        sinks |= dict.fromkeys(self._view.waiting(), False)
        yield _gauge(
            "sink_up",
            "Whether the sink takes documents.",
            _PARTITION,
            [(_key(at), is_up) for at, is_up in sinks.items()],
        )
        flags: list[tuple[str, str, Callable[[Consumer], float]]] = [
            ("source_up", "Whether rows can be read.", lambda one: one.source_is_up),
            ("partition_trusted", "Whether the term may send now.", lambda one: one.is_trusted),
        ]
        for name, text, value in flags:
            yield _gauge(name, text, _PARTITION, [(_key(at), value(one)) for at, one in working.items()])
        yield from _of_tubes({at: one for at, one in working.items() if isinstance(one, PartitionWorker)})

    def _of_gates(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        gates = [((name,), tube.gate) for name, tube in self._view.tubes.items()]
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

        counted = [((name,), tube.metrics) for name, tube in self._view.tubes.items()]
        yield _gauge(
            "load_away",
            "Whether the worker leaves the tube to others for a while.",
            _TUBE,
            [(key, metrics.is_away) for key, metrics in counted],
        )
        sheds = CounterMetricFamily("pytube_load_sheds", "Times that it began to do so.", labels=_TUBE)
        for key, metrics in counted:
            sheds.add_metric(key, metrics.sheds)
        yield sheds

    # --- what was counted -----------------------------------------------------------------

    def _of_counters(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        counted = [
            (_key((name, number)), counters)
            for name, tube in self._view.tubes.items()
            for number, counters in tube.metrics.partitions.items()
        ]
        for name, text, value in _COUNTERS:
            counter = CounterMetricFamily(f"pytube_{name}", text, labels=_PARTITION)
            for key, counters in counted:
                counter.add_metric(key, value(counters))
            yield counter
        for name, text, values in _COUNTERS_BY_CLASS:
            counter = CounterMetricFamily(f"pytube_{name}", text, labels=_CLASS)
            for key, counters in counted:
                for kind, label in _CLASSES.items():
                    counter.add_metric((*key, label), values(counters)[kind])
            yield counter

    def _of_durations(self) -> Iterator[Metric]:
        from prometheus_client.core import HistogramMetricFamily

        for name, text, of in _HISTOGRAMS:
            family = HistogramMetricFamily(f"pytube_{name}", text, labels=_TUBE)
            for tube in self._view.tubes.values():
                histogram = of(tube.metrics)
                bounds = [*map(str, BOUNDS), "+Inf"]
                buckets = list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))
                family.add_metric((tube.name,), buckets, histogram.total)
            yield family


def _of_tubes(working: Mapping[tuple[str, int], PartitionWorker]) -> Iterator[Metric]:
    """What partitions of tubes hold."""
    now = time()
    yield _gauge(
        "keys_in_flight",
        "Keys that are being delivered.",
        _PARTITION,
        [(_key(at), one.machine.flying) for at, one in working.items()],
    )
    yield _gauge(
        "lag_seconds",
        "Age of the oldest pod that is not delivered; 0 when there is none.",
        _CLASS,
        [
            ((*_key(at), text), _age(one.machine.oldest(kind), now))
            for at, one in working.items()
            for kind, text in _CLASSES.items()
        ],
    )
    yield _gauge(
        "pods",
        "Pods that the worker holds: marked, not yet purged.",
        _CLASS,
        [(key, value) for at, one in working.items() for key, value in _pods(at, one)],
    )
    yield _gauge(
        "keys_waiting",
        "Keys that wait to be delivered.",
        _CLASS,
        [
            ((*_key(at), text), one.machine.waiting(kind))
            for at, one in working.items()
            for kind, text in _CLASSES.items()
        ],
    )


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


def _key(where: tuple[str, int]) -> tuple[str, str]:
    return where[0], str(where[1])


def _age(since: float | None, now: float) -> float:
    return 0.0 if since is None else max(0.0, now - since)


def _pods(where: tuple[str, int], one: PartitionWorker) -> Iterator[tuple[tuple[str, ...], int]]:
    for kind, label in _CLASSES.items():
        yield (*_key(where), label), one.machine.held(kind)
    yield (*_key(where), "control"), one.machine.control


def _plain(name: str, text: str, value: float) -> Metric:
    return _gauge(name, text, (), [((), value)])


def _gauge(
    name: str, text: str, labels: Sequence[str], samples: Iterable[tuple[Iterable[str], float]]
) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(f"pytube_{name}", text, labels=labels)
    for values, value in samples:
        family.add_metric(list(values), float(value))
    return family
