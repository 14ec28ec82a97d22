-- Event triggers wake the workers' tube_sync when DDL may concern an attached table; they call nothing of anybody's, and
-- change nothing unless a table gets another owner. Where there are none, workers look twice a minute. So they do for
-- what is dropped: with a trigger on drops, Postgres looks up each object that anybody drops, which doubles the cost of
-- a temporary table.

-- tube_private_see_ddl: an event trigger that wakes the workers after DDL on an attached table or a part of one.
--
-- A NOTIFY would keep a transaction from being prepared: see tube_wakes.
--
-- Locks: none until the commit.
CREATE OR REPLACE FUNCTION :"schema".tube_private_see_ddl() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    rels oid[];
BEGIN
    -- Of a new table just its parent can be ours; to ask what was made costs more than to see that we have none.
    IF tg_tag <> 'ALTER TABLE' AND NOT EXISTS (
        SELECT FROM tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl WHERE c.relkind = 'p')
    THEN
        RETURN;
    END IF;
    rels := ARRAY(
        SELECT d.objid FROM pg_event_trigger_ddl_commands() AS d
        WHERE d.classid = 'pg_class'::regclass AND d.schema_name <> 'pg_temp');
    IF rels <> '{}' AND tube_wakes() THEN
        PERFORM pg_notify(tube_channel(a.tube), 'ddl') FROM tube_attachment AS a
        WHERE a.tbl = ANY (rels) OR a.members && rels
            OR a.members && ARRAY(SELECT i.inhparent FROM pg_inherits AS i WHERE i.inhrelid = ANY (rels));
    END IF;
END
$$;

-- tube_private_see_rewrite: an event trigger that says what a rewritten table may call for.
--
-- ALTER COLUMN … TYPE … USING, say, gives all rows other values, and makes no touch. Whether documents changed
-- by it, and are worth a backfill, who runs it knows.
--
-- Result: none; a WARNING for each attachment of the table, once in a transaction.
CREATE OR REPLACE FUNCTION :"schema".tube_private_see_rewrite() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    rewritten CONSTANT oid := pg_event_trigger_table_rewrite_oid();
    warned jsonb := coalesce(nullif(current_setting('pytube.rewritten', true), ''), '[]')::jsonb;
    att tube_attachment;
    key text;
BEGIN
    -- 2 and 4: a default that is no constant, and another type; else the rows stay what they were.
    IF pg_event_trigger_table_rewrite_reason() & 6 = 0 THEN
        RETURN;
    END IF;
    FOR att IN SELECT a.* FROM tube_attachment AS a WHERE a.tbl = rewritten OR rewritten = ANY (a.members) LOOP
        key := format('%s of %s', att.tbl::oid, att.tube);
        CONTINUE WHEN warned ? key;
        warned := warned || to_jsonb(key);
        RAISE WARNING USING
            MESSAGE = format('all rows of %s are rewritten, and tube %L is told of none', att.tbl, att.tube),
            HINT = format('If documents have changed by it, backfill them afterwards: '
                'pytube backfill start --tube %s --table %s', quote_ident(att.tube), att.tbl);
    END LOOP;
    PERFORM set_config('pytube.rewritten', warned::text, true);
END
$$;

-- tube_private_see_owner: an event trigger that gives the functions of an attached table to its new owner.
--
-- As long as they belong to the old owner, the new one can have them evaluate code with the old one's rights. No worker
-- could give them away; but whoever runs ALTER TABLE … OWNER TO has all the rights that it takes, so this runs with
-- theirs.
--
-- Result: none; a WARNING where it could not be done. It never fails the ALTER TABLE.
-- Locks: the functions, until the transaction ends; of the table none that ALTER TABLE does not hold.
CREATE OR REPLACE FUNCTION :"schema".tube_private_see_owner() RETURNS event_trigger
LANGUAGE plpgsql SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
SET standard_conforming_strings = on
SET datestyle = 'ISO'
SET intervalstyle = 'iso_8601'
AS $$
DECLARE
    rels CONSTANT oid[] := ARRAY(SELECT d.objid FROM pg_event_trigger_ddl_commands() AS d WHERE d.classid = 'pg_class'::regclass);
    statement text;
BEGIN
    -- Owners of attached tables may use our schema. Who may not has none to give away.
    IF to_regprocedure('tube_private_handed_over(oid[], name)') IS NULL THEN
        RETURN;
    END IF;
    FOR statement IN SELECT h FROM tube_private_handed_over(rels, current_user) AS h LOOP
        EXECUTE statement;
    END LOOP;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING USING
        MESSAGE = format('functions of pytube keep the rights of the old owner of %s: %s',
            (SELECT string_agg(r::regclass::text, ', ') FROM unnest(rels) AS r), SQLERRM),
        HINT = 'Call tube_sync() in this transaction, as a role that has the rights of both owners.';
END
$$;

-- tube_private_handed_over: the statements that give the functions of attached tables to their owners of now.
--
-- It grants the new owners what they need of us, first.
--
-- Arguments: rels: tables, attached or not; caller: who is to run the statements. {table}_touch, which has no rights of
--   its own, is left to tube_sync where the caller may not create in its schema.
-- Result: none for tables whose functions are their owner's.
CREATE OR REPLACE FUNCTION :"schema".tube_private_handed_over(rels oid[], caller name) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    att tube_attachment;
BEGIN
    FOR att IN
        SELECT a.* FROM tube_attachment AS a
        JOIN pg_class AS c ON c.oid = a.tbl
        JOIN pg_proc AS p ON p.proname = a.trigger_function AND p.pronamespace = to_regnamespace(quote_ident(tube_private_capture_schema()))
        WHERE a.tbl = ANY (rels) AND p.proowner <> c.relowner
    LOOP
        att := tube_private_attachment_now(att);
        CONTINUE WHEN att.tube IS NULL; -- it can't stay attached
        PERFORM tube_private_provide(att);
        RETURN QUERY SELECT d FROM tube_private_owner_functions_ddl(att) AS d;
        RETURN QUERY SELECT d FROM pg_class AS c, tube_private_touch_ddl(att) AS d
        WHERE c.oid = att.tbl AND has_schema_privilege(caller, c.relnamespace, 'CREATE');
    END LOOP;
END
$$;
