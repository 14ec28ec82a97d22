-- tube_backfill_step3: touches every row of an attached table, in one transaction. The third of three.
--
-- For each shard of the table: a control pod backfill_start of op T, which is read early; the ids, by
-- order_col, as pods of op B; a control pod backfill_end of op B. Each row is touched once, with NULLs
-- and ties in order_col anywhere in the order of Postgres. The tube's predicate applies. A related table
-- names each document once, and gets no control pods: only the root table's rows say which documents are to be.
--
-- The table is read with the rights of the caller. Rows without an id are left out. Memory does not grow with the table; the transaction and its snapshot last as long as it takes.
--
-- Arguments: step1: what tube_backfill_step1 gave; tube; tbl; order_col: a column of the table.
--   shard: NULL or the first shard of the table for all of it; another one of those that it is spread
--     over for the ids of that shard alone.
--   fetch_chunk_size, insert_chunk_size: as of tube_pods_insert.
-- Result: nothing. Nothing is done, with a NOTICE, while a backfill_end waits in one of the shards.
-- Errors: TU102 unknown tube, TU108 the table is not attached, TU106 no shard of it, 42703 no such
--   column, 22004 no column is given, 22023 an argument makes no sense, 55P03 another
--   session is at it, TU121 a backfill in chunks is under way, 25001 step 2 in the same transaction at REPEATABLE READ, 42501 the caller may
--   not read the table, or row security would hide rows from it, 40001 another table got the name meanwhile.
-- Locks: an advisory one for the tube and the table, until the transaction ends, or 55P03; of the table
--   ACCESS SHARE.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_step3(
    step1 text, tube text, tbl regclass, order_col text, shard integer = NULL,
    fetch_chunk_size integer = 20000, insert_chunk_size integer = 250
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
SET row_security = off
SET jit = off
AS $$
DECLARE
    plan CONSTANT record := tube_private_backfill_step3_begin(step1, tube, tbl, order_col, shard);
BEGIN
    IF plan.query IS NULL THEN
        RETURN;
    END IF;
    PERFORM tube_pods_insert(tube, plan.query, plan.first, 'B', plan.size, fetch_chunk_size, insert_chunk_size);
    PERFORM tube_private_backfill_was_read(tbl, plan.table_name);
    PERFORM tube_private_backfill_step3_end(step1, tube, tbl, plan.first);
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_step3 IS
    'Touches every row of an attached table in one transaction; the third of three.';

-- tube_private_backfill_step3_begin: the part of step 3 before the table is read: refusals, and backfill_start. For step 3 alone.
--
-- Result: query: for tube_pods_insert, NULL when there is nothing to do; first: the shard; size: about how many rows;
--   table_name: what the query calls the table.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_step3_begin(
    step1 text, tube text, tbl regclass, order_col text, shard integer,
    OUT query text, OUT first integer, OUT size bigint, OUT table_name text
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    att CONSTANT tube_attachment := tube_private_backfill_table(tube, tbl);
    column_name CONSTANT name := tube_private_backfill_column(att.tbl, order_col);
    root CONSTANT boolean := tube_private_is_root(att);
    shards integer;
    key CONSTANT text := tube_private_key_sql(quote_ident(att.id_col), tube_private_key_type(att.tube));
BEGIN
    first := coalesce(shard, att.shard);
    shards := CASE WHEN first = att.shard THEN att.shards ELSE 1 END;
    PERFORM tube_private_check_step3(step1, att, shard);
    IF NOT pg_try_advisory_xact_lock(hashtextextended(
        format('%s backfill %s', tube_private_schema(), att.tube), att.tbl::oid::bigint))
    THEN
        RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
            MESSAGE = format('another session is at a backfill of %s into tube %L', att.tbl, att.tube),
            HINT = 'Wait until it is over.';
    END IF;
    PERFORM tube_private_backfill_refuse(b.tube, b.tbl, format('backfill %s (%s)', b.backfill_id, b.state))
    FROM tube_backfill AS b
    WHERE b.tube = att.tube AND b.tbl = att.tbl AND b.state IN ('waiting', 'inserting', 'delivering');
    IF root AND tube_private_control_waits(att.tube, first, shards, '{backfill_end}') THEN
        RAISE NOTICE 'the backfill of % into tube % is skipped: a backfill_end of an earlier one waits',
            att.tbl, quote_literal(att.tube);
        RETURN;
    END IF;
    table_name := att.tbl;
    query := format(CASE WHEN root THEN 'SELECT %1$s, 0 FROM %2$s WHERE %3$s AND %4$I IS NOT NULL%5$s ORDER BY %6$I'
        ELSE 'SELECT r.id, 0 FROM (SELECT DISTINCT ON (t.id) t.id, t.by'
            ' FROM (SELECT %1$s AS id, %6$I AS by FROM %2$s WHERE %3$s AND %4$I IS NOT NULL%5$s) AS t'
            ' ORDER BY t.id, t.by) AS r ORDER BY r.by' END,
        key, table_name, coalesce('(' || att.row_filter || E'\n)', 'true'), att.id_col,
        CASE WHEN shards = att.shards THEN '' ELSE format(' AND %s = %s',
            tube_private_shard_expression(key, att.shard, att.shards), first) END,
        column_name);
    size := (SELECT nullif(greatest(c.reltuples, 0), 0)::bigint * shards / att.shards FROM pg_class AS c WHERE c.oid = att.tbl);
    IF root THEN
        PERFORM tube_private_put_control(att.tube, first, shards, 'T', 'backfill_start', step1);
    END IF;
END
$$;

-- tube_private_backfill_step3_end: the part of step 3 after the table was read: backfill_end. For step 3 alone.
--
-- Arguments: of tube_backfill_step3; first: as of tube_private_backfill_step3_begin.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_step3_end(step1 text, tube text, tbl regclass, first integer) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    att CONSTANT tube_attachment := tube_private_backfill_table(tube, tbl);
BEGIN
    IF tube_private_is_root(att) THEN
        PERFORM tube_private_put_control(att.tube, first, CASE WHEN first = att.shard THEN att.shards ELSE 1 END, 'B',
            'backfill_end', step1);
    END IF;
END
$$;

-- tube_private_check_step3: refuses what step 3 can't begin with.
--
-- Arguments: step1, shard: as given; att: the attachment.
-- Errors: TU106, 22023, 25001 as tube_backfill_step3.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_step3(
    step1 text, att :"schema".tube_attachment, shard integer
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF step1 IS NULL OR step1 !~ '^[0-9]{1,18}$' OR step1::bigint NOT BETWEEN 1 AND tube_settle_seq() THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('%s is nothing that tube_backfill_step1 gave', coalesce(quote_literal(step1), 'NULL')),
            HINT = 'Call tube_backfill_step1(), commit, then tube_backfill_step2(), commit, then this.';
    ELSIF shard NOT BETWEEN att.shard AND att.shard + (att.shards - 1) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU106',
            MESSAGE = format('%s is attached to tube %L with the shards %s to %s, and %s is none of them',
                att.tbl, att.tube, att.shard, att.shard + (att.shards - 1), shard),
            HINT = 'Leave the shard out.';
    ELSIF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')
        AND coalesce(current_setting('pytube.backfill_waited', true), '') <> ''
    THEN
        RAISE EXCEPTION USING ERRCODE = 'active_sql_transaction',
            MESSAGE = 'step 2 of the backfill was in this same transaction, so step 3 would miss rows',
            HINT = 'Commit between them.';
    END IF;
END
$$;
