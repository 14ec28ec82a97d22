-- tube_pods_mark: takes pods for a term, and returns them in processing order.
--
-- Incremental pods come first, then those of op B, each by seq. Pods of earlier terms are taken
-- over; those that this term has already are passed over. None is skipped because it is locked.
--
-- Arguments:
--   tube, partitions, partition, leader_id   the term
--   pods_limit         at most so many pods, both classes together; 1 to 1000000
--   floor              only incremental pods with a greater seq; NULL counts as 0
--   backfill_floor     only pods of op B with a greater seq; NULL counts as 0
--   exclude_backfill   no pods of op B
-- Result: seq, op, shard, ids (NULL where the tube's keys are not bigint), keys (NULL where they are),
--   payload, ts.
-- Errors: TU001 the term is over; TU002, TU102, TU103 as tube_leader_epoch; 22023 a bad pods_limit;
--   40P01 is to be tried again.
-- Locks: the fence (tube_private_hold_term) and the marked rows, until the transaction ends: a new
--   term can't begin before. A client that is stopped while it reads the rows must therefore not be
--   in the transaction any more. Send this as one message (a simple query), so that the rows come after
--   the commit, and nothing is done before all of it is there:
--     BEGIN; DECLARE marked BINARY NO SCROLL CURSOR WITH HOLD FOR SELECT * FROM tube_pods_mark(…);
--     COMMIT; FETCH ALL FROM marked; CLOSE marked
--   (after an error: ROLLBACK). Committed as it begins, it is READ COMMITTED.
-- A lost answer: the pods may be this term's, and will not be returned again. Give them back by
--   tube_pods_reset(…, NULL) with the floors at 0, or begin a new term. A killed client's statement
--   may still commit.
-- The settings below force the one plan that is right for a queue; see tube_private_mark_sql.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_mark(
    tube text, partitions integer, partition integer, leader_id uuid, pods_limit integer = 1000,
    floor bigint = 0, backfill_floor bigint = 0, exclude_backfill boolean = false
) RETURNS TABLE (
    seq bigint, op text, shard integer, ids bigint[], keys text[], payload jsonb, ts timestamptz
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER ROWS 1000
SET search_path = pg_catalog, :"schema", pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_indexscan = on
SET jit = off
AS $$
DECLARE
    statement text;
    marked integer;
BEGIN
    IF pods_limit IS NULL OR pods_limit NOT BETWEEN 1 AND 1000000 THEN
        RAISE EXCEPTION 'pods_limit is %', coalesce(pods_limit::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is 1 to 1000000.';
    END IF;
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);

    statement := tube_private_mark_sql(tube, partitions, partition);
    RETURN QUERY EXECUTE statement USING leader_id, coalesce(floor, 0), pods_limit, 0;
    GET DIAGNOSTICS marked = ROW_COUNT;
    IF marked < pods_limit AND exclude_backfill IS NOT TRUE THEN
        RETURN QUERY EXECUTE statement USING leader_id, coalesce(backfill_floor, 0), pods_limit - marked, 1;
    END IF;
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_mark IS
    'Marks the next pods of a partition for a term and returns them in processing order.';
