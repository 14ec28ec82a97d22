"""The statements that read documents, and the registry that they are made from.

A shard's ids belong to its root table, which the registry names. There is one statement for each table and
kind of keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from pytube.config import DocumentConfig
from pytube.model import Id, KeyType, ids_in

STATE = "convert_to(r.version || ' ' || r.created_at, 'UTF8')"
"""Tells whether the registry is the one that is known: the version, and of which tube of that name it is."""

ROOTS = f"""
    SELECT {STATE}, r.key_type::text, r.predicate, n.nspname, c.relname, a.id_col, a.shard, a.shards
    FROM tube_registry r
    LEFT JOIN tube_attachment a ON a.tube = r.tube
    LEFT JOIN pg_catalog.pg_class c ON c.oid = a.tbl
    LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE r.tube = %(tube)s
    ORDER BY a.position
"""  # noqa: S608 # a constant
"""All attachments of a tube, the first attached first; one row with NULLs when there is none."""


@dataclass(frozen=True, slots=True)
class Root:
    """An attached table, and the shards it has."""

    schema: str
    table: str
    id_col: str
    shard: int
    shards: int

    @property
    def name(self) -> str:
        """As it is written in SQL, where it needs no quotes."""
        return f"{self.schema}.{self.table}"

    def has(self, shard: int) -> bool:
        """Whether the table's ids are in `shard`."""
        return self.shard <= shard < self.shard + self.shards

    def own(self, shard: int, ids: Sequence[Id]) -> Sequence[Id]:
        """Those of `ids` that are in `shard`, which the table has.

        A document names the others with a shard that they had when the table was spread otherwise.
        """
        return ids_in(shard, ids, self.shard, self.shards)


@dataclass(frozen=True, slots=True)
class Roots:
    """The registry of one tube, as of one version."""

    state: bytes
    """As `STATE` gives it."""
    keys: KeyType
    predicate: str | None
    tables: Sequence[Root]

    def of(self, shard: int) -> Root | None:
        """The root table of `shard`: the first attached that has it; None when none does."""
        return next((root for root in self.tables if root.has(shard)), None)

    @property
    def all(self) -> Sequence[Root]:
        """The root tables: those that are the first attached of their shards."""
        return [table for table in self.tables if self.of(table.shard) is table]


_REGISTRY = " FROM tube_registry r WHERE r.tube = %(tube)s"
_STATES = {
    KeyType.BIGINT: "SELECT NULL::bigint, " + STATE + _REGISTRY,
    KeyType.UUID: "SELECT NULL::text, " + STATE + _REGISTRY,
    KeyType.TEXT: "SELECT NULL::text, " + STATE + _REGISTRY,
}
"""The registry's state, in a row like those of documents, but without an id."""

_ID = {
    KeyType.BIGINT: "{id}::bigint",
    KeyType.UUID: "{id}::uuid::text",
    KeyType.TEXT: "{id}::text",
}
"""An id as the pods have it."""

# Texts are looked up by the column's own collation, which may find too much, and told apart byte by byte.
_KNOWN = {
    KeyType.BIGINT: "EXISTS (SELECT FROM {table} r WHERE r.{id} = q.id{condition})",
    KeyType.UUID: "EXISTS (SELECT FROM {table} r WHERE r.{id} = q.id::uuid{condition})",
    KeyType.TEXT: (
        'q.id::text COLLATE "C" IN '
        '(SELECT r.{id}::text COLLATE "C" FROM {table} r WHERE r.{id} = ANY(%(ids)s){condition})'
    ),
}
"""Whether a document that a query of one's own gave belongs to the tube."""

_UNASKED = {
    KeyType.BIGINT: " OR q.id::bigint <> ALL(%(ids)s)",
    KeyType.UUID: " OR q.id::uuid <> ALL(%(ids)s)",
    KeyType.TEXT: "",
}
"""What is let through for the reader to see that the query is wrong; see `RowEnricher`."""


