-- What an attachment is made of, and whose it is:
--
--   capture  the function of the triggers; the table's owner's
--   passes   the predicate as a function, bound when it was made, which capture inlines; the table's owner's
--   door     a view of the tube, ours: capture inserts a pod of one id through it; its check option is all that such a pod
--            has to keep to, whoever writes it by hand
--   put      puts typed ids into the tube; ours
--
-- Only the table's owner may use door and put. Their names hold the shards that they are for: so a function that was made
-- for other shards never meets them, and nobody can change what they do to another's table.
--
-- capture and passes are in a schema of their own, in which owners may create only while they attach or follow.

-- tube_private_function: an object of an attachment by its kind, quoted and with its schema.
--
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
            tube_private_name(stem, format('%s_%s_%s', ending, att.shard, att.shards)))
    END;
END
$$;

-- tube_private_capture_name: the name of the trigger function of a tube and a table; another one for each pair.
--
-- All objects of an attachment are found by the digest at its end, so it is none that another attachment has: whoever may
-- name tubes could look for a name that gives a wanted one.
CREATE OR REPLACE FUNCTION :"schema".tube_private_capture_name(tube text, tbl regclass) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT tube_private_name(tube || '_' || c.relname, '_capture_' || d.digest)
    FROM pg_class AS c, generate_series(0, 9) AS n, left(md5(concat_ws(' ', tube, tbl::oid, nullif(n, 0))), 8) AS d (digest)
    WHERE c.oid = tbl AND NOT EXISTS (SELECT FROM tube_attachment AS a
        WHERE right(a.trigger_function, 8) = d.digest AND (a.tube, a.tbl) <> ($1, $2))
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

-- tube_private_signature: a function with the types of its arguments, all by their names in full.
CREATE OR REPLACE FUNCTION :"schema".tube_private_signature(routine oid) RETURNS text
LANGUAGE sql STABLE AS $$ SELECT (pg_identify_object('pg_proc'::regclass, routine, 0)).identity $$;

-- tube_private_routines: what is in the schema of the owners' functions by the names of an attachment's, whoever owns it.
--
-- Result: name: quoted, with its schema. Of predicates there may be several.
CREATE OR REPLACE FUNCTION :"schema".tube_private_routines(att :"schema".tube_attachment) RETURNS TABLE (routine oid, name text)
LANGUAGE sql STABLE AS $$
    SELECT p.oid, format('%I.%I', tube_private_capture_schema(), p.proname)
    FROM pg_proc AS p
    WHERE p.pronamespace = (SELECT to_regnamespace(quote_ident(tube_private_capture_schema())))
        AND (p.proname = att.trigger_function OR p.proname ~ ('_passes' || right(att.trigger_function, 9) || '_[0-9a-f]{12}$'))
$$;

-- tube_private_drop_routines: drops the functions of an attachment that are not the table's owner's, and the triggers with
-- them; of a table that is detached, all.
--
-- A former owner could give them another body, and other rights. The owner of a schema may drop what is in it.
--
-- Locks: the table ACCESS EXCLUSIVE, where there is something to drop; had within attempts of 100 ms.
CREATE OR REPLACE FUNCTION :"schema".tube_private_drop_routines(att :"schema".tube_attachment, owner regrole) RETURNS void
LANGUAGE plpgsql SET client_min_messages = warning AS $$ -- for each trigger there would be a NOTICE
DECLARE
    statements text[] := ARRAY(
        -- By its name alone where that will do: of an enum in its arguments we may not look into the schema.
        SELECT format('DROP ROUTINE %s CASCADE', CASE (SELECT count(*) FROM tube_private_routines(att) AS o WHERE o.name = r.name) WHEN 1 THEN r.name
            ELSE tube_private_signature(r.routine) END)
        FROM tube_private_routines(att) AS r JOIN pg_proc AS p ON p.oid = r.routine
        WHERE p.proowner IS DISTINCT FROM owner::oid ORDER BY p.proname);
BEGIN
    IF statements <> '{}' THEN
        PERFORM tube_private_patiently(statements, format('functions for %s that are not its owner''s are dropped', att.tbl), 20);
    END IF;
END
$$;

