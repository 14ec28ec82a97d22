-- tube_private_role: the name of one of our roles.
--
-- Arguments: kind: owner, admin, worker, writer, monitor or nobody.
CREATE OR REPLACE FUNCTION :"schema".tube_private_role(kind text) RETURNS name
LANGUAGE sql IMMUTABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
RETURN (:'roles' || '_' || kind)::name;
