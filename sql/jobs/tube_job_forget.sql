-- tube_job_forget: forgets jobs, and throws away what they have staged. Pods in tubes stay.
--
-- A job that is forgotten and begun anew writes all of its units once more. That of a backfill is forgotten
-- once the backfill has come to an end.
--
-- Arguments: job_id: this one; NULL: all that ended before; before: only if it ended before; NULL: whenever.
--   One of the two must be given. Of all jobs, members of tube_admin forget everybody's, others their own.
-- Result: how many were forgotten.
-- Errors: 22004 both are NULL; 42501 job_id is somebody else's; TU130 it is that of a backfill under way.
-- Locks: the rows; of what was staged ACCESS EXCLUSIVE.
CREATE OR REPLACE FUNCTION :"schema".tube_job_forget(job_id text, before timestamptz = NULL) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    everybody CONSTANT boolean := tube_private_job_member('admin');
    job tube_job;
    forgotten bigint;
BEGIN
    IF job_id IS NULL AND before IS NULL THEN
        RAISE EXCEPTION 'neither a job nor a time is given' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'Give the name of a job, or a time before which jobs ended.';
    END IF;
    SELECT j.* INTO job FROM tube_job AS j WHERE j.job_id = tube_job_forget.job_id;
    IF FOUND THEN
        PERFORM tube_private_job_owned(job);
        IF job.state = 'running' AND EXISTS (
            SELECT FROM tube_backfill AS b WHERE b.backfill_id = job.backfill_id AND b.ended_at IS NULL)
        THEN
            RAISE EXCEPTION USING ERRCODE = 'TU130',
                MESSAGE = format('the job %L is that of a backfill that is under way', job.job_id),
                HINT = 'Cancel the backfill first.';
        END IF;
    END IF;
    DELETE FROM tube_job AS j
    WHERE (tube_job_forget.job_id IS NULL OR j.job_id = tube_job_forget.job_id)
        AND (everybody OR j.begun_by = session_user)
        AND (before IS NULL OR before > coalesce(j.ended_at,
            (SELECT b.ended_at FROM tube_backfill AS b WHERE b.backfill_id = j.backfill_id)));
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END
$$;
COMMENT ON FUNCTION :"schema".tube_job_forget IS 'Deletes jobs and their staged pods; pods in tubes stay.';
