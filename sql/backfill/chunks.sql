-- A backfill in chunks: its ids are collected into a table, and pods are made of them, a chunk a transaction.
--
-- Errors of functions with a backfill_id: TU122 there is none of that number; TU123 this session does not work on it:
--   see tube_backfill_lock.

-- It draws the start seq. The next steps, each in a separate transaction: wait until none of tube_backfill_holders is
-- left, tube_backfill_collect, and tube_backfill_chunk until all is inserted.
-- Arguments: tube; tbl: attached to it; order_col: the column by which the ids are ordered, NULLs last; NULL: that of
--   the ids; supersede: a backfill of the table that is under way is ended, and its pods that wait are taken back;
--   by_worker: a worker of the tube is to do the rest.
-- Result: the number of the backfill. A WARNING where there are replicas that pytube's owner may not look at.
-- Errors: TU102 unknown tube; TU108 the table is not attached, or has no such column, or one whose values have no
--   order; TU121 another backfill of the table is under way.
-- Locks: the registry row FOR KEY SHARE; as tube_backfill_tidy; with supersede, the pods that are taken back.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_create(
    tube text, tbl regclass, order_col text = NULL, supersede boolean = false, by_worker boolean = false
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '10s' AS $$
DECLARE
    att tube_attachment;
    col record;
    wrong text;
    old tube_backfill;
    result bigint;
BEGIN
    PERFORM tube_backfill_tidy();
    PERFORM FROM tube_registry AS r WHERE r.tube = $1 FOR KEY SHARE;
    att := tube_private_attachment(tube, tbl);
    -- Whether values can be sorted is for the catalogue to say: nothing of the type's owner is called.
    SELECT c.attname AS name, format_type(c.atttypid, c.atttypmod) AS type,
        t.typtype IN ('e', 'c', 'r', 'm') OR t.typcategory = 'A' OR EXISTS (
            SELECT FROM pg_opclass AS o JOIN pg_am AS m ON m.oid = o.opcmethod
            WHERE m.amname = 'btree' AND o.opcdefault AND (o.opcintype = t.oid OR EXISTS (
                SELECT FROM pg_cast AS k WHERE k.castsource = t.oid AND k.casttarget = o.opcintype
                    AND k.castmethod = 'b' AND k.castcontext = 'i'))) AS has_order
    INTO col
    FROM pg_attribute AS c JOIN pg_type AS t ON t.oid = tube_private_base_type(c.atttypid)
    WHERE c.attrelid = att.tbl AND c.attnum > 0 AND NOT c.attisdropped AND c.attname = coalesce(order_col, att.keys[1]);
    wrong := CASE
        WHEN NOT FOUND THEN format('%s has no column %L', att.tbl, coalesce(order_col, att.keys[1]))
        WHEN NOT col.has_order
            THEN format('the column %I of %s has the type %s, whose values have no order', col.name, att.tbl, col.type)
    END;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108', MESSAGE = wrong,
            HINT = 'Give another column of the table to order by, or none.';
    END IF;
    -- The lock that tube_backfill_step3 holds while it runs.
    IF NOT pg_try_advisory_xact_lock(
        hashtextextended(format('%s backfill %s', tube_private_schema(), att.tube), att.tbl::oid::bigint))
    THEN
        PERFORM tube_private_refuse_backfill(att, 'another session');
    END IF;
    SELECT b.* INTO old FROM tube_backfill AS b
    WHERE b.tube = att.tube AND b.tbl = att.tbl AND b.state IN ('waiting', 'inserting', 'delivering') FOR NO KEY UPDATE;
    IF FOUND AND supersede THEN
        PERFORM tube_private_end_backfill(old, 'superseded', NULL);
    ELSIF FOUND THEN
        PERFORM tube_private_refuse_backfill(att, format('backfill %s (%s)', old.backfill_id, old.state));
    ELSIF supersede IS NOT TRUE
        AND tube_private_control_waits(att.tube, att.shard, att.shards, '{backfill_end}', of_step3 => true)
    THEN
        PERFORM tube_private_refuse_backfill(att, 'one whose backfill_end waits in the tube');
    END IF;
    INSERT INTO tube_backfill (tube, tbl, table_name, order_col, shard, shards, root, position, by_worker, start_seq)
    VALUES (att.tube, att.tbl, att.tbl::text, col.name, att.shard, att.shards, tube_private_is_swept(att), att.position,
        coalesce(by_worker, false), nextval('tube_seq'))
    RETURNING backfill_id INTO result;
    IF EXISTS (SELECT FROM pg_stat_replication AS r WHERE r.state IS NULL) THEN
        RAISE WARNING 'backfills do not mind how far replicas are behind: % may not look at them',
            quote_ident(current_user) USING HINT = format('GRANT pg_monitor TO %I;', current_user);
    END IF;
    RETURN result;
EXCEPTION WHEN unique_violation THEN
    PERFORM tube_private_refuse_backfill(att, 'a backfill that began at the same time');
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_create IS
    'Draws the start seq, registers a backfill in chunks, and returns its id.';

-- tube_private_refuse_backfill: raises TU121: another backfill of the table, in the words of other, is under way.
CREATE OR REPLACE FUNCTION :"schema".tube_private_refuse_backfill(att :"schema".tube_attachment, other text)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'TU121',
        MESSAGE = format('%s is being backfilled for tube %L already, by %s', att.tbl, att.tube, other),
        HINT = 'Wait for it, resume it or cancel it; or have the new one end it: supersede => true.';
END
$$;

-- One statement with one snapshot, which lasts as long as reading and sorting the table does. It writes nothing to the
-- tube, so no worker waits for it, and locks the backfill at the end only, so that a pause or a cancel need not wait.
-- The ids are stored as the pods that they will be: 8 bytes a bigint, and a chunk is copied as it is. Rows without a
-- value in order_col come last. A related table names each document once.
--
-- The table is read with the rights of the caller. Where it can't be read as it is (a privilege is missing, a policy
-- would hide rows, a column is gone), the backfill fails, and its note says why.
-- Result: the number of ids; NULL when there are none, because it is paused, was ended meanwhile, or has failed. Called
--   again, it does nothing.
-- Errors: TU122, TU123; 40001 another table got the name meanwhile. Others may go away when it is tried again, too.
-- Locks: the table ACCESS SHARE; at the end, the backfill's row.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_collect(backfill_id bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET row_security = off
SET work_mem = '64MB' SET jit = off
SET standard_conforming_strings = on -- of the predicate: so was it parsed
AS $$
DECLARE
    plan CONSTANT record := tube_private_begin_collect(backfill_id);
    pods bigint;
    wrong text;
