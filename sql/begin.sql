-- Refuses to install where it can't be right: an old server, a schema that holds something else, an
-- installation that is newer than these files. Nothing was changed then. Whose it is, whose.sql has seen.
--
-- One installation into a schema at a time: the second one waits here.
SET LOCAL pytube.install_version = :'version';
-- A function may call one of a later file.
SET LOCAL check_function_bodies = off;
-- For event triggers of version 0001.
SET LOCAL pytube.own_ddl = 'on';
DO $$
DECLARE
    wanted CONSTANT text := current_setting('pytube.install_schema');
    version CONSTANT text := current_setting('pytube.install_version');
    found_version text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('pytube install ' || wanted, 0)),
        set_config('pytube.install_before', '', true);
    IF current_setting('server_version_num')::integer < 150000 THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
            MESSAGE = format('pytube needs Postgres 15 or newer; this server is %s', current_setting('server_version')),
            HINT = 'Install into a newer server.';
    END IF;
    IF to_regclass(format('%I.tube_version', wanted)) IS NULL THEN
        IF EXISTS (SELECT FROM pg_catalog.pg_class WHERE relnamespace = to_regnamespace(quote_ident(wanted)))
            OR EXISTS (SELECT FROM pg_catalog.pg_proc WHERE pronamespace = to_regnamespace(quote_ident(wanted)))
        THEN
            RAISE EXCEPTION USING ERRCODE = 'duplicate_schema',
                MESSAGE = format('the schema %I is there already, holds objects, and is not pytube''s', wanted),
                HINT = 'Give another one: psql -v schema=NAME.';
        END IF;
        RETURN;
    END IF;
    IF EXISTS (
        SELECT FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
        WHERE c.oid = to_regclass(format('%I.tube_version', wanted)) AND c.relkind = 'r'
            AND a.attname = 'version_num' AND a.atttypid = 'pg_catalog.varchar'::regtype)
    THEN
        EXECUTE format('SELECT max(version_num) FROM ONLY %I.tube_version', wanted) INTO found_version;
    END IF;
    IF found_version IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'duplicate_schema',
            MESSAGE = format('%I.tube_version is no table of pytube''s, or says no version', wanted),
            HINT = 'Give another schema: psql -v schema=NAME.';
    ELSIF found_version > version THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('the schema %I is at version %s, which is newer than these files (%s)',
                wanted, found_version, version),
            HINT = 'Install with the pytube that made it, or with a newer one.';
    END IF;
    PERFORM set_config('pytube.install_before', found_version, true);
END
$$;
