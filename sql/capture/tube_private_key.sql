-- tube_private_key: the column that holds a table's ids.
--
-- Arguments: tbl.
-- Result: "id" if there is such a column, else the only column of the primary key.
-- Errors: TU104 neither, or not of type smallint, integer or bigint.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key(tbl regclass) RETURNS name
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    col record;
BEGIN
    SELECT a.attname, a.atttypid INTO col
    FROM pg_attribute AS a
    WHERE a.attrelid = tbl AND a.attname = 'id' AND a.attnum > 0 AND NOT a.attisdropped;
    IF NOT FOUND THEN
        SELECT a.attname, a.atttypid INTO col
        FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = tbl AND i.indisprimary AND i.indnkeyatts = 1;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104',
            MESSAGE = format('%s has no column id and no primary key of a single column', tbl),
            HINT = 'Documents are named by one number: add such a column, with a primary key.';
    ELSIF col.atttypid NOT IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104',
            MESSAGE = format('the key %I of %s has the type %s', col.attname, tbl, col.atttypid::regtype),
            HINT = 'Only smallint, integer and bigint keys can be attached.';
    END IF;
    RETURN col.attname;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_key(regclass) FROM PUBLIC;
