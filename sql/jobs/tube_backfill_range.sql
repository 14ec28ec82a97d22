-- tube_backfill_range: touches the rows of one range of a backfill, in the order of its column.
--
-- Arguments: backfill_id: one that was split; unit: 0 or more; rate: rows a second, for those who look.
-- Result: the number of rows; 0 when the range was in already; NULL, and nothing was done, when the
--   backfill is paused.
-- Errors: TU131 there is no such backfill, or it was not split; TU124 it was cancelled, superseded or has failed,
--   or is past that; TU108 the table is attached otherwise, or not any more; TU104, TU107 as tube_backfill_step3; 22023 there is no such range; 23505 another session has done
--   it meanwhile; 42501 our owner may not read the table, or a policy would hide rows.
-- Locks: of the table ACCESS SHARE; the backfill's row, at the end.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_range(backfill_id bigint, unit integer, rate float8 = NULL)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET row_security = off
SET work_mem = '64MB'
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    job tube_job := tube_private_job('backfill ' || tube_backfill_range.backfill_id, false);
    backfill tube_backfill;
    att tube_attachment;
    pods bigint;
    rows_read bigint;
    touched integer[];
BEGIN
    SELECT b.* INTO backfill FROM tube_backfill AS b WHERE b.backfill_id = tube_backfill_range.backfill_id;
    IF backfill.paused THEN
        RETURN NULL;
    ELSIF unit IS NULL OR unit NOT BETWEEN 0 AND job.units - 1 THEN
        RAISE EXCEPTION 'backfill % has no range %', backfill.backfill_id, unit
            USING ERRCODE = 'invalid_parameter_value', HINT = format('It has the ranges 0 to %s.', job.units - 1);
    ELSIF EXISTS (SELECT FROM tube_job_unit AS u WHERE u.job_id = job.job_id AND u.unit = tube_backfill_range.unit) THEN
        RETURN 0;
    END IF;
    att := tube_private_backfill_still(backfill);
    PERFORM tube_private_check_table(att.tbl::text, att.tbl, tube_private_types(att));
    EXECUTE tube_private_fill($range$
        WITH put AS (
            INSERT INTO <queue> (op, shard, ids, payload)
            SELECT 'B', k.shard, array_agg(k.id ORDER BY k.n), $1
            FROM (
                SELECT o.id, o.shard, o.n, (o.n - 1) / 250 AS chunk
                FROM (
                    SELECT r.id, r.shard, row_number() OVER (PARTITION BY r.shard ORDER BY r.by) AS n
                    FROM (
                        SELECT <distinct>id, <shard_of> AS shard, by
                        FROM (SELECT <id> AS id, <by> AS by FROM <table> WHERE (<filter>) AND (<within>)) AS t
                        WHERE id IS NOT NULL<first>
                    ) AS r
                ) AS o
            ) AS k
            GROUP BY k.shard, k.chunk
            ORDER BY k.chunk, k.shard
            RETURNING shard, cardinality(ids) AS ids
        )
        SELECT count(*), coalesce(sum(p.ids), 0), coalesce(array_agg(DISTINCT p.shard), '{}') FROM put AS p$range$,
        jsonb_build_object(
            'queue', format('%I.%I', tube_private_schema(), backfill.tube),
            'id', tube_private_key_expression(att),
            'by', quote_ident(backfill.order_col),
            'table', att.tbl::regclass::text,
            'filter', coalesce(att.row_filter, 'true'),
            'within', tube_private_backfill_within(att.tbl, backfill.order_col, job.bounds, unit),
            'shard_of', tube_private_shard_expression('id', att.shard, att.shards, tube_private_key_type(backfill.tube)),
            'distinct', CASE WHEN backfill.root THEN '' ELSE 'DISTINCT ON (id) ' END,
            'first', CASE WHEN backfill.root THEN '' ELSE ' ORDER BY id, by' END))
    INTO pods, rows_read, touched USING jsonb_build_object('backfill', backfill.backfill_id);
    IF NOT tube_private_job_done(job, unit, rows_read, rows_read, pods, touched) THEN
        RAISE EXCEPTION 'range % of backfill % was done by another session meanwhile', unit, backfill.backfill_id
            USING ERRCODE = 'unique_violation', HINT = 'Call again, and it does nothing.';
    END IF;
    -- Whoever ends the backfill locks its row: it then takes these pods back, or they never come.
    UPDATE tube_backfill AS b
    SET rows_done = b.rows_done + rows_read, pods_done = b.pods_done + 1, updated_at = clock_timestamp(),
        rate = coalesce(tube_backfill_range.rate, b.rate)
    WHERE b.backfill_id = backfill.backfill_id AND b.state = 'inserting';
    IF NOT FOUND THEN
        PERFORM tube_private_backfill_still(b) FROM tube_backfill AS b WHERE b.backfill_id = backfill.backfill_id;
    END IF;
    RETURN rows_read;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_backfill_range(bigint, integer, float8) FROM PUBLIC;
COMMENT ON FUNCTION :"schema".tube_backfill_range IS 'Touches the rows of one range of a split backfill.';

-- tube_private_backfill_still: what a backfill's table is attached as, for one that is being inserted.
--
-- Arguments: backfill: its row.
-- Result: the attachment.
-- Errors: TU124 the backfill is not inserting any more; TU108 the table is attached otherwise, or not any more.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_still(backfill :"schema".tube_backfill)
RETURNS :"schema".tube_attachment
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
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
REVOKE ALL ON FUNCTION :"schema".tube_private_backfill_still(:"schema".tube_backfill) FROM PUBLIC;

-- tube_private_backfill_literals: the type of the literals that bound a range of a column.
--
-- Of a domain what it is made of, because a literal of its own would call its checks, which are its owner's.
--
-- Arguments: tbl, col.
-- Result: SQL text.
-- Errors: TU104 only code of its owner may tell what a literal of the type is.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_literals(tbl regclass, col name) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    found_type oid;
    modifier integer;
    base oid;
BEGIN
    SELECT a.atttypid, a.atttypmod INTO found_type, modifier FROM pg_attribute AS a
    WHERE a.attrelid = tbl AND a.attname = col AND NOT a.attisdropped;
    base := tube_private_base_type(found_type);
    IF NOT tube_private_built_in(base) AND NOT EXISTS (SELECT FROM pg_type AS t WHERE t.oid = base AND t.typtype = 'e') THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104',
            MESSAGE = format('%s can''t be divided by %I: its type is %s', tbl, col, found_type::regtype),
            HINT = 'Divide it by a column of a built-in type.';
    END IF;
    RETURN format_type(base, CASE base WHEN found_type THEN modifier END);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_backfill_literals(regclass, name) FROM PUBLIC;

-- tube_private_backfill_within: the condition of one of the ranges as SQL text.
--
-- Arguments: tbl, col: whose values; bounds: where all ranges but the first begin; unit: which.
-- Result: the text. Each value, NULL too, is in one range.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_within(
    tbl regclass, col name, bounds text[], unit integer
) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
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
REVOKE ALL ON FUNCTION :"schema".tube_private_backfill_within(regclass, name, text[], integer) FROM PUBLIC;
