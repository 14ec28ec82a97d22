"""Whether the source can be read as configured: found out before the first document, without reading a row.

EXPLAIN parses and plans a statement, and checks the rights of the role that would run it. So it needs a
session of that role.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

import psycopg

from pytube.clock import for_people
from pytube.config import DeclaredEnrich, DocumentConfig, EnrichConfig
from pytube.db.errors import describe, is_connection_lost, translate
from pytube.documents.resolve import digest_of, why_not_applied
from pytube.enrich.rows import arguments_of, how_to_read, load_roots
from pytube.enrich.statements import (
    PARAMETERS,
    Root,
    Roots,
    WhyNoName,
    parameters_for,
    parameters_of,
    refusals,
    section_of,
    section_path,
    statement_for,
    stray_percent,
    unnamed,
    why_no_columns,
)
from pytube.errors import DatabaseUnavailable

SETTINGS = {"row_security": "off", "lock_timeout": "2s"}
"""Of the session of a check: it reads as a worker does, and gives up soon where a table is locked."""

_COLUMNS = """
    SELECT a.attname::text
    FROM pg_catalog.pg_attribute a
    JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname = %(table)s AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""

_FOUND_AS = """
    SELECT pg_catalog.array_to_string(pg_catalog.current_schemas(false), ', '),
        pg_catalog.to_regclass(pg_catalog.quote_ident(c.name)) IS NULL,
        pg_catalog.to_regclass(pg_catalog.format('%%I.%%I', pg_catalog.current_schema(), c.name))::text,
        (SELECT pg_catalog.format('%%I.%%I', n.nspname, r.relname)
            FROM pg_catalog.pg_class r JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
            WHERE r.relname = c.name AND r.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^pg_'
                AND n.nspname NOT IN ('information_schema', pg_catalog.current_schema())
            ORDER BY r.oid <> ALL (ARRAY(SELECT a.tbl::oid FROM tube_attachment a WHERE a.tube = %(tube)s)), 1
            LIMIT 1)
    FROM pg_catalog.unnest(%(names)s::text[]) c (name)
"""
"""How names without a schema are resolved: where they are looked up, whether nothing is found, what pytube's
schema has of them, and which table of another schema may be meant, an attached one first."""

_BARE_NAME = re.compile(
    r'\b(?:from|join)\s+(?:only\s+|lateral\s+)?("(?:[^"]|"")+"|[^\W\d][\w$]*)(?![\w$"]|\s*[.(])',
    re.IGNORECASE,
)
"""A name without a schema where a table is named."""

# What conflicts with a read, and what a read would queue behind. What a session does is seen by its own role,
# and by members of pg_read_all_stats.
_LOCKS = """
    SELECT concat(quote_ident(n.nspname), '.', quote_ident(c.relname), ' is locked by pid ', l.pid,
            ' (' || nullif(concat_ws(', ', nullif(a.application_name, ''), a.state), '') || ')'),
        extract(epoch FROM clock_timestamp() - a.xact_start)::float8
    FROM pg_catalog.pg_locks AS l
    JOIN pg_catalog.pg_class AS c ON c.oid = l.relation AND c.relkind IN ('r', 'p', 'm', 'f', 'v')
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname !~ '^pg_'
    LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
    WHERE l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock' AND l.pid <> pg_catalog.pg_backend_pid()
        AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
    ORDER BY a.xact_start NULLS LAST, l.pid LIMIT 5
"""

_BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why documents of a tube can't be read, or were not looked at, and what to do."""

    finding: str
    remedy: str
    is_certain: bool = True
    """False: it could not be found out now."""


@dataclass(frozen=True, slots=True)
class Report:
    """The checked queries, and their faults."""

    role: str
    tables: Sequence[str] = ()
    """The root tables; none when there is none, or the configuration is wrong in itself."""
    faults: Sequence[Fault] = ()


