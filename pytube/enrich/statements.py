"""The statements that read documents, made from the registry and the sections of the configuration.

A shard's ids belong to its root table, which the registry names. There is one statement for each table and
kind of keys.
"""

# ruff: noqa: S608 -- names are quoted; a predicate and a query are the owner's and the file's own

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pytube.config import DocumentConfig, EnrichConfig
from pytube.config.names import quoted, table_name
from pytube.config.section import key_path
from pytube.errors import EnrichFailed
from pytube.keys import CompositeKey, PartType, part_parameter
from pytube.model import Id, KeyType, ids_in, shard_of

STATE = "convert_to(r.version || ' ' || r.created_at, 'UTF8')"
"""Shows whether the registry has changed: the version, and of which tube of that name it is."""

ROOTS = f"""
    SELECT {STATE}, r.key_type::text, r.predicate, r.declared,
        n.nspname, c.relname, a.keys[1], a.shard, a.shards,
        a.keys::text[], tube_key_types(a.tbl, a.keys), a.shard_place
    FROM tube_registry r
    LEFT JOIN tube_attachment a ON a.tube = r.tube
    LEFT JOIN pg_catalog.pg_class c ON c.oid = a.tbl
    LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE r.tube = %(tube)s
    ORDER BY a.position
"""
"""All attachments of a tube, the first attached first; one row with NULLs when there is none."""


@dataclass(frozen=True, slots=True)
class Root:
    """An attached table, and the shards it has."""

    schema: str
    table: str
    id_col: str
    shard: int
    shards: int
    key: CompositeKey | None = None
    """None: the key is `id_col` alone."""

    @property
    def name(self) -> str:
        """As it is written in SQL, where it needs no quotes."""
        return f"{self.schema}.{self.table}"

    def has(self, shard: int) -> bool:
        """Whether the table's ids are in `shard`."""
        return self.shard <= shard < self.shard + self.shards

    def own(self, shard: int, ids: Sequence[Id]) -> Sequence[Id]:
        """The ones of `ids` that are in `shard`, which the table has.

        A document at the sink may have an id with an earlier shard, of another spread of the table.
        """
        return ids_in(shard, ids, self.shard, self.shards, self._shard_place)

    def shard_of(self, key: Id) -> int:
        """The shard of an id of the table."""
        return shard_of(key, self.shard, self.shards, self._shard_place)

    @property
    def _shard_place(self) -> int | None:
        return None if self.key is None else self.key.shard_place


@dataclass(frozen=True, slots=True)
class Roots:
    """The registry of one tube, as of one version."""

    state: bytes
    """As `STATE` gives it."""
    keys: KeyType
    predicate: str | None
    declared: str | None
    """The digest of the document that was applied last; None: the tube is none of a declared document."""
    tables: Sequence[Root]

    def of(self, shard: int) -> Root | None:
        """The root table of `shard`: the first attached that has it; None when none does."""
        return next((root for root in self.tables if root.has(shard)), None)

    def key_of(self, shard: int) -> CompositeKey | None:
        """Which columns the keys of a shard are made of; None: they are of one column, or no table has it."""
        root = self.of(shard)
        return None if root is None else root.key

    @property
    def all(self) -> Sequence[Root]:
        """The root tables: the first attached of their shards."""
        return [table for table in self.tables if self.of(table.shard) is table]


_CAST = {KeyType.BIGINT: "::bigint", KeyType.UUID: "::uuid::text", KeyType.TEXT: "::text"}
"""Behind an id: as the pods have it."""


def statement_for(roots: Roots, root: Root | None, section: DocumentConfig) -> bytes:
    """The statement with the parameters tube, ids and shard; its rows are ids and documents of `root`.

    It gives the registry's state, too, in a row without an id, which a parallel plan may put anywhere.
    """
    no_id = "NULL::bigint" if roots.keys is KeyType.BIGINT else "NULL::text"
    state = f"SELECT {no_id}, {STATE} FROM tube_registry r WHERE r.tube = %(tube)s"
    if root is None:
        return state.encode()
    cast = _CAST[roots.keys]
    if section.mode == "none":
        rows = f"SELECT q.id{cast}, convert_to('null', 'UTF8') FROM unnest(%(ids)s) q(id)"
    elif section.query is None:
        row = f"{_found_id(roots, root)}, convert_to({_row(section.columns)}::text, 'UTF8')"
        rows = _found(root, row, _predicate(roots))
    else:
        known = "q.id IS NOT NULL" if roots.predicate is None else _is_known(roots, root)
        rows = (
            f"SELECT q.id{cast}, convert_to(q.document::text, 'UTF8') "
            f"FROM ({section.query}\n) q(id, document) WHERE {known}"
        )
    return f"{state} UNION ALL ({rows})".encode()


def _predicate(roots: Roots) -> str:
    """A condition behind another one. It was checked when the tube was made; % is psycopg's own sign."""
    return "" if roots.predicate is None else f" AND ({roots.predicate.replace('%', '%%')}\n)"


