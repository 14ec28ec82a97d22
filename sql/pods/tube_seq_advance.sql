-- tube_seq_advance: has tube_seq go on beyond a number, and never back.
--
-- For a move from another queue whose documents bear its seqs: a sweep deletes what has a lower seq than the
-- start of a backfill, so each new seq has to be greater than all of theirs.
--
-- Numbers that are left out belong to nobody, so a settled seq among them is right: whoever draws after this
-- draws a greater one. A sequence that went back would break that, and nextval looks at no lock of ours
-- but that of the sequence itself; so that lock is taken, and with it nobody draws between the look and the
-- change. It waits for those who have drawn and are not done, at most 100 ms at a time.
--
-- Arguments: beyond: 0 to 10^15; more is a mistake, which could not be taken back.
-- Result: the greatest seq that counts as drawn: the next one is greater. A NOTICE says what was done.
-- Errors: 22004 NULL; 22023 out of that range; TU110 the sequence was altered; 55P03 the lock could not be had.
--   Nothing was changed then.
-- Locks: where it changes something, of tube_seq SHARE ROW EXCLUSIVE until the transaction ends: whoever draws
--   a seq waits, so commit at once. A change stays when the transaction is rolled back, as any of a sequence
--   does. A lost answer does no harm: call it again.
CREATE OR REPLACE FUNCTION :"schema".tube_seq_advance(beyond bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    most CONSTANT bigint := 1000000000000000;
    was bigint := tube_settle_seq();
BEGIN
    IF beyond IS NULL OR beyond NOT BETWEEN 0 AND most THEN
        RAISE EXCEPTION USING
            ERRCODE = CASE WHEN beyond IS NULL THEN 'null_value_not_allowed' ELSE 'invalid_parameter_value' END,
            MESSAGE = format('tube_seq can''t be advanced beyond %s', coalesce(beyond::text, 'NULL')),
            HINT = format('Give the last_value of the other sequence, 0 to %s.', most);
    END IF;
    IF was < beyond THEN
        -- Changes nothing, and takes the lock.
        PERFORM tube_private_patiently(ARRAY['ALTER SEQUENCE tube_seq OWNED BY NONE'], 'tube_seq is advanced');
        was := tube_settle_seq();
    END IF;
    IF was < beyond THEN
        PERFORM setval('tube_seq', beyond);
        RAISE NOTICE 'tube_seq, which was at %, goes on after %', was, beyond;
        RETURN beyond;
    END IF;
    RAISE NOTICE 'tube_seq is at %, so it was left as it is', was;
    RETURN was;
END
$$;
COMMENT ON FUNCTION :"schema".tube_seq_advance IS
    'Moves the sequence of all tubes forward, beyond the one of another installation.';
