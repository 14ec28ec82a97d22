-- tube_private_backfill_changed: why the ids of a backfill are not those that its table has to have touched any more.
--
-- Arguments: backfill: its row.
-- Result: words; NULL when all is as it was.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_changed(backfill :"schema".tube_backfill) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    att tube_attachment;
BEGIN
    SELECT a.* INTO att FROM tube_attachment AS a
    JOIN pg_class AS c ON c.oid = a.tbl
    WHERE a.tube = backfill.tube AND a.tbl = backfill.tbl;
    RETURN CASE
        WHEN NOT FOUND OR (att.position, att.shard, att.shards) <> (backfill.position, backfill.shard, backfill.shards)
            THEN 'the table was detached, dropped or given other shards meanwhile'
        WHEN tube_private_is_root(att) <> backfill.root
            THEN 'the table is another one of its shards meanwhile: root or related'
        -- Its owner can make a view of an empty table up to Postgres 15; whoever reads it would call their functions.
        WHEN tube_private_table_fault(att.tbl) IS NOT NULL
            THEN format('the table can''t stay attached: %s', tube_private_table_fault(att.tbl))
        -- Before they are collected they have neither.
        WHEN backfill.state = 'waiting' THEN NULL
        WHEN tube_private_backfill_key_of(att) IS DISTINCT FROM backfill.key_attnum
            THEN 'the table was attached by another column meanwhile'
        WHEN att.row_filter IS DISTINCT FROM backfill.row_filter
            THEN 'the tube got another predicate meanwhile, or a column of it changed'
    END;
END
$$;

-- tube_private_backfill_key_of: the number of the column that holds the ids of an attached table.
--
-- It stays when the column is renamed.
--
-- Result: as in pg_attribute.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_key_of(att :"schema".tube_attachment) RETURNS smallint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT a.attnum FROM pg_attribute AS a
        WHERE a.attrelid = att.tbl AND a.attname = coalesce((tube_private_attachment_now(att)).id_col, att.id_col));
END
$$;
