-- Pauses: a paused partition keeps its leader, which marks and sends nothing. They stand in the database, so that a worker
-- that is restarted, or takes over, finds them; workers learn of them with each renewal (tube_leaders_renew).

-- Arguments: tube; in_partition: NULL for all; lasts: for how long, NULL until it is resumed; reason: for people, of
--   which 500 characters are kept, without what looks like a secret.
-- Result: the number of the pause. An existing pause is replaced by one with these arguments.
-- Errors: TU102 unknown tube; TU103 unknown partition; 22023 it would last no time.
-- Locks: the registry row FOR KEY SHARE, until the transaction ends.
CREATE OR REPLACE FUNCTION :"schema".tube_pause(
    tube text, in_partition integer = NULL, lasts interval = NULL, reason text = NULL
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
#variable_conflict use_column
DECLARE
    of_partitions CONSTANT integer := (tube_private_require(tube, 'any')).partitions;
    ends CONSTANT timestamptz := clock_timestamp() + lasts;
    number bigint;
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_pause.tube FOR KEY SHARE;
    IF lasts <= interval '0' THEN
        RAISE EXCEPTION 'the pause would last %', lasts
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give a time of more than 0, or NULL for no end.';
    ELSIF in_partition IS NOT NULL THEN
        PERFORM tube_private_check_partition(tube, of_partitions, in_partition);
    END IF;
    INSERT INTO tube_paused AS p (tube, partition, partitions, kind, reason, until)
    VALUES (tube_pause.tube, in_partition, CASE WHEN in_partition IS NULL THEN 0 ELSE of_partitions END, 'operator',
        tube_private_masked(tube_pause.reason), ends)
    ON CONFLICT (tube, kind, partitions, coalesce(partition, -1)) DO UPDATE
    SET reason = excluded.reason, until = excluded.until, paused_by = session_user, paused_at = clock_timestamp()
    RETURNING p.pause_id INTO number;
    PERFORM tube_private_forget_rest(tube);
    PERFORM tube_audit_add('pause', tube, jsonb_strip_nulls(jsonb_build_object('partition', in_partition, 'until', ends,
        'reason', tube_private_masked(tube_pause.reason))));
    IF in_partition IS NULL THEN
        PERFORM tube_pause(r.tube, NULL, lasts, tube_pause.reason) FROM tube_registry AS r WHERE r.companion_of = tube_pause.tube;
    END IF;
    RETURN number;
END
$$;
COMMENT ON FUNCTION :"schema".tube_pause IS
    'Pauses a tube with its companions, or a partition: its leader keeps leading, but marks and sends nothing.';

-- Arguments: tube; in_partition: NULL ends all pauses of the tube and its companions; else only the pauses of that
--   partition.
-- Result: how many pauses were ended; without the ones that have run out.
-- Errors: TU102 unknown tube; TU103 unknown partition.
CREATE OR REPLACE FUNCTION :"schema".tube_resume(tube text, in_partition integer = NULL) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    of_partitions CONSTANT integer := (tube_private_require(tube, 'any')).partitions;
    ended integer;
BEGIN
    IF in_partition IS NOT NULL THEN
        PERFORM tube_private_check_partition(tube, of_partitions, in_partition);
    END IF;
    WITH gone AS (
        DELETE FROM tube_paused AS p
        WHERE p.tube = tube_resume.tube
            AND (in_partition IS NULL OR (p.partition = in_partition AND p.partitions = of_partitions))
        RETURNING p.until
    )
    SELECT count(*) FILTER (WHERE g.until IS NULL OR g.until > clock_timestamp()) INTO ended FROM gone AS g;
    IF ended > 0 THEN
        PERFORM tube_audit_add('resume', tube,
            jsonb_strip_nulls(jsonb_build_object('partition', in_partition, 'pauses', ended)));
    END IF;
    IF in_partition IS NULL THEN
        ended := ended + coalesce(
            (SELECT sum(tube_resume(r.tube)) FROM tube_registry AS r WHERE r.companion_of = tube_resume.tube), 0);
    END IF;
    RETURN ended;
END
$$;
COMMENT ON FUNCTION :"schema".tube_resume IS
    'Ends pauses and workers'' stops, and returns how many. With a partition, ends only its pauses.';

-- tube_private_forget_rest: a new pause begins: what leaders said of their rest was of an earlier one, which they may have
-- left since. A leader that rests all the time says so again with its next renewal.
CREATE OR REPLACE FUNCTION :"schema".tube_private_forget_rest(tube text) RETURNS void
LANGUAGE sql AS $$
    DELETE FROM tube_halted AS h USING tube_leader AS l WHERE l.tube = $1 AND h.leader_id = l.leader_id
$$;

-- tube_private_pause_of: why a partition is to pause; no row when it is not. Of several pauses the reason names each, what a
-- worker has stopped first, of which `kind` is; `until` is when the last one ends.
-- A pause of partition p of P holds for p2 of P2 when they share shards: when p = p2 modulo gcd(P, P2).
CREATE OR REPLACE FUNCTION :"schema".tube_private_pause_of(
    in_tube text, in_partitions integer, in_partition integer, OUT reason text, OUT kind text, OUT until timestamptz
) RETURNS SETOF record
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT string_agg(concat(CASE WHEN p.n > 1 THEN CASE p.kind WHEN 'operator' THEN 'also paused ' ELSE 'also stopped by ' END END,
            CASE p.kind WHEN 'operator' THEN 'by ' || p.paused_by ELSE p.kind END,
            CASE WHEN p.n > 1 THEN ' until ' || p.until::timestamptz(0) END, ': ' || p.reason), '; ' ORDER BY p.n),
        min(p.kind) FILTER (WHERE p.n = 1), CASE WHEN bool_and(p.until IS NOT NULL) THEN max(p.until) END
    FROM (
        SELECT p.*, row_number() OVER (ORDER BY p.kind = 'operator', p.until DESC NULLS FIRST, p.pause_id) AS n
        FROM tube_paused AS p
        WHERE p.tube = in_tube AND (p.until IS NULL OR p.until > clock_timestamp())
            AND (p.partition IS NULL OR mod(p.partition - in_partition, gcd(p.partitions, in_partitions)) = 0)
    ) AS p
    HAVING count(*) > 0
$$;

CREATE OR REPLACE FUNCTION :"schema".tube_pause_reason(tube text, partitions integer, partition integer) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT p.reason FROM tube_private_pause_of($1, $2, $3) AS p
$$;
COMMENT ON FUNCTION :"schema".tube_pause_reason IS 'Returns why a partition has to pause, or NULL.';

-- Arguments: in_tube, or NULL for all tubes.
-- Result: a row per partition, by tube and partition. kind: operator, poison (a worker stopped the tube at a document that
--   can't be delivered) or park_limit (a worker stopped it because too many keys are parked). halted_since: when its
--   leader came to rest; NULL while it has not, or without a leader. No row for an unknown tube.
CREATE OR REPLACE FUNCTION :"schema".tube_pause_list(in_tube text = NULL) RETURNS TABLE (
    tube text, partition integer, kind text, reason text, until timestamptz, halted_since timestamptz
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT r.tube, n.partition, p.kind, p.reason, p.until, h.since
    FROM tube_registry AS r
    CROSS JOIN LATERAL generate_series(0, r.partitions - 1) AS n (partition)
    CROSS JOIN LATERAL tube_private_pause_of(r.tube, r.partitions, n.partition) AS p
    LEFT JOIN tube_leader AS l ON l.tube = r.tube AND l.partition = n.partition
    LEFT JOIN tube_halted AS h ON h.leader_id = l.leader_id
    WHERE (in_tube IS NULL OR r.tube = in_tube) AND EXISTS (SELECT FROM tube_paused AS s WHERE s.tube = r.tube)
    ORDER BY r.tube, n.partition
$$;
COMMENT ON FUNCTION :"schema".tube_pause_list IS
    'Lists paused partitions, why, and since when their leader has come to rest.';

-- The line stands until tube_resume is called: a worker that continued on its own would only meet the document again.
-- Arguments: the term; why: 'poison' or 'park_limit'; reason: for people, of which 500 characters are kept; items: as for
--   tube_pods_fail.
-- Result: whether the tube was not stopped yet.
-- Errors: those of a call under a term; 22023 another `why`, or items is no array; TU106.
-- Locks: the registry row FOR KEY SHARE (first, as always), the fence and the written rows, until the transaction ends.
-- A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_stop(
    tube text, partitions integer, partition integer, leader_id uuid, why text, reason text, items jsonb
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF why IS NULL OR why NOT IN ('poison', 'park_limit') THEN
        RAISE EXCEPTION 'a tube is not stopped for %', quote_nullable(why)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is ''poison'' or ''park_limit''.';
    END IF;
    PERFORM tube_pods_fail(tube, partitions, partition, leader_id, items);
    INSERT INTO tube_paused AS p (tube, partition, partitions, kind, reason)
    VALUES (tube_pods_stop.tube, NULL, 0, why, tube_private_masked(tube_pods_stop.reason))
    ON CONFLICT (tube, kind, partitions, coalesce(partition, -1)) DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM tube_private_forget_rest(tube);
    -- Not the reason: what a sink says of a document may quote it.
    PERFORM tube_audit_add('stop', tube, jsonb_build_object('partition', tube_pods_stop.partition, 'why', why,
        'keys', tube_private_some_keys(ARRAY(
            SELECT format('%s/%s', i.shard, i.id) FROM jsonb_to_recordset(items) AS i (shard integer, id text)))));
    RETURN true;
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_stop IS
    'Stops the whole tube until tube_resume, for poison or the park_limit. False if it was stopped.';
