-- tube_backfill_step1: draws the seq at which a backfill starts. The first of three transactions.
--
-- Why three: whatever has drawn a seq below the start was committed when step 2 ended, so its rows are
-- among the ids of step 3. What is at a sink with an older stamp by then, and not among those rows, is
-- no more in the source.
--
-- Result: the start seq; commit, then call tube_backfill_step2, and give it to tube_backfill_step3.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_step1() RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN nextval('tube_seq')::text;
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_step1 IS
    'Draws the start seq of a backfill; the first of three transactions.';
