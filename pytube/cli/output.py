"""Results on stdout: tables on a terminal, lines of fields elsewhere, JSON for machines."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import groupby
from typing import Any, TextIO

import click
import orjson

from pytube.clock import for_people
from pytube.counts import harmless, runs_of

Table = Mapping[str, str | Callable[[Any], Any]]
"""By heading, in order: a field of the row, or a function that makes the cell of the row."""
Meter = Callable[[str, int, int | None, str], None]
"""Shows how far some work is: its name, how much is done, the total if it is known, and a detail."""

_GAP = "  "
_COUNTED = 1000
"""Rows beyond the limit of a list that are counted."""
_MOST = 2**31 - 1
"""The largest limit that pytube's SQL takes."""
LINE_INTERVAL = 5.0
"""Seconds between two lines about the same work, where there is no terminal."""
_BAR = 20
"""Characters of a bar."""
_LEAST_FOLDED = 30
"""Columns that a table keeps for its last field, broken into lines; with less, rows are stacked."""


def is_terminal() -> bool:
    """Whether people read the output as it comes."""
    return sys.stdout.isatty()


def terminal_width() -> int:
    """The columns of the terminal; 80 where they are unknown."""
    return shutil.get_terminal_size().columns


def is_live(stream: TextIO) -> bool:
    """Whether lines of a stream can change in place: it is a terminal, and no dumb one."""
    return stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


@contextmanager
def changing(*, err: bool = False) -> Iterator[Callable[[Sequence[str]], None]]:
    """Lines of a terminal that change in place: each call replaces the lines of the last one.

    `err`: on stderr, from which they disappear in the end.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=sys.stderr if err else sys.stdout, highlight=False)
    with Live(console=console, auto_refresh=False, transient=err) as live:
        yield lambda lines: live.update(Text.from_ansi("\n".join(lines)), refresh=True)


@contextmanager
def progress_meter(*, err: bool = False) -> Iterator[Meter]:
    """Show how far long work is: a bar for each name on a terminal, else a line every few seconds.

    Work that ends before the first line is due has none, so that logs of scripts stay short.
    """
    if is_live(sys.stderr if err else sys.stdout):
        shown_bars: dict[str, str] = {}
        with changing(err=err) as change:

            def show(name: str, done: int, total: int | None, detail: str) -> None:
                shown_bars[name] = harmless(f"{name}: {bar(done, total)}{detail}")
                change(list(shown_bars.values()))

            yield show
        return
    due = time.monotonic() + LINE_INTERVAL

    def print_line(name: str, done: int, total: int | None, detail: str) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + LINE_INTERVAL
            share = f" ({_share(done, total)})" if total else ""
            say(f"{name}: {detail}{share}", err=err)

    yield print_line


def bar(done: int, total: int | None) -> str:
    """As `[####----------------]  20%  `; empty where the total is not known."""
    if not total:
        return ""
    full = min(done, total) * _BAR // total
    return f"[{'#' * full}{'-' * (_BAR - full)}] {_share(done, total):>4}  "


def _share(done: int, total: int) -> str:
    return f"{min(done, total) * 100 // total}%"  # 100% means all


_JSON = "pytube.cli.json"


def keep_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    """Keep the option `--json` where `wants_json` finds it."""
    context.meta[_JSON] = value


def wants_json() -> bool:
    """Whether the command that runs is to print JSON."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_JSON))


def print_json(value: Any) -> None:
    """One line of JSON."""
    click.echo(orjson.dumps(value, default=str).decode())


def say(text: str, *, err: bool = False) -> None:
    """Print text that may hold names and values of the database: it does nothing to a terminal."""
    click.echo(harmless(text), err=err)


def tell(text: str, value: Any) -> None:
    """Print a sentence, or the value as JSON."""
    if wants_json():
        print_json(value)
    else:
        say(text)


def and_some(limit: int) -> int:
    """How many rows to read of a list that shows `limit`, so that it can be said how many it leaves out."""
    return min(limit + _COUNTED, _MOST)


def print_table(table: Table, rows: Sequence[Any], empty: str, *, limit: int | None = None) -> None:
    """Print rows, mappings or objects: as JSON, else for a terminal as `shown`, else as `lines`.

    Without rows, a terminal gets the sentence `empty`; elsewhere it goes to stderr, because it is not a row.
    `limit`: that of the option `--limit`; of more rows (see `and_some`) the number goes to stderr.
    """
    left = 0 if limit is None else len(rows) - limit
    rows = rows[:limit]
    if wants_json():
        print_json(rows)  # which knows data classes
    elif is_terminal():
        click.echo("\n".join(shown(table, rows, terminal_width())) if rows else empty)
    else:
        click.echo("\n".join([heading_line(table), *lines(table, rows)]))
        if not rows:
            click.echo(empty, err=True)
    if left > 0:
        number = f"{left} or more" if left >= _COUNTED else left
        click.echo(f"not shown: {number}; a larger --limit shows them", err=True)