BEGIN
    IF plan.statement IS NULL THEN
        RETURN tube_private_end_collect(backfill_id, NULL, NULL);
    END IF;
    BEGIN
        EXECUTE plan.statement;
        GET DIAGNOSTICS pods = ROW_COUNT;
    EXCEPTION WHEN syntax_error_or_access_rule_violation OR data_exception OR program_limit_exceeded THEN
        wrong := SQLERRM;
    END;
    PERFORM tube_private_refuse_renamed(plan.tbl, plan.table_name);
    RETURN tube_private_end_collect(backfill_id, pods, wrong);
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_collect IS
    'Stores the ids in order, in one snapshot, with the caller''s rights; returns how many. NULL: the backfill was '
    'paused, ended, or failed meanwhile.';

-- tube_private_begin_collect: makes the table for the ids of a backfill, and the statement that fills it with the caller's
-- rights; NULL when the backfill is paused, past that, or can't continue. tbl, table_name: of the table that it reads.
CREATE OR REPLACE FUNCTION :"schema".tube_private_begin_collect(
    backfill_id bigint, OUT statement text, OUT tbl regclass, OUT table_name text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    backfill tube_backfill;
    att tube_attachment;
    key_type regtype;
    ids CONSTANT text := tube_private_qualify('tube_backfill_ids_' || backfill_id);
BEGIN
    SELECT b.* INTO backfill FROM tube_backfill AS b WHERE b.backfill_id = $1;
    IF NOT FOUND OR NOT tube_private_holds_backfill(backfill.backfill_id) THEN
        PERFORM tube_private_lock_backfill(backfill_id, held => true); -- raises TU122 or TU123
    ELSIF backfill.state <> 'waiting' OR backfill.paused OR tube_private_backfill_fault(backfill) IS NOT NULL THEN
        RETURN;
    END IF;
    att := tube_private_attachment(backfill.tube, backfill.tbl);
    key_type := tube_private_key_type(att.tube);
    EXECUTE format('CREATE TABLE %s (place bigint NOT NULL, shard integer NOT NULL, ids %s[] NOT NULL)', ids, key_type);
    -- Texts may not fit into a page, others do.
    EXECUTE format('ALTER TABLE %s ALTER ids SET STORAGE %s', ids,
        CASE key_type WHEN 'text'::regtype THEN 'EXTERNAL' ELSE 'PLAIN' END);
    EXECUTE format('REVOKE ALL ON %s FROM PUBLIC', ids);
    EXECUTE format('GRANT INSERT ON %s TO %I, %I', ids, tube_private_role('worker'), tube_private_role('admin'));
    statement := format('INSERT INTO %s (place, shard, ids) SELECT row_number() OVER (), q.shard, q.ids FROM (%s) AS q', ids,
        tube_private_backfill_sql(backfill, att, 'true'));
    tbl := att.tbl;
    table_name := att.tbl;
END
$$;

-- tube_private_end_collect: ends the collection of a backfill's ids; returns what tube_backfill_collect returns. pods:
-- how many were stored, NULL where none were to be; wrong: why the table could not be read, or NULL.
CREATE OR REPLACE FUNCTION :"schema".tube_private_end_collect(backfill_id bigint, pods bigint, wrong text)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    backfill tube_backfill;
    ids_table CONSTANT text := tube_private_qualify('tube_backfill_ids_' || backfill_id);
BEGIN
    SELECT b.* INTO backfill FROM tube_backfill AS b WHERE b.backfill_id = $1 FOR NO KEY UPDATE;
    IF NOT tube_private_holds_backfill(backfill_id) THEN
        PERFORM tube_private_lock_backfill(backfill_id, held => true); -- raises TU122 or TU123
    ELSIF backfill.state IS DISTINCT FROM 'waiting' THEN -- or its tube was dropped
        PERFORM tube_backfill_tidy();
        RETURN CASE WHEN pods IS NULL THEN backfill.rows_total END;
    END IF;
    wrong := coalesce(wrong, tube_private_backfill_fault(backfill));
    IF wrong IS NOT NULL THEN
        PERFORM tube_private_end_backfill(backfill, 'failed', wrong);
    ELSIF pods IS NOT NULL THEN -- else it is paused
        EXECUTE format('ALTER TABLE %s ADD PRIMARY KEY (place)', ids_table);
        EXECUTE format('SELECT coalesce(sum(cardinality(ids)), 0) FROM %s', ids_table) INTO backfill.rows_total;
        UPDATE tube_backfill AS b
        SET state = 'inserting', rows_total = backfill.rows_total, pods_total = pods, note = NULL,
            key_attnums = tube_private_key_attnums(a), row_filter = a.row_filter,
            collected_at = clock_timestamp(), updated_at = clock_timestamp()
        FROM tube_attachment AS a
        WHERE b.backfill_id = backfill.backfill_id AND a.tube = b.tube AND a.tbl = b.tbl;
        RETURN backfill.rows_total;
    END IF;
    RETURN NULL;
END
$$;

-- tube_private_backfill_sql: the query for a backfill's ids that meet a condition, as pods of 250, in order.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_sql(
    backfill :"schema".tube_backfill, att :"schema".tube_attachment, within text
) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT tube_private_fill($query$
        SELECT o.shard, array_agg(o.id ORDER BY o.n) AS ids
        FROM (
            SELECT r.id, r.shard, row_number() OVER (PARTITION BY r.shard ORDER BY r.by) AS n
            FROM (
                SELECT <distinct>id, <shard_of> AS shard, by
                FROM (SELECT <id> AS id, <by> AS by FROM <table> WHERE (<filter>
                    ) AND (<within>)) AS t
                WHERE id IS NOT NULL<first>) AS r) AS o
        GROUP BY o.shard, (o.n - 1) / 250 ORDER BY (o.n - 1) / 250, o.shard$query$, jsonb_build_object(
            'id', tube_private_id_sql(att),
            'by', quote_ident(backfill.order_col), 'table', att.tbl::regclass::text,
            'filter', coalesce(att.row_filter, 'true'), 'within', within,
            'shard_of', tube_private_shard_expression('id', att),
            'distinct', CASE WHEN backfill.root THEN '' ELSE 'DISTINCT ON (id) ' END,
            'first', CASE WHEN backfill.root THEN '' ELSE ' ORDER BY id, by' END))
