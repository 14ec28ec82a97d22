-- A backfill in ranges: tube_backfill_split, then tube_backfill_range for each by several sessions at once, then
-- tube_backfill_join. The ranges are the units of the job "backfill NUMBER". Errors TU122, TU123 as in
-- backfill/chunks.sql.

-- In place of tube_backfill_collect, after tube_backfill_create and when none of tube_backfill_holders is left. A
-- backfill_start goes into each shard.
--
-- The column must not change without a touch: else a row could move from an unfinished range to a finished one. So it
-- is the column of the ids, or one whose changes are captured.
-- Arguments: backfill_id: of the backfill that this session runs; ranges: about how many; by a sample of the column, so that
--   they have about as many rows each.
-- Result: the name of its job. Called again, it does nothing.
-- Errors: TU122, TU123; TU124 it is not waiting any more, or its table is attached otherwise; 22023 the column may
--   change without a touch, or a number of ranges that makes no sense; 42501 the caller may not read the table, or a
--   policy would hide rows; TU104 the column's type is neither built in nor an enum; 40001 another table got the name
--   meanwhile; TU107.
-- Locks: the backfill's row, and the table ACCESS SHARE.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_split(backfill_id bigint, ranges integer = 16) RETURNS text
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET row_security = off AS $$
DECLARE
    sample CONSTANT record := tube_private_begin_split(backfill_id, ranges);
    bounds text[];
BEGIN
    IF sample.query IS NOT NULL THEN
        BEGIN
            EXECUTE sample.query INTO bounds;
        EXCEPTION WHEN syntax_error_or_access_rule_violation OR feature_not_supported THEN
            PERFORM tube_private_refuse_renamed(sample.tbl, sample.table_name);
            RAISE;
        END;
        PERFORM tube_private_refuse_renamed(sample.tbl, sample.table_name);
    END IF;
    RETURN tube_private_end_split(backfill_id, coalesce(bounds, '{}'));
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_split IS
    'In place of tube_backfill_collect: divides a backfill into ranges, the units of the job that it returns.';