def _is_known(roots: Roots, root: Root) -> str:
    """Whether a document that a query of one's own gave belongs to the tube.

    Rows of ids that are not asked for are let through, so that the reader sees that the query is wrong; see
    `Enricher`. Texts are looked up by the column's own collation, which may find too much, and compared byte
    by byte.
    """
    if roots.keys is KeyType.TEXT:
        found = _found(root, f'{_id(roots, root)} COLLATE "C"', _predicate(roots))
        return f'q.id::text COLLATE "C" IN ({found})'
    value = "q.id" if roots.keys is KeyType.BIGINT else "q.id::uuid"
    here = f"FROM {_table(root)} r WHERE r.{_name(root.id_col)} = {value}{_predicate(roots)}"
    return f"EXISTS (SELECT {here}) OR q.id::{roots.keys} <> ALL(%(ids)s)"


def ids_statement(roots: Roots, root: Root, *, first: bool, drawn: tuple[float, bool] | None = None) -> bytes:
    """The statement that walks the ids of a root table in their order, `%(limit)s` from `%(after)s` on.

    `drawn`: only a sample, in no order: so many rows of a hundred, and whether whole pages of the table are
    drawn, so that the others need not be read. The cut by the limit is random, too: the first rows would
    always be from the table's beginning.
    """
    columns = _columns(root)
    order = ", ".join(columns)
    conditions = [f"{column} IS NOT NULL" for column in columns]
    if not first and root.key is not None:  # of the types of the columns, as they are compared
        conditions.append(f"({order}) > ({', '.join(map(_part, root.key.places))})")
    elif not first:
        conditions.append(f"{order} > %(after)s::{roots.keys}")
    sample = ""
    if drawn is not None:
        percent, by_pages = drawn
        sample = f" TABLESAMPLE {'SYSTEM' if by_pages else 'BERNOULLI'} ({percent:.6f})"
        order = "random()"
    return (
        f"SELECT {_id(roots, root)} FROM {_table(root)} r{sample} "
        f"WHERE {' AND '.join(conditions)}{_predicate(roots)} ORDER BY {order} LIMIT %(limit)s"
    ).encode()


def _columns(root: Root) -> list[str]:
    """The columns of the key, of the row `r`."""
    names = [root.id_col] if root.key is None else [column.name for column in root.key.columns]
    return [f"r.{_name(name)}" for name in names]


def _table(root: Root) -> str:
    return f"{_name(root.schema)}.{_name(root.table)}"


def _name(name: str) -> str:
    """A name in a statement that has parameters, where % is psycopg's own sign."""
    return quoted(name).replace("%", "%%")


def _id(roots: Roots, root: Root) -> str:
    """The id of the row `r` as the pods have it: see `tube_private_id_sql`."""
    columns = _columns(root)
    if root.key is None:
        return f"{columns[0]}{_CAST[roots.keys]}"
    parts = (
        f"concat({column})" if of.type is PartType.ENUM else column
        for column, of in zip(columns, root.key.columns, strict=True)
    )
    return f"json_build_array({', '.join(parts)})::text"


def _found_id(roots: Roots, root: Root) -> str:
    """The id of a row that `_found` finds: as asked for, unless a collation may hold others for equal."""
    if root.key is None or any(of.type is PartType.TEXT for of in root.key.columns):
        return _id(roots, root)
    return "k.id"


def _part(place: int) -> str:
    """The parameter that has the values of a column of the key; a column's name could be another one's."""
    return f"%({part_parameter(place)})s"


def part_arguments(columns: Sequence[object]) -> dict[str, object]:
    """The arguments for the columns of a key in the statements made here."""
    return {part_parameter(place): column for place, column in enumerate(columns)}


def _found(root: Root, what: str, condition: str) -> str:
    """`what` of the rows `r` that have the ids that are asked for, and meet a condition."""
    columns, table = _columns(root), _table(root)
    if root.key is None:
        return f"SELECT {what} FROM {table} r WHERE {columns[0]} = ANY(%(ids)s){condition}"
    equal, arrays = [], []
    for place, (column, of) in enumerate(zip(columns, root.key.columns, strict=True)):
        arrays.append(f"{_part(place)}::{of.type.array}")
        asked = f'k."part {place}"'
        if of.type is PartType.ENUM:  # which labels it has, the server alone knows
            labels = f"enum_range((NULL::{table}).{_name(of.name)})"
            asked = f"(SELECT e FROM unnest({labels}) e WHERE concat(e) = {asked})"
        equal.append(f"{column} = {asked}")
    names = ", ".join(f'"part {place}"' for place in root.key.places)
    # In a separate subquery, so that a predicate's unqualified names stay columns of the table. OFFSET 0
    # keeps it one: it is planned as it stands, and each key is looked up, which takes a third less time.
    return (
        f"SELECT r.* FROM unnest(%(ids)s, {', '.join(arrays)}) k(id, {names}) CROSS JOIN LATERAL "
        f"(SELECT {what} FROM {table} r WHERE {' AND '.join(equal)}{condition} OFFSET 0) r"
    )


def _row(columns: Sequence[str] | None) -> str:
    """The row `r` as JSON: these columns of it; None: all."""
    if columns is None:
        return "row_to_json(r.*)"
    # In a separate subquery, so that a predicate's unqualified names stay columns of the table.
    names = ", ".join(f"r.{_name(column)}" for column in columns)
    return f"(SELECT row_to_json(d.*) FROM (SELECT {names}) d)"


