-- How an attachment comes to be as it is to be, when it is made and whenever its table has changed:
--
--   tube_private_present        the attachment by the names that its columns have now
--   tube_private_bring_in_line  with the rights of the caller: an owner runs the statements that are missing
--   tube_private_store          with ours: sees that none is missing, touches rows that came and went, stores it;
--                               tube_private_store_late is the same, for whoever may only follow
--
-- Where the caller is no owner, a worker say, the owner's agent does what it can: triggers for new partitions.

-- tube_private_present: an attachment with the names that its columns have now.
--
-- A column is what its name says. Where there is none of that name any more, it is the one that had the name when the
-- attachment was stored: it was renamed. With another oid, the table was restored from a dump, and only names are right.
--
-- Arguments: att: as it was stored.
-- Result: the same with id_col (NULL when there is none any more that holds keys) and columns (without those that are
--   gone).
CREATE OR REPLACE FUNCTION :"schema".tube_private_present(att :"schema".tube_attachment) RETURNS :"schema".tube_attachment
LANGUAGE plpgsql STABLE AS $$
DECLARE
    names name[];
BEGIN
    SELECT array_agg(coalesce(same.attname, moved.attname) ORDER BY s.place) INTO names
    FROM unnest(att.id_col || coalesce(att.columns, '{}')) WITH ORDINALITY AS s (name, place)
    LEFT JOIN pg_attribute AS same ON same.attrelid = att.tbl AND same.attname = s.name AND same.attnum > 0
    LEFT JOIN pg_attribute AS moved ON moved.attrelid = att.tbl AND att.seen_oid = att.tbl AND NOT moved.attisdropped
        AND moved.attnum = att.seen_attnums[array_position(att.seen_names, s.name)];
    att.columns := nullif(array_remove(names[2:], NULL), '{}');
    att.id_col := (
        SELECT a.attname FROM pg_attribute AS a
        WHERE a.attrelid = att.tbl AND a.attname = names[1] AND a.attgenerated <> 'v'
            AND tube_private_key_fits(a.atttypid, tube_private_key_type(att.tube)));
    RETURN att;
END
$$;

-- tube_private_seen: an attachment with the columns that its trigger function is made for: the key first.
CREATE OR REPLACE FUNCTION :"schema".tube_private_seen(att :"schema".tube_attachment) RETURNS :"schema".tube_attachment
LANGUAGE plpgsql STABLE AS $$
BEGIN
    att.seen_oid := att.tbl::oid;
    SELECT array_agg(a.attnum ORDER BY a.attname <> att.id_col, a.attnum), array_agg(a.attname ORDER BY a.attname <> att.id_col, a.attnum)
    INTO att.seen_attnums, att.seen_names
    FROM pg_attribute AS a
    WHERE a.attrelid = att.tbl AND a.attnum > 0 AND NOT a.attisdropped AND (a.attname = att.id_col OR a.attname = ANY (att.columns)
        OR a.attnum IN (SELECT c.attnum FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c));
    RETURN att;
END
$$;

-- tube_private_wanted: a stored attachment as it is to be now.
--
-- Arguments: att: as it is stored.
-- Result: with the names of now, the tube's predicate, and what was seen. NULL when the table is gone, or can't stay
--   attached: its key is gone, or it has become a part of something, so that what is written by another name is not seen.
CREATE OR REPLACE FUNCTION :"schema".tube_private_wanted(att :"schema".tube_attachment) RETURNS :"schema".tube_attachment
LANGUAGE plpgsql AS $$
BEGIN
    att := tube_private_present(att);
    IF att.id_col IS NULL OR tube_private_table_fault(att.tbl) IS NOT NULL THEN
        RETURN NULL;
    END IF;
    att.row_filter := (SELECT r.predicate FROM tube_registry AS r WHERE r.tube = att.tube);
    att.touch_name := coalesce(att.touch_name, tube_private_touch_name(att.tbl, tube_private_key_type(att.tube)));
    RETURN att;
END
$$;

-- tube_private_misfit: a digest of a tube's predicate and a table's columns, kept where the one does not fit the other.
CREATE OR REPLACE FUNCTION :"schema".tube_private_misfit(tube text, tbl regclass) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
    SELECT md5(concat(r.predicate, tbl::oid, (
        SELECT array_agg(concat(a.attname, ' ', a.atttypid) ORDER BY a.attnum) FROM pg_attribute AS a
        WHERE a.attrelid = tbl AND a.attnum > 0)))
    FROM tube_registry AS r WHERE r.tube = $1
$$;

