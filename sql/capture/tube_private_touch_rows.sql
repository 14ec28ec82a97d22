-- tube_private_touch_rows: touches every row of one table, a stretch of its pages at a time.
--
-- Memory is that of a stretch, whatever the size of the table.
--
-- Arguments: rel: the table itself, without what inherits from it; tube; id: the text of the key's
--   expression; row_filter: NULL for all rows; shard, shards: as of tube_shard_of; op; types: of
--   tube_private_types.
-- Result: nothing.
-- Errors: 42501 row-level security would hide rows from our owner, or it lacks SELECT; TU104 a column has a
--   type that can't be trusted; TU107 it is no table any more.
-- Locks: none; the caller keeps writers of the table out.
CREATE OR REPLACE FUNCTION :"schema".tube_private_touch_rows(
    rel regclass, tube text, id text, row_filter text, shard integer, shards integer, op text, types text
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET row_security = off
AS $$
DECLARE
    stretch CONSTANT bigint := 500;
    pages CONSTANT bigint := pg_relation_size(rel) / current_setting('block_size')::bigint;
    statement CONSTANT text := format($sql$
        INSERT INTO %I.%I (op, shard, ids)
        SELECT $1, g.shard, g.ids[c.first : c.first + 249]
        FROM (
            SELECT k.shard, array_agg(DISTINCT k.id) AS ids
            FROM (
                SELECT id, %s AS shard
                FROM (
                    SELECT %s AS id FROM ONLY %s WHERE ctid >= $2 AND ctid < $3 AND (%s)
                ) AS x
                WHERE id IS NOT NULL
            ) AS k
            GROUP BY k.shard
        ) AS g, generate_series(1, cardinality(g.ids), 250) AS c (first)$sql$,
        tube_private_schema(), tube,
        tube_private_shard_expression('id', shard, shards, tube_private_key_type(tube)),
        id, rel, coalesce(row_filter, 'true'));
    page bigint := 0;
BEGIN
    PERFORM tube_private_check_table(format('ONLY %s', rel), rel, types);
    IF strpos(current_setting('application_name'), 'backfill') > 0 THEN
        op := 'B';
    END IF;
    WHILE page < pages LOOP
        EXECUTE statement USING op, format('(%s,0)', page)::tid, format('(%s,0)', page + stretch)::tid;
        page := page + stretch;
    END LOOP;
    PERFORM tube_private_notify(tube_channel(s.tube), s.partition)
    FROM tube_sleeper AS s WHERE s.tube = tube_private_touch_rows.tube;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_touch_rows(
    regclass, text, text, text, integer, integer, text, text) FROM PUBLIC;

-- tube_private_sweep: asks for a sweep of shards: documents that the source no longer has are to go.
--
-- Arguments: tube; shard, shards: as of tube_shard_of.
-- Result: nothing. A control pod per shard: {"type":"sweep","start_seq":"N"}.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_sweep(tube text, shard integer, shards integer) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    start_seq bigint := CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('tube_seq') END;
BEGIN
    EXECUTE format('INSERT INTO %I.%I (op, shard, ids, payload) '
        'SELECT ''B'', $1 + n, ''{}'', $2 FROM generate_series(0, $3 - 1) AS n', tube_private_schema(), tube)
    USING shard, jsonb_build_object('type', 'sweep', 'start_seq', start_seq::text), shards;
    PERFORM tube_private_notify(tube_channel(s.tube), s.partition)
    FROM tube_sleeper AS s WHERE s.tube = tube_private_sweep.tube;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_sweep(text, integer, integer) FROM PUBLIC;

-- tube_private_truncated: touches all rows of a table that is about to be truncated.
--
-- A transaction at REPEATABLE READ may not see all of them; then a sweep finds what was missed.
--
-- Arguments: as of tube_private_touch_rows.
-- Result: nothing.
-- Locks: none; TRUNCATE holds the table ACCESS EXCLUSIVE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_truncated(
    rel regclass, tube text, id text, row_filter text, shard integer, shards integer, op text, types text
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    PERFORM tube_private_touch_rows(rel, tube, id, row_filter, shard, shards, op, types);
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        PERFORM tube_private_sweep(tube, shard, shards);
    END IF;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_truncated(
    regclass, text, text, text, integer, integer, text, text) FROM PUBLIC;

-- tube_private_truncated_call: the call of tube_private_truncated in a trigger function, as text.
--
-- Arguments: att; root: whether it is the root table of its shards.
-- Result: the text, with TG_RELID in it.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_truncated_call(att :"schema".tube_attachment, root boolean)
RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    -- With constants: a transaction at REPEATABLE READ may be too old to see the registry.
    RETURN format('tube_private_truncated(TG_RELID, %L, %L, %L, %s, %s, %L, %L)', att.tube,
        tube_private_key_expression(att), att.row_filter, att.shard, att.shards,
        CASE WHEN root THEN 'D' ELSE 'U' END, tube_private_types(att));
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_truncated_call(:"schema".tube_attachment, boolean) FROM PUBLIC;
