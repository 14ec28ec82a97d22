-- tube_job_forget: forgets jobs, and throws away what they have staged. Pods in tubes stay.
--
-- A job that is forgotten and begun anew writes all of its units once more.
--
-- Arguments: job_id: this one; NULL: all that ended before; before: only if it ended before; NULL: whenever.
--   One of the two must be given.
-- Result: how many were forgotten.
-- Errors: 22004 both are NULL.
-- Locks: the rows; of what was staged ACCESS EXCLUSIVE.
CREATE OR REPLACE FUNCTION :"schema".tube_job_forget(job_id text, before timestamptz = NULL) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    forgotten bigint;
BEGIN
    IF job_id IS NULL AND before IS NULL THEN
        RAISE EXCEPTION 'neither a job nor a time is given' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'Give the name of a job, or a time before which jobs ended.';
    END IF;
    DELETE FROM tube_job AS j
    WHERE (tube_job_forget.job_id IS NULL OR j.job_id = tube_job_forget.job_id)
        AND (before IS NULL OR j.ended_at < before);
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_job_forget(text, timestamptz) FROM PUBLIC;