-- tube_private_drop_former: drops doors, puts and predicates of an attachment that are neither as it is stored nor as it is to
-- be; of one that is NULL, all. With trigger_function NULL, those of no attachment: an admin may leave some.
--
-- Those of before stay until the next look: a statement that is under way may still use them. What is locked stays, too.
CREATE OR REPLACE FUNCTION :"schema".tube_private_drop_former(
    stored :"schema".tube_attachment, wanted :"schema".tube_attachment, trigger_function text
) RETURNS void
LANGUAGE plpgsql SET client_min_messages = warning SET lock_timeout = '50ms' AS $$
DECLARE
    ending CONSTANT text := coalesce(right(trigger_function, 9), '_[0-9a-f]{8}') || '_([0-9]+_[0-9]+|[0-9a-f]{12})$';
    kept text[];
    former text;
BEGIN
    SELECT array_agg(tube_private_function(a, k)) INTO kept
    FROM unnest(ARRAY[stored, wanted]) AS a, unnest('{door,put,passes}'::text[]) AS k WHERE a.tube IS NOT NULL;
    FOR former IN SELECT d.statement FROM (
        SELECT format('DROP VIEW %s', o.name), c.relname, o.name
        FROM pg_class AS c, format('%I.%I', tube_private_schema(), c.relname) AS o (name)
        WHERE c.relnamespace = to_regnamespace(quote_ident(tube_private_schema())) AND c.relkind = 'v'
            AND c.relname ~ ('_door' || ending)
        UNION ALL
        SELECT format('DROP ROUTINE %s', o.name), p.proname, o.name
        FROM pg_proc AS p, format('%s.%I', p.pronamespace::regnamespace, p.proname) AS o (name)
        WHERE (p.pronamespace = to_regnamespace(quote_ident(tube_private_schema())) AND p.proname ~ ('_put' || ending)
                OR p.pronamespace = to_regnamespace(quote_ident(tube_private_capture_schema())) AND p.proname ~ ('_passes' || ending))
        ) AS d (statement, bare, name)
        WHERE (d.name = ANY (kept)) IS NOT TRUE AND (trigger_function IS NOT NULL OR NOT EXISTS (
            SELECT FROM tube_attachment AS a WHERE right(a.trigger_function, 8)
                = substring(d.bare FROM '_(?:door|put|passes)_([0-9a-f]{8})_(?:[0-9]+_[0-9]+|[0-9a-f]{12})$')))
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
--
-- Arguments: name: quoted, with its schema; arguments: with types in full; settings: as pg_proc has them.
CREATE OR REPLACE FUNCTION :"schema".tube_private_function_ddl(
    name text, arguments text, returns text, settings text[], body text, owner regrole, callers regrole[]
) RETURNS SETOF text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    -- At commas that are not within quotes.
    each CONSTANT text[] := regexp_split_to_array(nullif(arguments, ''), ', (?=(?:[^"]*"[^"]*")*[^"]*$)');
    names CONSTANT text[] := (SELECT array_agg(split_part(a, ' ', 1)) FROM unnest(each) AS a);
    signature CONSTANT text := format('%s(%s)', name,
        (SELECT string_agg(regexp_replace(a, E'^\\w+ | DEFAULT [^"]+$', '', 'g'), ', ' ORDER BY n) FROM unnest(each) WITH ORDINALITY AS e (a, n)));
    made pg_proc := (SELECT p FROM pg_proc AS p WHERE p.oid = to_regprocedure(signature));
    may regrole[];
BEGIN
    IF made.proowner <> owner THEN
        RETURN NEXT format('ALTER ROUTINE %s OWNER TO %s', signature, owner);
    END IF;
    -- What CREATE OR REPLACE can't change.
    IF made.oid IS NOT NULL AND (made.prokind, made.prorettype, made.proretset, made.pronargdefaults, made.proargnames, made.proallargtypes)
        IS DISTINCT FROM ('f', returns::regtype::oid, false, (SELECT count(*) FROM unnest(each) AS a WHERE a ~ ' DEFAULT [^"]+$')::smallint, names, NULL::oid[])
    THEN
        RETURN NEXT format('DROP ROUTINE %s', signature);
        made := NULL;
    END IF;
    -- One that was another's is made again: settings that it was given would go with the rights of its owner of now.
    IF made.oid IS NULL OR NOT made.prosecdef OR made.prosrc <> body OR coalesce(made.proconfig, '{}') <> settings
        OR made.proowner <> owner OR made.proisstrict OR made.provolatile <> 'v' OR made.proleakproof
        OR made.prolang <> (SELECT l.oid FROM pg_language AS l WHERE l.lanname = 'plpgsql')
    THEN
        RETURN NEXT format('CREATE OR REPLACE FUNCTION %s(%s) RETURNS %s LANGUAGE plpgsql VOLATILE SECURITY DEFINER %s AS %L',
            name, arguments, returns,
            (SELECT string_agg('SET ' || replace(s, '=', ' = '), ' ') FROM unnest(settings) AS s), body);
    END IF;
    IF made.oid IS NULL THEN
        RETURN NEXT format('ALTER FUNCTION %s OWNER TO %s', signature, owner);
    END IF;
    may := ARRAY(SELECT a.grantee::regrole FROM aclexplode(coalesce(made.proacl, acldefault('f', owner))) AS a);
    -- CASCADE: who had it from its owner may have passed it on.
    RETURN QUERY SELECT format('REVOKE ALL ON FUNCTION %s FROM %s CASCADE', signature, CASE WHEN m.who::oid = 0 THEN 'PUBLIC' ELSE m.who::text END)
    FROM unnest(may) AS m (who) WHERE m.who <> ALL (ARRAY[owner, coalesce(made.proowner, owner)::regrole] || callers);
    RETURN QUERY SELECT format('GRANT EXECUTE ON FUNCTION %s TO %s', signature, c.who)
    FROM unnest(callers) AS c (who) WHERE c.who <> ALL (may);
