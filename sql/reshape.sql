-- Changes that migrations make to the tables of tubes: one tube a transaction, before the installation itself.
--
-- Writers and workers of the version before go on meanwhile, so a change may only add what those do without.
-- Tubes that were made meanwhile come last, within the transaction of the installation. Inside a caller's
-- transaction all of it is part of that.
--
-- Waits for at most 100 ms for a lock, lets go, and tries again, up to 100 times (some 25 s), so that
-- writers never queue for long. What was changed stays so when a later tube fails: run the whole again.
--
-- Outboxes are passed over; the registry of an older version has no kind.
--
-- This file is one statement, because only such a one may commit.
--
-- Errors: 55P03 a tube stayed locked.
DO $$
DECLARE
    ours CONSTANT text := current_setting('pytube.install_schema');
    commits CONSTANT boolean := now() = statement_timestamp();
    patience CONSTANT text := current_setting('lock_timeout');
    was CONSTANT text := coalesce(current_setting('pytube.own_ddl', true), 'off');
    revision text;
    change text;
    tube text;
    done boolean;
BEGIN
    IF to_regclass(format('%I.tube_registry', ours)) IS NULL THEN
        RETURN;
    END IF;
    -- The number of a migration, and a statement, or several, that do no harm where they were done before:
    -- %1$I stands for our schema and %2$I for the tube.
    FOR revision, change IN
        SELECT v.revision, v.change FROM (VALUES
            ('0001', NULL)
            -- ('0002', 'ALTER TABLE %1$I.%2$I ADD COLUMN IF NOT EXISTS …')
        ) AS v (revision, change)
        ORDER BY v.revision
    LOOP
        LOOP
            EXECUTE format('SELECT r.tube FROM %I.tube_registry AS r WHERE r.shape < $1'
                ' AND coalesce(to_jsonb(r) ->> ''kind'', ''tube'') = ''tube'' ORDER BY r.tube LIMIT 1', ours)
            INTO tube USING revision;
            EXIT WHEN tube IS NULL;
            FOR attempt IN 1..100 LOOP
                BEGIN
                    -- Ours: no event trigger of ours, older or newer, need follow it.
                    PERFORM set_config('lock_timeout', '100ms', true), set_config('pytube.own_ddl', 'on', true);
                    EXECUTE format('UPDATE %I.tube_registry AS r SET shape = $1 WHERE r.tube = $2', ours)
                    USING revision, tube;
                    EXECUTE format(change, ours, tube);
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
    END LOOP;
END
$$;
