-- Refuses a schema that another role has prepared, before anything in it is read or called: a view, a
-- rule, an overloaded function there would run with the installer's rights, and a function of
-- theirs would end up with tube_owner's.
--
-- The schema and all that is directly in it have to belong to the installing role, to a superuser, or to
-- tube_owner; so has the schema of the owners' functions, in which these have theirs. Only catalogues are read, with a
-- pinned search path. Names that no pytube schema can have are refused, too. Nothing was changed then.
--
-- pytube.install_roles becomes the beginning of the roles' names, and pytube.install_capture the name of the schema of the
-- functions that belong to owners of attached tables.
--
-- A superuser learns who could act as tube_owner: functions of its run with the rights of superusers, of event
-- triggers even unasked.
--
-- One session at a time installs into a schema, or uninstalls. Who waits does so here, before it looks: anybody may hold
-- this lock, and prepare something meanwhile.
DO $$
DECLARE
    ours CONSTANT text := current_setting('pytube.install_schema');
    waited CONSTANT boolean := pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('pytube install ' || ours, 0)) IS NULL;
    schema_oid CONSTANT oid := (SELECT n.oid FROM pg_catalog.pg_namespace AS n WHERE n.nspname = ours);
    capture CONSTANT text := CASE WHEN octet_length(ours || '_capture') > 63 THEN 'capture_' || md5(ours)
        ELSE ours || '_capture' END;
    -- Unless given, as in this installation, by the owner of its functions, or else the name of the schema.
    roles CONSTANT text := coalesce(nullif(current_setting('pytube.install_roles'), ''), (
        SELECT left(r.rolname, -6)
        FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_roles AS r ON r.oid = p.proowner
        WHERE p.pronamespace = schema_oid AND p.proname = 'tube_private_role' AND r.rolname LIKE '%\_owner' LIMIT 1), ours);
    owner CONSTANT text := roles || '_owner';
    wrong record;
BEGIN
    PERFORM set_config('pytube.install_roles', roles, false), set_config('pytube.install_capture', capture, false);
    IF ours = '' OR ours IN ('public', 'information_schema') OR starts_with(ours, 'pg_') OR octet_length(ours) > 63 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_schema_name',
            MESSAGE = format('pytube can''t be installed into the schema %L', ours),
            HINT = 'Give another schema: psql -v schema=NAME, NAME of 1 to 63 bytes.';
    END IF;
    SELECT string_agg(quote_ident(m.rolname), ', ' ORDER BY m.rolname) AS roles INTO wrong
    FROM pg_catalog.pg_auth_members AS a
    JOIN pg_catalog.pg_roles AS o ON o.oid = a.roleid
    JOIN pg_catalog.pg_roles AS m ON m.oid = a.member
    WHERE o.rolname = owner AND NOT m.rolsuper
        AND EXISTS (SELECT FROM pg_catalog.pg_roles AS s WHERE s.rolname = current_user AND s.rolsuper);
    IF wrong.roles IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('%s, no superusers, could act as %I, and so run code with the rights of %I', wrong.roles, owner, current_user),
            HINT = format('REVOKE %I FROM %s CASCADE; or install as one of them; or give other names: psql -v roles=NAME.', owner, wrong.roles);
    END IF;
    SELECT o.what, r.rolname INTO wrong
    FROM (
        SELECT format('the schema %I', n.nspname) AS what, n.nspowner AS role, 1 AS place
        FROM pg_catalog.pg_namespace AS n WHERE n.nspname IN (ours, capture)
        UNION ALL
        SELECT pg_describe_object(d.classid, d.objid, 0), s.refobjid, 2
        FROM pg_catalog.pg_depend AS d
        JOIN pg_catalog.pg_shdepend AS s ON s.classid = d.classid AND s.objid = d.objid AND s.deptype = 'o'
            AND s.dbid = (SELECT b.oid FROM pg_catalog.pg_database AS b WHERE b.datname = current_database())
        WHERE d.refclassid = 'pg_catalog.pg_namespace'::regclass AND d.refobjid = schema_oid
            AND d.classid <> 'pg_catalog.pg_extension'::regclass -- whose objects are looked at, each for itself
    ) AS o
    JOIN pg_catalog.pg_roles AS r ON r.oid = o.role
    WHERE NOT (r.rolsuper OR r.rolname = current_user OR r.rolname = owner)
    ORDER BY o.place, o.what
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('%s belongs to %I, who is neither %I, who installs, nor %I, nor a superuser',
                wrong.what, wrong.rolname, current_user, owner),
            HINT = format('Its owner could run code with your rights, or with the rights of %I. Drop it, or take '
                'it over (ALTER ... OWNER TO) once you know its purpose; or give another schema: psql -v schema=NAME. '
                'Where the roles have other names, give them: psql -v roles=NAME.', owner);
    END IF;
END
$$;
