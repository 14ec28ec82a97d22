"""What pages name is there, and what is there is named: links, tests, files, keys, functions, events."""

from __future__ import annotations

import ast
import dataclasses
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import click
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticUndefined

from pytube import admin, events
from pytube.cli.program import EXIT_CODES, Later, cli
from pytube.config.attachments import AttachmentConfig
from pytube.config.documents import CHILDREN, ChildSection, DocumentSection
from pytube.config.models import Config, OutboxConfig, PostgresConfig
from pytube.config.tubes import TubeConfig
from pytube.db.connect import connection_string
from pytube.errors import SQLSTATES
from pytube.logs import Logger, log_event
from pytube.worker import upkeep
from tests.docs.pages import BY_NAME, PAGES, Page, table_rows
from tests.helpers.database import ROOT
from tests.helpers.logs import capture_logs

CONFIGURATION = BY_NAME["docs/configuration.md"]
OPERATIONS = BY_NAME["docs/operations.md"]
SQL = BY_NAME["docs/sql.md"]


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
    promises = re.split(r"^### ", BY_NAME["docs/guarantees.md"].section("Promised"), flags=re.MULTILINE)[1:]
    assert [promise.splitlines()[0] for promise in promises if "::" not in promise] == []


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


# --- configuration ------------------------------------------------------------------------------


def sections() -> dict[str, type[BaseModel]]:
    """The sections of the configuration by their headings."""
    found = {}
    for name, field in Config.model_fields.items():
        if name not in ("tubes", "outboxes", "documents"):
            found[f"`[{field.alias or name}]`"] = section_of(field.annotation)
    found["`[tube.NAME]`"] = TubeConfig
    found["`[document.NAME]`"] = DocumentSection
    found["`[document.NAME.CHILD]`"] = ChildSection
    found["`[outbox.NAME]`"] = OutboxConfig
    found['`[tube.NAME.tables."schema.table"]`'] = AttachmentConfig
    found["`[tube.NAME.sink]`"] = section_of(TubeConfig.model_fields["sink"].annotation)
    found["`[tube.NAME.backfill]`"] = section_of(TubeConfig.model_fields["backfill"].annotation)
    found["`[tube.NAME.enrich]`"] = section_of(TubeConfig.model_fields["enrich"].annotation)
    return found


def section_of(annotation: Any) -> type[BaseModel]:
    kinds = [annotation, *get_args(annotation)]
    return next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel))


@pytest.mark.parametrize("heading", sections())
def test_every_key_is_documented_with_its_default(heading: str) -> None:
    model = sections()[heading]
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    fields.pop(CHILDREN, None)  # sections of their own
    documented = {row[0].strip("`"): row[1] for row in table_rows(CONFIGURATION.section(heading))}
    assert set(documented) == set(fields)
    for name, field in fields.items():
        said = documented[name]
        default = field.get_default(call_default_factory=False)
        if field.is_required():
            assert said == "needed"
        elif isinstance(default, str):
            assert said == f'`"{default}"`'
        elif isinstance(default, bool):
            assert said == f"`{str(default).lower()}`"
        elif isinstance(default, int | float):
            assert said == f"`{default}`"
        else:  # made by a function, a section, or nothing
            assert default is None or default is PydanticUndefined or isinstance(default, BaseModel)
            assert said
            assert not said.startswith("`")
        assert (said == "needed") is (field.annotation is SecretStr or field.is_required())


# --- SQL ----------------------------------------------------------------------------------------

ENTRY = re.compile(r"^\*\*`([\w{}]+)\((.*)\) → (.*)`\*\*\n\n((?:.+\n)+?)Errors: (.*)\.$", re.MULTILINE)


def entries() -> dict[str, tuple[str, str, str]]:
    """Arguments, result and errors of the documented functions."""
    return {
        name: (arguments, result, errors) for name, arguments, result, _, errors in ENTRY.findall(SQL.text)
    }


