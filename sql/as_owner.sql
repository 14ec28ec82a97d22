-- All that follows is made by its owner, up to as_installer.sql. First the table that says which migrations ran.
DO $$
BEGIN
    PERFORM set_config('pytube.install_role', current_setting('role'), true);
END
$$;
SET LOCAL ROLE :"role_owner";
REVOKE ALL ON SCHEMA :"schema" FROM PUBLIC;
DO $$
DECLARE
    ours CONSTANT text := current_setting('pytube.install_schema');
BEGIN
    IF to_regclass(format('%I.tube_version', ours)) IS NULL THEN
        -- As Alembic makes it.
        EXECUTE format('CREATE TABLE %I.tube_version ('
            'version_num varchar(32) NOT NULL, CONSTRAINT tube_version_pkc PRIMARY KEY (version_num))', ours);
    END IF;
END
$$;
