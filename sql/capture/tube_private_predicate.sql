-- tube_private_parse_predicate: refuses a predicate that is not one expression of built-in things, without running it.
--
-- A predicate names nothing by schema, and is bound with a search path of pg_catalog alone. So all functions,
-- operators and types in it are built in, whoever owns what else; literals of enums need no type name.
--
-- A cursor refuses what is not one SELECT before it looks into it, and says of several statements
-- something else than of one CREATE VIEW; so a text that smuggles in a second statement is told by
-- the error alone. As the text stands once in plain parentheses and once within CAST, a parenthesis
-- that it closes too early is a syntax error in one of them.
--
-- Arguments: tube: for the error; predicate: NULL is allowed.
-- Errors: TU105.
CREATE OR REPLACE FUNCTION :"schema".tube_private_parse_predicate(tube text, predicate text) RETURNS void
LANGUAGE plpgsql
SET standard_conforming_strings = on
AS $$
DECLARE
    one_statement text := tube_private_cursor_error('CREATE VIEW v AS SELECT 1');
    template text;
    answer text;
    words text;
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
    -- Words (of ASCII letters, digits, _ and all that is not ASCII) and quoted names stay; numbers, literals and comments go.
    -- The longest match counts, so that E'…' is no word.
    words := regexp_replace(predicate,
        '([^\u0001-\u0040\u005b-\u005e\u0060\u007b-\u007f][^\u0001-\u0023\u0025-\u002f\u003a-\u0040\u005b-\u005e\u0060\u007b-\u007f]*'
        '|"(?:""|[^"])*")|\.?[0-9][[:alnum:]_.]*|[eE]''(?:\\.|''''|[^''\\])*''|''(?:''''|[^''])*''|--[^\n\r]*', '\1 ', 'g');
    IF words ~ '\.|\$|/\*' THEN
        PERFORM tube_private_refuse_predicate(tube, NULL, predicate, 'it names something by its schema or table, or '
            'has a block comment or dollar quotes');
    -- What follows E'…' on another line is read as a part of it, with its escapes.
    ELSIF predicate ~ '[eE]''' AND predicate ~ '''(?:\s|--[^\n\r]*)*[\n\r](?:\s|--[^\n\r]*)*''' THEN
        PERFORM tube_private_refuse_predicate(tube, NULL, predicate, 'it has a literal that goes on in another line');
    END IF;
END
$$;

-- tube_private_cursor_error: what a cursor says of a text that it can't be opened for, as SQLSTATE:message.
--
-- Nothing is run, nor planned, as the text does not begin with a query.
--
-- Arguments: statement: begins with a statement that is no query.
CREATE OR REPLACE FUNCTION :"schema".tube_private_cursor_error(statement text) RETURNS text
LANGUAGE plpgsql AS $$
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

-- tube_private_refuse_predicate: raises the error of a predicate that is refused.
--
-- Arguments: tube; tbl: the table at fault, NULL if none; predicate; reason.
-- Errors: TU105.
CREATE OR REPLACE FUNCTION :"schema".tube_private_refuse_predicate(
    tube text, tbl regclass, predicate text, reason text
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'TU105',
        MESSAGE = format('the predicate of tube %L is refused%s: %s', tube, coalesce(' for ' || tbl, ''), reason),
        DETAIL = format('Predicate: %s', predicate),
        HINT = 'Give one condition over the columns of the table, of immutable built-in functions and '
            'operators, without a subquery, and without names of schemas.';
END
$$;

-- tube_private_predicate_columns: the columns of a table that a predicate may name, with the types it is bound to.
--
-- It may find a word within a literal, too; then one column more is looked at than needs be.
--
-- Arguments: tbl; predicate: may be NULL.
-- Result: attnum; name; type: its oid; bound: what the predicate is bound to, of a domain what it is made of;
--   fits: whether only built-in code computes with its values and reads its literals. Enums without casts do,
--   domains over built-in types too; arrays of domains, ranges and composite types of users don't.
CREATE OR REPLACE FUNCTION :"schema".tube_private_predicate_columns(tbl regclass, predicate text)
RETURNS TABLE (attnum smallint, name name, type oid, bound oid, fits boolean)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
    SELECT a.attnum, a.attname, a.atttypid, t.oid,
        t.oid < 16384 -- initdb made it
            OR (t.typtype = 'e' OR t.typcategory = 'A' AND e.typtype = 'e')
                AND NOT EXISTS (SELECT FROM pg_cast AS k WHERE k.castsource IN (t.oid, e.oid))
    FROM pg_attribute AS a
    JOIN pg_type AS t ON t.oid = tube_private_base_type(a.atttypid)
    LEFT JOIN pg_type AS e ON e.oid = t.typelem
    WHERE a.attrelid = tbl AND a.attnum > 0 AND NOT a.attisdropped
        AND CASE WHEN a.attname::text COLLATE "C" ~ '^[a-z_][a-z0-9_]*$'
            THEN predicate COLLATE "C" ~* format('\m%s\M', a.attname)
            ELSE strpos(predicate, quote_ident(a.attname)) > 0 END
    ORDER BY a.attnum
$$;

-- tube_private_try_predicate: refuses a predicate that doesn't fit a table.
--
-- Runs with the rights of the caller, who owns the table: nothing is bound over a table with other rights. A partial
-- index on an empty table of the same columns proves that the predicate is immutable and has no subquery.
--
-- Arguments: att: its row_filter is the predicate, parsed before; NULL is allowed.
-- Errors: TU105.
CREATE OR REPLACE FUNCTION :"schema".tube_private_try_predicate(att :"schema".tube_attachment) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
SET standard_conforming_strings = on
AS $$
DECLARE
    probe CONSTANT text := format('%I.%I', tube_private_capture_schema(), 'probe_' || gen_random_uuid());
    col record;
    columns text;
BEGIN
    IF att.row_filter IS NULL THEN
        RETURN;
    END IF;
    FOR col IN SELECT * FROM tube_private_predicate_columns(att.tbl, att.row_filter) LOOP
        IF NOT col.fits THEN
            PERFORM tube_private_refuse_predicate(att.tube, att.tbl, att.row_filter,
                format('%I has the type %s, whose owner''s code may compute with its values', col.name, col.type::regtype));
        ELSIF EXISTS (
            SELECT FROM pg_attribute AS a WHERE a.attrelid = att.tbl AND a.attnum = col.attnum AND a.attgenerated = 'v')
        THEN
            PERFORM tube_private_refuse_predicate(att.tube, att.tbl, att.row_filter,
                format('%I is a virtual generated column, and has no value when a row is written', col.name));
        END IF;
        columns := concat_ws(', ', columns, format('%I %s', col.name, col.bound::regtype));
    END LOOP;
    PERFORM set_config('search_path', 'pg_catalog, pg_temp', true); -- of names in the predicate; until this returns
    EXECUTE format('CREATE TABLE %s (%s)', probe, columns);
    EXECUTE format('CREATE INDEX ON %s ((1)) WHERE (', probe) || att.row_filter || E'\n)';
    EXECUTE format('DROP TABLE %s', probe);
EXCEPTION WHEN syntax_error_or_access_rule_violation OR data_exception OR feature_not_supported
    OR program_limit_exceeded
THEN
    IF SQLSTATE = 'TU105' THEN
        RAISE;
    END IF;
    PERFORM tube_private_refuse_predicate(att.tube, att.tbl, att.row_filter, SQLERRM);
END
$$;
