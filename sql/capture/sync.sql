-- How an attachment comes to be as it is to be: when it is made (attach.sql), whenever its table has changed (tube_sync), and with
-- another predicate or version of pytube. Each of these takes three steps:
--
--   tube_private_begin_attach, tube_private_begin_sync
--                                with pytube's rights: locks, says how it is to be, and makes pytube's objects for it
--   tube_private_bring_in_line   with the rights of the caller: an owner runs the statements that are missing
--   tube_private_store           with pytube's: sees that none is missing, and stores it
--
-- If the caller does not own the table, a worker say, only pytube's objects follow. Event triggers take the steps that can't
-- wait, and wake the workers, who call tube_sync.

-- Tables and columns that were renamed, moved or dropped; partitions that came or went; triggers that were
-- dropped; tables with another owner; a database that was restored. Workers call this twice a minute, and at once when
-- an event trigger of pytube has seen DDL; a migration may do so within its transaction.
--
-- Statements that need an owner's rights run with the caller's, if it is an owner. For others, such as a worker, a
-- WARNING names them. Until they are run, writes that can't be captured ask for a backfill. A function that is
-- not the present owner's is dropped, whoever calls; a backfill follows when the table is captured again.
-- Result: how many attached tables were brought up to date. A table that could not be gets a WARNING, and stays as it
-- was.
-- Locks: of tables that need it, as tube_table_ensure_attached, and the registry rows of their tubes; until the
--   transaction ends.
CREATE OR REPLACE FUNCTION :"schema".tube_sync() RETURNS integer
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    att tube_attachment;
    done integer := 0;
    hint text;
BEGIN
    FOR att IN SELECT s.* FROM tube_private_stale_attachments() AS s LOOP
        BEGIN
            att := tube_private_begin_sync(att.tube, att.tbl);
            IF att.tube IS NOT NULL THEN
                PERFORM tube_private_bring_in_line(att, true);
            END IF;
            done := done + 1;
        EXCEPTION WHEN OTHERS THEN
            -- One table's trouble must not stop the others.
            GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
            RAISE WARNING USING MESSAGE = format('%s is not followed by tube %L: %s', att.tbl, att.tube, SQLERRM), HINT = hint;
        END;
    END LOOP;
    RETURN done;
END
$$;
COMMENT ON FUNCTION :"schema".tube_sync() IS
    'Adapts attached tables to DDL, and returns how many. Workers call it twice a minute. WARNINGs name work left '
    'for a table''s owner.';

-- tube_private_attachment_now: a stored attachment as it is to be now; NULL when the table is gone, or can't stay attached: no
-- column holds its keys any more, or it has become a part of something, so that writes by another name are not seen.
-- A column is what its name says; where none has that name any more, the column that had it when the attachment was stored,
-- or, in a restored table, none. Where two would be one by that, as a and b once a is x and b is a, the numbers of columns
-- count instead of names.
CREATE OR REPLACE FUNCTION :"schema".tube_private_attachment_now(att :"schema".tube_attachment) RETURNS :"schema".tube_attachment
LANGUAGE plpgsql AS $$
DECLARE
    width CONSTANT integer := cardinality(att.keys);
    names name[];
    seen name[];
BEGIN
    SELECT array_agg(coalesce(same.attname, moved.attname) ORDER BY s.place),
        array_agg(coalesce(moved.attname, same.attname) ORDER BY s.place)
    INTO names, seen
    FROM unnest(att.keys || att.columns) WITH ORDINALITY AS s (name, place)
    LEFT JOIN pg_attribute AS same ON same.attrelid = att.tbl AND same.attname = s.name AND same.attnum > 0
    LEFT JOIN pg_attribute AS moved ON moved.attrelid = att.tbl AND att.tbl::oid = ANY (att.members) AND NOT moved.attisdropped
        AND moved.attnum = (att.seen -> (s.place::integer - 1) ->> 'attnum')::smallint;
    names := tube_private_each_once(names[:width], seen[:width]) || tube_private_each_once(names[width + 1:], seen[width + 1:]);
    IF att.tube IS NULL OR tube_private_table_fault(att.tbl) IS NOT NULL
        OR (SELECT count(DISTINCT n) FROM unnest(names[:width]) AS n) < width -- of two, one was dropped, and the other has its name
        OR (tube_private_key_fault(att.tbl, names[:width], tube_private_key_type(att.tube))).fault IS NOT NULL
    THEN
        RETURN NULL;
    END IF;
    att.keys := names[:width];
    att.columns := (SELECT array_agg(c.name ORDER BY c.place) FROM (
        SELECT n.name, min(n.place) AS place FROM unnest(names[width + 1:]) WITH ORDINALITY AS n (name, place)
        WHERE n.name IS NOT NULL GROUP BY n.name) AS c);
    IF EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = att.tbl AND a.attname = ANY (att.columns) AND a.attgenerated = 'v') THEN
        att.columns := NULL; -- a change of a virtual generated column can't be seen: any UPDATE counts
    END IF;
    att.row_filter := (tube_private_require(att.tube)).predicate;
    RETURN tube_private_complete(att);
