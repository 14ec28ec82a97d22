-- tube_private_end_term: writes down that the present term of a partition has ended.
--
-- The caller holds the registry row and the row of tube_leader FOR UPDATE, and changes the latter.
--
-- Arguments: tube, partition; outcome: released, superseded or repartitioned.
-- Result: nothing; nothing is done for a free partition.
-- Locks: none of its own.
-- Terms that ended more than a day ago and can hold no key any more are forgotten.
CREATE OR REPLACE FUNCTION :"schema".tube_private_end_term(
    tube text, partition integer, outcome text
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tube_term (leader_id, tube, partition, partitions, epoch, instance_id, client_id,
        election, hold, acquired_at, renewed_at, ended_at, outcome)
    SELECT l.leader_id, l.tube, l.partition, l.partitions, l.epoch, l.instance_id, l.client_id,
        l.election, l.hold, l.acquired_at, l.renewed_at, clock_timestamp(), tube_private_end_term.outcome
    FROM tube_leader AS l
    WHERE l.tube = tube_private_end_term.tube
      AND l.partition = tube_private_end_term.partition
      AND l.leader_id IS NOT NULL;

    DELETE FROM tube_term AS t
    WHERE t.tube = tube_private_end_term.tube
      AND t.ended_at < clock_timestamp() - interval '1 day'
      AND t.renewed_at + t.hold < clock_timestamp();
END
$$;
