-- tube_private_store: sees that an attachment is as it is to be, and stores it; touches the rows that came and went.
--
-- That no statement of an owner's is missing is the owner's consent: so nobody gets a table attached that is not
-- theirs.
--
-- Arguments: mode: as of tube_private_bring_in_line.
-- Errors: 42501 an owner has to do something, and mode is not late; else it is a WARNING.
-- Locks: the caller holds the registry row; the attachment; tables that lack triggers: SHARE ROW EXCLUSIVE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_store(att :"schema".tube_attachment, mode text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET quote_all_identifiers = off AS $$
DECLARE
    old CONSTANT tube_attachment := (SELECT a FROM tube_attachment AS a WHERE a.tube = att.tube AND a.tbl = att.tbl);
    is_complete boolean;
BEGIN
    att := tube_private_with_columns(tube_private_with_names(att));
    att.as_root := tube_private_is_root(att);
    IF old.tube IS NOT NULL AND mode = 'late' THEN
        PERFORM tube_private_agent_triggers(att);
    END IF;
    is_complete := NOT EXISTS (SELECT FROM tube_private_owner_ddl(att));
    IF NOT is_complete AND (mode <> 'late' OR old.tube IS NULL) THEN
        PERFORM tube_private_ask_owner(att, 'ordered');
    ELSIF old.tube IS NULL THEN
        INSERT INTO tube_attachment (tube, tbl, shard, id_col, trigger_function)
        VALUES (att.tube, att.tbl, att.shard, att.id_col, att.trigger_function);
    END IF;
    IF is_complete THEN
        INSERT INTO tube_agent AS g VALUES (att.tube, att.tbl, md5(tube_private_agent_body(att))) -- as asked for, not as it is now
        ON CONFLICT ON CONSTRAINT tube_agent_pkey DO UPDATE SET digest = excluded.digest WHERE g.digest <> excluded.digest;
        UPDATE tube_attachment AS a
        SET shard = att.shard, shards = att.shards, id_col = att.id_col, row_filter = att.row_filter, misfit = att.misfit,
            columns = att.columns, replica = att.replica, as_root = att.as_root, touch_name = att.touch_name,
            seen_oid = att.seen_oid, seen_attnums = att.seen_attnums, seen_names = att.seen_names
        WHERE a.tube = att.tube AND a.tbl = att.tbl;
        IF (att.shard, att.shards) IS DISTINCT FROM (old.shard, old.shards) THEN
            PERFORM tube_private_provide_touch(att), tube_private_provide_tube(att.tube),
                tube_private_follow_root(att.tube, old.shard);
        END IF;
        IF att.id_col = old.id_col AND att.seen_oid = old.seen_oid AND att.seen_attnums[1] <> old.seen_attnums[1] THEN
            PERFORM tube_private_ask_backfill(att, format('another column of %s has the name %I now', att.tbl, att.id_col));
        END IF;
        UPDATE tube_registry AS r SET version = r.version + 1 WHERE r.tube = att.tube AND att.id_col <> old.id_col;
    END IF;
    PERFORM tube_private_follow_members(att, old.members, old.waiting);
    IF NOT is_complete THEN
        PERFORM tube_private_ask_owner(att, mode);
    END IF;
END
$$;

-- tube_private_store_late: the same for a stored attachment, some time after DDL: it is to be what its table says.
--
-- Arguments: without_predicate: whether the tube's predicate does not fit the table.
CREATE OR REPLACE FUNCTION :"schema".tube_private_store_late(tube text, tbl regclass, without_predicate boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    att tube_attachment := (SELECT tube_private_attachment_now(a) FROM tube_attachment AS a WHERE a.tube = $1 AND a.tbl = $2);
BEGIN
    IF without_predicate AND att.row_filter IS NOT NULL THEN
        att.row_filter := NULL;
        att.misfit := tube_private_misfit_digest(att.tube, att.tbl);
    END IF;
    PERFORM tube_private_store(att, 'late') WHERE att.tube IS NOT NULL;
END
$$;

-- tube_private_ask_owner: says that an owner of a table has to do something for an attachment.
--
-- Errors: 42501; a WARNING where mode is late.
CREATE OR REPLACE FUNCTION :"schema".tube_private_ask_owner(att :"schema".tube_attachment, mode text) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    owner CONSTANT regrole := tube_private_owner_of(att.tbl);
    message CONSTANT text := format('%s belongs to %s, who has to agree to what tube %L does with it', att.tbl, owner, att.tube);
    detail CONSTANT text := (SELECT d.statement FROM tube_private_owner_ddl(att) AS d LIMIT 1);
BEGIN
    IF mode = 'late' THEN
        RAISE WARNING USING MESSAGE = message, DETAIL = detail,
            HINT = format('Until then its writes are captured at a higher cost, or not from new partitions. Run as %s: SELECT %I.tube_sync();',
                owner, tube_private_schema());
    ELSE
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = message, DETAIL = detail,
            HINT = format('Do it as %s, or as a role that has its rights and those of %I.', owner, tube_private_role('admin'));
    END IF;
END
$$;

-- tube_private_as_agreed: calls the agent of an attachment, if it is what an owner has agreed to.
CREATE OR REPLACE FUNCTION :"schema".tube_private_as_agreed(att :"schema".tube_attachment, rel regclass, triggers name[], op text)
RETURNS boolean
LANGUAGE sql AS $$
    SELECT tube_private_call_agent(coalesce(tube_private_agent(att), tube_private_function(att, 'agent') || '()'),
        (SELECT g.digest FROM tube_agent AS g WHERE g.tube = att.tube AND g.tbl = att.tbl), rel, triggers, op)
$$;

-- tube_private_agent_triggers: has the owner's agent put the triggers on partitions that lack them; a WARNING for
-- each where it could not be done.
CREATE OR REPLACE FUNCTION :"schema".tube_private_agent_triggers(att :"schema".tube_attachment) RETURNS void
LANGUAGE plpgsql SET lock_timeout = '1s' AS $$
DECLARE
    part record;
BEGIN
    -- Those of a partitioned table have no place for TRUNCATE.
    FOR part IN
        SELECT t.rel, array_agg(CASE WHEN t.wanted AND NOT t.is_there THEN t.name END ORDER BY t.place) AS names
        FROM tube_private_trigger_names(att) AS t
        WHERE t.wanted AND t.rel <> att.tbl AND tube_private_agent(att) IS NOT NULL
        GROUP BY t.rel HAVING NOT bool_and(t.is_there)
    LOOP
        BEGIN
            PERFORM tube_private_as_agreed(att, part.rel, part.names, NULL);
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING USING MESSAGE = format('%s is not followed by tube %L: %s', part.rel, att.tube, SQLERRM),
                HINT = format('Do it as its owner: SELECT %I.tube_sync();', tube_private_schema());
        END;
    END LOOP;
END
$$;

-- tube_private_follow_members: touches the rows of partitions that have come to an attached table, or left it, and
-- stores which there are.
--
-- Both are touched by the owner's agent. Rows of a partition that was dropped can't be read any more, so a sweep has
-- to find them. A sweep also has to find what was deleted from a new partition by its own name, before there were
-- triggers. Where not all rows can be seen, a sweep finds those that go, and a backfill of the whole table those that
-- come.
--
-- Arguments: members, waiting: as they were stored, or NULL. A restored table has members with other oids, and misses
-- none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_follow_members(att :"schema".tube_attachment, members oid[], waiting oid[]) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    known CONSTANT oid[] := CASE WHEN att.tbl::oid = ANY (members) THEN members END;
    come CONSTANT regclass[] := ARRAY(
        -- Those that have their triggers now.
        SELECT t.rel FROM tube_private_trigger_names(att) AS t JOIN pg_class AS c ON c.oid = t.rel
        WHERE t.wanted AND t.is_there AND t.place = 1 AND c.relkind = 'r' AND t.rel::oid <> ALL (known));
    -- An older snapshot shows neither all rows nor the agent as it is.
    reads CONSTANT boolean := current_setting('transaction_isolation') IN ('read committed', 'read uncommitted');
    rel regclass;
BEGIN
    FOR rel IN SELECT m.rel FROM tube_private_members(att.tbl) AS m WHERE m.kind = 'f' AND m.rel::oid <> ALL (known) LOOP
        RAISE WARNING USING
            MESSAGE = format('%s, which has come to %s, is a foreign table: tube %L sees nothing that is written by its name',
                rel, att.tbl, att.tube),
            HINT = 'Write to it by the name of the partitioned table, and backfill that if it has new rows.';
    END LOOP;
    FOREACH rel IN ARRAY come LOOP
        IF NOT (CASE WHEN reads THEN tube_private_as_agreed(att, rel, NULL, 'I') ELSE false END)
            AND pg_relation_size(rel) > 0
        THEN
            PERFORM tube_private_ask_backfill(att, format('not all rows of %s, which has come to %s, may be seen', rel, att.tbl));
        END IF;
    END LOOP;
    FOR rel IN
        SELECT c.oid FROM pg_class AS c
        WHERE c.oid = ANY (known) AND c.relkind = 'r' AND c.oid NOT IN (SELECT m.rel FROM tube_private_members(att.tbl) AS m)
    LOOP
        IF reads THEN
            PERFORM tube_private_as_agreed(att, rel, NULL, 'D');
        ELSE
            PERFORM tube_private_sweep(att.tube, att.shard, att.shards);
        END IF;
    END LOOP;
    IF EXISTS (SELECT FROM unnest(coalesce(known, '{}') || coalesce(waiting, '{}')) AS m (rel)
            WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = m.rel))
        -- Unless it has been empty since it was made: no file was cut, or put in place of its own.
        OR EXISTS (SELECT FROM pg_class AS c WHERE c.oid = ANY (come)
            AND NOT (pg_relation_size(c.oid) = 0 AND c.relfilenode = c.oid AND c.reltuples = -1))
    THEN
        PERFORM tube_private_sweep(att.tube, att.shard, att.shards);
    END IF;
    att.members := CASE WHEN known IS NULL THEN tube_private_member_oids(att.tbl) ELSE ARRAY(
        SELECT m.rel::oid FROM tube_private_members(att.tbl) AS m JOIN pg_class AS c ON c.oid = m.rel
        WHERE m.rel = ANY (known) OR m.rel = ANY (come) OR c.relkind <> 'r' ORDER BY 1) END;
    -- Were one of these dropped before it gets its triggers, nothing else would tell that rows of it are at the sink.
    att.waiting := nullif(ARRAY(SELECT m.rel::oid FROM tube_private_members(att.tbl) AS m WHERE m.rel <> ALL (att.members)), '{}');
    UPDATE tube_attachment AS a SET members = att.members, waiting = att.waiting
    WHERE a.tube = att.tube AND a.tbl = att.tbl AND (a.members, a.waiting) IS DISTINCT FROM (att.members, att.waiting);
END
$$;

-- tube_private_member_oids: what an attachment keeps as its members, sorted; NULL when the table is gone.
CREATE OR REPLACE FUNCTION :"schema".tube_private_member_oids(tbl regclass) RETURNS oid[]
LANGUAGE sql STABLE AS $$ SELECT array_agg(m.rel::oid ORDER BY m.rel::oid) FROM tube_private_members(tbl) AS m $$;

-- tube_private_ask_backfill: asks the workers to backfill an attached table; a WARNING tells why.
--
-- A control pod as of tube_backfill_schedule; always one, since a backfill that is under way may have read the table
-- before.
CREATE OR REPLACE FUNCTION :"schema".tube_private_ask_backfill(att :"schema".tube_attachment, why text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tube_private_put_schedule(att.tube, att.shard, att.tbl, att.id_col);
    RAISE WARNING 'a backfill of % is asked for, for tube %: %', att.tbl, quote_literal(att.tube), why;
END
$$;

-- tube_private_forget: drops attachments, and the functions made for them; their triggers go with these. No right on the tables
-- is needed.
--
-- Arguments: tables: their triggers are gone, or they are gone themselves.
-- Locks: the tables ACCESS EXCLUSIVE, for the triggers; the caller holds the registry row.
CREATE OR REPLACE FUNCTION :"schema".tube_private_forget(tube text, tables regclass[]) RETURNS void
LANGUAGE plpgsql
SET client_min_messages = warning -- for each trigger there would be a NOTICE
AS $$
DECLARE
    gone tube_attachment;
BEGIN
    FOR gone IN DELETE FROM tube_attachment AS a WHERE a.tube = $1 AND a.tbl = ANY (tables) RETURNING a.* LOOP
        PERFORM tube_private_drop_routine(r.routine) FROM tube_private_routines(gone) AS r;
        PERFORM tube_private_drop_routine(p.oid) FROM pg_proc AS p
        WHERE p.pronamespace = to_regnamespace(quote_ident(tube_private_schema())) AND p.proname = tube_private_function_name(gone, 'put');
        DELETE FROM tube_agent AS g WHERE g.tube = gone.tube AND g.tbl = gone.tbl;
        PERFORM tube_private_provide_touch(gone), tube_private_follow_root(tube, gone.shard);
    END LOOP;
    IF FOUND THEN
        PERFORM tube_private_provide_tube(tube);
        UPDATE tube_registry AS r SET version = r.version + 1 WHERE r.tube = $1;
    END IF;
END
$$;

-- tube_private_follow_root: brings the table in line that is the root of its shards now; a WARNING tells of one that was
-- related.
--
-- A related table takes the place of its root, since callers of pg-tube attach a successor in the same shard before they
-- detach or drop the table before it. Nothing tells a successor from a table that was to stay related, whose rows make
-- wrong documents: so it is told.
--
-- Arguments: tube; in_shard: the first shard of a table that has gone from there.
CREATE OR REPLACE FUNCTION :"schema".tube_private_follow_root(tube text, in_shard integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    heir tube_attachment;
BEGIN
    SELECT a.* INTO heir FROM tube_attachment AS a
    WHERE a.tube = $1 AND a.shard = in_shard AND NOT a.as_root AND tube_private_is_root(a)
        AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = a.tbl);
    IF FOUND THEN
        RAISE WARNING USING
            MESSAGE = format('%s was related and is now the root table of shards %s to %s of tube %L: the root table before it is gone',
                heir.tbl, heir.shard, heir.shard + (heir.shards - 1), tube),
            HINT = format('Its rows become the documents of the ids in %I; a touched id that it lacks is deleted at the sink. '
                'If that is wrong, pause the tube, detach this table, attach the root table, attach this one again, and '
                'backfill the root table.', heir.id_col);
        PERFORM tube_private_provide(heir);
    END IF;
END
$$;

-- tube_private_prune: forgets the attached tables of a tube that were dropped; a WARNING names each.
--
-- The catalogue has the name no more, so it tells the one that the table had when it was attached.
CREATE OR REPLACE FUNCTION :"schema".tube_private_prune(tube text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    gone tube_attachment;
BEGIN
    FOR gone IN
        SELECT a.* FROM tube_attachment AS a
        WHERE a.tube = $1 AND NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = a.tbl) ORDER BY a.position
    LOOP
        RAISE WARNING USING
            MESSAGE = format('a table of tube %L was dropped, and is detached: oid %s, attached %swith shards %s to %s', tube,
                gone.tbl::oid,
                CASE WHEN starts_with(gone.trigger_function, tube || '_') -- else the name had no room
                    THEN 'as ' || regexp_replace(substr(gone.trigger_function, length(tube) + 2), '_capture_[0-9a-f]{8}$', ' ') END,
                gone.shard, gone.shard + (gone.shards - 1)),
            HINT = CASE WHEN gone.as_root
                THEN 'Its documents stay at the sink. A backfill of a table that is attached with these shards sweeps them.'
                ELSE 'Documents that show its rows stay as they are: backfill the root table of these shards.' END;
        PERFORM tube_private_forget(tube, ARRAY[gone.tbl]);
    END LOOP;
END
$$;
