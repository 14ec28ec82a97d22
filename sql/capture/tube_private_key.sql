-- tube_private_key: the column that holds a table's ids.
--
-- Arguments: tbl; wanted: its name, NULL for the table's own key; key_type: of the tube.
-- Result: wanted; else "id" if there is such a column, else the only column of the primary key. A WARNING where the
--   column may be NULL: such a row names no document, and makes no touch.
-- Errors: TU104 no such column, or of another type than the tube's keys, or a virtual generated one, which has
--   no value in the rows that a trigger sees.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key(tbl regclass, wanted name, key_type regtype) RETURNS name
LANGUAGE plpgsql AS $$
DECLARE
    col record;
BEGIN
    SELECT a.attname, a.atttypid, a.attgenerated INTO col
    FROM pg_attribute AS a
    WHERE a.attrelid = tbl AND a.attname = coalesce(wanted, 'id') AND a.attnum > 0 AND NOT a.attisdropped;
    IF NOT FOUND AND wanted IS NULL THEN
        SELECT a.attname, a.atttypid, a.attgenerated INTO col
        FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = tbl AND i.indisprimary AND i.indnkeyatts = 1;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104',
            MESSAGE = format('%s has no column %s', tbl,
                coalesce(quote_ident(wanted), 'id and no primary key of a single column')),
            HINT = 'Documents are named by one column: add such a column, with a primary key, or name it in id_col.';
    ELSIF NOT tube_private_key_fits(col.atttypid, key_type) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104',
            MESSAGE = format('the key %I of %s has the type %s, and the tube''s keys are %s',
                col.attname, tbl, col.atttypid::regtype, key_type),
            HINT = 'Columns for keys: smallint, integer, bigint in a tube of bigint; uuid in one of uuid; '
                'text, varchar in one of text; domains over these. tube_ensure_exists has the argument key_type.';
    ELSIF col.attgenerated = 'v' THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104',
            MESSAGE = format('the key %I of %s is a virtual generated column, and has no value when a row is written',
                col.attname, tbl),
            HINT = 'Make it STORED, or attach by the column that it is computed from.';
    END IF;
    RETURN col.attname;
END
$$;

-- tube_private_key_fits: whether a column of a type can hold the keys of a tube.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_fits(column_type oid, key_type regtype) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT CASE key_type
        WHEN 'bigint'::regtype THEN b.base IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype)
        WHEN 'uuid'::regtype THEN b.base = 'uuid'::regtype
        ELSE b.base IN ('text'::regtype, 'varchar'::regtype)
    END FROM tube_private_base_type(column_type) AS b (base)
$$;

-- tube_private_base_type: what a domain is made of, however deep; any other type itself.
CREATE OR REPLACE FUNCTION :"schema".tube_private_base_type(type oid) RETURNS oid
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE down (oid, base, depth) AS (
        SELECT t.oid, t.typbasetype, 0 FROM pg_type AS t WHERE t.oid = $1
        UNION ALL
        SELECT t.oid, t.typbasetype, d.depth + 1 FROM down AS d JOIN pg_type AS t ON t.oid = d.base
    )
    SELECT d.oid FROM down AS d ORDER BY d.depth DESC LIMIT 1
$$;

-- tube_private_key_is_unique: whether no statement can write two rows with one key.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_is_unique(att :"schema".tube_attachment) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = att.tbl AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indnkeyatts = 1
            AND i.indpred IS NULL AND a.attname = att.id_col)
$$;
