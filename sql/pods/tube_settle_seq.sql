-- tube_settle_seq: the greatest seq that any tube has drawn; the first step to a settled seq.
--
-- A seq S is settled when all pods at or below it that will ever exist are visible. The steps:
--   1. S := tube_settle_seq()
--   2. in a later transaction that has no xid yet: X := pg_current_xact_id(); commit
--   3. until tube_settle_done(X): S is settled
--   4. a mark begun after that returned fewer pods of a class than its limit: the class's floor is S;
--      else it is the least of S and the last seq returned
--   5. a reset lowers it
-- Whoever drew a seq up to S had its xid before, so its xid is below X. A transaction of another
-- database can hold step 3 up; then, after step 1, holders := tube_settle_holders(tube), and S is
-- settled for that tube as soon as tube_settle_left(tube, holders).
--
-- Result: S; 0 when none was drawn yet.
-- Errors: TU110 the sequence was altered, so that S would not mean this.
-- Locks: none. A lost answer does no harm.
CREATE OR REPLACE FUNCTION :"schema".tube_settle_seq() RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_sequence AS q
        WHERE q.seqrelid = 'tube_seq'::regclass AND q.seqcache = 1 AND q.seqincrement = 1 AND NOT q.seqcycle
    ) THEN
        RAISE EXCEPTION 'the sequence tube_seq was altered: it must have CACHE 1, INCREMENT 1 and NO CYCLE'
            USING ERRCODE = 'TU110', HINT = 'ALTER SEQUENCE tube_seq CACHE 1 INCREMENT 1 NO CYCLE, then end '
                'all sessions that write to tubes.';
    END IF;
    RETURN (SELECT CASE WHEN s.is_called THEN s.last_value ELSE s.last_value - 1 END FROM tube_seq AS s);
END
$$;
COMMENT ON FUNCTION :"schema".tube_settle_seq IS
    'Returns the greatest seq drawn by any tube; the first step to a settled seq.';
