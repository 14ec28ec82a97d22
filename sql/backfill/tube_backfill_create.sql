-- tube_backfill_create: begins a backfill in chunks; nothing is touched yet.
--
-- It draws the start seq. What follows, in transactions of its own: wait until none of
-- tube_backfill_holders is left, tube_backfill_collect, and tube_backfill_chunk until all is inserted.
--
-- Arguments:
--   tube; tbl: attached to it.
--   order_col: the column by which the ids are ordered, NULLs last; NULL: the column of the ids.
--   supersede: what is under way for the table is ended, and its pods that wait are taken back.
--   by_worker: a worker of the tube is to do the rest.
-- Result: the number of the backfill. A WARNING where there are replicas that our owner may not look at.
-- Errors: TU102 unknown tube; TU108 the table is not attached, or has no such column, or one whose values
--   have no order; TU121 another backfill of the table is under way.
-- Locks: the registry row FOR KEY SHARE; as tube_backfill_tidy; with supersede, as tube_private_backfill_end.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_create(
    tube text, tbl regclass, order_col text = NULL, supersede boolean = false, by_worker boolean = false
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '10s'
AS $$
#variable_conflict use_column
DECLARE
    att tube_attachment;
    old tube_backfill;
    col record;
    foreign_end boolean;
    result bigint;
BEGIN
    PERFORM tube_private_require(tube_backfill_create.tube);
    PERFORM tube_backfill_tidy();
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_backfill_create.tube FOR KEY SHARE;
    SELECT a.* INTO att FROM tube_attachment AS a
    WHERE a.tube = tube_backfill_create.tube AND a.tbl = tube_backfill_create.tbl;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108',
            MESSAGE = format('%s is not attached to tube %L', tube_backfill_create.tbl, tube_backfill_create.tube),
            HINT = 'Attach it first: tube_table_ensure_attached.';
    END IF;
    SELECT c.attname AS name, format_type(c.atttypid, c.atttypmod) AS type, c.atttypid AS type_oid INTO col FROM pg_attribute AS c
    WHERE c.attrelid = att.tbl AND c.attnum > 0 AND NOT c.attisdropped
        AND c.attname = coalesce(tube_backfill_create.order_col, att.id_col);
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108',
            MESSAGE = format('%s has no column %L', att.tbl, coalesce(tube_backfill_create.order_col, att.id_col)),
            HINT = 'Give a column of the table to order by, or none.';
    END IF;
    IF NOT tube_private_has_order(col.type_oid) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108',
            MESSAGE = format('the column %I of %s has the type %s, whose values have no order', col.name, att.tbl, col.type),
            HINT = 'Give another column of the table to order by, or none.';
    END IF;
    -- What tube_backfill_step3 holds while it runs.
    IF NOT pg_try_advisory_xact_lock(
        hashtextextended(format('%s backfill %s', tube_private_schema(), att.tube), att.tbl::oid::bigint))
    THEN
        PERFORM tube_private_backfill_refuse(att.tube, att.tbl, 'another session');
    END IF;
    FOR old IN
        SELECT b.* FROM tube_backfill AS b
        WHERE b.tube = att.tube AND b.tbl = att.tbl AND b.state IN ('waiting', 'inserting', 'delivering')
        FOR NO KEY UPDATE
    LOOP
        IF NOT coalesce(supersede, false) THEN
            PERFORM tube_private_backfill_refuse(old.tube, old.tbl, format('backfill %s (%s)', old.backfill_id, old.state));
        END IF;
        PERFORM tube_private_backfill_end(old, 'superseded', NULL);
    END LOOP;
    EXECUTE format('SELECT EXISTS (SELECT FROM %I.%I WHERE payload IS NOT NULL AND ids = ''{}'''
        ' AND shard BETWEEN $1 AND $2 AND payload ->> ''type'' = ''backfill_end'' AND NOT payload ? ''backfill'')',
        tube_private_schema(), att.tube) INTO foreign_end USING att.shard, att.shard + (att.shards - 1);
    IF foreign_end AND NOT coalesce(supersede, false) THEN
        PERFORM tube_private_backfill_refuse(att.tube, att.tbl, 'one whose backfill_end waits in the tube');
    END IF;
    INSERT INTO tube_backfill (tube, tbl, table_name, order_col, shard, shards, root, position, by_worker, start_seq)
    VALUES (att.tube, att.tbl, att.tbl::text, col.name, att.shard, att.shards, tube_private_is_root(att), att.position,
        coalesce(tube_backfill_create.by_worker, false), nextval('tube_seq'))
    RETURNING backfill_id INTO result;
    IF EXISTS (SELECT FROM pg_stat_replication AS r WHERE r.state IS NULL) THEN
        RAISE WARNING USING
            MESSAGE = format('backfills do not mind how far replicas are behind: %I may not look at them', current_user),
            HINT = format('GRANT pg_monitor TO %I;', current_user);
    END IF;
    RETURN result;
EXCEPTION WHEN unique_violation THEN
    PERFORM tube_private_backfill_refuse(
        tube_backfill_create.tube, tube_backfill_create.tbl, 'one that was begun at the same time');
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_create IS
    'Registers a backfill and draws its start seq; touches nothing yet.';

-- tube_private_backfill_refuse: says that a table is being backfilled already.
--
-- Arguments: tube; tbl; other: what is under way.
-- Result: never.
-- Errors: TU121.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_refuse(tube text, tbl regclass, other text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'TU121',
        MESSAGE = format('%s is being backfilled for tube %L already, by %s', tbl, tube, other),
        HINT = 'Wait for it, resume it or cancel it; or supersede it with the new one (--supersede).';
END
$$;

-- tube_private_has_order: whether values of a type can be sorted; by the catalogue, so that nothing of its owner's is called.
CREATE OR REPLACE FUNCTION :"schema".tube_private_has_order(type oid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT t.typtype IN ('e', 'c', 'r', 'm') OR t.typcategory = 'A' OR EXISTS (
        SELECT FROM pg_opclass AS o JOIN pg_am AS m ON m.oid = o.opcmethod
        WHERE m.amname = 'btree' AND o.opcdefault AND (o.opcintype = t.oid OR EXISTS (
            SELECT FROM pg_cast AS c WHERE c.castsource = t.oid AND c.casttarget = o.opcintype AND c.castmethod = 'b'
                AND c.castcontext = 'i')))
    FROM pg_type AS t WHERE t.oid = tube_private_base_type(type)
$$;
