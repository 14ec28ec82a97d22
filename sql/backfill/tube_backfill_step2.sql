-- tube_backfill_step2: waits until every transaction that is running now is over. The second of three.
--
-- Only transactions of this database that have an xid matter, for only they can have drawn a seq:
-- prepared ones too, readers not. The caller's own transaction does not count.
--
-- Arguments: timeout: 0 or more; 0 looks once.
-- Result: nothing. While it waits, a NOTICE at first and every 2 seconds: active_tx_xid=XID of the oldest
--   transaction that it waits for, which programs read; then "--", who holds it, and how many there are.
-- Errors: 55P03 some are still running at the timeout; the message names up to ten of them; 22023 a
--   timeout that is NULL or negative.
-- Locks: none. It reads pg_locks some ten times a second.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_step2(timeout interval = '60 seconds') RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    until CONSTANT timestamptz := clock_timestamp() + timeout;
    every CONSTANT interval := '2 seconds';
    next_notice timestamptz := '-infinity';
    pause double precision := 0.005;
    running xid[];
BEGIN
    IF timeout IS NULL OR timeout < interval '0' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('the timeout is %s', coalesce(timeout::text, 'NULL')), HINT = 'Give 0 or more.';
    END IF;
    -- At REPEATABLE READ, step 3 in the same transaction would look at rows as they were before.
    PERFORM set_config('pytube.backfill_waited', 'true', true);
    running := tube_private_running();
    LOOP
        -- By xids, which stay the same when a transaction is prepared meanwhile.
        running := ARRAY(SELECT k.transactionid FROM pg_locks AS k
            WHERE k.locktype = 'transactionid' AND k.granted AND k.mode = 'ExclusiveLock'
                AND k.transactionid = ANY (running)
            ORDER BY age(k.transactionid) DESC);
        EXIT WHEN running = '{}';
        IF clock_timestamp() >= until THEN
            RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
                MESSAGE = format('transactions that began before are still open after %s: %s',
                    timeout, tube_private_tell_running(running)),
                HINT = 'End them, or call again with a longer timeout.';
        END IF;
        IF clock_timestamp() >= next_notice THEN
            next_notice := clock_timestamp() + every;
            RAISE NOTICE 'tube_backfill_step2: active_tx_xid=% -- waiting for %', running[1],
                tube_private_tell_running(running[:1])
                || CASE WHEN cardinality(running) > 1 THEN format('; %s transaction ids in all', cardinality(running))
                    ELSE '' END;
        END IF;
        PERFORM pg_sleep(least(pause, greatest(0.001, extract(epoch FROM until - clock_timestamp()))));
        pause := least(0.1, pause * 2);
    END LOOP;
END
$$;

-- tube_private_running: the xids of all other transactions of this database that run, and are prepared.
--
-- A transaction holds a lock on its xid, and on those of its subtransactions, before it can draw a seq,
-- and until it is over. One whose database is not known is taken for ours.
--
-- Result: the xids.
CREATE OR REPLACE FUNCTION :"schema".tube_private_running() RETURNS xid[]
LANGUAGE plpgsql AS $$
DECLARE
    running xid[] := ARRAY(
        SELECT k.transactionid FROM pg_locks AS k
        WHERE k.locktype = 'transactionid' AND k.granted AND k.mode = 'ExclusiveLock'
            AND k.pid IS DISTINCT FROM pg_backend_pid());
BEGIN
    PERFORM pg_stat_clear_snapshot(); -- else it is as at its first use in this transaction
    RETURN ARRAY(
        SELECT r.x FROM unnest(running) AS r (x)
        LEFT JOIN pg_locks AS k ON k.locktype = 'transactionid' AND k.transactionid = r.x
            AND k.granted AND k.mode = 'ExclusiveLock'
        LEFT JOIN pg_stat_activity AS a ON a.pid = k.pid
        LEFT JOIN pg_prepared_xacts AS p ON p.transaction = r.x
        WHERE coalesce(a.datname, p.database, current_database()) = current_database());
END
$$;

-- tube_private_tell_running: who holds transactions open, in words.
--
-- Arguments: running: xids.
-- Result: session by session the pid, user, application and age; prepared ones with their gid, owner
--   and age; at most ten. (The age of another role's session is told to members of that role and of
--   pg_read_all_stats only.)
CREATE OR REPLACE FUNCTION :"schema".tube_private_tell_running(running xid[]) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    result text;
BEGIN
    PERFORM pg_stat_clear_snapshot();
    SELECT string_agg(h.told, '; ') INTO result
    FROM (
        SELECT format('pid %s of user %s, application %s%s', a.pid, coalesce(a.usename, '(none)'),
            coalesce(quote_literal(nullif(a.application_name, '')), '(none)'),
            coalesce(', open for ' || date_trunc('second', clock_timestamp() - a.xact_start), '')) AS told,
            a.xact_start AS since
        FROM pg_stat_activity AS a
        WHERE EXISTS (
            SELECT FROM pg_locks AS k
            WHERE k.pid = a.pid AND k.locktype = 'transactionid' AND k.granted
                AND k.mode = 'ExclusiveLock' AND k.transactionid = ANY (running))
        UNION ALL
        SELECT format('prepared transaction %L of user %s, open for %s', p.gid, p.owner,
            date_trunc('second', clock_timestamp() - p.prepared)), p.prepared
        FROM pg_prepared_xacts AS p WHERE p.transaction = ANY (running)
        ORDER BY since
        LIMIT 10
    ) AS h;
    RETURN coalesce(result, format('%s that could not be found', cardinality(running)));
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_step2 IS
    'Waits until every transaction that is running now is over: the second of three steps of a backfill.';
