-- The preparation of tables and functions: the roles, and the schemas with their owner, who makes all that follows up
-- to finish.sql. When it refuses, nothing was changed.
SET LOCAL pytube.install_version = :'version';

-- Refused: an old server, a schema that holds something else, an installation that is newer than these files.
DO $$
DECLARE
    ours CONSTANT text := current_setting('pytube.install_schema');
    version CONSTANT text := current_setting('pytube.install_version');
    recorded regclass;
    before text;
BEGIN
    recorded := to_regclass(format('%I.tube_version', ours));
    IF current_setting('server_version_num')::integer < 150000 THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
            MESSAGE = format('pytube needs Postgres 15 or newer; this server is %s', current_setting('server_version')),
            HINT = 'Install into a newer server.';
    ELSIF recorded IS NULL THEN
        IF EXISTS (SELECT FROM pg_catalog.pg_class WHERE relnamespace = to_regnamespace(quote_ident(ours)))
            OR EXISTS (SELECT FROM pg_catalog.pg_proc WHERE pronamespace = to_regnamespace(quote_ident(ours)))
        THEN
            RAISE EXCEPTION USING ERRCODE = 'duplicate_schema',
                MESSAGE = format('the schema %I is there already, holds objects, and is not pytube''s', ours),
                HINT = 'Give another one: psql -v schema=NAME.';
        END IF;
    ELSE
        IF EXISTS (
            SELECT FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
            WHERE c.oid = recorded AND c.relkind = 'r'
                AND a.attname = 'version_num' AND a.atttypid = 'pg_catalog.varchar'::regtype)
        THEN
            EXECUTE format('SELECT max(version_num) FROM ONLY %s', recorded) INTO before;
        END IF;
        IF before IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'duplicate_schema',
                MESSAGE = format('%I.tube_version is not a table of pytube, or has no version', ours),
                HINT = 'Give another schema: psql -v schema=NAME.';
        ELSIF before > version THEN
            RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
                MESSAGE = format('the schema %I is at version %s, which is newer than these files (%s)',
                    ours, before, version),
                HINT = 'Install with the pytube that made it, or with a newer one.';
        ELSIF current_setting('pytube.install_extension', true) IS DISTINCT FROM 'on'
            AND EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass AND d.objid = recorded AND d.deptype = 'e')
        THEN
            RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
                MESSAGE = format('pytube in the schema %I was made by CREATE EXTENSION', ours),
                HINT = 'Give the server the files of the new version (make -C sql install), and run: ALTER EXTENSION pytube UPDATE;';
        END IF;
    END IF;
    PERFORM set_config('pytube.install_before', coalesce(before, ''), true),
        set_config('pytube.install_role', current_setting('role'), true),
        set_config('pytube.install_bodies', current_setting('check_function_bodies'), true),
        -- A function may call one of a later file.
        set_config('check_function_bodies', 'off', true);
END
$$;

-- The roles, where they are missing; and the installing role becomes a member of the owning one.
--
-- tube_owner owns the schemas and everything of pytube in them. It has no members, except the installing role if that is
-- not a superuser, and no right on users' tables. tube_admin makes and drops tubes, and attaches its members'
-- tables; tube_worker serves them; tube_writer calls touch functions; tube_monitor looks on. None may log in. They are
-- named after the schema, or after psql's variable "roles". They belong to the whole server, so that two databases share
-- them unless they are given other names.
--
-- Needs no superuser: CREATEROLE will do, or roles made beforehand, with the installing role in tube_owner.
-- The hint names missing rights.
DO $$
DECLARE
    prefix CONSTANT text := current_setting('pytube.install_roles');
    modern CONSTANT boolean := current_setting('server_version_num')::integer >= 160000;
    owner CONSTANT name := prefix || '_owner';
    to_me CONSTANT text := format(' TO %I%s;', current_user,
        CASE WHEN modern THEN ' WITH INHERIT TRUE, SET TRUE' ELSE '' END);
    missing CONSTANT text[] := ARRAY(
        SELECT prefix || '_' || k.kind
        FROM unnest('{owner,admin,worker,writer,monitor}'::text[]) WITH ORDINALITY AS k (kind, place)
        WHERE NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = prefix || '_' || k.kind) ORDER BY k.place);
    wanted text;
    met boolean := false; -- whether the owner was made meanwhile
