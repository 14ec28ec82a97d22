"""The figures of a run, which bench/ keeps: as JSON for the pages and plots, as Markdown for readers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.frame.page import Section, table, targets_table


@dataclass(slots=True)
class Results:
    """A run of all scenarios, and those that were measured apart since then."""

    title: str
    command: str
    date: str
    """The day on which it was recorded."""
    minutes: int
    machine: list[list[str]]
    """Names and values."""
    pace: dict[str, Any]
    """`Pace.plain`."""
    sections: dict[str, Section] = field(default_factory=dict)
    """By scenario."""

    def when(self, scenario: str) -> str:
        """The day of a section, and the state of the machine if that was noted."""
        section = self.sections[scenario]
        return ", ".join(filter(None, [section.date or self.date, section.remark]))

    def of_machine(self, name: str) -> str:
        """A property of the machine."""
        return dict(self.machine)[name]

    @property
    def verdicts(self) -> tuple[int, int]:
        """How many targets were met, and missed."""
        met = [target.met for section in self.sections.values() for target in section.targets]
        return sum(met), len(met) - sum(met)

    def markdown(self) -> str:
        """All that was measured."""
        met, missed = self.verdicts
        pieces = [
            f"# {self.title}: all results",
            (
                f"Written by `{self.command}`, which measured all of this in one run of {self.minutes} "
                f"minutes, recorded {self.date}, but for sections that say otherwise. Cases that are "
                "compared ran in turn, A B C, C B A, and so on; figures are medians, with the least and the "
                "greatest in brackets. CPU is that of all processes of the server. Another machine, or "
                "another hour of a shared one, has other figures but much the same ratios: a target is a "
                "ratio to something that was measured in turn with it. Exceptions are promises with a unit "
                "(5 ms for a stream, what idle tubes cost), and the session timeout."
            ),
            table(["what", "which"], self.machine),
            self._pace(),
            f"## Targets: {met} met, {missed} missed",
            targets_table([target for section in self.sections.values() for target in section.targets]),
            *(section.markdown(name) for name, section in self.sections.items()),
        ]
        return "\n\n".join(pieces) + "\n"

    def _pace(self) -> str:
        rows: Sequence[Sequence[str]] = self.pace["rows"]
        return (
            "How fast the machine was: a fixed computation on one core, which took "
            f"{self.pace['best']} ms at its best, is 1.00 then. Absolute figures of a "
            "slower moment are lower.\n\n" + table(["scenario", "seconds", "pace before", "pace after"], rows)
        )

    def save(self, path: Path) -> None:
        """Store it as JSON."""
        sections = {name: section.plain() for name, section in self.sections.items()}
        plain = {
            name: getattr(self, name) for name in ("title", "command", "date", "minutes", "machine", "pace")
        }
        path.write_text(json.dumps(plain | {"sections": sections}, indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> Results:
        """The results that were stored there."""
        plain = json.loads(path.read_text())
        sections = {name: Section.of(section) for name, section in plain["sections"].items()}
        return cls(**plain | {"sections": sections})
