-- tube_private_parse_predicate: refuses a predicate that is not one expression, without running it.
--
-- A cursor refuses what is not one SELECT before it looks into it, and says of several statements
-- something else than of one CREATE VIEW; so a text that smuggles in a second statement is told by
-- the error alone. As the text stands once in plain parentheses and once within CAST, a parenthesis
-- that it closes too early is a syntax error in one of them.
--
-- Arguments: tube: for the error; predicate: NULL is allowed.
-- Result: nothing.
-- Errors: TU105.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_parse_predicate(tube text, predicate text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET standard_conforming_strings = on
AS $$
DECLARE
    one_statement text := tube_private_cursor_error('CREATE VIEW v AS SELECT 1');
    template text;
    answer text;
BEGIN
    IF predicate IS NULL THEN
        RETURN;
    END IF;
    FOREACH template IN ARRAY ARRAY[
        E'CREATE VIEW v AS SELECT CAST(%s\n AS boolean)', E'CREATE VIEW v AS SELECT (%s\n)'
    ] LOOP
        answer := tube_private_cursor_error(replace(template, '%s', predicate));
        IF answer IS DISTINCT FROM one_statement THEN
            PERFORM tube_private_refuse_predicate(tube, NULL, predicate,
                CASE WHEN answer LIKE '42601:%' THEN substr(answer, 7) ELSE 'it is not one expression' END);
        END IF;
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_parse_predicate(text, text) FROM PUBLIC;

-- tube_private_cursor_error: what a cursor says of a text that it can't be opened for.
--
-- Arguments: statement: anything but a query.
-- Result: SQLSTATE, colon, message.
-- Locks: none; nothing is run.
CREATE OR REPLACE FUNCTION :"schema".tube_private_cursor_error(statement text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    never record;
BEGIN
    FOR never IN EXECUTE statement LOOP
        NULL;
    END LOOP;
    RETURN NULL;
EXCEPTION WHEN syntax_error_or_access_rule_violation OR data_exception OR program_limit_exceeded
    OR feature_not_supported
THEN
    RETURN SQLSTATE || ':' || SQLERRM;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_cursor_error(text) FROM PUBLIC;

-- tube_private_refuse_predicate: raises the error of a predicate that is refused.
--
-- Arguments: tube; tbl: the table at fault, NULL if none; predicate; reason.
-- Result: never returns.
-- Errors: TU105.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_refuse_predicate(
    tube text, tbl regclass, predicate text, reason text
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'TU105',
        MESSAGE = format('the predicate of tube %L is refused%s: %s', tube, coalesce(' for ' || tbl, ''), reason),
        DETAIL = format('Predicate: %s', predicate),
        HINT = 'Give one condition over the columns of the table, of immutable built-in functions and '
            'operators, without a subquery.';
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_refuse_predicate(text, regclass, text, text) FROM PUBLIC;
