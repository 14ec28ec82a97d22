-- 0005: an owner's agent is called only as its owner agreed to it.

-- The md5 of its text. The installation that runs this fills it.
ALTER TABLE :"schema".tube_attachment ADD agent text;
DO $$
BEGIN
    EXECUTE (SELECT coalesce(max(format('DROP FUNCTION %s', p.oid::regprocedure)), 'SELECT') FROM pg_catalog.pg_proc AS p
        WHERE p.pronamespace = to_regnamespace(quote_ident(current_setting('pytube.install_schema')))
            AND p.proname = 'tube_private_call_agent');
END
$$;
