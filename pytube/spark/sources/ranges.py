"""How a table or a query is divided into parts that several tasks read."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import sql

from pytube.db.errors import translated
from pytube.errors import UnknownTable, UsageError
from pytube.spark import queries

_SAMPLE = 1000
"""Rows of a sample for each part."""
_DIVISIBLE = ("r", "p", "m")


def by_pages(connection: psycopg.Connection, table: str, parts: int) -> list[tuple[str, str]]:
    """Relations and conditions that divide a table by where its rows lie: `(table or leaf, condition)`.

    The last part of each is open, for pages that are added meanwhile.
    """
    with translated():
        rows = connection.execute(queries.PAGES, {"table": table}).fetchall()
    total = sum(int(pages) for _, pages in rows) or 1
    found: list[tuple[str, str]] = []
    for name, pages in rows:
        count = max(1, min(int(pages), round(parts * int(pages) / total)))
        found += [(f"ONLY {name}", condition) for condition in page_conditions(int(pages), count)]
    return found


def page_conditions(pages: int, parts: int) -> list[str]:
    """Conditions on ctid for so many parts of so many pages."""
    edges = [pages * number // parts for number in range(1, parts)]
    conditions = []
    for low, high in zip([None, *edges], [*edges, None], strict=True):
        bounds = [f"q.ctid >= '({low},0)'::tid"] if low is not None else []
        bounds += [f"q.ctid < '({high},0)'::tid"] if high is not None else []
        conditions.append(" AND ".join(bounds) or "true")
    return conditions


def by_key(
    connection: psycopg.Connection, relation: str, key: str, parts: int, rows: int | None
) -> list[str]:
    """Conditions that divide a relation by a column, into parts of about the same number of rows.

    Args:
        connection: any.
        relation: a table's name as SQL has it, or a query in parentheses.
        key: a column of it, best one with an index.
        parts: about how many.
        rows: about how many a table has, so that a sample is taken; None: of a query, all of it is looked at.

    Raises:
        UsageError: the column can't be sorted.
    """
    if parts == 1:
        return ["true"]
    bounds, kind = key_bounds(connection, relation, key, parts, rows)
    return key_conditions(key, bounds, kind) if bounds else ["true"]


def key_bounds(
    connection: psycopg.Connection, relation: str, key: str, parts: int, rows: int | None = None
) -> tuple[list[str], str]:
    """Where all parts but the first begin, as texts, and of which type they are; see `by_key`."""
    column = sql.Identifier(key)
    share = 100.0 if rows is None else min(100.0, 100.0 * _SAMPLE * parts / max(1, rows))
    sample = sql.SQL("") if rows is None else sql.SQL("TABLESAMPLE SYSTEM ({})").format(share)
    # Sorted by the database, as its comparisons are.
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
    """Conditions for the ranges that begin at `bounds`; each value, NULL too, is in one."""
    name = f"q.{sql.Identifier(key).as_string()}"
    values = [f"{sql.Literal(bound).as_string()}::{kind}" for bound in bounds]
    conditions = []
    for low, high in zip([None, *values], [*values, None], strict=True):
        parts = [f"{name} >= {low}"] if low is not None else []
        parts += [f"{name} < {high}"] if high is not None else []
        text = " AND ".join(parts) or "true"
        conditions.append(text if high is not None or low is None else f"{text} OR {name} IS NULL")
    return conditions


def relation_of(connection: psycopg.Connection, table: str) -> tuple[str, str, int]:
    """The name of a table as SQL has it, its kind (as in `pg_class`), and about how many rows it has.

    Raises:
        UnknownTable: there is none.
    """
    try:
        row = connection.execute(queries.RELATION, {"table": table}).fetchone()
    except psycopg.Error:
        row = None
    if row is None:
        raise UnknownTable(
            f"there is no table {table!r}; write schema.table, with quotes where SQL wants them"
        )
    return str(row[0]), str(row[1]), int(row[2])


def has_pages(kind: str) -> bool:
    """Whether a relation of this kind can be divided by pages."""
    return kind in _DIVISIBLE
