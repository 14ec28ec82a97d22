-- tube_private_patiently: runs statements that need heavy locks without blocking a busy table for long.
--
-- All of them run in one subtransaction that waits at most 100 ms for locks, all its statements together.
-- Where they can't be had, all that were taken are let go, writers pass, and it is tried again. Once taken,
-- the locks stay until the transaction ends. Called within an attempt of its own, it is a part of that.
--
-- Arguments: statements: in order; what: what is being done, for the error; attempts: how often it is tried;
--   100 take some 25 s.
-- Errors: 55P03 the locks could not be had; those of the statements.
-- Locks: those of the statements.
CREATE OR REPLACE FUNCTION :"schema".tube_private_patiently(
    statements text[], what text, attempts integer = 100
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '100ms'
AS $$
BEGIN
    IF current_setting('pytube.attempt', true) = 'on' THEN
        PERFORM tube_private_briefly(statements);
        RETURN;
    END IF;
    FOR attempt IN 1..attempts LOOP
        BEGIN
            PERFORM set_config('pytube.attempt', 'on', true);
            PERFORM tube_private_briefly(statements);
            PERFORM set_config('pytube.attempt', 'off', true);
            RETURN;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            -- Tried again below, where the subtransaction is over and its locks are gone.
        END;
        PERFORM pg_sleep(0.05 + random() * 0.2);
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
        MESSAGE = format('%s: the locks could not be had within %s attempts of 100 ms', what, attempts),
        HINT = 'Some transaction holds a lock for long: look for it in pg_locks, or try again later.';
END
$$;

-- tube_private_briefly: runs statements that may wait for locks for 100 ms in all.
--
-- What a statement takes beyond 5 ms counts as waiting: locks of a first table are held while those of a
-- hundredth are waited for.
--
-- Arguments: statements: in order.
-- Errors: 55P03 the locks could not be had; those of the statements.
-- Locks: those of the statements.
CREATE OR REPLACE FUNCTION :"schema".tube_private_briefly(statements text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '100ms'
AS $$
DECLARE
    left_over double precision := 100; -- milliseconds; 0 as a lock_timeout would be for ever
    began timestamptz;
    statement text;
BEGIN
    FOREACH statement IN ARRAY statements LOOP
        PERFORM set_config('lock_timeout', format('%sms', greatest(left_over, 1)::integer), true);
        began := clock_timestamp();
        EXECUTE statement;
        left_over := left_over - greatest(0, extract(epoch FROM clock_timestamp() - began) * 1000 - 5);
    END LOOP;
END
$$;
