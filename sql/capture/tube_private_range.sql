-- tube_private_range: the first shard of a table that is being attached.
--
-- Arguments: tube; tbl; shard: the caller's, may be NULL; shards: over how many it is spread.
-- Result: shard; where that is NULL, the number at the end of the name of the table's schema; where
--   there is none, the one that it is attached with.
-- Errors: TU106 none of these, negative, too large, shards below 1, or a range that is partly that of
--   another attached table.
-- Locks: none; the caller holds the registry row.
CREATE OR REPLACE FUNCTION :"schema".tube_private_range(
    tube text, tbl regclass, shard integer, shards integer
) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    schema_name text := (
        SELECT n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = tbl);
    first numeric := coalesce(
        shard,
        substring(schema_name FROM '[0-9]+$')::numeric,
        (SELECT a.shard FROM tube_attachment AS a
         WHERE a.tube = tube_private_range.tube AND a.tbl = tube_private_range.tbl));
    last numeric := first + (shards - 1);
    wrong text;
BEGIN
    wrong := CASE
        WHEN shards IS NULL OR shards < 1
            THEN format('it can''t be spread over %s shards', coalesce(shards::text, 'NULL'))
        WHEN first IS NULL
            THEN format('no shard is given, and its schema %I does not end in a number', schema_name)
        WHEN first < 0 THEN format('the shard %s is negative', first)
        WHEN last > 2147483647 THEN format('the shard %s is too large', last)
        ELSE (
            SELECT format('its shards %s to %s are partly those of %s, which has %s to %s',
                first, last, a.tbl, a.shard, a.shard + (a.shards - 1))
            FROM tube_attachment AS a
            WHERE a.tube = tube_private_range.tube AND a.tbl <> tube_private_range.tbl
                AND a.shard <= last AND first < a.shard::bigint + a.shards
                AND (a.shard, a.shards) <> (first, tube_private_range.shards)
            LIMIT 1)
    END;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU106',
            MESSAGE = format('%s can''t be attached to tube %L: %s', tbl, tube, wrong),
            HINT = 'Give shard (0 or more) and shards (1 or more), either just those of another table '
                'or none of them.';
    END IF;
    RETURN first;
END
$$;
