"""`pytube plan`, `pytube apply`, `pytube document …`: the database follows what the file declares."""

from __future__ import annotations

import json
import math
import re
import shlex
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import psycopg
from psycopg.types.string import TextLoader

from pytube.cli.backfill import await_backfills
from pytube.cli.context import (
    confirm,
    database_options,
    declared_of,
    flag,
    key_argument,
    lock_option,
    naming_host,
    only_one,
    refuse_json,
    unresolved_of,
    yes_option,
)
from pytube.cli.output import print_json, tell, wants_json
from pytube.counts import printable, say_count
from pytube.db.database import Database
from pytube.declarations.apply import Applied, Declarations
from pytube.declarations.model import Action, DeclaredTube, Kind, Plan, State, Step
from pytube.declarations.script import script
from pytube.declarations.survey import compiled, of_hosts, survey
from pytube.declarations.tubes import shards_of
from pytube.documents.model import Document, Link
from pytube.errors import ConfigError, PytubeError, UsageError, on_host
from pytube.health.fleet import place
from pytube.keys import part_parameter
from pytube.verify.explain import parsed

_NAMES = click.argument("names", nargs=-1, metavar="[NAME]...")
_NOTHING = "the file declares no documents, tubes or outboxes, and none was applied"


@click.command()
@_NAMES
@database_options(configured=True, several=True)
def plan(databases: Sequence[Database], names: tuple[str, ...]) -> None:
    """Show what apply would change, without changing anything."""
    plans: dict[str | None, Sequence[Plan]] = {}
    down: list[PytubeError] = []
    for database in databases:
        try:
            with naming_host(database.host), database.connect() as connection:
                plans[database.host] = survey(declared_of(database), connection, database.schema, names)
        except PytubeError as error:
            down.append(error)
    found = of_hosts(plans)
    if not found:
        raise down[0]
    if wants_json():
        print_json(
            {
                f"{kind}{'es' if kind is Kind.OUTBOX else 's'}": [
                    {**_named(host), **one.as_json()}
                    for host, plans in found.items()
                    for one in plans
                    if one.kind is kind
                ]
                for kind in Kind
            }
        )
    else:
        text = "\n\n".join("\n".join([*_heading(host), *shown(plans)]) for host, plans in found.items())
        # `pytube apply` without a host does the steps of all.
        click.echo(on_host(text, databases[0].host) if len(databases) == 1 else text)
    if down:
        raise down[0]
    if refused := [one for plans in found.values() for one in plans if one.problem is not None]:
        what = "document" if all(one.kind is Kind.DOCUMENT for one in refused) else "section"
        raise ConfigError(f"{say_count(len(refused), what)} can't be applied: see above")


def _named(host: str | None) -> dict[str, str]:
    """For programs: the host, if it has a name."""
    return {} if host is None else {"host": host}


def _heading(host: str | None) -> list[str]:
    """The same for people."""
    return [] if host is None else [f"host {host}"]


@click.command()
@_NAMES
@yes_option
@flag("--prune", help="Also drop what the file no longer declares.")
@flag("--backfill", help="Resend all documents that change or were never sent.")
@flag("--wait", "waits", help="Wait until workers have delivered the backfills.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=math.inf,
    metavar="SECONDS",
    help="Maximum seconds of --wait. [default: as long as it takes]",
)
@lock_option
@flag(
    "--print",
    "is_printed",
    help="Print the steps, a script for psql, and run nothing; needs only the rights of plan.",
)
@database_options(configured=True, several=True)
def apply(
    databases: Sequence[Database],
    names: tuple[str, ...],
    yes: bool,
    prune: bool,
    backfill: bool,
    waits: bool,
    timeout: float,
    lock_timeout: float,
    is_printed: bool,
) -> None:
    """Make the database match the configuration file.

    Asks before it detaches or drops anything. If it is interrupted, run it again: it continues where it
    stopped. With --wait, exits with 1 after the timeout, or if no worker serves a tube for half a minute.
    Of several hosts, each is changed after the other, and none if one of them can't be.
    """
    if is_printed:
        refuse_json()
        only_one(databases)
    if is_printed and waits:
        raise click.UsageError("--print runs nothing, so there is nothing to --wait for")
    progress = _Applying()
    with ExitStack() as stack:
        hosts = _hosts(databases, names, stack, prune=prune)
        if is_printed:
            click.echo("\n".join(script(hosts[0].at, hosts[0].plans, backfill=backfill, left=hosts[0].left)))
            return
        _check(hosts, limit=lock_timeout, yes=yes)
        finished: list[str] = []
        for host in hosts:
            behind = f"; finished: {', '.join(finished) or 'no other host'}; run it again"
            with naming_host(host.name, behind=behind):
                progress.begin(host.name)
                for one in host.plans:
                    done = host.at.apply(one, backfill=backfill, limit=lock_timeout, told=progress.step)
                    progress.done(one, _result(one, done, asked=backfill), done.backfills)
                for one in host.left:
                    progress.done(one, f"{one.name}: {one.notes[0]}", ())
            finished.append(str(host.name))
    progress.end()
    if waits:
        _await(databases, hosts, names, timeout)


