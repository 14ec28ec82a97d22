-- Stashing: messages become records of an outbox, in the transaction of the caller and with the caller's rights.
--
-- A plain INSERT into the table does the same; these add headers as JSON, a check of the topic, and the commit order of a
-- key. Writers need the role tube_writer, and on an adopted table INSERT and SELECT (id), which its owner grants.

-- Arguments:
--   outbox, topic
--   key             of the message; NULL: none
--   value           text or bytea, NULL for a tombstone; converted by UTF-8 where the outbox has values of the other type
--   headers         an object {"name": "value"}, or an array of pairs [["name", "value"], ...], which may repeat a name
--   partition_key   orders the message and chooses its partition in place of the key
--   in_order        commits of this key wait for each other, so that the order of the ids is the order of the commits. A
--                   transaction that stashes so more than once may deadlock with another one: 40P01
-- Result: the id of the record.
-- Errors: TU102 unknown outbox, TU111 it is a tube; 22023 the topic or headers are none, or a partition key for an adopted
--   table, which has no place for it; 22021 a bytea that is not UTF-8 for an outbox of texts; 42501 the caller may not
--   INSERT into the table; 40P01.
-- Locks: with in_order, those of outbox_stash_many, until the transaction ends.
CREATE OR REPLACE FUNCTION :"schema".outbox_stash(
    outbox text, topic text, key text, value text, headers jsonb = '{}', partition_key text = NULL, in_order boolean = false
) RETURNS bigint
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    RETURN tube_private_stash_one(outbox, topic, key, value, headers, partition_key, in_order);
END
$$;
COMMENT ON FUNCTION :"schema".outbox_stash(text, text, text, text, jsonb, text, boolean) IS
    'Puts a message into an outbox, in the caller''s transaction; value is text or bytea. Returns its id. headers '
    'is an object, or an array of pairs. partition_key replaces key for order and partition. in_order: transactions'
    ' with messages of one key wait for each other.';
CREATE OR REPLACE FUNCTION :"schema".outbox_stash(
    outbox text, topic text, key text, value bytea, headers jsonb = '{}', partition_key text = NULL, in_order boolean = false
) RETURNS bigint
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    RETURN tube_private_stash_one(outbox, topic, key, value, headers, partition_key, in_order);
END
$$;
COMMENT ON FUNCTION :"schema".outbox_stash(text, text, text, bytea, jsonb, text, boolean) IS
    'Puts a message into an outbox, in the caller''s transaction; value is text or bytea. Returns its id. headers '
    'is an object, or an array of pairs. partition_key replaces key for order and partition. in_order: transactions'
    ' with messages of one key wait for each other.';

-- Arguments: as of outbox_stash, an array for each, of one length. headers: one JSON array, with an element for each
--   message: an object, an array of pairs, or null. keys, headers and partition_keys may be NULL: no message has any.
-- Result: the ids, in the order of the messages.
-- Errors: those of outbox_stash; 22023 arrays of different lengths. Nothing was stashed then; TU102, TU111, 40P01.
-- Locks: with in_order, advisory ones until the transaction ends: 1024 for an outbox, so a key shares one with others.
--   All calls take them in one order, so that two calls can't block each other for ever.
CREATE OR REPLACE FUNCTION :"schema".outbox_stash_many(
    outbox text, topics text[], keys text[], bodies text[], headers jsonb = NULL, partition_keys text[] = NULL,
    in_order boolean = false
) RETURNS bigint[]
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    RETURN tube_private_stash(outbox, topics, keys, bodies, headers, partition_keys, in_order);
END
$$;
COMMENT ON FUNCTION :"schema".outbox_stash_many IS
    'Puts many messages into an outbox in one statement; arrays of the same length. Returns the ids.';

-- Errors: TU102, TU111, 22021, 22023, 40P01, 42501.
CREATE OR REPLACE FUNCTION :"schema".outbox_stash_many_bytea(
    outbox text, topics text[], keys text[], bodies bytea[], headers jsonb = NULL, partition_keys text[] = NULL,
    in_order boolean = false
) RETURNS bigint[]
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    RETURN tube_private_stash(outbox, topics, keys, bodies, headers, partition_keys, in_order);
END
$$;
COMMENT ON FUNCTION :"schema".outbox_stash_many_bytea IS 'As outbox_stash_many, for binary values.';

