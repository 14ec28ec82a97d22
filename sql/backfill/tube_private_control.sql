-- tube_private_control_waits: whether a control pod of some types waits in a range of shards.
--
-- Arguments: tube; first, shards: the range; types.
-- Result: true or false, as far as it is committed.
CREATE OR REPLACE FUNCTION :"schema".tube_private_control_waits(
    tube text, first integer, shards integer, types text[]
) RETURNS boolean
LANGUAGE plpgsql
SET enable_seqscan = off -- there is an index of the few control pods, whatever the statistics say
AS $$
DECLARE
    waits boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM %I.%I WHERE payload IS NOT NULL AND ids = ''{}'''
        ' AND shard BETWEEN $1 AND $2 AND payload ->> ''type'' = ANY ($3))', tube_private_schema(), tube)
    INTO waits USING first, first + (shards - 1), types;
    RETURN waits;
END
$$;

-- tube_private_put_control: a control pod of a backfill for each shard of a range.
--
-- Arguments: tube; first, shards: the range; op; type: backfill_start or backfill_end; start_seq.
-- Locks: those of an INSERT into the tube.
CREATE OR REPLACE FUNCTION :"schema".tube_private_put_control(
    tube text, first integer, shards integer, op text, type text, start_seq text
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('INSERT INTO %I.%I (op, shard, ids, payload)'
        ' SELECT $1, s, ''{}'', jsonb_build_object(''type'', $2, ''start_seq'', $3)'
        ' FROM generate_series($4, $5) AS s', tube_private_schema(), tube)
    USING op, type, start_seq, first, first + (shards - 1);
    PERFORM tube_private_wake_sleepers(tube, ARRAY(SELECT generate_series(first, first + (shards - 1))));
END
$$;