def _await(
    databases: Sequence[Database], hosts: Sequence[_Host], names: Sequence[str], timeout: float
) -> None:
    """Wait for the backfills of all hosts."""
    ends, left = time.monotonic() + timeout, timeout
    only = ["--host", str(hosts[0].name)] if len(hosts) == 1 and hosts[0].name is not None else []
    again = shlex.join(["pytube", "apply", *names, *only, "--wait"])
    for database, host in zip(databases, hosts, strict=True):
        with naming_host(host.name):
            await_backfills(database, host.tubes, again, timeout=left)
        left = max(0.0, ends - time.monotonic())


@dataclass(frozen=True, slots=True)
class _Host:
    """The plans of one host."""

    name: str | None
    at: Declarations
    plans: Sequence[Plan]
    left: Sequence[Plan]
    """Of what the file no longer declares, and is kept."""

    @property
    def tubes(self) -> Sequence[str]:
        return [one.name for one in self.plans if one.target is not None and one.kind is not Kind.OUTBOX]


def _hosts(
    databases: Sequence[Database], names: Collection[str], stack: ExitStack, *, prune: bool
) -> list[_Host]:
    """The plans of all hosts, with sessions that `stack` ends; raises if something can't be applied."""
    connections, plans = {}, {}
    more = "; --host applies to one host alone" if len(databases) > 1 else ""
    for one in databases:
        with naming_host(one.host, "nothing was changed: ", more):
            connections[one.host] = connection = stack.enter_context(one.connect())
            plans[one.host] = survey(declared_of(one), connection, one.schema, names)
    found = of_hosts(plans)
    if refused := [f"{place(host)}{one.problem}" for host in found for one in found[host] if one.problem]:
        raise ConfigError(f"nothing was changed: {'; '.join(refused)}")
    return [
        _Host(
            one.host,
            Declarations(connections[one.host], one.schema),
            [plan for plan in found[one.host] if prune or plan.state is not State.GONE],
            [plan for plan in found[one.host] if not prune and plan.state is State.GONE],
        )
        for one in databases
    ]


def _check(hosts: Sequence[_Host], *, limit: float, yes: bool) -> None:
    """Refuse plans that can't be finished on one of them, and ask."""
    for host in hosts:
        with naming_host(host.name):
            host.at.check(host.plans, limit=limit)
    losses = [f"{place(host.name)}{step.text}" for host in hosts for one in host.plans for step in one.losses]
    if losses:
        confirm(f"{'; '.join(losses)}: continue?", yes=yes)


class _Applying:
    """Prints steps and results as they come, or all of them as JSON at the end."""

    def __init__(self) -> None:
        self._host: str | None = None
        self._results: list[dict[str, object]] = []
        self._steps: list[dict[str, object]] = []

    def begin(self, host: str | None) -> None:
        """From now on, everything is of this host."""
        self._host = host
        if not wants_json():
            for line in _heading(host):
                click.echo(line)

    def step(self, step: Step) -> None:
        """Print a step that was taken."""
        self._steps.append(step.as_json())
        if not wants_json():
            click.echo(f"{_sign(step)} {printable(step.text)}")

    def done(self, one: Plan, text: str, backfills: Sequence[int]) -> None:
        """Print the result for one section of the file."""
        text = on_host(text, self._host)
        self._results.append(
            {
                **_named(self._host),
                one.kind.value: one.name,
                "steps": self._steps,
                "backfills": list(backfills),
                "result": text,
            }
        )
        self._steps = []
        if not wants_json():
            click.echo(text)

    def end(self) -> None:
        """Print the rest."""
        if wants_json():
            print_json(self._results)
        elif not self._results:
            click.echo(_NOTHING)


