-- tube_private_check_claim: locks a partition's leader row and says whether a new term may begin.
--
-- Arguments: tube, partition; instance_id, expected_epoch, election: as tube_leader_acquire.
-- Result: nothing, when it may.
-- Errors: TU003 the epoch has moved; TU005 the present term is of the other election, and current;
--   TU004 the lease of another process runs; 55P03 the lock was not had in time.
-- Locks: the row of tube_leader FOR UPDATE, until the transaction ends.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_claim(
    tube text, partition integer, instance_id uuid, expected_epoch bigint, election text
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    held     tube_leader%ROWTYPE;
    runs_for interval;
BEGIN
    SELECT l.* INTO STRICT held
    FROM tube_leader AS l
    WHERE l.tube = tube_private_check_claim.tube AND l.partition = tube_private_check_claim.partition
    FOR UPDATE;
    IF held.epoch IS DISTINCT FROM expected_epoch THEN
        RAISE EXCEPTION 'partition % of tube % is at epoch %, not %', partition, quote_literal(tube),
            held.epoch, coalesce(expected_epoch::text, 'NULL')
            USING ERRCODE = 'TU003', HINT = 'Read the epoch, prove the right to lead, and try again.';
    END IF;
    IF held.leader_id IS NULL THEN
        RETURN;
    END IF;
    -- The clock is read after the wait for the lock, during which the term may have been renewed.
    runs_for := held.renewed_at + coalesce(held.lease, held.hold) - clock_timestamp();
    IF held.election <> election AND runs_for > interval '0' THEN
        RAISE EXCEPTION 'partition % of tube % is led under the election %, not %, by %', partition,
            quote_literal(tube), quote_literal(held.election), quote_literal(election), held.client_id
            USING ERRCODE = 'TU005', HINT = 'Give all workers of a tube the same election.';
    END IF;
    IF election = 'lease' AND held.instance_id <> instance_id AND runs_for > interval '0' THEN
        RAISE EXCEPTION 'partition % of tube % is leased to % for another % ms', partition,
            quote_literal(tube), held.client_id, ceil(extract(epoch FROM runs_for) * 1000)
            USING ERRCODE = 'TU004', HINT = 'Try again when the lease has run out, or was released.';
    END IF;
END
$$;
