"""Plots of the results as SVG, by hand, since a few bars need no library.

Each has a background, as a site may be dark where a picture cannot know it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, log

from bench.frame.results import Results

WIDTH, LEFT, RIGHT = 780, 236, 200
TOP, ROW, FOOT = 64, 26, 34
INK, FAINT, LINE, PAPER = "#1f2937", "#6b7280", "#d1d5db", "#ffffff"
COLORS = ("#2563eb", "#d97706", "#059669")
SINKS = ("no-op", "redis", "opensearch")
WAITING, NOT = "synchronous_commit on", "synchronous_commit off"
_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" role="img" '
    'font-family="system-ui, sans-serif" font-size="12">'
)
_NUMBERS = re.compile(r"[\d,]+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Bar:
    """A line of a plot: a label, marks, and the least and greatest of them."""

    label: str
    value: float
    low: float
    high: float
    text: str
    color: int = 0

    @classmethod
    def of(cls, label: str, cell: str, color: int = 0) -> Bar:
        """From a cell such as `1.02 (0.90 to 1.07)`, or with one figure alone."""
        value, low, high = (_numbers(cell) * 3)[:3]
        return cls(label, value, low, high, cell, color)

    @classmethod
    def range(cls, label: str, middle: str, high: str, color: int = 0) -> Bar:
        """From a median to a percentile above it."""
        least, most = float(middle), float(high)
        return cls(label, least, least, most, f"{middle} to {high}", color)


@dataclass(frozen=True, slots=True)
class Plot:
    """Horizontal bars with the same scale."""

    title: str
    subtitle: str
    bars: Sequence[Bar]
    legend: Sequence[str] = ()
    """What the colors mean, in their order."""
    ranges: bool = False
    """Draw from the value to the greatest figure, on a logarithmic scale, rather than bars from 0."""
    mark: float | None = None
    """A value to compare with: a line through all bars."""

    @property
    def ticks(self) -> list[float]:
        """The marks of the scale; the last one is above all bars."""
        most = max([self.mark or 0.0, *(bar.high for bar in self.bars)])
        if self.ranges:
            least = min(bar.low for bar in self.bars)
            known = [step * 10.0**power for power in range(-3, 7) for step in (1, 3)]
            first = max(tick for tick in known if tick <= least)
            return [tick for tick in known if tick >= first and (tick < most or tick == _above(known, most))]
        step = _above([unit * 10.0**power for power in range(-3, 9) for unit in (1, 2, 2.5, 5)], most / 5)
        return [step * number for number in range(ceil(most / step) + 1)]

    def svg(self) -> str:
        """The picture."""
        height = TOP + ROW * len(self.bars) + FOOT
        bottom = TOP + ROW * len(self.bars)
        parts = [
            _SVG.format(WIDTH, height),
            f"<title>{escape(self.title)}</title>",
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="{PAPER}" stroke="{LINE}"/>',
            _text(16, 24, self.title, INK, size=14, weight=600),
            _text(16, 42, self.subtitle, FAINT),
            *self._legend(),
        ]
        for tick in self.ticks:
            x = self._x(tick)
            parts.append(f'<path d="M{x:.1f} {TOP - 4}V{bottom}" stroke="{LINE}"/>')
            parts.append(_text(x, bottom + 18, _figure(tick), FAINT, anchor="middle"))
        if self.mark is not None:
            x = self._x(self.mark)
            parts.append(f'<path d="M{x:.1f} {TOP - 4}V{bottom}" stroke="{INK}" stroke-dasharray="4 3"/>')
        for number, bar in enumerate(self.bars):
            parts += self._bar(bar, TOP + ROW * number)
        return "\n".join([*parts, "</svg>"]) + "\n"

    def _bar(self, bar: Bar, top: float) -> list[str]:
        color, middle = COLORS[bar.color], top + ROW / 2
        low, value, high = self._x(bar.low), self._x(bar.value), self._x(bar.high)
        if self.ranges:
            hollow = f'stroke="{color}" stroke-width="2"'
            body = [
                f'<path d="M{value:.1f} {middle:.1f}H{high:.1f}" stroke="{color}" stroke-width="4"/>',
                f'<circle cx="{value:.1f}" cy="{middle:.1f}" r="5" fill="{color}"/>',
                f'<circle cx="{high:.1f}" cy="{middle:.1f}" r="4" fill="{PAPER}" {hollow}/>',
            ]
        else:
            size = f'width="{value - LEFT:.1f}" height="{ROW - 10}"'
            body = [
                f'<rect x="{LEFT}" y="{top + 5:.1f}" {size} fill="{color}"/>',
                f'<path d="M{low:.1f} {middle:.1f}H{high:.1f}" stroke="{INK}" stroke-width="1.5"/>',
            ]
        return [
            _text(LEFT - 10, middle + 4, bar.label, INK, anchor="end"),
            *body,
            _text(WIDTH - 16, middle + 4, bar.text, FAINT, anchor="end", size=11),
        ]

    def _legend(self) -> list[str]:
        parts = []
        x = WIDTH - 16.0
        for number, text in reversed(list(enumerate(self.legend))):
            parts.append(_text(x, 24, text, COLORS[number], anchor="end", weight=600))
            x -= 7.2 * len(text) + 14
        return parts

    def _x(self, value: float) -> float:
        least, most = (self.ticks[0], self.ticks[-1])
        share = (value - least) / (most - least)
        if self.ranges:
            share = log(value / least) / log(most / least)
        return LEFT + share * (WIDTH - LEFT - RIGHT)


@dataclass(frozen=True, slots=True)
class Curves:
    """Steps over time, in seconds on both axes: each figure is that of the second which begins there."""

    title: str
    subtitle: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    """Points by the name of a line. The first line is drawn over the others."""
    height: int = 320

    def svg(self) -> str:
        """The picture."""
        left, right, top, bottom = 48.0, WIDTH - 24.0, TOP, self.height - FOOT - 16.0
        points = [point for line in self.lines.values() for point in line]
        times, most = [at for at, _ in points], max(value for _, value in points)
        first, last = min(times), max(times) + 1
        step = next(one for one in (1, 2, 5, 10, 20, 50) if one >= most / 5)
        highest = step * ceil(most / step)

        def x(at: float) -> float:
            return left + (at - first) / (last - first) * (right - left)

        def y(value: float) -> float:
            return bottom - value / highest * (bottom - top)

        parts = [
            _SVG.format(WIDTH, self.height),
            f"<title>{escape(self.title)}</title>",
            f'<rect width="{WIDTH}" height="{self.height}" rx="8" fill="{PAPER}" stroke="{LINE}"/>',
            _text(16, 24, self.title, INK, size=14, weight=600),
            _text(16, 42, self.subtitle, FAINT),
        ]
        for value in range(0, highest + 1, step):
            parts.append(f'<path d="M{left} {y(value):.1f}L{right} {y(value):.1f}" stroke="{LINE}"/>')
            parts.append(_text(left - 8, y(value) + 4, f"{value} s", FAINT, anchor="end"))
        marks = range(ceil(first / 5) * 5, int(last) + 1, 5)
        parts += [_text(x(at), bottom + 18, f"{at} s", FAINT, anchor="middle") for at in marks]
        parts.append(f'<path d="M{x(0):.1f} {top}V{bottom}" stroke="{INK}" stroke-dasharray="4 3"/>')
        parts.append(_text(x(0) - 6, top + 12, "SIGKILL", INK, anchor="end"))
        for number, (name, line) in reversed(list(enumerate(self.lines.items()))):
            path = "L".join(f"{x(at + end):.1f} {y(value):.1f}" for at, value in line for end in (0, 1))
            parts.append(f'<path d="M{path}" fill="none" stroke="{COLORS[number]}" stroke-width="2.5"/>')
            parts.append(_text(right, top + 12 + 18 * number, name, COLORS[number], anchor="end", weight=600))
        parts.append(
            _text((left + right) / 2, self.height - 12, "time of the commit", FAINT, anchor="middle")
        )
        return "\n".join([*parts, "</svg>"]) + "\n"


def drawn(results: Results) -> dict[str, str]:
    """The plots of docs/plots by name."""
    plots: dict[str, Plot | Curves] = {
        "throughput": _throughput(results),
        "latency": _latency(results),
        "latency-by-rate": _by_rate(results),
        "writers": _writers(results),
        "kill": _kill(results),
    }
    return {name: plot.svg() for name, plot in plots.items()}


def _throughput(results: Results) -> Plot:
    rows = {
        "postgres, a column of jsonb": ("sink_postgres", "sink, a column of jsonb"),
        "kafka": ("sink_kafka", "sink"),
        "opensearch": ("opensearch", "sink"),
        "redis, JSON": ("sink_redis", 'the sink, `mode = "json"`'),
        "redis, hashes": ("sink_redis", 'the sink, `mode = "hash"`'),
        "webhook, signed": ("sink_webhook", "the sink, signed"),
    }
    bars = [
        Bar.of(label, results.sections[scenario].cell("", row, "documents/s"))
        for label, (scenario, row) in rows.items()
    ]
    return Plot(
        "Documents a second, by sink",
        "one process, 500 documents a batch, 4 batches at once; the thin line: least and greatest",
        bars,
    )


def _latency(results: Results) -> Plot:
    rows = {
        "one change every 150 ms": ("latency", "idle, 150 ms apart"),
        "one every 20 ms": ("latency", "idle, 20 ms apart"),
        "one every 5 ms": ("latency", "idle, 5 ms apart"),
        "beside pgbench at half of its most": ("latency", "under *"),
        "no backfill, same run as below": ("backfill", "no backfill"),
        "beside a backfill of 10,000 rows/s": ("backfill", "backfill of 10,000 rows/s"),
        "beside a backfill without a limit": ("backfill", "backfill"),
    }
    bars = []
    for label, (scenario, row) in rows.items():
        p50, p99 = (results.sections[scenario].cell("", row, share) for share in ("p50", "p99"))
        bars.append(Bar.range(label, p50, p99))
    return Plot(
        "From COMMIT to the call of the sink, ms",
        "p50 (full) to p99 (hollow), logarithmic",
        bars,
        ranges=True,
    )


def _by_rate(results: Results) -> Plot:
    bars = []
    for rate in ("100", "1,000", "3,000"):
        for number, sink in enumerate(SINKS):
            p50, p99 = (
                results.sections["moderate"].cell(f"{sink}, updates/s", rate, column)
                for column in ("late, p50 ms", "p99 ms")
            )
            bars.append(Bar.range(f"{rate} updates/s, {sink}", p50, p99, number))
    return Plot(
        "From COMMIT to the sink's answer, ms",
        "p50 (full) to p99 (hollow), logarithmic; single rows, 4 partitions",
        bars,
        SINKS,
        ranges=True,
    )


def _writers(results: Results) -> Plot:
    bars = [
        _ratio(results, f"1-row {operation}", how, color)
        for color, how in enumerate((WAITING, NOT))
        for operation in ("UPDATE", "UPSERT", "INSERT", "DELETE")
    ]
    bars += [
        Bar.of(
            f"1000-row {operation}",
            results.sections["capture"].cell(f"1000-row {operation}", "1 partition", "ratio to no tube"),
            2,
        )
        for operation in ("INSERT", "UPDATE", "DELETE")
    ]
    return Plot(
        "Writers' rate with a tube, to the same without",
        "the thin line: least and greatest of the rounds",
        bars,
        ("commits wait for the disk", "no waiting", "bulk"),
        mark=1,
    )


def _kill(results: Results) -> Curves:
    """The section's only table: the second, the lag of the victim's partitions, the lag of the others."""
    (rows,) = [part.rows for part in results.sections["kill"].parts if not isinstance(part, str)]
    return Curves(
        "Lag through a kill",
        "longest time from COMMIT to the call of the sink, of the changes committed in each second",
        {
            "partitions of the killed worker": [(float(row[0]), float(row[1])) for row in rows],
            "partitions of the other worker": [(float(row[0]), float(row[2])) for row in rows],
        },
    )


def _ratio(results: Results, operation: str, how: str, color: int) -> Bar:
    cell = results.sections["capture"].cell(f"{operation}, {how}", "1 partition", "ratio to no tube")
    return Bar.of(operation if how == WAITING else f"{operation}, no waiting", cell, color)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def _above(values: Sequence[float], value: float) -> float:
    return min(one for one in values if one >= value)


def _numbers(cell: str) -> list[float]:
    return [float(number.replace(",", "")) for number in _NUMBERS.findall(cell)]


def _text(
    x: float, y: float, text: str, color: str, *, anchor: str = "start", size: int = 12, weight: int = 400
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" text-anchor="{anchor}" font-size="{size}" '
        f'font-weight="{weight}">{escape(text)}</text>'
    )