def in_the_database(conn: psycopg.Connection) -> dict[str, tuple[str, str]]:
    """Arguments and result of the functions that are there, written as on the page."""
    rows = conn.execute(
        # Of functions of one name, the one that was there first.
        r"SELECT DISTINCT ON (proname) proname, pg_get_function_arguments(oid), pg_get_function_result(oid)"
        r" FROM pg_proc"
        # Names that end in a hash, or have it before shards, are generated for owners of tables.
        r" WHERE proname NOT LIKE 'tube\_private\_%'"
        r" AND proname !~ '_[0-9a-f]{8,}(_[0-9]+_[0-9]+(_[0-9])?)?$'"
        r" AND prorettype <> 'trigger'::regtype AND pronamespace"
        r" IN ('tube'::regnamespace, 'public'::regnamespace) ORDER BY proname, oid"
    ).fetchall()
    found = {}
    for name, arguments, result in rows:
        shown = re.sub(r" DEFAULT ([^,]*?)(::[\w\[\]]+)?(?=,|$)", r" = \1", arguments)
        table = re.fullmatch(r"TABLE\((.*)\)", result)
        columns = ", ".join(column.split()[0] for column in table[1].split(", ")) if table else result
        found[name] = (shown, columns)
    return found


def test_every_function_is_documented_as_it_is(conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE public.table_of_mine (id bigint PRIMARY KEY)")
    conn.execute("SELECT tube_ensure_exists('tube_of_mine')")
    conn.execute("SELECT tube_table_ensure_attached('tube_of_mine', 'public.table_of_mine', 0)")
    there = {
        name.replace("tube_of_mine", "{tube}").replace("table_of_mine", "{table}"): signature
        for name, signature in in_the_database(conn).items()
    }
    assert {name: entry[:2] for name, entry in entries().items()} == there


@pytest.mark.parametrize("name", [name for name in entries() if "{" not in name])
def test_the_errors_that_the_file_names_are_documented(name: str) -> None:
    written = "".join(
        file.read_text() for file in ROOT.glob("sql/*/*.sql") if file.parent.name != "migrations"
    )
    block = re.search(rf'((?:^--.*\n)+)CREATE OR REPLACE FUNCTION :"schema"\.{name}\(', written, re.MULTILINE)
    assert block, "it has no comment"
    comment = block[1]
    said = re.search(r"^-- Errors: (.*?)(?=^-- [A-Z]|\Z)", comment, re.DOTALL | re.MULTILINE)
    codes = set(re.findall(r"\b(?:TU\d{3}|[245]\d[A-Z0-9]\d\d)\b", said[1] if said else ""))
    documented = entries()[name][2]
    assert codes <= set(documented.split(", "))


def test_every_sqlstate_is_documented_with_its_class() -> None:
    documented = {row[0]: row[1].strip("`") for row in table_rows(SQL.section("Errors"))}
    assert documented == {state: kind.__name__ for state, kind in SQLSTATES.items()}
    used = {code for entry in entries().values() for code in entry[2].split(", ")} - {"none"}
    explained = SQL.section("Errors")
    assert [code for code in sorted(used) if code not in explained] == []


# --- what is logged -----------------------------------------------------------------------------

_METHODS = {"debug", "info", "warning", "error", "write"}
_LEADING = {"host", "tube", "partition"}


@dataclasses.dataclass
class Logged:
    """What is logged under one name."""

    levels: set[str] = dataclasses.field(default_factory=set)
    fields: set[str] = dataclasses.field(default_factory=set)


def events_in_the_log() -> dict[str, Logged]:
    """All events of `pytube.events`, as the log has them."""
    kinds = [
        kind
        for kind in vars(events).values()
        if isinstance(kind, type) and issubclass(kind, events.Event) and not kind.__subclasses__()
    ]
    found = {}
    for kind in kinds:
        with capture_logs() as logs:
            values: dict[str, Any] = {field.name: 1 for field in dataclasses.fields(kind)}
            log_event(Logger("pytube.tests"), kind(**values))
        found[logs[0]["event"]] = Logged({logs[0]["log_level"]}, values.keys() - _LEADING)
    return found


def calls_that_log(tree: ast.AST) -> list[ast.Call]:
    """The calls of loggers, and of functions that log an event of a name given to them."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        call
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and (
            (call.func.attr in _METHODS and ast.unparse(call.func.value).endswith("log"))
            or call.func.attr == "_warn_once"
        )
    ]


def lines_in_the_code() -> tuple[dict[str, Logged], list[str]]:
    """What else is logged, by the code; and the calls whose event is no literal."""
    found: dict[str, Logged] = {}
    other: list[str] = []
    for path in (ROOT / "pytube").rglob("*.py"):
        for call in calls_that_log(ast.parse(path.read_text())):
            assert isinstance(call.func, ast.Attribute)
            said = ast.unparse(call)
            names = re.findall(r"'([a-z]+(?:_[a-z]+)+)'", " ".join(map(ast.unparse, call.args)))
            fields = {word.arg for word in call.keywords if word.arg}
            fields |= set(re.findall(r"'(\w+)':", said))
            levels = {call.func.attr} & (_METHODS - {"write"})
            if not names:
                other.append(f"{path.name}: {said}")
            for name in names:
                line = found.setdefault(name, Logged())
                line.levels |= levels
                line.fields |= fields - {"exc_info", *_LEADING}
    return found, other


def test_every_event_is_documented_with_its_level_and_fields() -> None:
    documented = {
        row[0].strip("`"): Logged(
            set(re.findall(r"debug|info|warning|error", row[1])), set(re.findall(r"`(\w+)`", row[2]))
        )
        for row in table_rows(OPERATIONS.section("What the log says"))
    }
    known = events_in_the_log()
    lines, _ = lines_in_the_code()
    assert documented.keys() == known.keys() | lines.keys()
    for name, event in known.items():
        assert documented[name].fields == event.fields, name
        assert event.levels <= documented[name].levels, name
    for name, line in lines.items():
        assert line.levels <= documented[name].levels, name
        assert line.fields <= documented[name].fields, name


def test_events_have_names_that_are_no_sentences() -> None:
    """Each is a literal, but where the name is the caller's, or that of the event's class."""
    _, other = lines_in_the_code()
    passed_on = [said for said in other if "_warn_once" not in said]
    assert sorted(passed_on) == [
        "database.py: self.log.warning(event, reason=str(error))",
        "leadership.py: self._queue.log.warning(event, partition=self._claim.partition, reason=str(error))",
        "logs.py: log.write(level, name, fields)",
    ]


def test_loggers_are_those_of_the_standard_library() -> None:
    imported = "".join(path.read_text() for path in (ROOT / "pytube").rglob("*.py"))
    assert "structlog" not in imported
    assert not re.search(r"logging\.(debug|info|warning|error)\(", imported)


# --- commands, functions for operators, extras ----------------------------------------------------


def commands(command: click.Command, *path: str) -> Iterator[tuple[str, str]]:
    """Each command that does something, and the first sentence of its help."""
    command = command.load() if isinstance(command, Later) else command
    if not isinstance(command, click.Group):
        yield f"`{' '.join(path)}`", command.get_short_help_str(limit=200)
        return
    for name, each in command.commands.items():
        yield from commands(each, *path, name)


def test_every_command_is_listed() -> None:
    rows = table_rows(BY_NAME["docs/cli.md"].text)
    assert sorted(rows) == sorted([name, summary] for name, summary in commands(cli, "pytube"))


def test_every_function_for_operators_is_listed() -> None:
    cells = [row[1] for row in table_rows(OPERATIONS.section("Inspect and change pods"))]
    assert {name for name in admin.__all__ if name.islower()} <= set(re.findall(r"`(\w+)`", " ".join(cells)))


def test_every_extra_is_listed() -> None:
    rows = [row for row in table_rows(OPERATIONS.section("Install the program")) if row[0].startswith("`")]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {row[0].strip("`") for row in rows} == project["optional-dependencies"].keys()


# --- what a worker tells ------------------------------------------------------------------------


def test_the_exit_codes() -> None:
    documented = [row[0] for row in table_rows(OPERATIONS.section("Run a worker")) if re.match(r"\d", row[0])]
    assert documented == re.findall(r"^  ([\d, ]*\d)  ", EXIT_CODES, re.MULTILINE)


def test_the_workers_sessions() -> None:
    """The names and counts in the section on connections are those of the code."""
    code = "".join(path.read_text() for path in (ROOT / "pytube/worker").glob("*.py"))
    opened = set(re.findall(r'(?:_keep|_open|open_session)\(\s*"([a-z ]+)"', code)) - {"start"}
    rows = table_rows(OPERATIONS.section("Connections"))
    shown = [conninfo_to_dict(connection_string("", f"pytube {purpose}")) for purpose in opened]
    assert {row[2].strip("`") for row in rows} == {str(one["application_name"]) for one in shown}
    (pooled,) = [row[1] for row in rows if row[2] == "`pytube pool`"]
    assert f"({PostgresConfig.model_fields['pool_size'].default})" in pooled
    (backfills,) = [row[1] for row in rows if row[2] == "`pytube back-fill runner`"]
    assert f"{upkeep._MOST_AT_ONCE} at most" in backfills
