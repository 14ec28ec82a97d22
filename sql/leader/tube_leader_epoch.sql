-- tube_leader_epoch: the epoch to give to tube_leader_acquire.
--
-- Read it *before* the right to lead is proved, so that nobody who proved it later can be overtaken.
--
-- Arguments: tube; partitions, how many the caller believes that it has; partition.
-- Result: the epoch of the partition's last term, or the one that it was made with.
-- Errors: TU102 unknown tube, TU002 another number of partitions, TU103 no such partition.
-- Locks: none. A lost answer does no harm: ask again.
CREATE OR REPLACE FUNCTION :"schema".tube_leader_epoch(
    tube text, partitions integer, partition integer
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    found_epoch bigint;
BEGIN
    SELECT l.epoch INTO found_epoch
    FROM tube_leader AS l
    WHERE l.tube = tube_leader_epoch.tube
      AND l.partition = tube_leader_epoch.partition
      AND l.partitions = tube_leader_epoch.partitions;
    IF NOT FOUND THEN
        PERFORM tube_private_check_partition(tube, partitions, partition);
        -- The row was not there and is now: a repartition was committed in between.
        RAISE EXCEPTION 'tube % was repartitioned meanwhile', quote_literal(tube)
            USING ERRCODE = 'TU002', HINT = 'Ask again.';
    END IF;
    RETURN found_epoch;
END
$$;
COMMENT ON FUNCTION :"schema".tube_leader_epoch IS
    'Returns the current epoch of a partition, which tube_leader_acquire compares.';
