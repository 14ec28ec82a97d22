"""The statements that workers and administrators send to outboxes, where they are others than for tubes."""

from __future__ import annotations

from typing import Final

# --- a worker; its sessions have our schema first in their search path -----------------------------

OUTBOX: Final = "SELECT adopted, wakes FROM outbox_list() WHERE outbox = %(tube)s"

# Sent as one message, as marks of tubes are: see pytube/sources/queries.py. Most records have no headers: a
# NULL is read in no time, an empty array takes as long as all else of a record.
MARK_DECLARE: Final = """
    DECLARE marked_records BINARY NO SCROLL CURSOR WITH HOLD FOR
    SELECT id, date_part('epoch', create_time), kafka_topic, kafka_key, kafka_value,
        nullif(kafka_header_keys, '{}'), nullif(kafka_header_values, '{}'), partition_key, retried, held
    FROM outbox_records_mark(
        %(tube)s, %(partitions)s, %(partition)s, %(leader_id)s, %(limit)s, %(floor)s)
"""
MARK_FETCH: Final = "FETCH ALL FROM marked_records"
MARK_CLOSE: Final = "CLOSE marked_records"

PURGE: Final = """
    SELECT outbox_records_purge(%(tube)s, %(partitions)s, %(partition)s, %(leader_id)s, %(ids)s)
"""

# Commits of the worker's sessions do not wait for the disk. This one does.
PURGE_DURABLY: Final = """
    SELECT outbox_records_purge(%(tube)s, %(partitions)s, %(partition)s, %(leader_id)s, %(ids)s)
    FROM set_config('synchronous_commit', 'on', true)
"""

RESET: Final = """
    SELECT outbox_records_reset(%(tube)s, %(partitions)s, %(partition)s, %(leader_id)s, %(ids)s)
"""

PARK: Final = """
    SELECT outbox_records_park(
        %(tube)s, %(partitions)s, %(partition)s, %(leader_id)s, %(items)s, %(hold)s)
"""

# --- an administrator; `{s}` stands for our schema --------------------------------------------------

ENSURE_EXISTS: Final = """
    SELECT {s}.outbox_ensure_exists(%(outbox)s, %(partitions)s, %(value_type)s::pg_catalog.regtype)
"""
ADOPT: Final = "SELECT {s}.outbox_adopt(%(outbox)s, %(table)s, %(partitions)s, %(wake)s)"
DROP: Final = "SELECT {s}.outbox_drop(%(outbox)s, %(force)s)"
LIST: Final = """
    SELECT l.outbox, l.partitions, coalesce(
            pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname), 'dropped') AS tbl,
        l.value_type::text AS value_type, l.adopted, l.wakes
    FROM {s}.outbox_list() AS l
    LEFT JOIN pg_catalog.pg_class AS c ON c.oid = l.tbl
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE %(outbox)s::text IS NULL OR l.outbox = %(outbox)s
    ORDER BY l.outbox
"""
INDEX_SQL: Final = "SELECT {s}.outbox_index_sql(%(outbox)s, %(partitions)s)"
# What an interrupted REINDEX CONCURRENTLY leaves behind.
LEFTOVERS: Final = """
    SELECT n.nspname, c.relname
    FROM {s}.outbox_list() AS l
    JOIN pg_catalog.pg_index AS i ON i.indrelid = l.tbl
    JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE l.outbox = %(outbox)s AND NOT i.indisvalid
        AND c.relname ~ ('_' || left(md5('outbox ' || l.outbox), 8) || '_p[0-9]+_idx_cc(new|old)[0-9]*$')
"""
STATUS: Final = """
    SELECT s.outbox, s.partition, s.count AS waiting, s.parked,
        extract(epoch FROM clock_timestamp() - s.min_create_time)::float8 AS lag,
        l.client_id AS leader, l.epoch,
        extract(epoch FROM clock_timestamp() - l.renewed_at)::float8 AS renewed_ago,
        CASE WHEN l.lost THEN 'lost' WHEN l.sink_down IS NOT NULL THEN 'sink down'
            WHEN l.leader_id IS NOT NULL THEN 'leads' ELSE 'free' END AS state,
        l.sink_down, s.problem
    FROM {s}.outbox_stats() AS s
    LEFT JOIN {s}.tube_leaders() AS l ON l.tube = s.outbox AND l.partition = s.partition
    WHERE %(outbox)s::text IS NULL OR s.outbox = %(outbox)s
    ORDER BY s.outbox, s.partition
"""
PARKED: Final = "SELECT * FROM {s}.outbox_parked(%(outbox)s, %(limit)s)"
RETRY: Final = """
    SELECT {s}.outbox_retry(%(outbox)s, %(ids)s::bigint[], %(topic)s, %(key)s)
"""
DISCARD: Final = "SELECT {s}.outbox_parked_drop(%(outbox)s, %(ids)s::bigint[])"
