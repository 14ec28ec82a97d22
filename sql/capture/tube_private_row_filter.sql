-- tube_private_row_filter: a predicate as Postgres understands it for a table, safe to run with our rights.
--
-- A view on an empty copy of the table shows what the predicate calls, before anything is planned or
-- run; a partial index on the copy proves that it is immutable and has no subquery. What comes back is
-- Postgres' own text of it, which means the same whatever the settings of a session.
--
-- Arguments: tube: for the error; tbl; predicate: parsed before, NULL is allowed.
-- Result: the text; NULL for NULL.
-- Errors: TU105.
-- Locks: of the table ACCESS SHARE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_row_filter(tube text, tbl regclass, predicate text)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET standard_conforming_strings = on
SET datestyle = 'ISO'
SET intervalstyle = 'iso_8601'
SET bytea_output = 'hex'
SET extra_float_digits = 1
AS $$
DECLARE
    first_of_users CONSTANT oid := 16384; -- what initdb made has lower numbers
    probe text := format('%I.tube_private_probe_%s', tube_private_schema(), pg_backend_pid());
    called text;
    result text;
    was boolean;
BEGIN
    IF predicate IS NULL THEN
        RETURN NULL;
    END IF;
    was := tube_private_own_ddl(true);
    EXECUTE format('CREATE TABLE %s (LIKE %s INCLUDING GENERATED)', probe, tbl);
    EXECUTE format('CREATE VIEW %s_view AS SELECT 1 AS one FROM %s WHERE (', probe, probe)
        || predicate || E'\n)';
    SELECT string_agg(DISTINCT CASE d.refclassid
            WHEN 'pg_proc'::regclass THEN d.refobjid::regprocedure::text
            ELSE d.refobjid::regoperator::text END, ', ')
    INTO called
    FROM pg_rewrite AS r
    JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
    WHERE r.ev_class = to_regclass(probe || '_view')
        AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
        AND d.refobjid >= first_of_users;
    IF called IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'syntax_error_or_access_rule_violation',
            MESSAGE = format('it calls %s, which is not built in', called);
    END IF;
    -- A cast to a domain runs its checks; a literal of somebody's type is read by what it is made of.
    SELECT string_agg(DISTINCT t.name, ', ') INTO called
    FROM pg_rewrite AS r
    JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
    LEFT JOIN pg_attribute AS a ON d.refclassid = 'pg_class'::regclass
        AND a.attrelid = d.refobjid AND a.attnum = d.refobjsubid AND d.refobjid = to_regclass(probe)
    CROSS JOIN LATERAL (
        SELECT format('a cast to %s', d.refobjid::regtype)
        WHERE d.refclassid = 'pg_type'::regclass
            AND NOT (d.refobjid < first_of_users OR EXISTS (
                SELECT FROM pg_type AS y LEFT JOIN pg_type AS e ON e.oid = y.typelem
                WHERE y.oid = d.refobjid AND (y.typtype = 'e' OR y.typcategory = 'A' AND e.typtype = 'e')))
        UNION ALL
        SELECT format('%I of type %s', a.attname, a.atttypid::regtype)
        WHERE a.attname IS NOT NULL AND NOT tube_private_trusted_type(a.atttypid)
    ) AS t (name)
    WHERE r.ev_class = to_regclass(probe || '_view');
    IF called IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'syntax_error_or_access_rule_violation',
            MESSAGE = format('it uses %s, which may run code of its owner', called);
    END IF;
    EXECUTE format('DROP VIEW %s_view', probe);
    EXECUTE format('CREATE INDEX ON %s ((1)) WHERE (', probe) || predicate || E'\n)';
    SELECT pg_get_expr(i.indpred, i.indrelid) INTO result
    FROM pg_index AS i WHERE i.indrelid = to_regclass(probe);
    EXECUTE format('DROP TABLE %s', probe);
    PERFORM tube_private_own_ddl(was);
    RETURN result;
EXCEPTION WHEN syntax_error_or_access_rule_violation OR data_exception OR feature_not_supported
    OR program_limit_exceeded
THEN
    PERFORM tube_private_refuse_predicate(tube, tbl, predicate, SQLERRM);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_row_filter(text, regclass, text) FROM PUBLIC;