$$;

-- The first chunk is preceded by a backfill_start of each shard, the last one followed by a backfill_end of each.
-- Arguments: backfill_id; pods: at most so many; rate: rows a second, for tube_backfill_list.
-- Result: the backfill as it is now. Nothing is inserted when it is paused, or not inserting any more.
-- Errors: TU122, TU123, the latter also where it was split.
-- Locks: the backfill's row; with the last pods, as tube_backfill_tidy.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_chunk(backfill_id bigint, pods integer, rate float8 = NULL)
RETURNS :"schema".tube_backfill
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET enable_seqscan = off AS $$
DECLARE
    backfill tube_backfill := tube_private_lock_backfill(backfill_id, held => true);
    fault text;
    touched integer[];
    inserted bigint;
    ids_inserted bigint;
    is_last boolean;
BEGIN
    IF backfill.state <> 'inserting' OR backfill.paused THEN
        RETURN backfill;
    ELSIF EXISTS (SELECT FROM tube_job AS j WHERE j.backfill_id = backfill.backfill_id) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU123',
            MESSAGE = format('backfill %s of %s is done in ranges, not in chunks', backfill_id, backfill.table_name),
            HINT = 'Continue it with `pytube spark backfill`, or cancel it.';
    END IF;
    fault := tube_private_backfill_fault(backfill);
    IF fault IS NOT NULL THEN
        PERFORM tube_private_end_backfill(backfill, 'failed', fault);
        RETURN tube_private_lock_backfill(backfill.backfill_id);
    ELSIF backfill.pods_done = 0 THEN
        PERFORM tube_private_put_control('backfill_start', backfill);
    END IF;
    EXECUTE format($sql$
        WITH put AS (
            INSERT INTO %s (op, shard, ids, payload)
            SELECT 'B', i.shard, i.ids, $3 FROM %s AS i
            WHERE i.place > $1 AND i.place <= $1 + $2 ORDER BY i.place
            RETURNING shard, cardinality(ids) AS ids)
        SELECT count(*), coalesce(sum(p.ids), 0), coalesce(array_agg(DISTINCT p.shard), '{}') FROM put AS p$sql$,
        tube_private_qualify(backfill.tube), tube_private_qualify('tube_backfill_ids_' || backfill_id))
    INTO inserted, ids_inserted, touched
    USING backfill.pods_done, pods::bigint, jsonb_build_object('backfill', backfill.backfill_id);
    PERFORM tube_private_wake_sleepers(backfill.tube, touched);
    is_last := backfill.pods_done + inserted >= backfill.pods_total;
    IF is_last THEN
        PERFORM tube_private_put_control('backfill_end', backfill);
    END IF;
    UPDATE tube_backfill AS b
    SET rows_done = b.rows_done + ids_inserted, pods_done = b.pods_done + inserted, note = NULL,
        state = CASE WHEN is_last THEN 'delivering' ELSE b.state END,
        inserted_at = CASE WHEN is_last THEN clock_timestamp() END, ends_left = CASE WHEN is_last THEN b.shards END,
        rate = $3, updated_at = clock_timestamp()
    WHERE b.backfill_id = backfill.backfill_id
    RETURNING b.* INTO backfill;
    IF is_last THEN
        PERFORM tube_backfill_tidy();
    END IF;
    RETURN backfill;
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_chunk IS
    'Inserts the next pods and moves the cursor; with the last ones, backfill_end.';

