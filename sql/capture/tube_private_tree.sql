-- tube_private_tree: puts the triggers of an attachment where they belong, now that its tables have changed.
--
-- Rows come with a partition that is attached and go with one that is detached: both are touched. Those
-- of one that was dropped can't be read any more, so a sweep has to find them.
--
-- Arguments: att; late: writers may have been at a new partition before it got its triggers. Then a sweep
--   finds what they deleted there.
-- Result: nothing.
-- Errors: 55P03 the locks could not be had; 42501 the owner of a partition has not granted what we need.
-- Locks: the caller holds the registry row. Tables that lack triggers: SHARE ROW EXCLUSIVE; those that
--   have too many: ACCESS EXCLUSIVE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_tree(att :"schema".tube_attachment, late boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    root CONSTANT boolean := tube_private_is_root(att);
    ddl CONSTANT text[] := tube_private_trigger_ddl(att);
    new_members CONSTANT oid[] := (SELECT array_agg(m.rel::oid ORDER BY m.rel::oid) FROM tube_private_members(att.tbl) AS m);
    come CONSTANT regclass[] := coalesce((
        SELECT array_agg(t.rel) FROM tube_private_triggers(att) AS t JOIN pg_class AS c ON c.oid = t.rel
        WHERE t.wanted AND t.kind = 4 AND t.name IS NULL AND c.relkind = 'r' AND t.rel::oid <> ALL (att.members)), '{}');
    gone CONSTANT regclass[] := coalesce((
        SELECT array_agg(t.rel) FROM tube_private_triggers(att) AS t JOIN pg_class AS c ON c.oid = t.rel
        WHERE NOT t.wanted AND t.kind = 4 AND c.relkind = 'r'), '{}');
    rel regclass;
BEGIN
    IF ddl <> '{}' AND att.members IS NOT NULL THEN
        PERFORM tube_private_attachable(m.rel, true) FROM tube_private_members(att.tbl) AS m;
    END IF;
    IF ddl <> '{}' THEN
        PERFORM tube_private_patiently(ddl, format('%s is attached to tube %L', att.tbl, att.tube));
    END IF;
    FOREACH rel IN ARRAY come LOOP
        PERFORM tube_private_touch_rows(rel, att.tube, tube_private_key_expression(att), att.row_filter,
            att.shard, att.shards, CASE WHEN root THEN 'I' ELSE 'U' END);
    END LOOP;
    FOREACH rel IN ARRAY gone LOOP
        PERFORM tube_private_touch_rows(rel, att.tube, tube_private_key_expression(att), att.row_filter,
            att.shard, att.shards, CASE WHEN root THEN 'D' ELSE 'U' END);
    END LOOP;
    -- A restored table has members with other oids, and misses none.
    IF att.seen_oid = ANY (att.members) AND att.seen_oid = att.tbl::oid AND (late AND come <> '{}' OR EXISTS (
        SELECT FROM unnest(att.members) AS m (rel) WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = m.rel)))
    THEN
        PERFORM tube_private_sweep(att.tube, att.shard, att.shards);
    END IF;
    UPDATE tube_attachment AS a SET members = new_members
    WHERE a.tube = att.tube AND a.tbl = att.tbl AND a.members IS DISTINCT FROM new_members;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_tree(:"schema".tube_attachment, boolean) FROM PUBLIC;
