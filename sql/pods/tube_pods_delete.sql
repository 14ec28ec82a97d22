-- tube_pods_delete: deletes pods of a partition by their seqs, whoever has them marked.
--
-- For consumers that read by tube_pods_sql and have no terms; a worker with a term uses
-- tube_pods_purge, which is fenced. For them a backfill is over when its ends are deleted.
--
-- Arguments: tube; partitions: must be the tube's; partition; seqs.
-- Result: how many were deleted.
-- Errors: TU102 unknown tube, TU002 another number of partitions, TU103 no such partition.
-- Locks: the registry row FOR KEY SHARE, so that no repartition comes between; the rows of the backfills
--   whose ends are among the pods; the deleted pods.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_delete(
    tube text, partitions integer, partition integer, seqs bigint[]
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET enable_seqscan = off -- a queue's statistics are never right
AS $$
DECLARE
    backfills bigint[];
    deleted integer;
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_pods_delete.tube FOR KEY SHARE;
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
    'Deletes pods of a partition by seq, for consumers that have no term; a worker calls tube_pods_purge.';
