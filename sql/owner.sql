-- Gives what is ours in the schema to its owner, tube_owner: after a restore that left owners out, or where
-- an installation is of version 0001, which belonged to tube_admin. Ours is what has a name that begins with tube_, the tables of
-- tubes, and what was generated; anything else stays whose it is.
--
-- Errors: Postgres' own, when the installing role does not own what has to change hands.
-- Locks: ACCESS EXCLUSIVE on each table that changes hands, until the transaction ends; had within attempts of 100 ms.
DO $$
DECLARE
    ours CONSTANT oid := to_regnamespace(quote_ident(current_setting('pytube.install_schema')));
    owner CONSTANT name := current_setting('pytube.install_roles') || '_owner';
    owner_oid CONSTANT oid := (SELECT r.oid FROM pg_roles AS r WHERE r.rolname = owner);
    patience CONSTANT text := current_setting('lock_timeout');
    tubes text[] := '{}';
    tables text[];
    change text;
BEGIN
    IF to_regclass(format('%s.tube_registry', ours::regnamespace)) IS NOT NULL THEN
        EXECUTE format('SELECT array_agg(r.tube) FROM %s.tube_registry AS r', ours::regnamespace) INTO tubes;
    END IF;
    FOR change IN
        SELECT n.nspname FROM pg_namespace AS n
        WHERE n.nspname IN (current_setting('pytube.install_schema'), current_setting('pytube.install_capture')) AND n.nspowner <> owner_oid
    LOOP
        EXECUTE format('ALTER SCHEMA %I OWNER TO %I', change, owner);
    END LOOP;
    SELECT array_agg(format(CASE c.relkind WHEN 'S' THEN 'SEQUENCE %s' ELSE 'TABLE %s' END, c.oid::regclass) ORDER BY c.oid)
    INTO tables
    FROM pg_class AS c
    WHERE c.relnamespace = ours AND c.relkind IN ('r', 'S') AND c.relowner <> owner_oid
        AND (c.relname LIKE 'tube\_%' OR c.relname = ANY (tubes))
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
        PERFORM set_config('lock_timeout', patience, true), pg_sleep(CASE WHEN tables IS NULL THEN 0 ELSE 0.05 + random() * 0.2 END);
    END LOOP;
    IF tables IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
            MESSAGE = format('the tables could not be given to %I: their locks could not be had within 100 attempts of 100 ms', owner),
            HINT = 'Some transaction holds a lock for long: look for it in pg_locks. Then run this again.';
    END IF;
    FOR change IN
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
        SELECT DISTINCT s.statement
        FROM %s.tube_attachment AS a
        JOIN pg_class AS c ON c.oid = a.tbl JOIN pg_namespace AS n ON n.oid = c.relnamespace
        CROSS JOIN LATERAL (
            SELECT 'DROP FUNCTION ' || a.touch_function AS statement WHERE to_regprocedure(a.touch_function) IS NOT NULL
            UNION SELECT format('REVOKE CREATE ON SCHEMA %%I FROM %%I', n.nspname, $1)
            UNION ALL SELECT format('REVOKE SELECT, TRIGGER ON %%s FROM %%I', t.relid, $1)
            FROM (SELECT a.tbl AS relid UNION SELECT p.relid FROM pg_partition_tree(a.tbl) AS p) AS t
        ) AS s$list$, ours::regnamespace) USING current_setting('pytube.install_roles') || '_admin'
    LOOP
        EXECUTE change;
    END LOOP;
END
$$;
