-- How an attachment comes to be as it is to be, when it is made and whenever its table has changed:
--
--   tube_private_attachment_now  the attachment by the names that its columns have now
--   tube_private_bring_in_line   with the rights of the caller: an owner runs the statements that are missing
--   tube_private_store           with ours: sees that none is missing, touches rows that came and went, stores it;
--                                tube_private_store_late is the same, for those who may only follow
--
-- Where the caller is no owner, a worker say, the owner's agent does what it can: triggers for new partitions.

-- tube_sync: follows what DDL has done to attached tables since it was last looked at.
--
-- Tables and columns that were renamed, moved or dropped; partitions that came or went; triggers that were
-- dropped; tables with another owner; a database that was restored. Workers call this twice a minute, and at once when
-- an event trigger of ours has seen DDL; a migration may do so within its transaction.
--
-- What takes an owner's rights is done with those of the caller, where they are an owner. For others, such as a
-- worker, the owner's agent puts triggers on new partitions; the rest is told in a WARNING. Until it is done nothing
-- is lost: such a table is captured by the names that its columns have now.
--
-- Result: how many attached tables were brought in line. One that could not be is told in a WARNING, and stays as it
-- was.
-- Locks: of tables that need it, as tube_table_ensure_attached, and the registry rows of their tubes; until the
--   transaction ends.
CREATE OR REPLACE FUNCTION :"schema".tube_sync() RETURNS integer
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    att tube_attachment;
    done integer := 0;
    hint text;
BEGIN
    FOR att IN SELECT s.* FROM tube_private_stale_attachments() AS s LOOP
        BEGIN
            att := tube_private_begin_sync(att.tube, att.tbl);
            IF att.tube IS NOT NULL THEN
                PERFORM tube_private_bring_in_line(att, 'late');
            END IF;
            done := done + 1;
        EXCEPTION WHEN OTHERS THEN
            -- One table's trouble is no other's.
            GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
            RAISE WARNING USING MESSAGE = format('%s is not followed by tube %L: %s', att.tbl, att.tube, SQLERRM), HINT = hint;
        END;
    END LOOP;
    RETURN done;
END
$$;
COMMENT ON FUNCTION :"schema".tube_sync() IS
    'Follow what DDL has done to attached tables; workers call it twice a minute, a migration may call it at its end.';

-- tube_private_attachment_now: a stored attachment as it is to be now.
--
-- A column is what its name says. Where there is none of that name any more, it is the one that had the name when the
-- attachment was stored: it was renamed. With another oid, the table was restored from a dump, and only names are
-- right. Columns that are gone are left out. A predicate that did not fit the table stays away until one of the two
-- changes.
--
-- Result: NULL when the table is gone, or can't stay attached: no column holds its keys any more, or it has become a
--   part of something, so that what is written by another name is not seen.
CREATE OR REPLACE FUNCTION :"schema".tube_private_attachment_now(att :"schema".tube_attachment) RETURNS :"schema".tube_attachment
LANGUAGE plpgsql AS $$
DECLARE
    names name[];
BEGIN
    SELECT array_agg(coalesce(same.attname, moved.attname) ORDER BY s.place) INTO names
    FROM unnest(att.id_col || coalesce(att.columns, '{}')) WITH ORDINALITY AS s (name, place)
    LEFT JOIN pg_attribute AS same ON same.attrelid = att.tbl AND same.attname = s.name AND same.attnum > 0
    LEFT JOIN pg_attribute AS moved ON moved.attrelid = att.tbl AND att.seen_oid = att.tbl AND NOT moved.attisdropped
        AND moved.attnum = att.seen_attnums[array_position(att.seen_names, s.name)];
    SELECT a.attname INTO att.id_col FROM pg_attribute AS a
    WHERE a.attrelid = att.tbl AND a.attname = names[1] AND a.attgenerated <> 'v'
        AND tube_private_key_fits(a.atttypid, tube_private_key_type(att.tube));
    IF NOT FOUND OR tube_private_table_fault(att.tbl) IS NOT NULL THEN
        RETURN NULL;
    END IF;
    att.columns := nullif(array_remove(names[2:], NULL), '{}');
    att.row_filter := CASE WHEN att.misfit IS DISTINCT FROM tube_private_misfit_digest(att.tube, att.tbl)
        THEN (tube_private_require(att.tube)).predicate END;
    att.touch_name := coalesce(att.touch_name, tube_private_touch_name(att.tbl, tube_private_key_type(att.tube)));
    RETURN tube_private_with_columns(att);
END
$$;

-- tube_private_with_columns: an attachment with the columns that its trigger function is made for: the key first.
CREATE OR REPLACE FUNCTION :"schema".tube_private_with_columns(att :"schema".tube_attachment) RETURNS :"schema".tube_attachment
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

-- tube_private_misfit_digest: of a tube's predicate and a table's columns; it is kept where the one does not fit the
-- other.
CREATE OR REPLACE FUNCTION :"schema".tube_private_misfit_digest(tube text, tbl regclass) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT md5(concat(r.predicate, tbl::oid, (
        SELECT array_agg(concat(a.attname, ' ', a.atttypid) ORDER BY a.attnum) FROM pg_attribute AS a
        WHERE a.attrelid = tbl AND a.attnum > 0)))
    FROM tube_registry AS r WHERE r.tube = $1
$$;

