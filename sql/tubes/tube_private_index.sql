-- tube_private_index: the name of the one index that a tube has for a number of partitions.
--
-- The name holds the number, so that the index for the next number can be built beside it.
--
-- Arguments: tube, partitions.
-- Result: the name, unquoted, in our schema.
CREATE OR REPLACE FUNCTION :"schema".tube_private_index(tube text, partitions integer) RETURNS text
LANGUAGE plpgsql IMMUTABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN tube_private_name(tube, format('_%s_p%s_idx', left(md5('queue ' || tube), 8), partitions));
END
$$;

-- tube_private_index_ddl: the statement that builds it, with or without blocking writers.
--
-- A class is a number there, because a condition on (op = 'B') is rewritten to a filter before 18.
--
-- Arguments: tube, partitions; beside_writers: CONCURRENTLY.
-- Result: a CREATE INDEX statement.
CREATE OR REPLACE FUNCTION :"schema".tube_private_index_ddl(tube text, partitions integer, beside_writers boolean)
RETURNS text
LANGUAGE plpgsql IMMUTABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN format('CREATE INDEX %s%I ON %I.%I ((shard %% %s), (CASE WHEN op = ''B'' THEN 1 ELSE 0 END), seq)',
        CASE WHEN beside_writers THEN 'CONCURRENTLY ' ELSE '' END,
        tube_private_index(tube, partitions), tube_private_schema(), tube, partitions);
END
$$;