-- tube_private_lock_backfill: the row of a backfill, locked FOR NO KEY UPDATE; TU122 there is none of that number;
-- TU123 it must be held by this session, and is not.
CREATE OR REPLACE FUNCTION :"schema".tube_private_lock_backfill(backfill_id bigint, held boolean = false)
RETURNS :"schema".tube_backfill
LANGUAGE plpgsql AS $$
DECLARE
    result tube_backfill;
BEGIN
    SELECT b.* INTO result FROM tube_backfill AS b WHERE b.backfill_id = $1 FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU122',
            MESSAGE = format('there is no backfill %s', coalesce(backfill_id::text, 'NULL')),
            HINT = 'tube_backfill_list() shows all of them.';
    ELSIF held AND NOT tube_private_holds_backfill(backfill_id) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU123',
            MESSAGE = format('this session does not work on backfill %s', backfill_id),
            HINT = 'Take it first: tube_backfill_lock.';
    END IF;
    RETURN result;
END
$$;

-- tube_private_attachment: the attachment of a table; TU102 unknown tube, TU108 the table is not attached to it.
CREATE OR REPLACE FUNCTION :"schema".tube_private_attachment(tube text, tbl regclass) RETURNS :"schema".tube_attachment
LANGUAGE plpgsql AS $$
DECLARE
    att tube_attachment;
