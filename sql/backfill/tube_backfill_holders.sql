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
    SELECT DISTINCT l.transactionid::text,
        CASE WHEN p.gid IS NOT NULL THEN format('the prepared transaction %L', p.gid)
            ELSE format('pid %s (%s)', l.pid, coalesce(nullif(a.application_name, ''), a.usename::text, 'unknown'))
        END
    FROM pg_locks AS l
    LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
    LEFT JOIN pg_prepared_xacts AS p ON p.transaction = l.transactionid
    WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
        AND l.pid IS DISTINCT FROM pg_backend_pid()
        AND coalesce(a.datname, p.database, current_database()) = current_database()
        AND (xids IS NULL OR l.transactionid::text = ANY (xids));
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_backfill_holders(text[]) FROM PUBLIC;