-- tube_private_stale_attachments: the attachments that are not as they are to be.
CREATE OR REPLACE FUNCTION :"schema".tube_private_stale_attachments() RETURNS SETOF :"schema".tube_attachment
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT a.* FROM tube_attachment AS a, tube_private_attachment_now(a) AS now
    WHERE now IS DISTINCT FROM a
        OR a.waiting IS NOT NULL
        OR a.members IS DISTINCT FROM tube_private_member_oids(a.tbl)
        OR a.as_root IS DISTINCT FROM tube_private_is_root(a)
        OR EXISTS (SELECT FROM tube_private_owner_ddl(now))
        OR tube_private_owner_of(a.tbl) IN (SELECT b.owner FROM tube_private_broken_seals() AS b)
        OR tube_private_put_callers(a) IS DISTINCT FROM ARRAY(
            SELECT DISTINCT x.grantee::regrole FROM pg_proc AS p CROSS JOIN LATERAL aclexplode(p.proacl) AS x
            WHERE p.oid = to_regprocedure(format('%s(text, %s[])', tube_private_function(a, 'put'), tube_private_key_type(a.tube)))
            ORDER BY 1)
    ORDER BY a.tube, a.position
$$;

-- tube_private_begin_sync: an attachment as it is to be now, locked, with what is ours for it; forgets one whose
-- table can't stay attached.
--
-- Result: NULL when there is none any more; a WARNING says why.
-- Locks: the registry row, and the attachment.
CREATE OR REPLACE FUNCTION :"schema".tube_private_begin_sync(tube text, tbl regclass) RETURNS :"schema".tube_attachment
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    att tube_attachment;
    now tube_attachment;
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = $1 FOR NO KEY UPDATE;
    SELECT a.* INTO att FROM tube_attachment AS a WHERE a.tube = $1 AND a.tbl = $2 FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    now := tube_private_attachment_now(att);
    IF now.tube IS NOT NULL THEN
        PERFORM tube_private_provide(now);
        RETURN now;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = att.tbl) THEN
        PERFORM tube_private_prune(tube);
        RETURN NULL;
    END IF;
    PERFORM tube_private_forget(att.tube, ARRAY[att.tbl]);
    RAISE WARNING USING
        MESSAGE = format('%s is detached from tube %L: %s', att.tbl, att.tube,
            coalesce(tube_private_table_fault(att.tbl), format('its key %I was dropped, or has another type', att.id_col))),
        HINT = CASE WHEN tube_private_table_fault(att.tbl) IS NULL THEN 'Attach it again by another column: id_col => COLUMN.'
            ELSE 'Attach the partitioned table as a whole, and backfill it.' END;
    RETURN NULL;
END
$$;

-- tube_private_bring_in_line: makes an attachment as it is to be, with the rights of the caller.
--
-- Arguments: att: as it is stored, or is to be; mode: ordered: somebody asks for it, and what can't be done is an
-- error;
--   install: the same, but a predicate that does not fit any more is told in a WARNING; late: some time after DDL.
-- Errors: 42501 the caller is no owner of the table, and an owner has to do something; 55P03 a lock could not be had;
--   TU105 the predicate does not fit, and mode is ordered.
-- Locks: a table that lacks its triggers: SHARE ROW EXCLUSIVE; one that has too many: ACCESS EXCLUSIVE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_bring_in_line(att :"schema".tube_attachment, mode text) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    is_owner CONSTANT boolean := (SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class AS c WHERE c.oid = att.tbl);
    missing text[];
BEGIN
    IF mode <> 'late' THEN -- tube_private_begin_sync has done so
        PERFORM tube_private_provide(att);
    END IF;
    IF is_owner AND NOT tube_private_has_predicate(att) THEN
        BEGIN
            PERFORM tube_private_try_predicate(att);
        EXCEPTION WHEN SQLSTATE 'TU105' THEN
            IF mode = 'ordered' THEN
                RAISE;
            END IF;
            RAISE WARNING USING MESSAGE = SQLERRM,
                DETAIL = format('Until it fits again, all rows of %s are touched, and workers can''t read them.', att.tbl),
                HINT = 'Give the tube another one: tube_ensure_exists, predicate => SQL.';
            att.misfit := tube_private_misfit_digest(att.tube, att.tbl);
            att.row_filter := NULL;
        END;
    END IF;
    -- Partitions may be made until the locks are there, so it looks again until none is new.
    FOR look IN 1..20 LOOP
        missing := ARRAY(SELECT d.statement FROM tube_private_owner_ddl(att) AS d WHERE is_owner OR d.rel IS NOT NULL);
        EXIT WHEN missing = '{}' OR NOT is_owner;
        PERFORM tube_private_patiently(ARRAY[format('SELECT tube_private_run_owner_ddl(%L)', missing)],
            format('%s is attached to tube %L', att.tbl, att.tube), CASE mode WHEN 'late' THEN 20 ELSE 100 END);
    END LOOP;
    IF mode = 'late' THEN
        PERFORM tube_private_store_late(att.tube, att.tbl, att.row_filter IS NULL);
    ELSE
        PERFORM tube_private_store(att, mode);
    END IF;
END
$$;

-- tube_private_run_owner_ddl: runs statements of tube_private_owner_ddl with settings by which literals mean what
-- they say.
CREATE OR REPLACE FUNCTION :"schema".tube_private_run_owner_ddl(statements text[]) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
SET datestyle = 'ISO'
SET intervalstyle = 'iso_8601'
SET quote_all_identifiers = off
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
