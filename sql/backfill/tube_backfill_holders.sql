-- tube_backfill_holders: the transactions that a backfill waits for before it collects its ids.
--
-- Whoever drew a seq below the start seq had its transaction id before it drew. So, asked in a later
-- transaction than the one that drew the start seq, they are among those found here; when all of
-- these are over, what they wrote is seen. Transactions of other databases don't matter, nor do those
-- that only read.
--
-- Arguments: xids: what an earlier call gave; NULL: all that run now.
-- Result: of those, the ones that are not over, each with what is known of who holds it.
-- Locks: none; pg_locks stops the lock manager for a moment, so not many times a second.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_holders(xids text[] = NULL)
RETURNS TABLE (xid text, holder text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT r.x::text, tube_private_tell_running(ARRAY[r.x])
    FROM unnest(tube_private_running()) AS r (x)
    WHERE xids IS NULL OR r.x::text = ANY (xids);
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_holders IS
    'Lists the open transactions that a backfill has to wait for before it collects its ids.';
