-- tube_pods_park: sets keys aside, with the error that each of them met.
--
-- Parking only writes the keys down; a pod is purged as always when all its keys are done or parked.
-- A key has one row, that of its last failure. A control pod, which has no id, has one per seq.
--
-- Arguments: tube, partitions, partition, leader_id: the term; items: a JSON array of objects
--   {"shard": 1, "id": "7" or null, "op": "U", "seq": 9, "payload": null, "error": "…", "attempts": 3}.
--   When a key occurs twice, its highest seq counts.
-- Result: how many rows were written.
-- Errors: TU001 the term is over; TU002, TU102, TU103 as tube_leader_epoch; TU106 a shard of another
--   partition; 22023 items is no array; 23502 a field is missing; 40P01 is to be tried again.
-- Locks: the registry row FOR KEY SHARE (first, as always), the fence (tube_private_hold_term) and
--   the written rows, until the transaction ends.
-- A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_park(
    tube text, partitions integer, partition integer, leader_id uuid, items jsonb
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    my_epoch bigint;
    stranger integer;
    parked   integer;
    done     integer;
BEGIN
    IF jsonb_typeof(items) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'items is no JSON array'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give an array of objects, one per key.';
    END IF;
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_pods_park.tube FOR KEY SHARE;
    my_epoch := tube_private_hold_term(
        tube_pods_park.tube, tube_pods_park.partitions, tube_pods_park.partition, tube_pods_park.leader_id);
    SELECT i.shard INTO stranger
    FROM jsonb_to_recordset(items) AS i (shard integer)
    WHERE i.shard < 0 OR mod(i.shard, tube_pods_park.partitions) <> tube_pods_park.partition
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'shard % is not in partition % of tube %', stranger,
            tube_pods_park.partition, quote_literal(tube_pods_park.tube)
            USING ERRCODE = 'TU106', HINT = 'Park keys of the term''s own partition only.';
    END IF;

    INSERT INTO tube_parked AS k (tube, shard, id, op, seq, payload, error, attempts, epoch)
    SELECT DISTINCT ON (i.shard, i.id) tube_pods_park.tube, i.shard, i.id, i.op, i.seq,
        nullif(i.payload, 'null'), i.error, i.attempts, my_epoch
    FROM jsonb_to_recordset(items) AS i (
        shard integer, id text, op text, seq bigint, payload jsonb, error text, attempts integer)
    WHERE i.id IS NOT NULL
    ORDER BY i.shard, i.id, i.seq DESC
    ON CONFLICT (tube, shard, md5(id)) WHERE id IS NOT NULL
    DO UPDATE SET op = excluded.op, seq = excluded.seq, payload = excluded.payload, error = excluded.error,
        attempts = excluded.attempts, epoch = excluded.epoch, parked_at = clock_timestamp();
    GET DIAGNOSTICS parked = ROW_COUNT;

    INSERT INTO tube_parked AS k (tube, shard, id, op, seq, payload, error, attempts, epoch)
    SELECT DISTINCT ON (i.seq) tube_pods_park.tube, i.shard, NULL, i.op, i.seq,
        nullif(i.payload, 'null'), i.error, i.attempts, my_epoch
    FROM jsonb_to_recordset(items) AS i (
        shard integer, id text, op text, seq bigint, payload jsonb, error text, attempts integer)
    WHERE i.id IS NULL
    ORDER BY i.seq
    ON CONFLICT (tube, seq) WHERE id IS NULL
    DO UPDATE SET op = excluded.op, payload = excluded.payload, error = excluded.error,
        attempts = excluded.attempts, epoch = excluded.epoch, parked_at = clock_timestamp();
    GET DIAGNOSTICS done = ROW_COUNT;
    RETURN parked + done;
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_park IS
    'Sets failed keys aside, each with its error, so that the partition can go on.';
