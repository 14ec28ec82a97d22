-- tube_leader_renew: says that the term still leads.
--
-- Arguments: tube, partitions, partition, leader_id: the term.
-- Result: the version of the tube's registry row; when it has grown, what an enricher knows of the
--   tube is to be read again.
-- Errors: TU001 the term is over; TU002, TU102, TU103 as tube_leader_epoch.
-- Locks: the row of tube_leader FOR NO KEY UPDATE, until the transaction ends: it does not wait for
--   calls under the term, nor they for it; it waits for an acquire, a release or a repartition.
-- A lost answer: the term may be renewed or not. Only a call that has answered proves anything, and
--   only from the moment on when it was sent.
CREATE OR REPLACE FUNCTION :"schema".tube_leader_renew(
    tube text, partitions integer, partition integer, leader_id uuid
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    UPDATE tube_leader AS l
    SET renewed_at = clock_timestamp()
    WHERE l.tube = tube_leader_renew.tube
      AND l.partition = tube_leader_renew.partition
      AND l.partitions = tube_leader_renew.partitions
      AND l.leader_id = tube_leader_renew.leader_id;
    IF NOT FOUND THEN
        PERFORM tube_private_refuse_term(tube, partitions, partition, leader_id);
    END IF;
    RETURN (SELECT r.version FROM tube_registry AS r WHERE r.tube = tube_leader_renew.tube);
END
$$;
COMMENT ON FUNCTION :"schema".tube_leader_renew IS 'Renews a term, or fails if the term has ended.';
