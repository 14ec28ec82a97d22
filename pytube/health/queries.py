"""The statements that health sends. `{s}` stands for our schema."""

from __future__ import annotations

SERVER = """
    SELECT current_setting('server_version_num')::integer, current_setting('server_version'),
        pg_catalog.pg_is_in_recovery()
"""

RIGHTS_TO_INSTALL = """
    SELECT current_user,
        pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')
"""

# What this role lacks of what a worker needs; no row when nothing is installed.
RIGHTS = r"""
    SELECT current_user, pg_catalog.has_schema_privilege(n.oid, 'USAGE'),
        ARRAY(
            SELECT p.proname::text FROM pg_catalog.pg_proc p
            WHERE p.pronamespace = n.oid AND p.proname = ANY(%(functions)s)
                AND NOT pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
            ORDER BY 1),
        ARRAY(
            SELECT c.relname::text FROM pg_catalog.pg_class c
            WHERE c.relnamespace = n.oid AND c.relname = ANY(%(tables)s)
                AND NOT pg_catalog.has_table_privilege(c.oid, 'SELECT')
            ORDER BY 1),
        (SELECT w.rolname::text FROM pg_catalog.pg_roles o JOIN pg_catalog.pg_roles w
                ON w.rolname = pg_catalog.left(o.rolname, -6) || '_worker'
            WHERE o.oid = n.nspowner AND o.rolname LIKE '%%\_admin')
    FROM pg_catalog.pg_namespace n
    WHERE n.nspname = %(schema)s AND EXISTS (
        SELECT FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'tube_version')
"""

SEQUENCE = """
    SELECT seqcache, seqincrement, seqcycle
    FROM pg_catalog.pg_sequence WHERE seqrelid = to_regclass(%(sequence)s)
"""

CONNECTIONS = """
    SELECT current_setting('max_connections')::integer
            - current_setting('superuser_reserved_connections')::integer
            - coalesce(current_setting('reserved_connections', true)::integer, 0),
        (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'client backend')
"""

SETTINGS = """
    SELECT name, reset_val FROM pg_catalog.pg_settings
    WHERE name IN ('idle_in_transaction_session_timeout', 'synchronous_commit', 'fsync',
        'full_page_writes')
"""

# Only a transaction that has an xid holds back the settled seq, in whatever database it is.
OLD_TRANSACTIONS = """
    SELECT 'pid ' || pid || ' (' || coalesce(nullif(application_name, ''), backend_type) || ', '
        || coalesce(state, 'hidden') || ')',
        extract(epoch FROM clock_timestamp() - xact_start)::float8 AS age, false AS prepared
    FROM pg_catalog.pg_stat_activity
    WHERE backend_xid IS NOT NULL AND xact_start < clock_timestamp() - %(age)s * interval '1 second'
    UNION ALL
    SELECT quote_literal(gid) || ' in ' || quote_ident(database),
        extract(epoch FROM clock_timestamp() - prepared)::float8, true
    FROM pg_catalog.pg_prepared_xacts
    WHERE prepared < clock_timestamp() - %(age)s * interval '1 second'
    ORDER BY age DESC
    LIMIT 10
"""

TUBES = "SELECT DISTINCT tube, partitions FROM {s}.tube_list() ORDER BY tube"

STATUS = """
    SELECT s.tube, s.partition, s.inc_count AS waiting, s.backfill_count AS backfill,
        s.control_count AS control,
        extract(epoch FROM clock_timestamp() - s.inc_min_ts)::float8 AS lag,
        l.client_id AS leader, l.election, l.epoch,
        extract(epoch FROM clock_timestamp() - l.acquired_at)::float8 AS leads_for,
        extract(epoch FROM clock_timestamp() - l.renewed_at)::float8 AS renewed_ago
    FROM {s}.tube_stats() AS s
    LEFT JOIN {s}.tube_leaders() AS l ON l.tube = s.tube AND l.partition = s.partition
    ORDER BY s.tube, s.partition
"""

PARKED = """
    SELECT p.tube, p.shard %% t.partitions, count(*)
    FROM {s}.tube_parked AS p
    JOIN (SELECT DISTINCT tube, partitions FROM {s}.tube_list()) AS t ON t.tube = p.tube
    GROUP BY 1, 2
"""
