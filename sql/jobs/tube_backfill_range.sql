-- tube_backfill_range: touches the rows of one range of a backfill, in the order of its column.
--
-- Arguments: backfill_id: one that was split; unit: 0 or more; rate: rows a second, for those who look.
-- Result: the number of rows; 0 when the range was in already; NULL, and nothing was done, when the
--   backfill is paused.
-- Errors: TU131 there is no such backfill, or it was not split; TU124 it was cancelled, superseded or has failed,
--   or is past that; TU108 the table is attached otherwise, or not any more; 22023 there is no such range; 23505 another session has done
--   it meanwhile; 42501 the caller may not read the table, or a policy would hide rows;
--   40001 another table got the name meanwhile.
-- Locks: of the table ACCESS SHARE; the backfill's row, at the end.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_range(backfill_id bigint, unit integer, rate float8 = NULL)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
SET row_security = off
SET work_mem = '64MB'
SET jit = off
SET cursor_tuple_fraction = 1 -- all of it will be read
AS $$
DECLARE
    plan CONSTANT record := tube_private_backfill_range_query(backfill_id, unit);
    pod record;
    pods bigint := 0;
    ids_read bigint := 0;
    touched integer[] := '{}';
BEGIN
    IF coalesce(plan.query, '') = '' THEN
        RETURN CASE plan.query WHEN '' THEN 0 END;
    END IF;
    FOR pod IN EXECUTE plan.query LOOP
        PERFORM tube_private_backfill_range_put(backfill_id, pod.shard, pod.ids);
        pods := pods + 1;
        ids_read := ids_read + cardinality(pod.ids);
        IF pod.shard <> ALL (touched) THEN
            touched := touched || pod.shard;
        END IF;
    END LOOP;
    PERFORM tube_private_backfill_was_read(plan.tbl, plan.table_name);
    RETURN tube_private_backfill_range_done(backfill_id, unit, ids_read, pods, touched, rate);
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_range IS 'Touches the rows of one range of a split backfill.';

-- tube_private_backfill_range_query: the query for the ids of one range, as the pods that they will be.
--
-- Result: query: shard, ids, in order; empty when the range was in already; NULL when the backfill is paused;
--   tbl, table_name: of the table that it names.
-- Errors: as of tube_backfill_range.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_range_query(
    backfill_id bigint, unit integer, OUT query text, OUT tbl regclass, OUT table_name text
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    job tube_job := tube_private_job('backfill ' || tube_private_backfill_range_query.backfill_id, false);
    backfill tube_backfill;
    att tube_attachment;
BEGIN
    SELECT b.* INTO backfill FROM tube_backfill AS b WHERE b.backfill_id = tube_private_backfill_range_query.backfill_id;
    IF backfill.paused THEN
        RETURN;
    ELSIF unit IS NULL OR unit NOT BETWEEN 0 AND job.units - 1 THEN
        RAISE EXCEPTION 'backfill % has no range %', backfill.backfill_id, unit
            USING ERRCODE = 'invalid_parameter_value', HINT = format('It has the ranges 0 to %s.', job.units - 1);
    ELSIF EXISTS (SELECT FROM tube_job_unit AS u WHERE u.job_id = job.job_id AND u.unit = tube_private_backfill_range_query.unit) THEN
        query := '';
        RETURN;
    END IF;
    att := tube_private_backfill_still(backfill);
    tbl := att.tbl;
    table_name := att.tbl;
    query := tube_private_backfill_rows(backfill, att,
        tube_private_backfill_within(att.tbl, backfill.order_col, job.bounds, unit));
END
$$;

-- tube_private_backfill_range_put: puts a pod of a range into the tube. For tube_backfill_range alone.
--
-- Arguments: backfill_id: one that was split; shard; ids: of the tube's type.
-- Errors: TU131 it was not split; TU106 a shard that its table has not; 42804 ids of another type.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_range_put(backfill_id bigint, shard integer, ids anyarray) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    backfill tube_backfill;
BEGIN
    PERFORM tube_private_backfill_check_ids(ids);
    SELECT b.* INTO backfill FROM tube_backfill AS b JOIN tube_job AS j ON j.backfill_id = b.backfill_id
    WHERE b.backfill_id = tube_private_backfill_range_put.backfill_id AND b.state = 'inserting';
    IF NOT FOUND OR shard NOT BETWEEN backfill.shard AND backfill.shard + (backfill.shards - 1) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU131', MESSAGE = format('backfill %s is not being inserted in ranges, or not into shard %s',
            backfill_id, shard), HINT = 'Call tube_backfill_range.';
    END IF;
    EXECUTE format('INSERT INTO %I.%I (op, shard, ids, payload) VALUES (''B'', $1, $2, $3)', tube_private_schema(), backfill.tube)
    USING shard, ids, jsonb_build_object('backfill', backfill.backfill_id);
