-- tube_leader_rebase: lets the epochs of a tube go on above one that its sink has seen.
--
-- For a database that was restored from a backup, or is a standby that had lagged: the sink holds
-- writes of terms that this database knows nothing of, and refuses ours as older. The worker says so,
-- and names the epoch that it met. Other partitions may have written under somewhat later ones, and an
-- epoch must not be issued twice; so 1000 are left out.
--
-- Arguments: tube; epoch, the highest that the sink is known to hold.
-- Result: what counts as the greatest epoch issued, from now on: 1000 above it, or more; terms that
--   begin later have greater ones.
-- Errors: TU102 unknown tube; 22023 an epoch below 0, or so great that tokens would not hold it.
-- Locks: the registry row, until the transaction ends. A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_leader_rebase(tube text, epoch bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    issued bigint;
BEGIN
    IF epoch IS NULL OR epoch NOT BETWEEN 0 AND 2147483646 THEN
        RAISE EXCEPTION 'epoch is %', coalesce(epoch::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is 0 to 2147483646.';
    END IF;
    UPDATE tube_registry AS r
    SET last_epoch = greatest(r.last_epoch, least(tube_leader_rebase.epoch + 1000, 2147483646))
    WHERE r.tube = tube_leader_rebase.tube
    RETURNING r.last_epoch INTO issued;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no tube %', quote_nullable(tube)
            USING ERRCODE = 'TU102', HINT = 'tube_list() shows all tubes; tube_ensure_exists() makes one.';
    END IF;
    RETURN issued;
END
$$;
COMMENT ON FUNCTION :"schema".tube_leader_rebase IS
    'Raises the epochs of a tube above one that its sink has seen, after a restore from a backup.';
