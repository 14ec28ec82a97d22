-- By which column a table is attached, and whether it names one row.

-- Arguments: tbl; id_col: the column in question; NULL: the one to take, which is id where it
--   is a key, else the primary key of one column, else id.
-- Result: one row, or none where there is no such column, or tbl is not a table, or a part of one.
--   name: the column.
--   is_key: whether it may be taken unasked: it is unique and NOT NULL, or leads the primary key of a partitioned table
--     whose other columns are there because tables are partitioned by them.
--   is_unique: whether an index proves that no two rows have one id. A deferred one does: it is checked at the commit,
--     and workers read committed rows.
--   reason: that in words, for a sentence "... is attached by ...: reason".
-- Reads catalogs only, with the rights of the caller.
CREATE OR REPLACE FUNCTION :"schema".tube_id_column(tbl regclass, id_col name = NULL) RETURNS TABLE (
    name name, is_key boolean, is_unique boolean, reason text
)
LANGUAGE sql STABLE SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    WITH RECURSIVE tree AS ( -- by the catalogue: pg_partition_tree would wait for the lock of each partition
        SELECT tbl::oid AS relid
        UNION ALL
        SELECT i.inhrelid FROM tree AS t JOIN pg_inherits AS i ON i.inhparent = t.relid
    ), divides AS ( -- the columns by which the table, or a part of it, is partitioned
        SELECT a.attname
        FROM tree AS t JOIN pg_partitioned_table AS p ON p.partrelid = t.relid
        JOIN pg_attribute AS a ON a.attrelid = t.relid AND a.attnum = ANY (p.partattrs)
    ), indexed AS (
        SELECT i.indkey[0] AS attnum, i.indisprimary, i.indnkeyatts = 1 AS is_alone,
            string_agg(quote_ident(a.attname), ', ' ORDER BY k.place) AS columns,
            bool_and(k.place = 1 OR a.attname IN (SELECT d.attname FROM divides AS d)) AS is_divided
        FROM pg_index AS i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
        JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
        WHERE i.indrelid = tbl AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND k.place <= i.indnkeyatts
            AND (i.indisprimary OR i.indnkeyatts = 1)
        GROUP BY i.indexrelid
    ), candidate AS (
        SELECT a.attname, a.attnotnull, f.*
        FROM pg_class AS t JOIN pg_attribute AS a ON a.attrelid = t.oid CROSS JOIN LATERAL (
            SELECT coalesce(bool_or(i.is_alone), false) AS is_unique,
                coalesce(bool_or(i.is_alone AND i.indisprimary), false) AS is_primary,
                min(i.columns) FILTER (WHERE i.indisprimary AND i.is_divided) AS leads
            FROM indexed AS i WHERE i.attnum = a.attnum
        ) AS f
        WHERE t.oid = tbl AND t.relkind IN ('r', 'p') AND NOT t.relispartition AND a.attnum > 0 AND NOT a.attisdropped
            AND (a.attname = id_col OR id_col IS NULL AND (a.attname = 'id' OR f.is_primary))
    )
    SELECT c.attname, k.is_key, c.is_unique, CASE
        WHEN c.is_primary THEN 'it is the primary key'
        WHEN c.is_unique AND c.attnotnull THEN 'it is unique and NOT NULL'
        WHEN c.is_unique THEN 'it is unique, but may be NULL'
        WHEN c.leads IS NOT NULL THEN format('it leads the primary key (%s), the rest of which distinguishes partitions; '
            'no index proves that it is unique in all of them', c.leads)
        ELSE 'no index proves that it is unique' END
    FROM candidate AS c
    CROSS JOIN LATERAL (SELECT c.is_unique AND c.attnotnull OR c.leads IS NOT NULL AS is_key) AS k
    ORDER BY c.attname = 'id' AND k.is_key DESC, c.is_primary DESC LIMIT 1
$$;
COMMENT ON FUNCTION :"schema".tube_id_column IS
    'Returns the column by which to attach a table, whether it is unique and a key, and why; no row if there is '
    'none, or for a partition.';

