"""The tables of metrics, from what makes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pytube.health.prometheus import METRICS
from pytube.worker import exporter
from tests.docs.reference.markdown import code, codes, sentence, table

_HEADINGS = ("metric", "type", "labels", "meaning")


def parts() -> Mapping[str, str]:
    """The table of each source of metrics."""
    fleet = [_row(f"pytube_fleet_{name}", "gauge", labels, text) for name, text, labels, _ in METRICS]
    return {
        "worker": table(_HEADINGS, sorted(_of_worker())),
        "outboxes": table(_HEADINGS, sorted(_rows("gauge", exporter.OF_OUTBOXES))),
        "fleet": table(_HEADINGS, sorted(fleet)),
    }


def _of_worker() -> Iterable[tuple[str, ...]]:
    for gauges in (exporter.OF_PROCESS, exporter.GAUGES, exporter.OF_SINKS):
        yield from _rows("gauge", gauges)
    for counters in (exporter.COUNTERS, exporter.COUNTERS_OF_SINKS):
        yield from _rows("counter", counters)
    yield from _rows("histogram", exporter.HISTOGRAMS)


def _rows(kind: str, metrics: exporter.Described) -> Iterable[tuple[str, ...]]:
    suffix = "_total" if kind == "counter" else ""
    for name, (text, labels) in metrics.items():
        yield _row(f"pytube_{name}{suffix}", kind, labels, text)


def _row(name: str, kind: str, labels: Sequence[str], text: str) -> tuple[str, ...]:
    return code(name), kind, codes(labels), sentence(text)
