-- The end of the extension's script: what join.sql tells of leaves, and what finish.sql has made, but for event triggers. The
-- types of tables go with them.
DO $$
DECLARE
    extension CONSTANT oid := (SELECT e.oid FROM pg_extension AS e WHERE e.extname = 'pytube');
    ours CONSTANT oid := to_regnamespace(quote_ident(current_setting('pytube.install_schema')));
    members CONSTANT text[] := current_setting('pytube.install_members');
    made record;
BEGIN
    FOR made IN
        SELECT i.type, i.identity FROM pg_depend AS d CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, 0) AS i
        WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = extension AND d.deptype = 'e'
            AND format('%s %s', d.classid, d.objid) <> ALL (members) AND d.classid IN ('pg_class'::regclass, 'pg_proc'::regclass)
    LOOP
        EXECUTE format('ALTER EXTENSION pytube DROP %s %s', made.type, made.identity);
    END LOOP;
    -- Rights on an adopted table, which is in the schema of its owner.
    FOR made IN
        SELECT DISTINCT i.type, i.identity
        FROM pg_init_privs AS p CROSS JOIN LATERAL pg_identify_object(p.classoid, p.objoid, 0) AS i
        WHERE p.privtype = 'e' AND p.classoid = 'pg_class'::regclass
            AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = p.classoid AND d.objid = p.objoid AND d.deptype = 'e')
    LOOP
        EXECUTE format('ALTER EXTENSION pytube ADD %s %s', made.type, made.identity);
        EXECUTE format('ALTER EXTENSION pytube DROP %s %s', made.type, made.identity);
    END LOOP;
    -- The extension's own schema can't join it.
    DELETE FROM pg_init_privs AS p WHERE p.classoid = 'pg_namespace'::regclass AND p.objoid = ours;
    DELETE FROM pg_shdepend AS d
    WHERE d.classid = 'pg_namespace'::regclass AND d.objid = ours AND d.deptype = 'i'
        AND d.dbid = (SELECT b.oid FROM pg_database AS b WHERE b.datname = current_database());
END
$$;
SET LOCAL pytube.install_extension = 'off';
