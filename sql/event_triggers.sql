-- The event triggers that follow DDL at once: made where the installing role may, which is a superuser on
-- most servers. Elsewhere tube_sync does the same a little later. See tube_private_follow_ddl.
DO $$
DECLARE
    ours CONSTANT text := current_setting('pytube.install_schema');
    prefix CONSTANT text := 'pytube_' || left(md5(ours), 8) || '_follow_ddl_';
    tags CONSTANT text := '''ALTER TABLE'', ''ALTER SCHEMA'', ''CREATE TABLE'', ''CREATE FOREIGN TABLE'', ''CREATE SCHEMA'', '
        '''DROP TABLE'', ''DROP SCHEMA'', ''DROP TYPE'', ''DROP DOMAIN'', ''DROP EXTENSION'', ''DROP OWNED''';
    step record;
BEGIN
    FOR step IN
        SELECT s.* FROM (VALUES (1, 'tube_private_plan_ddl'), (2, 'tube_private_as_owner'),
            (3, 'tube_private_follow_ddl'), (4, 'tube_private_as_owner')) AS s (place, function)
        WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_event_trigger AS e WHERE e.evtname = prefix || s.place)
        ORDER BY s.place
    LOOP
        EXECUTE format('CREATE EVENT TRIGGER %I ON ddl_command_end WHEN TAG IN (%s) EXECUTE FUNCTION %I.%I()',
            prefix || step.place, tags, ours, step.function);
    END LOOP;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE NOTICE USING
        MESSAGE = format('%I may not make event triggers, so changes of attached tables are followed a little later',
            current_user),
        HINT = format('Workers call tube_sync() every half minute. After a change of yours, call it yourself: SELECT %I.tube_sync();', ours);
END
$$;
