-- tube_backfill_split: has the rest of a backfill done in ranges, by several sessions at once.
--
-- In place of tube_backfill_collect, after tube_backfill_create and when none of tube_backfill_holders is
-- left. The ranges become units of a job of that backfill; a backfill_start goes into each shard (op T, so that it
-- comes early). What follows is tube_backfill_range for each, and tube_backfill_join.
--
-- The column must not change without a touch: else a row could move from a range that is not done to one
-- that is. So it is that of the ids, or one whose changes are captured.
--
-- Arguments: backfill_id: one that this session has taken; ranges: about how many; by a sample of the column,
--   so that they have about as many rows each.
-- Result: the name of its job. Called again, it does nothing.
-- Errors: TU122, TU123 as tube_private_backfill_held; TU124 it is not waiting any more, or its table
--   is attached otherwise; 22023 the column may change without a touch; 42501 the caller may not read the table, or
--   a policy would hide rows; TU104 the column is of a type of somebody's; 40001 another table got the name meanwhile.
-- Locks: the backfill's row, and the table ACCESS SHARE.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_split(backfill_id bigint, ranges integer = 16) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
SET row_security = off
AS $$
DECLARE
    sample CONSTANT record := tube_private_backfill_sample(backfill_id, ranges);
    bounds text[] := '{}';
BEGIN
    IF sample.query IS NOT NULL THEN
        BEGIN
            EXECUTE sample.query INTO bounds;
        EXCEPTION WHEN syntax_error_or_access_rule_violation OR feature_not_supported THEN
            PERFORM tube_private_backfill_was_read(sample.tbl, sample.table_name);
            RAISE;
        END;
        PERFORM tube_private_backfill_was_read(sample.tbl, sample.table_name);
    END IF;
    RETURN tube_private_backfill_divide(backfill_id, coalesce(bounds, '{}'));
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_split IS
    'Splits the rest of a backfill into ranges that several sessions insert in parallel.';

-- tube_private_backfill_sample: the query for values of a backfill's column that divide its rows into ranges of about the same size.
--
-- Result: query: for where all ranges but the first begin, fewer where values repeat; NULL when there is nothing to sample;
--   tbl, table_name: of the table that it names.
-- Errors: as of tube_backfill_split.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_sample(
    backfill_id bigint, ranges integer, OUT query text, OUT tbl regclass, OUT table_name text
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    backfill tube_backfill := tube_private_backfill_held(tube_private_backfill_sample.backfill_id);
    changed CONSTANT text := tube_private_backfill_changed(backfill);
    att tube_attachment;
BEGIN
    IF EXISTS (SELECT FROM tube_job AS j WHERE j.backfill_id = backfill.backfill_id) THEN
        RETURN;
    ELSIF backfill.state <> 'waiting' OR changed IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU124',
            MESSAGE = format('backfill %s of %s can''t be split any more: %s',
                backfill.backfill_id, backfill.table_name, coalesce(changed, 'it is ' || backfill.state)),
            HINT = 'tube_backfill_list() shows what became of it.';
    ELSIF ranges IS NULL OR ranges NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'a table can''t be divided into % ranges', coalesce(ranges::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give 1 to 10000.';
    END IF;
    SELECT a.* INTO STRICT att FROM tube_attachment AS a WHERE a.tube = backfill.tube AND a.tbl = backfill.tbl;
    IF att.columns IS NOT NULL AND backfill.order_col <> ALL (att.columns || att.id_col) THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('%s is attached with columns, and %L, which may change without a touch, is none of them',
                att.tbl, backfill.order_col),
            HINT = 'Order by the column of the ids.';
    END IF;
    PERFORM tube_private_backfill_literals(att.tbl, backfill.order_col);
    -- Also where there is one range: whether the table can be read is to be seen now.
    tbl := att.tbl;
    table_name := att.tbl;
    query := format('SELECT array_agg(format(''%%s'', b.value) ORDER BY b.value) FROM (SELECT DISTINCT unnest('
        'percentile_disc(ARRAY(SELECT n::float8 / %1$s FROM generate_series(1, %1$s - 1) AS n)) WITHIN GROUP (ORDER BY %2$I))'
        ' AS value FROM %3$s TABLESAMPLE SYSTEM (%4$s) WHERE %2$I IS NOT NULL) AS b', ranges, backfill.order_col, table_name,
        least(100, 100 * 1000.0 * ranges / greatest(1, tube_private_rows_estimate(att.tbl)))::real);
END
$$;

-- tube_private_rows_estimate: about how many rows an attached table has; 0 where nothing is known.
CREATE OR REPLACE FUNCTION :"schema".tube_private_rows_estimate(tbl regclass) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint FROM pg_class AS c
    WHERE c.oid IN (SELECT t.relid FROM pg_partition_tree(tbl) AS t WHERE t.isleaf UNION SELECT tbl::oid) AND c.relkind <> 'p'
$$;

-- tube_private_backfill_divide: has a backfill done in ranges. For tube_backfill_split alone.
--
-- Arguments: backfill_id: one that this session has taken; bounds: where all ranges but the first begin.
-- Result: the name of its job. Called again, it does nothing.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_divide(backfill_id bigint, bounds text[]) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    backfill tube_backfill := tube_private_backfill_held(tube_private_backfill_divide.backfill_id);
    att tube_attachment;
    job CONSTANT text := 'backfill ' || backfill.backfill_id;
BEGIN
    IF EXISTS (SELECT FROM tube_job AS j WHERE j.backfill_id = backfill.backfill_id) THEN
        RETURN job;
    END IF;
    SELECT a.* INTO STRICT att FROM tube_attachment AS a WHERE a.tube = backfill.tube AND a.tbl = backfill.tbl;
    INSERT INTO tube_job (job_id, backfill_id, tubes, kind, fingerprint, units, bounds)
    VALUES (job, backfill.backfill_id, ARRAY[backfill.tube], 'ranges', job, cardinality(tube_private_backfill_divide.bounds) + 1,
        tube_private_backfill_divide.bounds);
    PERFORM tube_private_backfill_control(backfill, 'backfill_start', 'T');
    UPDATE tube_backfill AS b
    SET state = 'inserting', rows_total = nullif(tube_private_rows_estimate(att.tbl), 0),
        pods_total = cardinality(tube_private_backfill_divide.bounds) + 1, note = 'in ranges',
        key_attnum = tube_private_backfill_key_of(att), row_filter = att.row_filter,
        collected_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE b.backfill_id = backfill.backfill_id;
    RETURN job;
END
$$;
