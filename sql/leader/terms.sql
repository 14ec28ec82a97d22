-- Terms: the right of one worker process to work on a partition, from tube_leader_acquire until a release, the next
-- acquire or a repartition.
--
-- tube_leader has a row for each partition. It is locked after the tube's registry row, in one of three ways:
-- - FOR KEY SHARE: the fence, which whatever writes under a term takes first (tube_private_hold_term);
-- - FOR NO KEY UPDATE: a renewal, which changes no key and so passes the fence;
-- - FOR UPDATE: acquire, release, repartition and drop, which wait until the fence is free.
-- So a call under a term either commits before the next term exists or is refused.
--
-- A term is given by tube; partitions, the number that the caller believes the tube has; partition; leader_id. A call
-- under a term fails with TU001 when the term is over, TU002 when the tube has another number of partitions, TU102 when
-- there is no such tube, and TU103 when there is no such partition.

-- Read it *before* you prove the right to lead, so that no later prover can be overtaken.
-- Errors: TU102, TU002, TU103. Locks: none. A lost answer does no harm.
CREATE OR REPLACE FUNCTION :"schema".tube_leader_epoch(tube text, partitions integer, partition integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    found_epoch bigint;
BEGIN
    SELECT l.epoch INTO found_epoch FROM tube_leader AS l
    WHERE (l.tube, l.partitions, l.partition) = ($1, $2, $3);
    IF NOT FOUND THEN
        PERFORM tube_private_check_partition(tube, partitions, partition);
        -- The row was not there and is now: a repartition was committed in between.
        RAISE EXCEPTION 'tube % was repartitioned meanwhile', quote_literal(tube)
            USING ERRCODE = 'TU002', HINT = 'Ask again.';
    END IF;
    RETURN found_epoch;
END
$$;
COMMENT ON FUNCTION :"schema".tube_leader_epoch IS 'Returns the epoch to pass to tube_leader_acquire.';

-- A compare-and-set on the epoch: of several callers who read the same one, exactly one begins a term.
-- Arguments:
--   tube, partitions, partition   to be led
--   leader_id        the new term: a uuid never used before
--   instance_id      the process: its uuid
--   client_id        a label for people
--   expected_epoch   what tube_leader_epoch gave before the right to lead was proved
--   election         'neli' (proved at a broker) or 'lease' (proved by the rows stored here)
--   hold             how long after its last renewal the term may still write at the sink
--   lease            how long a renewal keeps others out; for 'lease' only, and needed there
-- Result: the term's epoch: greater than any that this tube ever had, at least the unix time.
-- Errors: TU003 another process was faster: read the epoch, prove, and try again; TU004 the lease of another process runs;
--   TU005 the present term is of the other kind of election; TU002, TU102, TU103; 22023 an argument makes no sense,
--   22004 one is NULL; 55P03 a call under the old term took longer than 5 s, 40P01: try again.
-- Locks: the registry row (against other terms of this tube, not against its writers) and the leader row FOR UPDATE,
--   until the transaction ends.
-- A lost answer: the term may exist. Begin again with another leader_id: the epoch read then is the lost term's; under
--   a lease the same process may take its own over.
-- The commit is made durable here whatever the session says: an epoch must not come back after a crash.
CREATE OR REPLACE FUNCTION :"schema".tube_leader_acquire(
    tube text, partitions integer, partition integer, leader_id uuid, instance_id uuid, client_id text,
    expected_epoch bigint, election text = 'neli', hold interval = '15 seconds', lease interval = NULL
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    last_issued bigint;
    new_epoch   bigint;
    held        tube_leader;
    runs_for    interval;
BEGIN
    PERFORM tube_private_check_term(leader_id, instance_id, client_id, election, hold, lease);
    IF current_setting('synchronous_commit') <> 'remote_apply' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;

    -- NO KEY: a sleeper or a parked key may be written meanwhile, which refers to this row.
    SELECT r.last_epoch INTO last_issued FROM tube_registry AS r
    WHERE r.tube = tube_leader_acquire.tube FOR NO KEY UPDATE;
    PERFORM tube_private_check_partition(tube, partitions, partition);
    SELECT l.* INTO STRICT held FROM tube_leader AS l
    WHERE l.tube = tube_leader_acquire.tube AND l.partition = tube_leader_acquire.partition FOR UPDATE;
    -- The clock is read after the wait for the term, which may have been renewed meanwhile. NULL without a leader.
    runs_for := held.renewed_at + coalesce(held.lease, held.hold) - clock_timestamp();
    IF held.epoch IS DISTINCT FROM expected_epoch THEN
        RAISE EXCEPTION 'partition % of tube % is at epoch %, not %', partition, quote_literal(tube),
            held.epoch, coalesce(expected_epoch::text, 'NULL')
            USING ERRCODE = 'TU003', HINT = 'Read the epoch, prove the right to lead, and try again.';
    ELSIF held.election <> election AND runs_for > interval '0' THEN
        RAISE EXCEPTION 'partition % of tube % is led under the election %, not %, by %', partition,
            quote_literal(tube), quote_literal(held.election), quote_literal(election), held.client_id
            USING ERRCODE = 'TU005', HINT = 'Give all workers of a tube the same election.';
    ELSIF election = 'lease' AND held.instance_id <> instance_id AND runs_for > interval '0' THEN
        RAISE EXCEPTION 'partition % of tube % is leased to % for another % ms', partition,
            quote_literal(tube), held.client_id, ceil(extract(epoch FROM runs_for) * 1000)
            USING ERRCODE = 'TU004', HINT = 'Try again when the lease has run out, or was released.';
    END IF;

    new_epoch := greatest(last_issued + 1, floor(extract(epoch FROM clock_timestamp()))::bigint);
    UPDATE tube_registry AS r SET last_epoch = new_epoch WHERE r.tube = tube_leader_acquire.tube;
    PERFORM tube_private_end_terms(tube, partition, 'superseded');
    UPDATE tube_leader AS l
    SET leader_id = tube_leader_acquire.leader_id, epoch = new_epoch,
        instance_id = tube_leader_acquire.instance_id, client_id = tube_leader_acquire.client_id,
        election = tube_leader_acquire.election, hold = tube_leader_acquire.hold, lease = tube_leader_acquire.lease,
        acquired_at = clock_timestamp(), renewed_at = clock_timestamp()
    WHERE l.tube = tube_leader_acquire.tube AND l.partition = tube_leader_acquire.partition;
    RETURN new_epoch;
END
$$;
COMMENT ON FUNCTION :"schema".tube_leader_acquire IS
    'Begins a term, ends the previous one, and returns the epoch. Of callers with the same epoch, one wins.';

-- tube_private_check_term: refuses arguments of tube_leader_acquire that make no sense: 22023, or 22004 for a NULL.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_term(
    leader_id uuid, instance_id uuid, client_id text, election text, hold interval, lease interval
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    wrong text[]; -- the message and the hint
BEGIN
    IF leader_id IS NULL OR instance_id IS NULL OR client_id IS NULL THEN
        RAISE EXCEPTION 'leader_id, instance_id and client_id must be given'
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Draw a fresh leader_id for each term.';
    END IF;
    wrong := CASE
        WHEN election IS NULL OR election NOT IN ('neli', 'lease') THEN
            ARRAY[format('there is no election %s', quote_nullable(election)), 'It is ''neli'' or ''lease''.']
        WHEN hold IS NULL OR hold <= interval '0' THEN
            ARRAY[format('hold is %s, and must be more than nothing', coalesce(hold::text, 'NULL')),
                'It is the trust deadline and the sink''s request timeout together.']
        WHEN election = 'lease' AND (lease IS NULL OR lease <= interval '0') THEN
            ARRAY[format('lease is %s, and must be more than nothing', coalesce(lease::text, 'NULL')),
                'The election ''lease'' needs one.']
        WHEN election = 'neli' AND lease IS NOT NULL THEN
            ARRAY[format('the election ''neli'' has no lease, got %s', lease), 'Leave it out.']
        WHEN EXISTS (SELECT FROM tube_term AS t WHERE t.leader_id = tube_private_check_term.leader_id)
            OR EXISTS (SELECT FROM tube_leader AS l WHERE l.leader_id = tube_private_check_term.leader_id)
            THEN ARRAY[format('leader_id %s was used before', leader_id), 'Draw a fresh one for each term.']
    END;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = wrong[1], HINT = wrong[2];
    END IF;
END
$$;

-- tube_private_end_terms: writes down that the term of a partition has ended; its sleep and its troubles end with it.
-- With partition NULL, all terms of the tube: their leader rows go, and their sleepers are woken. Terms that ended more
-- than a day ago and can hold no key any more are forgotten. The caller holds the registry row, and lock_timeout is 5
-- s: calls under the old terms either committed before or find no term.
CREATE OR REPLACE FUNCTION :"schema".tube_private_end_terms(tube text, partition integer, outcome text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM tube_leader AS l
    WHERE l.tube = tube_private_end_terms.tube AND l.partition = coalesce($2, l.partition)
    ORDER BY l.partition FOR UPDATE;
    WITH ended AS (
        SELECT l.* FROM tube_leader AS l
        WHERE l.tube = tube_private_end_terms.tube AND l.partition = coalesce($2, l.partition) AND l.leader_id IS NOT NULL
    ), troubled AS (
        DELETE FROM tube_trouble AS t USING ended AS e WHERE t.leader_id = e.leader_id
    ), halted AS (
        DELETE FROM tube_halted AS t USING ended AS e WHERE t.leader_id = e.leader_id
    ), resting AS (
        DELETE FROM tube_outbox_resting AS t USING ended AS e WHERE t.leader_id = e.leader_id
    )
    INSERT INTO tube_term (leader_id, tube, partition, partitions, epoch, instance_id, client_id,
        election, hold, acquired_at, renewed_at, outcome)
    SELECT e.leader_id, e.tube, e.partition, e.partitions, e.epoch, e.instance_id, e.client_id,
        e.election, e.hold, e.acquired_at, e.renewed_at, tube_private_end_terms.outcome
    FROM ended AS e;
    DELETE FROM tube_term AS t
    WHERE t.tube = tube_private_end_terms.tube
      AND t.ended_at < clock_timestamp() - interval '1 day'
      AND t.renewed_at + t.hold < clock_timestamp();

    IF partition IS NULL THEN
        DELETE FROM tube_leader AS l WHERE l.tube = tube_private_end_terms.tube;
        PERFORM tube_private_wake_sleepers(tube, NULL);
    END IF;
    DELETE FROM tube_sleeper AS s
    WHERE s.tube = tube_private_end_terms.tube AND s.partition = coalesce($2, s.partition);
END
$$;

-- Arguments: the term.
-- Result: the version of the tube's registry row; when it has grown, an enricher has to read the tube's state again.
-- Errors: as of a call under a term.
-- Locks: the leader row FOR NO KEY UPDATE, until the transaction ends.
-- A lost answer: the term may be renewed or not. Only a call that has answered proves anything, and only from the
--   moment on when it was sent.
CREATE OR REPLACE FUNCTION :"schema".tube_leader_renew(
    tube text, partitions integer, partition integer, leader_id uuid
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    UPDATE tube_leader AS l SET renewed_at = clock_timestamp()
    WHERE (l.tube, l.partitions, l.partition, l.leader_id) = ($1, $2, $3, $4);
    IF NOT FOUND THEN
        PERFORM tube_private_hold_term(tube, partitions, partition, leader_id); -- says why
    END IF;
    RETURN (SELECT r.version FROM tube_registry AS r WHERE r.tube = tube_leader_renew.tube);
END
$$;
COMMENT ON FUNCTION :"schema".tube_leader_renew IS 'Renews a term, and returns the version of the tube''s settings.';

-- Arguments:
--   tube         NULL for all tubes
--   leader_ids   of the terms
--   troubles     what keeps them from delivering: an object that has, by leader_id, {"sink": ..., "source": ..., "paused": ...,
--                "slow": ..., "locked": ..., "late": ...}, each of them {"reason": text, "seconds": how long it has been so,
--                "left": seconds until it is tried again, or missing} or missing; "paused" once it has come to rest for a
--                pause; the last three as of tube_hindered_list. A term that is renewed and has none of the first three
--                delivers.
-- Result: the terms among them that still lead, and for each: renewed: whether it was; paused: why it shall pause, NULL
--   when it shall not; step: the oldest step that an operator has asked for and no term has taken (operators/steps.sql).
--   Terms that are not in the result are over. A term that is in it and was not renewed is being ended or renewed by another
--   session right now: the next call shows it.
-- Errors: 22023, 22P02 troubles is something else.
-- Locks: the leader rows FOR NO KEY UPDATE, by tube and partition, until the transaction ends. It never waits, so
--   that an acquire of one partition does not keep the others waiting.
-- A lost answer: as tube_leader_renew.
CREATE OR REPLACE FUNCTION :"schema".tube_leaders_renew(tube text, leader_ids uuid[], troubles jsonb = NULL)
RETURNS TABLE (leader_id uuid, renewed boolean, paused text, step bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH given AS MATERIALIZED (
        SELECT DISTINCT g.leader_id FROM unnest(leader_ids) AS g (leader_id)
    ), present AS MATERIALIZED (
        SELECT l.tube, l.partition
        FROM given AS g JOIN tube_leader AS l ON l.leader_id = g.leader_id
        WHERE tube_leaders_renew.tube IS NULL OR l.tube = tube_leaders_renew.tube
        ORDER BY l.tube, l.partition
        FOR NO KEY UPDATE OF l SKIP LOCKED
    ), renewal AS (
        UPDATE tube_leader AS l
        SET renewed_at = clock_timestamp()
        FROM present AS p
        WHERE l.tube = p.tube AND l.partition = p.partition
        RETURNING l.leader_id
    ), troubled AS (
        INSERT INTO tube_trouble AS t (leader_id, what, reason, since, next_at)
        SELECT r.leader_id, w.what, e.value #>> ARRAY[w.what, 'reason'],
            clock_timestamp() - (e.value #>> ARRAY[w.what, 'seconds'])::float8 * interval '1 second',
            clock_timestamp() + (e.value #>> ARRAY[w.what, 'left'])::float8 * interval '1 second'
        FROM jsonb_each(troubles) AS e JOIN renewal AS r ON r.leader_id::text = e.key
        JOIN (VALUES ('late'), ('locked'), ('sink'), ('slow'), ('source')) AS w (what) ON e.value ? w.what
        ON CONFLICT (leader_id, what) DO UPDATE SET reason = excluded.reason, since = excluded.since, next_at = excluded.next_at
        -- A later begin is another outage, with the same reason. The second is for answers that took their time.
        WHERE t.reason <> excluded.reason OR excluded.since > t.since + interval '1 second'
            OR coalesce(excluded.next_at > t.next_at + interval '1 second', (excluded.next_at IS NULL) <> (t.next_at IS NULL))
    ), mended AS (
        DELETE FROM tube_trouble AS t USING renewal AS r
        WHERE t.leader_id = r.leader_id AND (troubles -> r.leader_id::text ? t.what) IS NOT TRUE
    ), paused AS MATERIALIZED ( -- nearly always none, as of steps
        SELECT l.leader_id, o.reason
        FROM given AS g JOIN tube_leader AS l ON l.leader_id = g.leader_id
        CROSS JOIN LATERAL tube_private_pause_of(l.tube, l.partitions, l.partition) AS o
        WHERE EXISTS (SELECT FROM tube_paused AS a WHERE a.tube = l.tube) -- or the function is not called
    ), halted AS (
        -- Only for a pause that this answer names: a worker that learns of none marks at once. And only where no row is
        -- seen, or it would wait for an operator who pauses again in an open transaction (tube_private_forget_rest).
        INSERT INTO tube_halted AS t (leader_id, since)
        SELECT r.leader_id, clock_timestamp() - (e.value #>> '{paused,seconds}')::float8 * interval '1 second'
        FROM jsonb_each(troubles) AS e JOIN renewal AS r ON r.leader_id::text = e.key
        JOIN paused AS p ON p.leader_id = r.leader_id
        WHERE e.value ? 'paused' AND NOT EXISTS (SELECT FROM tube_halted AS h WHERE h.leader_id = r.leader_id)
        ON CONFLICT DO NOTHING
    ), resumed AS (
        DELETE FROM tube_halted AS t
        WHERE t.leader_id IN (
            SELECT h.leader_id FROM tube_halted AS h JOIN renewal AS r ON r.leader_id = h.leader_id
            WHERE (troubles -> r.leader_id::text ? 'paused') IS NOT TRUE
                OR NOT EXISTS (SELECT FROM paused AS p WHERE p.leader_id = r.leader_id)
            FOR UPDATE OF h SKIP LOCKED)
    )
    SELECT l.leader_id, r.leader_id IS NOT NULL, p.reason, s.step_id
    FROM given AS g JOIN tube_leader AS l ON l.leader_id = g.leader_id LEFT JOIN renewal AS r ON r.leader_id = l.leader_id
    LEFT JOIN paused AS p ON p.leader_id = l.leader_id
    LEFT JOIN LATERAL (
        SELECT o.step_id FROM tube_step AS o
        WHERE o.tube = l.tube AND o.partition = l.partition AND o.ended_at IS NULL AND o.leader_id IS NULL
            AND o.partitions = l.partitions AND o.expires_at > clock_timestamp()
    ) AS s ON true
    WHERE tube_leaders_renew.tube IS NULL OR l.tube = tube_leaders_renew.tube;
END
$$;
COMMENT ON FUNCTION :"schema".tube_leaders_renew IS
    'Renews many terms at once, without waiting for locks; terms missing from the answer are over. troubles reports'
    ' by leader_id what keeps a term from delivering. paused is why a term has to pause, step a step to take.';

-- Call it only when the term can write nothing any more: all that was sent is answered, and the pods that it still had
-- are reset. A release that never comes does no harm but the wait of the next term.
-- Arguments: the term.
-- Result: true; false when the term was over before, whatever the reason.
-- Errors: 55P03 a call under the term took longer than 5 s, 40P01: try again.
-- Locks: as tube_leader_acquire.
-- A lost answer: call again; false then means that it was done, or that another leads.
CREATE OR REPLACE FUNCTION :"schema".tube_leader_release(
    tube text, partitions integer, partition integer, leader_id uuid
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_leader_release.tube FOR NO KEY UPDATE;
    PERFORM FROM tube_leader AS l
    WHERE (l.tube, l.partitions, l.partition, l.leader_id) = ($1, $2, $3, $4) FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM tube_private_end_terms(tube, partition, 'released');
    -- The epoch stays, so that it can't come back.
    UPDATE tube_leader AS l
    SET leader_id = NULL, instance_id = NULL, client_id = NULL, election = NULL, hold = NULL,
        lease = NULL, acquired_at = NULL, renewed_at = NULL
    WHERE l.tube = tube_leader_release.tube AND l.partition = tube_leader_release.partition;
    RETURN true;
END
$$;
COMMENT ON FUNCTION :"schema".tube_leader_release IS 'Ends a term in order; false if it was over.';

-- An earlier term that did not release may still be writing at the sink, until its hold has passed since its last
-- renewal. Of P1 partitions, p1 shares shards with p2 of P2 exactly when p1 = p2 modulo gcd(P1, P2).
-- Arguments: the new term.
-- Result: the time left, 0 when no such term is left. It never grows within a term, so one call is enough.
-- Errors: as of a call under a term. Locks: the fence. A lost answer does no harm.
CREATE OR REPLACE FUNCTION :"schema".tube_leader_wait(
    tube text, partitions integer, partition integer, leader_id uuid
) RETURNS interval
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    RETURN (
        SELECT greatest(coalesce(max(t.renewed_at + t.hold) - clock_timestamp(), interval '0'), interval '0')
        FROM tube_term AS t
        WHERE t.tube = tube_leader_wait.tube
          AND t.outcome <> 'released'
          AND mod(t.partition - tube_leader_wait.partition, gcd(t.partitions, tube_leader_wait.partitions)) = 0);
END
$$;
COMMENT ON FUNCTION :"schema".tube_leader_wait IS
    'Returns how long to wait before the first mark, until no earlier term can write to the sink.';

-- tube_private_hold_term: the fence. Keeps the caller's term from ending before its transaction.
-- Result: the epoch of the term. Errors: as of a call under a term.
CREATE OR REPLACE FUNCTION :"schema".tube_private_hold_term(
    tube text, partitions integer, partition integer, leader_id uuid
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    held bigint;
BEGIN
    SELECT l.epoch INTO held FROM tube_leader AS l
    WHERE (l.tube, l.partitions, l.partition, l.leader_id) = ($1, $2, $3, $4)
    FOR KEY SHARE;
    IF NOT FOUND THEN
        PERFORM tube_private_check_partition(tube, partitions, partition);
        RAISE EXCEPTION 'the term % of partition % of tube % is over',
            coalesce(leader_id::text, 'NULL'), partition, quote_literal(tube)
            USING ERRCODE = 'TU001', HINT = 'Another leader acquired the partition, or it was released. '
                'Do nothing more under this term; a new one may be acquired.';
    END IF;
    RETURN held;
END
$$;

-- tube_private_check_partition: refuses a partition that the tube does not have: TU102, TU002, TU103.
-- It locks nothing, so the answer may be old when it arrives.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_partition(
    tube text, partitions integer, partition integer
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    actual CONSTANT integer := (tube_private_require(tube, 'any')).partitions;
BEGIN
    IF actual IS DISTINCT FROM partitions THEN
        RAISE EXCEPTION 'tube % has % partitions, not %', quote_literal(tube), actual,
            coalesce(partitions::text, 'NULL')
            USING ERRCODE = 'TU002', HINT = 'The tube was repartitioned: begin new terms with its present number.';
    ELSIF partition IS NULL OR partition NOT BETWEEN 0 AND actual - 1 THEN
        RAISE EXCEPTION 'tube % has no partition %', quote_literal(tube), coalesce(partition::text, 'NULL')
            USING ERRCODE = 'TU103', HINT = format('Its partitions are 0 to %s.', actual - 1);
    END IF;
END
$$;

-- For a database that was restored from a backup, or is a standby that had lagged: the sink holds writes of terms that
-- this database does not know, and refuses the present ones as older. The worker says so, and names the epoch that it met.
-- Other partitions may have written under somewhat later ones, and an epoch must not be issued twice; so 1000 are left out.
-- Arguments: tube; epoch, the highest that the sink is known to hold.
-- Result: the epoch that counts as the greatest issued from now on: `epoch` + 1000, or more.
-- Errors: TU102 unknown tube; 22023 an epoch below 0, or so great that tokens would not hold it.
-- Locks: the registry row, until the transaction ends. A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_leader_rebase(tube text, epoch bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    most CONSTANT bigint := 2147483646;
    issued bigint;
BEGIN
    IF epoch IS NULL OR epoch NOT BETWEEN 0 AND most THEN
        RAISE EXCEPTION 'epoch is %', coalesce(epoch::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = format('It is 0 to %s.', most);
    END IF;
    UPDATE tube_registry AS r SET last_epoch = greatest(r.last_epoch, least(tube_leader_rebase.epoch + 1000, most))
    WHERE r.tube = tube_leader_rebase.tube
    RETURNING r.last_epoch INTO issued;
    IF NOT FOUND THEN
        PERFORM tube_private_require(tube, 'any');
    END IF;
    RETURN issued;
END
$$;
COMMENT ON FUNCTION :"schema".tube_leader_rebase IS
    'Raises a tube''s epochs 1000 above an epoch that its sink has seen, after a restore. Returns the greatest '
    'epoch that counts as issued.';

-- Arguments: in_tube, or NULL for all tubes.
-- Result: one row per partition that has a leader, by tube and partition. `runs_out` is when the term ends its hold on
--   others unless it is renewed: the lease's end under 'lease', the end of its hold under 'neli'. `lost`: that time is
--   past, by this server's clock, so no worker delivers. `sink_down` and `source_down` say why the leader can't deliver, as
--   it said with its last renewal; NULL when it can, or the term is lost. `sink_next_at` and `source_next_at`: when it tries
--   again; NULL: not known. A partition without a row is free. No row for an unknown tube.
CREATE OR REPLACE FUNCTION :"schema".tube_leaders(in_tube text = NULL) RETURNS TABLE (
    tube text, partitions integer, partition integer, leader_id uuid, epoch bigint,
    instance_id uuid, client_id text, election text, hold interval, lease interval,
    acquired_at timestamptz, renewed_at timestamptz, runs_out timestamptz, lost boolean,
    sink_down text, sink_down_since timestamptz, source_down text, source_down_since timestamptz,
    sink_next_at timestamptz, source_next_at timestamptz
)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT l.tube, l.partitions, l.partition, l.leader_id, l.epoch, l.instance_id, l.client_id,
        l.election, l.hold, l.lease, l.acquired_at, l.renewed_at, r.runs_out, r.runs_out <= clock_timestamp(),
        k.reason, k.since, c.reason, c.since, k.next_at, c.next_at
    FROM tube_leader AS l
    CROSS JOIN LATERAL (SELECT l.renewed_at + coalesce(l.lease, l.hold)) AS r (runs_out)
    LEFT JOIN tube_trouble AS k ON k.leader_id = l.leader_id AND k.what = 'sink' AND r.runs_out > clock_timestamp()
    LEFT JOIN tube_trouble AS c ON c.leader_id = l.leader_id AND c.what = 'source' AND r.runs_out > clock_timestamp()
    WHERE l.leader_id IS NOT NULL AND (in_tube IS NULL OR l.tube = in_tube)
    ORDER BY l.tube, l.partition
$$;
COMMENT ON FUNCTION :"schema".tube_leaders IS
    'Lists the present terms; a partition without a row is free. lost: the term was not renewed before runs_out.';

-- Result: one row per term, by epoch; none for an unknown tube. A present term has neither ended_at nor outcome; else
--   outcome is released, superseded or repartitioned. Terms of a tube of the same name that is gone are among them.
CREATE OR REPLACE FUNCTION :"schema".tube_terms(in_tube text) RETURNS TABLE (
    tube text, partitions integer, partition integer, leader_id uuid, epoch bigint,
    instance_id uuid, client_id text, election text, hold interval,
    acquired_at timestamptz, renewed_at timestamptz, ended_at timestamptz, outcome text
)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT t.tube, t.partitions, t.partition, t.leader_id, t.epoch, t.instance_id, t.client_id,
        t.election, t.hold, t.acquired_at, t.renewed_at, t.ended_at, t.outcome
    FROM tube_term AS t
    WHERE t.tube = in_tube
    UNION ALL
    SELECT l.tube, l.partitions, l.partition, l.leader_id, l.epoch, l.instance_id, l.client_id,
        l.election, l.hold, l.acquired_at, l.renewed_at, NULL, NULL
    FROM tube_leader AS l
    WHERE l.tube = in_tube AND l.leader_id IS NOT NULL
    ORDER BY 5
$$;
COMMENT ON FUNCTION :"schema".tube_terms IS
    'Lists all terms of at least the last day, and how they ended: released, superseded or repartitioned.';

-- Partitions whose terms end by the same failure, one after the other: a worker that begins a new term each time looks as if
-- it led.

-- Not under a term: the failed term may be over.
-- Arguments: tube, partition; reason: of the last failure; terms: how many have failed so, 0 for none any more; seconds: how
--   long ago the first one did.
-- Result: nothing, also where there is no such tube. Locks: the row that it writes. A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_failing_note(
    tube text, partition integer, reason text, terms integer, seconds double precision
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    IF coalesce(terms, 0) < 1 THEN
        DELETE FROM tube_failing AS f WHERE f.tube = $1 AND f.partition = $2;
        RETURN;
    END IF;
    INSERT INTO tube_failing AS f (tube, partition, reason, terms, since, failed_at)
    SELECT r.tube, $2, $3, $4, clock_timestamp() - $5 * interval '1 second', clock_timestamp()
    FROM tube_registry AS r WHERE r.tube = $1 AND $2 BETWEEN 0 AND r.partitions - 1
    ON CONFLICT ON CONSTRAINT tube_failing_pkey DO UPDATE
    SET reason = excluded.reason, terms = excluded.terms, since = excluded.since, failed_at = excluded.failed_at;
END
$$;
COMMENT ON FUNCTION :"schema".tube_failing_note IS
    'Records that so many terms of a partition have ended by the same failure; 0: none does any more.';

-- Result: a row for each, by tube and partition: the reason of the last failure, how many terms have failed so, since when,
--   and when the last one did. One whose last failure is more than 5 minutes old is left out: the process that knew of it
--   is gone.
CREATE OR REPLACE FUNCTION :"schema".tube_failing_list() RETURNS TABLE (
    tube text, partition integer, reason text, terms integer, since timestamptz, failed_at timestamptz
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT f.tube, f.partition, f.reason, f.terms, f.since, f.failed_at
    FROM tube_failing AS f JOIN tube_registry AS r ON r.tube = f.tube AND f.partition < r.partitions
    WHERE f.failed_at > clock_timestamp() - interval '5 minutes'
    ORDER BY f.tube, f.partition
$$;
COMMENT ON FUNCTION :"schema".tube_failing_list IS
    'Lists partitions whose terms keep ending by the same failure, as reported within five minutes.';

-- What slows terms down, as their workers say with their renewals (tube_leaders_renew): a sink that answers late, a table that
-- another session has locked, a worker without processor time.

-- Result: a row for each hindrance, by tube and partition: what: slow (the sink), locked (a table) or late (the worker); why, in the
--   words of the worker; and since when. Of a term that is lost there is none.
CREATE OR REPLACE FUNCTION :"schema".tube_hindered_list() RETURNS TABLE (
    tube text, partition integer, what text, reason text, since timestamptz
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT l.tube, l.partition, h.what, h.reason, h.since
    FROM tube_trouble AS h JOIN tube_leader AS l ON l.leader_id = h.leader_id
    WHERE h.what IN ('slow', 'locked', 'late') AND l.renewed_at + coalesce(l.lease, l.hold) > clock_timestamp()
    ORDER BY l.tube, l.partition, h.what
$$;
COMMENT ON FUNCTION :"schema".tube_hindered_list IS
    'Lists what slows down partitions that are led: slow sinks, locked tables, late workers.';
