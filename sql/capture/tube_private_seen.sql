-- tube_private_seen: an attachment with what its generated function depends on, as it is now.
--
-- Arguments: att: id_col, columns and row_filter as they are to be.
-- Result: the same with seen_oid, seen_attnums, seen_names and seen_types.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_seen(att :"schema".tube_attachment)
RETURNS :"schema".tube_attachment
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    att.seen_oid := att.tbl::oid;
    SELECT array_agg(a.attnum ORDER BY w.kind, a.attnum), array_agg(a.attname ORDER BY w.kind, a.attnum),
        array_agg(a.atttypid ORDER BY w.kind, a.attnum)
    INTO att.seen_attnums, att.seen_names, att.seen_types
    FROM pg_attribute AS a
    JOIN (VALUES (1), (2), (3)) AS w (kind) ON CASE w.kind
        WHEN 1 THEN a.attname = att.id_col
        WHEN 2 THEN a.attname = ANY (att.columns)
        ELSE tube_private_named(att.row_filter, a.attname) END
    WHERE a.attrelid = att.tbl AND a.attnum > 0 AND NOT a.attisdropped;
    RETURN att;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_seen(:"schema".tube_attachment) FROM PUBLIC;

-- tube_private_present: an attachment with the names that its columns have now.
--
-- A column keeps its number when it is renamed, and a table its oid. With another oid, the table was
-- restored from a dump, and only the names are right.
--
-- Arguments: att: as it was stored.
-- Result: the same with id_col (NULL when there is no such column any more, or one of another type, or virtual),
--   columns (without those that are gone) and row_filter (NULL, so that all rows are touched, when
--   a column in it was renamed or dropped, or has another type).
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_present(att :"schema".tube_attachment)
RETURNS :"schema".tube_attachment
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    listed CONSTANT integer := coalesce(cardinality(att.columns), 0);
    names name[];
    types oid[];
BEGIN
    IF att.seen_oid = att.tbl::oid THEN
        SELECT array_agg(a.attname ORDER BY s.place), array_agg(a.atttypid ORDER BY s.place) INTO names, types
        FROM unnest(att.seen_attnums) WITH ORDINALITY AS s (attnum, place)
        LEFT JOIN pg_attribute AS a
            ON a.attrelid = att.tbl AND a.attnum = s.attnum AND NOT a.attisdropped;
        att.id_col := names[1];
        att.columns := nullif(array_remove(names[2 : 1 + listed], NULL), '{}');
        IF (names[2 + listed :], types[2 + listed :])
            IS DISTINCT FROM (att.seen_names[2 + listed :], att.seen_types[2 + listed :])
        THEN
            att.row_filter := NULL;
        END IF;
    END IF;
    IF NOT EXISTS (
        SELECT FROM pg_attribute AS a
        WHERE a.attrelid = att.tbl AND a.attname = att.id_col AND NOT a.attisdropped AND a.attgenerated <> 'v'
            AND tube_private_key_fits(a.atttypid, tube_private_key_type(att.tube))
    ) THEN
        att.id_col := NULL;
    END IF;
    RETURN att;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_present(:"schema".tube_attachment) FROM PUBLIC;
