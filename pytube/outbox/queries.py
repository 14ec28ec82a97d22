"""The statements that the administration of outboxes sends. `{s}` stands for pytube's schema."""

from __future__ import annotations

from typing import Final

from pytube.tubes.queries import FAILING, STATE

ENSURE_EXISTS: Final = """
    SELECT {s}.outbox_ensure_exists(%(outbox)s, %(partitions)s, %(value_type)s::pg_catalog.regtype)
"""
ADOPT: Final = "SELECT {s}.outbox_adopt(%(outbox)s, %(table)s, %(partitions)s, %(wake)s)"
ACKNOWLEDGE: Final = "SELECT {s}.tube_verified(%(outbox)s)"
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
INDEX_SQL: Final = "SELECT {s}.outbox_index_sql(%(queue)s, %(partitions)s)"
INDEX_TABLE: Final = "(SELECT l.tbl FROM {s}.outbox_list() AS l WHERE l.outbox = %(queue)s)"
# What an interrupted REINDEX CONCURRENTLY leaves behind.
LEFTOVERS: Final = """
    SELECT n.nspname, c.relname
    FROM {s}.outbox_list() AS l
    JOIN pg_catalog.pg_index AS i ON i.indrelid = l.tbl
    JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE l.outbox = %(queue)s AND NOT i.indisvalid
        AND c.relname ~ ('_' || left(md5('outbox ' || l.outbox), 8) || '_p[0-9]+_idx_cc(new|old)[0-9]*$')
"""
# Records behind a failed one did not fail. Later ones of a key that is not held are sent before it.
_COUNTS: Final = """
    count(*) FILTER (WHERE NOT k.behind) AS failed, count(*) FILTER (WHERE k.behind) AS behind,
    count(*) FILTER (WHERE NOT k.hold AND k.key IS NOT NULL) AS overtaken
"""
STATUS: Final = (
    """
    WITH counted AS MATERIALIZED (
        SELECT l.outbox, k.slot %% l.partitions AS partition, {counts},
            max(ARRAY[(extract(epoch FROM k.parked_at) * 1000000)::bigint, k.id]) FILTER (WHERE NOT k.behind)
                AS latest
        FROM {s}.outbox_list() AS l JOIN {s}.tube_outbox_parked AS k ON k.outbox = l.outbox
        GROUP BY l.outbox, k.slot %% l.partitions
    ), failed AS MATERIALIZED (
        SELECT c.outbox, (SELECT k.error FROM {s}.tube_outbox_parked AS k
            WHERE k.outbox = c.outbox AND k.id = c.id) AS error
        FROM (SELECT outbox, (max(latest))[2] AS id FROM counted GROUP BY outbox) AS c
    )
    SELECT s.outbox, s.partition, s.count AS waiting, s.parked,
        coalesce(c.failed, 0) AS parked_failed, coalesce(c.behind, 0) AS parked_behind,
        coalesce(c.overtaken, 0) AS parked_overtaken,
        extract(epoch FROM clock_timestamp() - s.min_create_time)::float8 AS lag,
        l.client_id AS leader, l.epoch,
        extract(epoch FROM clock_timestamp() - l.renewed_at)::float8 AS renewed_ago,
        extract(epoch FROM clock_timestamp() - l.acquired_at)::float8 AS leads_for,
        {state} AS state,
        l.sink_down, extract(epoch FROM clock_timestamp() - l.sink_down_since)::float8 AS sink_down_for,
        p.reason AS paused, s.problem, {failing},
        CASE WHEN s.parked <> '0' THEN e.error END AS parked_error,
        (SELECT jsonb_agg(jsonb_build_object('topic', t.topic, 'reason', t.reason, 'records', t.records,
                'since', extract(epoch FROM clock_timestamp() - t.since),
                'tried_in', greatest(0, extract(epoch FROM t.next_at - clock_timestamp())), 'park', t.park))
            FROM {s}.outbox_resting() AS t
            WHERE t.outbox = s.outbox AND t.partition = s.partition) AS resting
    FROM {s}.outbox_stats() AS s
    LEFT JOIN failed AS e ON e.outbox = s.outbox
    LEFT JOIN counted AS c ON c.outbox = s.outbox AND c.partition = s.partition
    LEFT JOIN {s}.tube_leaders() AS l ON l.tube = s.outbox AND l.partition = s.partition
    LEFT JOIN {s}.tube_pause_list() AS p ON p.tube = s.outbox AND p.partition = s.partition
    LEFT JOIN {s}.tube_failing_list() AS f ON f.tube = s.outbox AND f.partition = s.partition
    WHERE %(outbox)s::text IS NULL OR s.outbox = %(outbox)s
    ORDER BY s.outbox, s.partition
""".replace("{counts}", _COUNTS)
    .replace("{state}", STATE)
    .replace("{failing}", FAILING)
)
PARKED: Final = "SELECT * FROM {s}.outbox_parked(%(outbox)s, %(limit)s)"
PARKED_IDS: Final = """
    SELECT k.outbox, k.id, k.topic, k.key, k.error, k.attempts, k.epoch, k.hold, k.behind, k.parked_at
    FROM {s}.tube_outbox_parked AS k WHERE k.outbox = %(outbox)s AND k.id = ANY (%(ids)s) ORDER BY k.id
"""
PARKED_OF_TOPIC: Final = """
    SELECT k.id FROM {s}.tube_outbox_parked AS k
    WHERE k.outbox = %(outbox)s AND k.topic = %(topic)s AND NOT k.behind ORDER BY k.id
"""
PARKED_COUNTS: Final = """
    SELECT {counts} FROM {s}.tube_outbox_parked AS k
    WHERE (%(outbox)s::text IS NULL OR k.outbox = %(outbox)s)
        AND (%(topic)s::text IS NULL OR k.topic = %(topic)s)
""".replace("{counts}", _COUNTS)
COUNT_OF_TOPIC: Final = """
    SELECT pg_catalog.count(*) FROM {s}.tube_outbox_parked AS k
    WHERE k.outbox = %(outbox)s AND k.topic = %(topic)s
"""
PARK_TOPIC: Final = "SELECT {s}.outbox_topic_park(%(outbox)s, %(topic)s)"
TO_PARK: Final = """
    SELECT pg_catalog.count(*) FROM {s}.outbox_resting(%(outbox)s) AS t WHERE t.topic = %(topic)s AND t.park
"""
NOW: Final = "SELECT pg_catalog.pg_current_snapshot()::text"
RETRY: Final = """
    SELECT {s}.outbox_retry(
        %(outbox)s, %(ids)s::bigint[], %(topic)s, %(key)s, %(seen)s::pg_catalog.pg_snapshot, %(limit)s)
"""
DISCARD: Final = "SELECT {s}.outbox_parked_drop(%(outbox)s, %(ids)s::bigint[])"
