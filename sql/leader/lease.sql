-- The lease election: how processes share the partitions of a tube without a broker.

-- Called every few moments by each process. A fair share is partitions / instances, and one more for as many instances
-- as that leaves partitions, by rank.
-- Arguments: tubes; instance_id, the process; client_id, a label; ttl, how long a process counts without a tick.
-- Result: a row per tube: its partitions; instances that share it, this one included; free: the partitions that have
--   no leader, or whose leader's lease (or hold, under 'neli') has run out; mine: those whose last leader is this
--   process, whether its lease runs or not. Both by number, and no partition is in both. rank: how many of the
--   instances come before this one, in an order that is the same for all. No row for an unknown tube, nor for a tube that
--   is just being made or dropped: the next tick has it.
-- Errors: 22023 ttl makes no sense; 22004 a value is missing.
-- Locks: until the transaction ends, the process's own rows of tube_instance that it writes, which is once in ttl / 5 for
--   each tube, and the registry rows of these tubes FOR KEY SHARE. It waits for no registry row. Then it also removes
--   rows of processes that were not seen for ttl, except locked ones.
-- A lost answer does no harm: tick again.
CREATE OR REPLACE FUNCTION :"schema".tube_lease_ticks(
    tubes text[], instance_id uuid, client_id text, ttl interval
) RETURNS TABLE (tube text, partitions integer, instances integer, free integer[], mine integer[], rank integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '1s' AS $$
#variable_conflict use_column
DECLARE
    me CONSTANT uuid := tube_lease_ticks.instance_id;
    label CONSTANT text := tube_lease_ticks.client_id;
    looked_at timestamptz := clock_timestamp(); -- once: a fleet with many tubes has thousands of rows
BEGIN
    IF tubes IS NULL OR me IS NULL OR label IS NULL THEN
        RAISE EXCEPTION 'tubes, instance_id and client_id must be given' USING ERRCODE = 'null_value_not_allowed';
    ELSIF ttl IS NULL OR ttl <= interval '0' THEN
        RAISE EXCEPTION 'ttl is %, and must be more than nothing', coalesce(ttl::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give it several times the pause between ticks.';
    END IF;
    WITH known AS MATERIALIZED (
        SELECT r.tube FROM tube_registry AS r
        WHERE r.tube = ANY (tubes) AND NOT EXISTS ( -- or each tick of each process would write locks to all rows
            SELECT FROM tube_instance AS i
            WHERE i.tube = r.tube AND i.instance_id = me AND i.client_id = label AND i.seen_at >= looked_at - ttl / 5)
        FOR KEY SHARE OF r SKIP LOCKED
    )
    INSERT INTO tube_instance AS i (tube, instance_id, client_id, seen_at)
    SELECT k.tube, me, label, clock_timestamp() FROM known AS k ORDER BY k.tube
    ON CONFLICT ON CONSTRAINT tube_instance_pkey
    DO UPDATE SET client_id = excluded.client_id, seen_at = excluded.seen_at
    WHERE i.seen_at < excluded.seen_at - ttl / 5 OR i.client_id <> excluded.client_id;
    IF FOUND THEN -- not in each tick: it looks at all rows of all processes
        -- Passing over locked rows: two processes that find each other old must not wait for each other.
        DELETE FROM tube_instance AS i
        WHERE (i.tube, i.instance_id) IN (
            SELECT o.tube, o.instance_id FROM tube_instance AS o
            WHERE o.tube = ANY (tubes) AND o.seen_at < clock_timestamp() - ttl
            FOR UPDATE SKIP LOCKED);
    END IF;

    looked_at := clock_timestamp();
    RETURN QUERY
    WITH share AS (
        SELECT i.tube, count(*)::integer AS instances,
            -- Another order for each tube, or the same process would have the odd partition of all. Each process looks
            -- at all others of all tubes, so it has to be cheap: md5 of texts takes ten times as long.
            (count(*) FILTER (
            WHERE (uuid_hash_extended(i.instance_id, hashtext(i.tube)), i.instance_id)
                < (uuid_hash_extended(me, hashtext(i.tube)), me)))::integer AS rank
        FROM tube_instance AS i
        WHERE i.tube = ANY (tubes) AND i.seen_at >= looked_at - ttl
        GROUP BY i.tube
        HAVING bool_or(i.instance_id = me)
    )
    SELECT r.tube, r.partitions, s.instances,
        coalesce(array_agg(l.partition ORDER BY l.partition) FILTER (WHERE l.instance_id IS DISTINCT FROM me
            AND (l.leader_id IS NULL OR l.renewed_at + coalesce(l.lease, l.hold) <= looked_at)), '{}'),
        coalesce(array_agg(l.partition ORDER BY l.partition) FILTER (WHERE l.instance_id = me), '{}'),
        s.rank
    FROM share AS s JOIN tube_registry AS r ON r.tube = s.tube JOIN tube_leader AS l ON l.tube = r.tube
    GROUP BY r.tube, r.partitions, s.instances, s.rank;
END
$$;
COMMENT ON FUNCTION :"schema".tube_lease_ticks IS
    'Registers a process in the lease election of its tubes; returns, per tube, its partitions and the free ones.';

-- Errors: TU102 unknown tube; 55P03 it is just being made or dropped; else those of tube_lease_ticks.
CREATE OR REPLACE FUNCTION :"schema".tube_lease_tick(
    tube text, instance_id uuid, client_id text, ttl interval
) RETURNS TABLE (partitions integer, instances integer, free integer[], mine integer[], rank integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    SELECT t.partitions, t.instances, t.free, t.mine, t.rank INTO partitions, instances, free, mine, rank
    FROM tube_lease_ticks(ARRAY[tube_lease_tick.tube], instance_id, client_id, ttl) AS t;
    IF NOT FOUND THEN
        PERFORM tube_private_require(tube, 'any');
        RAISE EXCEPTION 'tube % is just being changed', quote_literal(tube)
            USING ERRCODE = 'lock_not_available', HINT = 'Try again.';
    END IF;
    RETURN NEXT;
END
$$;
COMMENT ON FUNCTION :"schema".tube_lease_tick IS 'As tube_lease_ticks, for one tube.';

-- The others see it at their next tick, and share the released partitions.
-- Arguments: tube, or NULL for all tubes; instance_id, the process.
-- Locks: the process's own rows of tube_instance, until the transaction ends. A lost answer: call again, or let the rows
--   grow old.
CREATE OR REPLACE FUNCTION :"schema".tube_lease_leave(tube text, instance_id uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    DELETE FROM tube_instance AS i
    WHERE i.instance_id = tube_lease_leave.instance_id
        AND (tube_lease_leave.tube IS NULL OR i.tube = tube_lease_leave.tube)
$$;
COMMENT ON FUNCTION :"schema".tube_lease_leave IS 'Removes a process from the lease election of a tube; NULL: of all.';

-- Arguments: in_tube, or NULL for all.
-- Result: a row per tube (or outbox) and process, by tube. seen_at: of the last tick that was written down, which is one
--   in ttl / 5. Others remove a process that ticks no more; the last one stays. No row for an unknown tube, nor for a
--   worker under another election.
CREATE OR REPLACE FUNCTION :"schema".tube_instances(in_tube text = NULL) RETURNS TABLE (
    tube text, instance_id uuid, client_id text, seen_at timestamptz
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT i.tube, i.instance_id, i.client_id, i.seen_at FROM tube_instance AS i
    WHERE in_tube IS NULL OR i.tube = in_tube
    ORDER BY i.tube, i.instance_id
$$;
COMMENT ON FUNCTION :"schema".tube_instances IS
    'Lists the processes in the lease election, and when each was last seen.';
