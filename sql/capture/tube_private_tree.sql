-- tube_private_tree: puts the triggers of an attachment where they belong, now that its tables have changed.
--
-- Rows come with a partition that is attached and go with one that is detached: both are touched. Those
-- of one that was dropped can't be read any more, so a sweep has to find them. It also has to find what was
-- deleted, before there were triggers, from a partition that another transaction made.
--
-- A transaction at REPEATABLE READ may be too old to see all rows: of those that go a sweep finds what is
-- missed; for those that come a backfill of the whole table is asked for, with a WARNING.
--
-- Partitions may be made until the locks are there, so it looks again until none is new.
--
-- Runs with the rights of the caller. Who does not own a table can make triggers there, where our owner
-- was granted that, but can take none off: those of a partition that is gone are then left, with a
-- WARNING, and touch too much.
--
-- Arguments: att; mode: as of tube_private_sync.
-- Result: nothing.
-- Errors: 55P03 the locks could not be had; 42501 a partition lacks grants that we need, or has to be changed
--   by its owner.
-- Locks: the caller holds the attachment. Tables that lack triggers: SHARE ROW EXCLUSIVE; those that
--   have too many: ACCESS EXCLUSIVE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_tree(att :"schema".tube_attachment, mode text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    root CONSTANT boolean := tube_private_is_root(att);
    -- A restored table has members with other oids, and misses none.
    known CONSTANT oid[] := CASE WHEN att.tbl::oid = ANY (att.members) THEN att.members END;
    what CONSTANT text := format('tube %L', att.tube);
    old_snapshot CONSTANT boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    new_members oid[];
    come regclass[] := '{}';
    gone regclass[];
    ddl record;
    rel regclass;
BEGIN
    FOR look IN 1..20 LOOP
        new_members := tube_private_member_oids(att.tbl);
        come := come || coalesce((
            SELECT array_agg(t.rel) FROM tube_private_triggers(att) AS t JOIN pg_class AS c ON c.oid = t.rel
            WHERE t.wanted AND t.kind = 4 AND t.name IS NULL AND c.relkind = 'r'
                AND (t.rel::oid <> ALL (att.members) OR t.rel::oid = ANY (att.waiting))), '{}');
        SELECT coalesce(array_agg(d.statement) FILTER (WHERE d.does = 'create' OR o.owned), '{}') AS may,
            array_agg(d.rel) FILTER (WHERE d.does = 'drop' AND NOT o.owned) AS keep,
            array_agg(d.rel) FILTER (WHERE d.does = 'enable' AND NOT o.owned) AS owners,
            array_agg(d.statement) FILTER (WHERE d.does = 'enable' AND NOT o.owned) AS statements
        INTO ddl
        FROM tube_private_trigger_ddl(att) AS d JOIN pg_class AS c ON c.oid = d.rel
        CROSS JOIN LATERAL (SELECT pg_has_role(c.relowner, 'USAGE') AS owned) AS o;
        IF ddl.may <> '{}' AND att.members IS NOT NULL THEN
            PERFORM tube_private_attachable(m.rel, true) FROM tube_private_members(att.tbl) AS m;
        END IF;
        PERFORM tube_private_privileges(att.tbl, n.nspname)
        FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = att.tbl;
        IF mode <> 'ddl' THEN
            PERFORM tube_private_owned(ddl.owners, what);
        END IF;
        EXIT WHEN ddl.may = '{}';
        PERFORM tube_private_patiently(ddl.may, format('%s is attached to tube %L', att.tbl, att.tube),
            tube_private_attempts(mode));
    END LOOP;
    IF ddl.statements IS NOT NULL THEN
        PERFORM tube_private_leave_to_owner(ddl.statements);
    END IF;
    IF mode <> 'ddl' AND ddl.keep IS NOT NULL THEN
        RAISE WARNING USING
            MESSAGE = format('%s: %s is no part of %s any more, and still has its triggers', what, ddl.keep[1], att.tbl),
            HINT = format('They touch too much. Run, as its owner, who has to be in %I: SELECT %I.tube_sync();',
                tube_private_role('admin'), tube_private_schema());
    END IF;
    FOREACH rel IN ARRAY come LOOP
        PERFORM tube_private_touch_rows(rel, att.tube, tube_private_key_expression(att), att.row_filter,
            att.shard, att.shards, CASE WHEN root THEN 'I' ELSE 'U' END, tube_private_types(att));
    END LOOP;
    gone := coalesce((
        SELECT array_agg(c.oid::regclass) FROM pg_class AS c
        WHERE c.oid = ANY (known) AND c.oid <> ALL (new_members) AND c.relkind = 'r'), '{}');
    FOREACH rel IN ARRAY gone LOOP
        PERFORM tube_private_touch_rows(rel, att.tube, tube_private_key_expression(att), att.row_filter,
            att.shard, att.shards, CASE WHEN root THEN 'D' ELSE 'U' END, tube_private_types(att));
    END LOOP;
    IF known IS NOT NULL AND (old_snapshot AND gone <> '{}'
        OR EXISTS (SELECT FROM unnest(come) AS c (rel) WHERE NOT tube_private_came_now(c.rel))
        OR EXISTS (SELECT FROM unnest(known) AS m (rel) WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = m.rel)))
    THEN
        PERFORM tube_private_sweep(att.tube, att.shard, att.shards);
    END IF;
    -- An empty file holds no row that somebody else could see.
    IF old_snapshot AND EXISTS (SELECT FROM unnest(come) AS c (rel) WHERE pg_relation_size(c.rel) > 0) THEN
        PERFORM tube_private_ask_backfill(att, come[1]);
    END IF;
    UPDATE tube_attachment AS a SET members = new_members, waiting = NULL
    WHERE a.tube = att.tube AND a.tbl = att.tbl
        AND (a.members IS DISTINCT FROM new_members OR a.waiting IS NOT NULL);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_tree(:"schema".tube_attachment, text) FROM PUBLIC;

-- tube_private_attempts: how often locks are tried for.
--
-- Within DDL others wait for what that has locked, and a worker comes again soon.
--
-- Arguments: mode: as of tube_private_sync.
-- Result: a number for tube_private_patiently.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_attempts(mode text) RETURNS integer
LANGUAGE plpgsql IMMUTABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN CASE mode WHEN 'ddl' THEN 4 WHEN 'late' THEN 20 ELSE 100 END;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_attempts(text) FROM PUBLIC;
