"""Graphs as SVG within the page: no script draws them, and nothing is loaded for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytube.web.html import Html, joined, tag

_WIDTH, _HEIGHT = 420, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 8, 10, 24
_POINTS = 300
"""Of a line: about as many as a screen can tell apart."""


@dataclass(frozen=True, slots=True)
class Graph:
    """What one graph shows."""

    title: str
    times: Sequence[float]
    """Seconds since the epoch, ascending."""
    values: Sequence[float]
    """As many; NaN where there is none."""
    shown: Callable[[float], str]
    """A value for people."""
    clock: Callable[[float], str]
    """A time of day for people."""
    gap: float
    """Seconds without a sample, after which the line is interrupted."""


def drawn(graph: Graph) -> Html:
    """The graph with its figures in words, which is what is read out."""
    known = [value for value in graph.values if not math.isnan(value)]
    heading = tag("figcaption", tag("strong", graph.title))
    if not known:
        return tag("figure", heading, tag("p", "no sample yet", class_="quiet"), class_="graph")
    last = graph.values[-1]
    words = (
        f"now {'unknown' if math.isnan(last) else graph.shown(last)}, "
        f"at most {graph.shown(max(known))}, since {graph.clock(graph.times[0])}"
    )
    caption = tag("figcaption", tag("strong", graph.title), " ", tag("span", words, class_="quiet"))
    picture = tag(
        "svg",
        *_axes(graph, _top(max(known))),
        tag("path", d=_path(graph, _top(max(known))), class_="line") if len(known) > 1 else None,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=f"{graph.title}: {words}",
    )
    return tag("figure", caption, picture, class_="graph")


def _axes(graph: Graph, top: float) -> list[Html]:
    marks = []
    for share in (0.0, 0.5, 1.0):
        y = _y(share * top, top)
        marks += [
            tag("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_="grid"),
            tag("text", graph.shown(share * top), x=_LEFT - 6, y=y + 4, text_anchor="end"),
        ]
    first, last = graph.times[0], graph.times[-1]
    for x, anchor, moment in ((_LEFT, "start", first), (_WIDTH - _RIGHT, "end", last)):
        marks.append(tag("text", graph.clock(moment), x=x, y=_HEIGHT - 6, text_anchor=anchor))
    return [joined(marks)]


def _top(most: float) -> float:
    """The upper end of the scale: 1, 2 or 5 times a power of ten."""
    if most <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(most))
    return next(size * step for step in (1, 2, 5, 10) if size * step >= most * (1 - 1e-9))


def _path(graph: Graph, top: float) -> str:
    first, last = graph.times[0], graph.times[-1]
    span = max(last - first, 1e-9)
    parts: list[str] = []
    before: float | None = None
    for moment, value in _thinned(graph.times, graph.values):
        if math.isnan(value):
            before = None
            continue
        is_gap = before is None or moment - before > max(graph.gap, 2 * span / _POINTS)
        x = _LEFT + (moment - first) / span * (_WIDTH - _LEFT - _RIGHT)
        parts.append(f"{'M' if is_gap else 'L'}{x:.1f} {_y(value, top):.1f}")
        before = moment
    return "".join(parts)


def _thinned(times: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    """At most about `_POINTS`: of each stretch the greatest value, so that no peak is lost."""
    step = max(1, math.ceil(len(times) / _POINTS))
    found = []
    for at in range(0, len(times), step):
        stretch = values[at : at + step]
        known = [value for value in stretch if not math.isnan(value)]
        # Without a value for a part of it, a stretch still has one; where all are missing, there is a gap.
        found.append((times[min(at + step, len(times)) - 1], max(known) if known else math.nan))
    return found


def _y(value: float, top: float) -> float:
    return round(_HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM), 1)
