"""All documents of a file, or some of them, each compared with the database."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import psycopg
from psycopg import errors

from pytube.config import Config
from pytube.config.documents import PartSection
from pytube.config.section import key_path
from pytube.db.errors import describe
from pytube.documents.apply import Documents
from pytube.documents.catalogue import Catalogue
from pytube.documents.companions import TubeState
from pytube.documents.compile import compile_document
from pytube.documents.model import Document
from pytube.documents.plan import Plan, State, gone
from pytube.errors import ConfigError, UsageError
from pytube.sinks.registry import KeyTemplate

_GUARDED = """
    SELECT n.nspname || '.' || c.relname, current_user
    FROM unnest(%s::text[], %s::text[]) AS t (nspname, relname)
    JOIN pg_catalog.pg_namespace AS n ON n.nspname = t.nspname
    JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = t.relname
    WHERE c.relrowsecurity AND NOT pg_catalog.row_security_active(c.oid)
    ORDER BY 1
"""
_COMPANION = re.compile(r"(?P<document>.+)_relations(_[0-9]+)?")


_TEMPLATED = ("kafka", "opensearch", "redis")
"""The sinks whose option `key` is a template."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A document that can't be applied; nothing of it is changed."""

    name: str
    problem: str
    """Where, what, and what to do."""

    def as_json(self) -> dict[str, object]:
        """For programs; as that of a `Plan`."""
        return {
            "document": self.name,
            "state": "refused",
            "problem": self.problem,
            "steps": [],
            "tables": [],
            "missing_indexes": [],
            "notes": [],
            "backfill": False,
        }


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
        return  # whoever opens the sink says so
    reason = template.why_not(document.key, str(document.root.table))
    if reason is not None:
        raise ConfigError(f"key {key_path(('tube', document.name, 'sink', 'key'))}: {reason}")


def survey(
    config: Config,
    connection: psycopg.Connection,
    documents: Documents,
    names: Collection[str] = (),
    *,
    also: Collection[str] = (),
) -> Sequence[Plan | Refused]:
    """The plan of `apply` for each document, in the order of the file; last, documents that are gone.

    Args:
        config: the file.
        connection: of a role that may read the tables.
        documents: over the same session.
        names: of some; none: all.
        also: further known names, not of documents.

    Raises:
        UsageError: nothing has one of the names.
    """
    left = gone(config.documents, documents.tubes())
    there = [*config.documents, *left]
    if unknown := sorted(set(names) - {*there, *also}):
        known = ", ".join([*there, *also]) or "none"
        raise UsageError(
            f"there is no document {unknown[0]!r}, nor a tube or outbox that is declared, in the file or "
            f"applied; there are: {known}"
        )
    return [_one(config, connection, documents, name) for name in there if not names or name in names]


def _one(config: Config, connection: psycopg.Connection, documents: Documents, name: str) -> Plan | Refused:
    if name not in config.documents:
        return documents.plan(None, name, stays=name in config.tubes)
    try:
        found = documents.plan(compiled(config, name, connection), name)
        notes = (*_appeared(found, config.documents[name], documents.tubes()), *_guarded(found, connection))
        return replace(found, notes=(*found.notes, *notes))
    except (ConfigError, UsageError) as error:
        return Refused(name, str(error))
    except (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError) as error:
        if isinstance(error, errors.InsufficientPrivilege):
            raise
        return Refused(name, f"document.{name}: Postgres refused: {describe(error)}; correct it")


def _appeared(plan: Plan, section: PartSection, tubes: Mapping[str, TubeState]) -> Iterator[str]:
    """What "*" takes in that the document which was applied last does not have."""
    if plan.state is not State.CHANGED:
        return
    stars = set(_stars(key_path(("document", plan.name)), section))
    for tube, link in plan.followed:
        there = tubes[tube].tables if tube in tubes else []
        was = next((one.columns for one in there if one.table == link.table), None)
        places = [one for one in link.sections if one in stars]
        if places and was is not None and (new := sorted(set(link.columns) - set(was))):
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


def _guarded(plan: Plan, connection: psycopg.Connection) -> Iterator[str]:
    """Tables whose row security lets this role see all rows, and perhaps not the role of a worker."""
    names = sorted({(link.table.schema, link.table.table) for _, link in plan.followed})
    schemas, tables = (list(column) for column in zip(*names, strict=True))
    for table, role in connection.execute(_GUARDED, (schemas, tables)).fetchall():
        yield (
            f"row security of {table} hides no rows from {role}, but may do so from the role of a worker, "
            "which refuses the document then; give that role BYPASSRLS"
        )
