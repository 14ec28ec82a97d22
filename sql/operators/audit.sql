-- The audit: operators' actions, and when. Operators' functions write their rows in the transaction of the action,
-- so that neither is there without the other.

-- Rows are only added; pytube never changes or deletes one. done_by is the role that logged in, whatever SET ROLE says.
-- Arguments: action: a word such as 'pods retry'; tube: NULL for none; details: an object of the targets and their
--   number: filters, keys, counts. Give no document and no secret, and no text that may hold one (tube_private_masked).
-- Result: the number of the row.
-- Errors: 22023 an action of no or more than 100 characters; details that are not an object, or more than 8 kB.
CREATE OR REPLACE FUNCTION :"schema".tube_audit_add(action text, tube text = NULL, details jsonb = '{}') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    number bigint;
BEGIN
    IF action IS NULL OR length(action) NOT BETWEEN 1 AND 100 THEN
        RAISE EXCEPTION 'the action is %', quote_nullable(left(action, 100))
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give a word or two, at most 100 characters.';
    ELSIF jsonb_typeof(details) IS DISTINCT FROM 'object' OR octet_length(details::text) > 8192 THEN
        RAISE EXCEPTION 'the details are not a JSON object of at most 8192 bytes'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give filters, counts and the first keys.';
    END IF;
    INSERT INTO tube_audit AS a (done_by, client, action, tube, details)
    VALUES (tube_private_login(), nullif(current_setting('application_name'), ''), tube_audit_add.action, tube_audit_add.tube,
        tube_audit_add.details)
    RETURNING a.audit_id INTO number;
    RETURN number;
END
$$;
COMMENT ON FUNCTION :"schema".tube_audit_add IS
    'Adds an action of your program to the audit. Pass no document and no secret.';

-- Arguments: in_tube, or NULL for all, and for what concerned no tube; in_limit: at most so many.
-- Result: a row per action, also of tubes that are gone; none for an unknown tube.
-- Errors: 22023 a negative in_limit.
CREATE OR REPLACE FUNCTION :"schema".tube_audit_list(in_tube text = NULL, in_limit integer = 100) RETURNS TABLE (
    audit_id bigint, done_at timestamptz, done_by name, client text, action text, tube text, details jsonb
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    PERFORM tube_private_check_limit(in_limit, 0);
    RETURN QUERY
    SELECT a.audit_id, a.done_at, a.done_by, a.client, a.action, a.tube, a.details
    FROM tube_audit AS a
    WHERE in_tube IS NULL OR a.tube = in_tube
    ORDER BY a.audit_id DESC
    LIMIT in_limit;
END
$$;
COMMENT ON FUNCTION :"schema".tube_audit_list IS 'Lists operators'' actions, latest first.';

-- tube_private_masked: a text of people or of errors, without what looks like a secret, in one line of at most 500
-- characters. The same as what workers do to the reasons that they report.
CREATE OR REPLACE FUNCTION :"schema".tube_private_masked(text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT left(regexp_replace(regexp_replace(regexp_replace($1, '[[:cntrl:]]', ' ', 'g'),
        '://[^/[:space:]]*@', '://********@', 'g'),
        '((?:password|passwd|secret|token|api[_-]?key)["'']?[[:space:]]*[=:][[:space:]]*)[^[:space:],;&]+', E'\\1********', 'gi'), 500)
$$;

-- tube_private_some_keys: the first ten keys, each cut to 100 characters, for the details of an action.
CREATE OR REPLACE FUNCTION :"schema".tube_private_some_keys(keys text[]) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(jsonb_agg(left(k.key, 100) ORDER BY k.place), '[]')
    FROM unnest($1[:10]) WITH ORDINALITY AS k (key, place)
$$;