-- tube_private_stash_one: what outbox_stash does. The usual message is a plain INSERT here: a fifth of the time that the
-- statement for many takes.
CREATE OR REPLACE FUNCTION :"schema".tube_private_stash_one(
    outbox text, topic text, key text, value anyelement, headers jsonb, partition_key text, in_order boolean
) RETURNS bigint
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    box CONSTANT record := tube_private_outbox_target(outbox);
    names text[] := '{}';
    contents text[] := '{}';
    id bigint;
BEGIN
    IF in_order OR jsonb_typeof(headers) <> 'object' OR box.adopted
        OR (topic ~ '^[A-Za-z0-9._-]{1,249}$' AND topic NOT IN ('.', '..')) IS NOT TRUE
    THEN
        RETURN (tube_private_stash(outbox, ARRAY[topic], ARRAY[key], ARRAY[value], jsonb_build_array(headers),
            ARRAY[partition_key], in_order))[1];
    END IF;
    IF headers <> '{}' THEN
        SELECT array_agg(h.key), array_agg(h.value) INTO names, contents FROM jsonb_each_text(headers) AS h;
    END IF;
    EXECUTE format('INSERT INTO %s (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values,'
        ' partition_key) VALUES (clock_timestamp(), $1, $2, %s, $4, $5, $6) RETURNING id', box.tbl, CASE
            WHEN pg_typeof(value)::text = box.value_type THEN '$3'
            WHEN box.value_type = 'bytea' THEN 'convert_to($3, ''UTF8'')'
            ELSE 'convert_from($3, ''UTF8'')' END)
    INTO id USING topic, key, value, names, contents, partition_key;
    RETURN id;
END
$$;

-- tube_private_stash: what outbox_stash and outbox_stash_many_bytea do, with the rights of the caller.
CREATE OR REPLACE FUNCTION :"schema".tube_private_stash(
    outbox text, topics text[], keys text[], bodies anyarray, headers jsonb, partition_keys text[], in_order boolean
) RETURNS bigint[]
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    box CONSTANT record := tube_private_outbox_target(outbox);
    given CONSTANT text := CASE pg_typeof(bodies) WHEN 'bytea[]'::regtype THEN 'bytea' ELSE 'text' END;
    body CONSTANT text := CASE
        WHEN given = box.value_type THEN 'm.body'
        WHEN given = 'text' THEN 'convert_to(m.body, ''UTF8'')'
        ELSE 'convert_from(m.body, ''UTF8'')' END;
    ids bigint[];
BEGIN
    PERFORM tube_private_check_messages(cardinality(topics), cardinality(keys), cardinality(bodies), headers,
        cardinality(partition_keys), (SELECT t.topic FROM (SELECT DISTINCT unnest(topics)) AS t (topic)
            WHERE (t.topic ~ '^[A-Za-z0-9._-]{1,249}$' AND t.topic NOT IN ('.', '..')) IS NOT TRUE LIMIT 1),
        topics IS NULL OR bodies IS NULL OR array_position(topics, NULL) IS NOT NULL,
        box.adopted AND EXISTS (SELECT FROM unnest(partition_keys) AS p (key) WHERE p.key IS NOT NULL));
    IF in_order THEN
        PERFORM pg_advisory_xact_lock(box.locks + l.lock)
        FROM (
            SELECT DISTINCT hashtextextended(concat(m.topic, chr(31), coalesce(m.partition_key, m.key)), 0) & 1023 AS lock
            FROM unnest(topics, keys, partition_keys) AS m (topic, key, partition_key)
            WHERE coalesce(m.partition_key, m.key) IS NOT NULL
            ORDER BY 1 OFFSET 0
        ) AS l;
    END IF;
    EXECUTE format($sql$
        WITH stashed AS (
            INSERT INTO %s (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values%s)
            SELECT clock_timestamp(), m.topic, m.key, %s,
                CASE jsonb_typeof(m.headers)
                    WHEN 'object' THEN ARRAY(SELECT h.key FROM jsonb_each_text(m.headers) AS h)
                    WHEN 'array' THEN ARRAY(SELECT h.pair ->> 0 FROM jsonb_array_elements(m.headers) WITH ORDINALITY
                        AS h (pair, place) ORDER BY h.place)
                    ELSE '{}' END,
                CASE jsonb_typeof(m.headers)
                    WHEN 'object' THEN ARRAY(SELECT h.value FROM jsonb_each_text(m.headers) AS h)
                    WHEN 'array' THEN ARRAY(SELECT h.pair ->> 1 FROM jsonb_array_elements(m.headers) WITH ORDINALITY
                        AS h (pair, place) ORDER BY h.place)
                    ELSE '{}' END%s
            FROM ROWS FROM (unnest($1, $2, $3, $4), jsonb_array_elements($5)) WITH ORDINALITY
                AS m (topic, key, body, partition_key, headers, place)
            ORDER BY m.place
            RETURNING id
        )
        SELECT array_agg(s.id ORDER BY s.id) FROM stashed AS s$sql$, box.tbl,
        CASE WHEN box.adopted THEN '' ELSE ', partition_key' END, body,
        CASE WHEN box.adopted THEN '' ELSE ', m.partition_key' END)
    INTO ids USING topics, keys, bodies, partition_keys, headers;
    RETURN coalesce(ids, '{}');
