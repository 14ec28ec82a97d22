-- What an attachment is made of, and whose it is:
--
--   capture  the function of the triggers; the table's owner's
--   passes   the predicate as a function, bound when it was made, which capture inlines; the table's owner's
--   door     a view of the tube, pytube's: capture inserts a pod of one id through it; its check option has all that such
--            a pod must satisfy, also if it is written manually
--   put      puts typed ids into the tube; pytube's
--
-- Only the table's owner may use door and put. Their names hold the shards that they are for, and by which part of a key: so a function that was made
-- for other shards never meets them, and their effect on another role's table can't be changed.
--
-- capture and passes are in a separate schema, in which owners may create only while they attach or follow.

-- tube_private_function: an object of an attachment by its kind, quoted and with its schema.
-- That of a predicate has a digest of it and of its columns: a statement that is under way still calls the one before.
CREATE OR REPLACE FUNCTION :"schema".tube_private_function(att :"schema".tube_attachment, kind text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    stem CONSTANT text := regexp_replace(att.trigger_function, '_capture_[0-9a-f]{8}$', '');
    ending CONSTANT text := '_' || kind || right(att.trigger_function, 9);
BEGIN
    RETURN CASE
        WHEN kind = 'capture' THEN format('%I.%I', tube_private_capture_schema(), att.trigger_function)
        WHEN kind = 'passes' THEN format('%I.%I', tube_private_capture_schema(), tube_private_name(stem, ending || '_' || left(md5(coalesce(att.row_filter, '') || (
            SELECT coalesce(array_agg(concat(c.bound::regtype, ' ', c.name)), '{}')::text
            FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c)), 12)))
        ELSE format('%I.%I', tube_private_schema(),
            tube_private_name(stem, concat_ws('_', ending, att.shard, att.shards, att.shard_place)))
    END;
END
$$;

-- tube_private_capture_name: the name of the trigger function of a tube and a table; another one for each pair.
-- All objects of an attachment are found by the digest at its end, so it is none that another attachment has: whoever may
-- name tubes could look for a name that gives a wanted one.
CREATE OR REPLACE FUNCTION :"schema".tube_private_capture_name(tube text, tbl regclass) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT tube_private_name(tube || '_' || c.relname, '_capture_' || d.digest)
    FROM pg_class AS c, generate_series(0, 9) AS n, left(md5(concat_ws(' ', tube, tbl::oid, nullif(n, 0))), 8) AS d (digest)
    WHERE c.oid = tbl AND NOT EXISTS (SELECT FROM tube_attachment AS a
        WHERE d.digest IN (right(a.trigger_function, 8), right(a.touch_name, 8)) AND (a.tube, a.tbl) <> ($1, $2))
    ORDER BY n LIMIT 1
$$;

-- tube_private_owner_of: who owns a table; NULL when it is gone.
CREATE OR REPLACE FUNCTION :"schema".tube_private_owner_of(tbl regclass) RETURNS regrole
LANGUAGE sql STABLE AS $$ SELECT c.relowner::regrole FROM pg_class AS c WHERE c.oid = tbl $$;

-- tube_private_is_root: whether an attached table is the first of its shards.
CREATE OR REPLACE FUNCTION :"schema".tube_private_is_root(att :"schema".tube_attachment) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT NOT EXISTS (
        SELECT FROM tube_attachment AS a
        WHERE a.tube = att.tube AND a.shard = att.shard AND a.tbl <> att.tbl
            AND (att.position IS NULL OR a.position < att.position))
$$;

-- tube_private_routines: the functions in the owners' schema with the names of an attachment's, whoever owns them.
-- Result: name: quoted, with its schema; signature: with the types of its arguments. Of predicates there may be several.
CREATE OR REPLACE FUNCTION :"schema".tube_private_routines(att :"schema".tube_attachment)
RETURNS TABLE (routine oid, name text, signature text)
LANGUAGE sql STABLE AS $$
    SELECT p.oid, format('%I.%I', tube_private_capture_schema(), p.proname), (pg_identify_object('pg_proc'::regclass, p.oid, 0)).identity
    FROM pg_proc AS p
    WHERE p.pronamespace = (SELECT to_regnamespace(quote_ident(tube_private_capture_schema())))
        AND (p.proname = att.trigger_function OR p.proname ~ ('_passes' || right(att.trigger_function, 9) || '_[0-9a-f]{12}$'))
$$;

-- tube_private_drop_routines: drops the functions of an attachment that are not the table's owner's, and the triggers with
-- them; with a NULL owner, of a table that is detached, all.
-- A former owner could give them another body, and other rights. The owner of a schema may drop its objects.
-- No role is granted it: the caller holds the lock of the table until the transaction ends.
-- Result: nothing; a WARNING says what the owner has to do.
-- Locks: the table ACCESS EXCLUSIVE, where there is something to drop; had within attempts of 100 ms.
CREATE OR REPLACE FUNCTION :"schema".tube_private_drop_routines(att :"schema".tube_attachment, owner regrole) RETURNS void
LANGUAGE plpgsql SET client_min_messages = warning AS $$ -- for each trigger there would be a NOTICE
DECLARE
    statements text[] := ARRAY(
        -- By its name alone where that will do: of an enum in its arguments we may not look into the schema.
        SELECT format('DROP ROUTINE %s CASCADE', CASE (SELECT count(*) FROM tube_private_routines(att) AS o WHERE o.name = r.name) WHEN 1 THEN r.name
            ELSE r.signature END)
        FROM tube_private_routines(att) AS r JOIN pg_proc AS p ON p.oid = r.routine
        WHERE p.proowner IS DISTINCT FROM owner::oid ORDER BY p.proname);
BEGIN
    IF statements = '{}' THEN
        RETURN;
    END IF;
    PERFORM tube_private_patiently(statements, format('functions for %s that are not its owner''s are dropped', att.tbl), 20);
    IF owner IS NOT NULL THEN
        RAISE WARNING USING
            MESSAGE = format('%s has another owner, and tube %L does not capture its writes until they agree', att.tbl, att.tube),
            HINT = format('Run as %s: SELECT %I.tube_sync();', owner, tube_private_schema());
    END IF;
END
$$;

-- tube_private_drop_former: drops doors, puts and predicates of an attachment that are not as one of `kept` is stored, or is
-- to be. With a NULL digest, of no attachment: an admin may leave some.
-- Arguments: digest: at the end of the name of the attachment's trigger function.
-- The former ones stay until the next look: a running statement may still use them. Locked ones stay, too.
CREATE OR REPLACE FUNCTION :"schema".tube_private_drop_former(digest text, VARIADIC kept :"schema".tube_attachment[]) RETURNS void
LANGUAGE plpgsql SET client_min_messages = warning SET lock_timeout = '50ms' AS $$
DECLARE
    names CONSTANT text[] := ARRAY(SELECT n.name
        FROM unnest(kept) AS a, unnest('{door,put,passes}'::text[]) AS k, tube_private_function(a, k) AS n (name)
        WHERE a.tube IS NOT NULL);
    former text;
BEGIN
    FOR former IN
        SELECT format('DROP %s %s', o.kind, n.name)
        FROM (
            SELECT 'VIEW' AS kind, c.relname AS name, c.relnamespace AS namespace FROM pg_class AS c WHERE c.relkind = 'v'
            UNION ALL
            SELECT 'ROUTINE', p.proname, p.pronamespace FROM pg_proc AS p
        ) AS o,
            format('%s.%I', o.namespace::regnamespace, o.name) AS n (name),
            substring(o.name FROM '_(?:door|put|passes)_([0-9a-f]{8})_(?:[0-9]+_[0-9]+(?:_[0-9])?|[0-9a-f]{12})$') AS d (its)
        WHERE o.namespace IN (to_regnamespace(quote_ident(tube_private_schema())), to_regnamespace(quote_ident(tube_private_capture_schema())))
            AND strpos(o.name, coalesce(digest, '')) > 0 AND n.name <> ALL (names) AND d.its IS NOT NULL
            AND (d.its = digest OR digest IS NULL AND d.its NOT IN (SELECT right(a.trigger_function, 8) FROM tube_attachment AS a))
    LOOP
        BEGIN
            EXECUTE former;
        EXCEPTION WHEN lock_not_available OR dependent_objects_still_exist OR ambiguous_function THEN
            -- At the next look.
        END;
    END LOOP;
END
$$;

-- tube_private_function_ddl: the statements that make a plpgsql function as it is to be, with its owner and who may
-- call it; none when it is so.
-- The definition is written as Postgres writes it, so that one comparison shows whether anything about it was changed.
-- Arguments: name: quoted, with its schema; types: of its arguments; arguments: with names and defaults, as Postgres
--   writes them; path: whether it has a search path.
CREATE OR REPLACE FUNCTION :"schema".tube_private_function_ddl(
    name text, types text, arguments text, returns text, path boolean, body text, owner regrole, callers regrole[]
) RETURNS SETOF text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    signature CONSTANT text := format('%s(%s)', name, types);
    head CONSTANT text := format(E'CREATE OR REPLACE FUNCTION %s(%s)\n RETURNS %s\n', name, arguments, returns);
    quote text := '$function';
    definition text;
    made pg_proc := (SELECT p FROM pg_proc AS p WHERE p.oid = to_regprocedure(signature) AND p.proowner = owner);
    present text := CASE WHEN made.prokind <> 'a' THEN pg_get_functiondef(made.oid) END;
    may regrole[];
BEGIN
    WHILE strpos(body, quote) > 0 LOOP
        quote := quote || 'x';
    END LOOP;
    definition := head || E' LANGUAGE plpgsql\n SECURITY DEFINER\n'
        || CASE WHEN path THEN format(E' SET search_path TO ''pg_catalog'', %L, ''pg_temp''\n', tube_private_schema()) ELSE '' END
        || format(E'AS %1$s$%2$s%1$s$\n', quote, body);
    -- What CREATE OR REPLACE can't change.
    IF made.oid IS NOT NULL AND starts_with(present, head) IS NOT TRUE THEN
        RETURN NEXT format('DROP ROUTINE %s', signature);
        made := NULL;
    END IF;
    IF made.oid IS NULL OR present <> definition THEN
        RETURN NEXT definition;
    END IF;
    IF made.oid IS NULL THEN
        RETURN NEXT format('ALTER FUNCTION %s OWNER TO %s', signature, owner);
    END IF;
    may := ARRAY(SELECT a.grantee::regrole FROM aclexplode(coalesce(made.proacl, acldefault('f', owner))) AS a);
    -- CASCADE: who had it from its owner may have passed it on.
    RETURN QUERY SELECT format('REVOKE ALL ON FUNCTION %s FROM %s CASCADE', signature, tube_private_role_sql(m.who))
    FROM unnest(may) AS m (who) WHERE m.who <> ALL (owner || callers);
    RETURN QUERY SELECT format('GRANT EXECUTE ON FUNCTION %s TO %s', signature, c.who)
    FROM unnest(callers) AS c (who) WHERE c.who <> ALL (may);
END
$$;

-- tube_private_role_sql: a role as GRANT names it.
CREATE OR REPLACE FUNCTION :"schema".tube_private_role_sql(role oid) RETURNS text
LANGUAGE sql STABLE AS $$ SELECT CASE role WHEN 0 THEN 'PUBLIC' ELSE role::regrole::text END $$;

-- tube_private_make_touch: makes or repairs a touch function of pytube.
CREATE OR REPLACE FUNCTION :"schema".tube_private_make_touch(
    name text, types text, arguments text, body text, callers regrole[]
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    statement text;
BEGIN
    -- Default privileges may give a new function to others: so it looks again once it is there.
    FOR look IN 1..2 LOOP
        FOR statement IN SELECT tube_private_function_ddl(
            name, types, arguments, 'void', true, body, quote_ident(current_user)::regrole, array_remove(callers, NULL))
        LOOP
            EXECUTE statement;
        END LOOP;
        EXIT WHEN NOT FOUND;
    END LOOP;
END
$$;

-- tube_private_open_capture: lets the owner of a table create in the schema of the owners' functions, until
-- tube_private_close_capture at the end of the attach, or a rollback. Superusers need none of it.
-- The owner may replace any function there that is theirs. So functions that still fire for a table that they gave away go
-- first. A worker may call this for any table: it helps only an owner who has a door.
-- Locks: of such tables as tube_private_drop_routines; an advisory one, as two grants at once on one schema would fail each other.
CREATE OR REPLACE FUNCTION :"schema".tube_private_open_capture(tbl regclass) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    owner CONSTANT regrole := tube_private_owner_of(tbl);
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
        WHERE c.relnamespace = to_regnamespace(quote_ident(tube_private_schema())) AND c.relkind = 'v'
            AND a.grantee = owner AND a.privilege_type = 'INSERT')
    THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('no table of %s is attached, or about to be', owner), HINT = 'Attach one: tube_table_ensure_attached.';
    END IF;
    PERFORM tube_private_drop_routines(a, c.relowner)
    FROM tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl
    JOIN pg_proc AS p ON p.pronamespace = to_regnamespace(quote_ident(tube_private_capture_schema()))
        AND p.proname = a.trigger_function AND p.pronargs = 0
    WHERE p.proowner <> c.relowner;
    PERFORM pg_advisory_xact_lock(hashtextextended('pytube grant ' || tube_private_schema(), 0));
    EXECUTE format('GRANT CREATE ON SCHEMA %I TO %s', tube_private_capture_schema(), owner);
END
$$;

-- tube_private_close_capture: takes back what tube_private_open_capture gave, to whomever.
CREATE OR REPLACE FUNCTION :"schema".tube_private_close_capture() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    other record;
BEGIN
    FOR other IN
        SELECT a.grantee::regrole AS role FROM pg_namespace AS n CROSS JOIN LATERAL aclexplode(n.nspacl) AS a
        WHERE n.nspname = tube_private_capture_schema() AND a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner
    LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended('pytube grant ' || tube_private_schema(), 0));
        EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM %s CASCADE', tube_private_capture_schema(), tube_private_role_sql(other.role));
    END LOOP;