-- tube_private_begin_split: the query for the values where all ranges but the first begin, fewer where values repeat;
-- NULL where the backfill is split already. tbl, table_name: of the table that it names.
CREATE OR REPLACE FUNCTION :"schema".tube_private_begin_split(
    backfill_id bigint, ranges integer, OUT query text, OUT tbl regclass, OUT table_name text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    backfill tube_backfill := tube_private_lock_backfill(backfill_id, held => true);
    fault CONSTANT text := tube_private_backfill_fault(backfill);
    att tube_attachment;
BEGIN
    IF EXISTS (SELECT FROM tube_job AS j WHERE j.backfill_id = backfill.backfill_id) THEN
        RETURN;
    ELSIF backfill.state <> 'waiting' OR fault IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU124',
            MESSAGE = format('backfill %s of %s can''t be split any more: %s',
                backfill.backfill_id, backfill.table_name, coalesce(fault, 'it is ' || backfill.state)),
            HINT = 'tube_backfill_list() shows what became of it.';
    ELSIF ranges IS NULL OR ranges NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'a table can''t be divided into % ranges', coalesce(ranges::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give 1 to 10000.';
    END IF;
    att := tube_private_attachment(backfill.tube, backfill.tbl);
    IF att.columns IS NOT NULL AND backfill.order_col <> ALL (att.columns || att.keys) THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('%s is attached with columns, and %L, which may change without a touch, is none of them',
                att.tbl, backfill.order_col),
            HINT = 'Order by a column of the key.';
    END IF;
    PERFORM tube_private_range_sql(att.tbl, backfill.order_col, '{}', 0); -- refuses the column's type
    -- Also where there is one range: whether the table can be read is to be seen now.
    tbl := att.tbl;
    table_name := att.tbl;
    query := format($sql$
        SELECT array_agg(format('%%s', b.value) ORDER BY b.value) FROM (
            SELECT DISTINCT unnest(percentile_disc(ARRAY(
                SELECT n::float8 / %1$s FROM generate_series(1, %1$s - 1) AS n)) WITHIN GROUP (ORDER BY %2$I)) AS value
            FROM %3$s TABLESAMPLE SYSTEM (%4$s) WHERE %2$I IS NOT NULL) AS b$sql$, ranges, backfill.order_col, att.tbl,
        least(100, 100 * 1000.0 * ranges / greatest(1, tube_private_rows_estimate(att.tbl)))::real);
END
$$;

-- tube_private_rows_estimate: about how many rows an attached table has; 0 where nothing is known.
CREATE OR REPLACE FUNCTION :"schema".tube_private_rows_estimate(tbl regclass) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint FROM pg_class AS c
    WHERE c.relkind <> 'p' AND c.oid IN (SELECT tbl::oid UNION SELECT t.relid FROM pg_partition_tree(tbl) AS t)
$$;

-- tube_private_end_split: makes the job of a backfill, with the bounds that were sampled; returns its name.
CREATE OR REPLACE FUNCTION :"schema".tube_private_end_split(backfill_id bigint, bounds text[]) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    backfill tube_backfill := tube_private_lock_backfill(backfill_id, held => true);
    job CONSTANT text := 'backfill ' || backfill.backfill_id;
    units CONSTANT integer := cardinality(bounds) + 1;
BEGIN
    IF EXISTS (SELECT FROM tube_job AS j WHERE j.backfill_id = backfill.backfill_id) THEN
        RETURN job;
    END IF;
    INSERT INTO tube_job (job_id, backfill_id, tubes, kind, fingerprint, units, bounds)
    VALUES (job, backfill.backfill_id, ARRAY[backfill.tube], 'ranges', job, units, bounds);
    PERFORM tube_private_put_control('backfill_start', backfill);
    UPDATE tube_backfill AS b
    SET state = 'inserting', rows_total = nullif(tube_private_rows_estimate(a.tbl), 0), pods_total = units,
        note = 'in ranges', key_attnums = tube_private_key_attnums(a), row_filter = a.row_filter,
        collected_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM tube_attachment AS a
    WHERE b.backfill_id = backfill.backfill_id AND a.tube = b.tube AND a.tbl = b.tbl;
    RETURN job;
END
$$;

-- Arguments: backfill_id: of a split one; unit: 0 or more; rate: rows a second, for tube_backfill_list.
-- Result: the number of rows; 0 when the range was in already; NULL, and nothing was done, when the backfill is paused.
-- Errors: TU131 there is no such backfill, or it was not split; TU124 it was cancelled, superseded or has failed, or is
--   past that; TU108 the table is attached otherwise, or not any more; 22023 there is no such range; 23505 another
--   session has done it meanwhile; 42501 the caller may not read the table, or a policy would hide rows; 40001 another
--   table got the name meanwhile; TU104, TU107.
-- Locks: of the table ACCESS SHARE; the backfill's row, at the end.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_range(backfill_id bigint, unit integer, rate float8 = NULL)
RETURNS bigint
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET row_security = off
SET work_mem = '64MB' SET jit = off
SET standard_conforming_strings = on -- of the predicate: so was it parsed
AS $$
DECLARE
    plan CONSTANT record := tube_private_begin_range(backfill_id, unit);
    pods bigint;
    ids_read bigint;
    touched integer[];
BEGIN
    IF coalesce(plan.statement, '') = '' THEN
        RETURN CASE plan.statement WHEN '' THEN 0 END;
    END IF;
    EXECUTE plan.statement INTO pods, ids_read, touched;
    PERFORM tube_private_refuse_renamed(plan.tbl, plan.table_name);
    RETURN tube_private_end_range(backfill_id, unit, ids_read, pods, touched, rate);
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_range IS
    'Inserts a range, from any session; returns its rows, or NULL while the backfill is paused.';

-- tube_private_begin_range: the statement that puts the pods of a range into the tube, with the caller's rights, and counts
-- them, their ids and shards; empty when the range was in already, NULL when the backfill is paused. tbl, table_name: of the
-- table that it reads.
CREATE OR REPLACE FUNCTION :"schema".tube_private_begin_range(
    backfill_id bigint, unit integer, OUT statement text, OUT tbl regclass, OUT table_name text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    job tube_job := tube_private_lock_job('backfill ' || backfill_id, false, of_backfill => true);
    backfill tube_backfill;
    att tube_attachment;
BEGIN
    SELECT b.* INTO backfill FROM tube_backfill AS b WHERE b.backfill_id = $1;
    IF backfill.paused THEN
        RETURN;
    ELSIF unit IS NULL OR unit NOT BETWEEN 0 AND job.units - 1 THEN
        RAISE EXCEPTION 'backfill % has no range %', backfill.backfill_id, unit
            USING ERRCODE = 'invalid_parameter_value', HINT = format('It has the ranges 0 to %s.', job.units - 1);
    ELSIF EXISTS (SELECT FROM tube_job_unit AS u WHERE u.job_id = job.job_id AND u.unit = $2) THEN
        statement := '';
        RETURN;
    END IF;
    att := tube_private_inserting_attachment(backfill);
    tbl := att.tbl;
    table_name := att.tbl;
    statement := format($sql$
        WITH put AS (
            INSERT INTO %s (op, shard, ids, payload) SELECT 'B', q.shard, q.ids, %L FROM (%s) AS q
            RETURNING shard, cardinality(ids) AS ids)
        SELECT count(*), coalesce(sum(p.ids), 0), coalesce(array_agg(DISTINCT p.shard), '{}') FROM put AS p$sql$,
        tube_private_qualify(backfill.tube), jsonb_build_object('backfill', backfill.backfill_id),
        tube_private_backfill_sql(backfill, att, tube_private_range_sql(att.tbl, backfill.order_col, job.bounds, unit)));
END
$$;

-- tube_private_range_sql: the condition for one of the ranges of a column; each value, NULL too, is in one range.
-- Arguments: tbl, col: whose values; bounds: where all ranges but the first begin; unit: which range.
-- Errors: TU104 only its owner's code could parse a literal of the type: ranges are read with the rights of the
--   session that works on them.
CREATE OR REPLACE FUNCTION :"schema".tube_private_range_sql(tbl regclass, col name, bounds text[], unit integer)
RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    found_type oid;
    literals text;
BEGIN
    SELECT a.atttypid, format_type(t.oid, CASE t.oid WHEN a.atttypid THEN a.atttypmod END) INTO found_type, literals
    FROM pg_attribute AS a LEFT JOIN pg_type AS t
        ON t.oid = tube_private_base_type(a.atttypid) AND (t.oid < 16384 OR t.typtype = 'e')
    WHERE a.attrelid = tbl AND a.attname = col AND NOT a.attisdropped;
    IF literals IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104',
            MESSAGE = format('%s can''t be divided by %I: its type is %s', tbl, col, found_type::regtype),
            HINT = 'Divide it by a column of a built-in type.';
    END IF;
    RETURN format(CASE
        WHEN bounds = '{}' THEN 'true'
        WHEN unit = 0 THEN '%1$I < %3$L::%4$s'
        WHEN unit = cardinality(bounds) THEN '%1$I >= %2$L::%4$s OR %1$I IS NULL'
        ELSE '%1$I >= %2$L::%4$s AND %1$I < %3$L::%4$s'
    END, col, bounds[unit], bounds[unit + 1], literals);
END
$$;

-- tube_private_end_range: records that a range is in; returns ids.
CREATE OR REPLACE FUNCTION :"schema".tube_private_end_range(
    backfill_id bigint, unit integer, ids bigint, pods bigint, touched integer[], rate float8
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    job tube_job := tube_private_lock_job('backfill ' || backfill_id, false, of_backfill => true);
BEGIN
    INSERT INTO tube_job_unit (job_id, unit, rows, ids, pods) VALUES (job.job_id, unit, ids, ids, pods)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'range % of backfill % was done by another session meanwhile', unit, backfill_id
            USING ERRCODE = 'unique_violation', HINT = 'Call again, and it does nothing.';
    END IF;
    PERFORM tube_private_wake_sleepers(t.tube, touched) FROM unnest(job.tubes) AS t (tube);
    -- To end the backfill, a session locks its row: either it takes these pods back, or they never come.
    UPDATE tube_backfill AS b
    SET rows_done = b.rows_done + ids, pods_done = b.pods_done + 1, updated_at = clock_timestamp(),
        rate = coalesce($6, b.rate)
    WHERE b.backfill_id = job.backfill_id AND b.state = 'inserting';
    IF NOT FOUND THEN
        PERFORM tube_private_inserting_attachment(tube_private_lock_backfill(backfill_id)); -- raises TU124
    END IF;
    RETURN ids;
END
$$;

-- Result: whether all ranges are in. Called again, it does nothing.
-- Errors: TU122, TU123; TU124 it was ended; TU108 the table was detached; TU131 it was not split.
-- Locks: the rows of the backfill and of its job.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_join(backfill_id bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    -- The job before the backfill, as tube_backfill_range takes them.
    job tube_job := tube_private_lock_job('backfill ' || backfill_id, true, of_backfill => true);
    backfill tube_backfill := tube_private_lock_backfill(backfill_id, held => true);
BEGIN
    IF job.state = 'done' THEN
        RETURN true;
    END IF;
    PERFORM tube_private_inserting_attachment(backfill);
    IF job.units > (SELECT count(*) FROM tube_job_unit AS u WHERE u.job_id = job.job_id) THEN
        RETURN false;
    END IF;
    PERFORM tube_private_put_control('backfill_end', backfill);
    PERFORM tube_private_end_job(job);
    UPDATE tube_backfill AS b
    SET state = 'delivering', rows_total = b.rows_done, ends_left = b.shards, note = NULL,
        inserted_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE b.backfill_id = backfill.backfill_id;
    RETURN true;
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_join IS
    'Inserts backfill_end once all ranges are inserted; false if some are missing.';

-- tube_private_inserting_attachment: the attachment of the table of a backfill that is being inserted; TU124 it is not
-- any more; TU108 the table is attached otherwise, or not any more.
CREATE OR REPLACE FUNCTION :"schema".tube_private_inserting_attachment(backfill :"schema".tube_backfill)
RETURNS :"schema".tube_attachment
LANGUAGE plpgsql AS $$
DECLARE
    fault text;
BEGIN
    IF backfill.state <> 'inserting' THEN
        RAISE EXCEPTION USING ERRCODE = 'TU124',
            MESSAGE = format('backfill %s of %s is %s', backfill.backfill_id, backfill.table_name, backfill.state),
            HINT = 'Begin a new one.';
    END IF;
    fault := tube_private_backfill_fault(backfill);
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108',
            MESSAGE = format('backfill %s of %s can''t continue: %s', backfill.backfill_id, backfill.table_name, fault),
            HINT = 'Cancel the backfill, and begin a new one.';
    END IF;
    RETURN tube_private_attachment(backfill.tube, backfill.tbl);
END
$$;
