-- The calls of a term on the records of its partition: mark, purge sent ones, and give back the others. As with pods
-- (pods/marks.sql), all of them are under the fence, see leader/terms.sql.
--
-- These functions run with the rights of the caller, which the owner of an adopted table has granted: code that the owner
-- put on that table (triggers, expressions of indexes) never runs as pytube's owner. The fence, which only reads and locks
-- pytube's tables, runs as that owner. Row-level security that hides records is an error, not an empty answer.

-- Those beyond the floor, and before them those at or below it that an operator wants sent again (outbox_retry): so all of
-- them are in the order of their ids. (If all that are to be sent again came first, one of a key could overtake an earlier
-- one, that a term had marked and not sent.) Records of earlier terms are taken over; records that this term has already are
-- passed over, and so are parked ones. None is skipped because it is locked.
-- Arguments:
--   outbox, partitions, partition, leader_id   the term
--   records_limit   at most so many, 1 to 1000000
--   floor           only records with a greater id; 0, less or NULL: all. Always 0 for an adopted table, whose ids are not drawn
--                   by pytube
--   settled_floor   a floor that no record can appear at or below any more, where floor has passed open transactions; NULL
--                   counts as 0
--   long_writers    their xids, of which this call may see the end before its caller does. It scans from floor only as long
--                   as all of them are open, as its own snapshot has it, else from settled_floor. So it returns no record
--                   without earlier committed ones that its key may have: where it sees rows committed after
--                   the end of a long writer, it sees that writer's rows, too
-- Result: the record; kafka_value as bytes, texts in UTF-8. retried: it is to be sent again, and lies at or below the floor.
--   held: an earlier record of its key is parked and holds the key, or was just freed: park this one behind it
--   (outbox_records_park, which says which).
--   For the next floor, where a settled seq S is known (pods/settle.sql): with fewer rows than records_limit, S; else the
--   least of S and the id of the last row that is not retried, and where all are retried, the floor stays.
--   A key that an operator has freed (outbox_records_park) may have earlier records than the caller's record. All of
--   them were returned once a mark gives fewer rows than records_limit, or a row with a greater id than that record's.
-- Errors: as of a call under a term; TU108, TU111; 22023 a bad records_limit; 42501 the worker may not read or mark the
--   table; 55P03 another session has locked a record, or the table: outbox_records_mark_around goes around that.
-- Locks: as tube_pods_mark; and the lock of the outbox's parked records, shared, if it is free: whoever parks, retries or
--   drops some waits until the transaction ends. A lost answer: as there.
CREATE OR REPLACE FUNCTION :"schema".outbox_records_mark(
    outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer = 1000, floor bigint = 0,
    settled_floor bigint = NULL, long_writers xid8[] = NULL
) RETURNS TABLE (
    id bigint, create_time timestamptz, kafka_topic text, kafka_key text, kafka_value bytea, kafka_header_keys text[],
    kafka_header_values text[], partition_key text, retried boolean, held boolean
)
LANGUAGE plpgsql SECURITY INVOKER ROWS 1000 SET search_path = pg_catalog, :"schema", pg_temp SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_indexscan = on SET jit = off SET row_security = off
SET lock_timeout = '250ms' AS $$
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
COMMENT ON FUNCTION :"schema".outbox_records_mark IS
    'Reserves records for a term, by id; retried ones first. An adopted table has no floor: pass 0. Waits at most a'
    ' quarter of a second for a lock.';

