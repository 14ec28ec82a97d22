"""What the spectator sees while the demonstration runs: a line a second, and what happened when.

In colour on a terminal, plain lines elsewhere.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pytube.demo.processes import DemoFailed
from pytube.demo.settings import WORKERS
from pytube.demo.source import Figures, Leader

_WIDE = 160
"""Columns of a table that goes to a file or a pipe."""
_PAUSE = 0.05
TUBES_HEADER = "   time  touches documents  per s  waiting     lag  who leads which partitions"
_HEADER_EVERY = 20


def duration(seconds: float) -> str:
    """Milliseconds below one second, else seconds with one decimal."""
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    return f"{seconds:.1f} s"


class Screen:
    """Standard output, and the time since the demonstration began."""

    def __init__(self) -> None:
        width = None if sys.stdout.isatty() else _WIDE
        self._console = Console(file=sys.stdout, highlight=False, width=width, soft_wrap=True)
        self._begun = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._begun

    def step(self, text: str, style: str = "bold") -> None:
        """One thing that was done or happened, with the time."""
        self.line(Text.assemble((f"{self.elapsed:5.1f} s  ", "dim"), (text, style)))

    def line(self, text: Text | str, style: str = "") -> None:
        """One line; square brackets in it are no markup."""
        self._console.print(Text(text, style) if isinstance(text, str) else text)
        sys.stdout.flush()

    def heading(self, text: str) -> None:
        """The title of what follows, after an empty line."""
        self.line("")
        self.line(text, "bold underline")

    def facts(self, facts: Mapping[str, str]) -> None:
        """Names and values, below each other."""
        wide = max(len(name) for name in facts)
        for name, value in facts.items():
            self.line(Text.assemble((f"  {name:<{wide}}  ", "dim"), value))

    def table(self, columns: Mapping[str, bool], rows: Sequence[Sequence[str]]) -> None:
        """A table; `columns` says of each heading whether numbers are below it."""
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
        for heading, numeric in columns.items():
            table.add_column(heading, justify="right" if numeric else "left", no_wrap=True)
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self._console.print(table, soft_wrap=False)
        sys.stdout.flush()


class Readable(Protocol):
    """A database that a demonstration looks at."""

    def figures(self) -> Figures:
        """How things stand."""

    def leaders(self) -> list[Leader]:
        """Who leads what."""


class Watch:
    """Waits for conditions, looks at everything meanwhile, and prints the line of every second."""

    def __init__(
        self,
        source: Readable,
        poll: Callable[[], bool],
        count: Callable[[], int],
        screen: Screen,
        header: str = TUBES_HEADER,
    ) -> None:
        """Nothing is read before the first look.

        Args:
            source: the database.
            poll: takes in what has come out at the other end; whether there was something.
            count: of what has come.
            screen: where the lines go.
            header: of their columns.
        """
        self._poll = poll
        self._count = count
        self._header = header
        self.checks: list[Callable[[], None]] = []
        """Called at every look; each raises when what it guards has failed."""
        self.dead: set[str] = set()
        """Workers that were killed and not yet started again."""
        self.caught_up = False
        """Whether the last look found nothing new at the sink."""
        self._source = source
        self._screen = screen
        self._lines = 0
        self._second = 0
        self._last = (time.monotonic(), 0)

    def until(self, condition: Callable[[], bool], *, limit: float, missing: str) -> None:
        """Look until `condition()`.

        Args:
            condition: what is waited for.
            limit: seconds.
            missing: what has not happened when they are over, as the rest of a sentence.

        Raises:
            DemoFailed: it did not happen in time, or one of the checks failed.
        """
        ends = time.monotonic() + limit
        while True:
            self.look()
            if condition():
                return
            if time.monotonic() > ends:
                raise DemoFailed(f"within {limit:g} s {missing}")
            if self.caught_up:
                time.sleep(_PAUSE)

    def look(self) -> None:
        """Take in what has come, check what must run, and print a line when it is time."""
        self.caught_up = not self._poll()
        for check in self.checks:
            check()
        if (second := int(self._screen.elapsed)) > self._second:
            self._second = second
            self._print(second)

    def _print(self, second: int) -> None:
        now = time.monotonic()
        then, before = self._last
        delivered = self._count()
        rate = (delivered - before) / max(now - then, 0.001)
        self._last = (now, delivered)
        if self._lines % _HEADER_EVERY == 0:
            self._screen.line(self._header, "dim")
        self._lines += 1
        figures, leaders = self._source.figures(), self._source.leaders()
        self._screen.line(live_line(second, figures, delivered, rate, leaders, self.dead))


def live_line(
    second: int,
    figures: Figures,
    delivered: int,
    rate: float,
    leaders: Sequence[Leader],
    dead: Collection[str],
) -> Text:
    """The line of one second: what is written, what has arrived, who leads.

    Args:
        second: how many have passed since the beginning.
        figures: how things stand in the database.
        delivered: documents at the sink.
        rate: documents per second since the last line.
        leaders: the present terms.
        dead: workers that were killed; the database still names them until others take over.
    """
    text = Text()
    text.append(f"{second:5} s ", "dim")
    text.append(f"{figures.touches:>8,} ")
    text.append(f"{delivered:>9,} ", "green")
    text.append(f"{rate:>6,.0f} ")
    text.append(f"{figures.waiting:>8,} ", "yellow" if figures.waiting else "dim")
    text.append(f"{duration(figures.lag):>7}  ", "yellow" if figures.lag > 1 else "dim")
    for name in WORKERS:
        led = ",".join(str(leader.partition) for leader in leaders if leader.client == name)
        if name in dead:
            text.append(f"{name} killed  ", "red")
        else:
            text.append(f"{f'{name} {led or chr(8211)}':<11}", "cyan" if led else "dim")
    text.rstrip()
    return text
