-- tube_backfill_collect: stores the ids of a backfill, in order, in a table of its own.
--
-- One statement with one snapshot, which lasts as long as reading and sorting the table does; it
-- writes nothing to the tube, so no worker waits for it, and it locks the backfill only when it is done, so
-- that whoever pauses or ends it does not wait, either. The ids are stored as the pods that they
-- will be: 8 bytes a bigint, and a chunk is copied without looking at it. Rows that lack order_col come
-- last; of rows with the same value none is left out. A related table names each document once.
--
-- Where the table can't be read as it is, the backfill has failed, and its note says why: a privilege lacks or
-- a policy would hide rows, a column is gone or has a type that can't be trusted, the table is a view now.
--
-- Arguments: backfill_id: one that this session has taken.
-- Result: the number of ids; NULL when there are none, because it is paused, was ended meanwhile, or has failed.
--   Called again, it does nothing.
-- Errors: TU122 unknown backfill; TU123 the session does not have it. Others may go away when it is tried again.
-- Locks: the table ACCESS SHARE; at the end, the backfill's row.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_collect(backfill_id bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    backfill tube_backfill;
    att tube_attachment;
    pods bigint;
    wrong text;
BEGIN
    SELECT b.* INTO backfill FROM tube_backfill AS b WHERE b.backfill_id = tube_backfill_collect.backfill_id;
    IF NOT FOUND THEN
        PERFORM tube_private_backfill(tube_backfill_collect.backfill_id);
    END IF;
    PERFORM tube_private_backfill_taken(backfill.backfill_id);
    IF backfill.state <> 'waiting' OR backfill.paused THEN
        RETURN backfill.rows_total;
    END IF;
    wrong := tube_private_backfill_changed(backfill);
    IF wrong IS NULL THEN
        BEGIN
            SELECT a.* INTO STRICT att FROM tube_attachment AS a WHERE a.tube = backfill.tube AND a.tbl = backfill.tbl;
            pods := tube_private_backfill_store(backfill, att);
        EXCEPTION WHEN syntax_error_or_access_rule_violation OR data_exception OR program_limit_exceeded
            OR SQLSTATE 'TU104' OR SQLSTATE 'TU107'
        THEN
            wrong := SQLERRM;
        END;
    END IF;
    SELECT b.* INTO backfill FROM tube_backfill AS b WHERE b.backfill_id = backfill.backfill_id FOR NO KEY UPDATE;
    IF NOT FOUND OR backfill.state <> 'waiting' THEN
        EXECUTE 'DROP TABLE IF EXISTS ' || tube_private_backfill_ids(tube_backfill_collect.backfill_id);
        RETURN NULL;
    ELSIF wrong IS NOT NULL THEN
        PERFORM tube_private_backfill_end(backfill, 'failed', wrong);
        RETURN NULL;
    END IF;
    EXECUTE format('SELECT coalesce(sum(cardinality(ids)), 0) FROM %s', tube_private_backfill_ids(backfill.backfill_id))
    INTO backfill.rows_total;
    UPDATE tube_backfill AS b
    SET state = 'inserting', rows_total = backfill.rows_total, pods_total = pods, note = NULL,
        key_attnum = tube_private_backfill_key_of(att), row_filter = att.row_filter,
        collected_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE b.backfill_id = backfill.backfill_id;
    RETURN backfill.rows_total;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_backfill_collect(bigint) FROM PUBLIC;
COMMENT ON FUNCTION :"schema".tube_backfill_collect IS
    'Stores the ids of a backfill, in order, in a table of its own.';
