-- tube_private_backfills_at_end: the backfills whose ends are among some pods, locked for the transaction.
--
-- Their rows are locked before the pods are, as whoever cancels them takes both.
--
-- Arguments: tube; seqs: of pods.
-- Result: the numbers of those that are being delivered, ascending; NULL when there is none.
-- Locks: their rows FOR NO KEY UPDATE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfills_at_end(tube text, seqs bigint[]) RETURNS bigint[]
LANGUAGE plpgsql
SET enable_seqscan = off -- there is an index of the few control pods, whatever the statistics say
AS $$
DECLARE
    tags jsonb[];
BEGIN
    EXECUTE format('SELECT array_agg(DISTINCT payload -> ''backfill'') FROM %I.%I WHERE payload IS NOT NULL'
        ' AND ids = ''{}'' AND payload ->> ''type'' = ''backfill_end'' AND payload ? ''backfill'' AND seq = ANY ($1)',
        tube_private_schema(), tube)
    INTO tags USING seqs;
    IF tags IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN (
        SELECT array_agg(held.backfill_id ORDER BY held.backfill_id)
        FROM (
            SELECT b.backfill_id FROM tube_backfill AS b
            WHERE b.tube = tube_private_backfills_at_end.tube AND b.state = 'delivering'
                AND to_jsonb(b.backfill_id) = ANY (tags)
            ORDER BY b.backfill_id FOR NO KEY UPDATE
        ) AS held);
END
$$;

-- tube_private_backfill_count_ends: a backfill that is being delivered has as many ends left as there are pods of them.
--
-- Arguments: backfill_id: its row is locked by the caller.
-- Result: nothing. Where none is left, it is finished.
-- Locks: its row.
CREATE OR REPLACE FUNCTION :"schema".tube_private_backfill_count_ends(backfill_id bigint) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    backfill tube_backfill := tube_private_backfill(backfill_id);
    ends integer;
BEGIN
    EXECUTE format('SELECT count(*) FROM %I.%I WHERE payload IS NOT NULL AND ids = ''{}'' AND payload @> $1',
        tube_private_schema(), backfill.tube)
    INTO ends USING jsonb_build_object('type', 'backfill_end', 'backfill', backfill_id);
    UPDATE tube_backfill AS b
    SET ends_left = ends, updated_at = clock_timestamp(),
        state = CASE WHEN ends > 0 THEN b.state ELSE 'finished' END,
        ended_at = CASE WHEN ends > 0 THEN NULL ELSE clock_timestamp() END
    WHERE b.backfill_id = tube_private_backfill_count_ends.backfill_id AND b.state = 'delivering';
END
$$;