END
$$;

-- tube_private_each_once: these names, or others instead where one stands among them twice.
CREATE OR REPLACE FUNCTION :"schema".tube_private_each_once(names name[], others name[]) RETURNS name[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN count(n) > count(DISTINCT n) THEN others ELSE names END FROM unnest(names) AS n
$$;

-- tube_private_follow_columns: stores the names that an attachment's columns have now. A worker reads by them.
-- Result: as of tube_private_attachment_now; NULL when there is none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_follow_columns(tube text, tbl regclass) RETURNS :"schema".tube_attachment
LANGUAGE plpgsql AS $$
DECLARE
    att tube_attachment;
    now tube_attachment;
BEGIN
    SELECT a.* INTO att FROM tube_attachment AS a WHERE a.tube = $1 AND a.tbl = $2 FOR NO KEY UPDATE;
    now := tube_private_attachment_now(att);
    IF now.tube IS NOT NULL AND (now.keys, now.columns, now.seen) IS DISTINCT FROM (att.keys, att.columns, att.seen) THEN
        UPDATE tube_attachment AS a SET keys = now.keys, columns = now.columns, seen = now.seen WHERE a.tube = $1 AND a.tbl = $2;
        PERFORM tube_private_follow_key(att, now);
    END IF;
    RETURN now;
END
$$;

-- tube_private_follow_key: asks for a backfill where a part of an attachment's key is to be the same as before, by its name or its
-- column, and not all of it is there: another column has the name, the column another type, or its enum other labels.
-- Labels that have come change nothing.
CREATE OR REPLACE FUNCTION :"schema".tube_private_follow_key(was :"schema".tube_attachment, now :"schema".tube_attachment) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tube_registry AS r SET version = r.version + 1 WHERE r.tube = now.tube AND (now.keys, now.seen) <> (was.keys, was.seen);
    PERFORM tube_private_ask_backfill(now, format('its key %s has another column, type or label now', tube_private_key_label(now)))
    WHERE now.tbl::oid = ANY (was.members) AND cardinality(now.keys) = cardinality(was.keys) AND EXISTS (
        SELECT FROM unnest(was.keys, now.keys) WITH ORDINALITY AS k (former, name, place),
            LATERAL (VALUES (was.seen -> (k.place::integer - 1), now.seen -> (k.place::integer - 1))) AS s (former, there)
        WHERE NOT s.there @> s.former AND (k.name = k.former OR s.there -> 'attnum' = s.former -> 'attnum'));
END
$$;

-- tube_private_complete: an attachment with the values that no caller gives: its place, its names, and the state of its columns.
CREATE OR REPLACE FUNCTION :"schema".tube_private_complete(att :"schema".tube_attachment) RETURNS :"schema".tube_attachment
LANGUAGE plpgsql AS $$
DECLARE
    stored CONSTANT tube_attachment := (SELECT a FROM tube_attachment AS a WHERE a.tube = att.tube AND a.tbl = att.tbl);
BEGIN
    att.position := CASE WHEN (stored.shard, stored.shards) = (att.shard, att.shards) THEN stored.position END; -- in others it is the last
    att.trigger_function := coalesce(stored.trigger_function, tube_private_capture_name(att.tube, att.tbl));
    att.touch_name := coalesce(stored.touch_name, tube_private_touch_name(att));
    att.seen := (
        SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object('attnum', a.attnum, 'type', c.type, 'labels', (
            SELECT jsonb_object_agg(e.oid, e.enumlabel) FROM pg_enum AS e
            WHERE e.enumtypid = a.atttypid AND c.place <= cardinality(att.keys)))) ORDER BY c.place)
        FROM unnest(att.keys || att.columns, CASE WHEN cardinality(att.keys) > 1 THEN tube_key_types(att.tbl, att.keys) END)
            WITH ORDINALITY AS c (name, type, place)
        LEFT JOIN pg_attribute AS a ON a.attrelid = att.tbl AND a.attname = c.name AND a.attnum > 0);
    RETURN att;
