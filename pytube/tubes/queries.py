"""The statements that administration sends. `{s}` stands for pytube's schema."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import cleandoc
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from pytube.config.names import TableName

ENSURE_EXISTS = """
    SELECT {s}.tube_ensure_exists(%(tube)s, %(partitions)s, %(predicate)s, %(key_type)s::pg_catalog.regtype)
"""
DROP = "SELECT {s}.tube_drop(%(tube)s, %(force)s)"
ATTACH = """
    SELECT {s}.tube_table_ensure_attached(
        %(tube)s, %(table)s, %(shard)s, %(shards)s, %(id_col)s, %(columns)s::pg_catalog.name[], %(replica)s,
        %(key_cols)s::pg_catalog.name[], %(shard_by)s)
"""
# Indexes that prove that rows differ in several columns, the primary key first; none of a partition.
SEVERAL = """
    SELECT i.indisprimary, pg_catalog.array_agg(a.attname::text ORDER BY k.place)
    FROM pg_catalog.pg_index AS i
    CROSS JOIN LATERAL pg_catalog.unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    JOIN pg_catalog.pg_class AS c ON c.oid = i.indrelid AND NOT c.relispartition
    WHERE i.indrelid = %(table)s AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
        AND i.indexprs IS NULL AND k.place <= i.indnkeyatts
    GROUP BY i.indexrelid, i.indisprimary, i.indnkeyatts HAVING i.indnkeyatts > 1
    ORDER BY NOT i.indisprimary, i.indexrelid
"""
ID_COLUMN = "SELECT k.name::text, k.is_key, k.reason FROM {s}.tube_id_column(%(table)s, %(id_col)s) AS k"
# The number at the end of the name of a table's schema; NULL where there is none.
IN_SCHEMA = """
    SELECT pg_catalog.substring(n.nspname::text, '[0-9]+$')
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = %(table)s
"""
# The attached tables of one tube, or of all.
ATTACHED = """
    SELECT l.tube, l.tbl::oid, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname),
        l.root, l.shard, l.shards, l.id_col::text, coalesce(l.columns, '{{}}')::text[], l.replica,
        coalesce(l.key_cols, '{{}}')::text[], l.shard_by::text
    FROM {s}.tube_list() WITH ORDINALITY AS l
    JOIN pg_catalog.pg_class AS c ON c.oid = l.tbl
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE %(tube)s::text IS NULL OR l.tube = %(tube)s
    ORDER BY l.ordinality
"""
DETACH = "SELECT {s}.tube_table_ensure_detached(%(tube)s, %(table)s)"
LIST = """
    SELECT l.tube, l.predicate, l.partitions,
        pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) AS tbl,
        l.shard, l.shards, l.id_col::text AS id_col, l.root, l.key_type::text AS key_type,
        l.companion_of, l.key_cols::text[] AS key_cols, l.shard_by::text AS shard_by
    FROM {s}.tube_list() WITH ORDINALITY AS l
    LEFT JOIN pg_catalog.pg_class AS c ON c.oid = l.tbl
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    ORDER BY l.ordinality
"""
TUBE = """
    SELECT l.partitions, l.predicate, l.key_type::text AS key_type
    FROM {s}.tube_list() AS l WHERE l.tube = %(tube)s LIMIT 1
"""

ACKNOWLEDGE = "SELECT {s}.tube_verified(%(tube)s)"
REBASE = "SELECT {s}.tube_leader_rebase(%(tube)s, %(epoch)s)"

INDEX_SQL: Final = "SELECT {s}.tube_index_sql(%(queue)s, %(partitions)s)"
# What an interrupted REINDEX CONCURRENTLY leaves behind.
LEFTOVERS: Final = """
    SELECT n.nspname, c.relname
    FROM pg_catalog.pg_index i
    JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_class t ON t.oid = i.indrelid
    WHERE n.nspname = %(schema)s AND t.relname = %(queue)s AND NOT i.indisvalid
        AND c.relname ~ '_cc(new|old)[0-9]*$'