END
$$;

-- tube_private_make_function: runs these statements for a function of ours.
CREATE OR REPLACE FUNCTION :"schema".tube_private_make_function(
    name text, arguments text, returns text, settings text[], body text, callers regrole[]
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    statement text;
BEGIN
    -- Default privileges may give a new function to others: so it looks again once it is there.
    FOR look IN 1..2 LOOP
        FOR statement IN SELECT tube_private_function_ddl(
            name, arguments, returns, settings, body, quote_ident(current_user)::regrole, array_remove(callers, NULL))
        LOOP
            EXECUTE statement;
        END LOOP;
        EXIT WHEN NOT FOUND;
    END LOOP;
END
$$;

-- tube_private_open_capture: lets the owner of a table create in the schema of the owners' functions, for a moment.
--
-- Who creates functions there is the owner, or a role with the owner's rights; who is no superuser needs this. It lasts until
-- tube_private_close_capture, at the end of the attach; a rollback takes it back, too.
--
-- The owner may replace any function there that is theirs. So those that still fire for a table that they gave away go first.
--
-- Locks: of such tables as tube_private_drop_routines; an advisory one, until the transaction ends: two grants at once on one schema would fail each other.
CREATE OR REPLACE FUNCTION :"schema".tube_private_open_capture(tbl regclass) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    PERFORM tube_private_drop_strangers(a.tube, a.tbl)
    FROM tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl JOIN pg_proc AS p ON p.oid = a.captured_by
    WHERE p.proowner <> c.relowner;
    PERFORM pg_advisory_xact_lock(hashtextextended('pytube grant ' || tube_private_schema(), 0));
    EXECUTE format('GRANT CREATE ON SCHEMA %I TO %s', tube_private_capture_schema(), tube_private_owner_of(tbl));
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
        EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM %s CASCADE', tube_private_capture_schema(),
            CASE WHEN other.role::oid = 0 THEN 'PUBLIC' ELSE other.role::text END);
    END LOOP;
END
$$;

-- tube_private_provide: makes or mends what is ours for an attachment, with the rights that its owner needs of us.
--
-- Door and put, and the touch function of the table. Whoever calls it, and with whatever argument, only the table's owner
-- gets anything by it, and only for ids of the table's own shards.
--
-- What was written while the owner of a captured table had not these rights, nothing has captured: a backfill finds it.
--
-- Arguments: att: need not be stored yet; its functions have the names that they are to have, whatever it says.
-- Errors: 42501 its touch function is another table's.
CREATE OR REPLACE FUNCTION :"schema".tube_private_provide(att :"schema".tube_attachment) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET quote_all_identifiers = off AS $$
DECLARE
    owner CONSTANT regrole := tube_private_owner_of(att.tbl);
    stored CONSTANT tube_attachment := (SELECT a FROM tube_attachment AS a WHERE a.tube = att.tube AND a.tbl = att.tbl);