END
$$;

-- tube_private_stale_attachments: the attachments that are not as they are to be.
CREATE OR REPLACE FUNCTION :"schema".tube_private_stale_attachments() RETURNS SETOF :"schema".tube_attachment
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT a.* FROM tube_attachment AS a, tube_private_attachment_now(a) AS now
    WHERE now IS DISTINCT FROM a
        OR a.waiting IS NOT NULL
        OR a.members IS DISTINCT FROM tube_private_member_oids(a.tbl)
        OR EXISTS (SELECT FROM tube_private_owner_ddl(now, false))
        OR EXISTS (SELECT FROM tube_private_our_ddl(now))
    ORDER BY a.tube, a.position
$$;

-- tube_private_begin_sync: an attachment as it is to be now, locked, with pytube's objects for it; forgets one whose
-- table can't stay attached.
-- Result: NULL when there is none any more; a WARNING says why.
-- Locks: the registry row, and the attachment.
CREATE OR REPLACE FUNCTION :"schema".tube_private_begin_sync(tube text, tbl regclass) RETURNS :"schema".tube_attachment
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    att tube_attachment;
    now tube_attachment;
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = $1 FOR NO KEY UPDATE;
    PERFORM tube_private_prune(tube);
    now := tube_private_follow_columns(tube, tbl);
    IF now.tube IS NOT NULL THEN
        PERFORM tube_private_close_capture();
        PERFORM tube_private_provide(now);
        RETURN now;
    END IF;
    SELECT a.* INTO att FROM tube_attachment AS a WHERE a.tube = $1 AND a.tbl = $2;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM tube_private_forget(att.tube, ARRAY[att.tbl]);
    RAISE WARNING USING
        MESSAGE = format('%s is detached from tube %L: %s', att.tbl, att.tube,
            coalesce(tube_private_table_fault(att.tbl), format('its key %s was dropped, or has another type', tube_private_key_label(att)))),
        HINT = CASE WHEN tube_private_table_fault(att.tbl) IS NULL THEN 'Attach it again by another column: id_col => COLUMN, or several: key_cols => COLUMNS.'
            ELSE 'Attach the partitioned table as a whole, and backfill it.' END;
    RETURN NULL;
END
$$;

-- tube_private_bring_in_line: makes an attachment as it is to be, with the rights of the caller.
-- Arguments: late: some time after DDL: what an owner has to do is a WARNING then, and an impossible step for a partition keeps
--   nothing else. Otherwise an impossible step is an error.
-- Errors: 42501 the caller does not own the table, and an owner has to do something; 55P03 a lock could not be had;
--   TU105 the predicate does not fit.
-- Locks: a table without its triggers: SHARE ROW EXCLUSIVE; a table with too many: ACCESS EXCLUSIVE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_bring_in_line(att :"schema".tube_attachment, late boolean) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    is_owner CONSTANT boolean := (SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class AS c WHERE c.oid = att.tbl);
    missing record;
    refused regclass[] := '{}';
BEGIN
    IF is_owner AND NOT (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = current_user) THEN
        PERFORM tube_private_open_capture(att.tbl);
    END IF;
    IF is_owner AND att.row_filter IS NOT NULL AND EXISTS (SELECT FROM tube_private_owner_ddl(att, true)) THEN
        BEGIN
            PERFORM tube_private_try_predicate(att);
        EXCEPTION WHEN SQLSTATE 'TU105' THEN
            IF NOT late THEN
                RAISE;
            END IF;
            RAISE WARNING USING MESSAGE = SQLERRM,
                DETAIL = format('Until it fits again, writes of %s ask for a backfill, which waits, and workers can''t read its rows.', att.tbl),
                HINT = 'Give the tube another one: tube_ensure_exists, predicate => SQL.';
            PERFORM tube_private_close_capture();
            RETURN;
        END;
    END IF;
    -- Partitions may be made until the locks are there, so it looks again until none is new.
    FOR look IN 1..20 LOOP
        EXIT WHEN NOT is_owner;
        FOR missing IN
            SELECT p.part, array_agg(d.statement ORDER BY d.place) AS statements
            FROM tube_private_owner_ddl(att, true) WITH ORDINALITY AS d (statement, rel, place)
            CROSS JOIN LATERAL (SELECT CASE WHEN late AND d.rel <> att.tbl THEN d.rel END AS part) AS p
            WHERE (p.part = ANY (refused)) IS NOT TRUE GROUP BY p.part ORDER BY p.part NULLS FIRST
        LOOP
            BEGIN
                PERFORM tube_private_patiently(ARRAY[format('SELECT tube_private_run_owner_ddl(%L)', missing.statements)],
                    format('%s is attached to tube %L', att.tbl, att.tube),
                    CASE WHEN NOT late THEN 100 WHEN missing.part IS NULL THEN 20 ELSE 1 END);
            EXCEPTION WHEN OTHERS THEN
                IF missing.part IS NULL THEN
                    RAISE;
                END IF;
                -- Another role may own it, have taken the names that triggers need, or hold its lock.
                refused := refused || missing.part;
                RAISE WARNING 'the part % of % is not followed by tube %: %', missing.part, att.tbl, quote_literal(att.tube), SQLERRM;
            END;
        END LOOP;
        EXIT WHEN NOT FOUND;
    END LOOP;
    PERFORM tube_private_store(att, late);
