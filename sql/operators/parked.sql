-- What operators do with parked keys: list them, have them tried again, drop them.
--
-- Which ones: all arguments that are not NULL have to fit. in_error: a text that the error holds, in any case; in_older:
-- parked longer ago than this; in_key: an id of the tube's type, in any form that the type reads: 042 is 42. So it needs a
-- tube.
--
-- tube_park_count says what there is, and as of when (seen, before). A retry or a drop that is given these acts on that and on
-- nothing else, in however many pieces: a key that was parked since, or parked again, or retried, is left alone. A snapshot
-- says so, and no number or time of a row would: those are drawn before the row can be seen, and a clock may be set back.

-- Arguments: in_tube, or NULL for all tubes; in_limit: at most so many; the others: which ones.
-- Result: one row per key (or per control pod, which has no id). first_at: of the first failure since it was delivered;
--   parked_at: of the last; retried_at: when an operator had it tried again, NULL: not since then. No row for an
--   unknown tube.
-- Errors: 22023 a negative in_limit, a key without a tube; 22P02, 22003 the key is not of the tube's type.
CREATE OR REPLACE FUNCTION :"schema".tube_park_list(
    in_tube text = NULL, in_limit integer = 100, in_shard integer = NULL, in_key text = NULL, in_error text = NULL,
    in_older interval = NULL
) RETURNS TABLE (
    park_id bigint, tube text, shard integer, id text, op text, seq bigint, payload jsonb,
    error text, attempts integer, epoch bigint, parked_at timestamptz, first_at timestamptz, retried_at timestamptz
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    of_key CONSTANT text := tube_private_parked_key(in_tube, in_key);
BEGIN
    PERFORM tube_private_check_limit(in_limit, 0);
    IF in_key IS NOT NULL AND in_tube IS NULL THEN
        RAISE EXCEPTION 'the key % is of no tube', quote_literal(left(in_key, 100))
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Name the tube: its type says which key that is.';
    END IF;
    RETURN QUERY
    SELECT k.park_id, k.tube, k.shard, k.id, k.op, k.seq, k.payload, k.error, k.attempts, k.epoch, k.parked_at,
        k.first_at, k.retried_at
    FROM tube_private_parked(in_tube, in_shard, of_key, in_error, clock_timestamp() - in_older, NULL) AS k
    ORDER BY k.parked_at DESC, k.park_id DESC
    LIMIT in_limit;
END
$$;
COMMENT ON FUNCTION :"schema".tube_park_list IS
    'Lists parked keys with their errors, latest first. in_error: a text in the error; in_older: parked longer ago.';

-- Result: count; seen: the snapshot in which they are; before: the time that in_older means now, NULL without it.
-- Errors: 22P02, 22003 the key is not of the tube's type.
CREATE OR REPLACE FUNCTION :"schema".tube_park_count(
    in_tube text, in_shard integer = NULL, in_key text = NULL, in_error text = NULL, in_older interval = NULL
) RETURNS TABLE (count bigint, seen pg_snapshot, before timestamptz)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    WITH t AS MATERIALIZED (SELECT clock_timestamp() - $5 AS before)
    SELECT (SELECT count(*) FROM tube_private_parked($1, $2, tube_private_parked_key($1, $3), $4, t.before, NULL) AS k),
        pg_current_snapshot(), t.before
    FROM t
$$;
COMMENT ON FUNCTION :"schema".tube_park_count IS
    'Counts the keys of tube_park_list without a limit. seen is the snapshot, before the time that in_older means.';

-- tube_private_parked_key: a key of a tube as it is parked: 42 for 042. NULL for no key, or for no such tube.
CREATE OR REPLACE FUNCTION :"schema".tube_private_parked_key(in_tube text, in_key text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT tube_private_kept_key(r, in_key) FROM tube_registry AS r WHERE r.tube = in_tube AND in_key IS NOT NULL
$$;

-- tube_private_parked: the parked keys that some arguments mean; in_key as it is parked; in_before: parked before then; in_seen:
-- the ones that have not changed since that snapshot.
CREATE OR REPLACE FUNCTION :"schema".tube_private_parked(
    in_tube text, in_shard integer, in_key text, in_error text, in_before timestamptz, in_seen pg_snapshot
) RETURNS SETOF :"schema".tube_parked
LANGUAGE sql STABLE AS $$
    SELECT k.* FROM tube_parked AS k
    WHERE (in_tube IS NULL OR k.tube = in_tube) AND (in_shard IS NULL OR k.shard = in_shard)
        AND (in_key IS NULL OR k.id = in_key)
        AND (in_error IS NULL OR strpos(lower(k.error), lower(in_error)) > 0)
        AND (in_before IS NULL OR k.parked_at < in_before)
        AND (in_seen IS NULL OR pg_visible_in_snapshot(tube_private_full_xid(k.xmin), in_seen))
$$;

-- A key that is parked since it was retried last is retried once, however many operators ask. With in_key it is retried
-- again, but of two who ask at once one does it, and the other gets 0.
-- Arguments: tube; which ones; in_before: parked before then; in_seen: the ones that have not changed since that snapshot;
--   in_limit: at most so many in this transaction, so that many can be retried in several, all with the same in_seen.
-- Result: how many were touched.
-- Errors: TU102 unknown tube; 22023 a bad in_limit; 22P02, 22003 the key is not of the tube's type.
-- Locks: the registry row FOR KEY SHARE and the rows, until the transaction ends.
-- A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_park_retry(
    tube text, in_shard integer = NULL, in_key text = NULL, in_error text = NULL, in_before timestamptz = NULL,
    in_seen pg_snapshot = NULL, in_limit integer = 10000
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
#variable_conflict use_column
DECLARE
    reg CONSTANT tube_registry := tube_private_require(tube_park_retry.tube);
    of_tube CONSTANT text := reg.tube;
    of_key CONSTANT text := tube_private_kept_key(reg, in_key);
    chosen bigint[];
    keys text[];
BEGIN
    PERFORM tube_private_check_limit(in_limit);
    PERFORM FROM tube_registry AS r WHERE r.tube = of_tube FOR KEY SHARE;
    chosen := tube_private_hold_parked(of_tube, in_shard, of_key, in_error, in_before, in_seen, of_key IS NULL, in_limit);
    IF chosen = '{}' THEN
        RETURN 0;
    END IF;
    EXECUTE format($sql$
        INSERT INTO %1$s (op, shard, ids)
        SELECT 'U', k.shard, array_agg(k.id::%2$s)
        FROM (
            SELECT p.shard, p.id, (row_number() OVER (PARTITION BY p.shard ORDER BY p.park_id) - 1) / 250 AS chunk
            FROM tube_parked AS p WHERE p.park_id = ANY ($1) AND p.id IS NOT NULL) AS k
        GROUP BY k.shard, k.chunk ORDER BY k.shard, k.chunk$sql$,
        tube_private_qualify(of_tube), tube_private_key_type(of_tube)) USING chosen;
    EXECUTE format($sql$
        INSERT INTO %s (op, shard, ids, payload)
        SELECT p.op, p.shard, '{}', p.payload
        FROM tube_parked AS p WHERE p.park_id = ANY ($1) AND p.id IS NULL ORDER BY p.seq$sql$,
        tube_private_qualify(of_tube)) USING chosen;
    keys := ARRAY(SELECT concat(p.shard, '/', p.id) FROM tube_parked AS p WHERE p.park_id = ANY (chosen[:10]) ORDER BY p.park_id);
    PERFORM tube_private_wake_sleepers(of_tube,
        ARRAY(SELECT DISTINCT p.shard FROM tube_parked AS p WHERE p.park_id = ANY (chosen)));
    DELETE FROM tube_parked AS p WHERE p.park_id = ANY (chosen) AND p.id IS NULL; -- a control pod gets a new row, by its seq
    UPDATE tube_parked AS p SET retried_at = clock_timestamp() WHERE p.park_id = ANY (chosen);
    PERFORM tube_private_audit_parked('park retry', of_tube, in_shard, of_key, in_error, in_before, keys, cardinality(chosen));
    RETURN cardinality(chosen);
END
$$;
COMMENT ON FUNCTION :"schema".tube_park_retry IS
    'Touches parked keys, and returns how many. in_before: only keys parked before then.';

-- Of a key that another operator retries or drops at the same time, or a worker parks again, it is not known whether it is
-- still to be dropped: it is left alone, and does not count.
-- Arguments, result, errors: as tube_park_retry; those that were retried before are among them. A lost answer: call again.
-- Errors: TU102, 22003, 22023, 22P02.
CREATE OR REPLACE FUNCTION :"schema".tube_park_drop(
    tube text, in_shard integer = NULL, in_key text = NULL, in_error text = NULL, in_before timestamptz = NULL,
    in_seen pg_snapshot = NULL, in_limit integer = 10000
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(tube_park_drop.tube);
    of_tube CONSTANT text := reg.tube;
    of_key CONSTANT text := tube_private_kept_key(reg, in_key);
    chosen bigint[];
    keys text[];
BEGIN
    PERFORM tube_private_check_limit(in_limit);
    chosen := tube_private_hold_parked(of_tube, in_shard, of_key, in_error, in_before, in_seen, false, in_limit);
    WITH gone AS (
        DELETE FROM tube_parked AS k WHERE k.park_id = ANY (chosen) RETURNING k.park_id, k.shard, k.id
    )
    SELECT array_agg(concat(g.shard, '/', g.id) ORDER BY g.park_id) INTO keys FROM gone AS g;
    IF keys IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM tube_private_audit_parked('park discard', of_tube, in_shard, of_key, in_error, in_before, keys, cardinality(keys));
    RETURN cardinality(keys);
END
$$;
COMMENT ON FUNCTION :"schema".tube_park_drop IS 'Deletes parked keys, and returns how many. The sink stays as it is.';

-- tube_private_hold_parked: locks parked keys for one of the functions above, in the order of their numbers; these.
-- Its caller has seen them as its statement began. A row that has changed until it is locked is passed over: the
-- query's condition is looked at again with that row's new columns (k), beside the old ones (p), which are not locked. By the
-- index of the numbers, so that the cost depends on the keys taken, not on the parked ones.
CREATE OR REPLACE FUNCTION :"schema".tube_private_hold_parked(
    in_tube text, in_shard integer, in_key text, in_error text, in_before timestamptz, in_seen pg_snapshot,
    only_new boolean, in_limit integer
) RETURNS bigint[]
LANGUAGE sql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
    SELECT ARRAY(
        SELECT k.park_id
        FROM (
            SELECT q.park_id, q.parked_at, q.retried_at
            FROM tube_private_parked(in_tube, in_shard, in_key, in_error, in_before, in_seen) AS q
            WHERE NOT only_new OR q.retried_at IS NULL
            ORDER BY q.park_id LIMIT in_limit) AS p
        JOIN tube_parked AS k ON k.park_id = p.park_id
        WHERE k.retried_at IS NOT DISTINCT FROM p.retried_at AND k.parked_at = p.parked_at
        ORDER BY k.park_id FOR UPDATE OF k)
$$;

-- tube_private_audit_parked: records an action on parked keys. The text searched in errors may quote a document, so it is
-- not kept, only that there was one.
CREATE OR REPLACE FUNCTION :"schema".tube_private_audit_parked(
    action text, tube text, in_shard integer, in_key text, in_error text, in_before timestamptz, keys text[], count integer
) RETURNS void
LANGUAGE sql AS $$
    SELECT tube_audit_add(action, tube, jsonb_strip_nulls(jsonb_build_object(
        'shard', in_shard, 'key', left(in_key, 100), 'by_error', CASE WHEN in_error IS NOT NULL THEN true END,
        'before', in_before, 'count', count, 'keys', tube_private_some_keys(keys))))
$$;

-- tube_private_check_limit: refuses a limit below a number.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_limit(in_limit integer, at_least integer = 1) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF in_limit IS NULL OR in_limit < at_least THEN
        RAISE EXCEPTION 'in_limit is %', coalesce(in_limit::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = format('It is %s or more.', at_least);
    END IF;
END
$$;
