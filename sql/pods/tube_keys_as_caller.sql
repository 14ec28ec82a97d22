-- tube_keys_as_caller: tube_as_caller for a statement of one text column.
--
-- Arguments, result, errors, locks: as there.
CREATE OR REPLACE FUNCTION :"schema".tube_keys_as_caller(in_search_path text, first text, statement text)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    PERFORM set_config('search_path', in_search_path, true);
    IF first IS NOT NULL THEN
        EXECUTE first;
    END IF;
    RETURN QUERY EXECUTE statement;
END
$$;
COMMENT ON FUNCTION :"schema".tube_keys_as_caller IS
    'Runs a statement of one text column with the rights of the caller and returns its rows.';
