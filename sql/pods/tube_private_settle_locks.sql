-- tube_private_settle_locks: the transactions of others that may have written to a tube.
--
-- A writer holds a writing lock on the tube's table from before it draws a seq until it is over; a
-- prepared transaction keeps it, and its virtual transaction id while the server runs (-1/xid after
-- a restart).
--
-- Result: their virtual transaction ids.
-- Errors: TU102 unknown tube.
-- Locks: none; pg_locks stops the lock manager for a moment, so not many times a second.
CREATE OR REPLACE FUNCTION :"schema".tube_private_settle_locks(tube text) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM tube_registry AS r WHERE r.tube = tube_private_settle_locks.tube) THEN
        RAISE EXCEPTION 'there is no tube %', quote_nullable(tube)
            USING ERRCODE = 'TU102', HINT = 'tube_list() shows all tubes; tube_ensure_exists() makes one.';
    END IF;
    RETURN ARRAY(
        SELECT DISTINCT k.virtualtransaction
        FROM pg_locks AS k
        WHERE k.locktype = 'relation'
          AND k.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
          AND k.relation = to_regclass(quote_ident(tube))
          AND k.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
          AND k.granted
          AND k.pid IS DISTINCT FROM pg_backend_pid()
        ORDER BY k.virtualtransaction);
END
$$;
