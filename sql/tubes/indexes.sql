-- The index of a tube: over (shard modulo its partitions, class, seq), so one for a number of partitions.
--
-- Its name holds that number, so that the index for the next number can be built beside it. Else a tube has one.

-- Run the statement outside a transaction, and ask again, until there is none: with the next number before the
-- repartition, so that it has its index at once; afterwards with the same number, so that others go.
-- Arguments: tube; partitions: the number.
-- Result: a CREATE INDEX CONCURRENTLY statement, or a REINDEX where an earlier one was broken off; where the index is
--   there and the tube has that number, a DROP INDEX CONCURRENTLY of another one; NULL when nothing is to be done.
-- Errors: TU102 unknown tube, TU103 a number that no tube can have.
CREATE OR REPLACE FUNCTION :"schema".tube_index_sql(tube text, partitions integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(tube);
    index CONSTANT record := tube_private_index(tube, partitions);
    valid boolean;
BEGIN
    PERFORM tube_private_check_tube(tube, partitions, reg.key_type, NULL);
    SELECT i.valid INTO valid FROM tube_private_indexes(tube) AS i WHERE i.name = index.name;
    RETURN CASE
        WHEN valid AND partitions = reg.partitions THEN (
            SELECT format('DROP INDEX CONCURRENTLY IF EXISTS %I.%I', tube_private_schema(), i.name)
            FROM tube_private_indexes(tube) AS i
            WHERE i.partitions <> reg.partitions ORDER BY i.partitions LIMIT 1)
        WHEN valid THEN NULL
        WHEN NOT valid THEN format('REINDEX INDEX CONCURRENTLY %I.%I', tube_private_schema(), index.name)
        ELSE 'CREATE INDEX CONCURRENTLY' || substr(index.ddl, 13)
    END;
END
$$;
COMMENT ON FUNCTION :"schema".tube_index_sql IS
    'Returns the next statement to run outside a transaction, so that a tube gets the index for this number of '
    'partitions while writers continue. NULL: nothing is left to do. Call it before a repartition with the next '
    'number, and after it with the present one.';

-- tube_private_index: the name of a tube's index for a number of partitions, and the statement that builds it.
-- A class is a number there, because a condition on (op = 'B') is rewritten to a filter before 18.
CREATE OR REPLACE FUNCTION :"schema".tube_private_index(tube text, partitions integer, OUT name text, OUT ddl text)
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    name := tube_private_name(tube, format('_%s_p%s_idx', left(md5('queue ' || tube), 8), partitions));
    ddl := format('CREATE INDEX %I ON %I.%I ((shard %% %s), (CASE WHEN op = ''B'' THEN 1 ELSE 0 END), seq)',
        name, tube_private_schema(), tube, partitions);
END
$$;

-- tube_private_indexes: the indexes of a tube for any number of partitions; valid: its build has been finished.
CREATE OR REPLACE FUNCTION :"schema".tube_private_indexes(tube text)
RETURNS TABLE (name text, partitions integer, valid boolean)
LANGUAGE sql STABLE AS $$
    SELECT c.relname::text, substring(c.relname FROM '_p([0-9]+)_idx$')::integer, i.indisvalid
    FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
    WHERE i.indrelid = to_regclass(quote_ident(tube))
        AND c.relname ~ ('_' || left(md5('queue ' || tube), 8) || '_p[0-9]+_idx$')
$$;

-- For queues that were repartitioned while writers kept the table, or while it was long. Workers call it twice a minute.
-- Tables with the index are left alone: any other index may be prepared for the next number.
-- Result: how many got it. What keeps one from it, but for its locks, is a WARNING.
-- Locks: of each of these the registry row and the table, for which it waits at most 100 ms, until the
--   transaction ends: call it in a separate one. Objects being changed just now are passed over.
CREATE OR REPLACE FUNCTION :"schema".tube_index_fit() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    lacking record;
    fitted integer := 0;
BEGIN
    FOR lacking IN
        SELECT r.kind, r.tube FROM tube_registry AS r LEFT JOIN tube_outbox AS o ON o.outbox = r.tube
        WHERE CASE r.kind
            WHEN 'tube' THEN NOT EXISTS (
                SELECT FROM tube_private_indexes(r.tube) AS i WHERE i.partitions = r.partitions AND i.valid)
            ELSE NOT o.adopted AND r.partitions > 1 AND NOT EXISTS (
                SELECT FROM tube_private_outbox_indexes(o) AS i WHERE i.partitions = r.partitions AND i.valid)
            END
        FOR NO KEY UPDATE OF r SKIP LOCKED
    LOOP
        BEGIN
            fitted := fitted + CASE lacking.kind WHEN 'tube' THEN tube_private_fit_index(lacking.tube)
                ELSE tube_private_fit_outbox_index(lacking.tube) END::integer;
        EXCEPTION WHEN OTHERS THEN
            -- One tube's trouble must not stop the others.
            RAISE WARNING USING MESSAGE = format('%s %L does not get its index: %s', lacking.kind, lacking.tube, SQLERRM);
        END;
    END LOOP;
    RETURN fitted;
END
$$;
COMMENT ON FUNCTION :"schema".tube_index_fit IS
    'Builds the missing indexes of repartitioned tubes and outboxes, and drops their old ones, if that takes at '
    'most 100 ms. Returns how many got an index.';

-- tube_private_fit_index: gives a tube the one index for its number of partitions, where that is quick.
-- One attempt, all or nothing: it waits at most 100 ms for the table, which is then locked until the transaction ends,
-- and builds only what takes no longer. Else it is left to be built and dropped CONCURRENTLY, which no function can do.
-- The caller holds the registry row.
-- Result: whether the tube has this index and no other.
CREATE OR REPLACE FUNCTION :"schema".tube_private_fit_index(tube text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    most CONSTANT bigint := 8 * 1024 * 1024; -- bytes: some 40000 pods of one id, built in 50 ms
    wanted CONSTANT record := tube_private_index(tube, (tube_private_require(tube)).partitions);
    statements text[];
    ready boolean;
BEGIN
    SELECT array_agg(format('DROP INDEX %I.%I', tube_private_schema(), i.name))
            FILTER (WHERE i.name <> wanted.name OR NOT i.valid),
        coalesce(bool_or(i.name = wanted.name AND i.valid), false)
    INTO statements, ready
    FROM tube_private_indexes(tube) AS i;
    IF NOT ready THEN
        IF pg_relation_size(tube_private_qualify(tube)::regclass) > most THEN
            RETURN false;
        END IF;
        statements := statements || wanted.ddl;
    END IF;
    IF statements IS NOT NULL THEN
        PERFORM tube_private_briefly(statements);
    END IF;
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN false;
END
$$;
