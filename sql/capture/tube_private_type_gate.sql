-- tube_private_types: what types the columns that are computed with have, unless they are those expected, as SQL text.
--
-- Those by which casts could be called: of the key, of the columns that the row filter may name, and of
-- those in `columns` that are compared by their values.
--
-- Arguments: att.
-- Result: the text of an array of their oids, NULL for a type that is as expected, to stand behind SELECT with the
--   table in FROM.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_types(att :"schema".tube_attachment) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN (
        SELECT format('ARRAY[%s]', string_agg(format('nullif(pg_typeof(%I)::oid, %s)', a.attname, a.expected), ', '
            ORDER BY a.attnum))
        FROM tube_private_typed_columns(att) AS a);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_types(:"schema".tube_attachment) FROM PUBLIC;

-- tube_private_typed_columns: the columns that tube_private_types speaks of.
--
-- Arguments: att.
-- Result: attnum; attname; expected: its type when it was looked at last, 0 for one that can't be trusted. An enum
--   can't where it is the key: its owner may make a cast to text or to a number at any time.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_typed_columns(att :"schema".tube_attachment)
RETURNS TABLE (attnum smallint, attname name, expected oid)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT a.attnum, a.attname, CASE
        WHEN tube_private_built_in(t.type) OR a.attname <> att.id_col AND tube_private_trusted_type(t.type) THEN t.type
        ELSE 0 END
    FROM pg_attribute AS a
    CROSS JOIN LATERAL (SELECT coalesce((
        SELECT s.type FROM unnest(att.seen_attnums, att.seen_types) AS s (attnum, type)
        WHERE s.attnum = a.attnum AND att.seen_oid = a.attrelid LIMIT 1), a.atttypid)) AS t (type)
    WHERE a.attrelid = att.tbl AND a.attnum > 0 AND NOT a.attisdropped
        AND (a.attname = att.id_col OR tube_private_named(att.row_filter, a.attname)
            -- What is compared by its output function calls no cast.
            OR a.attname = ANY (att.columns) AND tube_private_trusted_type(a.atttypid));
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_typed_columns(:"schema".tube_attachment) FROM PUBLIC;

-- tube_private_type_gate: lines of a trigger function that look at the types of the columns it computes with.
--
-- Casts belong to no schema, so no search path keeps them out. The owner of a table may give a column a
-- type of their own, with a cast to bigint or text that calls a function of theirs; it would run with the
-- rights of our owner as soon as the trigger function is planned anew. So nothing is planned before the
-- types were looked at: what is constant within a function that is written in SQL is computed by the planner.
-- (Not in the catalogue, of which an old snapshot may show an old state.) A statement that wrote no row is
-- planned as well, so then a row of NULLs is looked at, which has types, too.
--
-- They come after the lines of tube_private_guard, since a column may have another name by now.
--
-- Arguments: att; old_rows, new_rows: what stands for the old and the new rows, behind FROM.
-- Result: the lines. They cost a few microseconds a statement.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_type_gate(
    att :"schema".tube_attachment, old_rows text = 'old_table', new_rows text = 'new_table'
) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN format($gate$
    IF TG_OP = 'DELETE' THEN
        IF (SELECT %2$s FROM %3$s LIMIT 1) IS NOT FALSE THEN
            PERFORM tube_private_check_types(TG_RELID, (SELECT %1$s FROM (SELECT) AS one LEFT JOIN %3$s ON true LIMIT 1));
        END IF;
    ELSIF TG_OP IN ('INSERT', 'UPDATE') THEN
        IF (SELECT %2$s FROM %4$s LIMIT 1) IS NOT FALSE THEN
            PERFORM tube_private_check_types(TG_RELID, (SELECT %1$s FROM (SELECT) AS one LEFT JOIN %4$s ON true LIMIT 1));
        END IF;
    END IF;$gate$, tube_private_types(att), (
            SELECT string_agg(format('pg_typeof(%I)::oid <> %s', a.attname, a.expected), ' OR ' ORDER BY a.attnum)
            FROM tube_private_typed_columns(att) AS a),
        old_rows, new_rows);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_type_gate(:"schema".tube_attachment, text, text) FROM PUBLIC;

-- tube_private_named: whether a row filter names a column, or may do so.
--
-- It may find a word within a literal, too; then more is looked at than needs be.
--
-- Arguments: filter: as Postgres writes it; may be NULL; name: of the column.
-- Result: true or false.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_named(filter text, name name) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    -- With quotes or without them, which a setting of the session's decides; other names have them always.
    RETURN coalesce(CASE WHEN name::text COLLATE "C" ~ '^[a-z_][a-z0-9_]*$'
        THEN filter COLLATE "C" ~ format('\m%s\M', name)
        ELSE strpos(filter, quote_ident(name)) > 0 END, false);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_named(text, name) FROM PUBLIC;

