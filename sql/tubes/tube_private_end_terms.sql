-- tube_private_end_terms: ends every term of a tube, takes its leader rows away, wakes its sleepers.
--
-- Arguments: tube; outcome: for tube_term.
-- Errors: 55P03 a call under one of the terms took longer than 5 s.
-- Locks: the caller holds the registry row FOR UPDATE; all leader rows FOR UPDATE, so that calls
--   under the old terms either committed before or find no term.
CREATE OR REPLACE FUNCTION :"schema".tube_private_end_terms(tube text, outcome text) RETURNS void
LANGUAGE plpgsql
SET lock_timeout = '5s'
AS $$
BEGIN
    PERFORM FROM tube_leader AS l
    WHERE l.tube = tube_private_end_terms.tube
    ORDER BY l.partition FOR UPDATE;
    INSERT INTO tube_term (leader_id, tube, partition, partitions, epoch, instance_id, client_id,
        election, hold, acquired_at, renewed_at, outcome)
    SELECT l.leader_id, l.tube, l.partition, l.partitions, l.epoch, l.instance_id, l.client_id,
        l.election, l.hold, l.acquired_at, l.renewed_at, tube_private_end_terms.outcome
    FROM tube_leader AS l
    WHERE l.tube = tube_private_end_terms.tube AND l.leader_id IS NOT NULL;
    DELETE FROM tube_leader AS l WHERE l.tube = tube_private_end_terms.tube;
    PERFORM tube_private_wake_sleepers(tube, NULL);
    DELETE FROM tube_sleeper AS s WHERE s.tube = tube_private_end_terms.tube;
END
$$;
