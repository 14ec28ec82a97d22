-- tube_job_finish: ends a job; what was staged goes into its tubes, all at once.
--
-- Arguments: job_id; attempts: of a job of attempts, those that count.
-- Result: the job's row. Called again, it does nothing.
-- Errors: TU131 no such job; TU102 a tube is gone; TU130, 42501 as tube_private_job_mine.
-- Locks: the job's row, those of an INSERT into the tubes, and the table of its pods ACCESS EXCLUSIVE.
-- A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_job_finish(job_id text, attempts uuid[] = NULL)
RETURNS :"schema".tube_job
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    job tube_job := tube_private_job_mine(tube_job_finish.job_id, true);
    stage text := tube_private_job_stage(job.number);
    one text;
BEGIN
    IF job.state = 'done' THEN
        RETURN job;
    END IF;
    SELECT coalesce(sum(u.rows), 0), coalesce(sum(u.ids), 0), coalesce(sum(u.pods), 0)
    INTO job.rows_done, job.ids_done, job.pods_done
    FROM tube_job_unit AS u WHERE u.job_id = job.job_id;
    IF job.kind IN ('staged', 'attempts') THEN
        IF job.kind = 'attempts' THEN
            EXECUTE format('SELECT coalesce(sum(cardinality(ids)), 0), count(*) FROM %s WHERE attempt = ANY ($1)', stage)
            INTO job.ids_done, job.pods_done USING attempts;
            job.rows_done := job.ids_done;
        END IF;
        FOREACH one IN ARRAY job.tubes LOOP
            PERFORM tube_private_require(one);
            EXECUTE format('INSERT INTO %I (op, shard, ids, payload) SELECT op, shard, ids, payload FROM %s WHERE $1 OR attempt = ANY ($2)',
                one, stage) USING job.kind = 'staged', attempts;
        END LOOP;
        EXECUTE 'DROP TABLE ' || stage;
        PERFORM tube_private_job_wake(job.tubes, NULL);
    END IF;
    UPDATE tube_job AS j
    SET state = 'done', ended_at = clock_timestamp(),
        rows_done = job.rows_done, ids_done = job.ids_done, pods_done = job.pods_done
    WHERE j.job_id = job.job_id
    RETURNING j.* INTO job;
    RETURN job;
END
$$;
COMMENT ON FUNCTION :"schema".tube_job_finish IS
    'Completes a job and moves its staged pods into the tubes, all at once.';
