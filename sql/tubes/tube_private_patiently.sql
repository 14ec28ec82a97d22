-- tube_private_patiently: runs statements that need heavy locks without blocking a busy table for long.
--
-- All of them run in one subtransaction that waits at most 100 ms for each lock. Where one can't be
-- had, all that were taken are let go, writers pass, and it is tried again, up to 100 times (some
-- 25 s in all). Once taken, the locks stay until the transaction ends.
--
-- Arguments: statements: utility statements, in order; what: what is being done, for the error.
-- Result: nothing.
-- Errors: 55P03 the locks could not be had; those of the statements.
-- Locks: those of the statements.
CREATE OR REPLACE FUNCTION :"schema".tube_private_patiently(statements text[], what text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '100ms'
AS $$
DECLARE
    statement text;
BEGIN
    FOR attempt IN 1..100 LOOP
        BEGIN
            PERFORM tube_private_own_ddl(true);
            FOREACH statement IN ARRAY statements LOOP
                EXECUTE statement;
            END LOOP;
            PERFORM tube_private_own_ddl(false);
            RETURN;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            -- Tried again below, where the subtransaction is over and its locks are gone.
        END;
        PERFORM pg_sleep(0.05 + random() * 0.2);
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
        MESSAGE = format('%s: the locks could not be had within 100 attempts of 100 ms', what),
        HINT = 'Some transaction holds a lock for long: look for it in pg_locks, or try again later.';
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_patiently(text[], text) FROM PUBLIC;

-- tube_private_own_ddl: whether the DDL that comes is ours, so that our event trigger need not follow it.
--
-- Arguments: ours: true before, false after; an error in between takes the first back.
-- Result: nothing.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_own_ddl(ours boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    PERFORM set_config('pytube.own_ddl', CASE WHEN ours THEN 'on' ELSE 'off' END, true);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_own_ddl(boolean) FROM PUBLIC;
