-- 0005: an owner's agent is called only as its owner agreed to it. Functions that have other arguments for that go.
DO $$
DECLARE
    step text;
BEGIN
    FOR step IN
        SELECT format('DROP FUNCTION %s', p.oid::regprocedure) FROM pg_catalog.pg_proc AS p
        WHERE p.pronamespace = to_regnamespace(quote_ident(current_setting('pytube.install_schema')))
            AND p.proname IN ('tube_private_call_agent', 'tube_private_type_sql')
    LOOP
        EXECUTE step;
    END LOOP;
END
$$;
