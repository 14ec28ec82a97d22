-- tube_wakes: whether writers wake sleeping workers here.
--
-- A transaction that has made a NOTIFY can't be prepared. Where transactions may be prepared, writers
-- therefore make none, and workers have to poll, unless the setting pytube.wake (of the session, the
-- role, the database or the server) is on. With off there is never one.
--
-- Result: true or false, for this session's settings.
CREATE OR REPLACE FUNCTION :"schema".tube_wakes() RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN coalesce(
        nullif(current_setting('pytube.wake', true), '')::boolean,
        current_setting('max_prepared_transactions') = '0');
EXCEPTION WHEN invalid_text_representation THEN
    RETURN false; -- no writer may fail over this setting
END
$$;
COMMENT ON FUNCTION :"schema".tube_wakes IS
    'Returns whether writers wake sleeping workers in this session.';