BEGIN
    IF prefix = '' OR starts_with(prefix, 'pg_') OR octet_length(prefix) > 55 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_name',
            MESSAGE = format('the roles can''t be named after %L', prefix),
            HINT = 'Give another beginning of their names, of 1 to 55 bytes: psql -v roles=NAME.';
    ELSIF missing <> '{}'
        AND NOT (SELECT r.rolsuper OR r.rolcreaterole FROM pg_roles AS r WHERE r.rolname = current_user)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('there is no role %s, and %I may not create any',
                (SELECT string_agg(quote_ident(m), ', ') FROM unnest(missing) AS m), current_user),
            HINT = 'An administrator has to run: '
                || (SELECT string_agg(format('CREATE ROLE %I NOLOGIN;', m), ' ') FROM unnest(missing) AS m)
                || format(' GRANT %I', owner) || to_me;
    END IF;
    FOREACH wanted IN ARRAY missing LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            met := met OR wanted = owner; -- an installation into another database made it meanwhile, or another role
        END;
    END LOOP;
    -- As in whose.sql, since another role may have made it meanwhile; an old snapshot doesn't show them.
    IF EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = owner AND (r.rolcanlogin OR r.rolsuper)) THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_role_specification',
            MESSAGE = format('the role %I may log in or is a superuser, so it can''t own pytube''s functions', owner),
            HINT = format('ALTER ROLE %I NOLOGIN NOSUPERUSER; or give other names: psql -v roles=NAME.', owner);
    ELSIF met AND current_setting('transaction_isolation') <> 'read committed'
        OR (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = current_user) AND EXISTS (
        SELECT FROM pg_auth_members AS a JOIN pg_roles AS m ON m.oid = a.member
        WHERE a.roleid = (SELECT r.oid FROM pg_roles AS r WHERE r.rolname = owner) AND NOT m.rolsuper)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('another session made the role %I meanwhile, and other roles may be able to act as it', owner),
            HINT = 'Run this again.';
    END IF;

    -- No other role can make objects that the roles own, nor change them later.
    IF NOT (pg_has_role(current_user, owner, CASE WHEN modern THEN 'SET' ELSE 'MEMBER' END) AND pg_has_role(current_user, owner, 'USAGE')) THEN
        BEGIN
            EXECUTE format('GRANT %I', owner) || to_me;
        EXCEPTION WHEN insufficient_privilege THEN
            -- Missing rights are reported below.
        END;
    END IF;
    IF NOT pg_has_role(current_user, owner, 'USAGE') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('%I does not have the rights of %I', current_user, owner),
            HINT = format('An administrator has to run: GRANT %I', owner) || to_me
                || CASE WHEN modern THEN '' ELSE format(' ALTER ROLE %I INHERIT;', current_user) END;
    END IF;
END
$$;

-- The schemas: pytube's, and the one for functions of owners of attached tables. If they exist, pytube's objects in them
-- are given to tube_owner: after a restore that left owners out. pytube's are names that begin with tube_ or outbox_, the
-- tables of tubes, and generated objects; anything else keeps its owner.
--
-- Errors: Postgres' own, when the installing role does not own an object that has to change hands.
-- Locks: ACCESS EXCLUSIVE on each table that changes hands, until the transaction ends; had within attempts of 100 ms.
DO $$
DECLARE
    owner CONSTANT name := current_setting('pytube.install_roles') || '_owner';
    owner_oid CONSTANT oid := (SELECT r.oid FROM pg_roles AS r WHERE r.rolname = owner);
    patience CONSTANT text := current_setting('lock_timeout');
    ours oid;
    tubes text[] := '{}';
    tables text[];
    change text;
