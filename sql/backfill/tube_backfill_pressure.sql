-- tube_backfill_pressure: what a backfill slows itself for.
--
-- Arguments: tube; pods_limit: no need to count on beyond so many.
-- Result: waiting: backfill pods in the tube, pods_limit + 1 at most; and of the replica that is
--   furthest behind, its name, seconds of replay lag and bytes of WAL that it lacks. NULLs where there
--   is none, or where our owner may not see it (it needs pg_monitor).
-- Errors: TU102 unknown tube.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_pressure(
    tube text, pods_limit integer
) RETURNS TABLE (waiting bigint, replica text, replica_lag float8, replica_behind bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET enable_seqscan = off
AS $$
DECLARE
    reg tube_registry := tube_private_require(tube);
    counted bigint;
BEGIN
    waiting := 0;
    FOR part IN 0 .. reg.partitions - 1 LOOP
        EXIT WHEN waiting > pods_limit;
        EXECUTE format('SELECT count(*) FROM (SELECT FROM %I.%I WHERE (shard %% %s) = %s'
            ' AND (CASE WHEN op = ''B'' THEN 1 ELSE 0 END) = 1 LIMIT $1) AS first_ones',
            tube_private_schema(), reg.tube, reg.partitions, part)
        INTO counted USING pods_limit + 1 - waiting;
        waiting := waiting + counted;
    END LOOP;
    SELECT coalesce(nullif(r.application_name, ''), r.client_addr::text, r.pid::text),
        extract(epoch FROM r.replay_lag)::float8,
        pg_wal_lsn_diff(pg_current_wal_lsn(), coalesce(r.replay_lsn, r.flush_lsn, r.write_lsn, r.sent_lsn))::bigint
    INTO replica, replica_lag, replica_behind
    FROM pg_stat_replication AS r
    WHERE r.state IN ('streaming', 'catchup')
    ORDER BY 3 DESC NULLS LAST LIMIT 1;
    RETURN NEXT;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_backfill_pressure(text, integer) FROM PUBLIC;