-- tube_private_keys: the columns of the key of a table that is being attached: key_cols, in their order; else id_col; else
-- "id" if that column exists, whatever proves it unique, as callers of pg-tube expect, and so that a call that is
-- repeated takes the same; else the only column of the primary key.
-- Errors: TU104 they can't be a key of the tube's (tube_private_key_fault); key_cols are fewer than two or more than eight, or one
--   stands twice; id_col is given, too.
CREATE OR REPLACE FUNCTION :"schema".tube_private_keys(tbl regclass, id_col name, key_cols name[], key_type regtype) RETURNS name[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
    keys CONSTANT name[] := coalesce(key_cols, ARRAY[coalesce(id_col, (
        SELECT a.attname FROM pg_attribute AS a
        WHERE a.attrelid = tbl AND NOT a.attisdropped AND a.attnum > 0 AND (a.attname = 'id' OR EXISTS (
            SELECT FROM pg_index AS i WHERE i.indrelid = tbl AND i.indisprimary AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum))
        ORDER BY a.attname <> 'id' LIMIT 1))]);
    wrong text;
    remedy text;
BEGIN
    IF cardinality(key_cols) NOT BETWEEN 2 AND 8 OR (SELECT count(DISTINCT k) FROM unnest(key_cols) AS k) < cardinality(key_cols) THEN
        wrong := format('%s can''t be attached by the columns %L', tbl, key_cols);
        remedy := 'Give two to eight columns, each once; a single one as id_col.';
    ELSIF key_cols IS NOT NULL AND id_col IS NOT NULL THEN
        wrong := format('%s can''t be attached by id_col and by key_cols', tbl);
        remedy := 'Give one of the two.';
    ELSE
        SELECT f.fault, f.remedy INTO wrong, remedy FROM tube_private_key_fault(tbl, keys, key_type) AS f;
    END IF;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104', MESSAGE = wrong, HINT = remedy;
    END IF;
    RETURN keys;
END
$$;

-- tube_private_key_fault: the reason why columns can't be the key of a table in a tube with keys of this type, and a remedy;
-- NULLs when they can.
-- Arguments: keys: one NULL where no column is given, and none offers itself.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_fault(tbl regclass, keys name[], key_type regtype, OUT fault text, OUT remedy text)
LANGUAGE sql STABLE AS $$
    SELECT format(CASE f.kind
            WHEN 'missing' THEN '%s has no column %s'
            WHEN 'virtual' THEN 'the key %2$s of %1$s is a virtual generated column, and has no value when a row is written'
            WHEN 'type' THEN 'the key %2$s of %1$s has the type %3$s, and the tube''s keys are %4$s'
            WHEN 'part' THEN 'the column %2$s of %1$s has the type %3$s, which can''t be a part of a key'
            ELSE 'a key of several columns is a text, and the tube''s keys are %4$s' END,
            tbl, coalesce(quote_ident(k.name), 'id and no primary key of a single column'), a.atttypid::regtype, key_type),
        CASE f.kind
            WHEN 'missing' THEN coalesce((
                SELECT format('Name all columns of its primary key, in a tube of text: key_cols => %L. Or name a unique column: id_col => COLUMN.',
                    array_agg(c.attname ORDER BY p.place))
                FROM pg_index AS i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS p (attnum, place)
                JOIN pg_attribute AS c ON c.attrelid = tbl AND c.attnum = p.attnum
                WHERE i.indrelid = tbl AND i.indisprimary AND k.name IS NULL AND p.place <= i.indnkeyatts HAVING count(*) > 1),
                CASE cardinality(keys) WHEN 1 THEN 'Add a column with a primary key, or name a unique column: id_col => COLUMN.'
                    ELSE 'Give the names of columns of the table.' END)
            WHEN 'virtual' THEN 'Make it STORED, or attach by the column that it is computed from.'
            WHEN 'type' THEN 'Columns for keys: smallint, integer, bigint in a tube of bigint; uuid in one of uuid; '
                'text, varchar in one of text; domains over these. To make a tube of another type: tube_ensure_exists, key_type => TYPE.'
            WHEN 'part' THEN 'Parts of keys: smallint, integer, bigint, text, varchar, uuid, boolean, date, enums, and domains over all '
                'but enums. Others may write equal values in several ways.'
            ELSE 'Make a tube of texts: tube_ensure_exists, key_type => ''text''.' END
    FROM unnest(keys, tube_key_types(tbl, keys)) WITH ORDINALITY AS k (name, type, place)
    LEFT JOIN pg_attribute AS a ON a.attrelid = tbl AND a.attname = k.name AND a.attnum > 0 AND NOT a.attisdropped,
        LATERAL (SELECT CASE
            WHEN a.attnum IS NULL THEN 'missing'
            WHEN a.attgenerated = 'v' THEN 'virtual'
            WHEN cardinality(keys) = 1 THEN CASE WHEN NOT tube_private_key_fits(a.atttypid, key_type) THEN 'type' END
            WHEN k.type IS NULL THEN 'part'
            WHEN key_type <> 'text'::regtype THEN 'text' END) AS f (kind)
    WHERE f.kind IS NOT NULL ORDER BY k.place LIMIT 1
$$;

-- Makes statement triggers on the table, their functions, which belong to the table's owner, and {table}_touch in the
-- table's schema. Asks for the owner of the table: a role that has its rights, and may create in its schema. The
-- first table attached in a range of shards is the root table there: its ids are the documents' ids. One attached
-- later in the same range is related: its id_col holds ids of the root's, and all its touches are U.
-- Arguments:
--   tube; tbl: a plain table, or a partitioned one as a whole.
--   shard: 0 or more; NULL takes the number at the end of the name of the table's schema.
--   shards: how many shards its ids are spread over, from `shard` on (tube_shard_of).
--   id_col: the column of the ids; NULL takes the column id, else the primary key of one column. A WARNING says where
--     nothing proves that it is unique (tube_id_column): of rows with one id, any one becomes the document.
--   columns: an UPDATE that changes none of these (nor id_col, nor what the predicate says of a row)
--     makes no touch; NULL or an empty array: each UPDATE counts.
--   replica: whether rows that logical replication writes here are touched too, one by one.
--   key_cols: two to eight columns of the key, in place of id_col. The ids are texts of JSON arrays then: see tube_key_types
--     and tube_private_id_sql. A related table names the columns that hold the key of the root table, in its order.
--   shard_by: one of key_cols, which alone determines a key's shard; NULL: all of them.
-- Result: nothing. Attached with other arguments, it is changed, with a NOTICE, or a WARNING where its shards change,
--   which gives each row another document; with the same ones, nothing is done.
-- Errors: TU102 unknown tube, TU108 unknown table, TU107 it can't be attached, TU104 it has no usable
--   key, TU106 shard, TU105 the tube's predicate does not fit it, 42501 the caller does not own the table, 55P03 the
--   lock could not be had. Nothing was changed then; 0A000.
-- Locks: until the transaction ends, the registry row FOR NO KEY UPDATE and, where triggers have to be
--   made, the table SHARE ROW EXCLUSIVE. While they are got, it waits for at most 100 ms at a time, and then
--   lets all of them go.
CREATE OR REPLACE FUNCTION :"schema".tube_table_ensure_attached(
    tube text, tbl regclass, shard integer = NULL, shards integer = 1,
    id_col name = NULL, columns name[] = NULL, replica boolean = false, key_cols name[] = NULL, shard_by name = NULL
) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    PERFORM tube_private_require(tube), tube_private_refuse_table(tbl);
    PERFORM tube_private_patiently(
        ARRAY[format('SELECT tube_private_attach(%L, %L, %L, %L, %L, %L, %L, %L, %L)', tube, tbl::oid, shard, shards, id_col, columns,
            replica, key_cols, shard_by)],
        format('%s is attached to tube %L', tbl, tube));
END
$$;
COMMENT ON FUNCTION :"schema".tube_table_ensure_attached IS
    'Attaches a table, or a partitioned table as a whole, or changes how it is attached; the caller needs its '
    'owner''s rights. Arguments left out return to their defaults. The first table in a shard is the root table, '
    'later ones are related. columns: an UPDATE that changes none of them makes no touch. replica: rows of logical '
    'replication are touched, too. key_cols: 2 to 8 columns instead of id_col.';

-- tube_private_attach: one attempt of tube_table_ensure_attached, which waits for locks as long as lock_timeout says.
CREATE OR REPLACE FUNCTION :"schema".tube_private_attach(
    tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean, key_cols name[], shard_by name
) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    change CONSTANT record := tube_private_begin_attach(tube, tbl, shard, shards, id_col, columns, replica,
        key_cols, shard_by);
    old CONSTANT tube_attachment := change.was;
    new CONSTANT tube_attachment := change.wanted;
    how CONSTANT text := '%s with shards %s to %s%s%s%s';
    changed text;
BEGIN
    PERFORM tube_private_bring_in_line(new, false);
    IF old.tube IS NOT NULL THEN
        changed := format('%s, attached to tube %L by ' || how || ', is now attached by ' || how, tbl, tube,
            tube_private_key_label(old), old.shard, old.shard + (old.shards - 1), ' by ' || quote_ident(old.keys[old.shard_place + 1]),
            ', columns ' || array_to_string(old.columns, ' '),
            CASE WHEN old.replica THEN ', replica' END,
            tube_private_key_label(new), new.shard, new.shard + (new.shards - 1), ' by ' || quote_ident(new.keys[new.shard_place + 1]),
            ', columns ' || array_to_string(new.columns, ' '),
            CASE WHEN new.replica THEN ', replica' END);
        IF (old.shard, old.shards, old.shard_place) IS DISTINCT FROM (new.shard, new.shards, new.shard_place)
            OR tube_private_is_root(new) AND old.keys <> new.keys
        THEN
            RAISE WARNING USING MESSAGE = changed,
                HINT = 'Each row has a document under a new key. Backfill the table: that writes these documents, and its '
                    'sweep deletes those under the old keys in the shards of now. Those in shards that the table gave up '
                    'stay at the sink.';
        ELSIF change.differs THEN
            RAISE NOTICE USING MESSAGE = changed;
        END IF;
    ELSE
        IF tube_private_is_root(new)
            AND EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = tbl AND a.attname = ANY (new.keys)
                AND NOT a.attnotnull)
        THEN
            RAISE WARNING USING
                MESSAGE = format('the key %s of %s may be NULL', tube_private_key_label(new), tbl),
                HINT = 'A row without a key names no document: it makes no touch.';
        END IF;
        -- As far as its text shows: it divides or casts.
        IF new.row_filter ~ E'[/*]|::|\\m[cC][aA][sS][tT]\\M' THEN
            RAISE NOTICE USING
                MESSAGE = format('the predicate of tube %L computes in every write of %s: where it fails, the write fails', tube, tbl),
                HINT = 'Compare columns with constants only, or make sure that no row can divide by zero, overflow or fail a cast.';
        END IF;
    END IF;
    IF change.differs AND id_col IS NULL AND key_cols IS NULL AND NOT tube_private_is_root(new) THEN
        RAISE WARNING USING
            MESSAGE = format('%s is related: another table is attached to tube %L in the shard %s before it',
                tbl, tube, new.shard),
            HINT = 'Its ids are taken for ids of that table. Name the column that holds them: id_col => COLUMN. If '
                'they are other ids, attach it in a separate shard.';
    ELSIF change.differs AND id_col IS NULL AND key_cols IS NULL
        AND NOT EXISTS (SELECT FROM tube_id_column(tbl, new.keys[1]) AS k WHERE k.is_key OR k.is_unique)
    THEN
        RAISE WARNING USING
            MESSAGE = format('nothing proves that the key %I of %s is unique', new.keys[1], tbl),
            HINT = 'Of rows with one id, any one becomes the document. Name the column that is unique, or this one if you '
                'know that it is: id_col => COLUMN.';
    END IF;
