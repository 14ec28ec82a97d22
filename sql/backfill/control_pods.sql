-- What workers are asked by control pods: to run a backfill (backfill_schedule), and to sweep after one (backfill_end).
--
-- Functions with the arguments tube, partitions, partition, leader_id are for the leader of that term; shard and seq
-- are the control pod's. They hold the fence until the transaction ends. Their errors: TU001 the term is over;
-- TU002, TU102, TU103 as tube_leader_epoch. To call them again after a lost answer does no harm.

-- A control pod backfill_schedule of op B for each root table that has a shard from shard_from to shard_to, in the
-- first shard of the table. Passed over are tables where a backfill_schedule or a backfill_end waits already in one of
-- their shards, or that are being backfilled in chunks.
-- Arguments: in_tube; order_col: a column of each of these tables; shard_from, shard_to: both included.
-- Result: how many control pods were added.
-- Errors: TU102 unknown tube, 42703 a table has no such column, 22023 shard_from is greater than shard_to, 22004 an
--   argument is NULL. Nothing was added then.
-- Locks: an advisory one for the tube, until the transaction ends: other calls for it wait.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_schedule(
    in_tube text, order_col text, shard_from integer, shard_to integer
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    att tube_attachment;
    column_name name;
    added integer := 0;
BEGIN
    PERFORM tube_private_require(in_tube);
    IF shard_from IS NULL OR shard_to IS NULL OR shard_from > shard_to THEN
        RAISE EXCEPTION USING
            ERRCODE = CASE WHEN shard_from > shard_to THEN 'invalid_parameter_value' ELSE 'null_value_not_allowed' END,
            MESSAGE = format('there are no shards from %s to %s',
                coalesce(shard_from::text, 'NULL'), coalesce(shard_to::text, 'NULL')),
            HINT = 'Give the first and the last shard.';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(tube_private_schema() || ' schedule ' || in_tube, 0));
    FOR att IN
        SELECT a.* FROM tube_attachment AS a
        WHERE a.tube = in_tube AND a.shard <= shard_to AND a.shard + (a.shards - 1) >= shard_from
            AND tube_private_is_root(a) AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = a.tbl)
        ORDER BY a.shard
    LOOP
        column_name := tube_private_order_column(att.tbl, order_col);
        CONTINUE WHEN tube_private_control_waits(in_tube, att.shard, att.shards, '{backfill_schedule,backfill_end}')
            OR EXISTS (SELECT FROM tube_backfill AS b
                WHERE b.tube = att.tube AND b.tbl = att.tbl AND b.state IN ('waiting', 'inserting', 'delivering'));
        PERFORM tube_private_put_schedule(in_tube, att.shard, tube_private_table_name(att.tbl), column_name);
        added := added + 1;
    END LOOP;
    RETURN added;
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_schedule IS
    'Has workers backfill the root tables of these shards, by control pods; returns how many. Skips tables with a '
    'waiting or running backfill.';

-- tube_private_control_waits: whether a control pod of some types waits in a range of shards; of_step3: leaving out
-- the ones of backfills in chunks.
CREATE OR REPLACE FUNCTION :"schema".tube_private_control_waits(
    tube text, first integer, shards integer, types text[], of_step3 boolean = false
) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off AS $$ -- there is an index of the few control pods
DECLARE
    waits boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM %s'
        ' WHERE payload IS NOT NULL AND ids = ''{}'' AND shard BETWEEN $1 AND $2 AND payload ->> ''type'' = ANY ($3)'
        ' AND NOT ($4 AND payload ? ''backfill''))', tube_private_qualify(tube))
    INTO waits USING first, first + (shards - 1), types, of_step3;
    RETURN waits;
END
$$;

