-- Predicates: which rows of attached tables belong to a tube. One is parsed when the tube gets it, tried on each
-- table by the table's owner, and is then a function of the owner's, bound once, which is inlined where capture calls it.

-- tube_private_parse_predicate: refuses a predicate that is not one expression of built-in things, without running it.
-- A predicate names nothing by schema, and is bound with a search path of pg_catalog alone. So all functions,
-- operators and types in it are built in, no matter who owns what else; literals of enums need no type name.
-- A cursor refuses any text that is not one SELECT before it looks into it, and says of several statements
-- something else than of one CREATE VIEW; so a text that smuggles in a second statement is found by
-- the error alone. As the text stands once in plain parentheses and once within CAST, a parenthesis
-- that it closes too early is a syntax error in one of them.
-- Errors: TU105; the tube is for it.
CREATE OR REPLACE FUNCTION :"schema".tube_private_parse_predicate(tube text, predicate text) RETURNS void
LANGUAGE plpgsql SET standard_conforming_strings = on AS $$
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
    -- The longest match counts, so that E'...' is not a word.
    words := regexp_replace(predicate,
        '([^\u0001-\u0040\u005b-\u005e\u0060\u007b-\u007f][^\u0001-\u0023\u0025-\u002f\u003a-\u0040\u005b-\u005e\u0060\u007b-\u007f]*'
        '|"(?:""|[^"])*")|\.?[0-9][[:alnum:]_.]*|[eE]''(?:\\.|''''|[^''\\])*''|''(?:''''|[^''])*''|--[^\n\r]*', '\1 ', 'g');
    IF words ~ '\.|\$|/\*' THEN
        PERFORM tube_private_refuse_predicate(tube, NULL, predicate, 'it names something by its schema or table, or '
            'has a block comment or dollar quotes');
    -- What follows E'...' on another line is read as a part of it, with its escapes.
    ELSIF predicate ~ '[eE]''' AND predicate ~ '''(?:\s|--[^\n\r]*)*[\n\r](?:\s|--[^\n\r]*)*''' THEN
        PERFORM tube_private_refuse_predicate(tube, NULL, predicate, 'it has a literal that continues on another line');
    END IF;
END
$$;

-- tube_private_cursor_error: what a cursor says of a text that it can't be opened for, as SQLSTATE:message.
-- Nothing is run, nor planned, as the text does not begin with a query.
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
-- Arguments: tbl: the table at fault, NULL if none.
-- Errors: TU105.
CREATE OR REPLACE FUNCTION :"schema".tube_private_refuse_predicate(
    tube text, tbl regclass, predicate text, reason text
) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'TU105',
        MESSAGE = format('the predicate of tube %L is refused%s: %s', tube, coalesce(' for ' || tbl, ''), reason),
        DETAIL = format('Predicate: %s', predicate),
        HINT = 'Give one condition over the columns of the table, of immutable built-in functions and '
            'operators, without a subquery, and without names of schemas.';
END
$$;

