-- Gives what is ours in the schema to its owner, tube_admin: after a restore that left owners out, or where
-- an installation is older than the roles. Ours is what has a name that begins with tube_, the tables of
-- tubes, and what was generated; anything else stays whose it is.
--
-- Errors: Postgres' own, when the installing role does not own what has to change hands.
-- Locks: ACCESS EXCLUSIVE on each table that changes hands, else none.
DO $$
DECLARE
    ours CONSTANT oid := to_regnamespace(quote_ident(current_setting('pytube.install_schema')));
    admin CONSTANT name := current_setting('pytube.install_roles') || '_admin';
    admin_oid CONSTANT oid := (SELECT r.oid FROM pg_roles AS r WHERE r.rolname = admin);
    tubes text[] := '{}';
    change text;
    touch regprocedure;
BEGIN
    IF to_regclass(format('%s.tube_registry', ours::regnamespace)) IS NOT NULL THEN
        EXECUTE format('SELECT array_agg(r.tube) FROM %s.tube_registry AS r', ours::regnamespace) INTO tubes;
    END IF;
    FOR change IN
        SELECT format('SCHEMA %I', n.nspname) FROM pg_namespace AS n WHERE n.oid = ours AND n.nspowner <> admin_oid
        UNION ALL
        SELECT format(CASE c.relkind WHEN 'S' THEN 'SEQUENCE %s' ELSE 'TABLE %s' END, c.oid::regclass)
        FROM pg_class AS c
        WHERE c.relnamespace = ours AND c.relkind IN ('r', 'S') AND c.relowner <> admin_oid
            AND (c.relname LIKE 'tube\_%' OR c.relname = ANY (tubes))
            -- A sequence of a column follows its table.
            AND NOT EXISTS (SELECT FROM pg_depend AS d
                WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i'))
        UNION ALL
        SELECT format('TYPE %s', t.oid::regtype)
        FROM pg_type AS t
        WHERE t.typnamespace = ours AND t.typowner <> admin_oid AND t.typname = 'tube_shard'
        UNION ALL
        SELECT format('ROUTINE %s', p.oid::regprocedure)
        FROM pg_proc AS p WHERE p.pronamespace = ours AND p.proowner <> admin_oid
            AND (p.proname LIKE 'tube\_%' OR p.prosrc LIKE E'\n-- Made by tube\\_private\\_%')
    LOOP
        EXECUTE format('ALTER %s OWNER TO %I', change, admin);
    END LOOP;

    IF to_regclass(format('%s.tube_attachment', ours::regnamespace)) IS NULL THEN
        RETURN;
    END IF;
    FOR touch IN EXECUTE format(
        'SELECT DISTINCT p.oid::regprocedure FROM %s.tube_attachment AS a'
        ' JOIN pg_proc AS p ON p.oid = to_regprocedure(a.touch_function) WHERE p.proowner <> $1', ours::regnamespace)
        USING admin_oid
    LOOP
        EXECUTE format('GRANT USAGE, CREATE ON SCHEMA %s TO %I',
            (SELECT p.pronamespace::regnamespace FROM pg_proc AS p WHERE p.oid = touch), admin);
        EXECUTE format('ALTER FUNCTION %s OWNER TO %I', touch, admin);
    END LOOP;
END
$$;
