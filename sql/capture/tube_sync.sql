-- tube_sync: follows what DDL has done to attached tables since it was last looked at.
--
-- Tables and columns that were renamed, moved or dropped; partitions that came or went; triggers that were
-- dropped; a database that was restored. Where our event triggers follow DDL there is nothing
-- left to do; elsewhere workers call this once a minute, and a migration may do so within its transaction.
--
-- A member of tube_admin changes tables with their own rights, which has to be those of their owners
-- where triggers are to go. Anybody else, such as a worker, is served with the rights of tube_admin: these
-- will do for new partitions on which it was granted SELECT and TRIGGER.
--
-- Result: how many tubes were brought in line. A table that could not be is told in a WARNING, and stays
--   as it was: what is written to a new partition by its own name is touched when it can be.
-- Errors: 55P03 a tube is being changed.
-- Locks: of tubes that need it, as tube_private_sync, and their registry rows; until the transaction ends.
CREATE OR REPLACE FUNCTION :"schema".tube_sync() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '5s'
AS $$
BEGIN
    IF has_function_privilege('tube_private_sync_stale(text)', 'EXECUTE') THEN
        RETURN tube_private_sync_stale('late');
    END IF;
    RETURN tube_sync_served();
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_sync() FROM PUBLIC;

-- tube_private_sync_stale: tube_private_sync for each tube that needs it.
--
-- Arguments: mode: as of tube_private_sync.
-- Result: how many tubes were brought in line.
-- Errors: as of tube_private_sync; 55P03 a registry row is locked.
-- Locks: as of tube_sync.
CREATE OR REPLACE FUNCTION :"schema".tube_private_sync_stale(mode text) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    stale text;
    tubes integer := 0;
BEGIN
    FOR stale IN SELECT r.tube FROM tube_registry AS r WHERE tube_private_stale(r.tube) ORDER BY r.tube LOOP
        PERFORM FROM tube_registry AS r WHERE r.tube = stale FOR NO KEY UPDATE;
        IF FOUND AND tube_private_sync(stale, mode) THEN
            tubes := tubes + 1;
        END IF;
    END LOOP;
    RETURN tubes;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_sync_stale(text) FROM PUBLIC;

-- tube_private_stale: whether something generated for a tube is not in line with its tables.
--
-- Arguments: tube.
-- Result: true or false.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_stale(tube text) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    key_type CONSTANT regtype := tube_private_key_type(tube);
    followed CONSTANT boolean := tube_private_followed();
BEGIN
    RETURN EXISTS (
        SELECT FROM tube_attachment AS a
        LEFT JOIN pg_class AS c ON c.oid = a.tbl
        LEFT JOIN pg_namespace AS n ON n.oid = c.relnamespace
        LEFT JOIN pg_proc AS p ON p.oid = to_regprocedure(format('%I.%I()', tube_private_schema(), a.trigger_function))
        WHERE a.tube = tube_private_stale.tube AND (
            c.oid IS NULL OR p.oid IS NULL
            OR a.seen_oid IS DISTINCT FROM a.tbl::oid
            OR followed = (strpos(p.prosrc, 'tube_private_makeshift') > 0)
            OR a.touch_function IS DISTINCT FROM format('%I.%I(%s[],character,jsonb,integer)',
                n.nspname, tube_private_name(c.relname, '_touch'), key_type)
            OR to_regprocedure(a.touch_function) IS NULL
            OR (tube_private_present(a)).id_col IS DISTINCT FROM a.id_col
            OR (tube_private_present(a)).columns IS DISTINCT FROM a.columns
            OR (tube_private_present(a)).row_filter IS DISTINCT FROM a.row_filter
            OR (tube_private_seen(tube_private_present(a))).seen_types IS DISTINCT FROM a.seen_types
            OR tube_private_misfit(a.tbl) IS NOT NULL
            OR EXISTS (SELECT FROM tube_private_trigger_ddl(a))
            OR a.members IS DISTINCT FROM (
                SELECT array_agg(m.rel::oid ORDER BY m.rel::oid) FROM tube_private_members(a.tbl) AS m)));
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_stale(text) FROM PUBLIC;
