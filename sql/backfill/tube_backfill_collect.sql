-- tube_backfill_collect: stores the ids of a backfill, in order, in a table of its own.
--
-- One statement with one snapshot, which lasts as long as reading and sorting the table does; it
-- writes nothing to the tube, so no worker waits for it. The ids are stored as the pods that they
-- will be: 8 bytes a bigint, and a chunk is copied without looking at it. Rows that lack order_col come
-- last; of rows with the same value none is left out. A related table names each document once.
--
-- Arguments: backfill_id: one that this session has taken.
-- Result: the number of ids. Called again, it does nothing.
-- Errors: TU122, TU123 as tube_private_backfill_held; 42501 our owner may not read the table, or a
--   policy would hide rows; TU104 a column has a type that can't be trusted; TU107 the table is
--   a view now.
-- Locks: the backfill's row, and the table ACCESS SHARE.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_collect(backfill_id bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET row_security = off
SET work_mem = '64MB'
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    backfill tube_backfill := tube_private_backfill_held(tube_backfill_collect.backfill_id);
    att tube_attachment := tube_private_backfill_attachment(backfill);
    key_type regtype := tube_private_key_type(backfill.tube);
    ids text := tube_private_backfill_ids(backfill.backfill_id);
    pods bigint;
    total bigint;
BEGIN
    IF backfill.state <> 'waiting' OR backfill.paused OR att IS NULL THEN
        RETURN backfill.rows_total;
    END IF;
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
    EXECUTE format('SELECT coalesce(sum(cardinality(ids)), 0) FROM %s', ids) INTO total;
    UPDATE tube_backfill AS b
    SET state = 'inserting', rows_total = total, pods_total = pods, note = NULL,
        collected_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE b.backfill_id = backfill.backfill_id;
    RETURN total;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_backfill_collect(bigint) FROM PUBLIC;

-- tube_private_backfill_attachment: what a backfill's table is attached as; ends the backfill when that has changed.
--
-- Arguments: backfill: its row, locked.
-- Result: the attachment; NULL when the table is detached or gone, or has other shards now. Then the
--   backfill has failed, and says so.
-- Locks: as tube_private_backfill_end.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_attachment(backfill :"schema".tube_backfill)
RETURNS :"schema".tube_attachment
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    att tube_attachment;
BEGIN
    SELECT a.* INTO att FROM tube_attachment AS a
    JOIN pg_class AS c ON c.oid = a.tbl
    WHERE a.tube = backfill.tube AND a.tbl = backfill.tbl
        AND a.shard = backfill.shard AND a.shards = backfill.shards;
    IF NOT FOUND AND backfill.state IN ('waiting', 'inserting') THEN
        PERFORM tube_private_backfill_end(backfill, 'failed',
            'the table was detached, dropped or given other shards meanwhile');
        RETURN NULL;
    END IF;
    RETURN att;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_backfill_attachment(:"schema".tube_backfill) FROM PUBLIC;
