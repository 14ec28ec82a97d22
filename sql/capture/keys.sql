-- The remainder is never negative, so that negative ids have a shard too. Inlined wherever it is
-- used, so it has no settings; its operators were bound when it was made. The one for texts would not be inlined,
-- and take four times as long, were it called immutable: convert_to is stable.
-- Arguments: id; shard: the first one; shards: how many, at least 1.
-- Result: shard + the remainder of id by shards; NULL for a NULL.
-- Errors: 22012 shards is 0.
CREATE OR REPLACE FUNCTION :"schema".tube_shard_of(id bigint, shard integer, shards integer) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN shard + ((id % shards::bigint + shards::bigint) % shards::bigint)::integer;
-- Of keys that are uuids or texts, by the first 32 bits of the md5 of their text (in UTF-8).
CREATE OR REPLACE FUNCTION :"schema".tube_shard_of(id uuid, shard integer, shards integer) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN shard + (('x' || left(md5(id::text), 8))::bit(32)::bigint % shards::bigint)::integer;
CREATE OR REPLACE FUNCTION :"schema".tube_shard_of(id text, shard integer, shards integer) RETURNS integer
LANGUAGE sql STABLE PARALLEL SAFE
RETURN shard + (('x' || left(md5(convert_to(id, 'UTF8')), 8))::bit(32)::bigint % shards::bigint)::integer;

-- Arguments: key; place: of the column in the key, from 0.
-- Result: that text; the whole key where it has no such part, such as a manually touched one, and where place is NULL.
CREATE OR REPLACE FUNCTION :"schema".tube_key_part(key text, place integer) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(CASE WHEN place BETWEEN 0 AND 7 THEN substring(key COLLATE "C" FROM
    '^\[(?:(?:"(?:[^"\\]|\\.)*"|[^",\]]+), ){' || place::text || '}("(?:[^"\\]|\\.)*"|[^",\]]+)') END, key);
COMMENT ON FUNCTION :"schema".tube_key_part IS
    'Returns the value of one column in a key of several columns, as JSON; place counts from 0.';
COMMENT ON FUNCTION :"schema".tube_shard_of(bigint, integer, integer) IS
    'Returns the shard of an id (bigint, uuid or text) in a table that is attached with these values.';
COMMENT ON FUNCTION :"schema".tube_shard_of(uuid, integer, integer) IS
    'Returns the shard of an id (bigint, uuid or text) in a table that is attached with these values.';
COMMENT ON FUNCTION :"schema".tube_shard_of(text, integer, integer) IS
    'Returns the shard of an id (bigint, uuid or text) in a table that is attached with these values.';

-- tube_private_key_type: the type of a tube's keys: bigint, uuid or text.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_type(tube text) RETURNS regtype
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp
AS $$ SELECT r.key_type FROM tube_registry AS r WHERE r.tube = $1 $$;

-- tube_private_id_sql: the key of an attached table's row as SQL text with all names in full; row_name: of the row, or NULL.
-- A value becomes one of the key's type by COALESCE, see tube_private_bound_sql; of a column that has another type by now, none
-- does: see tube_private_guard. Texts are compared byte by byte: a collation may take different ones for equal.
-- Of several columns it is the text of a JSON array, of the types of tube_key_types: each is written in one way, whatever
-- the session's settings are. An enum becomes its label by its output function, which concat calls: a user's cast
-- never runs. A row with a NULL among them has no key.
CREATE OR REPLACE FUNCTION :"schema".tube_private_id_sql(att :"schema".tube_attachment, row_name text = NULL) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN cardinality(att.keys) = 1
        THEN (
            SELECT format(CASE t.key_type WHEN 'text'::regtype THEN '(COALESCE(%s, NULL::%s) COLLATE pg_catalog."C")'
                ELSE 'COALESCE(%s, NULL::%s)' END, concat(row_name || '.', quote_ident(att.keys[1])), tube_private_type_sql(t.key_type))
            FROM tube_private_key_type(att.tube) AS t (key_type))
        ELSE (
            SELECT format('(CASE WHEN %s THEN pg_catalog.json_build_array(%s)::pg_catalog.text END COLLATE pg_catalog."C")',
                string_agg(v.value || ' IS NOT NULL', ' AND ' ORDER BY k.place),
                string_agg(CASE k.type WHEN 'enum' THEN format('pg_catalog.concat(%s)', v.value)
                    ELSE format('COALESCE(%s, NULL::%s)', v.value, tube_private_type_sql(coalesce(k.type, 'text')::regtype)) END,
                    ', ' ORDER BY k.place))
            FROM unnest(att.keys, tube_key_types(att.tbl, att.keys)) WITH ORDINALITY AS k (name, type, place),
                concat(row_name || '.', quote_ident(k.name)) AS v (value)) END
