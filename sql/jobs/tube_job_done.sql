-- tube_job_done: records a unit of a job, as the last statement of the transaction that wrote its pods.
--
-- Two that write the same unit meet here: the second waits until the first is over, and is told.
--
-- Arguments: job_id; unit; rows: that were read; ids, pods: that were written, for each tube; shards: of
--   them, so that workers that sleep are woken; NULL for all.
-- Result: true: commit. False: the unit is in already: roll back, so that it is not in twice.
-- Errors: TU131 no such job; TU132 it is done: roll back; TU130, 42501 as tube_private_job_mine.
-- Locks: the job's row FOR SHARE.
-- A lost answer, or one to the COMMIT: write the unit again.
CREATE OR REPLACE FUNCTION :"schema".tube_job_done(
    job_id text, unit integer, rows bigint, ids bigint, pods bigint, shards integer[] = NULL
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN tube_private_job_done(tube_private_job_mine(job_id, false), unit, rows, ids, pods, shards);
END
$$;
COMMENT ON FUNCTION :"schema".tube_job_done IS
    'Records a unit of a job in the transaction that wrote its pods; false if the unit was recorded before.';

-- tube_private_job_done: records a unit of any job, whoever has begun it.
--
-- Arguments: job: its row, locked; the others as of tube_job_done.
-- Result: as of tube_job_done.
-- Errors: TU132 the job is done.
CREATE OR REPLACE FUNCTION :"schema".tube_private_job_done(
    job :"schema".tube_job, unit integer, rows bigint, ids bigint, pods bigint, shards integer[]
) RETURNS boolean
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    IF job.state = 'done' THEN
        RAISE EXCEPTION USING ERRCODE = 'TU132',
            MESSAGE = format('the job %L was done at %s', job.job_id, date_trunc('second', job.ended_at)),
            HINT = 'Roll back. Give a new job another name.';
    END IF;
    INSERT INTO tube_job_unit AS u (job_id, unit, rows, ids, pods)
    VALUES (job.job_id, tube_private_job_done.unit, tube_private_job_done.rows, tube_private_job_done.ids,
        tube_private_job_done.pods)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF job.kind IN ('direct', 'ranges') THEN
        PERFORM tube_private_job_wake(job.tubes, tube_private_job_done.shards);
    END IF;
    RETURN true;
END
$$;
