-- tube_private_tree: puts the triggers of an attachment where they belong, now that its tables have changed.
--
-- Rows come with a partition that is attached and go with one that is detached: both are touched. Those
-- of one that was dropped can't be read any more, so a sweep has to find them.
--
-- Runs with the rights of the caller. Who does not own a table can make triggers there, where our owner
-- was granted that, but can take none off: those of a partition that is gone are then left, with a
-- WARNING, and touch too much.
--
-- Arguments: att; mode: as of tube_private_sync. If it is late, writers may have been at a new partition
--   before it got its triggers; then a sweep finds what they deleted there.
-- Result: nothing.
-- Errors: 55P03 the locks could not be had; 42501 a partition lacks grants that we need, or has to be changed
--   by its owner.
-- Locks: the caller holds the registry row. Tables that lack triggers: SHARE ROW EXCLUSIVE; those that
--   have too many: ACCESS EXCLUSIVE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_tree(att :"schema".tube_attachment, mode text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    root CONSTANT boolean := tube_private_is_root(att);
    new_members CONSTANT oid[] := (SELECT array_agg(m.rel::oid ORDER BY m.rel::oid) FROM tube_private_members(att.tbl) AS m);
    -- A restored table has members with other oids, and misses none.
    known CONSTANT oid[] := CASE WHEN att.tbl::oid = ANY (att.members) THEN att.members END;
    come CONSTANT regclass[] := coalesce((
        SELECT array_agg(t.rel) FROM tube_private_triggers(att) AS t JOIN pg_class AS c ON c.oid = t.rel
        WHERE t.wanted AND t.kind = 4 AND t.name IS NULL AND c.relkind = 'r' AND t.rel::oid <> ALL (att.members)), '{}');
    gone CONSTANT regclass[] := coalesce((
        SELECT array_agg(c.oid::regclass) FROM pg_class AS c
        WHERE c.oid = ANY (known) AND c.oid <> ALL (new_members) AND c.relkind = 'r'), '{}');
    what CONSTANT text := format('tube %L', att.tube);
    may text[];
    may_not record;
    rel regclass;
BEGIN
    SELECT coalesce(array_agg(d.statement) FILTER (WHERE d.does = 'create' OR o.owned), '{}') AS may,
        array_agg(d.rel) FILTER (WHERE d.does = 'drop' AND NOT o.owned) AS keep,
        array_agg(d.rel) FILTER (WHERE d.does = 'enable' AND NOT o.owned) AS owners,
        array_agg(d.statement) FILTER (WHERE d.does = 'enable' AND NOT o.owned) AS statements
    INTO may_not
    FROM tube_private_trigger_ddl(att) AS d JOIN pg_class AS c ON c.oid = d.rel
    CROSS JOIN LATERAL (SELECT pg_has_role(c.relowner, 'USAGE') AS owned) AS o;
    may := may_not.may;
    IF may <> '{}' AND att.members IS NOT NULL THEN
        PERFORM tube_private_attachable(m.rel, true) FROM tube_private_members(att.tbl) AS m;
    END IF;
    PERFORM tube_private_privileges(att.tbl, n.nspname)
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = att.tbl;
    IF mode <> 'ddl' THEN
        PERFORM tube_private_owned(may_not.owners, what);
    ELSIF may_not.statements IS NOT NULL THEN
        PERFORM tube_private_leave_to_owner(may_not.statements);
    END IF;
    IF may <> '{}' THEN
        PERFORM tube_private_patiently(may, format('%s is attached to tube %L', att.tbl, att.tube));
    END IF;
    IF mode <> 'ddl' AND may_not.keep IS NOT NULL THEN
        RAISE WARNING USING
            MESSAGE = format('%s: %s is no part of %s any more, and still has its triggers', what, may_not.keep[1], att.tbl),
            HINT = format('They touch too much. Run, as its owner, who has to be in %I: SELECT %I.tube_sync();',
                tube_private_role('admin'), tube_private_schema());
    END IF;
    FOREACH rel IN ARRAY come LOOP
        PERFORM tube_private_touch_rows(rel, att.tube, tube_private_key_expression(att), att.row_filter,
            att.shard, att.shards, CASE WHEN root THEN 'I' ELSE 'U' END, tube_private_types(att));
    END LOOP;
    FOREACH rel IN ARRAY gone LOOP
        PERFORM tube_private_touch_rows(rel, att.tube, tube_private_key_expression(att), att.row_filter,
            att.shard, att.shards, CASE WHEN root THEN 'D' ELSE 'U' END, tube_private_types(att));
    END LOOP;
    IF known IS NOT NULL AND (mode = 'late' AND come <> '{}' OR EXISTS (
        SELECT FROM unnest(known) AS m (rel) WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = m.rel)))
    THEN
        PERFORM tube_private_sweep(att.tube, att.shard, att.shards);
    END IF;
    UPDATE tube_attachment AS a SET members = new_members
    WHERE a.tube = att.tube AND a.tbl = att.tbl AND a.members IS DISTINCT FROM new_members;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_tree(:"schema".tube_attachment, text) FROM PUBLIC;
