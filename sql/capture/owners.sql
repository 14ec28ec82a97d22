-- The chain of an attached table's writes, and whose rights each link has:
--
--   capture  the function of the triggers; belongs to the table's owner; evaluates keys and the predicate
--   passes   the predicate as a function, bound when it was made; belongs to the table's owner
--   agent    what the owner lets us have done later: triggers for new partitions, touches of whole tables
--   put      puts typed ids into the tube; ours; only the table's owner may call it
--
-- All but put are in the capture schema. Their names differ in one word and end in eight hex digits.
--
-- Other owners can create functions in that schema, too. The last argument of passes and agent is therefore a seal, a NULL of
-- a type that only the table's owner and we can use in a function's signature: a call by name resolves to no other function,
-- and none makes it ambiguous.

-- tube_private_function_name: the name of a function of an attachment, unquoted.
--
-- That of a predicate has a digest of it: a statement that is under way still calls the one before. The seal of the table's
-- owner is in it, too: what another one has made of a predicate never goes on with the rights of the next.
CREATE OR REPLACE FUNCTION :"schema".tube_private_function_name(att :"schema".tube_attachment, kind text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    ending text := '_' || kind || E'_\\1'; -- E: whatever the session takes a backslash for
BEGIN
    IF kind = 'passes' THEN
        ending := E'_p\\1_' || left(md5(att.row_filter || (
            SELECT concat(tube_private_seal(tube_private_owner_of(att.tbl)), coalesce(array_agg(concat(c.bound::regtype, ' ', c.name)), '{}'))
            FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c)), 6);
    END IF;
    RETURN regexp_replace(att.trigger_function, '_capture_([0-9a-f]{8})$', ending);
END
$$;

-- tube_private_capture_name: the name of the trigger function of a tube and a table; another one for each pair.
CREATE OR REPLACE FUNCTION :"schema".tube_private_capture_name(tube text, tbl regclass) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT tube_private_name(tube || '_' || c.relname, '_capture_' || left(md5(tube || ' ' || tbl::oid), 8))
    FROM pg_class AS c WHERE c.oid = tbl
$$;

-- tube_private_function: a function of an attachment, quoted and with its schema.
CREATE OR REPLACE FUNCTION :"schema".tube_private_function(att :"schema".tube_attachment, kind text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT format('%I.%I', CASE kind WHEN 'put' THEN tube_private_schema() ELSE tube_private_capture_schema() END,
        tube_private_function_name(att, kind))
$$;

-- tube_private_owner_of: who owns a table; NULL when it is gone.
CREATE OR REPLACE FUNCTION :"schema".tube_private_owner_of(tbl regclass) RETURNS regrole
LANGUAGE sql STABLE AS $$ SELECT c.relowner::regrole FROM pg_class AS c WHERE c.oid = tbl $$;

-- tube_private_seal: the name of an owner's seal; NULL when there is none.
--
-- It is a type that none but that owner and we may use, whatever they are called now.
CREATE OR REPLACE FUNCTION :"schema".tube_private_seal(owner regrole) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT min(tube_private_qualify(t.typname)) FROM pg_type AS t
        WHERE t.typnamespace = to_regnamespace(quote_ident(tube_private_schema())) AND t.typtype = 'e'
            AND t.typname BETWEEN 'tube_seal_' AND 'tube_seal_g' -- what follows are hex digits
            AND ARRAY(SELECT DISTINCT a.grantee FROM aclexplode(coalesce(t.typacl, acldefault('T', t.typowner))) AS a
                WHERE a.grantee <> t.typowner) = array_remove(ARRAY[owner::oid], t.typowner));
END
$$;

-- tube_private_broken_seals: owners whose seal somebody else has a function with, which was given away.
CREATE OR REPLACE FUNCTION :"schema".tube_private_broken_seals() RETURNS TABLE (seal text, owner regrole)
LANGUAGE sql STABLE AS $$
    SELECT DISTINCT tube_private_qualify(t.typname), a.grantee::regrole
    FROM pg_type AS t
    CROSS JOIN LATERAL aclexplode(t.typacl) AS a
    JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_type'::regclass AND d.refobjid = t.oid
    JOIN pg_proc AS p ON p.oid = d.objid
    WHERE t.typnamespace = to_regnamespace(quote_ident(tube_private_schema())) AND t.typname BETWEEN 'tube_seal_' AND 'tube_seal_g'
        AND a.grantee <> t.typowner
        AND CASE WHEN p.proowner IN (a.grantee, t.typowner) THEN false ELSE NOT tube_private_is_constructor(p.oid) END
$$;

-- tube_private_is_constructor: whether Postgres created a function along with a range type.
--
-- Anybody may create a range over a seal. Its constructors belong to the role that made the cluster, and can't be dropped by
-- themselves.
CREATE OR REPLACE FUNCTION :"schema".tube_private_is_constructor(routine oid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_proc'::regclass AND d.objid = routine AND d.deptype = 'i')
$$;

-- tube_private_signature: a function with the types of its arguments, all by their names in full.
CREATE OR REPLACE FUNCTION :"schema".tube_private_signature(routine oid) RETURNS text
LANGUAGE sql STABLE AS $$ SELECT (pg_identify_object('pg_proc'::regclass, routine, 0)).identity $$;

-- tube_private_routines: what is in the schema of the owners' functions by the names of an attachment's.
--
-- No matter who owns them; constructors of range types are left out.
-- Result: kind: capture, agent or passes, of which there may be several.
CREATE OR REPLACE FUNCTION :"schema".tube_private_routines(att :"schema".tube_attachment) RETURNS TABLE (routine oid, kind text)
LANGUAGE sql STABLE AS $$
    SELECT p.oid, k.kind
    FROM tube_private_function_name(att, 'agent') AS agent,
        regexp_replace(att.trigger_function, '_capture_([0-9a-f]{8})$', E'_p\\1') AS passes,
        LATERAL (VALUES
            ('capture', att.trigger_function::name, att.trigger_function::name),
            ('agent', agent::name, agent::name),
            ('passes', (passes || '_')::name, (passes || '_g')::name) -- what follows are hex digits
        ) AS k (kind, least, most)
    JOIN pg_proc AS p ON p.proname BETWEEN k.least AND k.most
    WHERE p.pronamespace = (SELECT to_regnamespace(quote_ident(tube_private_capture_schema())))
        AND NOT tube_private_is_constructor(p.oid)
$$;

-- tube_private_drop_routine: drops a function, and what depends on it. The owner of a schema may drop what is in it.
--
-- By its name alone where that will do: of an enum in its arguments we may not look into the schema.
CREATE OR REPLACE FUNCTION :"schema".tube_private_drop_routine(routine oid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('DROP ROUTINE %s CASCADE', (
        SELECT CASE count(*) WHEN 1 THEN min(format('%s.%I', p.pronamespace::regnamespace, p.proname))
            ELSE tube_private_signature(routine) END
        FROM pg_proc AS p, pg_proc AS o WHERE p.oid = routine AND o.proname = p.proname AND o.pronamespace = p.pronamespace));
END
$$;

-- tube_private_agents: what has the name of an attachment's agent, and is the table's owner's, or the one's before.
--
-- Result: sealed: whether it has the seal of its own owner.
CREATE OR REPLACE FUNCTION :"schema".tube_private_agents(att :"schema".tube_attachment)
RETURNS TABLE (routine oid, owner regrole, sealed boolean)
LANGUAGE sql STABLE AS $$
    SELECT p.oid, p.proowner::regrole, coalesce(p.proargtypes[3] = to_regtype(tube_private_seal(p.proowner))::oid, false)
    FROM tube_private_routines(att) AS r JOIN pg_proc AS p ON p.oid = r.routine
    WHERE r.kind = 'agent' AND p.proowner = ANY ((SELECT tube_private_put_callers(att))::regrole[])
$$;

-- tube_private_agent: an attachment's agent, with the types of its arguments; NULL when there is none.
--
-- Until the next owner of a table has agreed to go on, it is that of the one before.
CREATE OR REPLACE FUNCTION :"schema".tube_private_agent(att :"schema".tube_attachment) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT tube_private_signature(a.routine) FROM tube_private_agents(att) AS a WHERE a.sealed
    ORDER BY a.owner <> tube_private_owner_of(att.tbl) LIMIT 1
$$;

-- tube_private_is_root: whether an attached table is the first of its shards.
CREATE OR REPLACE FUNCTION :"schema".tube_private_is_root(att :"schema".tube_attachment) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT NOT EXISTS (
        SELECT FROM tube_attachment AS a
        WHERE a.tube = att.tube AND a.shard = att.shard AND a.tbl <> att.tbl
            AND (att.position IS NULL OR a.position < att.position))
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

-- tube_private_admit_owner: gives an owner of attached tables what their functions need of us: our schemas, and a seal.
--
-- Locks: an advisory one, until the transaction ends, where something is missing: two grants at once on one schema would
-- fail each other.
CREATE OR REPLACE FUNCTION :"schema".tube_private_admit_owner(owner regrole) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    seal text;
    other record;
BEGIN
    FOR seal IN SELECT b.seal FROM tube_private_broken_seals() AS b WHERE b.owner = $1 LOOP
        EXECUTE format('REVOKE ALL ON TYPE %s FROM %s', seal, owner);
    END LOOP;
    IF has_schema_privilege(owner, tube_private_schema(), 'USAGE')
        AND has_schema_privilege(owner, tube_private_capture_schema(), 'USAGE')
        AND has_schema_privilege(owner, tube_private_capture_schema(), 'CREATE')
        AND tube_private_seal(owner) IS NOT NULL
    THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('pytube grant ' || tube_private_schema(), 0));
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %s', tube_private_schema(), owner);
    EXECUTE format('GRANT USAGE, CREATE ON SCHEMA %I TO %s', tube_private_capture_schema(), owner);
    IF tube_private_seal(owner) IS NULL THEN
        seal := tube_private_qualify('tube_seal_' || left(md5(gen_random_uuid()::text), 12));
        EXECUTE format('CREATE TYPE %s AS ENUM ()', seal);
        -- Default privileges may have given it to others.
        FOR other IN SELECT a.grantee FROM pg_type AS t, aclexplode(coalesce(t.typacl, acldefault('T', t.typowner))) AS a
            WHERE t.oid = to_regtype(seal) AND a.grantee <> t.typowner
        LOOP
            EXECUTE format('REVOKE ALL ON TYPE %s FROM %s', seal, CASE other.grantee WHEN 0 THEN 'PUBLIC' ELSE other.grantee::regrole::text END);
        END LOOP;
        EXECUTE format('GRANT USAGE ON TYPE %s TO %s', seal, owner);
    END IF;
END
$$;

-- tube_private_provide: makes or mends what is ours for an attachment, with the rights that its owner needs of us.
--
-- The function put, the touch function of the table.
--
-- Arguments: att: need not be stored yet; its functions have the names that they are to have, whatever it says.
-- Errors: 42501 its touch function is another table's.
-- Locks: as tube_private_admit_owner.
CREATE OR REPLACE FUNCTION :"schema".tube_private_provide(att :"schema".tube_attachment) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET quote_all_identifiers = off AS $$
BEGIN
    att := tube_private_with_names(att);
    PERFORM tube_private_admit_owner(tube_private_owner_of(att.tbl));
    PERFORM tube_private_make_function(tube_private_function(att, 'put'), format('op text, ids %s[]', tube_private_key_type(att.tube)),
        'boolean', '{}', tube_private_put_body(att),
        tube_private_put_callers(att));
    PERFORM tube_private_provide_touch(att, true);
    -- What the owner before has made of the predicate goes at the second look: a statement that was under way at the first one
    -- could still call it.
    PERFORM tube_private_drop_routine(r.routine)
    FROM tube_private_routines(att) AS r JOIN pg_proc AS p ON p.oid = r.routine
    WHERE r.kind = 'passes' AND p.proowner <> ALL (tube_private_put_callers(att))
        AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid = r.routine);
    UPDATE tube_attachment AS a SET as_root = tube_private_is_root(att)
    WHERE a.tube = att.tube AND a.tbl = att.tbl AND a.as_root IS DISTINCT FROM tube_private_is_root(att);
END
$$;

-- tube_private_put_callers: who may call an attachment's put: we, and the table's owner. Until an owner has agreed to go on,
-- the trigger function has the rights of the one before, who may call it, too.
CREATE OR REPLACE FUNCTION :"schema".tube_private_put_callers(att :"schema".tube_attachment) RETURNS regrole[]
LANGUAGE sql STABLE AS $$
    SELECT ARRAY(
        SELECT quote_ident(current_user)::regrole
        UNION
        SELECT tube_private_owner_of(att.tbl)
        UNION
        SELECT p.proowner::regrole FROM pg_proc AS p WHERE p.oid = to_regprocedure(tube_private_function(att, 'capture') || '()')
        ORDER BY 1)
$$;

-- tube_private_with_names: an attachment that a caller gives, with the names of its own functions and the tube's
-- predicate.
--
-- Errors: TU106 its shards can't be; 42501 its touch function is another table's.
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
    END IF;
    att.trigger_function := coalesce(old.trigger_function, tube_private_capture_name(att.tube, att.tbl));
    att.touch_name := coalesce(old.touch_name, att.touch_name);
    IF att.touch_name !~ '^tube_touch_[0-9a-f]{12}$'
        OR EXISTS (SELECT FROM tube_attachment AS a WHERE a.touch_name = att.touch_name AND a.tbl <> att.tbl)
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
-- Result: in the order in which they are to be run; none where all is right. rel: the table whose triggers the
--   statement changes, for those that the owner's agent can do instead; else NULL.
CREATE OR REPLACE FUNCTION :"schema".tube_private_owner_ddl(att :"schema".tube_attachment)
RETURNS TABLE (statement text, rel regclass)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET quote_all_identifiers = off AS $$
#variable_conflict use_column
DECLARE
    table_owner CONSTANT regrole := tube_private_owner_of(att.tbl);
    body CONSTANT text := tube_private_capture_body(att);
BEGIN
    RETURN QUERY SELECT d, NULL::regclass FROM tube_private_passes_ddl(att) AS d;
    RETURN QUERY SELECT d, NULL::regclass FROM tube_private_function_ddl(tube_private_function(att, 'agent'),
        'rel pg_catalog.regclass, triggers pg_catalog.name[], op pg_catalog.text, seal ' || tube_private_seal(table_owner),
        'boolean', '{"search_path=pg_catalog, pg_temp"}',
        tube_private_agent_body(att), table_owner, ARRAY[quote_ident(tube_private_role('nobody'))::regrole]) AS d;
    -- That of the owner before. What somebody has made of it keeps it: a view, say.
    RETURN QUERY SELECT format('DROP ROUTINE %s', tube_private_signature(a.routine)), NULL::regclass FROM tube_private_agents(att) AS a
        WHERE NOT (a.sealed AND a.owner = table_owner)
            AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid = a.routine);
    RETURN QUERY SELECT d, NULL::regclass FROM tube_private_function_ddl(tube_private_function(att, 'capture'), '', 'trigger',
        -- Values that are compared as texts must not depend on the writer's settings.
        CASE WHEN strpos(body, 'pg_catalog.num_nulls(') > 0 THEN '{extra_float_digits=1,DateStyle=iso}' ELSE '{}' END::text[],
        body, table_owner, '{}') AS d;
    RETURN QUERY SELECT t.statement, t.rel FROM tube_private_trigger_ddl(att) AS t;
    RETURN QUERY SELECT d, NULL::regclass FROM tube_private_touch_ddl(att) AS d;
END
$$;

-- tube_private_members: the tables that an attached table consists of.
--
-- Result: itself; and where it is partitioned, all tables of its tree. kind: as in pg_class. None when it is gone.
CREATE OR REPLACE FUNCTION :"schema".tube_private_members(tbl regclass) RETURNS TABLE (rel regclass, kind "char")
LANGUAGE sql STABLE AS $$
    SELECT c.oid::regclass, c.relkind FROM pg_class AS c
    -- An array, which is looked up by the index, however many tables there are.
    WHERE c.oid = ANY (tbl::oid || ARRAY(
        SELECT t.relid::oid FROM pg_partition_tree(tbl) AS t WHERE (SELECT r.relkind = 'p' FROM pg_class AS r WHERE r.oid = tbl)))
$$;

-- tube_private_trigger_kinds: the triggers that a table may have: what their names end in, and how they are made.
--
-- Result: place: as the agent counts them; tgtype: as in pg_trigger; definition: with a place for the table.
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
