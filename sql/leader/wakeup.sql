-- Wake-up: a leader that sleeps is woken by the writers of its tube, with NOTIFY.
--
-- The order in which nothing is missed: tube_sleep, commit, LISTEN, read S and X (tube_settle_seq), mark once more, and
-- sleep long only when S is settled; until then mark again every few moments. A writer that draws a seq after S sees
-- the flag, which is outside of any snapshot. Writers only read; tube_wake takes the sleeper's row away.

-- Each NOTIFY carries the number of a partition as its payload.
-- Result: a plain identifier of 39 bytes. Tubes of other schemas have other channels.
CREATE OR REPLACE FUNCTION :"schema".tube_channel(tube text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp
RETURN 'pytube_' || md5(:'schema' || '.' || tube);
COMMENT ON FUNCTION :"schema".tube_channel IS
    'Returns the NOTIFY channel on which writers wake the leaders of a tube; the payload is the partition.';

-- Arguments: tube, partitions, partition, leader_id: the term.
-- Errors: as of a call under a term (leader/terms.sql); 55P03 tube_ensure_exists or tube_ensure_absent kept the
--   registry row for longer than a second: stay awake then; 40P01: try again.
-- Locks: the registry row FOR KEY SHARE (first, as always) and the fence, until the transaction ends. A lost answer:
--   call again, or tube_wake.
CREATE OR REPLACE FUNCTION :"schema".tube_sleep(
    tube text, partitions integer, partition integer, leader_id uuid
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '1s' AS $$
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_sleep.tube FOR KEY SHARE;
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    INSERT INTO tube_sleeper (tube, partition, partitions)
    VALUES (tube_sleep.tube, tube_sleep.partition, tube_sleep.partitions)
    ON CONFLICT ON CONSTRAINT tube_sleeper_pkey DO UPDATE SET partitions = EXCLUDED.partitions; -- and the flag
END
$$;
COMMENT ON FUNCTION :"schema".tube_sleep IS 'Registers a leader as sleeping, so that writers NOTIFY it.';

-- tube_private_set_flag: the trigger that shows writers whether a worker sleeps; see tube_private_provide_tube.
-- Sleepers of a tube take turns, by the tube's row in tube_flag, so that a waking one does not hide another that falls asleep.
-- The flag is set at once, before the commit: a writer may notify once too often. Where a row was to go, and the transaction
-- failed, it may say too early that no worker sleeps; so each tube_sleep sets it, whether its row is there or not.
CREATE OR REPLACE FUNCTION :"schema".tube_private_set_flag() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    of_tube CONSTANT text := CASE TG_OP WHEN 'DELETE' THEN OLD.tube ELSE NEW.tube END;
    flag CONSTANT regclass := (
        SELECT to_regclass(format('%I.tube_sleeps_%s', tube_private_schema(), r.number))
        FROM tube_registry AS r WHERE r.tube = of_tube);
BEGIN
    IF flag IS NULL THEN
        RETURN NULL; -- the tube is being dropped
    END IF;
    PERFORM FROM tube_flag AS f WHERE f.tube = of_tube FOR NO KEY UPDATE;
    PERFORM setval(flag, CASE WHEN TG_OP <> 'DELETE' OR EXISTS (SELECT FROM tube_sleeper AS s WHERE s.tube = of_tube)
        THEN 2 ELSE 1 END);
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER tube_sleeper_flag_trigger AFTER INSERT OR UPDATE OR DELETE ON :"schema".tube_sleeper
    FOR EACH ROW EXECUTE FUNCTION :"schema".tube_private_set_flag();

-- Arguments: tube, partition; leader_id: the caller's term. With a term that is over, nothing is done, so that the sleep
--   of the next leader is left alone. NULL: any sleeper.
-- Locks: the sleeper row, until the transaction ends; writers do not wait for it. A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_wake(tube text, partition integer, leader_id uuid = NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    DELETE FROM tube_sleeper AS s
    WHERE s.tube = tube_wake.tube
      AND s.partition = tube_wake.partition
      AND (tube_wake.leader_id IS NULL OR EXISTS (
          SELECT FROM tube_leader AS l
          WHERE l.tube = s.tube AND l.partition = s.partition AND l.leader_id = tube_wake.leader_id));
END
$$;
COMMENT ON FUNCTION :"schema".tube_wake IS 'Registers a leader as awake.';
