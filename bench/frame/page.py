"""What a scenario found, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal


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


@dataclass(slots=True)
class Section:
    """The result of one scenario."""

    title: str
    text: str
    parts: list[str] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table."""
        self.parts.append(table(head, rows))

    def say(self, text: str) -> None:
        """Add a paragraph."""
        self.parts.append(text)

    def markdown(self) -> str:
        """The whole section."""
        pieces = [f"## {self.title}", self.text, *self.parts]
        if self.targets:
            pieces.append(targets_table(self.targets))
        return "\n\n".join(pieces)


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
