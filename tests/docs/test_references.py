"""What pages name is there, and what is there is named: links, tests, files, keys, functions, events."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from pytube import admin
from pytube.config.models import PostgresConfig
from pytube.db.connect import connection_string
from pytube.worker import upkeep
from tests.docs.pages import BY_NAME, PAGES, Page, table_rows
from tests.helpers.database import ROOT

# --- links, tests, files ------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Page) -> None:
    for link in page.links():
        target, _, anchor = link.partition("#")
        path = (page.path.parent / target).resolve() if target else page.path
        assert path.exists(), link
        if anchor:
            assert anchor in BY_NAME[str(path.relative_to(ROOT))].anchors(), link


def test_every_page_can_be_found() -> None:
    named = {(page.path.parent / link.partition("#")[0]).resolve() for page in PAGES for link in page.links()}
    assert [page.name for page in PAGES if page.path not in named] == []


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]

    def pages(part: Any) -> Iterator[str]:
        for one in part if isinstance(part, list) else part.values():
            yield from [one] if isinstance(one, str) else pages(one)

    docs = ROOT / "docs"
    assert sorted(pages(nav)) == sorted(str(path.relative_to(docs)) for path in docs.rglob("*.md"))


@cache
def names_in(file: Path) -> set[str]:
    """The functions, classes and constants of a file, those within classes too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_tests_are_there(page: Page) -> None:
    missing = [
        f"{file}::{name}"
        for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.text)
        if not (ROOT / file).exists() or name not in names_in(ROOT / file)
    ]
    assert missing == []


def test_every_promise_has_a_test() -> None:
    promises = table_rows(BY_NAME["docs/guarantees.md"].section("Promised"))
    assert len(promises) > 30
    assert [promise for promise, _, tests in promises if "::" not in tests] == []


def test_every_fault_has_its_signs_its_remedy_and_a_test() -> None:
    faults = re.split(r"^### ", BY_NAME["docs/how-it-fails.md"].text, flags=re.MULTILINE)[1:]
    assert len(faults) > 20
    needed = ("\n- **See**: ", "\n- **Do**: ", "\n- `tests/")
    assert [fault.splitlines()[0] for fault in faults if not all(part in fault for part in needed)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_are_there(page: Page) -> None:
    named = re.findall(r"`((?:sql|pytube|tests|docs|migrations)/[\w./-]+)`", page.text)
    assert [name for name in named if "NNNN" not in name and not (ROOT / name).exists()] == []


def test_the_tree_is_the_tree() -> None:
    tree = BY_NAME["CONTRIBUTING.md"].blocks("text")[0].text
    shown: set[str] = set()
    folder = ""
    for line in tree.splitlines():
        indented = line.startswith(" ")
        for name in re.split(r" {2,}", line.strip())[0].split():
            if not indented:
                folder = name
            shown.add(folder + name if indented else name)
    assert [name for name in sorted(shown) if not (ROOT / name).exists()] == []
    packages = {f"pytube/{path.parent.name}/" for path in (ROOT / "pytube").glob("*/__init__.py")}
    families = {f"sql/{path.name}/" for path in (ROOT / "sql").iterdir() if path.is_dir()}
    layers = {f"tests/{path.parent.name}/" for path in (ROOT / "tests").glob("*/__init__.py")}
    assert (packages | families | layers) - shown == set()


# --- the log -------------------------------------------------------------------------------------


def test_loggers_are_those_of_the_standard_library() -> None:
    imported = "".join(path.read_text() for path in (ROOT / "pytube").rglob("*.py"))
    assert "structlog" not in imported
    assert not re.search(r"logging\.(debug|info|warning|error)\(", imported)


# --- commands, functions for operators, extras ----------------------------------------------------


def test_every_function_for_operators_is_listed() -> None:
    cells = [row[1] for row in table_rows(BY_NAME["docs/operate.md"].section("Inspect and change pods"))]
    assert {name for name in admin.__all__ if name.islower()} <= set(re.findall(r"`(\w+)`", " ".join(cells)))


def test_every_extra_is_listed() -> None:
    rows = [
        row
        for row in table_rows(BY_NAME["docs/install.md"].section("Install the program"))
        if row[0].startswith("`")
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {row[0].strip("`") for row in rows} == project["optional-dependencies"].keys()


# --- what a worker tells ------------------------------------------------------------------------


def test_the_workers_sessions() -> None:
    """The names and counts in the section on connections are those of the code."""
    code = "".join(path.read_text() for path in (ROOT / "pytube/worker").glob("*.py"))
    opened = set(re.findall(r'(?:_keep|_open|open_session)\(\s*"([a-z ]+)"', code)) - {"start"}
    rows = table_rows(BY_NAME["docs/deploy.md"].section("Connections"))
    shown = [conninfo_to_dict(connection_string("", f"pytube {purpose}")) for purpose in opened]
    assert {row[2].strip("`") for row in rows} == {str(one["application_name"]) for one in shown}
    (pooled,) = [row[1] for row in rows if row[2] == "`pytube pool`"]
    assert f"({PostgresConfig.model_fields['pool_size'].default})" in pooled
    (backfills,) = [row[1] for row in rows if row[2] == "`pytube back-fill runner`"]
    assert f"{upkeep._MOST_AT_ONCE} at most" in backfills