# --- names of documents at the sink ---------------------------------------------------------------

WhyNoName = Callable[[CompositeKey | None, str], str | None]
"""Why a sink that names columns can't name the keys of a table; see `pytube.sinks.base.Naming`."""


def unnamed(roots: Roots, why_no_name: WhyNoName) -> Iterator[str]:
    """The root tables whose keys the sink can't name: each a sentence with its remedy."""
    for root in roots.all:
        reason = why_no_name(root.key, root.name)
        if reason is not None:
            yield reason


def refuse_unnamed(roots: Roots, why_no_name: WhyNoName) -> None:
    """Raise `EnrichFailed` if the keys of a root table can't be named.

    So nothing is read until it is corrected. Sent, its documents would be rejected, and parked one by one.
    """
    reason = next(unnamed(roots, why_no_name), None)
    if reason is not None:
        raise EnrichFailed(reason)


def why_no_columns(tube: str, config: EnrichConfig) -> str | None:
    """Why documents can't be named by columns: no table is looked at; None: they are."""
    if config.mode != "none" or config.tables:
        return None
    return (
        f'option "key" of the sink names columns, and mode = "none" of {section_path(tube)} reads no rows; '
        "give {id} alone, or have rows read"
    )


# --- sections of a batch --------------------------------------------------------------------------
# A pod names no table, but its shard does: the root table of a shard is the first one attached in it. A query
# without the shard can't distinguish the ids of two root tables. It would give documents of one table
# for ids of the other.


PARAMETERS = ("ids", "shard")
"""What each query may ask for; one of a key of several columns also for these, by their names."""


def parameters_for(root: Root) -> set[str]:
    """What a query for the documents of a table may ask for."""
    return {*PARAMETERS, *([] if root.key is None else [column.name for column in root.key.columns])}


_PERCENT = re.compile(r"%(?:%|\(([^()]*)\)[sbt]|(.?))", re.DOTALL)


def section_of(config: EnrichConfig, root: Root) -> DocumentConfig:
    """The table's own section, else that of the tube."""
    return config.of_table(root.schema, root.table) or config


def section_path(tube: str, table: str | None = None) -> str:
    """A section as it stands in the file; `table`: that of a table."""
    return f"[{key_path(('tube', tube, 'enrich', *([] if table is None else [table])))}]"


def parameters_of(query: str) -> set[str]:
    """The names of its placeholders."""
    return {match[1] for match in _PERCENT.finditer(query) if match[1] is not None}


def stray_percent(query: str) -> str | None:
    """The text around the first `%` that is neither a placeholder nor `%%`; None when there is none."""
    for match in _PERCENT.finditer(query):
        if match[2] is not None:
            return query[max(0, match.start() - 10) : match.start() + 10]
    return None


def refusal(config: EnrichConfig, tube: str, roots: Roots, root: Root) -> str | None:
    """Why no documents of a root table may be read now; None when they may.

    A table without its own section is refused while a section names no attached table: it may be that table
    under another name.
    """
    if config.of_table(root.schema, root.table) is not None:
        return None
    return next(_absent(config, tube, roots), None) or _ambiguity(config, tube, roots)


def refusals(config: EnrichConfig, tube: str, roots: Roots) -> Iterator[str]:
    """Faults with the attached tables: each a sentence with its remedy."""
    yield from _absent(config, tube, roots)
    roots_of = {(table.schema, table.table): roots.of(table.shard) for table in roots.tables}
    for name in config.tables:
        root = roots_of.get(table_name(name))
        if root is not None and (root.schema, root.table) != table_name(name):
            yield (
                f"{section_path(tube, name)} is for a table that is related to {root.name} in tube {tube!r}: "
                f"pods of its changes hold ids of {root.name}; give {root.name} the section, or attach "
                f"{name} in a separate shard"
            )
    ambiguity = _ambiguity(config, tube, roots)
    if ambiguity is not None:
        yield ambiguity


def _absent(config: EnrichConfig, tube: str, roots: Roots) -> Iterator[str]:
    attached = {(table.schema, table.table) for table in roots.tables}
    for name in config.tables:
        if table_name(name) not in attached:
            known = ", ".join(table.name for table in roots.tables) or "none"
            yield (
                f"{section_path(tube, name)} names a table that is not attached to tube {tube!r} (attached: "
                f"{known}); correct the name, take the section out, or attach the table"
            )


def _ambiguity(config: EnrichConfig, tube: str, roots: Roots) -> str | None:
    if config.query is None or "shard" in parameters_of(config.query):
        return None
    readers = [root.name for root in roots.all if config.of_table(root.schema, root.table) is None]
    if len(readers) < 2:
        return None
    return (
        f"the query of {section_path(tube)} would read ids of {' and '.join(readers)}, which are all root "
        f"tables of tube {tube!r}, but has no %(shard)s to distinguish them; give each table its query in "
        f"{section_path(tube, readers[-1])}, or use %(shard)s"
    )
