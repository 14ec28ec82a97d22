-- tube_private_concerned: the attachments that a statement of DDL may have to do with.
--
-- Others are none of its business, whatever state they are in: whoever runs DDL waits for no lock on tables
-- of others, and gets no error about them.
--
-- Arguments: rels: the relations that it made, changed or dropped; schemas: likewise.
-- Result: attachments of these tables, of such as they are or were a part of, of such as have become a part
--   of them, and of such as are in these schemas.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_concerned(rels oid[], schemas oid[])
RETURNS SETOF :"schema".tube_attachment
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN QUERY
    WITH RECURSIVE up (rel) AS (
        SELECT unnest(rels)
        UNION
        SELECT i.inhparent FROM up JOIN pg_inherits AS i ON i.inhrelid = up.rel
    )
    SELECT a.* FROM tube_attachment AS a
    WHERE a.tbl IN (SELECT up.rel FROM up) OR a.members && rels
        OR EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhrelid = a.tbl AND i.inhparent = ANY (rels))
        OR a.tbl IN (SELECT c.oid FROM pg_class AS c WHERE c.relnamespace = ANY (schemas));
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_concerned(oid[], oid[]) FROM PUBLIC;

-- tube_private_note_drops: an event trigger that writes down which attachments concern what a statement dropped.
--
-- What is dropped can be asked for at this event only; tube_private_plan_ddl reads it a moment later.
--
-- Result: none.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_note_drops() RETURNS event_trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    IF current_setting('pytube.own_ddl', true) = 'on' THEN
        RETURN;
    END IF;
    PERFORM set_config('pytube.dropped', (
        SELECT coalesce(jsonb_agg(a.tbl::oid), '[]')::text
        FROM tube_private_concerned(ARRAY(
            SELECT d.objid FROM pg_event_trigger_dropped_objects() AS d
            WHERE d.classid = 'pg_class'::regclass AND NOT d.is_temporary), '{}') AS a), true);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_note_drops() FROM PUBLIC;

-- tube_private_warn_rewrite: an event trigger that says what a rewritten table may call for.
--
-- ALTER COLUMN … TYPE … USING, say, gives all rows other values, and makes no touch. Whether documents changed
-- by it, and are worth a backfill, who runs it knows.
--
-- Result: none; a WARNING for each attachment of the table, once in a transaction.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_warn_rewrite() RETURNS event_trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    warned jsonb := coalesce(nullif(current_setting('pytube.rewritten', true), ''), '[]')::jsonb;
    att tube_attachment;
    key text;
BEGIN
    -- 2 and 4: a default that is no constant, and another type; else the rows stay what they were.
    IF pg_event_trigger_table_rewrite_reason() & 6 = 0 THEN
        RETURN;
    END IF;
    FOR att IN SELECT * FROM tube_private_concerned(ARRAY[pg_event_trigger_table_rewrite_oid()], '{}') LOOP
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
REVOKE ALL ON FUNCTION :"schema".tube_private_warn_rewrite() FROM PUBLIC;
