-- Event triggers follow DDL in its own transaction. First tube_private_note_drops writes down what was dropped; then
-- there are four, in the order of their names:
--
--   1 tube_private_plan_ddl     looks what has to be done, and writes down what only an owner may do
--   2 tube_private_as_owner     does that with the rights of whoever runs the DDL: grants, triggers that go
--   3 tube_private_follow_ddl   does the rest with ours, and writes down what an owner has to do behind it
--   4 tube_private_as_owner     does that
--
-- So whoever may run the DDL needs no right of ours, and we none of theirs. What is written down goes
-- through settings that last until the transaction ends, and is always written anew before it is read.
--
-- They look at the attached tables that the DDL concerns, and at no others: see tube_private_concerned. An error
-- there, such as a missing privilege at a new partition, fails the DDL: better than a hole.

-- tube_private_plan_ddl: the first of the four.
--
-- Result: none.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_plan_ddl() RETURNS event_trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    dropped CONSTANT jsonb := nullif(current_setting('pytube.dropped', true), '')::jsonb;
    rels oid[];
    schemas oid[];
    stale jsonb;
    att tube_attachment;
BEGIN
    IF current_setting('pytube.own_ddl', true) = 'on' THEN
        RETURN;
    END IF;
    PERFORM set_config('pytube.stale', '', true), set_config('pytube.owner_ddl', '', true),
        set_config('pytube.dropped', '', true);
    SELECT coalesce(array_agg(d.objid) FILTER (WHERE d.classid = 'pg_class'::regclass), '{}'),
        array_agg(d.objid) FILTER (WHERE d.classid = 'pg_namespace'::regclass)
    INTO rels, schemas FROM pg_event_trigger_ddl_commands() AS d;
    FOR att IN
        SELECT * FROM tube_private_concerned(
            rels || ARRAY(SELECT e::oid FROM jsonb_array_elements_text(dropped) AS e), schemas) AS a
        WHERE tube_private_stale(a)
    LOOP
        stale := coalesce(stale, '[]') || jsonb_build_array(jsonb_build_array(att.tube, att.tbl::oid));
        PERFORM tube_private_leave_to_owner(ARRAY(SELECT tube_private_owner_ddl(att)), false);
    END LOOP;
    PERFORM set_config('pytube.stale', coalesce(stale::text, ''), true);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_plan_ddl() FROM PUBLIC;

-- tube_private_follow_ddl: the third of the four.
--
-- Result: none.
-- Errors: as tube_private_sync; 55P03 somebody else changes what one of the tubes follows.
-- Locks: as tube_private_follow_tables, for which it waits for a second.
CREATE OR REPLACE FUNCTION :"schema".tube_private_follow_ddl() RETURNS event_trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '1s' -- others may wait for what the DDL has locked
AS $$
DECLARE
    stale CONSTANT jsonb := nullif(current_setting('pytube.stale', true), '')::jsonb;
    work record;
    hint text;
BEGIN
    IF current_setting('pytube.own_ddl', true) = 'on' OR stale IS NULL THEN
        RETURN;
    END IF;
    PERFORM tube_private_own_ddl(true), set_config('pytube.owner_ddl', '', true), set_config('pytube.stale', '', true);
    FOR work IN
        SELECT s ->> 0 AS tube, array_agg((s ->> 1)::oid::regclass) AS tables
        FROM jsonb_array_elements(stale) AS s GROUP BY 1 ORDER BY 1
    LOOP
        BEGIN
            PERFORM tube_private_follow_tables(work.tube, work.tables);
        EXCEPTION WHEN lock_not_available THEN
            GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
            RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
                MESSAGE = format('%s can''t be changed now, as tube %L follows it: %s',
                    array_to_string(work.tables, ', '), work.tube, SQLERRM),
                HINT = coalesce(nullif(hint, ''), 'Some transaction that changes what the tube follows, or the tube, '
                    'is still open. Try again later.');
        END;
    END LOOP;
    PERFORM tube_private_own_ddl(false);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_follow_ddl() FROM PUBLIC;

