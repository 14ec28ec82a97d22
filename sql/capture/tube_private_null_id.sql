-- tube_private_null_id: raises the error of a row without an id in a root table.
--
-- Arguments: tbl.
-- Result: never returns; declared text, to stand where an op is computed.
-- Errors: 23502.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_null_id(tbl regclass, id_col name) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'not_null_violation',
        MESSAGE = format('a row of %s has NULL in %I, by which the table is attached to a tube', tbl, id_col),
        HINT = 'Give the row an id, or make the column NOT NULL.';
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_null_id(regclass, name) FROM PUBLIC;
