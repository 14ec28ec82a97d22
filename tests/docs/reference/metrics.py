"""The tables of metrics, from what makes them, and that of alerts, from their rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from pytube.health.prometheus import METRICS
from pytube.worker import exporter
from tests.docs.alerts import RULES
from tests.docs.reference.markdown import code, codes, sentence, table

_HEADINGS = ("metric", "type", "labels", "meaning")


def parts() -> Mapping[str, str]:
    """The table of each source of metrics, and the alerts."""
    fleet = [_row(f"pytube_fleet_{name}", "gauge", labels, text) for name, text, labels, _ in METRICS]
    return {
        "worker": table(_HEADINGS, sorted(_of_worker())),
        "outboxes": table(_HEADINGS, sorted(_rows("gauge", exporter.OF_OUTBOXES))),
        "fleet": table(_HEADINGS, sorted(fleet)),
        "alerts": _alerts(),
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


def _alerts() -> str:
    """Each alert, how bad it is, and for how long its condition has to hold."""
    rows = []
    for rule in re.split(r"^ +- alert: ", RULES.read_text(), flags=re.MULTILINE)[1:]:
        name = rule.split()[0]
        severity = re.search(r"severity: (\w+)", rule)
        wait = re.search(r"^ +for: (\w+)$", rule, re.MULTILINE)
        metrics = dict.fromkeys(re.findall(r"\b(?:pytube|node)_\w+", re.findall(r"expr: '(.*)'", rule)[0]))
        assert severity, name
        link = f"[{name}](runbook.md#{name.lower()})"
        rows.append((link, severity[1], wait[1] if wait else "0m", code(next(iter(metrics)))))
    return table(("alert", "severity", "after", "on"), rows)