END
$$;

-- tube_private_provide: makes or repairs pytube's objects for an attachment, with the rights that its owner needs: door
-- and put, and the touch function of the table. Only the table's owner gets anything by it, and only for ids of the table's
-- own shards.
-- Rows written while the owner of a captured table did not have these rights were not captured: a backfill finds them.
-- Arguments: att: as it is stored, or is to be.
CREATE OR REPLACE FUNCTION :"schema".tube_private_provide(att :"schema".tube_attachment) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET quote_all_identifiers = off AS $$
DECLARE
    stored CONSTANT tube_attachment := (SELECT a FROM tube_attachment AS a WHERE a.tube = att.tube AND a.tbl = att.tbl);
    statements text[];
    statement text;
BEGIN
    PERFORM tube_private_drop_routines(att, tube_private_owner_of(att.tbl)), tube_private_drop_former(right(att.trigger_function, 8), stored, att);
    IF stored.tbl::oid = ANY (stored.members) THEN -- else it was restored, and has missed nothing
        PERFORM tube_private_ask_backfill(att, format('the owner of %s had no right to touch its rows', att.tbl))
        WHERE to_regprocedure(tube_private_function(att, 'capture') || '()') IS NOT NULL
            AND EXISTS (SELECT FROM tube_private_our_ddl(stored) AS d WHERE d LIKE 'GRANT %');
        -- Whatever took its triggers, such as a former owner's function that went: before its owner makes them again.
        PERFORM tube_private_follow_members(stored);
    END IF;
    FOR look IN 1..2 LOOP -- default privileges may give new objects to others
        statements := ARRAY(SELECT tube_private_our_ddl(att));
        EXIT WHEN statements = '{}';
        -- Two grants at once on one schema or sequence would fail each other.
        PERFORM pg_advisory_xact_lock(hashtextextended('pytube grant ' || tube_private_schema(), 0));
        FOREACH statement IN ARRAY statements LOOP
            EXECUTE statement;
        END LOOP;
    END LOOP;
    PERFORM tube_private_provide_touch(att);
