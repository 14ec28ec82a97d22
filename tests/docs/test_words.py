"""Plain words: what readers stumbled over stays out of everything that people read.

Each place has a ceiling for each habit. Ceilings only fall: where a place has fewer, lower the number in
`words.json`, with `python -m tests.docs.test_words`, which never raises one.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from pytube.cli.program import Later, cli
from tests.docs.pages import PAGES
from tests.helpers.database import ROOT

HABITS = {
    "a what-clause: name the thing": r"""\bwhat\ (?:
        is|was|are|were|has|have|had|it|they|he|she|came|comes|goes|went|waits|waited|lacks|stands|stood|
        changed|changes|differs|belongs|holds|held|can|could|may|might)\b""",
    "of its own, by itself: own, automatically, or nothing": r"""\b(?:
        of\ (?:its|their|your)\ own|by\ (?:itself|themselves))\b""",
    "those that, one that, such a: repeat the noun": r"""\b(?:
        those\ (?:that|who|which|of)|the\ one\ that|one\ that|such\ an?)\b""",
    "go on: continue": r"\b(?:go|goes|going|went|gone)\ on\b",
    "nobody, somebody: name the actor": r"\b(?:nobody|somebody)\b",
    "tell: report, log, show, print": r"\b(?:tells?|told)\b",
    "by hand: manually, or the command": r"\bby\ hand\b",
    "our, ours: pytube's, internal, the": r"\b(?:our|ours)\b",
    "mend: fix, repair": r"\bmend(?:s|ed|ing)?\b",
    "lack: is missing": r"\black(?:s|ed|ing)?\b",
    "in line with, likewise, as ever": r"\b(?:in\ line\ with|likewise|as\ ever|thereby|therefrom|thereof)\b",
    "is no X: is not a valid X; expected": r"""\b(?<!there\ )(?:is|are|was|were)\ no\ (?!
        longer\b|more\b|such\b)[a-z]+\b""",
}
FALSE_POSITIVES = (
    "how it goes on",  # the title of a chapter elsewhere
    *("What it gets", "What it returns"),  # titles in transforms.md, to which links and a test refer
    *("told: called with", "told: is called with", "told: the last"),  # a parameter's name in docstrings
)
"""Phrases that are right as they are."""
NAMES = ("nobody", "ours")
"""Texts that are names: the user that an embedded Postgres runs as, a column of Spark's comparison."""
CEILINGS = Path(__file__).with_name("words.json")
MOST_WORDS = 55_000
"""Of README and docs. A word has a letter or a digit; the bars of a table are none, nor part of one."""
_PATTERNS = {habit: re.compile(pattern, re.IGNORECASE | re.VERBOSE) for habit, pattern in HABITS.items()}
_CODE = re.compile(r"`[^`\n]*`")
_WORD = re.compile(r"\S*\w\S*")


def pages() -> Iterator[str]:
    """The prose of README and docs."""
    return (page.prose() for page in PAGES)


def help_texts() -> Iterator[str]:
    """All that `--help` prints."""
    waiting: list[click.Command] = [cli]
    while waiting:
        command = waiting.pop()
        yield command.help or ""
        yield from (getattr(parameter, "help", None) or "" for parameter in command.params)
        if isinstance(command, click.Group):
            waiting += [one.load() if isinstance(one, Later) else one for one in command.commands.values()]


def messages() -> Iterator[str]:
    """Errors, events, lines of status: texts of the program, and of the SQL, its COMMENTs too."""
    for path in sorted((ROOT / "pytube").rglob("*.py")):
        tree = ast.parse(path.read_text())
        apart = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart:
                yield node.value
    yield from (part for part in _parts_of_sql() if part.startswith("'"))


def comments() -> Iterator[str]:
    """Comments and docstrings, of the SQL too."""
    for path in sorted((ROOT / "pytube").rglob("*.py")):
        text = path.read_text()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.string
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                yield str(node.value.value)
    yield from (part for part in _parts_of_sql() if part.startswith("--"))


def _parts_of_sql() -> Iterator[str]:
    """The literals and comments; read in one go, as each may hold the sign that begins the other."""
    for path in sorted((ROOT / "sql").rglob("*.sql")):
        if path.name != "snapshot.sql":
            yield from re.findall(r"'(?:[^']|'')*'|--.*", path.read_text())


PLACES: dict[str, Callable[[], Iterator[str]]] = {
    "docs": pages,
    "help": help_texts,
    "messages": messages,
    "comments": comments,
}


def found_in(texts: Iterator[str]) -> tuple[Counter[str], list[str]]:
    """How often each habit stands there, and each place with the words around it."""
    count: Counter[str] = Counter()
    lines = []
    for text in texts:
        plain = _CODE.sub("``", " ".join(text.split()))
        if plain in NAMES:
            continue
        for allowed in FALSE_POSITIVES:
            plain = plain.replace(allowed, "")
        for habit, pattern in _PATTERNS.items():
            for hit in pattern.finditer(plain):
                count[habit] += 1
                lines.append(f"{habit}: …{plain[max(0, hit.start() - 40) : hit.end() + 40]}…")
    return count, lines


@pytest.mark.parametrize("place", PLACES)
def test_habits_only_fall(place: str) -> None:
    ceilings = json.loads(CEILINGS.read_text())[place]
    count, lines = found_in(PLACES[place]())
    above = {habit: number for habit, number in count.items() if number > ceilings.get(habit, 0)}
    assert not above, "\n".join(
        line for line in lines if line.partition(":")[0] in {h.partition(":")[0] for h in above}
    )


def test_the_pages_stay_short() -> None:
    pages = [page for page in PAGES if page.name == "README.md" or page.name.startswith("docs/")]
    words = {page.name: len(_WORD.findall(page.text.replace("|", " "))) for page in pages}
    assert sum(words.values()) <= MOST_WORDS, sorted(words.items(), key=lambda one: -one[1])


def main() -> None:
    """Lower the ceilings to what is there now."""
    old = json.loads(CEILINGS.read_text())
    new = {}
    for place, texts in PLACES.items():
        count, _ = found_in(texts())
        new[place] = {habit: min(count[habit], old[place].get(habit, 0)) for habit in HABITS}
    CEILINGS.write_text(json.dumps(new, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
