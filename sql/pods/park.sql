-- Parked keys: set aside with their error, so that the partition can go on. See leader/terms.sql for what "the term"
-- is, for the fence, and for the errors of a call under a term; 40P01 is to be tried again.

-- tube_pods_park: sets keys aside, with the error that each of them met.
--
-- Parking only writes the keys down; a pod is purged as always when all its keys are done or parked. A key has one row,
-- that of its last failure. A control pod, which has no id, has one per seq.
--
-- Arguments: the term; items: a JSON array of objects {"shard": 1, "id": "7" or null, "op": "U", "seq": 9, "payload":
--   null, "error": "…", "attempts": 3}. When a key occurs twice, its highest seq counts.
-- Result: how many rows were written.
-- Errors: those of a call under a term; TU106 a shard of another partition; 22023 items is no array; 23502 no such field.
-- Locks: the registry row FOR KEY SHARE (first, as always), the fence and the written rows, until the transaction ends.
-- A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_park(
    tube text, partitions integer, partition integer, leader_id uuid, items jsonb
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
#variable_conflict use_column
DECLARE
    my_epoch bigint;
    stranger integer;
    parked   integer;
BEGIN
    IF jsonb_typeof(items) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'items is no JSON array'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give an array of objects, one per key.';
    END IF;
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_pods_park.tube FOR KEY SHARE;
    PERFORM tube_private_require(tube_pods_park.tube);
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

    WITH item AS MATERIALIZED (
        SELECT i.shard, i.id, i.op, i.seq, nullif(i.payload, 'null'), i.error, i.attempts, my_epoch
        FROM jsonb_to_recordset(items) AS i (
            shard integer, id text, op text, seq bigint, payload jsonb, error text, attempts integer)
    ), keys AS (
        INSERT INTO tube_parked AS k (tube, shard, id, op, seq, payload, error, attempts, epoch)
        SELECT DISTINCT ON (i.shard, i.id) tube_pods_park.tube, i.*
        FROM item AS i WHERE i.id IS NOT NULL ORDER BY i.shard, i.id, i.seq DESC
        ON CONFLICT (tube, shard, md5(id)) WHERE id IS NOT NULL
        DO UPDATE SET op = excluded.op, seq = excluded.seq, payload = excluded.payload, error = excluded.error,
            attempts = excluded.attempts, epoch = excluded.epoch, parked_at = clock_timestamp()
        RETURNING park_id
    ), control AS (
        INSERT INTO tube_parked AS k (tube, shard, id, op, seq, payload, error, attempts, epoch)
        SELECT DISTINCT ON (i.seq) tube_pods_park.tube, i.*
        FROM item AS i WHERE i.id IS NULL ORDER BY i.seq
        ON CONFLICT (tube, seq) WHERE id IS NULL
        DO UPDATE SET op = excluded.op, payload = excluded.payload, error = excluded.error,
            attempts = excluded.attempts, epoch = excluded.epoch, parked_at = clock_timestamp()
        RETURNING park_id
    )
    SELECT count(*) INTO parked FROM (TABLE keys UNION ALL TABLE control) AS rows;
    RETURN parked;
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_park IS
    'Sets failed keys aside, each with its error, so that the partition can go on.';

-- tube_pods_unpark: forgets the errors of keys that were delivered after all.
--
-- Arguments: the term; shards, ids: the keys, as two arrays of one length. Keys of other partitions are passed over.
-- Result: how many parked rows were removed.
-- Errors: those of a call under a term; 22023 arrays of different lengths.
-- Locks: the fence and the removed rows, until the transaction ends.
-- A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_unpark(
    tube text, partitions integer, partition integer, leader_id uuid, shards integer[], ids text[]
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
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

-- tube_park_list: parked keys with their error, the latest first.
--
-- Arguments: in_tube, or NULL for all tubes; in_limit: at most so many.
-- Result: one row per key (or per control pod, which has no id). No row for an unknown tube.
-- Errors: 22023 a negative in_limit.
CREATE OR REPLACE FUNCTION :"schema".tube_park_list(in_tube text = NULL, in_limit integer = 100) RETURNS TABLE (
    park_id bigint, tube text, shard integer, id text, op text, seq bigint, payload jsonb,
    error text, attempts integer, epoch bigint, parked_at timestamptz
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    IF in_limit IS NULL OR in_limit < 0 THEN
        RAISE EXCEPTION 'in_limit is %', coalesce(in_limit::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is 0 or more.';
    END IF;
    RETURN QUERY
    SELECT k.park_id, k.tube, k.shard, k.id, k.op, k.seq, k.payload, k.error, k.attempts, k.epoch, k.parked_at
    FROM tube_parked AS k
    WHERE in_tube IS NULL OR k.tube = in_tube
    ORDER BY k.parked_at DESC, k.park_id DESC
    LIMIT in_limit;
END
$$;
COMMENT ON FUNCTION :"schema".tube_park_list IS 'Lists parked keys with their errors, latest first.';