END
$$;

-- tube_private_our_ddl: the statements that pytube still has to run for an attachment to be as it should be: door and put,
-- which only the owner of the table may use, and the sources of their defaults.
CREATE OR REPLACE FUNCTION :"schema".tube_private_our_ddl(att :"schema".tube_attachment) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET quote_all_identifiers = off AS $$
DECLARE
    owner CONSTANT regrole := tube_private_owner_of(att.tbl);
    key_type CONSTANT regtype := tube_private_key_type(att.tube);
    door CONSTANT text := tube_private_function(att, 'door');
    view CONSTANT pg_class := (SELECT c FROM pg_class AS c WHERE c.oid = to_regclass(door));
    flag CONSTANT text := (SELECT tube_private_qualify('tube_sleeps_' || r.number) FROM tube_registry AS r WHERE r.tube = att.tube);
BEGIN
    IF view.oid IS NULL THEN
        RETURN NEXT format('CREATE VIEW %s AS SELECT op, shard, ids FROM %s WHERE cardinality(ids) = 1 AND shard = %s WITH CHECK OPTION',
            door, tube_private_qualify(att.tube),
            -- So ids[1] is not NULL, and the only one.
            CASE att.shards WHEN 1 THEN format('CASE WHEN ids[1] IS NOT NULL THEN %s END', att.shard)
                ELSE tube_private_shard_expression('ids[1]', att) END);
    END IF;
    RETURN QUERY SELECT d FROM tube_private_function_ddl(tube_private_function(att, 'put'), format('text, %s[]', key_type),
        format('op text, ids %s[]', key_type), 'boolean', false, tube_private_put_body(att),
        quote_ident(current_user)::regrole, ARRAY[owner]) AS d;
    RETURN QUERY SELECT DISTINCT format('REVOKE %s ON %s FROM %s CASCADE',
        CASE a.grantee WHEN owner::oid THEN a.privilege_type ELSE 'ALL' END, door, tube_private_role_sql(a.grantee))
    FROM aclexplode(view.relacl) AS a
    WHERE a.grantee <> view.relowner AND (a.grantee, a.privilege_type) <> (owner::oid, 'INSERT');
    RETURN QUERY SELECT format('GRANT %s ON %s TO %s', g.privilege, g.object, owner)
    FROM (VALUES
        ('INSERT', door, view.relacl),
        ('USAGE', 'SEQUENCE ' || tube_private_qualify('tube_seq'), (SELECT c.relacl FROM pg_class AS c WHERE c.oid = 'tube_seq'::regclass)),
        ('SELECT', 'SEQUENCE ' || flag, (SELECT c.relacl FROM pg_class AS c WHERE c.oid = flag::regclass))
    ) AS g (privilege, object, acl)
    WHERE NOT EXISTS (SELECT FROM aclexplode(g.acl) AS a WHERE a.grantee = owner AND a.privilege_type = g.privilege)
    -- All roles have these, unless they were revoked; then this owner's table is written to as before.
    UNION ALL
    SELECT format('GRANT USAGE ON SCHEMA %I TO %s', n.nspname, owner) FROM pg_namespace AS n
    WHERE n.nspname IN (tube_private_schema(), tube_private_capture_schema())
        AND NOT EXISTS (SELECT FROM aclexplode(n.nspacl) AS a WHERE a.grantee = owner AND a.privilege_type = 'USAGE');
