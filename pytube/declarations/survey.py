"""All that a file declares, or a part of it, compared with the database."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import psycopg
from psycopg import errors

from pytube.config import Config, OutboxConfig, TubeConfig
from pytube.config.documents import PartSection
from pytube.config.section import key_path
from pytube.config.tubes import Attached
from pytube.db.errors import describe, translated
from pytube.db.version import check
from pytube.declarations import documents, tubes
from pytube.declarations.model import (
    DeclaredOutbox,
    DeclaredTube,
    Kind,
    Plan,
    State,
    Target,
    There,
    farewell,
    read_there,
    shards_begin,
)
from pytube.documents.catalogue import Catalogue
from pytube.documents.compile import compile_document
from pytube.documents.model import Document, Tube
from pytube.errors import ConfigError, UsageError, on_host
from pytube.sinks.registry import KeyTemplate
from pytube.tubes.calls import explained

_GUARDED = """
    SELECT n.nspname || '.' || c.relname, current_user
    FROM unnest(%s::text[], %s::text[]) AS t (nspname, relname)
    JOIN pg_catalog.pg_namespace AS n ON n.nspname = t.nspname
    JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = t.relname
    WHERE c.relrowsecurity AND NOT pg_catalog.row_security_active(c.oid)
    ORDER BY 1
"""
_IS_RELATION = """
    SELECT EXISTS (
        SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = %s AND c.relname = %s)
"""
_COMPANION = re.compile(r"(?P<document>.+)_relations(_[0-9]+)?")
_TEMPLATED = ("kafka", "opensearch", "redis")
"""The sinks whose option `key` is a template."""


def survey(
    config: Config,
    connection: psycopg.Connection,
    schema: str = "tube",
    names: Collection[str] = (),
    kinds: Collection[Kind] = tuple(Kind),
) -> Sequence[Plan]:
    """The plans of documents, then tubes, then outboxes; last of each kind, the ones that are gone.

    Args:
        config: the file.
        connection: with pytube's schema in its path; of a role that may read the tables.
        schema: pytube's.
        names: of some; none: all.
        kinds: of these only.

    Raises:
        SchemaMismatch: the database has another version of pytube's SQL.
        UsageError: nothing has one of the names.
    """
    check(connection, schema)
    with explained(), translated():
        there = read_there(connection, schema)
    found = [(kind, name) for kind in Kind for name in _names(config, there, kind)]
    if unknown := sorted({*names} - {name for _, name in found}):
        known = ", ".join(name for _, name in found) or "none"
        raise UsageError(
            f"there is no document {unknown[0]!r}, nor a tube or outbox that is declared, in the file or "
            f"applied; there are: {known}"
        )
    return [
        _one(config, connection, schema, there, kind, name)
        for kind, name in found
        if kind in kinds and (not names or name in names)
    ]


def of_hosts(found: Mapping[str | None, Sequence[Plan]]) -> dict[str | None, list[Plan]]:
    """The plans of hosts, by name; refused where two of them can't feed one copy.

    Commands that they name are for their hosts.
    """
    seen: dict[tuple[Kind, str], list[tuple[str | None, Plan]]] = {}
    judged: dict[str | None, list[Plan]] = {}
    for host, plans in found.items():
        judged[host] = []
        for one in plans:
            others = seen.setdefault((one.kind, one.name), [])
            problem = next((why for other in others if (why := _unlike(*other, host, one))), None)
            others.append((host, one))
            if problem is not None:
                one = Plan(one.kind, one.name, State.REFUSED, problem=f"{one.subject}: {problem}")  # noqa: PLW2901
            said = None if one.problem is None else on_host(one.problem, host)
            notes = tuple(on_host(note, host) for note in one.notes)
            judged[host].append(replace(one, problem=said, notes=notes))
    return judged


def _unlike(here: str | None, one: Plan, there: str | None, other: Plan) -> str | None:
    """Why two hosts can't have these plans of one section; None: they can."""
    shard = next((a.shard for a in _ranges(one.target) for b in _ranges(other.target) if a.overlaps(b)), None)
    if shard is not None:
        return (
            f"hosts {here} and {there} would both have its shard {shard}, so rows with the same id would "
            "overwrite each other at the sink; move the section of the new host in the file"
        )
    if not isinstance(one.target, Document) or not isinstance(other.target, Document):
        return None
    mine, theirs = one.target.columns, other.target.columns
    different = [
        f"{name} is {mine.get(name, 'not there')} on {here} and {theirs.get(name, 'not there')} on {there}"
        for name in {**mine, **theirs}
        if mine.get(name) != theirs.get(name)
    ]
    if not different:
        return None
    return (
        f"its tables differ: {', '.join(different)}; make them alike, or plan and apply one host at a time, "
        "by --host"
    )


def _ranges(target: Target | None) -> Sequence[Attached]:
    """Tables with the shards of a document or a tube."""
    if isinstance(target, Document):
        return [Attached(target.root.table, target.root.by, target.shard, target.shards)]
    return target.tables if isinstance(target, DeclaredTube) else ()


def _names(config: Config, there: There, kind: Kind) -> list[str]:
    """The declared ones, in the order of the file; then the ones that are declared no longer."""
    declared = [name for name, section in _sections(config, kind).items() if section.declared]
    if kind is Kind.DOCUMENT:
        declared = list(config.documents)
    # The plan of a document covers its tube.
    return declared + sorted(there.applied(kind).keys() - {*declared, *config.documents})


