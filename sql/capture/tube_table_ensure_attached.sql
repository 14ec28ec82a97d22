-- tube_table_ensure_attached: has a tube follow a table: each committed change touches its rows' ids.
--
-- Makes statement triggers on the table, their functions, which belong to the table's owner, and {table}_touch in the
-- table's schema. Asks for the owner of the table: a role that has its rights, and may create in its schema. The first table attached in a range of shards is the root table there: its ids are
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
--   key, TU106 shard, TU105 the tube's predicate does not fit it, 42501 the caller is no owner of the table, 55P03 the
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
    PERFORM tube_private_refuse_table(tbl);
    PERFORM tube_private_patiently(
        ARRAY[format('SELECT tube_private_attach(%L, %L, %L, %L, %L, %L, %L)', tube, tbl::oid, shard, shards, id_col, columns, replica)],
        format('%s is attached to tube %L', tbl, tube));
END
$$;
COMMENT ON FUNCTION :"schema".tube_table_ensure_attached IS
    'Attach a table to a tube, or change how it is attached; each committed change then touches its rows'' ids.';

-- tube_private_attach: one attempt of tube_table_ensure_attached.
--
-- Locks: as of it; for which it waits as long as lock_timeout says.
CREATE OR REPLACE FUNCTION :"schema".tube_private_attach(
    tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    change CONSTANT record := tube_private_begin_attach(tube, tbl, shard, shards, id_col, columns, replica);
    old CONSTANT tube_attachment := change.was;
    new CONSTANT tube_attachment := change.wanted;
BEGIN
    PERFORM tube_private_bring_in_line(new, 'ordered');
    IF old.tube IS NOT NULL AND (old.shard, old.shards, old.id_col, old.columns, old.replica)
        IS DISTINCT FROM (new.shard, new.shards, new.id_col, new.columns, new.replica)
    THEN
        RAISE NOTICE USING
            MESSAGE = format('%s, attached to tube %L by %s, is now attached by %s',
                tbl, tube, tube_private_attached_how(old), tube_private_attached_how(new)),
            HINT = 'Documents that are at the sink under other shards stay there: touch all rows, and delete those.';
    ELSIF old.tube IS NOT NULL THEN
        RETURN;
    END IF;
    IF old.tube IS NULL AND tube_private_is_root(new)
        AND EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = tbl AND a.attname = new.id_col AND NOT a.attnotnull)
    THEN
        RAISE WARNING USING
            MESSAGE = format('the key %I of %s may be NULL', new.id_col, tbl),
            HINT = 'A row without a key names no document: it makes no touch.';
    END IF;
    IF tube_private_can_fail(new.row_filter) AND old.tube IS NULL THEN
        RAISE NOTICE USING
            MESSAGE = format('the predicate of tube %L computes in every write of %s: where it fails, the write fails', tube, tbl),
            HINT = 'Compare columns with constants only, or make sure that no row can divide by zero, overflow or hold what can''t be cast.';
    END IF;
    IF NOT tube_private_is_root(new) AND tube_private_attach.id_col IS NULL THEN
        RAISE WARNING USING
            MESSAGE = format('%s is related: another table is attached to tube %L in the shard %s before it',
                tbl, tube, new.shard),
            HINT = 'Its ids are taken for those of that table. Name the column that holds them in id_col; if '
                'they are others, attach it in a shard of its own.';
    END IF;
END
$$;

-- tube_private_begin_attach: an attachment as it is stored, and as it is to be.
--
-- Result: was: NULL when the table is not attached; wanted.
-- Errors: TU104, TU106 as there.
-- Locks: the registry row.
CREATE OR REPLACE FUNCTION :"schema".tube_private_begin_attach(
    tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean,
    OUT was :"schema".tube_attachment, OUT wanted :"schema".tube_attachment
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    reg tube_registry;
    first integer;
BEGIN
    SELECT r.* INTO STRICT reg FROM tube_registry AS r
    WHERE r.tube = tube_private_begin_attach.tube FOR NO KEY UPDATE;
    PERFORM tube_private_prune(reg.tube);
    first := tube_private_range(reg.tube, tube_private_begin_attach.tbl, tube_private_begin_attach.shard,
        tube_private_begin_attach.shards);
    SELECT a.* INTO was FROM tube_attachment AS a
    WHERE a.tube = reg.tube AND a.tbl = tube_private_begin_attach.tbl FOR NO KEY UPDATE;
    IF (was.shard, was.shards) <> (first, tube_private_begin_attach.shards) THEN
        UPDATE tube_attachment AS a SET position = DEFAULT -- it is the last one of its new shards
        WHERE a.tube = reg.tube AND a.tbl = was.tbl RETURNING a.position INTO wanted.position;
    END IF;
    wanted.tube := reg.tube;
    wanted.tbl := tube_private_begin_attach.tbl;
    wanted.shard := first;
    wanted.shards := tube_private_begin_attach.shards;
    wanted.id_col := tube_private_key(wanted.tbl, tube_private_begin_attach.id_col, reg.key_type);
    wanted.position := coalesce(wanted.position, was.position);
    wanted.row_filter := reg.predicate;
    wanted.trigger_function := coalesce(was.trigger_function, tube_private_capture_name(reg.tube, wanted.tbl));
    wanted.touch_name := coalesce(was.touch_name, tube_private_touch_name(wanted.tbl, reg.key_type));
    wanted.columns := tube_private_columns(wanted.tbl, tube_private_begin_attach.columns);
    wanted.replica := coalesce(tube_private_begin_attach.replica, false);
    UPDATE tube_registry AS r SET version = r.version + 1
    WHERE r.tube = reg.tube AND (was.tube IS NULL OR (was.shard, was.shards, was.id_col, was.columns, was.replica)
        IS DISTINCT FROM (wanted.shard, wanted.shards, wanted.id_col, wanted.columns, wanted.replica));
END
$$;

-- tube_private_attached_how: an attachment's arguments, for people.
CREATE OR REPLACE FUNCTION :"schema".tube_private_attached_how(att :"schema".tube_attachment) RETURNS text
LANGUAGE sql STABLE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
    SELECT format('%I with shards %s to %s', att.id_col, att.shard, att.shard + (att.shards - 1))
        || coalesce(', columns ' || array_to_string(att.columns, ' '), '') || CASE WHEN att.replica THEN ', replica' ELSE '' END
$$;

-- tube_private_can_fail: whether a predicate may raise an error for some row, as far as its text tells: it divides or casts.
CREATE OR REPLACE FUNCTION :"schema".tube_private_can_fail(predicate text) RETURNS boolean
LANGUAGE sql IMMUTABLE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$ SELECT coalesce(predicate ~ '[/*]|::|\m[cC][aA][sS][tT]\M', false) $$;
