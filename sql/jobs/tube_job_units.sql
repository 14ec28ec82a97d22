-- tube_job_units: the units of a job that are in.
--
-- Arguments: job_id.
-- Result: their numbers, in order; an empty array for a job that is not there, or that tube_job_list
--   would not show.
CREATE OR REPLACE FUNCTION :"schema".tube_job_units(job_id text) RETURNS integer[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN ARRAY(
        SELECT u.unit FROM tube_job_unit AS u WHERE u.job_id = tube_job_units.job_id AND EXISTS (
            SELECT FROM tube_job AS j WHERE j.job_id = u.job_id
                AND (j.begun_by = session_user OR tube_private_job_member('admin', 'worker', 'monitor')))
        ORDER BY u.unit);
END
$$;
COMMENT ON FUNCTION :"schema".tube_job_units IS 'Returns the numbers of the units of a job that are done.';
