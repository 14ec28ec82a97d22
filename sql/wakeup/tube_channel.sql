-- tube_channel: the name of the channel on which writers wake a tube's sleeping workers.
--
-- Each NOTIFY carries the number of a partition as its payload.
--
-- Arguments: tube.
-- Result: the name, a plain identifier of 39 bytes. Tubes of other schemas have other channels.
CREATE OR REPLACE FUNCTION :"schema".tube_channel(tube text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
RETURN 'pytube_' || md5(:'schema' || '.' || tube);
COMMENT ON FUNCTION :"schema".tube_channel IS
    'Returns the NOTIFY channel on which writers wake the sleeping workers of a tube.';
