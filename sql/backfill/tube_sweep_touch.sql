-- tube_sweep_touch: touches keys that a scan of the sink has found.
--
-- They go through the queue as everything does: a row that is there is written again, one that is not
-- is deleted at the sink. So a row written meanwhile is never lost.
--
-- Arguments: tube, partitions, partition, leader_id: the term; shard; ids: of the tube's type.
-- Result: the number of pods.
-- Errors: TU001 the term is over; TU002, TU102, TU103 as tube_leader_epoch; TU106 the shard is not of
--   the partition.
-- Locks: the fence, until the transaction ends.
-- A lost answer: call again; a key touched twice does no harm.
CREATE OR REPLACE FUNCTION :"schema".tube_sweep_touch(
    tube text, partitions integer, partition integer, leader_id uuid, shard integer, ids anyarray
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    pods integer;
BEGIN
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    IF shard % partitions <> partition THEN
        RAISE EXCEPTION 'shard % is not in partition % of tube %', shard, partition, quote_literal(tube)
            USING ERRCODE = 'TU106', HINT = 'Sweep shards of the term''s own partition only.';
    END IF;
    EXECUTE format('INSERT INTO %I (op, shard, ids) SELECT ''B'', $1, $2[n : n + 249] '
        'FROM generate_series(1, cardinality($2), 250) AS n', tube) USING shard, ids;
    GET DIAGNOSTICS pods = ROW_COUNT;
    RETURN pods;
END
$$;
COMMENT ON FUNCTION :"schema".tube_sweep_touch IS
    'Touches keys that a scan of the sink has found, so that stale documents are deleted.';
