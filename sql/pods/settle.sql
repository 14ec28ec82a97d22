-- The settled seq, and the sequence of all tubes.
--
-- A seq S is settled when all pods at or below it that will ever exist are visible. The steps:
--   1. S := tube_settle_seq()
--   2. in a later transaction that has no xid yet: X := pg_current_xact_id(); commit
--   3. until tube_settle_done(X): S is settled
--   4. a mark begun after that returned fewer pods of a class than its limit: the class's floor is S; else it is the
--     least of S and the last seq returned
--   5. a reset lowers it
-- A transaction that drew a seq up to S had its xid before, so its xid is below X. A transaction of another database
-- can hold step 3 up; then, after step 1, holders := tube_settle_holders(tube), and S is settled for that tube as soon
-- as tube_settle_left(tube, holders). Workers do the same with tube_settle_writers.
--
-- None of the tube_settle functions locks anything, and a lost answer does no harm.

-- Errors: TU110 the sequence was altered, so that S would not mean this.
CREATE OR REPLACE FUNCTION :"schema".tube_settle_seq() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_sequence AS q
        WHERE q.seqrelid = 'tube_seq'::regclass AND q.seqcache = 1 AND q.seqincrement = 1 AND NOT q.seqcycle
    ) THEN
        RAISE EXCEPTION 'the sequence tube_seq was altered: it must have CACHE 1, INCREMENT 1 and NO CYCLE'
            USING ERRCODE = 'TU110', HINT = 'ALTER SEQUENCE tube_seq CACHE 1 INCREMENT 1 NO CYCLE, then end '
                'all sessions that write to tubes.';
    END IF;
    RETURN (SELECT CASE WHEN s.is_called THEN s.last_value ELSE s.last_value - 1 END FROM tube_seq AS s);
END
$$;
COMMENT ON FUNCTION :"schema".tube_settle_seq IS 'Returns the greatest seq drawn: the first step to a settled seq.';

-- tube_settle_done: whether every transaction below an xid is over, prepared ones too. Once true, always true.
-- Arguments: x, the xid that step 2 drew. (pg_snapshot_xmax would not do: it is one more than the last xid *completed*,
--   and a greater one may be running.)
-- Result: true when all are over; then statements that begin after the call see their rows.
CREATE OR REPLACE FUNCTION :"schema".tube_settle_done(x xid8) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    RETURN pg_snapshot_xmin(pg_current_snapshot()) >= x;
END
$$;
COMMENT ON FUNCTION :"schema".tube_settle_done IS 'Returns whether every transaction below an xid is over.';

-- A writer holds a writing lock on the tube's table from before it draws a seq until it is over; a prepared transaction
-- keeps it, and its virtual transaction id while the server runs (-1/xid after a restart). pg_locks stops the lock
-- manager for a moment, so do not call this many times a second.
-- Arguments: tube, or NULL for all tubes.
-- Result: their virtual transaction ids; an empty array when there is none.
-- Errors: TU102 unknown tube.
CREATE OR REPLACE FUNCTION :"schema".tube_settle_holders(tube text) RETURNS text[]
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT coalesce(array_agg(h.holder ORDER BY h.holder), '{}') FROM tube_private_holders(tube) AS h
$$;
COMMENT ON FUNCTION :"schema".tube_settle_holders IS
    'Lists open transactions that may still write to the tube; NULL: to any.';

-- A transaction has its xid before it draws, so a transaction without one has drawn nothing: whoever has read S before this
-- call need not wait for it. The xid is the top-level one, by which a snapshot shows whether the transaction is over
-- (pg_visible_in_snapshot), and the same before PREPARE TRANSACTION and after it.
-- Arguments, errors: as tube_settle_holders. Result: their xids; an empty array when there is none.
-- Errors: TU102.
CREATE OR REPLACE FUNCTION :"schema".tube_settle_writers(tube text) RETURNS xid8[]
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT coalesce(array_agg(h.xid), '{}') FROM tube_private_holders(tube) AS h WHERE h.xid IS NOT NULL
$$;
COMMENT ON FUNCTION :"schema".tube_settle_writers IS
    'Lists the xids of holders that may have drawn a seq; NULL: for any tube.';

