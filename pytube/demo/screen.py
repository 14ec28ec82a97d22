"""What the demonstration prints: in colour on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDE = 160
"""Columns of a table that goes to a file or a pipe."""


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

    def table(self, columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> None:
        """A table; a column is its heading and whether it holds numbers."""
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
        for heading, numeric in columns:
            table.add_column(heading, justify="right" if numeric else "left", no_wrap=True)
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self._console.print(table, soft_wrap=False)
        sys.stdout.flush()
