-- Keys, partitions and indexes of outboxes.
--
-- What orders a record is its partition_key, else its kafka_key, within its topic. A record with neither has no order: it
-- stands for itself, by its id. The slot of a record is a number made of these; modulo the partitions it is the partition.
-- By md5, because hashtext may differ from version to version; in Python: pytube/outbox/partitions.py.

-- tube_private_outbox_key: the SQL text of what orders a record; NULL for one without order.
CREATE OR REPLACE FUNCTION :"schema".tube_private_outbox_key(adopted boolean) RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT CASE WHEN adopted THEN 'kafka_key::text' ELSE 'coalesce(partition_key, kafka_key)' END $$;

-- tube_private_outbox_slot: the SQL text of the slot of a record, with all names in full: the index of an adopted table
-- is made with its owner's search path.
CREATE OR REPLACE FUNCTION :"schema".tube_private_outbox_slot(adopted boolean) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT format('(''x'' OPERATOR(pg_catalog.||) pg_catalog.left(pg_catalog.md5(kafka_topic::text OPERATOR(pg_catalog.||)'
        ' pg_catalog.chr(31) OPERATOR(pg_catalog.||) coalesce(%s, id::text)), 8))::bit(32)::integer'
        ' OPERATOR(pg_catalog.&) 2147483647', tube_private_outbox_key(adopted))
$$;

-- tube_private_outbox_part: the SQL text of the condition that a record is in a partition.
CREATE OR REPLACE FUNCTION :"schema".tube_private_outbox_part(
    adopted boolean, partitions integer, partition integer
) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE partitions WHEN 1 THEN 'true' ELSE format('((%s) OPERATOR(pg_catalog.%%) %s) OPERATOR(pg_catalog.=) %s',
        tube_private_outbox_slot(adopted), partitions, partition) END
$$;

-- tube_private_outbox_index: the name of an outbox's index for a number of partitions, and the statement that builds it;
-- NULL for one partition: the primary key serves.
CREATE OR REPLACE FUNCTION :"schema".tube_private_outbox_index(
    box :"schema".tube_outbox, partitions integer, blocking boolean, OUT name text, OUT ddl text
)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF partitions > 1 THEN
        name := tube_private_name(box.outbox, format('_%s_p%s_idx', left(md5('outbox ' || box.outbox), 8), partitions));
        ddl := format('CREATE INDEX%s %I ON %s (((%s) OPERATOR(pg_catalog.%%) %s), id)',
            CASE WHEN NOT blocking THEN ' CONCURRENTLY' ELSE '' END, name, tube_private_outbox_table(box),
            tube_private_outbox_slot(box.adopted), partitions);
    END IF;
END
$$;

-- tube_private_outbox_indexes: the indexes of an outbox for any number of partitions; valid: its build has been finished.
CREATE OR REPLACE FUNCTION :"schema".tube_private_outbox_indexes(box :"schema".tube_outbox)
RETURNS TABLE (index text, partitions integer, valid boolean)
LANGUAGE sql STABLE AS $$
    SELECT format('%s.%I', c.relnamespace::regnamespace, c.relname), substring(c.relname FROM '_p([0-9]+)_idx$')::integer, i.indisvalid
    FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
    WHERE i.indrelid = box.tbl AND c.relname ~ ('_' || left(md5('outbox ' || box.outbox), 8) || '_p[0-9]+_idx$')
$$;

-- As tube_index_sql: run the statement outside a transaction, as the owner of the table, and ask again, until there is
-- none. Without its index an outbox works too; marks and statistics then read the records of all partitions.
-- Arguments: outbox; partitions: the number.
-- Result: a CREATE INDEX CONCURRENTLY statement, or a REINDEX where an earlier one was broken off; where the index is
--   there and the outbox has that number, a DROP INDEX CONCURRENTLY of another one; NULL when nothing is to be done.
-- Errors: TU102 unknown outbox, TU103 a number that no outbox can have, TU111 it is a tube.
CREATE OR REPLACE FUNCTION :"schema".outbox_index_sql(outbox text, partitions integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    box CONSTANT tube_outbox := tube_private_require_outbox(outbox);
    index CONSTANT record := tube_private_outbox_index(box, partitions, false);
    found text;
    valid boolean;
BEGIN
    IF (partitions BETWEEN 1 AND 1024) IS NOT TRUE THEN
        PERFORM tube_private_enter_outbox(outbox, partitions); -- says so
    END IF;
    SELECT i.index, i.valid INTO found, valid FROM tube_private_outbox_indexes(box) AS i
    WHERE i.partitions = outbox_index_sql.partitions;
    RETURN CASE
        WHEN index.ddl IS NOT NULL AND found IS NULL THEN index.ddl
        WHEN NOT valid THEN format('REINDEX INDEX CONCURRENTLY %s', found)
        WHEN partitions = (tube_private_require_any(outbox)).partitions THEN (
            SELECT format('DROP INDEX CONCURRENTLY IF EXISTS %s', i.index) FROM tube_private_outbox_indexes(box) AS i
            WHERE i.partitions <> outbox_index_sql.partitions ORDER BY i.partitions LIMIT 1)
    END;
END
$$;
COMMENT ON FUNCTION :"schema".outbox_index_sql IS 'As tube_index_sql, for an outbox; run it as the owner of the table.';

-- tube_private_fit_outbox_index: gives an own table the one index for its number of partitions, where that is quick: see
-- tube_private_fit_index.
-- Result: whether there is nothing left to build.
CREATE OR REPLACE FUNCTION :"schema".tube_private_fit_outbox_index(outbox text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    most CONSTANT bigint := 8 * 1024 * 1024; -- bytes
    box CONSTANT tube_outbox := tube_private_require_outbox(outbox);
    reg CONSTANT tube_registry := tube_private_require_any(outbox);
    wanted CONSTANT record := tube_private_outbox_index(box, reg.partitions, true);
    statements text[];
    ready boolean;
BEGIN
    SELECT array_agg(format('DROP INDEX %s', i.index)) FILTER (WHERE i.partitions <> reg.partitions OR NOT i.valid),
        wanted.ddl IS NULL OR coalesce(bool_or(i.partitions = reg.partitions AND i.valid), false)
    INTO statements, ready
    FROM tube_private_outbox_indexes(box) AS i;
    IF box.adopted THEN
        RETURN ready; -- its owner builds and drops them
    ELSIF NOT ready THEN
        IF pg_relation_size(box.tbl) > most THEN
            RETURN false;
        END IF;
        statements := statements || wanted.ddl;
    END IF;
    PERFORM tube_private_briefly(statements) WHERE statements IS NOT NULL;
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN false;
END
$$;
