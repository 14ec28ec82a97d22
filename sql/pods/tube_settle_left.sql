-- tube_settle_left: whether all that tube_settle_holders named are over.
--
-- Arguments: tube; holders, what tube_settle_holders gave. NULL counts as none.
-- Result: true when none of them has the tube open any more: the S that was read before holders is
--   settled for this tube.
-- Errors: TU102 unknown tube.
-- Locks: none; it reads pg_locks, so not many times a second. A lost answer does no harm.
CREATE OR REPLACE FUNCTION :"schema".tube_settle_left(tube text, holders text[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN NOT (tube_private_settle_locks(tube) && coalesce(holders, '{}'));
END
$$;
COMMENT ON FUNCTION :"schema".tube_settle_left IS
    'Tells whether all transactions that tube_settle_holders listed have ended.';
