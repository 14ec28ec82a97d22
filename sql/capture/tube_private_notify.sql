-- tube_private_notify: wakes the worker that sleeps on a partition, where tube_wakes() allows it.
--
-- Arguments: channel: of the tube; partition.
-- Locks: none until the commit, which is ordered with all others that notify.
CREATE OR REPLACE FUNCTION :"schema".tube_private_notify(channel text, partition integer) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    IF tube_wakes() THEN
        PERFORM pg_notify(channel, partition::text);
    END IF;
END
$$;
