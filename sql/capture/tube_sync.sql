-- tube_sync: follows what DDL has done to attached tables since it was last looked at.
--
-- Tables and columns that were renamed, moved or dropped; partitions that came or went; triggers that were
-- dropped; tables with another owner; a database that was restored. Workers call this twice a minute, and at once when
-- an event trigger of ours has seen DDL; a migration may do so within its transaction.
--
-- What takes an owner's rights is done with those of the caller, where they are an owner. For others, such as a worker,
-- the owner's agent puts triggers on new partitions; the rest is told in a WARNING. Until it is done nothing is lost: such a
-- table is captured by the names that its columns have now.
--
-- Result: how many attached tables were brought in line. One that could not be is told in a WARNING, and stays as it was.
-- Locks: of tables that need it, as tube_table_ensure_attached, and the registry rows of their tubes; until the
--   transaction ends.
CREATE OR REPLACE FUNCTION :"schema".tube_sync() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '5s'
AS $$
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

-- tube_private_stale_attachments: the attachments that are not as they are to be.
CREATE OR REPLACE FUNCTION :"schema".tube_private_stale_attachments() RETURNS SETOF :"schema".tube_attachment
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$ SELECT a.* FROM tube_attachment AS a WHERE tube_private_is_stale(a) ORDER BY a.tube, a.position $$;

-- tube_private_begin_sync: an attachment as it is to be now, locked, with what is ours for it; forgets one whose table can't
-- stay attached.
--
-- Result: NULL when there is none any more; a WARNING says why.
-- Locks: the registry row, and the attachment.
CREATE OR REPLACE FUNCTION :"schema".tube_private_begin_sync(tube text, tbl regclass) RETURNS :"schema".tube_attachment
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    att tube_attachment;
    wanted tube_attachment;
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_private_begin_sync.tube FOR NO KEY UPDATE;
    SELECT a.* INTO att FROM tube_attachment AS a
    WHERE a.tube = tube_private_begin_sync.tube AND a.tbl = tube_private_begin_sync.tbl FOR NO KEY UPDATE;
    wanted := tube_private_wanted(att);
    IF att.tube IS NULL OR wanted.tube IS NOT NULL THEN
        IF att.misfit = tube_private_misfit(tube_private_begin_sync.tube, tube_private_begin_sync.tbl) THEN
            wanted.row_filter := NULL; -- it was tried before
        END IF;
        PERFORM tube_private_provide(wanted) WHERE wanted.tube IS NOT NULL;
        RETURN wanted;
    END IF;
    PERFORM tube_private_forget(att.tube, ARRAY[att.tbl]);
    IF EXISTS (SELECT FROM pg_class AS c WHERE c.oid = att.tbl) THEN
        RAISE WARNING USING
            MESSAGE = format('%s is detached from tube %L: %s', att.tbl, att.tube,
                coalesce(tube_private_table_fault(att.tbl), format('its key %I was dropped, or has another type', att.id_col))),
            HINT = CASE WHEN tube_private_table_fault(att.tbl) IS NULL THEN 'Attach it again, by id_col.'
                ELSE 'Attach the partitioned table as a whole, and backfill it.' END;
    END IF;
    RETURN NULL;
END
$$;
