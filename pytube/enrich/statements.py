"""The statements that read documents: one for each table and kind of keys."""

from __future__ import annotations

from psycopg import sql

from pytube.enrich.roots import STATE, Root, Roots
from pytube.model import KeyType

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


def statement_for(roots: Roots, root: Root | None, query: str | None) -> sql.SQL | sql.Composed:
    """The statement with the parameters tube, ids and shard; its rows are ids and documents.

    Args:
        roots: the registry.
        root: whose rows are read; None: those of no table.
        query: of one's own; None: the row as JSON.

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
        condition = sql.SQL(" AND ({}\n)").format(_raw(roots.predicate.replace("%", "%%")))
    table = {
        "table": sql.Identifier(root.schema, root.table),
        "id": sql.Identifier(root.id_col),
        "condition": condition,
    }
    name = sql.SQL(_ID[roots.keys])
    if query is None:
        rows = sql.SQL(
            "SELECT {name}, convert_to(row_to_json(r.*)::text, 'UTF8') FROM {table} r "
            "WHERE r.{id} = ANY(%(ids)s){condition}"
        ).format(name=name.format(id=sql.Identifier("r", root.id_col)), **table)
    else:
        known = sql.SQL(_KNOWN[roots.keys]).format(**table)
        rows = sql.SQL(
            "SELECT {name}, convert_to(q.document::text, 'UTF8') FROM ({query}\n) q(id, document) "
            "WHERE {condition}"
        ).format(
            name=name.format(id=sql.SQL("q.id")),
            query=_raw(query),
            condition=known if roots.predicate is not None else sql.SQL("q.id IS NOT NULL"),
        )
    return sql.SQL("{} UNION ALL ({})").format(state, rows)


def _raw(text: str) -> sql.Composable:
    """SQL text that was checked when it was given: a predicate of the registry, a configured query."""
    return sql.SQL(text)
