-- tube_private_key_type: the type of a tube's keys.
--
-- Arguments: tube: registered.
-- Result: bigint, uuid or text.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_type(tube text) RETURNS regtype
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN (SELECT r.key_type FROM tube_registry AS r WHERE r.tube = tube_private_key_type.tube);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_key_type(text) FROM PUBLIC;

-- tube_private_key_expression: the id of a row of an attached table as SQL text, in the key's type.
--
-- Texts are compared byte by byte: a collation may hold different ones for equal.
--
-- Arguments: att.
-- Result: the text of an expression over the table's columns.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_expression(att :"schema".tube_attachment) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    key_type CONSTANT regtype := tube_private_key_type(att.tube);
BEGIN
    RETURN format(CASE key_type WHEN 'text'::regtype THEN '(%I::%s COLLATE "C")' ELSE '%I::%s' END,
        att.id_col, key_type);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_key_expression(:"schema".tube_attachment) FROM PUBLIC;

-- tube_private_shard_expression: the shard of an id as SQL text with constants in it.
--
-- Arguments: id: the text of an expression; shard, shards: as of tube_shard_of; key_type: of the id.
-- Result: the text.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_shard_expression(
    id text, shard integer, shards integer, key_type regtype = 'bigint'
) RETURNS text
LANGUAGE plpgsql IMMUTABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN CASE
        WHEN shards = 1 THEN shard::text
        WHEN key_type = 'bigint'::regtype
            THEN format('(%s + (%s %% %s + %s) %% %s)::integer', shard, id, shards, shards, shards)
        ELSE format('tube_shard_of(%s, %s, %s)', id, shard, shards)
    END;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_shard_expression(text, integer, integer, regtype) FROM PUBLIC;