END
$$;

-- tube_private_begin_attach: an attachment as it is stored, and as it is to be, with pytube's own objects for it.
-- Result: was: NULL when the table is not attached; wanted; differs: whether it was attached by other arguments, or not.
-- Errors: TU104, TU106 as there.
-- Locks: the registry row.
CREATE OR REPLACE FUNCTION :"schema".tube_private_begin_attach(
    tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean,
    key_cols name[] = NULL, shard_by name = NULL, OUT was :"schema".tube_attachment, OUT wanted :"schema".tube_attachment, OUT differs boolean
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    reg tube_registry;
BEGIN
    SELECT r.* INTO STRICT reg FROM tube_registry AS r WHERE r.tube = $1 FOR NO KEY UPDATE;
    PERFORM tube_private_prune(tube), tube_private_follow_columns(tube, tbl);
    SELECT a.* INTO was FROM tube_attachment AS a WHERE a.tube = $1 AND a.tbl = $2 FOR NO KEY UPDATE;
    wanted := was;
    wanted.tube := tube;
    wanted.tbl := tbl;
    wanted.shard := tube_private_range(tube, tbl, shard, shards);
    wanted.shards := shards;
    wanted.keys := tube_private_keys(tbl, id_col, key_cols, reg.key_type);
    wanted.shard_place := array_position(key_cols, shard_by) - 1;
    PERFORM tube_private_check_shard_by(wanted, shard_by);
    wanted.row_filter := reg.predicate;
    wanted.columns := tube_private_columns(tbl, columns);
    wanted.replica := coalesce(replica, false);
    wanted := tube_private_complete(wanted);
    differs := (was.tube, was.shard, was.shards, was.shard_place, was.keys, was.columns, was.replica) IS DISTINCT FROM
        (wanted.tube, wanted.shard, wanted.shards, wanted.shard_place, wanted.keys, wanted.columns, wanted.replica);
    UPDATE tube_registry AS r SET version = r.version + 1 WHERE r.tube = $1 AND differs;
    PERFORM tube_private_provide(wanted);
END
$$;

-- tube_private_check_shard_by: refuses what would give the ids of one document several shards, or several keys.
-- Errors: TU106 shard_by is none of the key's columns, or another table of these shards is spread by another part of its key;
--   TU104 that has a key of another number of columns, or of other types: no text of the one is ever one of the other.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_shard_by(att :"schema".tube_attachment, shard_by name) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    types CONSTANT text[] := tube_private_key_texts(att);
    other tube_attachment;
BEGIN
    IF shard_by IS NOT NULL AND att.shard_place IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU106',
            MESSAGE = format('%s can''t be spread by %I, which is not part of its key', att.tbl, shard_by),
            HINT = 'Give one of key_cols.';
    END IF;
    SELECT a.* INTO other FROM tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl
    WHERE a.tube = att.tube AND a.shard = att.shard AND a.tbl <> att.tbl
        AND (a.shard_place IS DISTINCT FROM att.shard_place OR cardinality(a.keys) <> cardinality(att.keys)
            OR EXISTS (SELECT FROM unnest(types, tube_private_key_texts(a)) AS t (here, there) WHERE t.here <> t.there))
    ORDER BY a.position LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    ELSIF other.shard_place IS DISTINCT FROM att.shard_place THEN
        RAISE EXCEPTION USING ERRCODE = 'TU106',
            MESSAGE = format('%s can''t be attached to tube %L: %s, which has its shards, is spread by %s', att.tbl, att.tube, other.tbl,
                coalesce(quote_ident(other.keys[other.shard_place + 1]) || ' alone', 'its whole key')),
            HINT = CASE WHEN other.shard_place IS NULL THEN 'Leave shard_by out.'
                ELSE format('Give key_cols, and its column %s as shard_by.', other.shard_place + 1) END;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'TU104',
        MESSAGE = format('%s can''t be attached to tube %L by %s (%s): %s, which has its shards, has the key %s (%s)', att.tbl, att.tube,
            tube_private_key_label(att), array_to_string(types, ', '),
            other.tbl, tube_private_key_label(other), array_to_string(tube_private_key_texts(other), ', ')),
        HINT = 'Give the columns that hold that key, in its order and with its types: an integer is another key than the same digits as a text.';
END
$$;

-- tube_private_key_texts: of what types the texts in a key of several columns are; enums are like texts. A key of one column
-- has the type of the tube's.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_texts(att :"schema".tube_attachment) RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN cardinality(att.keys) = 1 THEN ARRAY[tube_private_key_type(att.tube)::text]
        ELSE array_replace(tube_key_types(att.tbl, att.keys), 'enum', 'text') END
$$;

-- tube_private_refuse_table: refuses relations that can't be attached.
-- Errors: TU108 no such table; TU107 another kind of relation, a temporary table, a catalogue, one of
--   pytube's, a partition alone, or part of an inheritance tree; also one of these among the partitions.
CREATE OR REPLACE FUNCTION :"schema".tube_private_refuse_table(tbl regclass) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    wrong text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = tbl) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108',
            MESSAGE = format('there is no table %s', coalesce(tbl::text, 'NULL')),
            HINT = 'Give the name of a table, with its schema.';
    END IF;
    SELECT format('%s can''t be attached: %s', t.relid, f.fault) INTO wrong
    FROM (SELECT tbl AS relid UNION SELECT p.relid FROM pg_partition_tree(tbl) AS p) AS t,
        tube_private_table_fault(t.relid, t.relid <> tbl) AS f (fault)
    WHERE f.fault IS NOT NULL ORDER BY t.relid <> tbl LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU107', MESSAGE = wrong,
            HINT = 'Attach plain, permanent tables, and partitioned ones as a whole.';
    END IF;
