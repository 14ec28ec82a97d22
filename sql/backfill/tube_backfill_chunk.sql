-- tube_backfill_chunk: inserts the next pods of a backfill, and moves its cursor with them.
--
-- The first one is preceded by a backfill_start of each shard (op T, so that it comes early), the last
-- one followed by a backfill_end of each (op B, so that it comes when all else of it is done).
--
-- Arguments: backfill_id: one that this session has taken; pods: at most so many; rate: rows a second,
--   for those who look.
-- Result: the backfill as it is now. Nothing is inserted when it is paused, or not inserting any more.
-- Errors: TU122, TU123 as tube_private_backfill_held.
-- Locks: the backfill's row; with the last pods, as tube_private_backfill_drop.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_chunk(backfill_id bigint, pods integer, rate float8 = NULL)
RETURNS :"schema".tube_backfill
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    backfill tube_backfill := tube_private_backfill_held(tube_backfill_chunk.backfill_id);
    changed text;
    queue text := format('%I.%I', tube_private_schema(), backfill.tube);
    touched integer[];
    inserted bigint;
    ids_inserted bigint;
BEGIN
    IF backfill.state <> 'inserting' OR backfill.paused THEN
        RETURN backfill;
    ELSIF EXISTS (SELECT FROM tube_job AS j WHERE j.backfill_id = backfill.backfill_id) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU123',
            MESSAGE = format('backfill %s of %s is done in ranges, not in chunks', backfill.backfill_id, backfill.table_name),
            HINT = 'Go on with `pytube spark backfill`, or cancel it.';
    END IF;
    changed := tube_private_backfill_changed(backfill);
    IF changed IS NOT NULL THEN
        PERFORM tube_private_backfill_end(backfill, 'failed', changed);
        RETURN tube_private_backfill(backfill.backfill_id);
    END IF;
    IF backfill.pods_done = 0 THEN
        PERFORM tube_private_backfill_control(backfill, 'backfill_start', 'T');
    END IF;
    EXECUTE format($sql$
        WITH put AS (
            INSERT INTO %s (op, shard, ids, payload)
            SELECT 'B', i.shard, i.ids, $3 FROM %s AS i
            WHERE i.place > $1 AND i.place <= $1 + $2
            ORDER BY i.place
            RETURNING shard, cardinality(ids) AS ids
        )
        SELECT count(*), coalesce(sum(p.ids), 0), array_agg(DISTINCT p.shard) FROM put AS p$sql$,
        queue, tube_private_backfill_ids(backfill.backfill_id))
    INTO inserted, ids_inserted, touched
    USING backfill.pods_done, pods::bigint, jsonb_build_object('backfill', backfill.backfill_id);
    IF backfill.pods_done + inserted >= backfill.pods_total THEN
        PERFORM tube_private_backfill_control(backfill, 'backfill_end', 'B');
        touched := ARRAY(SELECT generate_series(backfill.shard, backfill.shard + (backfill.shards - 1)));
        PERFORM tube_private_backfill_drop(backfill.backfill_id);
        backfill.state := 'delivering';
        backfill.inserted_at := clock_timestamp();
    END IF;
    PERFORM tube_private_wake_sleepers(backfill.tube, coalesce(touched, '{}'));
    UPDATE tube_backfill AS b
    SET state = backfill.state, inserted_at = backfill.inserted_at, note = NULL,
        rows_done = b.rows_done + ids_inserted, pods_done = b.pods_done + inserted,
        ends_left = CASE WHEN backfill.state = 'delivering' THEN b.shards END,
        rate = tube_backfill_chunk.rate, updated_at = clock_timestamp()
    WHERE b.backfill_id = backfill.backfill_id
    RETURNING b.* INTO backfill;
    RETURN backfill;
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_chunk IS 'Inserts the next pods of a backfill and advances its cursor.';

-- tube_private_backfill_control: a control pod of a backfill for each of its shards.
--
-- Arguments: backfill: its row; type: backfill_start or backfill_end; op.
-- Locks: the new rows.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_control(
    backfill :"schema".tube_backfill, type text, op text
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('INSERT INTO %I.%I (op, shard, ids, payload) SELECT $1, $2 + n, ''{}'', $3 '
        'FROM generate_series(0, $4 - 1) AS n', tube_private_schema(), backfill.tube)
    USING op, backfill.shard, jsonb_build_object('type', type, 'start_seq', backfill.start_seq::text,
        'backfill', backfill.backfill_id, 'sweep', backfill.root), backfill.shards;
END
$$;
