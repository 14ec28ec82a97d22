-- 0002: what evaluates over an attached table belongs to the table's owner.
--
-- The functions of triggers move to a schema of their own. They are given to the owners of the tables, and made again, at the
-- end of the installation: triggers stay as they are, and none of their writes is missed.

-- row_filter is the tube's predicate, or NULL where it does not fit the table; then misfit tells what was tried.
-- touch_name: our function behind {table}_touch.
ALTER TABLE :"schema".tube_attachment DROP COLUMN seen_types, DROP COLUMN touch_function, ADD misfit text, ADD touch_name text;

-- Names the sequence that tells writers whether a worker of the tube sleeps; see tube_private_make_flag.
ALTER TABLE :"schema".tube_registry ADD number bigint GENERATED ALWAYS AS IDENTITY UNIQUE;

-- What keeps a term from delivering, as its worker said with its last renewal; no row while nothing does. A table of its own,
-- so that renewals go on while this migration runs.
CREATE TABLE :"schema".tube_trouble (
    leader_id         uuid PRIMARY KEY,
    sink_down         text,         -- why; NULL while the sink takes documents
    sink_down_since   timestamptz,
    source_down       text,         -- why; NULL while rows can be read
    source_down_since timestamptz
) WITH (fillfactor = 50);

-- Private functions have changed, and are made again; but for one that a writer may call who waits for this transaction,
-- and those that event triggers call, which only a superuser may drop.
DO $$
DECLARE
    ours CONSTANT name := current_setting('pytube.install_schema');
    capture record;
    old record;
BEGIN
    FOR capture IN EXECUTE format('SELECT a.trigger_function AS name FROM %I.tube_attachment AS a', ours) LOOP
        IF to_regprocedure(format('%I.%I()', ours, capture.name)) IS NOT NULL THEN
            EXECUTE format('ALTER FUNCTION %I.%I() SET SCHEMA %I', ours, capture.name, current_setting('pytube.install_capture'));
        END IF;
    END LOOP;
    IF to_regproc(format('%I.tube_private_job_gone', ours)) IS NOT NULL THEN
        EXECUTE format('DROP TRIGGER tube_backfill_gone_trigger ON %I.tube_backfill', ours);
        EXECUTE format('DROP TRIGGER tube_job_gone_trigger ON %I.tube_job', ours);
    END IF;
    FOR old IN
        SELECT p.oid::regprocedure AS signature, p.prorettype = 'event_trigger'::regtype AS is_event FROM pg_proc AS p
        WHERE p.pronamespace = to_regnamespace(quote_ident(ours)) AND p.proname <> 'tube_private_notify'
            AND (p.proname LIKE 'tube\_private\_%' OR p.proname = 'tube_sync_served')
            AND p.prosrc NOT LIKE E'\n-- Made by tube\\_private\\_%'
    LOOP
        IF old.is_event THEN
            EXECUTE format('CREATE OR REPLACE FUNCTION %s RETURNS event_trigger LANGUAGE plpgsql AS %L', old.signature, 'BEGIN END');
        ELSE
            EXECUTE format('DROP FUNCTION %s', old.signature);
        END IF;
    END LOOP;
END
$$;

-- Neither result columns nor arguments can be replaced. Who was granted a function keeps it; grants.sql sees to that.
DO $$
DECLARE
    ours CONSTANT name := current_setting('pytube.install_schema');
    old regprocedure;
    changed text;
BEGIN
    FOREACH changed IN ARRAY ARRAY['tube_stats()', 'tube_leaders(text)', 'tube_leaders_renew(text, uuid[])'] LOOP
        old := to_regprocedure(format('%I.%s', ours, changed));
        CONTINUE WHEN old IS NULL;
        PERFORM set_config('pytube.renewed_grants', concat(current_setting('pytube.renewed_grants', true), (
            SELECT string_agg(format('GRANT EXECUTE ON FUNCTION %I.%I TO %I%s; ', ours, p.proname, r.rolname,
                CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END), '')
            FROM pg_proc AS p, aclexplode(p.proacl) AS a JOIN pg_roles AS r ON r.oid = a.grantee
            WHERE p.oid = old AND a.grantee <> p.proowner)), true);
        EXECUTE format('DROP FUNCTION %s', old);
    END LOOP;
END
$$;
