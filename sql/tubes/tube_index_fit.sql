-- tube_index_fit: gives tubes the index for their number of partitions, where that is quick.
--
-- For those that were repartitioned while writers kept the table, or while it was long. Workers call it twice a
-- minute. A tube that has the index is left alone: any other index may be prepared for the next number.
--
-- Result: how many tubes got it. What keeps one from it, but for its locks, is a WARNING.
-- Errors: none.
-- Locks: of each of these tubes the registry row and the table, for which it waits at most 100 ms, until the
--   transaction ends: call it in one of its own. A tube that somebody changes just now is passed over.
CREATE OR REPLACE FUNCTION :"schema".tube_index_fit() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    lacking text;
    fitted integer := 0;
BEGIN
    FOR lacking IN
        SELECT r.tube FROM tube_registry AS r
        WHERE NOT EXISTS (
            SELECT FROM tube_private_indexes(r.tube) AS i WHERE i.partitions = r.partitions AND i.valid)
        FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        BEGIN
            fitted := fitted + tube_private_fit_index(lacking)::integer;
        EXCEPTION WHEN OTHERS THEN
            -- One tube's trouble is no other's.
            RAISE WARNING USING MESSAGE = format('tube %L does not get its index: %s', lacking, SQLERRM);
        END;
    END LOOP;
    RETURN fitted;
END
$$;
COMMENT ON FUNCTION :"schema".tube_index_fit IS
    'Gives repartitioned tubes the index for their number of partitions, where that is quick.';
