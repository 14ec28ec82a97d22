-- tube_private_provide: makes or mends what is ours for an attachment, with the rights that its owner needs of us.
--
-- The function put, the flag of the tube's sleepers, the touch function of the table.
--
-- Arguments: att: need not be stored yet; its functions have the names that they are to have, whatever it says.
-- Errors: 42501 its touch function is another table's.
-- Locks: an advisory one, until the transaction ends, where a role is granted something on our schemas.
CREATE OR REPLACE FUNCTION :"schema".tube_private_provide(att :"schema".tube_attachment) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    owner CONSTANT name := (SELECT pg_get_userbyid(c.relowner) FROM pg_class AS c WHERE c.oid = att.tbl);
    key_type CONSTANT regtype := tube_private_key_type(att.tube);
    put text;
    callers name[];
BEGIN
    att := tube_private_with_names(att);
    put := format('%s(text, %s[])', tube_private_function(att, 'put'), key_type);
    -- Until an owner has agreed to go on, the trigger function has the rights of the one before.
    callers := ARRAY[owner] || ARRAY(SELECT pg_get_userbyid(p.proowner) FROM pg_proc AS p
        WHERE p.oid = to_regprocedure(tube_private_function(att, 'capture') || '()'));
    IF NOT (has_schema_privilege(owner, tube_private_schema(), 'USAGE')
        AND has_schema_privilege(owner, tube_private_capture_schema(), 'USAGE')
        AND has_schema_privilege(owner, tube_private_capture_schema(), 'CREATE'))
    THEN
        -- Two grants at once on one schema would fail each other.
        PERFORM pg_advisory_xact_lock(hashtextextended('pytube grant ' || tube_private_schema(), 0));
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', tube_private_schema(), owner);
        EXECUTE format('GRANT USAGE, CREATE ON SCHEMA %I TO %I', tube_private_capture_schema(), owner);
    END IF;
    PERFORM tube_private_make_function(put, format('op text, ids %s[]', key_type), 'boolean',
        tube_private_put_body(att), callers, '');
    PERFORM tube_private_provide_touch(att, true);
    UPDATE tube_attachment AS a SET as_root = tube_private_is_root(att)
    WHERE a.tube = att.tube AND a.tbl = att.tbl AND a.as_root IS DISTINCT FROM tube_private_is_root(att);
END
$$;

-- tube_private_with_names: an attachment that a caller gives, with the names of its own functions and the tube's predicate.
--
-- Errors: TU106 its shards can't be; 42501 its touch function is another table's.
CREATE OR REPLACE FUNCTION :"schema".tube_private_with_names(att :"schema".tube_attachment) RETURNS :"schema".tube_attachment
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    old CONSTANT tube_attachment := (SELECT a FROM tube_attachment AS a WHERE a.tube = att.tube AND a.tbl = att.tbl);
BEGIN
    IF old.tube IS NULL OR (old.shard, old.shards) IS DISTINCT FROM (att.shard, att.shards) THEN
        att.shard := tube_private_range(att.tube, att.tbl, att.shard, att.shards);
    END IF;
    IF att.row_filter IS NOT NULL THEN
        att.row_filter := (SELECT r.predicate FROM tube_registry AS r WHERE r.tube = att.tube);
    END IF;
    att.trigger_function := coalesce(old.trigger_function, tube_private_capture_name(att.tube, att.tbl));
    att.touch_name := coalesce(old.touch_name, att.touch_name);
    IF att.touch_name !~ '^tube_touch_[0-9a-f]{12}$'
        OR EXISTS (SELECT FROM tube_attachment AS a WHERE a.touch_name = att.touch_name AND a.tbl <> att.tbl)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('%I is no touch function of %s', att.touch_name, att.tbl), HINT = 'Call tube_table_ensure_attached.';
    END IF;
    RETURN att;
END
$$;

