"""What the table of `pytube top` shows: which rows and columns, for which width, in which order. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytube.cli.output import seconds
from pytube.cli.workers import partitions_shown, printable
from pytube.health.fleet import MOST, FleetSample, Partition, Queue, Worker


class View(enum.Enum):
    """What a row stands for."""

    TUBES = "tubes"
    PARTITIONS = "partitions"
    WORKERS = "workers"


Row = Queue | Partition | Worker


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one view."""

    heading: str
    text: Callable[[Any], str]
    rank: Callable[[Any], Any]
    """What rows are sorted by; the first sort of a number shows the greatest first."""
    width: int
    least: int = 0
    """Terminals narrower than this do without it."""
    is_number: bool = False
    keeps_end: bool = False
    """Whether a text that is too long loses its middle, since its end tells it from others."""


_SEVERITY: Final = {
    "stopped": 7,
    "lost": 6,
    "sink down": 5,
    "source down": 4,
    "free": 3,
    "pausing": 2,
    "paused": 1,
    "leads": 0,
}
_UNKNOWN: Final = -1.0


def _number(value: float | None) -> float:
    return _UNKNOWN if value is None else value


def _waiting(one: Partition) -> float:
    text = str(one.waiting if one.waiting is not None else _UNKNOWN)
    return float(text.lstrip("~").rstrip("+"))


def _total(queue: Queue, count: Callable[[Partition], float | None]) -> str:
    """The sum over partitions; with a plus where counting stopped, or a partition was not counted."""
    counts = [count(one) for one in queue.partitions]
    known = [value for value in counts if value is not None and value >= 0]
    if not known:
        return "?"
    open_end = len(known) < len(counts) or (queue.kind == "tube" and MOST in known)
    return f"{sum(known):.0f}{'+' if open_end else ''}"


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def _count(value: int | None) -> str:
    return "?" if value is None else str(value)


def worst(queue: Queue) -> str:
    """The state that needs most attention among its partitions."""
    return max((one.state for one in queue.partitions), key=_SEVERITY.__getitem__)


def _worst_shown(queue: Queue) -> str:
    state = worst(queue)
    of = sum(one.state == state for one in queue.partitions)
    return state if of == len(queue.partitions) else f"{state} {of}/{len(queue.partitions)}"


def _leaders(queue: Queue) -> str:
    return ", ".join(sorted({one.leader for one in queue.partitions if one.leader is not None})) or "nobody"


def _name(queue: Queue) -> str:
    return queue.name if queue.host is None else f"{queue.host}:{queue.name}"


def _partition_name(one: Partition) -> str:
    return f"{one.name if one.host is None else f'{one.host}:{one.name}'}/{one.partition}"


_TUBES: Final = (
    Column("name", _name, lambda q: (q.host or "", q.name), 16, keeps_end=True),
    Column("kind", lambda q: q.kind, lambda q: q.kind, 6, 110),
    Column("parts", lambda q: str(len(q.partitions)), lambda q: len(q.partitions), 5, 100, True),
    Column(
        "waiting",
        lambda q: _total(q, _waiting),
        lambda q: sum(max(0.0, _waiting(one)) for one in q.partitions),
        7,
        0,
        True,
    ),
    Column(
        "backfill",
        lambda q: "-" if q.kind == "outbox" else _total(q, lambda one: one.backfill),
        lambda q: sum(one.backfill or 0 for one in q.partitions),
        8,
        90,
        True,
    ),
    Column("lag", lambda q: seconds(q.lag), lambda q: _number(q.lag), 7, 0, True),
    Column("in/s", lambda q: _rate(q.rate_in), lambda q: _number(q.rate_in), 6, 76, True),
    Column("out/s", lambda q: _rate(q.rate_out), lambda q: _number(q.rate_out), 6, 66, True),
    Column("parked", lambda q: _count(q.parked), lambda q: _number(q.parked), 6, 0, True),
    Column(
        "retry",
        lambda q: "-" if q.kind == "outbox" else _count(q.retrying),
        lambda q: _number(q.retrying),
        5,
        80,
        True,
    ),
    Column("state", _worst_shown, lambda q: _SEVERITY[worst(q)], 15),
    Column("leaders", _leaders, _leaders, 20, 120),
)
_PARTITIONS: Final = (
    Column("partition", _partition_name, lambda p: (p.host or "", p.name, p.partition), 16, keeps_end=True),
    Column("kind", lambda p: p.kind, lambda p: p.kind, 6, 130),
    Column("waiting", lambda p: p.counted, _waiting, 7, 0, True),
    Column("backfill", lambda p: _count(p.backfill), lambda p: _number(p.backfill), 8, 100, True),
    Column("lag", lambda p: seconds(p.lag), lambda p: _number(p.lag), 7, 0, True),
    Column("parked", lambda p: _count(p.parked), lambda p: _number(p.parked), 6, 70, True),
    Column("retry", lambda p: _count(p.retrying), lambda p: _number(p.retrying), 5, 90, True),
    Column("state", lambda p: p.state, lambda p: _SEVERITY[p.state], 11),
    Column("leader", lambda p: p.leader or "nobody", lambda p: p.leader or "", 14, keeps_end=True),
    Column("renewed", lambda p: seconds(p.renewed_ago), lambda p: _number(p.renewed_ago), 7, 110, True),
    Column("leads for", lambda p: seconds(p.leads_for), lambda p: _number(p.leads_for), 9, 120, True),
    Column("epoch", lambda p: _count(p.epoch), lambda p: _number(p.epoch), 11, 140, True),
    Column("election", lambda p: p.election or "-", lambda p: p.election or "", 8, 150),
)
_WORKERS: Final = (
    Column("worker", lambda w: w.client_id or "?", lambda w: w.client_id or "", 16),
    Column("instance", lambda w: w.instance, lambda w: w.instance, 12, 100),
    Column("version", lambda w: w.version or "?", lambda w: w.version or "", 10, 70),
    Column("election", lambda w: ",".join(sorted(w.elections)) or "-", lambda w: sorted(w.elections), 8, 80),
    Column("seen", lambda w: seconds(w.seen_ago), lambda w: _number(w.seen_ago), 7, 0, True),
    Column("heartbeat", lambda w: seconds(w.heard_ago), lambda w: _number(w.heard_ago), 9, 90, True),
    Column("leads", lambda w: str(len(w.leads)), lambda w: len(w.leads), 5, 0, True),
    Column("partitions", lambda w: partitions_shown(w.leads) or "-", lambda w: len(w.leads), 20),
)
_COLUMNS: Final = {View.TUBES: _TUBES, View.PARTITIONS: _PARTITIONS, View.WORKERS: _WORKERS}
_GAP: Final = 2
"""Columns of the terminal between two of the table."""


