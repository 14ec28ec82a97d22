-- tube_wake: says that a leader is awake; writers need not NOTIFY any more.
--
-- Arguments: tube, partition; leader_id: the caller's term. With one that is over, nothing is done,
--   so that the sleep of the next leader is left alone. NULL: whoever sleeps.
-- Result: nothing; nothing is done when nobody sleeps.
-- Locks: the sleeper row, until the transaction ends; writers do not wait for it. A lost answer: call
--   again.
CREATE OR REPLACE FUNCTION :"schema".tube_wake(tube text, partition integer, leader_id uuid = NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    DELETE FROM tube_sleeper AS s
    WHERE s.tube = tube_wake.tube
      AND s.partition = tube_wake.partition
      AND (tube_wake.leader_id IS NULL OR EXISTS (
          SELECT FROM tube_leader AS l
          WHERE l.tube = s.tube AND l.partition = s.partition AND l.leader_id = tube_wake.leader_id));
END
$$;
COMMENT ON FUNCTION :"schema".tube_wake IS 'Registers a leader as awake, so that writers need not NOTIFY it.';
