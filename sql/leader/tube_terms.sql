-- tube_terms: the history of who led a tube, for a day at least.
--
-- Arguments: in_tube.
-- Result: one row per term, by epoch. A present term has neither ended_at nor outcome; else outcome is
--   released, superseded or repartitioned. Terms of a tube of the same name that is gone are among
--   them. No row for an unknown tube.
-- Locks: none. A lost answer does no harm.
CREATE OR REPLACE FUNCTION :"schema".tube_terms(in_tube text)
RETURNS TABLE (
    tube text, partitions integer, partition integer, leader_id uuid, epoch bigint,
    instance_id uuid, client_id text, election text, hold interval,
    acquired_at timestamptz, renewed_at timestamptz, ended_at timestamptz, outcome text
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT t.tube, t.partitions, t.partition, t.leader_id, t.epoch, t.instance_id, t.client_id,
        t.election, t.hold, t.acquired_at, t.renewed_at, t.ended_at, t.outcome
    FROM tube_term AS t
    WHERE t.tube = in_tube
    UNION ALL
    SELECT l.tube, l.partitions, l.partition, l.leader_id, l.epoch, l.instance_id, l.client_id,
        l.election, l.hold, l.acquired_at, l.renewed_at, NULL, NULL
    FROM tube_leader AS l
    WHERE l.tube = in_tube AND l.leader_id IS NOT NULL
    ORDER BY 5;
END
$$;
COMMENT ON FUNCTION :"schema".tube_terms IS 'Lists the terms of a tube, current and ended, for at least a day.';