-- tube_private_put_schedule: puts a backfill_schedule for a table into a shard; resync: for its root table, whatever it is
-- called by then.
CREATE OR REPLACE FUNCTION :"schema".tube_private_put_schedule(
    tube text, shard integer, table_name text, order_col name, resync boolean = false
) RETURNS void
LANGUAGE sql AS $$
    SELECT tube_private_put_control_pods(tube, 'B', jsonb_build_object('type', 'backfill_schedule',
        'tbl', table_name, 'order_col', order_col::text)
        || CASE WHEN resync THEN '{"resync": true}' ELSE '{}' END::jsonb, ARRAY[shard])
$$;

-- tube_private_put_control: puts a control pod into each shard of a backfill (of step 3: a row with its tube, shard,
-- shards and start_seq): backfill_start of op T, so that it comes early, or backfill_end of op B, after all else.
CREATE OR REPLACE FUNCTION :"schema".tube_private_put_control(type text, backfill :"schema".tube_backfill) RETURNS void
LANGUAGE sql AS $$
    SELECT tube_private_put_control_pods(backfill.tube, CASE type WHEN 'backfill_start' THEN 'T' ELSE 'B' END,
        jsonb_strip_nulls(jsonb_build_object('type', type, 'start_seq', backfill.start_seq::text,
            'backfill', backfill.backfill_id, 'sweep', backfill.root)),
        ARRAY(SELECT generate_series(backfill.shard, backfill.shard + (backfill.shards - 1))))
$$;

-- tube_private_put_control_pods: puts a control pod into each of some shards, and wakes their workers.
CREATE OR REPLACE FUNCTION :"schema".tube_private_put_control_pods(tube text, op text, payload jsonb, shards integer[])
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('INSERT INTO %s (op, shard, ids, payload) SELECT $1, s, ''{}'', $2 FROM unnest($3) AS s',
        tube_private_qualify(tube)) USING op, payload, shards;
    PERFORM tube_private_wake_sleepers(tube, shards);
END
$$;

