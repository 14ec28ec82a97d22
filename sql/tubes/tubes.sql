-- Tubes: made, changed, dropped, listed.

-- Arguments:
--   tube: its name, 1 to 57 bytes, no comma.
--   partitions: 1 to 1024. Another number than before ends every term, and waits for no writer. A NOTICE says when the
--     index for it is still to be built (see tube_index_sql).
--   predicate: which rows of attached tables belong to the tube: a condition over their columns that obeys the rules of
--     row filters. NULL keeps what there is, an empty string removes it. It is put to work on attached tables with the
--     rights of the caller, who has to own them.
--   key_type: of the ids: bigint, uuid or text. NULL means bigint for a new tube, and no change for an existing
--     tube; it can't be changed.
-- Result: nothing. Nothing is done when the tube is like that already.
-- Errors: 42501 the caller does not own an attached table, and the predicate changes; 22023 key_type; TU101 name;
--   TU103 partitions; TU105 predicate refused (the table at fault is named); 55P03 the locks could not be had. Nothing
--   was changed then.
-- Locks: until the transaction ends, the registry row FOR UPDATE, and with another number of partitions also all leader
--   rows, and the tube's table if it can be had at once. None when nothing is to be done.
CREATE OR REPLACE FUNCTION :"schema".tube_ensure_exists(
    tube text, partitions integer = 1, predicate text = NULL, key_type regtype = NULL
) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    att tube_attachment;
BEGIN
    FOR att IN SELECT w.* FROM tube_private_ensure_tube(tube, partitions, predicate, key_type) AS w LOOP
        PERFORM tube_private_bring_in_line(att, false);
    END LOOP;
    PERFORM tube_private_set_predicate(tube, predicate);
END
$$;
COMMENT ON FUNCTION :"schema".tube_ensure_exists IS
    'Creates a tube, or changes its partitions and predicate. Without partitions it gets 1, even if it has more. A '
    'NULL predicate keeps the present one, an empty string removes it. key_type is bigint, uuid or text, and can''t'
    ' be changed.';

-- tube_private_ensure_tube: tube_ensure_exists, but for another predicate of a tube that is there: it returns the attachments
-- as they are to be with it.
CREATE OR REPLACE FUNCTION :"schema".tube_private_ensure_tube(
    tube text, partitions integer, predicate text, key_type regtype
) RETURNS SETOF :"schema".tube_attachment
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
#variable_conflict use_variable
DECLARE
    reg tube_registry;
    wanted CONSTANT text := nullif(btrim(predicate, E' \t\r\n'), '');
BEGIN
    PERFORM tube_private_parse_predicate(tube, wanted);
    SELECT r.* INTO reg FROM tube_registry AS r WHERE r.tube = tube;
    PERFORM tube_private_require(tube) WHERE reg.kind <> 'tube'; -- says that it is an outbox
    PERFORM tube_private_check_tube(tube, partitions, reg.key_type, key_type);
    IF reg.tube IS NULL THEN
        IF tube_private_add_tube(tube, partitions, wanted, coalesce(key_type, 'bigint'), NULL) THEN
            RETURN;
        END IF;
        PERFORM tube_private_require(tube); -- another session made it meanwhile
    ELSIF reg.partitions = partitions AND (predicate IS NULL OR reg.predicate IS NOT DISTINCT FROM wanted) THEN
        RETURN;
    END IF;

    SELECT r.* INTO reg FROM tube_registry AS r WHERE r.tube = tube FOR UPDATE;
    IF reg.partitions <> partitions THEN
        PERFORM tube_private_repartition(tube, partitions), tube_private_provide_planned(tube);
        -- Else read by the index of before (tube_private_slices) until tube_index_fit finds it quick to build the next.
        IF NOT tube_private_fit_index(tube) THEN
            RAISE NOTICE USING MESSAGE = format('tube %L is read by its index for the partitions that it had', tube),
                HINT = format('Outside of a transaction, run what tube_index_sql(%L, %s) gives, until it gives NULL.',
                    tube, partitions);
        END IF;
    END IF;
    IF predicate IS NOT NULL AND reg.predicate IS DISTINCT FROM wanted THEN
        PERFORM tube_private_prune(tube);
        PERFORM tube_private_provide(w) FROM tube_private_attachments_with(tube, wanted) AS w;
        RETURN QUERY SELECT w.* FROM tube_private_attachments_with(tube, wanted) AS w;
    END IF;
END
$$;

