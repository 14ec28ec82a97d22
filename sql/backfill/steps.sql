-- A backfill in three steps, as in pg-tube. Each is a separate transaction.
--
-- A transaction that drew a seq below the start seq of step 1 is over when step 2 ends, so step 3 reads its rows. A
-- document at a sink that has an older stamp by then, and is not among these rows, is not in the source any more.

-- tube_backfill_step1: draws the start seq of a backfill. Commit, call tube_backfill_step2, and give it to
-- tube_backfill_step3.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_step1() RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp
AS $$ SELECT nextval('tube_seq')::text $$;
COMMENT ON FUNCTION :"schema".tube_backfill_step1 IS
    'Draws the start seq of a backfill: the first of three transactions.';

-- Arguments: timeout: 0 or more; 0 looks once.
-- Result: nothing. While it waits, a NOTICE at first and every 2 seconds: active_tx_xid=XID of the oldest transaction,
--   which programs read; then "--", who holds it, and how many there are.
-- Errors: 55P03 some are still running at the timeout; the message names up to ten; 22023 a timeout that is NULL or
--   negative.
-- Locks: none. It reads pg_locks some ten times a second.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_step2(timeout interval = '60 seconds') RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    until CONSTANT timestamptz := clock_timestamp() + timeout;
    next_notice timestamptz := '-infinity';
    pause double precision := 0.005;
    running text[];
    is_late boolean;
    holders text;
BEGIN
    IF timeout IS NULL OR timeout < interval '0' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('the timeout is %s', coalesce(timeout::text, 'NULL')), HINT = 'Give 0 or more.';
    END IF;
    -- At REPEATABLE READ, step 3 in the same transaction would read rows as they were before.
    PERFORM set_config('pytube.backfill_waited', 'true', true);
    running := ARRAY(SELECT h.xid FROM tube_backfill_holders() AS h);
    LOOP
        -- By xids, which stay the same when a transaction is prepared meanwhile.
        running := ARRAY(SELECT k.transactionid::text FROM pg_locks AS k
            WHERE k.locktype = 'transactionid' AND k.granted AND k.mode = 'ExclusiveLock'
                AND k.transactionid::text = ANY (running)
            ORDER BY age(k.transactionid) DESC);
        EXIT WHEN running = '{}';
        is_late := clock_timestamp() >= until;
        IF is_late OR clock_timestamp() >= next_notice THEN
            SELECT string_agg(h.holder, '; ' ORDER BY h.n) INTO holders FROM (
                SELECT x.holder, min(x.n) AS n -- a session may have several xids
                FROM tube_backfill_holders(CASE WHEN is_late THEN running ELSE running[:1] END)
                    WITH ORDINALITY AS x (xid, holder, n)
                GROUP BY x.holder ORDER BY 2 LIMIT 10) AS h;
            holders := coalesce(holders, 'a transaction that could not be found');
            IF is_late THEN
                RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
                    MESSAGE = format('transactions that began before are still open after %s: %s', timeout, holders),
                    HINT = 'End them, or call again with a longer timeout.';
            END IF;
            RAISE NOTICE 'tube_backfill_step2: active_tx_xid=% -- waiting for %', running[1], holders
                || CASE WHEN cardinality(running) > 1 THEN format('; %s transaction ids in all', cardinality(running))
                    ELSE '' END;
            next_notice := clock_timestamp() + interval '2 seconds';
        END IF;
        PERFORM pg_sleep(least(pause, greatest(0.001, extract(epoch FROM until - clock_timestamp()))));
        pause := least(0.1, pause * 2);
    END LOOP;
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_step2 IS
    'Waits until every writing transaction is over, prepared ones too: the second of three. At the timeout it '
    'raises, and names up to ten sessions.';

