CREATE SCHEMA tube;

CREATE DOMAIN tube.tube_shard AS integer
	CONSTRAINT tube_shard_check CHECK ((VALUE >= 0));

CREATE FUNCTION tube.outbox_adopt(outbox text, tbl regclass, partitions integer DEFAULT 1, wake boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
DECLARE
    owner CONSTANT name := (SELECT pg_get_userbyid(c.relowner) FROM pg_class AS c WHERE c.oid = tbl);
    doing CONSTANT text := format('%s is adopted by outbox %L', tbl, outbox);
    rights record;
    statements text[];
BEGIN
    IF owner IS NOT NULL AND NOT pg_has_role(owner, 'USAGE') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('%s belongs to %I, whose rights %I does not have', tbl, owner, current_user),
            HINT = 'Its owner has to adopt it, since the worker gets rights on it.';
    END IF;
    rights := tube_private_adoption_rights(outbox, tbl);
    PERFORM tube_private_patiently(rights.statements, doing);
    statements := tube_private_adopt(outbox, tbl, partitions, wake);
    PERFORM tube_private_patiently(statements, doing) WHERE statements <> '{}';
    PERFORM tube_private_open_schema(c.relnamespace, rights.worker) FROM pg_class AS c WHERE c.oid = tbl;
END
$$;

COMMENT ON FUNCTION tube.outbox_adopt(outbox text, tbl regclass, partitions integer, wake boolean) IS 'Creates an outbox over an existing table, or changes it. wake: writers wake a sleeping worker, by a trigger.';

CREATE FUNCTION tube.outbox_drop(outbox text, force boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
DECLARE
    todo CONSTANT record := tube_private_drop_outbox(outbox, force);
BEGIN
    PERFORM tube_private_patiently(todo.needed, format('outbox %L is dropped', outbox)) WHERE todo.needed <> '{}';
    BEGIN
        PERFORM tube_private_patiently(todo.wanted, format('outbox %L is dropped', outbox)) WHERE todo.wanted <> '{}';
    EXCEPTION WHEN insufficient_privilege THEN
        RAISE WARNING USING MESSAGE = format('the table of outbox %L keeps objects that belong to its owner: %s', outbox, SQLERRM),
            HINT = 'Its owner may run: ' || array_to_string(todo.wanted, '; ') || ';';
    END;
END
$$;

COMMENT ON FUNCTION tube.outbox_drop(outbox text, force boolean) IS 'Drops an outbox without waiting records; with force, any. An adopted table stays.';

CREATE FUNCTION tube.outbox_ensure_absent(in_outbox text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
BEGIN
    PERFORM outbox_drop(l.outbox, true) FROM outbox_list() AS l WHERE l.outbox = in_outbox;
END
$$;

COMMENT ON FUNCTION tube.outbox_ensure_absent(in_outbox text) IS 'Drops an outbox with all its records, or releases an adopted table. Does nothing if there is no such outbox.';

CREATE FUNCTION tube.outbox_ensure_exists(outbox text, partitions integer DEFAULT 1, value_type regtype DEFAULT NULL::regtype) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
DECLARE
    was tube_outbox := tube_private_enter_outbox(outbox, partitions);
BEGIN
    IF coalesce(value_type, 'text') NOT IN ('text', 'bytea') THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('the values of outbox %L can''t have the type %s', outbox, value_type),
            HINT = 'Give text or bytea.';
    ELSIF value_type <> was.value_type THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('the values of outbox %L have the type %s, not %s', outbox, was.value_type, value_type),
            HINT = 'Make another outbox for values of another type.';
    ELSIF was.outbox IS NULL THEN
        PERFORM tube_private_make_outbox(outbox, coalesce(value_type, 'text'));
    END IF;
    PERFORM tube_private_repartition_outbox(outbox, partitions);
END
$$;

COMMENT ON FUNCTION tube.outbox_ensure_exists(outbox text, partitions integer, value_type regtype) IS 'Creates an outbox with its own table, or changes its partitions. Without partitions it gets 1, even if it has more. value_type is text or bytea, and can''t be changed.';

CREATE FUNCTION tube.outbox_identity(outbox text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    box CONSTANT tube_outbox := tube_private_require_outbox(outbox);
    found uuid := (SELECT i.identity FROM tube_outbox_identity AS i WHERE i.outbox = box.outbox);
BEGIN
    IF found IS NULL THEN
        INSERT INTO tube_outbox_identity AS i (outbox) VALUES (box.outbox)
        ON CONFLICT ON CONSTRAINT tube_outbox_identity_pkey DO UPDATE SET identity = i.identity
        RETURNING i.identity INTO found;
    END IF;
    RETURN box.outbox || '/' || found;
END
$$;

COMMENT ON FUNCTION tube.outbox_identity(outbox text) IS 'Returns the name of the outbox in the header pytube-outbox.';

CREATE FUNCTION tube.outbox_index_sql(outbox text, partitions integer) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(outbox, 'outbox');
BEGIN
    IF (partitions BETWEEN 1 AND 1024) IS NOT TRUE THEN
        PERFORM tube_private_enter_outbox(outbox, partitions); -- says so
    END IF;
    RETURN tube_private_next_index(reg, partitions);
END
$$;

COMMENT ON FUNCTION tube.outbox_index_sql(outbox text, partitions integer) IS 'As tube_index_sql, for an outbox; run it as the owner of the table.';

CREATE FUNCTION tube.outbox_list() RETURNS TABLE(outbox text, partitions integer, tbl regclass, value_type regtype, adopted boolean, wakes boolean)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT o.outbox, r.partitions, o.tbl, o.value_type, o.adopted, EXISTS (
        SELECT FROM pg_trigger AS t WHERE t.tgrelid = o.tbl AND t.tgfoid = 'tube_private_outbox_wake'::regproc)
    FROM tube_outbox AS o JOIN tube_registry AS r ON r.tube = o.outbox
    ORDER BY o.outbox
$$;

COMMENT ON FUNCTION tube.outbox_list() IS 'Lists outboxes and their tables. wakes: whether writers wake sleeping workers.';

CREATE FUNCTION tube.outbox_parked(in_outbox text DEFAULT NULL::text, in_limit integer DEFAULT 100) RETURNS TABLE(outbox text, id bigint, topic text, key text, error text, attempts integer, epoch bigint, hold boolean, behind boolean, parked_at timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    PERFORM tube_private_check_limit(in_limit, 0);
    RETURN QUERY
    SELECT k.outbox, k.id, k.topic, k.key, k.error, k.attempts, k.epoch, k.hold, k.behind, k.parked_at
    FROM tube_outbox_parked AS k
    WHERE in_outbox IS NULL OR k.outbox = in_outbox
    ORDER BY k.parked_at DESC, k.id DESC
    LIMIT in_limit;
END
$$;

COMMENT ON FUNCTION tube.outbox_parked(in_outbox text, in_limit integer) IS 'Lists parked records with their errors, latest first.';

CREATE FUNCTION tube.outbox_parked_drop(outbox text, ids bigint[]) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET row_security TO 'off'
    SET lock_timeout TO '5s'
    AS $_$
DECLARE
    box CONSTANT record := tube_private_lock_parked(outbox, NULL, NULL, NULL);
    gone CONSTANT bigint[] := tube_private_drop_parked(outbox, ids);
BEGIN
    EXECUTE format('DELETE FROM %s AS r WHERE r.id = ANY ($1)', box.tbl) USING gone;
    RETURN cardinality(gone);
END
$_$;

COMMENT ON FUNCTION tube.outbox_parked_drop(outbox text, ids bigint[]) IS 'Deletes parked records, which are then never sent; records behind them are. At READ COMMITTED only.';

CREATE FUNCTION tube.outbox_records_mark(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer DEFAULT 1000, floor bigint DEFAULT 0, settled_floor bigint DEFAULT NULL::bigint, long_writers xid8[] DEFAULT NULL::xid8[]) RETURNS TABLE(id bigint, create_time timestamp with time zone, kafka_topic text, kafka_key text, kafka_value bytea, kafka_header_keys text[], kafka_header_values text[], partition_key text, retried boolean, held boolean)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    SET row_security TO 'off'
    SET lock_timeout TO '250ms'
    AS $$
DECLARE
    room integer := records_limit;
    marked integer := 0;
    todo record;
BEGIN
    LOOP
        todo := tube_private_begin_mark(outbox, partitions, partition, leader_id, room, floor, cardinality(long_writers) > 0);
        EXIT WHEN todo.ids IS NULL;
        RETURN QUERY EXECUTE todo.again USING leader_id, todo.ids, outbox;
        GET DIAGNOSTICS marked = ROW_COUNT;
        -- The list also has records that the term has by now: as long as it gives as many as were asked for, there may be more.
        EXIT WHEN cardinality(todo.ids) < room OR marked = room;
        room := room - marked;
        marked := 0;
    END LOOP;
    IF marked < room THEN
        -- Ids of an adopted table may be 0 or less.
        RETURN QUERY EXECUTE todo.mark
        USING leader_id, CASE WHEN floor > 0 THEN floor ELSE (-9223372036854775808)::bigint END, outbox, room - marked,
            CASE WHEN settled_floor > 0 THEN settled_floor ELSE (-9223372036854775808)::bigint END, long_writers;
    END IF;
END
$$;

COMMENT ON FUNCTION tube.outbox_records_mark(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, floor bigint, settled_floor bigint, long_writers xid8[]) IS 'Reserves records for a term, by id; retried ones first. An adopted table has no floor: pass 0. Waits at most a quarter of a second for a lock.';

CREATE FUNCTION tube.outbox_records_mark_around(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, ids bigint[] DEFAULT '{}'::bigint[]) RETURNS TABLE(id bigint, create_time timestamp with time zone, kafka_topic text, kafka_key text, kafka_value bytea, kafka_header_keys text[], kafka_header_values text[], partition_key text, retried boolean, held boolean, locked boolean)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    SET row_security TO 'off'
    SET lock_timeout TO '1s'
    AS $_$
DECLARE
    own CONSTANT record := tube_private_begin_around(outbox, partitions, partition, leader_id);
    room integer := records_limit;
    most bigint;
    free bigint[];
    chosen record;
    barred_topics text[] := '{}';
    barred_keys text[] := '{}';
    first_locked bigint;
    marked integer;
BEGIN
    EXECUTE format('DELETE FROM %1$s AS r WHERE r.id = ANY (ARRAY(SELECT r.id FROM %1$s AS r'
        ' WHERE r.id = ANY ($2) AND r.leader_id = $1 FOR UPDATE SKIP LOCKED))', own.tbl) USING leader_id, ids;
    RETURN QUERY EXECUTE own.locked || ' AND r.leader_id = $2' USING ids, leader_id;
    WHILE room > 0 LOOP
        EXECUTE format('SELECT max(r.id) FROM %s AS r', own.tbl) INTO most;
        EXECUTE own.free INTO free USING leader_id, outbox, room, barred_topics, barred_keys;
        -- Always from the first record on, by a later snapshot: it has every row committed before one of free.
        EXECUTE own.choose INTO chosen
        USING leader_id, outbox, CASE WHEN cardinality(free) < room THEN most ELSE free[room] END, free;
        RETURN QUERY EXECUTE own.mark USING leader_id, NULL::bigint, outbox, chosen.ids;
        GET DIAGNOSTICS marked = ROW_COUNT;
        first_locked := least(first_locked, chosen.first_locked);
        EXIT WHEN cardinality(free) < room OR cardinality(chosen.ids) = room;
        room := room - marked;
        barred_topics := chosen.topics; -- at least one more: of the free and not chosen ones
        barred_keys := chosen.keys;
    END LOOP;
    RETURN QUERY EXECUTE own.locked USING ARRAY[first_locked];
END
$_$;

COMMENT ON FUNCTION tube.outbox_records_mark_around(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, ids bigint[]) IS 'Purges ids, then reserves records without waiting for locks; locked ones come as rows without content. For use after 55P03.';

CREATE FUNCTION tube.outbox_records_park(outbox text, partitions integer, partition integer, leader_id uuid, items jsonb, hold boolean DEFAULT false) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET row_security TO 'off'
    SET lock_timeout TO '250ms'
    AS $_$
DECLARE
    box CONSTANT record := tube_private_lock_parked(outbox, partitions, partition, leader_id);
    records jsonb;
    ids bigint[];
BEGIN
    IF jsonb_typeof(items) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'items is not a JSON array'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give an array of objects, one per record.';
    END IF;
    EXECUTE format('SELECT coalesce(jsonb_agg(jsonb_build_object(''id'', r.id, ''topic'', r.kafka_topic, ''key'', %s,'
        ' ''slot'', %s)), ''[]'') FROM %s AS r WHERE r.leader_id = $1 AND r.id = ANY ($2)',
        box.key, box.slot, box.tbl)
    INTO records
    USING leader_id, ARRAY(SELECT (i.item ->> 'id')::bigint FROM jsonb_array_elements(items) AS i (item));
    ids := tube_private_put_parked(outbox, partitions, partition, leader_id, items, records, hold);
    EXECUTE format('UPDATE %s AS r SET leader_id = NULL WHERE r.leader_id = $1 AND r.id = ANY ($2)', box.tbl)
    USING leader_id, ids;
    RETURN ids;
END
$_$;

COMMENT ON FUNCTION tube.outbox_records_park(outbox text, partitions integer, partition integer, leader_id uuid, items jsonb, hold boolean) IS 'Parks records of the term: objects with id, error, attempts and behind. hold: they hold their keys.';

CREATE FUNCTION tube.outbox_records_park_topic(outbox text, partitions integer, partition integer, leader_id uuid, topic text, error text, ids bigint[], hold boolean DEFAULT false, records_limit integer DEFAULT 10000) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET row_security TO 'off'
    SET lock_timeout TO '1s'
    AS $_$
DECLARE
    box CONSTANT record := tube_private_lock_parked(outbox, partitions, partition, leader_id);
    part CONSTANT text := (tube_private_begin_change(outbox, partitions, partition, leader_id, '{}')).part;
    items jsonb;
BEGIN
    EXECUTE format('WITH free AS (UPDATE %1$s AS r SET leader_id = $1 WHERE r.id = ANY (ARRAY('
        'SELECT r.id FROM %1$s AS r WHERE %2$s AND r.kafka_topic = $2 AND'
        ' (r.leader_id IS DISTINCT FROM $1 OR r.id = ANY ($6)) AND NOT EXISTS ('
        'SELECT FROM tube_outbox_parked AS k WHERE k.outbox = $4 AND k.id = r.id) ORDER BY r.id LIMIT $3'
        ' FOR NO KEY UPDATE SKIP LOCKED)) RETURNING r.id)'
        ' SELECT coalesce(jsonb_agg(jsonb_build_object(''id'', f.id, ''error'', $5::text, ''attempts'', 0)), ''[]'') FROM free AS f',
        box.tbl, part)
    INTO items USING leader_id, topic, records_limit, outbox, error, ids;
    RETURN outbox_records_park(outbox, partitions, partition, leader_id, items, hold);
END
$_$;

COMMENT ON FUNCTION tube.outbox_records_park_topic(outbox text, partitions integer, partition integer, leader_id uuid, topic text, error text, ids bigint[], hold boolean, records_limit integer) IS 'Parks records of a topic in a term''s partition. Call it until it returns fewer than records_limit.';

CREATE FUNCTION tube.outbox_records_purge(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    SET row_security TO 'off'
    SET lock_timeout TO '250ms'
    AS $$
DECLARE
    own CONSTANT record := tube_private_begin_change(outbox, partitions, partition, leader_id, coalesce(ids, '{}'));
    purged integer;
BEGIN
    EXECUTE format('DELETE FROM %s WHERE %s', own.tbl, own.condition) USING leader_id, ids;
    GET DIAGNOSTICS purged = ROW_COUNT;
    RETURN purged;
END
$$;

COMMENT ON FUNCTION tube.outbox_records_purge(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[]) IS 'Deletes sent records of the term. Waits at most a quarter of a second for a lock.';

CREATE FUNCTION tube.outbox_records_purge_sent(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[], created_until timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET jit TO 'off'
    SET row_security TO 'off'
    SET lock_timeout TO '250ms'
    AS $_$
DECLARE
    own CONSTANT record := tube_private_begin_change(outbox, partitions, partition, leader_id, coalesce(ids, '{}'));
    purged integer;
BEGIN
    EXECUTE format('DELETE FROM %s WHERE r.id = ANY ((SELECT $1)::bigint[]) AND r.create_time <= $2 AND %s', own.tbl, own.part)
    USING ids, created_until;
    GET DIAGNOSTICS purged = ROW_COUNT;
    RETURN purged;
END
$_$;

COMMENT ON FUNCTION tube.outbox_records_purge_sent(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[], created_until timestamp with time zone) IS 'Deletes records of the partition that an earlier term has sent, written until created_until.';

CREATE FUNCTION tube.outbox_records_reset(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[] DEFAULT NULL::bigint[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    SET row_security TO 'off'
    AS $_$
DECLARE
    own CONSTANT record := tube_private_begin_change(outbox, partitions, partition, leader_id, ids);
    changed integer;
BEGIN
    EXECUTE format('UPDATE %1$s SET leader_id = NULL WHERE r.id = ANY (ARRAY('
        'SELECT r.id FROM %1$s WHERE %2$s FOR NO KEY UPDATE SKIP LOCKED))', own.tbl, own.condition) USING leader_id, ids;
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN changed;
END
$_$;

COMMENT ON FUNCTION tube.outbox_records_reset(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[]) IS 'Returns records of the term to the queue; NULL: all of them. Skips locked ones.';

CREATE FUNCTION tube.outbox_resting(in_outbox text DEFAULT NULL::text) RETURNS TABLE(outbox text, partition integer, topic text, reason text, records bigint, since timestamp with time zone, next_at timestamp with time zone, park boolean)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT l.tube, l.partition, t.topic, t.reason, t.records, t.since, t.next_at, t.park
    FROM tube_outbox_resting AS t JOIN tube_leader AS l ON l.leader_id = t.leader_id
    WHERE (in_outbox IS NULL OR l.tube = in_outbox)
        AND l.renewed_at + coalesce(l.lease, l.hold) > clock_timestamp()
    ORDER BY l.tube, l.partition, t.topic
$$;

COMMENT ON FUNCTION tube.outbox_resting(in_outbox text) IS 'Lists topics that accept no records now: why, since when, and the next try.';

CREATE FUNCTION tube.outbox_retry(outbox text, ids bigint[] DEFAULT NULL::bigint[], topic text DEFAULT NULL::text, key text DEFAULT NULL::text, in_seen pg_snapshot DEFAULT NULL::pg_snapshot, in_limit integer DEFAULT 10000) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    retried bigint;
BEGIN
    PERFORM tube_private_check_limit(in_limit);
    PERFORM tube_private_lock_parked(outbox_retry.outbox, NULL, NULL, NULL);
    retried := tube_private_free_parked(outbox_retry.outbox, tube_private_choose_parked(
        outbox_retry.outbox, ids, outbox_retry.topic, outbox_retry.key, in_seen, in_limit));
    IF retried > 0 THEN
        PERFORM tube_audit_add('outbox parked retry', outbox_retry.outbox, jsonb_strip_nulls(jsonb_build_object(
            'topic', left(outbox_retry.topic, 100), 'key', left(outbox_retry.key, 100),
            'ids', CASE WHEN ids IS NOT NULL THEN tube_private_some_keys(ids::text[]) END, 'count', retried)));
    END IF;
    RETURN retried;
END
$$;

COMMENT ON FUNCTION tube.outbox_retry(outbox text, ids bigint[], topic text, key text, in_seen pg_snapshot, in_limit integer) IS 'Has parked records sent again: all, or those with these ids, topic or key; of a held key all, in order. At READ COMMITTED only.';

CREATE FUNCTION tube.outbox_stash(outbox text, topic text, key text, value bytea, headers jsonb DEFAULT '{}'::jsonb, partition_key text DEFAULT NULL::text, in_order boolean DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    RETURN tube_private_stash_one(outbox, topic, key, value, headers, partition_key, in_order);
END
$$;

COMMENT ON FUNCTION tube.outbox_stash(outbox text, topic text, key text, value bytea, headers jsonb, partition_key text, in_order boolean) IS 'Puts a message into an outbox, in the caller''s transaction; value is text or bytea. Returns its id. headers is an object, or an array of pairs. partition_key replaces key for order and partition. in_order: transactions with messages of one key wait for each other.';

CREATE FUNCTION tube.outbox_stash(outbox text, topic text, key text, value text, headers jsonb DEFAULT '{}'::jsonb, partition_key text DEFAULT NULL::text, in_order boolean DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    RETURN tube_private_stash_one(outbox, topic, key, value, headers, partition_key, in_order);
END
$$;

COMMENT ON FUNCTION tube.outbox_stash(outbox text, topic text, key text, value text, headers jsonb, partition_key text, in_order boolean) IS 'Puts a message into an outbox, in the caller''s transaction; value is text or bytea. Returns its id. headers is an object, or an array of pairs. partition_key replaces key for order and partition. in_order: transactions with messages of one key wait for each other.';

CREATE FUNCTION tube.outbox_stash_many(outbox text, topics text[], keys text[], bodies text[], headers jsonb DEFAULT NULL::jsonb, partition_keys text[] DEFAULT NULL::text[], in_order boolean DEFAULT false) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    RETURN tube_private_stash(outbox, topics, keys, bodies, headers, partition_keys, in_order);
END
$$;

COMMENT ON FUNCTION tube.outbox_stash_many(outbox text, topics text[], keys text[], bodies text[], headers jsonb, partition_keys text[], in_order boolean) IS 'Puts many messages into an outbox in one statement; arrays of the same length. Returns the ids.';

CREATE FUNCTION tube.outbox_stash_many_bytea(outbox text, topics text[], keys text[], bodies bytea[], headers jsonb DEFAULT NULL::jsonb, partition_keys text[] DEFAULT NULL::text[], in_order boolean DEFAULT false) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    RETURN tube_private_stash(outbox, topics, keys, bodies, headers, partition_keys, in_order);
END
$$;

COMMENT ON FUNCTION tube.outbox_stash_many_bytea(outbox text, topics text[], keys text[], bodies bytea[], headers jsonb, partition_keys text[], in_order boolean) IS 'As outbox_stash_many, for binary values.';

CREATE FUNCTION tube.outbox_stats() RETURNS TABLE(outbox text, partition integer, count text, min_id bigint, max_id bigint, min_create_time timestamp with time zone, parked text, problem text)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    SET row_security TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    box record;
    part record;
BEGIN
    FOR box IN SELECT l.outbox, l.partitions, l.tbl, l.adopted FROM outbox_list() AS l LOOP
        FOR part IN SELECT p.partition, p.parked, p.records FROM tube_private_outbox_parts(box.outbox) AS p LOOP
            outbox := box.outbox;
            partition := part.partition;
            parked := part.parked;
            problem := NULL;
            BEGIN
                SELECT s.* INTO count, min_id, max_id, min_create_time FROM tube_private_outbox_figures(part.records, box.outbox) AS s;
            EXCEPTION WHEN insufficient_privilege OR undefined_table OR undefined_column OR syntax_error THEN
                count := NULL;
                problem := SQLERRM;
            END;
            IF problem IS NOT NULL THEN
                min_id := NULL;
                max_id := NULL;
                min_create_time := NULL;
            END IF;
            RETURN NEXT;
        END LOOP;
    END LOOP;
END
$$;

COMMENT ON FUNCTION tube.outbox_stats() IS 'Returns the backlog of each partition, without parked records; problem: why this role can''t read it.';

CREATE FUNCTION tube.outbox_topic_park(outbox text, topic text) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    box CONSTANT tube_outbox := tube_private_require_outbox(outbox);
    asked integer;
BEGIN
    UPDATE tube_outbox_resting AS t SET park = true
    FROM tube_leader AS l
    WHERE l.tube = box.outbox AND t.leader_id = l.leader_id AND t.topic = outbox_topic_park.topic;
    GET DIAGNOSTICS asked = ROW_COUNT;
    IF asked > 0 THEN
        PERFORM tube_audit_add('outbox park', box.outbox, jsonb_build_object('topic', topic, 'partitions', asked));
    END IF;
    RETURN asked;
END
$$;

COMMENT ON FUNCTION tube.outbox_topic_park(outbox text, topic text) IS 'Has leaders park the records of a resting topic; returns in how many partitions it rests.';

CREATE FUNCTION tube.outbox_topics_rest(outbox text, partitions integer, partition integer, leader_id uuid, topics jsonb) RETURNS SETOF text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    PERFORM tube_private_outbox_fence(outbox, partitions, partition, leader_id);
    DELETE FROM tube_outbox_resting AS t
    WHERE t.leader_id = outbox_topics_rest.leader_id
        AND t.topic NOT IN (SELECT g.one ->> 'topic' FROM jsonb_array_elements(topics) AS g (one));
    RETURN QUERY
    INSERT INTO tube_outbox_resting AS t (leader_id, topic, reason, records, since, next_at)
    SELECT outbox_topics_rest.leader_id, g.topic, g.reason, g.records, clock_timestamp() - g.seconds * interval '1 second',
        clock_timestamp() + g."left" * interval '1 second'
    FROM jsonb_to_recordset(topics) AS g (topic text, reason text, records bigint, seconds float8, "left" float8)
    ORDER BY g.topic
    ON CONFLICT ON CONSTRAINT tube_outbox_resting_pkey DO UPDATE
    SET reason = excluded.reason, records = excluded.records, since = excluded.since, next_at = excluded.next_at
    RETURNING CASE WHEN t.park THEN t.topic END;
END
$$;

COMMENT ON FUNCTION tube.outbox_topics_rest(outbox text, partitions integer, partition integer, leader_id uuid, topics jsonb) IS 'Reports resting topics of a term; returns those whose records an operator wants parked.';

CREATE FUNCTION tube.tube_applied() RETURNS TABLE(tube text, kind text, declared text, applied text, made boolean, tbl regclass, attached boolean)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT r.tube, r.kind, r.declared, r.applied, r.made, a.tbl, a.made
    FROM tube_registry AS r
    LEFT JOIN (tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl) ON a.tube = r.tube
    ORDER BY r.tube, a.position
$$;

COMMENT ON FUNCTION tube.tube_applied() IS 'Lists these records: a row per attached table, and one with a NULL tbl for an outbox or a tube without tables.';

CREATE FUNCTION tube.tube_applied_attached(tube text, tbl regclass) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
BEGIN
    PERFORM tube_private_require(tube);
    UPDATE tube_attachment AS a SET made = true
    WHERE a.tube = tube_applied_attached.tube AND a.tbl = tube_applied_attached.tbl;
END
$$;

COMMENT ON FUNCTION tube.tube_applied_attached(tube text, tbl regclass) IS 'Records that a table was attached because a file declares it.';

CREATE FUNCTION tube.tube_applied_set(tube text, digest text, made boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
BEGIN
    IF (tube_private_require(tube, 'any')).companion_of IS NOT NULL THEN
        PERFORM tube_private_require_main(tube); -- says whose
    END IF;
    UPDATE tube_registry AS r
    SET applied = digest, made = digest IS NOT NULL AND (r.made OR tube_applied_set.made IS TRUE)
    WHERE r.tube = tube_applied_set.tube;
    UPDATE tube_attachment AS a SET made = false WHERE a.tube = tube_applied_set.tube AND a.made AND digest IS NULL;
END
$$;

COMMENT ON FUNCTION tube.tube_applied_set(tube text, digest text, made boolean) IS 'Records that a tube or outbox matches its declaration in a file; made: the caller has just created it. A NULL digest: no file declares it any longer.';

CREATE FUNCTION tube.tube_as_caller(in_search_path text, first text, statement text) RETURNS SETOF bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    -- Until this function ends. Nothing below is looked up by name but by the statements themselves.
    PERFORM set_config('search_path', in_search_path, true);
    IF first IS NOT NULL THEN
        EXECUTE first;
    END IF;
    RETURN QUERY EXECUTE statement;
END
$$;

COMMENT ON FUNCTION tube.tube_as_caller(in_search_path text, first text, statement text) IS 'For tube_pods_insert: runs a statement with the caller''s rights and search_path.';

CREATE FUNCTION tube.tube_attempts_reset(tube text, in_partition integer DEFAULT NULL::integer, in_shard integer DEFAULT NULL::integer, in_key text DEFAULT NULL::text) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_check_pods(tube, in_partition, NULL, NULL, in_shard, in_key, 1);
    of_key CONSTANT text := tube_private_kept_key(reg, in_key);
    gone integer;
BEGIN
    DELETE FROM tube_attempt AS a
    WHERE a.tube = reg.tube AND (in_partition IS NULL OR a.shard % reg.partitions = in_partition)
        AND a.shard = coalesce(in_shard, a.shard) AND a.id = coalesce(of_key, a.id);
    GET DIAGNOSTICS gone = ROW_COUNT;
    IF gone > 0 THEN
        PERFORM tube_audit_add('pods reset', reg.tube, jsonb_strip_nulls(jsonb_build_object(
            'partition', in_partition, 'shard', in_shard, 'key', left(in_key, 100), 'keys', gone)));
    END IF;
    RETURN gone;
END
$$;

COMMENT ON FUNCTION tube.tube_attempts_reset(tube text, in_partition integer, in_shard integer, in_key text) IS 'Deletes failures of keys that will be retried; returns the number of keys.';

CREATE FUNCTION tube.tube_audit_add(action text, tube text DEFAULT NULL::text, details jsonb DEFAULT '{}'::jsonb) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    number bigint;
BEGIN
    IF action IS NULL OR length(action) NOT BETWEEN 1 AND 100 THEN
        RAISE EXCEPTION 'the action is %', quote_nullable(left(action, 100))
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give a word or two, at most 100 characters.';
    ELSIF jsonb_typeof(details) IS DISTINCT FROM 'object' OR octet_length(details::text) > 8192 THEN
        RAISE EXCEPTION 'the details are not a JSON object of at most 8192 bytes'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give filters, counts and the first keys.';
    END IF;
    INSERT INTO tube_audit AS a (client, action, tube, details)
    VALUES (nullif(current_setting('application_name'), ''), tube_audit_add.action, tube_audit_add.tube,
        tube_audit_add.details)
    RETURNING a.audit_id INTO number;
    RETURN number;
END
$$;

COMMENT ON FUNCTION tube.tube_audit_add(action text, tube text, details jsonb) IS 'Adds an action of your program to the audit. Pass no document and no secret.';

CREATE FUNCTION tube.tube_audit_list(in_tube text DEFAULT NULL::text, in_limit integer DEFAULT 100) RETURNS TABLE(audit_id bigint, done_at timestamp with time zone, done_by name, client text, action text, tube text, details jsonb)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    PERFORM tube_private_check_limit(in_limit, 0);
    RETURN QUERY
    SELECT a.audit_id, a.done_at, a.done_by, a.client, a.action, a.tube, a.details
    FROM tube_audit AS a
    WHERE in_tube IS NULL OR a.tube = in_tube
    ORDER BY a.audit_id DESC
    LIMIT in_limit;
END
$$;

COMMENT ON FUNCTION tube.tube_audit_list(in_tube text, in_limit integer) IS 'Lists operators'' actions, latest first.';

CREATE TABLE tube.tube_backfill (
    backfill_id bigint NOT NULL,
    tube text NOT NULL,
    tbl regclass NOT NULL,
    table_name text NOT NULL,
    order_col name NOT NULL,
    shard integer NOT NULL,
    shards integer NOT NULL,
    root boolean NOT NULL,
    by_worker boolean NOT NULL,
    start_seq bigint NOT NULL,
    "position" bigint NOT NULL,
    key_attnums smallint[],
    row_filter text,
    state text DEFAULT 'waiting'::text NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    rows_total bigint,
    rows_done bigint DEFAULT 0 NOT NULL,
    pods_total bigint,
    pods_done bigint DEFAULT 0 NOT NULL,
    ends_left integer,
    rate double precision,
    note text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    collected_at timestamp with time zone,
    inserted_at timestamp with time zone,
    ended_at timestamp with time zone,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT tube_backfill_state_check CHECK ((state = ANY (ARRAY['waiting'::text, 'inserting'::text, 'delivering'::text, 'finished'::text, 'cancelled'::text, 'superseded'::text, 'failed'::text])))
)
WITH (fillfactor='50');

CREATE FUNCTION tube.tube_backfill_chunk(backfill_id bigint, pods integer, rate double precision DEFAULT NULL::double precision) RETURNS tube.tube_backfill
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $_$
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
$_$;

COMMENT ON FUNCTION tube.tube_backfill_chunk(backfill_id bigint, pods integer, rate double precision) IS 'Inserts the next pods and moves the cursor; with the last ones, backfill_end.';

CREATE FUNCTION tube.tube_backfill_collect(backfill_id bigint) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET row_security TO 'off'
    SET work_mem TO '64MB'
    SET jit TO 'off'
    SET cursor_tuple_fraction TO '1'
    SET standard_conforming_strings TO 'on'
    AS $$
DECLARE
    plan CONSTANT record := tube_private_begin_collect(backfill_id);
    pod record;
    places bigint := 0;
    wrong text;
BEGIN
    IF plan.query IS NULL THEN
        RETURN tube_private_end_collect(backfill_id, NULL, NULL);
    END IF;
    BEGIN
        FOR pod IN EXECUTE plan.query LOOP
            places := places + 1;
            PERFORM tube_private_store_pod(backfill_id, places, pod.shard, pod.ids);
        END LOOP;
    EXCEPTION WHEN syntax_error_or_access_rule_violation OR data_exception OR program_limit_exceeded THEN
        IF SQLSTATE LIKE 'TU%' THEN
            RAISE;
        END IF;
        wrong := SQLERRM;
    END;
    PERFORM tube_private_refuse_renamed(plan.tbl, plan.table_name);
    RETURN tube_private_end_collect(backfill_id, places, wrong);
END
$$;

COMMENT ON FUNCTION tube.tube_backfill_collect(backfill_id bigint) IS 'Stores the ids in order, in one snapshot, with the caller''s rights; returns how many. NULL: the backfill was paused, ended, or failed meanwhile.';

CREATE FUNCTION tube.tube_backfill_command(backfill_id bigint, command text) RETURNS tube.tube_backfill
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    backfill tube_backfill := tube_private_lock_backfill(backfill_id);
BEGIN
    IF command IS NULL OR command NOT IN ('pause', 'resume', 'cancel') THEN
        RAISE EXCEPTION 'there is no command %', quote_nullable(command)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is pause, resume or cancel.';
    ELSIF backfill.state IN ('finished', 'cancelled', 'superseded', 'failed')
        OR (command = 'pause' AND backfill.state = 'delivering')
    THEN
        RAISE EXCEPTION USING ERRCODE = 'TU124',
            MESSAGE = format('backfill %s of %s is %s', backfill.backfill_id, backfill.table_name, backfill.state),
            HINT = CASE backfill.state WHEN 'delivering'
                THEN 'All its pods are in the tube; it can be cancelled.' ELSE 'Begin a new one.' END;
    ELSIF command = 'cancel' THEN
        PERFORM tube_private_end_backfill(backfill, 'cancelled', NULL);
    ELSE
        UPDATE tube_backfill AS b SET paused = (command = 'pause'), updated_at = clock_timestamp()
        WHERE b.backfill_id = backfill.backfill_id;
    END IF;
    RETURN tube_private_lock_backfill(backfill.backfill_id);
END
$$;

COMMENT ON FUNCTION tube.tube_backfill_command(backfill_id bigint, command text) IS 'Takes the command pause, resume or cancel, at any time.';

CREATE FUNCTION tube.tube_backfill_create(tube text, tbl regclass, order_col text DEFAULT NULL::text, supersede boolean DEFAULT false, by_worker boolean DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '10s'
    AS $_$
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
    WHERE c.attrelid = att.tbl AND c.attnum > 0 AND NOT c.attisdropped AND c.attname = coalesce(order_col, att.id_col);
    wrong := CASE
        WHEN NOT FOUND THEN format('%s has no column %L', att.tbl, coalesce(order_col, att.id_col))
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
$_$;

COMMENT ON FUNCTION tube.tube_backfill_create(tube text, tbl regclass, order_col text, supersede boolean, by_worker boolean) IS 'Draws the start seq, registers a backfill in chunks, and returns its id.';

CREATE FUNCTION tube.tube_backfill_holders(xids text[] DEFAULT NULL::text[]) RETURNS TABLE(xid text, holder text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    -- Subtransactions, too, have a lock on their xid.
    running CONSTANT xid[] := ARRAY(
        SELECT k.transactionid FROM pg_locks AS k
        WHERE k.locktype = 'transactionid' AND k.granted AND k.mode = 'ExclusiveLock'
            AND k.pid IS DISTINCT FROM pg_backend_pid());
    asked_at CONSTANT timestamptz := clock_timestamp();
BEGIN
    PERFORM pg_stat_clear_snapshot(); -- else pg_stat_activity is as at its first use in this transaction
    RETURN QUERY
    SELECT r.x::text, CASE
        WHEN a.pid IS NOT NULL THEN format('pid %s of user %s, application %s%s', a.pid, coalesce(a.usename, '(none)'),
            coalesce(quote_literal(nullif(a.application_name, '')), '(none)'),
            coalesce(', open for ' || date_trunc('second', asked_at - a.xact_start), ''))
        WHEN p.gid IS NOT NULL THEN format('prepared transaction %L of user %s, open for %s', p.gid, p.owner,
            date_trunc('second', asked_at - p.prepared))
        ELSE 'a transaction that could not be found'
    END
    FROM unnest(running) AS r (x)
    LEFT JOIN pg_locks AS k ON k.locktype = 'transactionid' AND k.transactionid = r.x AND k.mode = 'ExclusiveLock'
        AND k.granted
    LEFT JOIN pg_stat_activity AS a ON a.pid = k.pid
    LEFT JOIN pg_prepared_xacts AS p ON p.transaction = r.x
    -- A transaction whose database is not known may be of this one.
    WHERE coalesce(a.datname, p.database, current_database()) = current_database()
        AND (xids IS NULL OR r.x::text = ANY (xids))
    ORDER BY coalesce(a.xact_start, p.prepared);
END
$$;

COMMENT ON FUNCTION tube.tube_backfill_holders(xids text[]) IS 'Lists open transactions that have an xid. Collect once the ones that ran after create are over.';

CREATE FUNCTION tube.tube_backfill_join(backfill_id bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    -- The job before the backfill, as tube_backfill_range takes them.
    job tube_job := tube_private_lock_job('backfill ' || backfill_id, true, of_backfill => true);
    backfill tube_backfill := tube_private_lock_backfill(backfill_id, held => true);
BEGIN
    IF job.state = 'done' THEN
        RETURN true;
    END IF;
    PERFORM tube_private_inserting_attachment(backfill);
    IF job.units > (SELECT count(*) FROM tube_job_unit AS u WHERE u.job_id = job.job_id) THEN
        RETURN false;
    END IF;
    PERFORM tube_private_put_control('backfill_end', backfill);
    PERFORM tube_private_end_job(job);
    UPDATE tube_backfill AS b
    SET state = 'delivering', rows_total = b.rows_done, ends_left = b.shards, note = NULL,
        inserted_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE b.backfill_id = backfill.backfill_id;
    RETURN true;
END
$$;

COMMENT ON FUNCTION tube.tube_backfill_join(backfill_id bigint) IS 'Inserts backfill_end once all ranges are inserted; false if some are missing.';

CREATE FUNCTION tube.tube_backfill_list(in_tube text DEFAULT NULL::text) RETURNS TABLE(backfill_id bigint, tube text, tbl text, order_col text, state text, paused boolean, rows_done bigint, rows_total bigint, rate double precision, seconds_left double precision, note text, pid integer, by_worker boolean, start_seq bigint, shards_left integer, created_at timestamp with time zone, ended_at timestamp with time zone, relation regclass)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    -- pg_locks stops the lock manager for a moment: it is read once, however many are under way.
    WITH held AS MATERIALIZED (
        SELECT l.pid, l.classid::bigint << 32 | l.objid::bigint AS key FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
            AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
    SELECT b.backfill_id, b.tube, b.table_name, b.order_col, b.state, b.paused, b.rows_done, b.rows_total,
        b.rate, CASE WHEN b.state = 'inserting' THEN (b.rows_total - b.rows_done) / nullif(b.rate, 0) END,
        b.note, h.pid, b.by_worker, b.start_seq, b.ends_left, b.created_at, b.ended_at, b.tbl
    FROM tube_backfill AS b
    LEFT JOIN held AS h ON h.key = tube_private_backfill_key(b.backfill_id) AND b.state IN ('waiting', 'inserting')
    WHERE in_tube IS NULL OR b.tube = in_tube ORDER BY b.backfill_id DESC
$$;

COMMENT ON FUNCTION tube.tube_backfill_list(in_tube text) IS 'Lists backfills, newest first. rows_done counts rows inserted into the tube.';

CREATE FUNCTION tube.tube_backfill_lock(backfill_id bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
BEGIN
    IF NOT EXISTS (SELECT FROM tube_backfill AS b WHERE b.backfill_id = $1) THEN
        PERFORM tube_private_lock_backfill(backfill_id); -- raises TU122
    END IF;
    RETURN tube_private_holds_backfill(backfill_id) OR pg_try_advisory_lock(tube_private_backfill_key(backfill_id));
END
$_$;

COMMENT ON FUNCTION tube.tube_backfill_lock(backfill_id bigint) IS 'Acquires the right to work on a backfill, until the session ends.';

CREATE FUNCTION tube.tube_backfill_note(backfill_id bigint, note text) RETURNS tube.tube_backfill
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    backfill tube_backfill := tube_private_lock_backfill(backfill_id, held => true);
BEGIN
    IF backfill.note IS DISTINCT FROM note THEN
        UPDATE tube_backfill AS b SET note = $2, updated_at = clock_timestamp()
        WHERE b.backfill_id = backfill.backfill_id RETURNING b.* INTO backfill;
    END IF;
    RETURN backfill;
END
$_$;

COMMENT ON FUNCTION tube.tube_backfill_note(backfill_id bigint, note text) IS 'Records why a backfill waits.';

CREATE FUNCTION tube.tube_backfill_pressure(tube text, pods_limit integer) RETURNS TABLE(waiting bigint, replica text, replica_lag double precision, replica_behind bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $_$
DECLARE
    reg tube_registry := tube_private_require(tube);
    counted bigint;
    pods bigint := 0;
BEGIN
    FOR part IN 0 .. reg.partitions - 1 LOOP
        EXIT WHEN pods > pods_limit;
        EXECUTE format('SELECT count(*) FROM (SELECT FROM %s WHERE %s AND (CASE WHEN op = ''B'' THEN 1 ELSE 0 END) = 1'
            ' AND payload ->> ''type'' IS NULL LIMIT $1) AS first_ones',
            tube_private_qualify(reg.tube), (tube_private_slices(reg.tube, reg.partitions, part)).pods)
        INTO counted USING pods_limit + 1 - pods;
        pods := pods + counted;
    END LOOP;
    RETURN QUERY
    SELECT pods, coalesce(nullif(r.application_name, ''), r.client_addr::text, r.pid::text),
        extract(epoch FROM r.replay_lag)::float8,
        pg_wal_lsn_diff(pg_current_wal_lsn(), coalesce(r.replay_lsn, r.flush_lsn, r.write_lsn, r.sent_lsn))::bigint
    FROM (SELECT) AS always LEFT JOIN pg_stat_replication AS r ON r.state IN ('streaming', 'catchup') ORDER BY 2;
END
$_$;

COMMENT ON FUNCTION tube.tube_backfill_pressure(tube text, pods_limit integer) IS 'Returns the backlog and the replicas'' lag, to which a backfill''s limits apply.';

CREATE FUNCTION tube.tube_backfill_range(backfill_id bigint, unit integer, rate double precision DEFAULT NULL::double precision) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET row_security TO 'off'
    SET work_mem TO '64MB'
    SET jit TO 'off'
    SET cursor_tuple_fraction TO '1'
    SET standard_conforming_strings TO 'on'
    AS $$
DECLARE
    plan CONSTANT record := tube_private_begin_range(backfill_id, unit);
    pod record;
    pods bigint := 0;
    ids_read bigint := 0;
    touched integer[] := '{}';
BEGIN
    IF coalesce(plan.query, '') = '' THEN
        RETURN CASE plan.query WHEN '' THEN 0 END;
    END IF;
    FOR pod IN EXECUTE plan.query LOOP
        PERFORM tube_private_put_range_pod(backfill_id, pod.shard, pod.ids);
        pods := pods + 1;
        ids_read := ids_read + cardinality(pod.ids);
        IF pod.shard <> ALL (touched) THEN
            touched := touched || pod.shard;
        END IF;
    END LOOP;
    PERFORM tube_private_refuse_renamed(plan.tbl, plan.table_name);
    RETURN tube_private_end_range(backfill_id, unit, ids_read, pods, touched, rate);
END
$$;

COMMENT ON FUNCTION tube.tube_backfill_range(backfill_id bigint, unit integer, rate double precision) IS 'Inserts a range, from any session; returns its rows, or NULL while the backfill is paused.';

CREATE FUNCTION tube.tube_backfill_schedule(in_tube text, order_col text, shard_from integer, shard_to integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    att tube_attachment;
    column_name name;
    added integer := 0;
BEGIN
    PERFORM tube_private_require(in_tube);
    IF shard_from IS NULL OR shard_to IS NULL OR shard_from > shard_to THEN
        RAISE EXCEPTION USING
            ERRCODE = CASE WHEN shard_from > shard_to THEN 'invalid_parameter_value' ELSE 'null_value_not_allowed' END,
            MESSAGE = format('there are no shards from %s to %s',
                coalesce(shard_from::text, 'NULL'), coalesce(shard_to::text, 'NULL')),
            HINT = 'Give the first and the last shard.';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(tube_private_schema() || ' schedule ' || in_tube, 0));
    FOR att IN
        SELECT a.* FROM tube_attachment AS a
        WHERE a.tube = in_tube AND a.shard <= shard_to AND a.shard + (a.shards - 1) >= shard_from
            AND tube_private_is_root(a) AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = a.tbl)
        ORDER BY a.shard
    LOOP
        column_name := tube_private_order_column(att.tbl, order_col);
        CONTINUE WHEN tube_private_control_waits(in_tube, att.shard, att.shards, '{backfill_schedule,backfill_end}')
            OR EXISTS (SELECT FROM tube_backfill AS b
                WHERE b.tube = att.tube AND b.tbl = att.tbl AND b.state IN ('waiting', 'inserting', 'delivering'));
        PERFORM tube_private_put_schedule(in_tube, att.shard, tube_private_table_name(att.tbl), column_name);
        added := added + 1;
    END LOOP;
    RETURN added;
END
$$;

COMMENT ON FUNCTION tube.tube_backfill_schedule(in_tube text, order_col text, shard_from integer, shard_to integer) IS 'Has workers backfill the root tables of these shards, by control pods; returns how many. Skips tables with a waiting or running backfill.';

CREATE FUNCTION tube.tube_backfill_split(backfill_id bigint, ranges integer DEFAULT 16) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET row_security TO 'off'
    AS $$
DECLARE
    sample CONSTANT record := tube_private_begin_split(backfill_id, ranges);
    bounds text[];
BEGIN
    IF sample.query IS NOT NULL THEN
        BEGIN
            EXECUTE sample.query INTO bounds;
        EXCEPTION WHEN syntax_error_or_access_rule_violation OR feature_not_supported THEN
            PERFORM tube_private_refuse_renamed(sample.tbl, sample.table_name);
            RAISE;
        END;
        PERFORM tube_private_refuse_renamed(sample.tbl, sample.table_name);
    END IF;
    RETURN tube_private_end_split(backfill_id, coalesce(bounds, '{}'));
END
$$;

COMMENT ON FUNCTION tube.tube_backfill_split(backfill_id bigint, ranges integer) IS 'In place of tube_backfill_collect: divides a backfill into ranges, the units of the job that it returns.';

CREATE FUNCTION tube.tube_backfill_step1() RETURNS text
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$ SELECT nextval('tube_seq')::text $$;

COMMENT ON FUNCTION tube.tube_backfill_step1() IS 'Draws the start seq of a backfill: the first of three transactions.';

CREATE FUNCTION tube.tube_backfill_step2(timeout interval DEFAULT '00:01:00'::interval) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    until CONSTANT timestamptz := clock_timestamp() + timeout;
    next_notice timestamptz := '-infinity';
    pause double precision := 0.005;
    running text[];
    is_late boolean;
    holders text;
BEGIN
    IF timeout IS NULL OR timeout < interval '0' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('the timeout is %s', coalesce(timeout::text, 'NULL')), HINT = 'Give 0 or more.';
    END IF;
    -- At REPEATABLE READ, step 3 in the same transaction would read rows as they were before.
    PERFORM set_config('pytube.backfill_waited', 'true', true);
    running := ARRAY(SELECT h.xid FROM tube_backfill_holders() AS h);
    LOOP
        -- By xids, which stay the same when a transaction is prepared meanwhile.
        running := ARRAY(SELECT k.transactionid::text FROM pg_locks AS k
            WHERE k.locktype = 'transactionid' AND k.granted AND k.mode = 'ExclusiveLock'
                AND k.transactionid::text = ANY (running)
            ORDER BY age(k.transactionid) DESC);
        EXIT WHEN running = '{}';
        is_late := clock_timestamp() >= until;
        IF is_late OR clock_timestamp() >= next_notice THEN
            SELECT string_agg(h.holder, '; ' ORDER BY h.n) INTO holders FROM (
                SELECT x.holder, min(x.n) AS n -- a session may have several xids
                FROM tube_backfill_holders(CASE WHEN is_late THEN running ELSE running[:1] END)
                    WITH ORDINALITY AS x (xid, holder, n)
                GROUP BY x.holder ORDER BY 2 LIMIT 10) AS h;
            holders := coalesce(holders, 'a transaction that could not be found');
            IF is_late THEN
                RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
                    MESSAGE = format('transactions that began before are still open after %s: %s', timeout, holders),
                    HINT = 'End them, or call again with a longer timeout.';
            END IF;
            RAISE NOTICE 'tube_backfill_step2: active_tx_xid=% -- waiting for %', running[1], holders
                || CASE WHEN cardinality(running) > 1 THEN format('; %s transaction ids in all', cardinality(running))
                    ELSE '' END;
            next_notice := clock_timestamp() + interval '2 seconds';
        END IF;
        PERFORM pg_sleep(least(pause, greatest(0.001, extract(epoch FROM until - clock_timestamp()))));
        pause := least(0.1, pause * 2);
    END LOOP;
END
$$;

COMMENT ON FUNCTION tube.tube_backfill_step2(timeout interval) IS 'Waits until every writing transaction is over, prepared ones too: the second of three. At the timeout it raises, and names up to ten sessions.';

CREATE FUNCTION tube.tube_backfill_step3(step1 text, tube text, tbl regclass, order_col text, shard integer DEFAULT NULL::integer, fetch_chunk_size integer DEFAULT 20000, insert_chunk_size integer DEFAULT 250) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET row_security TO 'off'
    SET jit TO 'off'
    SET standard_conforming_strings TO 'on'
    AS $$
DECLARE
    plan CONSTANT record := tube_private_begin_step3(step1, tube, tbl, order_col, shard);
BEGIN
    IF plan.query IS NULL THEN
        RETURN;
    END IF;
    PERFORM tube_pods_insert(tube, plan.query, plan.first, 'B', plan.size, fetch_chunk_size, insert_chunk_size);
    PERFORM tube_private_refuse_renamed(tbl, plan.table_name);
    PERFORM tube_private_end_step3(step1, tube, tbl, plan.first);
END
$$;

COMMENT ON FUNCTION tube.tube_backfill_step3(step1 text, tube text, tbl regclass, order_col text, shard integer, fetch_chunk_size integer, insert_chunk_size integer) IS 'Touches every row of an attached table by order_col, between the control pods backfill_start and backfill_end: the third of three. Skipped with a NOTICE while an earlier backfill_end waits.';

CREATE FUNCTION tube.tube_backfill_take(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    payload jsonb;
    tbl regclass;
    result bigint;
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = $1 FOR KEY SHARE;
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    payload := tube_private_take_control(tube, partitions, partition, leader_id, shard, seq);
    IF payload IS NULL THEN
        RETURN NULL;
    END IF;
    -- By the catalog: pytube's owner may not look into the schemas of others.
    BEGIN
        SELECT c.oid INTO tbl FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE ARRAY[n.nspname, c.relname]::text[] = parse_ident(payload ->> 'tbl');
    EXCEPTION WHEN invalid_parameter_value THEN
        tbl := NULL;
    END;
    IF payload ? 'resync' THEN -- what a writer asked for is of the root table of the shard, whatever it is called by now
        tbl := coalesce((SELECT a.tbl FROM tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl
            WHERE a.tube = $1 AND a.shard = $5 ORDER BY a.position LIMIT 1), tbl);
    END IF;
    IF tbl IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108',
            MESSAGE = format('there is no table %s', coalesce(quote_literal(payload ->> 'tbl'), 'NULL')),
            HINT = 'A backfill_schedule names schema.table.';
    END IF;
    PERFORM tube_private_follow_columns(tube, tbl);
    -- It goes by the ids, whatever their column is called by now.
    result := tube_backfill_create(tube, tbl, CASE WHEN NOT payload ? 'resync' THEN payload ->> 'order_col' END, false, true);
    -- Others that can be seen by now are answered by this one: it waits for all that wrote before.
    EXECUTE format('DELETE FROM %s WHERE payload IS NOT NULL AND ids = ''{}'' AND shard = $1'
        ' AND payload ->> ''type'' = ''backfill_schedule'' AND payload ->> ''tbl'' = $2', tube_private_qualify(tube))
    USING shard, payload ->> 'tbl';
    RETURN result;
END
$_$;

COMMENT ON FUNCTION tube.tube_backfill_take(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) IS 'Turns a backfill_schedule pod of a term into a backfill that a worker runs; returns its id.';

CREATE FUNCTION tube.tube_backfill_tidy() RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    ids text;
    left_over integer := 0;
BEGIN
    -- Found in the catalogue: backfills of the past are many, their tables few.
    FOR ids IN
        SELECT tube_private_qualify(c.relname) FROM pg_class AS c
        LEFT JOIN tube_backfill AS b ON b.backfill_id = substring(c.relname FROM '([0-9]{1,18})$')::bigint
        WHERE c.relname ~ '^tube_backfill_ids_[0-9]{1,18}$' AND c.relkind = 'r'
            AND c.relowner = quote_ident(current_user)::regrole AND c.relnamespace = to_regnamespace(quote_ident(tube_private_schema()))
            AND coalesce(b.state, 'gone') NOT IN ('waiting', 'inserting')
            AND NOT EXISTS (SELECT FROM tube_registry AS r WHERE r.tube = c.relname) -- a tube may be called so
    LOOP
        BEGIN
            EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', ids);
            EXECUTE format('DROP TABLE %s', ids);
        EXCEPTION
            WHEN lock_not_available THEN left_over := left_over + 1;
            WHEN undefined_table THEN NULL; -- another session was faster
        END;
    END LOOP;
    RETURN left_over;
END
$_$;

COMMENT ON FUNCTION tube.tube_backfill_tidy() IS 'Drops stored ids of ended backfills; returns how many tables are left.';

CREATE FUNCTION tube.tube_backfill_unlock(backfill_id bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    RETURN tube_private_holds_backfill(backfill_id) AND pg_advisory_unlock(tube_private_backfill_key(backfill_id));
END
$$;

COMMENT ON FUNCTION tube.tube_backfill_unlock(backfill_id bigint) IS 'Releases this right.';

CREATE FUNCTION tube.tube_backfill_waiting(backfill_id bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $_$
DECLARE
    backfill tube_backfill;
    reg tube_registry;
    most integer := 10000;
    tag CONSTANT jsonb := jsonb_build_object('backfill', backfill_id);
    ours CONSTANT text := 'p.payload @> $1 AND p.payload ->> ''type'' IS NULL';
    class text;
    looked_at bigint;
    pods bigint;
    size float8;
    rows float8 := 0;
    largest float8 := 0;
BEGIN
    SELECT b.* INTO backfill FROM tube_backfill AS b WHERE b.backfill_id = tube_backfill_waiting.backfill_id;
    IF NOT FOUND THEN
        PERFORM tube_private_lock_backfill(backfill_id); -- raises TU122
    ELSIF backfill.state NOT IN ('inserting', 'delivering') THEN
        RETURN 0;
    END IF;
    reg := tube_private_require(backfill.tube);
    FOR part IN 0 .. reg.partitions - 1 LOOP
        class := format('FROM %s AS p WHERE %s AND (CASE WHEN p.op = ''B'' THEN 1 ELSE 0 END) = 1 AND p.seq > $2',
            tube_private_qualify(reg.tube), (tube_private_slices(reg.tube, reg.partitions, part)).pods);
        EXECUTE format('SELECT count(*), count(*) FILTER (WHERE %s) FROM (SELECT p.payload %s LIMIT $3) AS p', ours, class)
        INTO looked_at, pods USING tag, backfill.start_seq, most + 1;
        IF pods > 0 THEN
            EXECUTE format('SELECT avg(cardinality(f.ids)) FROM (SELECT p.ids %s AND %s LIMIT 20) AS f', class, ours)
            INTO size USING tag, backfill.start_seq;
            rows := rows + pods * size;
            largest := greatest(largest, size);
        END IF;
        most := most - looked_at;
        EXIT WHEN most < 0;
    END LOOP;
    IF most < 0 THEN
        EXECUTE (SELECT format('SELECT sum(s.weight) FROM (%s) AS s', string_agg(format('SELECT %s::float8 AS weight FROM %s AS p'
            ' WHERE p.ctid >= ''(%s,0)'' AND p.ctid < ''(%s,0)'' AND p.op = ''B'' AND p.seq > $2 AND %s',
            r.weight, tube_private_qualify(reg.tube), r.low, r.high, ours), ' UNION ALL '))
            FROM tube_private_page_runs(tube_private_qualify(reg.tube), NULL) AS r)
        INTO rows USING tag, backfill.start_seq;
        rows := coalesce(rows, 0) * coalesce(nullif(largest, 0), 250); -- ids of a full pod
    END IF;
    RETURN least(backfill.rows_done, round(rows)::bigint);
END
$_$;

COMMENT ON FUNCTION tube.tube_backfill_waiting(backfill_id bigint) IS 'Returns about how many rows of a backfill wait in the tube.';

CREATE FUNCTION tube.tube_channel(tube text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    RETURN ('pytube_'::text || md5((('tube'::text || '.'::text) || tube)));

COMMENT ON FUNCTION tube.tube_channel(tube text) IS 'Returns the NOTIFY channel on which writers wake the leaders of a tube; the payload is the partition.';

CREATE FUNCTION tube.tube_companion_ensure(tube text, companion text, key_type regtype) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
DECLARE
    there tube_registry;
BEGIN
    IF key_type IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed', MESSAGE = 'the type of a companion''s keys is NULL',
            HINT = 'Give bigint, uuid or text.';
    END IF;
    -- Or it could be dropped until the companion is there.
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_companion_ensure.tube FOR KEY SHARE;
    PERFORM tube_private_require_main(tube);
    SELECT r.* INTO there FROM tube_registry AS r WHERE r.tube = companion;
    IF NOT FOUND THEN
        PERFORM tube_private_check_tube(companion, 1, NULL, key_type);
        IF tube_private_add_tube(companion, 1, NULL, key_type, tube) THEN
            RETURN;
        END IF;
    END IF;
    there := tube_private_require(companion);
    IF there.companion_of IS DISTINCT FROM tube THEN
        RAISE EXCEPTION USING ERRCODE = 'TU112',
            MESSAGE = format('tube %L exists, and is not a companion of tube %L%s', companion, tube,
                coalesce(format(', but of tube %L', there.companion_of), '')),
            HINT = 'Choose another name, or drop that tube if it is not needed: tube_drop.';
    END IF;
    PERFORM tube_private_check_tube(companion, there.partitions, there.key_type, key_type);
END
$$;

COMMENT ON FUNCTION tube.tube_companion_ensure(tube text, companion text, key_type regtype) IS 'Creates a companion of a tube, which holds touches of relations of its documents, unless it exists.';

CREATE FUNCTION tube.tube_companions(tube text) RETURNS SETOF text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    PERFORM tube_private_require(tube);
    RETURN QUERY SELECT r.tube FROM tube_registry AS r WHERE r.companion_of = tube_companions.tube ORDER BY r.tube;
END
$$;

COMMENT ON FUNCTION tube.tube_companions(tube text) IS 'Lists the companions of a tube.';

CREATE FUNCTION tube.tube_delivered_channel(tube text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    RETURN ('pytube_done_'::text || md5((('tube'::text || '.'::text) || tube)));

COMMENT ON FUNCTION tube.tube_delivered_channel(tube text) IS 'Returns the NOTIFY channel of deliveries of a tube.';

CREATE FUNCTION tube.tube_delivered_parked(tube text) RETURNS TABLE(parked bigint, shard integer, id text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    PERFORM tube_private_require(tube);
    RETURN QUERY
    SELECT count(*) OVER (), f.shard, f.id
    FROM (SELECT k.shard, k.id FROM tube_parked AS k WHERE k.tube = tube_delivered_parked.tube AND k.id IS NOT NULL LIMIT 1000) AS f
    LIMIT 1;
END
$$;

COMMENT ON FUNCTION tube.tube_delivered_parked(tube text) IS 'Returns how many keys are parked (1000 at most), and one of them; no row if none.';

CREATE FUNCTION tube.tube_delivered_watch(tube text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    PERFORM tube_private_require(tube);
    -- All, whatever the number of partitions is now: it may change while the session waits.
    PERFORM pg_advisory_lock_shared(tube_private_watch_lock(tube, p.part)) FROM generate_series(0, 15) AS p (part);
END
$$;

COMMENT ON FUNCTION tube.tube_delivered_watch(tube text) IS 'Makes purges notify this channel until the session ends. LISTEN first.';

CREATE FUNCTION tube.tube_document_declare(tube text, digest text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
BEGIN
    PERFORM tube_private_require_main(tube);
    IF digest IS NOT NULL THEN
        -- The section of the document says it all from now on.
        PERFORM tube_applied_set(r.tube, NULL) FROM tube_registry AS r
        WHERE r.tube = tube_document_declare.tube AND r.applied IS NOT NULL;
    END IF;
    UPDATE tube_registry AS r SET declared = digest, version = r.version + 1
    WHERE r.tube = tube_document_declare.tube AND r.declared IS DISTINCT FROM digest;
END
$$;

COMMENT ON FUNCTION tube.tube_document_declare(tube text, digest text) IS 'Records the digest of the document that a tube delivers; NULL: none. Workers with another digest do not deliver.';

CREATE FUNCTION tube.tube_document_touch(tube text, op text, ids anyarray) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET jit TO 'off'
    AS $_$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(tube);
    root tube_attachment;
    touched integer[];
    result bigint;
BEGIN
    PERFORM tube_private_check_ids(ids);
    IF op IS NULL OR op NOT IN ('U', 'B') THEN
        RAISE EXCEPTION USING ERRCODE = CASE WHEN op IS NULL THEN 'null_value_not_allowed' ELSE 'invalid_parameter_value' END,
            MESSAGE = format('documents can''t be touched with op %s', quote_nullable(op)), HINT = 'Give U or B.';
    ELSIF coalesce(cardinality(ids), 0) = 0 THEN
        RETURN 0;
    END IF;
    SELECT a.* INTO root FROM tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl
    WHERE a.tube = tube_document_touch.tube ORDER BY a.shard, a.position LIMIT 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108',
            MESSAGE = format('no table is attached to tube %L, so its documents have no shards', tube),
            HINT = 'Attach the root table of the documents.';
    END IF;
    -- Some 5000 ids an array: of texts, a slice is found by reading all that comes before it.
    EXECUTE format($sql$
        WITH pods AS (
            INSERT INTO %1$s (op, shard, ids)
            SELECT $1, g.shard, g.ids[c.first : c.first + 249]
            FROM (
                SELECT %2$s AS shard, array_agg(t.id) AS ids
                FROM unnest($2::%3$s[]) WITH ORDINALITY AS t (id, place) WHERE t.id IS NOT NULL
                GROUP BY 1, t.place / (5000 * %4$s::bigint)
                OFFSET 0) AS g,
                LATERAL generate_series(1, cardinality(g.ids), 250) AS c (first)
            RETURNING shard, ids)
        SELECT coalesce(sum(cardinality(p.ids)), 0), array_agg(DISTINCT p.shard) FROM pods AS p$sql$,
        tube_private_qualify(tube), tube_private_shard_expression('t.id', root, of_row => false), reg.key_type, root.shards)
    INTO result, touched USING op, ids;
    -- After the INSERT, as in tube_private_put_body.
    IF touched IS NOT NULL AND pg_sequence_last_value(tube_private_qualify('tube_sleeps_' || reg.number)::regclass) > 1 THEN
        PERFORM tube_private_wake_sleepers(tube, touched);
    END IF;
    RETURN result;
END
$_$;

COMMENT ON FUNCTION tube.tube_document_touch(tube text, op text, ids anyarray) IS 'Touches documents by their keys, in the shards of the root table. op is U or B. Returns the number of ids queued.';

CREATE FUNCTION tube.tube_documents() RETURNS TABLE(tube text, companion_of text, declared text, key_type regtype, partitions integer, tbl regclass, id_col name, shard integer, shards integer, columns name[], key_cols name[], shard_by name)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT r.tube, r.companion_of, r.declared, r.key_type, r.partitions, a.tbl, a.id_col, a.shard, a.shards, a.columns,
        a.key_cols, a.key_cols[a.shard_place + 1]
    FROM tube_registry AS r
    LEFT JOIN (tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl) ON a.tube = r.tube
    WHERE r.kind = 'tube' ORDER BY r.tube, a.position
$$;

COMMENT ON FUNCTION tube.tube_documents() IS 'Lists tubes with their declared documents, attached tables, and the tubes whose companions they are.';

CREATE FUNCTION tube.tube_drop(tube text, force boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
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

COMMENT ON FUNCTION tube.tube_drop(tube text, force boolean) IS 'Drops a tube without attached tables, waiting pods and parked documents; with force, any tube. Its companions go with it.';

CREATE FUNCTION tube.tube_ensure_absent(in_tube text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = in_tube FOR UPDATE;
    IF FOUND THEN
        PERFORM tube_private_drop(in_tube, true);
    END IF;
END
$$;

COMMENT ON FUNCTION tube.tube_ensure_absent(in_tube text) IS 'Drops a tube with its pods and companions, and detaches its tables. Does nothing if there is no such tube.';

CREATE FUNCTION tube.tube_ensure_exists(tube text, partitions integer DEFAULT 1, predicate text DEFAULT NULL::text, key_type regtype DEFAULT NULL::regtype) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
DECLARE
    att tube_attachment;
BEGIN
    FOR att IN SELECT w.* FROM tube_private_ensure_tube(tube, partitions, predicate, key_type) AS w LOOP
        PERFORM tube_private_bring_in_line(att, 'predicate');
    END LOOP;
    PERFORM tube_private_set_predicate(tube, predicate);
END
$$;

COMMENT ON FUNCTION tube.tube_ensure_exists(tube text, partitions integer, predicate text, key_type regtype) IS 'Creates a tube, or changes its partitions and predicate. Without partitions it gets 1, even if it has more. A NULL predicate keeps the present one, an empty string removes it. key_type is bigint, uuid or text, and can''t be changed.';

CREATE FUNCTION tube.tube_failing_list() RETURNS TABLE(tube text, partition integer, reason text, terms integer, since timestamp with time zone, failed_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT f.tube, f.partition, f.reason, f.terms, f.since, f.failed_at
    FROM tube_failing AS f JOIN tube_registry AS r ON r.tube = f.tube AND f.partition < r.partitions
    WHERE f.failed_at > clock_timestamp() - interval '5 minutes'
    ORDER BY f.tube, f.partition
$$;

COMMENT ON FUNCTION tube.tube_failing_list() IS 'Lists partitions whose terms keep ending by the same failure, as reported within five minutes.';

CREATE FUNCTION tube.tube_failing_note(tube text, partition integer, reason text, terms integer, seconds double precision) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
BEGIN
    IF coalesce(terms, 0) < 1 THEN
        DELETE FROM tube_failing AS f WHERE f.tube = $1 AND f.partition = $2;
        RETURN;
    END IF;
    INSERT INTO tube_failing AS f (tube, partition, reason, terms, since, failed_at)
    SELECT r.tube, $2, $3, $4, clock_timestamp() - $5 * interval '1 second', clock_timestamp()
    FROM tube_registry AS r WHERE r.tube = $1 AND $2 BETWEEN 0 AND r.partitions - 1
    ON CONFLICT ON CONSTRAINT tube_failing_pkey DO UPDATE
    SET reason = excluded.reason, terms = excluded.terms, since = excluded.since, failed_at = excluded.failed_at;
END
$_$;

COMMENT ON FUNCTION tube.tube_failing_note(tube text, partition integer, reason text, terms integer, seconds double precision) IS 'Records that so many terms of a partition have ended by the same failure; 0: none does any more.';

CREATE FUNCTION tube.tube_hindered_list() RETURNS TABLE(tube text, partition integer, what text, reason text, since timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT l.tube, l.partition, h.what, h.reason, h.since
    FROM tube_trouble AS h JOIN tube_leader AS l ON l.leader_id = h.leader_id
    WHERE h.what IN ('slow', 'locked') AND l.renewed_at + coalesce(l.lease, l.hold) > clock_timestamp()
    ORDER BY l.tube, l.partition, h.what
$$;

COMMENT ON FUNCTION tube.tube_hindered_list() IS 'Lists what slows down partitions that are led: slow sinks and locked tables.';

CREATE FUNCTION tube.tube_id_column(tbl regclass, id_col name DEFAULT NULL::name) RETURNS TABLE(name name, is_key boolean, is_unique boolean, reason text)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    WITH RECURSIVE tree AS ( -- by the catalogue: pg_partition_tree would wait for the lock of each partition
        SELECT tbl::oid AS relid
        UNION ALL
        SELECT i.inhrelid FROM tree AS t JOIN pg_inherits AS i ON i.inhparent = t.relid
    ), divides AS ( -- the columns by which the table, or a part of it, is partitioned
        SELECT a.attname
        FROM tree AS t JOIN pg_partitioned_table AS p ON p.partrelid = t.relid
        JOIN pg_attribute AS a ON a.attrelid = t.relid AND a.attnum = ANY (p.partattrs)
    ), indexed AS (
        SELECT i.indkey[0] AS attnum, i.indisprimary, i.indnkeyatts = 1 AS is_alone,
            string_agg(quote_ident(a.attname), ', ' ORDER BY k.place) AS columns,
            bool_and(k.place = 1 OR a.attname IN (SELECT d.attname FROM divides AS d)) AS is_divided
        FROM pg_index AS i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
        JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
        WHERE i.indrelid = tbl AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND k.place <= i.indnkeyatts
            AND (i.indisprimary OR i.indnkeyatts = 1)
        GROUP BY i.indexrelid
    ), candidate AS (
        SELECT a.attname, a.attnotnull, f.*
        FROM pg_class AS t JOIN pg_attribute AS a ON a.attrelid = t.oid CROSS JOIN LATERAL (
            SELECT coalesce(bool_or(i.is_alone), false) AS is_unique,
                coalesce(bool_or(i.is_alone AND i.indisprimary), false) AS is_primary,
                min(i.columns) FILTER (WHERE i.indisprimary AND i.is_divided) AS leads
            FROM indexed AS i WHERE i.attnum = a.attnum
        ) AS f
        WHERE t.oid = tbl AND t.relkind IN ('r', 'p') AND NOT t.relispartition AND a.attnum > 0 AND NOT a.attisdropped
            AND (a.attname = id_col OR id_col IS NULL AND (a.attname = 'id' OR f.is_primary))
    )
    SELECT c.attname, k.is_key, c.is_unique, CASE
        WHEN c.is_primary THEN 'it is the primary key'
        WHEN c.is_unique AND c.attnotnull THEN 'it is unique and NOT NULL'
        WHEN c.is_unique THEN 'it is unique, but may be NULL'
        WHEN c.leads IS NOT NULL THEN format('it leads the primary key (%s), the rest of which distinguishes partitions; '
            'no index proves that it is unique in all of them', c.leads)
        ELSE 'no index proves that it is unique' END
    FROM candidate AS c
    CROSS JOIN LATERAL (SELECT c.is_unique AND c.attnotnull OR c.leads IS NOT NULL AS is_key) AS k
    ORDER BY c.attname = 'id' AND k.is_key DESC, c.is_primary DESC LIMIT 1
$$;

COMMENT ON FUNCTION tube.tube_id_column(tbl regclass, id_col name) IS 'Returns the column by which to attach a table, whether it is unique and a key, and why; no row if there is none, or for a partition.';

CREATE FUNCTION tube.tube_ids_waiting() RETURNS TABLE(tube text, partition integer, ids bigint, sampled boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET jit TO 'off'
    AS $_$
#variable_conflict use_column
DECLARE
    reg tube_registry;
    width integer;
    pages bigint;
    halvings integer;
BEGIN
    FOR reg IN SELECT r.* FROM tube_registry AS r WHERE r.kind = 'tube' ORDER BY r.tube LOOP
        width := (SELECT t.typlen FROM pg_type AS t WHERE t.oid = reg.key_type AND t.typlen > 0);
        pages := pg_relation_size(tube_private_qualify(reg.tube)::regclass) / current_setting('block_size')::bigint;
        -- Texts have no width, so that their arrays have to be read.
        halvings := greatest(0, ceil(log(2, greatest(pages, 1) / CASE WHEN width IS NULL THEN 256.0 ELSE 4096.0 END)));
        tube := reg.tube;
        sampled := halvings > 0;
        RETURN QUERY EXECUTE format($sql$
            SELECT %L, n.partition, (coalesce(s.ids, 0) * %s)::bigint, %L::boolean
            FROM generate_series(0, %s) AS n (partition)
            LEFT JOIN (
                SELECT p.shard %% %s AS partition, sum(%s) AS ids
                FROM %s AS p TABLESAMPLE SYSTEM (%s) REPEATABLE (0) GROUP BY 1
            ) AS s ON s.partition = n.partition
            ORDER BY n.partition$sql$,
            reg.tube, 2 ^ halvings, sampled, reg.partitions - 1, reg.partitions,
            -- The header of an array takes 20 to 24 bytes, as it is stored.
            CASE WHEN width IS NULL THEN 'cardinality(p.ids)' ELSE format('(pg_column_size(p.ids) - 20) / %s', width) END,
            tube_private_qualify(reg.tube), 100 / 2 ^ halvings);
    END LOOP;
END
$_$;

COMMENT ON FUNCTION tube.tube_ids_waiting() IS 'Returns about how many ids wait in each partition; sampled if the table is large.';

CREATE FUNCTION tube.tube_index_fit() RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    lacking tube_registry;
    fitted integer := 0;
BEGIN
    FOR lacking IN
        SELECT r.* FROM tube_registry AS r LEFT JOIN tube_outbox AS o ON o.outbox = r.tube
        WHERE (r.kind = 'tube' OR NOT o.adopted AND r.partitions > 1)
            AND NOT EXISTS (SELECT FROM tube_private_indexes(r.tube) AS i WHERE i.partitions = r.partitions AND i.valid)
        FOR NO KEY UPDATE OF r SKIP LOCKED
    LOOP
        BEGIN
            fitted := fitted + tube_private_fit_index(lacking.tube)::integer;
        EXCEPTION WHEN OTHERS THEN
            -- One tube's trouble must not stop the others.
            RAISE WARNING USING MESSAGE = format('%s %L does not get its index: %s', lacking.kind, lacking.tube, SQLERRM);
        END;
    END LOOP;
    RETURN fitted;
END
$$;

COMMENT ON FUNCTION tube.tube_index_fit() IS 'Builds the missing indexes of repartitioned tubes and outboxes, and drops their old ones, if that takes at most 100 ms. Returns how many got an index.';

CREATE FUNCTION tube.tube_index_sql(tube text, partitions integer) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(tube);
BEGIN
    PERFORM tube_private_check_tube(tube, partitions, reg.key_type, NULL);
    RETURN tube_private_next_index(reg, partitions);
END
$$;

COMMENT ON FUNCTION tube.tube_index_sql(tube text, partitions integer) IS 'Returns the next statement to run outside a transaction, so that a tube gets the index for this number of partitions while writers continue. NULL: nothing is left to do. Call it before a repartition with the next number, and after it with the present one.';

CREATE FUNCTION tube.tube_instances(in_tube text DEFAULT NULL::text) RETURNS TABLE(tube text, instance_id uuid, client_id text, seen_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT i.tube, i.instance_id, i.client_id, i.seen_at FROM tube_instance AS i
    WHERE in_tube IS NULL OR i.tube = in_tube
    ORDER BY i.tube, i.instance_id
$$;

COMMENT ON FUNCTION tube.tube_instances(in_tube text) IS 'Lists the processes in the lease election, and when each was last seen.';

CREATE FUNCTION tube.tube_job_begin(job_id text, tubes text[], kind text, fingerprint text, units integer, bounds text[] DEFAULT NULL::text[]) RETURNS TABLE(state text, unit_count integer, unit_bounds text[], stage text, known boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    job tube_job;
    one text;
    key_type regtype;
BEGIN
    IF job_id IS NULL OR coalesce(tubes, '{}') = '{}' THEN
        RAISE EXCEPTION 'a job needs a name, and a tube' USING ERRCODE = 'null_value_not_allowed', HINT = 'Give both.';
    ELSIF job_id ~ '^backfill [0-9]+$' THEN
        -- Else any writer could say beforehand which ranges a backfill has, or which of them are in.
        RAISE EXCEPTION USING ERRCODE = 'TU130',
            MESSAGE = format('the name %L is kept for a backfill', job_id), HINT = 'Give the job another name.';
    END IF;
    FOREACH one IN ARRAY tubes LOOP
        PERFORM tube_private_require(one);
        key_type := coalesce(key_type, tube_private_key_type(one));
        IF tube_private_key_type(one) <> key_type THEN
            RAISE EXCEPTION 'the keys of tube % are of type %, and the keys of % of type %',
                    quote_literal(tubes[1]), key_type, quote_literal(one), tube_private_key_type(one)
                USING ERRCODE = 'datatype_mismatch', HINT = 'A job writes keys of one type: give each type a job.';
        END IF;
    END LOOP;
    INSERT INTO tube_job (job_id, tubes, kind, fingerprint, units, bounds)
    VALUES (job_id, tubes, kind, fingerprint, units, bounds) ON CONFLICT DO NOTHING;
    known := NOT FOUND;
    job := tube_private_lock_job(job_id, alone => true);
    IF job.tubes <> tubes OR job.kind <> kind OR job.fingerprint <> fingerprint THEN
        RAISE EXCEPTION USING ERRCODE = 'TU130',
            MESSAGE = format('the job %L was begun at %s with another query, other tubes or another way to publish',
                job.job_id, date_trunc('second', job.created_at)),
            HINT = 'Give this one another name, or forget the old one: tube_job_forget.';
    END IF;
    IF job.kind IN ('staged', 'attempts') THEN
        stage := tube_private_qualify('tube_job_pods_' || job.number);
        IF NOT known THEN
            EXECUTE format('CREATE TABLE %s (op char NOT NULL, shard tube_shard NOT NULL, ids %s[] NOT NULL,'
                ' payload jsonb, attempt uuid)', stage, key_type);
            EXECUTE format('ALTER TABLE %s ALTER ids SET STORAGE EXTERNAL', stage);
            EXECUTE format('REVOKE ALL ON %s FROM PUBLIC', stage);
            EXECUTE format('GRANT INSERT ON %s TO %I, %I', stage, job.begun_by, tube_private_role('admin'));
        END IF;
    END IF;
    RETURN QUERY SELECT job.state, job.units, job.bounds, stage, known;
END
$_$;

COMMENT ON FUNCTION tube.tube_job_begin(job_id text, tubes text[], kind text, fingerprint text, units integer, bounds text[]) IS 'Begins or resumes a job. kind is direct, staged, ranges or attempts.';

CREATE FUNCTION tube.tube_job_done(job_id text, unit integer, rows bigint, ids bigint, pods bigint, shards integer[] DEFAULT NULL::integer[]) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    job tube_job := tube_private_lock_job(job_id, alone => false);
BEGIN
    IF job.state = 'done' THEN
        RAISE EXCEPTION USING ERRCODE = 'TU132',
            MESSAGE = format('the job %L was done at %s', job.job_id, date_trunc('second', job.ended_at)),
            HINT = 'Roll back. Give a new job another name.';
    END IF;
    INSERT INTO tube_job_unit (job_id, unit, rows, ids, pods) VALUES (job_id, unit, rows, ids, pods)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF job.kind IN ('direct', 'ranges') THEN
        PERFORM tube_private_wake_sleepers(t.tube, shards) FROM unnest(job.tubes) AS t (tube);
    END IF;
    RETURN true;
END
$$;

COMMENT ON FUNCTION tube.tube_job_done(job_id text, unit integer, rows bigint, ids bigint, pods bigint, shards integer[]) IS 'Records a unit, in the transaction that wrote it. False: it is recorded already, so roll back.';

CREATE TABLE tube.tube_job (
    job_id text NOT NULL,
    number bigint NOT NULL,
    backfill_id bigint,
    tubes text[] NOT NULL,
    kind text NOT NULL,
    fingerprint text NOT NULL,
    units integer NOT NULL,
    bounds text[],
    state text DEFAULT 'running'::text NOT NULL,
    begun_by name DEFAULT SESSION_USER NOT NULL,
    rows_done bigint,
    ids_done bigint,
    pods_done bigint,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT tube_job_job_id_check CHECK (((octet_length(job_id) >= 1) AND (octet_length(job_id) <= 200))),
    CONSTRAINT tube_job_kind_check CHECK ((kind = ANY (ARRAY['direct'::text, 'staged'::text, 'ranges'::text, 'attempts'::text]))),
    CONSTRAINT tube_job_state_check CHECK ((state = ANY (ARRAY['running'::text, 'done'::text]))),
    CONSTRAINT tube_job_units_check CHECK ((units >= 0))
);

CREATE FUNCTION tube.tube_job_finish(job_id text, attempts uuid[] DEFAULT NULL::uuid[]) RETURNS tube.tube_job
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    job tube_job := tube_private_lock_job(job_id, alone => true);
    stage CONSTANT text := tube_private_qualify('tube_job_pods_' || job.number);
    one text;
BEGIN
    IF job.state = 'done' THEN
        RETURN job;
    END IF;
    IF job.kind = 'attempts' THEN
        EXECUTE format('SELECT coalesce(sum(cardinality(ids)), 0), count(*) FROM %s WHERE attempt = ANY ($1)', stage)
        INTO job.ids_done, job.pods_done USING attempts;
        job.rows_done := job.ids_done;
    END IF;
    IF job.kind IN ('staged', 'attempts') THEN
        FOREACH one IN ARRAY job.tubes LOOP
            PERFORM tube_private_require(one);
            EXECUTE format('INSERT INTO %s (op, shard, ids, payload) SELECT op, shard, ids, payload FROM %s'
                ' WHERE $1 OR attempt = ANY ($2)', tube_private_qualify(one), stage) USING job.kind = 'staged', attempts;
            PERFORM tube_private_wake_sleepers(one, NULL);
        END LOOP;
        EXECUTE 'DROP TABLE ' || stage;
    END IF;
    RETURN tube_private_end_job(job);
END
$_$;

COMMENT ON FUNCTION tube.tube_job_finish(job_id text, attempts uuid[]) IS 'Ends a job. Staged rows go into the tubes, all at once.';

CREATE FUNCTION tube.tube_job_forget(job_id text, before timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    everybody CONSTANT boolean := pg_has_role(session_user, tube_private_role('admin'), 'MEMBER');
    job tube_job;
    forgotten bigint;
BEGIN
    IF job_id IS NULL AND before IS NULL THEN
        RAISE EXCEPTION 'neither a job nor a time is given' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'Give the name of a job, or a time before which jobs ended.';
    END IF;
    SELECT j.* INTO job FROM tube_job AS j WHERE j.job_id = $1;
    IF FOUND THEN
        PERFORM tube_private_refuse_job(job);
        IF job.state = 'running' AND EXISTS (
            SELECT FROM tube_backfill AS b WHERE b.backfill_id = job.backfill_id AND b.ended_at IS NULL)
        THEN
            RAISE EXCEPTION USING ERRCODE = 'TU130',
                MESSAGE = format('the job %L is that of a backfill that is under way', job.job_id),
                HINT = 'Cancel the backfill first.';
        END IF;
    END IF;
    DELETE FROM tube_job AS j
    WHERE ($1 IS NULL OR j.job_id = $1) AND (everybody OR j.begun_by = session_user)
        AND (before IS NULL OR before > coalesce(j.ended_at,
            (SELECT b.ended_at FROM tube_backfill AS b WHERE b.backfill_id = j.backfill_id)));
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END
$_$;

COMMENT ON FUNCTION tube.tube_job_forget(job_id text, before timestamp with time zone) IS 'Deletes the record of a job, or with NULL of all that ended before a time; pods in tubes stay.';

CREATE FUNCTION tube.tube_job_list(in_job text DEFAULT NULL::text) RETURNS TABLE(job_id text, tubes text[], kind text, state text, units_done bigint, units integer, rows bigint, ids bigint, pods bigint, backfill_id bigint, created_at timestamp with time zone, last_at timestamp with time zone, ended_at timestamp with time zone, begun_by name)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT j.job_id, j.tubes, j.kind, CASE WHEN j.state = 'done' THEN j.state ELSE coalesce(e.state, j.state) END,
        u.n, j.units, coalesce(j.rows_done, u.rows), coalesce(j.ids_done, u.ids), coalesce(j.pods_done, u.pods),
        j.backfill_id, j.created_at, u.last_at, coalesce(j.ended_at, e.ended_at), j.begun_by
    FROM tube_job AS j
    LEFT JOIN tube_backfill AS e ON e.backfill_id = j.backfill_id AND e.ended_at IS NOT NULL
    CROSS JOIN LATERAL (
        SELECT count(*) AS n, coalesce(sum(w.rows), 0)::bigint AS rows, coalesce(sum(w.ids), 0)::bigint AS ids,
            coalesce(sum(w.pods), 0)::bigint AS pods, max(w.ended_at) AS last_at
        FROM tube_job_unit AS w WHERE w.job_id = j.job_id) AS u
    WHERE (in_job IS NULL OR j.job_id = in_job) AND (j.begun_by = session_user OR EXISTS (
        SELECT FROM unnest(ARRAY['admin', 'worker', 'monitor']) AS k (kind)
        WHERE pg_has_role(session_user, tube_private_role(k.kind), 'MEMBER')))
    ORDER BY j.created_at DESC
$$;

COMMENT ON FUNCTION tube.tube_job_list(in_job text) IS 'Lists jobs, newest first; for admins, workers and monitors all, for others their own.';

CREATE FUNCTION tube.tube_job_units(job_id text) RETURNS integer[]
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
    SELECT ARRAY(SELECT u.unit FROM tube_job_unit AS u
        WHERE u.job_id = $1 AND EXISTS (SELECT FROM tube_job_list($1)) ORDER BY u.unit)
$_$;

COMMENT ON FUNCTION tube.tube_job_units(job_id text) IS 'Returns the recorded units of a job.';

CREATE FUNCTION tube.tube_kafka_back() RETURNS TABLE(tube text, instance_id uuid, client_id text, back_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT k.tube, k.instance_id, k.client_id, max(k.back_at)
    FROM tube_kafka AS k JOIN tube_registry AS r ON r.tube = k.tube
    WHERE k.use = 'election' AND k.back_at > clock_timestamp() - interval '1 minute'
    GROUP BY 1, 2, 3 ORDER BY 1, 3, 2
$$;

COMMENT ON FUNCTION tube.tube_kafka_back() IS 'Lists processes that reached Kafka again within the last minute, and may wait to be elected.';

CREATE FUNCTION tube.tube_kafka_report(instance_id uuid, client_id text, unreachable jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    me CONSTANT uuid := tube_kafka_report.instance_id;
    label CONSTANT text := tube_kafka_report.client_id;
BEGIN
    IF me IS NULL OR label IS NULL OR unreachable IS NULL THEN
        RAISE EXCEPTION 'instance_id, client_id and unreachable must be given' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    DELETE FROM tube_kafka AS k WHERE k.instance_id = me AND k.back_at < clock_timestamp() - interval '1 minute';
    UPDATE tube_kafka AS k SET back_at = clock_timestamp()
    WHERE k.instance_id = me AND k.back_at IS NULL AND NOT EXISTS (
        SELECT FROM jsonb_to_recordset(unreachable) AS u (tube text, use text, bootstrap_servers text)
        WHERE (u.tube, u.use, u.bootstrap_servers) = (k.tube, k.use, k.bootstrap_servers));
    DELETE FROM tube_kafka AS k
    WHERE (k.instance_id, k.tube, k.use, k.bootstrap_servers) IN (
        SELECT o.instance_id, o.tube, o.use, o.bootstrap_servers FROM tube_kafka AS o
        WHERE o.instance_id <> me AND o.seen_at < clock_timestamp() - interval '1 hour'
        FOR UPDATE SKIP LOCKED);
    INSERT INTO tube_kafka AS k (instance_id, tube, use, bootstrap_servers, client_id, reason, since, seen_at)
    SELECT me, u.tube, u.use, u.bootstrap_servers, label, u.reason,
        clock_timestamp() - u.seconds * interval '1 second', clock_timestamp()
    FROM jsonb_to_recordset(unreachable)
        AS u (tube text, use text, bootstrap_servers text, reason text, seconds float8)
    ON CONFLICT ON CONSTRAINT tube_kafka_pkey
    DO UPDATE SET client_id = excluded.client_id, reason = excluded.reason,
        -- Of one outage the first: each report comes a little later than it was made.
        since = CASE WHEN k.back_at IS NULL
                AND excluded.since BETWEEN k.since - interval '10 seconds' AND k.since + interval '10 seconds'
            THEN k.since ELSE excluded.since END,
        seen_at = excluded.seen_at, back_at = NULL;
END
$$;

COMMENT ON FUNCTION tube.tube_kafka_report(instance_id uuid, client_id text, unreachable jsonb) IS 'Reports which Kafka clusters a process needs and can''t reach: objects with tube, use (election or delivery), bootstrap_servers, reason and seconds. Counts for 30 s.';

CREATE FUNCTION tube.tube_kafka_unreachable() RETURNS TABLE(tube text, use text, bootstrap_servers text, instance_id uuid, client_id text, reason text, since timestamp with time zone, seen_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT k.tube, k.use, k.bootstrap_servers, k.instance_id, k.client_id, k.reason, k.since, k.seen_at
    FROM tube_kafka AS k JOIN tube_registry AS r ON r.tube = k.tube
    WHERE k.seen_at > clock_timestamp() - interval '30 seconds' AND k.back_at IS NULL
    ORDER BY k.bootstrap_servers, k.tube, k.use, k.instance_id
$$;

COMMENT ON FUNCTION tube.tube_kafka_unreachable() IS 'Lists these reports of the last 30 s.';

CREATE FUNCTION tube.tube_key_part(key text, place integer) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN COALESCE(CASE WHEN ((place >= 0) AND (place <= 7)) THEN "substring"((key COLLATE "C"), (('^\[(?:(?:"(?:[^"\\]|\\.)*"|[^",\]]+), ){'::text || (place)::text) || '}("(?:[^"\\]|\\.)*"|[^",\]]+)'::text)) ELSE NULL::text END, key);

COMMENT ON FUNCTION tube.tube_key_part(key text, place integer) IS 'Returns the value of one column in a key of several columns, as JSON; place counts from 0.';

CREATE FUNCTION tube.tube_key_types(tbl regclass, columns name[]) RETURNS text[]
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT array_agg(CASE WHEN a.attgenerated = 'v' THEN NULL WHEN t.typtype = 'e' THEN 'enum' ELSE (
            SELECT p.type FROM unnest('{bigint,text,uuid,boolean,date}'::text[]) AS p (type)
            WHERE tube_private_key_fits(a.atttypid, p.type::regtype)) END ORDER BY c.place)
    FROM unnest(columns) WITH ORDINALITY AS c (name, place)
    LEFT JOIN pg_attribute AS a ON a.attrelid = tbl AND a.attname = c.name AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_type AS t ON t.oid = a.atttypid
$$;

COMMENT ON FUNCTION tube.tube_key_types(tbl regclass, columns name[]) IS 'Returns the types of columns as parts of a key of several columns; NULL for a column that can''t be a part.';

CREATE FUNCTION tube.tube_keys_as_caller(in_search_path text, first text, statement text) RETURNS SETOF text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    PERFORM set_config('search_path', in_search_path, true);
    IF first IS NOT NULL THEN
        EXECUTE first;
    END IF;
    RETURN QUERY EXECUTE statement;
END
$$;

COMMENT ON FUNCTION tube.tube_keys_as_caller(in_search_path text, first text, statement text) IS 'As tube_as_caller, for keys as texts.';

CREATE FUNCTION tube.tube_keys_put(tube_or_tubes text, shard integer, op text, keys text[], chunk_size integer DEFAULT 250, last boolean DEFAULT true) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    RETURN tube_private_put(tube_or_tubes, shard, op, keys, chunk_size, last);
END
$$;

COMMENT ON FUNCTION tube.tube_keys_put(tube_or_tubes text, shard integer, op text, keys text[], chunk_size integer, last boolean) IS 'As tube_pods_put, for any key type: keys are texts.';

CREATE FUNCTION tube.tube_keys_waiting(tube text, up_to bigint, shards integer[], ids text[]) RETURNS TABLE(shard integer, id text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET jit TO 'off'
    AS $_$
DECLARE
    key_type CONSTANT regtype := (tube_private_require(tube)).key_type;
BEGIN
    RETURN QUERY EXECUTE format($sql$
        SELECT DISTINCT w.shard, w.id::text
        FROM %s AS p, unnest(p.ids) AS k (id), unnest($2, $3::%s[]) AS w (shard, id)
        WHERE p.seq <= $1 AND p.shard = ANY ($2) AND p.ids && $3::%2$s[] AND w.shard = p.shard AND w.id = k.id$sql$,
        tube_private_qualify(tube), key_type)
    USING up_to, shards, ids;
END
$_$;

COMMENT ON FUNCTION tube.tube_keys_waiting(tube text, up_to bigint, shards integer[], ids text[]) IS 'Returns which of the given keys wait in pods up to a seq. Reads the whole tube.';

CREATE FUNCTION tube.tube_leader_acquire(tube text, partitions integer, partition integer, leader_id uuid, instance_id uuid, client_id text, expected_epoch bigint, election text DEFAULT 'neli'::text, hold interval DEFAULT '00:00:15'::interval, lease interval DEFAULT NULL::interval) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
DECLARE
    last_issued bigint;
    new_epoch   bigint;
    held        tube_leader;
    runs_for    interval;
BEGIN
    PERFORM tube_private_check_term(leader_id, instance_id, client_id, election, hold, lease);
    IF current_setting('synchronous_commit') <> 'remote_apply' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;

    -- NO KEY: a sleeper or a parked key may be written meanwhile, which refers to this row.
    SELECT r.last_epoch INTO last_issued FROM tube_registry AS r
    WHERE r.tube = tube_leader_acquire.tube FOR NO KEY UPDATE;
    PERFORM tube_private_check_partition(tube, partitions, partition);
    SELECT l.* INTO STRICT held FROM tube_leader AS l
    WHERE l.tube = tube_leader_acquire.tube AND l.partition = tube_leader_acquire.partition FOR UPDATE;
    -- The clock is read after the wait for the term, which may have been renewed meanwhile. NULL without a leader.
    runs_for := held.renewed_at + coalesce(held.lease, held.hold) - clock_timestamp();
    IF held.epoch IS DISTINCT FROM expected_epoch THEN
        RAISE EXCEPTION 'partition % of tube % is at epoch %, not %', partition, quote_literal(tube),
            held.epoch, coalesce(expected_epoch::text, 'NULL')
            USING ERRCODE = 'TU003', HINT = 'Read the epoch, prove the right to lead, and try again.';
    ELSIF held.election <> election AND runs_for > interval '0' THEN
        RAISE EXCEPTION 'partition % of tube % is led under the election %, not %, by %', partition,
            quote_literal(tube), quote_literal(held.election), quote_literal(election), held.client_id
            USING ERRCODE = 'TU005', HINT = 'Give all workers of a tube the same election.';
    ELSIF election = 'lease' AND held.instance_id <> instance_id AND runs_for > interval '0' THEN
        RAISE EXCEPTION 'partition % of tube % is leased to % for another % ms', partition,
            quote_literal(tube), held.client_id, ceil(extract(epoch FROM runs_for) * 1000)
            USING ERRCODE = 'TU004', HINT = 'Try again when the lease has run out, or was released.';
    END IF;

    new_epoch := greatest(last_issued + 1, floor(extract(epoch FROM clock_timestamp()))::bigint);
    UPDATE tube_registry AS r SET last_epoch = new_epoch WHERE r.tube = tube_leader_acquire.tube;
    PERFORM tube_private_end_terms(tube, partition, 'superseded');
    UPDATE tube_leader AS l
    SET leader_id = tube_leader_acquire.leader_id, epoch = new_epoch,
        instance_id = tube_leader_acquire.instance_id, client_id = tube_leader_acquire.client_id,
        election = tube_leader_acquire.election, hold = tube_leader_acquire.hold, lease = tube_leader_acquire.lease,
        acquired_at = clock_timestamp(), renewed_at = clock_timestamp()
    WHERE l.tube = tube_leader_acquire.tube AND l.partition = tube_leader_acquire.partition;
    RETURN new_epoch;
END
$$;

COMMENT ON FUNCTION tube.tube_leader_acquire(tube text, partitions integer, partition integer, leader_id uuid, instance_id uuid, client_id text, expected_epoch bigint, election text, hold interval, lease interval) IS 'Begins a term, ends the previous one, and returns the epoch. Of callers with the same epoch, one wins.';

CREATE FUNCTION tube.tube_leader_epoch(tube text, partitions integer, partition integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    found_epoch bigint;
BEGIN
    SELECT l.epoch INTO found_epoch FROM tube_leader AS l
    WHERE (l.tube, l.partitions, l.partition) = ($1, $2, $3);
    IF NOT FOUND THEN
        PERFORM tube_private_check_partition(tube, partitions, partition);
        -- The row was not there and is now: a repartition was committed in between.
        RAISE EXCEPTION 'tube % was repartitioned meanwhile', quote_literal(tube)
            USING ERRCODE = 'TU002', HINT = 'Ask again.';
    END IF;
    RETURN found_epoch;
END
$_$;

COMMENT ON FUNCTION tube.tube_leader_epoch(tube text, partitions integer, partition integer) IS 'Returns the epoch to pass to tube_leader_acquire.';

CREATE FUNCTION tube.tube_leader_rebase(tube text, epoch bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    most CONSTANT bigint := 2147483646;
    issued bigint;
BEGIN
    IF epoch IS NULL OR epoch NOT BETWEEN 0 AND most THEN
        RAISE EXCEPTION 'epoch is %', coalesce(epoch::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = format('It is 0 to %s.', most);
    END IF;
    UPDATE tube_registry AS r SET last_epoch = greatest(r.last_epoch, least(tube_leader_rebase.epoch + 1000, most))
    WHERE r.tube = tube_leader_rebase.tube
    RETURNING r.last_epoch INTO issued;
    IF NOT FOUND THEN
        PERFORM tube_private_require(tube, 'any');
    END IF;
    RETURN issued;
END
$$;

COMMENT ON FUNCTION tube.tube_leader_rebase(tube text, epoch bigint) IS 'Raises a tube''s epochs 1000 above an epoch that its sink has seen, after a restore. Returns the greatest epoch that counts as issued.';

CREATE FUNCTION tube.tube_leader_release(tube text, partitions integer, partition integer, leader_id uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $_$
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_leader_release.tube FOR NO KEY UPDATE;
    PERFORM FROM tube_leader AS l
    WHERE (l.tube, l.partitions, l.partition, l.leader_id) = ($1, $2, $3, $4) FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM tube_private_end_terms(tube, partition, 'released');
    -- The epoch stays, so that it can't come back.
    UPDATE tube_leader AS l
    SET leader_id = NULL, instance_id = NULL, client_id = NULL, election = NULL, hold = NULL,
        lease = NULL, acquired_at = NULL, renewed_at = NULL
    WHERE l.tube = tube_leader_release.tube AND l.partition = tube_leader_release.partition;
    RETURN true;
END
$_$;

COMMENT ON FUNCTION tube.tube_leader_release(tube text, partitions integer, partition integer, leader_id uuid) IS 'Ends a term in order; false if it was over.';

CREATE FUNCTION tube.tube_leader_renew(tube text, partitions integer, partition integer, leader_id uuid) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
BEGIN
    UPDATE tube_leader AS l SET renewed_at = clock_timestamp()
    WHERE (l.tube, l.partitions, l.partition, l.leader_id) = ($1, $2, $3, $4);
    IF NOT FOUND THEN
        PERFORM tube_private_hold_term(tube, partitions, partition, leader_id); -- says why
    END IF;
    RETURN (SELECT r.version FROM tube_registry AS r WHERE r.tube = tube_leader_renew.tube);
END
$_$;

COMMENT ON FUNCTION tube.tube_leader_renew(tube text, partitions integer, partition integer, leader_id uuid) IS 'Renews a term, and returns the version of the tube''s settings.';

CREATE FUNCTION tube.tube_leader_wait(tube text, partitions integer, partition integer, leader_id uuid) RETURNS interval
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    RETURN (
        SELECT greatest(coalesce(max(t.renewed_at + t.hold) - clock_timestamp(), interval '0'), interval '0')
        FROM tube_term AS t
        WHERE t.tube = tube_leader_wait.tube
          AND t.outcome <> 'released'
          AND mod(t.partition - tube_leader_wait.partition, gcd(t.partitions, tube_leader_wait.partitions)) = 0);
END
$$;

COMMENT ON FUNCTION tube.tube_leader_wait(tube text, partitions integer, partition integer, leader_id uuid) IS 'Returns how long to wait before the first mark, until no earlier term can write to the sink.';

CREATE FUNCTION tube.tube_leaders(in_tube text DEFAULT NULL::text) RETURNS TABLE(tube text, partitions integer, partition integer, leader_id uuid, epoch bigint, instance_id uuid, client_id text, election text, hold interval, lease interval, acquired_at timestamp with time zone, renewed_at timestamp with time zone, runs_out timestamp with time zone, lost boolean, sink_down text, sink_down_since timestamp with time zone, source_down text, source_down_since timestamp with time zone)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT l.tube, l.partitions, l.partition, l.leader_id, l.epoch, l.instance_id, l.client_id,
        l.election, l.hold, l.lease, l.acquired_at, l.renewed_at, r.runs_out, r.runs_out <= clock_timestamp(),
        k.reason, k.since, c.reason, c.since
    FROM tube_leader AS l
    CROSS JOIN LATERAL (SELECT l.renewed_at + coalesce(l.lease, l.hold)) AS r (runs_out)
    LEFT JOIN tube_trouble AS k ON k.leader_id = l.leader_id AND k.what = 'sink' AND r.runs_out > clock_timestamp()
    LEFT JOIN tube_trouble AS c ON c.leader_id = l.leader_id AND c.what = 'source' AND r.runs_out > clock_timestamp()
    WHERE l.leader_id IS NOT NULL AND (in_tube IS NULL OR l.tube = in_tube)
    ORDER BY l.tube, l.partition
$$;

COMMENT ON FUNCTION tube.tube_leaders(in_tube text) IS 'Lists the present terms; a partition without a row is free. lost: the term was not renewed before runs_out.';

CREATE FUNCTION tube.tube_leaders_renew(tube text, leader_ids uuid[], troubles jsonb DEFAULT NULL::jsonb) RETURNS TABLE(leader_id uuid, renewed boolean, paused text, step bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH given AS MATERIALIZED (
        SELECT DISTINCT g.leader_id FROM unnest(leader_ids) AS g (leader_id)
    ), present AS MATERIALIZED (
        SELECT l.tube, l.partition
        FROM given AS g JOIN tube_leader AS l ON l.leader_id = g.leader_id
        WHERE tube_leaders_renew.tube IS NULL OR l.tube = tube_leaders_renew.tube
        ORDER BY l.tube, l.partition
        FOR NO KEY UPDATE OF l SKIP LOCKED
    ), renewal AS (
        UPDATE tube_leader AS l
        SET renewed_at = clock_timestamp()
        FROM present AS p
        WHERE l.tube = p.tube AND l.partition = p.partition
        RETURNING l.leader_id
    ), troubled AS (
        INSERT INTO tube_trouble AS t (leader_id, what, reason, since)
        SELECT r.leader_id, w.what, e.value #>> ARRAY[w.what, 'reason'],
            clock_timestamp() - (e.value #>> ARRAY[w.what, 'seconds'])::float8 * interval '1 second'
        FROM jsonb_each(troubles) AS e JOIN renewal AS r ON r.leader_id::text = e.key
        JOIN (VALUES ('locked'), ('sink'), ('slow'), ('source')) AS w (what) ON e.value ? w.what
        ON CONFLICT (leader_id, what) DO UPDATE SET reason = excluded.reason, since = excluded.since
        -- A later begin is another outage, with the same reason. The second is for answers that took their time.
        WHERE t.reason <> excluded.reason OR excluded.since > t.since + interval '1 second'
    ), mended AS (
        DELETE FROM tube_trouble AS t USING renewal AS r
        WHERE t.leader_id = r.leader_id AND (troubles -> r.leader_id::text ? t.what) IS NOT TRUE
    ), paused AS MATERIALIZED ( -- nearly always none, as of steps
        SELECT l.leader_id, o.reason
        FROM given AS g JOIN tube_leader AS l ON l.leader_id = g.leader_id
        CROSS JOIN LATERAL tube_private_pause_of(l.tube, l.partitions, l.partition) AS o
        WHERE EXISTS (SELECT FROM tube_paused AS a WHERE a.tube = l.tube) -- or the function is not called
    ), halted AS (
        -- Only for a pause that this answer names: a worker that learns of none marks at once. And only where no row is
        -- seen, or it would wait for an operator who pauses again in an open transaction (tube_private_forget_rest).
        INSERT INTO tube_halted AS t (leader_id, since)
        SELECT r.leader_id, clock_timestamp() - (e.value #>> '{paused,seconds}')::float8 * interval '1 second'
        FROM jsonb_each(troubles) AS e JOIN renewal AS r ON r.leader_id::text = e.key
        JOIN paused AS p ON p.leader_id = r.leader_id
        WHERE e.value ? 'paused' AND NOT EXISTS (SELECT FROM tube_halted AS h WHERE h.leader_id = r.leader_id)
        ON CONFLICT DO NOTHING
    ), resumed AS (
        DELETE FROM tube_halted AS t
        WHERE t.leader_id IN (
            SELECT h.leader_id FROM tube_halted AS h JOIN renewal AS r ON r.leader_id = h.leader_id
            WHERE (troubles -> r.leader_id::text ? 'paused') IS NOT TRUE
                OR NOT EXISTS (SELECT FROM paused AS p WHERE p.leader_id = r.leader_id)
            FOR UPDATE OF h SKIP LOCKED)
    )
    SELECT l.leader_id, r.leader_id IS NOT NULL, p.reason, s.step_id
    FROM given AS g JOIN tube_leader AS l ON l.leader_id = g.leader_id LEFT JOIN renewal AS r ON r.leader_id = l.leader_id
    LEFT JOIN paused AS p ON p.leader_id = l.leader_id
    LEFT JOIN LATERAL (
        SELECT o.step_id FROM tube_step AS o
        WHERE o.tube = l.tube AND o.partition = l.partition AND o.ended_at IS NULL AND o.leader_id IS NULL
            AND o.partitions = l.partitions AND o.expires_at > clock_timestamp()
    ) AS s ON true
    WHERE tube_leaders_renew.tube IS NULL OR l.tube = tube_leaders_renew.tube;
END
$$;

COMMENT ON FUNCTION tube.tube_leaders_renew(tube text, leader_ids uuid[], troubles jsonb) IS 'Renews many terms at once, without waiting for locks; terms missing from the answer are over. troubles reports by leader_id what keeps a term from delivering. paused is why a term has to pause, step a step to take.';

CREATE FUNCTION tube.tube_lease_leave(tube text, instance_id uuid) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    DELETE FROM tube_instance AS i
    WHERE i.instance_id = tube_lease_leave.instance_id
        AND (tube_lease_leave.tube IS NULL OR i.tube = tube_lease_leave.tube)
$$;

COMMENT ON FUNCTION tube.tube_lease_leave(tube text, instance_id uuid) IS 'Removes a process from the lease election of a tube; NULL: of all.';

CREATE FUNCTION tube.tube_lease_tick(tube text, instance_id uuid, client_id text, ttl interval) RETURNS TABLE(partitions integer, instances integer, free integer[], mine integer[], rank integer)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    SELECT t.partitions, t.instances, t.free, t.mine, t.rank INTO partitions, instances, free, mine, rank
    FROM tube_lease_ticks(ARRAY[tube_lease_tick.tube], instance_id, client_id, ttl) AS t;
    IF NOT FOUND THEN
        PERFORM tube_private_require(tube, 'any');
        RAISE EXCEPTION 'tube % is just being changed', quote_literal(tube)
            USING ERRCODE = 'lock_not_available', HINT = 'Try again.';
    END IF;
    RETURN NEXT;
END
$$;

COMMENT ON FUNCTION tube.tube_lease_tick(tube text, instance_id uuid, client_id text, ttl interval) IS 'As tube_lease_ticks, for one tube.';

CREATE FUNCTION tube.tube_lease_ticks(tubes text[], instance_id uuid, client_id text, ttl interval) RETURNS TABLE(tube text, partitions integer, instances integer, free integer[], mine integer[], rank integer)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '1s'
    AS $$
#variable_conflict use_column
DECLARE
    me CONSTANT uuid := tube_lease_ticks.instance_id;
    label CONSTANT text := tube_lease_ticks.client_id;
BEGIN
    IF tubes IS NULL OR me IS NULL OR label IS NULL THEN
        RAISE EXCEPTION 'tubes, instance_id and client_id must be given' USING ERRCODE = 'null_value_not_allowed';
    ELSIF ttl IS NULL OR ttl <= interval '0' THEN
        RAISE EXCEPTION 'ttl is %, and must be more than nothing', coalesce(ttl::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give it several times the pause between ticks.';
    END IF;
    WITH known AS MATERIALIZED (
        SELECT r.tube FROM tube_registry AS r WHERE r.tube = ANY (tubes) FOR KEY SHARE SKIP LOCKED
    )
    INSERT INTO tube_instance AS i (tube, instance_id, client_id, seen_at)
    SELECT k.tube, me, label, clock_timestamp() FROM known AS k ORDER BY k.tube
    ON CONFLICT ON CONSTRAINT tube_instance_pkey
    DO UPDATE SET client_id = excluded.client_id, seen_at = excluded.seen_at
    WHERE i.seen_at < clock_timestamp() - ttl / 5 OR i.client_id <> excluded.client_id;
    -- Passing over locked rows: two processes that find each other old must not wait for each other.
    DELETE FROM tube_instance AS i
    WHERE (i.tube, i.instance_id) IN (
        SELECT o.tube, o.instance_id FROM tube_instance AS o
        WHERE o.tube = ANY (tubes) AND o.seen_at < clock_timestamp() - ttl
        FOR UPDATE SKIP LOCKED);

    RETURN QUERY
    WITH share AS (
        SELECT i.tube, count(*)::integer AS instances,
            -- Another order for each tube, or the same process would have the odd partition of all.
            (count(*) FILTER (
            WHERE md5(i.tube || i.instance_id) < md5(i.tube || me)))::integer AS rank
        FROM tube_instance AS i
        WHERE i.tube = ANY (tubes) AND i.seen_at >= clock_timestamp() - ttl
        GROUP BY i.tube
        HAVING bool_or(i.instance_id = me)
    )
    SELECT r.tube, r.partitions, s.instances,
        coalesce(array_agg(l.partition ORDER BY l.partition) FILTER (WHERE l.instance_id IS DISTINCT FROM me
            AND (l.leader_id IS NULL OR l.renewed_at + coalesce(l.lease, l.hold) <= clock_timestamp())), '{}'),
        coalesce(array_agg(l.partition ORDER BY l.partition) FILTER (WHERE l.instance_id = me), '{}'),
        s.rank
    FROM share AS s JOIN tube_registry AS r ON r.tube = s.tube JOIN tube_leader AS l ON l.tube = r.tube
    GROUP BY r.tube, r.partitions, s.instances, s.rank;
END
$$;

COMMENT ON FUNCTION tube.tube_lease_ticks(tubes text[], instance_id uuid, client_id text, ttl interval) IS 'Registers a process in the lease election of its tubes; returns, per tube, its partitions and the free ones.';

CREATE FUNCTION tube.tube_list(in_tbl regclass DEFAULT NULL::regclass) RETURNS TABLE(tube text, predicate text, partitions integer, tbl regclass, shard integer, shards integer, id_col name, root boolean, columns name[], replica boolean, key_type regtype, companion_of text, key_cols name[], shard_by name)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    WITH present AS (
        SELECT a.* FROM tube_attachment AS a WHERE EXISTS (SELECT FROM pg_class AS c WHERE c.oid = a.tbl)
    )
    SELECT r.tube, r.predicate, r.partitions, a.tbl, a.shard, a.shards, a.id_col,
        CASE WHEN a.tbl IS NOT NULL THEN NOT EXISTS (
            SELECT FROM present AS b WHERE b.tube = a.tube AND b.shard = a.shard AND b.position < a.position
        ) END, a.columns, a.replica, r.key_type, r.companion_of, a.key_cols, a.key_cols[a.shard_place + 1]
    FROM tube_registry AS r LEFT JOIN present AS a ON a.tube = r.tube
    WHERE r.kind = 'tube' AND (in_tbl IS NULL OR a.tbl = in_tbl)
    ORDER BY r.tube, a.shard, a.position
$$;

COMMENT ON FUNCTION tube.tube_list(in_tbl regclass) IS 'Lists tubes and attached tables; a tube without tables has one row with a NULL tbl. key_cols and shard_by are of keys of several columns.';

CREATE FUNCTION tube.tube_load(in_most integer DEFAULT 100) RETURNS TABLE(tube text, partition integer, waiting integer, since timestamp with time zone, backfill integer, backfill_since timestamp with time zone, inserted bigint, deleted bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    reg tube_registry;
    class integer;
    pods integer;
    oldest timestamptz;
    estimates bigint[];
BEGIN
    IF in_most IS NULL OR in_most < 1 THEN
        RAISE EXCEPTION 'in_most is %', coalesce(in_most::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is 1 or more.';
    END IF;
    FOR reg IN SELECT r.* FROM tube_registry AS r WHERE r.kind = 'tube' ORDER BY r.tube LOOP
        tube := reg.tube;
        inserted := pg_stat_get_tuples_inserted(to_regclass(quote_ident(reg.tube)));
        deleted := pg_stat_get_tuples_deleted(to_regclass(quote_ident(reg.tube)));
        estimates := NULL;
        FOR partition, class, pods, oldest IN EXECUTE tube_private_classes_sql(reg, in_most, false) LOOP
            IF pods = in_most THEN
                estimates := coalesce(estimates, tube_private_stats_estimates(reg));
                pods := least(2147483647, greatest(pods, estimates[partition * 2 + class + 1]));
            END IF;
            IF class = 0 THEN
                waiting := pods;
                since := oldest;
            ELSE
                backfill := pods;
                backfill_since := oldest;
                RETURN NEXT;
            END IF;
        END LOOP;
    END LOOP;
END
$$;

COMMENT ON FUNCTION tube.tube_load(in_most integer) IS 'Returns a quick view of the backlog, counting up to in_most pods of each partition and class. inserted and deleted count pods since the statistics began.';

CREATE FUNCTION tube.tube_park_count(in_tube text, in_shard integer DEFAULT NULL::integer, in_key text DEFAULT NULL::text, in_error text DEFAULT NULL::text, in_older interval DEFAULT NULL::interval) RETURNS TABLE(count bigint, seen pg_snapshot, before timestamp with time zone)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
    WITH t AS MATERIALIZED (SELECT clock_timestamp() - $5 AS before)
    SELECT (SELECT count(*) FROM tube_private_parked($1, $2, tube_private_parked_key($1, $3), $4, t.before, NULL) AS k),
        pg_current_snapshot(), t.before
    FROM t
$_$;

COMMENT ON FUNCTION tube.tube_park_count(in_tube text, in_shard integer, in_key text, in_error text, in_older interval) IS 'Counts the keys of tube_park_list without a limit. seen is the snapshot, before the time that in_older means.';

CREATE FUNCTION tube.tube_park_drop(tube text, in_shard integer DEFAULT NULL::integer, in_key text DEFAULT NULL::text, in_error text DEFAULT NULL::text, in_before timestamp with time zone DEFAULT NULL::timestamp with time zone, in_seen pg_snapshot DEFAULT NULL::pg_snapshot, in_limit integer DEFAULT 10000) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(tube_park_drop.tube);
    of_tube CONSTANT text := reg.tube;
    of_key CONSTANT text := tube_private_kept_key(reg, in_key);
    chosen bigint[];
    keys text[];
BEGIN
    PERFORM tube_private_check_limit(in_limit);
    chosen := tube_private_hold_parked(of_tube, in_shard, of_key, in_error, in_before, in_seen, false, in_limit);
    WITH gone AS (
        DELETE FROM tube_parked AS k WHERE k.park_id = ANY (chosen) RETURNING k.park_id, k.shard, k.id
    )
    SELECT array_agg(concat(g.shard, '/', g.id) ORDER BY g.park_id) INTO keys FROM gone AS g;
    IF keys IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM tube_private_audit_parked('park discard', of_tube, in_shard, of_key, in_error, in_before, keys, cardinality(keys));
    RETURN cardinality(keys);
END
$$;

COMMENT ON FUNCTION tube.tube_park_drop(tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, in_seen pg_snapshot, in_limit integer) IS 'Deletes parked keys, and returns how many. The sink stays as it is.';

CREATE FUNCTION tube.tube_park_list(in_tube text DEFAULT NULL::text, in_limit integer DEFAULT 100, in_shard integer DEFAULT NULL::integer, in_key text DEFAULT NULL::text, in_error text DEFAULT NULL::text, in_older interval DEFAULT NULL::interval) RETURNS TABLE(park_id bigint, tube text, shard integer, id text, op text, seq bigint, payload jsonb, error text, attempts integer, epoch bigint, parked_at timestamp with time zone, first_at timestamp with time zone, retried_at timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    of_key CONSTANT text := tube_private_parked_key(in_tube, in_key);
BEGIN
    PERFORM tube_private_check_limit(in_limit, 0);
    IF in_key IS NOT NULL AND in_tube IS NULL THEN
        RAISE EXCEPTION 'the key % is of no tube', quote_literal(left(in_key, 100))
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Name the tube: its type says which key that is.';
    END IF;
    RETURN QUERY
    SELECT k.park_id, k.tube, k.shard, k.id, k.op, k.seq, k.payload, k.error, k.attempts, k.epoch, k.parked_at,
        k.first_at, k.retried_at
    FROM tube_private_parked(in_tube, in_shard, of_key, in_error, clock_timestamp() - in_older, NULL) AS k
    ORDER BY k.parked_at DESC, k.park_id DESC
    LIMIT in_limit;
END
$$;

COMMENT ON FUNCTION tube.tube_park_list(in_tube text, in_limit integer, in_shard integer, in_key text, in_error text, in_older interval) IS 'Lists parked keys with their errors, latest first. in_error: a text in the error; in_older: parked longer ago.';

CREATE FUNCTION tube.tube_park_retry(tube text, in_shard integer DEFAULT NULL::integer, in_key text DEFAULT NULL::text, in_error text DEFAULT NULL::text, in_before timestamp with time zone DEFAULT NULL::timestamp with time zone, in_seen pg_snapshot DEFAULT NULL::pg_snapshot, in_limit integer DEFAULT 10000) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
#variable_conflict use_column
DECLARE
    reg CONSTANT tube_registry := tube_private_require(tube_park_retry.tube);
    of_tube CONSTANT text := reg.tube;
    of_key CONSTANT text := tube_private_kept_key(reg, in_key);
    chosen bigint[];
    keys text[];
BEGIN
    PERFORM tube_private_check_limit(in_limit);
    PERFORM FROM tube_registry AS r WHERE r.tube = of_tube FOR KEY SHARE;
    chosen := tube_private_hold_parked(of_tube, in_shard, of_key, in_error, in_before, in_seen, of_key IS NULL, in_limit);
    IF chosen = '{}' THEN
        RETURN 0;
    END IF;
    EXECUTE format($sql$
        INSERT INTO %1$s (op, shard, ids)
        SELECT 'U', k.shard, array_agg(k.id::%2$s)
        FROM (
            SELECT p.shard, p.id, (row_number() OVER (PARTITION BY p.shard ORDER BY p.park_id) - 1) / 250 AS chunk
            FROM tube_parked AS p WHERE p.park_id = ANY ($1) AND p.id IS NOT NULL) AS k
        GROUP BY k.shard, k.chunk ORDER BY k.shard, k.chunk$sql$,
        tube_private_qualify(of_tube), tube_private_key_type(of_tube)) USING chosen;
    EXECUTE format($sql$
        INSERT INTO %s (op, shard, ids, payload)
        SELECT p.op, p.shard, '{}', p.payload
        FROM tube_parked AS p WHERE p.park_id = ANY ($1) AND p.id IS NULL ORDER BY p.seq$sql$,
        tube_private_qualify(of_tube)) USING chosen;
    keys := ARRAY(SELECT concat(p.shard, '/', p.id) FROM tube_parked AS p WHERE p.park_id = ANY (chosen[:10]) ORDER BY p.park_id);
    PERFORM tube_private_wake_sleepers(of_tube,
        ARRAY(SELECT DISTINCT p.shard FROM tube_parked AS p WHERE p.park_id = ANY (chosen)));
    DELETE FROM tube_parked AS p WHERE p.park_id = ANY (chosen) AND p.id IS NULL; -- a control pod gets a new row, by its seq
    UPDATE tube_parked AS p SET retried_at = clock_timestamp() WHERE p.park_id = ANY (chosen);
    PERFORM tube_private_audit_parked('park retry', of_tube, in_shard, of_key, in_error, in_before, keys, cardinality(chosen));
    RETURN cardinality(chosen);
END
$_$;

COMMENT ON FUNCTION tube.tube_park_retry(tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, in_seen pg_snapshot, in_limit integer) IS 'Touches parked keys, and returns how many. in_before: only keys parked before then.';

CREATE FUNCTION tube.tube_pause(tube text, in_partition integer DEFAULT NULL::integer, lasts interval DEFAULT NULL::interval, reason text DEFAULT NULL::text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    of_partitions CONSTANT integer := (tube_private_require(tube, 'any')).partitions;
    ends CONSTANT timestamptz := clock_timestamp() + lasts;
    number bigint;
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_pause.tube FOR KEY SHARE;
    IF lasts <= interval '0' THEN
        RAISE EXCEPTION 'the pause would last %', lasts
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give a time of more than 0, or NULL for no end.';
    ELSIF in_partition IS NOT NULL THEN
        PERFORM tube_private_check_partition(tube, of_partitions, in_partition);
    END IF;
    INSERT INTO tube_paused AS p (tube, partition, partitions, kind, reason, until)
    VALUES (tube_pause.tube, in_partition, CASE WHEN in_partition IS NULL THEN 0 ELSE of_partitions END, 'operator',
        tube_private_masked(tube_pause.reason), ends)
    ON CONFLICT (tube, kind, partitions, coalesce(partition, -1)) DO UPDATE
    SET reason = excluded.reason, until = excluded.until, paused_by = session_user, paused_at = clock_timestamp()
    RETURNING p.pause_id INTO number;
    PERFORM tube_private_forget_rest(tube);
    PERFORM tube_audit_add('pause', tube, jsonb_strip_nulls(jsonb_build_object('partition', in_partition, 'until', ends,
        'reason', tube_private_masked(tube_pause.reason))));
    IF in_partition IS NULL THEN
        PERFORM tube_pause(r.tube, NULL, lasts, tube_pause.reason) FROM tube_registry AS r WHERE r.companion_of = tube_pause.tube;
    END IF;
    RETURN number;
END
$$;

COMMENT ON FUNCTION tube.tube_pause(tube text, in_partition integer, lasts interval, reason text) IS 'Pauses a tube with its companions, or a partition: its leader keeps leading, but marks and sends nothing.';

CREATE FUNCTION tube.tube_pause_list(in_tube text DEFAULT NULL::text) RETURNS TABLE(tube text, partition integer, kind text, reason text, until timestamp with time zone, halted_since timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT r.tube, n.partition, p.kind, p.reason, p.until, h.since
    FROM tube_registry AS r
    CROSS JOIN LATERAL generate_series(0, r.partitions - 1) AS n (partition)
    CROSS JOIN LATERAL tube_private_pause_of(r.tube, r.partitions, n.partition) AS p
    LEFT JOIN tube_leader AS l ON l.tube = r.tube AND l.partition = n.partition
    LEFT JOIN tube_halted AS h ON h.leader_id = l.leader_id
    WHERE (in_tube IS NULL OR r.tube = in_tube) AND EXISTS (SELECT FROM tube_paused AS s WHERE s.tube = r.tube)
    ORDER BY r.tube, n.partition
$$;

COMMENT ON FUNCTION tube.tube_pause_list(in_tube text) IS 'Lists paused partitions, why, and since when their leader has come to rest.';

CREATE FUNCTION tube.tube_pause_reason(tube text, partitions integer, partition integer) RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
    SELECT p.reason FROM tube_private_pause_of($1, $2, $3) AS p
$_$;

COMMENT ON FUNCTION tube.tube_pause_reason(tube text, partitions integer, partition integer) IS 'Returns why a partition has to pause, or NULL.';

CREATE FUNCTION tube.tube_pods_ack(tube text, in_partition integer DEFAULT NULL::integer, in_from bigint DEFAULT NULL::bigint, in_to bigint DEFAULT NULL::bigint, in_shard integer DEFAULT NULL::integer, in_key text DEFAULT NULL::text, in_limit integer DEFAULT 10000) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_check_pods(tube, in_partition, in_from, in_to, in_shard, in_key, in_limit);
    held record;
BEGIN
    SELECT * INTO held FROM tube_private_hold_pods(reg, in_partition, in_from, in_to, in_shard, in_key, in_limit, false);
    IF held.flying <> '{}' THEN
        RAISE EXCEPTION '% of these pods are in flight, the first is %, by %', cardinality(held.flying), held.first_flying,
            held.of_client
            USING ERRCODE = 'TU142', HINT = 'Pause the tube or the partition first (tube_pause), and try again.';
    ELSIF held.free = '{}' THEN
        RETURN 0;
    END IF;
    PERFORM tube_private_forget_failures(reg, held.free, in_key);
    PERFORM tube_private_remove_key(reg, held.free, in_key);
    PERFORM tube_private_audit_pods('pods discard', reg.tube, in_partition, in_from, in_to, in_shard, in_key,
        cardinality(held.free));
    RETURN cardinality(held.free);
END
$$;

COMMENT ON FUNCTION tube.tube_pods_ack(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer) IS 'Removes pods as done, or one key from them, without sending anything.';

CREATE FUNCTION tube.tube_pods_count(tube text, in_partition integer DEFAULT NULL::integer, in_from bigint DEFAULT NULL::bigint, in_to bigint DEFAULT NULL::bigint, in_shard integer DEFAULT NULL::integer, in_key text DEFAULT NULL::text) RETURNS TABLE(pods bigint, in_flight bigint, control bigint, newest bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $_$
DECLARE
    reg CONSTANT tube_registry := tube_private_check_pods(tube, in_partition, in_from, in_to, in_shard, in_key, 1);
BEGIN
    RETURN QUERY EXECUTE (
        SELECT format($sql$
            SELECT count(*), count(*) FILTER (WHERE c.leader_id IS NOT NULL AND tube_private_in_flight(c.leader_id, c.seq)),
                count(*) FILTER (WHERE c.is_control), max(c.seq)
            FROM (%s) AS c$sql$, string_agg(format(
                'SELECT p.seq, p.leader_id, p.ids = ''{}'' AS is_control FROM %s AS p WHERE %s',
                tube_private_qualify(reg.tube), r.condition), ' UNION ALL '))
        FROM tube_private_pod_ranges(reg, in_partition, in_from, in_to, in_shard, in_key) AS r);
END
$_$;

COMMENT ON FUNCTION tube.tube_pods_count(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text) IS 'Counts the pods of tube_pods_list without a limit.';

CREATE FUNCTION tube.tube_pods_delete(tube text, partitions integer, partition integer, seqs bigint[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $_$
DECLARE
    backfills bigint[];
    deleted integer;
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_pods_delete.tube FOR KEY SHARE;
    PERFORM tube_private_require(tube);
    PERFORM tube_private_check_partition(tube, partitions, partition);
    backfills := tube_private_backfills_at_end(tube, seqs);
    EXECUTE format('DELETE FROM %I.%I WHERE %s'
        ' AND (CASE WHEN op = ''B'' THEN 1 ELSE 0 END) = ANY (''{0,1}'') AND seq = ANY ($1)',
        tube_private_schema(), tube, (tube_private_slices(tube, partitions, partition)).pods)
    USING seqs;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    PERFORM tube_private_backfill_count_ends(b.id) FROM unnest(backfills) AS b (id);
    RETURN deleted;
END
$_$;

COMMENT ON FUNCTION tube.tube_pods_delete(tube text, partitions integer, partition integer, seqs bigint[]) IS 'Deletes pods by their seqs, whoever has marked them. Don''t use it beside a worker.';

CREATE FUNCTION tube.tube_pods_fail(tube text, partitions integer, partition integer, leader_id uuid, items jsonb) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    my_epoch bigint;
    failed_at timestamptz;
    written integer;
BEGIN
    PERFORM tube_private_check_items(items);
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_pods_fail.tube FOR KEY SHARE;
    my_epoch := tube_private_hold_term(
        tube_pods_fail.tube, tube_pods_fail.partitions, tube_pods_fail.partition, tube_pods_fail.leader_id);
    PERFORM tube_private_check_shards(
        tube_pods_fail.tube, tube_pods_fail.partitions, tube_pods_fail.partition, items);
    failed_at := clock_timestamp();
    INSERT INTO tube_attempt AS a (tube, shard, id, attempts, error, epoch, first_at, last_at, next_at)
    SELECT DISTINCT ON (i.shard, i.id) tube_pods_fail.tube, i.shard, i.id, i.attempts, i.error, my_epoch,
        failed_at, failed_at, failed_at + coalesce(i.delay, 0) * interval '1 second'
    FROM jsonb_to_recordset(items) AS i (shard integer, id text, error text, attempts integer, delay float8)
    ORDER BY i.shard, i.id, i.attempts DESC
    ON CONFLICT (tube, shard, md5(id)) DO UPDATE
    SET attempts = excluded.attempts, error = excluded.error, epoch = excluded.epoch, last_at = excluded.last_at,
        next_at = excluded.next_at;
    GET DIAGNOSTICS written = ROW_COUNT;
    RETURN written;
END
$$;

COMMENT ON FUNCTION tube.tube_pods_fail(tube text, partitions integer, partition integer, leader_id uuid, items jsonb) IS 'Records failures of keys that will be retried: objects with shard, id, error, attempts and delay.';

CREATE FUNCTION tube.tube_pods_insert(tube_or_tubes text, query text, shard integer, op character DEFAULT 'B'::bpchar, approx_size bigint DEFAULT NULL::bigint, fetch_chunk_size integer DEFAULT 20000, insert_chunk_size integer DEFAULT 250, in_search_path text DEFAULT current_setting('search_path'::text)) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET cursor_tuple_fraction TO '1'
    AS $_$
DECLARE
    most CONSTANT integer := 1000000; -- an array of a fetch has to fit into memory
    every CONSTANT interval := '2 seconds';
    began CONSTANT timestamptz := clock_timestamp();
    told timestamptz := began;
    portal CONSTANT text := quote_ident('pytube ' || gen_random_uuid());
    body CONSTANT text := E'(\n' || regexp_replace(query, '[;\s]+$', '') || E'\n)';
    id_type regtype;
    declaration text;
    next_rows text;
    numbers boolean := true; -- whether all keys are bigint
    fetched bigint;
    made bigint;
    done bigint := 0;
    pods bigint := 0;
BEGIN
    -- Refused, and warned of, before the query is run.
    BEGIN
        PERFORM tube_pods_put(tube_or_tubes, shard, op, '{}', insert_chunk_size, false);
    EXCEPTION WHEN datatype_mismatch THEN
        PERFORM tube_keys_put(tube_or_tubes, shard, op, '{}', insert_chunk_size, false);
        numbers := false;
    END;
    IF fetch_chunk_size IS NULL OR fetch_chunk_size < 1 THEN
        RAISE EXCEPTION '% rows can''t be read at a time', coalesce(fetch_chunk_size::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give a fetch_chunk_size of 1 or more.';
    ELSIF query IS NULL THEN
        RAISE EXCEPTION 'the query is NULL'
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Give the text of a SELECT.';
    END IF;

    BEGIN
        -- A first row of NULLs, so that nothing of the query is run.
        SELECT t.id::oid INTO id_type FROM tube_as_caller(in_search_path, NULL, format(
            'SELECT pg_catalog.pg_typeof(q.id)::pg_catalog.oid::pg_catalog.int8'
            ' FROM (SELECT NULL, NULL UNION ALL SELECT * FROM %s AS r) AS q (id, place) LIMIT 1', body)) AS t (id);
    EXCEPTION WHEN syntax_error THEN
        -- If it is right but for the number of its columns, it passes here.
        PERFORM FROM tube_as_caller(in_search_path, NULL,
            format('SELECT 1::pg_catalog.int8 FROM %s AS q LIMIT 0', body));
        RAISE EXCEPTION 'the query of tube_pods_insert has not two columns'
            USING ERRCODE = 'syntax_error',
                HINT = 'Give the id and a row number: SELECT id, row_number() OVER () FROM ...';
    END;

    declaration := format(
        'DECLARE %s NO SCROLL CURSOR FOR SELECT q.id::pg_catalog.%s FROM %s AS q (id, place)', portal,
        CASE
            WHEN NOT numbers THEN 'text'
            WHEN id_type IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype) THEN 'int8'
            ELSE 'text::pg_catalog.int8' -- a number with a fraction is not rounded to an id, but refused
        END, body);
    next_rows := format('FETCH FORWARD %s FROM %s', least(fetch_chunk_size, most), portal);
    LOOP
        IF numbers THEN
            SELECT count(*), tube_pods_put(tube_or_tubes, shard, op, array_agg(t.id), insert_chunk_size, false)
            INTO fetched, made
            FROM tube_as_caller(in_search_path, declaration, next_rows) AS t (id) HAVING count(*) > 0;
        ELSE
            SELECT count(*), tube_keys_put(tube_or_tubes, shard, op, array_agg(t.id), insert_chunk_size, false)
            INTO fetched, made
            FROM tube_keys_as_caller(in_search_path, declaration, next_rows) AS t (id) HAVING count(*) > 0;
        END IF;
        EXIT WHEN NOT FOUND;
        declaration := NULL;
        pods := pods + made;
        done := done + fetched;
        IF clock_timestamp() - told >= every THEN
            told := clock_timestamp();
            RAISE NOTICE 'tube_pods_insert: insert_ids=% insert_finished=f -- %: % ids%, % a second',
                done, tube_or_tubes, done,
                CASE WHEN approx_size > 0
                    THEN format(' of about %s (%s %%)', approx_size, least(100, 100 * done / approx_size))
                    ELSE '' END,
                round(done / extract(epoch FROM told - began));
        END IF;
        EXIT WHEN fetched < least(fetch_chunk_size, most);
    END LOOP;
    EXECUTE 'CLOSE ' || portal;
    IF numbers THEN
        PERFORM tube_pods_put(tube_or_tubes, shard, op, '{}', insert_chunk_size, true);
    ELSE
        PERFORM tube_keys_put(tube_or_tubes, shard, op, '{}', insert_chunk_size, true);
    END IF;
    RAISE NOTICE 'tube_pods_insert: insert_ids=% insert_finished=t -- %: % ids in % pods, in % s',
        done, tube_or_tubes, done, pods, round(extract(epoch FROM clock_timestamp() - began), 1);
END
$_$;

COMMENT ON FUNCTION tube.tube_pods_insert(tube_or_tubes text, query text, shard integer, op character, approx_size bigint, fetch_chunk_size integer, insert_chunk_size integer, in_search_path text) IS 'Touches all ids that a query returns, in one transaction, with the caller''s rights. The query''s columns are the id and a row number. Join tubes with commas. NOTICEs report progress every 2 s.';

CREATE FUNCTION tube.tube_pods_list(tube text, in_partition integer DEFAULT NULL::integer, in_from bigint DEFAULT NULL::bigint, in_to bigint DEFAULT NULL::bigint, in_shard integer DEFAULT NULL::integer, in_key text DEFAULT NULL::text, in_limit integer DEFAULT 100, in_keys integer DEFAULT 100) RETURNS TABLE(seq bigint, partition integer, op text, shard integer, keys text[], key_count integer, control text, ts timestamp with time zone, state text, client_id text, failures bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $_$
DECLARE
    reg CONSTANT tube_registry := tube_private_check_pods(tube, in_partition, in_from, in_to, in_shard, in_key, in_limit);
BEGIN
    RETURN QUERY EXECUTE format($sql$
        SELECT c.seq, c.shard %% %s, c.op::text, c.shard::integer, c.ids[:$2]::text[], cardinality(c.ids),
            CASE WHEN c.ids = '{}' THEN coalesce(c.payload ->> 'type', 'other') END, c.ts,
            CASE WHEN c.leader_id IS NULL THEN 'waiting' WHEN f.flies THEN 'in flight' ELSE 'left' END,
            CASE WHEN f.flies THEN l.client_id END,
            (SELECT count(*) FROM unnest(c.ids::text[]) AS k (id) JOIN tube_attempt AS a
                ON a.tube = $1 AND a.shard = c.shard AND md5(a.id) = md5(k.id) AND a.id = k.id)
        FROM (SELECT u.* FROM (%s) AS u ORDER BY u.class, u.seq LIMIT $3) AS c
        CROSS JOIN LATERAL (SELECT tube_private_in_flight(c.leader_id, c.seq)) AS f (flies)
        LEFT JOIN tube_leader AS l ON l.leader_id = c.leader_id
        ORDER BY c.class, c.seq$sql$, reg.partitions, (
            -- Each class of each partition comes by the index of the tube; the query merges them.
            SELECT string_agg(format('(SELECT %s AS class, p.* FROM %s AS p WHERE %s ORDER BY p.seq LIMIT $3)', r.class,
                tube_private_qualify(reg.tube), r.condition), ' UNION ALL ')
            FROM tube_private_pod_ranges(reg, in_partition, in_from, in_to, in_shard, in_key) AS r))
    USING reg.tube, in_keys, in_limit;
END
$_$;

COMMENT ON FUNCTION tube.tube_pods_list(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer, in_keys integer) IS 'Lists waiting pods, in processing order.';

CREATE FUNCTION tube.tube_pods_mark(tube text, partitions integer, partition integer, leader_id uuid, pods_limit integer DEFAULT 1000, floor bigint DEFAULT 0, backfill_floor bigint DEFAULT 0, exclude_backfill boolean DEFAULT false) RETURNS TABLE(seq bigint, op text, shard integer, ids bigint[], keys text[], payload jsonb, ts timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $_$
DECLARE
    statement text;
    marked integer;
BEGIN
    IF pods_limit IS NULL OR pods_limit NOT BETWEEN 1 AND 1000000 THEN
        RAISE EXCEPTION 'pods_limit is %', coalesce(pods_limit::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is 1 to 1000000.';
    END IF;
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);

    IF tube_private_keeps_plans(tube, partitions) THEN
        RETURN QUERY EXECUTE format('SELECT * FROM %s($1, $2, $3, 0, $4, $5, $6, $7)', tube_private_planned(tube, 'mark'))
        USING leader_id, coalesce(floor, 0), pods_limit, partition, partitions, coalesce(backfill_floor, 0),
            exclude_backfill IS NOT TRUE;
        RETURN;
    END IF;
    statement := tube_private_mark_sql(tube, partitions, partition);
    RETURN QUERY EXECUTE statement USING leader_id, coalesce(floor, 0), pods_limit, 0;
    GET DIAGNOSTICS marked = ROW_COUNT;
    IF marked < pods_limit AND exclude_backfill IS NOT TRUE THEN
        RETURN QUERY EXECUTE statement USING leader_id, coalesce(backfill_floor, 0), pods_limit - marked, 1;
    END IF;
END
$_$;

COMMENT ON FUNCTION tube.tube_pods_mark(tube text, partitions integer, partition integer, leader_id uuid, pods_limit integer, floor bigint, backfill_floor bigint, exclude_backfill boolean) IS 'Reserves pods for a term, and returns them in processing order. The file explains how to send it.';

CREATE FUNCTION tube.tube_pods_of(tube text, shard integer, id text, most integer DEFAULT 100000) RETURNS TABLE(seq bigint, op text, ts timestamp with time zone, keys integer, marked_by uuid, looked_at bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    AS $_$
DECLARE
    parts CONSTANT integer := (tube_private_require(tube)).partitions;
    queue CONSTANT text := tube_private_qualify(tube);
    pods text;
BEGIN
    SELECT string_agg(format('(SELECT q.ctid, q.shard, q.ids FROM %s AS q WHERE %s'
            ' AND (CASE WHEN q.op = ''B'' THEN 1 ELSE 0 END) = %s ORDER BY q.seq LIMIT $3)', queue, s.slice, c.class),
        ' UNION ALL ' ORDER BY c.class)
    INTO pods
    FROM unnest((tube_private_slices(tube, parts, tube_pods_of.shard % parts)).slices) AS s (slice),
        generate_series(0, 1) AS c (class);
    -- One pass that keeps only the places of its finds: a hundred thousand pods may hold 160 MB of ids.
    RETURN QUERY EXECUTE format($sql$
        SELECT f.seq, f.op::text, f.ts, cardinality(f.ids), f.leader_id, l.looked_at
        FROM (
            SELECT count(*) AS looked_at, array_agg(p.ctid) FILTER (WHERE p.shard = $1 AND $2::%s = ANY (p.ids)) AS places
            FROM (SELECT * FROM (%s) AS u LIMIT $3) AS p) AS l
        LEFT JOIN LATERAL unnest(l.places) AS u (place) ON true
        LEFT JOIN %s AS f ON f.ctid = u.place
        ORDER BY (f.op = 'B'), f.seq$sql$, tube_private_key_type(tube), pods, queue)
    USING tube_pods_of.shard, tube_pods_of.id, most;
END
$_$;

COMMENT ON FUNCTION tube.tube_pods_of(tube text, shard integer, id text, most integer) IS 'Lists the pods in which a key waits, in order of delivery, and the terms that have marked them.';

CREATE FUNCTION tube.tube_pods_park(tube text, partitions integer, partition integer, leader_id uuid, items jsonb, in_limit integer DEFAULT NULL::integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    my_epoch bigint;
    written  bigint[];
BEGIN
    PERFORM tube_private_check_items(items);
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_pods_park.tube FOR KEY SHARE;
    PERFORM tube_private_require(tube_pods_park.tube);
    my_epoch := tube_private_hold_term(
        tube_pods_park.tube, tube_pods_park.partitions, tube_pods_park.partition, tube_pods_park.leader_id);
    PERFORM tube_private_check_shards(
        tube_pods_park.tube, tube_pods_park.partitions, tube_pods_park.partition, items);

    WITH item AS MATERIALIZED (
        SELECT i.shard, i.id, i.op, i.seq, nullif(i.payload, 'null') AS payload, i.error, i.attempts, my_epoch AS epoch
        FROM jsonb_to_recordset(items) AS i (
            shard integer, id text, op text, seq bigint, payload jsonb, error text, attempts integer)
    ), tried AS (
        DELETE FROM tube_attempt AS a USING item AS i
        WHERE a.tube = tube_pods_park.tube AND a.shard = i.shard AND md5(a.id) = md5(i.id) AND a.id = i.id
        RETURNING a.shard, a.id, a.first_at
    ), keys AS (
        INSERT INTO tube_parked AS k (tube, shard, id, op, seq, payload, error, attempts, epoch, first_at)
        SELECT DISTINCT ON (i.shard, i.id) tube_pods_park.tube, i.*, coalesce(t.first_at, clock_timestamp())
        FROM item AS i LEFT JOIN tried AS t ON t.shard = i.shard AND t.id = i.id
        WHERE i.id IS NOT NULL ORDER BY i.shard, i.id, i.seq DESC
        ON CONFLICT (tube, shard, md5(id)) WHERE id IS NOT NULL
        DO UPDATE SET op = excluded.op, seq = excluded.seq, payload = excluded.payload, error = excluded.error,
            attempts = excluded.attempts, epoch = excluded.epoch, parked_at = clock_timestamp(), retried_at = NULL
        RETURNING park_id
    ), control AS (
        INSERT INTO tube_parked AS k (tube, shard, id, op, seq, payload, error, attempts, epoch, first_at)
        SELECT DISTINCT ON (i.seq) tube_pods_park.tube, i.*, clock_timestamp()
        FROM item AS i WHERE i.id IS NULL ORDER BY i.seq
        ON CONFLICT (tube, seq) WHERE id IS NULL
        DO UPDATE SET op = excluded.op, payload = excluded.payload, error = excluded.error,
            attempts = excluded.attempts, epoch = excluded.epoch, parked_at = clock_timestamp()
        RETURNING park_id
    )
    SELECT array_agg(r.park_id) INTO written FROM (TABLE keys UNION ALL TABLE control) AS r;
    IF in_limit < (
        SELECT count(*) FROM (
            SELECT FROM tube_parked AS k WHERE k.tube = tube_pods_park.tube AND k.retried_at IS NULL
            LIMIT in_limit::bigint + 1) AS n)
    THEN
        RAISE EXCEPTION 'more than % keys of tube % would be parked', in_limit, quote_literal(tube_pods_park.tube)
            USING ERRCODE = 'TU141', HINT = 'Fix their common cause, retry or discard some, and resume the tube.';
    END IF;

    DELETE FROM tube_parked_document AS d WHERE d.park_id = ANY (written);
    INSERT INTO tube_parked_document (park_id, document)
    SELECT DISTINCT ON (k.park_id) k.park_id, decode(i.document, 'base64')
    FROM jsonb_to_recordset(items) AS i (shard integer, id text, seq bigint, document text)
    JOIN tube_parked AS k ON k.tube = tube_pods_park.tube AND k.shard = i.shard AND md5(k.id) = md5(i.id) AND k.id = i.id
    WHERE i.document IS NOT NULL
    ORDER BY k.park_id, i.seq DESC;
    RETURN coalesce(cardinality(written), 0);
END
$$;

COMMENT ON FUNCTION tube.tube_pods_park(tube text, partitions integer, partition integer, leader_id uuid, items jsonb, in_limit integer) IS 'Parks keys: objects with shard, id, op, seq, payload, error, attempts and document (base64). With in_limit, parks none if the tube would have more.';

CREATE FUNCTION tube.tube_pods_purge(tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET enable_tidscan TO 'on'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $_$
DECLARE
    purged integer;
BEGIN
    IF tube_private_keeps_plans(tube, partitions) THEN
        PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
        EXECUTE format('SELECT %s($1, 0, $2, min(s.seq), max(s.seq), $3, $4) FROM unnest($2) AS s (seq)',
            tube_private_planned(tube, 'purge'))
        INTO purged USING leader_id, coalesce(seqs, '{}'), partition, partitions;
    ELSE
        purged := tube_private_change_pods('DELETE FROM %s AS pod', tube, partitions, partition, leader_id,
            coalesce(seqs, '{}'));
    END IF;
    PERFORM tube_private_tell_watchers(tube, partitions, partition);
    RETURN purged;
END
$_$;

COMMENT ON FUNCTION tube.tube_pods_purge(tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) IS 'Deletes finished pods of a term.';

CREATE FUNCTION tube.tube_pods_put(tube_or_tubes text, shard integer, op text, ids bigint[], chunk_size integer DEFAULT 250, last boolean DEFAULT true) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    RETURN tube_private_put(tube_or_tubes, shard, op, ids, chunk_size, last);
END
$$;

COMMENT ON FUNCTION tube.tube_pods_put(tube_or_tubes text, shard integer, op text, ids bigint[], chunk_size integer, last boolean) IS 'Queues ids in tubes as pods, in the given order, and returns the number of pods. last: the last piece of several.';

CREATE FUNCTION tube.tube_pods_reset(tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[] DEFAULT NULL::bigint[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    RETURN tube_private_change_pods('UPDATE %s AS pod SET leader_id = NULL', tube, partitions, partition, leader_id,
        seqs);
END
$$;

COMMENT ON FUNCTION tube.tube_pods_reset(tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) IS 'Returns pods of a term to the queue; NULL: all of them.';

CREATE FUNCTION tube.tube_pods_retry(tube text, in_partition integer DEFAULT NULL::integer, in_from bigint DEFAULT NULL::bigint, in_to bigint DEFAULT NULL::bigint, in_shard integer DEFAULT NULL::integer, in_key text DEFAULT NULL::text, in_limit integer DEFAULT 10000) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    reg CONSTANT tube_registry := tube_private_check_pods(tube, in_partition, in_from, in_to, in_shard, in_key, in_limit);
    queue CONSTANT text := tube_private_qualify(reg.tube);
    held record;
    chosen tid[];
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = reg.tube FOR KEY SHARE;
    SELECT * INTO held
    FROM tube_private_hold_pods(reg, in_partition, in_from, in_to, in_shard, in_key, in_limit, in_key IS NULL);
    chosen := held.free || CASE WHEN in_key IS NULL THEN '{}' ELSE held.flying END;
    IF chosen = '{}' THEN
        RETURN 0;
    END IF;
    EXECUTE format(CASE WHEN in_key IS NULL
        THEN 'INSERT INTO %1$s (op, shard, ids, payload) SELECT p.op, p.shard, p.ids, p.payload FROM %1$s AS p'
            ' WHERE p.ctid = ANY ($1) ORDER BY p.seq'
        ELSE 'INSERT INTO %1$s (op, shard, ids) SELECT ''U'', p.shard, ARRAY[%3$L]::%2$s[] FROM %1$s AS p'
            ' WHERE p.ctid = ANY ($1) GROUP BY p.shard' END, queue, reg.key_type, in_key) USING chosen;
    PERFORM tube_private_wake_sleepers(reg.tube, NULL);
    IF in_key IS NULL THEN
        EXECUTE format('DELETE FROM %s AS p WHERE p.ctid = ANY ($1)', queue) USING chosen;
    END IF;
    PERFORM tube_private_audit_pods('pods retry', reg.tube, in_partition, in_from, in_to, in_shard, in_key,
        cardinality(chosen));
    RETURN cardinality(chosen);
END
$_$;

COMMENT ON FUNCTION tube.tube_pods_retry(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer) IS 'Returns the keys of pods to the queue, and the number of pods.';

CREATE FUNCTION tube.tube_pods_sql(tube text, partitions integer, partition integer, exclude_backfill boolean DEFAULT false) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    class CONSTANT text := '(CASE WHEN op = ''B'' THEN 1 ELSE 0 END)';
    slices text[];
BEGIN
    PERFORM tube_private_check_partition(tube, partitions, partition);
    slices := ARRAY(SELECT s.slice || CASE WHEN exclude_backfill THEN format(' AND %s = 0', class) ELSE '' END
        FROM unnest((tube_private_slices(tube, partitions, partition)).slices) AS s (slice));
    IF cardinality(slices) = 1 THEN
        RETURN format('SELECT seq, op, shard::integer, ids::text, payload FROM %I.%I WHERE %s ORDER BY %s, seq',
            tube_private_schema(), tube, slices[1], class);
    END IF;
    RETURN format('SELECT seq, op, shard::integer, ids::text, payload FROM (%s) AS pods ORDER BY class, seq',
        (SELECT string_agg(format('(SELECT *, %s AS class FROM %I.%I WHERE %s ORDER BY class, seq)',
            class, tube_private_schema(), tube, s.slice), ' UNION ALL ') FROM unnest(slices) AS s (slice)));
END
$$;

COMMENT ON FUNCTION tube.tube_pods_sql(tube text, partitions integer, partition integer, exclude_backfill boolean) IS 'Returns the text of a query that reads a partition in processing order, for consumers without terms. Valid while the number of partitions stays.';

CREATE FUNCTION tube.tube_pods_stop(tube text, partitions integer, partition integer, leader_id uuid, why text, reason text, items jsonb) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
#variable_conflict use_column
BEGIN
    IF why IS NULL OR why NOT IN ('poison', 'park_limit') THEN
        RAISE EXCEPTION 'a tube is not stopped for %', quote_nullable(why)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is ''poison'' or ''park_limit''.';
    END IF;
    PERFORM tube_pods_fail(tube, partitions, partition, leader_id, items);
    INSERT INTO tube_paused AS p (tube, partition, partitions, kind, reason)
    VALUES (tube_pods_stop.tube, NULL, 0, why, tube_private_masked(tube_pods_stop.reason))
    ON CONFLICT (tube, kind, partitions, coalesce(partition, -1)) DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM tube_private_forget_rest(tube);
    -- Not the reason: what a sink says of a document may quote it.
    PERFORM tube_audit_add('stop', tube, jsonb_build_object('partition', tube_pods_stop.partition, 'why', why,
        'keys', tube_private_some_keys(ARRAY(
            SELECT format('%s/%s', i.shard, i.id) FROM jsonb_to_recordset(items) AS i (shard integer, id text)))));
    RETURN true;
END
$$;

COMMENT ON FUNCTION tube.tube_pods_stop(tube text, partitions integer, partition integer, leader_id uuid, why text, reason text, items jsonb) IS 'Stops the whole tube until tube_resume, for poison or the park_limit. False if it was stopped.';

CREATE FUNCTION tube.tube_pods_unpark(tube text, partitions integer, partition integer, leader_id uuid, shards integer[], ids text[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    removed integer;
BEGIN
    IF cardinality(shards) IS DISTINCT FROM cardinality(ids) THEN
        RAISE EXCEPTION 'there are % shards and % ids',
            coalesce(cardinality(shards)::text, 'no'), coalesce(cardinality(ids)::text, 'no')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give one shard for each id.';
    END IF;
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    DELETE FROM tube_parked AS k
    USING unnest(shards, ids) AS key (shard, id)
    WHERE k.tube = tube_pods_unpark.tube
      AND k.shard = key.shard
      AND md5(k.id) = md5(key.id) -- so it is in the index
      AND k.id = key.id
      AND mod(k.shard, partitions) = partition;
    GET DIAGNOSTICS removed = ROW_COUNT;
    DELETE FROM tube_attempt AS a
    USING unnest(shards, ids) AS key (shard, id)
    WHERE a.tube = tube_pods_unpark.tube
      AND a.shard = key.shard
      AND md5(a.id) = md5(key.id)
      AND a.id = key.id
      AND mod(a.shard, partitions) = partition;
    RETURN removed;
END
$$;

COMMENT ON FUNCTION tube.tube_pods_unpark(tube text, partitions integer, partition integer, leader_id uuid, shards integer[], ids text[]) IS 'Deletes the errors and failures of keys that were delivered after all.';

CREATE FUNCTION tube.tube_private_add_tube(tube text, partitions integer, predicate text, key_type regtype, companion_of text) RETURNS boolean
    LANGUAGE plpgsql
    AS $_$
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
$_$;

CREATE FUNCTION tube.tube_private_adopt(outbox text, tbl regclass, partitions integer, wake boolean) RETURNS text[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $_$
DECLARE
    was tube_outbox;
    worker CONSTANT name := (tube_private_adoption_rights(outbox, tbl)).worker;
    wakes boolean;
BEGIN
    IF NOT (has_table_privilege(worker, tbl, 'SELECT') AND has_table_privilege(worker, tbl, 'DELETE')
            AND has_column_privilege(worker, tbl, 'leader_id', 'UPDATE')) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('%s has not been opened to %I by its owner', tbl, worker),
            HINT = 'Its owner has to adopt it (outbox_adopt).';
    END IF;
    was := tube_private_enter_outbox(outbox, partitions);
    IF was.outbox IS NULL THEN
        INSERT INTO tube_outbox (outbox, tbl, value_type, adopted)
        SELECT $1, $2, CASE a.atttypid WHEN 'bytea'::regtype THEN 'bytea' ELSE 'text' END::regtype, true
        FROM pg_attribute AS a WHERE a.attrelid = $2 AND a.attname = 'kafka_value';
    ELSIF was.tbl <> tbl THEN
        RAISE EXCEPTION USING ERRCODE = 'TU107',
            MESSAGE = format('%s can''t be adopted: outbox %L has the table %s', tbl, outbox, was.tbl),
            HINT = 'Choose another name, or drop that outbox first.';
    END IF;
    PERFORM tube_private_repartition_outbox(outbox, partitions);
    wakes := EXISTS (SELECT FROM pg_trigger AS t
        WHERE t.tgrelid = tbl AND t.tgfoid = 'tube_private_outbox_wake'::regproc);
    RETURN CASE WHEN wake AND NOT wakes THEN ARRAY[tube_private_outbox_trigger(tube_private_require(outbox, 'any'), tbl::text)]
        WHEN wakes AND wake IS NOT TRUE THEN ARRAY[format('DROP TRIGGER outbox_wake_trigger ON %s', tbl)] END;
END
$_$;

CREATE FUNCTION tube.tube_private_adoption_fault(tbl regclass) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT coalesce(tube_private_table_fault(tbl), CASE
        WHEN c.relkind = 'p' THEN 'it is a partitioned table'
        WHEN c.relpersistence = 'u' THEN 'it is an unlogged table, which a crash of the server empties'
        WHEN c.relrowsecurity THEN 'row-level security could hide records from the worker'
        WHEN EXISTS (SELECT FROM pg_rewrite AS w WHERE w.ev_class = tbl) THEN 'it has rules'
        ELSE (
            SELECT format(CASE WHEN a.attname IS NULL THEN 'it has no column %I of the type %s'
                ELSE 'its column %I has another type than %s' END, w.name, w.says)
            FROM (VALUES
                (1, 'id', 'bigint', '{bigint,integer,smallint}'),
                (2, 'create_time', 'timestamptz', '{timestamptz}'),
                (3, 'kafka_topic', 'varchar or text', '{varchar,text}'),
                (4, 'kafka_key', 'varchar or text', '{varchar,text}'),
                (5, 'kafka_value', 'varchar, text or bytea', '{varchar,text,bytea}'),
                (6, 'kafka_header_keys', 'text[]', '{text[],varchar[]}'),
                (7, 'kafka_header_values', 'text[]', '{text[],varchar[]}'),
                (8, 'leader_id', 'uuid', '{uuid}')
            ) AS w (place, name, says, types)
            LEFT JOIN pg_attribute AS a ON a.attrelid = tbl AND a.attname = w.name AND a.attnum > 0 AND NOT a.attisdropped
            WHERE a.atttypid IS NULL OR a.atttypid <> ALL (w.types::regtype[])
            ORDER BY w.place LIMIT 1)
        END, (
            -- A record without a topic would be in no partition, and one without a time could not be reported.
            SELECT format('its column %I may be NULL', a.attname) FROM pg_attribute AS a
            WHERE a.attrelid = tbl AND a.attname IN ('create_time', 'kafka_topic') AND NOT a.attnotnull
            ORDER BY a.attname LIMIT 1
        ), CASE WHEN NOT EXISTS (
            SELECT FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = tbl AND a.attnum = i.indkey[0]
            WHERE i.indrelid = tbl AND i.indisprimary AND i.indisvalid AND i.indimmediate AND i.indnkeyatts = 1
                AND a.attname = 'id'
        ) THEN 'its primary key is not the column id' END)
    FROM pg_class AS c WHERE c.oid = tbl
$$;

CREATE FUNCTION tube.tube_private_adoption_rights(outbox text, tbl regclass, OUT worker name, OUT statements text[]) RETURNS record
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    was text;
    wrong CONSTANT text := tube_private_adoption_fault(tbl);
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = tbl) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108', MESSAGE = format('there is no table %s', coalesce(tbl::text, 'NULL')),
            HINT = 'Give the name of a table, with its schema.';
    ELSIF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU107', MESSAGE = format('%s can''t be adopted: %s', tbl, wrong),
            HINT = 'Adopt a plain table with the columns that goharvest describes.';
    END IF;
    SELECT o.outbox INTO was FROM tube_outbox AS o WHERE o.tbl = $2 AND o.outbox <> $1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU107', MESSAGE = format('%s can''t be adopted: outbox %L has it', tbl, was),
            HINT = 'A table belongs to one outbox; drop the other one first.';
    END IF;
    worker := tube_private_role('worker');
    statements := ARRAY[
        format('GRANT SELECT, UPDATE (leader_id), DELETE ON %s TO %I', tbl, worker),
        format('GRANT SELECT (id, create_time, kafka_topic, kafka_key, leader_id) ON %s TO %I', tbl, tube_private_role('monitor'))];
END
$_$;

CREATE TABLE tube.tube_attachment (
    tube text NOT NULL,
    tbl regclass NOT NULL,
    shard integer NOT NULL,
    shards integer DEFAULT 1 NOT NULL,
    id_col name NOT NULL,
    "position" bigint NOT NULL,
    row_filter text,
    misfit text,
    trigger_function text NOT NULL,
    touch_name text,
    columns name[],
    replica boolean DEFAULT false NOT NULL,
    seen_oid oid,
    seen_attnums smallint[],
    seen_names name[],
    seen_types text[],
    members oid[],
    waiting oid[],
    as_root boolean,
    captured_by oid,
    key_cols name[],
    shard_place smallint,
    made boolean DEFAULT false NOT NULL,
    CONSTRAINT tube_attachment_key_cols_check CHECK (((cardinality(key_cols) >= 2) AND (cardinality(key_cols) <= 8))),
    CONSTRAINT tube_attachment_shard_check CHECK ((shard >= 0)),
    CONSTRAINT tube_attachment_shards_check CHECK ((shards >= 1))
);

CREATE FUNCTION tube.tube_private_ask_backfill(att tube.tube_attachment, why text) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(att.tube);
BEGIN
    IF reg.companion_of IS NOT NULL THEN
        PERFORM tube_private_resync_documents(reg.companion_of, tube_private_table_name(att.tbl));
        RAISE WARNING 'a backfill of all documents of tube % is asked for, as % may have changed them: %',
            quote_literal(reg.companion_of), att.tbl, why;
        RETURN;
    END IF;
    -- Of a root table, it does for what writers ask for: see tube_private_resync.
    PERFORM tube_private_put_schedule(att.tube, att.shard, tube_private_table_name(att.tbl), att.id_col, tube_private_is_root(att));
    RAISE WARNING 'a backfill of % is asked for, for tube %: %', att.tbl, quote_literal(att.tube), why;
END
$$;

CREATE FUNCTION tube.tube_private_ask_once(tube text, shard integer, root text, order_col name) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $_$
DECLARE
    waits boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE payload IS NOT NULL AND ids = ''{}'' AND shard = $1 AND leader_id IS NULL'
        ' AND payload ->> ''type'' = ''backfill_schedule'' AND payload ->> ''tbl'' = $2 AND payload ? ''resync'''
        ' AND NOT tube_private_is_replaced(xmax))', tube_private_qualify(tube))
    INTO waits USING shard, root;
    IF NOT waits THEN
        PERFORM tube_private_put_schedule(tube, shard, root, order_col, true);
    END IF;
END
$_$;

CREATE FUNCTION tube.tube_private_ask_owner(att tube.tube_attachment, statement text, rel regclass, late boolean) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
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

CREATE FUNCTION tube.tube_private_attach(tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean, key_cols name[], shard_by name) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    change CONSTANT record := tube_private_begin_attach(tube, tbl, shard, shards, id_col, columns, replica,
        key_cols, shard_by);
    old CONSTANT tube_attachment := change.was;
    new CONSTANT tube_attachment := change.wanted;
    how CONSTANT text := '%s with shards %s to %s%s%s%s';
    changed text;
BEGIN
    PERFORM tube_private_bring_in_line(new, 'ordered');
    IF old.tube IS NOT NULL THEN
        changed := format('%s, attached to tube %L by ' || how || ', is now attached by ' || how, tbl, tube,
            tube_private_key_label(old), old.shard, old.shard + (old.shards - 1), ' by ' || quote_ident(old.key_cols[old.shard_place + 1]),
            ', columns ' || array_to_string(old.columns, ' '),
            CASE WHEN old.replica THEN ', replica' END,
            tube_private_key_label(new), new.shard, new.shard + (new.shards - 1), ' by ' || quote_ident(new.key_cols[new.shard_place + 1]),
            ', columns ' || array_to_string(new.columns, ' '),
            CASE WHEN new.replica THEN ', replica' END);
        IF (old.shard, old.shards, old.shard_place) IS DISTINCT FROM (new.shard, new.shards, new.shard_place)
            OR change.anew
        THEN
            RAISE WARNING USING MESSAGE = changed,
                HINT = 'Each row has a document under a new key. Backfill the table: that writes these documents, and its '
                    'sweep deletes those under the old keys in the shards of now. Those in shards that the table gave up '
                    'stay at the sink.';
        ELSIF change.differs THEN
            RAISE NOTICE USING MESSAGE = changed;
        END IF;
    ELSE
        IF tube_private_is_root(new)
            AND EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = tbl AND a.attname = ANY (tube_private_key_names(new))
                AND NOT a.attnotnull)
        THEN
            RAISE WARNING USING
                MESSAGE = format('the key %s of %s may be NULL', tube_private_key_label(new), tbl),
                HINT = 'A row without a key names no document: it makes no touch.';
        END IF;
        -- As far as its text shows: it divides or casts.
        IF new.row_filter ~ E'[/*]|::|\\m[cC][aA][sS][tT]\\M' THEN
            RAISE NOTICE USING
                MESSAGE = format('the predicate of tube %L computes in every write of %s: where it fails, the write fails', tube, tbl),
                HINT = 'Compare columns with constants only, or make sure that no row can divide by zero, overflow or fail a cast.';
        END IF;
    END IF;
    IF change.differs AND id_col IS NULL AND key_cols IS NULL AND NOT tube_private_is_root(new) THEN
        RAISE WARNING USING
            MESSAGE = format('%s is related: another table is attached to tube %L in the shard %s before it',
                tbl, tube, new.shard),
            HINT = 'Its ids are taken for ids of that table. Name the column that holds them: id_col => COLUMN. If '
                'they are other ids, attach it in a separate shard.';
    ELSIF change.differs AND id_col IS NULL AND key_cols IS NULL
        AND NOT EXISTS (SELECT FROM tube_id_column(tbl, new.id_col) AS k WHERE k.is_key OR k.is_unique)
    THEN
        RAISE WARNING USING
            MESSAGE = format('nothing proves that the key %I of %s is unique', new.id_col, tbl),
            HINT = 'Of rows with one id, any one becomes the document. Name the column that is unique, or this one if you '
                'know that it is: id_col => COLUMN.';
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_attached(rel oid, name text) RETURNS regclass
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT a.tbl FROM tube_attachment AS a
    WHERE a.trigger_function = name AND (a.tbl IN (rel, pg_partition_root(rel)) OR rel = ANY (a.members))
$$;

CREATE FUNCTION tube.tube_private_attachment(tube text, tbl regclass) RETURNS tube.tube_attachment
    LANGUAGE plpgsql
    AS $_$
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
$_$;

CREATE FUNCTION tube.tube_private_attachment_now(att tube.tube_attachment) RETURNS tube.tube_attachment
    LANGUAGE plpgsql
    AS $$
DECLARE
    keys CONSTANT integer := cardinality(tube_private_key_names(att));
    names name[];
    seen name[];
BEGIN
    SELECT array_agg(coalesce(same.attname, moved.attname) ORDER BY s.place),
        array_agg(coalesce(moved.attname, same.attname) ORDER BY s.place)
    INTO names, seen
    FROM unnest(tube_private_key_names(att) || att.columns) WITH ORDINALITY AS s (name, place)
    LEFT JOIN pg_attribute AS same ON same.attrelid = att.tbl AND same.attname = s.name AND same.attnum > 0
    LEFT JOIN pg_attribute AS moved ON moved.attrelid = att.tbl AND att.seen_oid = att.tbl AND NOT moved.attisdropped
        AND moved.attnum = att.seen_attnums[array_position(att.seen_names, s.name)];
    names := tube_private_each_once(names[:keys], seen[:keys]) || tube_private_each_once(names[keys + 1:], seen[keys + 1:]);
    IF tube_private_table_fault(att.tbl) IS NOT NULL
        OR (SELECT count(DISTINCT n) FROM unnest(names[:keys]) AS n) < keys -- of two, one was dropped, and the other has its name
        OR att.key_cols IS NOT NULL AND array_position(tube_key_types(att.tbl, names[:keys]), NULL) IS NOT NULL
        OR att.key_cols IS NULL AND NOT EXISTS (
            SELECT FROM pg_attribute AS a WHERE a.attrelid = att.tbl AND a.attname = names[1] AND a.attgenerated <> 'v'
                AND tube_private_key_fits(a.atttypid, tube_private_key_type(att.tube)))
    THEN
        RETURN NULL;
    END IF;
    att.id_col := names[1];
    att.key_cols := CASE WHEN att.key_cols IS NOT NULL THEN names[:keys] END;
    att.columns := (SELECT array_agg(c.name ORDER BY c.place) FROM (
        SELECT n.name, min(n.place) AS place FROM unnest(names[keys + 1:]) WITH ORDINALITY AS n (name, place)
        WHERE n.name IS NOT NULL GROUP BY n.name) AS c);
    IF EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = att.tbl AND a.attname = ANY (att.columns) AND a.attgenerated = 'v') THEN
        att.columns := NULL; -- a change of a virtual generated column can't be seen: any UPDATE counts
    END IF;
    att.row_filter := CASE WHEN att.misfit IS DISTINCT FROM tube_private_misfit_digest(att.tube, att.tbl)
        THEN (tube_private_require(att.tube)).predicate END;
    att.touch_name := coalesce(att.touch_name, tube_private_touch_name(att));
    RETURN tube_private_with_columns(att);
END
$$;

CREATE FUNCTION tube.tube_private_attachments_with(tube text, predicate text) RETURNS SETOF tube.tube_attachment
    LANGUAGE sql
    AS $_$
    SELECT w.* FROM tube_attachment AS a
    CROSS JOIN LATERAL jsonb_populate_record(tube_private_attachment_now(a), jsonb_build_object('row_filter', predicate, 'misfit', NULL)) AS w
    WHERE a.tube = $1 AND w.tube IS NOT NULL ORDER BY a.position
$_$;

CREATE FUNCTION tube.tube_private_audit_parked(action text, tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, keys text[], count integer) RETURNS void
    LANGUAGE sql
    AS $$
    SELECT tube_audit_add(action, tube, jsonb_strip_nulls(jsonb_build_object(
        'shard', in_shard, 'key', left(in_key, 100), 'by_error', CASE WHEN in_error IS NOT NULL THEN true END,
        'before', in_before, 'count', count, 'keys', tube_private_some_keys(keys))))
$$;

CREATE FUNCTION tube.tube_private_audit_pods(action text, tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, pods integer) RETURNS void
    LANGUAGE sql
    AS $$
    SELECT tube_audit_add(action, tube, jsonb_strip_nulls(jsonb_build_object(
        'partition', in_partition, 'shard', in_shard, 'key', left(in_key, 100), 'from', in_from, 'to', in_to,
        'pods', pods)))
$$;

CREATE FUNCTION tube.tube_private_backfill_count_ends(backfill_id bigint) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $_$
DECLARE
    backfill tube_backfill := tube_private_lock_backfill(backfill_id);
    ends integer;
BEGIN
    EXECUTE format('SELECT count(*) FROM %s WHERE payload IS NOT NULL AND ids = ''{}'' AND payload @> $1',
        tube_private_qualify(backfill.tube)) INTO ends USING jsonb_build_object('type', 'backfill_end', 'backfill', backfill_id);
    UPDATE tube_backfill AS b
    SET ends_left = ends, updated_at = clock_timestamp(),
        state = CASE WHEN ends > 0 THEN b.state ELSE 'finished' END,
        ended_at = CASE WHEN ends > 0 THEN NULL ELSE clock_timestamp() END
    WHERE b.backfill_id = $1 AND b.state = 'delivering';
    IF ends = 0 THEN
        -- Once all root tables were backfilled since, from the start to the end, the copy is as good as new.
        DELETE FROM tube_unverified AS u
        WHERE u.tube = backfill.tube AND NOT EXISTS (
            SELECT FROM tube_attachment AS a
            WHERE a.tube = u.tube AND tube_private_is_root(a) AND NOT EXISTS (
                SELECT FROM tube_backfill AS b
                WHERE b.tube = a.tube AND b.tbl = a.tbl AND b.state = 'finished' AND b.created_at > u.since));
    END IF;
END
$_$;

CREATE FUNCTION tube.tube_private_backfill_fault(backfill tube.tube_backfill) RETURNS text
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION tube.tube_private_backfill_key(backfill_id bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT hashtextextended('pytube backfill ' || tube_private_schema(), backfill_id) $$;

CREATE FUNCTION tube.tube_private_backfill_sql(backfill tube.tube_backfill, att tube.tube_attachment, within text) RETURNS text
    LANGUAGE sql STABLE
    AS $_$
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
$_$;

CREATE FUNCTION tube.tube_private_backfills_at_end(tube text, seqs bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $_$
DECLARE
    result bigint[];
BEGIN
    EXECUTE format($sql$
        SELECT array_agg(h.backfill_id) FROM (
            SELECT b.backfill_id FROM tube_backfill AS b
            WHERE b.tube = $1 AND b.state = 'delivering' AND EXISTS (
                SELECT FROM %s AS t WHERE t.payload IS NOT NULL AND t.ids = '{}' AND t.seq = ANY ($2)
                    AND t.payload @> jsonb_build_object('type', 'backfill_end', 'backfill', b.backfill_id))
            ORDER BY b.backfill_id FOR NO KEY UPDATE) AS h$sql$, tube_private_qualify(tube))
    INTO result USING tube, seqs;
    RETURN result;
END
$_$;

CREATE FUNCTION tube.tube_private_base_type(type oid) RETURNS oid
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    result oid := type;
BEGIN
    WHILE (SELECT t.typtype = 'd' FROM pg_type AS t WHERE t.oid = result) LOOP
        result := (SELECT t.typbasetype FROM pg_type AS t WHERE t.oid = result);
    END LOOP;
    RETURN result;
END
$$;

CREATE FUNCTION tube.tube_private_begin_around(outbox text, partitions integer, partition integer, leader_id uuid, OUT tbl text, OUT free text, OUT choose text, OUT locked text, OUT mark text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    box CONSTANT tube_outbox := tube_private_outbox_fence(outbox, partitions, partition, leader_id);
    key CONSTANT text := tube_private_outbox_key(box.adopted);
    waiting text;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(tube_private_parked_lock(outbox));
    tbl := tube_private_outbox_table(box);
    waiting := format('%s AS r WHERE %s AND r.leader_id IS DISTINCT FROM $1'
        ' AND NOT EXISTS (SELECT FROM %s AS k WHERE k.outbox = $2 AND k.id = r.id)', tbl,
        tube_private_outbox_part(box.adopted, partitions, partition), tube_private_qualify('tube_outbox_parked'));
    free := format('SELECT ARRAY(SELECT r.id::bigint FROM %s'
        ' AND NOT EXISTS (SELECT FROM unnest($4, $5) AS b (topic, name) WHERE b.topic = r.kafka_topic AND b.name = %s)'
        ' ORDER BY r.id LIMIT $3 FOR NO KEY UPDATE OF r SKIP LOCKED)', waiting, key);
    choose := format('WITH first AS MATERIALIZED (SELECT r.id::bigint, r.kafka_topic::text AS topic, %s AS key,'
        ' f.id IS NOT NULL AS free FROM (SELECT r.* FROM %s AND r.id <= $3) AS r LEFT JOIN unnest($4) AS f (id) ON f.id = r.id),'
        ' barred AS MATERIALIZED (SELECT f.topic, f.key, min(f.id) AS id FROM first AS f'
        ' WHERE NOT f.free AND f.key IS NOT NULL GROUP BY 1, 2)'
        ' SELECT ARRAY(SELECT f.id FROM first AS f LEFT JOIN barred AS b ON b.topic = f.topic AND b.key = f.key'
        ' WHERE f.free AND (b.id IS NULL OR f.id < b.id)) AS ids, ARRAY(SELECT b.topic FROM barred AS b ORDER BY b.id) AS topics,'
        ' ARRAY(SELECT b.key FROM barred AS b ORDER BY b.id) AS keys,'
        ' (SELECT min(f.id) FROM first AS f WHERE NOT f.free) AS first_locked', key, waiting);
    locked := format('SELECT r.id::bigint, NULL::timestamptz, r.kafka_topic::text, (%s)::text, NULL::bytea, NULL::text[],'
        ' NULL::text[], NULL::text, false, false, true FROM %s AS r WHERE r.id = ANY ($1)', key, tbl);
    mark := format('WITH marked AS (UPDATE %s AS r SET leader_id = $1 WHERE r.id = ANY ($4) RETURNING %s, false)'
        ' SELECT * FROM marked ORDER BY 1', tbl, tube_private_record_columns(box, true, false));
END
$_$;

CREATE FUNCTION tube.tube_private_begin_attach(tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean, key_cols name[] DEFAULT NULL::name[], shard_by name DEFAULT NULL::name, OUT was tube.tube_attachment, OUT wanted tube.tube_attachment, OUT differs boolean, OUT anew boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    reg tube_registry;
    keys name[];
BEGIN
    SELECT r.* INTO STRICT reg FROM tube_registry AS r WHERE r.tube = $1 FOR NO KEY UPDATE;
    PERFORM tube_private_prune(tube);
    SELECT a.* INTO was FROM tube_attachment AS a WHERE a.tube = $1 AND a.tbl = $2 FOR NO KEY UPDATE;
    wanted := was;
    wanted.tube := tube;
    wanted.tbl := tbl;
    wanted.shard := tube_private_range(tube, tbl, shard, shards);
    wanted.shards := shards;
    keys := CASE WHEN key_cols IS NULL THEN ARRAY[tube_private_key(tbl, id_col, reg.key_type)]
        ELSE tube_private_check_key(tbl, key_cols, id_col, reg.key_type) END;
    wanted.id_col := keys[1];
    wanted.key_cols := CASE WHEN key_cols IS NOT NULL THEN keys END;
    wanted.shard_place := array_position(wanted.key_cols, shard_by) - 1;
    PERFORM tube_private_check_shard_by(wanted, shard_by);
    wanted.row_filter := reg.predicate;
    wanted.trigger_function := coalesce(was.trigger_function, tube_private_capture_name(tube, tbl));
    wanted.misfit := NULL;
    wanted.touch_name := coalesce(was.touch_name, tube_private_touch_name(wanted));
    wanted.columns := tube_private_columns(tbl, columns);
    wanted.replica := coalesce(replica, false);
    IF (was.shard, was.shards) <> (wanted.shard, shards) THEN
        wanted.position := NULL; -- it is the last one of its new shards, once an owner has agreed
    END IF;
    differs := (was.tube, was.shard, was.shards, was.shard_place, tube_private_key_names(was), was.columns, was.replica) IS DISTINCT FROM
        (wanted.tube, wanted.shard, wanted.shards, wanted.shard_place, keys, wanted.columns, wanted.replica);
    anew := tube_private_is_root(wanted) AND tube_private_key_names(was) <> keys
        AND (was.seen_oid = tbl AND was.seen_attnums[:cardinality(tube_private_key_names(was))] = ARRAY(
            SELECT a.attnum FROM unnest(keys) WITH ORDINALITY AS k (name, place)
            JOIN pg_attribute AS a ON a.attrelid = $2 AND a.attname = k.name ORDER BY k.place)) IS NOT TRUE;
    UPDATE tube_registry AS r SET version = r.version + 1 WHERE r.tube = $1 AND differs;
    PERFORM tube_private_provide(wanted);
END
$_$;

CREATE FUNCTION tube.tube_private_begin_change(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[], OUT tbl text, OUT condition text, OUT part text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    box CONSTANT tube_outbox := tube_private_outbox_fence(outbox, partitions, partition, leader_id);
    least_id CONSTANT bigint := (SELECT min(i.id) FROM unnest(ids) AS i (id));
    greatest_id CONSTANT bigint := (SELECT max(i.id) FROM unnest(ids) AS i (id));
BEGIN
    tbl := tube_private_outbox_table(box) || ' AS r';
    part := tube_private_outbox_part(box.adopted, partitions, partition);
    condition := 'r.leader_id = $1 AND ' || CASE
        WHEN ids IS NULL THEN part || ' AND $2 IS NULL'
        WHEN current_setting('server_version_num')::integer < 170000 AND greatest_id::numeric - least_id < 64 * cardinality(ids)
            THEN format('r.id BETWEEN %s AND %s AND r.id + 0 = ANY ($2)', least_id, greatest_id)
        ELSE 'r.id = ANY ((SELECT $2)::bigint[])' END;
END
$_$;

CREATE FUNCTION tube.tube_private_begin_collect(backfill_id bigint, OUT query text, OUT tbl regclass, OUT table_name text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
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
    query := tube_private_backfill_sql(backfill, att, 'true');
    tbl := att.tbl;
    table_name := att.tbl;
END
$_$;

CREATE FUNCTION tube.tube_private_begin_mark(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, floor bigint, passed boolean DEFAULT false, OUT mark text, OUT ids bigint[], OUT again text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    box CONSTANT tube_outbox := tube_private_outbox_fence(outbox, partitions, partition, leader_id);
    tbl CONSTANT text := tube_private_outbox_table(box);
    part CONSTANT text := tube_private_outbox_part(box.adopted, partitions, partition);
    -- Looked up once a statement, in its snapshot: an abort counts as an end.
    low CONSTANT text := CASE WHEN passed THEN '(SELECT CASE WHEN EXISTS (SELECT FROM unnest($6) AS w (xid)'
        ' WHERE pg_visible_in_snapshot(w.xid, pg_current_snapshot())) THEN $5 ELSE $2 END)' ELSE '$2' END;
    parks boolean := true;
    no_parked text := format(
        ' AND NOT EXISTS (SELECT FROM %s AS k WHERE k.outbox = $3 AND k.id = r.id)', tube_private_qualify('tube_outbox_parked'));
BEGIN
    IF pg_try_advisory_xact_lock_shared(tube_private_parked_lock(outbox)) THEN
        parks := EXISTS (SELECT FROM tube_outbox_parked AS k WHERE k.outbox = box.outbox);
        no_parked := CASE WHEN parks THEN no_parked ELSE ' AND $3 IS NOT NULL' END;
    END IF;
    IF records_limit IS NULL OR records_limit NOT BETWEEN 1 AND 1000000 THEN
        RAISE EXCEPTION 'records_limit is %', coalesce(records_limit::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is 1 to 1000000.';
    END IF;
    mark := format('UPDATE %1$s AS r SET leader_id = $1 WHERE %2$s AND r.id > %5$s AND r.leader_id IS DISTINCT FROM $1%3$s'
        ' AND r.id <= coalesce((SELECT r.id FROM %1$s AS r WHERE %2$s AND r.id > %5$s AND r.leader_id IS DISTINCT FROM $1%3$s'
        ' ORDER BY r.id LIMIT 1 OFFSET $4 - 1), 9223372036854775807) RETURNING %4$s',
        tbl, part, no_parked, tube_private_record_columns(box, parks, false), low);
    IF parks THEN
        mark := format('WITH marked AS (%s) SELECT * FROM marked ORDER BY 1', mark);
    END IF;
    IF EXISTS (SELECT FROM tube_outbox_retry AS t WHERE t.outbox = box.outbox AND t.id <= floor) THEN
        ids := tube_private_take_retries(outbox, partitions, partition, records_limit, floor);
        again := format('WITH marked AS (UPDATE %s AS r SET leader_id = $1 WHERE r.id = ANY ($2)'
            ' AND r.leader_id IS DISTINCT FROM $1 AND $3 IS NOT NULL RETURNING %s) SELECT * FROM marked ORDER BY 1', tbl,
            tube_private_record_columns(box, parks, true));
    END IF;
END
$_$;

CREATE FUNCTION tube.tube_private_begin_range(backfill_id bigint, unit integer, OUT query text, OUT tbl regclass, OUT table_name text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    job tube_job := tube_private_lock_job('backfill ' || backfill_id, false, of_backfill => true);
    backfill tube_backfill;
    att tube_attachment;
BEGIN
    SELECT b.* INTO backfill FROM tube_backfill AS b WHERE b.backfill_id = $1;
    IF backfill.paused THEN
        RETURN;
    ELSIF unit IS NULL OR unit NOT BETWEEN 0 AND job.units - 1 THEN
        RAISE EXCEPTION 'backfill % has no range %', backfill.backfill_id, unit
            USING ERRCODE = 'invalid_parameter_value', HINT = format('It has the ranges 0 to %s.', job.units - 1);
    ELSIF EXISTS (SELECT FROM tube_job_unit AS u WHERE u.job_id = job.job_id AND u.unit = $2) THEN
        query := '';
        RETURN;
    END IF;
    att := tube_private_inserting_attachment(backfill);
    tbl := att.tbl;
    table_name := att.tbl;
    query := tube_private_backfill_sql(
        backfill, att, tube_private_range_sql(att.tbl, backfill.order_col, job.bounds, unit));
END
$_$;

CREATE FUNCTION tube.tube_private_begin_split(backfill_id bigint, ranges integer, OUT query text, OUT tbl regclass, OUT table_name text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    backfill tube_backfill := tube_private_lock_backfill(backfill_id, held => true);
    fault CONSTANT text := tube_private_backfill_fault(backfill);
    att tube_attachment;
BEGIN
    IF EXISTS (SELECT FROM tube_job AS j WHERE j.backfill_id = backfill.backfill_id) THEN
        RETURN;
    ELSIF backfill.state <> 'waiting' OR fault IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU124',
            MESSAGE = format('backfill %s of %s can''t be split any more: %s',
                backfill.backfill_id, backfill.table_name, coalesce(fault, 'it is ' || backfill.state)),
            HINT = 'tube_backfill_list() shows what became of it.';
    ELSIF ranges IS NULL OR ranges NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'a table can''t be divided into % ranges', coalesce(ranges::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give 1 to 10000.';
    END IF;
    att := tube_private_attachment(backfill.tube, backfill.tbl);
    IF att.columns IS NOT NULL AND backfill.order_col <> ALL (att.columns || tube_private_key_names(att)) THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('%s is attached with columns, and %L, which may change without a touch, is none of them',
                att.tbl, backfill.order_col),
            HINT = 'Order by a column of the key.';
    END IF;
    PERFORM tube_private_range_sql(att.tbl, backfill.order_col, '{}', 0); -- refuses the column's type
    -- Also where there is one range: whether the table can be read is to be seen now.
    tbl := att.tbl;
    table_name := att.tbl;
    query := format($sql$
        SELECT array_agg(format('%%s', b.value) ORDER BY b.value) FROM (
            SELECT DISTINCT unnest(percentile_disc(ARRAY(
                SELECT n::float8 / %1$s FROM generate_series(1, %1$s - 1) AS n)) WITHIN GROUP (ORDER BY %2$I)) AS value
            FROM %3$s TABLESAMPLE SYSTEM (%4$s) WHERE %2$I IS NOT NULL) AS b$sql$, ranges, backfill.order_col, att.tbl,
        least(100, 100 * 1000.0 * ranges / greatest(1, tube_private_rows_estimate(att.tbl)))::real);
END
$_$;

CREATE FUNCTION tube.tube_private_begin_step3(step1 text, tube text, tbl regclass, order_col text, shard integer, OUT query text, OUT first integer, OUT size bigint, OUT table_name text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    att CONSTANT tube_attachment := tube_private_attachment(tube, tbl);
    column_name CONSTANT name := tube_private_order_column(att.tbl, order_col);
    root CONSTANT boolean := tube_private_is_swept(att);
    key CONSTANT text := tube_private_id_sql(att);
    shards integer;
BEGIN
    PERFORM tube_private_refuse_table(att.tbl);
    first := coalesce(shard, att.shard);
    shards := CASE WHEN first = att.shard THEN att.shards ELSE 1 END;
    IF step1 IS NULL OR step1 !~ '^[0-9]{1,18}$' OR step1::bigint NOT BETWEEN 1 AND tube_settle_seq() THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('%s is nothing that tube_backfill_step1 gave', coalesce(quote_literal(step1), 'NULL')),
            HINT = 'Call tube_backfill_step1(), commit, then tube_backfill_step2(), commit, then this.';
    ELSIF shard NOT BETWEEN att.shard AND att.shard + (att.shards - 1) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU106',
            MESSAGE = format('%s is attached to tube %L with the shards %s to %s, and %s is none of them',
                att.tbl, att.tube, att.shard, att.shard + (att.shards - 1), shard),
            HINT = 'Leave the shard out.';
    ELSIF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')
        AND coalesce(current_setting('pytube.backfill_waited', true), '') <> ''
    THEN
        RAISE EXCEPTION USING ERRCODE = 'active_sql_transaction',
            MESSAGE = 'step 2 of the backfill was in this same transaction, so step 3 would miss rows',
            HINT = 'Commit between them.';
    ELSIF NOT pg_try_advisory_xact_lock(hashtextextended(
        format('%s backfill %s', tube_private_schema(), att.tube), att.tbl::oid::bigint))
    THEN
        RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
            MESSAGE = format('another session is at a backfill of %s into tube %L', att.tbl, att.tube),
            HINT = 'Wait until it is over.';
    END IF;
    PERFORM tube_private_refuse_backfill(att, format('backfill %s (%s)', b.backfill_id, b.state))
    FROM tube_backfill AS b
    WHERE b.tube = att.tube AND b.tbl = att.tbl AND b.state IN ('waiting', 'inserting', 'delivering');
    IF root AND tube_private_control_waits(att.tube, first, shards, '{backfill_end}') THEN
        RAISE NOTICE 'the backfill of % into tube % is skipped: a backfill_end of an earlier one waits',
            att.tbl, quote_literal(att.tube);
        RETURN;
    END IF;
    table_name := att.tbl;
    query := format('SELECT r.id, 0 FROM (SELECT %s t.id, t.by FROM (SELECT %s AS id, %I AS by FROM %s'
        ' WHERE (%s' || E'\n) AND %s IS NOT NULL AND %s) AS t %s) AS r ORDER BY r.by',
        CASE WHEN NOT root THEN 'DISTINCT ON (t.id)' END, key, column_name, table_name,
        coalesce(att.row_filter, 'true'), key, CASE shards WHEN att.shards THEN 'true'
            ELSE format('%s = %s', tube_private_shard_expression(key, att), first) END,
        CASE WHEN NOT root THEN 'ORDER BY t.id, t.by' END);
    size := nullif(tube_private_rows_estimate(att.tbl), 0) * shards / att.shards;
    IF root THEN
        PERFORM tube_private_put_control('backfill_start', jsonb_populate_record(NULL::tube_backfill,
            jsonb_build_object('tube', att.tube, 'shard', first, 'shards', shards, 'start_seq', step1)));
    END IF;
END
$_$;

CREATE FUNCTION tube.tube_private_begin_sync(tube text, tbl regclass) RETURNS tube.tube_attachment
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
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
        PERFORM tube_private_close_capture();
        PERFORM tube_private_provide(now);
        PERFORM tube_private_follow_columns(tube, tbl);
        RETURN now;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = att.tbl) THEN
        PERFORM tube_private_prune(tube);
        RETURN NULL;
    END IF;
    PERFORM tube_private_forget(att.tube, ARRAY[att.tbl]);
    RAISE WARNING USING
        MESSAGE = format('%s is detached from tube %L: %s', att.tbl, att.tube,
            coalesce(tube_private_table_fault(att.tbl), format('its key %s was dropped, or has another type', tube_private_key_label(att)))),
        HINT = CASE WHEN tube_private_table_fault(att.tbl) IS NULL THEN 'Attach it again by another column: id_col => COLUMN, or several: key_cols => COLUMNS.'
            ELSE 'Attach the partitioned table as a whole, and backfill it.' END;
    RETURN NULL;
END
$_$;

CREATE FUNCTION tube.tube_private_bound_sql(row_name text, col name, type oid, bound oid) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT CASE WHEN type = bound THEN format('%s.%I', row_name, col)
        ELSE format('COALESCE(%s.%I, NULL::%s)', row_name, col, tube_private_type_sql(bound)) END
$$;

CREATE FUNCTION tube.tube_private_briefly(statements text[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS $$
DECLARE
    left_over double precision := 100; -- milliseconds; 0 as a lock_timeout would be for ever
    began timestamptz;
    statement text;
BEGIN
    FOREACH statement IN ARRAY statements LOOP
        PERFORM set_config('lock_timeout', format('%sms', greatest(left_over, 1)::integer), true);
        began := clock_timestamp();
        EXECUTE statement;
        left_over := left_over - greatest(0, extract(epoch FROM clock_timestamp() - began) * 1000 - 5);
    END LOOP;
END
$$;

CREATE FUNCTION tube.tube_private_bring_in_line(att tube.tube_attachment, mode text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    is_owner CONSTANT boolean := (SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class AS c WHERE c.oid = att.tbl);
    missing record;
    refused regclass[] := '{}';
BEGIN
    IF is_owner AND NOT (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = current_user) THEN
        PERFORM tube_private_open_capture(att.tbl);
    END IF;
    IF is_owner AND att.row_filter IS NOT NULL AND EXISTS (SELECT FROM tube_private_owner_ddl(att, true)) THEN
        BEGIN
            PERFORM tube_private_try_predicate(att);
        EXCEPTION WHEN SQLSTATE 'TU105' THEN
            IF mode <> 'late' AND mode <> 'install' THEN
                RAISE;
            END IF;
            RAISE WARNING USING MESSAGE = SQLERRM,
                DETAIL = format('Until it fits again, all rows of %s are touched, and workers can''t read them.', att.tbl),
                HINT = 'Give the tube another one: tube_ensure_exists, predicate => SQL.';
            att.row_filter := NULL;
        END;
    END IF;
    -- Partitions may be made until the locks are there, so it looks again until none is new.
    FOR look IN 1..20 LOOP
        EXIT WHEN NOT is_owner;
        FOR missing IN
            SELECT p.part, array_agg(d.statement ORDER BY d.place) AS statements
            FROM tube_private_owner_ddl(att, true) WITH ORDINALITY AS d (statement, rel, place)
            CROSS JOIN LATERAL (SELECT CASE WHEN mode = 'late' AND d.rel <> att.tbl THEN d.rel END AS part) AS p
            WHERE (p.part = ANY (refused)) IS NOT TRUE GROUP BY p.part ORDER BY p.part NULLS FIRST
        LOOP
            BEGIN
                PERFORM tube_private_patiently(ARRAY[format('SELECT tube_private_run_owner_ddl(%L)', missing.statements)],
                    format('%s is attached to tube %L', att.tbl, att.tube),
                    CASE WHEN mode <> 'late' THEN 100 WHEN missing.part IS NULL THEN 20 ELSE 1 END);
            EXCEPTION WHEN OTHERS THEN
                IF missing.part IS NULL THEN
                    RAISE;
                END IF;
                -- Another role may own it, have taken the names that triggers need, or hold its lock.
                refused := refused || missing.part;
                RAISE WARNING 'the part % of % is not followed by tube %: %', missing.part, att.tbl, quote_literal(att.tube), SQLERRM;
            END;
        END LOOP;
        EXIT WHEN NOT FOUND;
    END LOOP;
    PERFORM tube_private_store(att, mode) WHERE mode <> 'predicate';
END
$$;

CREATE FUNCTION tube.tube_private_capture_body(att tube.tube_attachment, is_root boolean) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $_$
DECLARE
    key_type CONSTANT regtype := tube_private_key_type(att.tube);
    few CONSTANT integer := CASE key_type WHEN 'text'::regtype THEN 10000 ELSE 100000 END;
    is_partitioned CONSTANT boolean := (SELECT c.relkind = 'p' FROM pg_class AS c WHERE c.oid = att.tbl);
    image CONSTANT text := 'ROW(' || (SELECT string_agg(format('r.%I', c), ', ') FROM unnest(att.columns) AS c) || ')';
    body text := $body$
#variable_conflict use_column
DECLARE
    cap_fits pg_catalog.bool; -- NULL: the owner may neither use the door nor call put
    cap_done pg_catalog.bool;
    cap_new <key>[];
    cap_put pg_catalog.record;
BEGIN<one_id>
    IF TG_OP OPERATOR(pg_catalog.<>) 'TRUNCATE' AND pg_catalog.pg_current_xact_id_if_assigned() IS NULL THEN
        RETURN NULL; -- the statement wrote no row, and is to stay as cheap as that
    ELSIF TG_RELID OPERATOR(pg_catalog.=) <oid>::pg_catalog.oid<or_part> THEN
        cap_fits := <fits>;
        IF NOT cap_fits THEN -- by an old snapshot, maybe, and since then in the plan
            cap_fits := <fits_elsewhere>;
        END IF;
    ELSE -- restored from a dump, or the trigger is on a table that is not part of this one
        cap_fits := <fits_elsewhere>;
    END IF;
    IF cap_fits IS NOT TRUE THEN
        IF NOT cap_fits THEN
            PERFORM <put>('U', NULL);
        END IF;
        RETURN NULL;
    END IF;<row_body>
    IF TG_OP OPERATOR(pg_catalog.=) 'TRUNCATE' THEN
        IF <schema>.tube_private_may_read(TG_RELID) THEN
            FOR cap_put IN EXECUTE pg_catalog.concat(<truncated>, TG_RELID::pg_catalog.regclass, <of_truncated>) LOOP
                PERFORM <put>('D', cap_put.ids);
            END LOOP;
            IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed' THEN
                RETURN NULL;
            END IF;
        END IF;
        PERFORM <put>('D', NULL); -- rows are hidden from the owner, or from the snapshot: a sweep finds them
        RETURN NULL;
    ELSIF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN<unchanged>
        SELECT CASE WHEN o.ids OPERATOR(pg_catalog.=) n.ids THEN n.ids OPERATOR(pg_catalog.=) '{}' OR <put>('U', n.ids)
            WHEN o.ids OPERATOR(pg_catalog.=) '{}' THEN <put>('I', n.ids)
            WHEN n.ids OPERATOR(pg_catalog.=) '{}' THEN <put>('D', o.ids) END INTO cap_done
        FROM (SELECT <old_ids> AS ids OFFSET 0) AS o, (SELECT <new_ids> AS ids OFFSET 0) AS n
        WHERE pg_catalog.cardinality(o.ids) OPERATOR(pg_catalog.<=) <few> AND pg_catalog.cardinality(n.ids) OPERATOR(pg_catalog.<=) <few><arrays_count>;
    ELSIF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
        SELECT n.ids OPERATOR(pg_catalog.=) '{}' OR <put>('I', n.ids) INTO cap_done
        FROM (SELECT <new_ids> AS ids OFFSET 0) AS n WHERE pg_catalog.cardinality(n.ids) OPERATOR(pg_catalog.<=) <few>;
    ELSE
        SELECT o.ids OPERATOR(pg_catalog.=) '{}' OR <put>('D', o.ids) INTO cap_done
        FROM (SELECT <old_ids> AS ids OFFSET 0) AS o WHERE pg_catalog.cardinality(o.ids) OPERATOR(pg_catalog.<=) <few>;
    END IF;
    IF cap_done THEN
        RETURN NULL;
    END IF;
    IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN
        <for_each_array><changed_sides><loop>
    ELSIF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
        <for_each_array>SELECT <id> AS id, 2 AS side FROM new_table AS r WHERE <passes><loop>
    ELSE
        <for_each_array>SELECT <id> AS id, 1 AS side FROM old_table AS r WHERE <passes><loop>
    END IF;
    RETURN NULL;
END
$body$;
BEGIN
    -- First what depends on the options, and holds nothing of users; then names and texts of users.
    body := tube_private_fill(body, jsonb_build_object(
        'or_part', CASE WHEN is_partitioned
            THEN E'\n        OR pg_catalog.pg_partition_root(TG_RELID) OPERATOR(pg_catalog.=) <oid>::pg_catalog.oid' ELSE '' END,
        'one_id', CASE WHEN is_root THEN tube_private_one_id_body(att, is_partitioned) ELSE '' END,
        'old_ids', 'ARRAY(SELECT <id> FROM old_table AS r WHERE <row_passes> LIMIT <few_and_one>)',
        'new_ids', 'ARRAY(SELECT <id> FROM new_table AS r WHERE <row_passes> LIMIT <few_and_one>)',
        'unchanged', CASE WHEN image IS NULL THEN '' ELSE $sql$
        IF NOT EXISTS (SELECT FROM old_table OFFSET <few>) AND NOT EXISTS (SELECT FROM new_table OFFSET <few>)
            AND (SELECT ROW(ARRAY(SELECT ROW(<key_columns>, <passes> IS TRUE, <image>) FROM old_table AS r LIMIT <few>)))
                OPERATOR(pg_catalog.*=) (SELECT ROW(ARRAY(SELECT ROW(<key_columns>, <passes> IS TRUE, <image>) FROM new_table AS r LIMIT <few>)))
        THEN
            RETURN NULL;
        END IF;$sql$ END,
        -- Else it goes by sets.
        'arrays_count', CASE WHEN image IS NOT NULL THEN ' AND false'
            WHEN is_partitioned AND att.row_filter IS NOT NULL THEN E'\n            AND <same_keys>' ELSE '' END,
        'changed_sides', CASE WHEN image IS NULL THEN $sql$
                SELECT <id> AS id, 1 AS side FROM old_table AS r WHERE <passes>
                UNION ALL SELECT <id>, 2 FROM new_table AS r WHERE <passes>$sql$ ELSE $sql$
                SELECT s.id, s.side
                FROM (<images_of_old>) AS o
                FULL JOIN (<images_of_new>) AS n ON o.id OPERATOR(pg_catalog.=) n.id,
                    LATERAL (VALUES (o.id, 1), (n.id, 2)) AS s (id, side)
                WHERE s.id IS NOT NULL
                    AND (o.id IS NULL OR n.id IS NULL OR o.images OPERATOR(pg_catalog.*<>) n.images)$sql$ END
            || CASE WHEN is_partitioned AND att.row_filter IS NOT NULL THEN $sql$
                UNION ALL SELECT d.id, 1 FROM (SELECT <id> AS id FROM old_table AS r EXCEPT SELECT <id> FROM new_table AS r) AS d
                WHERE d.id IS NOT NULL AND EXISTS (SELECT <id> FROM new_table AS r EXCEPT SELECT <id> FROM old_table AS r)$sql$
                ELSE '' END,
        'for_each_array', $sql$FOR cap_put IN
            SELECT p.op, pg_catalog.array_agg(p.id) AS ids
            FROM (
                SELECT k.id, k.op, (pg_catalog.row_number() OVER (PARTITION BY k.op) OPERATOR(pg_catalog.-) 1)
                    OPERATOR(pg_catalog./) <few> AS part
                FROM (
                    SELECT x.id, <op_of_sides> AS op
                    FROM ($sql$,
        'loop', $sql$) AS x
                    GROUP BY x.id
                ) AS k
            ) AS p
            GROUP BY p.op, p.part
        LOOP
            PERFORM <put>(cap_put.op, cap_put.ids);
        END LOOP;$sql$));
    body := tube_private_fill(body, jsonb_build_object(
        'images_of_old', 'SELECT x.id, ROW(pg_catalog.array_agg(x.image ORDER BY x.image USING OPERATOR(pg_catalog.*<))) AS images'
            ' FROM (SELECT <id> AS id, <image> AS image FROM old_table AS r WHERE <passes>) AS x GROUP BY x.id',
        'images_of_new', 'SELECT x.id, ROW(pg_catalog.array_agg(x.image ORDER BY x.image USING OPERATOR(pg_catalog.*<))) AS images'
            ' FROM (SELECT <id> AS id, <image> AS image FROM new_table AS r WHERE <passes>) AS x GROUP BY x.id',
        'same_keys', 'ARRAY(SELECT <id> FROM old_table AS r LIMIT <few_and_one>) OPERATOR(pg_catalog.=)'
            ' ARRAY(SELECT <id> FROM new_table AS r LIMIT <few_and_one>)',
        'op_of_sides', tube_private_op_of_sides()));
    RETURN tube_private_fill(body, tube_private_guard(att) || jsonb_build_object(
        'row_body', CASE WHEN att.replica THEN tube_private_row_body(att) ELSE '' END,
        'oid', att.tbl::oid,
        'schema', quote_ident(tube_private_schema()),
        'key', tube_private_type_sql(key_type),
        'key_columns', (SELECT string_agg(format('r.%I', k), ', ') FROM unnest(tube_private_key_names(att)) AS k),
        'id', tube_private_id_sql(att, 'r'),
        'passes', tube_private_passes_sql(att, 'r'),
        'row_passes', coalesce(tube_private_passes_call(att, 'r'), 'true'), -- put leaves NULLs out
        'image', image,
        'few', few,
        'few_and_one', few + 1,
        'put', tube_private_function(att, 'put'),
        'door', tube_private_function(att, 'door'),
        'flag', tube_private_flag_sql(att.tube),
        'shard', tube_private_shard_expression('a.n[1]', att),
        'truncated', quote_literal(format('SELECT pg_catalog.array_agg(x.id) AS ids FROM (SELECT %s AS id,'
            ' (pg_catalog.row_number() OVER ()) OPERATOR(pg_catalog./) %s AS part FROM ONLY ',
            tube_private_id_sql(att, 'r'), few)),
        'of_truncated', quote_literal(format(' AS r WHERE %s) AS x GROUP BY x.part', tube_private_passes_sql(att, 'r')))));
END
$_$;

CREATE FUNCTION tube.tube_private_capture_name(tube text, tbl regclass) RETURNS text
    LANGUAGE sql STABLE
    AS $_$
    SELECT tube_private_name(tube || '_' || c.relname, '_capture_' || d.digest)
    FROM pg_class AS c, generate_series(0, 9) AS n, left(md5(concat_ws(' ', tube, tbl::oid, nullif(n, 0))), 8) AS d (digest)
    WHERE c.oid = tbl AND NOT EXISTS (SELECT FROM tube_attachment AS a
        WHERE d.digest IN (right(a.trigger_function, 8), right(a.touch_name, 8)) AND (a.tube, a.tbl) <> ($1, $2))
    ORDER BY n LIMIT 1
$_$;

CREATE FUNCTION tube.tube_private_capture_schema() RETURNS name
    LANGUAGE sql IMMUTABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    RETURN 'tube_capture'::name;

CREATE FUNCTION tube.tube_private_change_pods(change text, tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) RETURNS integer
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET enable_tidscan TO 'on'
    SET jit TO 'off'
    AS $$
DECLARE
    least_seq CONSTANT bigint := (SELECT min(s.seq) FROM unnest(seqs) AS s (seq));
    greatest_seq CONSTANT bigint := (SELECT max(s.seq) FROM unnest(seqs) AS s (seq));
    changed integer := 0;
    done integer;
    statement text;
BEGIN
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    statement := format(change || ' WHERE ', tube_private_qualify(tube))
        || tube_private_pods_where(tube, partitions, partition, CASE
            WHEN seqs IS NOT NULL THEN coalesce(greatest_seq - least_seq < 64 * cardinality(seqs), true) END);
    FOR class IN 0..1 LOOP
        EXIT WHEN changed >= cardinality(seqs);
        EXECUTE statement USING leader_id, class, seqs, least_seq, greatest_seq;
        GET DIAGNOSTICS done = ROW_COUNT;
        changed := changed + done;
    END LOOP;
    RETURN changed;
END
$$;

CREATE FUNCTION tube.tube_private_check_ids(ids anyarray) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF pg_typeof(ids) NOT IN ('bigint[]'::regtype, 'integer[]'::regtype, 'smallint[]'::regtype, 'uuid[]'::regtype, 'text[]'::regtype) THEN
        RAISE EXCEPTION 'ids are %', pg_typeof(ids)
            USING ERRCODE = 'datatype_mismatch', HINT = 'Give bigint[] (or smaller integers), uuid[] or text[].';
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_check_items(items jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF jsonb_typeof(items) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'items is not a JSON array'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give an array of objects, one per key.';
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_check_key(tbl regclass, key_cols name[], id_col name, key_type regtype) RETURNS name[]
    LANGUAGE plpgsql STABLE
    AS $_$
DECLARE
    wrong text;
    remedy text;
BEGIN
    SELECT format(CASE WHEN a.attnum IS NULL THEN '%s has no column %s'
            WHEN a.attgenerated = 'v' THEN 'the column %2$s of %1$s is a virtual generated one, and has no value when a row is written'
            ELSE 'the column %2$s of %1$s has the type %3$s, which can''t be a part of a key' END,
            tbl, coalesce(quote_ident(k.name), 'NULL'), a.atttypid::regtype),
        CASE WHEN a.attnum IS NULL THEN 'Give the names of columns of the table.'
            WHEN a.attgenerated = 'v' THEN 'Make it STORED, or attach by the column that it is computed from.'
            ELSE 'Parts of keys: smallint, integer, bigint, text, varchar, uuid, boolean, date, enums, and domains over all but enums. Others may '
                'write equal values in several ways.' END
    INTO wrong, remedy
    FROM unnest(key_cols, tube_key_types(tbl, key_cols)) WITH ORDINALITY AS k (name, type, place)
    LEFT JOIN pg_attribute AS a ON a.attrelid = tbl AND a.attname = k.name AND a.attnum > 0 AND NOT a.attisdropped
    WHERE k.type IS NULL ORDER BY k.place LIMIT 1;
    IF cardinality(key_cols) NOT BETWEEN 2 AND 8 OR (SELECT count(DISTINCT k) FROM unnest(key_cols) AS k) < cardinality(key_cols) THEN
        wrong := format('%s can''t be attached by the columns %L', tbl, key_cols);
        remedy := 'Give two to eight columns, each once; a single one as id_col.';
    ELSIF id_col IS NOT NULL THEN
        wrong := format('%s can''t be attached by id_col and by key_cols', tbl);
        remedy := 'Give one of the two.';
    ELSIF wrong IS NULL AND key_type <> 'text'::regtype THEN
        wrong := format('a key of several columns is a text, and the tube''s keys are %s', key_type);
        remedy := 'Make a tube of texts: tube_ensure_exists, key_type => ''text''.';
    END IF;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104', MESSAGE = wrong, HINT = remedy;
    END IF;
    RETURN key_cols;
END
$_$;

CREATE FUNCTION tube.tube_private_check_limit(in_limit integer, at_least integer DEFAULT 1) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF in_limit IS NULL OR in_limit < at_least THEN
        RAISE EXCEPTION 'in_limit is %', coalesce(in_limit::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = format('It is %s or more.', at_least);
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_check_messages(topics integer, keys integer, bodies integer, headers jsonb, partition_keys integer, wrong_topic text, missing boolean, homeless boolean) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    wrong text;
BEGIN
    wrong := CASE
        WHEN missing THEN 'a topic, or all values, are NULL'
        WHEN wrong_topic IS NOT NULL
            THEN format('%L is not a valid topic name: 1 to 249 of A-Z, a-z, 0-9, dot, underscore and hyphen', wrong_topic)
        WHEN jsonb_typeof(headers) <> 'array' THEN 'headers is not a JSON array with an element for each message'
        WHEN (topics = bodies AND topics = coalesce(keys, topics) AND topics = coalesce(partition_keys, topics)
            AND topics = coalesce(jsonb_array_length(headers), topics)) IS NOT TRUE
            THEN format('the arrays have different lengths: topics %s, keys %s, values %s, headers %s, partition keys %s',
                topics, coalesce(keys::text, 'NULL'), bodies, coalesce(jsonb_array_length(headers)::text, 'NULL'),
                coalesce(partition_keys::text, 'NULL'))
        WHEN homeless THEN 'the table is adopted, and has no column for a partition key'
        WHEN jsonb_path_exists(headers, '$[*] ? (@.type() != "object" && @.type() != "array" && @.type() != "null")')
            OR jsonb_path_exists(headers, 'strict $[*] ? (@.type() == "array")[*] ? (@.type() != "array" || @.size() != 2'
                ' || @[0].type() != "string")')
            THEN 'headers are neither an object nor an array of pairs'
    END;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'no message was stashed: ' || wrong,
            HINT = 'Give a topic and a value for each message, and headers as {"name": "value"}.';
    END IF;
END
$_$;

CREATE FUNCTION tube.tube_private_check_partition(tube text, partitions integer, partition integer) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    actual CONSTANT integer := (tube_private_require(tube, 'any')).partitions;
BEGIN
    IF actual IS DISTINCT FROM partitions THEN
        RAISE EXCEPTION 'tube % has % partitions, not %', quote_literal(tube), actual,
            coalesce(partitions::text, 'NULL')
            USING ERRCODE = 'TU002', HINT = 'The tube was repartitioned: begin new terms with its present number.';
    ELSIF partition IS NULL OR partition NOT BETWEEN 0 AND actual - 1 THEN
        RAISE EXCEPTION 'tube % has no partition %', quote_literal(tube), coalesce(partition::text, 'NULL')
            USING ERRCODE = 'TU103', HINT = format('Its partitions are 0 to %s.', actual - 1);
    END IF;
END
$$;

CREATE TABLE tube.tube_registry (
    tube text NOT NULL,
    partitions integer NOT NULL,
    predicate text,
    generation bigint DEFAULT 1 NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    last_epoch bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    key_type regtype DEFAULT 'bigint'::regtype NOT NULL,
    number bigint NOT NULL,
    kind text DEFAULT 'tube'::text NOT NULL,
    companion_of text,
    declared text,
    applied text,
    made boolean DEFAULT false NOT NULL,
    CONSTRAINT tube_registry_key_type_check CHECK (((key_type)::oid = ANY ((ARRAY['bigint'::regtype, 'uuid'::regtype, 'text'::regtype])::oid[]))),
    CONSTRAINT tube_registry_kind_check CHECK ((kind = ANY (ARRAY['tube'::text, 'outbox'::text]))),
    CONSTRAINT tube_registry_partitions_check CHECK (((partitions >= 1) AND (partitions <= 1024)))
);

CREATE FUNCTION tube.tube_private_check_pods(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer) RETURNS tube.tube_registry
    LANGUAGE plpgsql
    AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(tube);
BEGIN
    PERFORM tube_private_check_limit(in_limit);
    IF in_partition IS NOT NULL THEN
        PERFORM tube_private_check_partition(tube, reg.partitions, in_partition);
    END IF;
    IF in_shard < 0 OR in_shard % reg.partitions <> in_partition THEN
        RAISE EXCEPTION 'shard % is in no partition that was asked for', in_shard
            USING ERRCODE = 'TU106', HINT = 'The partition of a shard is the shard modulo the number of partitions.';
    ELSIF in_from > in_to THEN
        RAISE EXCEPTION 'no seq is from % to %', in_from, in_to
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give the lesser one first.';
    END IF;
    PERFORM tube_private_kept_key(reg, in_key);
    RETURN reg;
END
$$;

CREATE FUNCTION tube.tube_private_check_shard_by(att tube.tube_attachment, shard_by name) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    types CONSTANT text[] := tube_private_key_texts(att);
    other tube_attachment;
BEGIN
    IF shard_by IS NOT NULL AND att.shard_place IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU106',
            MESSAGE = format('%s can''t be spread by %I, which is not part of its key', att.tbl, shard_by),
            HINT = 'Give one of key_cols.';
    END IF;
    SELECT a.* INTO other FROM tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl
    WHERE a.tube = att.tube AND a.shard = att.shard AND a.tbl <> att.tbl
        AND (a.shard_place IS DISTINCT FROM att.shard_place OR cardinality(a.key_cols) IS DISTINCT FROM cardinality(att.key_cols)
            OR EXISTS (SELECT FROM unnest(types, tube_private_key_texts(a)) AS t (here, there) WHERE t.here <> t.there))
    ORDER BY a.position LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    ELSIF other.shard_place IS DISTINCT FROM att.shard_place THEN
        RAISE EXCEPTION USING ERRCODE = 'TU106',
            MESSAGE = format('%s can''t be attached to tube %L: %s, which has its shards, is spread by %s', att.tbl, att.tube, other.tbl,
                coalesce(quote_ident(other.key_cols[other.shard_place + 1]) || ' alone', 'its whole key')),
            HINT = CASE WHEN other.shard_place IS NULL THEN 'Leave shard_by out.'
                ELSE format('Give key_cols, and its column %s as shard_by.', other.shard_place + 1) END;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'TU104',
        MESSAGE = format('%s can''t be attached to tube %L by %s (%s): %s, which has its shards, has the key %s (%s)', att.tbl, att.tube,
            tube_private_key_label(att), array_to_string(types, ', '),
            other.tbl, tube_private_key_label(other), array_to_string(tube_private_key_texts(other), ', ')),
        HINT = 'Give the columns that hold that key, in its order and with its types: an integer is another key than the same digits as a text.';
END
$$;

CREATE FUNCTION tube.tube_private_check_shards(tube text, partitions integer, partition integer, items jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    stranger integer;
BEGIN
    SELECT i.shard INTO stranger
    FROM jsonb_to_recordset(items) AS i (shard integer)
    WHERE i.shard < 0 OR mod(i.shard, partitions) <> partition
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'shard % is not in partition % of tube %', stranger, partition, quote_literal(tube)
            USING ERRCODE = 'TU106', HINT = 'Give keys of the term''s own partition only.';
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_check_term(leader_id uuid, instance_id uuid, client_id text, election text, hold interval, lease interval) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    wrong text[]; -- the message and the hint
BEGIN
    IF leader_id IS NULL OR instance_id IS NULL OR client_id IS NULL THEN
        RAISE EXCEPTION 'leader_id, instance_id and client_id must be given'
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Draw a fresh leader_id for each term.';
    END IF;
    wrong := CASE
        WHEN election IS NULL OR election NOT IN ('neli', 'lease') THEN
            ARRAY[format('there is no election %s', quote_nullable(election)), 'It is ''neli'' or ''lease''.']
        WHEN hold IS NULL OR hold <= interval '0' THEN
            ARRAY[format('hold is %s, and must be more than nothing', coalesce(hold::text, 'NULL')),
                'It is the trust deadline and the sink''s request timeout together.']
        WHEN election = 'lease' AND (lease IS NULL OR lease <= interval '0') THEN
            ARRAY[format('lease is %s, and must be more than nothing', coalesce(lease::text, 'NULL')),
                'The election ''lease'' needs one.']
        WHEN election = 'neli' AND lease IS NOT NULL THEN
            ARRAY[format('the election ''neli'' has no lease, got %s', lease), 'Leave it out.']
        WHEN EXISTS (SELECT FROM tube_term AS t WHERE t.leader_id = tube_private_check_term.leader_id)
            OR EXISTS (SELECT FROM tube_leader AS l WHERE l.leader_id = tube_private_check_term.leader_id)
            THEN ARRAY[format('leader_id %s was used before', leader_id), 'Draw a fresh one for each term.']
    END;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = wrong[1], HINT = wrong[2];
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_check_touch(shard integer, ids anyarray, op text, chunk_size integer) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $$
BEGIN
    IF shard IS NULL OR shard < 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'TU106',
            MESSAGE = format('there is no shard %s', coalesce(shard::text, 'NULL')),
            HINT = 'Shards are 0 and more.';
    ELSIF array_position(ids, NULL) IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed',
            MESSAGE = 'one of the ids to touch is NULL', HINT = 'Leave it out.';
    ELSIF op IS NULL OR op NOT IN ('I', 'U', 'D', 'T', 'B') THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('there is no op %s', coalesce(quote_literal(op), 'NULL')),
            HINT = 'Give I, U, D, T or B.';
    ELSIF chunk_size IS NULL OR chunk_size < 1 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('a pod can''t have %s ids', coalesce(chunk_size::text, 'NULL')),
            HINT = 'Give a chunk_size of 1 or more.';
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_check_tube(tube text, partitions integer, present regtype, wanted regtype) RETURNS void
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION tube.tube_private_choose_parked(outbox text, ids bigint[], topic text, key text, in_seen pg_snapshot, in_limit integer) RETURNS bigint[]
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    AS $_$
#variable_conflict use_column
DECLARE
    chosen bigint[] := '{}';
    unit record;
BEGIN
    FOR unit IN
        SELECT c.topic, CASE WHEN c.hold THEN c.key END AS key, array_agg(c.id) AS ids
        FROM (
            SELECT k.id, k.topic, k.key, k.hold FROM tube_outbox_parked AS k
            WHERE k.outbox = $1
                AND ($2 IS NULL OR k.id = ANY ($2)) AND ($3 IS NULL OR k.topic = $3) AND ($4 IS NULL OR k.key = $4)
                AND (in_seen IS NULL OR pg_visible_in_snapshot(tube_private_full_xid(k.xmin), in_seen))
            ORDER BY k.id LIMIT in_limit) AS c
        GROUP BY c.topic, CASE WHEN c.hold THEN c.key END, CASE WHEN NOT c.hold THEN c.id END
        ORDER BY min(c.id)
    LOOP
        chosen := chosen || CASE WHEN unit.key IS NULL THEN unit.ids ELSE ARRAY(
            SELECT k.id FROM tube_outbox_parked AS k
            WHERE k.outbox = $1 AND k.topic = unit.topic AND md5(k.key) = md5(unit.key) AND k.key = unit.key AND k.hold) END;
        EXIT WHEN cardinality(chosen) >= in_limit;
    END LOOP;
    RETURN chosen;
END
$_$;

CREATE FUNCTION tube.tube_private_class_sql(reg tube.tube_registry) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT format('FROM %s AS p WHERE (p.shard %% %s) = n.slice / 2 AND (CASE WHEN p.op = ''B'' THEN 1 ELSE 0 END) = n.slice %% 2'
        ' AND (p.payload IS NULL OR p.ids <> ''{}'') ORDER BY p.seq', tube_private_qualify(reg.tube), reg.partitions)
$$;

CREATE FUNCTION tube.tube_private_classes_sql(reg tube.tube_registry, most integer, ends boolean) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $_$
DECLARE
    pods CONSTANT text := tube_private_class_sql(reg);
BEGIN
    RETURN format('SELECT n.slice / 2 AS partition, n.slice %% 2 AS number, s.* FROM generate_series(0, %s) AS n (slice), '
        'LATERAL (%s) AS s ORDER BY n.slice', reg.partitions * 2 - 1,
        CASE WHEN NOT EXISTS (SELECT FROM tube_private_indexes(reg.tube) AS i WHERE i.partitions = reg.partitions AND i.valid)
            THEN format(
            'SELECT c.* FROM tube_registry AS r, tube_private_stats_class(r, n.slice / 2, n.slice %% 2, %s) AS c WHERE r.tube = %L',
            most, reg.tube)
        ELSE format('SELECT c.*%s FROM (SELECT count(*)::integer AS pods, min(q.ts) AS since FROM (SELECT p.ts %s LIMIT %s) AS q) AS c%s',
            CASE WHEN ends THEN ', f.seq AS min_seq, f.ts AS min_ts, l.seq AS max_seq, l.ts AS max_ts' END, pods, most,
            CASE WHEN ends THEN format(' LEFT JOIN (SELECT p.seq, p.ts %1$s LIMIT 1) AS f ON true'
                ' LEFT JOIN (SELECT p.seq, p.ts %1$s DESC LIMIT 1) AS l ON true', pods) END) END);
END
$_$;

CREATE FUNCTION tube.tube_private_close_capture() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    other record;
BEGIN
    FOR other IN
        SELECT a.grantee::regrole AS role FROM pg_namespace AS n CROSS JOIN LATERAL aclexplode(n.nspacl) AS a
        WHERE n.nspname = tube_private_capture_schema() AND a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner
    LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended('pytube grant ' || tube_private_schema(), 0));
        EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM %s CASCADE', tube_private_capture_schema(), tube_private_role_sql(other.role));
    END LOOP;
END
$$;

CREATE FUNCTION tube.tube_private_columns(tbl regclass, columns name[]) RETURNS name[]
    LANGUAGE plpgsql
    AS $$
DECLARE
    wrong record;
BEGIN
    SELECT coalesce(quote_ident(c.name), 'NULL') AS name, a.attnum IS NULL AS is_missing INTO wrong
    FROM unnest(columns) AS c (name)
    LEFT JOIN pg_attribute AS a ON a.attrelid = tbl AND a.attname = c.name AND a.attnum > 0 AND NOT a.attisdropped
    WHERE a.attnum IS NULL OR a.attgenerated = 'v' ORDER BY a.attnum NULLS FIRST LIMIT 1;
    IF wrong.is_missing THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_column',
            MESSAGE = format('%s has no column %s', tbl, wrong.name), HINT = 'Give the names of columns of the table.';
    ELSIF NOT wrong.is_missing THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
            MESSAGE = format('the column %s of %s is a virtual generated one, and has no value when a row is written', wrong.name, tbl),
            HINT = 'Give the columns that it is computed from, or make it STORED.';
    END IF;
    RETURN (
        SELECT array_agg(a.attname ORDER BY a.attnum) FROM pg_attribute AS a
        WHERE a.attrelid = tbl AND a.attnum > 0 AND a.attname = ANY (columns));
END
$$;

CREATE FUNCTION tube.tube_private_control_waits(tube text, first integer, shards integer, types text[], of_step3 boolean DEFAULT false) RETURNS boolean
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $_$ -- there is an index of the few control pods
DECLARE
    waits boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM %s'
        ' WHERE payload IS NOT NULL AND ids = ''{}'' AND shard BETWEEN $1 AND $2 AND payload ->> ''type'' = ANY ($3)'
        ' AND NOT ($4 AND payload ? ''backfill''))', tube_private_qualify(tube))
    INTO waits USING first, first + (shards - 1), types, of_step3;
    RETURN waits;
END
$_$;

CREATE FUNCTION tube.tube_private_cursor_error(statement text) RETURNS text
    LANGUAGE plpgsql
    AS $$
DECLARE
    never record;
BEGIN
    FOR never IN EXECUTE statement LOOP
        NULL;
    END LOOP;
    RETURN NULL;
EXCEPTION WHEN syntax_error_or_access_rule_violation OR data_exception OR program_limit_exceeded
    OR feature_not_supported
THEN
    RETURN SQLSTATE || ':' || SQLERRM;
END
$$;

CREATE FUNCTION tube.tube_private_drop(tube text, force boolean) RETURNS void
    LANGUAGE plpgsql
    AS $_$
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
        || 'SELECT tube_private_drop_former(NULL, NULL, NULL)'::text || format('DROP TABLE %s', queue), format('tube %L is dropped', tube));
    EXECUTE format('DROP FUNCTION IF EXISTS %I.%I(integer, %s[], char, jsonb, integer)',
        tube_private_schema(), tube_private_name(tube, '_touch'), reg.key_type);
    EXECUTE format('DROP FUNCTION IF EXISTS %s, %s', tube_private_planned(tube, 'mark'), tube_private_planned(tube, 'purge'));
    DELETE FROM tube_registry AS r WHERE r.tube = reg.tube;
    EXECUTE format('DROP SEQUENCE %s', tube_private_qualify('tube_sleeps_' || reg.number));
END
$_$;

CREATE FUNCTION tube.tube_private_drop_former(stored tube.tube_attachment, wanted tube.tube_attachment, trigger_function text) RETURNS void
    LANGUAGE plpgsql
    SET client_min_messages TO 'warning'
    SET lock_timeout TO '50ms'
    AS $_$
DECLARE
    ending CONSTANT text := coalesce(right(trigger_function, 9), '_[0-9a-f]{8}') || '_([0-9]+_[0-9]+(_[0-9])?|[0-9a-f]{12})$';
    kept text[];
    former text;
BEGIN
    SELECT array_agg(tube_private_function(a, k)) INTO kept
    FROM unnest(ARRAY[stored, wanted]) AS a, unnest('{door,put,passes}'::text[]) AS k WHERE a.tube IS NOT NULL;
    FOR former IN SELECT d.statement FROM (
        SELECT format('DROP VIEW %s', o.name), c.relname, o.name
        FROM pg_class AS c, format('%I.%I', tube_private_schema(), c.relname) AS o (name)
        WHERE c.relnamespace = to_regnamespace(quote_ident(tube_private_schema())) AND c.relkind = 'v'
            AND c.relname ~ ('_door' || ending)
        UNION ALL
        SELECT format('DROP ROUTINE %s', o.name), p.proname, o.name
        FROM pg_proc AS p, format('%s.%I', p.pronamespace::regnamespace, p.proname) AS o (name)
        WHERE (p.pronamespace = to_regnamespace(quote_ident(tube_private_schema())) AND p.proname ~ ('_put' || ending)
                OR p.pronamespace = to_regnamespace(quote_ident(tube_private_capture_schema())) AND p.proname ~ ('_passes' || ending))
        ) AS d (statement, bare, name)
        WHERE (d.name = ANY (kept)) IS NOT TRUE AND (trigger_function IS NOT NULL OR NOT EXISTS (
            SELECT FROM tube_attachment AS a WHERE right(a.trigger_function, 8)
                = substring(d.bare FROM '_(?:door|put|passes)_([0-9a-f]{8})_(?:[0-9]+_[0-9]+(?:_[0-9])?|[0-9a-f]{12})$')))
    LOOP
        BEGIN
            EXECUTE former;
        EXCEPTION WHEN lock_not_available OR dependent_objects_still_exist OR ambiguous_function THEN
            -- At the next look.
        END;
    END LOOP;
END
$_$;

CREATE FUNCTION tube.tube_private_drop_outbox(outbox text, force boolean, OUT needed text[], OUT wanted text[]) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
DECLARE
    reg tube_registry;
    box tube_outbox;
    lost CONSTANT text := format('SELECT tube_private_refuse_records(%L)', outbox);
BEGIN
    SELECT r.* INTO reg FROM tube_registry AS r WHERE r.tube = outbox FOR UPDATE;
    box := tube_private_require_outbox(outbox);
    IF force IS NOT TRUE AND NOT box.adopted THEN
        EXECUTE lost; -- before anybody's term ends, or anybody waits
    END IF;
    UPDATE tube_installation AS i SET last_epoch = greatest(i.last_epoch, reg.last_epoch);
    PERFORM tube_private_end_terms(outbox, NULL, 'superseded');
    IF NOT box.adopted THEN
        PERFORM tube_private_patiently(CASE WHEN force IS NOT TRUE THEN ARRAY[format('LOCK TABLE %s', box.tbl), lost] END
            || format('DROP TABLE %s', box.tbl), format('outbox %L is dropped', outbox));
    END IF;
    needed := ARRAY(
        SELECT format('DROP TRIGGER %I ON %s', t.tgname, box.tbl) FROM pg_trigger AS t
        WHERE box.adopted AND t.tgrelid = box.tbl AND t.tgfoid = 'tube_private_outbox_wake'::regproc);
    wanted := ARRAY(
        SELECT format('DROP INDEX %s', i.name) FROM tube_private_indexes(outbox) AS i WHERE box.adopted
        UNION ALL
        SELECT format('REVOKE ALL ON %s FROM %s, %s', box.tbl, quote_ident(tube_private_role('worker')),
            quote_ident(tube_private_role('monitor')))
        WHERE box.adopted AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = box.tbl));
    DELETE FROM tube_registry AS r WHERE r.tube = reg.tube;
    EXECUTE format('DROP SEQUENCE %s', tube_private_qualify('tube_sleeps_' || reg.number));
END
$$;

CREATE FUNCTION tube.tube_private_drop_parked(outbox text, ids bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    gone bigint[];
BEGIN
    PERFORM tube_private_lock_parked(tube_private_drop_parked.outbox, NULL, NULL, NULL);
    WITH dropped AS (
        DELETE FROM tube_outbox_parked AS k
        WHERE k.outbox = tube_private_drop_parked.outbox AND k.id = ANY (ids) RETURNING k.id
    )
    SELECT coalesce(array_agg(d.id ORDER BY d.id), '{}') INTO gone FROM dropped AS d;
    IF gone <> '{}' THEN
        PERFORM tube_audit_add('outbox parked discard', tube_private_drop_parked.outbox,
            jsonb_build_object('ids', tube_private_some_keys(gone::text[]), 'count', cardinality(gone)));
    END IF;
    PERFORM tube_private_free_parked(tube_private_drop_parked.outbox, ARRAY(
        SELECT k.id FROM tube_outbox_parked AS k
        WHERE k.outbox = tube_private_drop_parked.outbox AND k.behind AND NOT EXISTS (
            SELECT FROM tube_outbox_parked AS h
            WHERE h.outbox = k.outbox AND h.topic = k.topic AND md5(h.key) = md5(k.key) AND h.key = k.key
                AND h.hold AND NOT h.behind)));
    RETURN gone;
END
$$;

CREATE FUNCTION tube.tube_private_drop_routines(att tube.tube_attachment, owner regrole) RETURNS void
    LANGUAGE plpgsql
    SET client_min_messages TO 'warning'
    AS $$ -- for each trigger there would be a NOTICE
DECLARE
    statements text[] := ARRAY(
        -- By its name alone where that will do: of an enum in its arguments we may not look into the schema.
        SELECT format('DROP ROUTINE %s CASCADE', CASE (SELECT count(*) FROM tube_private_routines(att) AS o WHERE o.name = r.name) WHEN 1 THEN r.name
            ELSE r.signature END)
        FROM tube_private_routines(att) AS r JOIN pg_proc AS p ON p.oid = r.routine
        WHERE p.proowner IS DISTINCT FROM owner::oid ORDER BY p.proname);
BEGIN
    IF statements <> '{}' THEN
        PERFORM tube_private_patiently(statements, format('functions for %s that are not its owner''s are dropped', att.tbl), 20);
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_drop_stored() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    stored CONSTANT text := TG_ARGV[0] || (to_jsonb(OLD) ->> TG_ARGV[1]);
BEGIN
    IF NOT EXISTS (SELECT FROM tube_registry AS r WHERE r.tube = stored) THEN -- a tube may be called so
        EXECUTE format('DROP TABLE IF EXISTS %I.%I', TG_TABLE_SCHEMA, stored);
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION tube.tube_private_drop_strangers(tube text, tbl oid) RETURNS void
    LANGUAGE plpgsql
    SET quote_all_identifiers TO 'off'
    AS $_$
DECLARE
    att CONSTANT tube_attachment := (SELECT a FROM tube_attachment AS a WHERE a.tube = $1 AND a.tbl = $2);
BEGIN
    PERFORM tube_private_drop_routines(att, tube_private_owner_of(att.tbl));
    RAISE WARNING USING
        MESSAGE = format('%s has another owner, and tube %L does not capture its writes until they agree', att.tbl, tube),
        HINT = format('Run as %s: SELECT %I.tube_sync();', tube_private_owner_of(att.tbl), tube_private_schema());
END
$_$;

CREATE FUNCTION tube.tube_private_each_once(names name[], others name[]) RETURNS name[]
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE WHEN count(n) > count(DISTINCT n) THEN others ELSE names END FROM unnest(names) AS n
$$;

CREATE FUNCTION tube.tube_private_end_backfill(backfill tube.tube_backfill, outcome text, note text) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $_$
DECLARE
    tag jsonb := jsonb_build_object('backfill', backfill.backfill_id);
    reg tube_registry := tube_private_require(backfill.tube);
BEGIN
    UPDATE tube_backfill AS b
    SET state = outcome, note = $3, paused = false, ended_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE b.backfill_id = backfill.backfill_id;
    PERFORM tube_backfill_tidy();
    EXECUTE format('DELETE FROM %s WHERE payload IS NOT NULL AND ids = ''{}'' AND payload @> $1',
        tube_private_qualify(reg.tube)) USING tag;
    FOR part IN 0 .. reg.partitions - 1 LOOP
        EXECUTE format('DELETE FROM %s WHERE %s AND (CASE WHEN op = ''B'' THEN 1 ELSE 0 END) = 1'
            ' AND seq > $1 AND leader_id IS NULL AND payload @> $2',
            tube_private_qualify(reg.tube), (tube_private_slices(reg.tube, reg.partitions, part)).pods)
        USING backfill.start_seq, tag;
    END LOOP;
END
$_$;

CREATE FUNCTION tube.tube_private_end_collect(backfill_id bigint, pods bigint, wrong text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
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
$_$;

CREATE FUNCTION tube.tube_private_end_job(job tube.tube_job) RETURNS tube.tube_job
    LANGUAGE sql
    AS $$
    UPDATE tube_job AS j
    SET state = 'done', ended_at = clock_timestamp(), rows_done = coalesce(job.rows_done, u.rows),
        ids_done = coalesce(job.ids_done, u.ids), pods_done = coalesce(job.pods_done, u.pods)
    FROM (SELECT coalesce(sum(w.rows), 0) AS rows, coalesce(sum(w.ids), 0) AS ids, coalesce(sum(w.pods), 0) AS pods
        FROM tube_job_unit AS w WHERE w.job_id = job.job_id) AS u
    WHERE j.job_id = job.job_id RETURNING j.*
$$;

CREATE FUNCTION tube.tube_private_end_range(backfill_id bigint, unit integer, ids bigint, pods bigint, touched integer[], rate double precision) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    job tube_job := tube_private_lock_job('backfill ' || backfill_id, false, of_backfill => true);
BEGIN
    INSERT INTO tube_job_unit (job_id, unit, rows, ids, pods) VALUES (job.job_id, unit, ids, ids, pods)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'range % of backfill % was done by another session meanwhile', unit, backfill_id
            USING ERRCODE = 'unique_violation', HINT = 'Call again, and it does nothing.';
    END IF;
    PERFORM tube_private_wake_sleepers(t.tube, touched) FROM unnest(job.tubes) AS t (tube);
    -- To end the backfill, a session locks its row: either it takes these pods back, or they never come.
    UPDATE tube_backfill AS b
    SET rows_done = b.rows_done + ids, pods_done = b.pods_done + 1, updated_at = clock_timestamp(),
        rate = coalesce($6, b.rate)
    WHERE b.backfill_id = job.backfill_id AND b.state = 'inserting';
    IF NOT FOUND THEN
        PERFORM tube_private_inserting_attachment(tube_private_lock_backfill(backfill_id)); -- raises TU124
    END IF;
    RETURN ids;
END
$_$;

CREATE FUNCTION tube.tube_private_end_split(backfill_id bigint, bounds text[]) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    backfill tube_backfill := tube_private_lock_backfill(backfill_id, held => true);
    job CONSTANT text := 'backfill ' || backfill.backfill_id;
    units CONSTANT integer := cardinality(bounds) + 1;
BEGIN
    IF EXISTS (SELECT FROM tube_job AS j WHERE j.backfill_id = backfill.backfill_id) THEN
        RETURN job;
    END IF;
    INSERT INTO tube_job (job_id, backfill_id, tubes, kind, fingerprint, units, bounds)
    VALUES (job, backfill.backfill_id, ARRAY[backfill.tube], 'ranges', job, units, bounds);
    PERFORM tube_private_put_control('backfill_start', backfill);
    UPDATE tube_backfill AS b
    SET state = 'inserting', rows_total = nullif(tube_private_rows_estimate(a.tbl), 0), pods_total = units,
        note = 'in ranges', key_attnums = tube_private_key_attnums(a), row_filter = a.row_filter,
        collected_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM tube_attachment AS a
    WHERE b.backfill_id = backfill.backfill_id AND a.tube = b.tube AND a.tbl = b.tbl;
    RETURN job;
END
$$;

CREATE FUNCTION tube.tube_private_end_step3(step1 text, tube text, tbl regclass, first integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    att CONSTANT tube_attachment := tube_private_attachment(tube, tbl);
BEGIN
    PERFORM tube_private_refuse_table(att.tbl);
    IF tube_private_is_swept(att) THEN
        PERFORM tube_private_put_control('backfill_end', jsonb_populate_record(NULL::tube_backfill,
            jsonb_build_object('tube', att.tube, 'shard', first, 'start_seq', step1,
                'shards', CASE first WHEN att.shard THEN att.shards ELSE 1 END)));
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_end_terms(tube text, partition integer, outcome text) RETURNS void
    LANGUAGE plpgsql
    AS $_$
BEGIN
    PERFORM FROM tube_leader AS l
    WHERE l.tube = tube_private_end_terms.tube AND l.partition = coalesce($2, l.partition)
    ORDER BY l.partition FOR UPDATE;
    WITH ended AS (
        SELECT l.* FROM tube_leader AS l
        WHERE l.tube = tube_private_end_terms.tube AND l.partition = coalesce($2, l.partition) AND l.leader_id IS NOT NULL
    ), troubled AS (
        DELETE FROM tube_trouble AS t USING ended AS e WHERE t.leader_id = e.leader_id
    ), halted AS (
        DELETE FROM tube_halted AS t USING ended AS e WHERE t.leader_id = e.leader_id
    ), resting AS (
        DELETE FROM tube_outbox_resting AS t USING ended AS e WHERE t.leader_id = e.leader_id
    )
    INSERT INTO tube_term (leader_id, tube, partition, partitions, epoch, instance_id, client_id,
        election, hold, acquired_at, renewed_at, outcome)
    SELECT e.leader_id, e.tube, e.partition, e.partitions, e.epoch, e.instance_id, e.client_id,
        e.election, e.hold, e.acquired_at, e.renewed_at, tube_private_end_terms.outcome
    FROM ended AS e;
    DELETE FROM tube_term AS t
    WHERE t.tube = tube_private_end_terms.tube
      AND t.ended_at < clock_timestamp() - interval '1 day'
      AND t.renewed_at + t.hold < clock_timestamp();

    IF partition IS NULL THEN
        DELETE FROM tube_leader AS l WHERE l.tube = tube_private_end_terms.tube;
        PERFORM tube_private_wake_sleepers(tube, NULL);
    END IF;
    DELETE FROM tube_sleeper AS s
    WHERE s.tube = tube_private_end_terms.tube AND s.partition = coalesce($2, s.partition);
END
$_$;

CREATE FUNCTION tube.tube_private_ensure_tube(tube text, partitions integer, predicate text, key_type regtype) RETURNS SETOF tube.tube_attachment
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
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

CREATE TABLE tube.tube_outbox (
    outbox text NOT NULL,
    tbl regclass NOT NULL,
    value_type regtype NOT NULL,
    adopted boolean NOT NULL,
    CONSTRAINT tube_outbox_value_type_check CHECK (((value_type)::oid = ANY ((ARRAY['text'::regtype, 'bytea'::regtype])::oid[])))
);

CREATE FUNCTION tube.tube_private_enter_outbox(outbox text, partitions integer) RETURNS tube.tube_outbox
    LANGUAGE plpgsql
    AS $$
DECLARE
    reg tube_registry;
    wrong CONSTANT text := tube_private_wrong_name(outbox);
BEGIN
    IF (partitions BETWEEN 1 AND 1024) IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = 'TU103', HINT = 'Give 1 to 1024.',
            MESSAGE = format('an outbox can''t have %s partitions', coalesce(partitions::text, 'NULL'));
    ELSIF EXISTS (SELECT FROM tube_registry AS r WHERE r.tube = outbox) THEN
        RETURN tube_private_require_outbox(outbox);
    ELSIF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU101',
            MESSAGE = format('%s is not a valid outbox name: %s', quote_nullable(outbox), wrong),
            HINT = 'Choose a name of 1 to 57 bytes without commas, such as orders.';
    END IF;
    INSERT INTO tube_registry (tube, kind, partitions, last_epoch)
    SELECT outbox, 'outbox', partitions, i.last_epoch FROM tube_installation AS i
    ON CONFLICT DO NOTHING
    RETURNING * INTO reg;
    IF NOT FOUND THEN
        RETURN tube_private_require_outbox(outbox); -- another session made it meanwhile
    END IF;
    PERFORM tube_private_free_partitions(outbox), tube_private_make_flag(reg);
    RETURN NULL;
END
$$;

CREATE FUNCTION tube.tube_private_fill(template text, fragments jsonb) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    AS $$
BEGIN
    RETURN ( -- in PL/pgSQL, which plans it once
        SELECT string_agg(CASE WHEN p.place = 1 THEN p.piece
            ELSE coalesce((fragments ->> n.name) || substr(p.piece, length(n.name) + 2), '<' || p.piece) END,
            '' ORDER BY p.place)
        FROM regexp_split_to_table(template, '<(?=[a-z_]+>)') WITH ORDINALITY AS p (piece, place),
            split_part(p.piece, '>', 1) AS n (name));
END
$$;

CREATE FUNCTION tube.tube_private_fit_index(queue text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    most CONSTANT bigint := 8 * 1024 * 1024; -- bytes: some 40000 pods of one id, built in 50 ms
    the_partitions CONSTANT integer := (tube_private_require(queue, 'any')).partitions;
    ddl CONSTANT text := (tube_private_index(queue, the_partitions)).ddl;
    statements text[];
    ready boolean;
BEGIN
    SELECT array_agg(format('DROP INDEX %s', i.name)) FILTER (WHERE i.partitions <> the_partitions OR NOT i.valid),
        ddl IS NULL OR coalesce(bool_or(i.partitions = the_partitions AND i.valid), false)
    INTO statements, ready
    FROM tube_private_indexes(queue) AS i;
    IF EXISTS (SELECT FROM tube_outbox AS o WHERE o.outbox = queue AND o.adopted) THEN
        RETURN ready;
    ELSIF NOT ready THEN
        IF pg_relation_size(tube_private_qualify(queue)::regclass) > most THEN
            RETURN false;
        END IF;
        statements := statements || ddl;
    END IF;
    PERFORM tube_private_briefly(statements) WHERE statements IS NOT NULL;
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN false;
END
$$;

CREATE FUNCTION tube.tube_private_fits(tbl regclass, door regclass, flag regclass, put text, query text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE STRICT
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET quote_all_identifiers TO 'off'
    AS $$
DECLARE
    fits boolean;
BEGIN
    IF NOT (has_table_privilege(door, 'INSERT') AND has_function_privilege(put, 'EXECUTE')
        AND has_sequence_privilege(flag, 'SELECT') AND has_sequence_privilege('tube_seq', 'USAGE'))
    THEN
        RETURN NULL;
    END IF;
    EXECUTE format(query, tbl) INTO fits;
    RETURN fits IS TRUE;
EXCEPTION WHEN syntax_error_or_access_rule_violation OR invalid_text_representation THEN
    RETURN false;
END
$$;

CREATE FUNCTION tube.tube_private_flag_sql(tube text) RETURNS text
    LANGUAGE sql STABLE
    AS $_$
    SELECT format('%L::pg_catalog.regclass', tube_private_qualify('tube_sleeps_' || r.number)) FROM tube_registry AS r WHERE r.tube = $1
$_$;

CREATE FUNCTION tube.tube_private_follow_columns(tube text, tbl regclass) RETURNS void
    LANGUAGE plpgsql
    AS $_$
DECLARE
    att tube_attachment;
    now tube_attachment;
    keys name[];
    moved integer;
BEGIN
    SELECT a.* INTO att FROM tube_attachment AS a WHERE a.tube = $1 AND a.tbl = $2 FOR NO KEY UPDATE;
    now := tube_private_attachment_now(att);
    IF now.tube IS NULL OR (now.id_col, now.key_cols, now.columns, now.seen_oid, now.seen_attnums, now.seen_names, now.seen_types)
        IS NOT DISTINCT FROM (att.id_col, att.key_cols, att.columns, att.seen_oid, att.seen_attnums, att.seen_names, att.seen_types)
    THEN
        RETURN;
    END IF;
    UPDATE tube_attachment AS a SET id_col = now.id_col, key_cols = now.key_cols, columns = now.columns, seen_oid = now.seen_oid,
        seen_attnums = now.seen_attnums, seen_names = now.seen_names, seen_types = now.seen_types,
        captured_by = CASE WHEN now.seen_oid = att.seen_oid THEN a.captured_by END -- in a restored database it is another number
    WHERE a.tube = $1 AND a.tbl = $2;
    keys := tube_private_key_names(now);
    UPDATE tube_registry AS r SET version = r.version + 1 WHERE r.tube = $1 AND keys <> tube_private_key_names(att);
    SELECT n.place INTO moved FROM unnest(keys, tube_private_key_names(att)) WITH ORDINALITY AS n (now, was, place)
    WHERE n.now = n.was AND now.seen_attnums[n.place] <> att.seen_attnums[n.place] LIMIT 1;
    IF now.seen_oid = att.seen_oid AND moved IS NOT NULL THEN
        PERFORM tube_private_ask_backfill(now, format('another column of %s has the name %I now', now.tbl, keys[moved]));
    END IF;
    PERFORM tube_private_follow_types(att, now);
END
$_$;

CREATE FUNCTION tube.tube_private_follow_ddl() RETURNS event_trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS $$
DECLARE
    statement text;
BEGIN
    FOREACH statement IN ARRAY coalesce(tube_private_see_ddl(tg_tag), '{}') LOOP
        EXECUTE statement;
    END LOOP;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'pytube follows this change later, by tube_sync: %', SQLERRM;
END
$$;

CREATE FUNCTION tube.tube_private_follow_members(att tube.tube_attachment, members oid[], waiting oid[]) RETURNS void
    LANGUAGE plpgsql
    AS $_$
#variable_conflict use_column
DECLARE
    known CONSTANT oid[] := CASE WHEN att.tbl::oid = ANY (members) THEN members END;
    come CONSTANT regclass[] := ARRAY(
        -- Tables that have their triggers now, and did not before.
        SELECT t.rel FROM tube_private_trigger_names(att) AS t JOIN pg_class AS c ON c.oid = t.rel
        WHERE t.wanted GROUP BY t.rel, c.relkind
        HAVING bool_and(t.is_there) AND CASE WHEN t.rel::oid = ANY (known) THEN t.rel::oid = ANY (waiting)
            ELSE c.relkind = 'r' AND t.rel::oid <> ALL (known) END);
    rel regclass;
BEGIN
    FOR rel IN SELECT m.rel FROM tube_private_members(att.tbl) AS m WHERE m.kind = 'f' AND m.rel::oid <> ALL (known) LOOP
        RAISE WARNING USING
            MESSAGE = format('%s, which has come to %s, is a foreign table: tube %L sees nothing that is written by its name',
                rel, att.tbl, att.tube),
            HINT = 'Write to it by the name of the partitioned table, and backfill that if it has new rows.';
    END LOOP;
    SELECT c INTO rel FROM unnest(come) AS c WHERE NOT tube_private_is_fresh(c) LIMIT 1;
    IF FOUND THEN
        PERFORM tube_private_ask_backfill(att, format(CASE WHEN rel::oid = ANY (known) THEN 'triggers of %1$s were gone'
            ELSE '%1$s has come to %2$s, maybe with rows' END, rel, att.tbl));
    ELSIF EXISTS (SELECT FROM unnest(coalesce(known, '{}') || coalesce(waiting, '{}')) AS m (rel) LEFT JOIN pg_class AS c ON c.oid = m.rel
        WHERE coalesce(c.relkind = 'r', true) AND m.rel NOT IN (SELECT n.rel FROM tube_private_members(att.tbl) AS n))
    THEN
        PERFORM tube_private_resync(att.tube, att.trigger_function, tube_private_table_name(att.tbl), att.shard, att.shards, true,
            (tube_private_require(att.tube)).companion_of);
    END IF;
    att.members := CASE WHEN known IS NULL THEN tube_private_member_oids(att.tbl) ELSE ARRAY(
        SELECT m.rel::oid FROM tube_private_members(att.tbl) AS m JOIN pg_class AS c ON c.oid = m.rel
        WHERE m.rel = ANY (known) OR m.rel = ANY (come) OR c.relkind <> 'r' ORDER BY 1) END;
    -- Were one of these dropped before it gets its triggers, nothing else would show that rows of it are at the sink.
    att.waiting := nullif(ARRAY(SELECT m.rel::oid FROM tube_private_members(att.tbl) AS m
        WHERE m.rel <> ALL (att.members) OR m.rel = ANY (known) AND m.rel = ANY (waiting) AND m.rel <> ALL (come)), '{}');
    UPDATE tube_attachment AS a SET members = att.members, waiting = att.waiting
    WHERE a.tube = att.tube AND a.tbl = att.tbl AND (a.members, a.waiting) IS DISTINCT FROM (att.members, att.waiting);
END
$_$;

CREATE FUNCTION tube.tube_private_follow_root(tube text, in_shard integer) RETURNS void
    LANGUAGE plpgsql
    AS $_$
DECLARE
    heir tube_attachment;
BEGIN
    SELECT a.* INTO heir FROM tube_attachment AS a
    WHERE a.tube = $1 AND a.shard = in_shard AND NOT a.as_root AND tube_private_is_root(a)
        AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = a.tbl);
    IF FOUND THEN
        RAISE WARNING USING
            MESSAGE = format('%s was related and is now the root table of shards %s to %s of tube %L: the root table before it is gone',
                heir.tbl, heir.shard, heir.shard + (heir.shards - 1), tube),
            HINT = format('Its rows become the documents of the ids in %s; a touched id that it does not have is deleted at the sink. '
                'If that is wrong, pause the tube, detach this table, attach the root table, attach this one again, and '
                'backfill the root table.', tube_private_key_label(heir));
        PERFORM tube_private_provide(heir);
    END IF;
END
$_$;

CREATE FUNCTION tube.tube_private_follow_types(was tube.tube_attachment, now tube.tube_attachment) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    other name;
BEGIN
    UPDATE tube_registry AS r SET version = r.version + 1 WHERE r.tube = now.tube AND now.seen_types <> was.seen_types;
    SELECT now.seen_names[k.place] INTO other
    FROM unnest(was.seen_types, now.seen_types) WITH ORDINALITY AS k (was, now, place)
    WHERE now.seen_attnums[k.place] = was.seen_attnums[k.place] AND CASE WHEN k.was LIKE 'enum{%' AND k.now LIKE 'enum{%' THEN
            substr(k.was, 5)::name[] <> ARRAY(
                SELECT l.label FROM unnest(substr(k.now, 5)::name[]) WITH ORDINALITY AS l (label, place)
                WHERE l.label = ANY (substr(k.was, 5)::name[]) ORDER BY l.place)
        ELSE regexp_replace(k.was, '^enum.*', 'text') <> regexp_replace(k.now, '^enum.*', 'text') END
    ORDER BY k.place LIMIT 1;
    IF FOUND AND now.seen_oid = was.seen_oid THEN
        PERFORM tube_private_ask_backfill(now, format('the column %I of its key has another type, or other labels, now', other));
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_forget(tube text, tables regclass[]) RETURNS void
    LANGUAGE plpgsql
    AS $_$
DECLARE
    gone tube_attachment;
BEGIN
    FOR gone IN DELETE FROM tube_attachment AS a WHERE a.tube = $1 AND a.tbl = ANY (tables) RETURNING a.* LOOP
        PERFORM tube_private_drop_routines(gone, NULL), tube_private_drop_former(NULL, NULL, gone.trigger_function);
        PERFORM tube_private_rescue_links(gone); -- under the lock of the table: no writer puts more
        PERFORM tube_private_provide_touch(gone), tube_private_follow_root(tube, gone.shard);
    END LOOP;
    IF FOUND THEN
        UPDATE tube_registry AS r SET version = r.version + 1 WHERE r.tube = $1;
    END IF;
END
$_$;

CREATE FUNCTION tube.tube_private_forget_failures(reg tube.tube_registry, places tid[], in_key text) RETURNS void
    LANGUAGE plpgsql
    AS $_$
BEGIN
    EXECUTE format($sql$
        DELETE FROM tube_attempt AS a
        USING (SELECT DISTINCT p.shard, unnest(p.ids::text[]) AS id FROM %s AS p WHERE p.ctid = ANY ($2)) AS k
        WHERE a.tube = $1 AND a.shard = k.shard AND md5(a.id) = md5(k.id) AND a.id = k.id AND k.id = coalesce($3, k.id)$sql$,
        tube_private_qualify(reg.tube)) USING reg.tube, places, tube_private_kept_key(reg, in_key);
END
$_$;

CREATE FUNCTION tube.tube_private_forget_rest(tube text) RETURNS void
    LANGUAGE sql
    AS $_$
    DELETE FROM tube_halted AS h USING tube_leader AS l WHERE l.tube = $1 AND h.leader_id = l.leader_id
$_$;

CREATE FUNCTION tube.tube_private_free_parked(outbox text, ids bigint[]) RETURNS bigint
    LANGUAGE plpgsql
    AS $_$
DECLARE
    freed bigint;
BEGIN
    WITH gone AS (
        DELETE FROM tube_outbox_parked AS k WHERE k.outbox = $1 AND k.id = ANY ($2) RETURNING k.id, k.slot
    ), listed AS (
        INSERT INTO tube_outbox_retry (outbox, id, slot)
        SELECT o.outbox, g.id, g.slot FROM gone AS g JOIN tube_outbox AS o ON o.outbox = $1 AND NOT o.adopted
        ON CONFLICT DO NOTHING
    )
    SELECT count(*) INTO freed FROM gone;
    IF freed > 0 THEN
        PERFORM tube_private_wake_sleepers(outbox, NULL);
    END IF;
    RETURN freed;
END
$_$;

CREATE FUNCTION tube.tube_private_free_partitions(tube text) RETURNS void
    LANGUAGE sql
    AS $$
    INSERT INTO tube_leader (tube, partition, partitions, epoch)
    SELECT r.tube, p, r.partitions, r.last_epoch
    FROM tube_registry AS r, generate_series(0, r.partitions - 1) AS p
    WHERE r.tube = tube_private_free_partitions.tube
$$;

CREATE FUNCTION tube.tube_private_full_xid(xid xid) RETURNS xid8
    LANGUAGE sql STABLE
    AS $$
    SELECT (n.most - ((n.most - xid::text::bigint) & 4294967295))::text::xid8
    FROM (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1000000 AS most) AS n
$$;

CREATE FUNCTION tube.tube_private_function(att tube.tube_attachment, kind text) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $_$
DECLARE
    stem CONSTANT text := regexp_replace(att.trigger_function, '_capture_[0-9a-f]{8}$', '');
    ending CONSTANT text := '_' || kind || right(att.trigger_function, 9);
BEGIN
    RETURN CASE
        WHEN kind = 'capture' THEN format('%I.%I', tube_private_capture_schema(), att.trigger_function)
        WHEN kind = 'passes' THEN format('%I.%I', tube_private_capture_schema(), tube_private_name(stem, ending || '_' || left(md5(coalesce(att.row_filter, '') || (
            SELECT coalesce(array_agg(concat(c.bound::regtype, ' ', c.name)), '{}')::text
            FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c)), 12)))
        ELSE format('%I.%I', tube_private_schema(),
            tube_private_name(stem, concat_ws('_', ending, att.shard, att.shards, att.shard_place)))
    END;
END
$_$;

CREATE FUNCTION tube.tube_private_function_ddl(name text, types text, arguments text, returns text, path boolean, body text, owner regrole, callers regrole[]) RETURNS SETOF text
    LANGUAGE plpgsql STABLE
    AS $_$
DECLARE
    signature CONSTANT text := format('%s(%s)', name, types);
    head CONSTANT text := format(E'CREATE OR REPLACE FUNCTION %s(%s)\n RETURNS %s\n', name, arguments, returns);
    quote text := '$function';
    definition text;
    made pg_proc := (SELECT p FROM pg_proc AS p WHERE p.oid = to_regprocedure(signature));
    present text := CASE WHEN made.prokind <> 'a' THEN pg_get_functiondef(made.oid) END;
    may regrole[];
BEGIN
    WHILE strpos(body, quote) > 0 LOOP
        quote := quote || 'x';
    END LOOP;
    definition := head || E' LANGUAGE plpgsql\n SECURITY DEFINER\n'
        || CASE WHEN path THEN format(E' SET search_path TO ''pg_catalog'', %L, ''pg_temp''\n', tube_private_schema()) ELSE '' END
        || format(E'AS %1$s$%2$s%1$s$\n', quote, body);
    IF made.proowner <> owner THEN
        RETURN NEXT format('ALTER ROUTINE %s OWNER TO %s', signature, owner);
    END IF;
    -- What CREATE OR REPLACE can't change.
    IF made.oid IS NOT NULL AND starts_with(present, head) IS NOT TRUE THEN
        RETURN NEXT format('DROP ROUTINE %s', signature);
        made := NULL;
    END IF;
    -- A function of another owner is made again: settings that it was given would go with the rights of its owner of now.
    IF made.oid IS NULL OR present <> definition OR made.proowner <> owner THEN
        RETURN NEXT definition;
    END IF;
    IF made.oid IS NULL THEN
        RETURN NEXT format('ALTER FUNCTION %s OWNER TO %s', signature, owner);
    END IF;
    may := ARRAY(SELECT a.grantee::regrole FROM aclexplode(coalesce(made.proacl, acldefault('f', owner))) AS a);
    -- CASCADE: who had it from its owner may have passed it on.
    RETURN QUERY SELECT format('REVOKE ALL ON FUNCTION %s FROM %s CASCADE', signature, tube_private_role_sql(m.who))
    FROM unnest(may) AS m (who) WHERE m.who <> ALL (ARRAY[owner, coalesce(made.proowner, owner)::regrole] || callers);
    RETURN QUERY SELECT format('GRANT EXECUTE ON FUNCTION %s TO %s', signature, c.who)
    FROM unnest(callers) AS c (who) WHERE c.who <> ALL (may);
END
$_$;

CREATE FUNCTION tube.tube_private_guard(att tube.tube_attachment) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    AS $_$
DECLARE
    passes CONSTANT text := quote_literal(tube_private_function(att, 'passes')) || '::regproc';
    put CONSTANT text := tube_private_function(att, 'put');
    conditions text[];
    query text;
    rest text;
BEGIN
    -- Of a user's enum, its name, and that it is one.
    SELECT array_agg(CASE WHEN t.typtype = 'e' THEN
            format('format_type(pg_typeof(r.%1$I), NULL) = %2$L AND enum_larger(r.%1$I, r.%1$I) IS NULL', a.attname, tube_private_type_sql(t.oid))
        WHEN t.typtype = 'd' THEN format('format_type(pg_typeof(r.%1$I), NULL) = %2$L AND COALESCE(r.%1$I, NULL::%3$s) IS NULL',
            a.attname, tube_private_type_sql(t.oid), tube_private_type_sql(tube_private_base_type(t.oid)))
        -- A key may have any of the types that keys have: it is written out whichever it is.
        ELSE format('pg_typeof(r.%I)::oid = ANY (%L::oid[])', a.attname, CASE WHEN a.attname <> ALL (tube_private_key_names(att)) THEN ARRAY[t.oid]
            ELSE tube_private_key_types(CASE WHEN att.key_cols IS NULL THEN tube_private_key_type(att.tube)
                ELSE (tube_key_types(att.tbl, ARRAY[a.attname]))[1]::regtype END) END) END ORDER BY a.attnum)
    INTO conditions
    FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
    WHERE a.attrelid = att.tbl AND a.attnum > 0 AND NOT a.attisdropped
        AND (a.attname = ANY (tube_private_key_names(att)) OR (t.oid < 16384 OR t.typtype = 'd') AND a.attnum IN (SELECT c.attnum FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c));
    IF att.row_filter IS NOT NULL THEN
        conditions := conditions || (
            SELECT format('%1$s::oid::regprocedure::text = format(''%%s(%%s)'', %1$s, concat_ws('','', NULL::text%2$s))', passes,
                string_agg(format(', format_type(pg_typeof(%s), NULL)', tube_private_bound_sql('r', c.name, c.type, c.bound)), '' ORDER BY c.attnum))
            FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c);
    END IF;
    IF att.columns IS NOT NULL THEN
        conditions := conditions || (SELECT format('num_nulls(%s) > 0', string_agg(format('r.%I', c), ', ')) FROM unnest(att.columns) AS c);
    END IF;
    -- A virtual generated column has no value in the rows that a trigger sees: to name it fails. An old snapshot may still
    -- show another one.
    query := replace(format('SELECT %s AND NOT EXISTS (SELECT FROM pg_attribute AS v WHERE v.attname = ANY (%L) AND (v.attgenerated = ''v'''
            ' OR current_setting(''transaction_isolation'') <> ''read committed'' AND tube_private_is_replaced(v.xmax)) AND v.attrelid = ',
            array_to_string(conditions, ' AND '), (tube_private_with_columns(att)).seen_names), '%', '%%')
        || '%1$L::regclass) FROM (SELECT (NULL::%1$s).*) AS r';
    rest := format('%L::pg_catalog.regclass, %s, %L', tube_private_function(att, 'door'), tube_private_flag_sql(att.tube),
        format('%s(text,%s[])', put, tube_private_type_sql(tube_private_key_type(att.tube))));
    RETURN jsonb_build_object(
        'fits', format('%1$I.tube_private_fits(''%2$s''::pg_catalog.regclass, %3$s, %4$L)'
            ' AND (true OR %5$s(NULL, NULL) OR %6$L::pg_catalog.regclass IS NULL)',
            tube_private_schema(), att.tbl::oid, rest, query, put, tube_private_qualify('tube_seq')),
        -- Computed when a statement is run.
        'fits_elsewhere', format('%1$I.tube_private_fits(%1$I.tube_private_attached(TG_RELID, %2$L), %3$s,'
            ' CASE WHEN %1$I.tube_private_has_left(TG_RELID, %2$L) THEN ''SELECT false'' ELSE %4$L END)',
            tube_private_schema(), att.trigger_function, rest, query));
END
$_$;

CREATE FUNCTION tube.tube_private_has_left(rel oid, name text) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT EXISTS (SELECT FROM tube_attachment AS a WHERE a.trigger_function = name AND rel = ANY (a.members)
        AND (a.tbl IN (rel, pg_partition_root(rel))) IS NOT TRUE)
$$;

CREATE FUNCTION tube.tube_private_hold_parked(in_tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, in_seen pg_snapshot, only_new boolean, in_limit integer) RETURNS bigint[]
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    AS $$
    SELECT ARRAY(
        SELECT k.park_id
        FROM (
            SELECT q.park_id, q.parked_at, q.retried_at
            FROM tube_private_parked(in_tube, in_shard, in_key, in_error, in_before, in_seen) AS q
            WHERE NOT only_new OR q.retried_at IS NULL
            ORDER BY q.park_id LIMIT in_limit) AS p
        JOIN tube_parked AS k ON k.park_id = p.park_id
        WHERE k.retried_at IS NOT DISTINCT FROM p.retried_at AND k.parked_at = p.parked_at
        ORDER BY k.park_id FOR UPDATE OF k)
$$;

CREATE FUNCTION tube.tube_private_hold_pods(reg tube.tube_registry, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer, only_free boolean, OUT free tid[], OUT flying tid[], OUT first_flying bigint, OUT of_client text) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $_$
DECLARE
    locked tid[] := '{}';
    more tid[];
    condition text;
BEGIN
    FOR condition IN
        SELECT r.condition FROM tube_private_pod_ranges(reg, in_partition, in_from, in_to, in_shard, in_key) AS r
    LOOP
        EXECUTE format('SELECT array_agg(h.ctid) FROM (SELECT p.ctid FROM %s AS p WHERE %s AND p.ids <> ''{}''%s'
            ' ORDER BY p.seq LIMIT %s FOR UPDATE) AS h', tube_private_qualify(reg.tube), condition,
            CASE WHEN only_free THEN ' AND (p.leader_id IS NULL OR NOT tube_private_in_flight(p.leader_id, p.seq))' END,
            in_limit - cardinality(locked)) INTO more;
        locked := locked || coalesce(more, '{}');
        EXIT WHEN cardinality(locked) = in_limit;
    END LOOP;
    EXECUTE format($sql$
        SELECT coalesce(array_agg(p.ctid) FILTER (WHERE NOT f.flies), '{}'),
            coalesce(array_agg(p.ctid) FILTER (WHERE f.flies), '{}'),
            min(p.seq) FILTER (WHERE f.flies), min(l.client_id) FILTER (WHERE f.flies)
        FROM %s AS p
        CROSS JOIN LATERAL (
            SELECT p.leader_id IS NOT NULL AND tube_private_in_flight(p.leader_id, p.seq)) AS f (flies)
        LEFT JOIN tube_leader AS l ON l.leader_id = p.leader_id
        WHERE p.ctid = ANY ($1)$sql$, tube_private_qualify(reg.tube))
    USING locked INTO free, flying, first_flying, of_client;
END
$_$;

CREATE FUNCTION tube.tube_private_hold_term(tube text, partitions integer, partition integer, leader_id uuid) RETURNS bigint
    LANGUAGE plpgsql
    AS $_$
DECLARE
    held bigint;
BEGIN
    SELECT l.epoch INTO held FROM tube_leader AS l
    WHERE (l.tube, l.partitions, l.partition, l.leader_id) = ($1, $2, $3, $4)
    FOR KEY SHARE;
    IF NOT FOUND THEN
        PERFORM tube_private_check_partition(tube, partitions, partition);
        RAISE EXCEPTION 'the term % of partition % of tube % is over',
            coalesce(leader_id::text, 'NULL'), partition, quote_literal(tube)
            USING ERRCODE = 'TU001', HINT = 'Another leader acquired the partition, or it was released. '
                'Do nothing more under this term; a new one may be acquired.';
    END IF;
    RETURN held;
END
$_$;

CREATE FUNCTION tube.tube_private_holders(tube text) RETURNS TABLE(holder text, xid xid8)
    LANGUAGE plpgsql
    AS $$
DECLARE
    near CONSTANT bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
BEGIN
    IF tube IS NOT NULL THEN
        PERFORM tube_private_require(tube, 'any');
    END IF;
    RETURN QUERY
        WITH locks AS MATERIALIZED (SELECT k.* FROM pg_locks AS k WHERE k.granted)
        SELECT k.virtualtransaction, (near + min(
            (x.transactionid::text::bigint - near + 2147483648 & 4294967295) - 2147483648))::text::xid8
        FROM locks AS k
        LEFT JOIN locks AS x ON x.virtualtransaction = k.virtualtransaction AND x.locktype = 'transactionid'
            AND x.mode = 'ExclusiveLock' -- who waits for its end asks for another one
        WHERE k.locktype = 'relation'
          AND k.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
          AND k.relation IN (
              SELECT to_regclass(quote_ident(r.tube)) FROM tube_registry AS r
              WHERE tube_private_holders.tube IS NULL OR r.tube = tube_private_holders.tube)
          AND k.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
          AND k.pid IS DISTINCT FROM pg_backend_pid()
        GROUP BY k.virtualtransaction;
END
$$;

CREATE FUNCTION tube.tube_private_holds_backfill(backfill_id bigint) RETURNS boolean
    LANGUAGE sql
    AS $$
    SELECT EXISTS (SELECT FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid = pg_backend_pid()
            AND l.classid::bigint << 32 | l.objid::bigint = tube_private_backfill_key(backfill_id)
            AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
$$;

CREATE FUNCTION tube.tube_private_id_sql(att tube.tube_attachment, row_name text DEFAULT NULL::text) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT CASE WHEN att.key_cols IS NULL
        THEN (
            SELECT format(CASE t.key_type WHEN 'text'::regtype THEN '(%I.tube_private_key_%s(%s) COLLATE pg_catalog."C")'
                ELSE '%I.tube_private_key_%s(%s)' END, tube_private_schema(), t.key_type, concat(row_name || '.', quote_ident(att.id_col)))
            FROM tube_private_key_type(att.tube) AS t (key_type))
        ELSE (
            SELECT format('(CASE WHEN %s THEN pg_catalog.json_build_array(%s)::pg_catalog.text END COLLATE pg_catalog."C")',
                string_agg(v.value || ' IS NOT NULL', ' AND ' ORDER BY k.place),
                string_agg(CASE k.type WHEN 'enum' THEN format('pg_catalog.concat(%s)', v.value)
                    ELSE format('%I.tube_private_key_%s(%s)', tube_private_schema(), coalesce(k.type, 'text'), v.value) END,
                    ', ' ORDER BY k.place))
            FROM unnest(att.key_cols, tube_key_types(att.tbl, att.key_cols)) WITH ORDINALITY AS k (name, type, place),
                concat(row_name || '.', quote_ident(k.name)) AS v (value)) END
$$;

CREATE FUNCTION tube.tube_private_in_flight(leader_id uuid, seq bigint) RETURNS boolean
    LANGUAGE sql STABLE
    AS $_$
    SELECT EXISTS (SELECT FROM tube_leader AS l WHERE l.leader_id = $1)
        AND (NOT EXISTS (
                SELECT FROM tube_halted AS h JOIN tube_leader AS l ON l.leader_id = h.leader_id
                CROSS JOIN LATERAL tube_private_pause_of(l.tube, l.partitions, l.partition) AS p
                WHERE h.leader_id = $1)
            OR EXISTS (SELECT FROM tube_step AS s WHERE s.leader_id = $1 AND s.seq = $2 AND s.ended_at IS NULL))
$_$;

CREATE FUNCTION tube.tube_private_index(queue text, partitions integer, OUT name text, OUT ddl text) RETURNS record
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    box CONSTANT tube_outbox := (SELECT o FROM tube_outbox AS o WHERE o.outbox = queue);
BEGIN
    IF box.outbox IS NULL THEN
        name := tube_private_name(queue, format('_%s_p%s_idx', left(md5('queue ' || queue), 8), partitions));
        ddl := format('CREATE INDEX %I ON %s ((shard %% %s), (CASE WHEN op = ''B'' THEN 1 ELSE 0 END), seq)',
            name, tube_private_qualify(queue), partitions);
    ELSIF partitions > 1 THEN
        name := tube_private_name(queue, format('_%s_p%s_idx', left(md5('outbox ' || queue), 8), partitions));
        ddl := format('CREATE INDEX %I ON %s (((%s) OPERATOR(pg_catalog.%%) %s), id)',
            name, tube_private_outbox_table(box), tube_private_outbox_slot(box.adopted), partitions);
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_index_of(tube text, partitions integer) RETURNS regclass
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    RETURN (SELECT i.indexrelid FROM pg_index AS i
        WHERE i.indisvalid AND i.indexrelid = to_regclass(quote_ident(
            format('%s_%s_p%s_idx', tube, left(md5('queue ' || tube), 8), partitions))));
END
$$;

CREATE FUNCTION tube.tube_private_indexes(queue text) RETURNS TABLE(name text, partitions integer, valid boolean)
    LANGUAGE sql STABLE
    AS $_$
    SELECT format('%s.%I', c.relnamespace::regnamespace, c.relname), substring(c.relname FROM '_p([0-9]+)_idx$')::integer,
        i.indisvalid
    FROM (
        SELECT to_regclass(quote_ident(queue)) AS tbl, 'queue ' AS kind
        WHERE NOT EXISTS (SELECT FROM tube_outbox AS o WHERE o.outbox = queue)
        UNION ALL SELECT o.tbl, 'outbox ' FROM tube_outbox AS o WHERE o.outbox = queue
    ) AS q
    JOIN pg_index AS i ON i.indrelid = q.tbl JOIN pg_class AS c ON c.oid = i.indexrelid
    WHERE c.relname ~ ('_' || left(md5(q.kind || queue), 8) || '_p[0-9]+_idx$')
$_$;

CREATE FUNCTION tube.tube_private_inserting_attachment(backfill tube.tube_backfill) RETURNS tube.tube_attachment
    LANGUAGE plpgsql
    AS $$
DECLARE
    fault text;
BEGIN
    IF backfill.state <> 'inserting' THEN
        RAISE EXCEPTION USING ERRCODE = 'TU124',
            MESSAGE = format('backfill %s of %s is %s', backfill.backfill_id, backfill.table_name, backfill.state),
            HINT = 'Begin a new one.';
    END IF;
    fault := tube_private_backfill_fault(backfill);
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108',
            MESSAGE = format('backfill %s of %s can''t continue: %s', backfill.backfill_id, backfill.table_name, fault),
            HINT = 'Cancel the backfill, and begin a new one.';
    END IF;
    RETURN tube_private_attachment(backfill.tube, backfill.tbl);
END
$$;

CREATE FUNCTION tube.tube_private_is_fresh(rel oid) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT pg_relation_size(c.oid) = 0 AND c.relfilenode = c.oid AND c.reltuples = -1 FROM pg_class AS c WHERE c.oid = rel
$$;

CREATE FUNCTION tube.tube_private_is_replaced(xmax xid) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT xmax <> '0'::xid AND CASE WHEN x.id >= pg_snapshot_xmax(pg_current_snapshot()) THEN true
        ELSE coalesce(pg_xact_status(x.id), 'aborted') <> 'aborted' END
    FROM tube_private_full_xid(xmax) AS x (id)
$$;

CREATE FUNCTION tube.tube_private_is_root(att tube.tube_attachment) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT NOT EXISTS (
        SELECT FROM tube_attachment AS a
        WHERE a.tube = att.tube AND a.shard = att.shard AND a.tbl <> att.tbl
            AND (att.position IS NULL OR a.position < att.position))
$$;

CREATE FUNCTION tube.tube_private_is_swept(att tube.tube_attachment) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT r.companion_of IS NULL AND tube_private_is_root(att) FROM tube_registry AS r WHERE r.tube = att.tube
$$;

CREATE FUNCTION tube.tube_private_keeps_plans(tube text, partitions integer) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    index CONSTANT regclass := tube_private_index_of(tube, partitions);
BEGIN
    RETURN index IS NOT NULL AND NOT EXISTS (SELECT FROM pg_index AS i
        WHERE i.indrelid = to_regclass(quote_ident(tube)) AND i.indexrelid <> index AND i.indnatts = 3);
END
$$;

CREATE FUNCTION tube.tube_private_kept_key(reg tube.tube_registry, in_key text) RETURNS text
    LANGUAGE plpgsql
    AS $$
DECLARE
    kept text;
BEGIN
    EXECUTE format('SELECT %L::%s::text', in_key, reg.key_type) INTO kept;
    RETURN kept;
END
$$;

CREATE FUNCTION tube.tube_private_key(tbl regclass, wanted name, key_type regtype) RETURNS name
    LANGUAGE plpgsql
    AS $$
DECLARE
    col record;
BEGIN
    SELECT a.attname, a.atttypid, a.attgenerated INTO col
    FROM pg_attribute AS a
    WHERE a.attrelid = tbl AND NOT a.attisdropped AND a.attnum > 0 AND (a.attname = coalesce(wanted, 'id') OR wanted IS NULL
        AND EXISTS (SELECT FROM pg_index AS i
            WHERE i.indrelid = tbl AND i.indisprimary AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum))
    ORDER BY a.attname <> 'id' LIMIT 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104',
            MESSAGE = format('%s has no column %s', tbl,
                coalesce(quote_ident(wanted), 'id and no primary key of a single column')),
            HINT = coalesce((
                SELECT format('Name all columns of its primary key, in a tube of text: key_cols => %L. Or name a unique column: id_col => COLUMN.',
                    array_agg(a.attname ORDER BY k.place))
                FROM pg_index AS i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
                JOIN pg_attribute AS a ON a.attrelid = tbl AND a.attnum = k.attnum
                WHERE i.indrelid = tbl AND i.indisprimary AND wanted IS NULL AND k.place <= i.indnkeyatts HAVING count(*) > 1),
                'Add a column with a primary key, or name a unique column: id_col => COLUMN.');
    ELSIF NOT tube_private_key_fits(col.atttypid, key_type) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104',
            MESSAGE = format('the key %I of %s has the type %s, and the tube''s keys are %s',
                col.attname, tbl, col.atttypid::regtype, key_type),
            HINT = 'Columns for keys: smallint, integer, bigint in a tube of bigint; uuid in one of uuid; '
                'text, varchar in one of text; domains over these. To make a tube of another type: tube_ensure_exists, key_type => TYPE.';
    ELSIF col.attgenerated = 'v' THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104',
            MESSAGE = format('the key %I of %s is a virtual generated column, and has no value when a row is written',
                col.attname, tbl),
            HINT = 'Make it STORED, or attach by the column that it is computed from.';
    END IF;
    RETURN col.attname;
END
$$;

CREATE FUNCTION tube.tube_private_key_attnums(att tube.tube_attachment) RETURNS smallint[]
    LANGUAGE sql STABLE
    AS $$
    SELECT array_agg(a.attnum ORDER BY k.place)
    FROM tube_private_attachment_now(att) AS now,
        unnest(tube_private_key_names(CASE WHEN now.tube IS NULL THEN att ELSE now END)) WITH ORDINALITY AS k (name, place)
    JOIN pg_attribute AS a ON a.attrelid = att.tbl AND a.attname = k.name
$$;

CREATE FUNCTION tube.tube_private_key_bigint(value anyelement) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT NULL::pg_catalog.int8$$;

CREATE FUNCTION tube.tube_private_key_bigint(value smallint) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (value)::bigint;

CREATE FUNCTION tube.tube_private_key_bigint(value integer) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (value)::bigint;

CREATE FUNCTION tube.tube_private_key_bigint(value bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN value;

CREATE FUNCTION tube.tube_private_key_boolean(value anyelement) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT NULL::pg_catalog.bool$$;

CREATE FUNCTION tube.tube_private_key_boolean(value boolean) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN value;

CREATE FUNCTION tube.tube_private_key_date(value anyelement) RETURNS date
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT NULL::pg_catalog.date$$;

CREATE FUNCTION tube.tube_private_key_date(value date) RETURNS date
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN value;

CREATE FUNCTION tube.tube_private_key_fits(column_type oid, key_type regtype) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$ SELECT tube_private_base_type(column_type) = ANY (tube_private_key_types(key_type)) $$;

CREATE FUNCTION tube.tube_private_key_is_unique(att tube.tube_attachment) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT EXISTS (
        SELECT FROM pg_index AS i
        WHERE i.indrelid = att.tbl AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL
            AND (SELECT bool_and(coalesce(a.attname = ANY (tube_private_key_names(att)), false))
                FROM unnest(i.indkey[:i.indnkeyatts - 1]) AS k (attnum)
                LEFT JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND a.attnum > 0))
$$;

CREATE FUNCTION tube.tube_private_key_label(att tube.tube_attachment) RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT CASE WHEN att.key_cols IS NULL THEN quote_ident(att.id_col)
        ELSE format('(%s)', (SELECT string_agg(quote_ident(k), ', ') FROM unnest(att.key_cols) AS k)) END
$$;

CREATE FUNCTION tube.tube_private_key_names(att tube.tube_attachment) RETURNS name[]
    LANGUAGE sql IMMUTABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$ SELECT coalesce(att.key_cols, ARRAY[att.id_col]) $$;

CREATE FUNCTION tube.tube_private_key_text(value anyelement) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT NULL::pg_catalog.text$$;

CREATE FUNCTION tube.tube_private_key_text(value text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN value;

CREATE FUNCTION tube.tube_private_key_text(value character varying) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (value)::text;

CREATE FUNCTION tube.tube_private_key_texts(att tube.tube_attachment) RETURNS text[]
    LANGUAGE sql STABLE
    AS $$
    SELECT CASE WHEN att.key_cols IS NULL THEN ARRAY[tube_private_key_type(att.tube)::text]
        ELSE array_replace(tube_key_types(att.tbl, att.key_cols), 'enum', 'text') END
$$;

CREATE FUNCTION tube.tube_private_key_type(tube text) RETURNS regtype
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$ SELECT r.key_type FROM tube_registry AS r WHERE r.tube = $1 $_$;

CREATE FUNCTION tube.tube_private_key_types(key_type regtype) RETURNS oid[]
    LANGUAGE sql STABLE
    AS $$
    SELECT CASE key_type WHEN 'bigint'::regtype THEN '{smallint,integer,bigint}'
        WHEN 'text'::regtype THEN '{text,varchar}' ELSE ARRAY[key_type] END::regtype[]::oid[]
$$;

CREATE FUNCTION tube.tube_private_key_uuid(value anyelement) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT NULL::pg_catalog.uuid$$;

CREATE FUNCTION tube.tube_private_key_uuid(value uuid) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN value;

CREATE FUNCTION tube.tube_private_least_seq(tube text, partitions integer, partition integer) RETURNS bigint
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    AS $$
DECLARE
    found bigint;
BEGIN
    EXECUTE (
        SELECT 'SELECT least(' || string_agg(format(
            '(SELECT p.seq FROM %s AS p WHERE %s AND (CASE WHEN p.op = ''B'' THEN 1 ELSE 0 END) = %s ORDER BY p.seq LIMIT 1)',
            tube_private_qualify(tube), s.slice, c.class), ', ') || ')'
        FROM unnest((tube_private_slices(tube, partitions, partition)).slices) AS s (slice), generate_series(0, 1) AS c (class)
    ) INTO found;
    RETURN found;
END
$$;

CREATE FUNCTION tube.tube_private_lock_backfill(backfill_id bigint, held boolean DEFAULT false) RETURNS tube.tube_backfill
    LANGUAGE plpgsql
    AS $_$
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
$_$;

CREATE FUNCTION tube.tube_private_lock_job(job_id text, alone boolean, of_backfill boolean DEFAULT false) RETURNS tube.tube_job
    LANGUAGE plpgsql
    AS $_$
DECLARE
    job tube_job;
BEGIN
    IF alone THEN
        SELECT j.* INTO job FROM tube_job AS j WHERE j.job_id = $1 FOR UPDATE;
    ELSE
        SELECT j.* INTO job FROM tube_job AS j WHERE j.job_id = $1 FOR SHARE;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU131',
            MESSAGE = format('there is no job %s', coalesce(quote_literal(job_id), 'NULL')),
            HINT = 'tube_job_list() shows all of them; tube_job_begin() begins one.';
    ELSIF NOT of_backfill THEN
        PERFORM tube_private_refuse_job(job);
        IF job.backfill_id IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'TU130',
                MESSAGE = format('the job %L is that of a backfill', job.job_id),
                HINT = 'tube_backfill_range and tube_backfill_join write it.';
        END IF;
    END IF;
    RETURN job;
END
$_$;

CREATE FUNCTION tube.tube_private_lock_parked(outbox text, partitions integer, partition integer, leader_id uuid, OUT tbl text, OUT key text, OUT slot text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    box tube_outbox;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION USING ERRCODE = 'active_sql_transaction',
            MESSAGE = format('parked records of outbox %L are changed at READ COMMITTED only', outbox),
            HINT = 'An older snapshot would not show which keys are held. SET TRANSACTION ISOLATION LEVEL READ COMMITTED.';
    END IF;
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_private_lock_parked.outbox FOR KEY SHARE;
    IF leader_id IS NOT NULL THEN
        PERFORM tube_private_hold_term(outbox, partitions, partition, leader_id);
    END IF;
    box := tube_private_require_outbox(outbox);
    tbl := tube_private_outbox_table(box);
    key := tube_private_outbox_key(box.adopted);
    slot := tube_private_outbox_slot(box.adopted);
    PERFORM pg_advisory_xact_lock(tube_private_parked_lock(outbox));
END
$$;

CREATE FUNCTION tube.tube_private_lock_touch(tbl regclass) RETURNS void
    LANGUAGE sql
    AS $$ SELECT pg_advisory_xact_lock(hashtextextended(tube_private_schema() || ' touch', tbl::oid::bigint)) $$;

CREATE FUNCTION tube.tube_private_make(tube text) RETURNS void
    LANGUAGE plpgsql
    AS $_$
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
    -- For COPY, within a job. What names and orders a pod stays its default.
    EXECUTE format('GRANT INSERT (op, shard, ids, payload) ON %s TO %I, %I', queue, tube_private_role('writer'),
        tube_private_role('admin'));
    EXECUTE (tube_private_index(tube, reg.partitions)).ddl;
    -- Few pods are control pods; they have to be found among many.
    EXECUTE format('CREATE INDEX %I ON %s (shard) WHERE payload IS NOT NULL AND ids = ''{}''',
        tube_private_name(tube, format('_%s_control_idx', left(md5('queue ' || tube), 8))), queue);
    PERFORM tube_private_free_partitions(tube);
END
$_$;

CREATE FUNCTION tube.tube_private_make_flag(reg tube.tube_registry) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    flag CONSTANT text := tube_private_qualify('tube_sleeps_' || reg.number);
BEGIN
    IF to_regclass(flag) IS NULL THEN
        EXECUTE format('CREATE SEQUENCE %s', flag);
        PERFORM setval(flag::regclass, CASE WHEN EXISTS (SELECT FROM tube_sleeper AS s WHERE s.tube = reg.tube)
            THEN 2 ELSE 1 END);
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_make_outbox(outbox text, value_type regtype) RETURNS void
    LANGUAGE plpgsql
    AS $_$
DECLARE
    queue CONSTANT text := tube_private_qualify(outbox);
BEGIN
    EXECUTE format($ddl$
        CREATE TABLE %s (
            id bigint PRIMARY KEY DEFAULT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('tube_seq') END,
            create_time timestamptz NOT NULL DEFAULT clock_timestamp(),
            kafka_topic varchar(249) NOT NULL,
            kafka_key text,
            kafka_value %s,
            kafka_header_keys text[] NOT NULL DEFAULT '{}',
            kafka_header_values text[] NOT NULL DEFAULT '{}',
            leader_id uuid,
            partition_key text
        ) WITH (
            fillfactor = 45,
            autovacuum_vacuum_scale_factor = 0.05,
            autovacuum_vacuum_threshold = 5000,
            autovacuum_vacuum_insert_scale_factor = 0.1,
            autovacuum_vacuum_cost_delay = 0,
            autovacuum_analyze_scale_factor = 0.1,
            autovacuum_analyze_threshold = 5000
        )$ddl$, queue, value_type);
    INSERT INTO tube_outbox (outbox, tbl, value_type, adopted) VALUES (outbox, queue::regclass, value_type, false);
    PERFORM tube_private_fit_index(outbox), tube_private_provide_outbox(outbox);
END
$_$;

CREATE FUNCTION tube.tube_private_make_touch(name text, types text, arguments text, body text, callers regrole[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    statement text;
BEGIN
    -- Default privileges may give a new function to others: so it looks again once it is there.
    FOR look IN 1..2 LOOP
        FOR statement IN SELECT tube_private_function_ddl(
            name, types, arguments, 'void', true, body, quote_ident(current_user)::regrole, array_remove(callers, NULL))
        LOOP
            EXECUTE statement;
        END LOOP;
        EXIT WHEN NOT FOUND;
    END LOOP;
END
$$;

CREATE FUNCTION tube.tube_private_mark_sql(tube text, partitions integer, partition integer) RETURNS text
    LANGUAGE plpgsql
    AS $_$
DECLARE
    ids CONSTANT text := 'CASE WHEN array_ndims(pod.ids) > 1'
        ' THEN ARRAY(SELECT k.id FROM unnest(pod.ids) AS k (id) WHERE k.id IS NOT NULL)'
        ' ELSE array_remove(pod.ids, NULL) END';
    queue CONSTANT text := tube_private_qualify(tube);
    slices CONSTANT record := tube_private_slices(tube, partitions, partition);
    merged CONSTANT boolean := cardinality(slices.slices) > 1;
    seqs text[];
    mark text;
BEGIN
    seqs := ARRAY(
        SELECT format($seqs$
              SELECT p.seq FROM %s AS p
              WHERE %s
                AND (CASE WHEN p.op = 'B' THEN 1 ELSE 0 END) = $4
                AND p.seq > $2
                AND p.leader_id IS DISTINCT FROM $1
              ORDER BY p.seq$seqs$, queue, slice)
        FROM unnest(slices.slices) AS slice);
    mark := format($mark$
        UPDATE %1$s AS pod SET leader_id = $1
        WHERE %2$s
          AND (CASE WHEN pod.op = 'B' THEN 1 ELSE 0 END) = $4
          AND pod.seq > $2
          AND pod.seq <= coalesce((%3$s
              LIMIT 1 OFFSET $3 - 1), 9223372036854775807)
          AND pod.leader_id IS DISTINCT FROM $1
        RETURNING pod.seq, pod.op::text, pod.shard::integer, %4$s, pod.payload, pod.ts
        $mark$, queue, slices.pods,
        CASE WHEN merged
            THEN format('SELECT m.seq FROM ((%s)) AS m ORDER BY m.seq', array_to_string(seqs, ') UNION ALL ('))
            ELSE seqs[1] END,
        CASE WHEN tube_private_key_type(tube) = 'bigint'::regtype THEN ids || ', NULL::text[]'
            ELSE format('NULL::bigint[], (%s)::text[]', ids) END);
    RETURN CASE WHEN partition IS NOT NULL THEN format('WITH marked AS (%s) SELECT * FROM marked ORDER BY seq', mark) ELSE mark END;
END
$_$;

CREATE FUNCTION tube.tube_private_masked(text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $_$
    SELECT left(regexp_replace(regexp_replace(regexp_replace($1, '[[:cntrl:]]', ' ', 'g'),
        '://[^/[:space:]]*@', '://********@', 'g'),
        '((?:password|passwd|secret|token|api[_-]?key)["'']?[[:space:]]*[=:][[:space:]]*)[^[:space:],;&]+', E'\\1********', 'gi'), 500)
$_$;

CREATE FUNCTION tube.tube_private_may_notify() RETURNS boolean
    LANGUAGE sql
    AS $$ SELECT pg_notification_queue_usage() < 0.5 $$;

CREATE FUNCTION tube.tube_private_may_read(rel oid) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT has_table_privilege(rel, 'SELECT') AND NOT row_security_active(rel)
        AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = rel AND c.relowner = quote_ident(current_user)::regrole
            AND (NOT tube_private_is_replaced(c.xmax) OR EXISTS (
                SELECT FROM pg_shdepend AS d
                WHERE d.dbid = (SELECT b.oid FROM pg_database AS b WHERE b.datname = current_database())
                    AND d.classid = 'pg_class'::regclass AND d.objid = rel AND d.objsubid = 0 AND d.deptype = 'o'
                    AND NOT tube_private_is_replaced(d.xmax))))
$$;

CREATE FUNCTION tube.tube_private_member_oids(tbl regclass) RETURNS oid[]
    LANGUAGE sql STABLE
    AS $$ SELECT array_agg(m.rel::oid ORDER BY m.rel::oid) FROM tube_private_members(tbl) AS m $$;

CREATE FUNCTION tube.tube_private_members(tbl regclass) RETURNS TABLE(rel regclass, kind "char")
    LANGUAGE sql STABLE
    AS $$
    WITH RECURSIVE tree AS (
        SELECT c.oid, c.relkind FROM pg_class AS c WHERE c.oid = tbl
        UNION ALL
        SELECT i.inhrelid, c.relkind
        FROM tree AS t JOIN pg_inherits AS i ON i.inhparent = t.oid AND NOT i.inhdetachpending JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE t.relkind = 'p'
    )
    SELECT t.oid::regclass, t.relkind FROM tree AS t
$$;

CREATE FUNCTION tube.tube_private_misfit_digest(tube text, tbl regclass) RETURNS text
    LANGUAGE sql STABLE
    AS $_$
    SELECT md5(concat(r.predicate, tbl::oid, (
        SELECT array_agg(concat(a.attname, ' ', a.atttypid) ORDER BY a.attnum) FROM pg_attribute AS a
        WHERE a.attrelid = tbl AND a.attnum > 0)))
    FROM tube_registry AS r WHERE r.tube = $1 AND r.predicate IS NOT NULL
$_$;

CREATE FUNCTION tube.tube_private_name(stem text, ending text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT
    AS $$
DECLARE
    short text := stem;
BEGIN
    IF octet_length(stem) + octet_length(ending) <= 63 THEN
        RETURN stem || ending;
    END IF;
    -- Characters may have several bytes, and none may be cut in two.
    WHILE octet_length(short) + 9 + octet_length(ending) > 63 LOOP
        short := left(short, -1);
    END LOOP;
    RETURN short || '_' || left(md5(stem || ending), 8) || ending;
END
$$;

CREATE FUNCTION tube.tube_private_next_index(reg tube.tube_registry, partitions integer) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $_$
DECLARE
    ddl CONSTANT text := (tube_private_index(reg.tube, partitions)).ddl;
    present record;
BEGIN
    SELECT i.name, i.valid INTO present FROM tube_private_indexes(reg.tube) AS i WHERE i.partitions = $2;
    RETURN CASE
        WHEN present.name IS NULL AND ddl IS NOT NULL THEN 'CREATE INDEX CONCURRENTLY' || substr(ddl, 13)
        WHEN NOT present.valid THEN format('REINDEX INDEX CONCURRENTLY %s', present.name)
        WHEN partitions = reg.partitions THEN (
            SELECT format('DROP INDEX CONCURRENTLY IF EXISTS %s', i.name) FROM tube_private_indexes(reg.tube) AS i
            WHERE i.partitions <> reg.partitions ORDER BY i.partitions LIMIT 1)
    END;
END
$_$;

CREATE FUNCTION tube.tube_private_one_id_body(att tube.tube_attachment, is_partitioned boolean) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $_$
DECLARE
    image CONSTANT text := 'ROW(' || (SELECT string_agg(format('r.%I', c), ', ') FROM unnest(att.columns) AS c) || ')';
BEGIN
    RETURN tube_private_fill($body$
    IF <is_statement>pg_catalog.pg_current_xact_id_if_assigned() IS NOT NULL AND TG_RELID OPERATOR(pg_catalog.=) <oid>::pg_catalog.oid AND <fits> THEN
        IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN
            INSERT INTO <door> (op, shard, ids)
            SELECT <op_u>, <shard>, a.n
            FROM (SELECT <two_old> AS o, <two_new> AS n<images> OFFSET 0) AS a
            WHERE a.o OPERATOR(pg_catalog.=) a.n AND pg_catalog.cardinality(a.n) OPERATOR(pg_catalog.=) 1<differ><same_keys_too>;
            IF FOUND THEN
                IF <is_asleep> THEN
                    PERFORM <put>('W', <two_new>);
                END IF;
                RETURN NULL;
            END IF;
        ELSIF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
            cap_new := <two_new>;
            IF cap_new OPERATOR(pg_catalog.=) '{}' THEN
                RETURN NULL; -- an upsert that updates fires both triggers: so that this is to be cheap
            ELSIF pg_catalog.cardinality(cap_new) OPERATOR(pg_catalog.=) 1 THEN
                INSERT INTO <door> (op, shard, ids) VALUES (<op_i>, <shard_of_new>, cap_new);
                IF <is_asleep> THEN
                    PERFORM <put>('W', cap_new);
                END IF;
                RETURN NULL;
            END IF;
        ELSIF TG_OP OPERATOR(pg_catalog.=) 'DELETE' THEN
            INSERT INTO <door> (op, shard, ids)
            SELECT <op_d>, <shard>, a.n FROM (SELECT <two_old> AS n OFFSET 0) AS a WHERE pg_catalog.cardinality(a.n) OPERATOR(pg_catalog.=) 1;
            IF FOUND THEN
                IF <is_asleep> THEN
                    PERFORM <put>('W', <two_old>);
                END IF;
                RETURN NULL;
            END IF;
        END IF;
    END IF;$body$, jsonb_build_object(
        'is_statement', CASE WHEN att.replica THEN 'TG_LEVEL OPERATOR(pg_catalog.=) ''STATEMENT'' AND ' ELSE '' END,
        'two_old', 'ARRAY(SELECT <id> FROM old_table AS r WHERE <passes> LIMIT 2)',
        'two_new', 'ARRAY(SELECT <id> FROM new_table AS r WHERE <passes> LIMIT 2)',
        'op_u', tube_private_op_sql('''U'''),
        'op_i', tube_private_op_sql('''I'''),
        'op_d', tube_private_op_sql('''D'''),
        -- After the INSERT: a worker that falls asleep after this look reads a seq that is at least as high.
        'is_asleep', 'pg_catalog.pg_sequence_last_value(<flag>) OPERATOR(pg_catalog.>) 1',
        'shard_of_new', tube_private_shard_expression('cap_new[1]', att),
        'images', CASE WHEN image IS NULL THEN '' ELSE ', (SELECT <image> FROM old_table AS r WHERE <passes> LIMIT 1) AS old_image,'
            ' (SELECT <image> FROM new_table AS r WHERE <passes> LIMIT 1) AS new_image' END,
        'differ', CASE WHEN image IS NULL THEN '' ELSE ' AND a.old_image OPERATOR(pg_catalog.*<>) a.new_image' END,
        'same_keys_too', CASE WHEN is_partitioned AND att.row_filter IS NOT NULL THEN E'\n            AND <same_keys>' ELSE '' END));
END
$_$;

CREATE FUNCTION tube.tube_private_op_of_sides() RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT 'CASE WHEN pg_catalog.bit_or(x.side) OPERATOR(pg_catalog.=) 1 THEN ''D'''
        ' WHEN pg_catalog.bit_or(x.side) OPERATOR(pg_catalog.=) 2 THEN ''I'' ELSE ''U'' END'
$$;

CREATE FUNCTION tube.tube_private_op_sql(op text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT 'CASE WHEN pg_catalog.current_setting(''application_name'') OPERATOR(pg_catalog.~~) ''%backfill%'' THEN ''B'' ELSE '
        || op || ' END'
$$;

CREATE FUNCTION tube.tube_private_open_capture(tbl regclass) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    PERFORM tube_private_drop_strangers(a.tube, a.tbl)
    FROM tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl JOIN pg_proc AS p ON p.oid = a.captured_by
    WHERE p.proowner <> c.relowner;
    PERFORM pg_advisory_xact_lock(hashtextextended('pytube grant ' || tube_private_schema(), 0));
    EXECUTE format('GRANT CREATE ON SCHEMA %I TO %s', tube_private_capture_schema(), tube_private_owner_of(tbl));
END
$$;

CREATE FUNCTION tube.tube_private_open_schema(schema regnamespace, worker name) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    statement CONSTANT text := format('GRANT USAGE ON SCHEMA %s TO %I', schema, worker);
BEGIN
    IF has_schema_privilege(worker, schema::oid, 'USAGE') THEN
        RETURN;
    END IF;
    BEGIN
        EXECUTE statement;
    EXCEPTION WHEN insufficient_privilege THEN
        -- Missing rights are reported below.
    END;
    IF NOT has_schema_privilege(worker, schema::oid, 'USAGE') THEN
        RAISE WARNING USING MESSAGE = format('%I may not look into the schema %s yet', worker, schema),
            HINT = format('The owner of the schema has to run: %s;', statement);
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_order_column(tbl regclass, order_col text) RETURNS name
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION tube.tube_private_our_ddl(att tube.tube_attachment) RETURNS SETOF text
    LANGUAGE plpgsql STABLE
    SET quote_all_identifiers TO 'off'
    AS $$
DECLARE
    owner CONSTANT regrole := tube_private_owner_of(att.tbl);
    key_type CONSTANT regtype := tube_private_key_type(att.tube);
    door CONSTANT text := tube_private_function(att, 'door');
    view CONSTANT pg_class := (SELECT c FROM pg_class AS c WHERE c.oid = to_regclass(door));
    flag CONSTANT text := (SELECT tube_private_qualify('tube_sleeps_' || r.number) FROM tube_registry AS r WHERE r.tube = att.tube);
BEGIN
    IF view.oid IS NULL THEN
        RETURN NEXT format('CREATE VIEW %s AS SELECT op, shard, ids FROM %s WHERE cardinality(ids) = 1 AND shard = %s WITH CHECK OPTION',
            door, tube_private_qualify(att.tube),
            -- So ids[1] is not NULL, and the only one.
            CASE att.shards WHEN 1 THEN format('CASE WHEN ids[1] IS NOT NULL THEN %s END', att.shard)
                ELSE tube_private_shard_expression('ids[1]', att) END);
    END IF;
    RETURN QUERY SELECT d FROM tube_private_function_ddl(tube_private_function(att, 'put'), format('text, %s[]', key_type),
        format('op text, ids %s[]', key_type), 'boolean', false, tube_private_put_body(att),
        quote_ident(current_user)::regrole, ARRAY[owner]) AS d;
    RETURN QUERY SELECT DISTINCT format('REVOKE %s ON %s FROM %s CASCADE',
        CASE a.grantee WHEN owner::oid THEN a.privilege_type ELSE 'ALL' END, door, tube_private_role_sql(a.grantee))
    FROM aclexplode(view.relacl) AS a
    WHERE a.grantee <> view.relowner AND (a.grantee, a.privilege_type) <> (owner::oid, 'INSERT');
    RETURN QUERY SELECT format('GRANT %s ON %s TO %s', g.privilege, g.object, owner)
    FROM (VALUES
        ('INSERT', door, view.relacl),
        ('USAGE', 'SEQUENCE ' || tube_private_qualify('tube_seq'), (SELECT c.relacl FROM pg_class AS c WHERE c.oid = 'tube_seq'::regclass)),
        ('SELECT', 'SEQUENCE ' || flag, (SELECT c.relacl FROM pg_class AS c WHERE c.oid = flag::regclass))
    ) AS g (privilege, object, acl)
    WHERE NOT EXISTS (SELECT FROM aclexplode(g.acl) AS a WHERE a.grantee = owner AND a.privilege_type = g.privilege)
    -- All roles have these, unless they were revoked; then this owner's table is written to as before.
    UNION ALL
    SELECT format('GRANT USAGE ON SCHEMA %I TO %s', n.nspname, owner) FROM pg_namespace AS n
    WHERE n.nspname IN (tube_private_schema(), tube_private_capture_schema())
        AND NOT EXISTS (SELECT FROM aclexplode(n.nspacl) AS a WHERE a.grantee = owner AND a.privilege_type = 'USAGE');
END
$$;

CREATE FUNCTION tube.tube_private_outbox_fence(outbox text, partitions integer, partition integer, leader_id uuid) RETURNS tube.tube_outbox
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM tube_private_hold_term(outbox, partitions, partition, leader_id);
    RETURN tube_private_require_outbox(outbox);
END
$$;

CREATE FUNCTION tube.tube_private_outbox_figures(records text, outbox text, OUT count text, OUT min_id bigint, OUT max_id bigint, OUT min_create_time timestamp with time zone) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    counted integer;
    tbl regclass;
    cuts bigint[];
    sample text;
    estimate bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM (SELECT FROM %s ORDER BY r.id LIMIT 1000) AS n', records) INTO counted USING outbox;
    EXECUTE format('SELECT r.id, CASE WHEN isfinite(r.create_time) THEN r.create_time END FROM %s ORDER BY r.id LIMIT 1', records) INTO min_id, min_create_time USING outbox;
    EXECUTE format('SELECT r.id FROM %s ORDER BY r.id DESC LIMIT 1', records) INTO max_id USING outbox;
    count := counted::text;
    IF counted = 1000 THEN
        EXECUTE format('SELECT array_agg((e.ctid::text::point)[0]::bigint + e.behind) FROM ('
            '(SELECT r.ctid, 0 AS behind FROM %1$s ORDER BY r.id LIMIT 1)'
            ' UNION ALL (SELECT r.ctid, 1 FROM %1$s ORDER BY r.id DESC LIMIT 1)) AS e', records) INTO cuts USING outbox;
        SELECT l.tbl INTO tbl FROM outbox_list() AS l WHERE l.outbox = tube_private_outbox_figures.outbox;
        SELECT string_agg(format('SELECT %s::float8 AS weight FROM %s AND r.ctid >= ''(%s,0)'' AND r.ctid < ''(%s,0)''',
            p.weight, records, p.low, p.high), ' UNION ALL ') INTO sample
        FROM tube_private_page_runs(tbl, cuts) AS p;
        IF sample IS NOT NULL THEN -- there are pages
            EXECUTE format('SELECT round(sum(s.weight)) FROM (%s) AS s', sample) INTO estimate USING outbox;
        END IF;
        count := CASE WHEN estimate > 1000 THEN '~' || estimate ELSE '1000+' END;
    END IF;
END
$_$;

CREATE FUNCTION tube.tube_private_outbox_key(adopted boolean) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT CASE WHEN adopted THEN 'kafka_key::text' ELSE 'coalesce(partition_key, kafka_key)' END $$;

CREATE FUNCTION tube.tube_private_outbox_part(adopted boolean, partitions integer, partition integer) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE partitions WHEN 1 THEN 'true' ELSE format('((%s) OPERATOR(pg_catalog.%%) %s) OPERATOR(pg_catalog.=) %s',
        tube_private_outbox_slot(adopted), partitions, partition) END
$$;

CREATE FUNCTION tube.tube_private_outbox_parts(outbox text) RETURNS TABLE(partition integer, parked text, records text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
    SELECT p.partition, k.parked, format('%s AS r WHERE %s%s', o.tbl,
        tube_private_outbox_part(o.adopted, r.partitions, p.partition),
        CASE k.parked WHEN '0' THEN ' AND $1 IS NOT NULL' ELSE format(
            ' AND NOT EXISTS (SELECT FROM %s AS k WHERE k.outbox = $1 AND k.id = r.id)',
            tube_private_qualify('tube_outbox_parked')) END)
    FROM tube_outbox AS o JOIN tube_registry AS r ON r.tube = o.outbox,
        LATERAL generate_series(0, r.partitions - 1) AS p (partition),
        LATERAL (
            SELECT CASE WHEN count(*) < 1000 THEN count(*)::text ELSE '1000+' END AS parked FROM (
                SELECT FROM tube_outbox_parked AS k
                WHERE k.outbox = o.outbox AND k.slot % r.partitions = p.partition LIMIT 1000) AS first_ones
        ) AS k
    WHERE o.outbox = tube_private_outbox_parts.outbox
    ORDER BY p.partition
$_$;

CREATE FUNCTION tube.tube_private_outbox_slot(adopted boolean) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT format('(''x'' OPERATOR(pg_catalog.||) pg_catalog.left(pg_catalog.md5(kafka_topic::text OPERATOR(pg_catalog.||)'
        ' pg_catalog.chr(31) OPERATOR(pg_catalog.||) coalesce(%s, id::text)), 8))::bit(32)::integer'
        ' OPERATOR(pg_catalog.&) 2147483647', tube_private_outbox_key(adopted))
$$;

CREATE FUNCTION tube.tube_private_outbox_table(box tube.tube_outbox) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    tbl CONSTANT text := (SELECT format('%I.%I', n.nspname, c.relname)
        FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = box.tbl);
BEGIN
    IF tbl IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108', MESSAGE = format('the table of outbox %L was dropped', box.outbox),
            HINT = 'Call outbox_drop for the outbox, too.';
    END IF;
    RETURN tbl;
END
$$;

CREATE FUNCTION tube.tube_private_outbox_target(outbox text, OUT tbl text, OUT value_type text, OUT adopted boolean, OUT locks bigint) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    -- One statement: each message that is stashed alone pays for it.
    SELECT format('%I.%I', n.nspname, c.relname), o.value_type::text, o.adopted INTO tbl, value_type, adopted
    FROM tube_outbox AS o JOIN pg_class AS c ON c.oid = o.tbl JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE o.outbox = tube_private_outbox_target.outbox;
    IF NOT FOUND THEN
        PERFORM tube_private_outbox_table(tube_private_require_outbox(outbox)); -- raises the error
    END IF;
    locks := (hashtextextended(tube_private_schema() || ' orders ' || outbox, 0) >> 10) << 10;
END
$$;

CREATE FUNCTION tube.tube_private_outbox_trigger(reg tube.tube_registry, tbl text) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT format('CREATE TRIGGER outbox_wake_trigger AFTER INSERT ON %s FOR EACH STATEMENT EXECUTE FUNCTION %s(%L, %L)',
        tbl, tube_private_qualify('tube_private_outbox_wake'), reg.tube, tube_private_qualify('tube_sleeps_' || reg.number))
$$;

CREATE FUNCTION tube.tube_private_outbox_wake() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    IF pg_sequence_last_value(to_regclass(TG_ARGV[1])) > 1 THEN
        PERFORM tube_private_wake_sleepers(TG_ARGV[0], NULL);
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION tube.tube_private_owner_ddl(att tube.tube_attachment, is_owner boolean) RETURNS TABLE(statement text, rel regclass)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET quote_all_identifiers TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    table_owner CONSTANT regrole := tube_private_owner_of(att.tbl);
    body text := tube_private_capture_body(att, tube_private_is_root(att));
BEGIN
    IF NOT is_owner AND EXISTS (SELECT FROM pg_proc AS p
        WHERE p.oid = to_regprocedure(tube_private_function(att, 'capture') || '()') AND p.prosrc <> body
            AND p.prosrc = tube_private_capture_body(att, false))
    THEN
        body := tube_private_capture_body(att, false);
    END IF;
    RETURN QUERY SELECT d, NULL::regclass FROM tube_private_passes_ddl(att) AS d;
    RETURN QUERY SELECT d, NULL::regclass FROM tube_private_function_ddl(tube_private_function(att, 'capture'), '', '', 'trigger',
        false, body, table_owner, '{}') AS d;
    RETURN QUERY SELECT t.statement, t.rel FROM tube_private_trigger_ddl(att) AS t;
    RETURN QUERY SELECT d, NULL::regclass FROM tube_private_touch_ddl(att) AS d;
END
$$;

CREATE FUNCTION tube.tube_private_owner_of(tbl regclass) RETURNS regrole
    LANGUAGE sql STABLE
    AS $$ SELECT c.relowner::regrole FROM pg_class AS c WHERE c.oid = tbl $$;

CREATE FUNCTION tube.tube_private_page_runs(tbl regclass, cuts bigint[]) RETURNS TABLE(low bigint, high bigint, weight double precision)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    WITH whole AS (
        SELECT pg_relation_size(tbl) / current_setting('block_size')::bigint AS pages
    ), cut AS (
        SELECT DISTINCT c.page FROM whole AS w, unnest(cuts) AS c (page) WHERE c.page > 0 AND c.page < w.pages
    ), kept AS (
        SELECT c.page FROM (SELECT page, row_number() OVER (ORDER BY page) AS n, count(*) OVER () AS cuts FROM cut) AS c
        WHERE c.n % ceil(c.cuts / 8.0) = 0
        UNION ALL SELECT 0
        UNION ALL SELECT w.pages FROM whole AS w
    ), part AS (
        SELECT k.page AS first, lead(k.page) OVER (ORDER BY k.page) - k.page AS pages FROM kept AS k
    ), share AS (
        SELECT p.first, p.pages, least(ceil(p.pages / 8.0), 1 + floor(12.0 * p.pages / w.pages))::bigint AS runs
        FROM part AS p, whole AS w WHERE p.pages > 0
    )
    SELECT r.first, r.first + 8, s.pages / (8.0 * s.runs)
    FROM share AS s CROSS JOIN LATERAL (
        SELECT s.first + floor((n + 0.5) * s.pages / s.runs)::bigint - 4 AS first FROM generate_series(0, s.runs - 1) AS n
    ) AS r
    WHERE s.runs * 8 < s.pages
    UNION ALL
    SELECT s.first, s.first + s.pages, 1 FROM share AS s WHERE s.runs * 8 >= s.pages
$$;

CREATE TABLE tube.tube_parked (
    park_id bigint NOT NULL,
    tube text NOT NULL,
    shard integer NOT NULL,
    id text,
    op text NOT NULL,
    seq bigint NOT NULL,
    payload jsonb,
    error text NOT NULL,
    attempts integer NOT NULL,
    epoch bigint NOT NULL,
    first_at timestamp with time zone DEFAULT now() NOT NULL,
    parked_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    retried_at timestamp with time zone
);

CREATE FUNCTION tube.tube_private_parked(in_tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, in_seen pg_snapshot) RETURNS SETOF tube.tube_parked
    LANGUAGE sql STABLE
    AS $$
    SELECT k.* FROM tube_parked AS k
    WHERE (in_tube IS NULL OR k.tube = in_tube) AND (in_shard IS NULL OR k.shard = in_shard)
        AND (in_key IS NULL OR k.id = in_key)
        AND (in_error IS NULL OR strpos(lower(k.error), lower(in_error)) > 0)
        AND (in_before IS NULL OR k.parked_at < in_before)
        AND (in_seen IS NULL OR pg_visible_in_snapshot(tube_private_full_xid(k.xmin), in_seen))
$$;

CREATE FUNCTION tube.tube_private_parked_key(in_tube text, in_key text) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT tube_private_kept_key(r, in_key) FROM tube_registry AS r WHERE r.tube = in_tube AND in_key IS NOT NULL
$$;

CREATE FUNCTION tube.tube_private_parked_lock(outbox text) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$ SELECT hashtextextended(tube_private_schema() || ' parked ' || outbox, 0) $$;

CREATE FUNCTION tube.tube_private_parse_predicate(tube text, predicate text) RETURNS void
    LANGUAGE plpgsql
    SET standard_conforming_strings TO 'on'
    AS $_$
DECLARE
    one_statement text := tube_private_cursor_error('CREATE VIEW v AS SELECT 1');
    template text;
    answer text;
    words text;
BEGIN
    IF predicate IS NULL THEN
        RETURN;
    END IF;
    FOREACH template IN ARRAY ARRAY[
        E'CREATE VIEW v AS SELECT CAST(%s\n AS boolean)', E'CREATE VIEW v AS SELECT (%s\n)'
    ] LOOP
        answer := tube_private_cursor_error(replace(template, '%s', predicate));
        IF answer IS DISTINCT FROM one_statement THEN
            PERFORM tube_private_refuse_predicate(tube, NULL, predicate,
                CASE WHEN answer LIKE '42601:%' THEN substr(answer, 7) ELSE 'it is not one expression' END);
        END IF;
    END LOOP;
    -- Words (of ASCII letters, digits, _ and all that is not ASCII) and quoted names stay; numbers, literals and comments go.
    -- The longest match counts, so that E'...' is not a word.
    words := regexp_replace(predicate,
        '([^\u0001-\u0040\u005b-\u005e\u0060\u007b-\u007f][^\u0001-\u0023\u0025-\u002f\u003a-\u0040\u005b-\u005e\u0060\u007b-\u007f]*'
        '|"(?:""|[^"])*")|\.?[0-9][[:alnum:]_.]*|[eE]''(?:\\.|''''|[^''\\])*''|''(?:''''|[^''])*''|--[^\n\r]*', '\1 ', 'g');
    IF words ~ '\.|\$|/\*' THEN
        PERFORM tube_private_refuse_predicate(tube, NULL, predicate, 'it names something by its schema or table, or '
            'has a block comment or dollar quotes');
    -- What follows E'...' on another line is read as a part of it, with its escapes.
    ELSIF predicate ~ '[eE]''' AND predicate ~ '''(?:\s|--[^\n\r]*)*[\n\r](?:\s|--[^\n\r]*)*''' THEN
        PERFORM tube_private_refuse_predicate(tube, NULL, predicate, 'it has a literal that continues on another line');
    END IF;
END
$_$;

CREATE FUNCTION tube.tube_private_passes_call(att tube.tube_attachment, row_name text) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT CASE WHEN att.row_filter IS NOT NULL THEN (
        SELECT format('%s(%s)', tube_private_function(att, 'passes'),
            string_agg(tube_private_bound_sql(row_name, c.name, c.type, c.bound), ', ' ORDER BY c.attnum))
        FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c) END
$$;

CREATE FUNCTION tube.tube_private_passes_ddl(att tube.tube_attachment) RETURNS SETOF text
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    tag CONSTANT text := 'predicate: ' || att.row_filter;
    passes CONSTANT text := tube_private_function(att, 'passes');
    owner CONSTANT regrole := tube_private_owner_of(att.tbl);
    columns record;
BEGIN
    IF att.row_filter IS NULL THEN
        RETURN;
    END IF;
    SELECT coalesce(string_agg(format('%I %s', c.name, c.bound::regtype), ', ' ORDER BY c.attnum), '') AS arguments,
        coalesce(string_agg(c.bound::regtype::text, ', ' ORDER BY c.attnum), '') AS types,
        coalesce(string_agg(c.bound::text, ' ' ORDER BY c.attnum), '') AS bound
    INTO columns FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c;
    IF EXISTS (
        SELECT FROM tube_private_routines(att) AS r JOIN pg_proc AS p ON p.oid = r.routine
        WHERE r.name = passes AND p.proowner = owner AND p.proargtypes::text = columns.bound
            AND obj_description(p.oid, 'pg_proc') = tag AND p.prosqlbody IS NOT NULL
            AND p.proconfig IS NULL AND NOT p.prosecdef AND p.provolatile = 'i' -- else it would not become a part of plans
            -- A cast or an operator may have come between the look at the types and this.
            AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid
                AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_cast'::regclass) AND d.refobjid >= 16384))
        AND NOT EXISTS (SELECT FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c
            JOIN pg_attribute AS a ON a.attrelid = att.tbl AND a.attnum = c.attnum WHERE a.attgenerated = 'v')
    THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT format('DROP ROUTINE %s', r.signature) FROM tube_private_routines(att) AS r
        WHERE r.name = passes;
    RETURN NEXT format('CREATE FUNCTION %s(%s) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN (', passes, columns.arguments)
        || att.row_filter || E'\n)';
    RETURN NEXT format('COMMENT ON FUNCTION %s(%s) IS %L', passes, columns.types, tag);
    RETURN NEXT format('REVOKE ALL ON FUNCTION %s(%s) FROM PUBLIC', passes, columns.types);
    RETURN NEXT format('ALTER FUNCTION %s(%s) OWNER TO %s', passes, columns.types, owner);
END
$$;

CREATE FUNCTION tube.tube_private_passes_sql(att tube.tube_attachment, row_name text) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT format('(%s%s)', (SELECT string_agg(format('%s.%I IS NOT NULL', row_name, k.name), ' AND ' ORDER BY k.place)
        FROM unnest(tube_private_key_names(att)) WITH ORDINALITY AS k (name, place)), ' AND ' || tube_private_passes_call(att, row_name))
$$;

CREATE FUNCTION tube.tube_private_patiently(statements text[], what text, attempts integer DEFAULT 100) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS $$
BEGIN
    IF current_setting('pytube.attempt', true) = 'on' THEN
        PERFORM tube_private_briefly(statements);
        RETURN;
    END IF;
    FOR attempt IN 1..attempts LOOP
        BEGIN
            PERFORM set_config('pytube.attempt', 'on', true);
            PERFORM tube_private_briefly(statements);
            PERFORM set_config('pytube.attempt', 'off', true);
            RETURN;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            -- Tried again below, where the subtransaction is over and its locks are gone.
        END;
        PERFORM pg_sleep(0.05 + random() * 0.2);
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
        MESSAGE = format('%s: the locks could not be had within %s attempts of 100 ms', what, attempts),
        HINT = 'Some transaction holds a lock for long: look for it in pg_locks, or try again later.';
END
$$;

CREATE FUNCTION tube.tube_private_pause_of(in_tube text, in_partitions integer, in_partition integer, OUT reason text, OUT kind text, OUT until timestamp with time zone) RETURNS SETOF record
    LANGUAGE sql STABLE ROWS 1
    AS $$
    SELECT string_agg(concat(CASE WHEN p.n > 1 THEN CASE p.kind WHEN 'operator' THEN 'also paused ' ELSE 'also stopped by ' END END,
            CASE p.kind WHEN 'operator' THEN 'by ' || p.paused_by ELSE p.kind END,
            CASE WHEN p.n > 1 THEN ' until ' || p.until::timestamptz(0) END, ': ' || p.reason), '; ' ORDER BY p.n),
        min(p.kind) FILTER (WHERE p.n = 1), CASE WHEN bool_and(p.until IS NOT NULL) THEN max(p.until) END
    FROM (
        SELECT p.*, row_number() OVER (ORDER BY p.kind = 'operator', p.until DESC NULLS FIRST, p.pause_id) AS n
        FROM tube_paused AS p
        WHERE p.tube = in_tube AND (p.until IS NULL OR p.until > clock_timestamp())
            AND (p.partition IS NULL OR mod(p.partition - in_partition, gcd(p.partitions, in_partitions)) = 0)
    ) AS p
    HAVING count(*) > 0
$$;

CREATE FUNCTION tube.tube_private_planned(tube text, what text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    AS $$
BEGIN
    RETURN tube_private_qualify(format('tube_private_%s_%s', what, left(md5(tube), 16)));
END
$$;

CREATE FUNCTION tube.tube_private_pod_ranges(reg tube.tube_registry, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text) RETURNS TABLE(class integer, condition text)
    LANGUAGE sql
    AS $$
    SELECT c.class, concat(s.slice, ' AND (CASE WHEN op = ''B'' THEN 1 ELSE 0 END) = ', c.class,
        ' AND p.seq >= ' || in_from, ' AND p.seq <= ' || in_to, ' AND p.shard = ' || in_shard,
        CASE WHEN in_key IS NOT NULL THEN format(' AND p.ids @> ARRAY[%L]::%s[]', in_key, reg.key_type) END)
    FROM generate_series(0, 1) AS c (class), generate_series(0, reg.partitions - 1) AS n (partition),
        LATERAL unnest((tube_private_slices(reg.tube, reg.partitions, n.partition)).slices) AS s (slice)
    WHERE n.partition = coalesce(in_partition, in_shard % reg.partitions, n.partition)
    ORDER BY c.class, n.partition
$$;

CREATE FUNCTION tube.tube_private_pod_with(reg tube.tube_registry, in_seq bigint, in_shard integer, in_key text) RETURNS tid
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    condition text;
    place tid;
BEGIN
    FOR condition IN
        SELECT r.condition FROM tube_private_pod_ranges(reg, NULL, in_seq, in_seq, in_shard, in_key) AS r
    LOOP
        EXECUTE format('SELECT p.ctid FROM %s AS p WHERE %s FOR UPDATE', tube_private_qualify(reg.tube), condition)
        INTO place;
        EXIT WHEN place IS NOT NULL;
    END LOOP;
    RETURN place;
END
$$;

CREATE FUNCTION tube.tube_private_pods_where(tube text, partitions integer, partition integer, dense boolean) RETURNS text
    LANGUAGE plpgsql
    AS $_$
DECLARE
    pods CONSTANT text := (tube_private_slices(tube, partitions, partition)).pods;
    class_is CONSTANT text := '(CASE WHEN %s.op = ''B'' THEN 1 ELSE 0 END) = $2';
    of_term CONSTANT text := format('%s AND %s AND pod.leader_id = $1', pods, format(class_is, 'pod'));
BEGIN
    RETURN CASE
        WHEN dense IS NULL THEN of_term
        WHEN current_setting('server_version_num')::integer >= 170000 THEN
            of_term || ' AND pod.seq = ANY ((SELECT $3)::bigint[])'
        WHEN dense THEN of_term || ' AND pod.seq BETWEEN $4 AND $5 AND pod.seq + 0 = ANY ($3)'
        ELSE format($where$
            pod.ctid = ANY (ARRAY(
                SELECT found.place
                FROM unnest($3) AS wanted (seq), LATERAL (
                    SELECT p.ctid AS place FROM %s AS p
                    WHERE %s AND %s AND p.seq = wanted.seq AND p.leader_id = $1
                    OFFSET 0) AS found))$where$, tube_private_qualify(tube), pods, format(class_is, 'p'))
        END;
END
$_$;

CREATE FUNCTION tube.tube_private_predicate_columns(tbl regclass, predicate text) RETURNS TABLE(attnum smallint, name name, type oid, bound oid, fault text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
#variable_conflict use_column
BEGIN
    IF predicate IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT a.attnum, a.attname, a.atttypid, t.oid, CASE
        WHEN t.oid >= 16384 -- initdb has not made it
            AND (NOT (t.typtype = 'e' OR t.typcategory = 'A' AND e.typtype = 'e')
                OR EXISTS (SELECT FROM pg_cast AS k WHERE k.castsource IN (t.oid, e.oid)))
            THEN format('%I has the type %s, whose owner''s code may compute with its values', a.attname, a.atttypid::regtype)
        WHEN a.attgenerated = 'v'
            THEN format('%I is a virtual generated column, and has no value when a row is written', a.attname)
        END
    FROM pg_attribute AS a
    JOIN pg_type AS t ON t.oid = tube_private_base_type(a.atttypid)
    LEFT JOIN pg_type AS e ON e.oid = t.typelem
    WHERE a.attrelid = tbl AND a.attnum > 0 AND NOT a.attisdropped
        AND CASE WHEN a.attname::text COLLATE "C" ~ '^[a-z_][a-z0-9_]*$'
            THEN predicate COLLATE "C" ~* format(E'\\m%s\\M', a.attname)
            ELSE strpos(predicate, quote_ident(a.attname)) > 0 END
    ORDER BY a.attnum;
END
$_$;

CREATE FUNCTION tube.tube_private_provide(att tube.tube_attachment) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET quote_all_identifiers TO 'off'
    AS $$
DECLARE
    stored CONSTANT tube_attachment := (SELECT a FROM tube_attachment AS a WHERE a.tube = att.tube AND a.tbl = att.tbl);
    statements text[];
    statement text;
BEGIN
    PERFORM tube_private_drop_routines(att, tube_private_owner_of(att.tbl)), tube_private_drop_former(stored, att, att.trigger_function);
    IF stored.captured_by = to_regprocedure(tube_private_function(att, 'capture') || '()') THEN
        PERFORM tube_private_ask_backfill(att, format('the owner of %s had no right to touch its rows', att.tbl))
        WHERE EXISTS (SELECT FROM tube_private_our_ddl(stored) AS d WHERE d LIKE 'GRANT %');
        -- A member whose triggers were dropped waits, until they are there again: see tube_private_follow_members.
        UPDATE tube_attachment AS a SET waiting = a.waiting || l.lost
        FROM (SELECT array_agg(DISTINCT t.rel::oid) AS lost FROM tube_private_trigger_names(stored) AS t
            WHERE t.wanted AND NOT t.is_there AND t.rel::oid = ANY (stored.members)
                AND (t.rel::oid = ANY (stored.waiting)) IS NOT TRUE) AS l
        WHERE a.tube = att.tube AND a.tbl = att.tbl AND l.lost IS NOT NULL;
    END IF;
    FOR look IN 1..2 LOOP -- default privileges may give new objects to others
        statements := ARRAY(SELECT tube_private_our_ddl(att));
        EXIT WHEN statements = '{}';
        -- Two grants at once on one schema or sequence would fail each other.
        PERFORM pg_advisory_xact_lock(hashtextextended('pytube grant ' || tube_private_schema(), 0));
        FOREACH statement IN ARRAY statements LOOP
            EXECUTE statement;
        END LOOP;
    END LOOP;
    PERFORM tube_private_provide_touch(att, true);
    UPDATE tube_attachment AS a SET as_root = tube_private_is_root(a)
    WHERE a.tube = att.tube AND a.tbl = att.tbl AND a.as_root IS DISTINCT FROM tube_private_is_root(a);
END
$$;

CREATE FUNCTION tube.tube_private_provide_outbox(outbox text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(outbox, 'any');
    queue CONSTANT text := tube_private_qualify(outbox);
    admin CONSTANT name := tube_private_role('admin');
BEGIN
    PERFORM tube_private_make_flag(reg);
    IF (tube_private_require_outbox(outbox)).adopted THEN
        RETURN;
    END IF;
    EXECUTE format('REVOKE ALL ON %s FROM PUBLIC', queue);
    EXECUTE format('GRANT SELECT, UPDATE (leader_id), DELETE ON %s TO %I', queue, tube_private_role('worker'));
    EXECUTE format('GRANT SELECT, DELETE ON %s TO %I', queue, admin);
    EXECUTE format('GRANT INSERT (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values,'
        ' partition_key), SELECT (id) ON %s TO %I, %I', queue, tube_private_role('writer'), admin);
    EXECUTE format('GRANT SELECT (id, create_time, kafka_topic, kafka_key, partition_key, leader_id) ON %s TO %I', queue,
        tube_private_role('monitor'));
    IF NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = queue::regclass AND t.tgname = 'outbox_wake_trigger') THEN
        EXECUTE tube_private_outbox_trigger(reg, queue);
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_provide_planned(tube text) RETURNS void
    LANGUAGE plpgsql
    AS $_$
DECLARE
    partitions CONSTANT integer := (tube_private_require(tube)).partitions;
    mark CONSTANT text := tube_private_mark_sql(tube, partitions, NULL);
    purge CONSTANT text := format('DELETE FROM %s AS pod WHERE ', tube_private_qualify(tube));
    dense CONSTANT text := tube_private_pods_where(tube, partitions, NULL, true);
    sparse CONSTANT text := tube_private_pods_where(tube, partitions, NULL, false);
    refusal CONSTANT text := format($body$
            IF in_partitions <> %s THEN
                RAISE EXCEPTION 'the tube has another number of partitions' USING ERRCODE = 'TU002', HINT = 'Ask again.';
            END IF;$body$, partitions);
BEGIN
    EXECUTE format($ddl$
        CREATE OR REPLACE FUNCTION %s(
            leader_id uuid, floor bigint, pods_limit integer, class integer, in_partition integer, in_partitions integer,
            backfill_floor bigint, backfill boolean
        ) RETURNS TABLE (seq bigint, op text, shard integer, ids bigint[], keys text[], payload jsonb, ts timestamptz)
        LANGUAGE plpgsql AS %L$ddl$, tube_private_planned(tube, 'mark'), format($body$
        #variable_conflict use_column
        DECLARE
            marked integer;
        BEGIN%1$s
            RETURN QUERY %2$s;
            GET DIAGNOSTICS marked = ROW_COUNT;
            IF backfill AND marked < pods_limit THEN
                class := 1;
                floor := backfill_floor;
                pods_limit := pods_limit - marked;
                RETURN QUERY %2$s;
            END IF;
        END
        $body$, refusal, mark));
    EXECUTE format($ddl$
        CREATE OR REPLACE FUNCTION %s(
            leader_id uuid, class integer, seqs bigint[], least_seq bigint, greatest_seq bigint, in_partition integer,
            in_partitions integer
        ) RETURNS integer
        LANGUAGE plpgsql AS %L$ddl$, tube_private_planned(tube, 'purge'), format($body$
        DECLARE
            purged integer := 0;
            done integer;
        BEGIN%s
            LOOP
                %s
                GET DIAGNOSTICS done = ROW_COUNT;
                purged := purged + done;
                EXIT WHEN purged >= cardinality(seqs) OR class = 1;
                class := 1;
            END LOOP;
            RETURN purged;
        END
        $body$, refusal, CASE WHEN dense = sparse THEN purge || dense || ';'
            ELSE format('IF coalesce(greatest_seq - least_seq < 64 * cardinality(seqs), true) THEN %s; ELSE %s; END IF;',
                purge || dense, purge || sparse) END));
    EXECUTE format('REVOKE ALL ON FUNCTION %s, %s FROM PUBLIC', tube_private_planned(tube, 'mark'),
        tube_private_planned(tube, 'purge'));
END
$_$;

CREATE FUNCTION tube.tube_private_provide_touch(att tube.tube_attachment, attaching boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql
    SET client_min_messages TO 'warning'
    SET quote_all_identifiers TO 'off'
    AS $$
DECLARE
    key_type CONSTANT regtype := tube_private_key_type(att.tube);
    name CONSTANT text := tube_private_qualify(att.touch_name);
    body CONSTANT text := coalesce(tube_private_table_touch_body(att.tbl, key_type),
        CASE WHEN attaching THEN E'\n-- Made by tube_private_table_touch_body.\nBEGIN\nEND\n' END);
BEGIN
    PERFORM tube_private_lock_touch(att.tbl);
    IF body IS NULL THEN
        EXECUTE format('DROP FUNCTION IF EXISTS %s CASCADE', name);
    ELSE
        PERFORM tube_private_make_touch(name, format('%s[], char, jsonb, integer', key_type),
            format('ids %s[], op character, payload jsonb, chunk_size integer', key_type), body,
            ARRAY[quote_ident(tube_private_role('writer'))::regrole, tube_private_owner_of(att.tbl)]);
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_provide_tube(tube text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET quote_all_identifiers TO 'off'
    AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(tube);
    name CONSTANT text := tube_private_qualify(tube_private_name(tube, '_touch'));
BEGIN
    PERFORM tube_private_make_flag(reg), tube_private_provide_planned(tube);
    PERFORM tube_private_make_touch(name, format('integer, %s[], char, jsonb, integer', reg.key_type),
        format('shard integer, ids %s[], op character, payload jsonb DEFAULT NULL::jsonb, chunk_size integer DEFAULT 250', reg.key_type),
        tube_private_tube_touch_body(tube),
        ARRAY[quote_ident(tube_private_role('writer')), quote_ident(tube_private_role('admin'))]::regrole[]);
END
$$;

CREATE FUNCTION tube.tube_private_prune(tube text) RETURNS void
    LANGUAGE plpgsql
    AS $_$
DECLARE
    gone tube_attachment;
BEGIN
    FOR gone IN
        SELECT a.* FROM tube_attachment AS a
        WHERE a.tube = $1 AND NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = a.tbl) ORDER BY a.position
    LOOP
        RAISE WARNING USING
            MESSAGE = format('a table of tube %L was dropped, and is detached: oid %s, attached %swith shards %s to %s', tube,
                gone.tbl::oid,
                CASE WHEN starts_with(gone.trigger_function, tube || '_') -- else the name had no room
                    THEN 'as ' || regexp_replace(substr(gone.trigger_function, length(tube) + 2), '_capture_[0-9a-f]{8}$', ' ') END,
                gone.shard, gone.shard + (gone.shards - 1)),
            HINT = CASE WHEN gone.as_root
                THEN 'Its documents stay at the sink. A backfill of a table that is attached with these shards sweeps them.'
                ELSE 'Documents that show its rows stay as they are: backfill the root table of these shards.' END;
        PERFORM tube_private_forget(tube, ARRAY[gone.tbl]);
    END LOOP;
END
$_$;

CREATE FUNCTION tube.tube_private_put(tube_or_tubes text, shard integer, op text, ids anyarray, chunk_size integer, last boolean) RETURNS bigint
    LANGUAGE plpgsql
    SET enable_sort TO 'off'
    SET jit TO 'off'
    AS $_$
#variable_conflict use_column
DECLARE
    put_op CONSTANT text := CASE WHEN strpos(current_setting('application_name'), 'backfill') > 0 THEN 'B' ELSE op END;
    put_chunk integer;
    tube_name text;
    tubes text[] := '{}';
    lonely text[] := '{}'; -- tubes none of whose tables has the shard
    key_type regtype;
    att tube_attachment;
    made bigint;
    pods bigint := 0;
BEGIN
    PERFORM tube_private_check_touch(shard, ids, op, chunk_size);
    put_chunk := least(chunk_size, greatest(1, cardinality(ids))); -- far from the end of integer
    FOREACH tube_name IN ARRAY coalesce(nullif(string_to_array(tube_or_tubes, ','), '{}'), ARRAY[tube_or_tubes]) LOOP
        IF NOT EXISTS (SELECT FROM tube_registry AS r WHERE r.tube = tube_name AND r.kind = 'tube') THEN
            tube_name := btrim(tube_name);
            PERFORM tube_private_require(tube_name);
        END IF;
        CONTINUE WHEN tube_name = ANY (tubes);
        tubes := tubes || tube_name;
        key_type := tube_private_key_type(tube_name);
        IF key_type <> 'bigint'::regtype AND pg_typeof(ids) = 'bigint[]'::regtype THEN
            RAISE EXCEPTION USING ERRCODE = 'datatype_mismatch',
                MESSAGE = format('the keys of tube %L have the type %s, not bigint', tube_name, key_type),
                HINT = 'Call tube_keys_put, which takes them as texts.';
        END IF;
        SELECT a.* INTO att FROM tube_attachment AS a
        WHERE a.tube = tube_name AND tube_private_put.shard BETWEEN a.shard AND a.shard + (a.shards - 1)
            AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = a.tbl)
        LIMIT 1;
        IF NOT FOUND THEN
            att.shard := shard;
            att.shards := 1;
            lonely := lonely || tube_name;
        END IF;
        IF ids <> '{}' THEN
            -- The array is copied once: a slice of a parameter would copy all of it for each pod.
            EXECUTE format($sql$
                INSERT INTO %I.%I (op, shard, ids)
                SELECT $1, g.shard, g.ids[c.first : c.first + $3 - 1]
                FROM (%s OFFSET 0) AS g, LATERAL generate_series(1, cardinality(g.ids), $3) AS c (first)$sql$,
                tube_private_schema(), tube_name,
                CASE att.shards
                    WHEN 1 THEN
                        format('SELECT %1$s AS shard, $2::%2$s[] || ''{}''::%2$s[] AS ids', att.shard, key_type)
                    ELSE format('SELECT %s AS shard, array_agg(t.id) AS ids'
                        ' FROM (SELECT unnest($2::%s[]) AS id) AS t GROUP BY 1',
                        tube_private_shard_expression('t.id', att, of_row => false), key_type)
                END) USING put_op, ids, put_chunk;
            GET DIAGNOSTICS made = ROW_COUNT;
            pods := pods + made;
        END IF;
        IF last THEN
            PERFORM tube_private_wake_sleepers(tube_name,
                ARRAY(SELECT generate_series(att.shard, att.shard + (att.shards - 1))));
        END IF;
    END LOOP;
    IF (ids = '{}') <> last THEN
        PERFORM tube_private_warn_lonely(l.tube, tube_private_put.shard) FROM unnest(lonely) AS l (tube);
    END IF;
    RETURN pods;
END
$_$;

CREATE FUNCTION tube.tube_private_put_body(att tube.tube_attachment) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $_$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(att.tube);
    is_unique CONSTANT boolean := tube_private_key_is_unique(att);
BEGIN
    RETURN tube_private_fill($put$
BEGIN
    IF $2 IS NULL THEN
        PERFORM <schema>.tube_private_resync(<tube>, <name>, <table_name>, <shard>, <shards>, $1 OPERATOR(pg_catalog.=) 'D', <companion_of>);
        RETURN true;
    ELSIF $1 OPERATOR(pg_catalog.<>) 'W' THEN
        IF pg_catalog.cardinality($2) OPERATOR(pg_catalog.=) 1 AND $2[1] IS NOT NULL THEN
            INSERT INTO <queue> (op, shard, ids) VALUES (<op>, <shard_of_one>, $2);
        ELSE
            INSERT INTO <queue> (op, shard, ids)
            SELECT <op>, g.shard, g.ids[c.first : c.first OPERATOR(pg_catalog.+) 249]
            FROM (<by_shard> OFFSET 0) AS g, LATERAL pg_catalog.generate_series(1, pg_catalog.cardinality(g.ids), 250) AS c (first);
        END IF;
    END IF;
    -- After the INSERT: a worker that falls asleep after this look reads a seq that is at least as high.
    IF pg_catalog.pg_sequence_last_value(<sleeps>) OPERATOR(pg_catalog.>) 1 THEN
        PERFORM <schema>.tube_private_wake_sleepers(<tube>, <touched>);
    END IF;
    RETURN true;
END
$put$, jsonb_build_object(
        'schema', quote_ident(tube_private_schema()),
        'queue', tube_private_qualify(att.tube),
        'tube', quote_literal(att.tube),
        'name', quote_literal(att.trigger_function),
        'table_name', quote_literal(tube_private_table_name(att.tbl)),
        'shard', att.shard,
        'shards', att.shards,
        'companion_of', quote_nullable(reg.companion_of),
        'sleeps', tube_private_flag_sql(att.tube),
        'op', tube_private_op_sql(CASE WHEN tube_private_is_root(att) THEN 'CASE WHEN $1 OPERATOR(pg_catalog.=) ''I'''
            ' OR $1 OPERATOR(pg_catalog.=) ''D'' THEN $1 ELSE ''U'' END' ELSE '''U''' END),
        'shard_of_one', tube_private_shard_expression('$2[1]', att),
        -- The array is copied once: a slice of a parameter would copy all of it for each pod.
        'by_shard', CASE
            WHEN att.shards > 1 THEN format('SELECT %s AS shard, pg_catalog.array_agg(%st.id) AS ids'
                ' FROM pg_catalog.unnest($2) AS t (id) WHERE t.id IS NOT NULL GROUP BY 1',
                tube_private_shard_expression('t.id', att),
                CASE WHEN is_unique THEN '' ELSE 'DISTINCT ' END)
            WHEN is_unique THEN format('SELECT %s AS shard, CASE WHEN pg_catalog.array_position($2, NULL) IS NULL'
                ' THEN $2 OPERATOR(pg_catalog.||) ''{}''::%s[] ELSE pg_catalog.array_remove($2, NULL) END AS ids', att.shard,
                tube_private_type_sql(reg.key_type))
            ELSE format('SELECT %s AS shard, ARRAY(SELECT DISTINCT t.id%s FROM pg_catalog.unnest($2) AS t (id) WHERE t.id IS NOT NULL) AS ids',
                att.shard, CASE reg.key_type WHEN 'text'::regtype THEN ' COLLATE pg_catalog."C"' ELSE '' END) END,
        'touched', format('ARRAY(SELECT DISTINCT %s FROM pg_catalog.unnest($2) AS t (id) WHERE t.id IS NOT NULL)',
            tube_private_shard_expression('t.id', att))));
END
$_$;

CREATE FUNCTION tube.tube_private_put_control(type text, backfill tube.tube_backfill) RETURNS void
    LANGUAGE sql
    AS $$
    SELECT tube_private_put_control_pods(backfill.tube, CASE type WHEN 'backfill_start' THEN 'T' ELSE 'B' END,
        jsonb_strip_nulls(jsonb_build_object('type', type, 'start_seq', backfill.start_seq::text,
            'backfill', backfill.backfill_id, 'sweep', backfill.root)),
        ARRAY(SELECT generate_series(backfill.shard, backfill.shard + (backfill.shards - 1))))
$$;

CREATE FUNCTION tube.tube_private_put_control_pods(tube text, op text, payload jsonb, shards integer[]) RETURNS void
    LANGUAGE plpgsql
    AS $_$
BEGIN
    EXECUTE format('INSERT INTO %s (op, shard, ids, payload) SELECT $1, s, ''{}'', $2 FROM unnest($3) AS s',
        tube_private_qualify(tube)) USING op, payload, shards;
    PERFORM tube_private_wake_sleepers(tube, shards);
END
$_$;

CREATE FUNCTION tube.tube_private_put_parked(outbox text, partitions integer, partition integer, leader_id uuid, items jsonb, records jsonb, hold boolean) RETURNS bigint[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    my_epoch CONSTANT bigint := tube_private_hold_term(outbox, partitions, partition, leader_id);
    held CONSTANT boolean := coalesce(hold, false);
    parked bigint[] := '{}';
    more bigint[];
BEGIN
    -- First the ones that hold their keys, then the ones that wait behind them.
    FOR step IN 0..1 LOOP
        WITH item AS (
            SELECT DISTINCT ON (i.id) i.id, r.topic, r.key, r.slot, i.error, i.attempts
            FROM jsonb_to_recordset(items) AS i (id bigint, error text, attempts integer, behind boolean)
            JOIN jsonb_to_recordset(records) AS r (id bigint, topic text, key text, slot integer) ON r.id = i.id
            WHERE coalesce(i.behind, false) = (step = 1)
            ORDER BY i.id
        ), put AS (
            INSERT INTO tube_outbox_parked AS k (outbox, id, topic, key, slot, error, attempts, epoch, hold, behind)
            SELECT tube_private_put_parked.outbox, i.id, i.topic, i.key, i.slot, i.error, i.attempts,
                my_epoch, (held OR step = 1) AND i.key IS NOT NULL, step = 1
            FROM item AS i
            WHERE step = 0 OR EXISTS (
                SELECT FROM tube_outbox_parked AS h
                WHERE h.outbox = tube_private_put_parked.outbox AND h.topic = i.topic AND md5(h.key) = md5(i.key)
                    AND h.key = i.key AND h.hold AND NOT h.behind)
            ON CONFLICT ON CONSTRAINT tube_outbox_parked_pkey DO NOTHING
            RETURNING k.id
        )
        SELECT array_agg(p.id ORDER BY p.id) INTO more FROM put AS p;
        parked := parked || coalesce(more, '{}');
    END LOOP;
    -- Else a retry of before would have the next mark return them.
    DELETE FROM tube_outbox_retry AS t WHERE t.outbox = tube_private_put_parked.outbox AND t.id = ANY (parked);
    RETURN parked;
END
$$;

CREATE FUNCTION tube.tube_private_put_range_pod(backfill_id bigint, shard integer, ids anyarray) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    backfill tube_backfill;
BEGIN
    PERFORM tube_private_check_ids(ids);
    SELECT b.* INTO backfill FROM tube_backfill AS b JOIN tube_job AS j ON j.backfill_id = b.backfill_id
    WHERE b.backfill_id = $1 AND b.state = 'inserting' AND $2 BETWEEN b.shard AND b.shard + (b.shards - 1);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'backfill % is not being inserted in ranges, or not into shard %', backfill_id, shard
            USING ERRCODE = 'TU131', HINT = 'Call tube_backfill_range.';
    END IF;
    EXECUTE format('INSERT INTO %s (op, shard, ids, payload) VALUES (''B'', $1, $2, $3)', tube_private_qualify(backfill.tube))
    USING shard, ids, jsonb_build_object('backfill', backfill.backfill_id);
END
$_$;

CREATE FUNCTION tube.tube_private_put_schedule(tube text, shard integer, table_name text, order_col name, resync boolean DEFAULT false) RETURNS void
    LANGUAGE sql
    AS $$
    SELECT tube_private_put_control_pods(tube, 'B', jsonb_build_object('type', 'backfill_schedule',
        'tbl', table_name, 'order_col', order_col::text)
        || CASE WHEN resync THEN '{"resync": true}' ELSE '{}' END::jsonb, ARRAY[shard])
$$;

CREATE FUNCTION tube.tube_private_qualify(name text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT format('%I.%I', tube_private_schema(), name) $$;

CREATE FUNCTION tube.tube_private_range(tube text, tbl regclass, shard integer, shards integer) RETURNS integer
    LANGUAGE plpgsql
    AS $_$
DECLARE
    schema_name CONSTANT text := (
        SELECT n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = tbl);
    first CONSTANT numeric := coalesce(shard, substring(schema_name FROM '[0-9]+$')::numeric,
        (SELECT a.shard FROM tube_attachment AS a WHERE a.tube = $1 AND a.tbl = $2));
    last CONSTANT numeric := first + (shards - 1);
    other tube_attachment;
    wrong text;
BEGIN
    wrong := CASE
        WHEN shards IS NULL OR shards < 1
            THEN format('it can''t be spread over %s shards', coalesce(shards::text, 'NULL'))
        WHEN first IS NULL
            THEN format('no shard is given, and its schema %I does not end in a number', schema_name)
        WHEN first < 0 THEN format('the shard %s is negative', first)
        WHEN last > 2147483647 THEN format('the shard %s is too large', last)
    END;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU106',
            MESSAGE = format('%s can''t be attached to tube %L: %s', tbl, tube, wrong),
            HINT = 'Give shard => NUMBER (0 or more) and shards => NUMBER (1 or more).';
    END IF;
    SELECT a.* INTO other FROM tube_attachment AS a
    WHERE a.tube = $1 AND a.tbl <> $2 AND a.shard <= last AND first < a.shard::bigint + a.shards
        AND (a.shard, a.shards) <> (first, $4)
    ORDER BY a.position LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU106',
            MESSAGE = format('%s can''t be attached to tube %L: its shards %s to %s overlap with %s, which has %s to %s',
                tbl, tube, first, last, other.tbl, other.shard, other.shard + (other.shards - 1)),
            HINT = format('To relate it to %1$s: shard => %2$s, shards => %3$s, id_col => the column that holds ids of '
                '%1$s. To give it separate shards: shard => %4$s, shards => %5$s.', other.tbl, other.shard, other.shards,
                (SELECT max(a.shard::bigint + a.shards) FROM tube_attachment AS a WHERE a.tube = $1 AND a.tbl <> $2), shards);
    END IF;
    RETURN first;
END
$_$;

CREATE FUNCTION tube.tube_private_range_sql(tbl regclass, col name, bounds text[], unit integer) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $_$
DECLARE
    found_type oid;
    literals text;
BEGIN
    SELECT a.atttypid, format_type(t.oid, CASE t.oid WHEN a.atttypid THEN a.atttypmod END) INTO found_type, literals
    FROM pg_attribute AS a LEFT JOIN pg_type AS t
        ON t.oid = tube_private_base_type(a.atttypid) AND (t.oid < 16384 OR t.typtype = 'e')
    WHERE a.attrelid = tbl AND a.attname = col AND NOT a.attisdropped;
    IF literals IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU104',
            MESSAGE = format('%s can''t be divided by %I: its type is %s', tbl, col, found_type::regtype),
            HINT = 'Divide it by a column of a built-in type.';
    END IF;
    RETURN format(CASE
        WHEN bounds = '{}' THEN 'true'
        WHEN unit = 0 THEN '%1$I < %3$L::%4$s'
        WHEN unit = cardinality(bounds) THEN '%1$I >= %2$L::%4$s OR %1$I IS NULL'
        ELSE '%1$I >= %2$L::%4$s AND %1$I < %3$L::%4$s'
    END, col, bounds[unit], bounds[unit + 1], literals);
END
$_$;

CREATE FUNCTION tube.tube_private_record_columns(box tube.tube_outbox, parks boolean, retried boolean) RETURNS text
    LANGUAGE sql STABLE
    AS $_$
    SELECT format('r.id::bigint, r.create_time, r.kafka_topic::text, r.kafka_key::text, %s, r.kafka_header_keys::text[],'
        ' r.kafka_header_values::text[], %s, %s, %s',
        CASE box.value_type WHEN 'bytea'::regtype THEN 'r.kafka_value'
            ELSE 'convert_to(r.kafka_value::text, ''UTF8'')' END,
        CASE WHEN box.adopted THEN 'NULL::text' ELSE 'r.partition_key' END,
        retried::text,
        -- One by one by its index: an EXISTS may be hashed, which reads all that is held for each mark.
        CASE WHEN parks THEN format('(SELECT k.id FROM %1$s AS k WHERE k.outbox = $3 AND k.topic = r.kafka_topic'
            ' AND md5(k.key) = md5(%2$s) AND k.key = %2$s AND k.hold AND NOT k.behind LIMIT 1) IS NOT NULL',
            tube_private_qualify('tube_outbox_parked'), tube_private_outbox_key(box.adopted))
            -- A key may be freed between the look for retried records and the mark: its earlier records come next.
            || CASE WHEN retried THEN '' ELSE format(' OR (%s) IN (SELECT t.slot FROM %s AS t WHERE t.outbox = $3 AND t.id <= $2)',
                tube_private_outbox_slot(box.adopted), tube_private_qualify('tube_outbox_retry')) END
            ELSE 'false' END)
$_$;

CREATE FUNCTION tube.tube_private_refilled(tube text, since timestamp with time zone, finished boolean) RETURNS boolean
    LANGUAGE sql STABLE
    AS $_$
    SELECT $2 IS NOT NULL AND CASE WHEN $3 THEN
        EXISTS (SELECT FROM tube_list() AS l WHERE l.tube = $1 AND l.root)
        AND NOT EXISTS (SELECT FROM tube_list() AS l WHERE l.tube = $1 AND l.root AND NOT EXISTS (
            SELECT FROM tube_backfill AS b
            WHERE b.tube = $1 AND b.tbl = l.tbl AND b.created_at > $2 AND b.state = 'finished'))
    ELSE
        EXISTS (SELECT FROM tube_backfill AS b WHERE b.tube = $1 AND b.created_at > $2
            AND b.state IN ('waiting', 'inserting', 'delivering', 'finished'))
    END
$_$;

CREATE FUNCTION tube.tube_private_refuse_backfill(att tube.tube_attachment, other text) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'TU121',
        MESSAGE = format('%s is being backfilled for tube %L already, by %s', att.tbl, att.tube, other),
        HINT = 'Wait for it, resume it or cancel it; or have the new one end it: supersede => true.';
END
$$;

CREATE FUNCTION tube.tube_private_refuse_job(job tube.tube_job) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    IF job.begun_by <> session_user AND NOT pg_has_role(session_user, tube_private_role('admin'), 'MEMBER') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('the job %L belongs to %I, who has begun it', job.job_id, job.begun_by),
            HINT = format('%I and members of %I may continue or forget it. Give your job another name.',
                job.begun_by, tube_private_role('admin'));
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_refuse_loss(tube text) RETURNS void
    LANGUAGE plpgsql
    AS $_$
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
$_$;

CREATE FUNCTION tube.tube_private_refuse_predicate(tube text, tbl regclass, predicate text, reason text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'TU105',
        MESSAGE = format('the predicate of tube %L is refused%s: %s', tube, coalesce(' for ' || tbl, ''), reason),
        DETAIL = format('Predicate: %s', predicate),
        HINT = 'Give one condition over the columns of the table, of immutable built-in functions and '
            'operators, without a subquery, and without names of schemas.';
END
$$;

CREATE FUNCTION tube.tube_private_refuse_records(outbox text) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    most CONSTANT integer := 10000;
    records bigint;
    parked bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM (SELECT FROM %s LIMIT %s) AS r', tube_private_qualify(outbox), most) INTO records;
    SELECT count(*) INTO parked
    FROM (SELECT FROM tube_outbox_parked AS k WHERE k.outbox = tube_private_refuse_records.outbox LIMIT most) AS p;
    IF records > 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'TU109',
            MESSAGE = format('outbox %L is not dropped: records that wait: %s%s%s', outbox,
                CASE WHEN records = most THEN 'at least ' END, records,
                CASE WHEN parked > 0 THEN format(', parked ones among them: %s', parked) END),
            HINT = concat('Let the workers drain it', CASE WHEN parked > 0 THEN ', and retry or discard the parked records' END,
                ', or throw the records away: force => true.');
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_refuse_renamed(tbl regclass, table_name text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    IF tbl::text <> table_name THEN
        RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
            MESSAGE = format('%s was renamed to %s while it was read', table_name, tbl), HINT = 'Try again.';
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_refuse_table(tbl regclass) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    wrong text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = tbl) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108',
            MESSAGE = format('there is no table %s', coalesce(tbl::text, 'NULL')),
            HINT = 'Give the name of a table, with its schema.';
    END IF;
    SELECT format('%s can''t be attached: %s', t.relid, f.fault) INTO wrong
    FROM (SELECT tbl AS relid UNION SELECT p.relid FROM pg_partition_tree(tbl) AS p) AS t,
        tube_private_table_fault(t.relid, t.relid <> tbl) AS f (fault)
    WHERE f.fault IS NOT NULL ORDER BY t.relid <> tbl LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU107', MESSAGE = wrong,
            HINT = 'Attach plain, permanent tables, and partitioned ones as a whole.';
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_refuse_touch(tbl regclass, other oid) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'TU107',
        MESSAGE = format('%s can''t be attached: there is a function %s already', tbl, other::regprocedure),
        HINT = 'Its name is needed for the touches of the table: rename or drop it. If pg-tube has made it, detach the table '
            'from all tubes of pg-tube first, in the same transaction.';
END
$$;

CREATE FUNCTION tube.tube_private_remove_key(reg tube.tube_registry, places tid[], in_key text) RETURNS void
    LANGUAGE plpgsql
    AS $_$
DECLARE
    queue CONSTANT text := tube_private_qualify(reg.tube);
BEGIN
    EXECUTE format('DELETE FROM %s AS p WHERE p.ctid = ANY ($1)%s', queue, CASE WHEN in_key IS NOT NULL
        THEN format(' AND array_remove(p.ids, %L::%s) = ''{}''', in_key, reg.key_type) ELSE '' END) USING places;
    IF in_key IS NOT NULL THEN
        EXECUTE format('UPDATE %1$s AS p SET ids = array_remove(p.ids, %2$L::%3$s) WHERE p.ctid = ANY ($1)',
            queue, in_key, reg.key_type) USING places;
    END IF;
END
$_$;

CREATE FUNCTION tube.tube_private_repartition(tube text, partitions integer) RETURNS void
    LANGUAGE plpgsql
    AS $_$
BEGIN
    PERFORM tube_private_end_terms(tube, NULL, 'repartitioned');
    UPDATE tube_registry AS r SET partitions = $2,
        generation = r.generation + 1, version = r.version + 1, last_epoch = r.last_epoch + 1
    WHERE r.tube = $1;
    PERFORM tube_private_free_partitions(tube);
END
$_$;

CREATE FUNCTION tube.tube_private_repartition_outbox(outbox text, partitions integer) RETURNS void
    LANGUAGE plpgsql
    AS $_$
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = outbox AND r.partitions <> $2;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM FROM tube_registry AS r WHERE r.tube = outbox AND r.partitions <> $2 FOR UPDATE;
    IF FOUND THEN
        PERFORM tube_private_repartition(outbox, partitions);
        IF NOT tube_private_fit_index(outbox) THEN
            RAISE NOTICE USING MESSAGE = format('outbox %L has no index for its %s partitions yet', outbox, partitions),
                HINT = format('Outside of a transaction, run what outbox_index_sql(%L, %s) gives, until it gives NULL.',
                    outbox, partitions);
        END IF;
    END IF;
END
$_$;

CREATE FUNCTION tube.tube_private_require(name text, kind text DEFAULT 'tube'::text) RETURNS tube.tube_registry
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    reg tube_registry;
BEGIN
    SELECT r.* INTO reg FROM tube_registry AS r WHERE r.tube = name;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU102',
            MESSAGE = format('there is no %s %s', CASE kind WHEN 'any' THEN 'tube or outbox' ELSE kind END, quote_nullable(name)),
            HINT = (SELECT coalesce('There are: ' || string_agg(quote_literal(r.tube), ', ' ORDER BY r.tube) || '.',
                'There are none yet: ' || CASE $2 WHEN 'any' THEN 'tube_ensure_exists and outbox_ensure_exists make some.'
                    ELSE $2 || '_ensure_exists makes one.' END)
                FROM tube_registry AS r WHERE $2 IN ('any', r.kind));
    ELSIF kind NOT IN ('any', reg.kind) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU111', MESSAGE = format('%L is %s, not %s', name,
                CASE reg.kind WHEN 'tube' THEN 'a tube' ELSE 'an outbox' END, CASE kind WHEN 'tube' THEN 'a tube' ELSE 'an outbox' END),
            HINT = CASE reg.kind WHEN 'tube' THEN 'Functions whose names begin with tube_ are for tubes.'
                ELSE 'Functions whose names begin with outbox_ are for outboxes.' END;
    END IF;
    RETURN reg;
END
$_$;

CREATE FUNCTION tube.tube_private_require_main(tube text) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(tube);
BEGIN
    IF reg.companion_of IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU112',
            MESSAGE = format('tube %L is a companion of tube %L: it is not a document, and has no companions', tube, reg.companion_of),
            HINT = format('Name the tube of the document: %L.', reg.companion_of);
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_require_outbox(outbox text) RETURNS tube.tube_outbox
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    box tube_outbox;
BEGIN
    SELECT o.* INTO box FROM tube_outbox AS o WHERE o.outbox = tube_private_require_outbox.outbox;
    IF NOT FOUND THEN
        PERFORM tube_private_require(outbox, 'outbox');
    END IF;
    RETURN box;
END
$$;

CREATE FUNCTION tube.tube_private_rescue_links(gone tube.tube_attachment) RETURNS void
    LANGUAGE plpgsql
    AS $_$
DECLARE
    main CONSTANT text := (
        SELECT m.tube FROM tube_registry AS r JOIN tube_registry AS m ON m.tube = r.companion_of
        WHERE r.tube = gone.tube AND m.declared IS NOT NULL);
    waits boolean;
BEGIN
    IF main IS NULL THEN
        RETURN;
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM %s AS q WHERE q.shard BETWEEN $1 AND $2 AND q.ids <> ''{}'')'
        ' OR EXISTS (SELECT FROM tube_parked AS k WHERE k.tube = $3 AND k.shard BETWEEN $1 AND $2)', tube_private_qualify(gone.tube))
    INTO waits USING gone.shard, gone.shard + (gone.shards - 1), gone.tube;
    IF waits OR current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        PERFORM tube_private_resync_documents(main, coalesce(tube_private_table_name(gone.tbl), gone.tbl::oid::text));
        RAISE WARNING 'a backfill of all documents of tube % is asked for: % is detached from tube %, where changes of it wait',
            quote_literal(main), gone.tbl, quote_literal(gone.tube);
    END IF;
END
$_$;

CREATE FUNCTION tube.tube_private_resync(tube text, name text, table_name text, shard integer, shards integer, rows_went boolean, companion_of text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $_$
DECLARE
    att CONSTANT tube_attachment := (SELECT a FROM tube_attachment AS a WHERE a.trigger_function = name AND a.tube = $1);
    root CONSTANT text := coalesce((
        SELECT tube_private_table_name(a.tbl) FROM tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl
        WHERE a.tube = $1 AND a.shard = $4 ORDER BY a.position LIMIT 1), table_name);
BEGIN
    IF companion_of IS NOT NULL THEN
        PERFORM tube_private_resync_documents(companion_of, table_name);
        RETURN;
    ELSIF rows_went AND att.as_root IS NOT false THEN
        -- The transaction has its id before it draws a seq, as where a tube's own are drawn.
        PERFORM tube_private_put_control_pods(tube, 'B', jsonb_build_object('type', 'sweep', 'start_seq',
                CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('tube_seq') END::text),
            ARRAY(SELECT generate_series(shard, shard + (shards - 1))));
        RETURN;
    END IF;
    PERFORM tube_private_ask_once(tube, shard, root, att.id_col);
END
$_$;

CREATE FUNCTION tube.tube_private_resync_documents(tube text, table_name text) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    root record;
BEGIN
    FOR root IN
        SELECT DISTINCT ON (a.shard) a.shard, tube_private_table_name(a.tbl) AS name, a.id_col
        FROM tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl
        WHERE a.tube = tube_private_resync_documents.tube ORDER BY a.shard, a.position
    LOOP
        PERFORM tube_private_ask_once(tube, root.shard, root.name, root.id_col);
    END LOOP;
    IF NOT FOUND AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        PERFORM tube_private_ask_once(tube, 0, table_name, NULL);
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_role(kind text) RETURNS name
    LANGUAGE sql IMMUTABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    RETURN ((('tube'::text || '_'::text) || kind))::name;

CREATE FUNCTION tube.tube_private_role_sql(role oid) RETURNS text
    LANGUAGE sql STABLE
    AS $$ SELECT CASE role WHEN 0 THEN 'PUBLIC' ELSE role::regrole::text END $$;

CREATE FUNCTION tube.tube_private_routines(att tube.tube_attachment) RETURNS TABLE(routine oid, name text, signature text)
    LANGUAGE sql STABLE
    AS $_$
    SELECT p.oid, format('%I.%I', tube_private_capture_schema(), p.proname), (pg_identify_object('pg_proc'::regclass, p.oid, 0)).identity
    FROM pg_proc AS p
    WHERE p.pronamespace = (SELECT to_regnamespace(quote_ident(tube_private_capture_schema())))
        AND (p.proname = att.trigger_function OR p.proname ~ ('_passes' || right(att.trigger_function, 9) || '_[0-9a-f]{12}$'))
$_$;

CREATE FUNCTION tube.tube_private_row_body(att tube.tube_attachment) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $_$
BEGIN
    RETURN tube_private_fill($template$
    IF TG_LEVEL OPERATOR(pg_catalog.=) 'ROW' THEN
        PERFORM <put>(k.op, ARRAY[k.id])
        FROM (
            SELECT x.id, <op_of_sides> AS op
            FROM (
                SELECT <old_id> AS id, 1 AS side WHERE TG_OP OPERATOR(pg_catalog.<>) 'INSERT' AND <old_passes>
                UNION ALL
                SELECT <new_id>, 2 WHERE TG_OP OPERATOR(pg_catalog.<>) 'DELETE' AND <new_passes>
            ) AS x
            GROUP BY x.id
        ) AS k
        WHERE k.op OPERATOR(pg_catalog.<>) 'U' OR TG_OP OPERATOR(pg_catalog.<>) 'UPDATE' OR <changed>;
        RETURN NULL;
    END IF;$template$, jsonb_build_object(
        'put', tube_private_function(att, 'put'),
        'op_of_sides', tube_private_op_of_sides(),
        'old_id', tube_private_id_sql(att, 'OLD'),
        'new_id', tube_private_id_sql(att, 'NEW'),
        'old_passes', tube_private_passes_sql(att, 'OLD'),
        'new_passes', tube_private_passes_sql(att, 'NEW'),
        'changed', CASE WHEN att.columns IS NULL THEN 'true' ELSE format('(SELECT ROW(%s)) OPERATOR(pg_catalog.*<>) (SELECT ROW(%s))',
            (SELECT string_agg(format('OLD.%I', c), ', ') FROM unnest(att.columns) AS c),
            (SELECT string_agg(format('NEW.%I', c), ', ') FROM unnest(att.columns) AS c)) END));
END
$_$;

CREATE FUNCTION tube.tube_private_rows_estimate(tbl regclass) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
    SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint FROM pg_class AS c
    WHERE c.relkind <> 'p' AND c.oid IN (SELECT tbl::oid UNION SELECT t.relid FROM pg_partition_tree(tbl) AS t)
$$;

CREATE FUNCTION tube.tube_private_run_owner_ddl(statements text[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    SET "DateStyle" TO 'ISO'
    SET "IntervalStyle" TO 'iso_8601'
    SET quote_all_identifiers TO 'off'
    SET client_min_messages TO 'warning'
    AS $$
DECLARE
    statement text;
BEGIN
    FOREACH statement IN ARRAY statements LOOP
        EXECUTE statement;
    END LOOP;
END
$$;

CREATE FUNCTION tube.tube_private_schema() RETURNS name
    LANGUAGE sql IMMUTABLE
    RETURN 'tube'::name;

CREATE FUNCTION tube.tube_private_see_ddl(tag text) RETURNS text[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET quote_all_identifiers TO 'off'
    AS $$
DECLARE
    rels oid[];
    att tube_attachment;
    capture record;
    statements text[];
    come oid[];
BEGIN
    -- Of a new table just its parent can be attached; looking up the new object costs more than seeing that no table is.
    IF tag <> 'ALTER TABLE' AND NOT EXISTS (
        SELECT FROM tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl WHERE c.relkind = 'p')
    THEN
        RETURN NULL;
    END IF;
    rels := ARRAY(
        SELECT d.objid FROM pg_event_trigger_ddl_commands() AS d
        WHERE d.classid = 'pg_class'::regclass AND d.schema_name <> 'pg_temp');
    FOR att IN
        SELECT a.* FROM tube_attachment AS a
        WHERE rels <> '{}' AND (a.tbl = ANY (rels) OR a.members && rels
            OR a.members && ARRAY(SELECT i.inhparent FROM pg_inherits AS i WHERE i.inhrelid = ANY (rels)))
    LOOP
        IF tube_wakes() AND tube_private_may_notify() THEN
            PERFORM pg_notify(tube_channel(att.tube), 'ddl');
        END IF;
        SELECT c.relkind, p.proowner = c.relowner AS is_owners, p.prosecdef INTO capture
        FROM pg_class AS c JOIN pg_proc AS p ON p.oid = att.captured_by WHERE c.oid = att.tbl;
        IF NOT capture.is_owners THEN
            BEGIN
                PERFORM tube_private_drop_strangers(att.tube, att.tbl);
            EXCEPTION WHEN OTHERS THEN
                RAISE WARNING 'pytube follows this change later, by tube_sync: %', SQLERRM;
            END;
        ELSIF capture.relkind = 'p' AND capture.prosecdef THEN
            SELECT statements || array_agg(t.statement), array_agg(t.rel::oid) FILTER (
                WHERE tube_private_is_fresh(t.rel) AND (SELECT k.relkind = 'r' FROM pg_class AS k WHERE k.oid = t.rel))
            INTO statements, come
            FROM tube_private_trigger_ddl(att) AS t
            WHERE t.rel <> att.tbl AND t.rel::oid <> ALL (att.members) AND t.statement !~ '^DROP ';
            -- Partitions with triggers since they were made, and never a row, can't have missed changes. Where
            -- the triggers can't be made, this is rolled back, too.
            UPDATE tube_attachment AS a SET members = ARRAY(SELECT DISTINCT m FROM unnest(a.members || come) AS m ORDER BY m)
            WHERE a.tube = att.tube AND a.tbl = att.tbl AND come IS NOT NULL;
        END IF;
    END LOOP;
    RETURN statements;
END
$$;

CREATE FUNCTION tube.tube_private_see_rewrite() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    rewritten CONSTANT oid := pg_event_trigger_table_rewrite_oid();
    warned jsonb;
    att tube_attachment;
    key text;
BEGIN
    -- 2 and 4: a default that is not a constant, and another type; else the rows stay as they were.
    IF pg_event_trigger_table_rewrite_reason() & 6 = 0 THEN
        RETURN;
    END IF;
    warned := coalesce(nullif(current_setting('pytube.rewritten', true), ''), '[]'); -- anybody may have set it to anything
    FOR att IN SELECT a.* FROM tube_attachment AS a WHERE a.tbl = rewritten OR rewritten = ANY (a.members) LOOP
        key := format('%s of %s', att.tbl::oid, att.tube);
        CONTINUE WHEN warned ? key;
        warned := warned || to_jsonb(key);
        RAISE WARNING USING
            MESSAGE = format('all rows of %s are rewritten, without touches in tube %L', att.tbl, att.tube),
            HINT = format('If that changes documents, backfill them afterwards: '
                'pytube backfill start --tube %s --table %s', quote_ident(att.tube), att.tbl);
    END LOOP;
    PERFORM set_config('pytube.rewritten', warned::text, true);
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'pytube can''t say whether this change calls for a backfill: %', SQLERRM;
END
$$;

CREATE FUNCTION tube.tube_private_set_flag() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    of_tube CONSTANT text := CASE TG_OP WHEN 'DELETE' THEN OLD.tube ELSE NEW.tube END;
    flag CONSTANT regclass := (
        SELECT to_regclass(format('%I.tube_sleeps_%s', tube_private_schema(), r.number))
        FROM tube_registry AS r WHERE r.tube = of_tube);
BEGIN
    IF flag IS NULL THEN
        RETURN NULL; -- the tube is being dropped
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(tube_private_schema() || ' sleeps ' || of_tube, 0));
    PERFORM setval(flag, CASE WHEN TG_OP <> 'DELETE' OR EXISTS (SELECT FROM tube_sleeper AS s WHERE s.tube = of_tube)
        THEN 2 ELSE 1 END);
    RETURN NULL;
END
$$;

CREATE FUNCTION tube.tube_private_set_predicate(tube text, predicate text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
#variable_conflict use_variable
DECLARE
    wanted CONSTANT text := nullif(btrim(predicate, E' \t\r\n'), '');
BEGIN
    PERFORM tube_private_parse_predicate(tube, wanted);
    UPDATE tube_registry AS r SET predicate = wanted, version = r.version + 1
    WHERE r.tube = tube AND r.kind = 'tube' AND predicate IS NOT NULL AND r.predicate IS DISTINCT FROM wanted;
    IF FOUND THEN
        PERFORM tube_private_store(w, 'ordered') FROM tube_private_attachments_with(tube, wanted) AS w;
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_shard_expression(id text, att tube.tube_attachment, of_row boolean DEFAULT true) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT CASE WHEN att.shards = 1 THEN att.shard::text
        ELSE format('%I.tube_shard_of(%s, %s, %s)', tube_private_schema(), CASE WHEN att.shard_place IS NULL THEN id
            WHEN of_row THEN format('(%s::pg_catalog.json OPERATOR(pg_catalog.->) %s)::pg_catalog.text', id, att.shard_place)
            ELSE format('%I.tube_key_part(%s, %s)', tube_private_schema(), id, att.shard_place) END, att.shard, att.shards) END
$$;

CREATE FUNCTION tube.tube_private_slices(tube text, partitions integer, partition integer, OUT pods text, OUT slices text[]) RETURNS record
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    cut integer;
    parts integer[];
BEGIN
    pods := format('(shard %% %s) = %s', partitions, coalesce(partition::text, 'in_partition'));
    slices := ARRAY[pods];
    IF partition IS NULL OR tube_private_index_of(tube, partitions) IS NOT NULL THEN -- nearly always
        RETURN;
    END IF;
    PERFORM tube_private_require(tube); -- an outbox never has this index, and no pods
    SELECT i.partitions INTO cut FROM tube_private_indexes(tube) AS i
    WHERE i.valid
    ORDER BY lcm(i.partitions, tube_private_slices.partitions), i.partitions DESC LIMIT 1;
    IF cut <> partitions THEN
        parts := ARRAY(SELECT generate_series(partition % gcd(cut, partitions), cut - 1, gcd(cut, partitions)));
        slices := ARRAY(SELECT format('(shard %% %s) = %s AND %s', cut, s.part, pods) FROM unnest(parts) AS s (part));
        pods := CASE WHEN cardinality(slices) = 1 THEN slices[1]
            ELSE format('(shard %% %s) = ANY (%L) AND %s', cut, parts, pods) END;
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_some_keys(keys text[]) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $_$
    SELECT coalesce(jsonb_agg(left(k.key, 100) ORDER BY k.place), '[]')
    FROM unnest($1[:10]) WITH ORDINALITY AS k (key, place)
$_$;

CREATE FUNCTION tube.tube_private_source(OUT system_identifier bigint, OUT timeline integer, OUT sequence oid) RETURNS record
    LANGUAGE plpgsql
    AS $$
BEGIN
    sequence := to_regclass(format('%I.tube_seq', tube_private_schema()));
    BEGIN
        system_identifier := (SELECT c.system_identifier FROM pg_control_system() AS c);
    EXCEPTION WHEN OTHERS THEN
        system_identifier := NULL;
    END;
    IF NOT pg_is_in_recovery() THEN
        BEGIN
            -- Not that of pg_control_checkpoint(), which is the old one until the first checkpoint after a promotion.
            timeline := ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer;
        EXCEPTION WHEN OTHERS THEN
            timeline := NULL;
        END;
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_source_change(seen_seq bigint, last_seq bigint) RETURNS text
    LANGUAGE sql
    AS $$
    SELECT nullif(concat_ws('; ',
        CASE WHEN seen_seq > last_seq
            THEN format('tube_seq is at %s, and a worker had read seq %s', last_seq, seen_seq) END,
        CASE WHEN n.system_identifier <> k.system_identifier
            THEN format('another server: system identifier %s, before %s', n.system_identifier, k.system_identifier) END,
        CASE WHEN n.timeline <> k.timeline AND n.system_identifier IS NOT DISTINCT FROM k.system_identifier
            THEN format('timeline %s, before %s', n.timeline, k.timeline) END,
        CASE WHEN n.sequence <> k.sequence THEN 'restored from a dump' END), '')
    FROM tube_private_source() AS n LEFT JOIN tube_source AS k ON true
$$;

CREATE FUNCTION tube.tube_private_stale_attachments() RETURNS SETOF tube.tube_attachment
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
    SELECT a.* FROM tube_attachment AS a, tube_private_attachment_now(a) AS now
    WHERE now IS DISTINCT FROM a
        OR a.waiting IS NOT NULL
        OR a.members IS DISTINCT FROM tube_private_member_oids(a.tbl)
        OR a.as_root IS DISTINCT FROM tube_private_is_root(a)
        OR EXISTS (SELECT FROM tube_private_owner_ddl(now, false))
        OR EXISTS (SELECT FROM tube_private_our_ddl(now))
        -- What tube_private_drop_routines drops; all at once, as pg_proc has no index for that.
        OR (a.tube, a.tbl) IN (
            SELECT b.tube, b.tbl FROM tube_attachment AS b JOIN pg_class AS c ON c.oid = b.tbl
            JOIN pg_proc AS p ON substring(p.proname FROM '_(?:capture|passes)_([0-9a-f]{8})(?:_[0-9a-f]{12})?$') = right(b.trigger_function, 8)
            WHERE p.pronamespace = to_regnamespace(quote_ident(tube_private_capture_schema())) AND p.proowner <> c.relowner
                AND (p.proname = b.trigger_function OR p.proname ~ '_passes_[0-9a-f]{8}_[0-9a-f]{12}$'))
    ORDER BY a.tube, a.position
$_$;

CREATE FUNCTION tube.tube_private_stash(outbox text, topics text[], keys text[], bodies anyarray, headers jsonb, partition_keys text[], in_order boolean) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    box CONSTANT record := tube_private_outbox_target(outbox);
    given CONSTANT text := CASE pg_typeof(bodies) WHEN 'bytea[]'::regtype THEN 'bytea' ELSE 'text' END;
    body CONSTANT text := CASE
        WHEN given = box.value_type THEN 'm.body'
        WHEN given = 'text' THEN 'convert_to(m.body, ''UTF8'')'
        ELSE 'convert_from(m.body, ''UTF8'')' END;
    ids bigint[];
BEGIN
    PERFORM tube_private_check_messages(cardinality(topics), cardinality(keys), cardinality(bodies), headers,
        cardinality(partition_keys), (SELECT t.topic FROM (SELECT DISTINCT unnest(topics)) AS t (topic)
            WHERE (t.topic ~ '^[A-Za-z0-9._-]{1,249}$' AND t.topic NOT IN ('.', '..')) IS NOT TRUE LIMIT 1),
        topics IS NULL OR bodies IS NULL OR array_position(topics, NULL) IS NOT NULL,
        box.adopted AND EXISTS (SELECT FROM unnest(partition_keys) AS p (key) WHERE p.key IS NOT NULL));
    IF in_order THEN
        PERFORM pg_advisory_xact_lock(box.locks + l.lock)
        FROM (
            SELECT DISTINCT hashtextextended(concat(m.topic, chr(31), coalesce(m.partition_key, m.key)), 0) & 1023 AS lock
            FROM unnest(topics, keys, partition_keys) AS m (topic, key, partition_key)
            WHERE coalesce(m.partition_key, m.key) IS NOT NULL
            ORDER BY 1 OFFSET 0
        ) AS l;
    END IF;
    EXECUTE format($sql$
        WITH stashed AS (
            INSERT INTO %s (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values%s)
            SELECT clock_timestamp(), m.topic, m.key, %s,
                CASE jsonb_typeof(m.headers)
                    WHEN 'object' THEN ARRAY(SELECT h.key FROM jsonb_each_text(m.headers) AS h)
                    WHEN 'array' THEN ARRAY(SELECT h.pair ->> 0 FROM jsonb_array_elements(m.headers) WITH ORDINALITY
                        AS h (pair, place) ORDER BY h.place)
                    ELSE '{}' END,
                CASE jsonb_typeof(m.headers)
                    WHEN 'object' THEN ARRAY(SELECT h.value FROM jsonb_each_text(m.headers) AS h)
                    WHEN 'array' THEN ARRAY(SELECT h.pair ->> 1 FROM jsonb_array_elements(m.headers) WITH ORDINALITY
                        AS h (pair, place) ORDER BY h.place)
                    ELSE '{}' END%s
            FROM ROWS FROM (unnest($1, $2, $3, $4), jsonb_array_elements($5)) WITH ORDINALITY
                AS m (topic, key, body, partition_key, headers, place)
            ORDER BY m.place
            RETURNING id
        )
        SELECT array_agg(s.id ORDER BY s.id) FROM stashed AS s$sql$, box.tbl,
        CASE WHEN box.adopted THEN '' ELSE ', partition_key' END, body,
        CASE WHEN box.adopted THEN '' ELSE ', m.partition_key' END)
    INTO ids USING topics, keys, bodies, partition_keys, headers;
    RETURN coalesce(ids, '{}');
END
$_$;

CREATE FUNCTION tube.tube_private_stash_one(outbox text, topic text, key text, value anyelement, headers jsonb, partition_key text, in_order boolean) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    box CONSTANT record := tube_private_outbox_target(outbox);
    names text[] := '{}';
    contents text[] := '{}';
    id bigint;
BEGIN
    IF in_order OR jsonb_typeof(headers) <> 'object' OR box.adopted
        OR (topic ~ '^[A-Za-z0-9._-]{1,249}$' AND topic NOT IN ('.', '..')) IS NOT TRUE
    THEN
        RETURN (tube_private_stash(outbox, ARRAY[topic], ARRAY[key], ARRAY[value], jsonb_build_array(headers),
            ARRAY[partition_key], in_order))[1];
    END IF;
    IF headers <> '{}' THEN
        SELECT array_agg(h.key), array_agg(h.value) INTO names, contents FROM jsonb_each_text(headers) AS h;
    END IF;
    EXECUTE format('INSERT INTO %s (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values,'
        ' partition_key) VALUES (clock_timestamp(), $1, $2, %s, $4, $5, $6) RETURNING id', box.tbl, CASE
            WHEN pg_typeof(value)::text = box.value_type THEN '$3'
            WHEN box.value_type = 'bytea' THEN 'convert_to($3, ''UTF8'')'
            ELSE 'convert_from($3, ''UTF8'')' END)
    INTO id USING topic, key, value, names, contents, partition_key;
    RETURN id;
END
$_$;

CREATE FUNCTION tube.tube_private_stats_class(reg tube.tube_registry, partition integer, class integer, most integer, OUT pods integer, OUT since timestamp with time zone, OUT min_seq bigint, OUT min_ts timestamp with time zone, OUT max_seq bigint, OUT max_ts timestamp with time zone) RETURNS record
    LANGUAGE plpgsql
    AS $_$
DECLARE
    -- Several slices, since its index is of before.
    first_ones CONSTANT text := (
        SELECT string_agg(format('(SELECT seq, ts FROM %s WHERE (CASE WHEN op = ''B'' THEN 1 ELSE 0 END) = %s AND %s'
            ' AND (payload IS NULL OR ids <> ''{}'') ORDER BY seq%%1$s LIMIT %%2$s)',
            replace(tube_private_qualify(reg.tube), '%', '%%'), class, replace(s.slice, '%', '%%')), ' UNION ALL ')
        FROM unnest((tube_private_slices(reg.tube, reg.partitions, partition)).slices) AS s (slice));
BEGIN
    EXECUTE format('SELECT count(*) FROM (SELECT FROM (' || first_ones || ') AS p LIMIT %2$s) AS n', '', most) INTO pods;
    EXECUTE format('SELECT p.seq, p.ts, p.ts FROM (' || first_ones || ') AS p ORDER BY p.seq LIMIT 1', '', 1)
    INTO min_seq, min_ts, since;
    EXECUTE format('SELECT p.seq, p.ts FROM (' || first_ones || ') AS p ORDER BY p.seq DESC LIMIT 1', ' DESC', 1)
    INTO max_seq, max_ts;
END
$_$;

CREATE FUNCTION tube.tube_private_stats_controls_sql(reg tube.tube_registry) RETURNS text
    LANGUAGE sql STABLE
    AS $_$
    SELECT format($sql$
        SELECT array_agg(c.counts ORDER BY n.partition)
        FROM generate_series(0, %s) AS n (partition), LATERAL (
            SELECT coalesce(string_agg(coalesce(t.type, 'other') || ':' || t.pods, ' ' ORDER BY t.type), '0') AS counts
            FROM (
                SELECT f.type, count(*) AS pods
                FROM (
                    SELECT p.payload ->> 'type' AS type FROM %s AS p
                    -- Written so that the index of all pods does not serve, but that of control pods.
                    WHERE p.payload IS NOT NULL AND p.ids = '{}' AND (p.shard %% %s) + 0 = n.partition LIMIT 10000
                ) AS f
                GROUP BY f.type
            ) AS t
        ) AS c$sql$, reg.partitions - 1, tube_private_qualify(reg.tube), reg.partitions)
$_$;

CREATE FUNCTION tube.tube_private_stats_estimates(reg tube.tube_registry) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $_$
DECLARE
    pods CONSTANT text := tube_private_qualify(reg.tube);
    last_slice CONSTANT integer := reg.partitions * 2 - 1;
    cuts bigint[];
    spans bigint[];
    counts bigint[];
BEGIN
    IF EXISTS (SELECT FROM tube_private_indexes(reg.tube) AS i WHERE i.partitions = reg.partitions AND i.valid) THEN
        EXECUTE format($sql$
            SELECT array_agg(f.page) || array_agg(l.page + 1), array_agg(l.seq - f.seq + 1 ORDER BY n.slice)
            FROM generate_series(0, %1$s) AS n (slice)
            LEFT JOIN LATERAL (SELECT p.seq, (p.ctid::text::point)[0]::bigint AS page %2$s LIMIT 1) AS f ON true
            LEFT JOIN LATERAL (SELECT p.seq, (p.ctid::text::point)[0]::bigint AS page %2$s DESC LIMIT 1) AS l ON true$sql$,
            last_slice, tube_private_class_sql(reg)) INTO cuts, spans;
    END IF;
    EXECUTE format($sql$
        SELECT array_agg(coalesce(c.pods, 0) ORDER BY n.slice)
        FROM generate_series(0, %s) AS n (slice)
        LEFT JOIN (
            SELECT (s.shard %% %s) * 2 + CASE WHEN s.op = 'B' THEN 1 ELSE 0 END AS slice, round(sum(s.weight))::bigint AS pods
            FROM (%s) AS s GROUP BY 1
        ) AS c ON c.slice = n.slice$sql$, last_slice, reg.partitions, (
            SELECT coalesce(string_agg(format('SELECT %s::float8 AS weight, p.shard, p.op FROM %s AS p WHERE p.ctid >= ''(%s,0)'''
                ' AND p.ctid < ''(%s,0)'' AND (p.payload IS NULL OR p.ids <> ''{}'')', r.weight, pods, r.low, r.high),
                ' UNION ALL '), 'SELECT 0::float8 AS weight, 0 AS shard, ''U'' AS op')
            FROM tube_private_page_runs(pods, cuts) AS r)) INTO counts;
    RETURN ARRAY(
        SELECT least(c.pods, spans[c.slice]) FROM unnest(counts) WITH ORDINALITY AS c (pods, slice) ORDER BY c.slice);
END
$_$;

CREATE FUNCTION tube.tube_private_stats_shards(reg tube.tube_registry, partition integer, OUT shards integer, OUT list text) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    most CONSTANT integer := 10;
    total bigint;
BEGIN
    WITH range AS (
        -- The first shard of each table's range that falls into the partition, and how many do.
        SELECT f.first, greatest(0, (f.behind - f.first + reg.partitions - 1) / reg.partitions) AS shards
        FROM (
            SELECT a.shard::bigint + (partition - a.shard % reg.partitions + reg.partitions) % reg.partitions AS first,
                a.shard::bigint + a.shards AS behind
            FROM tube_attachment AS a
            WHERE a.tube = reg.tube AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = a.tbl)
        ) AS f
    ), once AS (
        SELECT DISTINCT r.first, r.shards FROM range AS r
    ), shown AS (
        SELECT o.first + n * reg.partitions AS shard FROM once AS o, generate_series(0, least(o.shards, most) - 1) AS n
        ORDER BY 1 LIMIT most
    )
    SELECT (SELECT least(2147483647, coalesce(sum(r.shards), 0)) FROM range AS r),
        (SELECT string_agg(s.shard::text, ',' ORDER BY s.shard) FROM shown AS s), (SELECT sum(o.shards) FROM once AS o)
    INTO shards, list, total;
    IF total > most THEN
        list := list || format(',... (%s)', total);
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_store(att tube.tube_attachment, mode text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET quote_all_identifiers TO 'off'
    AS $$
DECLARE
    old CONSTANT tube_attachment := (SELECT a FROM tube_attachment AS a WHERE a.tube = att.tube AND a.tbl = att.tbl);
    missing record;
    is_complete boolean;
    fits boolean;
BEGIN
    PERFORM tube_private_close_capture();
    IF mode = 'late' THEN
        fits := att.row_filter IS NOT NULL;
        att := tube_private_attachment_now(old);
        att.row_filter := CASE WHEN fits THEN att.row_filter END;
        IF att.tube IS NULL THEN
            RETURN;
        END IF;
    END IF;
    att := tube_private_with_columns(tube_private_with_names(att));
    att.as_root := tube_private_is_root(att);
    -- A partition may be another role's: its missing triggers are reported, and do not count as the owner's refusal.
    SELECT d.*, bool_and(mode = 'late' AND coalesce(d.rel <> att.tbl, false)) OVER () AS elsewhere INTO missing
    FROM tube_private_owner_ddl(att, false) WITH ORDINALITY AS d ORDER BY d.ordinality LIMIT 1;
    is_complete := coalesce(missing.elsewhere, true);
    PERFORM tube_private_ask_owner(att, missing.statement, missing.rel, mode = 'late')
    WHERE missing.statement IS NOT NULL;
    IF old.tube IS NULL THEN
        INSERT INTO tube_attachment (tube, tbl, shard, id_col, trigger_function)
        VALUES (att.tube, att.tbl, att.shard, att.id_col, att.trigger_function);
    END IF;
    IF is_complete THEN
        att.captured_by := to_regprocedure(tube_private_function(att, 'capture') || '()');
        UPDATE tube_attachment AS a
        SET shard = att.shard, shards = att.shards, id_col = att.id_col, key_cols = att.key_cols, shard_place = att.shard_place, row_filter = att.row_filter, misfit = att.misfit,
            columns = att.columns, replica = att.replica, as_root = att.as_root, touch_name = att.touch_name,
            seen_oid = att.seen_oid, seen_attnums = att.seen_attnums, seen_names = att.seen_names, seen_types = att.seen_types, captured_by = att.captured_by
        WHERE a.tube = att.tube AND a.tbl = att.tbl;
        IF (att.shard, att.shards, att.shard_place) IS DISTINCT FROM (old.shard, old.shards, old.shard_place) THEN
            UPDATE tube_attachment AS a SET position = DEFAULT WHERE a.tube = old.tube AND a.tbl = old.tbl
                AND (att.shard, att.shards) <> (old.shard, old.shards);
            PERFORM tube_private_provide_touch(att), tube_private_follow_root(att.tube, old.shard);
        END IF;
        IF att.captured_by <> old.captured_by AND att.seen_oid = old.seen_oid THEN
            PERFORM tube_private_ask_backfill(att, format('%s was not captured for a while, as its owner changed', att.tbl));
        END IF;
        UPDATE tube_registry AS r SET version = r.version + 1 WHERE r.tube = att.tube
            AND tube_private_key_names(att) <> tube_private_key_names(old);
        PERFORM tube_private_follow_types(old, att);
    END IF;
    PERFORM tube_private_follow_members(att, old.members, old.waiting);
END
$$;

CREATE FUNCTION tube.tube_private_store_pod(backfill_id bigint, place bigint, shard integer, ids anyarray) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
BEGIN
    PERFORM tube_private_check_ids(ids);
    IF NOT tube_private_holds_backfill(backfill_id) THEN
        PERFORM tube_private_lock_backfill(backfill_id, held => true); -- raises TU122 or TU123
    END IF;
    EXECUTE format('INSERT INTO %s (place, shard, ids) VALUES ($1, $2, $3)',
        tube_private_qualify('tube_backfill_ids_' || backfill_id)) USING place, shard, ids;
END
$_$;

CREATE FUNCTION tube.tube_private_table_fault(tbl regclass, member boolean DEFAULT false) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT CASE
        WHEN n.nspname IN ('pg_catalog', 'information_schema', 'pg_toast') THEN 'it is a catalogue'
        WHEN n.nspname IN (tube_private_schema(), tube_private_capture_schema()) THEN 'it is one of pytube''s own'
        WHEN c.relkind = 'v' THEN 'it is a view'
        WHEN c.relkind = 'm' THEN 'it is a materialized view'
        WHEN c.relkind = 'f' THEN 'it is a foreign table'
        WHEN c.relkind NOT IN ('r', 'p') THEN 'it is not a table'
        WHEN c.relpersistence = 't' THEN 'it is a temporary table'
        WHEN member THEN NULL
        WHEN c.relispartition THEN format('it is a partition of %s', pg_partition_root(tbl))
        WHEN c.relkind = 'p' THEN NULL
        WHEN EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhparent = tbl) THEN 'other tables inherit from it'
        WHEN EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhrelid = tbl) THEN 'it inherits from another table'
    END
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = tbl
$$;

CREATE FUNCTION tube.tube_private_table_name(tbl oid) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = tbl
$$;

CREATE FUNCTION tube.tube_private_table_touch_body(tbl regclass, key_type regtype) RETURNS text
    LANGUAGE sql STABLE
    AS $_$
    SELECT E'\n-- Made by tube_private_table_touch_body.\nBEGIN\n    PERFORM tube_private_check_touch(0, $1, $2, $4);' 
        || string_agg(tube_private_fill($touch$
    PERFORM <touch>(k.shard, k.ids, $2, $3, $4)
    FROM (
        SELECT d.shard, array_agg(d.id ORDER BY d.place) AS ids
        FROM (
            SELECT t.id, t.place, <shard_of> AS shard FROM unnest($1) WITH ORDINALITY AS t (id, place)
        ) AS d
        GROUP BY d.shard ORDER BY d.shard
    ) AS k;
    IF coalesce($1, '{}') = '{}' AND $3 IS NOT NULL THEN
        PERFORM <touch>(<shard> + n, $1, $2, $3, $4) FROM generate_series(0, <last>) AS n;
    END IF;$touch$, jsonb_build_object(
            'touch', tube_private_qualify(tube_private_name(a.tube, '_touch')),
            'shard', a.shard,
            'last', a.shards - 1,
            'shard_of', tube_private_shard_expression('t.id', a, of_row => false))), '' ORDER BY a.tube) || E'\nEND\n'
    FROM tube_attachment AS a WHERE a.tbl = $1 AND tube_private_key_type(a.tube) = $2
$_$;

CREATE FUNCTION tube.tube_private_take_control(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) RETURNS jsonb
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $_$
DECLARE
    payload jsonb;
BEGIN
    EXECUTE format('DELETE FROM %s WHERE payload IS NOT NULL AND ids = ''{}'' AND (shard %% %s) = %s'
        ' AND seq = $1 AND leader_id = $2 AND shard = $3 RETURNING payload', tube_private_qualify(tube), partitions, partition)
    INTO payload USING seq, leader_id, shard;
    RETURN payload;
END
$_$;

CREATE FUNCTION tube.tube_private_take_retries(outbox text, partitions integer, partition integer, records_limit integer, floor bigint) RETURNS bigint[]
    LANGUAGE sql
    AS $_$
    WITH taken AS (
        DELETE FROM tube_outbox_retry AS t
        WHERE t.outbox = $1 AND t.id = ANY (ARRAY(
            SELECT n.id FROM tube_outbox_retry AS n WHERE n.outbox = $1 AND n.id <= $5 AND n.slot % $2 = $3 ORDER BY n.id LIMIT $4))
        RETURNING t.id
    )
    SELECT array_agg(t.id) FROM taken AS t
$_$;

CREATE FUNCTION tube.tube_private_tell_watchers(tube text, partitions integer, partition integer) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(tube_private_watch_lock(tube, partition)) AND tube_private_may_notify() THEN
        PERFORM pg_notify(tube_delivered_channel(tube), concat_ws(' ', partitions, partition,
            coalesce(tube_private_least_seq(tube, partitions, partition), 0)));
    END IF;
END
$$;

CREATE FUNCTION tube.tube_private_touch_ddl(att tube.tube_attachment) RETURNS SETOF text
    LANGUAGE plpgsql STABLE
    AS $_$
DECLARE
    key_type CONSTANT regtype := tube_private_key_type(att.tube);
    inner_name CONSTANT text := tube_private_qualify(att.touch_name);
    rel record;
    there pg_proc;
    outer_ones oid[];
BEGIN
    SELECT c.relowner, n.nspname, n.oid AS schema_oid, tube_private_name(c.relname, '_touch') AS touch_name INTO rel
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = att.tbl;
    -- By the catalog: pytube's owner may not look into the schema.
    SELECT p.* INTO there FROM pg_proc AS p
    WHERE p.pronamespace = rel.schema_oid AND p.proname = rel.touch_name
        AND p.proargtypes::text = concat_ws(' ', to_regtype(key_type || '[]')::oid, 'bpchar'::regtype::oid, 'jsonb'::regtype::oid,
            'integer'::regtype::oid);
    outer_ones := ARRAY(SELECT d.objid FROM pg_depend AS d
        WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_proc'::regclass AND d.refobjid = to_regproc(inner_name));
    RETURN QUERY SELECT format('DROP FUNCTION %s', p.oid::regprocedure) FROM pg_proc AS p
    WHERE p.oid = ANY (outer_ones) AND CASE WHEN p.oid = there.oid THEN p.proowner <> rel.relowner OR p.prosecdef
        ELSE p.proowner IN (rel.relowner, (SELECT k.proowner FROM pg_proc AS k
            WHERE k.oid = to_regprocedure(tube_private_function(att, 'capture') || '()'))) END;
    IF there.oid = ANY (outer_ones) AND there.proowner = rel.relowner AND NOT there.prosecdef THEN
        RETURN;
    ELSIF there.oid IS NOT NULL AND there.oid <> ALL (outer_ones) THEN
        -- Only when it is run: an obstacle for one table must not keep others from being looked at.
        RETURN NEXT format('SELECT %I.tube_private_refuse_touch(%L, %s)', tube_private_schema(), att.tbl, there.oid);
        RETURN;
    END IF;
    RETURN NEXT format('CREATE FUNCTION %I.%I(ids %s[], op char DEFAULT ''T'', payload jsonb DEFAULT NULL,'
        ' chunk_size integer DEFAULT 250) RETURNS void LANGUAGE sql VOLATILE BEGIN ATOMIC SELECT %s($1, $2, $3, $4); END',
        rel.nspname, rel.touch_name, key_type, inner_name);
    RETURN NEXT format('ALTER FUNCTION %I.%I(%s[], character, jsonb, integer) OWNER TO %s',
        rel.nspname, rel.touch_name, key_type, rel.relowner::regrole);
END
$_$;

CREATE FUNCTION tube.tube_private_touch_name(att tube.tube_attachment) RETURNS text
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM tube_private_lock_touch(att.tbl);
    RETURN coalesce(
        (SELECT min(a.touch_name) FROM tube_attachment AS a
        WHERE a.tbl = att.tbl AND tube_private_key_type(a.tube) = tube_private_key_type(att.tube)),
        'tube_touch_' || right(att.trigger_function, 8));
END
$$;

CREATE FUNCTION tube.tube_private_trigger_ddl(att tube.tube_attachment) RETURNS TABLE(statement text, rel regclass)
    LANGUAGE sql STABLE
    AS $$
    SELECT s.statement, t.rel
    FROM (
        SELECT n.*, bool_or(n.is_there) FILTER (WHERE n.place = 5) OVER (PARTITION BY n.rel) AS has_row_trigger
        FROM tube_private_trigger_names(att) AS n
    ) AS t
    LEFT JOIN tube_private_trigger_kinds() AS k USING (place)
    CROSS JOIN LATERAL (VALUES
        (1, NOT t.wanted, format('DROP TRIGGER %I ON %s', t.name, t.rel)),
        (2, t.wanted AND NOT t.is_there, format('CREATE TRIGGER %I ' || k.definition || ' EXECUTE FUNCTION %s()',
            t.name, t.rel, tube_private_function(att, 'capture'))),
        (3, t.wanted AND t.place = 5 AND NOT t.is_there, format('ALTER TABLE ONLY %s ENABLE REPLICA TRIGGER %I', t.rel, t.name)),
        (3, t.wanted AND t.place = 4 AND att.replica AND NOT t.has_row_trigger,
            format('ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER %I', t.rel, t.name))
    ) AS s (place, is_needed, statement)
    WHERE s.is_needed
    ORDER BY t.wanted, t.rel <> att.tbl, t.rel, s.place, t.place
$$;

CREATE FUNCTION tube.tube_private_trigger_kinds() RETURNS TABLE(place integer, ending text, tgtype integer, definition text)
    LANGUAGE sql IMMUTABLE
    AS $$
    VALUES
        (1, '_after_insert_trigger', 4, 'AFTER INSERT ON %s REFERENCING NEW TABLE AS new_table FOR EACH STATEMENT'),
        (2, '_after_update_trigger', 16, 'AFTER UPDATE ON %s REFERENCING OLD TABLE AS old_table NEW TABLE AS new_table FOR EACH STATEMENT'),
        (3, '_after_delete_trigger', 8, 'AFTER DELETE ON %s REFERENCING OLD TABLE AS old_table FOR EACH STATEMENT'),
        (4, '_before_truncate_trigger', 34, 'BEFORE TRUNCATE ON %s FOR EACH STATEMENT'),
        (5, '_after_row_trigger', 29, 'AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW')
$$;

CREATE FUNCTION tube.tube_private_trigger_names(att tube.tube_attachment) RETURNS TABLE(rel regclass, place integer, wanted boolean, is_there boolean, name name)
    LANGUAGE sql STABLE
    AS $$
    SELECT coalesce(w.rel, t.tgrelid::regclass), coalesce(w.place, t.place, 0), w.rel IS NOT NULL, t.tgname IS NOT NULL,
        coalesce(t.tgname, (
            SELECT n.name::name
            FROM pg_class AS c,
                LATERAL (VALUES (1, att.tube), (2, att.tube || '_' || left(md5(att.tube), 8))) AS u (place, tube),
                LATERAL tube_private_name(c.relname || '_' || u.tube, w.ending) AS n (name)
            WHERE c.oid = w.rel
            ORDER BY EXISTS (SELECT FROM pg_trigger AS p WHERE p.tgrelid = w.rel AND p.tgname = n.name), u.place
            LIMIT 1))
    FROM (
        SELECT m.rel, k.place, k.ending
        FROM tube_private_members(att.tbl) AS m, tube_private_trigger_kinds() AS k
        WHERE m.kind <> 'f' AND (k.place <= 3 OR m.kind = 'r' AND (k.place = 4 OR att.replica))
    ) AS w
    FULL JOIN (
        SELECT p.*, k.place
        FROM pg_depend AS d JOIN pg_trigger AS p ON p.oid = d.objid
        LEFT JOIN tube_private_trigger_kinds() AS k ON k.tgtype = p.tgtype
        WHERE d.classid = 'pg_trigger'::regclass AND d.refclassid = 'pg_proc'::regclass
            AND d.refobjid = (SELECT to_regprocedure(tube_private_function(att, 'capture') || '()')) AND p.tgparentid = 0
    ) AS t ON t.tgrelid = w.rel AND t.place = w.place
$$;

CREATE FUNCTION tube.tube_private_try_predicate(att tube.tube_attachment) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
DECLARE
    probe CONSTANT text := format('%I.%I', tube_private_capture_schema(), 'probe_' || gen_random_uuid());
    columns text;
    fault text;
BEGIN
    SELECT string_agg(format('%I %s', c.name, c.bound::regtype), ', ' ORDER BY c.attnum), min(c.fault) INTO columns, fault
    FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c;
    IF fault IS NULL THEN
        BEGIN
            PERFORM set_config('search_path', 'pg_catalog, pg_temp', true); -- of names in the predicate; until this returns
            EXECUTE format('CREATE TABLE %s (%s)', probe, columns);
            EXECUTE format('CREATE INDEX ON %s ((1)) WHERE (', probe) || att.row_filter || E'\n)';
            -- A domain, say, whose CHECK would run with the rights of whoever writes. Functions are not looked for there.
            IF EXISTS (SELECT FROM pg_index AS i
                JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
                JOIN pg_type AS t ON d.refclassid = 'pg_type'::regclass AND t.oid = d.refobjid
                WHERE i.indrelid = probe::regclass AND t.typnamespace = pg_my_temp_schema())
            THEN
                RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', MESSAGE = 'it names a temporary type';
            END IF;
            EXECUTE format('DROP TABLE %s', probe);
            RETURN;
        EXCEPTION WHEN syntax_error_or_access_rule_violation OR data_exception OR feature_not_supported OR program_limit_exceeded THEN
            fault := SQLERRM;
        END;
    END IF;
    PERFORM tube_private_refuse_predicate(att.tube, att.tbl, att.row_filter, fault);
END
$$;

CREATE FUNCTION tube.tube_private_tube_touch_body(tube text) RETURNS text
    LANGUAGE plpgsql
    AS $_$
DECLARE
    key_type CONSTANT regtype := tube_private_key_type(tube);
BEGIN
    RETURN tube_private_fill($template$
#variable_conflict use_column
DECLARE
    touch_shard CONSTANT integer := $1;
    touch_ids CONSTANT <key>[] := coalesce($2, '{}');
    touch_op text := $3;
    touch_chunk CONSTANT integer := $5;
    wrong record;
BEGIN
    PERFORM tube_private_check_touch(touch_shard, touch_ids, touch_op, touch_chunk);
    IF touch_ids = '{}' THEN
        IF $4 IS NULL THEN
            RETURN;
        END IF;
        INSERT INTO <queue> (op, shard, ids, payload) VALUES (touch_op, touch_shard, '{}', $4);
    ELSE
        SELECT t.id, a.shard, a.shards, s.its, a.shard_place INTO wrong FROM tube_attachment AS a, unnest(touch_ids) AS t (id),
            tube_shard_of(<part>, a.shard, a.shards) AS s (its)
        WHERE a.tube = <tube> AND a.shards > 1 AND touch_shard BETWEEN a.shard AND a.shard + (a.shards - 1)
            AND s.its IS DISTINCT FROM touch_shard LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'TU106',
                MESSAGE = format('the id %s is not in the shard %s, but in %s', wrong.id, touch_shard, wrong.its),
                HINT = format('A table is spread over the shards %1$s to %2$s. Touch it by its own touch function, or take the shard '
                    'from tube_shard_of(%4$s, %1$s, %3$s).', wrong.shard, wrong.shard + (wrong.shards - 1), wrong.shards,
                    coalesce(format('tube_key_part(id, %s)', wrong.shard_place), 'id'));
        END IF;
        IF strpos(current_setting('application_name'), 'backfill') > 0 THEN
            touch_op := 'B';
        END IF;
        INSERT INTO <queue> (op, shard, ids, payload)
        SELECT touch_op, touch_shard, array_agg(k.id ORDER BY k.place), $4
        FROM (
            SELECT d.id, d.place, (row_number() OVER (ORDER BY d.place) - 1) / touch_chunk AS chunk
            FROM (
                SELECT t.id<binary> AS id, min(t.place) AS place
                FROM unnest(touch_ids) WITH ORDINALITY AS t (id, place) GROUP BY 1
            ) AS d
        ) AS k
        GROUP BY k.chunk
        ORDER BY k.chunk;
    END IF;
    PERFORM tube_private_wake_sleepers(<tube>, ARRAY[touch_shard]);
END
$template$, jsonb_build_object(
        'key', key_type,
        'binary', CASE key_type WHEN 'text'::regtype THEN ' COLLATE "C"' ELSE '' END,
        'part', CASE key_type WHEN 'text'::regtype THEN 'tube_key_part(t.id, a.shard_place)' ELSE 't.id' END,
        'queue', tube_private_qualify(tube),
        'tube', quote_literal(tube)));
END
$_$;

CREATE FUNCTION tube.tube_private_type_sql(type oid) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT format('%I.%I', n.nspname, t.typname) FROM pg_type AS t JOIN pg_namespace AS n ON n.oid = t.typnamespace WHERE t.oid = type
$$;

CREATE FUNCTION tube.tube_private_wake_sleepers(tube text, touched integer[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
#variable_conflict use_column
BEGIN
    PERFORM pg_notify(tube_channel(p.tube), p.partition::text)
    FROM (
        SELECT s.tube, s.partition, s.partitions FROM tube_sleeper AS s WHERE s.tube = tube_private_wake_sleepers.tube
        UNION
        SELECT r.tube, n, r.partitions FROM tube_registry AS r, generate_series(0, r.partitions - 1) AS n
        WHERE r.tube = tube_private_wake_sleepers.tube
            AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')
    ) AS p
    WHERE tube_wakes() AND (SELECT tube_private_may_notify()) AND (touched IS NULL
        OR EXISTS (SELECT FROM unnest(touched) AS t (shard) WHERE t.shard % p.partitions = p.partition));
END
$$;

CREATE FUNCTION tube.tube_private_warn_lonely(tube text, shard integer) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    most CONSTANT integer := 10;
    ranges text[] := ARRAY(
        SELECT CASE a.shards WHEN 1 THEN a.shard::text ELSE format('%s to %s', a.shard, a.shard + (a.shards - 1)) END
        FROM tube_attachment AS a
        WHERE a.tube = tube_private_warn_lonely.tube AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = a.tbl)
        GROUP BY a.shard, a.shards ORDER BY a.shard, a.shards LIMIT most + 1);
BEGIN
    RAISE WARNING USING
        MESSAGE = format(CASE WHEN ranges = '{}'
            THEN 'no table is attached to tube %L, so there are no rows to read for ids in the shard %s'
            ELSE 'no table that is attached to tube %L has the shard %s, so there are no rows to read for these ids'
            END, tube, shard),
        HINT = 'A worker that reads rows parks each of these ids. ' || CASE WHEN ranges = '{}'
            THEN 'Attach their table first, unless its consumers read no rows.'
            ELSE format('Give a shard of an attached table (%s), or attach the table that has this one.',
                array_to_string(ranges[:most], ', ') || CASE WHEN cardinality(ranges) > most THEN ', ...' ELSE '' END)
            END;
END
$$;

CREATE FUNCTION tube.tube_private_watch_lock(tube text, partition integer) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    RETURN hashtextextended(tube_private_schema() || ' watch ' || tube, partition % 16);
END
$$;

CREATE FUNCTION tube.tube_private_with_columns(att tube.tube_attachment) RETURNS tube.tube_attachment
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    keys CONSTANT name[] := tube_private_key_names(att);
BEGIN
    att.seen_oid := att.tbl::oid;
    SELECT array_agg(a.attnum ORDER BY array_position(keys, a.attname), a.attnum),
        array_agg(a.attname ORDER BY array_position(keys, a.attname), a.attnum)
    INTO att.seen_attnums, att.seen_names
    FROM pg_attribute AS a
    WHERE a.attrelid = att.tbl AND a.attnum > 0 AND NOT a.attisdropped AND (a.attname = ANY (keys) OR a.attname = ANY (att.columns)
        OR a.attnum IN (SELECT c.attnum FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c));
    att.seen_types := (
        SELECT array_agg(concat(k.type, (
            SELECT array_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_attribute AS a JOIN pg_enum AS e ON e.enumtypid = a.atttypid
            WHERE a.attrelid = att.tbl AND a.attname = k.name)) ORDER BY k.place)
        FROM unnest(att.key_cols, tube_key_types(att.tbl, att.key_cols)) WITH ORDINALITY AS k (name, type, place));
    RETURN att;
END
$$;

CREATE FUNCTION tube.tube_private_with_names(att tube.tube_attachment) RETURNS tube.tube_attachment
    LANGUAGE plpgsql
    AS $$
DECLARE
    old CONSTANT tube_attachment := (SELECT a FROM tube_attachment AS a WHERE a.tube = att.tube AND a.tbl = att.tbl);
BEGIN
    IF old.tube IS NULL OR (old.shard, old.shards) IS DISTINCT FROM (att.shard, att.shards) THEN
        att.shard := tube_private_range(att.tube, att.tbl, att.shard, att.shards);
    END IF;
    att.misfit := CASE WHEN att.row_filter IS NULL THEN tube_private_misfit_digest(att.tube, att.tbl) END;
    att.row_filter := CASE WHEN att.row_filter IS NOT NULL THEN (tube_private_require(att.tube)).predicate END;
    -- Whether it is the root table is not the caller's to say; in other shards it is the last one.
    att.position := CASE WHEN (old.shard, old.shards) = (att.shard, att.shards) THEN old.position END;
    att.trigger_function := coalesce(old.trigger_function, tube_private_capture_name(att.tube, att.tbl));
    att.touch_name := coalesce(old.touch_name, tube_private_touch_name(att));
    RETURN att;
END
$$;

CREATE FUNCTION tube.tube_private_wrong_name(name text) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $_$
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
$_$;

CREATE FUNCTION tube.tube_relations_waiting(tube text, most integer DEFAULT 1000) RETURNS TABLE(companion text, pods bigint, links bigint, since timestamp with time zone, parked bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    AS $_$
DECLARE
    there text;
BEGIN
    FOR companion IN SELECT c FROM tube_companions(tube) AS c LOOP
        SELECT string_agg(format('(SELECT q.ids, q.ts FROM %s AS q WHERE %s'
            ' AND (CASE WHEN q.op = ''B'' THEN 1 ELSE 0 END) = %s ORDER BY q.seq LIMIT $1)',
            tube_private_qualify(companion), s.slice, c.class), ' UNION ALL ')
        INTO there
        FROM tube_registry AS r, generate_series(0, r.partitions - 1) AS p,
            unnest((tube_private_slices(r.tube, r.partitions, p)).slices) AS s (slice), generate_series(0, 1) AS c (class)
        WHERE r.tube = companion;
        EXECUTE format('SELECT count(*), sum(cardinality(u.ids)), min(u.ts) FROM (SELECT * FROM (%s) AS w LIMIT $1) AS u'
            ' WHERE u.ids <> ''{}''', there) INTO pods, links, since USING most;
        parked := coalesce((SELECT p.parked FROM tube_delivered_parked(companion) AS p), 0);
        IF pods > 0 OR parked > 0 THEN
            links := coalesce(links, 0);
            RETURN NEXT;
        END IF;
    END LOOP;
END
$_$;

COMMENT ON FUNCTION tube.tube_relations_waiting(tube text, most integer) IS 'Returns the backlog in a tube''s companions, counting at most so many pods in each, and their parked keys.';

CREATE FUNCTION tube.tube_resume(tube text, in_partition integer DEFAULT NULL::integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    of_partitions CONSTANT integer := (tube_private_require(tube, 'any')).partitions;
    ended integer;
BEGIN
    IF in_partition IS NOT NULL THEN
        PERFORM tube_private_check_partition(tube, of_partitions, in_partition);
    END IF;
    WITH gone AS (
        DELETE FROM tube_paused AS p
        WHERE p.tube = tube_resume.tube
            AND (in_partition IS NULL OR (p.partition = in_partition AND p.partitions = of_partitions))
        RETURNING p.until
    )
    SELECT count(*) FILTER (WHERE g.until IS NULL OR g.until > clock_timestamp()) INTO ended FROM gone AS g;
    IF ended > 0 THEN
        PERFORM tube_audit_add('resume', tube,
            jsonb_strip_nulls(jsonb_build_object('partition', in_partition, 'pauses', ended)));
    END IF;
    IF in_partition IS NULL THEN
        ended := ended + coalesce(
            (SELECT sum(tube_resume(r.tube)) FROM tube_registry AS r WHERE r.companion_of = tube_resume.tube), 0);
    END IF;
    RETURN ended;
END
$$;

COMMENT ON FUNCTION tube.tube_resume(tube text, in_partition integer) IS 'Ends pauses and workers'' stops, and returns how many. With a partition, ends only its pauses.';

CREATE FUNCTION tube.tube_sampled(in_tube text, checked integer, differing integer, undecided integer, detail text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
    INSERT INTO tube_sample AS s (tube, checked, differing, undecided)
    SELECT r.tube, $2, $3, $4 FROM tube_registry AS r WHERE r.tube = in_tube AND r.kind = 'tube'
    ON CONFLICT (tube) DO UPDATE
    SET ended_at = excluded.ended_at, checked = excluded.checked, differing = excluded.differing,
        undecided = excluded.undecided;
    INSERT INTO tube_unverified AS u (tube, cause, is_certain, detail)
    SELECT r.tube, 'sample', true, left($5, 500) FROM tube_registry AS r
    WHERE r.tube = in_tube AND r.kind = 'tube' AND $3 > 0
    ON CONFLICT (tube, cause) DO UPDATE SET since = excluded.since, detail = excluded.detail
$_$;

COMMENT ON FUNCTION tube.tube_sampled(in_tube text, checked integer, differing integer, undecided integer, detail text) IS 'Records the findings of a sample.';

CREATE FUNCTION tube.tube_seq_advance(beyond bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    most CONSTANT bigint := 1000000000000000;
    was bigint := tube_settle_seq();
BEGIN
    IF beyond IS NULL OR beyond NOT BETWEEN 0 AND most THEN
        RAISE EXCEPTION USING
            ERRCODE = CASE WHEN beyond IS NULL THEN 'null_value_not_allowed' ELSE 'invalid_parameter_value' END,
            MESSAGE = format('tube_seq can''t be advanced beyond %s', coalesce(beyond::text, 'NULL')),
            HINT = format('Give the last_value of the other sequence, 0 to %s.', most);
    END IF;
    IF was < beyond THEN
        -- Changes nothing, and takes the lock.
        PERFORM tube_private_patiently(ARRAY['ALTER SEQUENCE tube_seq OWNED BY NONE'], 'tube_seq is advanced');
        was := tube_settle_seq();
    END IF;
    IF was < beyond THEN
        PERFORM setval('tube_seq', beyond);
        RAISE NOTICE 'tube_seq, which was at %, continues after %', was, beyond;
        RETURN beyond;
    END IF;
    RAISE NOTICE 'tube_seq is at %, so it was left as it is', was;
    RETURN was;
END
$$;

COMMENT ON FUNCTION tube.tube_seq_advance(beyond bigint) IS 'Moves tube_seq beyond a number, never back, when you move from another queue. Run it outside of other transactions. It can''t be undone.';

CREATE FUNCTION tube.tube_settle_done(x xid8) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    RETURN pg_snapshot_xmin(pg_current_snapshot()) >= x;
END
$$;

COMMENT ON FUNCTION tube.tube_settle_done(x xid8) IS 'Returns whether every transaction below an xid is over.';

CREATE FUNCTION tube.tube_settle_holders(tube text) RETURNS text[]
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT coalesce(array_agg(h.holder ORDER BY h.holder), '{}') FROM tube_private_holders(tube) AS h
$$;

COMMENT ON FUNCTION tube.tube_settle_holders(tube text) IS 'Lists open transactions that may still write to the tube; NULL: to any.';

CREATE FUNCTION tube.tube_settle_left(tube text, holders text[]) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    RETURN NOT tube_settle_holders(tube) && coalesce(holders, '{}');
END
$$;

COMMENT ON FUNCTION tube.tube_settle_left(tube text, holders text[]) IS 'Returns whether all these holders are over.';

CREATE FUNCTION tube.tube_settle_seq() RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_sequence AS q
        WHERE q.seqrelid = 'tube_seq'::regclass AND q.seqcache = 1 AND q.seqincrement = 1 AND NOT q.seqcycle
    ) THEN
        RAISE EXCEPTION 'the sequence tube_seq was altered: it must have CACHE 1, INCREMENT 1 and NO CYCLE'
            USING ERRCODE = 'TU110', HINT = 'ALTER SEQUENCE tube_seq CACHE 1 INCREMENT 1 NO CYCLE, then end '
                'all sessions that write to tubes.';
    END IF;
    RETURN (SELECT CASE WHEN s.is_called THEN s.last_value ELSE s.last_value - 1 END FROM tube_seq AS s);
END
$$;

COMMENT ON FUNCTION tube.tube_settle_seq() IS 'Returns the greatest seq drawn: the first step to a settled seq.';

CREATE FUNCTION tube.tube_settle_writers(tube text) RETURNS xid8[]
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT coalesce(array_agg(h.xid), '{}') FROM tube_private_holders(tube) AS h WHERE h.xid IS NOT NULL
$$;

COMMENT ON FUNCTION tube.tube_settle_writers(tube text) IS 'Lists the xids of holders that may have drawn a seq; NULL: for any tube.';

CREATE FUNCTION tube.tube_shard_of(id bigint, shard integer, shards integer) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (shard + ((((id % (shards)::bigint) + (shards)::bigint) % (shards)::bigint))::integer);

COMMENT ON FUNCTION tube.tube_shard_of(id bigint, shard integer, shards integer) IS 'Returns the shard of an id (bigint, uuid or text) in a table that is attached with these values.';

CREATE FUNCTION tube.tube_shard_of(id text, shard integer, shards integer) RETURNS integer
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (shard + ((((('x'::text || "left"(md5(convert_to(id, 'UTF8'::name)), 8)))::bit(32))::bigint % (shards)::bigint))::integer);

COMMENT ON FUNCTION tube.tube_shard_of(id text, shard integer, shards integer) IS 'Returns the shard of an id (bigint, uuid or text) in a table that is attached with these values.';

CREATE FUNCTION tube.tube_shard_of(id uuid, shard integer, shards integer) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (shard + ((((('x'::text || "left"(md5((id)::text), 8)))::bit(32))::bigint % (shards)::bigint))::integer);

COMMENT ON FUNCTION tube.tube_shard_of(id uuid, shard integer, shards integer) IS 'Returns the shard of an id (bigint, uuid or text) in a table that is attached with these values.';

CREATE FUNCTION tube.tube_sink_accept(tube text, before timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(tube);
BEGIN
    UPDATE tube_sink AS s SET emptied_at = NULL, mark = NULL, seen = false
    WHERE s.tube = reg.tube AND s.emptied_at < coalesce(before, 'infinity');
    IF FOUND THEN
        PERFORM tube_audit_add('sink accept', reg.tube);
    END IF;
    RETURN FOUND;
END
$$;

COMMENT ON FUNCTION tube.tube_sink_accept(tube text, before timestamp with time zone) IS 'Accepts the content of an emptied sink as complete, if it was found emptied before this time; NULL: any.';

CREATE FUNCTION tube.tube_sink_list() RETURNS TABLE(tube text, makes boolean, emptied_at timestamp with time zone, mark text, source text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT s.tube, NOT s.seen AND (s.mark IS NOT NULL OR s.emptied_at IS NULL), s.emptied_at,
        CASE WHEN s.seen AND s.emptied_at IS NULL THEN s.mark END,
        format('%s:%s:%s:%s', i.installation, n.system_identifier, n.timeline, d.oid)
    FROM tube_sink AS s CROSS JOIN tube_installation AS i CROSS JOIN tube_private_source() AS n
        JOIN pg_database AS d ON d.datname = current_database() ORDER BY s.tube
$$;

COMMENT ON FUNCTION tube.tube_sink_list() IS 'Lists tubes whose sinks were checked. makes: whether a worker may create missing parts there.';

CREATE FUNCTION tube.tube_sink_note(tube text, held text) RETURNS TABLE(wanted text, emptied_at timestamp with time zone, is_new boolean, is_over boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    reg CONSTANT tube_registry := tube_private_require(tube);
    known tube_sink;
    before tube_sink;
BEGIN
    is_new := false;
    is_over := false;
    SELECT s.* INTO known FROM tube_sink AS s WHERE s.tube = reg.tube;
    IF known.seen AND known.mark = held AND known.emptied_at IS NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    INSERT INTO tube_sink AS s (tube) VALUES (reg.tube) ON CONFLICT DO NOTHING;
    SELECT s.* INTO known FROM tube_sink AS s WHERE s.tube = reg.tube FOR UPDATE;
    before := known;
    IF known.mark IS NULL THEN
        -- New, or emptied: then nothing is made before an operator has it filled again.
        IF known.emptied_at IS NULL OR tube_private_refilled(reg.tube, known.emptied_at, false) THEN
            known.seen := held IS NOT NULL;
            known.mark := coalesce(held, (SELECT format('%s %s epoch %s', i.installation, reg.tube, reg.last_epoch)
                FROM tube_installation AS i));
        END IF;
    ELSIF held = known.mark THEN
        known.seen := true;
    ELSIF known.seen THEN
        known.mark := NULL;
        known.seen := false;
        known.emptied_at := clock_timestamp();
        is_new := true;
    ELSIF held IS NOT NULL THEN
        known.mark := held; -- the server's name for the new object, or the mark of another database's workers
        known.seen := true;
    END IF;
    IF known.seen AND tube_private_refilled(reg.tube, known.emptied_at, true) THEN
        known.emptied_at := NULL;
        is_over := true;
    END IF;
    IF known IS DISTINCT FROM before THEN
        UPDATE tube_sink AS s SET mark = known.mark, seen = known.seen, emptied_at = known.emptied_at
        WHERE s.tube = reg.tube;
    END IF;
    wanted := CASE WHEN NOT known.seen THEN known.mark END;
    emptied_at := known.emptied_at;
    RETURN NEXT;
END
$$;

COMMENT ON FUNCTION tube.tube_sink_note(tube text, held text) IS 'Records the mark that a worker found at the sink; NULL: none. wanted is the mark to leave there; NULL: create and leave nothing.';

CREATE FUNCTION tube.tube_sleep(tube text, partitions integer, partition integer, leader_id uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '1s'
    AS $$
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_sleep.tube FOR KEY SHARE;
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    INSERT INTO tube_sleeper (tube, partition, partitions)
    VALUES (tube_sleep.tube, tube_sleep.partition, tube_sleep.partitions)
    ON CONFLICT ON CONSTRAINT tube_sleeper_pkey DO UPDATE SET partitions = EXCLUDED.partitions; -- and the flag
END
$$;

COMMENT ON FUNCTION tube.tube_sleep(tube text, partitions integer, partition integer, leader_id uuid) IS 'Registers a leader as sleeping, so that writers NOTIFY it.';

CREATE FUNCTION tube.tube_source_check(seen_seq bigint DEFAULT NULL::bigint) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '1s'
    AS $$
DECLARE
    last_seq CONSTANT bigint := (SELECT CASE WHEN s.is_called THEN s.last_value ELSE s.last_value - 1 END FROM tube_seq AS s);
    change text;
BEGIN
    IF pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' THEN
        RETURN NULL;
    END IF;
    change := tube_private_source_change(seen_seq, last_seq);
    IF change IS NULL AND EXISTS (SELECT FROM tube_source) THEN
        RETURN NULL;
    END IF;
    IF current_setting('synchronous_commit') <> 'remote_apply' THEN
        PERFORM set_config('synchronous_commit', 'on', true); -- a change is recorded only once
    END IF;
    INSERT INTO tube_source AS s (one) VALUES (true) ON CONFLICT DO NOTHING;
    PERFORM FROM tube_source FOR NO KEY UPDATE;
    change := tube_private_source_change(seen_seq, last_seq); -- another session may have been faster
    UPDATE tube_source AS s
    SET system_identifier = coalesce(n.system_identifier, s.system_identifier),
        timeline = coalesce(n.timeline, s.timeline), sequence = n.sequence, seen_at = clock_timestamp()
    FROM tube_private_source() AS n;
    INSERT INTO tube_unverified AS u (tube, cause, is_certain, detail)
    SELECT r.tube, 'source', coalesce(seen_seq > last_seq, false),
        concat(change, CASE WHEN r.kind = 'outbox' THEN -- NULL unless this server was promoted since its start
            '; the last commit that it has is of ' || to_char(
                pg_last_xact_replay_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US "UTC"') END)
    FROM tube_registry AS r WHERE change IS NOT NULL AND r.companion_of IS NULL -- which has no copy
    ORDER BY r.tube
    ON CONFLICT (tube, cause) DO UPDATE
    SET since = excluded.since, is_certain = u.is_certain OR excluded.is_certain,
        detail = right(concat_ws('; ', nullif(u.detail, excluded.detail), excluded.detail), 500);
    -- Last: it is not rolled back, and then the lag would not be found again. Tried once, since a worker calls this
    -- between its renewals. Workers are trusted with no greater step: none is taken back.
    IF seen_seq > last_seq AND seen_seq - last_seq <= 1000000000 THEN
        BEGIN
            PERFORM set_config('pytube.attempt', 'on', true), tube_seq_advance(seen_seq);
            PERFORM set_config('pytube.attempt', 'off', true);
        EXCEPTION WHEN lock_not_available OR invalid_parameter_value THEN
            NULL;
        END;
    END IF;
    RETURN change;
END
$$;

COMMENT ON FUNCTION tube.tube_source_check(seen_seq bigint) IS 'Checks whether server, timeline and database are as before. If not, lists all copies as unverified, and returns the difference once. Moves tube_seq beyond seen_seq.';

CREATE FUNCTION tube.tube_stats() RETURNS TABLE(tube text, predicate text, partition integer, shards integer, inc_count text, inc_min_seq bigint, inc_max_seq bigint, inc_min_ts timestamp with time zone, inc_max_ts timestamp with time zone, backfill_count text, backfill_min_seq bigint, backfill_max_seq bigint, backfill_min_ts timestamp with time zone, backfill_max_ts timestamp with time zone, control_count text, parked text, shard_list text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$ -- planning the query of each partition costs more than running it
#variable_conflict use_column
DECLARE
    reg tube_registry;
    class record;
    counted text;
    controls text[];
    estimates bigint[];
BEGIN
    FOR reg IN SELECT r.* FROM tube_registry AS r WHERE r.kind = 'tube' ORDER BY r.tube LOOP
        tube := reg.tube;
        predicate := reg.predicate;
        estimates := NULL;
        EXECUTE tube_private_stats_controls_sql(reg) INTO controls;
        FOR class IN EXECUTE tube_private_classes_sql(reg, 1000, true) LOOP
            counted := class.pods::text;
            IF class.pods = 1000 THEN
                estimates := coalesce(estimates, tube_private_stats_estimates(reg));
                counted := coalesce('~' || nullif(greatest(estimates[class.partition * 2 + class.number + 1], 1000), 1000), '1000+');
            END IF;
            IF class.number = 0 THEN
                inc_count := counted;
                inc_min_seq := class.min_seq;
                inc_max_seq := class.max_seq;
                inc_min_ts := class.min_ts;
                inc_max_ts := class.max_ts;
                CONTINUE;
            END IF;
            backfill_count := counted;
            backfill_min_seq := class.min_seq;
            backfill_max_seq := class.max_seq;
            backfill_min_ts := class.min_ts;
            backfill_max_ts := class.max_ts;
            partition := class.partition;
            control_count := controls[class.partition + 1];
            SELECT s.* INTO shards, shard_list FROM tube_private_stats_shards(reg, class.partition) AS s;
            SELECT CASE WHEN count(*) < 1000 THEN count(*)::text ELSE '1000+' END INTO parked
            FROM (
                SELECT FROM tube_parked AS k
                WHERE k.tube = reg.tube AND k.shard % reg.partitions = class.partition LIMIT 1000
            ) AS first_ones;
            RETURN NEXT;
        END LOOP;
    END LOOP;
END
$$;

COMMENT ON FUNCTION tube.tube_stats() IS 'Returns the backlog of each partition. Counts are text: exact below 1000, then an estimate such as ~12345. control_count counts control pods, as type:count pairs.';

CREATE FUNCTION tube.tube_step_ask(tube text, seq bigint, shard integer, key text, lasts interval DEFAULT '00:00:30'::interval) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_check_pods(tube, NULL, seq, seq, shard, key, 1);
    of_partition CONSTANT integer := shard % reg.partitions;
    of_key CONSTANT text := tube_private_kept_key(reg, key); -- or the worker would find no row of it, and delete the document
    number bigint;
    wrong text;
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = reg.tube FOR KEY SHARE;
    wrong := CASE
        WHEN tube_pause_reason(reg.tube, reg.partitions, of_partition) IS NULL THEN
            format('partition %s of tube %L is not paused', of_partition, reg.tube)
        WHEN NOT EXISTS (SELECT FROM tube_leader AS l
            WHERE l.tube = reg.tube AND l.partition = of_partition AND l.leader_id IS NOT NULL) THEN
            format('no worker leads partition %s of tube %L', of_partition, reg.tube)
        WHEN NOT EXISTS (SELECT FROM tube_leader AS l JOIN tube_halted AS h ON h.leader_id = l.leader_id
            WHERE l.tube = reg.tube AND l.partition = of_partition) THEN
            format('the leader of partition %s of tube %L has not come to rest yet', of_partition, reg.tube)
        END;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU143', MESSAGE = wrong,
            HINT = 'A step is taken by the leader of a paused partition: pause it, and see that a worker runs.';
    END IF;
    IF tube_private_pod_with(reg, seq, shard, key) IS NULL THEN
        RAISE EXCEPTION 'pod % of tube % has no key %/%, or is gone', seq, quote_literal(reg.tube), shard, key
            USING ERRCODE = 'TU145', HINT = 'List the pods again: another operator may have stepped over it.';
    END IF;
    -- A step that was not taken in time, or whose term is over, is over.
    UPDATE tube_step AS s SET ended_at = clock_timestamp(), outcome = 'unsent',
        error = CASE WHEN s.leader_id IS NULL THEN 'no worker took it in time' ELSE 'its term is over' END
    WHERE s.tube = reg.tube AND s.partition = of_partition AND s.ended_at IS NULL
        AND CASE WHEN s.leader_id IS NULL THEN s.expires_at <= clock_timestamp()
            ELSE NOT EXISTS (SELECT FROM tube_leader AS l WHERE l.leader_id = s.leader_id) END;
    DELETE FROM tube_step AS s WHERE s.tube = reg.tube AND s.ended_at < clock_timestamp() - interval '1 day';
    INSERT INTO tube_step AS s (tube, partitions, partition, seq, shard, id, expires_at)
    VALUES (reg.tube, reg.partitions, of_partition, tube_step_ask.seq, tube_step_ask.shard, of_key,
        clock_timestamp() + lasts)
    ON CONFLICT DO NOTHING RETURNING s.step_id INTO number;
    IF number IS NULL THEN
        RAISE EXCEPTION 'another step of partition % of tube % is under way', of_partition, quote_literal(reg.tube)
            USING ERRCODE = 'TU144', HINT = 'Another operator steps through this partition. Wait, or agree with them.';
    END IF;
    PERFORM tube_audit_add('pods step', reg.tube,
        jsonb_build_object('partition', of_partition, 'seq', seq, 'shard', shard, 'key', left(of_key, 100)));
    RETURN number;
END
$$;

COMMENT ON FUNCTION tube.tube_step_ask(tube text, seq bigint, shard integer, key text, lasts interval) IS 'Asks the leader of a paused partition to deliver one key of one pod; returns the number of the step.';

CREATE FUNCTION tube.tube_step_cancel(in_step bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    UPDATE tube_step AS s SET ended_at = clock_timestamp(), outcome = 'unsent', error = 'it was taken back'
    WHERE s.step_id = in_step AND s.leader_id IS NULL AND s.ended_at IS NULL;
    RETURN FOUND;
END
$$;

COMMENT ON FUNCTION tube.tube_step_cancel(in_step bigint) IS 'Cancels a step; false if a term has taken it.';

CREATE FUNCTION tube.tube_step_end(tube text, partitions integer, partition integer, leader_id uuid, in_step bigint, outcome text, error text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
#variable_conflict use_column
DECLARE
    step tube_step;
    reg tube_registry;
    place tid;
BEGIN
    PERFORM tube_private_hold_term(
        tube_step_end.tube, tube_step_end.partitions, tube_step_end.partition, tube_step_end.leader_id);
    UPDATE tube_step AS s
    SET ended_at = clock_timestamp(), outcome = tube_step_end.outcome, error = tube_step_end.error
    WHERE s.step_id = in_step AND s.leader_id = tube_step_end.leader_id AND s.ended_at IS NULL
    RETURNING s.* INTO step;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    reg := tube_private_require(step.tube);
    place := tube_private_pod_with(reg, step.seq, step.shard, step.id);
    EXECUTE format('UPDATE %s AS p SET leader_id = NULL WHERE p.ctid = $1 AND p.leader_id = $2 RETURNING p.ctid',
        tube_private_qualify(step.tube)) USING place, step.leader_id INTO place;
    IF step.outcome IN ('delivered', 'skipped') THEN
        PERFORM tube_private_remove_key(reg, ARRAY[place], step.id);
        PERFORM tube_pods_unpark($1, $2, $3, $4, ARRAY[step.shard], ARRAY[step.id]);
    END IF;
END
$_$;

COMMENT ON FUNCTION tube.tube_step_end(tube text, partitions integer, partition integer, leader_id uuid, in_step bigint, outcome text, error text) IS 'Records the outcome of a step. A finished key leaves its pod.';

CREATE FUNCTION tube.tube_step_state(in_step bigint) RETURNS TABLE(outcome text, error text, taken boolean, over boolean)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT s.outcome, s.error, s.leader_id IS NOT NULL, CASE
        WHEN s.ended_at IS NOT NULL THEN false
        WHEN s.leader_id IS NULL THEN s.expires_at <= clock_timestamp()
        ELSE NOT EXISTS (SELECT FROM tube_leader AS l WHERE l.leader_id = s.leader_id) END
    FROM tube_step AS s WHERE s.step_id = in_step
$$;

COMMENT ON FUNCTION tube.tube_step_state(in_step bigint) IS 'Returns the outcome of a step. over: it will have none.';

CREATE FUNCTION tube.tube_step_take(tube text, partitions integer, partition integer, leader_id uuid, in_step bigint) RETURNS TABLE(seq bigint, ts timestamp with time zone, shard integer, key text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
#variable_conflict use_column
DECLARE
    step tube_step;
    reg tube_registry;
BEGIN
    PERFORM tube_private_hold_term(
        tube_step_take.tube, tube_step_take.partitions, tube_step_take.partition, tube_step_take.leader_id);
    UPDATE tube_step AS s SET leader_id = tube_step_take.leader_id
    WHERE s.step_id = in_step AND s.ended_at IS NULL AND s.leader_id IS NULL AND s.expires_at > clock_timestamp()
        AND (s.tube, s.partitions, s.partition) = ($1, $2, $3)
        AND tube_pause_reason($1, $2, $3) IS NOT NULL
    RETURNING s.* INTO step;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    reg := tube_private_require(step.tube);
    RETURN QUERY EXECUTE format(
        'UPDATE %s AS p SET leader_id = $1 WHERE p.ctid = $2 RETURNING p.seq, p.ts, p.shard::integer, $3',
        tube_private_qualify(step.tube))
    USING step.leader_id, tube_private_pod_with(reg, step.seq, step.shard, step.id), step.id;
    IF NOT FOUND THEN
        UPDATE tube_step AS s SET ended_at = clock_timestamp(), outcome = 'unsent', error = 'the pod is gone'
        WHERE s.step_id = in_step;
    END IF;
END
$_$;

COMMENT ON FUNCTION tube.tube_step_take(tube text, partitions integer, partition integer, leader_id uuid, in_step bigint) IS 'Takes a step for a term, and marks its pod.';

CREATE FUNCTION tube.tube_stream_purge(tube text, seq bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $_$
DECLARE
    reg tube_registry := tube_private_require(tube);
    gone bigint := 0;
    here bigint;
BEGIN
    IF EXISTS (SELECT FROM tube_leader AS l WHERE l.tube = reg.tube AND l.leader_id IS NOT NULL) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU133',
            MESSAGE = format('the tube %L has workers, which purge the pods that they deliver', tube),
            HINT = 'A tube is read by workers or by a stream. End the workers, or do not purge.';
    END IF;
    FOR part IN 0 .. reg.partitions - 1 LOOP
        EXECUTE format('DELETE FROM %s AS t WHERE %s'
            ' AND (CASE WHEN t.op = ''B'' THEN 1 ELSE 0 END) = ANY (''{0,1}'') AND t.seq <= $1',
            tube_private_qualify(reg.tube), (tube_private_slices(reg.tube, reg.partitions, part)).pods) USING seq;
        GET DIAGNOSTICS here = ROW_COUNT;
        gone := gone + here;
    END LOOP;
    RETURN gone;
END
$_$;

COMMENT ON FUNCTION tube.tube_stream_purge(tube text, seq bigint) IS 'Deletes pods up to a settled seq, of a tube without workers.';

CREATE FUNCTION tube.tube_sweep_end(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    backfills bigint[];
    payload jsonb;
BEGIN
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    backfills := tube_private_backfills_at_end(tube, ARRAY[seq]);
    payload := tube_private_take_control(tube, partitions, partition, leader_id, shard, seq);
    PERFORM tube_private_backfill_count_ends(b.id) FROM unnest(backfills) AS b (id);
    RETURN payload IS NOT NULL;
END
$$;

COMMENT ON FUNCTION tube.tube_sweep_end(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) IS 'Deletes a backfill_end pod after the worker has acted on it.';

CREATE FUNCTION tube.tube_sweep_ready(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $_$
DECLARE
    left_over boolean;
BEGIN
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE %s AND (CASE WHEN op = ''B'' THEN 1 ELSE 0 END) = 1'
        ' AND seq < $1 AND shard = $2 AND ids <> ''{}'')',
        tube_private_qualify(tube), (tube_private_slices(tube, partitions, partition)).pods)
    INTO left_over USING seq, shard;
    RETURN NOT left_over;
END
$_$;

COMMENT ON FUNCTION tube.tube_sweep_ready(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) IS 'Returns whether all backfill pods of the shard before a backfill_end are done.';

CREATE FUNCTION tube.tube_sweep_touch(tube text, partitions integer, partition integer, leader_id uuid, shard integer, ids anyarray) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $_$
DECLARE
    pods integer;
BEGIN
    PERFORM tube_private_check_ids(ids);
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    IF shard % partitions <> partition THEN
        RAISE EXCEPTION 'shard % is not in partition % of tube %', shard, partition, quote_literal(tube)
            USING ERRCODE = 'TU106', HINT = 'Sweep shards of the term''s own partition only.';
    END IF;
    EXECUTE format('INSERT INTO %s (op, shard, ids) SELECT ''B'', $1, $2[n : n + 249] '
        'FROM generate_series(1, cardinality($2), 250) AS n', tube_private_qualify(tube)) USING shard, ids;
    GET DIAGNOSTICS pods = ROW_COUNT;
    -- Wake the worker that called, too: it goes back to sleep when the sweep ends, without another poll.
    PERFORM tube_private_wake_sleepers(tube, ARRAY[shard]);
    RETURN pods;
END
$_$;

COMMENT ON FUNCTION tube.tube_sweep_touch(tube text, partitions integer, partition integer, leader_id uuid, shard integer, ids anyarray) IS 'Touches ids that a scan of the sink found; returns the number of pods.';

CREATE FUNCTION tube.tube_sync() RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
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
            -- One table's trouble must not stop the others.
            GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
            RAISE WARNING USING MESSAGE = format('%s is not followed by tube %L: %s', att.tbl, att.tube, SQLERRM), HINT = hint;
        END;
    END LOOP;
    RETURN done;
END
$$;

COMMENT ON FUNCTION tube.tube_sync() IS 'Adapts attached tables to DDL, and returns how many. Workers call it twice a minute. WARNINGs name work left for a table''s owner.';

CREATE FUNCTION tube.tube_table_ensure_attached(tube text, tbl regclass, shard integer DEFAULT NULL::integer, shards integer DEFAULT 1, id_col name DEFAULT NULL::name, columns name[] DEFAULT NULL::name[], replica boolean DEFAULT false, key_cols name[] DEFAULT NULL::name[], shard_by name DEFAULT NULL::name) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
BEGIN
    PERFORM tube_private_require(tube), tube_private_refuse_table(tbl);
    PERFORM tube_private_patiently(
        ARRAY[format('SELECT tube_private_attach(%L, %L, %L, %L, %L, %L, %L, %L, %L)', tube, tbl::oid, shard, shards, id_col, columns,
            replica, key_cols, shard_by)],
        format('%s is attached to tube %L', tbl, tube));
END
$$;

COMMENT ON FUNCTION tube.tube_table_ensure_attached(tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean, key_cols name[], shard_by name) IS 'Attaches a table, or a partitioned table as a whole, or changes how it is attached; the caller needs its owner''s rights. Arguments left out return to their defaults. The first table in a shard is the root table, later ones are related. columns: an UPDATE that changes none of them makes no touch. replica: rows of logical replication are touched, too. key_cols: 2 to 8 columns instead of id_col.';

CREATE FUNCTION tube.tube_table_ensure_detached(in_tube text, in_tbl regclass) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
BEGIN
    PERFORM tube_private_require(in_tube) WHERE in_tube IS NOT NULL;
    PERFORM tube_private_patiently(ARRAY[format(
            'SELECT tube_private_forget(r.tube, %L) FROM (SELECT r.tube FROM tube_registry AS r WHERE r.tube = coalesce(%L, r.tube)'
            ' AND EXISTS (SELECT FROM tube_attachment AS a WHERE a.tube = r.tube AND a.tbl = %L)'
            ' ORDER BY r.tube FOR NO KEY UPDATE) AS r', ARRAY[in_tbl::oid], in_tube, in_tbl::oid)],
        format('%s is detached', in_tbl));
END
$$;

COMMENT ON FUNCTION tube.tube_table_ensure_detached(in_tube text, in_tbl regclass) IS 'Detaches a table from a tube, or with NULL from all. Pods stay. A related table may become the root table, with a WARNING.';

CREATE FUNCTION tube.tube_terms(in_tube text) RETURNS TABLE(tube text, partitions integer, partition integer, leader_id uuid, epoch bigint, instance_id uuid, client_id text, election text, hold interval, acquired_at timestamp with time zone, renewed_at timestamp with time zone, ended_at timestamp with time zone, outcome text)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT t.tube, t.partitions, t.partition, t.leader_id, t.epoch, t.instance_id, t.client_id,
        t.election, t.hold, t.acquired_at, t.renewed_at, t.ended_at, t.outcome
    FROM tube_term AS t
    WHERE t.tube = in_tube
    UNION ALL
    SELECT l.tube, l.partitions, l.partition, l.leader_id, l.epoch, l.instance_id, l.client_id,
        l.election, l.hold, l.acquired_at, l.renewed_at, NULL, NULL
    FROM tube_leader AS l
    WHERE l.tube = in_tube AND l.leader_id IS NOT NULL
    ORDER BY 5
$$;

COMMENT ON FUNCTION tube.tube_terms(in_tube text) IS 'Lists all terms of at least the last day, and how they ended: released, superseded or repartitioned.';

CREATE FUNCTION tube.tube_undelivered(tube text, up_to bigint) RETURNS TABLE(partition integer, partitions integer, least_seq bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    partitions := (tube_private_require(tube)).partitions;
    FOR part IN 0 .. partitions - 1 LOOP
        partition := part;
        least_seq := tube_private_least_seq(tube, partitions, part);
        IF least_seq <= up_to THEN
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;

COMMENT ON FUNCTION tube.tube_undelivered(tube text, up_to bigint) IS 'Lists partitions that still have pods up to a seq; no row: all are delivered or parked. With the seq of tube_settle_seq() it covers all that was committed before.';

CREATE FUNCTION tube.tube_unverified_list(in_tube text DEFAULT NULL::text) RETURNS TABLE(tube text, cause text, since timestamp with time zone, is_certain boolean, detail text)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
    SELECT u.tube, u.cause, u.since, u.is_certain, u.detail
    FROM tube_unverified AS u
    WHERE in_tube IS NULL OR u.tube = in_tube
    UNION ALL
    SELECT r.tube, 'source', clock_timestamp(), false, c.change
    FROM (SELECT tube_private_source_change(NULL, NULL) WHERE EXISTS (SELECT FROM tube_source)) AS c (change)
    JOIN tube_registry AS r ON c.change IS NOT NULL AND r.companion_of IS NULL AND (in_tube IS NULL OR r.tube = in_tube)
    WHERE NOT EXISTS (SELECT FROM tube_unverified AS u WHERE u.tube = r.tube AND u.cause = 'source')
    ORDER BY 1, 2
$$;

COMMENT ON FUNCTION tube.tube_unverified_list(in_tube text) IS 'Lists copies to verify and outboxes to acknowledge, because the source changed or a sample found differences.';

CREATE FUNCTION tube.tube_verified(in_tube text, action text DEFAULT 'acknowledge'::text, up_to timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
DECLARE
    causes text[];
BEGIN
    IF action = 'acknowledge' THEN
        PERFORM tube_private_require(in_tube, 'any');
    ELSE
        PERFORM tube_private_require(in_tube);
    END IF;
    IF action IS NULL OR action NOT IN ('verify', 'acknowledge') THEN
        RAISE EXCEPTION 'a copy is not verified by %', quote_nullable(action)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is ''verify'' or ''acknowledge''.';
    END IF;
    PERFORM tube_source_check();
    WITH gone AS (
        DELETE FROM tube_unverified AS u
        WHERE u.tube = in_tube AND (up_to IS NULL OR u.since <= up_to)
        RETURNING u.cause
    )
    SELECT array_agg(g.cause ORDER BY g.cause) INTO causes FROM gone AS g;
    IF causes IS NOT NULL THEN
        PERFORM tube_audit_add(action, in_tube, jsonb_build_object('causes', causes));
    END IF;
    RETURN coalesce(cardinality(causes), 0);
END
$$;

COMMENT ON FUNCTION tube.tube_verified(in_tube text, action text, up_to timestamp with time zone) IS 'Removes a tube or outbox from that list; up_to leaves later causes. Returns the number of causes.';

CREATE FUNCTION tube.tube_wake(tube text, partition integer, leader_id uuid DEFAULT NULL::uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    DELETE FROM tube_sleeper AS s
    WHERE s.tube = tube_wake.tube
      AND s.partition = tube_wake.partition
      AND (tube_wake.leader_id IS NULL OR EXISTS (
          SELECT FROM tube_leader AS l
          WHERE l.tube = s.tube AND l.partition = s.partition AND l.leader_id = tube_wake.leader_id));
END
$$;

COMMENT ON FUNCTION tube.tube_wake(tube text, partition integer, leader_id uuid) IS 'Registers a leader as awake.';

CREATE FUNCTION tube.tube_wakes() RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS $$
BEGIN
    RETURN coalesce(
        nullif(current_setting('pytube.wake', true), '')::boolean,
        current_setting('max_prepared_transactions') = '0');
EXCEPTION WHEN invalid_text_representation THEN
    RETURN false; -- no writer may fail over this setting
END
$$;

COMMENT ON FUNCTION tube.tube_wakes() IS 'Returns whether writers wake sleeping workers, by this session''s settings.';

ALTER TABLE tube.tube_attachment ALTER COLUMN "position" ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tube.tube_attachment_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE tube.tube_attempt (
    tube text NOT NULL,
    shard integer NOT NULL,
    id text NOT NULL,
    attempts integer NOT NULL,
    error text NOT NULL,
    epoch bigint NOT NULL,
    first_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    last_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    next_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE tube.tube_audit (
    audit_id bigint NOT NULL,
    done_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    done_by name DEFAULT SESSION_USER NOT NULL,
    client text,
    action text NOT NULL,
    tube text,
    details jsonb DEFAULT '{}'::jsonb NOT NULL
);

ALTER TABLE tube.tube_audit ALTER COLUMN audit_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tube.tube_audit_audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE tube.tube_backfill ALTER COLUMN backfill_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tube.tube_backfill_backfill_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE tube.tube_failing (
    tube text NOT NULL,
    partition integer NOT NULL,
    reason text NOT NULL,
    terms integer NOT NULL,
    since timestamp with time zone NOT NULL,
    failed_at timestamp with time zone NOT NULL
);

CREATE TABLE tube.tube_halted (
    leader_id uuid NOT NULL,
    since timestamp with time zone NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE tube.tube_installation (
    one boolean DEFAULT true NOT NULL,
    installation uuid DEFAULT gen_random_uuid() NOT NULL,
    last_epoch bigint DEFAULT 0 NOT NULL,
    CONSTRAINT tube_installation_one_check CHECK (one)
);

CREATE TABLE tube.tube_instance (
    tube text NOT NULL,
    instance_id uuid NOT NULL,
    client_id text NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
)
WITH (fillfactor='50');

ALTER TABLE tube.tube_job ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tube.tube_job_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE tube.tube_job_unit (
    job_id text NOT NULL,
    unit integer NOT NULL,
    rows bigint NOT NULL,
    ids bigint NOT NULL,
    pods bigint NOT NULL,
    ended_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT tube_job_unit_unit_check CHECK ((unit >= 0))
);

CREATE TABLE tube.tube_kafka (
    instance_id uuid NOT NULL,
    tube text NOT NULL,
    use text NOT NULL,
    bootstrap_servers text NOT NULL,
    client_id text NOT NULL,
    reason text NOT NULL,
    since timestamp with time zone NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    back_at timestamp with time zone
)
WITH (fillfactor='50');

CREATE TABLE tube.tube_leader (
    tube text NOT NULL,
    partition integer NOT NULL,
    partitions integer NOT NULL,
    leader_id uuid,
    epoch bigint NOT NULL,
    instance_id uuid,
    client_id text,
    election text,
    hold interval,
    lease interval,
    acquired_at timestamp with time zone,
    renewed_at timestamp with time zone
)
WITH (fillfactor='50');

CREATE TABLE tube.tube_outbox_identity (
    outbox text NOT NULL,
    identity uuid DEFAULT gen_random_uuid() NOT NULL
);

CREATE TABLE tube.tube_outbox_parked (
    outbox text NOT NULL,
    id bigint NOT NULL,
    topic text NOT NULL,
    key text,
    slot integer NOT NULL,
    error text NOT NULL,
    attempts integer NOT NULL,
    epoch bigint NOT NULL,
    hold boolean NOT NULL,
    behind boolean NOT NULL,
    parked_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE tube.tube_outbox_resting (
    leader_id uuid NOT NULL,
    topic text NOT NULL,
    reason text NOT NULL,
    records bigint NOT NULL,
    since timestamp with time zone NOT NULL,
    next_at timestamp with time zone NOT NULL,
    park boolean DEFAULT false NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE tube.tube_outbox_retry (
    outbox text NOT NULL,
    id bigint NOT NULL,
    slot integer NOT NULL
);

CREATE TABLE tube.tube_parked_document (
    park_id bigint NOT NULL,
    document bytea NOT NULL
);

ALTER TABLE tube.tube_parked ALTER COLUMN park_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tube.tube_parked_park_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE tube.tube_paused (
    pause_id bigint NOT NULL,
    tube text NOT NULL,
    partition integer,
    partitions integer NOT NULL,
    kind text NOT NULL,
    reason text,
    paused_by name DEFAULT SESSION_USER NOT NULL,
    paused_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    until timestamp with time zone,
    CONSTRAINT tube_paused_kind_check CHECK ((kind = ANY (ARRAY['operator'::text, 'poison'::text, 'park_limit'::text])))
);

ALTER TABLE tube.tube_paused ALTER COLUMN pause_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tube.tube_paused_pause_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE tube.tube_registry ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tube.tube_registry_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE tube.tube_sample (
    tube text NOT NULL,
    ended_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    checked integer NOT NULL,
    differing integer NOT NULL,
    undecided integer NOT NULL
)
WITH (fillfactor='50');

CREATE SEQUENCE tube.tube_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE tube.tube_sink (
    tube text NOT NULL,
    mark text,
    seen boolean DEFAULT false NOT NULL,
    emptied_at timestamp with time zone
);

CREATE TABLE tube.tube_sleeper (
    tube text NOT NULL,
    partition integer NOT NULL,
    partitions integer NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE tube.tube_source (
    one boolean DEFAULT true NOT NULL,
    system_identifier bigint,
    timeline integer,
    sequence oid,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT tube_source_one_check CHECK (one)
);

CREATE TABLE tube.tube_step (
    step_id bigint NOT NULL,
    tube text NOT NULL,
    partitions integer NOT NULL,
    partition integer NOT NULL,
    seq bigint NOT NULL,
    shard integer NOT NULL,
    id text NOT NULL,
    asked_by name DEFAULT SESSION_USER NOT NULL,
    asked_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    leader_id uuid,
    outcome text,
    error text,
    ended_at timestamp with time zone,
    CONSTRAINT tube_step_outcome_check CHECK ((outcome = ANY (ARRAY['delivered'::text, 'skipped'::text, 'failed'::text, 'unsent'::text])))
);

ALTER TABLE tube.tube_step ALTER COLUMN step_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tube.tube_step_step_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE tube.tube_term (
    leader_id uuid NOT NULL,
    tube text NOT NULL,
    partition integer NOT NULL,
    partitions integer NOT NULL,
    epoch bigint NOT NULL,
    instance_id uuid NOT NULL,
    client_id text NOT NULL,
    election text NOT NULL,
    hold interval NOT NULL,
    acquired_at timestamp with time zone NOT NULL,
    renewed_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    outcome text NOT NULL,
    CONSTRAINT tube_term_outcome_check CHECK ((outcome = ANY (ARRAY['released'::text, 'superseded'::text, 'repartitioned'::text])))
);

CREATE TABLE tube.tube_trouble (
    leader_id uuid NOT NULL,
    what text NOT NULL,
    reason text NOT NULL,
    since timestamp with time zone NOT NULL,
    CONSTRAINT tube_trouble_what_check CHECK ((what = ANY (ARRAY['sink'::text, 'source'::text, 'slow'::text, 'locked'::text])))
)
WITH (fillfactor='50');

CREATE TABLE tube.tube_unverified (
    tube text NOT NULL,
    cause text NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    is_certain boolean NOT NULL,
    detail text NOT NULL,
    CONSTRAINT tube_unverified_cause_check CHECK ((cause = ANY (ARRAY['source'::text, 'sample'::text])))
);

CREATE TABLE tube.tube_version (
    version_num character varying(32) NOT NULL
);

ALTER TABLE ONLY tube.tube_attachment
    ADD CONSTRAINT tube_attachment_pkey PRIMARY KEY (tube, tbl);

ALTER TABLE ONLY tube.tube_audit
    ADD CONSTRAINT tube_audit_pkey PRIMARY KEY (audit_id);

ALTER TABLE ONLY tube.tube_backfill
    ADD CONSTRAINT tube_backfill_pkey PRIMARY KEY (backfill_id);

ALTER TABLE ONLY tube.tube_failing
    ADD CONSTRAINT tube_failing_pkey PRIMARY KEY (tube, partition);

ALTER TABLE ONLY tube.tube_halted
    ADD CONSTRAINT tube_halted_pkey PRIMARY KEY (leader_id);

ALTER TABLE ONLY tube.tube_installation
    ADD CONSTRAINT tube_installation_pkey PRIMARY KEY (one);

ALTER TABLE ONLY tube.tube_instance
    ADD CONSTRAINT tube_instance_pkey PRIMARY KEY (tube, instance_id);

ALTER TABLE ONLY tube.tube_job
    ADD CONSTRAINT tube_job_number_key UNIQUE (number);

ALTER TABLE ONLY tube.tube_job
    ADD CONSTRAINT tube_job_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY tube.tube_job_unit
    ADD CONSTRAINT tube_job_unit_pkey PRIMARY KEY (job_id, unit);

ALTER TABLE ONLY tube.tube_kafka
    ADD CONSTRAINT tube_kafka_pkey PRIMARY KEY (instance_id, tube, use, bootstrap_servers);

ALTER TABLE ONLY tube.tube_leader
    ADD CONSTRAINT tube_leader_leader_id_key UNIQUE (leader_id);

ALTER TABLE ONLY tube.tube_leader
    ADD CONSTRAINT tube_leader_pkey PRIMARY KEY (tube, partition);

ALTER TABLE ONLY tube.tube_outbox_identity
    ADD CONSTRAINT tube_outbox_identity_pkey PRIMARY KEY (outbox);

ALTER TABLE ONLY tube.tube_outbox_parked
    ADD CONSTRAINT tube_outbox_parked_pkey PRIMARY KEY (outbox, id);

ALTER TABLE ONLY tube.tube_outbox
    ADD CONSTRAINT tube_outbox_pkey PRIMARY KEY (outbox);

ALTER TABLE ONLY tube.tube_outbox_resting
    ADD CONSTRAINT tube_outbox_resting_pkey PRIMARY KEY (leader_id, topic);

ALTER TABLE ONLY tube.tube_outbox_retry
    ADD CONSTRAINT tube_outbox_retry_pkey PRIMARY KEY (outbox, id);

ALTER TABLE ONLY tube.tube_outbox
    ADD CONSTRAINT tube_outbox_tbl_key UNIQUE (tbl);

ALTER TABLE ONLY tube.tube_parked_document
    ADD CONSTRAINT tube_parked_document_pkey PRIMARY KEY (park_id);

ALTER TABLE ONLY tube.tube_parked
    ADD CONSTRAINT tube_parked_pkey PRIMARY KEY (park_id);

ALTER TABLE ONLY tube.tube_paused
    ADD CONSTRAINT tube_paused_pkey PRIMARY KEY (pause_id);

ALTER TABLE ONLY tube.tube_registry
    ADD CONSTRAINT tube_registry_number_key UNIQUE (number);

ALTER TABLE ONLY tube.tube_registry
    ADD CONSTRAINT tube_registry_pkey PRIMARY KEY (tube);

ALTER TABLE ONLY tube.tube_sample
    ADD CONSTRAINT tube_sample_pkey PRIMARY KEY (tube);

ALTER TABLE ONLY tube.tube_sink
    ADD CONSTRAINT tube_sink_pkey PRIMARY KEY (tube);

ALTER TABLE ONLY tube.tube_sleeper
    ADD CONSTRAINT tube_sleeper_pkey PRIMARY KEY (tube, partition);

ALTER TABLE ONLY tube.tube_source
    ADD CONSTRAINT tube_source_pkey PRIMARY KEY (one);

ALTER TABLE ONLY tube.tube_step
    ADD CONSTRAINT tube_step_pkey PRIMARY KEY (step_id);

ALTER TABLE ONLY tube.tube_term
    ADD CONSTRAINT tube_term_pkey PRIMARY KEY (leader_id);

ALTER TABLE ONLY tube.tube_trouble
    ADD CONSTRAINT tube_trouble_pkey PRIMARY KEY (leader_id, what);

ALTER TABLE ONLY tube.tube_unverified
    ADD CONSTRAINT tube_unverified_pkey PRIMARY KEY (tube, cause);

ALTER TABLE ONLY tube.tube_version
    ADD CONSTRAINT tube_version_pkc PRIMARY KEY (version_num);

CREATE UNIQUE INDEX tube_attachment_digest_key ON tube.tube_attachment USING btree ("right"(trigger_function, 8));

CREATE UNIQUE INDEX tube_attempt_key_idx ON tube.tube_attempt USING btree (tube, shard, md5(id));

CREATE INDEX tube_audit_tube_done_at_idx ON tube.tube_audit USING btree (tube, done_at);

CREATE UNIQUE INDEX tube_backfill_active_idx ON tube.tube_backfill USING btree (tube, tbl) WHERE (state = ANY (ARRAY['waiting'::text, 'inserting'::text, 'delivering'::text]));

CREATE INDEX tube_job_backfill_id_idx ON tube.tube_job USING btree (backfill_id) WHERE (backfill_id IS NOT NULL);

CREATE INDEX tube_outbox_parked_key_idx ON tube.tube_outbox_parked USING btree (outbox, topic, md5(key)) WHERE hold;

CREATE UNIQUE INDEX tube_parked_key_idx ON tube.tube_parked USING btree (tube, shard, md5(id)) WHERE (id IS NOT NULL);

CREATE UNIQUE INDEX tube_parked_seq_idx ON tube.tube_parked USING btree (tube, seq) WHERE (id IS NULL);

CREATE UNIQUE INDEX tube_paused_what_idx ON tube.tube_paused USING btree (tube, kind, partitions, COALESCE(partition, '-1'::integer));

CREATE UNIQUE INDEX tube_step_open_idx ON tube.tube_step USING btree (tube, partition) WHERE (ended_at IS NULL);

CREATE INDEX tube_term_tube_ended_at_idx ON tube.tube_term USING btree (tube, ended_at);

CREATE TRIGGER tube_backfill_gone_trigger AFTER DELETE ON tube.tube_backfill FOR EACH ROW EXECUTE FUNCTION tube.tube_private_drop_stored('tube_backfill_ids_', 'backfill_id');

CREATE TRIGGER tube_job_gone_trigger AFTER DELETE ON tube.tube_job FOR EACH ROW EXECUTE FUNCTION tube.tube_private_drop_stored('tube_job_pods_', 'number');

CREATE TRIGGER tube_sleeper_flag_trigger AFTER INSERT OR DELETE OR UPDATE ON tube.tube_sleeper FOR EACH ROW EXECUTE FUNCTION tube.tube_private_set_flag();

ALTER TABLE ONLY tube.tube_attachment
    ADD CONSTRAINT tube_attachment_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_attempt
    ADD CONSTRAINT tube_attempt_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_backfill
    ADD CONSTRAINT tube_backfill_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_failing
    ADD CONSTRAINT tube_failing_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_instance
    ADD CONSTRAINT tube_instance_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_job
    ADD CONSTRAINT tube_job_backfill_id_fkey FOREIGN KEY (backfill_id) REFERENCES tube.tube_backfill(backfill_id) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_job_unit
    ADD CONSTRAINT tube_job_unit_job_id_fkey FOREIGN KEY (job_id) REFERENCES tube.tube_job(job_id) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_leader
    ADD CONSTRAINT tube_leader_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_outbox_identity
    ADD CONSTRAINT tube_outbox_identity_outbox_fkey FOREIGN KEY (outbox) REFERENCES tube.tube_outbox(outbox) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_outbox
    ADD CONSTRAINT tube_outbox_outbox_fkey FOREIGN KEY (outbox) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_outbox_parked
    ADD CONSTRAINT tube_outbox_parked_outbox_fkey FOREIGN KEY (outbox) REFERENCES tube.tube_outbox(outbox) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_outbox_retry
    ADD CONSTRAINT tube_outbox_retry_outbox_fkey FOREIGN KEY (outbox) REFERENCES tube.tube_outbox(outbox) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_parked_document
    ADD CONSTRAINT tube_parked_document_park_id_fkey FOREIGN KEY (park_id) REFERENCES tube.tube_parked(park_id) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_parked
    ADD CONSTRAINT tube_parked_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_paused
    ADD CONSTRAINT tube_paused_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_registry
    ADD CONSTRAINT tube_registry_companion_of_fkey FOREIGN KEY (companion_of) REFERENCES tube.tube_registry(tube);

ALTER TABLE ONLY tube.tube_sample
    ADD CONSTRAINT tube_sample_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_sink
    ADD CONSTRAINT tube_sink_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_sleeper
    ADD CONSTRAINT tube_sleeper_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_step
    ADD CONSTRAINT tube_step_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_unverified
    ADD CONSTRAINT tube_unverified_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

GRANT USAGE ON SCHEMA tube TO PUBLIC;

REVOKE ALL ON FUNCTION tube.outbox_adopt(outbox text, tbl regclass, partitions integer, wake boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_adopt(outbox text, tbl regclass, partitions integer, wake boolean) TO tube_admin;

REVOKE ALL ON FUNCTION tube.outbox_drop(outbox text, force boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_drop(outbox text, force boolean) TO tube_admin;

REVOKE ALL ON FUNCTION tube.outbox_ensure_absent(in_outbox text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_ensure_absent(in_outbox text) TO tube_admin;

REVOKE ALL ON FUNCTION tube.outbox_ensure_exists(outbox text, partitions integer, value_type regtype) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_ensure_exists(outbox text, partitions integer, value_type regtype) TO tube_admin;

REVOKE ALL ON FUNCTION tube.outbox_identity(outbox text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_identity(outbox text) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_identity(outbox text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.outbox_index_sql(outbox text, partitions integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_index_sql(outbox text, partitions integer) TO tube_admin;

REVOKE ALL ON FUNCTION tube.outbox_list() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_list() TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_list() TO tube_worker;
GRANT ALL ON FUNCTION tube.outbox_list() TO tube_writer;
GRANT ALL ON FUNCTION tube.outbox_list() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.outbox_parked(in_outbox text, in_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_parked(in_outbox text, in_limit integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_parked(in_outbox text, in_limit integer) TO tube_worker;
GRANT ALL ON FUNCTION tube.outbox_parked(in_outbox text, in_limit integer) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.outbox_parked_drop(outbox text, ids bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_parked_drop(outbox text, ids bigint[]) TO tube_admin;

REVOKE ALL ON FUNCTION tube.outbox_records_mark(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, floor bigint, settled_floor bigint, long_writers xid8[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_records_mark(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, floor bigint, settled_floor bigint, long_writers xid8[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_records_mark(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, floor bigint, settled_floor bigint, long_writers xid8[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.outbox_records_mark_around(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, ids bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_records_mark_around(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, ids bigint[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_records_mark_around(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, ids bigint[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.outbox_records_park(outbox text, partitions integer, partition integer, leader_id uuid, items jsonb, hold boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_records_park(outbox text, partitions integer, partition integer, leader_id uuid, items jsonb, hold boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_records_park(outbox text, partitions integer, partition integer, leader_id uuid, items jsonb, hold boolean) TO tube_worker;

REVOKE ALL ON FUNCTION tube.outbox_records_park_topic(outbox text, partitions integer, partition integer, leader_id uuid, topic text, error text, ids bigint[], hold boolean, records_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_records_park_topic(outbox text, partitions integer, partition integer, leader_id uuid, topic text, error text, ids bigint[], hold boolean, records_limit integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_records_park_topic(outbox text, partitions integer, partition integer, leader_id uuid, topic text, error text, ids bigint[], hold boolean, records_limit integer) TO tube_worker;

REVOKE ALL ON FUNCTION tube.outbox_records_purge(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_records_purge(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_records_purge(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.outbox_records_purge_sent(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[], created_until timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_records_purge_sent(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[], created_until timestamp with time zone) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_records_purge_sent(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[], created_until timestamp with time zone) TO tube_worker;

REVOKE ALL ON FUNCTION tube.outbox_records_reset(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_records_reset(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_records_reset(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.outbox_resting(in_outbox text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_resting(in_outbox text) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_resting(in_outbox text) TO tube_worker;
GRANT ALL ON FUNCTION tube.outbox_resting(in_outbox text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.outbox_retry(outbox text, ids bigint[], topic text, key text, in_seen pg_snapshot, in_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_retry(outbox text, ids bigint[], topic text, key text, in_seen pg_snapshot, in_limit integer) TO tube_admin;

REVOKE ALL ON FUNCTION tube.outbox_stash(outbox text, topic text, key text, value bytea, headers jsonb, partition_key text, in_order boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_stash(outbox text, topic text, key text, value bytea, headers jsonb, partition_key text, in_order boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_stash(outbox text, topic text, key text, value bytea, headers jsonb, partition_key text, in_order boolean) TO tube_writer;

REVOKE ALL ON FUNCTION tube.outbox_stash(outbox text, topic text, key text, value text, headers jsonb, partition_key text, in_order boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_stash(outbox text, topic text, key text, value text, headers jsonb, partition_key text, in_order boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_stash(outbox text, topic text, key text, value text, headers jsonb, partition_key text, in_order boolean) TO tube_writer;

REVOKE ALL ON FUNCTION tube.outbox_stash_many(outbox text, topics text[], keys text[], bodies text[], headers jsonb, partition_keys text[], in_order boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_stash_many(outbox text, topics text[], keys text[], bodies text[], headers jsonb, partition_keys text[], in_order boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_stash_many(outbox text, topics text[], keys text[], bodies text[], headers jsonb, partition_keys text[], in_order boolean) TO tube_writer;

REVOKE ALL ON FUNCTION tube.outbox_stash_many_bytea(outbox text, topics text[], keys text[], bodies bytea[], headers jsonb, partition_keys text[], in_order boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_stash_many_bytea(outbox text, topics text[], keys text[], bodies bytea[], headers jsonb, partition_keys text[], in_order boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_stash_many_bytea(outbox text, topics text[], keys text[], bodies bytea[], headers jsonb, partition_keys text[], in_order boolean) TO tube_writer;

REVOKE ALL ON FUNCTION tube.outbox_stats() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_stats() TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_stats() TO tube_worker;
GRANT ALL ON FUNCTION tube.outbox_stats() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.outbox_topic_park(outbox text, topic text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_topic_park(outbox text, topic text) TO tube_admin;

REVOKE ALL ON FUNCTION tube.outbox_topics_rest(outbox text, partitions integer, partition integer, leader_id uuid, topics jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_topics_rest(outbox text, partitions integer, partition integer, leader_id uuid, topics jsonb) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_topics_rest(outbox text, partitions integer, partition integer, leader_id uuid, topics jsonb) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_applied() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_applied() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_applied() TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_applied() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_applied_attached(tube text, tbl regclass) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_applied_attached(tube text, tbl regclass) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_applied_set(tube text, digest text, made boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_applied_set(tube text, digest text, made boolean) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_as_caller(in_search_path text, first text, statement text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_as_caller(in_search_path text, first text, statement text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_as_caller(in_search_path text, first text, statement text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_as_caller(in_search_path text, first text, statement text) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_attempts_reset(tube text, in_partition integer, in_shard integer, in_key text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_attempts_reset(tube text, in_partition integer, in_shard integer, in_key text) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_audit_add(action text, tube text, details jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_audit_add(action text, tube text, details jsonb) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_audit_add(action text, tube text, details jsonb) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_audit_add(action text, tube text, details jsonb) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_audit_list(in_tube text, in_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_audit_list(in_tube text, in_limit integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_audit_list(in_tube text, in_limit integer) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_audit_list(in_tube text, in_limit integer) TO tube_monitor;

GRANT SELECT ON TABLE tube.tube_backfill TO tube_admin;
GRANT SELECT ON TABLE tube.tube_backfill TO tube_worker;
GRANT SELECT ON TABLE tube.tube_backfill TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_backfill_chunk(backfill_id bigint, pods integer, rate double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_chunk(backfill_id bigint, pods integer, rate double precision) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_chunk(backfill_id bigint, pods integer, rate double precision) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_collect(backfill_id bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_collect(backfill_id bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_collect(backfill_id bigint) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_command(backfill_id bigint, command text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_command(backfill_id bigint, command text) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_backfill_create(tube text, tbl regclass, order_col text, supersede boolean, by_worker boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_create(tube text, tbl regclass, order_col text, supersede boolean, by_worker boolean) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_backfill_holders(xids text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_holders(xids text[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_holders(xids text[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_join(backfill_id bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_join(backfill_id bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_join(backfill_id bigint) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_list(in_tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_list(in_tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_list(in_tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_backfill_list(in_tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_backfill_lock(backfill_id bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_lock(backfill_id bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_lock(backfill_id bigint) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_note(backfill_id bigint, note text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_note(backfill_id bigint, note text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_note(backfill_id bigint, note text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_pressure(tube text, pods_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_pressure(tube text, pods_limit integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_pressure(tube text, pods_limit integer) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_range(backfill_id bigint, unit integer, rate double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_range(backfill_id bigint, unit integer, rate double precision) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_range(backfill_id bigint, unit integer, rate double precision) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_schedule(in_tube text, order_col text, shard_from integer, shard_to integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_schedule(in_tube text, order_col text, shard_from integer, shard_to integer) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_backfill_split(backfill_id bigint, ranges integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_split(backfill_id bigint, ranges integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_split(backfill_id bigint, ranges integer) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_step1() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_step1() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_step1() TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_step2(timeout interval) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_step2(timeout interval) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_step2(timeout interval) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_step3(step1 text, tube text, tbl regclass, order_col text, shard integer, fetch_chunk_size integer, insert_chunk_size integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_step3(step1 text, tube text, tbl regclass, order_col text, shard integer, fetch_chunk_size integer, insert_chunk_size integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_step3(step1 text, tube text, tbl regclass, order_col text, shard integer, fetch_chunk_size integer, insert_chunk_size integer) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_take(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_take(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_take(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_tidy() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_tidy() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_tidy() TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_unlock(backfill_id bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_unlock(backfill_id bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_unlock(backfill_id bigint) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_waiting(backfill_id bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_waiting(backfill_id bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_waiting(backfill_id bigint) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_backfill_waiting(backfill_id bigint) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_channel(tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_channel(tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_channel(tube text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_companion_ensure(tube text, companion text, key_type regtype) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_companion_ensure(tube text, companion text, key_type regtype) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_companions(tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_companions(tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_companions(tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_companions(tube text) TO tube_writer;
GRANT ALL ON FUNCTION tube.tube_companions(tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_delivered_channel(tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_delivered_channel(tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_delivered_channel(tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_delivered_channel(tube text) TO tube_writer;
GRANT ALL ON FUNCTION tube.tube_delivered_channel(tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_delivered_parked(tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_delivered_parked(tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_delivered_parked(tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_delivered_parked(tube text) TO tube_writer;
GRANT ALL ON FUNCTION tube.tube_delivered_parked(tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_delivered_watch(tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_delivered_watch(tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_delivered_watch(tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_delivered_watch(tube text) TO tube_writer;
GRANT ALL ON FUNCTION tube.tube_delivered_watch(tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_document_declare(tube text, digest text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_document_declare(tube text, digest text) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_document_touch(tube text, op text, ids anyarray) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_document_touch(tube text, op text, ids anyarray) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_document_touch(tube text, op text, ids anyarray) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_documents() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_documents() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_documents() TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_documents() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_drop(tube text, force boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_drop(tube text, force boolean) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_ensure_absent(in_tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_ensure_absent(in_tube text) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_ensure_exists(tube text, partitions integer, predicate text, key_type regtype) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_ensure_exists(tube text, partitions integer, predicate text, key_type regtype) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_failing_list() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_failing_list() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_failing_list() TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_failing_list() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_failing_note(tube text, partition integer, reason text, terms integer, seconds double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_failing_note(tube text, partition integer, reason text, terms integer, seconds double precision) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_failing_note(tube text, partition integer, reason text, terms integer, seconds double precision) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_hindered_list() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_hindered_list() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_hindered_list() TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_hindered_list() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_id_column(tbl regclass, id_col name) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_id_column(tbl regclass, id_col name) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_id_column(tbl regclass, id_col name) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_id_column(tbl regclass, id_col name) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_ids_waiting() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_ids_waiting() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_ids_waiting() TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_ids_waiting() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_index_fit() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_index_fit() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_index_fit() TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_index_sql(tube text, partitions integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_index_sql(tube text, partitions integer) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_instances(in_tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_instances(in_tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_instances(in_tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_instances(in_tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_job_begin(job_id text, tubes text[], kind text, fingerprint text, units integer, bounds text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_job_begin(job_id text, tubes text[], kind text, fingerprint text, units integer, bounds text[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_job_begin(job_id text, tubes text[], kind text, fingerprint text, units integer, bounds text[]) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_job_done(job_id text, unit integer, rows bigint, ids bigint, pods bigint, shards integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_job_done(job_id text, unit integer, rows bigint, ids bigint, pods bigint, shards integer[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_job_done(job_id text, unit integer, rows bigint, ids bigint, pods bigint, shards integer[]) TO tube_writer;

GRANT SELECT ON TABLE tube.tube_job TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_job_finish(job_id text, attempts uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_job_finish(job_id text, attempts uuid[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_job_finish(job_id text, attempts uuid[]) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_job_forget(job_id text, before timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_job_forget(job_id text, before timestamp with time zone) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_job_forget(job_id text, before timestamp with time zone) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_job_list(in_job text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_job_list(in_job text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_job_list(in_job text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_job_list(in_job text) TO tube_writer;
GRANT ALL ON FUNCTION tube.tube_job_list(in_job text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_job_units(job_id text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_job_units(job_id text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_job_units(job_id text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_job_units(job_id text) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_kafka_back() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_kafka_back() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_kafka_back() TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_kafka_back() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_kafka_report(instance_id uuid, client_id text, unreachable jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_kafka_report(instance_id uuid, client_id text, unreachable jsonb) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_kafka_report(instance_id uuid, client_id text, unreachable jsonb) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_kafka_unreachable() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_kafka_unreachable() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_kafka_unreachable() TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_kafka_unreachable() TO tube_monitor;

GRANT ALL ON FUNCTION tube.tube_key_part(key text, place integer) TO tube_admin;

GRANT ALL ON FUNCTION tube.tube_key_types(tbl regclass, columns name[]) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_keys_as_caller(in_search_path text, first text, statement text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_keys_as_caller(in_search_path text, first text, statement text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_keys_as_caller(in_search_path text, first text, statement text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_keys_as_caller(in_search_path text, first text, statement text) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_keys_put(tube_or_tubes text, shard integer, op text, keys text[], chunk_size integer, last boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_keys_put(tube_or_tubes text, shard integer, op text, keys text[], chunk_size integer, last boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_keys_put(tube_or_tubes text, shard integer, op text, keys text[], chunk_size integer, last boolean) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_keys_put(tube_or_tubes text, shard integer, op text, keys text[], chunk_size integer, last boolean) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_keys_waiting(tube text, up_to bigint, shards integer[], ids text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_keys_waiting(tube text, up_to bigint, shards integer[], ids text[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_keys_waiting(tube text, up_to bigint, shards integer[], ids text[]) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_keys_waiting(tube text, up_to bigint, shards integer[], ids text[]) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_leader_acquire(tube text, partitions integer, partition integer, leader_id uuid, instance_id uuid, client_id text, expected_epoch bigint, election text, hold interval, lease interval) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_leader_acquire(tube text, partitions integer, partition integer, leader_id uuid, instance_id uuid, client_id text, expected_epoch bigint, election text, hold interval, lease interval) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_leader_acquire(tube text, partitions integer, partition integer, leader_id uuid, instance_id uuid, client_id text, expected_epoch bigint, election text, hold interval, lease interval) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_leader_epoch(tube text, partitions integer, partition integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_leader_epoch(tube text, partitions integer, partition integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_leader_epoch(tube text, partitions integer, partition integer) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_leader_rebase(tube text, epoch bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_leader_rebase(tube text, epoch bigint) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_leader_release(tube text, partitions integer, partition integer, leader_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_leader_release(tube text, partitions integer, partition integer, leader_id uuid) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_leader_release(tube text, partitions integer, partition integer, leader_id uuid) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_leader_renew(tube text, partitions integer, partition integer, leader_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_leader_renew(tube text, partitions integer, partition integer, leader_id uuid) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_leader_renew(tube text, partitions integer, partition integer, leader_id uuid) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_leader_wait(tube text, partitions integer, partition integer, leader_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_leader_wait(tube text, partitions integer, partition integer, leader_id uuid) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_leader_wait(tube text, partitions integer, partition integer, leader_id uuid) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_leaders(in_tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_leaders(in_tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_leaders(in_tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_leaders(in_tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_leaders_renew(tube text, leader_ids uuid[], troubles jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_leaders_renew(tube text, leader_ids uuid[], troubles jsonb) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_leaders_renew(tube text, leader_ids uuid[], troubles jsonb) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_lease_leave(tube text, instance_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_lease_leave(tube text, instance_id uuid) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_lease_leave(tube text, instance_id uuid) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_lease_tick(tube text, instance_id uuid, client_id text, ttl interval) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_lease_tick(tube text, instance_id uuid, client_id text, ttl interval) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_lease_tick(tube text, instance_id uuid, client_id text, ttl interval) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_lease_ticks(tubes text[], instance_id uuid, client_id text, ttl interval) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_lease_ticks(tubes text[], instance_id uuid, client_id text, ttl interval) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_lease_ticks(tubes text[], instance_id uuid, client_id text, ttl interval) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_list(in_tbl regclass) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_list(in_tbl regclass) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_list(in_tbl regclass) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_list(in_tbl regclass) TO tube_writer;
GRANT ALL ON FUNCTION tube.tube_list(in_tbl regclass) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_load(in_most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_load(in_most integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_load(in_most integer) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_load(in_most integer) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_park_count(in_tube text, in_shard integer, in_key text, in_error text, in_older interval) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_park_count(in_tube text, in_shard integer, in_key text, in_error text, in_older interval) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_park_count(in_tube text, in_shard integer, in_key text, in_error text, in_older interval) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_park_count(in_tube text, in_shard integer, in_key text, in_error text, in_older interval) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_park_drop(tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, in_seen pg_snapshot, in_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_park_drop(tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, in_seen pg_snapshot, in_limit integer) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_park_list(in_tube text, in_limit integer, in_shard integer, in_key text, in_error text, in_older interval) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_park_list(in_tube text, in_limit integer, in_shard integer, in_key text, in_error text, in_older interval) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_park_list(in_tube text, in_limit integer, in_shard integer, in_key text, in_error text, in_older interval) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_park_list(in_tube text, in_limit integer, in_shard integer, in_key text, in_error text, in_older interval) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_park_retry(tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, in_seen pg_snapshot, in_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_park_retry(tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, in_seen pg_snapshot, in_limit integer) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_pause(tube text, in_partition integer, lasts interval, reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pause(tube text, in_partition integer, lasts interval, reason text) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_pause_list(in_tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pause_list(in_tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pause_list(in_tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_pause_list(in_tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_pause_reason(tube text, partitions integer, partition integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pause_reason(tube text, partitions integer, partition integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pause_reason(tube text, partitions integer, partition integer) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_pods_ack(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_ack(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_pods_count(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_count(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_count(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_pods_count(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_pods_delete(tube text, partitions integer, partition integer, seqs bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_delete(tube text, partitions integer, partition integer, seqs bigint[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_delete(tube text, partitions integer, partition integer, seqs bigint[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_pods_fail(tube text, partitions integer, partition integer, leader_id uuid, items jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_fail(tube text, partitions integer, partition integer, leader_id uuid, items jsonb) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_fail(tube text, partitions integer, partition integer, leader_id uuid, items jsonb) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_pods_insert(tube_or_tubes text, query text, shard integer, op character, approx_size bigint, fetch_chunk_size integer, insert_chunk_size integer, in_search_path text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_insert(tube_or_tubes text, query text, shard integer, op character, approx_size bigint, fetch_chunk_size integer, insert_chunk_size integer, in_search_path text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_insert(tube_or_tubes text, query text, shard integer, op character, approx_size bigint, fetch_chunk_size integer, insert_chunk_size integer, in_search_path text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_pods_insert(tube_or_tubes text, query text, shard integer, op character, approx_size bigint, fetch_chunk_size integer, insert_chunk_size integer, in_search_path text) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_pods_list(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer, in_keys integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_list(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer, in_keys integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_list(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer, in_keys integer) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_pods_list(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer, in_keys integer) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_pods_mark(tube text, partitions integer, partition integer, leader_id uuid, pods_limit integer, floor bigint, backfill_floor bigint, exclude_backfill boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_mark(tube text, partitions integer, partition integer, leader_id uuid, pods_limit integer, floor bigint, backfill_floor bigint, exclude_backfill boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_mark(tube text, partitions integer, partition integer, leader_id uuid, pods_limit integer, floor bigint, backfill_floor bigint, exclude_backfill boolean) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_pods_of(tube text, shard integer, id text, most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_of(tube text, shard integer, id text, most integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_of(tube text, shard integer, id text, most integer) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_pods_of(tube text, shard integer, id text, most integer) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_pods_park(tube text, partitions integer, partition integer, leader_id uuid, items jsonb, in_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_park(tube text, partitions integer, partition integer, leader_id uuid, items jsonb, in_limit integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_park(tube text, partitions integer, partition integer, leader_id uuid, items jsonb, in_limit integer) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_pods_purge(tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_purge(tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_purge(tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_pods_put(tube_or_tubes text, shard integer, op text, ids bigint[], chunk_size integer, last boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_put(tube_or_tubes text, shard integer, op text, ids bigint[], chunk_size integer, last boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_put(tube_or_tubes text, shard integer, op text, ids bigint[], chunk_size integer, last boolean) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_pods_put(tube_or_tubes text, shard integer, op text, ids bigint[], chunk_size integer, last boolean) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_pods_reset(tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_reset(tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_reset(tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_pods_retry(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_retry(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_pods_sql(tube text, partitions integer, partition integer, exclude_backfill boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_sql(tube text, partitions integer, partition integer, exclude_backfill boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_sql(tube text, partitions integer, partition integer, exclude_backfill boolean) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_pods_stop(tube text, partitions integer, partition integer, leader_id uuid, why text, reason text, items jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_stop(tube text, partitions integer, partition integer, leader_id uuid, why text, reason text, items jsonb) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_stop(tube text, partitions integer, partition integer, leader_id uuid, why text, reason text, items jsonb) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_pods_unpark(tube text, partitions integer, partition integer, leader_id uuid, shards integer[], ids text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_unpark(tube text, partitions integer, partition integer, leader_id uuid, shards integer[], ids text[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_unpark(tube text, partitions integer, partition integer, leader_id uuid, shards integer[], ids text[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_add_tube(tube text, partitions integer, predicate text, key_type regtype, companion_of text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_adopt(outbox text, tbl regclass, partitions integer, wake boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_adopt(outbox text, tbl regclass, partitions integer, wake boolean) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_adoption_fault(tbl regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_adoption_rights(outbox text, tbl regclass, OUT worker name, OUT statements text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_adoption_rights(outbox text, tbl regclass, OUT worker name, OUT statements text[]) TO tube_admin;

GRANT SELECT ON TABLE tube.tube_attachment TO tube_admin;
GRANT SELECT ON TABLE tube.tube_attachment TO tube_worker;
GRANT SELECT ON TABLE tube.tube_attachment TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_private_ask_backfill(att tube.tube_attachment, why text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_ask_once(tube text, shard integer, root text, order_col name) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_ask_owner(att tube.tube_attachment, statement text, rel regclass, late boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_attach(tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean, key_cols name[], shard_by name) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_attach(tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean, key_cols name[], shard_by name) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_attachment(tube text, tbl regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_attachment_now(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_attachments_with(tube text, predicate text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_audit_parked(action text, tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, keys text[], count integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_audit_pods(action text, tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, pods integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_backfill_count_ends(backfill_id bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_backfill_fault(backfill tube.tube_backfill) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_backfill_key(backfill_id bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_backfill_sql(backfill tube.tube_backfill, att tube.tube_attachment, within text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_backfills_at_end(tube text, seqs bigint[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_base_type(type oid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_begin_around(outbox text, partitions integer, partition integer, leader_id uuid, OUT tbl text, OUT free text, OUT choose text, OUT locked text, OUT mark text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_begin_around(outbox text, partitions integer, partition integer, leader_id uuid, OUT tbl text, OUT free text, OUT choose text, OUT locked text, OUT mark text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_begin_around(outbox text, partitions integer, partition integer, leader_id uuid, OUT tbl text, OUT free text, OUT choose text, OUT locked text, OUT mark text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_begin_attach(tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean, key_cols name[], shard_by name, OUT was tube.tube_attachment, OUT wanted tube.tube_attachment, OUT differs boolean, OUT anew boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_begin_attach(tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean, key_cols name[], shard_by name, OUT was tube.tube_attachment, OUT wanted tube.tube_attachment, OUT differs boolean, OUT anew boolean) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_begin_change(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[], OUT tbl text, OUT condition text, OUT part text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_begin_change(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[], OUT tbl text, OUT condition text, OUT part text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_begin_change(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[], OUT tbl text, OUT condition text, OUT part text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_begin_collect(backfill_id bigint, OUT query text, OUT tbl regclass, OUT table_name text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_begin_collect(backfill_id bigint, OUT query text, OUT tbl regclass, OUT table_name text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_begin_collect(backfill_id bigint, OUT query text, OUT tbl regclass, OUT table_name text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_begin_mark(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, floor bigint, passed boolean, OUT mark text, OUT ids bigint[], OUT again text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_begin_mark(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, floor bigint, passed boolean, OUT mark text, OUT ids bigint[], OUT again text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_begin_mark(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, floor bigint, passed boolean, OUT mark text, OUT ids bigint[], OUT again text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_begin_range(backfill_id bigint, unit integer, OUT query text, OUT tbl regclass, OUT table_name text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_begin_range(backfill_id bigint, unit integer, OUT query text, OUT tbl regclass, OUT table_name text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_begin_range(backfill_id bigint, unit integer, OUT query text, OUT tbl regclass, OUT table_name text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_begin_split(backfill_id bigint, ranges integer, OUT query text, OUT tbl regclass, OUT table_name text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_begin_split(backfill_id bigint, ranges integer, OUT query text, OUT tbl regclass, OUT table_name text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_begin_split(backfill_id bigint, ranges integer, OUT query text, OUT tbl regclass, OUT table_name text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_begin_step3(step1 text, tube text, tbl regclass, order_col text, shard integer, OUT query text, OUT first integer, OUT size bigint, OUT table_name text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_begin_step3(step1 text, tube text, tbl regclass, order_col text, shard integer, OUT query text, OUT first integer, OUT size bigint, OUT table_name text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_begin_step3(step1 text, tube text, tbl regclass, order_col text, shard integer, OUT query text, OUT first integer, OUT size bigint, OUT table_name text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_begin_sync(tube text, tbl regclass) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_begin_sync(tube text, tbl regclass) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_begin_sync(tube text, tbl regclass) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_bound_sql(row_name text, col name, type oid, bound oid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_briefly(statements text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_briefly(statements text[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_briefly(statements text[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_bring_in_line(att tube.tube_attachment, mode text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_bring_in_line(att tube.tube_attachment, mode text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_bring_in_line(att tube.tube_attachment, mode text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_capture_body(att tube.tube_attachment, is_root boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_capture_name(tube text, tbl regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_capture_schema() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_capture_schema() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_capture_schema() TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_change_pods(change text, tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_check_ids(ids anyarray) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_check_items(items jsonb) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_check_key(tbl regclass, key_cols name[], id_col name, key_type regtype) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_check_limit(in_limit integer, at_least integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_check_messages(topics integer, keys integer, bodies integer, headers jsonb, partition_keys integer, wrong_topic text, missing boolean, homeless boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_check_messages(topics integer, keys integer, bodies integer, headers jsonb, partition_keys integer, wrong_topic text, missing boolean, homeless boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_check_messages(topics integer, keys integer, bodies integer, headers jsonb, partition_keys integer, wrong_topic text, missing boolean, homeless boolean) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_private_check_partition(tube text, partitions integer, partition integer) FROM PUBLIC;

GRANT SELECT ON TABLE tube.tube_registry TO tube_admin;
GRANT SELECT ON TABLE tube.tube_registry TO tube_worker;
GRANT SELECT ON TABLE tube.tube_registry TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_private_check_pods(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_check_shard_by(att tube.tube_attachment, shard_by name) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_check_shards(tube text, partitions integer, partition integer, items jsonb) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_check_term(leader_id uuid, instance_id uuid, client_id text, election text, hold interval, lease interval) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_check_touch(shard integer, ids anyarray, op text, chunk_size integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_check_tube(tube text, partitions integer, present regtype, wanted regtype) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_choose_parked(outbox text, ids bigint[], topic text, key text, in_seen pg_snapshot, in_limit integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_class_sql(reg tube.tube_registry) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_classes_sql(reg tube.tube_registry, most integer, ends boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_close_capture() FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_columns(tbl regclass, columns name[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_control_waits(tube text, first integer, shards integer, types text[], of_step3 boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_cursor_error(statement text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_drop(tube text, force boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_drop_former(stored tube.tube_attachment, wanted tube.tube_attachment, trigger_function text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_drop_outbox(outbox text, force boolean, OUT needed text[], OUT wanted text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_drop_outbox(outbox text, force boolean, OUT needed text[], OUT wanted text[]) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_drop_parked(outbox text, ids bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_drop_parked(outbox text, ids bigint[]) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_drop_routines(att tube.tube_attachment, owner regrole) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_drop_stored() FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_drop_strangers(tube text, tbl oid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_each_once(names name[], others name[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_end_backfill(backfill tube.tube_backfill, outcome text, note text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_end_collect(backfill_id bigint, pods bigint, wrong text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_end_collect(backfill_id bigint, pods bigint, wrong text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_end_collect(backfill_id bigint, pods bigint, wrong text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_end_job(job tube.tube_job) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_end_range(backfill_id bigint, unit integer, ids bigint, pods bigint, touched integer[], rate double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_end_range(backfill_id bigint, unit integer, ids bigint, pods bigint, touched integer[], rate double precision) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_end_range(backfill_id bigint, unit integer, ids bigint, pods bigint, touched integer[], rate double precision) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_end_split(backfill_id bigint, bounds text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_end_split(backfill_id bigint, bounds text[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_end_split(backfill_id bigint, bounds text[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_end_step3(step1 text, tube text, tbl regclass, first integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_end_step3(step1 text, tube text, tbl regclass, first integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_end_step3(step1 text, tube text, tbl regclass, first integer) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_end_terms(tube text, partition integer, outcome text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_ensure_tube(tube text, partitions integer, predicate text, key_type regtype) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_ensure_tube(tube text, partitions integer, predicate text, key_type regtype) TO tube_admin;

GRANT SELECT ON TABLE tube.tube_outbox TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_enter_outbox(outbox text, partitions integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_fill(template text, fragments jsonb) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_fit_index(queue text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_flag_sql(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_follow_columns(tube text, tbl regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_follow_ddl() FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_follow_members(att tube.tube_attachment, members oid[], waiting oid[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_follow_root(tube text, in_shard integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_follow_types(was tube.tube_attachment, now tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_forget(tube text, tables regclass[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_forget_failures(reg tube.tube_registry, places tid[], in_key text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_forget_rest(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_free_parked(outbox text, ids bigint[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_free_partitions(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_full_xid(xid xid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_function(att tube.tube_attachment, kind text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_function_ddl(name text, types text, arguments text, returns text, path boolean, body text, owner regrole, callers regrole[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_guard(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_hold_parked(in_tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, in_seen pg_snapshot, only_new boolean, in_limit integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_hold_pods(reg tube.tube_registry, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer, only_free boolean, OUT free tid[], OUT flying tid[], OUT first_flying bigint, OUT of_client text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_hold_term(tube text, partitions integer, partition integer, leader_id uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_holders(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_holds_backfill(backfill_id bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_id_sql(att tube.tube_attachment, row_name text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_in_flight(leader_id uuid, seq bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_index(queue text, partitions integer, OUT name text, OUT ddl text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_index_of(tube text, partitions integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_indexes(queue text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_inserting_attachment(backfill tube.tube_backfill) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_is_fresh(rel oid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_is_root(att tube.tube_attachment) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_is_root(att tube.tube_attachment) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_is_swept(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_keeps_plans(tube text, partitions integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_kept_key(reg tube.tube_registry, in_key text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_key(tbl regclass, wanted name, key_type regtype) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_key_attnums(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_key_fits(column_type oid, key_type regtype) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_key_is_unique(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_key_label(att tube.tube_attachment) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_key_label(att tube.tube_attachment) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_key_names(att tube.tube_attachment) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_key_names(att tube.tube_attachment) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_key_texts(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_key_type(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_key_types(key_type regtype) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_least_seq(tube text, partitions integer, partition integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_lock_backfill(backfill_id bigint, held boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_lock_job(job_id text, alone boolean, of_backfill boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_lock_parked(outbox text, partitions integer, partition integer, leader_id uuid, OUT tbl text, OUT key text, OUT slot text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_lock_parked(outbox text, partitions integer, partition integer, leader_id uuid, OUT tbl text, OUT key text, OUT slot text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_lock_parked(outbox text, partitions integer, partition integer, leader_id uuid, OUT tbl text, OUT key text, OUT slot text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_lock_touch(tbl regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_make(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_make_flag(reg tube.tube_registry) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_make_outbox(outbox text, value_type regtype) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_make_touch(name text, types text, arguments text, body text, callers regrole[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_mark_sql(tube text, partitions integer, partition integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_masked(text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_may_notify() FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_member_oids(tbl regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_members(tbl regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_misfit_digest(tube text, tbl regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_name(stem text, ending text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_next_index(reg tube.tube_registry, partitions integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_one_id_body(att tube.tube_attachment, is_partitioned boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_op_of_sides() FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_op_sql(op text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_open_capture(tbl regclass) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_open_capture(tbl regclass) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_open_capture(tbl regclass) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_open_schema(schema regnamespace, worker name) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_open_schema(schema regnamespace, worker name) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_order_column(tbl regclass, order_col text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_our_ddl(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_outbox_fence(outbox text, partitions integer, partition integer, leader_id uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_outbox_figures(records text, outbox text, OUT count text, OUT min_id bigint, OUT max_id bigint, OUT min_create_time timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_outbox_figures(records text, outbox text, OUT count text, OUT min_id bigint, OUT max_id bigint, OUT min_create_time timestamp with time zone) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_outbox_figures(records text, outbox text, OUT count text, OUT min_id bigint, OUT max_id bigint, OUT min_create_time timestamp with time zone) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_private_outbox_figures(records text, outbox text, OUT count text, OUT min_id bigint, OUT max_id bigint, OUT min_create_time timestamp with time zone) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_private_outbox_key(adopted boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_outbox_part(adopted boolean, partitions integer, partition integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_outbox_parts(outbox text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_outbox_parts(outbox text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_outbox_parts(outbox text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_private_outbox_parts(outbox text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_private_outbox_slot(adopted boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_outbox_table(box tube.tube_outbox) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_outbox_target(outbox text, OUT tbl text, OUT value_type text, OUT adopted boolean, OUT locks bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_outbox_target(outbox text, OUT tbl text, OUT value_type text, OUT adopted boolean, OUT locks bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_outbox_target(outbox text, OUT tbl text, OUT value_type text, OUT adopted boolean, OUT locks bigint) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_private_outbox_trigger(reg tube.tube_registry, tbl text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_outbox_wake() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_outbox_wake() TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_owner_ddl(att tube.tube_attachment, is_owner boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_owner_ddl(att tube.tube_attachment, is_owner boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_owner_ddl(att tube.tube_attachment, is_owner boolean) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_owner_of(tbl regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_page_runs(tbl regclass, cuts bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_page_runs(tbl regclass, cuts bigint[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_page_runs(tbl regclass, cuts bigint[]) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_private_page_runs(tbl regclass, cuts bigint[]) TO tube_monitor;

GRANT SELECT ON TABLE tube.tube_parked TO tube_admin;
GRANT SELECT ON TABLE tube.tube_parked TO tube_worker;
GRANT SELECT ON TABLE tube.tube_parked TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_private_parked(in_tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, in_seen pg_snapshot) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_parked_key(in_tube text, in_key text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_parked_lock(outbox text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_parse_predicate(tube text, predicate text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_passes_call(att tube.tube_attachment, row_name text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_passes_ddl(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_passes_sql(att tube.tube_attachment, row_name text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_patiently(statements text[], what text, attempts integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_patiently(statements text[], what text, attempts integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_patiently(statements text[], what text, attempts integer) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_pause_of(in_tube text, in_partitions integer, in_partition integer, OUT reason text, OUT kind text, OUT until timestamp with time zone) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_planned(tube text, what text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_pod_ranges(reg tube.tube_registry, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_pod_with(reg tube.tube_registry, in_seq bigint, in_shard integer, in_key text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_pods_where(tube text, partitions integer, partition integer, dense boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_predicate_columns(tbl regclass, predicate text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_predicate_columns(tbl regclass, predicate text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_predicate_columns(tbl regclass, predicate text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_provide(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_provide_outbox(outbox text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_provide_planned(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_provide_touch(att tube.tube_attachment, attaching boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_provide_tube(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_prune(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_put(tube_or_tubes text, shard integer, op text, ids anyarray, chunk_size integer, last boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_put_body(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_put_control(type text, backfill tube.tube_backfill) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_put_control_pods(tube text, op text, payload jsonb, shards integer[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_put_parked(outbox text, partitions integer, partition integer, leader_id uuid, items jsonb, records jsonb, hold boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_put_parked(outbox text, partitions integer, partition integer, leader_id uuid, items jsonb, records jsonb, hold boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_put_parked(outbox text, partitions integer, partition integer, leader_id uuid, items jsonb, records jsonb, hold boolean) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_put_range_pod(backfill_id bigint, shard integer, ids anyarray) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_put_range_pod(backfill_id bigint, shard integer, ids anyarray) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_put_range_pod(backfill_id bigint, shard integer, ids anyarray) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_put_schedule(tube text, shard integer, table_name text, order_col name, resync boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_qualify(name text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_range(tube text, tbl regclass, shard integer, shards integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_range_sql(tbl regclass, col name, bounds text[], unit integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_record_columns(box tube.tube_outbox, parks boolean, retried boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_refilled(tube text, since timestamp with time zone, finished boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_refuse_backfill(att tube.tube_attachment, other text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_refuse_job(job tube.tube_job) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_refuse_loss(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_refuse_predicate(tube text, tbl regclass, predicate text, reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_refuse_predicate(tube text, tbl regclass, predicate text, reason text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_refuse_predicate(tube text, tbl regclass, predicate text, reason text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_refuse_records(outbox text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_refuse_renamed(tbl regclass, table_name text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_refuse_renamed(tbl regclass, table_name text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_refuse_renamed(tbl regclass, table_name text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_refuse_table(tbl regclass) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_refuse_table(tbl regclass) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_refuse_touch(tbl regclass, other oid) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_refuse_touch(tbl regclass, other oid) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_refuse_touch(tbl regclass, other oid) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_remove_key(reg tube.tube_registry, places tid[], in_key text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_repartition(tube text, partitions integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_repartition_outbox(outbox text, partitions integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_require(name text, kind text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_require(name text, kind text) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_require_main(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_require_outbox(outbox text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_rescue_links(gone tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_resync(tube text, name text, table_name text, shard integer, shards integer, rows_went boolean, companion_of text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_resync_documents(tube text, table_name text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_role(kind text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_role_sql(role oid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_routines(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_row_body(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_rows_estimate(tbl regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_run_owner_ddl(statements text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_run_owner_ddl(statements text[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_run_owner_ddl(statements text[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_schema() FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_see_rewrite() FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_set_flag() FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_set_predicate(tube text, predicate text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_set_predicate(tube text, predicate text) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_shard_expression(id text, att tube.tube_attachment, of_row boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_slices(tube text, partitions integer, partition integer, OUT pods text, OUT slices text[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_some_keys(keys text[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_source(OUT system_identifier bigint, OUT timeline integer, OUT sequence oid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_source_change(seen_seq bigint, last_seq bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_stale_attachments() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_stale_attachments() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_stale_attachments() TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_stash(outbox text, topics text[], keys text[], bodies anyarray, headers jsonb, partition_keys text[], in_order boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_stash(outbox text, topics text[], keys text[], bodies anyarray, headers jsonb, partition_keys text[], in_order boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_stash(outbox text, topics text[], keys text[], bodies anyarray, headers jsonb, partition_keys text[], in_order boolean) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_private_stash_one(outbox text, topic text, key text, value anyelement, headers jsonb, partition_key text, in_order boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_stash_one(outbox text, topic text, key text, value anyelement, headers jsonb, partition_key text, in_order boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_stash_one(outbox text, topic text, key text, value anyelement, headers jsonb, partition_key text, in_order boolean) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_private_stats_class(reg tube.tube_registry, partition integer, class integer, most integer, OUT pods integer, OUT since timestamp with time zone, OUT min_seq bigint, OUT min_ts timestamp with time zone, OUT max_seq bigint, OUT max_ts timestamp with time zone) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_stats_controls_sql(reg tube.tube_registry) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_stats_estimates(reg tube.tube_registry) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_stats_shards(reg tube.tube_registry, partition integer, OUT shards integer, OUT list text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_store(att tube.tube_attachment, mode text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_store(att tube.tube_attachment, mode text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_store(att tube.tube_attachment, mode text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_store_pod(backfill_id bigint, place bigint, shard integer, ids anyarray) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_store_pod(backfill_id bigint, place bigint, shard integer, ids anyarray) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_store_pod(backfill_id bigint, place bigint, shard integer, ids anyarray) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_table_fault(tbl regclass, member boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_table_name(tbl oid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_table_touch_body(tbl regclass, key_type regtype) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_take_control(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_take_retries(outbox text, partitions integer, partition integer, records_limit integer, floor bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_tell_watchers(tube text, partitions integer, partition integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_touch_ddl(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_touch_name(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_trigger_ddl(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_trigger_kinds() FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_trigger_names(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_try_predicate(att tube.tube_attachment) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_try_predicate(att tube.tube_attachment) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_try_predicate(att tube.tube_attachment) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_tube_touch_body(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_type_sql(type oid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_wake_sleepers(tube text, touched integer[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_warn_lonely(tube text, shard integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_watch_lock(tube text, partition integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_with_columns(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_with_names(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_wrong_name(name text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_relations_waiting(tube text, most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_relations_waiting(tube text, most integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_relations_waiting(tube text, most integer) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_relations_waiting(tube text, most integer) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_resume(tube text, in_partition integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_resume(tube text, in_partition integer) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_sampled(in_tube text, checked integer, differing integer, undecided integer, detail text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_sampled(in_tube text, checked integer, differing integer, undecided integer, detail text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_sampled(in_tube text, checked integer, differing integer, undecided integer, detail text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_seq_advance(beyond bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_seq_advance(beyond bigint) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_settle_done(x xid8) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_settle_done(x xid8) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_settle_done(x xid8) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_settle_holders(tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_settle_holders(tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_settle_holders(tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_settle_holders(tube text) TO tube_writer;
GRANT ALL ON FUNCTION tube.tube_settle_holders(tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_settle_left(tube text, holders text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_settle_left(tube text, holders text[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_settle_left(tube text, holders text[]) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_settle_left(tube text, holders text[]) TO tube_writer;
GRANT ALL ON FUNCTION tube.tube_settle_left(tube text, holders text[]) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_settle_seq() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_settle_seq() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_settle_seq() TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_settle_seq() TO tube_writer;
GRANT ALL ON FUNCTION tube.tube_settle_seq() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_settle_writers(tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_settle_writers(tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_settle_writers(tube text) TO tube_worker;

GRANT ALL ON FUNCTION tube.tube_shard_of(id bigint, shard integer, shards integer) TO tube_admin;

GRANT ALL ON FUNCTION tube.tube_shard_of(id text, shard integer, shards integer) TO tube_admin;

GRANT ALL ON FUNCTION tube.tube_shard_of(id uuid, shard integer, shards integer) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_sink_accept(tube text, before timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_sink_accept(tube text, before timestamp with time zone) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_sink_accept(tube text, before timestamp with time zone) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_sink_list() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_sink_list() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_sink_list() TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_sink_list() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_sink_note(tube text, held text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_sink_note(tube text, held text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_sink_note(tube text, held text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_sleep(tube text, partitions integer, partition integer, leader_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_sleep(tube text, partitions integer, partition integer, leader_id uuid) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_sleep(tube text, partitions integer, partition integer, leader_id uuid) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_source_check(seen_seq bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_source_check(seen_seq bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_source_check(seen_seq bigint) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_stats() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_stats() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_stats() TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_stats() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_step_ask(tube text, seq bigint, shard integer, key text, lasts interval) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_step_ask(tube text, seq bigint, shard integer, key text, lasts interval) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_step_cancel(in_step bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_step_cancel(in_step bigint) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_step_end(tube text, partitions integer, partition integer, leader_id uuid, in_step bigint, outcome text, error text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_step_end(tube text, partitions integer, partition integer, leader_id uuid, in_step bigint, outcome text, error text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_step_end(tube text, partitions integer, partition integer, leader_id uuid, in_step bigint, outcome text, error text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_step_state(in_step bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_step_state(in_step bigint) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_step_take(tube text, partitions integer, partition integer, leader_id uuid, in_step bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_step_take(tube text, partitions integer, partition integer, leader_id uuid, in_step bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_step_take(tube text, partitions integer, partition integer, leader_id uuid, in_step bigint) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_stream_purge(tube text, seq bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_stream_purge(tube text, seq bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_stream_purge(tube text, seq bigint) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_sweep_end(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_sweep_end(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_sweep_end(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_sweep_ready(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_sweep_ready(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_sweep_ready(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_sweep_touch(tube text, partitions integer, partition integer, leader_id uuid, shard integer, ids anyarray) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_sweep_touch(tube text, partitions integer, partition integer, leader_id uuid, shard integer, ids anyarray) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_sweep_touch(tube text, partitions integer, partition integer, leader_id uuid, shard integer, ids anyarray) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_sync() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_sync() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_sync() TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_table_ensure_attached(tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean, key_cols name[], shard_by name) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_table_ensure_attached(tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean, key_cols name[], shard_by name) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_table_ensure_detached(in_tube text, in_tbl regclass) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_table_ensure_detached(in_tube text, in_tbl regclass) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_terms(in_tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_terms(in_tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_terms(in_tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_terms(in_tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_undelivered(tube text, up_to bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_undelivered(tube text, up_to bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_undelivered(tube text, up_to bigint) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_undelivered(tube text, up_to bigint) TO tube_writer;
GRANT ALL ON FUNCTION tube.tube_undelivered(tube text, up_to bigint) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_unverified_list(in_tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_unverified_list(in_tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_unverified_list(in_tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_unverified_list(in_tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_verified(in_tube text, action text, up_to timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_verified(in_tube text, action text, up_to timestamp with time zone) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_verified(in_tube text, action text, up_to timestamp with time zone) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_wake(tube text, partition integer, leader_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_wake(tube text, partition integer, leader_id uuid) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_wake(tube text, partition integer, leader_id uuid) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_wakes() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_wakes() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_wakes() TO tube_worker;

GRANT SELECT ON TABLE tube.tube_attempt TO tube_admin;
GRANT SELECT ON TABLE tube.tube_attempt TO tube_worker;
GRANT SELECT ON TABLE tube.tube_attempt TO tube_monitor;

GRANT SELECT ON TABLE tube.tube_audit TO tube_admin;

GRANT SELECT ON TABLE tube.tube_failing TO tube_admin;

GRANT SELECT ON TABLE tube.tube_halted TO tube_admin;

GRANT SELECT ON TABLE tube.tube_installation TO tube_admin;

GRANT SELECT ON TABLE tube.tube_instance TO tube_admin;

GRANT SELECT ON TABLE tube.tube_job_unit TO tube_admin;

GRANT SELECT ON TABLE tube.tube_kafka TO tube_admin;

GRANT SELECT ON TABLE tube.tube_leader TO tube_admin;

GRANT SELECT ON TABLE tube.tube_outbox_identity TO tube_admin;

GRANT SELECT ON TABLE tube.tube_outbox_parked TO tube_admin;
GRANT SELECT ON TABLE tube.tube_outbox_parked TO tube_worker;
GRANT SELECT ON TABLE tube.tube_outbox_parked TO tube_monitor;

GRANT SELECT ON TABLE tube.tube_outbox_resting TO tube_admin;

GRANT SELECT ON TABLE tube.tube_outbox_retry TO tube_admin;
GRANT SELECT ON TABLE tube.tube_outbox_retry TO tube_worker;

GRANT SELECT ON TABLE tube.tube_parked_document TO tube_admin;

GRANT SELECT ON TABLE tube.tube_paused TO tube_admin;

GRANT SELECT ON TABLE tube.tube_sample TO tube_admin;
GRANT SELECT ON TABLE tube.tube_sample TO tube_worker;
GRANT SELECT ON TABLE tube.tube_sample TO tube_monitor;

GRANT USAGE ON SEQUENCE tube.tube_seq TO tube_admin;
GRANT USAGE ON SEQUENCE tube.tube_seq TO tube_writer;

GRANT SELECT ON TABLE tube.tube_sink TO tube_admin;

GRANT SELECT ON TABLE tube.tube_sleeper TO tube_admin;

GRANT SELECT ON TABLE tube.tube_source TO tube_admin;

GRANT SELECT ON TABLE tube.tube_step TO tube_admin;

GRANT SELECT ON TABLE tube.tube_term TO tube_admin;

GRANT SELECT ON TABLE tube.tube_trouble TO tube_admin;

GRANT SELECT ON TABLE tube.tube_unverified TO tube_admin;

GRANT SELECT ON TABLE tube.tube_version TO tube_admin;
GRANT SELECT ON TABLE tube.tube_version TO tube_worker;
GRANT SELECT ON TABLE tube.tube_version TO tube_writer;
GRANT SELECT ON TABLE tube.tube_version TO tube_monitor;