def _result(one: Plan, done: Applied, *, asked: bool) -> str:
    """The result for one section; `asked`: by `--backfill`."""
    if one.target is None and one.kind is Kind.DOCUMENT:
        return f"{one.name}: no document any more"
    if one.target is None:
        dropped = any(step.action is Action.DROP for step in done.steps)
        return f"{one.name}: {'dropped' if dropped else 'no longer declared'}"
    text = f"{one.name}: applied" if done.steps else f"{one.name}: nothing to do"
    start = f"pytube backfill start {one.name}"
    if done.backfills:
        why = ", as changes were missed" if one.missed_changes else ""
        text += f"; workers send all documents{why}; see pytube backfill status {one.name}"
    elif asked and one.kind is not Kind.OUTBOX:
        why = "it has not changed" if one.kind is Kind.DOCUMENT else "no table is new"
        text += f"; {why}, so no backfill was asked for; to have one: {start}"
    elif one.wants_backfill:
        text += f"; documents at the sink stay as they are until a row changes; to resend all: {start}"
    return text


@click.group()
def document() -> None:
    """Show declared documents, or translate a PGSync schema."""


@document.command("from-pgsync")
@click.argument("schema", type=click.Path(path_type=Path))
def from_pgsync(schema: Path) -> None:
    """Translate a PGSync schema, the JSON file SCHEMA, to TOML.

    Lists on stderr the parts that have no translation, and the differences in documents. Reads only that
    file and changes nothing.
    """
    from pytube.documents import pgsync

    try:
        text = schema.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"{schema}: can't be read: {reason}") from None
    toml, remarks = pgsync.from_pgsync(text)
    click.echo(toml, nl=False)
    for remark in remarks:
        click.echo(remark, err=True)


@document.command()
@click.argument("name")
@key_argument(is_required=False, several=True)
@flag("--query", help="Show only the query.")
@database_options(configured=True)
def show(database: Database, name: str, key: tuple[str, ...] | None, query: bool) -> None:
    """Show a document's query and paths, or one document.

    With KEY, shows the document of that row as a worker would send it now; give a key of several columns as
    several arguments.
    """
    config = unresolved_of(database)
    with database.connect() as connection:
        found = compiled(config, name, connection)
        if key is not None:
            click.echo(_sent(connection, found, key))
        elif query:
            tell(found.query, {"document": name, "query": found.query})
        else:
            paths = [
                {"table": str(link.table), "by": list(link.by), "path": link.path} for link in found.relations
            ]
            value = {"document": name, "query": found.query, "paths": paths}
            tell("\n".join(_statements(found)), value)


def _sent(connection: psycopg.Connection, document: Document, key: Sequence[str]) -> str:
    """The document of a row, as JSON."""
    with connection.cursor() as cursor:
        for kind in ("json", "jsonb"):
            cursor.adapters.register_loader(kind, TextLoader)  # to the digit as it is sent
        row = cursor.execute(document.query.encode(), _arguments(document, key)).fetchone()
    if row is None:
        raise UsageError(
            f"document {document.name} has no key {' '.join(key)}: {document.root.table} has no such row, or "
            "`where` leaves it out; a worker deletes the document at the sink"
        )
    return str(row[1])


def _arguments(document: Document, words: Sequence[str]) -> dict[str, Any]:
    """The arguments of the document's query."""
    if document.key is None:
        return {"ids": [parsed(document.key_type, " ".join(words))]}
    text = document.key.of_words(words)
    if text is None:
        with suppress(ValueError, TypeError, RecursionError):
            text = document.key.text(json.loads(" ".join(words)))
    values = None if text is None else document.key.values(text)
    if values is None:
        columns = ", ".join(f"{column.name} ({column.type})" for column in document.key_columns)
        raise UsageError(
            f"{' '.join(words)!r} is not a key of document {document.name}; give its columns {columns}"
        )
    parts = {part_parameter(place): [value] for place, value in enumerate(values)}
    return {"ids": [document.key.text(values)], **parts}


def _statements(document: Document) -> Iterator[str]:
    """The query and the paths, as SQL with comments."""
    yield f"-- document {document.name}: the documents of the keys {_placeholders(document)}"
    yield f"{document.query};"
    for link in document.relations:
        yield f"\n-- {link.table} by {link.column}: keys of documents that the values %(keys)s lead to"
        yield f"{link.path};"


def _placeholders(document: Document) -> str:
    if not document.key_columns:
        return "%(ids)s"
    columns = [
        f"%({part_parameter(place)})s ({column.name})" for place, column in enumerate(document.key_columns)
    ]
    return f"%(ids)s, whose columns are {', '.join(columns)}"


# --- a plan for people ----------------------------------------------------------------------------


def shown(found: Sequence[Plan]) -> list[str]:
    """The steps for each document, tube and outbox, and its parts."""
    if not found:
        return [_NOTHING]
    lines: list[str] = []
    for one in found:
        lines += [""] if lines else []
        if one.problem is None:
            lines += _planned(one)
        else:
            lines += [f"{one.kind} {one.name}: can't be applied", f"  {one.problem}"]
    plans = [one for one in found if one.problem is None]
    return [*map(printable, lines), "", _end(plans)]