async def check_enriching(
    connection: psycopg.AsyncConnection,
    tube: str,
    config: EnrichConfig,
    why_no_name: WhyNoName | None = None,
) -> Report:
    """What keeps the documents of a tube from being read; asks in a session of the worker's, with `SETTINGS`.

    `why_no_name`: of a sink that names columns.

    Raises:
        DatabaseUnavailable: the connection was lost.
        EnrichFailed: the tube is gone.
    """
    faults = [
        fault for section, table in _sections(config) for fault in _faults_of_text(tube, section, table)
    ]
    role = connection.info.user
    if faults:
        return Report(role, faults=tuple(faults))
    roots = await load_roots(connection, tube)
    another = why_not_applied(tube, applied=roots.declared, own=digest_of(config))
    # Each is a sentence: the fault; the remedy.
    found = [*refusals(config, tube, roots)] if another is None else [another]
    if not found and why_no_name is not None:
        reason = why_no_columns(tube, config)
        found = [*unnamed(roots, why_no_name)] if reason is None else [reason]
    texts = (text.partition("; ") for text in found)
    faults = [Fault(finding, remedy) for finding, _, remedy in texts]
    faults = faults or [
        fault
        for section, table in _sections(config)
        for fault in _faults_of_parameters(tube, section, table, _readers(config, section, roots))
    ]
    if not faults:
        faults = [fault async for fault in _Statements(connection, tube, config, roots).faults()]
    return Report(role, tuple(root.name for root in roots.all), tuple(faults))


def _sections(config: EnrichConfig) -> Iterator[tuple[DocumentConfig, str | None]]:
    yield config, None
    for name, section in config.tables.items():
        yield section, name


def _readers(config: EnrichConfig, section: DocumentConfig, roots: Roots) -> list[Root]:
    """The root tables that a section is for."""
    return [root for root in roots.all if section_of(config, root) is section]


# --- the text of a query ----------------------------------------------------------------


def _faults_of_text(tube: str, section: DocumentConfig, table: str | None) -> Iterator[Fault]:
    """What psycopg would refuse, or would make each read a read of everything."""
    if section.query is None:
        return
    where = f"the query of {section_path(tube, table)}"
    stray = stray_percent(section.query)
    if stray is not None:
        yield Fault(f"{where} has a % that starts no placeholder, in {stray!r}", "write %% for a %")


def _faults_of_parameters(
    tube: str, section: DocumentConfig, table: str | None, readers: Sequence[Root]
) -> Iterator[Fault]:
    """Parameters that psycopg would miss, or whose absence makes each read a full one."""
    if section.query is None or isinstance(section, DeclaredEnrich):  # pytube wrote it
        return
    where = f"the query of {section_path(tube, table)}"
    named = parameters_of(section.query)
    known = set(PARAMETERS)
    for place, root in enumerate(readers):
        known = parameters_for(root) if place == 0 else known & parameters_for(root)
    unknown = ", ".join(f"%({name})s" for name in sorted(named - known))
    if unknown:
        others = "".join(f", %({name})s" for name in sorted(known.difference(PARAMETERS)))
        yield Fault(f"{where} asks for {unknown}", f"use %(ids)s{others} and %(shard)s only")
    if not named & (known - {"shard"}):
        yield Fault(
            f"{where} has no %(ids)s, so each batch would read all rows", "add, e.g., WHERE id = ANY(%(ids)s)"
        )


