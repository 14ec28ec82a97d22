-- The first file of the extension's script, which script.awk makes: what psql/start.sql and psql/begin.sql do for psql.
--
-- The roles are always named after the schema: a dump has no more of an extension than its name and its schema.
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL pytube.install_extension = 'on';
SET LOCAL pytube.install_roles = '';
SET LOCAL pytube.install_force = '0';

-- Refused: the schema that Postgres takes when none is given; an installation that is not this extension's; and where a
-- role without superuser runs this with a superuser's rights, a schema in which others could make functions meanwhile.
DO $$
DECLARE
    ours CONSTANT pg_namespace := (SELECT n FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace WHERE e.extname = 'pytube');
    recorded CONSTANT regclass := to_regclass(format('%I.tube_version', ours.nspname));
    by_superuser CONSTANT boolean := (SELECT o.rolsuper FROM pg_extension AS e JOIN pg_roles AS o ON o.oid = e.extowner WHERE e.extname = 'pytube');
    creator text;
BEGIN
    PERFORM set_config('pytube.install_schema', ours.nspname, true);
    IF ours.nspname = 'public' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_schema_name',
            MESSAGE = 'pytube needs a separate schema',
            HINT = 'CREATE SCHEMA tube; CREATE EXTENSION pytube SCHEMA tube;';
    ELSIF recorded IS NOT NULL
        AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass AND d.objid = recorded AND d.deptype = 'e')
    THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('pytube is in the schema %I already, and was not made by CREATE EXTENSION', ours.nspname),
            HINT = 'Upgrade it as it was installed, by pytube install say; or uninstall it first.';
    ELSIF NOT by_superuser AND current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'without superuser, this runs at READ COMMITTED only: an old snapshot doesn''t show what others have prepared',
            HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED;';
    END IF;
    SELECT string_agg(DISTINCT coalesce(r.rolname, 'PUBLIC'), ', ') INTO creator
    FROM aclexplode(ours.nspacl) AS a LEFT JOIN pg_roles AS r ON r.oid = a.grantee
    WHERE a.privilege_type = 'CREATE' AND a.grantee <> ours.nspowner AND r.rolsuper IS NOT TRUE
        AND NOT by_superuser;
    IF creator IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('roles without superuser may create in the schema %I: %s', ours.nspname, creator),
            HINT = format('REVOKE CREATE ON SCHEMA %I from them; or have a superuser run this.', ours.nspname);
    END IF;
END
$$;
