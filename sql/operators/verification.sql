-- Verification: which tubes' copies are to be compared with the source, and why, until that was done; and of which outboxes
-- messages may be out that no committed transaction has stashed, until an operator acknowledges it.
--
-- The source may have lost commits that the copy already has: after an asynchronous failover, a restore, pg_upgrade. The
-- database knows which server and timeline it was seen on (tube_source); a promoted standby and a restored database bring
-- that row along, so that the next look finds the difference. A planned switchover loses nothing and looks the same.
--
-- Disks that were put back bring nothing new along. So workers leave at a sink a note of a commit that they made here just before:
-- a random id, of which the last 100 of each tube are kept, and its number. A note whose id is missing here, though its number
-- is not below all that are kept, is of a commit that was lost. A sink that was put back shows an earlier note, which is here
-- or below. A tube that was dropped and made again has another number in tube_registry: older notes say nothing of it.

-- tube_private_source: which server and history this database is of now; NULL where this server does not say.
-- Managed servers may refuse these functions, or have no WAL that they could report. A standby has no separate timeline, so
-- there it is NULL.
CREATE OR REPLACE FUNCTION :"schema".tube_private_source(
    OUT system_identifier bigint, OUT timeline integer, OUT sequence oid
)
LANGUAGE plpgsql AS $$
BEGIN
    sequence := to_regclass(format('%I.tube_seq', tube_private_schema()));
    BEGIN
        system_identifier := (SELECT c.system_identifier FROM pg_control_system() AS c);
    EXCEPTION WHEN OTHERS THEN
        system_identifier := NULL;
    END;
    IF NOT pg_is_in_recovery() THEN
        BEGIN
            -- Not that of pg_control_checkpoint(), which is the old one until the first checkpoint after a promotion.
            timeline := ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer;
        EXCEPTION WHEN OTHERS THEN
            timeline := NULL;
        END;
    END IF;
END
$$;

-- tube_private_source_change: how the source differs from the recorded one, in words; NULL when it does not.
-- Arguments: seen_seq: the greatest seq of a pod that a worker has read; NULL: it has read none. last_seq: the last that was drawn.
--   note: what a note at a sink names; NULL: nothing.
CREATE OR REPLACE FUNCTION :"schema".tube_private_source_change(seen_seq bigint, last_seq bigint, note text) RETURNS text
LANGUAGE sql AS $$
    SELECT nullif(concat_ws('; ',
        (SELECT format('the note at the sink of %s is of a commit that this database does not have', l.tube)
            FROM tube_private_lost_note(note) AS l),
        CASE WHEN seen_seq > last_seq
            THEN format('tube_seq is at %s, and a worker had read seq %s', last_seq, seen_seq) END,
        CASE WHEN n.system_identifier <> k.system_identifier
            THEN format('another server: system identifier %s, before %s', n.system_identifier, k.system_identifier) END,
        CASE WHEN n.timeline <> k.timeline AND n.system_identifier IS NOT DISTINCT FROM k.system_identifier
            THEN format('timeline %s, before %s', n.timeline, k.timeline) END,
        CASE WHEN n.sequence <> k.sequence THEN 'restored from a dump' END), '')
    FROM tube_private_source() AS n LEFT JOIN tube_source AS k ON true
$$;

-- tube_private_lost_note: what a note names, if its commit is lost; no row otherwise, or for a text that no worker left.
CREATE OR REPLACE FUNCTION :"schema".tube_private_lost_note(note text) RETURNS TABLE (tube text, number bigint, id uuid)
LANGUAGE sql AS $$
    SELECT r.tube, p.parts[2]::bigint, p.parts[3]::uuid
    FROM regexp_match(note, '^(\d{1,18}):(\d{1,18}):([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$') AS p (parts)
    JOIN tube_registry AS r ON r.number = p.parts[1]::bigint
    LEFT JOIN tube_sink AS s ON s.tube = r.tube
    WHERE p.parts[3]::uuid <> ALL (coalesce(s.notes, '{}'))
        AND p.parts[2]::bigint > coalesce(s.last_note - cardinality(s.notes), 0)
$$;

-- tube_private_keep_note: keeps an id under the next number, which it returns; at_least: it is greater than that, too.
CREATE OR REPLACE FUNCTION :"schema".tube_private_keep_note(tube text, at_least bigint, id uuid) RETURNS bigint
LANGUAGE sql AS $$
    INSERT INTO tube_sink AS s (tube, notes, last_note) VALUES ($1, ARRAY[$3], $2 + 1)
    ON CONFLICT (tube) DO UPDATE
    SET notes = (s.notes || $3)[greatest(1, cardinality(s.notes) - 98):], last_note = greatest(s.last_note, $2) + 1
    RETURNING last_note