-- The pod goes and the backfill comes in one transaction under the term's fence, so that neither a crash nor a deposed
-- leader loses or doubles it.
-- Result: the number of the backfill; NULL when the pod is not there any more, or not this term's.
-- Errors: of terms; TU108, TU121 as tube_backfill_create, the latter also while the predicate does not fit the table: nothing
--   was changed, the pod is still there.
-- Locks: the registry row FOR KEY SHARE (first, as always), the fence, the pod.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_take(
    tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    payload jsonb;
    tbl regclass;
    att tube_attachment;
    result bigint;
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = $1 FOR KEY SHARE;
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    payload := tube_private_take_control(tube, partitions, partition, leader_id, shard, seq);
    IF payload IS NULL THEN
        RETURN NULL;
    END IF;
    -- By the catalog: pytube's owner may not look into the schemas of others.
    BEGIN
        SELECT c.oid INTO tbl FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE ARRAY[n.nspname, c.relname]::text[] = parse_ident(payload ->> 'tbl');
    EXCEPTION WHEN invalid_parameter_value THEN
        tbl := NULL;
    END;
    IF payload ? 'resync' THEN -- what a writer asked for is of the root table of the shard, whatever it is called by now
        tbl := coalesce((SELECT a.tbl FROM tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl
            WHERE a.tube = $1 AND a.shard = $5 ORDER BY a.position LIMIT 1), tbl);
    END IF;
    IF tbl IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108',
            MESSAGE = format('there is no table %s', coalesce(quote_literal(payload ->> 'tbl'), 'NULL')),
            HINT = 'A backfill_schedule names schema.table.';
    END IF;
    PERFORM tube_private_follow_columns(tube, tbl);
    att := tube_private_attachment(tube, tbl);
    -- A backfill would fail, and what asked for it be forgotten.
    IF payload ? 'resync' AND att.row_filter IS NOT NULL AND to_regproc(tube_private_function(att, 'passes')) IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU121',
            MESSAGE = format('%s can''t be backfilled for tube %L yet: the predicate is not in force there', att.tbl, tube),
            HINT = format('Its owner has to run tube_sync(), or it does not fit any more: see %I.', 'tube_ensure_exists');
    END IF;
    -- It goes by the ids, whatever their column is called by now.
    result := tube_backfill_create(tube, tbl, CASE WHEN NOT payload ? 'resync' THEN payload ->> 'order_col' END, false, true);
    -- Others that can be seen by now are answered by this one: it waits for all that wrote before.
    EXECUTE format('DELETE FROM %s WHERE payload IS NOT NULL AND ids = ''{}'' AND shard = $1'
        ' AND payload ->> ''type'' = ''backfill_schedule'' AND payload ->> ''tbl'' = $2', tube_private_qualify(tube))
    USING shard, payload ->> 'tbl';
    RETURN result;
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_take IS
    'Turns a backfill_schedule pod of a term into a backfill that a worker runs; returns its id.';

-- tube_private_take_control: deletes a control pod of a term; its payload, or NULL when it is not there or not the term's.
CREATE OR REPLACE FUNCTION :"schema".tube_private_take_control(
    tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint
) RETURNS jsonb
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    payload jsonb;
BEGIN
    EXECUTE format('DELETE FROM %s WHERE payload IS NOT NULL AND ids = ''{}'' AND (shard %% %s) = %s'
        ' AND seq = $1 AND leader_id = $2 AND shard = $3 RETURNING payload', tube_private_qualify(tube), partitions, partition)
    INTO payload USING seq, leader_id, shard;
    RETURN payload;
END
$$;

CREATE OR REPLACE FUNCTION :"schema".tube_sweep_ready(
    tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET enable_seqscan = off
SET enable_bitmapscan = off AS $$
DECLARE
    left_over boolean;
BEGIN
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE %s AND (CASE WHEN op = ''B'' THEN 1 ELSE 0 END) = 1'
        ' AND seq < $1 AND shard = $2 AND ids <> ''{}'')',
        tube_private_qualify(tube), (tube_private_slices(tube, partitions, partition)).pods)
    INTO left_over USING seq, shard;
    RETURN NOT left_over;
END
$$;
COMMENT ON FUNCTION :"schema".tube_sweep_ready IS
    'Returns whether all backfill pods of the shard before a backfill_end are done.';

-- They go through the queue as everything does: an existing row is written again, a missing one is deleted at the
-- sink. So a row written meanwhile is never lost.
-- Arguments: the term; shard; ids: of the tube's type. Result: the number of pods.
-- Errors: of terms; TU106 the shard is not of the partition; 42804 ids are of a type that no tube has.
CREATE OR REPLACE FUNCTION :"schema".tube_sweep_touch(
    tube text, partitions integer, partition integer, leader_id uuid, shard integer, ids anyarray
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    pods integer;
BEGIN
    PERFORM tube_private_check_ids(ids);
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    IF shard % partitions <> partition THEN
        RAISE EXCEPTION 'shard % is not in partition % of tube %', shard, partition, quote_literal(tube)
            USING ERRCODE = 'TU106', HINT = 'Sweep shards of the term''s own partition only.';
    END IF;
    EXECUTE format('INSERT INTO %s (op, shard, ids) SELECT ''B'', $1, $2[n : n + 249] '
        'FROM generate_series(1, cardinality($2), 250) AS n', tube_private_qualify(tube)) USING shard, ids;
    GET DIAGNOSTICS pods = ROW_COUNT;
    -- Wake the worker that called, too: it goes back to sleep when the sweep ends, without another poll.
    PERFORM tube_private_wake_sleepers(tube, ARRAY[shard]);
    RETURN pods;
END
$$;
COMMENT ON FUNCTION :"schema".tube_sweep_touch IS
    'Touches ids that a scan of the sink found; returns the number of pods.';

-- tube_private_check_ids: refuses ids of a type that is not Postgres' own for keys: its casts, which anybody may define, would
-- run with the rights of pytube's owner.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_ids(ids anyarray) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF pg_typeof(ids) NOT IN ('bigint[]'::regtype, 'integer[]'::regtype, 'smallint[]'::regtype, 'uuid[]'::regtype, 'text[]'::regtype) THEN
        RAISE EXCEPTION 'ids are %', pg_typeof(ids)
            USING ERRCODE = 'datatype_mismatch', HINT = 'Give bigint[] (or smaller integers), uuid[] or text[].';
    END IF;
END
$$;

-- tube_sweep_end: a backfill_end was acted upon: the pod goes, and its backfill has a shard less to do. Returns whether
-- the pod was there. Locks: the fence, the backfill's row and the pod, until the transaction ends.
CREATE OR REPLACE FUNCTION :"schema".tube_sweep_end(
    tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    backfills bigint[];
    payload jsonb;
BEGIN
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    backfills := tube_private_backfills_at_end(tube, ARRAY[seq]);
    payload := tube_private_take_control(tube, partitions, partition, leader_id, shard, seq);
    PERFORM tube_private_backfill_count_ends(b.id) FROM unnest(backfills) AS b (id);
    RETURN payload IS NOT NULL;
END
$$;
COMMENT ON FUNCTION :"schema".tube_sweep_end IS 'Deletes a backfill_end pod after the worker has acted on it.';

-- tube_private_backfills_at_end: the backfills that are being delivered and whose ends are among some pods; NULL: none.
-- Locks their rows FOR NO KEY UPDATE, before the pods: a cancel takes both in this order.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfills_at_end(tube text, seqs bigint[]) RETURNS bigint[]
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    result bigint[];
BEGIN
    EXECUTE format($sql$
        SELECT array_agg(h.backfill_id) FROM (
            SELECT b.backfill_id FROM tube_backfill AS b
            WHERE b.tube = $1 AND b.state = 'delivering' AND EXISTS (
                SELECT FROM %s AS t WHERE t.payload IS NOT NULL AND t.ids = '{}' AND t.seq = ANY ($2)
                    AND t.payload @> jsonb_build_object('type', 'backfill_end', 'backfill', b.backfill_id))
            ORDER BY b.backfill_id FOR NO KEY UPDATE) AS h$sql$, tube_private_qualify(tube))
    INTO result USING tube, seqs;
    RETURN result;
END
$$;

-- tube_private_backfill_count_ends: has a backfill that is being delivered, and locked, as many ends left as there are
-- pods of them. Without any, it is finished.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_count_ends(backfill_id bigint) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    backfill tube_backfill := tube_private_lock_backfill(backfill_id);
    ends integer;
BEGIN
    EXECUTE format('SELECT count(*) FROM %s WHERE payload IS NOT NULL AND ids = ''{}'' AND payload @> $1',
        tube_private_qualify(backfill.tube)) INTO ends USING jsonb_build_object('type', 'backfill_end', 'backfill', backfill_id);
    UPDATE tube_backfill AS b
    SET ends_left = ends, updated_at = clock_timestamp(),
        state = CASE WHEN ends > 0 THEN b.state ELSE 'finished' END,
        ended_at = CASE WHEN ends > 0 THEN NULL ELSE clock_timestamp() END
    WHERE b.backfill_id = $1 AND b.state = 'delivering';
    IF ends = 0 THEN
        -- Once all root tables were backfilled since, from the start to the end, the copy is as good as new.
        DELETE FROM tube_unverified AS u
        WHERE u.tube = backfill.tube AND NOT EXISTS (
            SELECT FROM tube_attachment AS a
            WHERE a.tube = u.tube AND tube_private_is_root(a) AND NOT EXISTS (
                SELECT FROM tube_backfill AS b
                WHERE b.tube = a.tube AND b.tbl = a.tbl AND b.state = 'finished' AND b.created_at > u.since));
    END IF;
END
$$;