END
$$;

-- tube_private_outbox_target: where the messages of an outbox go.
-- Result: tbl: quoted, with its schema; locks: the first of 1024 advisory locks for the order of keys.
CREATE OR REPLACE FUNCTION :"schema".tube_private_outbox_target(
    outbox text, OUT tbl text, OUT value_type text, OUT adopted boolean, OUT locks bigint
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    -- One statement: each message that is stashed alone pays for it.
    SELECT format('%I.%I', n.nspname, c.relname), o.value_type::text, o.adopted INTO tbl, value_type, adopted
    FROM tube_outbox AS o JOIN pg_class AS c ON c.oid = o.tbl JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE o.outbox = tube_private_outbox_target.outbox;
    IF NOT FOUND THEN
        PERFORM tube_private_outbox_table(tube_private_require_outbox(outbox)); -- raises the error
    END IF;
    locks := (hashtextextended(tube_private_schema() || ' orders ' || outbox, 0) >> 10) << 10;
END
$$;

-- tube_private_outbox_table: the name of an outbox's table, quoted and with its schema; TU108 where it was dropped.
CREATE OR REPLACE FUNCTION :"schema".tube_private_outbox_table(box :"schema".tube_outbox) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    tbl CONSTANT text := (SELECT format('%I.%I', n.nspname, c.relname)
        FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = box.tbl);
BEGIN
    IF tbl IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108', MESSAGE = format('the table of outbox %L was dropped', box.outbox),
            HINT = 'Call outbox_drop for the outbox, too.';
    END IF;
    RETURN tbl;
END
$$;

-- tube_private_check_messages: refuses messages that can't be stashed: 22023.
-- Arguments: how many topics, keys, bodies and partition keys there are, NULL for no array; wrong_topic: an invalid one;
-- missing: a topic, or all of them or all bodies, are NULL; homeless: there are partition keys, and the table has no place
-- for them.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_messages(
    topics integer, keys integer, bodies integer, headers jsonb, partition_keys integer, wrong_topic text, missing boolean,
    homeless boolean
) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    wrong text;
BEGIN
    wrong := CASE
        WHEN missing THEN 'a topic, or all values, are NULL'
        WHEN wrong_topic IS NOT NULL
            THEN format('%L is not a valid topic name: 1 to 249 of A-Z, a-z, 0-9, dot, underscore and hyphen', wrong_topic)
        WHEN jsonb_typeof(headers) <> 'array' THEN 'headers is not a JSON array with an element for each message'
        WHEN (topics = bodies AND topics = coalesce(keys, topics) AND topics = coalesce(partition_keys, topics)
            AND topics = coalesce(jsonb_array_length(headers), topics)) IS NOT TRUE
            THEN format('the arrays have different lengths: topics %s, keys %s, values %s, headers %s, partition keys %s',
                topics, coalesce(keys::text, 'NULL'), bodies, coalesce(jsonb_array_length(headers)::text, 'NULL'),
                coalesce(partition_keys::text, 'NULL'))
        WHEN homeless THEN 'the table is adopted, and has no column for a partition key'
        WHEN jsonb_path_exists(headers, '$[*] ? (@.type() != "object" && @.type() != "array" && @.type() != "null")')
            OR jsonb_path_exists(headers, 'strict $[*] ? (@.type() == "array")[*] ? (@.type() != "array" || @.size() != 2'
                ' || @[0].type() != "string")')
            THEN 'headers are neither an object nor an array of pairs'
    END;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'no message was stashed: ' || wrong,
            HINT = 'Give a topic and a value for each message, and headers as {"name": "value"}.';
    END IF;
END
$$;
