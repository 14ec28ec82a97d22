-- An empty pytube.install_roles becomes the prefix of the roles' names: as in this installation, by the owner of its
-- functions, or else the name of the schema. pytube.install_capture becomes
-- the name of the schema of the functions that belong to owners of attached tables.
DO $$
DECLARE
    ours CONSTANT text := current_setting('pytube.install_schema');
BEGIN
    IF current_setting('pytube.install_roles') = '' THEN
        PERFORM set_config('pytube.install_roles', coalesce((
            SELECT left(r.rolname, -6)
            FROM pg_catalog.pg_proc AS p
            JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
            JOIN pg_catalog.pg_roles AS r ON r.oid = p.proowner
            WHERE n.nspname = ours AND p.proname = 'tube_private_role'
                AND r.rolname LIKE '%\_owner'
            LIMIT 1
        ), ours), false);
    END IF;
    PERFORM set_config('pytube.install_capture', CASE WHEN octet_length(ours || '_capture') > 63
        THEN 'capture_' || md5(ours) ELSE ours || '_capture' END, false);
END
$$;
