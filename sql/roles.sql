-- Makes the roles that are missing, and has the installing role be a member of the one that owns all.
--
-- tube_owner owns the schemas and everything of ours in them. It has no members, but for the installing role where that
-- is no superuser, and no right on anybody's tables. tube_admin makes and drops tubes, and attaches its members' tables;
-- tube_worker serves them; tube_writer calls touch functions; tube_monitor looks on. tube_nobody has no rights: owners'
-- functions are called as it. None may log in. They are named after the schema, or after psql's variable "roles". They
-- belong to the whole server, so that two databases share them unless they are given other names.
--
-- Needs no superuser: CREATEROLE will do, or roles made beforehand, with the installing role in
-- tube_owner and tube_nobody. What is missing is in the hint. Nothing was changed then.
DO $$
DECLARE
    prefix text := current_setting('pytube.install_roles');
    modern boolean := current_setting('server_version_num')::integer >= 160000;
    owner name := prefix || '_owner';
    kind name;
    member text := CASE WHEN modern THEN ' WITH INHERIT TRUE, SET TRUE' ELSE '' END;
    wanted name;
    missing name[] := '{}';
BEGIN
    IF prefix = '' OR prefix LIKE 'pg\_%' OR octet_length(prefix) > 55 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_name',
            MESSAGE = format('the roles can''t be named after %L', prefix),
            HINT = 'Give another beginning of their names, of 1 to 55 bytes: psql -v roles=NAME.';
    END IF;
    IF EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = owner AND (r.rolcanlogin OR r.rolsuper)) THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_role_specification',
            MESSAGE = format('the role %I may log in or is a superuser, so it can''t own pytube''s functions', owner),
            HINT = format('ALTER ROLE %I NOLOGIN NOSUPERUSER; or give other names: psql -v roles=NAME.', owner);
    END IF;

    FOREACH wanted IN ARRAY ARRAY[owner, prefix || '_admin', prefix || '_worker', prefix || '_writer', prefix || '_monitor', prefix || '_nobody'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = wanted) THEN
            missing := missing || wanted;
        END IF;
    END LOOP;
    IF missing <> '{}' AND NOT (SELECT r.rolsuper OR r.rolcreaterole FROM pg_roles AS r WHERE r.rolname = current_user) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('there is no role %s, and %I may not create any',
                (SELECT string_agg(quote_ident(m), ', ') FROM unnest(missing) AS m), current_user),
            HINT = 'Somebody who may has to run: '
                || (SELECT string_agg(format('CREATE ROLE %I NOLOGIN;', m), ' ') FROM unnest(missing) AS m)
                || format(' GRANT %I, %I TO %I%s;', owner, prefix || '_nobody', current_user, member);
    END IF;
    FOREACH wanted IN ARRAY missing LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            -- An installation into another database made it meanwhile.
        END;
    END LOOP;

    -- Nobody else can make objects that the roles own, nor change them later.
    FOREACH kind IN ARRAY ARRAY[owner, prefix || '_nobody'] LOOP
        CONTINUE WHEN pg_has_role(current_user, kind, CASE WHEN modern THEN 'SET' ELSE 'MEMBER' END)
            AND pg_has_role(current_user, kind, 'USAGE');
        BEGIN
            EXECUTE format('GRANT %I TO %I%s', kind, current_user, member);
        EXCEPTION WHEN insufficient_privilege THEN
            -- What is missing is said below.
        END;
        IF NOT pg_has_role(current_user, kind, 'USAGE') THEN
            RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
                MESSAGE = format('%I has not the rights of %I', current_user, kind),
                HINT = format('Somebody who may has to run: GRANT %I, %I TO %I%s;%s', owner, prefix || '_nobody', current_user, member,
                    CASE WHEN modern THEN '' ELSE format(' ALTER ROLE %I INHERIT;', current_user) END);
        END IF;
    END LOOP;
END
$$;
