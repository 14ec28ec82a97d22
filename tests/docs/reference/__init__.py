"""The pages of the reference that are made from the code: `python -m tests.docs.reference` writes them.

It stands beside the tests, since it needs a Postgres with the SQL installed, and `test_reference.py` compares
each page with what is made here. The prose of a page that the code can't give is in a template, `heads/PAGE`;
a line `<!-- NAME -->` in it is where a generated part goes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import psycopg

from tests.docs.reference import commands, errors, functions, logged, metrics, settings
from tests.helpers.database import ROOT

HEADS = Path(__file__).with_name("heads")
_PLACE = re.compile(r"^<!-- ([\w.]+) -->$", re.MULTILINE)
_NOTE = "<!-- Made by `make reference`: change the code, or {head}. -->"

Conn = psycopg.Connection[tuple[object, ...]]

PAGES: Mapping[str, Callable[[Conn], Mapping[str, str]]] = {
    "cli.md": lambda _: commands.parts(),
    "sql.md": functions.parts,
    "configuration.md": lambda _: settings.parts(),
    "metrics.md": lambda _: metrics.parts(),
    "events.md": lambda _: logged.parts(),
    "errors.md": lambda _: errors.parts(),
}
"""By the name of the page, its generated parts by their names; of the SQL by a session with it installed."""


def made(name: str, connection: Conn) -> str:
    """A page as it has to be.

    Raises:
        AssertionError: the template has a place for a part that is not made, or none for one that is.
    """
    head = HEADS / name
    text = head.read_text(encoding="utf-8")
    parts = PAGES[name](connection)
    assert sorted(_PLACE.findall(text)) == sorted(parts), f"{head} does not have a place for each part"
    body = _PLACE.sub(lambda place: parts[place[1]].strip(), text)
    return f"{_NOTE.format(head=head.relative_to(ROOT))}\n\n{body}"


def write(connection: Conn) -> None:
    """Write all of them."""
    for name in PAGES:
        (ROOT / "docs" / name).write_text(made(name, connection), encoding="utf-8")
