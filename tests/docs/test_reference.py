"""The generated pages are as the code makes them, and nothing is missing from them."""

from __future__ import annotations

import dataclasses
import re

import psycopg
import pytest

from pytube.errors import SQLSTATES
from pytube.health.findings import Kind
from tests.docs.pages import BY_NAME
from tests.docs.reference import PAGES, made
from tests.docs.reference.errors import POSTGRES
from tests.docs.reference.functions import HEADINGS, _files, internal
from tests.docs.reference.log_lines import LINES
from tests.docs.reference.logged import Logged, kinds_of_events, lines_in_the_code, name_and_level

Conn = psycopg.Connection[tuple[object, ...]]


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_as_made(conn: Conn, name: str) -> None:
    there = BY_NAME[f"docs/{name}"].text.splitlines()
    assert there == made(name, conn).splitlines(), "make reference"


def test_another_comment_is_seen(conn: Conn) -> None:
    """So the page of SQL is of the database, not of its own text."""
    conn.execute("COMMENT ON FUNCTION tube_list IS 'Something else.'")
    conn.execute("GRANT EXECUTE ON FUNCTION tube_drop TO tube_writer")
    page = made("sql.md", conn)
    assert "Something else." in page
    assert page != BY_NAME["docs/sql.md"].text


def test_every_function_for_people_is_on_the_page(conn: Conn) -> None:
    rows = conn.execute(
        r"SELECT DISTINCT proname::text FROM pg_proc WHERE pronamespace = 'tube'::regnamespace"
        r" AND proname NOT LIKE 'tube\_private\_%' AND prorettype <> 'trigger'::regtype"
    )
    page = BY_NAME["docs/sql.md"].text
    shown = set(re.findall(r"^- `(\w+)\(", page, re.MULTILINE))
    assert shown.isdisjoint(internal(conn))
    assert shown | internal(conn) == {str(name) for (name,) in rows}
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert [name for name in HEADINGS if name != "Pods of a term"] == headings


def test_every_sqlstate_is_explained() -> None:
    raised = {code for _, codes in _files().values() for code in codes}
    assert raised - {*SQLSTATES, *POSTGRES} == set()


def test_every_trouble_has_its_section() -> None:
    anchors = BY_NAME["docs/errors.md"].anchors()
    assert [kind for kind in Kind if kind.page.partition("#")[2] not in anchors] == []


def test_lines_are_as_the_code_logs_them() -> None:
    documented = {
        name: Logged(set(one.level.split(", ")), set(one.fields.split())) for name, one in LINES.items()
    }
    found, _ = lines_in_the_code()
    events = {name_and_level(kind)[0] for kind in kinds_of_events()}
    assert documented.keys() == found.keys() - events
    for name, line in found.items():
        if name not in events:
            assert line.levels <= documented[name].levels, name
            assert line.fields <= documented[name].fields, name


def test_events_have_names_that_are_no_sentences() -> None:
    """Each is a literal, but where the name is the caller's, or that of the event's class."""
    _, other = lines_in_the_code()
    # Frameworks are told in their own logs.
    theirs = ("operations.py:", "alembic.py:")
    passed_on = [said for said in other if "_warn_once" not in said and not said.startswith(theirs)]
    assert sorted(passed_on) == [
        "database.py: self.log.warning(event, reason=str(error))",
        "leadership.py: self._queue.log.warning(event, partition=self._claim.partition, reason=str(error))",
        "logs.py: log.write(level, name, fields)",
    ]


def test_every_event_says_when() -> None:
    for kind in kinds_of_events():
        own = kind.__doc__ or ""
        assert own, kind
        assert not own.startswith(kind.__name__ + "("), f"{kind} has only the docstring of a dataclass"
        assert dataclasses.is_dataclass(kind)
