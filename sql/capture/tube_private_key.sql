-- tube_private_key: the column that holds a table's ids.
--
-- Arguments: tbl; wanted: its name, NULL for the table's own key; key_type: of the tube.
-- Result: wanted; else "id" if there is such a column, else the only column of the primary key.
-- Errors: TU104 no such column, or of another type than the tube's keys, or a virtual generated one, which has
--   no value in the rows that a trigger sees.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key(tbl regclass, wanted name, key_type regtype)
RETURNS name
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    col record;
BEGIN
    SELECT a.attname, a.atttypid, a.attgenerated INTO col
    FROM pg_attribute AS a
    WHERE a.attrelid = tbl AND a.attname = coalesce(wanted, 'id') AND a.attnum > 0 AND NOT a.attisdropped;
    IF NOT FOUND AND wanted IS NULL THEN
        SELECT a.attname, a.atttypid, a.attgenerated INTO col
        FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = tbl AND i.indisprimary AND i.indnkeyatts = 1;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104',
            MESSAGE = format('%s has no column %s', tbl,
                coalesce(quote_ident(wanted), 'id and no primary key of a single column')),
            HINT = 'Documents are named by one column: add such a column, with a primary key, or name it in id_col.';
    ELSIF NOT tube_private_key_fits(col.atttypid, key_type) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104',
            MESSAGE = format('the key %I of %s has the type %s, and the tube''s keys are %s',
                col.attname, tbl, col.atttypid::regtype, key_type),
            HINT = 'Columns for keys: smallint, integer, bigint in a tube of bigint; uuid in one of uuid; '
                'text, varchar in one of text. tube_ensure_exists has the argument key_type.';
    ELSIF col.attgenerated = 'v' THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104',
            MESSAGE = format('the key %I of %s is a virtual generated column, and has no value when a row is written',
                col.attname, tbl),
            HINT = 'Make it STORED, or attach by the column that it is computed from.';
    END IF;
    RETURN col.attname;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_key(regclass, name, regtype) FROM PUBLIC;

-- tube_private_key_fits: whether a column of a type can hold the keys of a tube.
--
-- Arguments: column_type; key_type: of the tube.
-- Result: true or false.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_fits(column_type regtype, key_type regtype)
RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN CASE key_type
        WHEN 'bigint'::regtype THEN column_type IN ('smallint', 'integer', 'bigint')
        WHEN 'uuid'::regtype THEN column_type = 'uuid'::regtype
        ELSE column_type IN ('text', 'varchar')
    END;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_key_fits(regtype, regtype) FROM PUBLIC;
