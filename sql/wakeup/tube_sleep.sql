-- tube_sleep: says that a leader is about to sleep, and wants a NOTIFY on tube_channel(tube).
--
-- The order in which nothing is missed: tube_sleep, commit, LISTEN, read S and X (tube_settle_seq),
-- mark once more, and sleep long only when S is settled; until then mark again every few moments.
-- Whoever draws a seq after S sees the row. (A transaction at REPEATABLE READ whose snapshot is older
-- does not: so no sleep is for ever.) Writers only read the row; tube_wake takes it away.
--
-- Arguments: tube, partitions, partition, leader_id: the term.
-- Result: nothing.
-- Errors: TU001 the term is over; TU002, TU102, TU103 as tube_leader_epoch; 40P01 is to be tried again.
-- Locks: the registry row FOR KEY SHARE (first, as always) and the fence (tube_private_hold_term),
--   until the transaction ends. It waits for an open tube_ensure_exists or tube_ensure_absent, but at most
--   a second (55P03): stay awake then. A lost answer: call again, or tube_wake.
CREATE OR REPLACE FUNCTION :"schema".tube_sleep(
    tube text, partitions integer, partition integer, leader_id uuid
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '1s'
AS $$
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_sleep.tube FOR KEY SHARE;
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    INSERT INTO tube_sleeper (tube, partition, partitions)
    VALUES (tube_sleep.tube, tube_sleep.partition, tube_sleep.partitions)
    ON CONFLICT ON CONSTRAINT tube_sleeper_pkey DO NOTHING;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_sleep(text, integer, integer, uuid) FROM PUBLIC;
COMMENT ON FUNCTION :"schema".tube_sleep IS
    'Registers a leader as sleeping, so that writers NOTIFY it on tube_channel(tube).';
