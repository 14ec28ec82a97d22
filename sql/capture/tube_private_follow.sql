-- tube_private_follow: brings a stored attachment in line with its table: renamed columns, a dropped key.
--
-- Arguments: att; mode: as of tube_private_sync.
-- Result: the attachment as it is now; NULL when it was detached with a WARNING: its key is gone, or it is
--   a partition or part of an inheritance tree now, so that what is written by another name is not seen.
-- Errors: 55P03 its triggers can't be dropped; 42501 the caller does not own the table; TU107, with mode ddl,
--   it would become a partition, or part of an inheritance tree.
-- Locks: the caller holds the registry row. To detach: the table ACCESS EXCLUSIVE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_follow(att :"schema".tube_attachment, mode text)
RETURNS :"schema".tube_attachment
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    old CONSTANT tube_attachment := att;
    wrong text := tube_private_misfit(att.tbl);
BEGIN
    att := tube_private_present(att);
    IF wrong IS NOT NULL AND mode = 'ddl' THEN
        RAISE EXCEPTION USING ERRCODE = 'TU107',
            MESSAGE = format('%s is attached to tube %L, and can''t stay so: %s', att.tbl, att.tube, wrong),
            HINT = 'Detach it first: tube_table_ensure_detached. A partitioned table can be attached as a whole.';
    ELSIF att.id_col IS NULL THEN
        wrong := format('its key %I was dropped, or has another type', old.id_col);
    END IF;
    IF wrong IS NOT NULL THEN
        PERFORM tube_private_untrigger(att.tube, ARRAY[att.tbl], '{}',
            format('%s is detached from tube %L', att.tbl, att.tube), tube_private_attempts(mode));
        RAISE WARNING USING
            MESSAGE = format('%s is detached from tube %L: %s', att.tbl, att.tube, wrong),
            HINT = CASE WHEN att.id_col IS NULL THEN 'Attach it again, by id_col.'
                ELSE 'Attach the partitioned table as a whole, and backfill it.' END;
        PERFORM tube_private_forget(att.tube, ARRAY[att.tbl]);
        UPDATE tube_registry AS r SET version = r.version + 1 WHERE r.tube = att.tube;
        RETURN NULL;
    END IF;
    IF att.row_filter IS DISTINCT FROM old.row_filter THEN
        att.row_filter := tube_private_row_filter_or_all(att.tube, att.tbl);
    END IF;
    att := tube_private_seen(att);
    IF att IS DISTINCT FROM old THEN
        UPDATE tube_attachment AS a
        SET id_col = att.id_col, columns = att.columns, row_filter = att.row_filter,
            seen_oid = att.seen_oid, seen_attnums = att.seen_attnums, seen_names = att.seen_names,
            seen_types = att.seen_types
        WHERE a.tube = att.tube AND a.tbl = att.tbl;
        UPDATE tube_registry AS r SET version = r.version + 1
        WHERE r.tube = att.tube AND att.id_col <> old.id_col;
    END IF;
    RETURN att;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_follow(:"schema".tube_attachment, text) FROM PUBLIC;

-- tube_private_misfit: why an attached table could not be attached today.
--
-- Arguments: tbl.
-- Result: words; NULL when it could.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_misfit(tbl regclass) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN (
        SELECT CASE
            WHEN c.relispartition THEN format('it is a partition of %s', pg_partition_root(tbl))
            WHEN c.relkind = 'p' THEN NULL
            WHEN EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhparent = tbl) THEN 'other tables inherit from it'
            WHEN EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhrelid = tbl) THEN 'it inherits from another table'
        END
        FROM pg_class AS c WHERE c.oid = tbl);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_misfit(regclass) FROM PUBLIC;

-- tube_private_row_filter_or_all: the row filter of a table whose columns have changed.
--
-- Arguments: tube; tbl.
-- Result: as of tube_private_row_filter; where the predicate does not fit the table any more, NULL, with a
--   WARNING: then all its rows are touched.
-- Locks: of the table ACCESS SHARE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_row_filter_or_all(tube text, tbl regclass) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN tube_private_row_filter(tube, tbl,
        (SELECT r.predicate FROM tube_registry AS r WHERE r.tube = tube_private_row_filter_or_all.tube));
EXCEPTION WHEN SQLSTATE 'TU105' THEN
    RAISE WARNING USING
        MESSAGE = SQLERRM,
        DETAIL = format('Until it fits again, all rows of %s are touched, and workers can''t read them.', tbl),
        HINT = 'Give the tube another predicate by tube_ensure_exists.';
    RETURN NULL;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_row_filter_or_all(text, regclass) FROM PUBLIC;
