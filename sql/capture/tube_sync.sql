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
-- Result: how many tubes were brought in line. A table that could not be, whatever the error, is told in a
--   WARNING, and stays as it was: what is written to a new partition by its own name is touched when it can be.
-- Errors: none of a tube's.
-- Locks: of tubes that need it, as tube_private_sync, and their registry rows; until the transaction ends.
CREATE OR REPLACE FUNCTION :"schema".tube_sync() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '5s'
AS $$
BEGIN
    IF has_function_privilege('tube_private_sync_stale()', 'EXECUTE') THEN
        RETURN tube_private_sync_stale();
    END IF;
    RETURN tube_sync_served();
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_sync() FROM PUBLIC;

-- tube_private_sync_stale: tube_private_sync for each tube that needs it, and its tables that do.
--
-- Result: how many tubes were brought in line; a WARNING for each that was not.
-- Locks: as of tube_sync.
CREATE OR REPLACE FUNCTION :"schema".tube_private_sync_stale() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    stale record;
    hint text;
    tubes integer := 0;
BEGIN
    FOR stale IN
        SELECT a.tube, array_agg(a.tbl) AS tables FROM tube_attachment AS a
        WHERE tube_private_stale(a) GROUP BY a.tube ORDER BY a.tube
    LOOP
        BEGIN
            PERFORM FROM tube_registry AS r WHERE r.tube = stale.tube FOR NO KEY UPDATE;
            IF FOUND AND tube_private_sync(stale.tube, 'late', stale.tables) THEN
                tubes := tubes + 1;
            END IF;
        EXCEPTION WHEN OTHERS THEN
            -- One tube's trouble is no other's.
            GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
            RAISE WARNING USING MESSAGE = format('tube %L is not followed: %s', stale.tube, SQLERRM), HINT = hint;
        END;
    END LOOP;
    RETURN tubes;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_sync_stale() FROM PUBLIC;

-- tube_private_stale: whether something generated for an attachment is not in line with its table.
--
-- Arguments: a: the attachment.
-- Result: true or false.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_stale(a :"schema".tube_attachment) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    now_is CONSTANT tube_attachment := tube_private_present(a);
    rel record;
    body CONSTANT text := (SELECT p.prosrc FROM pg_proc AS p
        WHERE p.oid = to_regprocedure(format('%I.%I()', tube_private_schema(), a.trigger_function)));
BEGIN
    SELECT c.relname, n.nspname INTO rel
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = a.tbl;
    RETURN NOT FOUND OR body IS NULL
        OR a.seen_oid IS DISTINCT FROM a.tbl::oid
        OR a.as_root IS DISTINCT FROM tube_private_is_root(a)
        OR tube_private_followed() = (strpos(body, 'tube_private_makeshift') > 0)
        OR a.touch_function IS DISTINCT FROM format('%I.%I(%s[],character,jsonb,integer)',
            rel.nspname, tube_private_name(rel.relname, '_touch'), tube_private_key_type(a.tube))
        OR to_regprocedure(a.touch_function) IS NULL
        OR (now_is.id_col, now_is.columns, now_is.row_filter) IS DISTINCT FROM (a.id_col, a.columns, a.row_filter)
        OR (tube_private_seen(now_is)).seen_types IS DISTINCT FROM a.seen_types
        OR tube_private_misfit(a.tbl) IS NOT NULL
        OR EXISTS (SELECT FROM tube_private_trigger_ddl(a))
        OR a.members IS DISTINCT FROM (
            SELECT array_agg(m.rel::oid ORDER BY m.rel::oid) FROM tube_private_members(a.tbl) AS m);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_stale(:"schema".tube_attachment) FROM PUBLIC;
