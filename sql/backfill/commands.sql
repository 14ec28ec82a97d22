-- Who works on a backfill, how it comes to an end, and what there is to see of it. Errors as in chunks.sql.

-- The functions that change a backfill check it. So two sessions never work on one, and a worker that lost its session
-- can't continue.
-- Result: whether this session has it now. Errors: TU122. Locks: an advisory one of the session.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_lock(backfill_id bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM tube_backfill AS b WHERE b.backfill_id = $1) THEN
        PERFORM tube_private_lock_backfill(backfill_id); -- raises TU122
    END IF;
    RETURN tube_private_holds_backfill(backfill_id) OR pg_try_advisory_lock(tube_private_backfill_key(backfill_id));
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_lock IS 'Acquires the right to work on a backfill, until the session ends.';

-- tube_backfill_unlock: gives that right back; returns whether this session had it.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_unlock(backfill_id bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    RETURN tube_private_holds_backfill(backfill_id) AND pg_advisory_unlock(tube_private_backfill_key(backfill_id));
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_unlock IS 'Releases this right.';

-- tube_private_backfill_key: the advisory lock of the session that works on a backfill.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_key(backfill_id bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT hashtextextended('pytube backfill ' || tube_private_schema(), backfill_id) $$;

-- tube_private_holds_backfill: whether this session has the right to work on a backfill.
CREATE OR REPLACE FUNCTION :"schema".tube_private_holds_backfill(backfill_id bigint) RETURNS boolean
LANGUAGE sql AS $$
    SELECT EXISTS (SELECT FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid = pg_backend_pid()
            AND l.classid::bigint << 32 | l.objid::bigint = tube_private_backfill_key(backfill_id)
            AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
$$;

-- It takes effect after the chunk that is being inserted. When it is cancelled, its pods that wait are taken back; what
-- a worker holds already is delivered, which does no harm.
-- Arguments: backfill_id; command: pause, resume or cancel.
-- Result: the backfill as it is now. Pausing a paused one does nothing, and so on.
-- Errors: TU122; TU124 it is past that; 22023 an unknown command; 40P01 is to be tried again.
-- Locks: the backfill's row; to cancel, its pods, and as tube_backfill_tidy.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_command(backfill_id bigint, command text)
RETURNS :"schema".tube_backfill
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    backfill tube_backfill := tube_private_lock_backfill(backfill_id);
BEGIN
    IF command IS NULL OR command NOT IN ('pause', 'resume', 'cancel') THEN
        RAISE EXCEPTION 'there is no command %', quote_nullable(command)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is pause, resume or cancel.';
    ELSIF backfill.state IN ('finished', 'cancelled', 'superseded', 'failed')
        OR (command = 'pause' AND backfill.state = 'delivering')
    THEN
        RAISE EXCEPTION USING ERRCODE = 'TU124',
            MESSAGE = format('backfill %s of %s is %s', backfill.backfill_id, backfill.table_name, backfill.state),
            HINT = CASE backfill.state WHEN 'delivering'
                THEN 'All its pods are in the tube; it can be cancelled.' ELSE 'Begin a new one.' END;
    ELSIF command = 'cancel' THEN
        PERFORM tube_private_end_backfill(backfill, 'cancelled', NULL);
    ELSE
        UPDATE tube_backfill AS b SET paused = (command = 'pause'), updated_at = clock_timestamp()
        WHERE b.backfill_id = backfill.backfill_id;
    END IF;
    RETURN tube_private_lock_backfill(backfill.backfill_id);
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_command IS 'Takes the command pause, resume or cancel, at any time.';

-- tube_private_end_backfill: ends a backfill before its time, and removes its queued pods.
-- Its pods are known by their payload. Marked ones are left; its control pods go in any case, so
-- that its end is never acted upon. One chunk at most has to be waited for.
-- Arguments: backfill: its row, locked; outcome: cancelled, superseded or failed; note: why, or NULL.
CREATE OR REPLACE FUNCTION :"schema".tube_private_end_backfill(
    backfill :"schema".tube_backfill, outcome text, note text
) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    tag jsonb := jsonb_build_object('backfill', backfill.backfill_id);
    reg tube_registry := tube_private_require(backfill.tube);
BEGIN
    UPDATE tube_backfill AS b
    SET state = outcome, note = $3, paused = false, ended_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE b.backfill_id = backfill.backfill_id;
    PERFORM tube_backfill_tidy();
    EXECUTE format('DELETE FROM %s WHERE payload IS NOT NULL AND ids = ''{}'' AND payload @> $1',
        tube_private_qualify(reg.tube)) USING tag;
    FOR part IN 0 .. reg.partitions - 1 LOOP
        EXECUTE format('DELETE FROM %s WHERE %s AND (CASE WHEN op = ''B'' THEN 1 ELSE 0 END) = 1'
            ' AND seq > $1 AND leader_id IS NULL AND payload @> $2',
            tube_private_qualify(reg.tube), (tube_private_slices(reg.tube, reg.partitions, part)).pods)
        USING backfill.start_seq, tag;
    END LOOP;
END
$$;

-- A backfill that ends calls it. To wait for a reader, which a pg_dump is for hours, would hold up more than this
-- session: its transaction has an xid, behind which the settled seq of all tubes stands still. So a later call drops
-- them.
-- Result: how many tables are left. Locks: each table ACCESS EXCLUSIVE, where it can be had at once.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_tidy() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    ids text;
    left_over integer := 0;
BEGIN
    -- Found in the catalogue: backfills of the past are many, their tables few.
    FOR ids IN
        SELECT tube_private_qualify(c.relname) FROM pg_class AS c
        LEFT JOIN tube_backfill AS b ON b.backfill_id = substring(c.relname FROM '([0-9]{1,18})$')::bigint
        WHERE c.relname ~ '^tube_backfill_ids_[0-9]{1,18}$' AND c.relkind = 'r'
            AND c.relowner = quote_ident(current_user)::regrole AND c.relnamespace = to_regnamespace(quote_ident(tube_private_schema()))
            AND coalesce(b.state, 'gone') NOT IN ('waiting', 'inserting')
            AND NOT EXISTS (SELECT FROM tube_registry AS r WHERE r.tube = c.relname) -- a tube may be called so
    LOOP
        BEGIN
            EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', ids);
            EXECUTE format('DROP TABLE %s', ids);
        EXCEPTION
            WHEN lock_not_available THEN left_over := left_over + 1;
            WHEN undefined_table THEN NULL; -- another session was faster
        END;
    END LOOP;
    RETURN left_over;
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_tidy IS
    'Drops stored ids of ended backfills; returns how many tables are left.';

-- tube_private_drop_stored: the trigger that drops the table of a deleted row, named by a prefix and one of its
-- columns.
CREATE OR REPLACE FUNCTION :"schema".tube_private_drop_stored() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    stored CONSTANT text := TG_ARGV[0] || (to_jsonb(OLD) ->> TG_ARGV[1]);
BEGIN
    IF NOT EXISTS (SELECT FROM tube_registry AS r WHERE r.tube = stored) THEN -- a tube may be called so
        EXECUTE format('DROP TABLE IF EXISTS %I.%I', TG_TABLE_SCHEMA, stored);
    END IF;
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER tube_backfill_gone_trigger AFTER DELETE ON :"schema".tube_backfill
    FOR EACH ROW EXECUTE FUNCTION :"schema".tube_private_drop_stored('tube_backfill_ids_', 'backfill_id');
CREATE OR REPLACE TRIGGER tube_job_gone_trigger AFTER DELETE ON :"schema".tube_job
    FOR EACH ROW EXECUTE FUNCTION :"schema".tube_private_drop_stored('tube_job_pods_', 'number');

-- Arguments: in_tube: of this tube only; NULL: of all.
-- Result: a row per backfill: its number, tube and table; order_col; state (waiting: for transactions, or to collect;
--   inserting; delivering: all its pods are in the tube; finished, cancelled, superseded, failed); paused; rows_done of
--   rows_total inserted, at so many a second; seconds_left until all are; note: why it waits; pid: of the session
--   that works on it, NULL when none does; by_worker: whether a worker is to; shards_left: where it is delivering,
--   those not delivered yet.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_list(in_tube text = NULL)
RETURNS TABLE (
    backfill_id bigint, tube text, tbl text, order_col text, state text, paused boolean, rows_done bigint,
    rows_total bigint, rate float8, seconds_left float8, note text, pid integer, by_worker boolean,
    start_seq bigint, shards_left integer, created_at timestamptz, ended_at timestamptz, relation regclass
)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    -- pg_locks stops the lock manager for a moment: it is read once, however many are under way.
    WITH held AS MATERIALIZED (
        SELECT l.pid, l.classid::bigint << 32 | l.objid::bigint AS key FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
            AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
    SELECT b.backfill_id, b.tube, b.table_name, b.order_col, b.state, b.paused, b.rows_done, b.rows_total,
        b.rate, CASE WHEN b.state = 'inserting' THEN (b.rows_total - b.rows_done) / nullif(b.rate, 0) END,
        b.note, h.pid, b.by_worker, b.start_seq, b.ends_left, b.created_at, b.ended_at, b.tbl
    FROM tube_backfill AS b
    LEFT JOIN held AS h ON h.key = tube_private_backfill_key(b.backfill_id) AND b.state IN ('waiting', 'inserting')
    WHERE in_tube IS NULL OR b.tube = in_tube ORDER BY b.backfill_id DESC
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_list IS
    'Lists backfills, newest first. rows_done counts rows inserted into the tube.';

-- Exact while 10,000 backfill pods at most wait and the first 20 pods of each partition are all; else it counts pods, and
-- takes the average of these 20 for each. Where more wait, pages of the table are counted, as for tube_stats. So it costs
-- little, however much waits.
-- Result: 0 if it has inserted none, or is over. Errors: TU122.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_waiting(backfill_id bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET enable_seqscan = off AS $$
DECLARE
    backfill tube_backfill;
    reg tube_registry;
    most integer := 10000;
    tag CONSTANT jsonb := jsonb_build_object('backfill', backfill_id);
    ours CONSTANT text := 'p.payload @> $1 AND p.payload ->> ''type'' IS NULL';
    class text;
    looked_at bigint;
    pods bigint;
    size float8;
    rows float8 := 0;
    largest float8 := 0;
BEGIN
    SELECT b.* INTO backfill FROM tube_backfill AS b WHERE b.backfill_id = tube_backfill_waiting.backfill_id;
    IF NOT FOUND THEN
        PERFORM tube_private_lock_backfill(backfill_id); -- raises TU122
    ELSIF backfill.state NOT IN ('inserting', 'delivering') THEN
        RETURN 0;
    END IF;
    reg := tube_private_require(backfill.tube);
    FOR part IN 0 .. reg.partitions - 1 LOOP
        class := format('FROM %s AS p WHERE %s AND (CASE WHEN p.op = ''B'' THEN 1 ELSE 0 END) = 1 AND p.seq > $2',
            tube_private_qualify(reg.tube), (tube_private_slices(reg.tube, reg.partitions, part)).pods);
        EXECUTE format('SELECT count(*), count(*) FILTER (WHERE %s) FROM (SELECT p.payload %s LIMIT $3) AS p', ours, class)
        INTO looked_at, pods USING tag, backfill.start_seq, most + 1;
        IF pods > 0 THEN
            EXECUTE format('SELECT avg(cardinality(f.ids)) FROM (SELECT p.ids %s AND %s LIMIT 20) AS f', class, ours)
            INTO size USING tag, backfill.start_seq;
            rows := rows + pods * size;
            largest := greatest(largest, size);
        END IF;
        most := most - looked_at;
        EXIT WHEN most < 0;
    END LOOP;
    IF most < 0 THEN
        EXECUTE (SELECT format('SELECT sum(s.weight) FROM (%s) AS s', string_agg(format('SELECT %s::float8 AS weight FROM %s AS p'
            ' WHERE p.ctid >= ''(%s,0)'' AND p.ctid < ''(%s,0)'' AND p.op = ''B'' AND p.seq > $2 AND %s',
            r.weight, tube_private_qualify(reg.tube), r.low, r.high, ours), ' UNION ALL '))
            FROM tube_private_page_runs(tube_private_qualify(reg.tube), NULL) AS r)
        INTO rows USING tag, backfill.start_seq;
        rows := coalesce(rows, 0) * coalesce(nullif(largest, 0), 250); -- ids of a full pod
    END IF;
    RETURN least(backfill.rows_done, round(rows)::bigint);
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_waiting IS 'Returns about how many rows of a backfill wait in the tube.';

-- Arguments: backfill_id: of the backfill that this session runs; note: a sentence, NULL for nothing special.
-- Result: the backfill as it is now. Errors: TU122, TU123. Locks: the backfill's row.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_note(backfill_id bigint, note text) RETURNS :"schema".tube_backfill
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    backfill tube_backfill := tube_private_lock_backfill(backfill_id, held => true);
BEGIN
    IF backfill.note IS DISTINCT FROM note THEN
        UPDATE tube_backfill AS b SET note = $2, updated_at = clock_timestamp()
        WHERE b.backfill_id = backfill.backfill_id RETURNING b.* INTO backfill;
    END IF;
    RETURN backfill;
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_note IS 'Records why a backfill waits.';

-- Arguments: tube; pods_limit: no need to count on beyond so many.
-- Result: a row for each replica: waiting: backfill pods in the tube, pods_limit + 1 at most; control pods are left
--   out, which may wait for other things than workers (recognized by their payload: looking at the ids would fetch them);
--   the replica's name, its seconds of replay lag and the bytes of WAL that it is behind. One row with NULLs where there is
--   none, or where pytube's owner may not see it (it needs pg_monitor).
-- Errors: TU102 unknown tube.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_pressure(tube text, pods_limit integer)
RETURNS TABLE (waiting bigint, replica text, replica_lag float8, replica_behind bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET enable_seqscan = off AS $$
DECLARE
    reg tube_registry := tube_private_require(tube);
    counted bigint;
    pods bigint := 0;
BEGIN
    FOR part IN 0 .. reg.partitions - 1 LOOP
        EXIT WHEN pods > pods_limit;
        EXECUTE format('SELECT count(*) FROM (SELECT FROM %s WHERE %s AND (CASE WHEN op = ''B'' THEN 1 ELSE 0 END) = 1'
            ' AND payload ->> ''type'' IS NULL LIMIT $1) AS first_ones',
            tube_private_qualify(reg.tube), (tube_private_slices(reg.tube, reg.partitions, part)).pods)
        INTO counted USING pods_limit + 1 - pods;
        pods := pods + counted;
    END LOOP;
    RETURN QUERY
    SELECT pods, coalesce(nullif(r.application_name, ''), r.client_addr::text, r.pid::text),
        extract(epoch FROM r.replay_lag)::float8,
        pg_wal_lsn_diff(pg_current_wal_lsn(), coalesce(r.replay_lsn, r.flush_lsn, r.write_lsn, r.sent_lsn))::bigint
    FROM (SELECT) AS always LEFT JOIN pg_stat_replication AS r ON r.state IN ('streaming', 'catchup') ORDER BY 2;
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_pressure IS
    'Returns the backlog and the replicas'' lag, to which a backfill''s limits apply.';
