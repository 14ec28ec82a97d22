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
--   is attached otherwise; 22023 the column may change without a touch; 42501 our owner may not read the table, or
--   a policy would hide rows; TU104, TU107 as tube_backfill_step3.
-- Locks: the backfill's row, and the table ACCESS SHARE.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_split(backfill_id bigint, ranges integer = 16) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET row_security = off
AS $$
#variable_conflict use_column
DECLARE
    backfill tube_backfill := tube_private_backfill_held(tube_backfill_split.backfill_id);
    changed CONSTANT text := tube_private_backfill_changed(backfill);
    att tube_attachment;
    job CONSTANT text := 'backfill ' || backfill.backfill_id;
    total bigint;
    bounds text[];
BEGIN
    IF EXISTS (SELECT FROM tube_job AS j WHERE j.backfill_id = backfill.backfill_id) THEN
        RETURN job;
    ELSIF backfill.state <> 'waiting' OR changed IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU124',
            MESSAGE = format('backfill %s of %s can''t be split any more: %s',
                backfill.backfill_id, backfill.table_name, coalesce(changed, 'it is ' || backfill.state)),
            HINT = 'tube_backfill_list() shows what became of it.';
    END IF;
    SELECT a.* INTO STRICT att FROM tube_attachment AS a WHERE a.tube = backfill.tube AND a.tbl = backfill.tbl;
    IF att.columns IS NOT NULL AND backfill.order_col <> ALL (att.columns || att.id_col) THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('%s is attached with columns, and %L, which may change without a touch, is none of them',
                att.tbl, backfill.order_col),
            HINT = 'Order by the column of the ids.';
    END IF;
    PERFORM tube_private_check_table(att.tbl::text, att.tbl, tube_private_types(att));
    PERFORM tube_private_backfill_literals(att.tbl, backfill.order_col);
    total := (SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint FROM pg_class AS c
        WHERE c.oid IN (SELECT t.relid FROM pg_partition_tree(att.tbl) AS t WHERE t.isleaf UNION SELECT att.tbl::oid)
            AND c.relkind <> 'p');
    bounds := tube_private_backfill_bounds(att.tbl, backfill.order_col, ranges, total);
    INSERT INTO tube_job (job_id, backfill_id, tubes, kind, fingerprint, units, bounds)
    VALUES (job, backfill.backfill_id, ARRAY[backfill.tube], 'ranges', job, cardinality(bounds) + 1, bounds);
    PERFORM tube_private_backfill_control(backfill, 'backfill_start', 'T');
    UPDATE tube_backfill AS b
    SET state = 'inserting', rows_total = nullif(total, 0), pods_total = cardinality(bounds) + 1, note = 'in ranges',
        key_attnum = tube_private_backfill_key_of(att), row_filter = att.row_filter,
        collected_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE b.backfill_id = backfill.backfill_id;
    RETURN job;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_backfill_split(bigint, integer) FROM PUBLIC;
COMMENT ON FUNCTION :"schema".tube_backfill_split IS
    'Splits the rest of a backfill into ranges that several sessions insert in parallel.';

-- tube_private_backfill_bounds: values of a column that divide its rows into ranges of about the same size.
--
-- Arguments: tbl, col; ranges: how many, 1 or more; total: about how many rows there are; 0: not known.
-- Result: where all ranges but the first begin; fewer where values repeat.
-- Errors: 22023 ranges below 1.
-- Locks: the table ACCESS SHARE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_bounds(
    tbl regclass, col name, ranges integer, total bigint
) RETURNS text[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET row_security = off
AS $$
DECLARE
    result text[];
BEGIN
    IF ranges IS NULL OR ranges NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'a table can''t be divided into % ranges', coalesce(ranges::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give 1 to 10000.';
    ELSIF ranges = 1 THEN
        RETURN '{}';
    END IF;
    EXECUTE format('SELECT array_agg(format(''%%s'', b.value) ORDER BY b.value) FROM (SELECT DISTINCT unnest('
        'percentile_disc(ARRAY(SELECT n::float8 / $1 FROM generate_series(1, $1 - 1) AS n)) WITHIN GROUP (ORDER BY %1$I))'
        ' AS value FROM %2$s TABLESAMPLE SYSTEM ($2) WHERE %1$I IS NOT NULL) AS b', col, tbl)
    INTO result USING ranges, least(100, 100 * 1000.0 * ranges / greatest(1, total))::real;
    RETURN coalesce(result, '{}');
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_backfill_bounds(regclass, name, integer, bigint) FROM PUBLIC;
