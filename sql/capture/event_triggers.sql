-- Event triggers wake the workers' tube_sync when DDL may concern an attached table; they change nothing, and call
-- nothing of anybody's. Where there are none, workers look twice a minute. So they do for what is dropped: with a
-- trigger on drops, Postgres looks up each object that anybody drops, which doubles the cost of a temporary table.

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
