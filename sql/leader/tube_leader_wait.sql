-- tube_leader_wait: how long a new term has to wait before its first mark.
--
-- An earlier term that did not release may still be writing at the sink, until its hold has passed
-- since its last renewal. Of P1 partitions, p1 shares shards with p2 of P2 exactly when
-- p1 = p2 modulo gcd(P1, P2).
--
-- Arguments: tube, partitions, partition, leader_id: the new term.
-- Result: the time left; nothing (an interval of 0) when no such term is left.
-- Errors: TU001 the term is over; TU002, TU102, TU103 as tube_leader_epoch.
-- Locks: the fence (tube_private_hold_term), until the transaction ends. The answer never grows
--   within a term, so one call is enough; a lost answer does no harm.
CREATE OR REPLACE FUNCTION :"schema".tube_leader_wait(
    tube text, partitions integer, partition integer, leader_id uuid
) RETURNS interval
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    holds_until timestamptz;
BEGIN
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    SELECT max(t.renewed_at + t.hold) INTO holds_until
    FROM tube_term AS t
    WHERE t.tube = tube_leader_wait.tube
      AND t.outcome <> 'released'
      AND mod(t.partition - tube_leader_wait.partition,
              gcd(t.partitions, tube_leader_wait.partitions)) = 0;
    RETURN greatest(coalesce(holds_until - clock_timestamp(), interval '0'), interval '0');
END
$$;
COMMENT ON FUNCTION :"schema".tube_leader_wait IS 'Returns how long a new term has to wait before its first mark.';
