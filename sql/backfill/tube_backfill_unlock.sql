-- tube_backfill_unlock: gives that right back.
--
-- Arguments: backfill_id.
-- Result: whether this session had it.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_unlock(backfill_id bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN tube_private_backfill_worker(backfill_id) = pg_backend_pid()
        AND pg_advisory_unlock(tube_private_backfill_key(backfill_id));
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_unlock IS 'Unlocks a backfill that this session has locked.';
