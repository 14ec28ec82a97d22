-- tube_table_ensure_attached: has a tube follow a table: each committed change touches its rows' ids.
--
-- Makes statement triggers on the table, their function in our schema, and {table}_touch in the
-- table's schema. The first table attached in a range of shards is the root table there: its ids are
-- those of the documents. One attached later in the same range is related: its id_col holds ids of the
-- root's, and all its touches are U.
--
-- Arguments:
--   tube; tbl: a plain table, or a partitioned one as a whole.
--   shard: 0 or more; NULL takes the number at the end of the name of the table's schema.
--   shards: how many shards its ids are spread over, from `shard` on (tube_shard_of).
--   id_col: the column of the ids; NULL takes the column id, else the primary key of one column.
--   columns: an UPDATE that changes none of these (nor id_col, nor what the predicate says of a row)
--     makes no touch; NULL or an empty array: each UPDATE counts.
--   replica: whether rows that logical replication writes here are touched too, one by one.
-- Result: nothing. Attached with other arguments, it is changed, with a NOTICE; with the same ones,
--   nothing is done.
-- Errors: TU102 unknown tube, TU108 unknown table, TU107 it can't be attached, TU104 it has no usable
--   key, TU106 shard, TU105 the tube's predicate does not fit it, 42501 a privilege lacks, 55P03 the
--   lock could not be had. Nothing was changed then.
-- Locks: until the transaction ends, the registry row FOR NO KEY UPDATE and, where triggers have to be
--   made, the table SHARE ROW EXCLUSIVE. While they are got, it waits for at most 100 ms at a time, and then
--   lets all of them go.
CREATE OR REPLACE FUNCTION :"schema".tube_table_ensure_attached(
    tube text, tbl regclass, shard integer = NULL, shards integer = 1,
    id_col name = NULL, columns name[] = NULL, replica boolean = false
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '5s'
AS $$
BEGIN
    PERFORM tube_private_require(tube);
    PERFORM tube_private_attachable(tbl);
    PERFORM tube_private_patiently(
        ARRAY[format('SELECT tube_private_attach(%L, %L, %L, %L, %L, %L, %L)', tube, tbl::oid, shard, shards, id_col, columns, replica)],
        format('%s is attached to tube %L', tbl, tube));
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_table_ensure_attached(
    text, regclass, integer, integer, name, name[], boolean) FROM PUBLIC;

-- tube_private_attach: one attempt of tube_table_ensure_attached.
--
-- Arguments, result, errors: as of it.
-- Locks: as of it; for which it waits as long as lock_timeout says.
CREATE OR REPLACE FUNCTION :"schema".tube_private_attach(
    tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    first integer;
    wanted tube_attachment;
    reg tube_registry;
    old tube_attachment;
    new tube_attachment;
BEGIN
    SELECT r.* INTO STRICT reg FROM tube_registry AS r
    WHERE r.tube = tube_private_attach.tube FOR NO KEY UPDATE;
    PERFORM tube_private_prune(reg.tube);
    first := tube_private_range(reg.tube, tube_private_attach.tbl, tube_private_attach.shard,
        tube_private_attach.shards);
    wanted.id_col := tube_private_key(tube_private_attach.tbl, tube_private_attach.id_col, reg.key_type);
    wanted.columns := tube_private_columns(tube_private_attach.tbl, tube_private_attach.columns);
    wanted.replica := coalesce(tube_private_attach.replica, false);

    SELECT a.* INTO old FROM tube_attachment AS a
    WHERE a.tube = reg.tube AND a.tbl = tube_private_attach.tbl;
    IF NOT FOUND THEN
        INSERT INTO tube_attachment (tube, tbl, shard, shards, id_col, columns, replica, row_filter, trigger_function)
        VALUES (reg.tube, tube_private_attach.tbl, first, tube_private_attach.shards,
            wanted.id_col, wanted.columns, wanted.replica,
            tube_private_row_filter(reg.tube, tube_private_attach.tbl, reg.predicate),
            tube_private_capture_name(reg.tube, tube_private_attach.tbl))
        RETURNING * INTO new;
    ELSIF (old.shard, old.shards, old.id_col, old.columns, old.replica)
        IS NOT DISTINCT FROM (first, tube_private_attach.shards, wanted.id_col, wanted.columns, wanted.replica)
    THEN
        PERFORM tube_private_sync(reg.tube, 'ordered', ARRAY[old.tbl]); -- mends what was dropped by hand, and takes no lock else
        RETURN;
    ELSE
        UPDATE tube_attachment AS a
        SET shard = first, shards = tube_private_attach.shards, id_col = wanted.id_col,
            columns = wanted.columns, replica = wanted.replica, seen_oid = NULL
        WHERE a.tube = reg.tube AND a.tbl = tube_private_attach.tbl;
        UPDATE tube_attachment AS a SET position = DEFAULT -- it is the last one of its new shards
        WHERE a.tube = reg.tube AND a.tbl = tube_private_attach.tbl
            AND (old.shard, old.shards) <> (first, tube_private_attach.shards);
        SELECT a.* INTO new FROM tube_attachment AS a
        WHERE a.tube = reg.tube AND a.tbl = tube_private_attach.tbl;
    END IF;
    UPDATE tube_registry AS r SET version = r.version + 1 WHERE r.tube = reg.tube;
    PERFORM tube_private_sync(reg.tube, 'ordered', ARRAY[new.tbl]);
    IF old.tbl IS NOT NULL THEN
        RAISE NOTICE USING
            MESSAGE = format('%s, attached to tube %L by %s, is now attached by %s',
                new.tbl, new.tube, tube_private_attached_how(old), tube_private_attached_how(new)),
            HINT = 'Documents that are at the sink under other shards stay there: touch all rows, and delete those.';
    END IF;
    IF NOT tube_private_is_root(new) AND tube_private_attach.id_col IS NULL THEN
        RAISE WARNING USING
            MESSAGE = format('%s is related: another table is attached to tube %L in the shard %s before it',
                new.tbl, new.tube, new.shard),
            HINT = 'Its ids are taken for those of that table. Name the column that holds them in id_col; if '
                'they are others, attach it in a shard of its own.';
    END IF;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_attach(
    text, regclass, integer, integer, name, name[], boolean) FROM PUBLIC;

-- tube_private_attached_how: an attachment's arguments, for people.
--
-- Arguments: att.
-- Result: text.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_attached_how(att :"schema".tube_attachment) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN format('%I with shards %s to %s', att.id_col, att.shard, att.shard + (att.shards - 1))
        || coalesce(', columns ' || array_to_string(att.columns, ' '), '') || CASE WHEN att.replica THEN ', replica' ELSE '' END;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_attached_how(:"schema".tube_attachment) FROM PUBLIC;

-- tube_private_capture_name: the name of the trigger function of an attachment.
--
-- Arguments: tube, tbl.
-- Result: the name, unquoted, in our schema; another one for each pair.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_capture_name(tube text, tbl regclass) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN tube_private_name(
        tube || '_' || (SELECT c.relname FROM pg_class AS c WHERE c.oid = tbl),
        '_capture_' || left(md5(tube || ' ' || tbl::oid), 8));
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_capture_name(text, regclass) FROM PUBLIC;
