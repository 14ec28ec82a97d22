"""The tables of events and other lines of the log, with what was read of them from the code."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from pytube import events
from pytube.logs import Logger, log_event
from tests.docs.reference.log_lines import LINES
from tests.docs.reference.markdown import code, codes, sentence, table
from tests.helpers.database import ROOT
from tests.helpers.logs import capture_logs

LEADING = {"host", "tube", "partition"}
"""Fields that the tables leave out."""
_METHODS = {"debug", "info", "warning", "error", "write"}
_OBVIOUS = "Follow the reason."
"""A remedy that goes without saying."""
_QUIET = {"info", "debug"}
"""Levels of lines that the page leaves out, unless they have a remedy: their names say what happened."""
_HEADINGS = ("event", "level", "fields", "when, and what to do")


@dataclasses.dataclass
class Logged:
    """What is logged under one name."""

    levels: set[str] = dataclasses.field(default_factory=set)
    fields: set[str] = dataclasses.field(default_factory=set)


def parts() -> Mapping[str, str]:
    """The two tables."""
    lines = [
        (code(name), one.level, codes(one.fields.split()), _when(one.when, one.remedy))
        for name, one in sorted(LINES.items())
        if one.remedy or one.level not in _QUIET
    ]
    return {
        "events": table(_HEADINGS, sorted(map(_row, kinds_of_events()))),
        "lines": table(_HEADINGS, lines),
    }


def kinds_of_events() -> list[type[events.Event]]:
    """The classes of events that are logged."""
    return [
        kind
        for kind in vars(events).values()
        if isinstance(kind, type) and issubclass(kind, events.Event) and not kind.__subclasses__()
    ]


def name_and_level(kind: type[events.Event]) -> tuple[str, str]:
    """As the log has them, of an event whose fields are all 1."""
    with capture_logs() as logs:
        values: dict[str, Any] = {field.name: 1 for field in dataclasses.fields(kind)}
        log_event(Logger("pytube.tests"), kind(**values))
    return logs[0]["event"], logs[0]["log_level"]


def fields_of(kind: type[events.Event]) -> list[str]:
    """Those that the tables have, in order."""
    return [field.name for field in dataclasses.fields(kind) if field.name not in LEADING]


def _row(kind: type[events.Event]) -> tuple[str, ...]:
    name, level = name_and_level(kind)
    when, _, remedy = " ".join((kind.__doc__ or "").split()).partition(" Remedy: ")
    return code(name), level, codes(fields_of(kind)), _when(when, remedy)


def _when(text: str, remedy: str) -> str:
    """With what to do, and links to the alerts that it names."""
    remedy = re.sub(r"\bPytube\w+", lambda found: f"[{found[0]}](runbook.md#{found[0].lower()})", remedy)
    said = sentence(remedy[:1].upper() + remedy[1:]) if remedy else _OBVIOUS
    return sentence(text) + ("" if said == _OBVIOUS else f" **{said}**")


# --- what the code logs -------------------------------------------------------------------------


def _calls_that_log(tree: ast.AST) -> list[ast.Call]:
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
    """What else than events is logged, by the code; and the calls whose event is no literal."""
    found: dict[str, Logged] = {}
    other: list[str] = []
    for path in (ROOT / "pytube").rglob("*.py"):
        for call in _calls_that_log(ast.parse(path.read_text())):
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
                line.fields |= fields - {"exc_info", *LEADING}
    return found, other
