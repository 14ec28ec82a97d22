-- tube_private_row_body: what a trigger function does for one row, where logical replication writes it.
--
-- Replication's apply fires row triggers only, and those that are enabled for it.
--
-- Arguments: att: one with `replica`; root: whether it is the root table of its shards.
-- Result: the first lines of the body, for rows; it leaves statements to what follows.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_row_body(att :"schema".tube_attachment, root boolean)
RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    key_type CONSTANT regtype := tube_private_key_type(att.tube);
    vals CONSTANT text[] := tube_private_column_values(att.tbl, att.columns);
BEGIN
    RETURN tube_private_fill($template$
    IF TG_LEVEL = 'ROW' THEN<guard><gate>
        INSERT INTO <queue> (op, shard, ids)
        SELECT CASE <null> WHEN cap_backfill THEN 'B' ELSE k.op END, <shard>, ARRAY[k.id]
        FROM (
            SELECT x.id, CASE bit_or(x.side) WHEN 1 THEN '<d>' WHEN 2 THEN '<i>' ELSE 'U' END AS op
            FROM (
                SELECT <id> AS id, 1 AS side FROM (SELECT <old>) AS o
                WHERE TG_OP <> 'INSERT' AND (<filter>)
                UNION ALL
                SELECT <id>, 2 FROM (SELECT <new>) AS n
                WHERE TG_OP <> 'DELETE' AND (<filter>)
            ) AS x<skip>
            GROUP BY x.id
        ) AS k<unchanged>;
        PERFORM tube_private_notify(<channel>, s.partition) FROM tube_sleeper AS s WHERE s.tube = <tube>;
        RETURN NULL;
    END IF;$template$, jsonb_build_object(
        'guard', tube_private_guard(att, 'ROW'),
        'gate', tube_private_type_gate(att, format('(SELECT %s) AS o', tube_private_row_columns(att, 'OLD')),
            format('(SELECT %s) AS n', tube_private_row_columns(att, 'NEW'))),
        'queue', format('%I.%I', tube_private_schema(), att.tube),
        'tube', quote_literal(att.tube),
        'channel', quote_literal(tube_channel(att.tube)),
        'id', tube_private_key_expression(att),
        'filter', coalesce(att.row_filter, 'true'),
        'shard', tube_private_shard_expression('k.id', att.shard, att.shards, key_type),
        'i', CASE WHEN root THEN 'I' ELSE 'U' END,
        'd', CASE WHEN root THEN 'D' ELSE 'U' END,
        'null', CASE WHEN root
            THEN format('WHEN k.id IS NULL THEN tube_private_null_id(TG_RELID, %L)', att.id_col) ELSE '' END,
        'skip', CASE WHEN root THEN '' ELSE ' WHERE x.id IS NOT NULL' END,
        'old', tube_private_row_columns(att, 'OLD'),
        'new', tube_private_row_columns(att, 'NEW'),
        -- Of an UPDATE that changed nothing that counts, the key and the filter neither, no touch.
        'unchanged', CASE WHEN vals IS NULL THEN '' ELSE format(
            E'\n        WHERE k.op <> ''U'' OR TG_OP <> ''UPDATE'' OR (SELECT ROW(%1$s) FROM (SELECT %2$s) AS o)'
            ' IS DISTINCT FROM (SELECT ROW(%1$s) FROM (SELECT %3$s) AS n)',
            format('%s, (%s) IS TRUE, %s', tube_private_key_expression(att), coalesce(att.row_filter, 'true'),
                array_to_string(vals, ', ')),
            tube_private_row_columns(att, 'OLD'), tube_private_row_columns(att, 'NEW')) END));
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_row_body(:"schema".tube_attachment, boolean) FROM PUBLIC;

-- tube_private_row_columns: those columns of a trigger's row that its function looks at.
--
-- Arguments: att; side: OLD or NEW.
-- Result: SQL text, to stand behind SELECT.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_row_columns(att :"schema".tube_attachment, side text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN (
        SELECT string_agg(format('%1$s.%2$I AS %2$I', side, c.name), ', ')
        FROM (SELECT DISTINCT u.name FROM unnest(att.seen_names) AS u (name)) AS c);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_row_columns(:"schema".tube_attachment, text) FROM PUBLIC;
