"""A sample of the ids of attached tables, where nothing proves that they are unique.

Of rows with one id, any one becomes the document: the copy is wrong, and no error tells.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors, sql

from pytube.db.errors import describe, is_connection_lost
from pytube.tubes.queries import within

PAGES = 2000
"""Pages of a table that are read, about; 16 MB."""
LIMIT = 5.0
"""Seconds that the sample of one table may take."""
_TOTAL = 30.0
"""Seconds that all of them may take."""

# Rows that do not belong to the tube may have the same ids: no document is made of them.
_UNPROVEN = """
    SELECT DISTINCT n.nspname, c.relname,
        pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) AS shown,
        k.name::text, k.is_key, l.predicate
    FROM {s}.tube_list() AS l CROSS JOIN LATERAL {s}.tube_id_column(l.tbl, l.id_col) AS k
    JOIN pg_catalog.pg_class AS c ON c.oid = l.tbl
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE l.root AND NOT k.is_unique
    ORDER BY 1, 2, 4
"""

# A size waits for who has locked the table.
_SIZE = """
    SELECT (pg_catalog.pg_relation_size(t.oid)
            + (SELECT coalesce(sum(pg_catalog.pg_relation_size(p.relid)), 0)
                FROM pg_catalog.pg_partition_tree(t.oid) AS p WHERE p.relid <> t.oid)
        ) / current_setting('block_size')::integer
    FROM (SELECT {name}::regclass) AS t (oid)
"""

_SAMPLE = """
    WITH looked_at AS MATERIALIZED (
        SELECT r.{id} AS id FROM {table} AS r TABLESAMPLE SYSTEM ({percent})
        WHERE r.{id} IS NOT NULL{condition}
    ), repeated AS MATERIALIZED (
        SELECT id FROM looked_at GROUP BY id HAVING count(*) > 1
    )
    SELECT (SELECT count(*) FROM looked_at), (SELECT count(*) FROM repeated),
        ARRAY(SELECT left(id::text, 40) FROM repeated ORDER BY id LIMIT 3)
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was found in one attached table; `trouble` says why it was not looked at."""

    table: str
    column: str
    is_key: bool
    """Whether the column may be taken for unique, as that of a partitioned table's primary key."""
    rows: int = 0
    """How many were looked at."""
    is_whole: bool = False
    """Whether these are all."""
    repeated: int = 0
    """Ids that stand more than once among them."""
    examples: Sequence[str] = ()
    trouble: str | None = None


def sample_ids(connection: psycopg.Connection, schema: str) -> Iterator[Sample]:
    """Look for ids that stand more than once, with the rights of this session, in bounded time.

    Only root tables whose id column no index proves unique are looked at.

    Args:
        connection: autocommit.
        schema: where our SQL is.

    Raises:
        psycopg.Error: the tables to look at could not be listed.
    """
    ends = time.monotonic() + _TOTAL
    tables = _fetch(connection, within(_UNPROVEN, schema), LIMIT)
    for folder, table, shown, column, is_key, predicate in tables:
        # The predicate comes from the registry, where it was checked.
        condition = "" if predicate is None else f" AND ({predicate}\n)"
        until = min(time.monotonic() + LIMIT, ends)
        try:
            ((pages,),) = _fetch(connection, sql.SQL(_SIZE).format(name=shown), until - time.monotonic())
            percent = min(100.0, 100.0 * PAGES / max(int(pages), 1))
            query = sql.SQL(_SAMPLE).format(
                id=sql.Identifier(column),
                table=sql.Identifier(folder, table),
                percent=percent,
                condition=sql.SQL(condition),
            )
            ((rows, repeated, examples),) = _fetch(connection, query, until - time.monotonic())
        except psycopg.Error as error:
            if is_connection_lost(error):
                raise
            yield Sample(shown, column, is_key, trouble=_trouble(error))
        else:
            yield Sample(shown, column, is_key, rows, percent == 100.0, repeated, examples)


def _fetch(connection: psycopg.Connection, query: sql.Composed, seconds: float) -> list[tuple[Any, ...]]:
    """The rows of a query, which may take so many seconds; a policy that hides rows makes it fail."""
    with connection.transaction():
        connection.execute("SET TRANSACTION READ ONLY")
        connection.execute("SET LOCAL row_security = off")
        milliseconds = max(1, int(seconds * 1000))
        connection.execute("SELECT set_config('statement_timeout', %s, true)", [f"{milliseconds}ms"])
        return connection.execute(query).fetchall()


def _trouble(error: psycopg.Error) -> str:
    if isinstance(error, errors.QueryCanceled):
        return f"that took longer than {LIMIT:g} s, or than {_TOTAL:g} s for all tables"
    return describe(error)