-- tube_private_predicate_columns: the columns of a table that a predicate may name, with the types it is bound to.
-- It may find a word within a literal, too; then one column more is looked at than needs be. Only built-in code may
-- compute with values and read literals: enums without casts will do, domains over built-in types too; arrays of
-- domains, ranges and composite types of users won't.
-- Result: type: its oid; bound: what the predicate is bound to, of a domain its base type; fault: why the column
--   can't be in a predicate, or NULL.
CREATE OR REPLACE FUNCTION :"schema".tube_private_predicate_columns(tbl regclass, predicate text)
RETURNS TABLE (attnum smallint, name name, type oid, bound oid, fault text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF predicate IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT a.attnum, a.attname, a.atttypid, t.oid, CASE
        WHEN t.oid >= 16384 -- initdb has not made it
            AND (NOT (t.typtype = 'e' OR t.typcategory = 'A' AND e.typtype = 'e')
                OR EXISTS (SELECT FROM pg_cast AS k WHERE k.castsource IN (t.oid, e.oid)))
            THEN format('%I has the type %s, whose owner''s code may compute with its values', a.attname, a.atttypid::regtype)
        WHEN a.attgenerated = 'v'
            THEN format('%I is a virtual generated column, and has no value when a row is written', a.attname)
        END
    FROM pg_attribute AS a
    JOIN pg_type AS t ON t.oid = tube_private_base_type(a.atttypid)
    LEFT JOIN pg_type AS e ON e.oid = t.typelem
    WHERE a.attrelid = tbl AND a.attnum > 0 AND NOT a.attisdropped
        AND CASE WHEN a.attname::text COLLATE "C" ~ '^[a-z_][a-z0-9_]*$'
            THEN predicate COLLATE "C" ~* format(E'\\m%s\\M', a.attname)
            ELSE strpos(predicate, quote_ident(a.attname)) > 0 END
    ORDER BY a.attnum;
END
$$;

-- tube_private_try_predicate: refuses a predicate that doesn't fit a table.
-- Runs with the rights of the caller, who owns the table: nothing is bound over a table with other rights. A partial
-- index on an empty table of the same columns proves that the predicate is immutable and has no subquery.
-- Arguments: att: its row_filter is the predicate, parsed before.
-- Errors: TU105.
CREATE OR REPLACE FUNCTION :"schema".tube_private_try_predicate(att :"schema".tube_attachment) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    probe CONSTANT text := format('%I.%I', tube_private_capture_schema(), 'probe_' || gen_random_uuid());
    columns text;
    fault text;
BEGIN
    SELECT string_agg(format('%I %s', c.name, c.bound::regtype), ', ' ORDER BY c.attnum),
        coalesce(min(c.fault), CASE WHEN count(*) > 100 THEN 'it names more than 100 columns' END) -- a function has no more arguments
    INTO columns, fault
    FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c;
    IF fault IS NULL THEN
        BEGIN
            PERFORM set_config('search_path', 'pg_catalog, pg_temp', true); -- of names in the predicate; until this returns
            EXECUTE format('CREATE TABLE %s (%s)', probe, columns);
            EXECUTE format('CREATE INDEX ON %s ((1)) WHERE (', probe) || att.row_filter || E'\n)';
            -- A domain, say, whose CHECK would run with the rights of whoever writes. Functions are not looked for there.
            IF EXISTS (SELECT FROM pg_index AS i
                JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
                JOIN pg_type AS t ON d.refclassid = 'pg_type'::regclass AND t.oid = d.refobjid
                WHERE i.indrelid = probe::regclass AND t.typnamespace = pg_my_temp_schema())
            THEN
                RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', MESSAGE = 'it names a temporary type';
            END IF;
            EXECUTE format('DROP TABLE %s', probe);
            RETURN;
        EXCEPTION WHEN syntax_error_or_access_rule_violation OR data_exception OR feature_not_supported OR program_limit_exceeded THEN
            fault := SQLERRM;
        END;
    END IF;
    PERFORM tube_private_refuse_predicate(att.tube, att.tbl, att.row_filter, fault);
END
$$;

-- tube_private_passes_ddl: the statements that make the predicate of an attachment a function; none when it is one, or
-- there is none.
-- The expression after RETURN is bound now, to types, operators and functions by number, and becomes a part
-- of the caller's plan. So it means the same whatever is renamed, restored from a dump, or comes into a search path
-- or among the casts of a type later: of a text in the capture function none of this could be said.
CREATE OR REPLACE FUNCTION :"schema".tube_private_passes_ddl(att :"schema".tube_attachment) RETURNS SETOF text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    tag CONSTANT text := 'predicate: ' || att.row_filter;
    passes CONSTANT text := tube_private_function(att, 'passes');
    owner CONSTANT regrole := tube_private_owner_of(att.tbl);
    columns record;
BEGIN
    IF att.row_filter IS NULL THEN
        RETURN;
    END IF;
    SELECT coalesce(string_agg(format('%I %s', c.name, c.bound::regtype), ', ' ORDER BY c.attnum), '') AS arguments,
        coalesce(string_agg(c.bound::regtype::text, ', ' ORDER BY c.attnum), '') AS types,
        coalesce(string_agg(c.bound::text, ' ' ORDER BY c.attnum), '') AS bound
    INTO columns FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c;
    IF EXISTS (
        SELECT FROM tube_private_routines(att) AS r JOIN pg_proc AS p ON p.oid = r.routine
        WHERE r.name = passes HAVING count(*) = 1 -- beside another one the guard could not tell
            AND bool_and(p.proowner = owner AND p.proargtypes::text = columns.bound
            AND obj_description(p.oid, 'pg_proc') = tag AND p.prosqlbody IS NOT NULL
            AND p.proconfig IS NULL AND NOT p.prosecdef AND p.provolatile = 'i' -- else it would not become a part of plans
            -- A cast or an operator may have come between the look at the types and this.
            AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid
                AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_cast'::regclass) AND d.refobjid >= 16384)))
        AND NOT EXISTS (SELECT FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c
            JOIN pg_attribute AS a ON a.attrelid = att.tbl AND a.attnum = c.attnum WHERE a.attgenerated = 'v')
    THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT format('DROP ROUTINE %s', r.signature) FROM tube_private_routines(att) AS r
        WHERE r.name = passes;
    RETURN NEXT format('CREATE FUNCTION %s(%s) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN (', passes, columns.arguments)
        || att.row_filter || E'\n)';
    RETURN NEXT format('COMMENT ON FUNCTION %s(%s) IS %L', passes, columns.types, tag);
    RETURN NEXT format('REVOKE ALL ON FUNCTION %s(%s) FROM PUBLIC', passes, columns.types);
    RETURN NEXT format('ALTER FUNCTION %s(%s) OWNER TO %s', passes, columns.types, owner);
END
$$;

-- tube_private_passes_sql: whether a row has a key and passes an attachment's predicate, as SQL text with all names in full.
CREATE OR REPLACE FUNCTION :"schema".tube_private_passes_sql(att :"schema".tube_attachment, row_name text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT format('(%s%s)', (SELECT string_agg(format('%s.%I IS NOT NULL', row_name, k.name), ' AND ' ORDER BY k.place)
        FROM unnest(att.keys) WITH ORDINALITY AS k (name, place)), ' AND ' || tube_private_passes_call(att, row_name))
$$;

-- tube_private_passes_call: a call of an attachment's predicate for a row, as SQL text; NULL when there is none.
-- The types are exactly the function's, so no other function of the name is ever meant: see tube_private_guard.
CREATE OR REPLACE FUNCTION :"schema".tube_private_passes_call(att :"schema".tube_attachment, row_name text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN att.row_filter IS NOT NULL THEN (
        SELECT format('%s(%s)', tube_private_function(att, 'passes'),
            string_agg(tube_private_bound_sql(row_name, c.name, c.type, c.bound), ', ' ORDER BY c.attnum))
        FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c) END
$$;

-- tube_private_bound_sql: a column's value in the type that the predicate is bound to, as SQL text.
-- A domain becomes its base type by COALESCE, which takes no type of another category: so a user's cast never runs.
CREATE OR REPLACE FUNCTION :"schema".tube_private_bound_sql(row_name text, col name, type oid, bound oid) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN type = bound THEN format('%s.%I', row_name, col)
        ELSE format('COALESCE(%s.%I, NULL::%s)', row_name, col, tube_private_type_sql(bound)) END
$$;
