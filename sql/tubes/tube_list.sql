-- tube_list: the tubes and the tables attached to them.
--
-- Arguments: in_tbl: only what is attached of this table; NULL for all.
-- Result: a row per attached table, by tube, shard and order of attachment; a tube without tables has
--   one row with a NULL tbl (unless in_tbl is given). Tables that were dropped are not listed. After
--   the contract's columns: shards (how many it is spread over), id_col, root (whether the ids of
--   this table are the documents'), columns and replica (as attached), key_type (of the tube).
CREATE OR REPLACE FUNCTION :"schema".tube_list(in_tbl regclass = NULL)
RETURNS TABLE (
    tube text, predicate text, partitions integer, tbl regclass, shard integer,
    shards integer, id_col name, root boolean, columns name[], replica boolean, key_type regtype
)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT r.tube, r.predicate, r.partitions, a.tbl, a.shard, a.shards, a.id_col,
        CASE WHEN a.tbl IS NOT NULL THEN NOT EXISTS (
            SELECT FROM tube_attachment AS b
            WHERE b.tube = a.tube AND b.shard = a.shard AND b.position < a.position
                AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = b.tbl)
        ) END, a.columns, a.replica, r.key_type
    FROM tube_registry AS r
    LEFT JOIN (
        SELECT t.* FROM tube_attachment AS t WHERE EXISTS (SELECT FROM pg_class AS c WHERE c.oid = t.tbl)
    ) AS a ON a.tube = r.tube
    WHERE in_tbl IS NULL OR a.tbl = in_tbl
    ORDER BY r.tube, a.shard, a.position;
END
$$;
COMMENT ON FUNCTION :"schema".tube_list IS 'Lists the tubes and the tables attached to them.';