END
$$;

-- tube_private_backfill_range_done: records that a range is in. For tube_backfill_range alone.
--
-- Arguments: of tube_backfill_range; ids, pods, touched: what was put.
-- Result: ids.
-- Locks: the backfill's row.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_range_done(
    backfill_id bigint, unit integer, ids bigint, pods bigint, touched integer[], rate float8
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    job tube_job := tube_private_job('backfill ' || backfill_id, false);
BEGIN
    IF NOT tube_private_job_done(job, unit, ids, ids, pods, touched) THEN
        RAISE EXCEPTION 'range % of backfill % was done by another session meanwhile', unit, backfill_id
            USING ERRCODE = 'unique_violation', HINT = 'Call again, and it does nothing.';
    END IF;
    -- Whoever ends the backfill locks its row: it then takes these pods back, or they never come.
    UPDATE tube_backfill AS b
    SET rows_done = b.rows_done + ids, pods_done = b.pods_done + 1, updated_at = clock_timestamp(),
        rate = coalesce(tube_private_backfill_range_done.rate, b.rate)
    WHERE b.backfill_id = tube_private_backfill_range_done.backfill_id AND b.state = 'inserting';
    IF NOT FOUND THEN
        PERFORM tube_private_backfill_still(b) FROM tube_backfill AS b
        WHERE b.backfill_id = tube_private_backfill_range_done.backfill_id;
    END IF;
    RETURN ids;
END
$$;

-- tube_private_backfill_still: what a backfill's table is attached as, for one that is being inserted.
--
-- Arguments: backfill: its row.
-- Result: the attachment.
-- Errors: TU124 the backfill is not inserting any more; TU108 the table is attached otherwise, or not any more.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_still(backfill :"schema".tube_backfill)
RETURNS :"schema".tube_attachment
LANGUAGE plpgsql AS $$
DECLARE
    att tube_attachment;
    changed text;
BEGIN
    IF backfill.state <> 'inserting' THEN
        RAISE EXCEPTION USING ERRCODE = 'TU124',
            MESSAGE = format('backfill %s of %s is %s', backfill.backfill_id, backfill.table_name, backfill.state),
            HINT = 'Begin a new one.';
    END IF;
    changed := tube_private_backfill_changed(backfill);
    IF changed IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108',
            MESSAGE = format('backfill %s of %s can''t go on: %s', backfill.backfill_id, backfill.table_name, changed),
            HINT = 'Cancel the backfill, and begin a new one.';
    END IF;
    SELECT a.* INTO STRICT att FROM tube_attachment AS a WHERE a.tube = backfill.tube AND a.tbl = backfill.tbl;
    RETURN att;
END
$$;

-- tube_private_backfill_literals: the type of the literals that bound a range of a column, as SQL text.
--
-- Of a domain what it is made of: ranges are read with the rights of whoever works on them.
--
-- Errors: TU104 only code of its owner may tell what a literal of the type is.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_literals(tbl regclass, col name) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    found_type oid;
    modifier integer;
    base oid;
BEGIN
    SELECT a.atttypid, a.atttypmod INTO found_type, modifier FROM pg_attribute AS a
    WHERE a.attrelid = tbl AND a.attname = col AND NOT a.attisdropped;
    base := tube_private_base_type(found_type);
    IF NOT EXISTS (SELECT FROM pg_type AS t WHERE t.oid = base AND (t.oid < 16384 OR t.typtype = 'e')) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104',
            MESSAGE = format('%s can''t be divided by %I: its type is %s', tbl, col, found_type::regtype),
            HINT = 'Divide it by a column of a built-in type.';
    END IF;
    RETURN format_type(base, CASE base WHEN found_type THEN modifier END);
END
$$;

-- tube_private_backfill_within: the condition of one of the ranges as SQL text.
--
-- Arguments: tbl, col: whose values; bounds: where all ranges but the first begin; unit: which.
-- Result: the text. Each value, NULL too, is in one range.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_within(
    tbl regclass, col name, bounds text[], unit integer
) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    type CONSTANT text := tube_private_backfill_literals(tbl, col);
    low text := format('%I >= %L::%s', col, bounds[unit], type);
    high text := format('%I < %L::%s', col, bounds[unit + 1], type);
BEGIN
    RETURN CASE
        WHEN bounds = '{}' THEN 'true'
        WHEN unit = 0 THEN high
        WHEN unit = cardinality(bounds) THEN format('%s OR %I IS NULL', low, col)
        ELSE format('%s AND %s', low, high)
    END;
END
$$;
