-- The index of a tube: over (shard modulo its partitions, class, seq), so one for a number of partitions. That of an outbox:
-- over (slot modulo its partitions, id); it needs none for one partition.
--
-- Its name holds that number, so that the index for the next number can be built beside it. Else there is one.

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
BEGIN
    PERFORM tube_private_check_tube(tube, partitions, reg.key_type, NULL);
    RETURN tube_private_next_index(reg, partitions);
END
$$;
COMMENT ON FUNCTION :"schema".tube_index_sql IS
    'Returns the next statement to run outside a transaction, so that a tube gets the index for this number of '
    'partitions while writers continue. NULL: nothing is left to do. Call it before a repartition with the next '
    'number, and after it with the present one.';

-- tube_private_next_index: what tube_index_sql and outbox_index_sql return.
CREATE OR REPLACE FUNCTION :"schema".tube_private_next_index(reg :"schema".tube_registry, partitions integer) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    ddl CONSTANT text := (tube_private_index(reg.tube, partitions)).ddl;
    present record;
BEGIN
    SELECT i.name, i.valid INTO present FROM tube_private_indexes(reg.tube) AS i WHERE i.partitions = $2;
    RETURN CASE
        WHEN present.name IS NULL AND ddl IS NOT NULL THEN 'CREATE INDEX CONCURRENTLY' || substr(ddl, 13)
        WHEN NOT present.valid THEN format('REINDEX INDEX CONCURRENTLY %s', present.name)
        WHEN partitions = reg.partitions THEN (
            SELECT format('DROP INDEX CONCURRENTLY IF EXISTS %s', i.name) FROM tube_private_indexes(reg.tube) AS i
            WHERE i.partitions <> reg.partitions ORDER BY i.partitions LIMIT 1)
    END;
END
$$;

-- tube_private_index: the name of the index of a tube or an outbox for a number of partitions, and the statement that builds
-- it; NULL where none is needed. A class is a number there, because a condition on (op = 'B') is rewritten to a filter before 18.
CREATE OR REPLACE FUNCTION :"schema".tube_private_index(queue text, partitions integer, OUT name text, OUT ddl text)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    box CONSTANT tube_outbox := (SELECT o FROM tube_outbox AS o WHERE o.outbox = queue);
BEGIN
    IF box.outbox IS NULL THEN
        name := tube_private_name(queue, format('_%s_p%s_idx', left(md5('queue ' || queue), 8), partitions));
        ddl := format('CREATE INDEX %I ON %s ((shard %% %s), (CASE WHEN op = ''B'' THEN 1 ELSE 0 END), seq)',
            name, tube_private_qualify(queue), partitions);
    ELSIF partitions > 1 THEN
        name := tube_private_name(queue, format('_%s_p%s_idx', left(md5('outbox ' || queue), 8), partitions));
        ddl := format('CREATE INDEX %I ON %s (((%s) OPERATOR(pg_catalog.%%) %s), id)',
            name, tube_private_outbox_table(box), tube_private_outbox_slot(box.adopted), partitions);
    END IF;
END
$$;

-- tube_private_indexes: these indexes for any number of partitions. name: quoted, with its schema; valid: its build has been
-- finished.
CREATE OR REPLACE FUNCTION :"schema".tube_private_indexes(queue text)
RETURNS TABLE (name text, partitions integer, valid boolean)
LANGUAGE sql STABLE AS $$
    SELECT format('%s.%I', c.relnamespace::regnamespace, c.relname), substring(c.relname FROM '_p([0-9]+)_idx$')::integer,
        i.indisvalid
    FROM (
        SELECT to_regclass(quote_ident(queue)) AS tbl, 'queue ' AS kind
        WHERE NOT EXISTS (SELECT FROM tube_outbox AS o WHERE o.outbox = queue)
        UNION ALL SELECT o.tbl, 'outbox ' FROM tube_outbox AS o WHERE o.outbox = queue
    ) AS q
    JOIN pg_index AS i ON i.indrelid = q.tbl JOIN pg_class AS c ON c.oid = i.indexrelid
    WHERE c.relname ~ ('_' || left(md5(q.kind || queue), 8) || '_p[0-9]+_idx$')
$$;

-- For queues that were repartitioned while writers kept the table, or while it was long. Workers call it twice a minute.
-- Tables with the index are left alone: any other index may be prepared for the next number.
-- Result: how many got it. What keeps one from it, but for its locks, is a WARNING.
-- Locks: of each of these the registry row and the table, for which it waits at most 100 ms, until the
--   transaction ends: call it in a separate one. Objects being changed just now are passed over.
CREATE OR REPLACE FUNCTION :"schema".tube_index_fit() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    lacking tube_registry;
    fitted integer := 0;
BEGIN
    FOR lacking IN
        SELECT r.* FROM tube_registry AS r LEFT JOIN tube_outbox AS o ON o.outbox = r.tube
        WHERE (r.kind = 'tube' OR NOT o.adopted AND r.partitions > 1)
            AND NOT EXISTS (SELECT FROM tube_private_indexes(r.tube) AS i WHERE i.partitions = r.partitions AND i.valid)
        FOR NO KEY UPDATE OF r SKIP LOCKED
    LOOP
        BEGIN
            fitted := fitted + tube_private_fit_index(lacking.tube)::integer;
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

-- tube_private_fit_index: gives a tube or an outbox the one index for its number of partitions, where that is quick.
-- One attempt, all or nothing: it waits at most 100 ms for the table, which is then locked until the transaction ends,
-- and builds only what takes no longer. Else it is left to be built and dropped CONCURRENTLY, which no function can do; so
-- are the indexes of an adopted table, to its owner. The caller holds the registry row.
-- Result: whether nothing is left to build.
CREATE OR REPLACE FUNCTION :"schema".tube_private_fit_index(queue text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    most CONSTANT bigint := 8 * 1024 * 1024; -- bytes: some 40000 pods of one id, built in 50 ms
    the_partitions CONSTANT integer := (tube_private_require(queue, 'any')).partitions;
    ddl CONSTANT text := (tube_private_index(queue, the_partitions)).ddl;
    statements text[];
    ready boolean;
BEGIN
    SELECT array_agg(format('DROP INDEX %s', i.name)) FILTER (WHERE i.partitions <> the_partitions OR NOT i.valid),
        ddl IS NULL OR coalesce(bool_or(i.partitions = the_partitions AND i.valid), false)
    INTO statements, ready
    FROM tube_private_indexes(queue) AS i;
    IF EXISTS (SELECT FROM tube_outbox AS o WHERE o.outbox = queue AND o.adopted) THEN
        RETURN ready;
    ELSIF NOT ready THEN
        IF pg_relation_size(tube_private_qualify(queue)::regclass) > most THEN
            RETURN false;
        END IF;
        statements := statements || ddl;
    END IF;
    PERFORM tube_private_briefly(statements) WHERE statements IS NOT NULL;
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN false;
END
$$;
