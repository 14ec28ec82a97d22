-- tube_private_columns: the columns whose change counts, checked.
--
-- Arguments: tbl; columns: names, may be NULL.
-- Result: the same in the order of the table, each once; NULL for NULL and for none.
-- Errors: 42703 no such column, or a NULL among them; 0A000 a virtual generated column, which has no value in the
--   rows that a trigger sees.
CREATE OR REPLACE FUNCTION :"schema".tube_private_columns(tbl regclass, columns name[]) RETURNS name[]
LANGUAGE plpgsql AS $$
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
    SELECT quote_ident(a.attname) INTO wrong FROM pg_attribute AS a
    WHERE a.attrelid = tbl AND a.attname = ANY (columns) AND a.attgenerated = 'v';
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
            MESSAGE = format('the column %s of %s is a virtual generated one, and has no value when a row is written',
                wrong, tbl),
            HINT = 'Give the columns that it is computed from, or make it STORED.';
    END IF;
    RETURN (
        SELECT array_agg(a.attname ORDER BY a.attnum) FROM pg_attribute AS a
        WHERE a.attrelid = tbl AND a.attnum > 0 AND a.attname = ANY (columns));
END
$$;

-- tube_private_column_values: expressions by which columns are compared, before and after an UPDATE.
--
-- Two values that are equal to Postgres may look different in a document (1.0 and 1.00), and some types
-- have no equality (json); so only of simple types the values are compared, of others their text. Floats
-- are compared by their bits, and the function is run with settings under which the other texts are exact (see
-- tube_private_owner_ddl): a writer may have others, by which different values look the same.
--
-- Arguments: tbl; columns: of tube_private_columns; row_name: a name and a dot before each, or nothing.
-- Result: SQL texts in the same order; NULL for NULL.
CREATE OR REPLACE FUNCTION :"schema".tube_private_column_values(
    tbl regclass, columns name[], row_name text = ''
) RETURNS text[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
    simple CONSTANT regtype[] := ARRAY['boolean', 'smallint', 'integer', 'bigint', 'oid', 'uuid', 'date',
        'time', 'timestamp', 'timestamptz', 'bytea']::regtype[];
    -- Those of which the text is the same under all settings.
    texts CONSTANT regtype[] := ARRAY['text', 'varchar', 'numeric', 'json', 'jsonb']::regtype[];
BEGIN
    RETURN (
        SELECT array_agg(CASE
            WHEN a.atttypid = ANY (simple) THEN format('%s%I', row_name, a.attname)
            WHEN a.atttypid = ANY (texts) THEN format('(%s%I::pg_catalog.text COLLATE pg_catalog."C")', row_name, a.attname)
            WHEN a.atttypid = 'float8'::regtype THEN format('pg_catalog.float8send(%s%I)', row_name, a.attname)
            WHEN a.atttypid = 'float4'::regtype THEN format('pg_catalog.float4send(%s%I)', row_name, a.attname)
            -- By its output function, without a cast that somebody may have made.
            ELSE format('(pg_catalog.concat(pg_catalog.num_nulls(%1$s%2$I), %1$s%2$I) COLLATE pg_catalog."C")', row_name, a.attname)
            END ORDER BY a.attnum)
        FROM pg_attribute AS a
        WHERE a.attrelid = tbl AND a.attnum > 0 AND a.attname = ANY (columns) AND a.attgenerated <> 'v');
END
$$;
