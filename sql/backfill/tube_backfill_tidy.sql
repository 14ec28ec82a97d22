-- tube_backfill_tidy: drops the ids of backfills that are over, as far as nobody reads them.
--
-- Whoever ends a backfill does so at once. That fails while somebody has the table open, which for a
-- pg_dump is for hours; then they are dropped by who calls this later.
--
-- Result: how many tables are left.
-- Locks: each table ACCESS EXCLUSIVE, where it can be had at once.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_tidy() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    number bigint;
    left_over integer := 0;
BEGIN
    -- Found in the catalogue: backfills of the past are many, their tables few.
    FOR number IN
        SELECT b.backfill_id FROM pg_class AS c
        JOIN tube_backfill AS b ON b.backfill_id = substring(c.relname FROM '^tube_backfill_ids_([0-9]{1,18})$')::bigint
        WHERE c.relname >= 'tube_backfill_ids_0' AND c.relname < 'tube_backfill_ids_:'
            AND c.relkind = 'r' AND c.relnamespace = to_regnamespace(quote_ident(tube_private_schema()))
            AND b.state NOT IN ('waiting', 'inserting')
    LOOP
        IF NOT tube_private_backfill_drop(number) THEN
            left_over := left_over + 1;
        END IF;
    END LOOP;
    RETURN left_over;
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_tidy IS 'Drops the stored ids of ended backfills.';

-- tube_private_backfill_drop: drops the ids of a backfill unless somebody reads them just now.
--
-- To wait for a reader would hold up more than him: the transaction has an xid, and behind it the
-- settled seq of all tubes stands still.
--
-- Result: whether they are gone.
-- Locks: the table ACCESS EXCLUSIVE, or none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_drop(backfill_id bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    ids CONSTANT text := tube_private_backfill_ids(backfill_id);
BEGIN
    IF to_regclass(ids) IS NOT NULL AND NOT EXISTS (
        SELECT FROM tube_registry AS r WHERE r.tube = 'tube_backfill_ids_' || backfill_id) -- a tube may be called so
    THEN
        EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', ids);
        EXECUTE format('DROP TABLE %s', ids);
    END IF;
    RETURN true;
EXCEPTION
    WHEN lock_not_available THEN RETURN false;
    WHEN undefined_table THEN RETURN true; -- somebody else was faster
END
$$;
