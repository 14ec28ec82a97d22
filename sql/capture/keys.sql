-- tube_shard_of: the shard of an id in a table that is spread over several.
--
-- The remainder is never negative, so that negative ids have a shard too. Inlined wherever it is
-- used, so it has no settings of its own; its operators were bound when it was made.
--
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
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN shard + (('x' || left(md5(convert_to(id, 'UTF8')), 8))::bit(32)::bigint % shards::bigint)::integer;
COMMENT ON FUNCTION :"schema".tube_shard_of(bigint, integer, integer) IS
    'Returns the shard of an id in a table that is spread over several.';
COMMENT ON FUNCTION :"schema".tube_shard_of(uuid, integer, integer) IS
    'Returns the shard of an id in a table that is spread over several.';
COMMENT ON FUNCTION :"schema".tube_shard_of(text, integer, integer) IS
    'Returns the shard of an id in a table that is spread over several.';

-- tube_private_key_bigint, tube_private_key_uuid, tube_private_key_text: a column's value as a key of a tube.
--
-- Capture functions and backfills call them with the key column of an attached table. Overloads pick the types that hold such
-- keys, and domains over them; the last overload takes any other type and gives NULL. So a column that changed its
-- type never makes a writer's statement fail. They are inlined, and cost nothing.
--
-- Result: the key; NULL for NULL, and for a value of another type.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_bigint(value bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN value;
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_bigint(value integer) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN value::bigint;
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_bigint(value smallint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN value::bigint;
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_bigint(value anyelement) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT NULL::pg_catalog.int8';
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_uuid(value uuid) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN value;
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_uuid(value anyelement) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT NULL::pg_catalog.uuid';

-- Texts are told apart byte by byte: a collation may hold different ones for equal.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_text(value text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN value;
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_text(value varchar) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN value::text;
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_text(value anyelement) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT NULL::pg_catalog.text';

-- tube_private_key_type: the type of a tube's keys: bigint, uuid or text.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_type(tube text) RETURNS regtype
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp
AS $$ SELECT r.key_type FROM tube_registry AS r WHERE r.tube = $1 $$;

-- tube_private_key_sql: a column's value as a key, as SQL text with all names in full; value is the text of an
-- expression.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_sql(value text, key_type regtype) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT format(CASE key_type WHEN 'text'::regtype THEN '(%I.tube_private_key_%s(%s) COLLATE pg_catalog."C")'
        ELSE '%I.tube_private_key_%s(%s)' END, tube_private_schema(), key_type, value)
$$;

-- tube_private_shard_expression: the shard of a key as SQL text with constants and all names in full; id is the text
-- of an expression.
CREATE OR REPLACE FUNCTION :"schema".tube_private_shard_expression(id text, shard integer, shards integer) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE shards WHEN 1 THEN shard::text
        ELSE format('%I.tube_shard_of(%s, %s, %s)', tube_private_schema(), id, shard, shards) END
$$;

-- tube_private_key_types: the built-in types of columns that can hold the keys of a tube.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_types(key_type regtype) RETURNS oid[]
LANGUAGE sql STABLE AS $$
    SELECT CASE key_type WHEN 'bigint'::regtype THEN '{smallint,integer,bigint}'
        WHEN 'uuid'::regtype THEN '{uuid}' ELSE '{text,varchar}' END::regtype[]::oid[]
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
        SELECT FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = att.tbl AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indnkeyatts = 1
            AND i.indpred IS NULL AND a.attname = att.id_col)
$$;

-- tube_private_type_sql: a type's name in full.
CREATE OR REPLACE FUNCTION :"schema".tube_private_type_sql(type oid) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT format('%I.%I', n.nspname, t.typname) FROM pg_type AS t JOIN pg_namespace AS n ON n.oid = t.typnamespace WHERE t.oid = type
$$;
