-- tube_backfill_collect: stores the ids of a backfill, in order, in a table of its own.
--
-- One statement with one snapshot, which lasts as long as reading and sorting the table does; it
-- writes nothing to the tube, so no worker waits for it, and it locks the backfill only when it is done, so
-- that whoever pauses or ends it does not wait, either. The ids are stored as the pods that they
-- will be: 8 bytes a bigint, and a chunk is copied without looking at it. Rows that lack order_col come
-- last; of rows with the same value none is left out. A related table names each document once.
--
-- The table is read with the rights of the caller, a worker's say. Where they can't read it as it is, the backfill has
-- failed, and its note says why: a privilege is missing, a policy would hide rows, a column is gone.
--
-- Arguments: backfill_id: one that this session has taken.
-- Result: the number of ids; NULL when there are none, because it is paused, was ended meanwhile, or has failed.
--   Called again, it does nothing.
-- Errors: TU122 unknown backfill; TU123 the session does not have it; 40001 another table got the name meanwhile.
--   Others may go away when it is tried again, too.
-- Locks: the table ACCESS SHARE; at the end, the backfill's row.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_collect(backfill_id bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
SET row_security = off
SET work_mem = '64MB'
SET jit = off
SET cursor_tuple_fraction = 1 -- all of it will be read
AS $$
DECLARE
    plan CONSTANT record := tube_private_backfill_query(backfill_id);
    pod record;
    places bigint := 0;
BEGIN
    IF plan.query IS NULL THEN
        RETURN tube_private_backfill_collected(backfill_id, NULL, NULL);
    END IF;
    BEGIN
        FOR pod IN EXECUTE plan.query LOOP
            places := places + 1;
            PERFORM tube_private_backfill_store(backfill_id, places, pod.shard, pod.ids);
        END LOOP;
    EXCEPTION WHEN syntax_error_or_access_rule_violation OR data_exception OR program_limit_exceeded THEN
        IF SQLSTATE LIKE 'TU%' THEN
            RAISE;
        END IF;
        PERFORM tube_private_backfill_was_read(plan.tbl, plan.table_name);
        RETURN tube_private_backfill_collected(backfill_id, NULL, SQLERRM);
    END;
    PERFORM tube_private_backfill_was_read(plan.tbl, plan.table_name);
    RETURN tube_private_backfill_collected(backfill_id, places, NULL);
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_collect IS
    'Stores the ids of a backfill, in order, in a table of its own.';

