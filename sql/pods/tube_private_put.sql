-- tube_private_put: what tube_pods_put and tube_keys_put do.
--
-- Ids that come in pieces are warned of once: when they are checked, without ids, before the first piece;
-- otherwise with the last piece.
--
-- Arguments, result, errors, locks: as of those; ids: bigint[] or text[].
CREATE OR REPLACE FUNCTION :"schema".tube_private_put(
    tube_or_tubes text, shard integer, op text, ids anyarray, chunk_size integer, last boolean
) RETURNS bigint
LANGUAGE plpgsql
SET enable_sort = off -- so that ids of a shard keep their order
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    put_op text := op;
    put_chunk integer;
    tube_name text;
    tubes text[] := '{}';
    lonely text[] := '{}'; -- tubes none of whose tables has the shard
    key_type regtype;
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
        key_type := tube_private_key_type(tube_name);
        IF key_type <> 'bigint'::regtype AND pg_typeof(ids) = 'bigint[]'::regtype THEN
            RAISE EXCEPTION USING ERRCODE = 'datatype_mismatch',
                MESSAGE = format('the keys of tube %L have the type %s, not bigint', tube_name, key_type),
                HINT = 'Call tube_keys_put, which takes them as texts.';
        END IF;
        SELECT a.shard AS first, a.shards INTO range FROM tube_attachment AS a
        WHERE a.tube = tube_name AND tube_private_put.shard BETWEEN a.shard AND a.shard + (a.shards - 1)
            AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = a.tbl)
        LIMIT 1;
        IF NOT FOUND THEN
            SELECT tube_private_put.shard AS first, 1 AS shards INTO range;
            lonely := lonely || tube_name;
        END IF;
        IF ids <> '{}' THEN
            EXECUTE tube_private_put_sql(tube_name, range.first, range.shards) USING put_op, ids, put_chunk;
            GET DIAGNOSTICS made = ROW_COUNT;
            pods := pods + made;
        END IF;
        IF last THEN
            PERFORM tube_private_wake_sleepers(tube_name,
                ARRAY(SELECT generate_series(range.first, range.first + (range.shards - 1))));
        END IF;
    END LOOP;
    IF (ids = '{}') <> last THEN
        PERFORM tube_private_warn_lonely(l.tube, tube_private_put.shard) FROM unnest(lonely) AS l (tube);
    END IF;
    RETURN pods;
END
$$;

-- tube_private_warn_lonely: warns that ids are put where no table has them.
--
-- Arguments: tube; shard: one that no attached table of the tube has.
CREATE OR REPLACE FUNCTION :"schema".tube_private_warn_lonely(tube text, shard integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    most CONSTANT integer := 10;
    ranges text[] := ARRAY(
        SELECT CASE a.shards WHEN 1 THEN a.shard::text ELSE format('%s to %s', a.shard, a.shard + (a.shards - 1)) END
        FROM tube_attachment AS a
        WHERE a.tube = tube_private_warn_lonely.tube AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = a.tbl)
        GROUP BY a.shard, a.shards ORDER BY a.shard, a.shards LIMIT most + 1);
BEGIN
    RAISE WARNING USING
        MESSAGE = CASE WHEN ranges = '{}'
            THEN format('no table is attached to tube %L, so there are no rows to read for ids in the shard %s', tube, shard)
            ELSE format('no table that is attached to tube %L has the shard %s, so there are no rows to read for these ids',
                tube, shard) END,
        HINT = 'A worker that reads rows parks each of these ids. ' || CASE WHEN ranges = '{}'
            THEN 'Attach their table first, unless its consumers read no rows.'
            ELSE format('Give a shard of an attached table (%s), or attach the table that has this one.',
                array_to_string(ranges[:most], ', ') || CASE WHEN cardinality(ranges) > most THEN ', …' ELSE '' END) END;
END
$$;

-- tube_private_put_sql: the statement that makes pods of an array of ids.
--
-- The array is copied once: a slice of a parameter would copy all of it for each pod.
--
-- Arguments: tube; first, shards: the range that the ids are spread over; one shard takes them all.
-- Result: the text, with the parameters $1 op, $2 ids (of a type that can be cast to the keys'), $3 chunk size.
CREATE OR REPLACE FUNCTION :"schema".tube_private_put_sql(tube text, first integer, shards integer) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    key_type CONSTANT regtype := tube_private_key_type(tube);
BEGIN
    RETURN format($sql$
        INSERT INTO %I.%I (op, shard, ids)
        SELECT $1, g.shard, g.ids[c.first : c.first + $3 - 1]
        FROM (%s OFFSET 0) AS g, LATERAL generate_series(1, cardinality(g.ids), $3) AS c (first)$sql$,
        tube_private_schema(), tube,
        CASE shards
            WHEN 1 THEN format('SELECT %1$s AS shard, $2::%2$s[] || ''{}''::%2$s[] AS ids', first, key_type)
            ELSE format('SELECT %s AS shard, array_agg(t.id) AS ids'
                ' FROM (SELECT unnest($2::%s[]) AS id) AS t GROUP BY 1',
                tube_private_shard_expression('t.id', first, shards), key_type)
        END);
END
$$;