-- tube_private_make_function: makes a plpgsql function of ours, or mends it where its text or its callers differ.
--
-- Arguments: signature: quoted, with its schema and types; arguments: with names and defaults; returns; body;
--   callers: the roles that may call it, our owner aside; settings: what follows SECURITY DEFINER.
CREATE OR REPLACE FUNCTION :"schema".tube_private_make_function(
    signature text, arguments text, returns text, body text, callers name[], settings text
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    found_oid oid := to_regprocedure(signature);
    caller name;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_proc AS p WHERE p.oid = found_oid AND p.prosrc = body) THEN
        EXECUTE format('CREATE OR REPLACE FUNCTION %s(%s) RETURNS %s LANGUAGE plpgsql VOLATILE SECURITY DEFINER %s AS %L',
            substring(signature FROM '^(.*)\('), arguments, returns, settings, body);
        found_oid := to_regprocedure(signature);
    END IF;
    FOR caller IN
        SELECT CASE a.grantee WHEN 0 THEN NULL ELSE pg_get_userbyid(a.grantee) END
        FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
        WHERE p.oid = found_oid AND a.grantee <> p.proowner
            AND (a.grantee = 0 OR pg_get_userbyid(a.grantee) <> ALL (callers))
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %s', found_oid::regprocedure, coalesce(quote_ident(caller), 'PUBLIC'));
    END LOOP;
    FOREACH caller IN ARRAY callers LOOP
        IF NOT EXISTS (
            SELECT FROM pg_proc AS p, aclexplode(p.proacl) AS a
            WHERE p.oid = found_oid AND a.grantee <> 0 AND pg_get_userbyid(a.grantee) = caller)
        THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', found_oid::regprocedure, caller);
        END IF;
    END LOOP;
END
$$;

-- tube_private_owner_ddl: the statements that an owner still has to run for an attachment to be as it is to be.
--
-- What they say stands in the catalogue afterwards: so no statements are left when, and only when, an owner of the table has
-- agreed to all of it. What goes on in the meantime is of no matter.
--
-- Arguments: att: need not be stored yet.
-- Result: in the order in which they are to be run; none where all is right. rel: the table whose triggers the statement
--   changes, for those that the owner's agent can do instead; else NULL.
CREATE OR REPLACE FUNCTION :"schema".tube_private_owner_ddl(att :"schema".tube_attachment)
RETURNS TABLE (statement text, rel regclass)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    owner CONSTANT oid := (SELECT c.relowner FROM pg_class AS c WHERE c.oid = att.tbl);
    capture CONSTANT text := tube_private_capture_body(att);
BEGIN
    IF att.row_filter IS NOT NULL THEN
        RETURN QUERY SELECT d, NULL::regclass FROM tube_private_passes_ddl(att, owner) AS d;
    END IF;
    RETURN QUERY SELECT d, NULL::regclass FROM tube_private_function_ddl(
        tube_private_function(att, 'agent'), 'rel pg_catalog.regclass, triggers pg_catalog.name[], op pg_catalog.text',
        'boolean', 'SET search_path = pg_catalog, pg_temp', tube_private_agent_body(att), owner, tube_private_role('nobody')) AS d;
    RETURN QUERY SELECT d, NULL::regclass FROM tube_private_function_ddl(
        tube_private_function(att, 'capture'), '', 'trigger',
        -- Values that are compared as texts must not depend on the writer's settings.
        CASE WHEN strpos(capture, 'pg_catalog.num_nulls(') > 0 THEN 'SET extra_float_digits = 1 SET datestyle = ''ISO''' ELSE '' END,
        capture, owner, NULL) AS d;
    RETURN QUERY SELECT t.statement, t.rel FROM tube_private_trigger_ddl(att) AS t;
    RETURN QUERY SELECT d, NULL::regclass FROM tube_private_touch_ddl(att) AS d;
END
$$;

-- tube_private_function_ddl: the statements that make a function of an owner's, or mend it.
--
-- Arguments: name: quoted, with its schema; arguments: with types in full; returns; settings; body; owner; caller: a role
--   that may call it, or NULL.
CREATE OR REPLACE FUNCTION :"schema".tube_private_function_ddl(
    name text, arguments text, returns text, settings text, body text, owner oid, caller name
) RETURNS SETOF text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    signature CONSTANT text := format('%s(%s)', name, regexp_replace(arguments, '(^|, )\w+ ', '\1', 'g'));
    made CONSTANT pg_proc := (SELECT p FROM pg_proc AS p WHERE p.oid = to_regprocedure(signature));
    acl CONSTANT text := (SELECT string_agg(CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(a.grantee) END, ',')
        FROM aclexplode(coalesce(made.proacl, acldefault('f', made.proowner))) AS a WHERE a.grantee <> made.proowner);