BEGIN
    FOREACH change IN ARRAY
        ARRAY[current_setting('pytube.install_capture'), current_setting('pytube.install_schema')]
    LOOP
        IF to_regnamespace(quote_ident(change)) IS NULL THEN
            EXECUTE format('CREATE SCHEMA %I AUTHORIZATION %I', change, owner);
        ELSIF EXISTS (SELECT FROM pg_namespace AS n WHERE n.nspname = change AND n.nspowner <> owner_oid) THEN
            EXECUTE format('ALTER SCHEMA %I OWNER TO %I', change, owner);
        END IF;
    END LOOP;
    ours := to_regnamespace(quote_ident(current_setting('pytube.install_schema')));
    IF to_regclass(format('%s.tube_registry', ours::regnamespace)) IS NOT NULL THEN
        EXECUTE format('SELECT array_agg(r.tube) FROM %s.tube_registry AS r', ours::regnamespace) INTO tubes;
    END IF;
    SELECT array_agg(CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' WHEN 'v' THEN 'VIEW ' ELSE 'TABLE ' END || c.oid::regclass ORDER BY c.oid)
    INTO tables
    FROM pg_class AS c
    WHERE c.relnamespace = ours AND c.relkind IN ('r', 'S', 'v') AND c.relowner <> owner_oid
        AND (c.relname LIKE 'tube\_%' OR c.relname = ANY (tubes)
            OR c.relkind = 'v' AND c.relname ~ '_door_[0-9a-f]{8}_[0-9]+_[0-9]+(_[0-9])?$')
        -- A sequence of a column follows its table.
        AND NOT EXISTS (SELECT FROM pg_depend AS d
            WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i'));
    -- All of them, or none: a writer that has one of them and waits for another must not wait for us.
    FOR attempt IN 1..100 LOOP
        EXIT WHEN tables IS NULL;
        BEGIN
            PERFORM set_config('lock_timeout', '100ms', true);
            FOREACH change IN ARRAY tables LOOP
                EXECUTE format('ALTER %s OWNER TO %I', change, owner);
            END LOOP;
            tables := NULL;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            -- Tried again below, where the subtransaction is over and its locks are gone.
        END;
        PERFORM set_config('lock_timeout', patience, true),
            pg_sleep(CASE WHEN tables IS NULL THEN 0 ELSE 0.05 + random() * 0.2 END);
    END LOOP;
    IF tables IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
            MESSAGE = format('the tables could not be given to %I: their locks could not be had within 100 attempts of '
                '100 ms', owner),
            HINT = 'Some transaction holds a lock for long: look for it in pg_locks. Then run this again.';
    END IF;
    FOR change IN
        SELECT format('TYPE %s', t.oid::regtype)
        FROM pg_type AS t
        WHERE t.typnamespace = ours AND t.typowner <> owner_oid AND t.typname = 'tube_shard'
        UNION ALL
        SELECT format('ROUTINE %s', p.oid::regprocedure)
        FROM pg_proc AS p WHERE p.pronamespace = ours AND p.proowner <> owner_oid
            AND (p.proname SIMILAR TO '(tube|outbox)\_%' OR p.prosrc LIKE E'\n-- Made by tube\\_private\\_%')
    LOOP
        EXECUTE format('ALTER %s OWNER TO %I', change, owner);
    END LOOP;
END
$$;

-- The owner makes all that follows, up to finish.sql; first the table that says which migrations ran, as Alembic does.
SET LOCAL ROLE :"role_owner";
REVOKE ALL ON SCHEMA :"schema" FROM PUBLIC;
DO $$
BEGIN
    IF to_regclass(format('%I.tube_version', current_setting('pytube.install_schema'))) IS NULL THEN
        EXECUTE format('CREATE TABLE %I.tube_version ('
            'version_num varchar(32) NOT NULL, CONSTRAINT tube_version_pkc PRIMARY KEY (version_num))',
            current_setting('pytube.install_schema'));
    END IF;
END
$$;
