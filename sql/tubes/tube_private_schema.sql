-- tube_private_schema: the name of the schema that these functions are in.
CREATE OR REPLACE FUNCTION :"schema".tube_private_schema() RETURNS name
LANGUAGE sql IMMUTABLE
RETURN :'schema'::name;

-- tube_private_capture_schema: the name of the schema whose functions belong to the owners of attached tables.
CREATE OR REPLACE FUNCTION :"schema".tube_private_capture_schema() RETURNS name
LANGUAGE sql IMMUTABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
RETURN :'capture'::name;
