-- tube_pods_put: puts ids into tubes as pods, in their order; what fan-out and backfill end in.
--
-- Unlike {tube}_touch it does not look for ids that stand twice. A right of its own, because
-- tube_pods_insert, which runs a query with its caller's rights, calls it with those too.
--
-- Arguments: tube_or_tubes: joined by commas; shard: where it is one of those that a table is spread
--   over, each id gets its own; op: in a session whose application_name contains "backfill" it is B;
--   ids: none only checks the others; chunk_size: ids of a pod; last: wakes workers that sleep, once
--   all is put.
-- Result: how many pods were made. A WARNING where no attached table of a tube has the shard: with the last
--   ids, or when the arguments are checked (no ids, and last is false).
-- Errors: TU102 unknown tube; TU106 no shard, or a negative one; 22004 a NULL among the ids; 22023 another
--   op than I, U, D, T, B, or a chunk size below 1; 42804 a tube has keys of another type.
-- Locks: those of an INSERT into the tubes.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_put(
    tube_or_tubes text, shard integer, op text, ids bigint[], chunk_size integer = 250, last boolean = true
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN tube_private_put(tube_or_tubes, shard, op, ids, chunk_size, last);
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_put IS 'Inserts ids into tubes as pods, in the given order.';
