-- tube_private_came_now: whether a partition came into its tree within this transaction.
--
-- Then nobody has written to it, by its own name, as a part of that tree.
--
-- Arguments: rel: a partition.
-- Result: true when it, or what it is a partition of, was made or attached by this transaction.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_came_now(rel regclass) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    -- A row has the last 32 bits of its writer's number; of ours and those before it, the difference fits.
    now_is CONSTANT bigint := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
BEGIN
    RETURN EXISTS (
        SELECT FROM pg_partition_ancestors(rel) AS a
        JOIN pg_inherits AS i ON i.inhrelid = a.relid
        CROSS JOIN LATERAL (
            SELECT now_is + ((i.xmin::text::bigint - now_is % 4294967296 + 6442450944) % 4294967296 - 2147483648) AS number
        ) AS x
        -- What we see and is under way is ours. (Of very old numbers nothing is known.)
        WHERE x.number > 2 AND pg_xact_status(x.number::text::xid8) = 'in progress');
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN false; -- of before the last wraparound, it looks like one to come
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_came_now(regclass) FROM PUBLIC;

-- tube_private_member_oids: what an attachment keeps as its members.
--
-- Arguments: tbl.
-- Result: the numbers of tube_private_members, sorted; NULL when it is gone.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_member_oids(tbl regclass) RETURNS oid[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN (SELECT array_agg(m.rel::oid ORDER BY m.rel::oid) FROM tube_private_members(tbl) AS m);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_member_oids(regclass) FROM PUBLIC;

-- tube_private_await: notes partitions that could not get their triggers yet.
--
-- Were one dropped before it gets them, nothing else would tell that rows of it are at the sink.
--
-- Arguments: att: as it is stored.
-- Result: nothing.
-- Locks: the attachment.
CREATE OR REPLACE FUNCTION :"schema".tube_private_await(att :"schema".tube_attachment) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    come CONSTANT oid[] := ARRAY(
        SELECT m.rel::oid FROM tube_private_members(att.tbl) AS m WHERE m.rel::oid <> ALL (att.members) ORDER BY 1);
BEGIN
    IF come <> '{}' THEN
        UPDATE tube_attachment AS a SET members = a.members || come, waiting = a.waiting || come
        WHERE a.tube = att.tube AND a.tbl = att.tbl;
    END IF;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_await(:"schema".tube_attachment) FROM PUBLIC;

-- tube_private_ask_backfill: asks the workers to backfill an attached table, since rows that came could not all be seen.
--
-- Arguments: att; came: the partition, for the WARNING.
-- Result: nothing. A control pod as of tube_backfill_schedule; always one, since a backfill that is under
--   way may have read the table before.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_ask_backfill(att :"schema".tube_attachment, came regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    EXECUTE format('INSERT INTO %I.%I (op, shard, ids, payload) VALUES (''B'', $1, ''{}'', $2)',
        tube_private_schema(), att.tube)
    USING att.shard, jsonb_build_object('type', 'backfill_schedule', 'order_col', att.id_col::text, 'tbl', (
        SELECT format('%I.%I', n.nspname, c.relname)
        FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = att.tbl));
    PERFORM tube_private_notify(tube_channel(s.tube), s.partition) FROM tube_sleeper AS s WHERE s.tube = att.tube;
    RAISE WARNING USING
        MESSAGE = format('a backfill of %s is asked for, for tube %L: a transaction at %s may not see all rows of %s',
            att.tbl, att.tube, upper(current_setting('transaction_isolation')), came),
        HINT = 'Attach partitions that hold rows at READ COMMITTED: then just their rows are touched.';
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_ask_backfill(:"schema".tube_attachment, regclass) FROM PUBLIC;
