-- Jobs: what several sessions write to tubes at once, in units, each of them once.
--
-- A job's units are fixed when it begins. To write a unit, insert its pods (the columns op, shard, ids and payload of
-- the tubes, or of the table `stage`) and call tube_job_done last, all in one transaction.
--
-- A job belongs to the role that has logged in to begin it: no other can continue it, add units to it, finish or
-- forget it, but members of tube_admin. Errors of these functions: TU131 there is no such job; TU130 it is that of a
-- backfill; 42501 it belongs to another role. After a lost answer, call again.

-- Arguments: job_id: its name; the same name is the same job for ever. tubes: that it writes to; their keys have one
--   type. kind: direct: units go into the tubes; staged: into a table, and tube_job_finish moves them; ranges: as
--   direct, and bounds says where the units begin; attempts: into a table, with the number of the attempt, and
--   tube_job_finish moves the attempts that count. fingerprint: of the query. units: how many; counts only when
--   the job is new, as do bounds.
-- Result: the state (running, done), how many units and which bounds it has had since it began; stage: the table to
--   write to, NULL for the tubes themselves; known: whether it was there before.
-- Errors: TU102 unknown tube; TU130 another query, or other tubes or kind, has that name, or it is kept for a backfill;
--   42501; 42804 keys of different types; 22004, 23514 no name, or too long a one.
-- Locks: the job's row, and as CREATE TABLE.
CREATE OR REPLACE FUNCTION :"schema".tube_job_begin(
    job_id text, tubes text[], kind text, fingerprint text, units integer, bounds text[] = NULL
) RETURNS TABLE (state text, unit_count integer, unit_bounds text[], stage text, known boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    job tube_job;
    one text;
    key_type regtype;
BEGIN
    IF job_id IS NULL OR coalesce(tubes, '{}') = '{}' THEN
        RAISE EXCEPTION 'a job needs a name, and a tube' USING ERRCODE = 'null_value_not_allowed', HINT = 'Give both.';
    ELSIF job_id ~ '^backfill [0-9]+$' THEN
        -- Else any writer could say beforehand which ranges a backfill has, or which of them are in.
        RAISE EXCEPTION USING ERRCODE = 'TU130',
            MESSAGE = format('the name %L is kept for a backfill', job_id), HINT = 'Give the job another name.';
    END IF;
    FOREACH one IN ARRAY tubes LOOP
        PERFORM tube_private_require(one);
        key_type := coalesce(key_type, tube_private_key_type(one));
        IF tube_private_key_type(one) <> key_type THEN
            RAISE EXCEPTION 'the keys of tube % are of type %, and the keys of % of type %',
                    quote_literal(tubes[1]), key_type, quote_literal(one), tube_private_key_type(one)
                USING ERRCODE = 'datatype_mismatch', HINT = 'A job writes keys of one type: give each type a job.';
        END IF;
    END LOOP;
    INSERT INTO tube_job (job_id, tubes, kind, fingerprint, units, bounds)
    VALUES (job_id, tubes, kind, fingerprint, units, bounds) ON CONFLICT DO NOTHING;
    known := NOT FOUND;
    job := tube_private_lock_job(job_id, alone => true);
    IF job.tubes <> tubes OR job.kind <> kind OR job.fingerprint <> fingerprint THEN
        RAISE EXCEPTION USING ERRCODE = 'TU130',
            MESSAGE = format('the job %L was begun at %s with another query, other tubes or another way to publish',
                job.job_id, date_trunc('second', job.created_at)),
            HINT = 'Give this one another name, or forget the old one: tube_job_forget.';
    END IF;
    IF job.kind IN ('staged', 'attempts') THEN
        stage := tube_private_qualify('tube_job_pods_' || job.number);
        IF NOT known THEN
            EXECUTE format('CREATE TABLE %s (op char NOT NULL, shard tube_shard NOT NULL, ids %s[] NOT NULL,'
                ' payload jsonb, attempt uuid)', stage, key_type);
            EXECUTE format('ALTER TABLE %s ALTER ids SET STORAGE EXTERNAL', stage);
            EXECUTE format('REVOKE ALL ON %s FROM PUBLIC', stage);
            EXECUTE format('GRANT INSERT ON %s TO %I, %I', stage, job.begun_by, tube_private_role('admin'));
        END IF;
    END IF;
    RETURN QUERY SELECT job.state, job.units, job.bounds, stage, known;
END
$$;
COMMENT ON FUNCTION :"schema".tube_job_begin IS 'Begins or resumes a job. kind is direct, staged, ranges or attempts.';

-- tube_private_lock_job: a job's row, locked for the transaction: FOR SHARE; FOR UPDATE where alone. Only functions for
-- backfills (of_backfill) write the job of one; any other is for the role that it belongs to.
CREATE OR REPLACE FUNCTION :"schema".tube_private_lock_job(job_id text, alone boolean, of_backfill boolean = false)
RETURNS :"schema".tube_job
LANGUAGE plpgsql AS $$
DECLARE
    job tube_job;
BEGIN
    IF alone THEN
        SELECT j.* INTO job FROM tube_job AS j WHERE j.job_id = $1 FOR UPDATE;
    ELSE
        SELECT j.* INTO job FROM tube_job AS j WHERE j.job_id = $1 FOR SHARE;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU131',
            MESSAGE = format('there is no job %s', coalesce(quote_literal(job_id), 'NULL')),
            HINT = 'tube_job_list() shows all of them; tube_job_begin() begins one.';
    ELSIF NOT of_backfill THEN
        PERFORM tube_private_refuse_job(job);
        IF job.backfill_id IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'TU130',
                MESSAGE = format('the job %L is that of a backfill', job.job_id),
                HINT = 'tube_backfill_range and tube_backfill_join write it.';
        END IF;
    END IF;
    RETURN job;
END
$$;

-- tube_private_refuse_job: raises 42501 where a job belongs to another role.
CREATE OR REPLACE FUNCTION :"schema".tube_private_refuse_job(job :"schema".tube_job) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    login CONSTANT name := tube_private_login();
BEGIN
    IF job.begun_by <> login AND NOT pg_has_role(login, tube_private_role('admin'), 'MEMBER') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('the job %L belongs to %I, who has begun it', job.job_id, job.begun_by),
            HINT = format('%I and members of %I may continue or forget it. Give your job another name.',
                job.begun_by, tube_private_role('admin'));
    END IF;
END
$$;

-- Two that write the same unit meet here: the second waits until the first is over, and gets an error.
-- Arguments: job_id; unit; rows: that were read; ids, pods: that were written, for each tube; shards: of them, so that
--   workers that sleep are woken; NULL for all.
-- Result: true: commit. False: the unit is in already: roll back, so that it is not in twice.
-- Errors: TU131, TU130, 42501; TU132 the job is done: roll back. Locks: the job's row FOR SHARE.
-- A lost answer, or one to the COMMIT: write the unit again.
CREATE OR REPLACE FUNCTION :"schema".tube_job_done(
    job_id text, unit integer, rows bigint, ids bigint, pods bigint, shards integer[] = NULL
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    job tube_job := tube_private_lock_job(job_id, alone => false);
BEGIN
    IF job.state = 'done' THEN
        RAISE EXCEPTION USING ERRCODE = 'TU132',
            MESSAGE = format('the job %L was done at %s', job.job_id, date_trunc('second', job.ended_at)),
            HINT = 'Roll back. Give a new job another name.';
    END IF;
    INSERT INTO tube_job_unit (job_id, unit, rows, ids, pods) VALUES (job_id, unit, rows, ids, pods)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF job.kind IN ('direct', 'ranges') THEN
        PERFORM tube_private_wake_sleepers(t.tube, shards) FROM unnest(job.tubes) AS t (tube);
    END IF;
    RETURN true;
END
$$;
COMMENT ON FUNCTION :"schema".tube_job_done IS
    'Records a unit, in the transaction that wrote it. False: it is recorded already, so roll back.';

-- Arguments: job_id; attempts: of a job of attempts, the ones that count.
-- Result: the job's row. Called again, it does nothing. Errors: TU131, TU130, 42501; TU102 a tube is gone.
-- Locks: the job's row, as an INSERT into the tubes, and the table of its pods ACCESS EXCLUSIVE.
CREATE OR REPLACE FUNCTION :"schema".tube_job_finish(job_id text, attempts uuid[] = NULL) RETURNS :"schema".tube_job
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    job tube_job := tube_private_lock_job(job_id, alone => true);
    stage CONSTANT text := tube_private_qualify('tube_job_pods_' || job.number);
    one text;
BEGIN
    IF job.state = 'done' THEN
        RETURN job;
    END IF;
    IF job.kind = 'attempts' THEN
        EXECUTE format('SELECT coalesce(sum(cardinality(ids)), 0), count(*) FROM %s WHERE attempt = ANY ($1)', stage)
        INTO job.ids_done, job.pods_done USING attempts;
        job.rows_done := job.ids_done;
    END IF;
    IF job.kind IN ('staged', 'attempts') THEN
        FOREACH one IN ARRAY job.tubes LOOP
            PERFORM tube_private_require(one);
            EXECUTE format('INSERT INTO %s (op, shard, ids, payload) SELECT op, shard, ids, payload FROM %s'
                ' WHERE $1 OR attempt = ANY ($2)', tube_private_qualify(one), stage) USING job.kind = 'staged', attempts;
            PERFORM tube_private_wake_sleepers(one, NULL);
        END LOOP;
        EXECUTE 'DROP TABLE ' || stage;
    END IF;
    RETURN tube_private_end_job(job);
END
$$;
COMMENT ON FUNCTION :"schema".tube_job_finish IS 'Ends a job. Staged rows go into the tubes, all at once.';

-- tube_private_end_job: marks a job done, with the totals that it has already, or else the totals of its units.
CREATE OR REPLACE FUNCTION :"schema".tube_private_end_job(job :"schema".tube_job) RETURNS :"schema".tube_job
LANGUAGE sql AS $$
    UPDATE tube_job AS j
    SET state = 'done', ended_at = clock_timestamp(), rows_done = coalesce(job.rows_done, u.rows),
        ids_done = coalesce(job.ids_done, u.ids), pods_done = coalesce(job.pods_done, u.pods)
    FROM (SELECT coalesce(sum(w.rows), 0) AS rows, coalesce(sum(w.ids), 0) AS ids, coalesce(sum(w.pods), 0) AS pods
        FROM tube_job_unit AS w WHERE w.job_id = job.job_id) AS u
    WHERE j.job_id = job.job_id RETURNING j.*
$$;

-- A job that is forgotten and begun again writes all of its units once more. That of a backfill is forgotten once the
-- backfill has come to an end.
-- Arguments: job_id: this one; NULL: all that ended before; before: only if it ended before; NULL: whenever. One of the
--   two must be given. Of all jobs, members of tube_admin forget everybody's, others their own.
-- Result: how many were forgotten. Errors: 22004 both are NULL; 42501; TU130 job_id is that of a backfill under way.
-- Locks: the rows; of the staged pods ACCESS EXCLUSIVE.
CREATE OR REPLACE FUNCTION :"schema".tube_job_forget(job_id text, before timestamptz = NULL) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    login CONSTANT name := tube_private_login();
    everybody CONSTANT boolean := pg_has_role(login, tube_private_role('admin'), 'MEMBER');
    job tube_job;
    forgotten bigint;
BEGIN
    IF job_id IS NULL AND before IS NULL THEN
        RAISE EXCEPTION 'neither a job nor a time is given' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'Give the name of a job, or a time before which jobs ended.';
    END IF;
    SELECT j.* INTO job FROM tube_job AS j WHERE j.job_id = $1;
    IF FOUND THEN
        PERFORM tube_private_refuse_job(job);
        IF job.state = 'running' AND EXISTS (
            SELECT FROM tube_backfill AS b WHERE b.backfill_id = job.backfill_id AND b.ended_at IS NULL)
        THEN
            RAISE EXCEPTION USING ERRCODE = 'TU130',
                MESSAGE = format('the job %L is that of a backfill that is under way', job.job_id),
                HINT = 'Cancel the backfill first.';
        END IF;
    END IF;
    DELETE FROM tube_job AS j
    WHERE ($1 IS NULL OR j.job_id = $1) AND (everybody OR j.begun_by = login)
        AND (before IS NULL OR before > coalesce(j.ended_at,
            (SELECT b.ended_at FROM tube_backfill AS b WHERE b.backfill_id = j.backfill_id)));
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END
$$;
COMMENT ON FUNCTION :"schema".tube_job_forget IS
    'Deletes the record of a job, or with NULL of all that ended before a time; pods in tubes stay.';

-- Arguments: in_job: this one only; NULL: all.
-- Result: a row per job: its name, tubes, kind and state (running, done; of a backfill that came to another end, that
--   one); how many of its units are in, and how many it has (of buckets of keys, those without a key never come); rows
--   read, ids and pods written. Members of tube_admin, tube_worker and tube_monitor see all jobs, others the ones that
--   they have begun.
CREATE OR REPLACE FUNCTION :"schema".tube_job_list(in_job text = NULL)
RETURNS TABLE (
    job_id text, tubes text[], kind text, state text, units_done bigint, units integer, rows bigint, ids bigint,
    pods bigint, backfill_id bigint, created_at timestamptz, last_at timestamptz, ended_at timestamptz, begun_by name
)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT j.job_id, j.tubes, j.kind, CASE WHEN j.state = 'done' THEN j.state ELSE coalesce(e.state, j.state) END,
        u.n, j.units, coalesce(j.rows_done, u.rows), coalesce(j.ids_done, u.ids), coalesce(j.pods_done, u.pods),
        j.backfill_id, j.created_at, u.last_at, coalesce(j.ended_at, e.ended_at), j.begun_by
    FROM tube_private_login() AS login CROSS JOIN tube_job AS j
    LEFT JOIN tube_backfill AS e ON e.backfill_id = j.backfill_id AND e.ended_at IS NOT NULL
    CROSS JOIN LATERAL (
        SELECT count(*) AS n, coalesce(sum(w.rows), 0)::bigint AS rows, coalesce(sum(w.ids), 0)::bigint AS ids,
            coalesce(sum(w.pods), 0)::bigint AS pods, max(w.ended_at) AS last_at
        FROM tube_job_unit AS w WHERE w.job_id = j.job_id) AS u
    WHERE (in_job IS NULL OR j.job_id = in_job) AND (j.begun_by = login OR EXISTS (
        SELECT FROM unnest(ARRAY['admin', 'worker', 'monitor']) AS k (kind)
        WHERE pg_has_role(login, tube_private_role(k.kind), 'MEMBER')))
    ORDER BY j.created_at DESC
$$;
COMMENT ON FUNCTION :"schema".tube_job_list IS
    'Lists jobs, newest first; for admins, workers and monitors all, for others their own.';

-- tube_job_units: the numbers of a job's units that are in, in order; none of a job that tube_job_list does not show.
CREATE OR REPLACE FUNCTION :"schema".tube_job_units(job_id text) RETURNS integer[]
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT ARRAY(SELECT u.unit FROM tube_job_unit AS u
        WHERE u.job_id = $1 AND EXISTS (SELECT FROM tube_job_list($1)) ORDER BY u.unit)
$$;
COMMENT ON FUNCTION :"schema".tube_job_units IS 'Returns the recorded units of a job.';

-- tube_stream_purge: deletes the pods that a stream has read and done with. For tubes that have no workers.
-- Arguments: tube; seq: all pods up to it go. It is to be a settled one: then no pod comes below it any more.
-- Result: how many pods went. Errors: TU102 unknown tube; TU133 workers lead it. Locks: the pods.
CREATE OR REPLACE FUNCTION :"schema".tube_stream_purge(tube text, seq bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET enable_seqscan = off AS $$
DECLARE
    reg tube_registry := tube_private_require(tube);
    gone bigint := 0;
    here bigint;
BEGIN
    IF EXISTS (SELECT FROM tube_leader AS l WHERE l.tube = reg.tube AND l.leader_id IS NOT NULL) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU133',
            MESSAGE = format('the tube %L has workers, which purge the pods that they deliver', tube),
            HINT = 'A tube is read by workers or by a stream. End the workers, or do not purge.';
    END IF;
    FOR part IN 0 .. reg.partitions - 1 LOOP
        EXECUTE format('DELETE FROM %s AS t WHERE %s'
            ' AND (CASE WHEN t.op = ''B'' THEN 1 ELSE 0 END) = ANY (''{0,1}'') AND t.seq <= $1',
            tube_private_qualify(reg.tube), (tube_private_slices(reg.tube, reg.partitions, part)).pods) USING seq;
        GET DIAGNOSTICS here = ROW_COUNT;
        gone := gone + here;
    END LOOP;
    RETURN gone;
END
$$;
COMMENT ON FUNCTION :"schema".tube_stream_purge IS 'Deletes pods up to a settled seq, of a tube without workers.';
