"""The tables of metrics, from what makes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pytube.health.prometheus import METRICS as OF_FLEET
from pytube.worker.metrics import METRICS
from tests.docs.reference.markdown import code, codes, sentence, table

_HEADINGS = ("metric", "type", "labels", "meaning")


def parts() -> Mapping[str, str]:
    """The table of each source of metrics."""
    fleet = [_row(f"pytube_fleet_{name}", "gauge", labels, text) for name, text, labels, _ in OF_FLEET]
    return {
        "worker": table(_HEADINGS, sorted(_of_worker(of_outboxes=False))),
        "outboxes": table(_HEADINGS, sorted(_of_worker(of_outboxes=True))),
        "fleet": table(_HEADINGS, sorted(fleet)),
    }


def _of_worker(*, of_outboxes: bool) -> Iterable[tuple[str, ...]]:
    for one in METRICS:
        if (one.of == "outbox") is of_outboxes:
            suffix = "_total" if one.kind == "counter" else ""
            yield _row(f"pytube_{one.name}{suffix}", one.kind, one.labels, one.text)


def _row(name: str, kind: str, labels: Sequence[str], text: str) -> tuple[str, ...]:
    return code(name), kind, codes(labels), sentence(text)
