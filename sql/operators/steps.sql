-- Steps: one document of a paused partition, delivered by its leader because an operator asks for it.
--
-- The leader does it, under its own term, with its own tokens and its own way to the sink: the one who watches needs neither
-- the sink nor a right to lead, no second writer appears beside a live worker, and under either election it is the worker
-- that was elected. An operator who goes away leaves at most the one step that was asked for.

-- Arguments: tube; seq, shard, key: the pod and the id; lasts: when no term has taken it by then, none will.
-- Result: the number of the step, for tube_step_state.
-- Errors: TU102 unknown tube; TU143 the partition is not paused, or its leader has not come to rest, or it has no leader;
--   TU144 another step of the partition is under way; TU145 there is no such pod, or it has no such key; TU106.
-- Locks: the registry row FOR KEY SHARE, until the transaction ends.
CREATE OR REPLACE FUNCTION :"schema".tube_step_ask(
    tube text, seq bigint, shard integer, key text, lasts interval = '30 seconds'
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_check_pods(tube, NULL, seq, seq, shard, key, 1);
    of_partition CONSTANT integer := shard % reg.partitions;
    of_key CONSTANT text := tube_private_kept_key(reg, key); -- or the worker would find no row of it, and delete the document
    number bigint;
    wrong text;
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = reg.tube FOR KEY SHARE;
    wrong := CASE
        WHEN tube_pause_reason(reg.tube, reg.partitions, of_partition) IS NULL THEN
            format('partition %s of tube %L is not paused', of_partition, reg.tube)
        WHEN NOT EXISTS (SELECT FROM tube_leader AS l
            WHERE l.tube = reg.tube AND l.partition = of_partition AND l.leader_id IS NOT NULL) THEN
            format('no worker leads partition %s of tube %L', of_partition, reg.tube)
        WHEN NOT EXISTS (SELECT FROM tube_leader AS l JOIN tube_halted AS h ON h.leader_id = l.leader_id
            WHERE l.tube = reg.tube AND l.partition = of_partition) THEN
            format('the leader of partition %s of tube %L has not come to rest yet', of_partition, reg.tube)
        END;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU143', MESSAGE = wrong,
            HINT = 'A step is taken by the leader of a paused partition: pause it, and see that a worker runs.';
    END IF;
    IF tube_private_pod_with(reg, seq, shard, key) IS NULL THEN
        RAISE EXCEPTION 'pod % of tube % has no key %/%, or is gone', seq, quote_literal(reg.tube), shard, key
            USING ERRCODE = 'TU145', HINT = 'List the pods again: another operator may have stepped over it.';
    END IF;
    -- A step that was not taken in time, or whose term is over, is over.
    UPDATE tube_step AS s SET ended_at = clock_timestamp(), outcome = 'unsent',
        error = CASE WHEN s.leader_id IS NULL THEN 'no worker took it in time' ELSE 'its term is over' END
    WHERE s.tube = reg.tube AND s.partition = of_partition AND s.ended_at IS NULL
        AND CASE WHEN s.leader_id IS NULL THEN s.expires_at <= clock_timestamp()
            ELSE NOT EXISTS (SELECT FROM tube_leader AS l WHERE l.leader_id = s.leader_id) END;
    DELETE FROM tube_step AS s WHERE s.tube = reg.tube AND s.ended_at < clock_timestamp() - interval '1 day';
    INSERT INTO tube_step AS s (tube, partitions, partition, seq, shard, id, expires_at)
    VALUES (reg.tube, reg.partitions, of_partition, tube_step_ask.seq, tube_step_ask.shard, of_key,
        clock_timestamp() + lasts)
    ON CONFLICT DO NOTHING RETURNING s.step_id INTO number;
    IF number IS NULL THEN
        RAISE EXCEPTION 'another step of partition % of tube % is under way', of_partition, quote_literal(reg.tube)
            USING ERRCODE = 'TU144', HINT = 'Another operator steps through this partition. Wait, or agree with them.';
    END IF;
    PERFORM tube_audit_add('pods step', reg.tube,
        jsonb_build_object('partition', of_partition, 'seq', seq, 'shard', shard, 'key', left(of_key, 100)));
    RETURN number;
END
$$;
COMMENT ON FUNCTION :"schema".tube_step_ask IS
    'Asks the leader of a paused partition to deliver one key of one pod; returns the number of the step.';

-- Result: a row: outcome: delivered; skipped: a transform wants nothing to be sent; failed: error says why, and the key stays;
--   unsent: nothing was sent, for error; NULL while it is under way. taken: whether a term has taken it. over: whether it
--   will have no outcome any more: it was not taken in time, or its term is over, and then it may or may not have been
--   delivered, and the key stays. No row for an unknown step.
CREATE OR REPLACE FUNCTION :"schema".tube_step_state(in_step bigint) RETURNS TABLE (
    outcome text, error text, taken boolean, over boolean
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT s.outcome, s.error, s.leader_id IS NOT NULL, CASE
        WHEN s.ended_at IS NOT NULL THEN false
        WHEN s.leader_id IS NULL THEN s.expires_at <= clock_timestamp()
        ELSE NOT EXISTS (SELECT FROM tube_leader AS l WHERE l.leader_id = s.leader_id) END
    FROM tube_step AS s WHERE s.step_id = in_step
$$;
COMMENT ON FUNCTION :"schema".tube_step_state IS 'Returns the outcome of a step. over: it will have none.';

CREATE OR REPLACE FUNCTION :"schema".tube_step_cancel(in_step bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    UPDATE tube_step AS s SET ended_at = clock_timestamp(), outcome = 'unsent', error = 'it was taken back'
    WHERE s.step_id = in_step AND s.leader_id IS NULL AND s.ended_at IS NULL;
    RETURN FOUND;
END
$$;
COMMENT ON FUNCTION :"schema".tube_step_cancel IS 'Cancels a step; false if a term has taken it.';

-- Arguments: the term; in_step.
-- Result: a row with the pod's seq, its ts, the shard and the key; none when the step is taken, over or not the term's,
--   the partition is not paused any more, or the pod is gone: then the step ends here.
-- Errors: as of a call under a term. Locks: the fence, the step and the pod, until the transaction ends.
-- A lost answer: the term has to end; the key stays in its pod.
CREATE OR REPLACE FUNCTION :"schema".tube_step_take(
    tube text, partitions integer, partition integer, leader_id uuid, in_step bigint
) RETURNS TABLE (seq bigint, ts timestamptz, shard integer, key text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
#variable_conflict use_column
DECLARE
    step tube_step;
    reg tube_registry;
BEGIN
    PERFORM tube_private_hold_term(
        tube_step_take.tube, tube_step_take.partitions, tube_step_take.partition, tube_step_take.leader_id);
    UPDATE tube_step AS s SET leader_id = tube_step_take.leader_id
    WHERE s.step_id = in_step AND s.ended_at IS NULL AND s.leader_id IS NULL AND s.expires_at > clock_timestamp()
        AND (s.tube, s.partitions, s.partition) = ($1, $2, $3)
        AND tube_pause_reason($1, $2, $3) IS NOT NULL
    RETURNING s.* INTO step;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    reg := tube_private_require(step.tube);
    RETURN QUERY EXECUTE format(
        'UPDATE %s AS p SET leader_id = $1 WHERE p.ctid = $2 RETURNING p.seq, p.ts, p.shard::integer, $3',
        tube_private_qualify(step.tube))
    USING step.leader_id, tube_private_pod_with(reg, step.seq, step.shard, step.id), step.id;
    IF NOT FOUND THEN
        UPDATE tube_step AS s SET ended_at = clock_timestamp(), outcome = 'unsent', error = 'the pod is gone'
        WHERE s.step_id = in_step;
    END IF;
END
$$;
COMMENT ON FUNCTION :"schema".tube_step_take IS 'Takes a step for a term, and marks its pod.';

-- Arguments: the term; in_step; outcome: delivered, skipped, failed or unsent; error: why, or NULL.
-- Errors: those of a call under a term; 23514 another outcome. Locks: as tube_step_take.
-- A lost answer: the term has to end.
CREATE OR REPLACE FUNCTION :"schema".tube_step_end(
    tube text, partitions integer, partition integer, leader_id uuid, in_step bigint, outcome text, error text
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
#variable_conflict use_column
DECLARE
    step tube_step;
    reg tube_registry;
    place tid;
BEGIN
    PERFORM tube_private_hold_term(
        tube_step_end.tube, tube_step_end.partitions, tube_step_end.partition, tube_step_end.leader_id);
    UPDATE tube_step AS s
    SET ended_at = clock_timestamp(), outcome = tube_step_end.outcome, error = tube_step_end.error
    WHERE s.step_id = in_step AND s.leader_id = tube_step_end.leader_id AND s.ended_at IS NULL
    RETURNING s.* INTO step;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    reg := tube_private_require(step.tube);
    place := tube_private_pod_with(reg, step.seq, step.shard, step.id);
    EXECUTE format('UPDATE %s AS p SET leader_id = NULL WHERE p.ctid = $1 AND p.leader_id = $2 RETURNING p.ctid',
        tube_private_qualify(step.tube)) USING place, step.leader_id INTO place;
    IF step.outcome IN ('delivered', 'skipped') THEN
        PERFORM tube_private_remove_key(reg, ARRAY[place], step.id);
        PERFORM tube_pods_unpark($1, $2, $3, $4, ARRAY[step.shard], ARRAY[step.id]);
    END IF;
END
$$;
COMMENT ON FUNCTION :"schema".tube_step_end IS 'Records the outcome of a step. A finished key leaves its pod.';

-- tube_private_pod_with: locks a pod that has a key; its place, NULL when there is none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_pod_with(
    reg :"schema".tube_registry, in_seq bigint, in_shard integer, in_key text
) RETURNS tid
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    condition text;
    place tid;
BEGIN
    FOR condition IN
        SELECT r.condition FROM tube_private_pod_ranges(reg, NULL, in_seq, in_seq, in_shard, in_key) AS r
    LOOP
        EXECUTE format('SELECT p.ctid FROM %s AS p WHERE %s FOR UPDATE', tube_private_qualify(reg.tube), condition)
        INTO place;
        EXIT WHEN place IS NOT NULL;
    END LOOP;
    RETURN place;
END
$$;