-- tube_private_is_stale: whether a stored attachment is not as it is to be.
--
-- A predicate that did not fit the table stays away until one of the two changes.
CREATE OR REPLACE FUNCTION :"schema".tube_private_is_stale(att :"schema".tube_attachment) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    wanted tube_attachment := tube_private_wanted(att);
BEGIN
    IF wanted.tube IS NULL THEN
        RETURN true;
    ELSIF att.misfit = tube_private_misfit(att.tube, att.tbl) THEN
        wanted.row_filter := NULL;
    END IF;
    RETURN tube_private_seen(wanted) IS DISTINCT FROM att
        OR att.waiting IS NOT NULL
        OR att.members IS DISTINCT FROM tube_private_member_oids(att.tbl)
        OR att.as_root IS DISTINCT FROM tube_private_is_root(att)
        OR EXISTS (SELECT FROM tube_private_owner_ddl(wanted))
        OR NOT has_function_privilege((SELECT c.relowner FROM pg_class AS c WHERE c.oid = att.tbl),
            to_regprocedure(format('%s(text, %s[])', tube_private_function(att, 'put'), tube_private_key_type(att.tube))), 'EXECUTE');
END
$$;

-- tube_private_bring_in_line: makes an attachment as it is to be, with the rights of the caller.
--
-- Arguments: att: as it is stored, or is to be; mode: ordered: somebody asks for it, and what can't be done is an error;
--   install: likewise, but a predicate that does not fit any more is told in a WARNING; late: some time after DDL.
-- Result: whether it was done, as far as the caller may.
-- Errors: 42501 the caller is no owner of the table, and an owner has to do something; 55P03 a lock could not be had;
--   TU105 the predicate does not fit, and mode is ordered.
-- Locks: a table that lacks its triggers: SHARE ROW EXCLUSIVE; one that has too many: ACCESS EXCLUSIVE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_bring_in_line(att :"schema".tube_attachment, mode text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    what CONSTANT text := format('%s is attached to tube %L', att.tbl, att.tube);
    is_owner CONSTANT boolean := (SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class AS c WHERE c.oid = att.tbl);
    missing text[];
BEGIN
    IF mode <> 'late' THEN -- tube_private_begin_sync has done so
        PERFORM tube_private_provide(att);
    END IF;
    IF is_owner AND att.row_filter IS NOT NULL AND NOT tube_private_has_predicate(att) THEN
        BEGIN
            PERFORM tube_private_try_predicate(att);
        EXCEPTION WHEN SQLSTATE 'TU105' THEN
            IF mode = 'ordered' THEN
                RAISE;
            END IF;
            RAISE WARNING USING MESSAGE = SQLERRM,
                DETAIL = format('Until it fits again, all rows of %s are touched, and workers can''t read them.', att.tbl),
                HINT = 'Give the tube another predicate by tube_ensure_exists.';
            att.misfit := tube_private_misfit(att.tube, att.tbl);
            att.row_filter := NULL;
        END;
    END IF;
    -- Partitions may be made until the locks are there, so it looks again until none is new.
    FOR look IN 1..20 LOOP
        missing := ARRAY(SELECT d.statement FROM tube_private_owner_ddl(att) AS d WHERE is_owner OR d.rel IS NOT NULL);
        EXIT WHEN missing = '{}' OR NOT is_owner;
        PERFORM tube_private_patiently(ARRAY[format('SELECT tube_private_run_owner_ddl(%L)', missing)], what,
            CASE mode WHEN 'late' THEN 20 ELSE 100 END);
    END LOOP;
    IF mode = 'late' THEN
        PERFORM tube_private_store_late(att.tube, att.tbl, att.row_filter IS NULL);
    ELSE
        PERFORM tube_private_store(att, mode);
    END IF;
END
$$;

-- tube_private_run_owner_ddl: runs statements of tube_private_owner_ddl with settings by which literals mean what they say.
CREATE OR REPLACE FUNCTION :"schema".tube_private_run_owner_ddl(statements text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
SET datestyle = 'ISO'
SET intervalstyle = 'iso_8601'
SET client_min_messages = warning
AS $$
DECLARE
    statement text;
BEGIN
    FOREACH statement IN ARRAY statements LOOP
        EXECUTE statement;
    END LOOP;
END
$$;

-- tube_private_has_predicate: whether the predicate of an attachment is a function already, so that it was tried.
CREATE OR REPLACE FUNCTION :"schema".tube_private_has_predicate(att :"schema".tube_attachment) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
    SELECT NOT EXISTS (SELECT FROM tube_private_passes_ddl(att, (SELECT c.relowner FROM pg_class AS c WHERE c.oid = att.tbl)))
$$;