END
$$;

-- tube_private_table_fault: why a table can't be attached, in words; NULL when it can.
-- Arguments: member: whether it is a part of a table that is attached as a whole.
CREATE OR REPLACE FUNCTION :"schema".tube_private_table_fault(tbl regclass, member boolean = false) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN n.nspname IN ('pg_catalog', 'information_schema', 'pg_toast') THEN 'it is a catalogue'
        WHEN n.nspname IN (tube_private_schema(), tube_private_capture_schema()) THEN 'it is one of pytube''s own'
        WHEN c.relkind = 'v' THEN 'it is a view'
        WHEN c.relkind = 'm' THEN 'it is a materialized view'
        WHEN c.relkind = 'f' THEN 'it is a foreign table'
        WHEN c.relkind NOT IN ('r', 'p') THEN 'it is not a table'
        WHEN c.relpersistence = 't' THEN 'it is a temporary table'
        WHEN member THEN NULL
        WHEN c.relispartition THEN format('it is a partition of %s', pg_partition_root(tbl))
        WHEN c.relkind = 'p' THEN NULL
        WHEN EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhparent = tbl) THEN 'other tables inherit from it'
        WHEN EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhrelid = tbl) THEN 'it inherits from another table'
    END
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = tbl
$$;

-- tube_private_columns: the columns whose change counts, checked: each once, in the order of the table; NULL for none.
-- Errors: 42703 no such column, or a NULL among them; 0A000 a virtual generated column, which has no value in the
--   rows that a trigger sees.
CREATE OR REPLACE FUNCTION :"schema".tube_private_columns(tbl regclass, columns name[]) RETURNS name[]
LANGUAGE plpgsql AS $$
DECLARE
    wrong record;