$$;

-- Arguments: in_tube: whose sink the note is left at, after this call.
-- Result: what the note is to name, committed for good: tube_source_check finds it, unless that commit is lost.
-- Errors: TU102 unknown tube; TU111. Locks: the tube's row in tube_sink.
-- A lost answer: call again; it is another one.
CREATE OR REPLACE FUNCTION :"schema".tube_source_note(in_tube text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(in_tube);
    id CONSTANT uuid := gen_random_uuid();
BEGIN
    IF current_setting('synchronous_commit') <> 'remote_apply' THEN
        PERFORM set_config('synchronous_commit', 'on', true); -- the note must not outlive the commit in a crash
    END IF;
    RETURN format('%s:%s:%s', reg.number, tube_private_keep_note(reg.tube, 0, id), id);
END
$$;
COMMENT ON FUNCTION :"schema".tube_source_note IS
    'Commits an id and returns it, for the note that a worker then leaves at the sink.';

-- Ids of outboxes are of tube_seq. Numbers up to seen_seq are drawn no more, so that consumers who go by the id alone do
-- not take a new record for a lost one; numbers drawn before the first worker came are left.
-- Arguments: seen_seq: the greatest seq or id that the caller has read: if tube_seq is below, its commit is gone; or NULL.
--   note: what a note at a sink names, as of tube_source_note; NULL: nothing.
-- Result: how the source differs from the recorded one, the first time that a worker looks; NULL otherwise, and on a server
--   that takes no writes.
-- Locks: none while all is as it was. Otherwise the only row of tube_source, until the transaction ends, and as of
--   tube_seq_advance if they can be had.
-- A lost answer: call again; then the rows are there, and the result is NULL.
-- Errors: 55P03.
CREATE OR REPLACE FUNCTION :"schema".tube_source_check(seen_seq bigint = NULL, note text = NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    last_seq CONSTANT bigint := (SELECT CASE WHEN s.is_called THEN s.last_value ELSE s.last_value - 1 END FROM tube_seq AS s);
    is_lost boolean;
    change text;
BEGIN
    IF pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' THEN
        RETURN NULL;
    END IF;
    change := tube_private_source_change(seen_seq, last_seq, note);
    IF change IS NULL AND EXISTS (SELECT FROM tube_source) THEN
        RETURN NULL;
    END IF;
    IF current_setting('synchronous_commit') <> 'remote_apply' THEN
        PERFORM set_config('synchronous_commit', 'on', true); -- a change is recorded only once
    END IF;
    INSERT INTO tube_source AS s (one) VALUES (true) ON CONFLICT DO NOTHING;
    PERFORM FROM tube_source FOR NO KEY UPDATE;
    change := tube_private_source_change(seen_seq, last_seq, note); -- another session may have been faster
    PERFORM tube_private_keep_note(l.tube, l.number, l.id) FROM tube_private_lost_note(note) AS l; -- reported once
    is_lost := FOUND OR coalesce(seen_seq > last_seq, false);
    UPDATE tube_source AS s
    SET system_identifier = coalesce(n.system_identifier, s.system_identifier),
        timeline = coalesce(n.timeline, s.timeline), sequence = n.sequence, seen_at = clock_timestamp()
    FROM tube_private_source() AS n;
    INSERT INTO tube_unverified AS u (tube, cause, is_certain, detail)
    SELECT r.tube, 'source', is_lost,
        concat(change, CASE WHEN r.kind = 'outbox' THEN -- NULL unless this server was promoted since its start
            '; the last commit that it has is of ' || to_char(
                pg_last_xact_replay_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US "UTC"') END)
    FROM tube_registry AS r WHERE change IS NOT NULL AND r.companion_of IS NULL -- which has no copy
    ORDER BY r.tube
    ON CONFLICT (tube, cause) DO UPDATE
    SET since = excluded.since, is_certain = u.is_certain OR excluded.is_certain,
        detail = right(concat_ws('; ', nullif(u.detail, excluded.detail), excluded.detail), 500);
    -- Last: it is not rolled back, and then the lag would not be found again. Tried once, since a worker calls this
    -- between its renewals. Workers are trusted with no greater step: none is taken back.
    IF seen_seq > last_seq AND seen_seq - last_seq <= 1000000000 THEN
        BEGIN
            PERFORM set_config('pytube.attempt', 'on', true), tube_seq_advance(seen_seq);
            PERFORM set_config('pytube.attempt', 'off', true);
        EXCEPTION WHEN lock_not_available OR invalid_parameter_value THEN
            NULL;
        END;
    END IF;
    RETURN change;
END
$$;
COMMENT ON FUNCTION :"schema".tube_source_check IS
    'Checks whether server, timeline and database are as before, with the commit of the note. If not, lists all copies as '
    'unverified, and returns the difference once. Moves tube_seq beyond seen_seq.';

-- Arguments: in_tube, or NULL for all tubes and outboxes.
-- Result: a row per tube or outbox and cause. cause: source (it was replaced or restored) or sample (one has found keys that differ).
--   is_certain: commits are gone, or the copy differs; else it may be so. A change of the source that no worker has seen
--   yet is among them. No row for an unknown tube.
CREATE OR REPLACE FUNCTION :"schema".tube_unverified_list(in_tube text = NULL) RETURNS TABLE (
    tube text, cause text, since timestamptz, is_certain boolean, detail text
)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT u.tube, u.cause, u.since, u.is_certain, u.detail
    FROM tube_unverified AS u
    WHERE in_tube IS NULL OR u.tube = in_tube
    UNION ALL
    SELECT r.tube, 'source', clock_timestamp(), false, c.change
    FROM (SELECT tube_private_source_change(NULL, NULL, NULL) WHERE EXISTS (SELECT FROM tube_source)) AS c (change)
    JOIN tube_registry AS r ON c.change IS NOT NULL AND r.companion_of IS NULL AND (in_tube IS NULL OR r.tube = in_tube)
    WHERE NOT EXISTS (SELECT FROM tube_unverified AS u WHERE u.tube = r.tube AND u.cause = 'source')
    ORDER BY 1, 2
$$;
COMMENT ON FUNCTION :"schema".tube_unverified_list IS
    'Lists copies to verify and outboxes to acknowledge, because the source changed or a sample found differences.';

-- Arguments: in_tube: a tube, or for 'acknowledge' an outbox; action: 'verify' or 'acknowledge', for the audit; up_to: only
--   entries with no later `since`, so that later entries stay; NULL for all.
-- Result: how many causes were taken off the list. The audit has a row unless it is 0.
-- Errors: TU102 unknown tube; TU111 an outbox can't be verified; 22023 another action; TU106.
-- A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_verified(in_tube text, action text = 'acknowledge', up_to timestamptz = NULL)
RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    causes text[];
BEGIN
    IF action = 'acknowledge' THEN
        PERFORM tube_private_require(in_tube, 'any');
    ELSE
        PERFORM tube_private_require(in_tube);
    END IF;
    IF action IS NULL OR action NOT IN ('verify', 'acknowledge') THEN
        RAISE EXCEPTION 'a copy is not verified by %', quote_nullable(action)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is ''verify'' or ''acknowledge''.';
    END IF;
    PERFORM tube_source_check();
    WITH gone AS (
        DELETE FROM tube_unverified AS u
        WHERE u.tube = in_tube AND (up_to IS NULL OR u.since <= up_to)
        RETURNING u.cause
    )
    SELECT array_agg(g.cause ORDER BY g.cause) INTO causes FROM gone AS g;
    IF causes IS NOT NULL THEN
        PERFORM tube_audit_add(action, in_tube, jsonb_build_object('causes', causes));
    END IF;
    RETURN coalesce(cardinality(causes), 0);
END
$$;
COMMENT ON FUNCTION :"schema".tube_verified IS
    'Removes a tube or outbox from that list; up_to leaves later causes. Returns the number of causes.';

-- Arguments: in_tube; how many keys were compared, how many of these differ, parked ones apart, and of how many that could
--   not be checked; detail: the first keys that differ, for people.
-- Result: none. Nothing is done when there is no such tube. A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_sampled(
    in_tube text, checked integer, differing integer, undecided integer, detail text
) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    INSERT INTO tube_sample AS s (tube, checked, differing, undecided)
    SELECT r.tube, $2, $3, $4 FROM tube_registry AS r WHERE r.tube = in_tube AND r.kind = 'tube'
    ON CONFLICT (tube) DO UPDATE
    SET ended_at = excluded.ended_at, checked = excluded.checked, differing = excluded.differing,
        undecided = excluded.undecided;
    INSERT INTO tube_unverified AS u (tube, cause, is_certain, detail)
    SELECT r.tube, 'sample', true, left($5, 500) FROM tube_registry AS r
    WHERE r.tube = in_tube AND r.kind = 'tube' AND $3 > 0
    ON CONFLICT (tube, cause) DO UPDATE SET since = excluded.since, detail = excluded.detail
$$;
COMMENT ON FUNCTION :"schema".tube_sampled IS 'Records the findings of a sample.';
