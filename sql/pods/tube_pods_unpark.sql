-- tube_pods_unpark: forgets the errors of keys that were delivered after all.
--
-- Arguments: tube, partitions, partition, leader_id: the term; shards, ids: the keys, as two arrays
--   of one length. Keys of other partitions are passed over.
-- Result: how many parked rows were removed.
-- Errors: TU001 the term is over; TU002, TU102, TU103 as tube_leader_epoch; 22023 arrays of different
--   lengths; 40P01 is to be tried again.
-- Locks: the fence (tube_private_hold_term) and the removed rows, until the transaction ends.
-- A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_unpark(
    tube text, partitions integer, partition integer, leader_id uuid, shards integer[], ids text[]
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    removed integer;
BEGIN
    IF cardinality(shards) IS DISTINCT FROM cardinality(ids) THEN
        RAISE EXCEPTION 'there are % shards and % ids',
            coalesce(cardinality(shards)::text, 'no'), coalesce(cardinality(ids)::text, 'no')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give one shard for each id.';
    END IF;
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    DELETE FROM tube_parked AS k
    USING unnest(shards, ids) AS key (shard, id)
    WHERE k.tube = tube_pods_unpark.tube
      AND k.shard = key.shard
      AND md5(k.id) = md5(key.id) -- so it is in the index
      AND k.id = key.id
      AND mod(k.shard, partitions) = partition;
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_unpark IS 'Removes parked keys that were delivered in the meantime.';
