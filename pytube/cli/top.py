"""The table of `pytube top`: which rows and columns it has, and the keys that choose them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.widgets import DataTable, Footer, Input, Static

import pytube
from pytube.cli.output import partitions_shown, seconds
from pytube.counts import printable, say_count
from pytube.db.database import Database
from pytube.health.disagreements import disagreements
from pytube.health.fleet import STATES, Count, FleetSample, Partition, Queue, Worker
from pytube.health.troubles import lines
from pytube.health.watcher import FleetWatcher

_LATE: Final = 3.0
"""Intervals, and at least seconds, without a sample after which the screen says that no answer comes."""
_OLD: Final = 2.5
"""Seconds after which partitions are said to be old: they are read less often where that takes long."""
_TROUBLES: Final = 5
"""Lines that are kept for troubles; `x` shows all."""
_GAP: Final = 2
"""Columns of the terminal between two of the table."""
_LONGEST: Final = 40
"""Characters of a cell; a longer one loses its middle, since its end often identifies it."""

_COLORS: Final = {"bad": "red", "warn": "yellow", "good": "green"}
_CALMER: Final = {state: number for number, state in enumerate(STATES)}

Row = Queue | Partition | Worker


# --- columns: in the order in which a narrow terminal gives them up, the last ones first --------------


class Column(NamedTuple):
    """A column of one view."""

    heading: str
    of: Callable[[Any], Any]
    """The value of a row."""
    shown: Callable[[Any], str] | None = None
    """Of a number, which is sorted with the greatest first: its text."""
    rank: Callable[[Any], Any] | None = None
    """What rows are sorted by, where it is not the value."""

    def text(self, row: Row) -> str:
        """What the row shows."""
        value = self.of(row)
        text = printable(self.shown(value) if self.shown else value)
        half = _LONGEST // 2
        return text if len(text) <= _LONGEST else f"{text[: half - 1]}…{text[-half:]}"

    def sorted(self, rows: Sequence[Row], *, reverse: bool) -> list[Row]:
        """The rows by this column; equal rows keep their order."""
        return sorted(rows, key=self.rank or self._rank, reverse=(self.shown is not None) != reverse)

    def _rank(self, row: Row) -> Any:
        value = self.of(row)
        if self.shown is None:
            return value
        number = value.number if isinstance(value, Count) else value
        return number if isinstance(number, int | float) else -1


def _count(value: object) -> str:
    return "?" if value is None else str(value)


def _of_tube(row: Queue | Partition, value: object) -> object:
    """What outboxes do not have."""
    return value if row.kind == "tube" else "-"


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def _name(row: Queue | Partition) -> str:
    return row.name if row.host is None else f"{row.host}:{row.name}"


def _worst(queue: Queue) -> int:
    return min(_CALMER[one.state] for one in queue.partitions)


def _states(queue: Queue) -> str:
    """The state that needs most attention, and of how many partitions it is."""
    state = list(STATES)[_worst(queue)]
    of = sum(one.state == state for one in queue.partitions)
    return state if of == len(queue.partitions) else f"{state} {of}/{len(queue.partitions)}"


def _leaders(queue: Queue) -> str:
    return ", ".join(sorted({one.leader for one in queue.partitions if one.leader is not None})) or "none"


_VIEWS: Final[dict[str, Sequence[Column]]] = {
    "tubes": (
        Column("name", _name),
        Column("waiting", lambda q: Count.total(one.waiting for one in q.partitions), _count),
        Column("lag", lambda q: q.lag, seconds),
        Column("parked", lambda q: q.parked, _count),
        Column("state", _states, rank=_worst),
        Column("out/s", lambda q: q.rate_out, _rate),
        Column("in/s", lambda q: q.rate_in, _rate),
        Column("retry", lambda q: _of_tube(q, q.retrying), _count),
        Column("backfill", lambda q: _of_tube(q, Count.total(one.backfill for one in q.partitions)), _count),
        Column("parts", lambda q: len(q.partitions), str),
        Column("kind", lambda q: q.kind),
        Column("leaders", _leaders),
    ),
    "partitions": (
        Column(
            "partition",
            lambda p: f"{_name(p)}/{p.partition}",
            rank=lambda p: (p.host or "", p.name, p.partition),
        ),
        Column("waiting", lambda p: p.waiting, _count),
        Column("lag", lambda p: p.lag, seconds),
        Column("state", lambda p: p.state, rank=lambda p: _CALMER[p.state]),
        Column("leader", lambda p: p.leader or "none"),
        Column("parked", lambda p: p.parked, _count),
        Column("retry", lambda p: _of_tube(p, p.retrying), _count),
        Column("backfill", lambda p: _of_tube(p, p.backfill), _count),
        Column("renewed", lambda p: p.renewed_ago, seconds),
        Column("leads for", lambda p: p.leads_for, seconds),
        Column("kind", lambda p: p.kind),
        Column("epoch", lambda p: p.epoch, _count),
        Column("election", lambda p: p.election or "-"),
    ),
    "workers": (
        Column("worker", lambda w: w.client_id or "?"),
        Column("seen", lambda w: w.seen_ago, seconds),
        Column("leads", lambda w: len(w.leads), str),
        Column("version", lambda w: w.version or "?"),
        Column("election", lambda w: ",".join(sorted(w.elections)) or "-"),
        Column("instance", lambda w: w.instance),
        Column("partitions", lambda w: partitions_shown(w.leads) or "-"),
    ),
}


def _fitting(view: str, rows: Sequence[Row], width: int) -> list[tuple[Column, int]]:
    """The first columns, as many as a terminal of this width has room for, with their widths."""
    found: list[tuple[Column, int]] = []
    for column in _VIEWS[view]:
        room = max([len(column.heading) + 1, *(len(column.text(row)) for row in rows)])
        width -= room + _GAP
        if width < 0 and found:
            break
        found.append((column, room))
    return found


def _cell(column: Column, row: Row) -> Text:
    text, style = column.text(row), ""
    if column.heading == "state":
        style = next(_COLORS[kind] for state, kind in STATES.items() if text.startswith(state))
    justify: Any = "left" if column.shown is None else "right"
    return Text(text, style, justify=justify, no_wrap=True, overflow="ellipsis")


# --- the screen -----------------------------------------------------------------------------------


class TopApp(App[None]):
    """Shows the fleet. It acts on nothing: that is for commands."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary { height: 1; background: $primary-darken-2; color: $text; }
    #summary.stale { background: $error; }
    #table { height: 1fr; }
    #troubles { height: auto; max-height: 80%; color: $text-warning; padding: 0 1; }
    #filter { display: none; height: 1; border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        # In this order, as a narrow terminal does not show the last ones.
        Binding("v", "next_view", "view"),
        Binding("enter", "enter", "open"),
        Binding("escape", "leave", "back"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("s", "sort", "sort"),
        Binding("S", "reverse", "reverse"),
        Binding("x", "troubles", "all that is wrong"),
        Binding("q", "quit", "quit"),
        *(Binding(str(key), f"view('{name}')", show=False) for key, name in enumerate(_VIEWS, 1)),
    ]

    def __init__(self, databases: Sequence[Database], interval: float = 1.0) -> None:
        """Opens nothing yet."""
        super().__init__()
        self._interval = interval
        self._watcher = FleetWatcher(databases, "pytube top")
        self._over = threading.Event()
        # A daemon: a database that stays silent must keep neither the screen nor the program from ending.
        self._thread = threading.Thread(target=self._take_samples, name="pytube-top", daemon=True)
        self._summary, self._troubles = Static(id="summary"), Static(id="troubles")
        self._table: DataTable[Text] = DataTable(id="table", cursor_type="row", cell_padding=1)
        self._filter = Input(id="filter", placeholder="show only rows that hold this text")
        self._sample: FleetSample | None = None
        """The last one in which a host was read."""
        self._down: str | None = None
        """Why the last sample has nothing; None when it has."""
        self._sampled_at = time.monotonic()
        self._view = "tubes"
        self._within: Queue | None = None
        """The tube or outbox whose partitions are shown alone."""
        self._sort, self._reverse, self._shows_all = 0, False, False
        self._shown: dict[str, Row] = {}

    def compose(self) -> ComposeResult:
        """The parts of the screen."""
        yield from (self._summary, self._table, self._troubles, self._filter)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Begin to watch."""
        self._table.focus()
        self._draw()
        self._thread.start()
        self.set_interval(1.0, self._draw_summary)

    def on_unmount(self) -> None:
        """End; a sample that takes longer is left to itself."""
        self._over.set()
        self._thread.join(0.5)

    def _take_samples(self) -> None:
        while not self._over.is_set():
            sample = self._watcher.sample()
            if not self._over.is_set():
                self.call_later(self._take, sample)
            self._over.wait(self._interval)
        self._watcher.close()

    def _take(self, sample: FleetSample) -> None:
        """Show a sample; while no host can be read, the last figures stay, and are said to be old."""
        self._sampled_at = time.monotonic()
        self._down = "; ".join(sample.down.values()) if len(sample.down) == len(sample.hosts) else None
        if self._down is None or self._sample is None:
            self._sample = sample
        self._draw()

    def on_resize(self, _: Resize) -> None:
        """Other columns may fit."""
        self.call_after_refresh(self._draw)

    # --- the screen --------------------------------------------------------------------------

    def _draw(self) -> None:
        self._draw_summary()
        if self._sample is not None:
            self._draw_table(self._sample)
        lines = self._wrong()
        if len(lines) > _TROUBLES and not self._shows_all:
            lines = [*lines[: _TROUBLES - 1], f"and {len(lines) - _TROUBLES + 1} more: press x"]
        width = max(20, self.size.width - 2)
        if not self._shows_all:
            lines = [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]
        self._troubles.update(Text("\n".join(lines)))

    def _draw_summary(self) -> None:
        silent = time.monotonic() - self._sampled_at
        is_silent = silent > max(_LATE, _LATE * self._interval)
        self._summary.set_class(self._down is not None or is_silent, "stale")
        if self._sample is None:
            self._summary.update(Text("pytube top: connecting …"))
            return
        when = f"{self._sample.at.astimezone():%H:%M:%S}"
        if self._down is not None:
            parts = ["NOT CONNECTED", f"figures of {when}"]
        elif is_silent:
            parts = [f"NO ANSWER for {silent:.0f} s", f"figures of {when}"]
        else:
            parts = [when, *_figures(self._sample)]
        filtered = [f"filter {self._filter.value!r}"] if self._filter.value else []
        text = Text(" " + " · ".join([self._view, *filtered, *parts]), no_wrap=True, overflow="ellipsis")
        self._summary.update(text)

    def _draw_table(self, sample: FleetSample) -> None:
        table, rows = self._table, self._rows(sample)
        fitting = _fitting(self._view, rows, self.size.width)
        by = fitting[self._sort % len(fitting)][0]
        at, cursor, scroll = self._cursor_key(), table.cursor_row, table.scroll_y
        table.clear(columns=True)
        arrow = "▼" if (by.shown is not None) != self._reverse else "▲"
        for column, width in fitting:
            heading = column.heading + arrow if column is by else column.heading
            justify: Any = "left" if column.shown is None else "right"
            table.add_column(Text(heading, justify=justify), width=width)
        self._shown = {_key(row): row for row in by.sorted(rows, reverse=self._reverse)}
        for key, row in self._shown.items():
            table.add_row(*(_cell(column, row) for column, _ in fitting), key=key)
        if self._shown:
            row_at = table.get_row_index(at) if at in self._shown else min(cursor, len(self._shown) - 1)
            table.move_cursor(row=row_at, animate=False, scroll=False)
        table.scroll_to(y=scroll, animate=False)

    def _rows(self, sample: FleetSample) -> list[Row]:
        """The rows of the view whose texts match the filter."""
        of = self._within and (self._within.host, self._within.name)
        rows: dict[str, Sequence[Row]] = {
            "tubes": sample.queues,
            "partitions": [one for one in sample.partitions if of in (None, (one.host, one.name))],
            "workers": sample.workers,
        }
        texts = [column for column in _VIEWS[self._view] if column.shown is None]
        wanted = self._filter.value.casefold()
        return [
            row for row in rows[self._view] if any(wanted in column.text(row).casefold() for column in texts)
        ]

    def _wrong(self) -> list[str]:
        sample = self._sample
        if self._down is not None:
            return [printable(f"not read: {self._down}")]
        if sample is None:
            return []
        fits = map(str, disagreements(sample, pytube.__version__))
        return [*lines(sample), *sample.not_read, *map(printable, fits)]

    def _cursor_key(self) -> str | None:
        table = self._table
        if not table.row_count:
            return None
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value

    # --- moving about ---------------------------------------------------------------------------

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Go into a tube."""
        row = self._shown.get(str(event.row_key.value))
        if isinstance(row, Queue):
            self._go("partitions", row)

    def action_view(self, name: str) -> None:
        """Show a view."""
        self._go(name)

    def action_next_view(self) -> None:
        """Show the next view."""
        views = list(_VIEWS)
        self._go(views[(views.index(self._view) + 1) % len(views)])

    def action_leave(self) -> None:
        """From partitions of a tube to the tubes; else away with the filter."""
        if self._within is not None:
            self._go("tubes")
        else:
            self._filter.value = ""
            self._end_filter()

    def _go(self, view: str, within: Queue | None = None) -> None:
        self._view, self._within, self._sort, self._reverse = view, within, 0, False
        self._table.move_cursor(row=0, animate=False)
        self._draw()

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._sort += 1
        self._reverse = False
        self._draw()

    def action_reverse(self) -> None:
        """Turn the order round."""
        self._reverse = not self._reverse
        self._draw()

    def action_filter(self) -> None:
        """Let a text be written that rows have to hold."""
        self._filter.display = True
        self._filter.focus()

    def on_input_changed(self, _: Input.Changed) -> None:
        """Show the rows that hold it."""
        self._draw()

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """Go back to the table."""
        self._end_filter()

    def _end_filter(self) -> None:
        self._filter.display = False
        self._table.focus()
        self._draw()

    def action_troubles(self) -> None:
        """Show all that is wrong, or the first lines again."""
        self._shows_all = not self._shows_all
        self._draw()


def _key(row: Row) -> str:
    """The identity of a row in a view, so that the cursor stays on it."""
    last = row.instance if isinstance(row, Worker) else row.name
    return f"{row.host}\0{last}\0{row.partition if isinstance(row, Partition) else ''}"


def _figures(sample: FleetSample) -> Iterator[str]:
    """The first line, on the whole fleet."""
    age = max(time.monotonic() - host.counted_at for host in sample.hosts if host.down is None)
    if age >= _OLD:
        yield f"figures {age:.0f} s old"
    lags = [queue.lag for queue in sample.queues if queue.lag is not None]
    yield f"lag {seconds(max(lags))}" if lags else "nothing waits"
    parked = Count.total(queue.parked for queue in sample.queues if queue.parked is not None)
    yield f"parked {_count(parked)}"
    yield say_count(len(sample.queues), "queue")
    yield say_count(len(sample.workers), "worker")