END
$$;

-- tube_private_owner_ddl: the statements that an owner still has to run for an attachment to be as it is to be, in order.
-- None is left when, and only when, an owner of the table has agreed to all of it, as the catalogue shows.
-- Arguments: is_owner: else a related table that became the root table of its shards may be captured as before, at a little
--   more cost.
-- Result: rel: the table whose triggers the statement changes; else NULL.
CREATE OR REPLACE FUNCTION :"schema".tube_private_owner_ddl(att :"schema".tube_attachment, is_owner boolean)
RETURNS TABLE (statement text, rel regclass)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET quote_all_identifiers = off AS $$
#variable_conflict use_column
DECLARE
    table_owner CONSTANT regrole := tube_private_owner_of(att.tbl);
    body text := tube_private_capture_body(att, tube_private_is_root(att));
BEGIN
    IF NOT is_owner AND EXISTS (SELECT FROM pg_proc AS p
        WHERE p.oid = to_regprocedure(tube_private_function(att, 'capture') || '()') AND p.prosrc <> body
            AND p.prosrc = tube_private_capture_body(att, false))
    THEN
        body := tube_private_capture_body(att, false);
    END IF;
    RETURN QUERY SELECT d, NULL::regclass FROM tube_private_passes_ddl(att) AS d;
    RETURN QUERY SELECT d, NULL::regclass FROM tube_private_function_ddl(tube_private_function(att, 'capture'), '', '', 'trigger',
        false, body, table_owner, '{}') AS d;
    RETURN QUERY SELECT t.statement, t.rel FROM tube_private_trigger_ddl(att) AS t;
    RETURN QUERY SELECT d, NULL::regclass FROM tube_private_touch_ddl(att) AS d;
