-- tube_private_check_partition: refuses a partition that the tube does not have.
--
-- Arguments: tube; partitions, how many the caller believes that the tube has; partition, 0 to
-- partitions - 1.
-- Result: nothing, when all three are right.
-- Errors: TU102 unknown tube, TU002 another number of partitions, TU103 no such partition.
-- Locks: none, so the answer may be old when it arrives. Whoever writes takes a lock of its own.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_partition(
    tube text, partitions integer, partition integer
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    actual integer;
BEGIN
    SELECT r.partitions INTO actual
    FROM tube_registry AS r
    WHERE r.tube = tube_private_check_partition.tube;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no tube %', quote_nullable(tube)
            USING ERRCODE = 'TU102', HINT = 'tube_list() shows all tubes; tube_ensure_exists() makes one.';
    END IF;
    IF actual IS DISTINCT FROM partitions THEN
        RAISE EXCEPTION 'tube % has % partitions, not %', quote_literal(tube), actual,
            coalesce(partitions::text, 'NULL')
            USING ERRCODE = 'TU002', HINT = 'The tube was repartitioned: begin new terms with its present number.';
    END IF;
    IF partition IS NULL OR partition NOT BETWEEN 0 AND actual - 1 THEN
        RAISE EXCEPTION 'tube % has no partition %', quote_literal(tube), coalesce(partition::text, 'NULL')
            USING ERRCODE = 'TU103', HINT = format('Its partitions are 0 to %s.', actual - 1);
    END IF;
END
$$;
