-- Gives what is ours in the schema to its owner, tube_owner: after a restore that left owners out, or where
-- an installation is of version 0001, which belonged to tube_admin. Ours is what has a name that begins with tube_, the tables of
-- tubes, and what was generated; anything else stays whose it is.
--
-- Errors: Postgres' own, when the installing role does not own what has to change hands.
-- Locks: ACCESS EXCLUSIVE on each table that changes hands, else none.
DO $$
DECLARE
    ours CONSTANT oid := to_regnamespace(quote_ident(current_setting('pytube.install_schema')));
    owner CONSTANT name := current_setting('pytube.install_roles') || '_owner';
    owner_oid CONSTANT oid := (SELECT r.oid FROM pg_roles AS r WHERE r.rolname = owner);
    tubes text[] := '{}';
    change text;
BEGIN
    IF to_regclass(format('%s.tube_registry', ours::regnamespace)) IS NOT NULL THEN
        EXECUTE format('SELECT array_agg(r.tube) FROM %s.tube_registry AS r', ours::regnamespace) INTO tubes;
    END IF;
    FOR change IN
        SELECT format('SCHEMA %I', n.nspname) FROM pg_namespace AS n
        WHERE n.nspname IN (current_setting('pytube.install_schema'), current_setting('pytube.install_capture')) AND n.nspowner <> owner_oid
        UNION ALL
        SELECT format(CASE c.relkind WHEN 'S' THEN 'SEQUENCE %s' ELSE 'TABLE %s' END, c.oid::regclass)
        FROM pg_class AS c
        WHERE c.relnamespace = ours AND c.relkind IN ('r', 'S') AND c.relowner <> owner_oid
            AND (c.relname LIKE 'tube\_%' OR c.relname = ANY (tubes))
            -- A sequence of a column follows its table.
            AND NOT EXISTS (SELECT FROM pg_depend AS d
                WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i'))
        UNION ALL
        SELECT format('TYPE %s', t.oid::regtype)
        FROM pg_type AS t
        WHERE t.typnamespace = ours AND t.typowner <> owner_oid AND t.typname = 'tube_shard'
        UNION ALL
        SELECT format('ROUTINE %s', p.oid::regprocedure)
        FROM pg_proc AS p WHERE p.pronamespace = ours AND p.proowner <> owner_oid
            AND (p.proname LIKE 'tube\_%' OR p.prosrc LIKE E'\n-- Made by tube\\_private\\_%')
    LOOP
        EXECUTE format('ALTER %s OWNER TO %I', change, owner);
    END LOOP;

    -- Of version 0001: touch functions of ours beside attached tables, and the rights that it had been granted there.
    IF NOT EXISTS (SELECT FROM pg_attribute AS a WHERE a.attname = 'touch_function'
        AND a.attrelid = to_regclass(format('%s.tube_attachment', ours::regnamespace)))
    THEN
        RETURN;
    END IF;
    FOR change IN EXECUTE format($list$
        SELECT s.statement
        FROM %s.tube_attachment AS a
        JOIN pg_class AS c ON c.oid = a.tbl JOIN pg_namespace AS n ON n.oid = c.relnamespace
        CROSS JOIN LATERAL (
            SELECT 'DROP FUNCTION IF EXISTS ' || a.touch_function AS statement
            UNION ALL SELECT format('REVOKE CREATE ON SCHEMA %%I FROM %%I', n.nspname, $1)
            UNION ALL SELECT format('REVOKE SELECT, TRIGGER ON %%s FROM %%I', t.relid, $1)
            FROM (SELECT a.tbl AS relid UNION SELECT p.relid FROM pg_partition_tree(a.tbl) AS p) AS t
        ) AS s$list$, ours::regnamespace) USING current_setting('pytube.install_roles') || '_admin'
    LOOP
        EXECUTE change;
    END LOOP;
END
$$;
