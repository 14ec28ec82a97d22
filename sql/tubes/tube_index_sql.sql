-- tube_index_sql: what to run so that a tube has the index for a number of partitions, while writers go on.
--
-- Run the statement outside a transaction, and ask again, until there is none: with the next number before the
-- repartition, so that it has its index at once; afterwards with the same number, so that others go.
--
-- Arguments: tube; partitions: the number.
-- Result: a CREATE INDEX CONCURRENTLY statement, or a REINDEX where an earlier one was broken off; where the index
--   is there and the tube has that number, a DROP INDEX CONCURRENTLY of another one; NULL when nothing is to be done.
-- Errors: TU102 unknown tube, TU103 a number that no tube can have.
CREATE OR REPLACE FUNCTION :"schema".tube_index_sql(tube text, partitions integer) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    name text := format('%I.%I', tube_private_schema(), tube_private_index(tube, partitions));
    present CONSTANT integer := (tube_private_require(tube)).partitions;
    valid boolean;
BEGIN
    PERFORM tube_private_check_partitions(partitions);
    SELECT i.indisvalid INTO valid FROM pg_index AS i WHERE i.indexrelid = to_regclass(name);
    RETURN CASE
        WHEN valid AND partitions = present THEN (
            SELECT format('DROP INDEX CONCURRENTLY %I.%I', tube_private_schema(), i.name)
            FROM tube_private_indexes(tube) AS i
            WHERE i.partitions <> present ORDER BY i.partitions LIMIT 1)
        WHEN valid THEN NULL
        WHEN NOT valid THEN format('REINDEX INDEX CONCURRENTLY %s', name)
        ELSE tube_private_index_ddl(tube, partitions, true)
    END;
END
$$;
COMMENT ON FUNCTION :"schema".tube_index_sql IS
    'Returns the CREATE INDEX statement to run before a repartition, so that the repartition does not block writers.';
