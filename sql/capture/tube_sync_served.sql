-- tube_sync_served: tube_sync for those who are not in tube_admin, with its rights. Call tube_sync.
--
-- Result, locks: as of tube_sync.
CREATE OR REPLACE FUNCTION :"schema".tube_sync_served() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '5s'
AS $$
BEGIN
    RETURN tube_private_sync_stale();
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_sync_served() FROM PUBLIC;
