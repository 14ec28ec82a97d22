-- tube_sleep: says that a leader is about to sleep, and wants a NOTIFY on tube_channel(tube).
--
-- The order in which nothing is missed: tube_sleep, commit, LISTEN, read S and X (tube_settle_seq),
-- mark once more, and sleep long only when S is settled; until then mark again every few moments.
-- Whoever draws a seq after S sees the flag, which is outside of any snapshot. Writers only read; tube_wake takes the row away.
--
-- Arguments: tube, partitions, partition, leader_id: the term.
-- Result: nothing.
-- Errors: TU001 the term is over; TU002, TU102, TU103 as tube_leader_epoch; 40P01 is to be tried again.
-- Locks: the registry row FOR KEY SHARE (first, as always) and the fence (tube_private_hold_term),
--   until the transaction ends. It waits for an open tube_ensure_exists or tube_ensure_absent, but at most
--   a second (55P03): stay awake then. A lost answer: call again, or tube_wake.
CREATE OR REPLACE FUNCTION :"schema".tube_sleep(
    tube text, partitions integer, partition integer, leader_id uuid
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '1s'
AS $$
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_sleep.tube FOR KEY SHARE;
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    INSERT INTO tube_sleeper (tube, partition, partitions)
    VALUES (tube_sleep.tube, tube_sleep.partition, tube_sleep.partitions)
    ON CONFLICT ON CONSTRAINT tube_sleeper_pkey DO UPDATE SET partitions = EXCLUDED.partitions; -- and the flag
END
$$;
COMMENT ON FUNCTION :"schema".tube_sleep IS
    'Registers a leader as sleeping, so that writers NOTIFY it on tube_channel(tube).';

-- tube_private_set_flag: the trigger that tells writers whether somebody sleeps; see tube_private_make_flag.
--
-- Sleepers of a tube take turns, so that one who wakes does not hide another who falls asleep. Writers see nothing of it.
-- The flag is set at once, before the commit: a writer may notify once too often. Where a row was to go, and the transaction
-- failed, it may say too early that nobody sleeps; so each tube_sleep sets it, whether its row is there or not.
--
-- Locks: an advisory one for the tube, until the transaction ends.
CREATE OR REPLACE FUNCTION :"schema".tube_private_set_flag() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    of_tube CONSTANT text := CASE TG_OP WHEN 'DELETE' THEN OLD.tube ELSE NEW.tube END;
    flag regclass := to_regclass(format('%I.%I', tube_private_schema(), 'tube_sleeps_' || (
        SELECT r.number FROM tube_registry AS r WHERE r.tube = of_tube)));
BEGIN
    IF flag IS NULL THEN
        RETURN NULL; -- the tube is being dropped
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(tube_private_schema() || ' sleeps ' || of_tube, 0));
    PERFORM setval(flag, CASE WHEN TG_OP <> 'DELETE' OR EXISTS (SELECT FROM tube_sleeper AS s WHERE s.tube = of_tube)
        THEN 2 ELSE 1 END);
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER tube_sleeper_flag_trigger AFTER INSERT OR UPDATE OR DELETE ON :"schema".tube_sleeper
    FOR EACH ROW EXECUTE FUNCTION :"schema".tube_private_set_flag();
