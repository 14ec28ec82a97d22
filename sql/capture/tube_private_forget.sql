-- tube_private_forget: drops the attachments of tables, and the functions made for them.
--
-- Arguments: tube; tables: their triggers are gone, or they are gone themselves.
-- Result: nothing.
-- Locks: the caller holds the registry row.
CREATE OR REPLACE FUNCTION :"schema".tube_private_forget(tube text, tables regclass[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    gone tube_attachment;
BEGIN
    FOR gone IN
        DELETE FROM tube_attachment AS a
        WHERE a.tube = tube_private_forget.tube AND a.tbl = ANY (tables)
        RETURNING a.*
    LOOP
        EXECUTE format('DROP FUNCTION IF EXISTS %I.%I()', tube_private_schema(), gone.trigger_function);
        PERFORM tube_private_table_touch(gone.tbl, tube_private_key_type(tube), gone.touch_function);
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_forget(text, regclass[]) FROM PUBLIC;

-- tube_private_prune: forgets the attached tables that were dropped.
--
-- Arguments: tube.
-- Result: nothing.
-- Locks: the caller holds the registry row.
CREATE OR REPLACE FUNCTION :"schema".tube_private_prune(tube text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    gone regclass[];
BEGIN
    SELECT array_agg(a.tbl) INTO gone
    FROM tube_attachment AS a
    WHERE a.tube = tube_private_prune.tube AND NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = a.tbl);
    IF gone IS NOT NULL THEN
        PERFORM tube_private_forget(tube, gone);
        UPDATE tube_registry AS r SET version = r.version + 1 WHERE r.tube = tube_private_prune.tube;
    END IF;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_prune(text) FROM PUBLIC;