def print_fields(table: Table, row: Any, value: Any = None) -> None:
    """Print one row, a line for each field; as JSON the row, or `value`."""
    if wants_json():
        print_json(row if value is None else value)
        return
    for heading, cell in zip(table, _cells(table, row), strict=True):
        click.echo(f"{heading}: {_escaped(_text(cell))}")


def _cells(table: Table, row: Any) -> list[Any]:
    is_mapping = isinstance(row, Mapping)
    return [of(row) if callable(of) else row[of] if is_mapping else getattr(row, of) for of in table.values()]


def print_text(start: str, text: str, mark: str = "") -> None:
    """Print a paragraph, on a terminal in lines that fit it and begin below the text.

    Args:
        start: stands before the text.
        text: the paragraph.
        mark: covers the beginning of `start`; it may have a color.
    """
    text = harmless(text)
    found = "\n".join(_beside([[start, text]], "", terminal_width())) if is_terminal() else start + text
    click.echo(mark + found[len(click.unstyle(mark)) :])


# --- for programs -------------------------------------------------------------------------------


def heading_line(table: Table) -> str:
    """The headings, separated by tabs."""
    return "\t".join(table)


def lines(table: Table, rows: Sequence[Any]) -> list[str]:
    """A line for each row: its fields, neither padded nor cut, separated by tabs, which no field holds."""
    return ["\t".join(_escaped(_text(cell)) for cell in _cells(table, row)) for row in rows]


# --- for people ---------------------------------------------------------------------------------


def shown(table: Table, rows: Sequence[Any], width: int) -> list[str]:
    """The lines of a table where it fits `width`; else the fields of each row below each other.

    Nothing is left out: the last column of a table, and each field in a stack, is broken into lines.
    """
    from rich.cells import cell_len

    found = [[[*map(_escaped, _text(cell).split("\n"))] for cell in _cells(table, row)] for row in rows]
    starts = [[*table][:-1], *(["\\n".join(field) for field in row[:-1]] for row in found)]
    ends = [[*table][-1:], *(row[-1] for row in found)]
    room = width - sum(max(map(cell_len, column)) + len(_GAP) for column in zip(*starts, strict=True))
    if max(cell_len(line) for end in ends for line in end) > room < _LEAST_FOLDED:
        stacks = [
            [[heading, "\n".join(field)] for heading, field in zip(table, row, strict=True)] for row in found
        ]
        return _beside([line for stack in stacks for line in (["", ""], *stack)][1:], _GAP, width)
    cells = [[*start, "\n".join(end)] for start, end in zip(starts, ends, strict=True)]
    head, *others = _beside(cells, _GAP, width)
    return [click.style(head, bold=True), *others]


def _beside(rows: Sequence[Sequence[str]], gap: str, width: int) -> list[str]:
    """The lines of columns beside each other, of which the last is broken into lines that fit `width`."""
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid.grid(padding=(0, len(gap), 0, 0), pad_edge=False)
    for _ in rows[0][1:]:
        grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for row in rows:
        grid.add_row(*map(Text, row))
    console = Console(width=width, color_system=None)
    return ["".join(part.text for part in line).rstrip() for line in console.render_lines(grid, pad=False)]


def seconds(value: float | None) -> str:
    """A length of time for people."""
    return "-" if value is None else for_people(value)


def partitions_shown(leads: Iterable[tuple[str, int]]) -> str:
    """As `es-live 0-3,7, orders 1`."""
    groups = groupby(sorted(leads), key=lambda one: one[0])
    return ", ".join(f"{name} {_ranges([number for _, number in group])}" for name, group in groups)


def _ranges(numbers: Sequence[int]) -> str:
    """As `0-3,7`, of ascending numbers."""
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs_of(numbers))


def key_shown(key: str | None) -> str | None:
    """The id of a row as it is, or in quotes where it could be misread."""
    return key if key is None or (key.isprintable() and key == key.strip() != "") else json.dumps(key)


# --- cells --------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    return "-" if value is None else str(value)


def _escaped(text: str) -> str:
    """In one line, and as text that does nothing to a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
