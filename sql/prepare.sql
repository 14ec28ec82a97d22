-- Makes the schemas where they are missing: ours, and that of the functions that belong to owners of attached tables.
-- owner.sql takes over those that are there.
DO $$
DECLARE
    wanted name;
BEGIN
    FOREACH wanted IN ARRAY ARRAY[current_setting('pytube.install_schema'), current_setting('pytube.install_capture')] LOOP
        IF to_regnamespace(quote_ident(wanted)) IS NULL THEN
            EXECUTE format('CREATE SCHEMA %I AUTHORIZATION %I', wanted, current_setting('pytube.install_roles') || '_owner');
        END IF;
    END LOOP;
END
$$;
