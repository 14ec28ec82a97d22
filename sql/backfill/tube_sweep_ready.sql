-- tube_sweep_ready: whether a backfill_end may be acted upon.
--
-- Arguments: tube, partitions, partition, leader_id: the term; shard, seq: of the control pod.
-- Result: whether no backfill pod of the shard with a lower seq is left: all keys of those were
--   delivered or parked, and their pods purged.
-- Errors: TU001 the term is over; TU002, TU102, TU103 as tube_leader_epoch.
-- Locks: the fence, until the transaction ends.
CREATE OR REPLACE FUNCTION :"schema".tube_sweep_ready(
    tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    left_over boolean;
BEGIN
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE %s'
        ' AND (CASE WHEN op = ''B'' THEN 1 ELSE 0 END) = 1 AND seq < $1 AND shard = $2'
        ' AND ids <> ''{}'')', tube, (tube_private_slices(tube, partitions, partition)).pods)
    INTO left_over USING seq, shard;
    RETURN NOT left_over;
END
$$;
COMMENT ON FUNCTION :"schema".tube_sweep_ready IS
    'Tells whether all backfill pods of a shard before its backfill_end are done, so that the sweep may start.';
