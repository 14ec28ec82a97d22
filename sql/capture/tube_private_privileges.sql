-- tube_private_privileges: sees that the owner of our functions may do what an attached table asks for.
--
-- Runs with the rights of whoever attaches the table, and so makes the grants that lack, where they may:
-- SELECT, to try predicates and to touch the rows of a TRUNCATE; TRIGGER; USAGE of the schema, and CREATE
-- there for {table}_touch. Partitions are granted with their root.
--
-- Arguments: tbl; its schema.
-- Result: nothing when all is there.
-- Errors: 42501, with the GRANTs in the hint.
-- Locks: an advisory one, until the transaction ends, where something has to be granted.
CREATE OR REPLACE FUNCTION :"schema".tube_private_privileges(tbl regclass, schema_name name) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    owner name := tube_private_role('admin');
    lacking text[] := tube_private_lacking(tbl, schema_name, owner);
    statement text;
BEGIN
    IF lacking = '{}' THEN
        RETURN;
    ELSIF current_user = owner THEN
        -- Somebody is served who has no rights of an owner: a worker, or a writer of DDL.
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('%I, who owns pytube''s functions, may not follow %s', owner, tbl),
            HINT = array_to_string(lacking, '; ') || ';';
    END IF;
    -- Two grants at once on one schema would fail each other.
    PERFORM pg_advisory_xact_lock(hashtextextended('pytube grant ' || schema_name, 0));
    BEGIN
        FOREACH statement IN ARRAY tube_private_lacking(tbl, schema_name, owner) LOOP
            EXECUTE statement;
        END LOOP;
    EXCEPTION WHEN insufficient_privilege THEN
        -- What lacks is said below.
    END;
    lacking := tube_private_lacking(tbl, schema_name, owner);
    IF lacking <> '{}' THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('%I, who owns pytube''s functions, may not attach %s, and %I may not grant it',
                owner, tbl, current_user),
            HINT = array_to_string(lacking, '; ') || ';';
    END IF;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_privileges(regclass, name) FROM PUBLIC;

-- tube_private_lacking: the grants that a role lacks on a table that is to be attached.
--
-- Arguments: tbl; its schema; owner: the role.
-- Result: GRANT statements; none when all is there.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_lacking(tbl regclass, schema_name name, owner name) RETURNS text[]
LANGUAGE plpgsql STABLE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN coalesce((
        SELECT array_agg(g.grant_sql ORDER BY g.place, g.grant_sql)
        FROM (
            SELECT 1, format('GRANT USAGE, CREATE ON SCHEMA %I TO %I', schema_name, owner)
            WHERE NOT (has_schema_privilege(owner, schema_name, 'USAGE') AND has_schema_privilege(owner, schema_name, 'CREATE'))
            UNION ALL
            SELECT 2, format('GRANT USAGE ON SCHEMA %I TO %I', n.nspname, owner)
            FROM pg_partition_tree(tbl) AS p
            JOIN pg_class AS c ON c.oid = p.relid JOIN pg_namespace AS n ON n.oid = c.relnamespace
            WHERE n.nspname <> schema_name AND NOT has_schema_privilege(owner, n.oid, 'USAGE')
            GROUP BY n.nspname
            UNION ALL
            SELECT 3, format('GRANT SELECT, TRIGGER ON %s TO %I', t.relid, owner)
            FROM (SELECT tbl UNION SELECT p.relid FROM pg_partition_tree(tbl) AS p) AS t (relid)
            WHERE NOT (has_table_privilege(owner, t.relid, 'SELECT') AND has_table_privilege(owner, t.relid, 'TRIGGER'))
        ) AS g (place, grant_sql)
    ), '{}');
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_lacking(regclass, name, name) FROM PUBLIC;

-- tube_private_owned: refuses to take triggers off a table that the caller does not own.
--
-- Postgres lets only an owner drop a trigger, or enable one for replication, and would not say what was
-- about to be done.
--
-- Arguments: tables; what: what is being done, for the error.
-- Result: nothing.
-- Errors: 42501.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_owned(tables regclass[], what text) RETURNS void
LANGUAGE plpgsql STABLE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    foreign_table record;
BEGIN
    SELECT c.oid::regclass AS tbl, pg_get_userbyid(c.relowner) AS owner INTO foreign_table
    FROM pg_class AS c
    WHERE c.oid = ANY (tables) AND NOT pg_has_role(c.relowner, 'USAGE')
    ORDER BY c.oid LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('%s: %I may not change the triggers of %s, which belongs to %I',
                what, current_user, foreign_table.tbl, foreign_table.owner),
            HINT = CASE WHEN current_user = tube_private_role('admin')
                THEN format('Run, as a role that is in %I and in %I: SELECT %I.tube_sync();',
                    current_user, foreign_table.owner, tube_private_schema())
                ELSE format('Do it as %I, or as a role that has its rights and those of %I: GRANT %I TO %I; '
                    'Nothing was changed.', foreign_table.owner, tube_private_role('admin'), foreign_table.owner,
                    current_user) END;
    END IF;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_owned(regclass[], text) FROM PUBLIC;
