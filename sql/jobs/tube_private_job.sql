-- tube_private_job: a job, locked for the transaction.
--
-- Arguments: job_id; alone: whether nobody else may work on it meanwhile.
-- Result: its row.
-- Errors: TU131 there is none of that name.
-- Locks: the row FOR SHARE; FOR UPDATE where alone.
CREATE OR REPLACE FUNCTION :"schema".tube_private_job(job_id text, alone boolean) RETURNS :"schema".tube_job
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
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
REVOKE ALL ON FUNCTION :"schema".tube_private_job(text, boolean) FROM PUBLIC;

-- tube_private_job_stage: the name of the table that holds the staged pods of a job.
--
-- Arguments: number: of the job.
-- Result: the name with our schema, quoted.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_job_stage(number bigint) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN format('%I.%I', tube_private_schema(), 'tube_job_pods_' || number);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_job_stage(bigint) FROM PUBLIC;

-- tube_private_job_gone: the trigger that takes the staged pods away with the row of their job.
--
-- Result: nothing.
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
REVOKE ALL ON FUNCTION :"schema".tube_private_job_gone() FROM PUBLIC;
CREATE OR REPLACE TRIGGER tube_job_gone_trigger AFTER DELETE ON :"schema".tube_job
    FOR EACH ROW EXECUTE FUNCTION :"schema".tube_private_job_gone();

-- tube_private_job_wake: wakes the workers of tubes that sleep on partitions of some shards.
--
-- Arguments: tubes; shards: NULL for all.
-- Result: nothing.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_job_wake(tubes text[], shards integer[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    PERFORM tube_private_notify(tube_channel(s.tube), s.partition)
    FROM tube_sleeper AS s
    WHERE s.tube = ANY (tubes)
        AND (shards IS NULL
            OR EXISTS (SELECT FROM unnest(shards) AS t (shard) WHERE t.shard % s.partitions = s.partition));
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_job_wake(text[], integer[]) FROM PUBLIC;
