-- tube_leader_acquire: begins a term over a partition, and so ends the one before.
--
-- A compare-and-set on the epoch: of several who read the same one, exactly one begins a term.
--
-- Arguments:
--   tube, partitions, partition   what is to be led
--   leader_id        the new term: a uuid never used before
--   instance_id      the process: a uuid of its own
--   client_id        a label for people
--   expected_epoch   what tube_leader_epoch gave before the right to lead was proved
--   election         'neli' (proved at a broker) or 'lease' (proved by what is stored here)
--   hold             how long after its last renewal the term may still write at the sink
--   lease            how long a renewal keeps others out; for 'lease' only, and needed there
-- Result: the term's epoch: greater than any that this tube ever had, at least the unix time.
-- Errors: TU003 somebody was faster: read the epoch, prove, and try again; TU004 the lease of
--   another process runs; TU005 the present term is of the other kind of election; TU002, TU102,
--   TU103 as tube_leader_epoch; 22023 an argument makes no sense, 22004 one is NULL; 55P03 a call under the old term
--   took longer than 5 s: try again; 40P01 is to be tried again too.
-- Locks: the registry row (against other terms of this tube, not against its writers) and the row of
--   tube_leader FOR UPDATE, until the transaction ends. It waits for open calls under the old term,
--   so that they commit before the new term exists.
-- A lost answer: the term may exist. Begin again with another leader_id: the epoch read then is the
--   lost term's; under a lease the same process may take its own over.
-- The commit is made durable here whatever the session says: an epoch must not come back after a crash.
CREATE OR REPLACE FUNCTION :"schema".tube_leader_acquire(
    tube text, partitions integer, partition integer, leader_id uuid, instance_id uuid,
    client_id text, expected_epoch bigint, election text = 'neli',
    hold interval = '15 seconds', lease interval = NULL
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '5s'
AS $$
DECLARE
    last_issued bigint;
    new_epoch   bigint;
BEGIN
    PERFORM tube_private_check_term(leader_id, instance_id, client_id, election, hold, lease);
    IF current_setting('synchronous_commit') <> 'remote_apply' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;

    -- NO KEY: a sleeper or a parked key may be written meanwhile, which refers to this row.
    SELECT r.last_epoch INTO last_issued
    FROM tube_registry AS r
    WHERE r.tube = tube_leader_acquire.tube
    FOR NO KEY UPDATE;
    PERFORM tube_private_check_partition(tube, partitions, partition);
    PERFORM tube_private_check_claim(tube, partition, instance_id, expected_epoch, election);

    new_epoch := greatest(last_issued + 1, floor(extract(epoch FROM clock_timestamp()))::bigint);
    UPDATE tube_registry AS r SET last_epoch = new_epoch WHERE r.tube = tube_leader_acquire.tube;
    PERFORM tube_private_end_term(tube, partition, 'superseded');
    UPDATE tube_leader AS l
    SET leader_id = tube_leader_acquire.leader_id,
        epoch = new_epoch,
        instance_id = tube_leader_acquire.instance_id,
        client_id = tube_leader_acquire.client_id,
        election = tube_leader_acquire.election,
        hold = tube_leader_acquire.hold,
        lease = tube_leader_acquire.lease,
        acquired_at = clock_timestamp(),
        renewed_at = clock_timestamp()
    WHERE l.tube = tube_leader_acquire.tube AND l.partition = tube_leader_acquire.partition;

    -- The last leader's sleep is not ours: a NOTIFY would wake nobody.
    DELETE FROM tube_sleeper AS s
    WHERE s.tube = tube_leader_acquire.tube AND s.partition = tube_leader_acquire.partition;
    RETURN new_epoch;
END
$$;
COMMENT ON FUNCTION :"schema".tube_leader_acquire IS
    'Starts a term over a partition and ends the one before, if the epoch is still the expected one.';