BEGIN
    PERFORM tube_private_require(tube);
    SELECT a.* INTO att FROM tube_attachment AS a WHERE a.tube = $1 AND a.tbl = $2;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108',
            MESSAGE = format('%s is not attached to tube %L', coalesce(tbl::text, 'NULL'), tube),
            HINT = 'Attach it first, so that no change is missed: tube_table_ensure_attached.';
    END IF;
    RETURN att;
END
$$;

-- tube_private_backfill_fault: why the ids of a backfill are no longer those to touch, in words; NULL when they are.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_fault(backfill :"schema".tube_backfill) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    att tube_attachment;
BEGIN
    SELECT a.* INTO att FROM tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl
    WHERE a.tube = backfill.tube AND a.tbl = backfill.tbl;
    RETURN CASE
        WHEN NOT FOUND OR (att.position, att.shard, att.shards) <> (backfill.position, backfill.shard, backfill.shards)
            THEN 'the table was detached, dropped or given other shards meanwhile'
        WHEN tube_private_is_swept(att) <> backfill.root
            THEN 'the table is another one of its shards meanwhile: root or related'
        -- Its owner can make a view of an empty table up to Postgres 15; reading it would call their functions.
        WHEN tube_private_table_fault(att.tbl) IS NOT NULL
            THEN format('the table can''t stay attached: %s', tube_private_table_fault(att.tbl))
        -- Before the ids are collected, it has neither.
        WHEN backfill.state = 'waiting' THEN NULL
        WHEN tube_private_key_attnums(att) IS DISTINCT FROM backfill.key_attnums
            THEN 'the table was attached by another column meanwhile'
        WHEN att.row_filter IS DISTINCT FROM backfill.row_filter
            THEN 'the tube got another predicate meanwhile, or a column of it changed'
    END;
END
$$;

-- tube_private_key_attnums: the numbers of the columns of an attached table's key, in order; they outlast a rename.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_attnums(att :"schema".tube_attachment) RETURNS smallint[]
LANGUAGE sql STABLE AS $$
    SELECT array_agg(a.attnum ORDER BY k.place)
    FROM tube_private_attachment_now(att) AS now,
        unnest(CASE WHEN now.tube IS NULL THEN att.keys ELSE now.keys END) WITH ORDINALITY AS k (name, place)
    JOIN pg_attribute AS a ON a.attrelid = att.tbl AND a.attname = k.name
$$;

-- tube_private_refuse_renamed: raises 40001 where a table is not called what the query that read it calls it.
-- The query may have waited for a transaction that renamed the table, and then have read another table under the name.
-- With the lock that it has since, names stay until its transaction ends.
CREATE OR REPLACE FUNCTION :"schema".tube_private_refuse_renamed(tbl regclass, table_name text) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    IF tbl::text <> table_name THEN
        RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
            MESSAGE = format('%s was renamed to %s while it was read', table_name, tbl), HINT = 'Try again.';
    END IF;
END
$$;

-- tube_private_order_column: the column to order by, given by its name or as SQL writes it ("Quoted", or FOLDED).
-- Errors: 42703 the table has no such column; 22004 it is NULL.
CREATE OR REPLACE FUNCTION :"schema".tube_private_order_column(tbl regclass, order_col text) RETURNS name
LANGUAGE plpgsql AS $$
DECLARE
    found_name name;
    written text := order_col;
BEGIN
    BEGIN
        written := (parse_ident(order_col))[1];
    EXCEPTION WHEN invalid_parameter_value THEN
        NULL; -- no identifier as SQL writes it
    END;
    SELECT a.attname INTO found_name FROM pg_attribute AS a
    WHERE a.attrelid = tbl AND a.attname IN (order_col, written) AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attname <> order_col LIMIT 1;
    IF order_col IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed',
            MESSAGE = 'there is no column to order by', HINT = 'Give the name of a column of the table.';
    ELSIF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_column',
            MESSAGE = format('%s has no column %L', tbl, order_col),
            HINT = (SELECT 'There are: ' || string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) || '.'
                FROM pg_attribute AS a WHERE a.attrelid = tbl AND a.attnum > 0 AND NOT a.attisdropped);
    END IF;
    RETURN found_name;
END
$$;
