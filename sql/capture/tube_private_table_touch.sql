-- tube_private_table_touch: makes, makes anew or drops {table}_touch, after the tubes of a table changed.
--
-- Arguments: tbl: may be gone; key_type: of the tubes that it touches (there is one for each type); touch_function: the one made last, with its argument types, or NULL.
-- Result: nothing; the function's present name is stored with all attachments of the table.
-- Errors: TU107 the table's schema has another function of that name and arguments.
-- Locks: an advisory lock per table, until the transaction ends: two tubes may be at it at once.
CREATE OR REPLACE FUNCTION :"schema".tube_private_table_touch(
    tbl regclass, key_type regtype, touch_function text
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    body text;
    function_name text;
    signature text;
    owner name;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(tube_private_schema() || ' touch', tbl::oid::bigint));
    body := tube_private_table_touch_body(tbl, key_type);
    SELECT format('%I.%I', n.nspname, tube_private_name(c.relname, '_touch')), pg_get_userbyid(c.relowner)
    INTO function_name, owner
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = tbl;
    signature := format('%s(%s[],character,jsonb,integer)', function_name, key_type);
    IF touch_function IS NOT NULL AND (body IS NULL OR signature IS DISTINCT FROM touch_function) THEN
        -- The table was detached, dropped, renamed or moved.
        EXECUTE 'DROP FUNCTION IF EXISTS ' || touch_function;
    END IF;
    IF body IS NULL OR signature IS NULL THEN
        RETURN;
    END IF;
    -- One of ours is told by its owner, text and path, so that one left over (by DROP SCHEMA, say) is no
    -- obstacle. One of somebody else's would stay theirs, to be changed at will.
    IF EXISTS (
        SELECT FROM pg_proc AS p
        WHERE p.oid = to_regprocedure(signature)
            AND NOT (pg_get_userbyid(p.proowner) = current_user
                AND strpos(p.prosrc, 'Made by tube_private_table_touch_body') > 0
                AND format('search_path=pg_catalog, %I, pg_temp', tube_private_schema()) = ANY (p.proconfig))
    ) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU107',
            MESSAGE = format('%s can''t be attached: there is a function %s already', tbl, signature),
            HINT = 'Rename or drop that function; its name is needed for the touches of the table.';
    END IF;
    IF tube_private_generate(function_name,
        format('ids %s[], op char DEFAULT ''T'', payload jsonb DEFAULT NULL, chunk_size integer DEFAULT 250', key_type),
        'void', body)
    THEN
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', signature, owner);
    END IF;
    UPDATE tube_attachment AS a SET touch_function = signature
    WHERE a.tbl = tube_private_table_touch.tbl AND a.touch_function IS DISTINCT FROM signature
        AND tube_private_key_type(a.tube) = tube_private_table_touch.key_type;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_table_touch(regclass, regtype, text) FROM PUBLIC;
