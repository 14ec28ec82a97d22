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
-- Only where no event trigger follows DDL. A statement that came between a rename and the next
-- tube_sync is then captured by makeshift, rather than fail.
--
-- Arguments: att.
-- Result: the lines; none where they are not needed.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_guard(att :"schema".tube_attachment) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    columns text;
BEGIN
    IF tube_private_followed() THEN
        RETURN '';
    END IF;
    SELECT string_agg(DISTINCT format('(%s, %L)', s.attnum, s.name), ', ') INTO columns
    FROM unnest(att.seen_attnums, att.seen_names) AS s (attnum, name);
    RETURN format($guard$
    IF (SELECT count(*) FROM pg_attribute WHERE attrelid = %s AND (attnum, attname) IN (%s)) < %s THEN
        EXECUTE tube_private_makeshift(%L, TG_OP, TG_RELID);
        PERFORM tube_private_notify(%L, s.partition) FROM tube_sleeper AS s WHERE s.tube = %L;
        RETURN NULL;
    END IF;$guard$, att.seen_oid, columns,
        (SELECT count(DISTINCT u) FROM unnest(att.seen_attnums) AS u),
        att.trigger_function, tube_channel(att.tube), att.tube);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_guard(:"schema".tube_attachment) FROM PUBLIC;

-- tube_private_makeshift: the statement that captures what a statement wrote, by the names of now.
--
-- It touches all rows that were written, whatever the predicate, with op U: too much, and nothing too few.
--
-- Arguments: trigger_function: of the attachment; op: INSERT, UPDATE, DELETE or TRUNCATE; rel: the
--   table that the trigger is on.
-- Result: SQL text, to be run by the trigger function. Where the key is gone: one that does nothing,
--   and a WARNING.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_makeshift(trigger_function text, op text, rel regclass)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    att tube_attachment;
    sides text;
BEGIN
    SELECT a.* INTO att FROM tube_attachment AS a
    WHERE a.trigger_function = tube_private_makeshift.trigger_function;
    att := tube_private_present(att);
    IF att.id_col IS NULL THEN
        RAISE WARNING USING
            MESSAGE = format('tube %L does not follow %s any more: its key is gone', att.tube, rel),
            HINT = 'Attach it again, by id_col.';
        RETURN 'SELECT';
    END IF;
    IF op = 'TRUNCATE' THEN
        RETURN 'SELECT ' || replace(tube_private_truncated_call(att, false), 'TG_RELID', quote_literal(rel::oid));
    END IF;
    sides := concat_ws(' UNION ALL ',
        CASE WHEN op <> 'INSERT' THEN format('SELECT %s AS id FROM old_table', tube_private_key_expression(att)) END,
        CASE WHEN op <> 'DELETE' THEN format('SELECT %s AS id FROM new_table', tube_private_key_expression(att)) END);
    RETURN format($sql$
        INSERT INTO %I.%I (op, shard, ids)
        SELECT CASE WHEN strpos(current_setting('application_name'), 'backfill') > 0 THEN 'B' ELSE 'U' END,
            g.shard, g.ids[c.first : c.first + 249]
        FROM (
            SELECT k.shard, array_agg(DISTINCT k.id) AS ids
            FROM (SELECT id, %s AS shard FROM (%s) AS x WHERE id IS NOT NULL) AS k
            GROUP BY k.shard
        ) AS g, generate_series(1, cardinality(g.ids), 250) AS c (first)$sql$,
        tube_private_schema(), att.tube,
        tube_private_shard_expression('id', att.shard, att.shards, tube_private_key_type(att.tube)), sides);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_makeshift(text, text, regclass) FROM PUBLIC;
