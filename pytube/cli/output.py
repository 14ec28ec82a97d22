"""Results on stdout: tables on a terminal, lines of fields elsewhere, JSON for machines."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from itertools import groupby
from typing import Any, Protocol, TextIO

import click
import orjson

from pytube.clock import for_people
from pytube.counts import runs_of

Columns = Mapping[str, str]
"""The heading of each key of a row, in order."""
Rows = Sequence[Mapping[str, Any]]

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


class Meter(Protocol):
    """Shows how far some work is."""

    def __call__(self, name: str, done: int, total: int | None, detail: str) -> None:
        """`total`: None where it is not known."""


@contextmanager
def progress_meter(*, err: bool = False) -> Iterator[Meter]:
    """Show how far long work is: a bar for each name on a terminal, else a line every few seconds.

    Work that ends before the first line is due has none, so that logs of scripts stay short.
    """
    if is_live(sys.stderr if err else sys.stdout):
        shown_bars: dict[str, str] = {}
        with changing(err=err) as change:

            def show(name: str, done: int, total: int | None, detail: str) -> None:
                shown_bars[name] = f"{name}: {bar(done, total)}{detail}"
                change(list(shown_bars.values()))

            yield show
        return
    due = time.monotonic() + LINE_INTERVAL

    def print_line(name: str, done: int, total: int | None, detail: str) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + LINE_INTERVAL
            share = f" ({_share(done, total)})" if total else ""
            click.echo(f"{name}: {detail}{share}", err=err)

    yield print_line


def bar(done: int, total: int | None) -> str:
    """As `[####----------------]  20%  `; empty where the total is not known."""
    if not total:
        return ""
    full = min(done, total) * _BAR // total
    return f"[{'#' * full}{'-' * (_BAR - full)}] {_share(done, total):>4}  "


def _share(done: int, total: int) -> str:
    return f"{min(done, total) * 100 // total}%"  # 100% means all


def print_json(value: Any) -> None:
    """One line of JSON."""
    click.echo(orjson.dumps(value, default=str).decode())


def tell(text: str, value: Any, *, as_json: bool) -> None:
    """Print a sentence, or the value as JSON."""
    if as_json:
        print_json(value)
    else:
        click.echo(text)


def print_rows(columns: Columns, rows: Rows, empty: str) -> None:
    """Print rows: for a terminal as `shown`, else as `lines`.

    Without rows, a terminal gets the sentence `empty`; elsewhere it goes to stderr, because it is not a row.
    """
    if is_terminal():
        click.echo("\n".join(shown(columns, rows, terminal_width())) if rows else empty)
    else:
        click.echo("\n".join([heading_line(columns), *lines(columns, rows)]))
        if not rows:
            click.echo(empty, err=True)


def and_some(limit: int) -> int:
    """How many rows to read of a list that shows `limit`, so that it can be said how many it leaves out."""
    return min(limit + _COUNTED, _MOST)


def print_list(
    columns: Columns,
    rows: Sequence[Any],
    empty: str,
    *,
    as_json: bool,
    shown: Callable[[Any], dict[str, Any]] = lambda _: {},
    limit: int | None = None,
) -> None:
    """Print rows, objects of data classes or mappings: as JSON, else as `print_rows`.

    `shown` makes the row of a table from one of them, where it has more than its values. `limit`: that of the
    option `--limit`; of more rows (see `and_some`) the number goes to stderr.
    """
    left = 0 if limit is None else len(rows) - limit
    rows = rows[:limit]
    if as_json:
        print_json(rows)  # which knows data classes
    else:
        print_rows(columns, [_mapping(row) | shown(row) for row in rows], empty)
    if left > 0:
        number = f"{left} or more" if left >= _COUNTED else left
        click.echo(f"not shown: {number}; a larger --limit shows them", err=True)


def print_fields(
    columns: Columns,
    row: Mapping[str, Any],
    *,
    as_json: bool,
    shown: Callable[[Any], dict[str, Any]] = lambda _: {},
) -> None:
    """Print one row: as JSON, else a line for each field; `shown` as for `print_list`."""
    if as_json:
        print_json(row)
        return
    cells = {**row, **shown(row)}
    for key, heading in columns.items():
        click.echo(f"{heading}: {_escaped(_text(cells[key]))}")


def _mapping(row: Any) -> dict[str, Any]:
    return dict(row) if isinstance(row, Mapping) else asdict(row)


def print_text(start: str, text: str, mark: str = "") -> None:
    """Print a paragraph, on a terminal in lines that fit it and begin below the text.

    Args:
        start: stands before the text.
        text: the paragraph.
        mark: covers the beginning of `start`; it may have a color.
    """
    found = "\n".join(_folded(start, text, terminal_width())) if is_terminal() else start + text
    click.echo(mark + found[len(click.unstyle(mark)) :])


# --- for programs -------------------------------------------------------------------------------


def heading_line(columns: Columns) -> str:
    """The headings, separated by tabs."""
    return "\t".join(columns.values())


def lines(columns: Columns, rows: Rows) -> list[str]:
    """A line for each row: its fields, neither padded nor cut, separated by tabs, which no field holds."""
    return ["\t".join(_escaped(_text(row[key])) for key in columns) for row in rows]


# --- for people ---------------------------------------------------------------------------------


def shown(columns: Columns, rows: Rows, width: int) -> list[str]:
    """The lines of a table where it fits `width`; else the fields of each row below each other.

    Nothing is left out: the last column of a table, and each field in a stack, is broken into lines.
    """
    *others, _ = columns
    cells = [[_escaped(_text(row[key])) for key in others] for row in rows]
    widths = [
        max(map(_width, [heading, *column]))
        for heading, column in zip([columns[key] for key in others], zip(*cells, strict=True), strict=True)
    ]
    before = sum(widths) + len(_GAP) * len(others)
    last = list(columns)[-1]
    longest = max(_width(columns[last]), *(_width(line) for row in rows for line in _lines(row[last])))
    if longest > width - before < _LEAST_FOLDED:
        return list(_stacked(columns, rows, width))
    headings = [*map(_padded, [columns[key] for key in others], widths), columns[last]]
    found = [click.style(_GAP.join(headings), bold=True)]
    for row, row_cells in zip(rows, cells, strict=True):
        start = "".join(cell + _GAP for cell in map(_padded, row_cells, widths))
        for line in _lines(row[last]):
            found += _folded(start, line, width)
            start = " " * before
    return found


def _stacked(columns: Columns, rows: Rows, width: int) -> Iterator[str]:
    """Each row as a line for each field; an empty line between two rows."""
    label = max(map(_width, columns.values()))
    for number, row in enumerate(rows):
        if number:
            yield ""
        for key, heading in columns.items():
            start = _padded(heading, label) + _GAP
            for line in _lines(row[key]):
                yield from _folded(start, line, width)
                start = " " * len(start)


def _folded(start: str, text: str, width: int) -> list[str]:
    """`start` and the text after it, in lines of at most `width`; the text stays right of `start`."""
    room = max(width - _width(start), 1)
    if _width(text) > len(text):
        room = max(room // 2, 1)  # textwrap counts characters, and some are two columns wide
    first, *more = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
    indent = " " * _width(start)
    return [(start + first).rstrip(), *(indent + part for part in more)]


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


def _lines(value: Any) -> list[str]:
    """The lines of a value."""
    return [_escaped(line) for line in _text(value).split("\n")]


def _escaped(text: str) -> str:
    """In one line, and as text that does nothing to a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _width(text: str) -> int:
    """The columns that a terminal needs for it."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))
