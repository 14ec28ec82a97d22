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

-- tube_private_key: the column that holds a table's ids, for tube_table_ensure_attached: the given one; else
-- "id" if that column exists, whatever proves it unique, as callers of pg-tube expect, and so that a call that is
-- repeated takes the same; else the only column of the primary key.
-- Errors: TU104 no such column, or of another type than the tube's keys, or a virtual generated one, which has
--   no value in the rows that a trigger sees.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key(tbl regclass, wanted name, key_type regtype) RETURNS name
LANGUAGE plpgsql AS $$
DECLARE
    col record;
BEGIN
    SELECT a.attname, a.atttypid, a.attgenerated INTO col
    FROM pg_attribute AS a
    WHERE a.attrelid = tbl AND NOT a.attisdropped AND a.attnum > 0 AND (a.attname = coalesce(wanted, 'id') OR wanted IS NULL
        AND EXISTS (SELECT FROM pg_index AS i
            WHERE i.indrelid = tbl AND i.indisprimary AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum))
    ORDER BY a.attname <> 'id' LIMIT 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104',
            MESSAGE = format('%s has no column %s', tbl,
                coalesce(quote_ident(wanted), 'id and no primary key of a single column')),
            HINT = coalesce((
                SELECT format('Name all columns of its primary key, in a tube of text: key_cols => %L. Or name a unique column: id_col => COLUMN.',
                    array_agg(a.attname ORDER BY k.place))
                FROM pg_index AS i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
                JOIN pg_attribute AS a ON a.attrelid = tbl AND a.attnum = k.attnum
                WHERE i.indrelid = tbl AND i.indisprimary AND wanted IS NULL AND k.place <= i.indnkeyatts HAVING count(*) > 1),
                'Add a column with a primary key, or name a unique column: id_col => COLUMN.');
    ELSIF NOT tube_private_key_fits(col.atttypid, key_type) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104',
            MESSAGE = format('the key %I of %s has the type %s, and the tube''s keys are %s',
                col.attname, tbl, col.atttypid::regtype, key_type),
            HINT = 'Columns for keys: smallint, integer, bigint in a tube of bigint; uuid in one of uuid; '
                'text, varchar in one of text; domains over these. To make a tube of another type: tube_ensure_exists, key_type => TYPE.';
    ELSIF col.attgenerated = 'v' THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104',
            MESSAGE = format('the key %I of %s is a virtual generated column, and has no value when a row is written',
                col.attname, tbl),
            HINT = 'Make it STORED, or attach by the column that it is computed from.';
    END IF;
    RETURN col.attname;
END
$$;

-- tube_private_check_key: the columns of a key of several, for tube_table_ensure_attached, in their order.
-- Errors: TU104 there are fewer than two or more than eight, or one stands twice, is not there or can't be a part of a key; the
--   tube's keys are not texts; id_col is given, too.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_key(tbl regclass, key_cols name[], id_col name, key_type regtype) RETURNS name[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
    wrong text;
    remedy text;
BEGIN
    SELECT format(CASE WHEN a.attnum IS NULL THEN '%s has no column %s'
            WHEN a.attgenerated = 'v' THEN 'the column %2$s of %1$s is a virtual generated one, and has no value when a row is written'
            ELSE 'the column %2$s of %1$s has the type %3$s, which can''t be a part of a key' END,
            tbl, coalesce(quote_ident(k.name), 'NULL'), a.atttypid::regtype),
        CASE WHEN a.attnum IS NULL THEN 'Give the names of columns of the table.'
            WHEN a.attgenerated = 'v' THEN 'Make it STORED, or attach by the column that it is computed from.'
            ELSE 'Parts of keys: smallint, integer, bigint, text, varchar, uuid, boolean, date, enums, and domains over all but enums. Others may '
                'write equal values in several ways.' END
    INTO wrong, remedy
    FROM unnest(key_cols, tube_key_types(tbl, key_cols)) WITH ORDINALITY AS k (name, type, place)
    LEFT JOIN pg_attribute AS a ON a.attrelid = tbl AND a.attname = k.name AND a.attnum > 0 AND NOT a.attisdropped
    WHERE k.type IS NULL ORDER BY k.place LIMIT 1;
    IF cardinality(key_cols) NOT BETWEEN 2 AND 8 OR (SELECT count(DISTINCT k) FROM unnest(key_cols) AS k) < cardinality(key_cols) THEN
        wrong := format('%s can''t be attached by the columns %L', tbl, key_cols);
        remedy := 'Give two to eight columns, each once; a single one as id_col.';
    ELSIF id_col IS NOT NULL THEN
        wrong := format('%s can''t be attached by id_col and by key_cols', tbl);
        remedy := 'Give one of the two.';
    ELSIF wrong IS NULL AND key_type <> 'text'::regtype THEN
        wrong := format('a key of several columns is a text, and the tube''s keys are %s', key_type);
        remedy := 'Make a tube of texts: tube_ensure_exists, key_type => ''text''.';
    END IF;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104', MESSAGE = wrong, HINT = remedy;
    END IF;
    RETURN key_cols;
END
$$;
