"""How the rows of a table or a query are divided into parts: by pages, or by ranges of a key."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import psycopg
from psycopg import sql

from pytube.db.errors import describe, translated
from pytube.errors import UnknownTable, UsageError
from pytube.spark import queries
from pytube.spark.arrays import KeyKind

_SAMPLE = 1000
"""Rows of the sample for each part."""
_WITH_PAGES = ("r", "p", "m")
"""The kinds of relations, as in `pg_class`, that can be divided by pages."""
_WHOLE = (20, 21, 23)

# --- relations that tasks read ----------------------------------------------------------------------


def relation_of(connection: psycopg.Connection, table: str) -> tuple[str, int | None]:
    """The name of a table as SQL has it, and about how many rows it has; None: it has no pages, as a view.

    Raises:
        UnknownTable: there is no such table.
    """
    try:
        row = connection.execute(queries.RELATION, {"table": table}).fetchone()
    except psycopg.Error:
        row = None
    if row is None:
        raise UnknownTable(
            f"there is no table {table!r}; write schema.table, with quotes where SQL wants them"
        )
    return str(row[0]), int(row[2]) if row[1] in _WITH_PAGES else None


def by_pages(connection: psycopg.Connection, table: str, parts: int) -> list[tuple[str, str]]:
    """Relations and conditions that divide a table by its pages: `(table or leaf, condition)`.

    The last part of each relation is open, because the table may grow.
    """
    relations = queries.rows(connection, queries.PAGES, table=table)
    total = sum(int(pages) for _, pages in relations) or 1
    found: list[tuple[str, str]] = []
    for name, pages in relations:
        count = max(1, min(int(pages), round(parts * int(pages) / total)))
        found += [(f"ONLY {name}", condition) for condition in page_conditions(int(pages), count)]
    return found


def page_conditions(pages: int, parts: int) -> list[str]:
    """The conditions on ctid that divide so many pages into so many parts."""
    return _conditions("q.ctid", [f"'({pages * number // parts},0)'::tid" for number in range(1, parts)])


def by_key(
    connection: psycopg.Connection, relation: str, key: str, parts: int, rows: int | None
) -> list[str]:
    """The conditions that divide a relation by a column into parts of about the same number of rows.

    `relation` is a table's name as SQL has it, or a query in parentheses. If the number of `rows` is known, a
    sample is read, else all rows. Raises `UsageError` if the column can't be sorted.
    """
    if parts == 1:
        return ["true"]
    bounds, kind = key_bounds(connection, relation, key, parts, rows)
    return key_conditions(key, bounds, kind) if bounds else ["true"]


def key_bounds(
    connection: psycopg.Connection, relation: str, key: str, parts: int, rows: int | None = None
) -> tuple[list[str], str]:
    """Where all parts but the first begin, as texts, and the type of these values; see `by_key`."""
    column = sql.Identifier(key)
    share = 100.0 if rows is None else min(100.0, 100.0 * _SAMPLE * parts / max(1, rows))
    sample = sql.SQL("") if rows is None else sql.SQL("TABLESAMPLE SYSTEM ({})").format(share)
    # The database sorts as it compares.
    statement = sql.SQL(
        "SELECT b.v::text, pg_typeof(b.v)::text FROM (SELECT DISTINCT unnest("
        "percentile_disc({}::float8[]) WITHIN GROUP (ORDER BY q.{})) AS v FROM {} AS q {}) AS b ORDER BY b.v"
    ).format([number / parts for number in range(1, parts)], column, sql.SQL(relation), sample)
    try:
        found = connection.execute(statement).fetchall()
    except psycopg.Error as error:
        raise UsageError(f"{relation} can't be divided by {key!r}: {error.diag.message_primary}") from error
    bounds = [str(value) for value, _ in found if value is not None]
    return bounds, str(found[0][1]) if found else ""


def key_conditions(key: str, bounds: Sequence[str], kind: str) -> list[str]:
    """The conditions for the ranges that begin at `bounds`. Each value is in one range, NULL too."""
    name = f"q.{sql.Identifier(key).as_string()}"
    conditions = _conditions(name, [f"{sql.Literal(bound).as_string()}::{kind}" for bound in bounds])
    if bounds:
        conditions[-1] += f" OR {name} IS NULL"
    return conditions


def _conditions(name: str, edges: Sequence[str]) -> list[str]:
    """The conditions for the ranges that begin at `edges`. The first range and the last are open."""
    conditions = []
    for low, high in pairwise([None, *edges, None]):
        parts = [f"{name} >= {low}"] if low is not None else []
        parts += [f"{name} < {high}"] if high is not None else []
        conditions.append(" AND ".join(parts) or "true")
    return conditions


# --- queries whose first column is the id -----------------------------------------------------------


def divided(connection: psycopg.Connection, query: str, ranges: int, kind: KeyKind) -> list[str]:
    """Where all ranges of a query's ids but the first begin; empty if the query returns no id.

    Numbers are divided evenly between the least and the greatest id. Other ids are sorted once, and the
    ranges have about the same number of rows.

    Raises:
        UsageError: the query fails, or its ids are no keys of the `kind`.
    """
    try:
        with translated():
            of_type = _type(connection, query)
            if kind.is_number or of_type in _WHOLE:
                low, high = _ends(connection, query)
                if low is None:
                    return []
                if not isinstance(low, int) or not isinstance(high, int):
                    raise UsageError(f"the first column of the query holds {low!r}, not a whole number")
                return [str(edge) for edge in even_edges(low, high, ranges)]
    except psycopg.Error as error:
        raise UsageError(f"the query fails: {describe(error)}") from error
    if ranges == 1:
        return []
    # The caller's own query.
    relation = f"(SELECT q.id FROM (\n{query}\n) AS q (id))"  # noqa: S608
    return key_bounds(connection, relation, "id", ranges)[0]


def within(query: str, bounds: Sequence[str], unit: int) -> str:
    """The query of one range. The first and the last are open; the first has the NULLs, to be refused."""
    # A literal without a type gets the type of the ids.
    condition = _conditions("q.id", [sql.Literal(bound).as_string() for bound in bounds])[unit]
    if unit == 0:
        condition += " OR q.id IS NULL"
    # The caller's own query, which is run with the caller's own rights.
    return f"SELECT q.id, row_number() OVER () FROM (\n{query}\n) AS q (id) WHERE {condition}"  # noqa: S608


def even_edges(low: int, high: int, ranges: int) -> list[int]:
    """Where all ranges but the first begin, from the least number to the greatest."""
    width = high - low + 1
    edges = [low + width * number // ranges for number in range(1, ranges)]
    return [edge for edge in sorted(set(edges)) if edge > low]


def _type(connection: psycopg.Connection, query: str) -> int:
    """The oid of the type of the ids."""
    statement = sql.SQL("SELECT q.id FROM (\n{}\n) AS q (id) LIMIT 0").format(sql.SQL(query))
    columns = connection.execute(statement).description
    assert columns is not None
    return columns[0].type_code


def _ends(connection: psycopg.Connection, query: str) -> tuple[object, object]:
    """The least and the greatest id, or None."""
    statement = sql.SQL("SELECT min(q.id), max(q.id) FROM (\n{}\n) AS q (id)")
    row = connection.execute(statement.format(sql.SQL(query))).fetchone()
    assert row is not None
    return row[0], row[1]