-- tube_private_holders: the transactions of others that have the tube's table, or that of any tube, open for writing; with their
-- xids, NULL: none yet.
-- pg_locks has xids without their epoch: an xid in use is less than 2^31 away from the snapshot's. A transaction's own xid
-- is older than its parents'.
CREATE OR REPLACE FUNCTION :"schema".tube_private_holders(tube text) RETURNS TABLE (holder text, xid xid8)
LANGUAGE plpgsql AS $$
DECLARE
    near CONSTANT bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
BEGIN
    IF tube IS NOT NULL THEN
        PERFORM tube_private_require(tube, 'any');
    END IF;
    RETURN QUERY
        WITH locks AS MATERIALIZED (SELECT k.* FROM pg_locks AS k WHERE k.granted)
        SELECT k.virtualtransaction, (near + min(
            (x.transactionid::text::bigint - near + 2147483648 & 4294967295) - 2147483648))::text::xid8
        FROM locks AS k
        LEFT JOIN locks AS x ON x.virtualtransaction = k.virtualtransaction AND x.locktype = 'transactionid'
            AND x.mode = 'ExclusiveLock' -- who waits for its end asks for another one
        WHERE k.locktype = 'relation'
          AND k.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
          AND k.relation IN (
              SELECT to_regclass(quote_ident(r.tube)) FROM tube_registry AS r
              WHERE tube_private_holders.tube IS NULL OR r.tube = tube_private_holders.tube)
          AND k.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
          AND k.pid IS DISTINCT FROM pg_backend_pid()
        GROUP BY k.virtualtransaction;
END
$$;

-- NULL counts as none. Errors: TU102 unknown tube.
CREATE OR REPLACE FUNCTION :"schema".tube_settle_left(tube text, holders text[]) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    RETURN NOT tube_settle_holders(tube) && coalesce(holders, '{}');
END
$$;
COMMENT ON FUNCTION :"schema".tube_settle_left IS 'Returns whether all these holders are over.';

-- For a move from another queue whose documents bear its seqs: a sweep deletes documents with a lower seq than the start of
-- a backfill, so each new seq has to be greater than all of theirs.
--
-- Skipped numbers belong to no pod, so a settled seq among them is right. A sequence that went back would
-- break that, and nextval looks only at the lock of the sequence itself; so that lock is taken, and no session
-- draws between the look and the change. It waits for sessions that have drawn and are not done, at most 100 ms at a time.
-- Arguments: beyond: 0 to 10^15; more is a mistake, which could not be taken back.
-- Result: the greatest seq that counts as drawn: the next one is greater. A NOTICE reports the change.
-- Errors: 22004 NULL; 22023 out of that range; TU110 the sequence was altered; 55P03 the lock could not be had. Nothing
--   was changed then.
-- Locks: where it changes something, of tube_seq SHARE ROW EXCLUSIVE until the transaction ends: sessions that draw a seq
--   wait, so commit at once. A change stays when the transaction is rolled back, as any of a sequence does. A lost
--   answer does no harm: call it again.
CREATE OR REPLACE FUNCTION :"schema".tube_seq_advance(beyond bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    most CONSTANT bigint := 1000000000000000;
    was bigint := tube_settle_seq();
BEGIN
    IF beyond IS NULL OR beyond NOT BETWEEN 0 AND most THEN
        RAISE EXCEPTION USING
            ERRCODE = CASE WHEN beyond IS NULL THEN 'null_value_not_allowed' ELSE 'invalid_parameter_value' END,
            MESSAGE = format('tube_seq can''t be advanced beyond %s', coalesce(beyond::text, 'NULL')),
            HINT = format('Give the last_value of the other sequence, 0 to %s.', most);
    END IF;
    IF was < beyond THEN
        -- Changes nothing, and takes the lock.
        PERFORM tube_private_patiently(ARRAY['ALTER SEQUENCE tube_seq OWNED BY NONE'], 'tube_seq is advanced');
        was := tube_settle_seq();
    END IF;
    IF was < beyond THEN
        PERFORM setval('tube_seq', beyond);
        RAISE NOTICE 'tube_seq, which was at %, continues after %', was, beyond;
        RETURN beyond;
    END IF;
    RAISE NOTICE 'tube_seq is at %, so it was left as it is', was;
    RETURN was;
END
$$;
COMMENT ON FUNCTION :"schema".tube_seq_advance IS
    'Moves tube_seq beyond a number, never back, when you move from another queue. Run it outside of other '
    'transactions. It can''t be undone.';
