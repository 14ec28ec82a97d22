-- tube_private_followed: whether DDL is followed at once, by our event trigger.
--
-- Result: true or false.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_followed() RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM pg_event_trigger AS e
        WHERE e.evtfoid = to_regproc(format('%I.tube_private_follow_ddl', tube_private_schema()))
            AND e.evtenabled IN ('O', 'A'));
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_followed() FROM PUBLIC;

-- tube_private_guard: lines of a trigger function that look whether its columns still have their names.
--
-- Only where no event trigger follows DDL. A statement that came between a change of the table and the
-- next tube_sync is then captured by makeshift, rather than fail. A transaction at REPEATABLE READ may see the
-- old names in the catalogue, while its statement works by those of now; it asks for these.
--
-- Arguments: att; level: STATEMENT or ROW.
-- Result: the lines; none where they are not needed.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_guard(att :"schema".tube_attachment, level text = 'STATEMENT')
RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    columns text;
BEGIN
    IF tube_private_followed() THEN
        RETURN '';
    END IF;
    SELECT string_agg(DISTINCT format('(%s, %L, %s)', s.attnum, s.name, s.type), ', ') INTO columns
    FROM unnest(att.seen_attnums, att.seen_names, att.seen_types) AS s (attnum, name, type);
    RETURN format($guard$
    IF (SELECT count(*) FROM pg_attribute WHERE attrelid = %1$s AND (attnum, attname, atttypid) IN (%2$s)) < %3$s
        OR current_setting('transaction_isolation') <> 'read committed' AND EXISTS (
            SELECT FROM (VALUES %2$s) AS c (attnum, attname) WHERE tube_private_column_now(%1$s, attnum) <> attname)
    THEN
        EXECUTE tube_private_makeshift(%4$L, TG_OP, TG_RELID, TG_LEVEL)%5$s;
        PERFORM tube_private_notify(%6$L, s.partition) FROM tube_sleeper AS s WHERE s.tube = %7$L;
        RETURN NULL;
    END IF;$guard$, att.seen_oid, columns,
        (SELECT count(DISTINCT u) FROM unnest(att.seen_attnums) AS u),
        att.trigger_function, CASE level WHEN 'ROW' THEN ' USING OLD, NEW' ELSE '' END,
        tube_channel(att.tube), att.tube);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_guard(:"schema".tube_attachment, text) FROM PUBLIC;

-- tube_private_column_now: the name that a column has now, however old the snapshot.
--
-- Arguments: rel; attnum: as in pg_attribute.
-- Result: the name; empty when it was dropped.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_column_now(rel oid, attnum integer) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    -- It looks into a cache of the catalogue, which knows of no snapshot.
    name CONSTANT text := (pg_identify_object_as_address('pg_class'::regclass, rel, attnum)).object_names[3];
BEGIN
    RETURN CASE WHEN name LIKE '........pg.dropped.%' THEN '' ELSE coalesce(name, '') END;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_column_now(oid, integer) FROM PUBLIC;

-- tube_private_makeshift: the statement that captures what a statement wrote, by the names of now.
--
-- It touches all rows that were written, whatever the predicate, with op U: too much, and nothing too few.
--
-- Arguments: trigger_function: of the attachment; op: INSERT, UPDATE, DELETE or TRUNCATE; rel: the
--   table that the trigger is on; level: STATEMENT, or ROW, where $1 is the old row and $2 the new one.
-- Result: SQL text, one or two statements, to be run by the trigger function. Where the key is gone: one that
--   does nothing, and a WARNING.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_makeshift(trigger_function text, op text, rel regclass, level text)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    att tube_attachment;
    sides text[];
BEGIN
    SELECT a.* INTO att FROM tube_attachment AS a
    WHERE a.trigger_function = tube_private_makeshift.trigger_function;
    IF current_setting('transaction_isolation') = 'read committed' THEN
        att := tube_private_present(att);
    ELSE
        att.id_col := nullif(tube_private_column_now(att.seen_oid, att.seen_attnums[1]), '');
    END IF;
    IF att.id_col IS NULL THEN
        RAISE WARNING USING
            MESSAGE = format('tube %L does not follow %s any more: its key is gone', att.tube, rel),
            HINT = 'Attach it again, by id_col.';
        RETURN 'SELECT';
    END IF;
    IF op = 'TRUNCATE' THEN
        RETURN format('SELECT tube_private_truncated(%L, %L, %L, NULL, %s, %s, ''U'', %L)', rel::oid, att.tube,
            tube_private_key_expression(att), att.shard, att.shards, format('ARRAY[pg_typeof(%I)::oid]', att.id_col));
    END IF;
    sides := CASE level WHEN 'ROW' THEN ARRAY['(SELECT ($1).*) AS o', '(SELECT ($2).*) AS n']
        ELSE ARRAY['old_table', 'new_table'] END;
    sides := CASE op WHEN 'INSERT' THEN sides[2 : 2] WHEN 'DELETE' THEN sides[1 : 1] ELSE sides END;
    -- The first one is a gate, as tube_private_type_gate: the second is planned after it was run.
    RETURN format($sql$
        SELECT tube_private_check_types(%s, ARRAY[pg_typeof(%I)::oid]) FROM (SELECT) AS one LEFT JOIN %s ON true LIMIT 1;
        INSERT INTO %I.%I (op, shard, ids)
        SELECT CASE WHEN strpos(current_setting('application_name'), 'backfill') > 0 THEN 'B' ELSE 'U' END,
            g.shard, g.ids[c.first : c.first + 249]
        FROM (
            SELECT k.shard, array_agg(DISTINCT k.id) AS ids
            FROM (SELECT id, %s AS shard FROM (%s) AS x WHERE id IS NOT NULL) AS k
            GROUP BY k.shard
        ) AS g, generate_series(1, cardinality(g.ids), 250) AS c (first)$sql$,
        rel::oid, att.id_col, sides[1],
        tube_private_schema(), att.tube,
        tube_private_shard_expression('id', att.shard, att.shards, tube_private_key_type(att.tube)),
        (SELECT string_agg(format('SELECT %s AS id FROM %s', tube_private_key_expression(att), u.side), ' UNION ALL ')
            FROM unnest(sides) AS u (side)));
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_makeshift(text, text, regclass, text) FROM PUBLIC;