-- tube_private_add_tube: makes a tube, whose arguments were checked; false when another session has made it meanwhile.
CREATE OR REPLACE FUNCTION :"schema".tube_private_add_tube(
    tube text, partitions integer, predicate text, key_type regtype, companion_of text
) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tube_registry (tube, partitions, predicate, key_type, companion_of, last_epoch)
    SELECT $1, $2, $3, $4, $5, i.last_epoch FROM tube_installation AS i
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM tube_private_make(tube), tube_private_provide_tube(tube);
    RETURN true;
END
$$;

-- tube_private_attachments_with: the attachments of a tube as they are to be with a predicate.
CREATE OR REPLACE FUNCTION :"schema".tube_private_attachments_with(tube text, predicate text)
RETURNS SETOF :"schema".tube_attachment
LANGUAGE sql AS $$
    SELECT w.* FROM tube_attachment AS a
    CROSS JOIN LATERAL jsonb_populate_record(tube_private_attachment_now(a), jsonb_build_object('row_filter', predicate)) AS w
    WHERE a.tube = $1 AND w.tube IS NOT NULL ORDER BY a.position
$$;

-- tube_private_set_predicate: gives a tube its predicate, once the owners of all its tables have agreed, as tube_private_store
-- has seen: a caller can't set one for the tables of another owner.
CREATE OR REPLACE FUNCTION :"schema".tube_private_set_predicate(tube text, predicate text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
#variable_conflict use_variable
DECLARE
    wanted CONSTANT text := nullif(btrim(predicate, E' \t\r\n'), '');
BEGIN
    PERFORM tube_private_parse_predicate(tube, wanted);
    UPDATE tube_registry AS r SET predicate = wanted, version = r.version + 1
    WHERE r.tube = tube AND r.kind = 'tube' AND predicate IS NOT NULL AND r.predicate IS DISTINCT FROM wanted;
    IF FOUND AND EXISTS (SELECT FROM tube_attachment AS a JOIN tube_private_attachments_with(tube, wanted) AS w USING (tube, tbl)
        WHERE a.row_filter IS DISTINCT FROM wanted)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('not all owners of tables of tube %L have agreed to its predicate', tube), HINT = 'Call tube_ensure_exists.';
    END IF;
END
$$;

-- tube_private_repartition: gives a tube or an outbox another number of partitions; the caller holds the registry row.
-- Every term ends; each worker starts new ones. Writers don't notice: that needs no lock on the tube's table.
CREATE OR REPLACE FUNCTION :"schema".tube_private_repartition(tube text, partitions integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tube_private_end_terms(tube, NULL, 'repartitioned');
    UPDATE tube_registry AS r SET partitions = $2,
        generation = r.generation + 1, version = r.version + 1, last_epoch = r.last_epoch + 1
    WHERE r.tube = $1;
    PERFORM tube_private_free_partitions(tube);
END
$$;

-- tube_private_check_tube: refuses a number of partitions (TU103), type of keys (22023) or name (TU101) of no tube.
-- present: the type of the tube's keys; NULL for a new tube, whose name is checked: the table, {tube}_touch and the
-- channel are named after it, and calls list tubes by commas.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_tube(
    tube text, partitions integer, present regtype, wanted regtype
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    wrong CONSTANT text := CASE WHEN present IS NULL THEN tube_private_wrong_name(tube) END;
BEGIN
    IF (partitions BETWEEN 1 AND 1024) IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = 'TU103', HINT = 'Give 1 to 1024.',
            MESSAGE = format('a tube can''t have %s partitions', coalesce(partitions::text, 'NULL'));
    ELSIF wanted NOT IN ('bigint', 'uuid', 'text') THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('the keys of tube %L can''t have the type %s', tube, wanted),
            HINT = 'Give bigint (also for tables with smaller integers), uuid or text.';
    ELSIF wanted <> present THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('the keys of tube %L have the type %s, not %s', tube, present, wanted),
            HINT = 'Make another tube for keys of another type.';
    END IF;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU101',
            MESSAGE = format('%s is not a valid tube name: %s', quote_nullable(tube), wrong),
            HINT = 'Choose a name of 1 to 57 bytes without commas, such as es-live.';
    END IF;
END
$$;

-- tube_private_wrong_name: why a new tube or outbox can't have a name; NULL when it can.
CREATE OR REPLACE FUNCTION :"schema".tube_private_wrong_name(name text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    longest CONSTANT integer := 57; -- with _touch behind it, 63
BEGIN
    RETURN CASE
        WHEN coalesce(name, '') = '' THEN 'it is empty'
        WHEN octet_length(name) > longest
            THEN format('it has %s bytes, and %s are allowed', octet_length(name), longest)
        WHEN name LIKE '%,%' THEN 'it has a comma'
        WHEN name ~ '[\u0001-\u001f\u007f-\u009f]' THEN 'it has a control character'
        WHEN starts_with(name, 'pg_') THEN 'such names belong to Postgres'
        -- Else it could wait under the name of a door to come, and get the pods of another tube's table.
        WHEN name ~ '_door_[0-9a-f]{8}_[0-9]+_[0-9]+(_[0-9])?$' THEN 'doors of attached tables have such names'
        WHEN to_regclass(tube_private_qualify(name)) IS NOT NULL
            THEN format('there is a relation of that name in the schema %I', tube_private_schema())
    END;
END
$$;

-- tube_private_make: the table of a new tube, its indexes and leader rows.
-- An update of leader_id stays within its page (fillfactor 45, no index on it: a marked row is longer by its uuid, so
-- half a page is not enough). Long arrays are stored as they are: compressing them costs five to ten times the insert.
-- The default of seq gives the transaction its id before it draws: CASE evaluates in this order, for each row, however
-- it comes. So a transaction that has drawn a seq is seen running until its pods can be seen: the settled seq rests on
-- it. (A trigger would do as well, at ten times the cost.)
CREATE OR REPLACE FUNCTION :"schema".tube_private_make(tube text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    queue CONSTANT text := tube_private_qualify(tube);
    reg CONSTANT tube_registry := tube_private_require(tube);
BEGIN
    EXECUTE format($ddl$
        CREATE TABLE %s (
            seq bigint NOT NULL DEFAULT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('tube_seq') END,
            op char NOT NULL,
            shard tube_shard NOT NULL,
            ids %s[] NOT NULL,
            payload jsonb,
            ts timestamptz NOT NULL DEFAULT clock_timestamp(),
            leader_id uuid
        ) WITH (
            fillfactor = 45,
            autovacuum_vacuum_scale_factor = 0.05,
            autovacuum_vacuum_threshold = 5000,
            autovacuum_vacuum_insert_scale_factor = 0.1,
            autovacuum_vacuum_cost_delay = 0,
            autovacuum_analyze_scale_factor = 0.1,
            autovacuum_analyze_threshold = 5000
        )$ddl$, queue, reg.key_type);
    EXECUTE format('ALTER TABLE %s ALTER ids SET STORAGE EXTERNAL', queue);
    EXECUTE format('REVOKE ALL ON %s FROM PUBLIC', queue);
    EXECUTE format('GRANT SELECT ON %s TO %I, %I', queue, tube_private_role('admin'), tube_private_role('worker'));
    -- For COPY, within a job, and for backfills. What names and orders a pod stays its default.
    EXECUTE format('GRANT INSERT (op, shard, ids, payload) ON %s TO %I, %I, %I', queue, tube_private_role('writer'),
        tube_private_role('worker'), tube_private_role('admin'));
    EXECUTE (tube_private_index(tube, reg.partitions)).ddl;
    -- Few pods are control pods; they have to be found among many.
    EXECUTE format('CREATE INDEX %I ON %s (shard) WHERE payload IS NOT NULL AND ids = ''{}''',
        tube_private_name(tube, format('_%s_control_idx', left(md5('queue ' || tube), 8))), queue);
    PERFORM tube_private_free_partitions(tube);
END
$$;

-- tube_private_make_flag: the flag of a tube or an outbox, and the row by which it is locked, where they are missing.
-- It is a sequence that shows writers whether a worker of the tube sleeps: 1 no, 2 yes. It is not part of any
-- transaction: a writer with an old snapshot sees it, too.
CREATE OR REPLACE FUNCTION :"schema".tube_private_make_flag(reg :"schema".tube_registry) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    flag CONSTANT text := tube_private_qualify('tube_sleeps_' || reg.number);
BEGIN
    INSERT INTO tube_flag (tube) VALUES (reg.tube) ON CONFLICT DO NOTHING;
    IF to_regclass(flag) IS NULL THEN
        EXECUTE format('CREATE SEQUENCE %s', flag);
        PERFORM setval(flag::regclass, CASE WHEN EXISTS (SELECT FROM tube_sleeper AS s WHERE s.tube = reg.tube)
            THEN 2 ELSE 1 END);
    END IF;
END
$$;

-- tube_private_provide_tube: makes or repairs the objects generated for a tube itself: its flag, its touch function, and the
-- functions that mark and purge.
CREATE OR REPLACE FUNCTION :"schema".tube_private_provide_tube(tube text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET quote_all_identifiers = off AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(tube);
    name CONSTANT text := tube_private_qualify(tube_private_name(tube, '_touch'));
BEGIN
    PERFORM tube_private_make_flag(reg), tube_private_provide_planned(tube);
    PERFORM tube_private_make_touch(name, format('integer, %s[], char, jsonb, integer', reg.key_type),
        format('shard integer, ids %s[], op character, payload jsonb DEFAULT NULL::jsonb, chunk_size integer DEFAULT 250', reg.key_type),
        format(E'\n-- Made by tube_private_provide_tube.\nBEGIN\n    PERFORM tube_private_touch(%L, $1, 1, $2, $3, $4, $5);\nEND\n', tube),
        ARRAY[quote_ident(tube_private_role('writer')), quote_ident(tube_private_role('admin'))]::regrole[]);
END
$$;

-- tube_private_free_partitions: makes a leader row without a leader for each partition of a tube that has none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_free_partitions(tube text) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO tube_leader (tube, partition, partitions, epoch)
    SELECT r.tube, p, r.partitions, r.last_epoch
    FROM tube_registry AS r, generate_series(0, r.partitions - 1) AS p
    WHERE r.tube = tube_private_free_partitions.tube
$$;

-- tube_ensure_absent: detaches all tables of a tube and drops it with all its pods, and its companions first. No error when
-- there is no tube.
-- Errors: 55P03 the locks could not be had.
-- Locks: until the transaction ends, the registry row and all leader rows FOR UPDATE, the attached tables and the
--   tube's table ACCESS EXCLUSIVE; the same of its companions.
CREATE OR REPLACE FUNCTION :"schema".tube_ensure_absent(in_tube text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = in_tube FOR UPDATE;
    IF FOUND THEN
        PERFORM tube_private_drop(in_tube, true);
    END IF;
END
$$;
COMMENT ON FUNCTION :"schema".tube_ensure_absent IS
    'Drops a tube with its pods and companions, and detaches its tables. Does nothing if there is no such tube.';

-- Arguments: tube; force: drops it all the same, as tube_ensure_absent does.
-- Errors: TU102 unknown tube; TU112 it is a companion, which is dropped with its tube, or by force; TU109 tables are attached to it, pods are in it, or documents parked (what a transaction has put there that
--   began later than that of a caller at REPEATABLE READ is not seen); 55P03 the locks could not be had. Nothing was
--   changed then.
-- Locks: as tube_ensure_absent; under them it looks again whether it may be dropped.
CREATE OR REPLACE FUNCTION :"schema".tube_drop(tube text, force boolean = false) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    reg tube_registry;
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_drop.tube FOR UPDATE;
    reg := tube_private_require(tube);
    IF force IS NOT TRUE THEN
        IF reg.companion_of IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'TU112',
                MESSAGE = format('tube %L is not dropped: it is a companion of tube %L, whose documents would miss changes',
                    tube, reg.companion_of),
                HINT = format('Drop tube %L, and it goes, too; or throw it away: force => true.', reg.companion_of);
        END IF;
        PERFORM tube_private_refuse_loss(t) FROM tube_companions(tube) AS t; -- before anybody's term ends, or anybody waits
        PERFORM tube_private_refuse_loss(tube);
    END IF;
    PERFORM tube_private_drop(tube, force);
END
$$;
COMMENT ON FUNCTION :"schema".tube_drop IS
    'Drops a tube without attached tables, waiting pods and parked documents; with force, any tube. Its companions '
    'go with it.';

-- tube_private_drop: what tube_ensure_absent and tube_drop do; the caller holds the registry row FOR UPDATE.
-- Of a companion that is dropped alone, a backfill is asked for where links wait: see tube_private_rescue_links. The tube's
-- greatest epoch is kept, so that a tube made again under this name continues from there; the terms that it had
-- are kept in tube_term, so that new ones wait for writes that those may still be sending.
CREATE OR REPLACE FUNCTION :"schema".tube_private_drop(tube text, force boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(tube);
    queue CONSTANT text := tube_private_qualify(tube);
BEGIN
    UPDATE tube_registry AS r SET declared = NULL WHERE r.tube = $1 AND r.declared IS NOT NULL; -- no documents to rescue
    PERFORM tube_private_drop(c.tube, force)
    FROM (SELECT r.tube FROM tube_registry AS r WHERE r.companion_of = $1 ORDER BY r.tube FOR UPDATE) AS c;
    UPDATE tube_installation AS i SET last_epoch = greatest(i.last_epoch, reg.last_epoch);
    PERFORM tube_private_end_terms(tube, NULL, 'superseded');
    PERFORM tube_private_patiently(
        ARRAY[format('SELECT tube_private_forget(%1$L, array_agg(a.tbl)) FROM tube_attachment AS a WHERE a.tube = %1$L'
            ' HAVING count(*) > 0', tube)]
        || CASE WHEN force IS NOT TRUE THEN ARRAY[format('LOCK TABLE %s', queue), format('SELECT tube_private_refuse_loss(%L)', tube)] END
        || 'SELECT tube_private_drop_former(NULL, NULL)'::text || format('DROP TABLE %s', queue), format('tube %L is dropped', tube));
    EXECUTE format('DROP FUNCTION IF EXISTS %I.%I(integer, %s[], char, jsonb, integer)',
        tube_private_schema(), tube_private_name(tube, '_touch'), reg.key_type);
    EXECUTE format('DROP FUNCTION IF EXISTS %s, %s', tube_private_qualify(tube_private_planned(tube, 'mark')),
        tube_private_qualify(tube_private_planned(tube, 'purge')));
    DELETE FROM tube_registry AS r WHERE r.tube = reg.tube;
    EXECUTE format('DROP SEQUENCE %s', tube_private_qualify('tube_sleeps_' || reg.number));
END
$$;

-- tube_private_refuse_loss: TU109 where tables are attached to a tube, pods are in it, or documents are parked; it counts
-- 10000 pods and parked documents at most.
CREATE OR REPLACE FUNCTION :"schema".tube_private_refuse_loss(tube text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    most CONSTANT integer := 10000;
    tables bigint;
    pods bigint;
    ids bigint;
    parked bigint;
BEGIN
    SELECT count(*) INTO tables FROM tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl
    WHERE a.tube = tube_private_refuse_loss.tube;
    EXECUTE format('SELECT count(*), coalesce(sum(cardinality(p.ids)), 0) FROM (SELECT q.ids FROM %s AS q LIMIT %s) AS p',
        tube_private_qualify(tube), most) INTO pods, ids;
    SELECT count(*) INTO parked
    FROM (SELECT FROM tube_parked AS k WHERE k.tube = tube_private_refuse_loss.tube LIMIT most) AS p;
    IF tables > 0 OR pods > 0 OR parked > 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'TU109',
            MESSAGE = format('tube %L is not dropped: %s', tube, concat_ws('; ',
                CASE WHEN tables > 0 THEN format('attached tables: %s', tables) END,
                CASE WHEN pods > 0 THEN format('pods that wait: %1$s%2$s; ids in them: %1$s%3$s',
                    CASE WHEN pods = most THEN 'at least ' END, pods, ids) END,
                CASE WHEN parked > 0 THEN format('parked documents: %s%s', CASE WHEN parked = most THEN 'at least ' END, parked) END)),
            HINT = 'Detach its tables, let the workers drain it, and retry or discard the parked documents; or drop everything: '
                'force => true.';
    END IF;
END
$$;

-- Arguments: in_tbl: only the attachments of this table; NULL for all.
-- Result: a row per attached table, by tube, shard and order of attachment; a tube without tables has one row with a
--   NULL tbl (unless in_tbl is given). Tables that were dropped are not listed. After the contract's columns: shards
--   (how many it is spread over), id_col, root (whether the ids of this table are the documents'), columns and replica
--   (as attached), key_type (of the tube), companion_of, key_cols (of a key of several columns, of which id_col is the
--   first), shard_by (the column that alone determines a key's shard).
CREATE OR REPLACE FUNCTION :"schema".tube_list(in_tbl regclass = NULL) RETURNS TABLE (
    tube text, predicate text, partitions integer, tbl regclass, shard integer,
    shards integer, id_col name, root boolean, columns name[], replica boolean, key_type regtype,
    companion_of text, key_cols name[], shard_by name
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    WITH present AS (
        SELECT a.*, rank() OVER (PARTITION BY a.tube, a.shard ORDER BY a.position) = 1 AS root
        FROM tube_attachment AS a WHERE EXISTS (SELECT FROM pg_class AS c WHERE c.oid = a.tbl)
    )
    SELECT r.tube, r.predicate, r.partitions, a.tbl, a.shard, a.shards, a.keys[1], a.root, a.columns, a.replica,
        r.key_type, r.companion_of, CASE WHEN cardinality(a.keys) > 1 THEN a.keys END, a.keys[a.shard_place + 1]
    FROM tube_registry AS r LEFT JOIN present AS a ON a.tube = r.tube
    WHERE r.kind = 'tube' AND (in_tbl IS NULL OR a.tbl = in_tbl)
    ORDER BY r.tube, a.shard, a.position
$$;
COMMENT ON FUNCTION :"schema".tube_list IS
    'Lists tubes and attached tables; a tube without tables has one row with a NULL tbl. key_cols and shard_by are '
    'of keys of several columns.';
