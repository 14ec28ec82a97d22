-- The event triggers that wake tube_sync: made where the installing role may, which is a superuser on
-- most servers. Elsewhere workers look twice a minute. See capture/event_triggers.sql.
DO $$
DECLARE
    ours CONSTANT text := current_setting('pytube.install_schema');
    prefix CONSTANT text := 'pytube_' || left(md5(ours), 8);
    step record;
BEGIN
    -- Of version 0001.
    FOR step IN SELECT e.evtname AS name FROM pg_catalog.pg_event_trigger AS e
        WHERE starts_with(e.evtname::text, prefix || '_follow_ddl_')
    LOOP
        EXECUTE format('DROP EVENT TRIGGER %I', step.name);
    END LOOP;
    FOR step IN SELECT p.oid::regprocedure AS name FROM pg_catalog.pg_proc AS p
        WHERE p.pronamespace = to_regnamespace(quote_ident(ours)) AND p.proname IN ('tube_private_note_drops',
            'tube_private_plan_ddl', 'tube_private_as_owner', 'tube_private_follow_ddl', 'tube_private_warn_rewrite')
    LOOP
        EXECUTE format('DROP FUNCTION %s', step.name);
    END LOOP;
    FOR step IN
        SELECT s.* FROM (VALUES
            ('_ddl', 'ddl_command_end WHEN TAG IN (''ALTER TABLE'', ''CREATE TABLE'', ''CREATE FOREIGN TABLE'')', 'tube_private_see_ddl'),
            ('_rewrites', 'table_rewrite', 'tube_private_see_rewrite')
        ) AS s (ending, event, function)
        WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_event_trigger AS e WHERE e.evtname = prefix || s.ending)
    LOOP
        EXECUTE format('CREATE EVENT TRIGGER %I ON %s EXECUTE FUNCTION %I.%I()', prefix || step.ending, step.event, ours, step.function);
    END LOOP;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE NOTICE USING
        MESSAGE = format('%I may not make event triggers, so changes of attached tables are followed a little later',
            current_user),
        HINT = format('Workers call tube_sync() twice a minute. After a change of yours, call it yourself: SELECT %I.tube_sync();', ours);
END
$$;