-- tube_private_trusted_type: whether values of a type can be compared with others of it without casts of its owner's.
--
-- Arguments: type.
-- Result: true for what came with Postgres, for domains of it, for enums, their domains and arrays.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_trusted_type(type oid) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    base CONSTANT oid := tube_private_base_type(type);
BEGIN
    RETURN tube_private_built_in(base) OR EXISTS (
        SELECT FROM pg_type AS t LEFT JOIN pg_type AS e ON t.typcategory = 'A' AND e.oid = t.typelem
        WHERE t.oid = base AND 'e' IN (t.typtype, e.typtype));
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_trusted_type(oid) FROM PUBLIC;

-- tube_private_built_in: whether only built-in code computes with the values of a type, and casts them.
--
-- Arguments: type.
-- Result: true for what came with Postgres, and for domains of it, whose casts Postgres passes over. Not for arrays
--   of domains, whose casts it calls.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_built_in(type oid) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN tube_private_base_type(type) < 16384; -- what initdb made has lower numbers
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_built_in(oid) FROM PUBLIC;

-- tube_private_base_type: what a type is a domain of, through all levels; else itself.
--
-- Arguments: type.
-- Result: its oid.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_base_type(type oid) RETURNS oid
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN (
        WITH RECURSIVE level (type, base) AS (
            SELECT t.oid, t.typbasetype FROM pg_type AS t WHERE t.oid = tube_private_base_type.type
            UNION ALL
            SELECT t.oid, t.typbasetype FROM level AS l JOIN pg_type AS t ON t.oid = l.base
        )
        SELECT l.type FROM level AS l WHERE l.base = 0);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_base_type(oid) FROM PUBLIC;

-- tube_private_check_types: raises the error of columns whose types can't be trusted.
--
-- Arguments: tbl; types: of the columns that are computed with; NULL for one that is as expected.
-- Result: nothing.
-- Errors: TU104.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_types(tbl regclass, types oid[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    wrong oid := (SELECT t.type FROM unnest(types) AS t (type) WHERE NOT tube_private_built_in(t.type) LIMIT 1);
BEGIN
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104',
            MESSAGE = format('a column of %s, by which it is attached to a tube or which the predicate names, '
                'has the type %s now', tbl, wrong::regtype),
            HINT = 'Give it a built-in type, or detach the table. A type of somebody''s own may call their functions.';
    END IF;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_check_types(regclass, oid[]) FROM PUBLIC;

-- tube_private_check_table: refuses a table that is about to be read with our rights, and would run code of its owner.
--
-- That is one of a type that can't be trusted, as in tube_private_check_types, or one that is a view by now, which
-- up to Postgres 15 its owner can make of an empty table: we would call its functions then.
--
-- Arguments: tbl: the table, perhaps with ONLY before it, as SQL text; rel: the same, for the error;
--   types: of tube_private_types.
-- Result: nothing.
-- Errors: TU104; 40001 it has another name by now; TU107 it, or one of its partitions, is no table that stores rows.
-- Locks: of the table ACCESS SHARE, until the transaction ends, so that its types and its kind stay.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_table(tbl text, rel regclass, types text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET row_security = off
AS $$
DECLARE
    found_types oid[];
    wrong regclass;
BEGIN
    EXECUTE format('LOCK TABLE %s IN ACCESS SHARE MODE', tbl);
    -- Who waited for the lock may have locked what has the name by now.
    IF to_regclass(regexp_replace(tbl, '^ONLY ', '')) IS DISTINCT FROM rel THEN
        RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
            MESSAGE = format('%s was renamed while it was waited for', rel), HINT = 'Try again.';
    END IF;
    -- These functions see the table as it is now; pg_class may show it as an old snapshot has it.
    SELECT m.rel INTO wrong
    FROM (
        SELECT rel WHERE tbl LIKE 'ONLY %' OR NOT EXISTS (SELECT FROM pg_partition_tree(rel))
        UNION ALL
        SELECT t.relid FROM pg_partition_tree(rel) AS t WHERE t.isleaf AND tbl NOT LIKE 'ONLY %'
    ) AS m (rel)
    WHERE pg_relation_filenode(m.rel) IS NULL
    LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU107',
            MESSAGE = format('%s is attached to a tube, and stores no rows: it is a view or a foreign table now', wrong),
            HINT = 'Detach it, and attach what stores them.';
    END IF;
    -- A row of NULLs, even where an old snapshot shows none.
    EXECUTE format('SELECT %s FROM (SELECT) AS one LEFT JOIN %s ON false', types, tbl) INTO found_types;
    PERFORM tube_private_check_types(rel, found_types);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_check_table(text, regclass, text) FROM PUBLIC;
