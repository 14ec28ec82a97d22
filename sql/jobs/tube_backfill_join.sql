-- tube_backfill_join: ends the insertion of a backfill that was split, when all of its ranges are in.
--
-- A backfill_end goes into each of its shards, after all else of it.
--
-- Arguments: backfill_id: one that this session has taken.
-- Result: whether all ranges are in. Called again, it does nothing.
-- Errors: TU122, TU123 as tube_private_backfill_held; TU124 it was ended; TU108 the table was detached; TU131 it was
--   not split.
-- Locks: the rows of the backfill and of its job.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_join(backfill_id bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    -- The job before the backfill, as whoever inserts a range takes them.
    job tube_job := tube_private_job('backfill ' || tube_backfill_join.backfill_id, true);
    backfill tube_backfill := tube_private_backfill_held(tube_backfill_join.backfill_id);
    units_done bigint;
BEGIN
    IF job.state = 'done' THEN
        RETURN true;
    END IF;
    PERFORM tube_private_backfill_still(backfill);
    SELECT count(*), coalesce(sum(u.rows), 0), coalesce(sum(u.ids), 0), coalesce(sum(u.pods), 0)
    INTO units_done, job.rows_done, job.ids_done, job.pods_done
    FROM tube_job_unit AS u WHERE u.job_id = job.job_id;
    IF units_done < job.units THEN
        RETURN false;
    END IF;
    PERFORM tube_private_backfill_control(backfill, 'backfill_end', 'B');
    UPDATE tube_job AS j
    SET state = 'done', ended_at = clock_timestamp(),
        rows_done = job.rows_done, ids_done = job.ids_done, pods_done = job.pods_done
    WHERE j.job_id = job.job_id;
    PERFORM tube_private_job_wake(job.tubes, NULL);
    UPDATE tube_backfill AS b
    SET state = 'delivering', rows_total = b.rows_done, ends_left = b.shards, note = NULL,
        inserted_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE b.backfill_id = backfill.backfill_id;
    RETURN true;
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_join IS 'Completes a split backfill once all its ranges are inserted.';
