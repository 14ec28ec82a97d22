-- tube_private_job: a job, locked for the transaction.
--
-- Arguments: job_id; alone: whether nobody else may work on it meanwhile.
-- Result: its row.
-- Errors: TU131 there is none of that name.
-- Locks: the row FOR SHARE; FOR UPDATE where alone.
CREATE OR REPLACE FUNCTION :"schema".tube_private_job(job_id text, alone boolean) RETURNS :"schema".tube_job
LANGUAGE plpgsql AS $$
DECLARE
    job tube_job;
BEGIN
    IF alone THEN
        SELECT j.* INTO job FROM tube_job AS j WHERE j.job_id = tube_private_job.job_id FOR UPDATE;
    ELSE
        SELECT j.* INTO job FROM tube_job AS j WHERE j.job_id = tube_private_job.job_id FOR SHARE;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU131',
            MESSAGE = format('there is no job %s', coalesce(quote_literal(job_id), 'NULL')),
            HINT = 'tube_job_list() shows all of them; tube_job_begin() begins one.';
    END IF;
    RETURN job;
END
$$;

-- tube_private_job_mine: a job that the caller may write, locked for the transaction.
--
-- That of a backfill is written by the functions of backfills only.
--
-- Arguments: job_id; alone: as tube_private_job.
-- Result: its row.
-- Errors: TU131 there is none of that name; TU130 it is that of a backfill; 42501 as tube_private_job_owned.
-- Locks: as tube_private_job.
CREATE OR REPLACE FUNCTION :"schema".tube_private_job_mine(job_id text, alone boolean) RETURNS :"schema".tube_job
LANGUAGE plpgsql AS $$
DECLARE
    job tube_job := tube_private_job(tube_private_job_mine.job_id, alone);
BEGIN
    PERFORM tube_private_job_owned(job);
    IF job.backfill_id IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU130',
            MESSAGE = format('the job %L is that of a backfill', job.job_id),
            HINT = 'tube_backfill_range and tube_backfill_join write it.';
    END IF;
    RETURN job;
END
$$;

-- tube_private_job_owned: refuses a job that is somebody else's.
--
-- It belongs to who has begun it, by the name that he has logged in with, and to members of tube_admin.
--
-- Arguments: job: its row.
-- Errors: 42501.
CREATE OR REPLACE FUNCTION :"schema".tube_private_job_owned(job :"schema".tube_job) RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF job.begun_by <> session_user AND NOT tube_private_job_member('admin') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('the job %L belongs to %I, who has begun it', job.job_id, job.begun_by),
            HINT = format('%I and members of %I may go on with it, or forget it. Give yours another name.',
                job.begun_by, tube_private_role('admin'));
    END IF;
END
$$;

-- tube_private_job_member: whether the one who has logged in is a member of one of our roles.
--
-- Arguments: kinds: as of tube_private_role.
-- Result: true or false; true for superusers.
CREATE OR REPLACE FUNCTION :"schema".tube_private_job_member(VARIADIC kinds text[]) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM unnest(kinds) AS k (kind) WHERE pg_has_role(session_user, tube_private_role(k.kind), 'MEMBER'));
END
$$;

-- tube_private_job_key_type: the type of the keys of a job's tubes; refuses what a job can't write to.
--
-- Arguments: tubes: at least one.
-- Result: bigint, uuid or text.
-- Errors: TU102 unknown tube; 42804 they have keys of different types.
CREATE OR REPLACE FUNCTION :"schema".tube_private_job_key_type(tubes text[]) RETURNS regtype
LANGUAGE plpgsql AS $$
DECLARE
    one text;
    key_type regtype;
BEGIN
    FOREACH one IN ARRAY tubes LOOP
        PERFORM tube_private_require(one);
        key_type := coalesce(key_type, tube_private_key_type(one));
        IF tube_private_key_type(one) <> key_type THEN
            RAISE EXCEPTION 'the keys of tube % are of type %, and those of % of type %',
                    quote_literal(tubes[1]), key_type, quote_literal(one), tube_private_key_type(one)
                USING ERRCODE = 'datatype_mismatch', HINT = 'A job writes keys of one type: give each type a job.';
        END IF;
    END LOOP;
    RETURN key_type;
END
$$;

-- tube_private_job_stage: the name of the table that holds the staged pods of a job.
--
-- Arguments: number: of the job.
-- Result: the name with our schema, quoted.
CREATE OR REPLACE FUNCTION :"schema".tube_private_job_stage(number bigint) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN format('%I.%I', tube_private_schema(), 'tube_job_pods_' || number);
END
$$;

-- tube_private_job_gone: the trigger that takes the staged pods away with the row of their job.
--
-- Locks: the table of the pods ACCESS EXCLUSIVE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_job_gone() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    EXECUTE 'DROP TABLE IF EXISTS ' || tube_private_job_stage(OLD.number);
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER tube_job_gone_trigger AFTER DELETE ON :"schema".tube_job
    FOR EACH ROW EXECUTE FUNCTION :"schema".tube_private_job_gone();

-- tube_private_job_wake: wakes the workers of tubes that sleep on partitions of some shards.
--
-- Arguments: tubes; shards: NULL for all.
CREATE OR REPLACE FUNCTION :"schema".tube_private_job_wake(tubes text[], shards integer[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tube_private_wake_sleepers(t.tube, shards) FROM unnest(tubes) AS t (tube);
END
$$;
