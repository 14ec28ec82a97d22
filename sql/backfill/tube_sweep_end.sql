-- tube_sweep_end: a backfill_end was acted upon: the pod goes, and its backfill has a shard less to do.
--
-- Arguments: tube, partitions, partition, leader_id: the term; shard, seq: of the pod.
-- Result: whether it was there.
-- Errors: TU001 the term is over; TU002, TU102, TU103 as tube_leader_epoch.
-- Locks: the fence, the pod and the backfill's row, until the transaction ends.
-- A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_sweep_end(
    tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    backfill bigint;
    payload jsonb;
BEGIN
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    -- The row of the backfill before the pod, as whoever cancels it takes them.
    EXECUTE format('SELECT (payload ->> ''backfill'')::bigint FROM %I WHERE payload IS NOT NULL AND ids = ''{}'''
        ' AND (shard %% %s) = %s AND seq = $1 AND shard = $2', tube, partitions, partition)
    INTO backfill USING seq, shard;
    PERFORM FROM tube_backfill AS b WHERE b.backfill_id = backfill FOR NO KEY UPDATE;
    payload := tube_private_take_control(tube, partitions, partition, leader_id, shard, seq);
    IF payload IS NULL THEN
        RETURN false;
    END IF;
    UPDATE tube_backfill AS b
    SET ends_left = b.ends_left - 1, updated_at = clock_timestamp(),
        state = CASE WHEN b.ends_left > 1 THEN b.state ELSE 'finished' END,
        ended_at = CASE WHEN b.ends_left > 1 THEN NULL ELSE clock_timestamp() END
    WHERE b.backfill_id = backfill AND b.state = 'delivering';
    RETURN true;
END
$$;
COMMENT ON FUNCTION :"schema".tube_sweep_end IS 'Deletes a backfill_end control pod and counts its shard as swept.';
