-- Records that others have locked: a session that repairs one, or forgot to commit, keeps it locked (FOR UPDATE). A locked
-- record waits, and so do later records of its key; the others continue.

-- To be called where these fail with 55P03, until it meets no locked row any more. It knows no floor: all records of the
-- partition that the term does not have are looked at, including retried ones.
-- Arguments: those of outbox_records_mark; records_limit may be 0: purge only. ids: of records that were sent, to be purged.
-- Result: as outbox_records_mark, with retried always false; and a row with locked for each of ids that another session has locked,
--   which was not purged, and for the first record that was to be marked and is locked: of the keys of such ones no later
--   record is returned. Of these rows kafka_key is what orders the record.
-- Errors: those of outbox_records_mark; 55P03 the table is locked, or the lock of its parked records: nothing was done.
--   In codes: TU108, TU111, 42501.
-- Locks, a lost answer: as outbox_records_mark and outbox_records_purge, but for rows that others have locked.
CREATE OR REPLACE FUNCTION :"schema".outbox_records_mark_around(
    outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, ids bigint[] = '{}'
) RETURNS TABLE (
    id bigint, create_time timestamptz, kafka_topic text, kafka_key text, kafka_value bytea, kafka_header_keys text[],
    kafka_header_values text[], partition_key text, retried boolean, held boolean, locked boolean
)
LANGUAGE plpgsql SECURITY INVOKER ROWS 1000 SET search_path = pg_catalog, :"schema", pg_temp SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_indexscan = on SET jit = off SET row_security = off SET lock_timeout = '1s' AS $$
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
$$;
COMMENT ON FUNCTION :"schema".outbox_records_mark_around IS
    'Purges ids, then reserves records without waiting for locks; locked ones come as rows without content. For use'
    ' after 55P03.';

-- tube_private_begin_around: the fence of outbox_records_mark_around, and the statements that it runs with the rights of its
-- caller.
-- It also takes the lock of the outbox's parked records, shared: so none is parked or freed between its statements. 55P03
-- where another session has it.
-- Result: tbl: the table. free: locks the next records to be marked that no other session has locked; their ids, with the
-- parameters $1 leader_id, $2 the outbox, $3 limit, $4 and $5 topics and keys that are left out. choose: of these, $4, ids:
-- the ones that come before all others of their key up to the id $3; topics, keys: of the others; first_locked: the first of the others.
-- locked: the rows of the ids $1. mark: takes the ids $4, with $1 leader_id, $2 NULL, $3 the outbox.
CREATE OR REPLACE FUNCTION :"schema".tube_private_begin_around(
    outbox text, partitions integer, partition integer, leader_id uuid,
    OUT tbl text, OUT free text, OUT choose text, OUT locked text, OUT mark text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
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
$$;
