"""The page of SQL, from a database with the SQL installed; errors are those that the files' comments name."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import psycopg

from tests.docs.reference.markdown import codes, sentence
from tests.helpers.database import ROOT

HEADINGS = {
    "Tubes": ("tubes/tubes", "tubes/stats", "tubes/indexes"),
    "Capture": ("capture/",),
    "Fan-out": ("pods/put",),
    "Backfill": ("backfill/steps", "backfill/control_pods"),
    "Backfills in chunks": ("backfill/", "jobs/ranges"),
    "Consume without a worker": ("pods/consume", "pods/wait"),
    "Outboxes": ("outbox/tables", "outbox/stash", "outbox/stats"),
    "Records": ("outbox/",),
    "Operators": ("operators/",),
    "Sinks": ("tubes/sinks",),
    "Documents": ("tubes/documents",),
    "Leadership": ("leader/",),
    "Pods of a term": ("pods/marks", "pods/park"),
    "The settled seq": ("pods/settle",),
    "Jobs": ("jobs/",),
}
"""The functions by heading, by the beginnings of their files' names; the first that fits a file counts."""

_OF_PROGRAMS = {"Records", "Sinks", "Documents", "Leadership", "Pods of a term", "The settled seq", "Jobs"}
"""Headings of functions that pytube's own programs call."""
_FOR_PEOPLE = {
    "tube_backfill_create",
    "tube_backfill_command",
    "outbox_retry",
    "outbox_parked_drop",
    "tube_leader_rebase",
    "tube_seq_advance",
    "tube_job_forget",
    "tube_stream_purge",
}
"""Functions under these headings, and in chunks, that people call, too."""
_PARTS = {"tube_as_caller", "tube_keys_as_caller", "tube_key_part", "tube_key_types", "tube_id_column"}
"""Functions elsewhere that only others call."""
_BY_NAME = _OF_PROGRAMS | {"Backfills in chunks", "Operators"}
"""Headings where the page leaves out functions that no one but pytube's programs has a use for."""
_OF_ANYONE = {"readers", "all", "any role"}

_DEFINED = re.compile(r'((?:^--.*\n)*)^CREATE OR REPLACE FUNCTION :"schema"\.(\w+)\(', re.MULTILINE)
_ERRORS = re.compile(r"\bErrors: (.*?)(?=^-- [A-Z]|\bLocks: |\Z)", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"\b(?:TU\d{3}|0A000|[245]\d[A-Z0-9]\d\d)\b")
_ROLES = re.compile(r"tube_(admin|worker|writer|monitor)$")
_ROLES_IN_ALL = 4

_TERM = "tube text, partitions integer, partition integer, leader_id uuid"
_OF_ARGUMENTS = ("22", "23", "42", "55P03", "TU102", "TU103", "TU106", "TU108", "TU111", "TU122")
"""How the codes begin that any function may raise, for its arguments or locks, which is said once."""
_READERS = "admin, monitor, worker"
_USES_OF_A_USUAL_TYPE = 3

_FUNCTIONS = r"""
    SELECT p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid),
        coalesce(obj_description(p.oid, 'pg_proc'), ''),
        ARRAY(
            SELECT a.grantee::regrole::text
            FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
            WHERE a.grantee <> p.proowner AND a.grantee <> 0 ORDER BY 1
        ),
        EXISTS (
            SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a WHERE a.grantee = 0
        )
    FROM pg_proc AS p
    WHERE p.pronamespace = 'tube'::regnamespace AND p.proname NOT LIKE 'tube\_private\_%'
        AND p.prorettype <> 'trigger'::regtype AND p.proname ~ '^(tube|outbox)_'
    ORDER BY p.proname, p.oid
"""


@dataclass(frozen=True, slots=True)
class Function:
    """A public function, as it is installed."""

    name: str
    arguments: str
    result: str
    comment: str
    callers: str
    errors: Sequence[str]

    def line(self, usual: str, types: Mapping[str, str]) -> str:
        """Its line, where functions usually have these callers; without types that are said once."""
        callers = "" if self.callers == usual else f" Callers: {self.callers}."
        own = [state for state in self.errors if not state.startswith(_OF_ARGUMENTS)]
        errors = f" Errors: {', '.join(own)}." if own else ""
        arguments = self.arguments
        for name, kind in types.items():
            arguments = re.sub(rf"\b{name} {kind}(?=,| =|$)", name, arguments)
        arguments = re.sub(r"(\w+)( [^,=]+)? = NULL", r"\1?\2", arguments)
        result = "" if self.result == "void" else f" → {self.result}"
        return f"- `{self.name}({arguments}){result}`: {sentence(self.comment)}{callers}{errors}"