def _end(plans: Sequence[Plan]) -> str:
    """The command that runs these steps."""
    steps = [step for one in plans if one.state is not State.GONE for step in one.steps]
    if any(one.state is State.GONE for one in plans):
        return "pytube apply --prune does all of this; without --prune, everything that left the file stays"
    if not steps:
        return "nothing to do" if plans else "nothing is changed"
    asks = ", and asks before it takes anything away" if any(step.loses for step in steps) else ""
    return f"pytube apply does {'these steps' if len(steps) > 1 else 'this step'}{asks}"


_STATES = {
    State.NEW: "new",
    State.CHANGED: "changed in the file",
    State.DRIFTED: "not as it was applied",
    State.APPLIED: "applied, nothing to do",
    State.GONE: "no longer in the file",
}


def _planned(one: Plan) -> Iterator[str]:
    yield f"{one.kind} {one.name}: {_STATES[one.state]}"
    for step in one.steps:
        yield f"  {_sign(step)} {step.text}"
    if tree := _tree(one):
        yield ""
        yield from (f"  {line}" for line in tree)
    if one.missing_indexes:
        yield ""
        yield "  missing indexes: without them, each change reads a whole table"
        for statement in one.missing_indexes:
            yield from (f"    {line}" for line in statement.splitlines())
    if one.notes or one.wants_backfill:
        yield ""
    for note in one.notes:
        yield f"  ! {note}"
    if one.missed_changes:
        yield "  ! changes were missed where it was not followed: pytube apply has workers send all documents"
    elif one.wants_backfill:
        said = "documents at the sink stay as they are until a row changes"
        if one.kind is Kind.DOCUMENT:
            new = one.state is State.NEW
            said = "its documents are not at the sink yet" if new else "its documents change"
        yield f"  ! {said}: pytube apply --backfill has workers send all of them"


def _sign(step: Step) -> str:
    if step.loses:
        return "-"
    return "+" if step.action in (Action.MAKE, Action.COMPANION, Action.ATTACH) else "~"


_PART = re.compile(r'"(?:[^"\\]|\\.)*"|[^.]+')


def _tree(one: Plan) -> list[str]:
    """A line for each section of a document, or each table of a tube, below its root table."""
    if isinstance(one.target, Document):
        headings = ("field", "table", "followed by", "a changed row touches")
        rows = _rows(_nested(one.target), one.name)
    elif isinstance(one.target, DeclaredTube) and one.target.tables:
        headings = ("table", "followed by", "shards", "an UPDATE counts that changes")
        rows = _tables(one.target)
    else:
        return []
    aligned = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*aligned, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in aligned]


def _tables(tube: DeclaredTube) -> Iterator[tuple[str, str, str, str]]:
    """Each root table, with its related tables below."""
    for root in tube.tables:
        if not root.root:
            continue
        related = [one for one in tube.tables if not one.root and one.same_shards(root)]
        for one in (root, *related):
            branch = "" if one is root else "└─ " if one is related[-1] else "├─ "
            counting = ", ".join(sorted(one.columns)) or "anything"
            shards = shards_of(one).partition(" ")[2] if one is root else ""
            yield f"{branch}{one.table}", ", ".join(one.key), shards, counting


def _nested(document: Document) -> dict[str, Any]:
    """Sections within sections; under "" the links of each."""
    tree: dict[str, Any] = {"": []}
    for link in document.links:
        for section in link.sections:
            place = tree
            for part in _PART.findall(section)[2:]:
                place = place.setdefault(part, {"": []})
            place[""].append(link)
    return tree


def _rows(
    tree: Mapping[str, Any], label: str, first: str = "", others: str = ""
) -> Iterator[tuple[str, str, str, str]]:
    for number, link in enumerate(tree[""] or [None]):
        start = f"{first}{label}" if number == 0 else others
        yield (
            (start, "", "", "")
            if link is None
            else (start, str(link.table), ", ".join(link.by), _touches(link))
        )
    children = [name for name in tree if name]
    for name in children:
        is_last = name == children[-1]
        branch, below = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
        yield from _rows(tree[name], name, others + branch, others + below)


def _touches(link: Link) -> str:
    mean, worst = link.documents
    if link.path is None or round(worst) <= 1:
        return "1 document"
    about = f"{mean:.1f}" if mean < 10 and mean != round(mean) else f"{mean:.0f}"
    at_most = f", at most {worst:.0f}" if round(worst) > round(mean) else ""
    return f"about {about} documents{at_most}"
