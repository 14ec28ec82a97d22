-- tube_private_backfill: a backfill, locked for the transaction.
--
-- Result: its row.
-- Errors: TU122 there is none of that number.
-- Locks: the row FOR NO KEY UPDATE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill(backfill_id bigint) RETURNS :"schema".tube_backfill
LANGUAGE plpgsql AS $$
DECLARE
    result tube_backfill;
BEGIN
    SELECT b.* INTO result FROM tube_backfill AS b
    WHERE b.backfill_id = tube_private_backfill.backfill_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU122',
            MESSAGE = format('there is no backfill %s', coalesce(backfill_id::text, 'NULL')),
            HINT = 'tube_backfill_list() shows all of them.';
    END IF;
    RETURN result;
END
$$;

-- tube_private_backfill_ids: the name of the table that holds the ids of a backfill.
--
-- Result: the name with our schema, quoted.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_ids(backfill_id bigint) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN format('%I.%I', tube_private_schema(), 'tube_backfill_ids_' || backfill_id);
END
$$;

-- tube_private_backfill_space: what our advisory locks of backfills are told apart from others by.
--
-- Result: a text; hashed with the number of a backfill, it gives the key.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_space() RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN 'pytube backfill ' || tube_private_schema();
END
$$;

-- tube_private_backfill_key: the advisory lock of whoever works on a backfill.
--
-- Result: the key.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_key(backfill_id bigint) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN hashtextextended(tube_private_backfill_space(), backfill_id);
END
$$;

-- tube_private_backfill_end: ends a backfill before its time, and takes back what waits of it.
--
-- Its pods are known by their payload. Those that a worker has marked are left, which is at most what
-- a worker holds; its control pods go in any case, so that its end is never acted upon.
--
-- Arguments: backfill: its row, locked; outcome: cancelled, superseded or failed; note: why, or NULL.
-- Result: how many pods were taken back.
-- Locks: the pods, and as tube_private_backfill_drop; one chunk at most has to be waited for.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_end(
    backfill :"schema".tube_backfill, outcome text, note text
) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    queue text := format('%I.%I', tube_private_schema(), backfill.tube);
    tag jsonb := jsonb_build_object('backfill', backfill.backfill_id);
    all_partitions integer := (SELECT r.partitions FROM tube_registry AS r WHERE r.tube = backfill.tube);
    taken bigint := 0;
    done bigint;
BEGIN
    UPDATE tube_backfill AS b
    SET state = outcome, note = tube_private_backfill_end.note, paused = false,
        ended_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE b.backfill_id = backfill.backfill_id;
    PERFORM tube_private_backfill_drop(backfill.backfill_id);
    EXECUTE format('DELETE FROM %s WHERE payload IS NOT NULL AND ids = ''{}'' AND payload @> $1', queue) USING tag;
    FOR part IN 0 .. all_partitions - 1 LOOP
        EXECUTE format('DELETE FROM %s WHERE %s AND (CASE WHEN op = ''B'' THEN 1 ELSE 0 END) = 1'
            ' AND seq > $1 AND leader_id IS NULL AND payload @> $2',
            queue, (tube_private_slices(backfill.tube, all_partitions, part)).pods)
            USING backfill.start_seq, tag;
        GET DIAGNOSTICS done = ROW_COUNT;
        taken := taken + done;
    END LOOP;
    RETURN taken;
END
$$;

-- tube_private_backfill_gone: the trigger that takes the ids away with the row of their backfill.
--
-- Locks: the table of the ids ACCESS EXCLUSIVE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_gone() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    EXECUTE 'DROP TABLE IF EXISTS ' || tube_private_backfill_ids(OLD.backfill_id);
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER tube_backfill_gone_trigger AFTER DELETE ON :"schema".tube_backfill
    FOR EACH ROW EXECUTE FUNCTION :"schema".tube_private_backfill_gone();