def _one(
    config: Config, connection: psycopg.Connection, schema: str, there: There, kind: Kind, name: str
) -> Plan:
    try:
        with connection.transaction():  # of the caller's, a refused statement fails only a savepoint
            _refuse_name(connection, schema, there, kind, name)
            target = _target(config, connection, schema, there, kind, name)
            if target is None:
                return farewell(kind, name, there, stays=name in _sections(config, kind))
            found = plan(target, there)
            if isinstance(target, Document):
                more = (*_appeared(found, config, there.tubes), *_guarded(found, connection))
                found = replace(found, notes=(*found.notes, *more))
            elif isinstance(target, DeclaredOutbox) and target.table is not None:
                Catalogue(connection).table(target.table, key_path(("outbox", name, "adopt")))
            return found
    except (ConfigError, UsageError) as error:
        problem = str(error)
    except errors.InsufficientPrivilege:
        raise
    except (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError) as error:
        problem = f"{kind}.{name}: Postgres refused: {describe(error)}; correct it"
    return Plan(kind, name, State.REFUSED, problem=problem)


def _refuse_name(connection: psycopg.Connection, schema: str, there: There, kind: Kind, name: str) -> None:
    """Refuse a name that the SQL would not give a new tube or outbox."""
    if name in there.tubes or name in there.outboxes:
        return
    ((is_relation,),) = connection.execute(_IS_RELATION, (schema, name)).fetchall()
    reasons = {
        "is empty": not name,
        "has a comma or a control character": re.search(r"[,\x00-\x1f\x7f-\x9f]", name),
        "begins with pg_, as Postgres' own do": name.startswith("pg_"),
        f"is that of another relation in the schema {schema}": is_relation,
    }
    for reason, holds in reasons.items():
        if holds:
            raise UsageError(f"{key_path((kind.value, name))}: its name {reason}; choose another one")


def _target(
    config: Config, connection: psycopg.Connection, schema: str, there: There, kind: Kind, name: str
) -> Target | None:
    """What the file declares; None: nothing any more."""
    now = there.tubes.get(name)
    if kind is Kind.DOCUMENT:
        if name not in config.documents:
            return None
        document = compiled(config, name, connection)
        root = Attached(document.root.table, document.root.by)
        return replace(document, shard=shards_begin([root], now, config.first_shard))
    section = _sections(config, kind).get(name)
    match section:
        case TubeConfig() if section.declared:
            return tubes.declared_tube(name, section, now, connection, schema, config.first_shard)
        case OutboxConfig() if section.declared:
            return tubes.declared_outbox(name, section)
    return None


def _sections(config: Config, kind: Kind) -> Mapping[str, TubeConfig | OutboxConfig]:
    return config.outboxes if kind is Kind.OUTBOX else config.tubes


def plan(target: Target, there: There) -> Plan:
    """The plan for one declaration.

    Raises:
        UsageError: the present state can't become it; the message says what to do.
    """
    match target:
        case Document():
            return documents.plan(target, there)
        case DeclaredTube():
            return tubes.plan(target, there)
        case DeclaredOutbox():
            return tubes.plan_outbox(target, there)


# --- documents --------------------------------------------------------------------------------------


def compiled(config: Config, name: str, connection: psycopg.Connection) -> Document:
    """A document of the file, by the catalogue of the database.

    Raises:
        ConfigError: the file declares none of that name, or it can't be made.
    """
    if name not in config.documents:
        there = ", ".join(sorted(config.documents)) or "none"
        raise ConfigError(f"the file has no [document.{name}]; it declares: {there}")
    other = _COMPANION.fullmatch(name)
    if other is not None and other["document"] in config.documents:
        raise ConfigError(
            f"document.{name}: companions of document {other['document']} have such names; give it another "
            "one"
        )
    document = compile_document(name, config.documents[name], Catalogue(connection))
    _refuse_names(config, document)
    return document


def _refuse_names(config: Config, document: Document) -> None:
    """Refuse a template for the names of documents at the sink that names other columns than their key has.

    Two documents would have one name, or none would have any.
    """
    sink = config.tube(document.name).sink
    text = sink.options.get("key")
    if sink.type not in _TEMPLATED or not isinstance(text, str):
        return
    try:
        template = KeyTemplate(text)
    except ValueError:
        return  # it is reported when the sink opens
    reason = template.why_not(document.key, str(document.root.table))
    if reason is not None:
        raise ConfigError(f"key {key_path(('tube', document.name, 'sink', 'key'))}: {reason}")


def _appeared(found: Plan, config: Config, there: Mapping[str, Tube]) -> Iterator[str]:
    """What "*" takes in that the document which was applied last does not have."""
    if found.state is not State.CHANGED:
        return
    stars = set(_stars(key_path(("document", found.name)), config.documents[found.name]))
    for tube, link in found.followed:
        was = there[tube].table(link.table) if tube in there else None
        places = [one for one in link.sections if one in stars]
        if places and was is not None and was.columns and (new := sorted(set(link.columns) - was.columns)):
            yield (
                f'"*" of {" and ".join(places)} also means {", ".join(new)} of {link.table}, which the '
                "document that was applied does not have"
            )


def _stars(path: str, section: PartSection) -> Iterator[str]:
    """The sections that have all columns of their tables."""
    if "*" in section.fields:
        yield path
    for name, child in section.children.items():
        yield from _stars(f"{path}.{key_path((name,))}", child)


def _guarded(found: Plan, connection: psycopg.Connection) -> Iterator[str]:
    """Tables whose row security lets this role see all rows, and perhaps not the role of a worker."""
    names = sorted({link.table for _, link in found.followed})
    schemas, names_ = (list(column) for column in zip(*names, strict=True))
    for table, role in connection.execute(_GUARDED, (schemas, names_)).fetchall():
        yield (
            f"row security of {table} hides no rows from {role}, but may do so from the role of a worker, "
            "which refuses the document then; give that role BYPASSRLS"
        )