END
$$;

-- tube_private_members: the tables that an attached table consists of.
-- By the catalogue: pg_partition_tree would wait for the lock of each partition.
-- Result: itself; and where it is partitioned, all tables of its tree. kind: as in pg_class. None when it is gone.
CREATE OR REPLACE FUNCTION :"schema".tube_private_members(tbl regclass) RETURNS TABLE (rel regclass, kind "char")
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE tree AS (
        SELECT c.oid, c.relkind FROM pg_class AS c WHERE c.oid = tbl
        UNION ALL
        SELECT i.inhrelid, c.relkind
        FROM tree AS t JOIN pg_inherits AS i ON i.inhparent = t.oid AND NOT i.inhdetachpending JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE t.relkind = 'p'
    )
    SELECT t.oid::regclass, t.relkind FROM tree AS t
$$;

-- tube_private_trigger_ddl: the statements that bring the triggers of an attachment in line, and the table of each.
-- There are transition tables for the table only that the statement names: so each table of a partitioned one's tree has
-- these triggers. A TRUNCATE fires the truncate triggers of all tables that it empties: so only tables that store rows have
-- that one. Foreign tables can have none. If another trigger has the name (of the table a in the tube b_c, say, and a_b in
-- c), pytube's gets a digest of the tube into its name.
-- The attached table itself comes first: while it is locked, no partition comes to it or goes. Whether a trigger is
-- enabled, and for whom, is its owner's to say once it is made. With the trigger for rows of replication, that for its
-- TRUNCATE fires there, too.
CREATE OR REPLACE FUNCTION :"schema".tube_private_trigger_ddl(att :"schema".tube_attachment)
RETURNS TABLE (statement text, rel regclass)
LANGUAGE sql STABLE AS $$
    WITH kind (place, ending, tgtype, definition) AS (VALUES
        (1, '_after_insert_trigger', 4, 'AFTER INSERT ON %s REFERENCING NEW TABLE AS new_table FOR EACH STATEMENT'),
        (2, '_after_update_trigger', 16, 'AFTER UPDATE ON %s REFERENCING OLD TABLE AS old_table NEW TABLE AS new_table FOR EACH STATEMENT'),
        (3, '_after_delete_trigger', 8, 'AFTER DELETE ON %s REFERENCING OLD TABLE AS old_table FOR EACH STATEMENT'),
        (4, '_before_truncate_trigger', 34, 'BEFORE TRUNCATE ON %s FOR EACH STATEMENT'),
        (5, '_after_row_trigger', 29, 'AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW')
    ), wanted AS (
        SELECT m.rel, k.*
        FROM tube_private_members(att.tbl) AS m, kind AS k
        WHERE m.kind <> 'f' AND (k.place <= 3 OR m.kind = 'r' AND (k.place = 4 OR att.replica))
    ), present AS (
        SELECT p.tgrelid::regclass AS rel, coalesce(k.place, 0) AS place, p.tgname AS name
        FROM pg_depend AS d JOIN pg_trigger AS p ON p.oid = d.objid LEFT JOIN kind AS k ON k.tgtype = p.tgtype
        WHERE d.classid = 'pg_trigger'::regclass AND d.refclassid = 'pg_proc'::regclass
            AND d.refobjid = (SELECT to_regprocedure(tube_private_function(att, 'capture') || '()')) AND p.tgparentid = 0
    ), missing AS (
        SELECT w.*, (
            SELECT n.name
            FROM pg_class AS c,
                LATERAL (VALUES (1, att.tube), (2, att.tube || '_' || left(md5(att.tube), 8))) AS u (place, tube),
                LATERAL tube_private_name(c.relname || '_' || u.tube, w.ending) AS n (name)
            WHERE c.oid = w.rel
            ORDER BY EXISTS (SELECT FROM pg_trigger AS p WHERE p.tgrelid = w.rel AND p.tgname = n.name), u.place
            LIMIT 1) AS name
        FROM wanted AS w WHERE NOT EXISTS (SELECT FROM present AS p WHERE (p.rel, p.place) = (w.rel, w.place))
    )
    SELECT s.statement, s.rel
    FROM (
        SELECT 0 AS step, p.place, p.rel, format('DROP TRIGGER %I ON %s', p.name, p.rel) AS statement
        FROM present AS p WHERE NOT EXISTS (SELECT FROM wanted AS w WHERE (w.rel, w.place) = (p.rel, p.place))
        UNION ALL
        SELECT 1, m.place, m.rel, format('CREATE TRIGGER %I ' || m.definition || ' EXECUTE FUNCTION %s()',
            m.name, m.rel, tube_private_function(att, 'capture')) FROM missing AS m
        UNION ALL
        SELECT 2, 5, m.rel, format('ALTER TABLE ONLY %s ENABLE REPLICA TRIGGER %I', m.rel, m.name) FROM missing AS m WHERE m.place = 5
        UNION ALL
        SELECT 2, 4, m.rel, format('ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER %I', m.rel, t.name)
        FROM missing AS m JOIN (TABLE present UNION ALL SELECT n.rel, n.place, n.name FROM missing AS n) AS t ON t.rel = m.rel AND t.place = 4
        WHERE m.place = 5
    ) AS s
    ORDER BY s.step > 0, s.rel <> att.tbl, s.rel, s.step, s.place
$$;