def statement_for(roots: Roots, root: Root | None, section: DocumentConfig) -> sql.SQL | sql.Composed:
    """The statement with the parameters tube, ids and shard; its rows are ids and documents.

    Args:
        roots: the registry.
        root: whose rows are read; None: those of no table.
        section: what the documents of `root` are.

    Returns:
        One that gives the registry's state, too, in a row of its own, which a parallel plan may put
        anywhere.
    """
    state = sql.SQL(_STATES[roots.keys])
    if root is None:
        return state
    # The predicate comes from the registry, where it was checked; % is psycopg's own sign.
    condition: sql.Composable = sql.SQL("")
    if roots.predicate is not None:
        condition = sql.SQL(" AND ({}\n)").format(raw(roots.predicate.replace("%", "%%")))
    table = {
        "table": sql.Identifier(root.schema, root.table),
        "id": sql.Identifier(root.id_col),
        "condition": condition,
    }
    name = sql.SQL(_ID[roots.keys])
    if section.mode == "none":
        rows = sql.SQL("SELECT {}, convert_to('null', 'UTF8') FROM unnest(%(ids)s) q(id)").format(
            name.format(id=sql.SQL("q.id"))
        )
    elif section.query is None:
        rows = sql.SQL(
            "SELECT {name}, convert_to({row}::text, 'UTF8') FROM {table} r "
            "WHERE r.{id} = ANY(%(ids)s){condition}"
        ).format(name=name.format(id=sql.Identifier("r", root.id_col)), row=_row(section.columns), **table)
    else:
        known = sql.SQL(_KNOWN[roots.keys] + _UNASKED[roots.keys]).format(**table)
        rows = sql.SQL(
            "SELECT {name}, convert_to(q.document::text, 'UTF8') FROM ({query}\n) q(id, document) "
            "WHERE {condition}"
        ).format(
            name=name.format(id=sql.SQL("q.id")),
            query=raw(section.query),
            condition=known if roots.predicate is not None else sql.SQL("q.id IS NOT NULL"),
        )
    return sql.SQL("{} UNION ALL ({})").format(state, rows)


def ids_statement(
    roots: Roots, root: Root, *, first: bool, drawn: tuple[float, bool] | None = None
) -> sql.Composed:
    """The statement that walks the ids of a root table in their order, `%(limit)s` from `%(after)s` on.

    Args:
        roots: the registry.
        root: the table.
        first: from the beginning.
        drawn: only a sample, without order: so many rows of a hundred, and whether whole pages of the
            table are drawn, so that the others need not be read.
    """
    column = sql.Identifier("r", root.id_col)
    conditions: list[sql.Composable] = [sql.SQL("{} IS NOT NULL").format(column)]
    if not first:
        conditions.append(sql.SQL("{} > %(after)s::{}").format(column, sql.SQL(roots.keys.value)))
    if roots.predicate is not None:
        conditions.append(sql.SQL("({}\n)").format(raw(roots.predicate.replace("%", "%%"))))
    sample: sql.Composable = sql.SQL("")
    order: sql.Composable = sql.SQL(" ORDER BY {}").format(column)
    if drawn is not None:
        percent, by_pages = drawn
        sample = raw(f" TABLESAMPLE {'SYSTEM' if by_pages else 'BERNOULLI'} ({percent:.6f})")
        order = sql.SQL("")
    return sql.SQL("SELECT {} FROM {} r{} WHERE {}{} LIMIT %(limit)s").format(
        sql.SQL(_ID[roots.keys]).format(id=column),
        sql.Identifier(root.schema, root.table),
        sample,
        sql.SQL(" AND ").join(conditions),
        order,
    )


def _row(columns: Sequence[str] | None) -> sql.Composable:
    """The row `r` as JSON: these columns of it; None: all."""
    if columns is None:
        return sql.SQL("row_to_json(r.*)")
    # Within a subquery of its own, so that a predicate's unqualified names stay those of the table.
    names = ", ".join(sql.Identifier("r", column).as_string() for column in columns)
    return sql.SQL("(SELECT row_to_json(d.*) FROM (SELECT {}) d)").format(raw(names.replace("%", "%%")))


def raw(text: str) -> sql.Composable:
    """SQL text that was checked when it was given: a predicate of the registry, a configured query."""
    return sql.SQL(text)
