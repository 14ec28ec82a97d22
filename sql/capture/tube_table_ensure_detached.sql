-- tube_table_ensure_detached: has a tube, or all of them, no longer follow a table.
--
-- The pods that are in the tube stay. Works for a table that was dropped, given by its number.
--
-- Arguments: in_tube: NULL for all tubes; in_tbl.
-- Result: nothing; no error when the table is not attached.
-- Errors: TU102 unknown tube; 55P03 the lock could not be had; 42501 the caller does not own the
--   table: Postgres lets only an owner drop its triggers. Nothing was changed then.
-- Locks: until the transaction ends, the registry rows FOR NO KEY UPDATE and the table ACCESS EXCLUSIVE;
--   writers wait for at most 100 ms at a time while it is got.
CREATE OR REPLACE FUNCTION :"schema".tube_table_ensure_detached(in_tube text, in_tbl regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '5s'
AS $$
DECLARE
    reg tube_registry;
BEGIN
    IF in_tube IS NOT NULL THEN
        PERFORM tube_private_require(in_tube);
    END IF;
    FOR reg IN
        SELECT r.* FROM tube_registry AS r
        WHERE EXISTS (
            SELECT FROM tube_attachment AS a
            WHERE a.tube = r.tube AND a.tbl = in_tbl AND (in_tube IS NULL OR a.tube = in_tube))
        ORDER BY r.tube FOR NO KEY UPDATE
    LOOP
        PERFORM tube_private_untrigger(reg.tube, ARRAY[in_tbl], '{}',
            format('%s is detached from tube %L', in_tbl, reg.tube));
        PERFORM tube_private_forget(reg.tube, ARRAY[in_tbl]);
        UPDATE tube_registry AS r SET version = r.version + 1 WHERE r.tube = reg.tube;
        PERFORM tube_private_sync(reg.tube);
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_table_ensure_detached(text, regclass) FROM PUBLIC;
