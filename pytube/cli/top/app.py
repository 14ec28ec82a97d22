"""The screen of `pytube top`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, TypeVar

import psycopg
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.message import Message
from textual.widgets import DataTable, Footer, Static

import pytube
from pytube.cli.context import Database
from pytube.cli.output import seconds
from pytube.cli.top.dialogs import Ask, ParkList, ParkReading, Question, Reading
from pytube.cli.top.operate import Operator, ParkEntry, refusal, what
from pytube.cli.top.rows import Column, Row, View, columns, ordered, row_key, rows, troubles
from pytube.cli.top.sampler import Sampler
from pytube.cli.workers import targets
from pytube.config import Config
from pytube.errors import PytubeError
from pytube.health.disagreements import disagreements
from pytube.health.fleet import FleetSample, Partition, Queue
from pytube.health.watcher import FleetWatcher

T = TypeVar("T")

_LATE = 3.0
"""Intervals, and at least seconds, without a sample after which the screen says that nobody answers."""
_OLD = 2.5
"""Seconds after which partitions are said to be old: they are read less often where that takes long."""
_TROUBLES = 5
"""Lines that are kept for what is wrong; `x` shows all."""

_COLORS = {
    "stopped": "bold red",
    "lost": "bold red",
    "sink down": "red",
    "source down": "red",
    "free": "yellow",
    "pausing": "cyan",
    "paused": "cyan",
    "leads": "green",
}

_HELP = """\
1 2 3    tubes and outboxes, partitions, workers; v: the next
enter    partitions of a tube; escape goes back
/        only rows that hold a text; empty: all
s S      sort by the next column; reverse the order
p        pause the tube or partition; asks first
r        resume it; asks first
e        explain a key: where it is, its document
k        what is parked in the tube; enter opens it,
         r has it tried again; asks first
x        all that is wrong
q        quit

Looking needs the role tube_monitor, acting tube_admin,
explaining what a worker may. Acts stand in pytube audit.

