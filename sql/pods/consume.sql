-- For consumers that have no terms: they read the text of tube_pods_sql, and delete by tube_pods_delete. A worker,
-- which has one, marks and purges under the fence (pods/marks.sql).

-- It takes the one index of the tube, in its order, so a LIMIT behind it is cheap. Soon after a repartition that may be
-- the index of before (tube_private_slices): the text serves as long as the number stays, but ask again now and then.
-- Arguments: tube; partitions: must be the tube's; partition; exclude_backfill: only pods of the incremental class.
-- Result: a SELECT of seq, op, shard, ids::text, payload: incremental pods by seq, then pods of op B by seq.
-- Errors: TU102 unknown tube, TU002 another number of partitions, TU103 no such partition.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_sql(
    tube text, partitions integer, partition integer, exclude_backfill boolean = false
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
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
    'Returns the text of a query that reads a partition in processing order, for consumers without terms. Valid '
    'while the number of partitions stays.';

-- A backfill is over when its ends are deleted.
-- Arguments: tube; partitions: must be the tube's; partition; seqs.
-- Result: how many were deleted.
-- Errors: as tube_pods_sql (TU002, TU102, TU103).
-- Locks: the registry row FOR KEY SHARE, so that no repartition comes between; the rows of the backfills whose ends are
--   among the pods; the deleted pods.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_delete(
    tube text, partitions integer, partition integer, seqs bigint[]
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp
SET enable_seqscan = off -- a queue's statistics are never right
AS $$
DECLARE
    backfills bigint[];
    deleted integer;
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_pods_delete.tube FOR KEY SHARE;
    PERFORM tube_private_require(tube);
    PERFORM tube_private_check_partition(tube, partitions, partition);
    backfills := tube_private_backfills_at_end(tube, seqs);
    EXECUTE format('DELETE FROM %I.%I WHERE %s'
        ' AND (CASE WHEN op = ''B'' THEN 1 ELSE 0 END) = ANY (''{0,1}'') AND seq = ANY ($1)',
        tube_private_schema(), tube, (tube_private_slices(tube, partitions, partition)).pods)
    USING seqs;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    PERFORM tube_private_backfill_count_ends(b.id) FROM unnest(backfills) AS b (id);
    RETURN deleted;
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_delete IS
    'Deletes pods by their seqs, whoever has marked them. Don''t use it beside a worker.';
