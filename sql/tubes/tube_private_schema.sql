-- tube_private_schema: the name of the schema that these functions are in.
--
-- Result: the name, unquoted.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_schema() RETURNS name
LANGUAGE sql IMMUTABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
RETURN :'schema'::name;
REVOKE ALL ON FUNCTION :"schema".tube_private_schema() FROM PUBLIC;
