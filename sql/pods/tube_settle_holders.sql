-- tube_settle_holders: who may yet commit pods into a tube; see tube_settle_seq.
--
-- For when a transaction of another database keeps tube_settle_done from coming true. Call it after
-- tube_settle_seq.
--
-- Arguments: tube.
-- Result: the virtual transaction ids of all others that have the tube open for writing, prepared
--   ones too; an empty array when there is none.
-- Errors: TU102 unknown tube.
-- Locks: none; it reads pg_locks, so not many times a second. A lost answer does no harm.
CREATE OR REPLACE FUNCTION :"schema".tube_settle_holders(tube text) RETURNS text[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN tube_private_settle_locks(tube);
END
$$;
COMMENT ON FUNCTION :"schema".tube_settle_holders IS
    'Lists the open transactions that may still commit pods into a tube.';