BEGIN
    IF made.oid IS NOT NULL AND made.proowner <> owner THEN
        RETURN NEXT format('ALTER FUNCTION %s OWNER TO %I', signature, pg_get_userbyid(owner));
    END IF;
    -- One that was another's is made anew: settings that it was given would go with the rights of its owner of now.
    IF made.oid IS NULL OR NOT made.prosecdef OR made.prosrc <> body OR made.proowner <> owner THEN
        RETURN NEXT format('CREATE OR REPLACE FUNCTION %s(%s) RETURNS %s LANGUAGE plpgsql VOLATILE SECURITY DEFINER %s AS %L',
            name, arguments, returns, settings, body);
    END IF;
    IF made.oid IS NULL THEN
        RETURN NEXT format('ALTER FUNCTION %s OWNER TO %I', signature, pg_get_userbyid(owner));
    END IF;
    IF made.oid IS NULL OR acl IS DISTINCT FROM caller::text THEN
        RETURN NEXT format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', signature);
        IF caller IS NOT NULL THEN
            RETURN NEXT format('GRANT EXECUTE ON FUNCTION %s TO %I', signature, caller);
        END IF;
    END IF;
END
$$;

-- tube_private_passes_ddl: the statements that make the predicate of an attachment a function.
--
-- What is written between RETURN and its end is bound now, to types and functions by number. So neither a renamed type
-- nor a restored dump changes it, nor anything that comes into a search path later.
--
-- Arguments: att: with a row_filter that was tried; owner.
CREATE OR REPLACE FUNCTION :"schema".tube_private_passes_ddl(att :"schema".tube_attachment, owner oid) RETURNS SETOF text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    name CONSTANT text := tube_private_function(att, 'passes');
    tag CONSTANT text := 'predicate: ' || att.row_filter;
    arguments text;
    types text;
    bound oid[];
    made pg_proc;
BEGIN
    SELECT string_agg(format('%I %s', c.name, c.bound::regtype), ', ' ORDER BY c.attnum),
        string_agg(c.bound::regtype::text, ', ' ORDER BY c.attnum), array_agg(c.bound ORDER BY c.attnum)
    INTO arguments, types, bound FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c;
    SELECT p.* INTO made FROM pg_proc AS p
    WHERE p.oid = to_regproc(name) AND p.proowner = owner AND p.proargtypes::text = coalesce(array_to_string(bound, ' '), '')
        AND obj_description(p.oid, 'pg_proc') = tag AND p.prosqlbody IS NOT NULL
        -- A cast or an operator may have come between the look at the types and this.
        AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid
            AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_cast'::regclass) AND d.refobjid >= 16384);
    IF FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH mine AS (
        SELECT p.oid, p.proname = tube_private_function_name(att, 'passes') AS is_target FROM pg_proc AS p
        WHERE p.pronamespace = (SELECT n.oid FROM pg_namespace AS n WHERE n.nspname = tube_private_capture_schema())
            AND left(p.proname, -7) = left(tube_private_function_name(att, 'passes'), -7)
    )
    -- The newest of the others stays: a statement that is under way may still call it.
    SELECT format('DROP FUNCTION %s', m.oid::regprocedure) FROM mine AS m
    WHERE m.is_target OR m.oid < (SELECT max(o.oid) FROM mine AS o WHERE NOT o.is_target);
    RETURN NEXT format('CREATE FUNCTION %s(%s) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN (', name, arguments)
        || att.row_filter || E'\n)';
    RETURN NEXT format('COMMENT ON FUNCTION %s(%s) IS %L', name, types, tag);
    RETURN NEXT format('ALTER FUNCTION %s(%s) OWNER TO %I', name, types, pg_get_userbyid(owner));
END
$$;
