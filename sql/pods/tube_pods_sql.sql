-- tube_pods_sql: the text of a query that reads a partition's pods in processing order.
--
-- It takes the one index of the tube, in its order, so a LIMIT behind it is cheap.
--
-- Arguments: tube; partitions: must be the tube's; partition; exclude_backfill: only pods of the
--   incremental class.
-- Result: a SELECT of seq, op, shard, ids::text, payload: incremental pods by seq, then those of
--   op B by seq.
-- Errors: TU102 unknown tube, TU002 another number of partitions, TU103 no such partition.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_sql(
    tube text, partitions integer, partition integer, exclude_backfill boolean = false
) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    class CONSTANT text := 'CASE WHEN op = ''B'' THEN 1 ELSE 0 END';
BEGIN
    PERFORM tube_private_check_partition(tube, partitions, partition);
    RETURN format('SELECT seq, op, shard::integer, ids::text, payload FROM %I.%I WHERE (shard %% %s) = %s%s ORDER BY (%s), seq',
        tube_private_schema(), tube, partitions, partition,
        CASE WHEN exclude_backfill THEN format(' AND (%s) = 0', class) ELSE '' END, class);
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_sql IS
    'Returns the text of a query that reads the pods of a partition in processing order.';
