-- tube_private_backfill_table: the attachment of a table that is to be backfilled.
--
-- Result: its row.
-- Errors: TU102 unknown tube, TU108 the table is not attached to it, TU107 it can't stay attached.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_table(tube text, tbl regclass)
RETURNS :"schema".tube_attachment
LANGUAGE plpgsql AS $$
DECLARE
    att tube_attachment;
BEGIN
    PERFORM tube_private_require(tube);
    SELECT a.* INTO att FROM tube_attachment AS a
    WHERE a.tube = tube_private_backfill_table.tube AND a.tbl = tube_private_backfill_table.tbl;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108',
            MESSAGE = format('%s is not attached to tube %L', coalesce(tbl::text, 'NULL'), tube),
            HINT = 'Attach it first, so that no change is missed: tube_table_ensure_attached.';
    END IF;
    PERFORM tube_private_refuse_table(att.tbl);
    RETURN att;
END
$$;

-- tube_private_backfill_check_ids: refuses ids of a type that no tube has, whose casts would run with our owner's rights.
--
-- Errors: 42804.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_check_ids(ids anyarray) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF pg_typeof(ids) NOT IN ('bigint[]'::regtype, 'uuid[]'::regtype, 'text[]'::regtype) THEN
        RAISE EXCEPTION 'ids are %', pg_typeof(ids) USING ERRCODE = 'datatype_mismatch', HINT = 'Give bigint[], uuid[] or text[].';
    END IF;
END
$$;

-- tube_private_backfill_was_read: refuses what was read, where another relation has the table's name.
--
-- A query names its table. It may wait there for a transaction that renames it, and go on with what got the name. It holds a
-- lock then, so that the names do not change any more until its transaction ends.
--
-- Arguments: tbl: the table; table_name: what the query called it.
-- Errors: 40001 that is not its name any more.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_was_read(tbl regclass, table_name text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    IF tbl::text <> table_name THEN
        RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
            MESSAGE = format('%s was renamed to %s while it was read', table_name, tbl), HINT = 'Try again.';
    END IF;
END
$$;

-- tube_private_backfill_column: the column that a backfill goes by.
--
-- Arguments: tbl; order_col: the name as it is, or as it is written in SQL ("Quoted", or FOLDED).
-- Result: the name, unquoted.
-- Errors: 42703 the table has no such column; 22004 it is NULL.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_column(tbl regclass, order_col text) RETURNS name
LANGUAGE plpgsql AS $$
DECLARE
    found_name name;
    written text;
BEGIN
    IF order_col IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed',
            MESSAGE = 'there is no column to order by', HINT = 'Give the name of a column of the table.';
    END IF;
    BEGIN
        written := (parse_ident(order_col))[1];
    EXCEPTION WHEN invalid_parameter_value THEN
        written := order_col; -- no identifier as SQL writes it
    END;
    SELECT a.attname INTO found_name FROM pg_attribute AS a
    WHERE a.attrelid = tbl AND a.attname IN (order_col, written) AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attname <> order_col LIMIT 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_column',
            MESSAGE = format('%s has no column %L', tbl, order_col),
            HINT = (SELECT 'There are: ' || string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) || '.'
                FROM pg_attribute AS a WHERE a.attrelid = tbl AND a.attnum > 0 AND NOT a.attisdropped);
    END IF;
    RETURN found_name;
END
$$;
