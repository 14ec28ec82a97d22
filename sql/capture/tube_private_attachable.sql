-- tube_private_refuse_table: refuses relations that can't be attached.
--
-- Errors: TU108 no such table; TU107 another kind of relation, a temporary table, a catalogue, one of
--   ours, a partition by itself, or part of an inheritance tree; also one of these among the partitions.
CREATE OR REPLACE FUNCTION :"schema".tube_private_refuse_table(tbl regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    rel record;
    wrong text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = tbl) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108',
            MESSAGE = format('there is no table %s', coalesce(tbl::text, 'NULL')),
            HINT = 'Give the name of a table, with its schema.';
    END IF;
    FOR rel IN
        SELECT t.relid FROM (SELECT tbl AS relid, 0 AS place UNION SELECT p.relid, 1 FROM pg_partition_tree(tbl) AS p
            WHERE p.relid <> tbl) AS t ORDER BY t.place
    LOOP
        wrong := tube_private_table_fault(rel.relid, rel.relid <> tbl);
        IF wrong IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'TU107',
                MESSAGE = format('%s can''t be attached: %s', rel.relid, wrong),
                HINT = 'Attach plain, permanent tables, and partitioned ones as a whole.';
        END IF;
    END LOOP;
END
$$;

-- tube_private_table_fault: why a table can't be attached.
--
-- Arguments: tbl; member: whether it is a part of a table that is attached as a whole.
-- Result: words; NULL when it can.
CREATE OR REPLACE FUNCTION :"schema".tube_private_table_fault(tbl regclass, member boolean = false) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN n.nspname IN ('pg_catalog', 'information_schema', 'pg_toast') THEN 'it is a catalogue'
        WHEN n.nspname IN (tube_private_schema(), tube_private_capture_schema()) THEN 'it is one of pytube''s own'
        WHEN c.relkind = 'v' THEN 'it is a view'
        WHEN c.relkind = 'm' THEN 'it is a materialized view'
        WHEN c.relkind = 'f' THEN 'it is a foreign table'
        WHEN c.relkind NOT IN ('r', 'p') THEN 'it is no table'
        WHEN c.relpersistence = 't' THEN 'it is a temporary table'
        WHEN member THEN NULL
        WHEN c.relispartition THEN format('it is a partition of %s', pg_partition_root(tbl))
        WHEN c.relkind = 'p' THEN NULL
        WHEN EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhparent = tbl) THEN 'other tables inherit from it'
        WHEN EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhrelid = tbl) THEN 'it inherits from another table'
    END
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = tbl
$$;
