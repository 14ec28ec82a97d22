-- The event triggers that follow DDL at once: made where the installing role may, which is a superuser on
-- most servers. Elsewhere tube_sync does the same a little later. See tube_private_follow_ddl.
DO $$
DECLARE
    ours CONSTANT text := current_setting('pytube.install_schema');
    prefix CONSTANT text := 'pytube_' || left(md5(ours), 8) || '_follow_ddl_';
    tags CONSTANT text := '''ALTER TABLE'', ''ALTER SCHEMA'', ''CREATE TABLE'', ''CREATE FOREIGN TABLE'', ''CREATE SCHEMA'', '
        -- Of what a CASCADE from there may drop a column.
        '''DROP TABLE'', ''DROP SCHEMA'', ''DROP TYPE'', ''DROP DOMAIN'', ''DROP EXTENSION'', ''DROP OWNED'', '
        '''DROP FUNCTION'', ''DROP ROUTINE'', ''DROP AGGREGATE'', ''DROP OPERATOR'', ''DROP CAST'', ''DROP COLLATION'', '
        '''DROP LANGUAGE'', ''DROP TEXT SEARCH CONFIGURATION'', ''DROP TEXT SEARCH DICTIONARY'', ''DROP VIEW'', '
        '''DROP MATERIALIZED VIEW'', ''DROP FOREIGN TABLE''';
    step record;
BEGIN
    FOR step IN
        SELECT s.* FROM (VALUES (0, 'tube_private_note_drops', 'sql_drop'), (1, 'tube_private_plan_ddl', 'ddl_command_end'),
            (2, 'tube_private_as_owner', 'ddl_command_end'), (3, 'tube_private_follow_ddl', 'ddl_command_end'),
            (4, 'tube_private_as_owner', 'ddl_command_end'), (5, 'tube_private_warn_rewrite', 'table_rewrite')
        ) AS s (place, function, event)
        WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_event_trigger AS e WHERE e.evtname = prefix || s.place)
        ORDER BY s.place
    LOOP
        EXECUTE format('CREATE EVENT TRIGGER %I ON %s %s EXECUTE FUNCTION %I.%I()', prefix || step.place, step.event,
            CASE step.event WHEN 'ddl_command_end' THEN format('WHEN TAG IN (%s)', tags) ELSE '' END, ours, step.function);
    END LOOP;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE NOTICE USING
        MESSAGE = format('%I may not make event triggers, so changes of attached tables are followed a little later',
            current_user),
        HINT = format('Workers call tube_sync() every half minute. After a change of yours, call it yourself: SELECT %I.tube_sync();', ours);
END
$$;