-- A transaction has an xid before it draws a seq. So all that drew one below the start seq are among those found in a
-- later transaction than the drawer of the start seq. Prepared transactions count; the caller's own, transactions of
-- other databases and read-only ones do not.
-- Arguments: xids: what an earlier call returned; NULL: all that run now.
-- Result: the running ones, the oldest first, and who holds them: pid, user, application and age of a session
--   (the age only where pytube's owner may see it); gid, owner and age of a prepared transaction.
-- Locks: none; but reading pg_locks stops the lock manager for a moment, so call it a few times a second at most.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_holders(xids text[] = NULL) RETURNS TABLE (xid text, holder text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    -- Subtransactions, too, have a lock on their xid.
    running CONSTANT xid[] := ARRAY(
        SELECT k.transactionid FROM pg_locks AS k
        WHERE k.locktype = 'transactionid' AND k.granted AND k.mode = 'ExclusiveLock'
            AND k.pid IS DISTINCT FROM pg_backend_pid());
    asked_at CONSTANT timestamptz := clock_timestamp();
BEGIN
    PERFORM pg_stat_clear_snapshot(); -- else pg_stat_activity is as at its first use in this transaction
    RETURN QUERY
    SELECT r.x::text, CASE
        WHEN a.pid IS NOT NULL THEN format('pid %s of user %s, application %s%s', a.pid, coalesce(a.usename, '(none)'),
            coalesce(quote_literal(nullif(a.application_name, '')), '(none)'),
            coalesce(', open for ' || date_trunc('second', asked_at - a.xact_start), ''))
        WHEN p.gid IS NOT NULL THEN format('prepared transaction %L of user %s, open for %s', p.gid, p.owner,
            date_trunc('second', asked_at - p.prepared))
        ELSE 'a transaction that could not be found'
    END
    FROM unnest(running) AS r (x)
    LEFT JOIN pg_locks AS k ON k.locktype = 'transactionid' AND k.transactionid = r.x AND k.mode = 'ExclusiveLock'
        AND k.granted
    LEFT JOIN pg_stat_activity AS a ON a.pid = k.pid
    LEFT JOIN pg_prepared_xacts AS p ON p.transaction = r.x
    -- A transaction whose database is not known may be of this one.
    WHERE coalesce(a.datname, p.database, current_database()) = current_database()
        AND (xids IS NULL OR r.x::text = ANY (xids))
    ORDER BY coalesce(a.xact_start, p.prepared);
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_holders IS
    'Lists open transactions that have an xid. Collect once the ones that ran after create are over.';

-- For each shard of the table: a control pod backfill_start of op T, which is read early; the ids, by order_col, as
-- pods of op B; a control pod backfill_end of op B. Each row is touched once, but for those without an id or outside
-- the tube's predicate. A related table names each document once, and gets no control pods: only the root table's rows
-- say which documents are to be. The table is read with the rights of the caller. Memory does not grow with it; the
-- transaction and its snapshot last as long as it takes.
-- Arguments: step1: what tube_backfill_step1 returned; tube; tbl; order_col: a column of the table. shard: NULL or the
--   first shard of the table for all of it; another of its shards for the ids of that shard
--   alone. fetch_chunk_size, insert_chunk_size: as of tube_pods_insert.
-- Result: nothing. Nothing is done, with a NOTICE, while a backfill_end waits in one of the shards.
-- Errors: TU102 unknown tube, TU108 the table is not attached, TU107 it can't stay attached, TU106 no shard of it,
--   42703 no such column, 22004 no column is given, 22023 an argument makes no sense, 55P03 another session runs it,
--   TU121 a backfill in chunks is under way, 25001 step 2 in the same transaction at REPEATABLE READ, 42501 the caller
--   may not read the table, or row security would hide rows from it, 40001 another table got the name meanwhile.
-- Locks: an advisory one for the tube and the table, until the transaction ends, or 55P03; of the table ACCESS SHARE.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_step3(
    step1 text, tube text, tbl regclass, order_col text, shard integer = NULL,
    fetch_chunk_size integer = 20000, insert_chunk_size integer = 250
) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET row_security = off SET jit = off
SET standard_conforming_strings = on -- of the predicate: so was it parsed
AS $$
DECLARE
    plan CONSTANT record := tube_private_begin_step3(step1, tube, tbl, order_col, shard);
BEGIN
    IF plan.query IS NULL THEN
        RETURN;
    END IF;
    PERFORM tube_pods_insert(tube, plan.query, plan.first, 'B', plan.size, fetch_chunk_size, insert_chunk_size);
    PERFORM tube_private_refuse_renamed(tbl, plan.table_name);
    PERFORM tube_private_end_step3(step1, tube, tbl, plan.first);
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_step3 IS
    'Touches every row of an attached table by order_col, between the control pods backfill_start and backfill_end:'
    ' the third of three. Skipped with a NOTICE while an earlier backfill_end waits.';

-- tube_private_begin_step3: step 3 until the table is read: refusals, and backfill_start. Returns arguments for
-- tube_pods_insert (no query when there is nothing to do), and what the query calls the table.
CREATE OR REPLACE FUNCTION :"schema".tube_private_begin_step3(
    step1 text, tube text, tbl regclass, order_col text, shard integer,
    OUT query text, OUT first integer, OUT size bigint, OUT table_name text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    att CONSTANT tube_attachment := tube_private_attachment(tube, tbl);
    column_name CONSTANT name := tube_private_order_column(att.tbl, order_col);
    root CONSTANT boolean := tube_private_is_swept(att);
    key CONSTANT text := tube_private_id_sql(att);
    shards integer;
BEGIN
    PERFORM tube_private_refuse_table(att.tbl);
    first := coalesce(shard, att.shard);
    shards := CASE WHEN first = att.shard THEN att.shards ELSE 1 END;
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
    ELSIF NOT pg_try_advisory_xact_lock(hashtextextended(
        format('%s backfill %s', tube_private_schema(), att.tube), att.tbl::oid::bigint))
    THEN
        RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
            MESSAGE = format('another session is at a backfill of %s into tube %L', att.tbl, att.tube),
            HINT = 'Wait until it is over.';
    END IF;
    PERFORM tube_private_refuse_backfill(att, format('backfill %s (%s)', b.backfill_id, b.state))
    FROM tube_backfill AS b
    WHERE b.tube = att.tube AND b.tbl = att.tbl AND b.state IN ('waiting', 'inserting', 'delivering');
    IF root AND tube_private_control_waits(att.tube, first, shards, '{backfill_end}') THEN
        RAISE NOTICE 'the backfill of % into tube % is skipped: a backfill_end of an earlier one waits',
            att.tbl, quote_literal(att.tube);
        RETURN;
    END IF;
    table_name := att.tbl;
    query := format('SELECT r.id, 0 FROM (SELECT %s t.id, t.by FROM (SELECT %s AS id, %I AS by FROM %s'
        ' WHERE (%s' || E'\n) AND %s IS NOT NULL AND %s) AS t %s) AS r ORDER BY r.by',
        CASE WHEN NOT root THEN 'DISTINCT ON (t.id)' END, key, column_name, table_name,
        coalesce(att.row_filter, 'true'), key, CASE shards WHEN att.shards THEN 'true'
            ELSE format('%s = %s', tube_private_shard_expression(key, att), first) END,
        CASE WHEN NOT root THEN 'ORDER BY t.id, t.by' END);
    size := nullif(tube_private_rows_estimate(att.tbl), 0) * shards / att.shards;
    IF root THEN
        PERFORM tube_private_put_control('backfill_start', jsonb_populate_record(NULL::tube_backfill,
            jsonb_build_object('tube', att.tube, 'shard', first, 'shards', shards, 'start_seq', step1)));
    END IF;
END
$$;

-- tube_private_end_step3: step 3 after the table was read: backfill_end.
CREATE OR REPLACE FUNCTION :"schema".tube_private_end_step3(step1 text, tube text, tbl regclass, first integer)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    att CONSTANT tube_attachment := tube_private_attachment(tube, tbl);
BEGIN
    PERFORM tube_private_refuse_table(att.tbl);
    IF tube_private_is_swept(att) THEN
        PERFORM tube_private_put_control('backfill_end', jsonb_populate_record(NULL::tube_backfill,
            jsonb_build_object('tube', att.tube, 'shard', first, 'start_seq', step1,
                'shards', CASE first WHEN att.shard THEN att.shards ELSE 1 END)));
    END IF;
END
$$;
