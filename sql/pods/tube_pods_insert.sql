-- tube_pods_insert: touches all ids that a query gives.
--
-- The query runs with the rights and the search_path of the caller, and through a cursor, so that
-- memory does not grow with its result. All is one transaction. Ids come into the tubes in the order
-- of the query, each as often as it is there; the predicate of a tube is not applied. Where a table of a
-- tube is spread over several shards, `shard` among them, each id gets its own (tube_shard_of).
--
-- Whoever is to call this needs EXECUTE on it, on tube_as_caller and on tube_pods_put; for tubes of other
-- keys than bigint also on tube_keys_as_caller and tube_keys_put.
--
-- Arguments:
--   tube_or_tubes: one, or several joined by commas.
--   query: of two columns, by position: the id, and a 1-based row number, which nothing depends on.
--   shard: 0 or more.
--   op: I, U, D, T or B. In a session whose application_name contains "backfill" it is always B.
--   approx_size: how many rows there may be; for the progress only.
--   fetch_chunk_size: rows read at a time, at most a million.
--   insert_chunk_size: ids of a pod; never more than are read at a time.
--   in_search_path: for the query.
-- Result: nothing. A NOTICE reports the progress every 2 seconds (while rows come), and at the end:
--   insert_ids=N insert_finished=f, or t at the end, which programs read; then "--" and the same for people.
--   A WARNING comes before the query is run where no attached table of a tube has the shard (tube_pods_put).
-- Errors: TU102 unknown tube; TU106 shard; 22004 an id is NULL; 22023 op, or a chunk size below 1;
--   42601 the query has not two columns; 22P02, 22003 an id is not of the tube's type; those of the query.
-- Locks: those of an INSERT into the tubes, and those of the query.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_insert(
    tube_or_tubes text, query text, shard integer, op char = 'B', approx_size bigint = NULL,
    fetch_chunk_size integer = 20000, insert_chunk_size integer = 250,
    in_search_path text = pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
SET cursor_tuple_fraction = 1 -- all of it will be read
AS $$
DECLARE
    most CONSTANT integer := 1000000; -- an array of a fetch has to fit into memory
    every CONSTANT interval := '2 seconds';
    began CONSTANT timestamptz := clock_timestamp();
    told timestamptz := began;
    portal CONSTANT text := quote_ident('pytube ' || gen_random_uuid());
    body CONSTANT text := E'(\n' || regexp_replace(query, '[;\s]+$', '') || E'\n)';
    id_type regtype;
    declaration text;
    next_rows text;
    numbers boolean := true; -- whether all keys are bigint
    ids bigint[];
    keys text[];
    count bigint;
    made bigint;
    done bigint := 0;
    pods bigint := 0;
BEGIN
    -- Refused, and warned of, before the query is run.
    BEGIN
        PERFORM tube_pods_put(tube_or_tubes, shard, op, '{}', insert_chunk_size, false);
    EXCEPTION WHEN datatype_mismatch THEN
        PERFORM tube_keys_put(tube_or_tubes, shard, op, '{}', insert_chunk_size, false);
        numbers := false;
    END;
    IF fetch_chunk_size IS NULL OR fetch_chunk_size < 1 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('%s rows can''t be read at a time', coalesce(fetch_chunk_size::text, 'NULL')),
            HINT = 'Give a fetch_chunk_size of 1 or more.';
    ELSIF query IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed',
            MESSAGE = 'the query is NULL', HINT = 'Give the text of a SELECT.';
    END IF;

    BEGIN
        -- A first row of NULLs, so that nothing of the query is run.
        SELECT t.id::oid INTO id_type FROM tube_as_caller(in_search_path, NULL, format(
            'SELECT pg_catalog.pg_typeof(q.id)::pg_catalog.oid::pg_catalog.int8'
            ' FROM (SELECT NULL, NULL UNION ALL SELECT * FROM %s AS r) AS q (id, place) LIMIT 1', body)) AS t (id);
    EXCEPTION WHEN syntax_error THEN
        -- If it is right but for the number of its columns, it passes here.
        PERFORM FROM tube_as_caller(in_search_path, NULL,
            format('SELECT 1::pg_catalog.int8 FROM %s AS q LIMIT 0', body));
        RAISE EXCEPTION USING ERRCODE = 'syntax_error',
            MESSAGE = 'the query of tube_pods_insert has not two columns',
            HINT = 'Give the id and a row number: SELECT id, row_number() OVER () FROM …';
    END;

    declaration := format('DECLARE %s NO SCROLL CURSOR FOR SELECT q.id%s FROM %s AS q (id, place)',
        portal,
        CASE
            WHEN NOT numbers THEN '::pg_catalog.text'
            WHEN id_type IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype) THEN '::pg_catalog.int8'
            -- A number with a fraction is not rounded to an id, but refused.
            ELSE '::pg_catalog.text::pg_catalog.int8'
        END,
        body);
    next_rows := format('FETCH FORWARD %s FROM %s', least(fetch_chunk_size, most), portal);
    LOOP
        IF numbers THEN
            SELECT array_agg(t.id) INTO ids FROM tube_as_caller(in_search_path, declaration, next_rows) AS t (id);
            EXIT WHEN ids IS NULL;
            count := cardinality(ids);
            made := tube_pods_put(tube_or_tubes, shard, op, ids, insert_chunk_size, false);
        ELSE
            SELECT array_agg(t.id) INTO keys
            FROM tube_keys_as_caller(in_search_path, declaration, next_rows) AS t (id);
            EXIT WHEN keys IS NULL;
            count := cardinality(keys);
            made := tube_keys_put(tube_or_tubes, shard, op, keys, insert_chunk_size, false);
        END IF;
        declaration := NULL;
        pods := pods + made;
        done := done + count;
        IF clock_timestamp() - told >= every THEN
            told := clock_timestamp();
            RAISE NOTICE 'tube_pods_insert: insert_ids=% insert_finished=f -- %: % ids%, % a second',
                done, tube_or_tubes, done,
                CASE WHEN approx_size > 0
                    THEN format(' of about %s (%s %%)', approx_size, least(100, 100 * done / approx_size))
                    ELSE '' END,
                round(done / extract(epoch FROM told - began));
        END IF;
        EXIT WHEN count < least(fetch_chunk_size, most);
    END LOOP;
    EXECUTE 'CLOSE ' || portal;
    IF numbers THEN
        PERFORM tube_pods_put(tube_or_tubes, shard, op, '{}', insert_chunk_size, true);
    ELSE
        PERFORM tube_keys_put(tube_or_tubes, shard, op, '{}', insert_chunk_size, true);
    END IF;
    RAISE NOTICE 'tube_pods_insert: insert_ids=% insert_finished=t -- %: % ids in % pods, in % s',
        done, tube_or_tubes, done, pods,
        round(extract(epoch FROM clock_timestamp() - began), 1);
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_insert IS
    'Touches all ids that a query returns; the query runs with the caller''s rights.';
