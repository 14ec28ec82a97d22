-- tube_backfill_pressure: what a backfill slows itself for.
--
-- Arguments: tube; pods_limit: no need to count on beyond so many.
-- Result: a row for each replica: waiting: backfill pods in the tube, pods_limit + 1 at most; control
--   pods are left out, which may wait for other things than workers (told by their payload: looking at
--   the ids would fetch them); the replica's name, its seconds of replay lag and the bytes of WAL that it
--   lacks. One row with NULLs where there is none, or where our owner may not see it (it needs pg_monitor).
-- Errors: TU102 unknown tube.
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
    pods bigint := 0;
BEGIN
    FOR part IN 0 .. reg.partitions - 1 LOOP
        EXIT WHEN pods > pods_limit;
        EXECUTE format('SELECT count(*) FROM (SELECT FROM %I.%I WHERE %s'
            ' AND (CASE WHEN op = ''B'' THEN 1 ELSE 0 END) = 1 AND payload ->> ''type'' IS NULL LIMIT $1) AS first_ones',
            tube_private_schema(), reg.tube, (tube_private_slices(reg.tube, reg.partitions, part)).pods)
        INTO counted USING pods_limit + 1 - pods;
        pods := pods + counted;
    END LOOP;
    RETURN QUERY
    SELECT pods, coalesce(nullif(r.application_name, ''), r.client_addr::text, r.pid::text),
        extract(epoch FROM r.replay_lag)::float8,
        pg_wal_lsn_diff(pg_current_wal_lsn(), coalesce(r.replay_lsn, r.flush_lsn, r.write_lsn, r.sent_lsn))::bigint
    FROM (SELECT) AS always
    LEFT JOIN pg_stat_replication AS r ON r.state IN ('streaming', 'catchup')
    ORDER BY 2;
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_pressure IS
    'Returns the backlog and the replica lag that a backfill is throttled by.';
