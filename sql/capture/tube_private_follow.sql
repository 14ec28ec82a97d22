-- tube_private_follow: brings a stored attachment in line with its table: renamed columns, a dropped key.
--
-- Arguments: att.
-- Result: the attachment as it is now; NULL when its key is gone, and it was detached with a WARNING.
-- Errors: 55P03 its triggers can't be dropped.
-- Locks: the caller holds the registry row. To detach: the table ACCESS EXCLUSIVE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_follow(att :"schema".tube_attachment)
RETURNS :"schema".tube_attachment
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    old CONSTANT tube_attachment := att;
    ddl text[];
BEGIN
    att := tube_private_present(att);
    IF att.id_col IS NULL THEN
        RAISE WARNING USING
            MESSAGE = format('%s is detached from tube %L: its key %I was dropped, or has another type',
                att.tbl, att.tube, old.id_col),
            HINT = 'Attach it again, by id_col.';
        ddl := tube_private_drop_triggers(att.tube, ARRAY[att.tbl]);
        IF ddl <> '{}' THEN
            PERFORM tube_private_patiently(ddl, format('%s is detached from tube %L', att.tbl, att.tube));
        END IF;
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
            seen_oid = att.seen_oid, seen_attnums = att.seen_attnums, seen_names = att.seen_names
        WHERE a.tube = att.tube AND a.tbl = att.tbl;
        UPDATE tube_registry AS r SET version = r.version + 1
        WHERE r.tube = att.tube AND att.id_col <> old.id_col;
    END IF;
    RETURN att;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_follow(:"schema".tube_attachment) FROM PUBLIC;

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
