-- tube_private_index: the name of the index of a tube for a number of partitions. It has one but while that changes.
--
-- The name holds the number, so that the index for the next number can be built beside it.
--
-- Result: the name, unquoted, in our schema.
CREATE OR REPLACE FUNCTION :"schema".tube_private_index(tube text, partitions integer) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
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
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN format('CREATE INDEX %s%I ON %I.%I ((shard %% %s), (CASE WHEN op = ''B'' THEN 1 ELSE 0 END), seq)',
        CASE WHEN beside_writers THEN 'CONCURRENTLY ' ELSE '' END,
        tube_private_index(tube, partitions), tube_private_schema(), tube, partitions);
END
$$;

-- tube_private_indexes: the indexes of a tube for any number of partitions.
--
-- Result: a row for each: its name, the number, and whether it is ready (a build that failed, or goes on, is not).
CREATE OR REPLACE FUNCTION :"schema".tube_private_indexes(tube text)
RETURNS TABLE (name text, partitions integer, valid boolean)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT c.relname::text, substring(c.relname FROM '_p([0-9]+)_idx$')::integer, i.indisvalid
    FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
    WHERE i.indrelid = to_regclass(quote_ident(tube))
        AND c.relname ~ ('_' || left(md5('queue ' || tube), 8) || '_p[0-9]+_idx$');
END
$$;

-- tube_private_fit_index: gives a tube the one index for its number of partitions, where that is quick.
--
-- One attempt, all or nothing: it waits at most 100 ms for the table, and builds only what takes no longer.
-- Else it is left to be built and dropped CONCURRENTLY, which no function can do; see tube_index_sql.
--
-- Result: whether the tube has this index and no other.
-- Locks: the caller holds the registry row; then the tube's table ACCESS EXCLUSIVE, until the transaction ends,
--   or none at all.
CREATE OR REPLACE FUNCTION :"schema".tube_private_fit_index(tube text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    most CONSTANT bigint := 8 * 1024 * 1024; -- bytes: some 40000 pods of one id, built in 50 ms
    reg tube_registry := tube_private_require(tube);
    wanted text := tube_private_index(tube, reg.partitions);
    statements text[];
    ready boolean;
BEGIN
    SELECT array_agg(format('DROP INDEX %I.%I', tube_private_schema(), i.name))
            FILTER (WHERE i.name <> wanted OR NOT i.valid),
        coalesce(bool_or(i.name = wanted AND i.valid), false)
    INTO statements, ready
    FROM tube_private_indexes(tube) AS i;
    IF NOT ready THEN
        statements := statements || tube_private_index_ddl(tube, reg.partitions, false);
    END IF;
    IF statements IS NULL THEN
        RETURN true;
    ELSIF NOT ready AND pg_relation_size(format('%I.%I', tube_private_schema(), tube)::regclass) > most THEN
        RETURN false;
    END IF;
    PERFORM tube_private_briefly(statements);
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN false;
END
$$;
