-- tube_private_capture_body: the text of the trigger function of an attached table.
--
-- A row filter works as in logical replication: let O be the ids of old rows that pass it, and N those
-- of new rows. N without O was inserted, O without N deleted, what is in both updated; so a row that
-- enters, leaves or changes its key is never missed. A related table's ids are all updated.
--
-- A statement of one row is the common one, and is worth a path of its own: one statement that looks
-- at the transition tables and makes the pod, and one look for a sleeper. It makes none where there
-- are more rows, the key has changed, or the id is NULL; then, unless no row was inside before or is
-- now, all goes by sets: distinct ids, by shard and op, in pods of 250. (The LIMIT tells the planner how few rows
-- there are. Its plan is kept, and may have been made while a statement of many was at work; it would cost so much
-- then that each statement of one row was planned anew, which takes longer than all the rest. A row that its new
-- partition's trigger drops stands among the old rows only, so both tables are looked at.)
--
-- Where all rows of a statement have the same op, the ids are gathered into one sorted array per shard,
-- and cut into slices: numbering rows by a window and grouping them by chunk costs a bulk write three
-- times as much. An update has one op when the same ids pass the filter before and after. But an array can't
-- hold more than a gigabyte, and is in memory as a whole: from a number of rows on (see tube_private_many) they are
-- numbered after all, which takes to the disk what does not fit into work_mem.
--
-- The sleeper is looked for after the INSERT, in a statement of its own, whose snapshot is newer than
-- the seq: whoever falls asleep after that snapshot reads a seq that is at least as high.
--
-- With `columns`, rows are compared by their ids, by whether they pass, and by these columns, as a
-- multiset, because nothing tells which old row became which new one; what is on one side only, changed.
--
-- A MERGE into a partitioned table that inserts a row and updates others later shows the inserted row in
-- place of the new versions of those (a fault of Postgres 15 to 18). So an id that is among the new ones
-- only makes old rows count whether they pass or not.
--
-- Arguments: att: the attachment; root: whether it is the root table of its shards.
-- Result: the body of a plpgsql function.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_capture_body(att :"schema".tube_attachment, root boolean)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    key_type CONSTANT regtype := tube_private_key_type(att.tube);
    vals CONSTANT text[] := tube_private_column_values(att.tbl, att.columns);
    changed CONSTANT text := (
        SELECT coalesce(string_agg(format(' OR r.c%s IS DISTINCT FROM n.c%s', i, i), ''), '')
        FROM generate_subscripts(vals, 1) AS i);
    fragments jsonb := jsonb_build_object(
        'id', tube_private_key_expression(att),
        'key', key_type,
        'guard', tube_private_guard(att),
        'gate', tube_private_type_gate(att),
        'values', (
            SELECT coalesce(string_agg(format(', %s AS c%s', v.value, v.place), ''), '')
            FROM unnest(vals) WITH ORDINALITY AS v (value, place)),
        'rows', CASE WHEN att.replica THEN tube_private_row_body(att, root) ELSE '' END,
        'truncated', tube_private_truncated_call(att, root),
        'many', tube_private_many(att),
        'changed', changed,
        'id_literal', quote_literal(att.id_col),
        'filter', coalesce(att.row_filter, 'true'),
        'queue', format('%I.%I', tube_private_schema(), att.tube),
        'tube', quote_literal(att.tube),
        'channel', quote_literal(tube_channel(att.tube)),
        'shard_of_one', tube_private_shard_expression('r.id', att.shard, att.shards, key_type),
        'shard_of_many', tube_private_shard_expression('id', att.shard, att.shards, key_type),
        'shard_put', CASE att.shards WHEN 1 THEN att.shard::text ELSE 'cap_shard' END,
        'into_shard', CASE att.shards WHEN 1 THEN '' ELSE E'\n        RETURNING shard INTO cap_shard' END,
        'i', CASE WHEN root THEN 'I' ELSE 'U' END,
        'd', CASE WHEN root THEN 'D' ELSE 'U' END,
        'null_many', CASE WHEN root
            THEN 'WHEN id IS NULL THEN tube_private_null_id(TG_RELID, <id_literal>)' ELSE '' END,
        'some_id', CASE WHEN root
            THEN 'coalesce(<id>, tube_private_null_id(TG_RELID, <id_literal>)::<key>)'
            ELSE '<id>' END,
        'skip_null', CASE WHEN root THEN '' ELSE ' WHERE id IS NOT NULL' END);
    body text := $template$
-- Made by tube_private_capture_body; tube_table_ensure_attached makes it anew.
#variable_conflict use_column
DECLARE
    cap_backfill CONSTANT boolean := strpos(current_setting('application_name'), 'backfill') > 0;
    cap_shard integer;
    cap_shards integer[];
    cap_many boolean := false;
BEGIN<rows>
    IF pg_current_xact_id_if_assigned() IS NULL AND TG_OP <> 'TRUNCATE' THEN
        RETURN NULL; -- the statement wrote no row, and is to stay as cheap as that
    END IF;<guard><gate>
    IF TG_OP = 'UPDATE' THEN
<one_update>
    ELSIF TG_OP = 'INSERT' THEN
<one_insert>
    ELSIF TG_OP = 'DELETE' THEN
<one_delete>
    ELSE
        PERFORM <truncated>;
        RETURN NULL;
    END IF;
    IF FOUND THEN
        PERFORM tube_private_notify(<channel>, s.partition)
        FROM tube_sleeper AS s
        WHERE s.tube = <tube> AND <shard_put> % s.partitions = s.partition;
        RETURN NULL;
    END IF;

    IF TG_OP = 'UPDATE' THEN
        PERFORM FROM (
            <either>
        ) AS x LIMIT 1;
    ELSIF TG_OP = 'INSERT' THEN
        PERFORM FROM new_table WHERE <filter> LIMIT 1;
    ELSE
        PERFORM FROM old_table WHERE <filter> LIMIT 1;
    END IF;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;

    <many>
    IF TG_OP = 'UPDATE' THEN
        IF NOT cap_many THEN
<put_same>
        END IF;
        IF cap_shards IS NULL THEN
<put_update>
        END IF;
    ELSIF cap_many AND TG_OP = 'INSERT' THEN
<put_many_inserted>
    ELSIF cap_many THEN
<put_many_deleted>
    ELSIF TG_OP = 'INSERT' THEN
<put_insert>
    ELSE
<put_delete>
    END IF;
    PERFORM tube_private_notify(<channel>, s.partition)
    FROM tube_sleeper AS s
    WHERE s.tube = <tube>
        AND EXISTS (SELECT FROM unnest(cap_shards) AS t (shard) WHERE t.shard % s.partitions = s.partition);
    RETURN NULL;
END
$template$;
    one text := $template$        INSERT INTO <queue> (op, shard, ids)
        SELECT CASE WHEN cap_backfill THEN 'B' <op> END, <shard_of_one>, ARRAY[r.id]
        FROM <rows>
        WHERE <alone> AND r.id IS NOT NULL AND <passes><into_shard>;$template$;
    alone CONSTANT text := 'NOT EXISTS (SELECT FROM %s OFFSET 1)';
    put text := $template$        WITH put AS (
            INSERT INTO <queue> (op, shard, ids)
            SELECT p.op, p.shard, array_agg(p.id)
            FROM (
                SELECT k.op, k.shard, k.id,
                    (row_number() OVER (PARTITION BY k.op, k.shard ORDER BY k.id) - 1) / 250 AS chunk
                FROM (
                    SELECT id, <shard_of_many> AS shard,
                        CASE <null_many> WHEN cap_backfill THEN 'B' ELSE <op> END AS op
                    FROM (<sides>) AS x<skip_null>
                    GROUP BY id
                ) AS k
            ) AS p
            GROUP BY p.op, p.shard, p.chunk
            RETURNING shard
        )
        SELECT array_agg(DISTINCT shard) INTO cap_shards FROM put;$template$;
    slices text := $template$        WITH put AS (
            INSERT INTO <queue> (op, shard, ids)
            SELECT CASE WHEN cap_backfill THEN 'B' ELSE <op> END, g.shard, g.ids[c.first : c.first + 249]
            FROM (
                SELECT k.shard, array_agg(DISTINCT k.id) AS ids
                FROM (SELECT id, <shard_of_many> AS shard FROM (<sides>) AS x<skip_null>) AS k
                <same>
                GROUP BY k.shard
            ) AS g, generate_series(1, cardinality(g.ids), 250) AS c (first)
            RETURNING shard
        )
        SELECT array_agg(DISTINCT shard) INTO cap_shards FROM put;$template$;
    same text := 'WHERE (SELECT array_agg(DISTINCT id) FROM (%s) AS o)
                    = (SELECT array_agg(DISTINCT id) FROM (%s) AS n)';
    side CONSTANT text := 'SELECT <id> AS id, (<filter>) IS TRUE AS passes<values> FROM %s';
    one_side CONSTANT text := '(' || side || ')';
    first_row CONSTANT text := '(' || side || ' LIMIT 1)';
    doubtful CONSTANT text := CASE
        WHEN att.row_filter IS NOT NULL AND (SELECT c.relkind = 'p' FROM pg_class AS c WHERE c.oid = att.tbl)
        THEN 'EXISTS (SELECT <id> FROM new_table EXCEPT SELECT <id> FROM old_table)' END;
    differ CONSTANT text := 'SELECT id, %s AS side FROM (%s EXCEPT ALL %s) AS d WHERE passes';
    old_side text := 'SELECT <id> AS id, 1 AS side FROM old_table WHERE <filter>';
    new_side text := 'SELECT <id> AS id, 2 AS side FROM new_table WHERE <filter>';
    either text := 'SELECT FROM old_table WHERE <filter> UNION ALL SELECT FROM new_table WHERE <filter>';
    old_ids CONSTANT text := 'SELECT <some_id> AS id FROM old_table WHERE <filter>';
    new_ids CONSTANT text := 'SELECT <some_id> AS id FROM new_table WHERE <filter>';
BEGIN
    IF vals IS NOT NULL THEN
        old_side := format(differ, 1, format(one_side, 'old_table'), format(one_side, 'new_table'));
        new_side := format(differ, 2, format(one_side, 'new_table'), format(one_side, 'old_table'));
        either := format('SELECT FROM (%s) AS o UNION ALL SELECT FROM (%s) AS n', old_side, new_side);
    END IF;
    IF doubtful IS NOT NULL THEN
        old_side := old_side || ' OR ' || doubtful;
        either := either || format(' UNION ALL SELECT FROM old_table WHERE %s', doubtful);
        same := same || format(' AND NOT %s', doubtful);
    END IF;
    body := replace(body, '<either>', either);
    body := replace(body, '<put_update>', replace(replace(put, '<sides>',
        old_side || E'\n                        UNION ALL ' || new_side),
        '<op>', 'CASE bit_or(side) WHEN 1 THEN ''<d>'' WHEN 2 THEN ''<i>'' ELSE ''U'' END'));
    body := replace(body, '<put_same>', CASE WHEN vals IS NOT NULL THEN '' ELSE replace(replace(replace(slices, '<same>', format(same, old_ids, new_ids)),
        '<sides>', new_ids), '<op>', '''U''') END);
    body := replace(body, '<put_many_inserted>', replace(replace(put, '<sides>', new_ids), '<op>', '''<i>'''));
    body := replace(body, '<put_many_deleted>', replace(replace(put, '<sides>', old_ids), '<op>', '''<d>'''));
    body := replace(body, '<put_insert>', replace(replace(replace(slices, '<same>', ''),
        '<sides>', new_ids), '<op>', '''<i>'''));
    body := replace(body, '<put_delete>', replace(replace(replace(slices, '<same>', ''),
        '<sides>', old_ids), '<op>', '''<d>'''));
    body := replace(body, '<one_update>', replace(replace(replace(replace(one,
        '<op>', 'WHEN NOT r.passes THEN ''<i>'' WHEN NOT n.passes THEN ''<d>'' ELSE ''U'''),
        '<rows>', format(first_row, 'old_table') || E' AS r,\n            '
            || format(first_row, 'new_table') || ' AS n'),
        '<alone>', format(alone || ' AND ' || alone, 'old_table', 'new_table')),
        '<passes>', '(r.passes OR n.passes) AND r.id IS NOT DISTINCT FROM n.id' || CASE WHEN vals IS NULL THEN ''
            ELSE ' AND (r.passes IS DISTINCT FROM n.passes<changed>)' END));
    body := replace(body, '<one_insert>', replace(replace(replace(replace(one, '<op>', 'ELSE ''<i>'''),
        '<rows>', format(first_row, 'new_table') || ' AS r'), '<alone>', format(alone, 'new_table')), '<passes>', 'r.passes'));
    body := replace(body, '<one_delete>', replace(replace(replace(replace(one, '<op>', 'ELSE ''<d>'''),
        '<rows>', format(first_row, 'old_table') || ' AS r'), '<alone>', format(alone, 'old_table')), '<passes>', 'r.passes'));
    body := replace(body, '<null_many>', fragments ->> 'null_many');
    body := replace(body, '<some_id>', fragments ->> 'some_id');
    RETURN tube_private_fill(body, fragments);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_capture_body(:"schema".tube_attachment, boolean) FROM PUBLIC;

-- tube_private_many: lines of a trigger function that look whether a statement wrote so many rows that their ids are
-- not to be held in one array.
--
-- Counting them costs a few percent of a statement of a thousand rows. So it is done only where the table's own count
-- of rows that the transaction has written is high enough; the root of a partitioned table has none.
--
-- Arguments: att.
-- Result: the lines.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_many(att :"schema".tube_attachment) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    -- 16 MB of uuids; of texts, which may be long, fewer.
    few CONSTANT integer := CASE tube_private_key_type(att.tube) WHEN 'text'::regtype THEN 100000 ELSE 1000000 END;
BEGIN
    RETURN format($many$IF %2$s THEN
        IF TG_OP = 'DELETE' THEN
            cap_many := EXISTS (SELECT FROM old_table OFFSET %1$s);
        ELSE
            cap_many := EXISTS (SELECT FROM new_table OFFSET %1$s);
        END IF;
    END IF;$many$, few, CASE WHEN (SELECT c.relkind = 'p' FROM pg_class AS c WHERE c.oid = att.tbl) THEN 'true'
        ELSE format('pg_stat_get_xact_tuples_inserted(TG_RELID) + pg_stat_get_xact_tuples_updated(TG_RELID)'
            ' + pg_stat_get_xact_tuples_deleted(TG_RELID) > %s OR current_setting(''track_counts'') = ''off''', few) END);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_many(:"schema".tube_attachment) FROM PUBLIC;

-- tube_private_fill: a template with its <names> replaced, each once, whatever the values hold.
--
-- Arguments: template; fragments: name to text.
-- Result: the text.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_fill(template text, fragments jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    pieces text[] := regexp_split_to_array(template, '<(?=[a-z_]+>)');
    result text := pieces[1];
    piece text;
BEGIN
    -- Piece by piece, so that a name within a value is left alone.
    FOREACH piece IN ARRAY pieces[2:] LOOP
        result := result || (fragments ->> split_part(piece, '>', 1)) || substr(piece, strpos(piece, '>') + 1);
    END LOOP;
    RETURN result;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_fill(text, jsonb) FROM PUBLIC;
