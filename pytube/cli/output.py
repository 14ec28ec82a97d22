"""Results on stdout: tables for people, JSON for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDE = 240
"""Columns of a table that goes to a file or a pipe."""

_FOLDED = {"note", "tube", "predicate", "tbl", "leader", "error"}
"""What is broken into lines where a terminal is narrow; other columns keep their width."""


def console() -> Console:
    """Where tables go: as wide as the terminal, and wide enough where there is none."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else _WIDE, highlight=False)


def print_json(value: Any) -> None:
    """One line of JSON."""
    click.echo(orjson.dumps(value, default=str).decode())


def make_table(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table of `rows`; `columns` gives the heading of each key, in order."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for key, heading in columns.items():
        table.add_column(heading, overflow="fold", no_wrap=key not in _FOLDED)
    for row in rows:
        # Text, so that brackets in a value are no markup.
        table.add_row(*(Text(_cell(row[key])) for key in columns))
    return table


def print_rows(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], empty: str) -> None:
    """Print a table, or the sentence `empty` when there are no rows."""
    if rows:
        console().print(make_table(columns, rows))
    else:
        click.echo(empty)


def seconds(value: float | None) -> str:
    """A length of time for people."""
    if value is None:
        return "-"
    if value < 1:
        return f"{max(0.0, value) * 1000:.0f} ms"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if value >= 2 * size:
            return f"{value / size:.0f} {unit}"
    return f"{value:.1f} s"


def key_shown(key: str | None) -> str | None:
    """The id of a row as it is, or in quotes where it could not be told from something else, or read."""
    return key if key is None or (key.isprintable() and key == key.strip() != "") else json.dumps(key)


def _cell(value: Any) -> str:
    """As text that does nothing to a terminal."""
    text = "-" if value is None else str(value)
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
