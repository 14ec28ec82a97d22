-- The end of the extension's script. The objects of join.sql leave, and new ones of finish.sql, but for event triggers. The types
-- of tables go with them.
DO $$
DECLARE
    extension CONSTANT oid := (SELECT e.oid FROM pg_extension AS e WHERE e.extname = 'pytube');
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
    -- Adopted tables, which are in schemas of others, and have got rights here.
    FOR made IN
        SELECT DISTINCT i.type, i.identity
        FROM pg_init_privs AS p CROSS JOIN LATERAL pg_identify_object(p.classoid, p.objoid, 0) AS i
        WHERE p.privtype = 'e' AND p.classoid = 'pg_class'::regclass
            AND p.objoid IN (SELECT o.tbl FROM :"schema".tube_outbox AS o WHERE o.adopted)
            AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = p.classoid AND d.objid = p.objoid AND d.deptype = 'e')
    LOOP
        EXECUTE format('ALTER EXTENSION pytube ADD %s %s', made.type, made.identity);
        EXECUTE format('ALTER EXTENSION pytube DROP %s %s', made.type, made.identity);
    END LOOP;
END
$$;

-- Dumps leave out all rights on an object to which an extension's script has granted some. Only the rights of pytube's roles
-- and of PUBLIC come back with the extension: owners of attached tables get theirs at run time. So Postgres is made to forget
-- that it saw these, and the rights on the schema, which can't be part of the extension.
DO $$
DECLARE
    ours CONSTANT oid := to_regnamespace(quote_ident(current_setting('pytube.install_schema')));
    database CONSTANT oid := (SELECT b.oid FROM pg_database AS b WHERE b.datname = current_database());
    roles CONSTANT oid[] := ARRAY(
        SELECT r.oid FROM pg_roles AS r JOIN unnest('{owner,admin,worker,writer,monitor}'::text[]) AS k (kind)
            ON r.rolname = current_setting('pytube.install_roles') || '_' || k.kind) || 0::oid;
    members CONSTANT text[] := ARRAY(
        SELECT format('%s %s', d.classid, d.objid) FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid
        WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'pytube');
BEGIN
    DELETE FROM pg_init_privs AS p WHERE p.classoid = 'pg_namespace'::regclass AND p.objoid = ours;
    UPDATE pg_init_privs AS p SET initprivs = ARRAY(
        SELECT i.right FROM unnest(p.initprivs) AS i ("right")
        WHERE EXISTS (SELECT FROM aclexplode(ARRAY[i.right]) AS a WHERE a.grantee = ANY (roles)))
    WHERE format('%s %s', p.classoid, p.objoid) = ANY (members)
        AND EXISTS (SELECT FROM aclexplode(p.initprivs) AS a WHERE a.grantee <> ALL (roles));
    DELETE FROM pg_shdepend AS d
    WHERE d.dbid = database AND d.deptype = 'i' AND (d.classid = 'pg_namespace'::regclass AND d.objid = ours
        OR d.refobjid <> ALL (roles) AND format('%s %s', d.classid, d.objid) = ANY (members));
END
$$;
SET LOCAL pytube.install_extension = 'off';
