-- tube_private_key_bigint, tube_private_key_uuid, tube_private_key_text: a column's value as a key of a tube.
--
-- Capture functions call them with the key column of an attached table. Overloads pick the types that hold such
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
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$ SELECT r.key_type FROM tube_registry AS r WHERE r.tube = $1 $$;

-- tube_private_key_sql: a column's value as a key, as SQL text with all names in full.
--
-- Arguments: value: the text of an expression; key_type: of the tube.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_sql(value text, key_type regtype) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT format(CASE key_type WHEN 'text'::regtype THEN '(%I.tube_private_key_%s(%s) COLLATE pg_catalog."C")'
        ELSE '%I.tube_private_key_%s(%s)' END, tube_private_schema(), key_type, value)
$$;

-- tube_private_shard_expression: the shard of a key as SQL text with constants and all names in full.
--
-- Arguments: id: the text of an expression; shard, shards: as of tube_shard_of; key_type: of the id.
CREATE OR REPLACE FUNCTION :"schema".tube_private_shard_expression(
    id text, shard integer, shards integer, key_type regtype = 'bigint'
) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE shards WHEN 1 THEN shard::text
        ELSE format('%I.tube_shard_of(%s, %s, %s)', tube_private_schema(), id, shard, shards) END
$$;
