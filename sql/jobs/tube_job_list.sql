-- tube_job_list: jobs, under way and past, the newest first.
--
-- Arguments: in_job: this one only; NULL: all.
-- Result: a row per job: its name, tubes, kind and state (running, done; of a backfill that came to another
--   end, that one); how many of its units are in, and how many it has (of buckets of keys, those without a key
--   never come); rows read, ids and pods written. Members of tube_admin, tube_worker and tube_monitor see all
--   jobs, others those that they have begun.
CREATE OR REPLACE FUNCTION :"schema".tube_job_list(in_job text = NULL)
RETURNS TABLE (
    job_id text, tubes text[], kind text, state text, units_done bigint, units integer, rows bigint, ids bigint,
    pods bigint, backfill_id bigint, created_at timestamptz, last_at timestamptz, ended_at timestamptz,
    begun_by name
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    everybody CONSTANT boolean := tube_private_job_member('admin', 'worker', 'monitor');
BEGIN
    RETURN QUERY
    SELECT j.job_id, j.tubes, j.kind, CASE WHEN j.state = 'done' THEN j.state ELSE coalesce(e.state, j.state) END,
        u.n, j.units, coalesce(j.rows_done, u.rows), coalesce(j.ids_done, u.ids), coalesce(j.pods_done, u.pods),
        j.backfill_id, j.created_at, u.last_at, coalesce(j.ended_at, e.ended_at), j.begun_by
    FROM tube_job AS j
    LEFT JOIN tube_backfill AS e ON e.backfill_id = j.backfill_id AND e.ended_at IS NOT NULL
    CROSS JOIN LATERAL (
        SELECT count(*) AS n, coalesce(sum(w.rows), 0)::bigint AS rows, coalesce(sum(w.ids), 0)::bigint AS ids,
            coalesce(sum(w.pods), 0)::bigint AS pods, max(w.ended_at) AS last_at
        FROM tube_job_unit AS w WHERE w.job_id = j.job_id
    ) AS u
    WHERE (in_job IS NULL OR j.job_id = in_job) AND (everybody OR j.begun_by = session_user)
    ORDER BY j.created_at DESC;
END
$$;
COMMENT ON FUNCTION :"schema".tube_job_list IS 'Lists jobs, active and past, newest first.';
