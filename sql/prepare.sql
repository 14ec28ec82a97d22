-- Makes the schema where it is missing. owner.sql takes over one that is there.
DO $$
DECLARE
    ours CONSTANT text := current_setting('pytube.install_schema');
BEGIN
    IF to_regnamespace(quote_ident(ours)) IS NULL THEN
        EXECUTE format('CREATE SCHEMA %I AUTHORIZATION %I', ours, current_setting('pytube.install_roles') || '_admin');
    END IF;
END
$$;