-- tube_private_backfill_query: the query for the ids of a backfill, as the pods that they will be; makes the table that stores them.
--
-- Arguments: backfill_id: one that this session has taken.
-- Result: query: shard, ids, in order; NULL when there is nothing to collect: it is paused, or past that, or can't be;
--   tbl, table_name: of the table that it names.
-- Errors: TU122 unknown backfill; TU123 the session does not have it.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_query(
    backfill_id bigint, OUT query text, OUT tbl regclass, OUT table_name text
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    backfill tube_backfill;
    att tube_attachment;
    key_type regtype;
    ids CONSTANT text := tube_private_backfill_ids(tube_private_backfill_query.backfill_id);
BEGIN
    SELECT b.* INTO backfill FROM tube_backfill AS b WHERE b.backfill_id = tube_private_backfill_query.backfill_id;
    IF NOT FOUND THEN
        PERFORM tube_private_backfill(tube_private_backfill_query.backfill_id);
    END IF;
    PERFORM tube_private_backfill_taken(backfill.backfill_id);
    IF backfill.state <> 'waiting' OR backfill.paused OR tube_private_backfill_changed(backfill) IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT a.* INTO STRICT att FROM tube_attachment AS a WHERE a.tube = backfill.tube AND a.tbl = backfill.tbl;
    key_type := tube_private_key_type(att.tube);
    EXECUTE format('CREATE TABLE %s (place bigint NOT NULL, shard integer NOT NULL, ids %s[] NOT NULL)', ids, key_type);
    -- Texts may not fit into a page, others do.
    EXECUTE format('ALTER TABLE %s ALTER ids SET STORAGE %s', ids,
        CASE key_type WHEN 'text'::regtype THEN 'EXTERNAL' ELSE 'PLAIN' END);
    EXECUTE format('REVOKE ALL ON %s FROM PUBLIC', ids);
    query := tube_private_backfill_rows(backfill, att, 'true');
    tbl := att.tbl;
    table_name := att.tbl;
END
$$;

-- tube_private_backfill_store: stores a pod of a backfill that is being collected. For tube_backfill_collect alone.
--
-- Arguments: backfill_id: one that this session has taken; place: where in the order; shard; ids: of the tube's type.
-- Errors: TU123 the session does not have it; 42804 ids of another type.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_store(backfill_id bigint, place bigint, shard integer, ids anyarray) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    PERFORM tube_private_backfill_check_ids(ids);
    PERFORM tube_private_backfill_taken(backfill_id);
    EXECUTE format('INSERT INTO %s (place, shard, ids) VALUES ($1, $2, $3)', tube_private_backfill_ids(backfill_id))
    USING place, shard, ids;
END
$$;

-- tube_private_backfill_collected: ends the collection of a backfill's ids. For tube_backfill_collect alone.
--
-- Arguments: backfill_id: one that this session has taken; pods: how many were stored; NULL: none were; wrong: why not.
-- Result: of tube_backfill_collect.
-- Locks: the backfill's row.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_collected(backfill_id bigint, pods bigint, wrong text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    backfill tube_backfill;
    att tube_attachment;
    ids CONSTANT text := tube_private_backfill_ids(tube_private_backfill_collected.backfill_id);
BEGIN
    PERFORM tube_private_backfill_taken(tube_private_backfill_collected.backfill_id);
    SELECT b.* INTO backfill FROM tube_backfill AS b WHERE b.backfill_id = tube_private_backfill_collected.backfill_id FOR NO KEY UPDATE;
    IF NOT FOUND OR backfill.state <> 'waiting' THEN
        IF pods IS NULL THEN
            RETURN backfill.rows_total;
        END IF;
        EXECUTE 'DROP TABLE IF EXISTS ' || ids;
        RETURN NULL;
    END IF;
    wrong := coalesce(wrong, CASE WHEN pods IS NULL THEN tube_private_backfill_changed(backfill) END);
    IF wrong IS NOT NULL THEN
        EXECUTE 'DROP TABLE IF EXISTS ' || ids;
        PERFORM tube_private_backfill_end(backfill, 'failed', wrong);
        RETURN NULL;
    ELSIF pods IS NULL THEN
        RETURN backfill.rows_total; -- it is paused
    END IF;
    SELECT a.* INTO att FROM tube_attachment AS a WHERE a.tube = backfill.tube AND a.tbl = backfill.tbl;
    EXECUTE format('ALTER TABLE %s ADD PRIMARY KEY (place)', ids);
    EXECUTE format('SELECT coalesce(sum(cardinality(ids)), 0) FROM %s', ids) INTO backfill.rows_total;
    UPDATE tube_backfill AS b
    SET state = 'inserting', rows_total = backfill.rows_total, pods_total = pods, note = NULL,
        key_attnum = tube_private_backfill_key_of(att), row_filter = att.row_filter,
        collected_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE b.backfill_id = backfill.backfill_id;
    RETURN backfill.rows_total;
END
$$;

-- tube_private_backfill_rows: the query for the ids of a backfill's table, as pods of 250, in their order.
--
-- Arguments: backfill: its row; att: what its table is attached as; within: a condition.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_rows(
    backfill :"schema".tube_backfill, att :"schema".tube_attachment, within text
) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT tube_private_fill($query$
        SELECT k.shard, array_agg(k.id ORDER BY k.n) AS ids
        FROM (
            SELECT o.id, o.shard, o.n, (o.n - 1) / 250 AS chunk
            FROM (
                SELECT r.id, r.shard, row_number() OVER (PARTITION BY r.shard ORDER BY r.by) AS n
                FROM (
                    SELECT <distinct>id, <shard_of> AS shard, by
                    FROM (SELECT <id> AS id, <by> AS by FROM <table> WHERE (<filter>
                        ) AND (<within>)) AS t
                    WHERE id IS NOT NULL<first>
                ) AS r
            ) AS o
        ) AS k
        GROUP BY k.shard, k.chunk
        ORDER BY k.chunk, k.shard$query$, jsonb_build_object(
            'id', tube_private_key_sql(quote_ident(att.id_col), tube_private_key_type(att.tube)),
            'by', quote_ident(backfill.order_col),
            'table', att.tbl::regclass::text,
            'filter', coalesce(att.row_filter, 'true'),
            'within', within,
            'shard_of', tube_private_shard_expression('id', att.shard, att.shards),
            'distinct', CASE WHEN backfill.root THEN '' ELSE 'DISTINCT ON (id) ' END,
            'first', CASE WHEN backfill.root THEN '' ELSE ' ORDER BY id, by' END))
$$;
