-- tube_private_store: sees that an attachment is as it is to be, and stores it; asks for what finds rows that came and went.
-- An owner consents by running all of the owner's statements: so no role can attach a table that it does not own, or
-- use another table's function, other shards, or another predicate.
-- Arguments: att; late: the attachment is to be what its table and its tube say by now.
-- Errors: 42501 an owner has to do something; if it is late, that is a WARNING.
-- Locks: the caller holds the registry row; the attachment.
CREATE OR REPLACE FUNCTION :"schema".tube_private_store(att :"schema".tube_attachment, late boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET quote_all_identifiers = off AS $$
DECLARE
    old CONSTANT tube_attachment := (SELECT a FROM tube_attachment AS a WHERE a.tube = att.tube AND a.tbl = att.tbl);
    missing record;
    is_complete boolean;
BEGIN
    PERFORM tube_private_close_capture();
    IF late THEN
        att := tube_private_attachment_now(old);
        IF att.tube IS NULL THEN
            RETURN;
        END IF;
    END IF;
    -- The rest is not the caller's to say.
    IF (old.shard, old.shards) IS DISTINCT FROM (att.shard, att.shards) THEN
        att.shard := tube_private_range(att.tube, att.tbl, att.shard, att.shards);
    END IF;
    att := tube_private_complete(att);
    PERFORM tube_private_parse_predicate(att.tube, att.row_filter);
    -- A partition may be another role's: its missing triggers are reported, and do not count as the owner's refusal.
    SELECT d.*, bool_and(late AND coalesce(d.rel <> att.tbl, false)) OVER () AS elsewhere INTO missing
    FROM tube_private_owner_ddl(att, false) WITH ORDINALITY AS d ORDER BY d.ordinality LIMIT 1;
    is_complete := coalesce(missing.elsewhere, true);
    PERFORM tube_private_ask_owner(att, missing.statement, missing.rel, late)
    WHERE missing.statement IS NOT NULL;
    IF old.tube IS NULL THEN
        INSERT INTO tube_attachment (tube, tbl, shard, keys, trigger_function)
        VALUES (att.tube, att.tbl, att.shard, att.keys, att.trigger_function);
    END IF;
    IF is_complete THEN
        UPDATE tube_attachment AS a
        SET shard = att.shard, shards = att.shards, keys = att.keys, shard_place = att.shard_place, row_filter = att.row_filter,
            columns = att.columns, replica = att.replica, touch_name = att.touch_name, seen = att.seen
        WHERE a.tube = att.tube AND a.tbl = att.tbl;
        IF (att.shard, att.shards, att.shard_place) IS DISTINCT FROM (old.shard, old.shards, old.shard_place) THEN
            UPDATE tube_attachment AS a SET position = DEFAULT WHERE a.tube = old.tube AND a.tbl = old.tbl
                AND (att.shard, att.shards) <> (old.shard, old.shards);
            PERFORM tube_private_follow_root(old);
        END IF;
        PERFORM tube_private_follow_key(old, att);
    END IF;
    PERFORM tube_private_follow_members(att);
END
$$;

-- tube_private_ask_owner: says that an owner of a table, or of a part of it, has to do something for an attachment.
-- Arguments: statement, rel: the first missing one, as of tube_private_owner_ddl.
-- Errors: 42501; where it is late, a WARNING.
CREATE OR REPLACE FUNCTION :"schema".tube_private_ask_owner(
    att :"schema".tube_attachment, statement text, rel regclass, late boolean
) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    owner CONSTANT regrole := tube_private_owner_of(att.tbl);
    its_owner CONSTANT regrole := tube_private_owner_of(coalesce(rel, att.tbl));
    message CONSTANT text := format('%s belongs to %s, who has to agree to what tube %L does with it',
        CASE its_owner WHEN owner THEN att.tbl ELSE rel END, its_owner, att.tube);
BEGIN
    IF late THEN
        RAISE WARNING USING MESSAGE = message, DETAIL = statement,
            HINT = format('Until then its writes may ask for backfills, or not be captured. Run as %s: SELECT %I.tube_sync();',
                CASE its_owner WHEN owner THEN owner::text ELSE format('a role with the rights of %s and %s', owner, its_owner) END,
                tube_private_schema());
    ELSE
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = message, DETAIL = statement,
            HINT = format('Do it as %s, or as a role that has its rights and the rights of %I.', owner, tube_private_role('admin'));
    END IF;
END
$$;

-- tube_private_follow_members: follows which partitions have come to an attached table, or left it, and stores which there are,
-- and which of them have no triggers.
-- pytube may not read them. So a table that was written to unseen, or a partition that comes, maybe with rows, asks for a
-- backfill; for rows of a detached one a sweep is enough.
-- A restored table has members with other oids, and misses none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_follow_members(att :"schema".tube_attachment) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    stored CONSTANT tube_attachment := (SELECT a FROM tube_attachment AS a WHERE a.tube = att.tube AND a.tbl = att.tbl);
    tree CONSTANT oid[] := tube_private_member_oids(att.tbl);
    known CONSTANT oid[] := CASE WHEN att.tbl::oid = ANY (stored.members) THEN stored.members ELSE tree END;
    lacking CONSTANT oid[] := ARRAY(SELECT DISTINCT t.rel::oid FROM tube_private_trigger_ddl(att) AS t
        WHERE t.statement ~ '^CREATE ' ORDER BY 1);
    come CONSTANT regclass[] := ARRAY( -- these have their triggers now, and had not before
        SELECT m.rel FROM tube_private_members(att.tbl) AS m
        WHERE m.kind <> 'f' AND m.rel::oid <> ALL (lacking) AND (m.rel::oid <> ALL (known) OR m.rel::oid = ANY (stored.waiting)));
    part regclass;
BEGIN
    FOR part IN SELECT m.rel FROM tube_private_members(att.tbl) AS m WHERE m.kind = 'f' AND m.rel::oid <> ALL (known) LOOP
        RAISE WARNING USING
            MESSAGE = format('%s, which has come to %s, is a foreign table: tube %L sees nothing that is written by its name',
                part, att.tbl, att.tube),
            HINT = 'Write to it by the name of the partitioned table, and backfill that if it has new rows.';
    END LOOP;
    SELECT c INTO part FROM unnest(come) AS c WHERE NOT tube_private_is_fresh(c) LIMIT 1;
    IF FOUND THEN
        PERFORM tube_private_ask_backfill(att, format('%s had no triggers, and may have rows', part));
    ELSIF EXISTS (SELECT FROM unnest(known) AS m (rel) LEFT JOIN pg_class AS c ON c.oid = m.rel
        WHERE coalesce(c.relkind = 'r', true) AND m.rel <> ALL (tree))
    THEN
        PERFORM tube_private_ask_backfill(att, NULL);
    END IF;
    UPDATE tube_attachment AS a SET members = tree, waiting = nullif(lacking, '{}')
    WHERE a.tube = att.tube AND a.tbl = att.tbl AND (a.members, a.waiting) IS DISTINCT FROM (tree, nullif(lacking, '{}'));
END
$$;

-- tube_private_is_fresh: whether a table has been empty since it was made: no file was cut, or put in its place; of a partitioned
-- one, all parts.
CREATE OR REPLACE FUNCTION :"schema".tube_private_is_fresh(rel oid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT coalesce(bool_and(pg_relation_size(c.oid) = 0 AND c.relfilenode = c.oid AND c.reltuples = -1), true)
    FROM tube_private_members(rel) AS m JOIN pg_class AS c ON c.oid = m.rel WHERE m.kind = 'r'
$$;

-- tube_private_member_oids: what an attachment keeps as its members, sorted; NULL when the table is gone.
CREATE OR REPLACE FUNCTION :"schema".tube_private_member_oids(tbl regclass) RETURNS oid[]
LANGUAGE sql STABLE AS $$ SELECT array_agg(m.rel::oid ORDER BY m.rel::oid) FROM tube_private_members(tbl) AS m $$;

-- tube_private_ask_backfill: asks for the backfill, or the sweep, that finds changes of an attached table that were not captured,
-- as a writer would: see tube_private_resync.
-- Arguments: why: for a WARNING; NULL: rows only went.
CREATE OR REPLACE FUNCTION :"schema".tube_private_ask_backfill(att :"schema".tube_attachment, why text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tube_private_resync(att.tube, att.trigger_function, tube_private_table_name(att.tbl), att.shard, att.shards, why IS NULL,
        (tube_private_require(att.tube)).companion_of);
    IF why IS NOT NULL THEN
        RAISE WARNING 'changes of % may be missing, so a backfill is asked for, for tube %: %', att.tbl, quote_literal(att.tube), why;
    END IF;
END
$$;

-- tube_private_forget: drops attachments, and the functions made for them; their triggers go with these. No right on the tables
-- is needed.
-- Arguments: tables: their triggers are gone, or they are gone themselves.
-- Locks: the tables ACCESS EXCLUSIVE, for the triggers; the caller holds the registry row.
CREATE OR REPLACE FUNCTION :"schema".tube_private_forget(tube text, tables regclass[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    gone tube_attachment;
BEGIN
    FOR gone IN DELETE FROM tube_attachment AS a WHERE a.tube = $1 AND a.tbl = ANY (tables) RETURNING a.* LOOP
        PERFORM tube_private_drop_routines(gone, NULL), tube_private_drop_former(right(gone.trigger_function, 8), NULL);
        PERFORM tube_private_rescue_links(gone); -- under the lock of the table: no writer puts more
        PERFORM tube_private_drop_touch(gone), tube_private_follow_root(gone);
    END LOOP;
    IF FOUND THEN
        UPDATE tube_registry AS r SET version = r.version + 1 WHERE r.tube = $1;
    END IF;
END
$$;

-- tube_private_follow_root: makes a related table the root of its shards where that is gone, with a WARNING: callers of pg-tube
-- attach a successor in the same shard first, and it looks the same as a table that was to stay related.
-- Arguments: gone: the attachment of a table that is not in these shards any more.
CREATE OR REPLACE FUNCTION :"schema".tube_private_follow_root(gone :"schema".tube_attachment) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    heir tube_attachment;
BEGIN
    SELECT a.* INTO heir FROM tube_attachment AS a
    WHERE a.tube = gone.tube AND a.shard = gone.shard AND a.tbl <> gone.tbl AND tube_private_is_root(a) AND tube_private_is_root(gone)
        AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = a.tbl);
    IF FOUND THEN
        RAISE WARNING USING
            MESSAGE = format('%s was related and is now the root table of shards %s to %s of tube %L: the root table before it is gone',
                heir.tbl, heir.shard, heir.shard + (heir.shards - 1), heir.tube),
            HINT = format('Its rows become the documents of the ids in %s; a touched id that it does not have is deleted at the sink. '
                'If that is wrong, pause the tube, detach this table, attach the root table, attach this one again, and '
                'backfill the root table.', tube_private_key_label(heir));
        PERFORM tube_private_provide(heir);
    END IF;
END
$$;

-- tube_private_prune: forgets the attached tables of a tube that were dropped; a WARNING names each.
-- The catalog no longer has the name, so this reports the table's name when it was attached.
CREATE OR REPLACE FUNCTION :"schema".tube_private_prune(tube text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    gone record;
BEGIN
    FOR gone IN
        SELECT a.*, tube_private_is_root(a) AS is_root FROM tube_attachment AS a
        WHERE a.tube = $1 AND NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = a.tbl) ORDER BY a.position
    LOOP
        RAISE WARNING USING
            MESSAGE = format('a table of tube %L was dropped, and is detached: oid %s, attached %swith shards %s to %s', tube,
                gone.tbl::oid,
                CASE WHEN starts_with(gone.trigger_function, tube || '_') -- else the name had no room
                    THEN 'as ' || regexp_replace(substr(gone.trigger_function, length(tube) + 2), '_capture_[0-9a-f]{8}$', ' ') END,
                gone.shard, gone.shard + (gone.shards - 1)),
            HINT = CASE WHEN gone.is_root
                THEN 'Its documents stay at the sink. A backfill of a table that is attached with these shards sweeps them.'
                ELSE 'Documents that show its rows stay as they are: backfill the root table of these shards.' END;
        PERFORM tube_private_forget(tube, ARRAY[gone.tbl]);
    END LOOP;
END
$$;