-- tube_private_begin_mark: the fence of outbox_records_mark, and the statements that it runs with the rights of its caller.
-- Result: mark: takes records beyond the floor, with the parameters $1 leader_id, $2 floor, $3 the outbox, $4 limit, and
-- where the floor has passed long writers $5 settled_floor, $6 long_writers;
-- ids: of the records up to the floor that are to be sent again, taken off their list, NULL where there are none; again: takes these, with the
-- parameters $1 leader_id, $2 ids, $3 the outbox.
-- As tube_private_mark_sql does, mark first looks for the last record that it is to take, by the order of an index, then
-- updates all up to it in that order. Where records are parked they are passed over by a join, and the result is
-- sorted. Whether any are is asked under a lock that keeps others from parking until the mark is over: else a record that is
-- parked meanwhile would be taken as it is, and sent although an operator has repaired it. Where another session has the
-- lock, the join looks itself.
CREATE OR REPLACE FUNCTION :"schema".tube_private_begin_mark(
    outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, floor bigint,
    passed boolean = false, OUT mark text, OUT ids bigint[], OUT again text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
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
$$;

-- tube_private_outbox_fence: keeps the caller's term from ending before its transaction; what the outbox is.
-- Errors: as of a call under a term; TU111 it is a tube.
CREATE OR REPLACE FUNCTION :"schema".tube_private_outbox_fence(
    outbox text, partitions integer, partition integer, leader_id uuid
) RETURNS :"schema".tube_outbox
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tube_private_hold_term(outbox, partitions, partition, leader_id);
    RETURN tube_private_require_outbox(outbox);
END
$$;

-- tube_private_record_columns: the SQL text of what outbox_records_mark returns, of a table called r; $3 is the outbox.
CREATE OR REPLACE FUNCTION :"schema".tube_private_record_columns(
    box :"schema".tube_outbox, parks boolean, retried boolean
) RETURNS text
LANGUAGE sql STABLE AS $$
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
$$;

-- tube_private_take_retries: the next records of a partition, up to its floor, that are to be sent again, taken off their
-- list; NULL: none. Those beyond the floor are met by each mark itself.
CREATE OR REPLACE FUNCTION :"schema".tube_private_take_retries(
    outbox text, partitions integer, partition integer, records_limit integer, floor bigint
) RETURNS bigint[]
LANGUAGE sql AS $$
    WITH taken AS (
        DELETE FROM tube_outbox_retry AS t
        WHERE t.outbox = $1 AND t.id = ANY (ARRAY(
            SELECT n.id FROM tube_outbox_retry AS n WHERE n.outbox = $1 AND n.id <= $5 AND n.slot % $2 = $3 ORDER BY n.id LIMIT $4))
        RETURNING t.id
    )
    SELECT array_agg(t.id) FROM taken AS t
$$;

-- Arguments: the term; ids: of the records.
-- Result: how many were deleted. An id that is not there, or is not this term's, is passed over.
-- Errors: as of a call under a term; TU108, TU111; 55P03 as of outbox_records_mark.
-- Locks: the fence and the deleted rows, until the transaction ends.
-- A lost answer: the records may be gone or not; call again with the same ids.
CREATE OR REPLACE FUNCTION :"schema".outbox_records_purge(
    outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[]
) RETURNS integer
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_indexscan = on SET jit = off SET row_security = off
SET lock_timeout = '250ms' AS $$
DECLARE
    own CONSTANT record := tube_private_begin_change(outbox, partitions, partition, leader_id, coalesce(ids, '{}'));
    purged integer;
BEGIN
    EXECUTE format('DELETE FROM %s WHERE %s', own.tbl, own.condition) USING leader_id, ids;
    GET DIAGNOSTICS purged = ROW_COUNT;
    RETURN purged;
END
$$;
COMMENT ON FUNCTION :"schema".outbox_records_purge IS
    'Deletes sent records of the term. Waits at most a quarter of a second for a lock.';

-- Arguments: the term; ids: of records that are at Kafka for sure, of this partition and others; created_until: when the
--   term that sent them was over. A later record is another one: after a restore, ids are drawn again.
-- Result: how many were deleted. An id that is not there, is in another partition, or of a later record, is passed over.
-- Errors: as of a call under a term; TU108, TU111; 55P03 another session has locked one of them, or the table.
-- Locks: the fence and the deleted rows, until the transaction ends.
-- A lost answer: call again with the same ids.
CREATE OR REPLACE FUNCTION :"schema".outbox_records_purge_sent(
    outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[], created_until timestamptz
) RETURNS integer
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET jit = off SET row_security = off
SET lock_timeout = '250ms' AS $$
DECLARE
    own CONSTANT record := tube_private_begin_change(outbox, partitions, partition, leader_id, coalesce(ids, '{}'));
    purged integer;
BEGIN
    EXECUTE format('DELETE FROM %s WHERE r.id = ANY ((SELECT $1)::bigint[]) AND r.create_time <= $2 AND %s', own.tbl, own.part)
    USING ids, created_until;
    GET DIAGNOSTICS purged = ROW_COUNT;
    RETURN purged;
END
$$;
COMMENT ON FUNCTION :"schema".outbox_records_purge_sent IS
    'Deletes records of the partition that an earlier term has sent, written until created_until.';

-- A caller that keeps a floor lowers it below the least id that was given back (to 0 with ids NULL).
-- Arguments: the term; ids: of the records, or NULL for all that are this term's: then all records of the partition are
--   looked at, for shutting down and for recovery.
-- Result: how many were given back. An id that is not there, is not this term's, or is locked, is passed over.
-- Errors: as of a call under a term; TU108, TU111.
-- Locks: the fence and the rows given back, until the transaction ends.
-- A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".outbox_records_reset(
    outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[] = NULL
) RETURNS integer
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_indexscan = on SET jit = off SET row_security = off AS $$
DECLARE
    own CONSTANT record := tube_private_begin_change(outbox, partitions, partition, leader_id, ids);
    changed integer;
BEGIN
    EXECUTE format('UPDATE %1$s SET leader_id = NULL WHERE r.id = ANY (ARRAY('
        'SELECT r.id FROM %1$s WHERE %2$s FOR NO KEY UPDATE SKIP LOCKED))', own.tbl, own.condition) USING leader_id, ids;
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN changed;
END
$$;
COMMENT ON FUNCTION :"schema".outbox_records_reset IS
    'Returns records of the term to the queue; NULL: all of them. Skips locked ones.';

-- tube_private_begin_change: the fence of a change to a term's records, and the SQL texts of the change.
-- Result: tbl: the table, as r; condition: on the records with the ids $2, or on all of the term's; $1 is its leader_id;
-- part: on all records of the partition.
-- ids that are close together are found by one walk over the index where Postgres would descend for each: see
-- tube_private_pods_where, whose measurements hold here, too.
CREATE OR REPLACE FUNCTION :"schema".tube_private_begin_change(
    outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[], OUT tbl text, OUT condition text,
    OUT part text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
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
$$;
