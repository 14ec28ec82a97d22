-- What operators do with the pods that wait in a tube.
--
-- Which ones: all arguments that are not NULL have to fit. in_from, in_to: seqs, both included; in_key: an id, as text.
-- To look for a key is to look at all pods of the range. What a worker has marked is *in flight*, and left alone; a worker
-- that has come to rest for a pause has nothing in flight. Control pods are left alone, too: they belong to
-- backfills, whose commands end them.

-- tube_private_pod_ranges: the conditions on pods (called p) of each class and partition, for each of which an index serves.
CREATE OR REPLACE FUNCTION :"schema".tube_private_pod_ranges(
    reg :"schema".tube_registry, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text
) RETURNS TABLE (class integer, condition text)
LANGUAGE sql AS $$
    SELECT c.class, concat(s.slice, ' AND (CASE WHEN op = ''B'' THEN 1 ELSE 0 END) = ', c.class,
        ' AND p.seq >= ' || in_from, ' AND p.seq <= ' || in_to, ' AND p.shard = ' || in_shard,
        CASE WHEN in_key IS NOT NULL THEN format(' AND p.ids @> ARRAY[%L]::%s[]', in_key, reg.key_type) END)
    FROM generate_series(0, 1) AS c (class), generate_series(0, reg.partitions - 1) AS n (partition),
        LATERAL unnest((tube_private_slices(reg.tube, reg.partitions, n.partition)).slices) AS s (slice)
    WHERE n.partition = coalesce(in_partition, in_shard % reg.partitions, n.partition)
    ORDER BY c.class, n.partition
$$;

-- tube_private_in_flight: whether a live term has marked a pod, for a query whose pods are called p.
-- A term that has come to rest for a pause that is still in force has none, but for the pod of a step that it takes. After
-- the pause it may mark before its next renewal says that it does not rest any more.
CREATE OR REPLACE FUNCTION :"schema".tube_private_in_flight(leader_id uuid, seq bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM tube_leader AS l WHERE l.leader_id = $1)
        AND (NOT EXISTS (
                SELECT FROM tube_halted AS h JOIN tube_leader AS l ON l.leader_id = h.leader_id
                CROSS JOIN LATERAL tube_private_pause_of(l.tube, l.partitions, l.partition) AS p
                WHERE h.leader_id = $1)
            OR EXISTS (SELECT FROM tube_step AS s WHERE s.leader_id = $1 AND s.seq = $2 AND s.ended_at IS NULL))
$$;

-- tube_private_check_pods: the tube that arguments of these functions mean, if they make sense.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_pods(
    tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer
) RETURNS :"schema".tube_registry
LANGUAGE plpgsql AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(tube);
BEGIN
    PERFORM tube_private_check_limit(in_limit);
    IF in_partition IS NOT NULL THEN
        PERFORM tube_private_check_partition(tube, reg.partitions, in_partition);
    END IF;
    IF in_shard < 0 OR in_shard % reg.partitions <> in_partition THEN
        RAISE EXCEPTION 'shard % is in no partition that was asked for', in_shard
            USING ERRCODE = 'TU106', HINT = 'The partition of a shard is the shard modulo the number of partitions.';
    ELSIF in_from > in_to THEN
        RAISE EXCEPTION 'no seq is from % to %', in_from, in_to
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give the lesser one first.';
    END IF;
    PERFORM tube_private_kept_key(reg, in_key);
    RETURN reg;
END
$$;