waiting  pods; 100+ where no more were counted
lag      age of the oldest pod
in, out  pods a second, added and taken away
retry    keys that failed, and are to be sent again
lost     the leader renews its term no more
free     nobody leads
"""


class Sampled(Message):
    """A sample was taken."""

    def __init__(self, sample: FleetSample) -> None:
        super().__init__()
        self.sample = sample


class TopApp(App[None]):
    """Shows the fleet, and acts on it."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary { height: 1; background: $primary-darken-2; color: $text; }
    #summary.stale { background: $error; }
    #table { height: 1fr; }
    #troubles { height: auto; max-height: 6; color: $text-warning; padding: 0 1; }
    ModalScreen { align: center middle; }
    .dialog { width: 90%; max-width: 110; height: auto; max-height: 90%; border: round $primary;
        background: $surface; padding: 0 1; }
    .reading { height: 90%; }
    .dialog DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        # In this order, as a narrow terminal does not show the last ones.
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("p", "pause", "pause"),
        Binding("r", "resume", "resume"),
        Binding("e", "explain", "explain"),
        Binding("k", "parked", "parked"),
        Binding("x", "troubles", "wrong"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("s", "sort", "sort"),
        Binding("v", "next_view", "view"),
        Binding("q", "quit", "quit"),
        Binding("S", "reverse", show=False),
        Binding("1", "view('tubes')", show=False),
        Binding("2", "view('partitions')", show=False),
        Binding("3", "view('workers')", show=False),
        Binding("escape", "leave", show=False),
    ]

    def __init__(self, databases: Sequence[Database], config: Config | None, interval: float = 1.0) -> None:
        """Opens nothing yet."""
        super().__init__()
        self._operator = Operator(databases, config)
        self._interval = interval
        watcher = FleetWatcher(targets(databases, config), "pytube top")
        self._sampler = Sampler(watcher, interval, lambda sample: self.post_message(Sampled(sample)))
        # By themselves: a query would look in whatever dialog lies on top.
        self._summary = Static(id="summary")
        self._table: DataTable[Text] = DataTable(id="table", cursor_type="row", cell_padding=1)
        self._troubles = Static(id="troubles")
        self._sample: FleetSample | None = None
        """The last one in which a host was read."""
        self._down: str | None = None
        """Why the last sample has nothing; None when it has."""
        self._sampled_at = time.monotonic()
        self._view = View.TUBES
        self._of: tuple[str | None, str] | None = None
        self._filter = ""
        self._sort = 0
        self._reverse = False
        self._shown: dict[str, Row] = {}

    def compose(self) -> ComposeResult:
        """The parts of the screen."""
        yield self._summary
        yield self._table
        yield self._troubles
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Begin to watch."""
        self._draw()
        self._sampler.start()
        self.set_interval(1.0, self._draw_summary)

    def on_unmount(self) -> None:
        """End."""
        self._sampler.stop()

    # --- what is shown --------------------------------------------------------------------------

    def on_sampled(self, message: Sampled) -> None:
        """Show a sample; while no host can be read, the last figures stay, and are said to be old."""
        sample = message.sample
        self._sampled_at = time.monotonic()
        if len(sample.down) == len(sample.hosts):
            self._down = "; ".join(sample.down.values())
            if self._sample is not None:
                self._draw_summary()
                self._draw_troubles()
                return
        else:
            self._down = None
        self._sample = sample
        self._draw()

    def on_resize(self, _: Resize) -> None:
        """Other columns may fit."""
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        self._draw_summary()
        self._draw_table()
        self._draw_troubles()

    def _draw_summary(self) -> None:
        summary = self._summary
        sample = self._sample
        silent = time.monotonic() - self._sampled_at
        is_silent = silent > max(_LATE, _LATE * self._interval)
        summary.set_class(self._down is not None or is_silent, "stale")
        if sample is None:
            summary.update(Text("pytube top: connecting …"))
            return
        when = f"{sample.at.astimezone():%H:%M:%S}"
        if self._down is not None:
            parts = ["NOT CONNECTED", f"figures of {when}"]
        elif is_silent:
            parts = [f"NO ANSWER for {silent:.0f} s", f"figures of {when}"]
        else:
            parts = [when, *_figures(sample)]
        if self._filter:
            parts.insert(0, f"filter {self._filter!r}")
        name = "partitions" if self._of else self._view.value
        summary.update(Text(" " + " · ".join([name, *parts]), no_wrap=True, overflow="ellipsis"))

    def _draw_table(self) -> None:
        if self._sample is None:
            return
        table = self._table
        fitting = columns(self._view, self.size.width)
        by = fitting[self._sort % len(fitting)][0]
        found = ordered(rows(self._sample, self._view, self._filter, self._of), by, reverse=self._reverse)
        at, cursor = self._cursor_key(), table.cursor_row
        scroll = table.scroll_y
        table.clear(columns=True)
        arrow = "▼" if by.is_number != self._reverse else "▲"
        for column, width in fitting:
            heading = column.heading[: width - 1] + arrow if column is by else column.heading
            table.add_column(Text(heading, justify="right" if column.is_number else "left"), width=width)
        self._shown = {row_key(row): row for row in found}
        for key, row in self._shown.items():
            table.add_row(*(_cell(column, width, row) for column, width in fitting), key=key)
        if at in self._shown:
            table.move_cursor(row=table.get_row_index(at), animate=False, scroll=False)
        elif found:
            table.move_cursor(row=min(cursor, len(found) - 1), animate=False, scroll=False)
        table.scroll_to(y=scroll, animate=False)

    def _draw_troubles(self) -> None:
        lines = self._wrong()
        shown = lines[:_TROUBLES]
        if len(lines) > _TROUBLES:
            shown = [*lines[: _TROUBLES - 1], f"and {len(lines) - _TROUBLES + 1} more: press x"]
        width = max(20, self.size.width - 2)
        text = Text("\n".join(line if len(line) <= width else line[: width - 1] + "…" for line in shown))
        self._troubles.update(text)

    def _wrong(self) -> list[str]:
        if self._down is not None:
            return [f"not read: {self._down}"]
        if self._sample is None:
            return []
        return [*troubles(self._sample), *map(str, disagreements(self._sample, pytube.__version__))]

    def _cursor_key(self) -> str | None:
        table = self._table
        if not table.row_count:
            return None
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value

    def _chosen(self) -> Queue | Partition | None:
        """The tube, outbox or partition of the row; None, and a word about it, where there is none."""
        row = self._shown.get(self._cursor_key() or "")
        if isinstance(row, Queue | Partition):
            return row
        self.notify("choose a tube or a partition first: views 1 and 2", severity="warning")
        return None

    # --- moving about ---------------------------------------------------------------------------

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Go into a tube."""
        row = self._shown.get(str(event.row_key.value))
        if event.data_table.id == "table" and isinstance(row, Queue):
            self._go(View.PARTITIONS, (row.host, row.name))

    def action_view(self, name: str) -> None:
        """Show a view."""
        self._go(View(name), None)

    def action_next_view(self) -> None:
        """Show the next view."""
        views = list(View)
        self._go(views[(views.index(self._view) + 1) % len(views)], None)

    def action_leave(self) -> None:
        """From partitions of a tube to the tubes; else away with the filter."""
        if self._of is not None:
            self._go(View.TUBES, None)
        elif self._filter:
            self._filter = ""
            self._draw()

    def _go(self, view: View, of: tuple[str | None, str] | None) -> None:
        self._view, self._of, self._sort, self._reverse = view, of, 0, False
        self._table.move_cursor(row=0, animate=False)
        self._draw()

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._sort = (self._sort + 1) % len(columns(self._view, self.size.width))
        self._reverse = False
        self._draw_table()

    def action_reverse(self) -> None:
        """Turn the order round."""
        self._reverse = not self._reverse
        self._draw_table()

    def action_filter(self) -> None:
        """Ask which rows to show."""

        def use(text: str | None) -> None:
            if text is not None:
                self._filter = text
                self._draw()

        self.push_screen(Ask("Show only rows that hold (empty: all):", self._filter), use)

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(Reading("pytube top", _HELP))

    def action_troubles(self) -> None:
        """Show all that is wrong."""
        self.push_screen(Reading("what is wrong", "\n\n".join(self._wrong()) or "nothing that is known"))

    # --- acting ---------------------------------------------------------------------------------

    def action_pause(self) -> None:
        """Pause what is chosen, after a reason was given."""
        of = self._chosen()
        if of is None:
            return

        def act(reason: str | None) -> None:
            if reason is not None:
                self._do(lambda: self._operator.pause(of, reason), self._done)

        self.push_screen(Ask(f"Pause {what(of)}? Give a reason, and enter; escape leaves it as it is."), act)

    def action_resume(self) -> None:
        """Resume what is chosen, after a question."""
        of = self._chosen()
        if of is None:
            return

        def act(yes: bool | None) -> None:
            if yes:
                self._do(lambda: self._operator.resume(of), self._done)

        self.push_screen(Question(f"Resume {what(of)}?"), act)

    def action_explain(self) -> None:
        """Explain a key of the chosen tube."""
        of = self._chosen()
        if of is None:
            return
        if of.kind == "outbox":
            self.notify("records of an outbox have no document to explain", severity="warning")
            return

        def act(text: str | None) -> None:
            if text:
                shard, _, key = text.rpartition("/") if _has_shard(text) else ("", "", text)
                self._explain(of.host, of.name, int(shard) if shard else None, key)

        self.push_screen(Ask(f"Which key of {of.name}? ID, or SHARD/ID:"), act)

    def _explain(self, host: str | None, tube: str, shard: int | None, key: str) -> None:
        title = f"{tube} {key if shard is None else f'{shard}/{key}'}"
        self._do(
            lambda: self._operator.explain(host, tube, shard, key),
            lambda text: self._show(Reading(title, text)),
        )

    def action_parked(self) -> None:
        """Show what is parked in the chosen tube."""
        of = self._chosen()
        if of is None:
            return

        def show(entries: Sequence[ParkEntry]) -> None:
            if entries:
                self.push_screen(ParkList(f"parked in {of.kind} {of.name}", entries), use)
            else:
                self.notify(f"nothing is parked in {of.kind} {of.name}")

        def use(chosen: tuple[ParkEntry, bool] | None) -> None:
            if chosen is None:
                return
            entry, is_retry = chosen
            if is_retry:
                self._retry(of.host, entry)
            else:
                self.push_screen(
                    ParkReading(f"parked: {entry.key}", entry.details),
                    lambda yes: self._retry(of.host, entry) if yes else None,
                )

        self._do(lambda: self._operator.parked(of), show)

    def _retry(self, host: str | None, entry: ParkEntry) -> None:
        """Have what is parked tried again, after a question."""

        def act(yes: bool | None) -> None:
            if yes:
                self._do(lambda: self._operator.retry(host, entry), self._done)

        self.push_screen(Question(f"Have {entry.key} of {entry.kind} {entry.name} tried again?"), act)

    def _show(self, screen: Reading) -> None:
        self.push_screen(screen)

    def _done(self, said: str) -> None:
        self.notify(said)
        self._sampler.sample_now()

    def _do(self, work: Callable[[], T], then: Callable[[T], object]) -> None:
        """Do something that blocks, in a thread; show why where it is refused."""

        async def run() -> None:
            try:
                found = await asyncio.to_thread(work)
            except (PytubeError, psycopg.Error) as error:
                self.notify(refusal(error), severity="error", timeout=10, markup=False)
            else:
                then(found)

        self.run_worker(run(), exit_on_error=True)