BEGIN
    att := tube_private_with_names(att);
    PERFORM tube_private_drop_routines(att, owner), tube_private_drop_former(stored, att, att.trigger_function);
    IF stored.captured_by = to_regprocedure(tube_private_function(att, 'capture') || '()') THEN
        PERFORM tube_private_ask_backfill(att, format('the owner of %s had no right to touch its rows', att.tbl))
        WHERE NOT tube_private_may_put(stored, owner, false);
        -- A member whose triggers were dropped waits, until they are there again: see tube_private_follow_members.
        UPDATE tube_attachment AS a SET waiting = a.waiting || l.lost
        FROM (SELECT array_agg(DISTINCT t.rel::oid) AS lost FROM tube_private_trigger_names(stored) AS t
            WHERE t.wanted AND NOT t.is_there AND t.rel::oid = ANY (stored.members)
                AND (t.rel::oid = ANY (stored.waiting)) IS NOT TRUE) AS l
        WHERE a.tube = att.tube AND a.tbl = att.tbl AND l.lost IS NOT NULL;
    END IF;
    IF to_regclass(tube_private_function(att, 'door')) IS NULL THEN
        EXECUTE format('CREATE VIEW %s AS SELECT op, shard, ids FROM %s WHERE cardinality(ids) = 1 AND shard = %s WITH CHECK OPTION',
            tube_private_function(att, 'door'), tube_private_qualify(att.tube),
            -- So ids[1] is no NULL, and the only one.
            CASE att.shards WHEN 1 THEN format('CASE WHEN ids[1] IS NOT NULL THEN %s END', att.shard)
                ELSE tube_private_shard_expression('ids[1]', att.shard, att.shards) END);
    END IF;
    PERFORM tube_private_make_function(tube_private_function(att, 'put'), format('op text, ids %s[]', tube_private_key_type(att.tube)),
        'boolean', '{}', tube_private_put_body(att), ARRAY[quote_ident(current_user)::regrole, owner]);
    PERFORM tube_private_grant_door(att, owner) WHERE NOT tube_private_may_put(att, owner, true);
    PERFORM tube_private_provide_touch(att, true);
    UPDATE tube_attachment AS a SET as_root = tube_private_is_root(a)
    WHERE a.tube = att.tube AND a.tbl = att.tbl AND a.as_root IS DISTINCT FROM tube_private_is_root(a);
END
$$;

-- tube_private_may_put: whether the owner of a table may use door and put of an attachment; alone: and nobody else.
CREATE OR REPLACE FUNCTION :"schema".tube_private_may_put(att :"schema".tube_attachment, owner regrole, alone boolean) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT count(*) = 2 AND bool_and(CASE WHEN alone THEN o.grantees = ARRAY[owner::oid] ELSE owner::oid = ANY (o.grantees) END)
        AND has_sequence_privilege(owner, tube_private_qualify('tube_seq'), 'USAGE')
        AND bool_and(has_sequence_privilege(owner, tube_private_qualify('tube_sleeps_' || r.number), 'SELECT'))
    FROM tube_registry AS r, (
        SELECT ARRAY(SELECT DISTINCT a.grantee FROM aclexplode(c.relacl) AS a
            WHERE a.grantee <> c.relowner AND a.privilege_type = 'INSERT') AS grantees
        FROM pg_class AS c WHERE c.oid = to_regclass(tube_private_function(att, 'door'))
        UNION ALL
        SELECT ARRAY(SELECT DISTINCT a.grantee FROM aclexplode(p.proacl) AS a WHERE a.grantee <> p.proowner)
        FROM pg_proc AS p
        WHERE p.oid = to_regprocedure(format('%s(text, %s[])', tube_private_function(att, 'put'), tube_private_key_type(att.tube)))
    ) AS o
    WHERE r.tube = att.tube
$$;

-- tube_private_grant_door: gives the door of an attachment to the owner of the table, and takes it from all others.
CREATE OR REPLACE FUNCTION :"schema".tube_private_grant_door(att :"schema".tube_attachment, owner regrole) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    door CONSTANT text := tube_private_function(att, 'door');
    other oid;
BEGIN
    -- Two grants at once on one schema or sequence would fail each other.
    PERFORM pg_advisory_xact_lock(hashtextextended('pytube grant ' || tube_private_schema(), 0));
    FOR other IN
        SELECT DISTINCT a.grantee FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
        WHERE c.oid = to_regclass(door) AND a.grantee <> c.relowner
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %s CASCADE', door, CASE other WHEN 0 THEN 'PUBLIC' ELSE other::regrole::text END);
    END LOOP;
    EXECUTE format('GRANT INSERT ON %s TO %s', door, owner);
    -- Everybody has this, until somebody takes it away; then this owner's table is written to as before.
    EXECUTE format('GRANT USAGE ON SCHEMA %I, %I TO %s', tube_private_schema(), tube_private_capture_schema(), owner);
    -- Defaults of the tube are computed with the rights of who inserts.
    EXECUTE format('GRANT USAGE ON SEQUENCE %s TO %s', tube_private_qualify('tube_seq'), owner);
    EXECUTE format('GRANT SELECT ON SEQUENCE %s TO %s',
        tube_private_qualify('tube_sleeps_' || (SELECT r.number FROM tube_registry AS r WHERE r.tube = att.tube)), owner);
