-- tube_job_begin: begins a job, or goes on with it.
--
-- A job's units are fixed when it begins. Whoever writes a unit inserts its pods (the columns op, shard, ids
-- and payload of the tubes, or of the table `stage`) and calls tube_job_done last, all in one transaction.
--
-- A job belongs to who has begun it, by the name that he has logged in with: nobody else can go on with it,
-- add units to it, finish or forget it, but members of tube_admin.
--
-- Arguments:
--   job_id: its name; the same name is the same job for ever.
--   tubes: that it writes to; their keys have one type.
--   kind: direct: units go into the tubes; staged: into a table, and tube_job_finish moves them; ranges: as
--     direct, and bounds says where the units begin; attempts: into a table, with the number of the
--     attempt, and tube_job_finish moves the attempts that count.
--   fingerprint: of what is written.
--   units: how many; counts only when the job is new, as do bounds.
-- Result: the state (running, done), how many units and which bounds it has had since it began; stage: the table to
--   write to, NULL for the tubes themselves; known: whether it was there before.
-- Errors: TU102 unknown tube; TU130 another query, or other tubes or kind, has that name, or it is kept for a
--   backfill; 42501 it is somebody else's; 42804 keys of different types; 22004, 23514 no name, or too long a
--   one.
-- Locks: the job's row, and those of CREATE TABLE.
-- A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_job_begin(
    job_id text, tubes text[], kind text, fingerprint text, units integer, bounds text[] = NULL
) RETURNS TABLE (state text, unit_count integer, unit_bounds text[], stage text, known boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    job tube_job;
    added boolean;
    key_type regtype;
BEGIN
    IF tube_job_begin.job_id IS NULL OR coalesce(tube_job_begin.tubes, '{}') = '{}' THEN
        RAISE EXCEPTION 'a job needs a name, and a tube' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'Give both.';
    END IF;
    IF tube_job_begin.job_id ~ '^backfill [0-9]+$' THEN
        -- Else somebody could say beforehand which ranges a backfill has, or which of them are in.
        RAISE EXCEPTION USING ERRCODE = 'TU130',
            MESSAGE = format('the name %L is kept for a backfill', tube_job_begin.job_id),
            HINT = 'Give the job another name.';
    END IF;
    key_type := tube_private_job_key_type(tube_job_begin.tubes);
    INSERT INTO tube_job AS j (job_id, tubes, kind, fingerprint, units, bounds)
    VALUES (tube_job_begin.job_id, tube_job_begin.tubes, tube_job_begin.kind, tube_job_begin.fingerprint,
        tube_job_begin.units, tube_job_begin.bounds)
    ON CONFLICT (job_id) DO NOTHING;
    added := FOUND;
    job := tube_private_job_mine(tube_job_begin.job_id, true);
    IF job.tubes <> tube_job_begin.tubes OR job.kind <> tube_job_begin.kind
        OR job.fingerprint <> tube_job_begin.fingerprint
    THEN
        RAISE EXCEPTION USING ERRCODE = 'TU130',
            MESSAGE = format('the job %L was begun at %s with another query, other tubes or another way to publish',
                job.job_id, date_trunc('second', job.created_at)),
            HINT = 'Give this one another name, or forget the old one: tube_job_forget.';
    END IF;
    IF added AND job.kind IN ('staged', 'attempts') THEN
        stage := tube_private_job_stage(job.number);
        EXECUTE format('CREATE TABLE %s (op char NOT NULL, shard %I.tube_shard NOT NULL, ids %s[] NOT NULL, payload jsonb,'
            ' attempt uuid)', stage, tube_private_schema(), key_type);
        EXECUTE format('ALTER TABLE %s ALTER ids SET STORAGE EXTERNAL', stage);
        EXECUTE format('REVOKE ALL ON %s FROM PUBLIC', stage);
        EXECUTE format('GRANT INSERT ON %s TO %I, %I', stage, job.begun_by, tube_private_role('admin'));
    END IF;
    RETURN QUERY SELECT job.state, job.units, job.bounds, CASE WHEN job.kind IN ('staged', 'attempts')
        THEN tube_private_job_stage(job.number) END, NOT added;
END
$$;
COMMENT ON FUNCTION :"schema".tube_job_begin IS 'Starts a job, or resumes one of the same name.';
