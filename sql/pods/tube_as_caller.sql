-- tube_as_caller: runs a statement with the caller's rights and search_path, and gives its rows.
--
-- For tube_pods_insert, whose callers need the right to call this, too. It has no power of its own.
--
-- Arguments: in_search_path; first: a statement to run before, or NULL; statement: of one bigint column.
-- Result: its rows.
-- Errors: those of the statements.
-- Locks: theirs.
CREATE OR REPLACE FUNCTION :"schema".tube_as_caller(in_search_path text, first text, statement text)
RETURNS SETOF bigint
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    -- Until this function ends. Nothing below is looked up by name but by the statements themselves.
    PERFORM set_config('search_path', in_search_path, true);
    IF first IS NOT NULL THEN
        EXECUTE first;
    END IF;
    RETURN QUERY EXECUTE statement;
END
$$;
COMMENT ON FUNCTION :"schema".tube_as_caller IS
    'Runs a statement with the rights and search_path of the caller and returns its rows; tube_pods_insert uses it.';
