-- tube_table_ensure_detached: has a tube, or all of them, no longer follow a table.
--
-- The pods that are in the tube stay. Works for a table that was dropped, given by its number.
--
-- Arguments: in_tube: NULL for all tubes; in_tbl.
-- Result: nothing; no error when the table is not attached.
-- Errors: TU102 unknown tube; 55P03 the lock could not be had. Nothing was changed then.
-- Locks: until the transaction ends, the registry rows FOR NO KEY UPDATE and the table ACCESS EXCLUSIVE.
--   While they are got, it waits for at most 100 ms at a time, and then lets all of them go.
CREATE OR REPLACE FUNCTION :"schema".tube_table_ensure_detached(in_tube text, in_tbl regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '5s'
AS $$
BEGIN
    IF in_tube IS NOT NULL THEN
        PERFORM tube_private_require(in_tube);
    END IF;
    PERFORM tube_private_patiently(ARRAY[format('SELECT tube_private_detach(%L, %L)', in_tube, in_tbl::oid)],
        format('%s is detached', in_tbl));
END
$$;
COMMENT ON FUNCTION :"schema".tube_table_ensure_detached IS
    'Detach a table from a tube, or from all of them; the pods that are in the tubes stay.';

-- tube_private_detach: one attempt of tube_table_ensure_detached.
--
-- Locks: as of it; for which it waits as long as lock_timeout says.
CREATE OR REPLACE FUNCTION :"schema".tube_private_detach(in_tube text, in_tbl regclass) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    reg tube_registry;
BEGIN
    FOR reg IN
        SELECT r.* FROM tube_registry AS r
        WHERE EXISTS (
            SELECT FROM tube_attachment AS a
            WHERE a.tube = r.tube AND a.tbl = in_tbl AND (in_tube IS NULL OR a.tube = in_tube))
        ORDER BY r.tube FOR NO KEY UPDATE
    LOOP
        PERFORM tube_private_forget(reg.tube, ARRAY[in_tbl]);
    END LOOP;
END
$$;
