-- tube_private_attachable: refuses relations that can't be attached.
--
-- Arguments: tbl; member: whether it is asked of a table in the tree of one that is attached.
-- Result: nothing.
-- Errors: TU108 no such table; TU107 another kind of relation, a temporary table, a catalogue, one of
--   ours, a partition by itself, or part of an inheritance tree; 42501 our owner lacks a
--   privilege that the caller may not grant; it is in the hint.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_attachable(tbl regclass, member boolean = false) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    rel record;
    wrong text;
BEGIN
    SELECT c.oid, c.relkind, c.relpersistence, n.nspname INTO rel
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = tbl;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108',
            MESSAGE = format('there is no table %s', coalesce(tbl::text, 'NULL')),
            HINT = 'Give the name of a table, with its schema.';
    END IF;
    wrong := CASE
        WHEN rel.nspname IN ('pg_catalog', 'information_schema', 'pg_toast') THEN 'it is a catalogue'
        WHEN rel.nspname = tube_private_schema() THEN 'it is one of pytube''s own'
        WHEN rel.relkind = 'v' THEN 'it is a view'
        WHEN rel.relkind = 'm' THEN 'it is a materialized view'
        WHEN rel.relkind = 'f' THEN 'it is a foreign table'
        WHEN rel.relkind NOT IN ('r', 'p') THEN 'it is no table'
        WHEN rel.relpersistence = 't' THEN 'it is a temporary table'
        WHEN member THEN NULL
        ELSE tube_private_misfit(tbl)
    END;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU107',
            MESSAGE = format('%s can''t be attached: %s', tbl, wrong),
            HINT = 'Attach plain, permanent tables, and partitioned ones as a whole.';
    END IF;
    IF NOT member THEN
        PERFORM tube_private_attachable(t.relid, true) FROM pg_partition_tree(tbl) AS t WHERE t.relid <> tbl;
        PERFORM tube_private_privileges(tbl, rel.nspname);
    END IF;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_attachable(regclass, boolean) FROM PUBLIC;
