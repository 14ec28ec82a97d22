-- Ids that are put into tubes as pods, in their order, and not by a trigger: what fan-out and backfills end in.

-- Unlike {tube}_touch it does not look for ids that stand twice. A separate right, because tube_pods_insert, which
-- runs a query with its caller's rights, calls it with those too.
-- Arguments: tube_or_tubes: joined by commas; shard: where it is one of the shards that a table is spread over, each id gets
--   its own; op: in a session whose application_name contains "backfill" it is B; ids: none only checks the others;
--   chunk_size: ids of a pod; last: whether these are the last ids, for the WARNING.
-- Result: how many pods were made. A WARNING where no attached table of a tube has the shard: with the last ids, or
--   when the arguments are checked (no ids, and last is false), so that ids that come in pieces are warned of once.
-- Errors: TU102 unknown tube; TU106 no shard, or a negative one; 22004 a NULL among the ids; 22023 another op than I,
--   U, D, T, B, or a chunk size below 1; 42804 a tube has keys of another type.
-- Locks: as an INSERT into the tubes.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_put(
    tube_or_tubes text, shard integer, op text, ids bigint[], chunk_size integer = 250, last boolean = true
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    RETURN tube_private_put(tube_or_tubes, shard, op, ids, chunk_size, last);
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_put IS
    'Queues ids in tubes as pods, in the given order, and returns the number of pods. last: the last piece of '
    'several.';

-- Errors: those of tube_pods_put, but for the type of ids; 22P02, 22003 a key is not of a tube's type; TU102, TU106.
CREATE OR REPLACE FUNCTION :"schema".tube_keys_put(
    tube_or_tubes text, shard integer, op text, keys text[], chunk_size integer = 250, last boolean = true
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    RETURN tube_private_put(tube_or_tubes, shard, op, keys, chunk_size, last);
END
$$;
COMMENT ON FUNCTION :"schema".tube_keys_put IS 'As tube_pods_put, for any key type: keys are texts.';

-- tube_private_put: what tube_pods_put and tube_keys_put do; ids: bigint[] or text[].
CREATE OR REPLACE FUNCTION :"schema".tube_private_put(
    tube_or_tubes text, shard integer, op text, ids anyarray, chunk_size integer, last boolean
) RETURNS bigint
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    tube_name text;
    tubes text[] := '{}';
    lonely text[] := '{}'; -- tubes none of whose tables has the shard
    key_type regtype;
    made record;
    pods bigint := 0;
BEGIN
    PERFORM tube_private_check_touch(shard, ids, op, chunk_size);
    FOREACH tube_name IN ARRAY coalesce(nullif(string_to_array(tube_or_tubes, ','), '{}'), ARRAY[tube_or_tubes]) LOOP
        IF NOT EXISTS (SELECT FROM tube_registry AS r WHERE r.tube = tube_name AND r.kind = 'tube') THEN
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
        made := tube_private_put_ids(tube_name, shard, tube_private_session_op(op), ids, chunk_size);
        pods := pods + made.pods;
        lonely := lonely || CASE WHEN made.is_lonely THEN ARRAY[tube_name] END;
    END LOOP;
    IF (ids = '{}') <> last THEN
        PERFORM tube_private_warn_lonely(l.tube, shard) FROM unnest(lonely) AS l (tube);
    END IF;
    RETURN pods;
END
$$;

-- tube_private_session_op: the op of touches of this session: B in one whose application_name contains "backfill".
CREATE OR REPLACE FUNCTION :"schema".tube_private_session_op(op text) RETURNS text
LANGUAGE sql STABLE AS $$ SELECT CASE WHEN strpos(current_setting('application_name'), 'backfill') > 0 THEN 'B' ELSE op END $$;

-- tube_private_put_ids: the one way by which ids become pods that no trigger writes. Of a table that is spread over several
-- shards, `shard` among them, each id gets its own. Workers that sleep are woken.
-- Arguments: tube; shard; op; ids: without NULLs, of the tube's type or castable to it; chunk_size: ids of a pod;
--   payload: of each of the pods; once: an id that stands twice comes once, at its first place.
-- Result: pods: how many; is_lonely: whether no attached table has the shard; touched: the shards of the pods.
CREATE OR REPLACE FUNCTION :"schema".tube_private_put_ids(
    tube text, shard integer, op text, ids anyarray, chunk_size integer, payload jsonb = NULL, once boolean = false,
    OUT pods bigint, OUT is_lonely boolean, OUT touched integer[]
)
LANGUAGE plpgsql SET enable_sort = off -- so that ids of a shard keep their order
SET jit = off AS $$
#variable_conflict use_variable
DECLARE
    reg CONSTANT tube_registry := tube_private_require(tube);
    chunk CONSTANT integer := least(chunk_size, greatest(1, cardinality(ids))); -- far from the end of integer
    all_ids CONSTANT text := format(CASE WHEN once AND cardinality(ids) > 1
        THEN 'ARRAY(SELECT t.id FROM unnest($2::%1$s[]) WITH ORDINALITY AS t (id, place) GROUP BY t.id ORDER BY min(t.place))'
        -- The array is copied once: a slice of a parameter would copy all of it for each pod.
        ELSE '$2::%1$s[] || ''{}''::%1$s[]' END, reg.key_type);
    att tube_attachment;
BEGIN
    SELECT a.* INTO att FROM tube_attachment AS a
    WHERE a.tube = tube AND shard BETWEEN a.shard AND a.shard + (a.shards - 1)
        AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = a.tbl)
    LIMIT 1;
    is_lonely := NOT FOUND;
    pods := 0;
    IF cardinality(ids) > 0 THEN
        EXECUTE format($sql$
            WITH put AS (
                INSERT INTO %s (op, shard, ids, payload)
                SELECT $1, g.shard, g.ids[c.first : c.first + $3 - 1], $4
                FROM (%s OFFSET 0) AS g, LATERAL generate_series(1, cardinality(g.ids), $3) AS c (first)
                RETURNING shard)
            SELECT count(*), array_agg(DISTINCT p.shard) FROM put AS p$sql$, tube_private_qualify(tube),
            CASE WHEN att.shards > 1 THEN format('SELECT %s AS shard, array_agg(t.id) AS ids FROM unnest(%s) AS t (id) GROUP BY 1',
                    tube_private_shard_expression('t.id', att, of_row => false), all_ids)
                ELSE format('SELECT %s AS shard, %s AS ids', shard, all_ids) END)
        INTO pods, touched USING op, ids, chunk, payload;
        -- After the INSERT, as in tube_private_put_body.
        IF pg_sequence_last_value(tube_private_qualify('tube_sleeps_' || reg.number)::regclass) > 1 THEN
            PERFORM tube_private_wake_sleepers(tube, touched);
        END IF;
    END IF;
END
$$;

-- tube_private_warn_lonely: warns that ids are put into a shard that no attached table of the tube has.
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
        MESSAGE = format(CASE WHEN ranges = '{}'
            THEN 'no table is attached to tube %L, so there are no rows to read for ids in the shard %s'
            ELSE 'no table that is attached to tube %L has the shard %s, so there are no rows to read for these ids'
            END, tube, shard),
        HINT = 'A worker that reads rows parks each of these ids. ' || CASE WHEN ranges = '{}'
            THEN 'Attach their table first, unless its consumers read no rows.'
            ELSE format('Give a shard of an attached table (%s), or attach the table that has this one.',
                array_to_string(ranges[:most], ', ') || CASE WHEN cardinality(ranges) > most THEN ', ...' ELSE '' END)
            END;
END
$$;

-- The query runs with the rights and the search_path of the caller, and through a cursor, so that memory does not grow
-- with its result. All is one transaction. Ids come into the tubes in the order of the query, each as often as it is
-- there; the predicate of a tube is not applied. Where a table of a tube is spread over several shards, `shard` among
-- them, each id gets its own (tube_shard_of).
--
-- A caller needs EXECUTE on this, on tube_as_caller and on tube_pods_put; for tubes of other keys than bigint also on
-- tube_keys_as_caller and tube_keys_put.
-- Arguments:
--   tube_or_tubes: one, or several joined by commas.
--   query: of two columns, by position: the id, and a 1-based row number, which nothing depends on.
--   shard: 0 or more.
--   op: I, U, D, T or B. In a session whose application_name contains "backfill" it is always B.
--   approx_size: how many rows there may be; for the progress only.
--   fetch_chunk_size: rows read at a time, at most a million.
--   insert_chunk_size: ids of a pod; never more than are read at a time.
--   in_search_path: for the query.
-- Result: nothing. A NOTICE reports the progress every 2 seconds (while rows come), and at the end: insert_ids=N
--   insert_finished=f, or t at the end, which programs read; then "--" and the same for people. A WARNING comes before
--   the query is run where no attached table of a tube has the shard (tube_pods_put).
-- Errors: TU102 unknown tube; TU106 shard; 22004 an id is NULL; 22023 op, or a chunk size below 1; 42601 the query has
--   not two columns; 22P02, 22003 an id is not of the tube's type; the query's own.
-- Locks: as an INSERT into the tubes, and as the query.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_insert(
    tube_or_tubes text, query text, shard integer, op char = 'B', approx_size bigint = NULL,
    fetch_chunk_size integer = 20000, insert_chunk_size integer = 250,
    in_search_path text = pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp
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
    fetched bigint;
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
        RAISE EXCEPTION '% rows can''t be read at a time', coalesce(fetch_chunk_size::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give a fetch_chunk_size of 1 or more.';
    ELSIF query IS NULL THEN
        RAISE EXCEPTION 'the query is NULL'
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Give the text of a SELECT.';
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
        RAISE EXCEPTION 'the query of tube_pods_insert has not two columns'
            USING ERRCODE = 'syntax_error',
                HINT = 'Give the id and a row number: SELECT id, row_number() OVER () FROM ...';
    END;

    declaration := format(
        'DECLARE %s NO SCROLL CURSOR FOR SELECT q.id::pg_catalog.%s FROM %s AS q (id, place)', portal,
        CASE
            WHEN NOT numbers THEN 'text'
            WHEN id_type IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype) THEN 'int8'
            ELSE 'text::pg_catalog.int8' -- a number with a fraction is not rounded to an id, but refused
        END, body);
    next_rows := format('FETCH FORWARD %s FROM %s', least(fetch_chunk_size, most), portal);
    LOOP
        IF numbers THEN
            SELECT count(*), tube_pods_put(tube_or_tubes, shard, op, array_agg(t.id), insert_chunk_size, false)
            INTO fetched, made
            FROM tube_as_caller(in_search_path, declaration, next_rows) AS t (id) HAVING count(*) > 0;
        ELSE
            SELECT count(*), tube_keys_put(tube_or_tubes, shard, op, array_agg(t.id), insert_chunk_size, false)
            INTO fetched, made
            FROM tube_keys_as_caller(in_search_path, declaration, next_rows) AS t (id) HAVING count(*) > 0;
        END IF;
        EXIT WHEN NOT FOUND;
        declaration := NULL;
        pods := pods + made;
        done := done + fetched;
        IF clock_timestamp() - told >= every THEN
            told := clock_timestamp();
            RAISE NOTICE 'tube_pods_insert: insert_ids=% insert_finished=f -- %: % ids%, % a second',
                done, tube_or_tubes, done,
                CASE WHEN approx_size > 0
                    THEN format(' of about %s (%s %%)', approx_size, least(100, 100 * done / approx_size))
                    ELSE '' END,
                round(done / extract(epoch FROM told - began));
        END IF;
        EXIT WHEN fetched < least(fetch_chunk_size, most);
    END LOOP;
    EXECUTE 'CLOSE ' || portal;
    IF numbers THEN
        PERFORM tube_pods_put(tube_or_tubes, shard, op, '{}', insert_chunk_size, true);
    ELSE
        PERFORM tube_keys_put(tube_or_tubes, shard, op, '{}', insert_chunk_size, true);
    END IF;
    RAISE NOTICE 'tube_pods_insert: insert_ids=% insert_finished=t -- %: % ids in % pods, in % s',
        done, tube_or_tubes, done, pods, round(extract(epoch FROM clock_timestamp() - began), 1);
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_insert IS
    'Touches all ids that a query returns, in one transaction, with the caller''s rights. The query''s columns are '
    'the id and a row number. Join tubes with commas. NOTICEs report progress every 2 s.';

-- For tube_pods_insert, whose callers need the right to call this, too. It grants no further right.
-- Arguments: in_search_path; first: a statement to run before, or NULL; statement: of one bigint column.
-- Errors, locks: as of the statements.
CREATE OR REPLACE FUNCTION :"schema".tube_as_caller(in_search_path text, first text, statement text)
RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    -- Until this function ends. Nothing below is looked up by name but by the statements themselves.
    PERFORM set_config('search_path', in_search_path, true);
    IF first IS NOT NULL THEN
        EXECUTE first;
    END IF;
    RETURN QUERY EXECUTE statement;
END
$$;
COMMENT ON FUNCTION :"schema".tube_as_caller IS
    'For tube_pods_insert: runs a statement with the caller''s rights and search_path.';

CREATE OR REPLACE FUNCTION :"schema".tube_keys_as_caller(in_search_path text, first text, statement text)
RETURNS SETOF text
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    PERFORM set_config('search_path', in_search_path, true);
    IF first IS NOT NULL THEN
        EXECUTE first;
    END IF;
    RETURN QUERY EXECUTE statement;
END
$$;
COMMENT ON FUNCTION :"schema".tube_keys_as_caller IS 'As tube_as_caller, for keys as texts.';