-- tube_private_kept_key: a key as texts of keys are kept and sent: 7 for 007, a uuid in small letters. 22P02, 22003 when it
-- is none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_kept_key(reg :"schema".tube_registry, in_key text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    kept text;
BEGIN
    EXECUTE format('SELECT %L::%s::text', in_key, reg.key_type) INTO kept;
    RETURN kept;
END
$$;

-- Arguments: tube; which ones; in_limit: at most so many; in_keys: at most so many ids of each.
-- Result: seq, partition, op, shard; keys: the first ids, as texts; key_count: how many; control: the type of a
--   control pod; ts; state: waiting, in flight (client_id says by whom), or left (marked by a term that is over: the next
--   one takes it); failures: of how many of its keys attempts failed.
-- Errors: TU102 unknown tube; TU103 unknown partition; TU106 a shard of another partition; 22023 from > to, a bad limit;
--   22P02, 22003 the key is not of the tube's type.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_list(
    tube text, in_partition integer = NULL, in_from bigint = NULL, in_to bigint = NULL, in_shard integer = NULL,
    in_key text = NULL, in_limit integer = 100, in_keys integer = 100
) RETURNS TABLE (
    seq bigint, partition integer, op text, shard integer, keys text[], key_count integer, control text, ts timestamptz,
    state text, client_id text, failures bigint
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET enable_seqscan = off
SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_check_pods(tube, in_partition, in_from, in_to, in_shard, in_key, in_limit);
BEGIN
    RETURN QUERY EXECUTE format($sql$
        SELECT c.seq, c.shard %% %s, c.op::text, c.shard::integer, c.ids[:$2]::text[], cardinality(c.ids),
            CASE WHEN c.ids = '{}' THEN coalesce(c.payload ->> 'type', 'other') END, c.ts,
            CASE WHEN c.leader_id IS NULL THEN 'waiting' WHEN f.flies THEN 'in flight' ELSE 'left' END,
            CASE WHEN f.flies THEN l.client_id END,
            (SELECT count(*) FROM unnest(c.ids::text[]) AS k (id) JOIN tube_attempt AS a
                ON a.tube = $1 AND a.shard = c.shard AND md5(a.id) = md5(k.id) AND a.id = k.id)
        FROM (SELECT u.* FROM (%s) AS u ORDER BY u.class, u.seq LIMIT $3) AS c
        CROSS JOIN LATERAL (SELECT tube_private_in_flight(c.leader_id, c.seq)) AS f (flies)
        LEFT JOIN tube_leader AS l ON l.leader_id = c.leader_id
        ORDER BY c.class, c.seq$sql$, reg.partitions, (
            -- Each class of each partition comes by the index of the tube; the query merges them.
            SELECT string_agg(format('(SELECT %s AS class, p.* FROM %s AS p WHERE %s ORDER BY p.seq LIMIT $3)', r.class,
                tube_private_qualify(reg.tube), r.condition), ' UNION ALL ')
            FROM tube_private_pod_ranges(reg, in_partition, in_from, in_to, in_shard, in_key) AS r))
    USING reg.tube, in_keys, in_limit;
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_list IS 'Lists waiting pods, in processing order.';

-- Result: pods: all of them; in_flight and control: those among them that are left alone; newest: the greatest seq.
-- Errors: as tube_pods_list (TU102, TU103, TU106).
CREATE OR REPLACE FUNCTION :"schema".tube_pods_count(
    tube text, in_partition integer = NULL, in_from bigint = NULL, in_to bigint = NULL, in_shard integer = NULL,
    in_key text = NULL
) RETURNS TABLE (pods bigint, in_flight bigint, control bigint, newest bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET enable_seqscan = off
SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_check_pods(tube, in_partition, in_from, in_to, in_shard, in_key, 1);
BEGIN
    RETURN QUERY EXECUTE (
        SELECT format($sql$
            SELECT count(*), count(*) FILTER (WHERE c.leader_id IS NOT NULL AND tube_private_in_flight(c.leader_id, c.seq)),
                count(*) FILTER (WHERE c.is_control), max(c.seq)
            FROM (%s) AS c$sql$, string_agg(format(
                'SELECT p.seq, p.leader_id, p.ids = ''{}'' AS is_control FROM %s AS p WHERE %s',
                tube_private_qualify(reg.tube), r.condition), ' UNION ALL '))
        FROM tube_private_pod_ranges(reg, in_partition, in_from, in_to, in_shard, in_key) AS r);
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_count IS 'Counts the pods of tube_pods_list without a limit.';

-- tube_private_hold_pods: locks pods for one of the functions below; their places, of those in flight and of the others.
-- First they are locked, then looked at by a separate statement: a worker that has marked one meanwhile is seen. While
-- they are locked, they stay where they are. only_free: those in flight are passed over, and don't count for in_limit: they
-- are the first of the queue, and may be more than that.
CREATE OR REPLACE FUNCTION :"schema".tube_private_hold_pods(
    reg :"schema".tube_registry, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text,
    in_limit integer, only_free boolean, OUT free tid[], OUT flying tid[], OUT first_flying bigint, OUT of_client text
)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    locked tid[] := '{}';
    more tid[];
    condition text;
BEGIN
    FOR condition IN
        SELECT r.condition FROM tube_private_pod_ranges(reg, in_partition, in_from, in_to, in_shard, in_key) AS r
    LOOP
        EXECUTE format('SELECT array_agg(h.ctid) FROM (SELECT p.ctid FROM %s AS p WHERE %s AND p.ids <> ''{}''%s'
            ' ORDER BY p.seq LIMIT %s FOR UPDATE) AS h', tube_private_qualify(reg.tube), condition,
            CASE WHEN only_free THEN ' AND (p.leader_id IS NULL OR NOT tube_private_in_flight(p.leader_id, p.seq))' END,
            in_limit - cardinality(locked)) INTO more;
        locked := locked || coalesce(more, '{}');
        EXIT WHEN cardinality(locked) = in_limit;
    END LOOP;
    EXECUTE format($sql$
        SELECT coalesce(array_agg(p.ctid) FILTER (WHERE NOT f.flies), '{}'),
            coalesce(array_agg(p.ctid) FILTER (WHERE f.flies), '{}'),
            min(p.seq) FILTER (WHERE f.flies), min(l.client_id) FILTER (WHERE f.flies)
        FROM %s AS p
        CROSS JOIN LATERAL (
            SELECT p.leader_id IS NOT NULL AND tube_private_in_flight(p.leader_id, p.seq)) AS f (flies)
        LEFT JOIN tube_leader AS l ON l.leader_id = p.leader_id
        WHERE p.ctid = ANY ($1)$sql$, tube_private_qualify(reg.tube))
    USING locked INTO free, flying, first_flying, of_client;
END
$$;

-- The keys get new pods: an old seq may lie below the floor of a worker, which would not see it. Order among keys changes;
-- the last state of each wins as always. Pods in flight are left alone, but for a single key (in_key): that key is touched
-- again no matter who has it, and all old pods stay.
-- Arguments: tube; which ones; in_limit: at most so many pods in this transaction, so that many can be retried in several.
-- Result: how many pods there were; call until it is 0, with in_to, or it meets the new ones; with in_key once.
-- Errors: as tube_pods_list; 40P01: try again; TU102, TU103, TU106.
-- Locks: the registry row FOR KEY SHARE and the pods, until the transaction ends.
-- A lost answer: look at the tube, or call again: then keys may be touched twice, which does no harm.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_retry(
    tube text, in_partition integer = NULL, in_from bigint = NULL, in_to bigint = NULL, in_shard integer = NULL,
    in_key text = NULL, in_limit integer = 10000
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_check_pods(tube, in_partition, in_from, in_to, in_shard, in_key, in_limit);
    queue CONSTANT text := tube_private_qualify(reg.tube);
    held record;
    chosen tid[];
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = reg.tube FOR KEY SHARE;
    SELECT * INTO held
    FROM tube_private_hold_pods(reg, in_partition, in_from, in_to, in_shard, in_key, in_limit, in_key IS NULL);
    chosen := held.free || CASE WHEN in_key IS NULL THEN '{}' ELSE held.flying END;
    IF chosen = '{}' THEN
        RETURN 0;
    END IF;
    EXECUTE format(CASE WHEN in_key IS NULL
        THEN 'INSERT INTO %1$s (op, shard, ids, payload) SELECT p.op, p.shard, p.ids, p.payload FROM %1$s AS p'
            ' WHERE p.ctid = ANY ($1) ORDER BY p.seq'
        ELSE 'INSERT INTO %1$s (op, shard, ids) SELECT ''U'', p.shard, ARRAY[%3$L]::%2$s[] FROM %1$s AS p'
            ' WHERE p.ctid = ANY ($1) GROUP BY p.shard' END, queue, reg.key_type, in_key) USING chosen;
    PERFORM tube_private_wake_sleepers(reg.tube, NULL);
    IF in_key IS NULL THEN
        EXECUTE format('DELETE FROM %s AS p WHERE p.ctid = ANY ($1)', queue) USING chosen;
    END IF;
    PERFORM tube_private_audit_pods('pods retry', reg.tube, in_partition, in_from, in_to, in_shard, in_key,
        cardinality(chosen));
    RETURN cardinality(chosen);
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_retry IS 'Returns the keys of pods to the queue, and the number of pods.';

-- The sink stays as it is until the keys are touched again. Failures of the keys are forgotten.
-- Arguments: tube; which ones (with in_key: only that key of them); in_limit: at most so many pods in this transaction.
-- Result: how many pods there were.
-- Errors: as tube_pods_list; TU142 some are in flight, so nothing is done; 40P01: try again; TU102, TU103, TU106.
-- Locks: the pods, until the transaction ends.
-- A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_ack(
    tube text, in_partition integer = NULL, in_from bigint = NULL, in_to bigint = NULL, in_shard integer = NULL,
    in_key text = NULL, in_limit integer = 10000
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_check_pods(tube, in_partition, in_from, in_to, in_shard, in_key, in_limit);
    held record;
BEGIN
    SELECT * INTO held FROM tube_private_hold_pods(reg, in_partition, in_from, in_to, in_shard, in_key, in_limit, false);
    IF held.flying <> '{}' THEN
        RAISE EXCEPTION '% of these pods are in flight, the first is %, by %', cardinality(held.flying), held.first_flying,
            held.of_client
            USING ERRCODE = 'TU142', HINT = 'Pause the tube or the partition first (tube_pause), and try again.';
    ELSIF held.free = '{}' THEN
        RETURN 0;
    END IF;
    PERFORM tube_private_forget_failures(reg, held.free, in_key);
    PERFORM tube_private_remove_key(reg, held.free, in_key);
    PERFORM tube_private_audit_pods('pods discard', reg.tube, in_partition, in_from, in_to, in_shard, in_key,
        cardinality(held.free));
    RETURN cardinality(held.free);
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_ack IS 'Removes pods as done, or one key from them, without sending anything.';

-- A worker that runs remembers them, too; it forgets them when its partition is paused, or its term ends.
-- Arguments: tube; in_partition, in_shard, in_key: of which keys; NULL: of all.
-- Result: of how many keys.
-- Errors: TU102 unknown tube; TU103 unknown partition; TU106 a shard of another partition. Locks: the rows, until the
--   transaction ends. A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_attempts_reset(
    tube text, in_partition integer = NULL, in_shard integer = NULL, in_key text = NULL
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_check_pods(tube, in_partition, NULL, NULL, in_shard, in_key, 1);
    of_key CONSTANT text := tube_private_kept_key(reg, in_key);
    gone integer;
BEGIN
    DELETE FROM tube_attempt AS a
    WHERE a.tube = reg.tube AND (in_partition IS NULL OR a.shard % reg.partitions = in_partition)
        AND a.shard = coalesce(in_shard, a.shard) AND a.id = coalesce(of_key, a.id);
    GET DIAGNOSTICS gone = ROW_COUNT;
    IF gone > 0 THEN
        PERFORM tube_audit_add('pods reset', reg.tube, jsonb_strip_nulls(jsonb_build_object(
            'partition', in_partition, 'shard', in_shard, 'key', left(in_key, 100), 'keys', gone)));
    END IF;
    RETURN gone;
END
$$;
COMMENT ON FUNCTION :"schema".tube_attempts_reset IS
    'Deletes failures of keys that will be retried; returns the number of keys.';

-- tube_private_forget_failures: deletes the failures of the keys of pods, or of one key of them.
CREATE OR REPLACE FUNCTION :"schema".tube_private_forget_failures(
    reg :"schema".tube_registry, places tid[], in_key text
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format($sql$
        DELETE FROM tube_attempt AS a
        USING (SELECT DISTINCT p.shard, unnest(p.ids::text[]) AS id FROM %s AS p WHERE p.ctid = ANY ($2)) AS k
        WHERE a.tube = $1 AND a.shard = k.shard AND md5(a.id) = md5(k.id) AND a.id = k.id AND k.id = coalesce($3, k.id)$sql$,
        tube_private_qualify(reg.tube)) USING reg.tube, places, tube_private_kept_key(reg, in_key);
END
$$;

-- tube_private_remove_key: takes a key out of pods, and those away that have no other; with in_key NULL all of the pods.
CREATE OR REPLACE FUNCTION :"schema".tube_private_remove_key(
    reg :"schema".tube_registry, places tid[], in_key text
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    queue CONSTANT text := tube_private_qualify(reg.tube);
BEGIN
    EXECUTE format('DELETE FROM %s AS p WHERE p.ctid = ANY ($1)%s', queue, CASE WHEN in_key IS NOT NULL
        THEN format(' AND array_remove(p.ids, %L::%s) = ''{}''', in_key, reg.key_type) ELSE '' END) USING places;
    IF in_key IS NOT NULL THEN
        EXECUTE format('UPDATE %1$s AS p SET ids = array_remove(p.ids, %2$L::%3$s) WHERE p.ctid = ANY ($1)',
            queue, in_key, reg.key_type) USING places;
    END IF;
END
$$;

-- tube_private_audit_pods: records an action on pods.
CREATE OR REPLACE FUNCTION :"schema".tube_private_audit_pods(
    action text, tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, pods integer
) RETURNS void
LANGUAGE sql AS $$
    SELECT tube_audit_add(action, tube, jsonb_strip_nulls(jsonb_build_object(
        'partition', in_partition, 'shard', in_shard, 'key', left(in_key, 100), 'from', in_from, 'to', in_to,
        'pods', pods)))
$$;
