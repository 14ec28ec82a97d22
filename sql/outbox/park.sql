-- Parked records: set aside with their error, so that the partition can continue. They stay in the outbox's table with their
-- ids; a row of tube_outbox_parked has marks pass over them.
--
-- A key may be held: then its later records are parked behind the first one, and an operator who retries that one has
-- them all sent again, in the order of their ids. A session that holds a key, or frees one, takes the lock of
-- tube_private_lock_parked first; the next step is a separate statement, which sees earlier changes of others.

-- Arguments: the term; items: a JSON array of objects {"id": 7, "error": "...", "attempts": 3, "behind": true}, where behind
--   may be missing: the record waits behind an earlier parked one of its key, which holds it; hold: the other records
--   hold their keys from now on. A record without a key holds nothing.
-- Result: the ids that were parked. Left out: a record that is not this term's, and one to be behind another when its
--   key is held no more: an operator has freed it, and the next mark returns the earlier records.
-- Errors: those of a call under a term; TU108, TU111; 22023 items is no array; 23502 no such field; 55P03 another session has locked
--   a record, or parked records: nothing was parked; 25001.
-- Locks: the registry row FOR KEY SHARE (first, as always), the fence, the lock of the outbox's parked records, and the
--   records, until the transaction ends.
-- A lost answer: the records are parked or this term's; call again: ids that are left out and not freed were parked.
CREATE OR REPLACE FUNCTION :"schema".outbox_records_park(
    outbox text, partitions integer, partition integer, leader_id uuid, items jsonb, hold boolean = false
) RETURNS bigint[]
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET enable_seqscan = off
SET row_security = off SET lock_timeout = '250ms' AS $$
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
$$;
COMMENT ON FUNCTION :"schema".outbox_records_park IS
    'Parks records of the term: objects with id, error, attempts and behind. hold: they hold their keys.';

