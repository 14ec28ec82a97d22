-- The end of an installation. Every migration up to this version was run. (Alembic records the ones it runs.)
DELETE FROM :"schema".tube_version WHERE version_num < :'version';
INSERT INTO :"schema".tube_version VALUES (:'version') ON CONFLICT DO NOTHING;

-- What follows is done with the rights of the installing role, and settings are as they were before prepare.sql.
DO $$
BEGIN
    IF current_setting('role') <> current_setting('pytube.install_role') THEN -- an extension's script may not set any
        PERFORM set_config('role', current_setting('pytube.install_role'), true);
    END IF;
    PERFORM set_config('check_function_bodies', current_setting('pytube.install_bodies'), true);
END
$$;

-- The event triggers: made where the installing role may, which is a superuser on most servers.
-- Elsewhere workers look twice a minute.
DO $$
DECLARE
    ours CONSTANT text := current_setting('pytube.install_schema');
    prefix CONSTANT text := 'pytube_' || left(md5(ours), 8);
    step text;
BEGIN
    FOR step IN
        SELECT format('CREATE EVENT TRIGGER %I ON %s EXECUTE FUNCTION %I.%I()',
            prefix || s.ending, s.event, ours, s.function)
        FROM (VALUES
            ('_ddl', 'ddl_command_end WHEN TAG IN (''ALTER TABLE'', ''CREATE TABLE'', ''CREATE FOREIGN TABLE'')',
                'tube_private_follow_ddl'),
            ('_rewrites', 'table_rewrite', 'tube_private_see_rewrite')
        ) AS s (ending, event, function)
        WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_event_trigger AS e WHERE e.evtname = prefix || s.ending)
    LOOP
        EXECUTE step;
    END LOOP;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE NOTICE USING
        MESSAGE = format('%I may not make event triggers, so changes of attached tables are followed a little later',
            current_user),
        HINT = format('Workers call tube_sync() twice a minute. After a change of yours, call it yourself: '
            'SELECT %I.tube_sync();', ours);
END
$$;

-- Brings the generated objects of tubes and attached tables up to date, and reports in pytube.install_report.
DO $$
DECLARE
    ours CONSTANT text := current_setting('pytube.install_schema');
    roles CONSTANT text := current_setting('pytube.install_roles');
    version CONSTANT text := current_setting('pytube.install_version');
    before CONSTANT text := current_setting('pytube.install_before');
    tube text;
    tbl regclass;
    att record;
    there integer;
    detail text;
    hint text;
BEGIN
    FOR tube IN EXECUTE
        format('SELECT r.tube FROM %I.tube_registry AS r WHERE r.kind = ''tube'' ORDER BY r.tube FOR NO KEY UPDATE', ours)
    LOOP
        EXECUTE format('SELECT %I.tube_private_provide_tube($1)', ours) USING tube;
        FOR tbl IN EXECUTE
            format('SELECT a.tbl FROM %I.tube_attachment AS a WHERE a.tube = $1 ORDER BY a.position', ours) USING tube
        LOOP
            BEGIN
                EXECUTE format('SELECT a AS now FROM %I.tube_private_begin_sync($1, $2) AS a WHERE a.tube IS NOT NULL', ours)
                    INTO att USING tube, tbl; -- a regclass: its text needs rights on the table's schema
                GET DIAGNOSTICS there = ROW_COUNT;
                CONTINUE WHEN there = 0; -- it can't stay attached
                EXECUTE format('SELECT %I.tube_private_bring_in_line($1, false)', ours) USING att.now;
            EXCEPTION WHEN OTHERS THEN
                -- An owner's action, such as taking a name that pytube needs, must not affect other tables.
                IF NOT (SQLSTATE LIKE 'TU%' OR SQLSTATE IN ('42710', '42723', '42P07')) THEN
                    RAISE;
                END IF;
                GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
                IF SQLSTATE = 'TU105' THEN -- as tube_private_bring_in_line says it later
                    detail := format('Until it fits again, writes of %s ask for a backfill, which waits, and workers can''t read its rows.', tbl);
                    hint := 'Give the tube another one: tube_ensure_exists, predicate => SQL.';
                END IF;
                RAISE WARNING USING MESSAGE = format('%s is not followed by tube %L: %s', tbl, tube, SQLERRM),
                    DETAIL = coalesce(nullif(detail, ''), 'It stays as it was.'),
                    HINT = coalesce(nullif(hint, ''), format('Once that is fixed, its owner runs: SELECT %I.tube_sync();', ours));
            END;
        END LOOP;
    END LOOP;
    FOR tube IN EXECUTE format('SELECT o.outbox FROM %I.tube_outbox AS o ORDER BY o.outbox', ours) LOOP
        EXECUTE format('SELECT %I.tube_private_provide_outbox($1)', ours) USING tube;
    END LOOP;
    PERFORM set_config('pytube.install_report', format(
        E'%s in the schema %I, with the roles %I, %I, %I and %I\nevent triggers: %s',
        CASE WHEN before IN ('', version) THEN format('installed: version %s', version)
            ELSE format('upgraded: version %s (before: %s)', version, before) END,
        ours, roles || '_admin', roles || '_worker', roles || '_writer', roles || '_monitor',
        CASE WHEN EXISTS (
            SELECT FROM pg_catalog.pg_event_trigger AS e JOIN pg_catalog.pg_proc AS p ON p.oid = e.evtfoid
            WHERE p.pronamespace = to_regnamespace(quote_ident(ours))
        ) THEN 'made; workers follow changes of attached tables at once'
        ELSE format('none, as %I may not make any; workers follow changes of attached tables within half a minute',
            current_user) END), false);
END
$$;
