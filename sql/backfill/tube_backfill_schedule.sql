-- tube_backfill_schedule: asks the workers of a tube to backfill its tables.
--
-- A control pod backfill_schedule of op B for each root table that has a shard from shard_from to
-- shard_to, in the first shard of the table. Passed over are tables where a backfill_schedule or a
-- backfill_end waits already in one of their shards, or that are being backfilled in chunks.
--
-- Arguments: in_tube; order_col: a column of each of these tables; shard_from, shard_to: both included.
-- Result: how many control pods were added.
-- Errors: TU102 unknown tube, 42703 a table has no such column, 22023 shard_from is greater than
--   shard_to, 22004 an argument is NULL. Nothing was added then.
-- Locks: an advisory one for the tube, until the transaction ends: others who schedule wait.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_schedule(
    in_tube text, order_col text, shard_from integer, shard_to integer
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    att tube_attachment;
    column_name name;
    added integer := 0;
BEGIN
    PERFORM tube_private_require(in_tube);
    IF shard_from IS NULL OR shard_to IS NULL OR shard_from > shard_to THEN
        RAISE EXCEPTION USING
            ERRCODE = CASE WHEN shard_from > shard_to THEN 'invalid_parameter_value' ELSE 'null_value_not_allowed' END,
            MESSAGE = format('there are no shards from %s to %s',
                coalesce(shard_from::text, 'NULL'), coalesce(shard_to::text, 'NULL')),
            HINT = 'Give the first and the last shard.';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(tube_private_schema() || ' schedule ' || in_tube, 0));
    FOR att IN
        SELECT a.* FROM tube_attachment AS a
        WHERE a.tube = in_tube AND a.shard <= shard_to AND a.shard + (a.shards - 1) >= shard_from
            AND tube_private_is_root(a) AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = a.tbl)
        ORDER BY a.shard
    LOOP
        column_name := tube_private_backfill_column(att.tbl, order_col);
        CONTINUE WHEN tube_private_control_waits(in_tube, att.shard, att.shards, '{backfill_schedule,backfill_end}');
        CONTINUE WHEN EXISTS (
            SELECT FROM tube_backfill AS b
            WHERE b.tube = att.tube AND b.tbl = att.tbl AND b.state IN ('waiting', 'inserting', 'delivering'));
        EXECUTE format('SELECT %I.%I($1, NULL, ''B'', jsonb_build_object(''type'', ''backfill_schedule'','
            ' ''tbl'', $2, ''order_col'', $3))', tube_private_schema(), tube_private_name(in_tube, '_touch'))
        USING att.shard, (
            SELECT format('%I.%I', n.nspname, c.relname)
            FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = att.tbl),
            column_name::text;
        added := added + 1;
    END LOOP;
    RETURN added;
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_schedule IS
    'Asks the workers of a tube to backfill its tables, by control pods; returns how many were added.';
