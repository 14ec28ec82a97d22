"""The statements that Spark's driver and tasks send. Sessions have our schema first in their search path."""

from __future__ import annotations

from typing import Any, Final, LiteralString

import psycopg

from pytube.db.errors import translated


def rows(connection: psycopg.Connection, query: LiteralString, /, **arguments: object) -> list[Any]:
    """The rows that a statement returns. Errors are raised as ours if we know them."""
    with translated():
        return connection.execute(query, arguments).fetchall()


def first_row(connection: psycopg.Connection, query: LiteralString, /, **arguments: object) -> Any:
    """The first row that a statement returns, or None; raises as `rows`."""
    return next(iter(rows(connection, query, **arguments)), None)


def value(connection: psycopg.Connection, query: LiteralString, /, **arguments: object) -> Any:
    """The value that a statement returns, which has one row of one column; raises as `rows`."""
    return first_row(connection, query, **arguments)[0]


# --- jobs ---------------------------------------------------------------------------------------

JOB_BEGIN: Final = """
    SELECT state, unit_count, unit_bounds, stage FROM tube_job_begin(
        %(job)s, %(tubes)s, %(kind)s, %(fingerprint)s, %(units)s, %(bounds)s)
"""
JOB_UNITS: Final = "SELECT tube_job_units(%(job)s)"
JOB_KNOWN: Final = "SELECT units FROM tube_job_list(%(job)s)"
JOB_STATE: Final = "SELECT state FROM tube_job_list(%(job)s)"
JOB_DONE: Final = "SELECT tube_job_done(%(job)s, %(unit)s, %(rows)s, %(ids)s, %(pods)s, %(shards)s)"
JOB_FINISH: Final = (
    "SELECT rows_done, ids_done, pods_done FROM tube_job_finish(%(job)s, %(attempts)s::uuid[])"
)
JOB_FORGET: Final = "SELECT tube_job_forget(%(job)s)"

PODS_INSERT: Final = """
    SELECT tube_pods_insert(%(tubes)s, %(query)s, %(shard)s, %(op)s, NULL, 20000, %(pod_size)s)
"""

# --- tubes --------------------------------------------------------------------------------------

ATTACHED: Final = """
    SELECT DISTINCT shard, shards, coalesce(pg_catalog.array_position(key_cols, shard_by) - 1, -1)
    FROM tube_list()
    WHERE tube = ANY(%(tubes)s) AND tbl IS NOT NULL
"""

KEY_TYPES: Final = "SELECT DISTINCT tube, key_type::text FROM tube_list() WHERE tube = ANY(%(tubes)s)"

# --- backfills ----------------------------------------------------------------------------------

BACKFILL_CREATE: Final = """
    SELECT tube_backfill_create(%(tube)s, %(table)s::oid::regclass, %(order_col)s, %(supersede)s)
"""
BACKFILL_ACTIVE: Final = """
    SELECT l.backfill_id, l.state, l.order_col,
        EXISTS (SELECT FROM tube_job_list('backfill ' || l.backfill_id)) AS split
    FROM tube_backfill_list(%(tube)s) AS l
    WHERE l.relation = %(table)s::oid AND l.state IN ('waiting', 'inserting', 'delivering')
"""
BACKFILL_LOCK: Final = "SELECT tube_backfill_lock(%(backfill)s)"
BACKFILL_NOTE: Final = "SELECT state FROM tube_backfill_note(%(backfill)s, %(note)s)"
BACKFILL_HOLDERS: Final = "SELECT xid, holder FROM tube_backfill_holders(%(xids)s)"
BACKFILL_SPLIT: Final = "SELECT tube_backfill_split(%(backfill)s, %(ranges)s)"
BACKFILL_RANGE: Final = "SELECT tube_backfill_range(%(backfill)s, %(unit)s)"
BACKFILL_JOIN: Final = "SELECT tube_backfill_join(%(backfill)s)"
BACKFILL_STATE: Final = """
    SELECT state, paused, rows_done, rows_total FROM tube_backfill_list(%(tube)s)
    WHERE backfill_id = %(backfill)s
"""
BACKFILL_WAITING: Final = "SELECT waiting FROM tube_backfill_pressure(%(tube)s, %(pods_limit)s)"

# --- tubes as sources ---------------------------------------------------------------------------

SETTLE_SEQ: Final = "SELECT tube_settle_seq()"
SETTLE_XID: Final = "SELECT pg_current_xact_id()::text"
SETTLE_DONE: Final = "SELECT tube_settle_done(%(xid)s::xid8)"
SETTLE_HOLDERS: Final = "SELECT tube_settle_holders(%(tube)s)"
SETTLE_LEFT: Final = "SELECT tube_settle_left(%(tube)s, %(holders)s::text[])"
PARTITIONS: Final = "SELECT DISTINCT partitions FROM tube_list() WHERE tube = %(tube)s"
STREAM_PURGE: Final = "SELECT tube_stream_purge(%(tube)s, %(seq)s)"

# --- outboxes as sources ------------------------------------------------------------------------

OUTBOX: Final = """
    SELECT n.nspname, c.relname, l.value_type::text, l.adopted
    FROM outbox_list() AS l
    JOIN pg_catalog.pg_class AS c ON c.oid = l.tbl
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE l.outbox = %(outbox)s
"""

# --- tables as sources --------------------------------------------------------------------------

SNAPSHOT: Final = "SELECT pg_export_snapshot()"
RELATION: Final = """
    SELECT c.oid::regclass::text, c.relkind::text, greatest(c.reltuples, 0)::bigint
    FROM pg_catalog.pg_class AS c WHERE c.oid = pg_catalog.to_regclass(%(table)s)
"""
PAGES: Final = """
    SELECT c.oid::regclass::text,
        pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::bigint
    FROM pg_catalog.pg_class AS c
    WHERE c.relkind IN ('r', 'm') AND c.oid IN (
        SELECT l.relid FROM pg_catalog.pg_partition_tree(%(table)s::regclass) AS l
        UNION SELECT %(table)s::regclass)
    ORDER BY 1
"""