# --- statements, as Postgres sees them --------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Statements:
    """The statements that read the documents of a tube."""

    connection: psycopg.AsyncConnection
    tube: str
    config: EnrichConfig
    roots: Roots

    async def faults(self) -> AsyncIterator[Fault]:
        broken: set[int] = set()
        for section, table in _sections(self.config):
            if section.query is not None:
                readers = _readers(self.config, section, self.roots)
                alone = f"SELECT FROM ({section.query}\n) q".encode()
                error = await self._explain(next(iter(readers), None), alone)
                if error is not None:
                    broken.add(id(section))
                    where = f"the query of {section_path(self.tube, table)}"
                    yield await self._fault_of_query(where, section.query, error, readers)
        for root in self.roots.all:
            section = section_of(self.config, root)
            if id(section) not in broken and (fault := await self._fault_of_root(root, section)) is not None:
                yield fault

    async def _explain(self, root: Root | None, statement: bytes) -> psycopg.Error | None:
        """Why Postgres would refuse a statement; None when it would not."""
        arguments = arguments_of(self.tube, self.roots.keys, root, (), 0)
        try:
            await self.connection.execute(b"EXPLAIN " + statement, arguments)
        except psycopg.Error as error:
            if is_connection_lost(error):
                raise DatabaseUnavailable(f"Postgres is not available: {describe(error)}") from error
            return error
        return None

    async def _fault_of_query(
        self, where: str, query: str, error: psycopg.Error, readers: Sequence[Root]
    ) -> Fault:
        otherwise = "correct it; it stands within parentheses, so it is one SELECT without a ; at its end"
        named = None if isinstance(error, _BUSY) else await self._remedy_of_names(query)
        finding = f"{where} is refused: {describe(error)}"
        if named is not None:
            return Fault(finding, named)
        return await self._fault(where, error, readers, Fault(finding, otherwise))

    async def _fault_of_root(self, root: Root, section: DocumentConfig) -> Fault | None:
        own = root.name if self.config.of_table(root.schema, root.table) is not None else None
        path = section_path(self.tube, own)
        if section.columns is not None:
            unknown = await self._fault_of_names(path, root, section.columns)
            if unknown is not None:
                return unknown
        error = await self._explain(root, statement_for(self.roots, root, section))
        if error is None:
            return None
        if section.query is None or isinstance(error, psycopg.errors.InsufficientPrivilege):
            where = f"the root table {root.name}"
            finding = f"{where} can't be read: {translate(error) or describe(error)}"
            remedy = f"see that the table and the predicate of tube {self.tube!r} fit each other"
        else:
            where = f"the query of {path}, for {root.name}"
            finding = f"{where} gives other columns than are needed: {describe(error)}"
            remedy = f"give two columns: the id, of type {self.roots.keys.value}, and the document"
        return await self._fault(where, error, [root], Fault(finding, remedy))

    async def _fault(
        self, where: str, error: psycopg.Error, readers: Sequence[Root], otherwise: Fault
    ) -> Fault:
        """The fault of a refused statement; `otherwise`: of its text, not of a lock or a right."""
        if isinstance(error, _BUSY):
            return await self._fault_of_lock(f"{where} was not checked: {describe(error)}")
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return Fault(otherwise.finding, await how_to_read(self.connection, error, readers))
        return otherwise

    async def _fault_of_lock(self, finding: str) -> Fault:
        """With the sessions that now keep tables of this database from being read."""
        cursor = await self.connection.execute(_LOCKS)
        rows = await cursor.fetchall()
        found = [said if age is None else f"{said} for {for_people(age)}" for said, age in rows]
        remedy = "try again when that transaction has ended" if rows else "try again"
        return Fault("; ".join([finding, *found]), remedy, is_certain=False)

    async def _fault_of_names(self, path: str, root: Root, columns: Sequence[str]) -> Fault | None:
        """The fault of an allow-list. Postgres would take the name of a function, too, for a column's."""
        cursor = await self.connection.execute(_COLUMNS, {"schema": root.schema, "table": root.table})
        known = [name for (name,) in await cursor.fetchall()]
        unknown = [name for name in columns if name not in known]
        if not unknown:
            return None
        return Fault(
            f"columns of {path} names {', '.join(unknown)}, which {root.name} does not have "
            f"(it has: {', '.join(known)})",
            "write the names as the catalog has them; give each root table a section where their columns "
            "differ",
        )

    async def _remedy_of_names(self, query: str) -> str | None:
        """What to write in place of a table without its schema; None: that is not the fault.

        Names are looked up in pytube's schema first, where a tube may have the name of a table.
        """
        words = [match[1] for match in _BARE_NAME.finditer(query) if not _is_cte(query, match[1])]
        names = [word[1:-1].replace('""', '"') if word.startswith('"') else word.lower() for word in words]
        cursor = await self.connection.execute(_FOUND_AS, {"tube": self.tube, "names": names})
        for (path, is_unknown, ours, theirs), word in zip(await cursor.fetchall(), words, strict=True):
            if ours is not None or (is_unknown and theirs is not None):
                found = "" if ours is None else f", where {word} is found in the schema of pytube"
                return (
                    f"write the schema of the table: {theirs or f'SCHEMA.{word}'} in place of {word}; names "
                    f"without one are looked up in {path}{found}"
                )
        return None


def _is_cte(query: str, word: str) -> bool:
    pattern = rf"(?<![\w\"]){re.escape(word)}\s*(\([^()]*\))?\s*as\s+((not\s+)?materialized\s*)?\("
    return re.search(pattern, query, re.IGNORECASE) is not None
