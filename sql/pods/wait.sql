-- Waiting until committed changes are delivered, and where one key is now.
--
-- A touch is delivered when its pod is gone: a pod stays in its tube until each of its keys is at the sink, or parked. So
-- all that was committed before a moment is delivered when none of the pods visible then is left. A waiter takes the
-- sequence's last number S at that moment (tube_settle_seq), and waits until no pod up to S is left.
--
-- A later commit may have drawn a lower number than S. A caller who means all numbers up to S, and not only the ones that he
-- has seen committed, first waits until S is settled for the tube (settle.sql): holders := tube_settle_holders(tube) after S
-- was read, until tube_settle_left(tube, holders).
--
-- How a waiter learns of it: in a dedicated session, LISTEN on tube_delivered_channel(tube), then
-- tube_delivered_watch(tube), then tube_undelivered(tube, S). A purge that sees a watcher notifies with "partitions
-- partition seq", the least seq that is left in the partition, or 0. Watchers are seen by an advisory lock that they share,
-- so a dead one leaves nothing behind, and a purge without waiters pays for one look at a lock. A notification is a hint:
-- ask tube_undelivered again, and do so every second or so, because pods also leave a tube in other ways.

CREATE OR REPLACE FUNCTION :"schema".tube_delivered_channel(tube text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp
RETURN 'pytube_done_' || md5(:'schema' || '.' || tube);
COMMENT ON FUNCTION :"schema".tube_delivered_channel IS 'Returns the NOTIFY channel of deliveries of a tube.';

-- Errors: TU102 unknown tube. Locks: up to 16 advisory locks of the session, each shared with other watchers. It waits for
-- purges that are under way: the next statements see their deletions.
CREATE OR REPLACE FUNCTION :"schema".tube_delivered_watch(tube text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    PERFORM tube_private_require(tube);
    -- All, whatever the number of partitions is now: it may change while the session waits.
    PERFORM pg_advisory_lock_shared(tube_private_watch_lock(tube, p.part)) FROM generate_series(0, 15) AS p (part);
END
$$;
COMMENT ON FUNCTION :"schema".tube_delivered_watch IS
    'Makes purges notify this channel until the session ends. LISTEN first.';

-- tube_private_watch_lock: the advisory lock by which purges of a partition see that there are waiters.
-- Partitions 16 apart share one, so that a watcher of a tube with many takes few. Their purges may take each other for a
-- watcher, and then notify once too often.
CREATE OR REPLACE FUNCTION :"schema".tube_private_watch_lock(tube text, partition integer) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN hashtextextended(tube_private_schema() || ' watch ' || tube, partition % 16);
END
$$;

-- tube_private_tell_watchers: notifies the waiters of the tube, if there are any. After a purge, in its transaction.
-- The lock is kept until the end of the transaction: a watcher that comes meanwhile waits for it, and then sees the purge.
CREATE OR REPLACE FUNCTION :"schema".tube_private_tell_watchers(tube text, partitions integer, partition integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(tube_private_watch_lock(tube, partition)) AND tube_private_may_notify() THEN
        PERFORM pg_notify(tube_delivered_channel(tube), concat_ws(' ', partitions, partition,
            coalesce(tube_private_least_seq(tube, partitions, partition), 0)));
    END IF;
END
$$;

-- tube_private_least_seq: the least seq of a partition, of both classes; NULL when it is empty.
CREATE OR REPLACE FUNCTION :"schema".tube_private_least_seq(tube text, partitions integer, partition integer) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off -- a queue's statistics are never right
SET enable_bitmapscan = off SET enable_indexscan = on SET jit = off AS $$
DECLARE
    found bigint;
BEGIN
    EXECUTE (
        SELECT 'SELECT least(' || string_agg(format(
            '(SELECT p.seq FROM %s AS p WHERE %s AND (CASE WHEN p.op = ''B'' THEN 1 ELSE 0 END) = %s ORDER BY p.seq LIMIT 1)',
            tube_private_qualify(tube), s.slice, c.class), ', ') || ')'
        FROM unnest((tube_private_slices(tube, partitions, partition)).slices) AS s (slice), generate_series(0, 1) AS c (class)
    ) INTO found;
    RETURN found;
END
$$;

-- Arguments: tube; up_to: a seq.
-- Result: a row per partition: its number, the tube's number of partitions, and the least seq that is left there; none when
--   all is delivered or parked (tube_park_list).
-- Errors: TU102 unknown tube.
CREATE OR REPLACE FUNCTION :"schema".tube_undelivered(tube text, up_to bigint) RETURNS TABLE (
    partition integer, partitions integer, least_seq bigint
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    partitions := (tube_private_require(tube)).partitions;
    FOR part IN 0 .. partitions - 1 LOOP
        partition := part;
        least_seq := tube_private_least_seq(tube, partitions, part);
        IF least_seq <= up_to THEN
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION :"schema".tube_undelivered IS
    'Lists partitions that still have pods up to a seq; no row: all are delivered or parked. With the seq of '
    'tube_settle_seq() it covers all that was committed before.';

-- Result: no row when none is; else one: their number, 1000 at most, and one of the keys. Errors: TU102 unknown tube.
CREATE OR REPLACE FUNCTION :"schema".tube_delivered_parked(tube text) RETURNS TABLE (parked bigint, shard integer, id text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    PERFORM tube_private_require(tube);
    RETURN QUERY
    SELECT count(*) OVER (), f.shard, f.id
    FROM (SELECT k.shard, k.id FROM tube_parked AS k WHERE k.tube = tube_delivered_parked.tube AND k.id IS NOT NULL LIMIT 1000) AS f
    LIMIT 1;
END
$$;
COMMENT ON FUNCTION :"schema".tube_delivered_parked IS
    'Returns how many keys are parked (1000 at most), and one of them; no row if none.';

-- Arguments: tube; up_to: a seq; shards, ids: the keys, as two arrays of one length, ids as text.
-- Result: a row per key that waits. Errors: TU102 unknown tube; 22P02 an id of another type than the tube's keys.
CREATE OR REPLACE FUNCTION :"schema".tube_keys_waiting(tube text, up_to bigint, shards integer[], ids text[]) RETURNS TABLE (
    shard integer, id text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET jit = off AS $$
DECLARE
    key_type CONSTANT regtype := (tube_private_require(tube)).key_type;
BEGIN
    RETURN QUERY EXECUTE format($sql$
        SELECT DISTINCT w.shard, w.id::text
        FROM %s AS p, unnest(p.ids) AS k (id), unnest($2, $3::%s[]) AS w (shard, id)
        WHERE p.seq <= $1 AND p.shard = ANY ($2) AND p.ids && $3::%2$s[] AND w.shard = p.shard AND w.id = k.id$sql$,
        tube_private_qualify(tube), key_type)
    USING up_to, shards, ids;
END
$$;
COMMENT ON FUNCTION :"schema".tube_keys_waiting IS
    'Returns which of the given keys wait in pods up to a seq. Reads the whole tube.';

-- Arguments: tube; shard, id: the key, as text; most: at most so many pods of the partition are looked at, incremental ones
--   first.
-- Result: a row per pod with the key. marked_by: the term that has taken it; NULL when none has. looked_at: how many pods were
--   looked at, in every row; one row without a seq when the key is in none of them.
-- Errors: TU102 unknown tube; 22P02 an id of another type than the tube's keys.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_of(tube text, shard integer, id text, most integer = 100000) RETURNS TABLE (
    seq bigint, op text, ts timestamptz, keys integer, marked_by uuid, looked_at bigint
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp
SET enable_seqscan = off -- a queue's statistics are never right
SET enable_bitmapscan = off SET enable_indexscan = on SET jit = off AS $$
DECLARE
    parts CONSTANT integer := (tube_private_require(tube)).partitions;
    queue CONSTANT text := tube_private_qualify(tube);
    pods text;
BEGIN
    SELECT string_agg(format('(SELECT q.ctid, q.shard, q.ids FROM %s AS q WHERE %s'
            ' AND (CASE WHEN q.op = ''B'' THEN 1 ELSE 0 END) = %s ORDER BY q.seq LIMIT $3)', queue, s.slice, c.class),
        ' UNION ALL ' ORDER BY c.class)
    INTO pods
    FROM unnest((tube_private_slices(tube, parts, tube_pods_of.shard % parts)).slices) AS s (slice),
        generate_series(0, 1) AS c (class);
    -- One pass that keeps only the places of its finds: a hundred thousand pods may hold 160 MB of ids.
    RETURN QUERY EXECUTE format($sql$
        SELECT f.seq, f.op::text, f.ts, cardinality(f.ids), f.leader_id, l.looked_at
        FROM (
            SELECT count(*) AS looked_at, array_agg(p.ctid) FILTER (WHERE p.shard = $1 AND $2::%s = ANY (p.ids)) AS places
            FROM (SELECT * FROM (%s) AS u LIMIT $3) AS p) AS l
        LEFT JOIN LATERAL unnest(l.places) AS u (place) ON true
        LEFT JOIN %s AS f ON f.ctid = u.place
        ORDER BY (f.op = 'B'), f.seq$sql$, tube_private_key_type(tube), pods, queue)
    USING tube_pods_of.shard, tube_pods_of.id, most;
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_of IS
    'Lists the pods in which a key waits, in order of delivery, and the terms that have marked them.';