-- tube_private_lock_parked: the fence, and the lock under which keys of an outbox are held and freed.
-- Arguments: the term; leader_id NULL: for an operator, who has none.
-- Result: tbl: the table, quoted and with its schema; key, slot: the SQL texts of a record's key and slot.
-- Errors: as of a call under a term; TU108 the table was dropped; TU111 it is a tube; 25001 not READ COMMITTED.
CREATE OR REPLACE FUNCTION :"schema".tube_private_lock_parked(
    outbox text, partitions integer, partition integer, leader_id uuid, OUT tbl text, OUT key text, OUT slot text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
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

-- tube_private_parked_lock: the number of that lock.
CREATE OR REPLACE FUNCTION :"schema".tube_private_parked_lock(outbox text) RETURNS bigint
LANGUAGE sql STABLE AS $$ SELECT hashtextextended(tube_private_schema() || ' parked ' || outbox, 0) $$;

-- tube_private_put_parked: writes parked records down.
-- Arguments: items: as of outbox_records_park; records: a JSON array with the data of these, {"id", "topic", "key",
-- "slot"}. Result: the ids that were written.
CREATE OR REPLACE FUNCTION :"schema".tube_private_put_parked(
    outbox text, partitions integer, partition integer, leader_id uuid, items jsonb, records jsonb, hold boolean
) RETURNS bigint[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
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

-- Arguments: in_outbox, or NULL for all; in_limit: at most so many.
-- Result: a row per record; key: what orders it. hold, behind: as of outbox_records_park. No row for an unknown outbox.
--   Failed records come before all that wait behind them, so that a limit leaves out the latter.
-- Errors: 22023 a negative in_limit.
CREATE OR REPLACE FUNCTION :"schema".outbox_parked(in_outbox text = NULL, in_limit integer = 100) RETURNS TABLE (
    outbox text, id bigint, topic text, key text, error text, attempts integer, epoch bigint, hold boolean, behind boolean,
    parked_at timestamptz
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    PERFORM tube_private_check_limit(in_limit, 0);
    RETURN QUERY
    SELECT k.outbox, k.id, k.topic, k.key, k.error, k.attempts, k.epoch, k.hold, k.behind, k.parked_at
    FROM tube_outbox_parked AS k
    WHERE in_outbox IS NULL OR k.outbox = in_outbox
    ORDER BY k.behind, k.parked_at DESC, k.id DESC
    LIMIT in_limit;
END
$$;
COMMENT ON FUNCTION :"schema".outbox_parked IS
    'Lists parked records with their errors: failed records, latest first, then the records that wait behind them.';

-- Of a held key all records go together, so that they are sent in their order.
-- Arguments: outbox; ids, topic, key: only the parked records that have these; NULL: any. key is what orders a record.
--   in_seen: the records parked in that snapshot; a record that has failed again since was not. in_limit: about so many
--   in this transaction, so that many can be retried in several, all with the same in_seen: call until it is 0. Of a held
--   key all go, however many.
-- Result: how many records are to be sent again.
-- Errors: TU102 unknown outbox; TU108; TU111 it is a tube; 22023 a bad in_limit; 25001 the transaction is not READ
--   COMMITTED.
-- Locks: the registry row FOR KEY SHARE and the lock of the outbox's parked records, until the transaction ends: workers
--   wait for it when they park. A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".outbox_retry(
    outbox text, ids bigint[] = NULL, topic text = NULL, key text = NULL, in_seen pg_snapshot = NULL,
    in_limit integer = 10000
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
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
COMMENT ON FUNCTION :"schema".outbox_retry IS
    'Has parked records sent again: all, or those with these ids, topic or key; of a held key all, in order. At '
    'READ COMMITTED only.';

-- tube_private_choose_parked: the parked records that arguments of outbox_retry mean: about in_limit of them, held keys whole.
-- Single records and keys come in the order of their first ids: so records of one key that none holds are freed in
-- their order, too. By the index of the ids, so that the cost depends on the records taken, not on the parked ones.
CREATE OR REPLACE FUNCTION :"schema".tube_private_choose_parked(
    outbox text, ids bigint[], topic text, key text, in_seen pg_snapshot, in_limit integer
) RETURNS bigint[]
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
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
$$;

-- tube_private_free_parked: parked records of an outbox go onto the list of those to be sent again, and its workers are
-- woken; how many there were. The caller has the lock of tube_private_lock_parked. Adopted tables have no floor, so that
-- marks find their records without the list.
CREATE OR REPLACE FUNCTION :"schema".tube_private_free_parked(outbox text, ids bigint[]) RETURNS bigint
LANGUAGE plpgsql AS $$
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
$$;

-- Records held by them, and by nothing else, are sent again.
-- Arguments: outbox; ids: of the records. An id that is not parked is passed over.
-- Result: how many were parked, and are gone.
-- Errors: those of outbox_retry; 42501 the caller may not delete from an adopted table; 55P03 another session has locked a record.
--   In codes: TU102, TU108, TU111, 25001.
-- Locks: those of outbox_retry, and the records. A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".outbox_parked_drop(outbox text, ids bigint[]) RETURNS bigint
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET enable_seqscan = off
SET row_security = off SET lock_timeout = '5s' AS $$
DECLARE
    box CONSTANT record := tube_private_lock_parked(outbox, NULL, NULL, NULL);
    gone CONSTANT bigint[] := tube_private_drop_parked(outbox, ids);
BEGIN
    EXECUTE format('DELETE FROM %s AS r WHERE r.id = ANY ($1)', box.tbl) USING gone;
    RETURN cardinality(gone);
END
$$;
COMMENT ON FUNCTION :"schema".outbox_parked_drop IS
    'Deletes parked records, which are then never sent; records behind them are. At READ COMMITTED only.';

-- tube_private_drop_parked: the part of outbox_parked_drop in pytube's tables; the ids that were parked.
CREATE OR REPLACE FUNCTION :"schema".tube_private_drop_parked(outbox text, ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
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
