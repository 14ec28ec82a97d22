-- Changes the table of each tube that is older than a revision, one tube a transaction.
--
-- Variables: schema; revision: the number of the migration; change: a statement, or several, in which
-- %1$I stands for our schema and %2$I for the tube. It has to do no harm where it was done before.
--
-- Waits for at most 100 ms for a lock, lets go, and tries again, up to 100 times (some 25 s), so that
-- writers never queue for long. What was changed stays so when a later tube fails: run the whole again.
-- Inside a caller's transaction all of it is part of that.
--
-- Errors: 55P03 a tube stayed locked.
SELECT set_config('pytube.install_schema', :'schema', false) AS each_schema,
    set_config('pytube.tube_revision', :'revision', false) AS each_revision,
    set_config('pytube.tube_change', :'change', false) AS each_change,
    set_config('pytube.tube_commits', (now() = statement_timestamp())::text, false) AS each_commits \gset
DO $$
DECLARE
    ours CONSTANT text := current_setting('pytube.install_schema');
    revision CONSTANT text := current_setting('pytube.tube_revision');
    commits CONSTANT boolean := current_setting('pytube.tube_commits')::boolean;
    patience CONSTANT text := current_setting('lock_timeout');
    was CONSTANT text := coalesce(current_setting('pytube.own_ddl', true), 'off');
    tube text;
    done boolean;
BEGIN
    WHILE to_regclass(format('%I.tube_registry', ours)) IS NOT NULL LOOP
        EXECUTE format('SELECT r.tube FROM %I.tube_registry AS r WHERE r.shape < $1 ORDER BY r.tube LIMIT 1', ours)
        INTO tube USING revision;
        EXIT WHEN tube IS NULL;
        FOR attempt IN 1..100 LOOP
            BEGIN
                -- Ours: no event trigger of ours, older or newer, need follow it.
                PERFORM set_config('lock_timeout', '100ms', true), set_config('pytube.own_ddl', 'on', true);
                EXECUTE format('UPDATE %I.tube_registry AS r SET shape = $1 WHERE r.tube = $2', ours)
                USING revision, tube;
                EXECUTE format(current_setting('pytube.tube_change'), ours, tube);
                PERFORM set_config('lock_timeout', patience, true), set_config('pytube.own_ddl', was, true);
                done := true;
            EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
                done := false;
            END;
            IF commits THEN
                COMMIT;
            END IF;
            EXIT WHEN done;
            PERFORM pg_sleep(0.05 + random() * 0.2);
        END LOOP;
        IF NOT done THEN
            RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
                MESSAGE = format('tube %L could not be changed for revision %s: its locks could not be had within '
                    '100 attempts of 100 ms', tube, revision),
                HINT = 'Some transaction holds a lock for long: look for it in pg_locks. Then run this again; '
                    'it goes on with this tube.';
        END IF;
    END LOOP;
END
$$;
