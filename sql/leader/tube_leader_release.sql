-- tube_leader_release: ends a term in order. The next one need not wait.
--
-- Call it only when the term can write nothing any more: all that was sent is answered, and the
-- pods that it still had are reset.
--
-- Arguments: tube, partitions, partition, leader_id: the term.
-- Result: true; false when the term was over before, whatever the reason.
-- Errors: 55P03 a call under the term took longer than 5 s: try again; 40P01 likewise.
-- Locks: the registry row and the row of tube_leader, as tube_leader_acquire.
-- A lost answer: call again; false then means that it was done, or that another leads. A release
--   that never comes does no harm but the wait of the next term.
CREATE OR REPLACE FUNCTION :"schema".tube_leader_release(
    tube text, partitions integer, partition integer, leader_id uuid
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '5s'
AS $$
BEGIN
    PERFORM FROM tube_registry AS r
    WHERE r.tube = tube_leader_release.tube
    FOR NO KEY UPDATE;
    PERFORM FROM tube_leader AS l
    WHERE l.tube = tube_leader_release.tube
      AND l.partition = tube_leader_release.partition
      AND l.partitions = tube_leader_release.partitions
      AND l.leader_id = tube_leader_release.leader_id
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM tube_private_end_term(tube, partition, 'released');
    -- The epoch stays, so that it can't come back.
    UPDATE tube_leader AS l
    SET leader_id = NULL, instance_id = NULL, client_id = NULL, election = NULL, hold = NULL,
        lease = NULL, acquired_at = NULL, renewed_at = NULL
    WHERE l.tube = tube_leader_release.tube AND l.partition = tube_leader_release.partition;
    DELETE FROM tube_sleeper AS s
    WHERE s.tube = tube_leader_release.tube AND s.partition = tube_leader_release.partition;
    RETURN true;
END
$$;
COMMENT ON FUNCTION :"schema".tube_leader_release IS 'Ends a term in order, so that the next leader need not wait.';
