-- Brings what was generated for attached tables up to date, with the rights of whoever installs, and says what
-- there is now, in the setting pytube.install_report.
DO $$
DECLARE
    ours CONSTANT text := current_setting('pytube.install_schema');
    roles CONSTANT text := current_setting('pytube.install_roles');
    version CONSTANT text := current_setting('pytube.install_version');
    before CONSTANT text := current_setting('pytube.install_before');
    report text;
BEGIN
    EXECUTE format('SELECT %I.tube_private_sync_all()', ours);
    PERFORM set_config('pytube.own_ddl', 'off', true);
    report := CASE WHEN before IN ('', version) THEN format('installed: version %s', version)
        ELSE format('upgraded: version %s (before: %s)', version, before) END;
    report := report || format(' in the schema %I, with the roles %I, %I, %I and %I', ours,
        roles || '_admin', roles || '_worker', roles || '_writer', roles || '_monitor');
    report := report || E'\nevent triggers: ' || CASE WHEN EXISTS (
        SELECT FROM pg_catalog.pg_event_trigger AS e
        JOIN pg_catalog.pg_proc AS p ON p.oid = e.evtfoid
        WHERE p.pronamespace = to_regnamespace(quote_ident(ours))
    ) THEN 'made; workers follow changes of attached tables at once'
    ELSE format('none, as %I may not make any; workers follow changes of attached tables within half a minute',
        current_user) END;
    PERFORM set_config('pytube.install_report', report, false);
END
$$;