END
$$;

-- tube_private_with_names: an attachment that a caller gives, with the names of its own functions and the tube's
-- predicate.
--
-- Errors: TU106 its shards can't be; 42501 its touch function is another table's, or of another type of keys.
CREATE OR REPLACE FUNCTION :"schema".tube_private_with_names(att :"schema".tube_attachment) RETURNS :"schema".tube_attachment
LANGUAGE plpgsql AS $$
DECLARE
    old CONSTANT tube_attachment := (SELECT a FROM tube_attachment AS a WHERE a.tube = att.tube AND a.tbl = att.tbl);
BEGIN
    IF old.tube IS NULL OR (old.shard, old.shards) IS DISTINCT FROM (att.shard, att.shards) THEN
        att.shard := tube_private_range(att.tube, att.tbl, att.shard, att.shards);
    END IF;
    IF att.row_filter IS NOT NULL THEN
        att.row_filter := (tube_private_require(att.tube)).predicate;
        att.misfit := NULL;
    END IF;
    -- Whether it is the root table is not the caller's to say; in other shards it is the last one.
    att.position := CASE WHEN (old.shard, old.shards) = (att.shard, att.shards) THEN old.position END;
    att.trigger_function := coalesce(old.trigger_function, tube_private_capture_name(att.tube, att.tbl));
    att.touch_name := coalesce(old.touch_name, att.touch_name);
    IF att.touch_name !~ '^tube_touch_[0-9a-f]{12}$'
        OR EXISTS (SELECT FROM tube_attachment AS a WHERE a.touch_name = att.touch_name
            AND (a.tbl, tube_private_key_type(a.tube)) IS DISTINCT FROM (att.tbl, tube_private_key_type(att.tube)))
    THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('%I is no touch function of %s', att.touch_name, att.tbl), HINT = 'Attach it again: tube_table_ensure_attached.';
    END IF;
    RETURN att;
END
$$;

-- tube_private_owner_ddl: the statements that an owner still has to run for an attachment to be as it is to be.
--
-- What they say stands in the catalogue afterwards: so no statements are left when, and only when, an owner of the
-- table has agreed to all of it. What goes on in the meantime is of no matter.
--
-- A related table that became the root table of its shards is captured as before, at a little more cost, until an owner
-- attaches it again or installs: is_owner.
--
-- Result: in the order in which they are to be run; none where all is right. rel: the table whose triggers the
--   statement changes; else NULL.
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
    RETURN QUERY SELECT d, NULL::regclass FROM tube_private_function_ddl(tube_private_function(att, 'capture'), '', 'trigger',
        '{}', body, table_owner, '{}') AS d;
    RETURN QUERY SELECT t.statement, t.rel FROM tube_private_trigger_ddl(att) AS t;
    RETURN QUERY SELECT d, NULL::regclass FROM tube_private_touch_ddl(att) AS d;
END
$$;

-- tube_private_members: the tables that an attached table consists of.
--
-- By the catalogue: pg_partition_tree would wait for the lock of each partition.
--
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

-- tube_private_trigger_kinds: the triggers that a table may have: what their names end in, and how they are made.
--
-- Result: place: a number; tgtype: as in pg_trigger; definition: with a place for the table.
CREATE OR REPLACE FUNCTION :"schema".tube_private_trigger_kinds()
RETURNS TABLE (place integer, ending text, tgtype integer, definition text)
LANGUAGE sql IMMUTABLE AS $$
    VALUES
        (1, '_after_insert_trigger', 4, 'AFTER INSERT ON %s REFERENCING NEW TABLE AS new_table FOR EACH STATEMENT'),
        (2, '_after_update_trigger', 16, 'AFTER UPDATE ON %s REFERENCING OLD TABLE AS old_table NEW TABLE AS new_table FOR EACH STATEMENT'),
        (3, '_after_delete_trigger', 8, 'AFTER DELETE ON %s REFERENCING OLD TABLE AS old_table FOR EACH STATEMENT'),
        (4, '_before_truncate_trigger', 34, 'BEFORE TRUNCATE ON %s FOR EACH STATEMENT'),
        (5, '_after_row_trigger', 29, 'AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW')
