-- tube_pods_sql: the text of a query that reads a partition's pods in processing order.
--
-- It takes the one index of the tube, in its order, so a LIMIT behind it is cheap. Soon after a repartition that
-- may be the index of before (tube_private_slices): the text serves as long as the number stays, but ask again now
-- and then.
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
    class CONSTANT text := '(CASE WHEN op = ''B'' THEN 1 ELSE 0 END)';
    slices text[];
BEGIN
    PERFORM tube_private_check_partition(tube, partitions, partition);
    slices := ARRAY(SELECT s.slice || CASE WHEN exclude_backfill THEN format(' AND %s = 0', class) ELSE '' END
        FROM unnest((tube_private_slices(tube, partitions, partition)).slices) AS s (slice));
    IF cardinality(slices) = 1 THEN
        RETURN format('SELECT seq, op, shard::integer, ids::text, payload FROM %I.%I WHERE %s ORDER BY %s, seq',
            tube_private_schema(), tube, slices[1], class);
    END IF;
    RETURN format('SELECT seq, op, shard::integer, ids::text, payload FROM (%s) AS pods ORDER BY class, seq',
        (SELECT string_agg(format('(SELECT *, %s AS class FROM %I.%I WHERE %s ORDER BY class, seq)',
            class, tube_private_schema(), tube, s.slice), ' UNION ALL ') FROM unnest(slices) AS s (slice)));
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_sql IS
    'Returns the text of a query that reads the pods of a partition in processing order.';
