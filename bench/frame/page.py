"""The findings of a scenario, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Target:
    """A figure that is to be reached."""

    name: str
    goal: float
    got: float
    kind: Literal["at least", "at most"] = "at least"
    unit: str = ""

    @property
    def met(self) -> bool:
        """Whether it was reached."""
        return self.got >= self.goal if self.kind == "at least" else self.got <= self.goal

    @property
    def verdict(self) -> str:
        """`met`, or by how much it was missed."""
        if self.met or not self.goal:
            return "met" if self.met else "missed"
        return f"missed by {abs(self.got - self.goal) / self.goal:.0%}"

    def row(self) -> list[str]:
        """Its line of the table."""
        return [
            self.name,
            f"{self.kind} {_figure(self.goal)}{self.unit}",
            f"{_figure(self.got)}{self.unit}",
            self.verdict,
        ]


@dataclass(frozen=True, slots=True)
class Table:
    """A table, and the paragraph before it."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""

    def cell(self, row: str, column: str) -> str | None:
        """The cell of the row that begins with `row` (cells with ` + ` between, `*` for any text), if any."""
        keys = row.split(" + ")
        at = list(self.head).index(column, 1) if column in self.head[1:] else None
        found = [cells for cells in self.rows if all(map(fnmatchcase, cells, keys))]
        return found[0][at] if at is not None and len(found) == 1 else None


@dataclass(slots=True)
class Section:
    """The result of one scenario."""

    title: str
    text: str
    parts: list[str | Table] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)
    """Figures of its paragraphs by name, for the pages that quote them."""
    date: str = ""
    """The day of the measurement, if it was measured apart from the other scenarios."""
    remark: str = ""
    """The state of the machine then."""

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table."""
        before = self.parts[-1] if self.parts else ""
        self.parts.append(Table(head, rows, before if isinstance(before, str) else ""))

    def say(self, text: str, **figures: str) -> None:
        """Add a paragraph, and keep figures that it has."""
        self.parts.append(text)
        self.figures |= figures

    def cell(self, table: str, row: str, column: str) -> str:
        """A cell, of a table whose caption or first heading has the text `table`."""
        tables = [part for part in self.parts if isinstance(part, Table)]
        found = [one.cell(row, column) for one in tables if table in f"{one.caption}|{one.head[0]}"]
        cells = [cell for cell in found if cell is not None]
        if len(cells) != 1:
            raise LookupError(f"{self.title}: {len(cells)} cells for {table!r}, {row!r}, {column!r}")
        return cells[0]

    def target(self, name: str) -> Target:
        """The target of this name."""
        return next(target for target in self.targets if target.name == name)

    def markdown(self, scenario: str = "") -> str:
        """The whole section."""
        parts = [part if isinstance(part, str) else table(part.head, part.rows) for part in self.parts]
        pieces = [f"## {self.title}", self._measured(scenario) + self.text, *parts]
        if self.targets:
            pieces.append(targets_table(self.targets))
        return "\n\n".join(pieces)

    def _measured(self, scenario: str) -> str:
        if not self.date:
            return ""
        remark = f", {self.remark}" if self.remark else ""
        return f"Measured apart from the rest (`make bench ARGS={scenario}`), recorded {self.date}{remark}. "

    def plain(self) -> dict[str, Any]:
        """Itself, for JSON."""
        parts = [
            part if isinstance(part, str) else {"head": part.head, "rows": part.rows} for part in self.parts
        ]
        return asdict(self) | {"parts": parts}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Section:
        """The section that was stored so."""
        section = cls(**plain | {"parts": [], "targets": [Target(**one) for one in plain["targets"]]})
        for part in plain["parts"]:
            if isinstance(part, str):
                section.say(part)
            else:
                section.table(part["head"], part["rows"])
        return section


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; columns after the first are set to the right."""
    lines = [_line(head), _line(["---", *["---:"] * (len(head) - 1)])]
    return "\n".join(lines + [_line(row) for row in rows])


def targets_table(targets: Sequence[Target]) -> str:
    """Targets with what was reached."""
    return table(["target", "goal", "reached", "verdict"], [target.row() for target in targets])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"
