-- tube_index_sql: what to run before a repartition, so that it does not block writers.
--
-- Run the statement outside a transaction, then tube_ensure_exists with the new number.
--
-- Arguments: tube; partitions: the new number.
-- Result: a CREATE INDEX CONCURRENTLY statement, or a REINDEX where an earlier one was broken off;
--   NULL when the index is there and valid.
-- Errors: TU102 unknown tube, TU103 a number that no tube can have.
CREATE OR REPLACE FUNCTION :"schema".tube_index_sql(tube text, partitions integer) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    name text := format('%I.%I', tube_private_schema(), tube_private_index(tube, partitions));
    valid boolean;
BEGIN
    PERFORM tube_private_require(tube), tube_private_check_partitions(partitions);
    SELECT i.indisvalid INTO valid FROM pg_index AS i WHERE i.indexrelid = to_regclass(name);
    RETURN CASE
        WHEN valid THEN NULL
        WHEN NOT valid THEN format('REINDEX INDEX CONCURRENTLY %s', name)
        ELSE tube_private_index_ddl(tube, partitions, true)
    END;
END
$$;
COMMENT ON FUNCTION :"schema".tube_index_sql IS
    'Returns the CREATE INDEX statement to run before a repartition, so that the repartition does not block writers.';