"""
INDEX_TABLE: Final = "pg_catalog.to_regclass(pg_catalog.format('%%I.%%I', %(schema)s::text, %(queue)s::text))"
# Why this role can't CREATE INDEX CONCURRENTLY, or drop one so, on a table; NULL: it can.
BUILDER: Final = """
    SELECT CASE
        WHEN NOT pg_catalog.pg_has_role(c.relowner, 'USAGE') THEN pg_catalog.format(
            '%%I does not own its table: a worker builds it once the table holds at most 8 MB, and until '
            'then all works without; to have it built now, run the command again as a member of %%I, or as a '
            'superuser', current_user, pg_catalog.pg_get_userbyid(c.relowner))
        WHEN NOT pg_catalog.has_schema_privilege(c.relnamespace, 'CREATE') THEN pg_catalog.format(
            'it needs a right on the schema: as its owner, run: GRANT CREATE ON SCHEMA %%s TO %%I; then run '
            'the command again', c.relnamespace::pg_catalog.regnamespace, current_user)
        END
    FROM pg_catalog.pg_class AS c WHERE c.oid = {table}
"""

JOB_LIST = "SELECT * FROM {s}.tube_job_list(%(job)s)"

TABLE = "SELECT pg_catalog.to_regclass(%(table)s)::oid"

# The sessions that have locked a table, the earliest first.
HOLDERS = """
    SELECT a.pid, coalesce(nullif(a.application_name, ''), a.backend_type) AS application,
        a.state, extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS age
    FROM pg_catalog.pg_stat_activity a
    WHERE a.pid <> pg_catalog.pg_backend_pid()
        AND a.xact_start < clock_timestamp() - %(age)s * interval '1 second'
        AND EXISTS (
            SELECT FROM pg_catalog.pg_locks l
            WHERE l.pid = a.pid AND l.granted AND l.locktype = 'relation' AND l.relation = %(table)s
                AND l.database = (
                    SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()))
    ORDER BY a.xact_start
    LIMIT 5
"""

STATE: Final = """CASE WHEN l.lost THEN 'lost'
            WHEN p.kind IN ('poison', 'park_limit') AND l.leader_id IS NOT NULL THEN 'stopped'
            WHEN p.halted_since IS NOT NULL THEN 'paused'
            WHEN p.tube IS NOT NULL AND l.leader_id IS NOT NULL THEN 'pausing'
            WHEN f.tube IS NOT NULL THEN 'failing'
            WHEN l.sink_down IS NOT NULL THEN 'sink down'
            WHEN l.source_down IS NOT NULL THEN 'source down' WHEN l.leader_id IS NOT NULL THEN 'leads'
            ELSE 'free' END"""
"""Of a partition, in terms of `tube_leaders` AS l, `tube_pause_list` AS p and `tube_failing_list` AS f.

`pytube.health.fleet.Partition` explains each state.
"""


FAILING: Final = """f.reason AS failing, f.terms AS failing_terms,
        extract(epoch FROM clock_timestamp() - f.since)::float8 AS failing_for"""
"""Columns of `tube_failing_list` AS f."""

TOOK: Final = "extract(epoch FROM clock_timestamp() - statement_timestamp())::float8 AS took"
"""How long a statement has taken the server: a column for `timed`."""


def timed(
    connection: psycopg.Connection, query: sql.Composed, arguments: Mapping[str, object]
) -> tuple[list[dict[str, Any]], float]:
    """The rows of a statement that has a column `TOOK`, without it; how many seconds it took the server."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(query, arguments).fetchall()
    return rows, max((row.pop("took") for row in rows), default=0.0)


def within(query: LiteralString, schema: str) -> sql.Composed:
    """The statement for pytube's SQL in `schema`."""
    return sql.SQL(query).format(s=sql.Identifier(schema))


def text(query: LiteralString, schema: str, arguments: Mapping[str, object]) -> str:
    """The statement with its arguments in place, for whoever sends it without a session of psycopg."""
    values = {name: _literal(value) for name, value in arguments.items()}
    return within(cleandoc(query), schema.replace("%", "%%")).as_string() % values


def _literal(value: object) -> str:
    if isinstance(value, TableName):
        return f"{_literal(value.sql)}::pg_catalog.regclass"
    return sql.Literal(value).as_string().strip()
