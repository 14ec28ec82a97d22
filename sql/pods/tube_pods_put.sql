-- tube_pods_put: puts ids into tubes as pods, in their order; what fan-out and backfill end in.
--
-- Unlike {tube}_touch it does not look for ids that stand twice. A right of its own, because
-- tube_pods_insert, which runs a query with its caller's rights, calls it with those too.
--
-- Arguments: tube_or_tubes: joined by commas; shard: where it is one of those that a table is spread
--   over, each id gets its own; op: in a session whose application_name contains "backfill" it is B;
--   ids: none only checks the others; chunk_size: ids of a pod; last: wakes workers that sleep, once
--   all is put.
-- Result: how many pods were made.
-- Errors: TU102 unknown tube; TU106 no shard, or a negative one; 22004 a NULL among the ids; 22023 another
--   op than I, U, D, T, B, or a chunk size below 1.
-- Locks: those of an INSERT into the tubes.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_put(
    tube_or_tubes text, shard integer, op text, ids bigint[], chunk_size integer = 250, last boolean = true
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET enable_sort = off -- so that ids of a shard keep their order
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    put_op text := op;
    put_chunk integer;
    tube_name text;
    tubes text[] := '{}';
    range record;
    made bigint;
    pods bigint := 0;
BEGIN
    PERFORM tube_private_check_touch(shard, ids, op, chunk_size);
    put_chunk := least(chunk_size, greatest(1, cardinality(ids))); -- far from the end of integer
    IF strpos(current_setting('application_name'), 'backfill') > 0 THEN
        put_op := 'B';
    END IF;
    FOREACH tube_name IN ARRAY coalesce(nullif(string_to_array(tube_or_tubes, ','), '{}'), ARRAY[tube_or_tubes])
    LOOP
        IF NOT EXISTS (SELECT FROM tube_registry AS r WHERE r.tube = tube_name) THEN
            tube_name := btrim(tube_name);
            PERFORM tube_private_require(tube_name);
        END IF;
        CONTINUE WHEN tube_name = ANY (tubes);
        tubes := tubes || tube_name;
        SELECT a.shard AS first, a.shards INTO range FROM tube_attachment AS a
        WHERE a.tube = tube_name AND a.shards > 1
            AND tube_pods_put.shard BETWEEN a.shard AND a.shard + (a.shards - 1)
        LIMIT 1;
        IF NOT FOUND THEN
            SELECT tube_pods_put.shard AS first, 1 AS shards INTO range;
        END IF;
        IF ids <> '{}' THEN
            EXECUTE tube_private_put_sql(tube_name, range.first, range.shards) USING put_op, ids, put_chunk;
            GET DIAGNOSTICS made = ROW_COUNT;
            pods := pods + made;
        END IF;
        IF last THEN
            PERFORM tube_private_notify(tube_channel(tube_name), s.partition)
            FROM tube_sleeper AS s
            WHERE s.tube = tube_name
                AND (s.partition - range.first % s.partitions + s.partitions) % s.partitions < range.shards;
        END IF;
    END LOOP;
    RETURN pods;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_pods_put(text, integer, text, bigint[], integer, boolean) FROM PUBLIC;

-- tube_private_put_sql: the statement that makes pods of an array of ids.
--
-- The array is copied once: a slice of a parameter would copy all of it for each pod.
--
-- Arguments: tube; first, shards: the range that the ids are spread over; one shard takes them all.
-- Result: the text, with the parameters $1 op, $2 ids, $3 chunk size.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_put_sql(tube text, first integer, shards integer) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN format($sql$
        INSERT INTO %I.%I (op, shard, ids)
        SELECT $1, g.shard, g.ids[c.first : c.first + $3 - 1]
        FROM (%s OFFSET 0) AS g, LATERAL generate_series(1, cardinality(g.ids), $3) AS c (first)$sql$,
        tube_private_schema(), tube,
        CASE shards
            WHEN 1 THEN format('SELECT %s AS shard, $2 || ''{}''::bigint[] AS ids', first)
            ELSE format('SELECT %s AS shard, array_agg(t.id) AS ids FROM (SELECT unnest($2) AS id) AS t GROUP BY 1',
                tube_private_shard_expression('t.id', first, shards, 'bigint'))
        END);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_put_sql(text, integer, integer) FROM PUBLIC;