-- tube_private_follow_tables: brings tables that DDL has changed in line.
--
-- Where just the one attachment is concerned, as by partitions that come and go, the tube is not locked: others
-- may attach tables to it, or change theirs, at the same time.
--
-- Arguments: tube; tables: attached to it, or dropped.
-- Result: nothing.
-- Errors: as tube_private_sync.
-- Locks: as tube_private_sync. The attachments; the registry row FOR KEY SHARE, and where a table or its
--   key is gone or renamed FOR NO KEY UPDATE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_follow_tables(tube text, tables regclass[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    alone CONSTANT boolean := NOT EXISTS (
        SELECT FROM unnest(tables) AS t (tbl)
        LEFT JOIN tube_attachment AS a ON a.tube = tube_private_follow_tables.tube AND a.tbl = t.tbl
            AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = t.tbl)
        WHERE a.tbl IS NULL OR (tube_private_present(a)).id_col IS DISTINCT FROM a.id_col
            OR tube_private_misfit(a.tbl) IS NOT NULL);
    att tube_attachment;
BEGIN
    IF NOT alone THEN
        PERFORM FROM tube_registry AS r WHERE r.tube = tube_private_follow_tables.tube FOR NO KEY UPDATE;
        PERFORM tube_private_sync(tube, 'ddl', tables);
        RETURN;
    END IF;
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_private_follow_tables.tube FOR KEY SHARE;
    FOR att IN
        SELECT a.* FROM tube_attachment AS a
        WHERE a.tube = tube_private_follow_tables.tube AND a.tbl = ANY (tables) ORDER BY a.position FOR NO KEY UPDATE
    LOOP
        PERFORM tube_private_sync_table(att, 'ddl');
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_follow_tables(text, regclass[]) FROM PUBLIC;

-- tube_private_as_owner: the second and the fourth.
--
-- Whoever runs DDL has no right of ours, so it calls nothing that is not built in.
--
-- Result: none.
-- Errors: those of the statements that have to be done; 42501 is passed over for the others, as the DDL may
--   concern other tables, and is raised by what follows where it matters.
-- Locks: those of the statements.
CREATE OR REPLACE FUNCTION :"schema".tube_private_as_owner() RETURNS event_trigger
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '5s'
AS $$
DECLARE
    left_over CONSTANT jsonb := nullif(current_setting('pytube.owner_ddl', true), '')::jsonb;
    statement text;
BEGIN
    IF current_setting('pytube.own_ddl', true) = 'on' OR left_over IS NULL THEN
        RETURN;
    END IF;
    PERFORM set_config('pytube.own_ddl', 'on', true), set_config('pytube.owner_ddl', '', true);
    FOR statement IN SELECT jsonb_array_elements_text(left_over -> 'statements') LOOP
        BEGIN
            EXECUTE statement;
        EXCEPTION WHEN insufficient_privilege THEN
            IF (left_over ->> 'needed')::boolean THEN
                RAISE;
            END IF;
        END;
    END LOOP;
    PERFORM set_config('pytube.own_ddl', 'off', true);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_as_owner() FROM PUBLIC;

-- tube_private_leave_to_owner: writes statements down for tube_private_as_owner.
--
-- Arguments: statements; needed: whether it is an error if one may not be run.
-- Result: nothing.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_leave_to_owner(statements text[], needed boolean = true) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    before CONSTANT jsonb := nullif(current_setting('pytube.owner_ddl', true), '')::jsonb;
BEGIN
    IF statements <> '{}' THEN
        PERFORM set_config('pytube.owner_ddl', jsonb_build_object('needed', needed,
            'statements', coalesce(before -> 'statements', '[]') || to_jsonb(statements))::text, true);
    END IF;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_leave_to_owner(text[], boolean) FROM PUBLIC;

-- tube_private_owner_ddl: what has to be done for an attachment by the owners of its tables, before we can do the rest.
--
-- Arguments: att: as it is stored.
-- Result: statements: grants to our owner, and triggers that go.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_owner_ddl(att :"schema".tube_attachment) RETURNS SETOF text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = att.tbl) THEN
        RETURN;
    END IF;
    att := tube_private_present(att);
    IF att.id_col IS NULL THEN
        RETURN QUERY SELECT d.statement FROM tube_private_drop_triggers(att.tube, ARRAY[att.tbl]) AS d;
    ELSE
        RETURN QUERY
        SELECT unnest(tube_private_lacking(att.tbl, n.nspname, tube_private_role('admin')))
        FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = att.tbl;
        RETURN QUERY SELECT d.statement FROM tube_private_trigger_ddl(att) AS d WHERE d.does = 'drop';
    END IF;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_owner_ddl(:"schema".tube_attachment) FROM PUBLIC;
