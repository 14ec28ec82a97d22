-- tube_private_members: the tables that an attached table consists of.
--
-- Arguments: tbl.
-- Result: itself; and where it is partitioned, all tables of its tree. kind: r or p, as in pg_class. None
--   when it is gone.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_members(tbl regclass)
RETURNS TABLE (rel regclass, kind "char")
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT c.oid::regclass, c.relkind FROM pg_class AS c
    WHERE c.oid = tbl OR (
        c.oid IN (SELECT t.relid FROM pg_partition_tree(tbl) AS t)
        AND (SELECT r.relkind = 'p' FROM pg_class AS r WHERE r.oid = tbl));
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_members(regclass) FROM PUBLIC;
