-- tube_private_columns: the columns whose change counts, checked.
--
-- Arguments: tbl; columns: names, may be NULL.
-- Result: the same in the order of the table, each once; NULL for NULL and for none.
-- Errors: 42703 no such column, or a NULL among them.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_columns(tbl regclass, columns name[]) RETURNS name[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    wrong text;
BEGIN
    SELECT coalesce(quote_ident(c.name), 'NULL') INTO wrong
    FROM unnest(columns) AS c (name)
    WHERE NOT EXISTS (
        SELECT FROM pg_attribute AS a
        WHERE a.attrelid = tbl AND a.attname = c.name AND a.attnum > 0 AND NOT a.attisdropped)
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_column',
            MESSAGE = format('%s has no column %s', tbl, wrong),
            HINT = 'Give in columns the names of columns of the table.';
    END IF;
    RETURN (
        SELECT array_agg(a.attname ORDER BY a.attnum) FROM pg_attribute AS a
        WHERE a.attrelid = tbl AND a.attnum > 0 AND a.attname = ANY (columns));
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_columns(regclass, name[]) FROM PUBLIC;

-- tube_private_column_values: expressions by which columns are compared, before and after an UPDATE.
--
-- Two values that are equal to Postgres may look different in a document (1.0 and 1.00), and some types
-- have no equality (json); so only of simple types the values are compared, of others their text.
--
-- Arguments: tbl; columns: of tube_private_columns.
-- Result: SQL texts in the same order; NULL for NULL.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_column_values(tbl regclass, columns name[]) RETURNS text[]
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    simple CONSTANT regtype[] := ARRAY['boolean', 'smallint', 'integer', 'bigint', 'oid', 'uuid', 'date',
        'time', 'timestamp', 'timestamptz', 'bytea']::regtype[];
    strings CONSTANT regtype[] := ARRAY['text', 'varchar']::regtype[];
BEGIN
    RETURN (
        SELECT array_agg(CASE
            WHEN a.atttypid = ANY (simple) THEN quote_ident(a.attname)
            WHEN a.atttypid = ANY (strings) THEN format('%I::text COLLATE "C"', a.attname)
            -- By its output function, without a cast that somebody may have made.
            ELSE format('concat(num_nulls(%1$I), %1$I) COLLATE "C"', a.attname) END ORDER BY a.attnum)
        FROM pg_attribute AS a
        WHERE a.attrelid = tbl AND a.attnum > 0 AND a.attname = ANY (columns));
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_column_values(regclass, name[]) FROM PUBLIC;
