-- Objects that pytube makes later, for tubes and attached tables, are not part of the extension, so that dumps hold them.
-- But within the extension's script, Postgres replaces only its parts, and makes all new objects part of it. So these objects
-- join the extension before grants.sql, and leave it at the end.
DO $$
DECLARE
    extension CONSTANT oid := (SELECT e.oid FROM pg_extension AS e WHERE e.extname = 'pytube');
    ours CONSTANT oid := to_regnamespace(quote_ident(current_setting('pytube.install_schema')));
    capture CONSTANT oid := to_regnamespace(quote_ident(current_setting('pytube.install_capture')));
    made text;
BEGIN
    PERFORM set_config('pytube.install_members', array_agg(format('%s %s', d.classid, d.objid))::text, true)
    FROM pg_depend AS d WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = extension AND d.deptype = 'e';
    FOR made IN
        SELECT format('ALTER EXTENSION pytube ADD %s %s', i.type, i.identity)
        FROM (
            SELECT 'pg_class'::regclass, c.oid FROM pg_class AS c WHERE c.relnamespace = ours AND c.relkind IN ('r', 'S', 'v')
            UNION ALL
            SELECT 'pg_proc'::regclass, p.oid FROM pg_proc AS p
            WHERE p.pronamespace IN (ours, capture) OR p.prosrc LIKE E'\n-- Made by tube\\_private\\_%'
        ) AS o (class, oid)
        CROSS JOIN LATERAL pg_identify_object(o.class, o.oid, 0) AS i
        WHERE NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = o.class AND d.objid = o.oid AND d.deptype = 'e')
    LOOP
        EXECUTE made;
    END LOOP;
END
$$;