def parts(connection: psycopg.Connection[tuple[object, ...]]) -> Mapping[str, str]:
    """The sections of the functions."""
    files = _files()
    found: dict[str, list[Function]] = defaultdict(list)
    for one in _installed(connection, {name: states for name, (_, states) in files.items()}):
        found[_heading(files[one.name][0])].append(one)
    order = list(files)
    shown = [one for heading, several in found.items() for one in several if not _is_internal(one, heading)]
    types = _usual_types(one.arguments for one in shown)
    sections = []
    for heading in HEADINGS:
        several = sorted(found[heading], key=lambda one: order.index(one.name))
        usual, _ = Counter(one.callers for one in several).most_common(1)[0]
        said = f"Callers: {usual}."
        several = [one for one in several if not _is_internal(one, heading)]
        if heading in _OF_PROGRAMS:
            several = [replace(one, comment=re.split(r"\. |; ", one.comment)[0]) for one in several]
        if several:
            lines = "\n".join(one.line(usual, types) for one in several)
            sections.append(f"## {heading}\n\n{said}\n\n{lines}")
    return {"types": f"{_said(types)}.", "functions": "\n\n".join(sections)}


def internal(connection: psycopg.Connection[tuple[object, ...]]) -> set[str]:
    """The functions that the page leaves out, because only pytube's programs call them."""
    files = _files()
    found = _installed(connection, {name: states for name, (_, states) in files.items()})
    return {one.name for one in found if _is_internal(one, _heading(files[one.name][0]))}


def _is_internal(one: Function, heading: str) -> bool:
    """Whether the page leaves it out."""
    if _TERM in one.arguments or one.name in _PARTS:
        return True
    if heading == "Operators":
        return one.callers == "admin, worker"
    return heading in _BY_NAME and one.callers not in _OF_ANYONE and one.name not in _FOR_PEOPLE


def _usual_types(signatures: Iterable[str]) -> dict[str, str]:
    """The types of arguments by name, where several functions have the name, and always of one type."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for argument in ", ".join(signatures).split(", "):
        name, _, kind = argument.partition(" = ")[0].partition(" ")
        kinds[name].append(kind)
    return {
        name: every[0]
        for name, every in sorted(kinds.items())
        if len(every) >= _USES_OF_A_USUAL_TYPE and len(set(every)) == 1 and re.fullmatch(r"\w+", every[0])
    }


def _said(types: Mapping[str, str]) -> str:
    names: dict[str, list[str]] = defaultdict(list)
    for name, kind in types.items():
        names[kind].append(name)
    return "; ".join(f"{kind}: {codes(several)}" for kind, several in sorted(names.items()))


def _heading(file: str) -> str:
    return next(name for name, starts in HEADINGS.items() if file.startswith(starts))


def _files() -> dict[str, tuple[str, tuple[str, ...]]]:
    """The file of each function, in the order of installation, and the SQLSTATEs that its comment names."""
    contents = re.findall(r"^\\ir (\w+/\w+)\.sql$", (ROOT / "sql/install.sql").read_text(), re.MULTILINE)
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for file in contents:
        for comment, name in _DEFINED.findall((ROOT / f"sql/{file}.sql").read_text()):
            said = _ERRORS.search(comment)
            found.setdefault(name, (file, tuple(dict.fromkeys(_CODE.findall(said[1] if said else "")))))
    return found


def _installed(
    connection: psycopg.Connection[tuple[object, ...]], errors: Mapping[str, Sequence[str]]
) -> Iterator[Function]:
    """The public functions; of several of one name, the first."""
    seen: set[str] = set()
    for row in connection.execute(_FUNCTIONS).fetchall():
        name, arguments, result, comment = map(str, row[:4])
        if name in seen:
            continue
        seen.add(name)
        roles = row[4]
        assert isinstance(roles, list)
        members = [found[1] for role in roles if (found := _ROLES.search(role))]
        callers = "any role" if row[5] else "all" if len(members) == _ROLES_IN_ALL else ", ".join(members)
        callers = "readers" if callers == _READERS else callers
        assert callers, f"nobody may call {name}"
        yield Function(name, _arguments(arguments), _result(result), comment, callers, errors[name])


def _arguments(text: str) -> str:
    text = text.replace("outbox text, partitions integer, partition integer, leader_id uuid", _TERM)
    return re.sub(r" DEFAULT ([^,]*?)(::[\w\[\] ]+)?(?=,|$)", r" = \1", text)


def _result(text: str) -> str:
    """A table by the names of its columns."""
    text = text.removeprefix("tube.")
    found = re.fullmatch(r"TABLE\((.*)\)", text)
    return ", ".join(column.split()[0] for column in found[1].split(", ")) if found else text
