-- tube_private_trigger_ddl: the statements that make the three triggers of an attachment.
--
-- Arguments: att.
-- Result: CREATE TRIGGER statements; none where the triggers are there.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_trigger_ddl(att :"schema".tube_attachment) RETURNS text[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    function_name text := format('%I.%I', tube_private_schema(), att.trigger_function);
    stem text := (SELECT c.relname FROM pg_class AS c WHERE c.oid = att.tbl) || '_' || att.tube;
BEGIN
    IF EXISTS (
        SELECT FROM pg_trigger AS t
        WHERE t.tgrelid = att.tbl AND t.tgfoid = to_regprocedure(function_name || '()')
    ) THEN
        RETURN '{}';
    END IF;
    RETURN (
        SELECT array_agg(format('CREATE TRIGGER %I AFTER %s ON %s REFERENCING %s FOR EACH STATEMENT EXECUTE FUNCTION %s()',
            tube_private_name(stem, format('_after_%s_trigger', lower(e.event))), e.event, att.tbl, e.tables, function_name))
        FROM (VALUES
            ('INSERT', 'NEW TABLE AS new_table'),
            ('UPDATE', 'OLD TABLE AS old_table NEW TABLE AS new_table'),
            ('DELETE', 'OLD TABLE AS old_table')
        ) AS e (event, tables));
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_trigger_ddl(:"schema".tube_attachment) FROM PUBLIC;

-- tube_private_drop_triggers: the statements that take a tube's triggers off tables.
--
-- Found by their function, so that a renamed table or trigger is no obstacle.
--
-- Arguments: tube; tables.
-- Result: DROP TRIGGER statements, in the order of the tables.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_drop_triggers(tube text, tables regclass[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN coalesce((
        SELECT array_agg(format('DROP TRIGGER %I ON %s', t.tgname, a.tbl) ORDER BY a.tbl, t.tgname)
        FROM tube_attachment AS a
        JOIN pg_trigger AS t ON t.tgrelid = a.tbl
            AND t.tgfoid = to_regprocedure(format('%I.%I()', tube_private_schema(), a.trigger_function))
        WHERE a.tube = tube_private_drop_triggers.tube AND a.tbl = ANY (tables)
    ), '{}');
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_drop_triggers(text, regclass[]) FROM PUBLIC;

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
        PERFORM tube_private_table_touch(gone.tbl, gone.touch_function);
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
