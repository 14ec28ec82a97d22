-- tube_private_generate: makes a generated function, or makes it anew where its text has changed.
--
-- Arguments: function_name: quoted, with its schema; arguments: with defaults; returns; body.
-- Result: whether it was made.
-- Errors: 42501 the schema is not ours to create in.
-- Locks: none that writers feel.
CREATE OR REPLACE FUNCTION :"schema".tube_private_generate(
    function_name text, arguments text, returns text, body text
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    signature text := function_name || '(' || regexp_replace(arguments, '(\w+) ([^ ,]+)( DEFAULT [^,]+)?', '\2', 'g') || ')';
BEGIN
    IF EXISTS (SELECT FROM pg_proc AS p WHERE p.oid = to_regprocedure(signature) AND p.prosrc = body) THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE OR REPLACE FUNCTION %s(%s) RETURNS %s LANGUAGE plpgsql VOLATILE SECURITY DEFINER '
        'SET search_path = pg_catalog, %I, pg_temp%s AS %L',
        function_name, arguments, returns, tube_private_schema(),
        -- A backslash in a predicate must not depend on the writer; without one, save the time.
        CASE WHEN strpos(body, '\') > 0 THEN ' SET standard_conforming_strings = on' ELSE '' END
            -- Values that are compared as texts (tube_private_column_values) must not, either.
            || CASE WHEN strpos(body, 'concat(num_nulls(') > 0
                THEN ' SET extra_float_digits = 1 SET datestyle = ''ISO''' ELSE '' END,
        body);
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', signature);
    IF returns = 'void' THEN -- a touch function; trigger functions are called by nobody
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', signature, tube_private_role('writer'));
    END IF;
    RETURN true;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_generate(text, text, text, text) FROM PUBLIC;
