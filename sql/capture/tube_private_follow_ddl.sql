-- Four event triggers follow DDL in its own transaction, in the order of their names:
--
--   1 tube_private_plan_ddl     looks what has to be done, and writes down what only an owner may do
--   2 tube_private_as_owner     does that with the rights of whoever runs the DDL: grants, triggers that go
--   3 tube_private_follow_ddl   does the rest with ours, and writes down what an owner has to do behind it
--   4 tube_private_as_owner     does that
--
-- So whoever may run the DDL needs no right of ours, and we none of theirs. What is written down goes
-- through settings that last until the transaction ends, and is always written anew before it is read.
--
-- An error of them, such as a missing privilege at a new partition, fails the DDL: better than a hole.

-- tube_private_plan_ddl: the first of the event triggers.
--
-- Result: none.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_plan_ddl() RETURNS event_trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    stale text[];
BEGIN
    IF current_setting('pytube.own_ddl', true) = 'on' THEN
        RETURN;
    END IF;
    PERFORM set_config('pytube.stale', '', true), set_config('pytube.owner_ddl', '', true);
    -- Tables are often made, and only partitions and heirs concern us.
    IF TG_TAG IN ('CREATE TABLE', 'CREATE FOREIGN TABLE') AND NOT EXISTS (
        SELECT FROM pg_event_trigger_ddl_commands() AS d JOIN pg_inherits AS i ON i.inhrelid = d.objid
        WHERE d.classid = 'pg_class'::regclass)
    THEN
        RETURN;
    END IF;
    stale := ARRAY(SELECT r.tube FROM tube_registry AS r WHERE tube_private_stale(r.tube) ORDER BY r.tube);
    IF stale <> '{}' THEN
        PERFORM set_config('pytube.stale', 'on', true);
        PERFORM tube_private_leave_to_owner(ARRAY(
            SELECT s FROM unnest(stale) AS t (tube), tube_private_owner_ddl(t.tube) AS s), false);
    END IF;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_plan_ddl() FROM PUBLIC;

-- tube_private_follow_ddl: the third of the event triggers.
--
-- Result: none.
-- Errors: as tube_private_sync.
-- Locks: as tube_private_sync, where the DDL concerns an attached table.
CREATE OR REPLACE FUNCTION :"schema".tube_private_follow_ddl() RETURNS event_trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '5s'
AS $$
BEGIN
    IF current_setting('pytube.own_ddl', true) = 'on' OR current_setting('pytube.stale', true) = '' THEN
        RETURN;
    END IF;
    PERFORM set_config('pytube.owner_ddl', '', true);
    PERFORM tube_private_sync_stale('ddl');
    PERFORM set_config('pytube.stale', '', true);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_follow_ddl() FROM PUBLIC;

-- tube_private_as_owner: the second and the fourth of the event triggers.
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

-- tube_private_owner_ddl: what has to be done for a tube by owners of its tables, before we can do the rest.
--
-- Arguments: tube.
-- Result: statements: grants to our owner, and triggers that go.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_owner_ddl(tube text) RETURNS SETOF text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    att tube_attachment;
BEGIN
    FOR att IN
        SELECT (tube_private_present(a)).* FROM tube_attachment AS a
        WHERE a.tube = tube_private_owner_ddl.tube AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = a.tbl)
    LOOP
        IF att.id_col IS NULL THEN
            RETURN QUERY SELECT d.statement FROM tube_private_drop_triggers(att.tube, ARRAY[att.tbl]) AS d;
        ELSE
            RETURN QUERY
            SELECT unnest(tube_private_lacking(att.tbl, n.nspname, tube_private_role('admin')))
            FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = att.tbl;
            RETURN QUERY SELECT d.statement FROM tube_private_trigger_ddl(att) AS d WHERE d.does = 'drop';
        END IF;
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_owner_ddl(text) FROM PUBLIC;
