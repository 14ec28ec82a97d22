-- The lease election: how processes share the partitions of a tube without a broker.

-- tube_lease_tick: a process takes part in the lease election, and learns what it may lead.
--
-- Called every few moments by each process that wants partitions of the tube. A fair share is partitions / instances,
-- and one more for as many instances as that leaves partitions, by rank.
--
-- Arguments: tube; instance_id, the process; client_id, a label; ttl, how long a process counts without a tick.
-- Result: one row: partitions of the tube; instances that share it, this one included; free: the partitions that have
--   no leader, or whose leader's lease (or hold, under 'neli') has run out; mine: those whose last leader is this
--   process, whether its lease runs or not. Both by number, and no partition is in both. rank: how many of the
--   instances come before this one, in an order that is the same for all.
-- Errors: TU102 unknown tube; 22023 ttl makes no sense; 22004 a value is missing; 55P03 tube_ensure_exists or
--   tube_ensure_absent kept the registry row for longer than a second.
-- Locks: until the transaction ends, the registry row FOR KEY SHARE and the process's own row of tube_instance. Rows of
--   processes that were not seen for ttl are removed, except those that somebody has locked.
-- A lost answer does no harm: tick again.
CREATE OR REPLACE FUNCTION :"schema".tube_lease_tick(
    tube text, instance_id uuid, client_id text, ttl interval
) RETURNS TABLE (partitions integer, instances integer, free integer[], mine integer[], rank integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    me CONSTANT uuid := instance_id;
BEGIN
    IF instance_id IS NULL OR client_id IS NULL THEN
        RAISE EXCEPTION 'instance_id and client_id must be given' USING ERRCODE = 'null_value_not_allowed';
    ELSIF ttl IS NULL OR ttl <= interval '0' THEN
        RAISE EXCEPTION 'ttl is %, and must be more than nothing', coalesce(ttl::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give it several times the pause between ticks.';
    END IF;
    SELECT r.partitions INTO partitions FROM tube_registry AS r WHERE r.tube = tube_lease_tick.tube FOR KEY SHARE;
    IF NOT FOUND THEN
        PERFORM tube_private_require(tube);
    END IF;

    INSERT INTO tube_instance AS i (tube, instance_id, client_id, seen_at)
    VALUES (tube_lease_tick.tube, me, tube_lease_tick.client_id, clock_timestamp())
    ON CONFLICT ON CONSTRAINT tube_instance_pkey
    DO UPDATE SET client_id = excluded.client_id, seen_at = excluded.seen_at;
    -- Passing over locked rows: two processes that find each other old must not wait for each other.
    DELETE FROM tube_instance AS i
    WHERE (i.tube, i.instance_id) IN (
        SELECT o.tube, o.instance_id FROM tube_instance AS o
        WHERE o.tube = tube_lease_tick.tube AND o.seen_at < clock_timestamp() - ttl
        FOR UPDATE SKIP LOCKED);

    SELECT count(*), count(*) FILTER (WHERE i.instance_id < me) INTO instances, rank
    FROM tube_instance AS i
    WHERE i.tube = tube_lease_tick.tube AND i.seen_at >= clock_timestamp() - ttl;
    SELECT coalesce(array_agg(l.partition ORDER BY l.partition) FILTER (WHERE l.instance_id IS DISTINCT FROM me
            AND (l.leader_id IS NULL OR l.renewed_at + coalesce(l.lease, l.hold) <= clock_timestamp())), '{}'),
        coalesce(array_agg(l.partition ORDER BY l.partition) FILTER (WHERE l.instance_id = me), '{}')
    INTO free, mine
    FROM tube_leader AS l
    WHERE l.tube = tube_lease_tick.tube;
    RETURN NEXT;
END
$$;
COMMENT ON FUNCTION :"schema".tube_lease_tick IS
    'Registers a process in the lease election and returns its own partitions and the free ones.';

-- tube_lease_leave: a process takes part in the lease election no more; nothing is done when it took no part.
--
-- The others see it at their next tick, and share what it released.
--
-- Locks: the process's own row of tube_instance, until the transaction ends. A lost answer: call again, or let the row
--   grow old.
CREATE OR REPLACE FUNCTION :"schema".tube_lease_leave(tube text, instance_id uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    DELETE FROM tube_instance AS i
    WHERE i.tube = tube_lease_leave.tube AND i.instance_id = tube_lease_leave.instance_id
$$;
COMMENT ON FUNCTION :"schema".tube_lease_leave IS
    'Takes a process out of the lease election, so that the others share its partitions.';
