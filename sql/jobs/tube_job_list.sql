-- tube_job_list: jobs, under way and past, the newest first.
--
-- Arguments: in_job: this one only; NULL: all.
-- Result: a row per job: its name, tubes, kind and state; how many of its units are in, and how many it
--   has (of buckets of keys, those without a key never come); rows read, ids and pods written.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_job_list(in_job text = NULL)
RETURNS TABLE (
    job_id text, tubes text[], kind text, state text, units_done bigint, units integer, rows bigint, ids bigint,
    pods bigint, backfill_id bigint, created_at timestamptz, last_at timestamptz, ended_at timestamptz
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT j.job_id, j.tubes, j.kind, j.state, u.n, j.units, coalesce(j.rows_done, u.rows), coalesce(j.ids_done, u.ids),
        coalesce(j.pods_done, u.pods), j.backfill_id, j.created_at, u.last_at, j.ended_at
    FROM tube_job AS j, LATERAL (
        SELECT count(*) AS n, coalesce(sum(w.rows), 0)::bigint AS rows, coalesce(sum(w.ids), 0)::bigint AS ids,
            coalesce(sum(w.pods), 0)::bigint AS pods, max(w.ended_at) AS last_at
        FROM tube_job_unit AS w WHERE w.job_id = j.job_id
    ) AS u
    WHERE in_job IS NULL OR j.job_id = in_job
    ORDER BY j.created_at DESC;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_job_list(text) FROM PUBLIC;
