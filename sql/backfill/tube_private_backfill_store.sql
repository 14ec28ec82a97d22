-- tube_private_backfill_store: makes the table of a backfill's ids, and fills it.
--
-- Arguments: backfill: its row; att: what its table is attached as.
-- Result: the number of pods that the ids are.
-- Errors: 42501 our owner may not read the table, or a policy would hide rows; 42703 a column is gone; TU104 a
--   column has a type that can't be trusted; TU107 the table is a view now.
-- Locks: the table ACCESS SHARE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_store(
    backfill :"schema".tube_backfill, att :"schema".tube_attachment
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET row_security = off
SET work_mem = '64MB'
SET jit = off
AS $$
DECLARE
    key_type CONSTANT regtype := tube_private_key_type(backfill.tube);
    ids CONSTANT text := tube_private_backfill_ids(backfill.backfill_id);
    pods bigint;
BEGIN
    PERFORM tube_private_check_table(att.tbl::text, att.tbl, tube_private_types(att));
    EXECUTE format('CREATE TABLE %s (place bigint NOT NULL, shard integer NOT NULL, ids %s[] NOT NULL)',
        ids, key_type);
    -- Texts may not fit into a page, others do.
    EXECUTE format('ALTER TABLE %s ALTER ids SET STORAGE %s', ids,
        CASE key_type WHEN 'text'::regtype THEN 'EXTERNAL' ELSE 'PLAIN' END);
    EXECUTE format('REVOKE ALL ON %s FROM PUBLIC', ids);
    EXECUTE tube_private_fill($collect$
        INSERT INTO <ids> (place, shard, ids)
        SELECT row_number() OVER (ORDER BY k.chunk, k.shard), k.shard, array_agg(k.id ORDER BY k.n)
        FROM (
            SELECT o.id, o.shard, o.n, (o.n - 1) / 250 AS chunk
            FROM (
                SELECT r.id, r.shard, row_number() OVER (PARTITION BY r.shard ORDER BY r.by) AS n
                FROM (
                    SELECT <distinct>id, <shard_of> AS shard, by
                    FROM (SELECT <id> AS id, <by> AS by FROM <table> WHERE <filter>) AS t
                    WHERE id IS NOT NULL<first>
                ) AS r
            ) AS o
        ) AS k
        GROUP BY k.shard, k.chunk
        ORDER BY 1$collect$, jsonb_build_object(
            'ids', ids,
            'id', tube_private_key_expression(att),
            'by', quote_ident(backfill.order_col),
            'table', att.tbl::regclass::text,
            'filter', coalesce(att.row_filter, 'true'),
            'shard_of', tube_private_shard_expression('id', att.shard, att.shards, key_type),
            'distinct', CASE WHEN backfill.root THEN '' ELSE 'DISTINCT ON (id) ' END,
            'first', CASE WHEN backfill.root THEN '' ELSE ' ORDER BY id, by' END));
    GET DIAGNOSTICS pods = ROW_COUNT;
    EXECUTE format('ALTER TABLE %s ADD PRIMARY KEY (place)', ids);
    RETURN pods;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_backfill_store(
    :"schema".tube_backfill, :"schema".tube_attachment) FROM PUBLIC;