def _figures(sample: FleetSample) -> Iterator[str]:
    """What the first line tells of the whole fleet."""
    age = max(time.monotonic() - host.counted_at for host in sample.hosts if host.down is None)
    if age >= _OLD:
        yield f"figures {age:.0f} s old"
    lags = [queue.lag for queue in sample.queues if queue.lag is not None]
    yield f"lag {seconds(max(lags))}" if lags else "nothing waits"
    parked = [queue.parked for queue in sample.queues if queue.parked is not None]
    yield f"parked {sum(parked)}" if parked else "parked ?"
    for count, noun in ((len(sample.queues), "queue"), (len(sample.workers), "worker")):
        yield f"{count} {noun}{'' if count == 1 else 's'}"


def _has_shard(text: str) -> bool:
    shard, slash, key = text.partition("/")
    return bool(slash) and shard.isdecimal() and bool(key)


def _cell(column: Column, width: int, row: Row) -> Text:
    text = "".join(c if c.isprintable() else " " for c in column.text(row))
    style = next((color for state, color in _COLORS.items() if text.startswith(state)), "")
    if column.keeps_end and len(text) > width:
        text = f"{text[: width // 2 - 1]}…{text[width // 2 - width :]}"
    return Text(
        text,
        style=style if column.heading == "state" else "",
        justify="right" if column.is_number else "left",
        no_wrap=True,
        overflow="ellipsis",
    )
