-- tube_leaders: the present terms.
--
-- Arguments: in_tube, or NULL for all tubes.
-- Result: one row per partition that has a leader, by tube and partition. `runs_out` is when the
--   term ends its hold on others unless it is renewed: the lease's end under 'lease', the end of its
--   hold under 'neli'. A partition without a row is free. No row for an unknown tube.
-- Locks: none. A lost answer does no harm.
CREATE OR REPLACE FUNCTION :"schema".tube_leaders(in_tube text = NULL)
RETURNS TABLE (
    tube text, partitions integer, partition integer, leader_id uuid, epoch bigint,
    instance_id uuid, client_id text, election text, hold interval, lease interval,
    acquired_at timestamptz, renewed_at timestamptz, runs_out timestamptz
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT l.tube, l.partitions, l.partition, l.leader_id, l.epoch, l.instance_id, l.client_id,
        l.election, l.hold, l.lease, l.acquired_at, l.renewed_at, l.renewed_at + coalesce(l.lease, l.hold)
    FROM tube_leader AS l
    WHERE l.leader_id IS NOT NULL AND (in_tube IS NULL OR l.tube = in_tube)
    ORDER BY l.tube, l.partition;
END
$$;
COMMENT ON FUNCTION :"schema".tube_leaders IS 'Lists the current leader of each partition.';
