-- tube_lease_leave: a process takes part in the lease election no more.
--
-- The others see it at their next tick, and share what it released.
--
-- Arguments: tube; instance_id, the process.
-- Result: nothing; nothing is done when it took no part.
-- Locks: the process's own row of tube_instance, until the transaction ends. A lost answer: call
--   again, or let the row grow old.
CREATE OR REPLACE FUNCTION :"schema".tube_lease_leave(tube text, instance_id uuid) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    DELETE FROM tube_instance AS i
    WHERE i.tube = tube_lease_leave.tube AND i.instance_id = tube_lease_leave.instance_id;
END
$$;
COMMENT ON FUNCTION :"schema".tube_lease_leave IS
    'Takes a process out of the lease election, so that the others share its partitions.';
