-- tube_backfill_take: a backfill_schedule control pod becomes a backfill that a worker runs.
--
-- The pod goes and the backfill comes in one transaction under the term's fence, so that neither a
-- crash nor a leader that is none any more loses or doubles it.
--
-- Arguments: tube, partitions, partition, leader_id: the term; shard, seq: of the pod.
-- Result: the number of the backfill; NULL when the pod is not there any more, or not this term's.
-- Errors: TU001 the term is over; TU002, TU102, TU103 as tube_leader_epoch; TU108, TU121 as
--   tube_backfill_create: nothing was changed, the pod is still there.
-- Locks: the registry row FOR KEY SHARE (first, as always), the fence, the pod.
-- A lost answer: call again; it then gives NULL.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_take(
    tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    payload jsonb;
    tbl regclass;
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_backfill_take.tube FOR KEY SHARE;
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    payload := tube_private_take_control(tube, partitions, partition, leader_id, shard, seq);
    IF payload IS NULL THEN
        RETURN NULL;
    END IF;
    -- By the catalogue: our owner may not look into the schemas of others.
    BEGIN
        SELECT c.oid INTO tbl FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE ARRAY[n.nspname, c.relname]::text[] = parse_ident(payload ->> 'tbl');
    EXCEPTION WHEN invalid_parameter_value THEN
        tbl := NULL;
    END;
    IF tbl IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108',
            MESSAGE = format('there is no table %s', coalesce(quote_literal(payload ->> 'tbl'), 'NULL')),
            HINT = 'A backfill_schedule names schema.table.';
    END IF;
    RETURN tube_backfill_create(tube, tbl, payload ->> 'order_col', false, true);
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_take IS
    'Turns a backfill_schedule control pod into a backfill that a worker runs.';

-- tube_private_take_control: deletes a control pod of a term.
--
-- Arguments: tube, partitions, partition, leader_id: the term, held by the caller; shard, seq.
-- Result: its payload; NULL when it is not there, or not this term's.
-- Locks: the deleted row.
CREATE OR REPLACE FUNCTION :"schema".tube_private_take_control(
    tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint
) RETURNS jsonb
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    result jsonb;
BEGIN
    EXECUTE format('DELETE FROM %I WHERE payload IS NOT NULL AND ids = ''{}'' AND (shard %% %s) = %s'
        ' AND seq = $1 AND leader_id = $2 AND shard = $3 RETURNING payload', tube, partitions, partition)
    INTO result USING seq, leader_id, shard;
    RETURN result;
END
$$;