$$;

-- tube_private_shard_expression: the shard of a key of an attached table, as SQL text with constants and all names in full; id is
-- the text of an expression. It depends on the key alone, so that all callers with a key get the same.
-- of_row: the id was made of a row (tube_private_id_sql). Then the part is found by the parser of JSON, in a third of the time;
-- it would fail on a text that was touched manually.
CREATE OR REPLACE FUNCTION :"schema".tube_private_shard_expression(
    id text, att :"schema".tube_attachment, of_row boolean = true
) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN att.shards = 1 THEN att.shard::text
        ELSE format('%I.tube_shard_of(%s, %s, %s)', tube_private_schema(), CASE WHEN att.shard_place IS NULL THEN id
            WHEN of_row THEN format('(%s::pg_catalog.json OPERATOR(pg_catalog.->) %s)::pg_catalog.text', id, att.shard_place)
            ELSE format('%I.tube_key_part(%s, %s)', tube_private_schema(), id, att.shard_place) END, att.shard, att.shards) END
$$;

-- tube_private_key_label: the columns of an attached table's key in words, for messages.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_label(att :"schema".tube_attachment) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT CASE WHEN cardinality(att.keys) = 1 THEN quote_ident(att.keys[1])
        ELSE format('(%s)', (SELECT string_agg(quote_ident(k), ', ') FROM unnest(att.keys) AS k)) END
$$;

-- tube_key_types: the types of columns as parts of a key of several: bigint (also smaller integers), text (also varchar),
-- uuid, boolean, date or enum. Domains count as their base types, except domains over an enum.
-- Result: in the order of columns; NULL for a column that is missing, has another type, or is a virtual generated one, which
--   has no value in the rows that a trigger sees. Other types may write equal values in several ways.
CREATE OR REPLACE FUNCTION :"schema".tube_key_types(tbl regclass, columns name[]) RETURNS text[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT array_agg(CASE WHEN a.attgenerated = 'v' THEN NULL WHEN t.typtype = 'e' THEN 'enum' ELSE (
            SELECT p.type FROM unnest('{bigint,text,uuid,boolean,date}'::text[]) AS p (type)
            WHERE tube_private_key_fits(a.atttypid, p.type::regtype)) END ORDER BY c.place)
    FROM unnest(columns) WITH ORDINALITY AS c (name, place)
    LEFT JOIN pg_attribute AS a ON a.attrelid = tbl AND a.attname = c.name AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_type AS t ON t.oid = a.atttypid
$$;
COMMENT ON FUNCTION :"schema".tube_key_types IS
    'Returns the types of columns as parts of a key of several columns; NULL for a column that can''t be a part.';

-- tube_private_key_types: the built-in types of columns that can hold the keys of a tube, or a part of this type.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_types(key_type regtype) RETURNS oid[]
LANGUAGE sql STABLE AS $$
    SELECT CASE key_type WHEN 'bigint'::regtype THEN '{smallint,integer,bigint}'
        WHEN 'text'::regtype THEN '{text,varchar}' ELSE ARRAY[key_type] END::regtype[]::oid[]
$$;

-- tube_private_key_fits: whether a column of a type can hold the keys of a tube.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_fits(column_type oid, key_type regtype) RETURNS boolean
LANGUAGE sql STABLE AS $$ SELECT tube_private_base_type(column_type) = ANY (tube_private_key_types(key_type)) $$;

-- tube_private_base_type: what a domain is made of, however deep; any other type itself.
CREATE OR REPLACE FUNCTION :"schema".tube_private_base_type(type oid) RETURNS oid
LANGUAGE plpgsql STABLE AS $$
DECLARE
    result oid := type;
BEGIN
    WHILE (SELECT t.typtype = 'd' FROM pg_type AS t WHERE t.oid = result) LOOP
        result := (SELECT t.typbasetype FROM pg_type AS t WHERE t.oid = result);
    END LOOP;
    RETURN result;
END
$$;

-- tube_private_key_is_unique: whether no statement can write two rows with one key.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_is_unique(att :"schema".tube_attachment) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM pg_index AS i
        WHERE i.indrelid = att.tbl AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL
            AND (SELECT bool_and(coalesce(a.attname = ANY (att.keys), false))
                FROM unnest(i.indkey[:i.indnkeyatts - 1]) AS k (attnum)
                LEFT JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND a.attnum > 0))
$$;

-- tube_private_type_sql: a type's name in full.
CREATE OR REPLACE FUNCTION :"schema".tube_private_type_sql(type oid) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT format('%I.%I', n.nspname, t.typname) FROM pg_type AS t JOIN pg_namespace AS n ON n.oid = t.typnamespace WHERE t.oid = type
$$;
