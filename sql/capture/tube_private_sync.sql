-- tube_private_sync: brings what is generated for a tube in line with its attachments.
--
-- Runs with the rights of the caller where tables of others are changed.
--
-- Arguments: tube; mode: ordered: somebody asks for it; ddl: within a statement of DDL; late: some time
--   after one; tables: those that it is about, NULL for all. Of others that became the root table of their
--   shards, or are it no more, the trigger function is made anew, for which no lock on them is needed.
-- Result: whether all is in line. What is right already is left alone.
-- Errors, WARNINGs for each table if mode is late: 55P03 a trigger is missing and the lock for it could not be
--   had; 42501 a privilege lacks, or the owner of a table has to do it; TU107, with mode ddl, a table can't stay
--   attached as it is now.
-- Locks: the caller holds the registry row. The attachments; a table that lacks its triggers: SHARE ROW EXCLUSIVE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_sync(
    tube text, mode text = 'ordered', tables regclass[] = NULL
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    att tube_attachment;
    hint text;
    all_done boolean := true;
BEGIN
    PERFORM tube_private_prune(tube);
    PERFORM tube_private_generate(
        format('%I.%I', tube_private_schema(), tube_private_name(tube, '_touch')),
        format('shard integer, ids %s[], op char, payload jsonb DEFAULT NULL, chunk_size integer DEFAULT 250',
            tube_private_key_type(tube)),
        'void', tube_private_tube_touch_body(tube));
    FOR att IN
        SELECT a.* FROM tube_attachment AS a
        WHERE a.tube = tube_private_sync.tube AND (tables IS NULL OR a.tbl = ANY (tables))
        ORDER BY a.position FOR NO KEY UPDATE
    LOOP
        BEGIN
            PERFORM tube_private_sync_table(att, mode);
        EXCEPTION WHEN OTHERS THEN
            IF mode <> 'late' THEN
                RAISE;
            END IF;
            all_done := false;
            GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
            RAISE WARNING USING
                MESSAGE = format('%s is not followed by tube %L: %s', att.tbl, att.tube, SQLERRM), HINT = hint;
            PERFORM tube_private_await(att);
        END;
    END LOOP;
    PERFORM tube_private_capture(a) FROM tube_attachment AS a
    WHERE a.tube = tube_private_sync.tube AND NOT a.tbl = ANY (tables)
        AND a.as_root IS DISTINCT FROM tube_private_is_root(a);
    RETURN all_done;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_sync(text, text, regclass[]) FROM PUBLIC;

-- tube_private_sync_table: tube_private_sync for one table of the tube.
--
-- Arguments: att; mode: as of tube_private_sync.
-- Result: nothing.
-- Errors, locks: as of tube_private_sync.
CREATE OR REPLACE FUNCTION :"schema".tube_private_sync_table(att :"schema".tube_attachment, mode text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    att := tube_private_follow(att, mode);
    IF att.tube IS NULL THEN
        RETURN;
    END IF;
    PERFORM tube_private_capture(att);
    PERFORM tube_private_tree(att, mode);
    PERFORM tube_private_table_touch(att.tbl, tube_private_key_type(att.tube), att.touch_function);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_sync_table(:"schema".tube_attachment, text) FROM PUBLIC;

-- tube_private_capture: makes the trigger function of an attachment, or makes it anew.
--
-- Arguments: att.
-- Result: nothing.
-- Locks: the caller holds the registry row, or the attachment; none that writers feel.
CREATE OR REPLACE FUNCTION :"schema".tube_private_capture(att :"schema".tube_attachment) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    root CONSTANT boolean := tube_private_is_root(att);
BEGIN
    -- First, for the lock: two who make the same function anew would fail each other.
    UPDATE tube_attachment AS a SET as_root = root
    WHERE a.tube = att.tube AND a.tbl = att.tbl AND a.as_root IS DISTINCT FROM root;
    PERFORM tube_private_generate(format('%I.%I', tube_private_schema(), att.trigger_function),
        '', 'trigger', tube_private_capture_body(att, root));
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_capture(:"schema".tube_attachment) FROM PUBLIC;

-- tube_private_is_root: whether an attached table is the first of its shards.
--
-- Arguments: att.
-- Result: true or false.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_is_root(att :"schema".tube_attachment) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN NOT EXISTS (
        SELECT FROM tube_attachment AS a
        WHERE a.tube = att.tube AND a.shard = att.shard AND a.position < att.position);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_is_root(:"schema".tube_attachment) FROM PUBLIC;

-- tube_private_sync_all: tube_private_sync for every tube; what install.sql ends with.
--
-- Result: the number of tubes.
-- Errors: as tube_private_sync.
-- Locks: every registry row, until the transaction ends; else as tube_private_sync.
CREATE OR REPLACE FUNCTION :"schema".tube_private_sync_all() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    tubes integer := 0;
    reg tube_registry;
BEGIN
    FOR reg IN SELECT r.* FROM tube_registry AS r ORDER BY r.tube FOR NO KEY UPDATE LOOP
        PERFORM tube_private_privileges(a.tbl, n.nspname)
        FROM tube_attachment AS a
        JOIN pg_class AS c ON c.oid = a.tbl JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE a.tube = reg.tube;
        PERFORM tube_private_sync(reg.tube);
        tubes := tubes + 1;
    END LOOP;
    RETURN tubes;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_sync_all() FROM PUBLIC;
