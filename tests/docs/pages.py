"""The pages of the documentation, as text, links and blocks of code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.helpers.database import ROOT

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of code on a page."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Page:
    """One file of Markdown."""

    path: Path

    @property
    def name(self) -> str:
        """Its path within the repository."""
        return str(self.path.relative_to(ROOT))

    @property
    def text(self) -> str:
        """All of it."""
        return _read(self.path)

    def blocks(self, *languages: str) -> list[Block]:
        """The blocks of these languages (of all, when none is given), in order."""
        text = self.text
        return [
            Block(self.name, text.count("\n", 0, found.start()) + 1, found[1], found[2])
            for found in _FENCE.finditer(text)
            if not languages or found[1] in languages
        ]

    def prose(self) -> str:
        """The text without its blocks."""
        return _prose(self.path)

    def links(self) -> list[str]:
        """The targets of its links."""
        return _LINK.findall(self.prose())

    def anchors(self) -> set[str]:
        """What a link can point to within the page."""
        return {_anchor(heading) for heading in _HEADING.findall(self.prose())}

    def section(self, heading: str) -> str:
        """What stands under the heading `## heading`."""
        found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", self.text, re.DOTALL | re.MULTILINE)
        assert found, f"{self.name} has no section {heading}"
        return found[1]


@cache
def _read(path: Path) -> str:
    """Once each: some tests look at each page, and for each of its links at another one."""
    return path.read_text(encoding="utf-8")


@cache
def _prose(path: Path) -> str:
    return _FENCE.sub("", _read(path))


def table_rows(markdown: str) -> list[list[str]]:
    """The cells of all tables in a piece of Markdown, their headings aside."""
    lines = [line.strip() for line in markdown.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines]
    rules = [number for number, row in enumerate(cells) if all(set(cell) <= set("-: ") for cell in row)]
    left_out = {*rules, *(number - 1 for number in rules)}
    return [row for number, row in enumerate(cells) if number not in left_out]


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


PAGES = [Page(path) for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))]
BY_NAME = {page.name: page for page in PAGES}