END
$$;

-- tube_private_run_owner_ddl: runs statements of tube_private_owner_ddl with settings by which literals mean what
-- they say.
CREATE OR REPLACE FUNCTION :"schema".tube_private_run_owner_ddl(statements text[]) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
SET datestyle = 'ISO'
SET intervalstyle = 'iso_8601'
SET quote_all_identifiers = off
SET client_min_messages = warning
AS $$
DECLARE
    statement text;
BEGIN
    FOREACH statement IN ARRAY statements LOOP
        EXECUTE statement;
    END LOOP;
END
$$;

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
        FROM pg_class AS c JOIN pg_proc AS p ON p.oid = to_regprocedure(tube_private_function(att, 'capture') || '()')
        WHERE c.oid = att.tbl;
        BEGIN
            PERFORM tube_private_drop_unbound(att) WHERE att.row_filter IS NOT NULL AND att.tbl = ANY (rels);
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'pytube follows this change later, by tube_sync: %', SQLERRM; -- anybody's view may use one
        END;
        BEGIN
            PERFORM tube_private_drop_routines(att, tube_private_owner_of(att.tbl)) WHERE NOT capture.is_owners;
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'pytube follows this change later, by tube_sync: %', SQLERRM;
        END;
        IF capture.is_owners AND capture.relkind = 'p' AND capture.prosecdef THEN
            SELECT statements || array_agg(t.statement), array_agg(t.rel::oid) FILTER (WHERE tube_private_is_fresh(t.rel))
            INTO statements, come
            FROM tube_private_trigger_ddl(att) AS t
            WHERE t.rel <> att.tbl AND (t.rel::oid <> ALL (att.members) OR t.rel::oid = ANY (att.waiting) AND t.rel::oid = ANY (rels))
                AND t.statement !~ '^DROP ';
            -- Partitions with triggers since they were made, and never a row, can't have missed changes. Where
            -- the triggers can't be made, this is rolled back, too.
            UPDATE tube_attachment AS a SET members = ARRAY(SELECT DISTINCT m FROM unnest(a.members || come) AS m ORDER BY m)
            WHERE a.tube = att.tube AND a.tbl = att.tbl AND come IS NOT NULL;
        END IF;
    END LOOP;
    RETURN statements;
END
$$;

-- tube_private_drop_unbound: drops predicates of an attachment that are bound to other types than its columns have by now.
-- Writes can't call them any more, and whoever gave a column another type may want to drop the former one, an enum, at once.
-- Nothing else: while an attachment is changed, DDL of its owner's statements comes here before the change is stored.
CREATE OR REPLACE FUNCTION :"schema".tube_private_drop_unbound(att :"schema".tube_attachment) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    bound CONSTANT text := (SELECT coalesce(string_agg(c.bound::text, ' ' ORDER BY c.attnum), '')
        FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c);
    former text;
BEGIN
    FOR former IN
        SELECT min(r.name) FROM tube_private_routines(att) AS r JOIN pg_proc AS p ON p.oid = r.routine
        WHERE p.proname <> att.trigger_function
        GROUP BY p.proname HAVING count(*) = 1 AND min(p.proargtypes::text) <> bound -- of several, the next look drops some
    LOOP
        EXECUTE format('DROP ROUTINE %s', former);
    END LOOP;
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