$$;

-- tube_private_trigger_names: the triggers that an attachment is to have, and those that are there.
--
-- A transition table is the one thing that sees all rows of a statement, and there is one for the table that the
-- statement names only: so each table of a partitioned one's tree has these triggers. TRUNCATE fires those of all
-- tables that it empties: so only those that store rows have that one. Foreign ones can have none of these.
--
-- Where another trigger has the name, ours gets a digest of the tube into it: the table a in the tube b_c and a_b in c
-- have the same names.
--
-- Result: place: as of tube_private_trigger_kinds, 0 for another kind; name: of the one that is there, or that it is to have.
CREATE OR REPLACE FUNCTION :"schema".tube_private_trigger_names(att :"schema".tube_attachment)
RETURNS TABLE (rel regclass, place integer, wanted boolean, is_there boolean, name name)
LANGUAGE sql STABLE AS $$
    SELECT coalesce(w.rel, t.tgrelid::regclass), coalesce(w.place, t.place, 0), w.rel IS NOT NULL, t.tgname IS NOT NULL,
        coalesce(t.tgname, (
            SELECT n.name::name
            FROM pg_class AS c,
                LATERAL (VALUES (1, att.tube), (2, att.tube || '_' || left(md5(att.tube), 8))) AS u (place, tube),
                LATERAL tube_private_name(c.relname || '_' || u.tube, w.ending) AS n (name)
            WHERE c.oid = w.rel
            ORDER BY EXISTS (SELECT FROM pg_trigger AS p WHERE p.tgrelid = w.rel AND p.tgname = n.name), u.place
            LIMIT 1))
    FROM (
        SELECT m.rel, k.place, k.ending
        FROM tube_private_members(att.tbl) AS m, tube_private_trigger_kinds() AS k
        WHERE m.kind <> 'f' AND (k.place <= 3 OR m.kind = 'r' AND (k.place = 4 OR att.replica))
    ) AS w
    FULL JOIN (
        SELECT p.*, k.place
        FROM pg_depend AS d JOIN pg_trigger AS p ON p.oid = d.objid
        LEFT JOIN tube_private_trigger_kinds() AS k ON k.tgtype = p.tgtype
        WHERE d.classid = 'pg_trigger'::regclass AND d.refclassid = 'pg_proc'::regclass
            AND d.refobjid = (SELECT to_regprocedure(tube_private_function(att, 'capture') || '()')) AND p.tgparentid = 0
    ) AS t ON t.tgrelid = w.rel AND t.place = w.place
$$;

-- tube_private_trigger_ddl: the statements that bring the triggers of an attachment in line, and the table of each.
--
-- The attached table itself comes first: while it is locked, no partition comes to it or goes. Whether a trigger is
-- enabled, and for whom, is its owner's to say once it is made. With the trigger for rows of replication, that for its
-- TRUNCATE fires there, too.
CREATE OR REPLACE FUNCTION :"schema".tube_private_trigger_ddl(att :"schema".tube_attachment)
RETURNS TABLE (statement text, rel regclass)
LANGUAGE sql STABLE AS $$
    SELECT s.statement, t.rel
    FROM (
        SELECT n.*, bool_or(n.is_there) FILTER (WHERE n.place = 5) OVER (PARTITION BY n.rel) AS has_row_trigger
        FROM tube_private_trigger_names(att) AS n
    ) AS t
    LEFT JOIN tube_private_trigger_kinds() AS k USING (place)
    CROSS JOIN LATERAL (VALUES
        (1, NOT t.wanted, format('DROP TRIGGER %I ON %s', t.name, t.rel)),
        (2, t.wanted AND NOT t.is_there, format('CREATE TRIGGER %I ' || k.definition || ' EXECUTE FUNCTION %s()',
            t.name, t.rel, tube_private_function(att, 'capture'))),
        (3, t.wanted AND t.place = 5 AND NOT t.is_there, format('ALTER TABLE ONLY %s ENABLE REPLICA TRIGGER %I', t.rel, t.name)),
        (3, t.wanted AND t.place = 4 AND att.replica AND NOT t.has_row_trigger,
            format('ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER %I', t.rel, t.name))
    ) AS s (place, is_needed, statement)
    WHERE s.is_needed
    ORDER BY t.wanted, t.rel <> att.tbl, t.rel, s.place, t.place
$$;
