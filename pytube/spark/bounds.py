"""How the ids of a query are divided into ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString
from uuid import UUID

import psycopg
from psycopg import sql

from pytube.db.errors import describe, translated
from pytube.errors import UsageError
from pytube.spark.kinds import KeyKind
from pytube.spark.sources.ranges import key_bounds

_WHOLE = (20, 21, 23)
_UUID = 2950


def divided(connection: psycopg.Connection, query: str, ranges: int, kind: KeyKind) -> list[str]:
    """Where all ranges but the first begin; none where the query gives no id.

    Of numbers and uuids the room between the least and the greatest is divided evenly. All others are sorted
    once, and the ranges have about as many rows.

    Args:
        connection: that may run the query.
        query: whose first column is the id.
        ranges: about how many.
        kind: of the keys that the ids shall be.

    Raises:
        UsageError: the query fails, or gives what is no such key.
    """
    try:
        with translated():
            of_type = _type(connection, query)
            if kind.is_number or of_type in _WHOLE:
                low, high = _ends(connection, query, "q.id")
                if low is None:
                    return []
                if not isinstance(low, int) or not isinstance(high, int):
                    raise UsageError(f"the first column of the query holds {low!r}, which is no whole number")
                return [str(edge) for edge in even_edges(low, high, ranges)]
            if of_type == _UUID:
                # Old versions have no least uuid; their texts sort alike.
                low, high = _ends(connection, query, 'q.id::text COLLATE "C"')
                if low is None:
                    return []
                edges = even_edges(UUID(str(low)).int, UUID(str(high)).int, ranges)
                return [str(UUID(int=edge)) for edge in edges]
    except psycopg.Error as error:
        raise UsageError(f"the query fails: {describe(error)}") from error
    if ranges == 1:
        return []
    # The caller's own query.
    relation = f"(SELECT q.id FROM (\n{query}\n) AS q (id))"  # noqa: S608
    return key_bounds(connection, relation, "id", ranges)[0]


def within(query: str, bounds: Sequence[str], unit: int) -> str:
    """The query of one range; the first and the last are open, and the first takes NULLs, to be refused."""
    parts: list[str] = []
    # A literal that has no type takes that of the ids.
    if unit > 0:
        parts.append(f"q.id >= {sql.Literal(bounds[unit - 1]).as_string()}")
    if unit < len(bounds):
        parts.append(f"q.id < {sql.Literal(bounds[unit]).as_string()}")
    condition = " AND ".join(parts) or "true"
    if unit == 0:
        condition += " OR q.id IS NULL"
    # The caller's own query, which is run with the caller's own rights.
    return f"SELECT q.id, row_number() OVER () FROM (\n{query}\n) AS q (id) WHERE {condition}"  # noqa: S608


def even_edges(low: int, high: int, ranges: int) -> list[int]:
    """Where all ranges but the first begin, between the least and the greatest number."""
    width = high - low + 1
    edges = [low + width * number // ranges for number in range(1, ranges)]
    return [edge for edge in sorted(set(edges)) if edge > low]


def _type(connection: psycopg.Connection, query: str) -> int:
    """The oid of the type of the ids."""
    statement = sql.SQL("SELECT q.id FROM (\n{}\n) AS q (id) LIMIT 0").format(sql.SQL(query))
    columns = connection.execute(statement).description
    assert columns is not None
    return columns[0].type_code


def _ends(connection: psycopg.Connection, query: str, value: LiteralString) -> tuple[object, object]:
    """The least and the greatest of a value; None where there is none."""
    statement = sql.SQL("SELECT min({0}), max({0}) FROM (\n{1}\n) AS q (id)")
    row = connection.execute(statement.format(sql.SQL(value), sql.SQL(query))).fetchone()
    assert row is not None
    return row[0], row[1]
