-- Topics that rest: Kafka takes nothing for them now. The term that holds their records says so, and parks these when an
-- operator wants it: only the term knows which of them are on their way.

-- Result: the outbox's name, a slash, and a uuid that stays as long as the outbox does, also in a copy of the database.
-- Errors: TU102 unknown outbox; TU111 it is a tube.
CREATE OR REPLACE FUNCTION :"schema".outbox_identity(outbox text) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT b.outbox || '/' || b.identity FROM tube_private_require_outbox($1) AS b
$$;
COMMENT ON FUNCTION :"schema".outbox_identity IS 'Returns the name of the outbox in the header pytube-outbox.';

-- Arguments: the term; topics: a JSON array of objects {"topic": "t", "reason": "...", "records": 3, "seconds": 1.5, "left": 0.5}:
--   seconds: for how long it has rested; left: until it is tried again.
-- Result: the topics among them of which an operator wants all records parked (outbox_topic_park).
-- Errors: as of a call under a term; TU111. Locks: the fence, and the rows of the term. A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".outbox_topics_rest(
    outbox text, partitions integer, partition integer, leader_id uuid, topics jsonb
) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
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
COMMENT ON FUNCTION :"schema".outbox_topics_rest IS
    'Reports resting topics of a term; returns those whose records an operator wants parked.';

-- Result: a row per outbox, partition and topic: why the broker took nothing the last time; records: that the leader holds,
--   and that wait for the topic; since when it has rested; next_at: when it is tried again; park: an operator wants its
--   records parked, and the leader has not done so yet. None of a term that is over or lost.
CREATE OR REPLACE FUNCTION :"schema".outbox_resting(in_outbox text = NULL) RETURNS TABLE (
    outbox text, partition integer, topic text, reason text, records bigint, since timestamptz, next_at timestamptz,
    park boolean
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT l.tube, l.partition, t.topic, t.reason, t.records, t.since, t.next_at, t.park
    FROM tube_outbox_resting AS t JOIN tube_leader AS l ON l.leader_id = t.leader_id
    WHERE (in_outbox IS NULL OR l.tube = in_outbox)
        AND l.renewed_at + coalesce(l.lease, l.hold) > clock_timestamp()
    ORDER BY l.tube, l.partition, t.topic
$$;
COMMENT ON FUNCTION :"schema".outbox_resting IS
    'Lists topics that accept no records now: why, since when, and the next try.';

-- They look for it once a second while the topic rests. Records that are written later are tried again.
-- Arguments: outbox, topic.
-- Result: how many partitions are to park records; 0 where the topic does not rest, and nothing is done.
-- Errors: TU102 unknown outbox; TU111 it is a tube. Locks: what outbox_topics_rest writes. A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".outbox_topic_park(outbox text, topic text) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
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
COMMENT ON FUNCTION :"schema".outbox_topic_park IS
    'Has leaders park the records of a resting topic; returns in how many partitions it rests.';

-- Arguments: the term; topic; error: with which; ids: of the records of the topic that the term has, and that are neither sent
--   nor on their way; hold: they hold their keys; records_limit: at most so many, by id: call again while it gives as many.
-- Result: the ids. Errors: those of outbox_records_park.
-- Locks: those of outbox_records_park. A record that another session has locked is left out. A lost answer: call again.
-- Errors: TU108, TU111, 25001, 55P03.
CREATE OR REPLACE FUNCTION :"schema".outbox_records_park_topic(
    outbox text, partitions integer, partition integer, leader_id uuid, topic text, error text, ids bigint[],
    hold boolean = false, records_limit integer = 10000
) RETURNS bigint[]
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET enable_seqscan = off
SET row_security = off SET lock_timeout = '1s' AS $$
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
$$;
COMMENT ON FUNCTION :"schema".outbox_records_park_topic IS
    'Parks records of a topic in a term''s partition. Call it until it returns fewer than records_limit.';
