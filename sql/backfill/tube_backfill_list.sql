-- tube_backfill_list: backfills, under way and past, the newest first.
--
-- Arguments: in_tube: of this tube only; NULL: of all.
-- Result: a row per backfill: its number, tube and table; order_col; state (waiting: for transactions,
--   or to collect; inserting; delivering: all its pods are in the tube; finished, cancelled,
--   superseded, failed); paused; rows_done of rows_total inserted, at so many a second; seconds_left
--   until all are; note: what it waits for; pid: whose session works on it, NULL when none does;
--   by_worker: whether a worker is to; shards_left: where it is delivering, those not delivered yet.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_list(in_tube text = NULL)
RETURNS TABLE (
    backfill_id bigint, tube text, tbl text, order_col text, state text, paused boolean, rows_done bigint,
    rows_total bigint, rate float8, seconds_left float8, note text, pid integer, by_worker boolean,
    start_seq bigint, shards_left integer, created_at timestamptz, ended_at timestamptz, relation regclass
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    space CONSTANT text := tube_private_backfill_space();
BEGIN
    -- pg_locks stops the lock manager for a moment: it is read once, however many are under way.
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT l.pid, l.classid::bigint << 32 | l.objid::bigint AS key FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
            AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
    )
    SELECT b.backfill_id, b.tube, b.table_name, b.order_col::text, b.state, b.paused, b.rows_done, b.rows_total,
        b.rate, CASE WHEN b.state = 'inserting' THEN (b.rows_total - b.rows_done) / nullif(b.rate, 0) END,
        b.note, h.pid, b.by_worker, b.start_seq, b.ends_left, b.created_at, b.ended_at, b.tbl
    FROM tube_backfill AS b
    LEFT JOIN held AS h ON h.key = hashtextextended(space, b.backfill_id) AND b.state IN ('waiting', 'inserting')
    WHERE in_tube IS NULL OR b.tube = in_tube
    ORDER BY b.backfill_id DESC;
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_list IS 'Lists backfills, active and past, newest first.';
