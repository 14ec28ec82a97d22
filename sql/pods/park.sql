-- Keys that failed: the ones to send again, and the ones set aside with their error, so that the partition can continue. See
-- leader/terms.sql for what "the term" is, for the fence, and for the errors of a call under a term; 40P01 is to be tried
-- again.

-- Parking only writes the keys down; a pod is purged as always when all its keys are done or parked. A key has one row,
-- that of its last failure. A control pod, which has no id, has one per seq.
-- Arguments: the term; items: a JSON array of objects {"shard": 1, "id": "7" or null, "op": "U", "seq": 9, "payload":
--   null, "error": "...", "attempts": 3, "document": null}. When a key occurs twice, its highest seq counts. document: what
--   was sent, as base64; kept until the key is delivered, dropped or parked again. in_limit: how many keys of the tube may
--   be parked, those aside that an operator has retried; NULL: any number.
-- Result: how many rows were written.
-- Errors: as of a call under a term; TU106 a shard of another partition; TU141 more would be parked than in_limit, so
--   none is; 22023 items is not an array, or a document is not base64; 23502 no such field.
-- Locks: the registry row FOR KEY SHARE (first, as always), the fence and the written rows, until the transaction ends.
-- A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_park(
    tube text, partitions integer, partition integer, leader_id uuid, items jsonb, in_limit integer = NULL
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
#variable_conflict use_column
DECLARE
    my_epoch bigint;
    written  bigint[];
BEGIN
    PERFORM tube_private_check_items(items);
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_pods_park.tube FOR KEY SHARE;
    PERFORM tube_private_require(tube_pods_park.tube);
    my_epoch := tube_private_hold_term(
        tube_pods_park.tube, tube_pods_park.partitions, tube_pods_park.partition, tube_pods_park.leader_id);
    PERFORM tube_private_check_shards(
        tube_pods_park.tube, tube_pods_park.partitions, tube_pods_park.partition, items);

    WITH item AS MATERIALIZED (
        SELECT i.shard, i.id, i.op, i.seq, nullif(i.payload, 'null') AS payload, i.error, i.attempts, my_epoch AS epoch
        FROM jsonb_to_recordset(items) AS i (
            shard integer, id text, op text, seq bigint, payload jsonb, error text, attempts integer)
    ), tried AS (
        DELETE FROM tube_attempt AS a USING item AS i
        WHERE a.tube = tube_pods_park.tube AND a.shard = i.shard AND md5(a.id) = md5(i.id) AND a.id = i.id
        RETURNING a.shard, a.id, a.first_at
    ), keys AS (
        INSERT INTO tube_parked AS k (tube, shard, id, op, seq, payload, error, attempts, epoch, first_at)
        SELECT DISTINCT ON (i.shard, i.id) tube_pods_park.tube, i.*, coalesce(t.first_at, clock_timestamp())
        FROM item AS i LEFT JOIN tried AS t ON t.shard = i.shard AND t.id = i.id
        WHERE i.id IS NOT NULL ORDER BY i.shard, i.id, i.seq DESC
        ON CONFLICT (tube, shard, md5(id)) WHERE id IS NOT NULL
        DO UPDATE SET op = excluded.op, seq = excluded.seq, payload = excluded.payload, error = excluded.error,
            attempts = excluded.attempts, epoch = excluded.epoch, parked_at = clock_timestamp(), retried_at = NULL
        RETURNING park_id
    ), control AS (
        INSERT INTO tube_parked AS k (tube, shard, id, op, seq, payload, error, attempts, epoch, first_at)
        SELECT DISTINCT ON (i.seq) tube_pods_park.tube, i.*, clock_timestamp()
        FROM item AS i WHERE i.id IS NULL ORDER BY i.seq
        ON CONFLICT (tube, seq) WHERE id IS NULL
        DO UPDATE SET op = excluded.op, payload = excluded.payload, error = excluded.error,
            attempts = excluded.attempts, epoch = excluded.epoch, parked_at = clock_timestamp()
        RETURNING park_id
    )
    SELECT array_agg(r.park_id) INTO written FROM (TABLE keys UNION ALL TABLE control) AS r;
    IF in_limit < (
        SELECT count(*) FROM (
            SELECT FROM tube_parked AS k WHERE k.tube = tube_pods_park.tube AND k.retried_at IS NULL
            LIMIT in_limit::bigint + 1) AS n)
    THEN
        RAISE EXCEPTION 'more than % keys of tube % would be parked', in_limit, quote_literal(tube_pods_park.tube)
            USING ERRCODE = 'TU141', HINT = 'Fix their common cause, retry or discard some, and resume the tube.';
    END IF;

    DELETE FROM tube_parked_document AS d WHERE d.park_id = ANY (written);
    INSERT INTO tube_parked_document (park_id, document)
    SELECT DISTINCT ON (k.park_id) k.park_id, decode(i.document, 'base64')
    FROM jsonb_to_recordset(items) AS i (shard integer, id text, seq bigint, document text)
    JOIN tube_parked AS k ON k.tube = tube_pods_park.tube AND k.shard = i.shard AND md5(k.id) = md5(i.id) AND k.id = i.id
    WHERE i.document IS NOT NULL
    ORDER BY k.park_id, i.seq DESC;
    RETURN coalesce(cardinality(written), 0);
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_park IS
    'Parks keys: objects with shard, id, op, seq, payload, error, attempts and document (base64). With in_limit, '
    'parks none if the tube would have more.';

-- tube_private_check_items: refuses items unless they are a JSON array.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_items(items jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF jsonb_typeof(items) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'items is not a JSON array'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give an array of objects, one per key.';
    END IF;
END
$$;

-- tube_private_check_shards: refuses items of which one has a shard of another partition.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_shards(
    tube text, partitions integer, partition integer, items jsonb
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    stranger integer;
BEGIN
    SELECT i.shard INTO stranger
    FROM jsonb_to_recordset(items) AS i (shard integer)
    WHERE i.shard < 0 OR mod(i.shard, partitions) <> partition
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'shard % is not in partition % of tube %', stranger, partition, quote_literal(tube)
            USING ERRCODE = 'TU106', HINT = 'Give keys of the term''s own partition only.';
    END IF;
END
$$;

-- Arguments: the term; items: a JSON array of objects {"shard": 1, "id": "7", "error": "...", "attempts": 3, "delay": 0.8}:
--   how many attempts are used up, and the seconds until the next one.
-- Result: how many rows were written.
-- Errors: as of a call under a term; TU106; 22023 items is not an array; 23502 no such field.
-- Locks: the registry row FOR KEY SHARE (first, as always), the fence and the written rows, until the transaction ends.
-- A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_fail(
    tube text, partitions integer, partition integer, leader_id uuid, items jsonb
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
#variable_conflict use_column
DECLARE
    my_epoch bigint;
    failed_at timestamptz;
    written integer;
BEGIN
    PERFORM tube_private_check_items(items);
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_pods_fail.tube FOR KEY SHARE;
    my_epoch := tube_private_hold_term(
        tube_pods_fail.tube, tube_pods_fail.partitions, tube_pods_fail.partition, tube_pods_fail.leader_id);
    PERFORM tube_private_check_shards(
        tube_pods_fail.tube, tube_pods_fail.partitions, tube_pods_fail.partition, items);
    failed_at := clock_timestamp();
    INSERT INTO tube_attempt AS a (tube, shard, id, attempts, error, epoch, first_at, last_at, next_at)
    SELECT DISTINCT ON (i.shard, i.id) tube_pods_fail.tube, i.shard, i.id, i.attempts, i.error, my_epoch,
        failed_at, failed_at, failed_at + coalesce(i.delay, 0) * interval '1 second'
    FROM jsonb_to_recordset(items) AS i (shard integer, id text, error text, attempts integer, delay float8)
    ORDER BY i.shard, i.id, i.attempts DESC
    ON CONFLICT (tube, shard, md5(id)) DO UPDATE
    SET attempts = excluded.attempts, error = excluded.error, epoch = excluded.epoch, last_at = excluded.last_at,
        next_at = excluded.next_at;
    GET DIAGNOSTICS written = ROW_COUNT;
    RETURN written;
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_fail IS
    'Records failures of keys that will be retried: objects with shard, id, error, attempts and delay.';

-- Arguments: the term; shards, ids: the keys, as two arrays of one length. Keys of other partitions are passed over.
-- Result: how many parked rows were removed.
-- Errors: as of a call under a term; 22023 arrays of different lengths.
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
    DELETE FROM tube_attempt AS a
    USING unnest(shards, ids) AS key (shard, id)
    WHERE a.tube = tube_pods_unpark.tube
      AND a.shard = key.shard
      AND md5(a.id) = md5(key.id)
      AND a.id = key.id
      AND mod(a.shard, partitions) = partition;
    RETURN removed;
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_unpark IS
    'Deletes the errors and failures of keys that were delivered after all.';
