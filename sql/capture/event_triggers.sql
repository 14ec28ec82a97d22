-- Event triggers follow at once changes that can't wait for a worker's tube_sync, and wake it for the rest. They call no
-- function of other roles, and never fail another role's DDL. Without them, workers look twice a minute, as they do for
-- drops: with a trigger on drops, Postgres looks up each object that any role drops, which doubles the cost of a temporary
-- table.

-- tube_private_follow_ddl: an event trigger that looks at DDL on attached tables and parts of them.
-- New partitions get their triggers, in the same transaction, with the rights of whoever runs the DDL: they own the
-- partition. Of a table that changed hands the functions of its owner before are dropped.
CREATE OR REPLACE FUNCTION :"schema".tube_private_follow_ddl() RETURNS event_trigger
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    statement text;
BEGIN
    FOREACH statement IN ARRAY coalesce(tube_private_see_ddl(tg_tag), '{}') LOOP
        EXECUTE statement;
    END LOOP;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'pytube follows this change later, by tube_sync: %', SQLERRM;
END
$$;

-- tube_private_see_ddl: wakes the workers where DDL concerns attached tables; what whoever runs it has to do.
-- A NOTIFY would keep a transaction from being prepared: see tube_wakes.
-- Result: NULL for nothing, as for almost all DDL.
-- Locks: that of the attachment's row, where partitions come.
CREATE OR REPLACE FUNCTION :"schema".tube_private_see_ddl(tag text) RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET quote_all_identifiers = off AS $$
DECLARE
    rels oid[];
    att tube_attachment;
    capture record;
    statements text[];
    come oid[];
BEGIN
    -- Of a new table just its parent can be attached; looking up the new object costs more than seeing that no table is.
    IF tag <> 'ALTER TABLE' AND NOT EXISTS (
        SELECT FROM tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl WHERE c.relkind = 'p')
    THEN
        RETURN NULL;
    END IF;
    rels := ARRAY(
        SELECT d.objid FROM pg_event_trigger_ddl_commands() AS d
        WHERE d.classid = 'pg_class'::regclass AND d.schema_name <> 'pg_temp');
    FOR att IN
        SELECT a.* FROM tube_attachment AS a
        WHERE rels <> '{}' AND (a.tbl = ANY (rels) OR a.members && rels
            OR a.members && ARRAY(SELECT i.inhparent FROM pg_inherits AS i WHERE i.inhrelid = ANY (rels)))
    LOOP
        IF tube_wakes() AND tube_private_may_notify() THEN
            PERFORM pg_notify(tube_channel(att.tube), 'ddl');
        END IF;
        SELECT c.relkind, p.proowner = c.relowner AS is_owners, p.prosecdef INTO capture
        FROM pg_class AS c JOIN pg_proc AS p ON p.oid = att.captured_by WHERE c.oid = att.tbl;
        IF NOT capture.is_owners THEN
            BEGIN
                PERFORM tube_private_drop_strangers(att.tube, att.tbl);
            EXCEPTION WHEN OTHERS THEN
                RAISE WARNING 'pytube follows this change later, by tube_sync: %', SQLERRM;
            END;
        ELSIF capture.relkind = 'p' AND capture.prosecdef THEN
            SELECT statements || array_agg(t.statement), array_agg(t.rel::oid) FILTER (
                WHERE tube_private_is_fresh(t.rel) AND (SELECT k.relkind = 'r' FROM pg_class AS k WHERE k.oid = t.rel))
            INTO statements, come
            FROM tube_private_trigger_ddl(att) AS t
            WHERE t.rel <> att.tbl AND t.rel::oid <> ALL (att.members) AND t.statement !~ '^DROP ';
            -- Partitions with triggers since they were made, and never a row, can't have missed changes. Where
            -- the triggers can't be made, this is rolled back, too.
            UPDATE tube_attachment AS a SET members = ARRAY(SELECT DISTINCT m FROM unnest(a.members || come) AS m ORDER BY m)
            WHERE a.tube = att.tube AND a.tbl = att.tbl AND come IS NOT NULL;
        END IF;
    END LOOP;
    RETURN statements;
END
$$;

-- tube_private_drop_strangers: drops the functions of an attachment that are not the owner's of its table.
-- Not for everybody: whoever calls it holds the lock of the table until their transaction ends.
-- Result: nothing; a WARNING says what the owner has to do.
CREATE OR REPLACE FUNCTION :"schema".tube_private_drop_strangers(tube text, tbl oid) RETURNS void
LANGUAGE plpgsql SET quote_all_identifiers = off AS $$
DECLARE
    att CONSTANT tube_attachment := (SELECT a FROM tube_attachment AS a WHERE a.tube = $1 AND a.tbl = $2);
BEGIN
    PERFORM tube_private_drop_routines(att, tube_private_owner_of(att.tbl));
    RAISE WARNING USING
        MESSAGE = format('%s has another owner, and tube %L does not capture its writes until they agree', att.tbl, tube),
        HINT = format('Run as %s: SELECT %I.tube_sync();', tube_private_owner_of(att.tbl), tube_private_schema());
END
$$;

-- tube_private_see_rewrite: an event trigger that says what a rewritten table may call for.
-- ALTER COLUMN ... TYPE ... USING, say, gives all rows other values, and makes no touch. Whether documents changed
-- by it, and are worth a backfill, who runs it knows.
-- Result: none; a WARNING for each attachment of the table, once in a transaction.
CREATE OR REPLACE FUNCTION :"schema".tube_private_see_rewrite() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    rewritten CONSTANT oid := pg_event_trigger_table_rewrite_oid();
    warned jsonb;
    att tube_attachment;
    key text;
BEGIN
    -- 2 and 4: a default that is not a constant, and another type; else the rows stay as they were.
    IF pg_event_trigger_table_rewrite_reason() & 6 = 0 THEN
        RETURN;
    END IF;
    warned := coalesce(nullif(current_setting('pytube.rewritten', true), ''), '[]'); -- anybody may have set it to anything
    FOR att IN SELECT a.* FROM tube_attachment AS a WHERE a.tbl = rewritten OR rewritten = ANY (a.members) LOOP
        key := format('%s of %s', att.tbl::oid, att.tube);
        CONTINUE WHEN warned ? key;
        warned := warned || to_jsonb(key);
        RAISE WARNING USING
            MESSAGE = format('all rows of %s are rewritten, without touches in tube %L', att.tbl, att.tube),
            HINT = format('If that changes documents, backfill them afterwards: '
                'pytube backfill start --tube %s --table %s', quote_ident(att.tube), att.tbl);
    END LOOP;
    PERFORM set_config('pytube.rewritten', warned::text, true);
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'pytube can''t say whether this change calls for a backfill: %', SQLERRM;
END
$$;
