-- tube_private_follow_ddl: the event trigger's function: follows DDL in its own transaction.
--
-- An error of it, such as a missing privilege at a new partition, fails the DDL: better than a hole.
--
-- Result: none.
-- Errors: as tube_sync.
-- Locks: as tube_sync, where the DDL concerns an attached table.
CREATE OR REPLACE FUNCTION :"schema".tube_private_follow_ddl() RETURNS event_trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '5s'
AS $$
BEGIN
    IF current_setting('pytube.own_ddl', true) = 'on' THEN
        RETURN;
    END IF;
    -- Tables are often made, and only partitions concern us.
    IF TG_TAG IN ('CREATE TABLE', 'CREATE FOREIGN TABLE') AND NOT EXISTS (
        SELECT FROM pg_event_trigger_ddl_commands() AS d JOIN pg_class AS c ON c.oid = d.objid
        WHERE d.classid = 'pg_class'::regclass AND c.relispartition AND c.relpersistence <> 't')
    THEN
        RETURN;
    END IF;
    PERFORM tube_private_sync_stale(false);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_follow_ddl() FROM PUBLIC;

-- The event trigger: made where the installing role may, which is a superuser on most servers.
DO $$
DECLARE
    ours text := current_setting('pytube.install_schema');
    trigger_name text := 'pytube_' || left(md5(ours), 8) || '_follow_ddl';
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_event_trigger AS e WHERE e.evtname = trigger_name) THEN
        RETURN;
    END IF;
    EXECUTE format('CREATE EVENT TRIGGER %I ON ddl_command_end WHEN TAG IN (''ALTER TABLE'', ''ALTER SCHEMA'', '
        '''CREATE TABLE'', ''CREATE FOREIGN TABLE'', ''CREATE SCHEMA'', ''DROP TABLE'', ''DROP SCHEMA'', ''DROP TYPE'', ''DROP DOMAIN'', '
        '''DROP EXTENSION'', ''DROP OWNED'') EXECUTE FUNCTION %I.tube_private_follow_ddl()', trigger_name, ours);
EXCEPTION WHEN insufficient_privilege THEN
    NULL; -- tube_sync does the same a little later
END
$$;
