-- tube_private_check_name: refuses a name that no new tube can have.
--
-- The table, {tube}_touch and the channel are named after it, and calls list tubes by commas.
--
-- Errors: TU101 empty, longer than 57 bytes, with a comma or a control character, beginning
--   with pg_, or the name of a relation in our schema that is not a tube.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_name(tube text) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    longest CONSTANT integer := 57; -- with _touch behind it, 63
    wrong text;
BEGIN
    wrong := CASE
        WHEN coalesce(tube, '') = '' THEN 'it is empty'
        WHEN octet_length(tube) > longest
            THEN format('it has %s bytes, and %s are allowed', octet_length(tube), longest)
        WHEN tube LIKE '%,%' THEN 'it has a comma'
        WHEN tube ~ '[\u0001-\u001f\u007f-\u009f]' THEN 'it has a control character'
        WHEN tube LIKE 'pg\_%' THEN 'such names belong to Postgres'
        WHEN EXISTS (
            SELECT FROM pg_class AS c
            WHERE c.relnamespace = to_regnamespace(quote_ident(tube_private_schema())) AND c.relname = tube
        ) THEN format('there is a relation of that name in the schema %I', tube_private_schema())
    END;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU101',
            MESSAGE = format('%s is no name for a tube: %s', coalesce(quote_literal(tube), 'NULL'), wrong),
            HINT = 'Choose a name of 1 to 57 bytes without commas, such as es-live.';
    END IF;
END
$$;