BEGIN
    SELECT coalesce(quote_ident(c.name), 'NULL') AS name, a.attnum IS NULL AS is_missing INTO wrong
    FROM unnest(columns) AS c (name)
    LEFT JOIN pg_attribute AS a ON a.attrelid = tbl AND a.attname = c.name AND a.attnum > 0 AND NOT a.attisdropped
    WHERE a.attnum IS NULL OR a.attgenerated = 'v' ORDER BY a.attnum NULLS FIRST LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = CASE WHEN wrong.is_missing THEN 'undefined_column' ELSE 'feature_not_supported' END,
            MESSAGE = format(CASE WHEN wrong.is_missing THEN '%s has no column %s'
                ELSE 'the column %2$s of %1$s is a virtual generated one, and has no value when a row is written' END, tbl, wrong.name),
            HINT = CASE WHEN wrong.is_missing THEN 'Give the names of columns of the table.'
                ELSE 'Give the columns that it is computed from, or make it STORED.' END;
    END IF;
    RETURN (
        SELECT array_agg(a.attname ORDER BY a.attnum) FROM pg_attribute AS a
        WHERE a.attrelid = tbl AND a.attnum > 0 AND a.attname = ANY (columns));
END
$$;

-- tube_private_range: the first shard of a table that is being attached: the caller's; where that is NULL, the number
-- at the end of the name of the table's schema; where there is none, the present one.
-- Errors: TU106 none of these, negative, too large, shards below 1, or a range that is partly that of
--   another attached table.
-- Locks: none; the caller holds the registry row.
CREATE OR REPLACE FUNCTION :"schema".tube_private_range(tube text, tbl regclass, shard integer, shards integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    schema_name CONSTANT text := (
        SELECT n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = tbl);
    first CONSTANT numeric := coalesce(shard, substring(schema_name FROM '[0-9]+$')::numeric,
        (SELECT a.shard FROM tube_attachment AS a WHERE a.tube = $1 AND a.tbl = $2));
    last CONSTANT numeric := first + (shards - 1);
    other tube_attachment;
    wrong text;
BEGIN
    wrong := CASE
        WHEN shards IS NULL OR shards < 1
            THEN format('it can''t be spread over %s shards', coalesce(shards::text, 'NULL'))
        WHEN first IS NULL
            THEN format('no shard is given, and its schema %I does not end in a number', schema_name)
        WHEN first < 0 THEN format('the shard %s is negative', first)
        WHEN last > 2147483647 THEN format('the shard %s is too large', last)
    END;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU106',
            MESSAGE = format('%s can''t be attached to tube %L: %s', tbl, tube, wrong),
            HINT = 'Give shard => NUMBER (0 or more) and shards => NUMBER (1 or more).';
    END IF;
    SELECT a.* INTO other FROM tube_attachment AS a
    WHERE a.tube = $1 AND a.tbl <> $2 AND a.shard <= last AND first < a.shard::bigint + a.shards
        AND (a.shard, a.shards) <> (first, $4)
    ORDER BY a.position LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU106',
            MESSAGE = format('%s can''t be attached to tube %L: its shards %s to %s overlap with %s, which has %s to %s',
                tbl, tube, first, last, other.tbl, other.shard, other.shard + (other.shards - 1)),
            HINT = format('To relate it to %1$s: shard => %2$s, shards => %3$s, id_col => the column that holds ids of '
                '%1$s. To give it separate shards: shard => %4$s, shards => %5$s.', other.tbl, other.shard, other.shards,
                (SELECT max(a.shard::bigint + a.shards) FROM tube_attachment AS a WHERE a.tube = $1 AND a.tbl <> $2), shards);
    END IF;
    RETURN first;
END
$$;

-- The pods that are in the tube stay. Works for a table that was dropped, given by its number.
-- Arguments: in_tube: NULL for all tubes; in_tbl.
-- Result: nothing; no error when the table is not attached.
-- Errors: TU102 unknown tube; 55P03 the lock could not be had. Nothing was changed then.
-- Locks: until the transaction ends, the registry rows FOR NO KEY UPDATE and the table ACCESS EXCLUSIVE.
--   While they are got, it waits for at most 100 ms at a time, and then lets all of them go.
CREATE OR REPLACE FUNCTION :"schema".tube_table_ensure_detached(in_tube text, in_tbl regclass) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    PERFORM tube_private_require(in_tube) WHERE in_tube IS NOT NULL;
    PERFORM tube_private_patiently(ARRAY[format(
            'SELECT tube_private_forget(r.tube, %L) FROM (SELECT r.tube FROM tube_registry AS r WHERE r.tube = coalesce(%L, r.tube)'
            ' AND EXISTS (SELECT FROM tube_attachment AS a WHERE a.tube = r.tube AND a.tbl = %L)'
            ' ORDER BY r.tube FOR NO KEY UPDATE) AS r', ARRAY[in_tbl::oid], in_tube, in_tbl::oid)],
        format('%s is detached', in_tbl));
END
$$;
COMMENT ON FUNCTION :"schema".tube_table_ensure_detached IS
    'Detaches a table from a tube, or with NULL from all. Pods stay. A related table may become the root table, '
    'with a WARNING.';
