-- tube_backfill_lock: the right to work on a backfill, for as long as this session lasts.
--
-- Whoever has it makes the calls that change the backfill; they check it. So two never work on one,
-- and one whose session was lost can't go on.
--
-- Arguments: backfill_id.
-- Result: whether it was got; again true when this session has it.
-- Errors: TU122 unknown backfill.
-- Locks: an advisory one of the session.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_lock(backfill_id bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM tube_backfill AS b WHERE b.backfill_id = tube_backfill_lock.backfill_id) THEN
        PERFORM tube_private_backfill(backfill_id);
    END IF;
    RETURN tube_private_backfill_worker(backfill_id) = pg_backend_pid()
        OR pg_try_advisory_lock(tube_private_backfill_key(backfill_id));
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_lock IS
    'Locks a backfill for this session, so that no other session works on it.';

-- tube_private_backfill_worker: whose session works on a backfill.
--
-- Result: the pid of its server process; 0 when nobody does.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_worker(backfill_id bigint) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    key CONSTANT bigint := tube_private_backfill_key(backfill_id);
BEGIN
    RETURN coalesce((
        SELECT l.pid FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
            AND l.classid::bigint = (key >> 32 & 4294967295) AND l.objid::bigint = (key & 4294967295)
            AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
        LIMIT 1), 0);
END
$$;

-- tube_private_backfill_taken: refuses a session that has not the right to work on a backfill.
--
-- Errors: TU123.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_taken(backfill_id bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF tube_private_backfill_worker(backfill_id) <> pg_backend_pid() THEN
        RAISE EXCEPTION USING ERRCODE = 'TU123',
            MESSAGE = format('this session does not work on backfill %s', backfill_id),
            HINT = 'Take it first: tube_backfill_lock.';
    END IF;
END
$$;

-- tube_private_backfill_held: a backfill that this session has the right to work on, locked.
--
-- Result: its row.
-- Errors: TU122 unknown backfill; TU123 the session does not have it.
-- Locks: the row FOR NO KEY UPDATE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_held(backfill_id bigint)
RETURNS :"schema".tube_backfill
LANGUAGE plpgsql AS $$
DECLARE
    result tube_backfill := tube_private_backfill(backfill_id);
BEGIN
    PERFORM tube_private_backfill_taken(backfill_id);
    RETURN result;
END
$$;