def columns(view: View, width: int) -> list[tuple[Column, int]]:
    """Those that a terminal of this width shows, with their widths; names and lists take what is left."""
    shown = [column for column in _COLUMNS[view] if column.least <= width]
    left = width - sum(column.width + _GAP for column in shown)
    stretched = [
        column for column in (shown[0], shown[-1]) if not column.is_number and column.heading != "state"
    ]
    if view is View.PARTITIONS:
        stretched = [column for column in shown if column.heading in ("partition", "leader")]
    widths = []
    for column in shown:
        more = max(-6, left // len(stretched)) if column in stretched else 0
        widths.append((column, column.width + more))
    return widths


def rows(sample: FleetSample, view: View, needle: str, of: tuple[str | None, str] | None) -> Sequence[Row]:
    """The rows of a view whose texts hold `needle`; `of`: only partitions of this host and tube."""
    found: Sequence[Row]
    match view:
        case View.TUBES:
            found = sample.queues
        case View.PARTITIONS:
            found = [one for one in sample.partitions if of is None or (one.host, one.name) == of]
        case View.WORKERS:
            found = sample.workers
    wanted = needle.casefold()
    return [
        row
        for row in found
        if any(wanted in column.text(row).casefold() for column in _COLUMNS[view] if not column.is_number)
    ]


def ordered(found: Sequence[Row], column: Column, *, reverse: bool) -> list[Row]:
    """The rows by a column; rows that are equal stay as they were."""
    return sorted(found, key=column.rank, reverse=column.is_number != reverse)


def row_key(row: Row) -> str:
    """What tells a row of a view from the others, so that the cursor stays on it."""
    match row:
        case Queue():
            return f"{row.host}\0{row.name}"
        case Partition():
            return f"{row.host}\0{row.name}\0{row.partition}"
        case Worker():
            return f"{row.host}\0{row.instance}\0{row.client_id}"


def troubles(sample: FleetSample) -> list[str]:
    """A line for each host that was not read, sink or source that is down, and pause."""
    found = []
    for host in sample.hosts:
        name = "" if host.host is None else f"host {host.host}: "
        if host.down is not None:
            found.append(f"{name}not read: {host.down}")
        found += [f"{name}{what}" for what in host.not_read]
    for one in sample.partitions:
        name = f"{_partition_name(one)}: "
        if one.sink_down is not None:
            found.append(f"{name}sink down for {seconds(one.sink_down_for)}: {one.sink_down}")
        if one.source_down is not None:
            found.append(f"{name}source down for {seconds(one.source_down_for)}: {one.source_down}")
        if one.paused is not None:
            left = "until resumed" if one.paused_for is None else f"for another {seconds(one.paused_for)}"
            found.append(
                f"{name}{'paused' if one.paused_kind == 'operator' else 'stopped'} {left}: {one.paused}"
            )
        if one.problem is not None:
            found.append(f"{name}not counted: {one.problem}")
    return [printable(line) for line in found]
