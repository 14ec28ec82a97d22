-- tube_private_hold_term: the fence. Keeps the caller's term from ending before its transaction.
--
-- Everything that writes under a term calls this first. The lock is on the key column leader_id:
-- a renewal, which changes no key, passes; acquire, release and repartition wait for it. So what
-- the caller does next either commits before the term ends, or is refused here.
--
-- Arguments: tube, partitions, partition, leader_id: the term.
-- Result: the term's epoch.
-- Errors: TU001 the term is over (or never was), TU002, TU102, TU103 as tube_private_check_partition.
-- Locks: the row of tube_leader FOR KEY SHARE, until the transaction ends.
CREATE OR REPLACE FUNCTION :"schema".tube_private_hold_term(
    tube text, partitions integer, partition integer, leader_id uuid
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    held bigint;
BEGIN
    SELECT l.epoch INTO held
    FROM tube_leader AS l
    WHERE l.tube = tube_private_hold_term.tube
      AND l.partition = tube_private_hold_term.partition
      AND l.partitions = tube_private_hold_term.partitions
      AND l.leader_id = tube_private_hold_term.leader_id
    FOR KEY SHARE;
    IF NOT FOUND THEN
        PERFORM tube_private_refuse_term(tube, partitions, partition, leader_id);
    END IF;
    RETURN held;
END
$$;
