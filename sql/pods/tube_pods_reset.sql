-- tube_pods_reset: gives pods of a term back, so that the next mark returns them again.
--
-- Whoever keeps floors lowers them below the least seq that was given back (to 0 with seqs NULL).
--
-- Arguments: tube, partitions, partition, leader_id: the term; seqs: of the pods, or NULL for all
--   that are this term's. With NULL all pods of the partition are looked at: a call for shutting
--   down and for recovery.
-- Result: how many were given back. A seq that is not there, or is not this term's, is passed over.
-- Errors: TU001 the term is over; TU002, TU102, TU103 as tube_leader_epoch; 40P01 is to be tried again.
-- Locks: the fence (tube_private_hold_term) and the rows given back, until the transaction ends.
-- A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_reset(
    tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[] = NULL
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_indexscan = on
SET enable_tidscan = on
SET jit = off
AS $$
DECLARE
    given_back integer := 0;
    done       integer;
    statement  text;
BEGIN
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    statement := format('UPDATE %I AS pod SET leader_id = NULL WHERE', tube) || CASE
        WHEN seqs IS NULL THEN format(
            $where$ %s AND (CASE WHEN pod.op = 'B' THEN 1 ELSE 0 END) = $3 AND pod.leader_id = $1$where$,
            (tube_private_slices(tube, partitions, partition)).pods)
        ELSE tube_private_pods_where(tube, partitions, partition) END;
    FOR class IN 0..1 LOOP
        EXIT WHEN given_back >= cardinality(seqs);
        EXECUTE statement USING leader_id, seqs, class;
        GET DIAGNOSTICS done = ROW_COUNT;
        given_back := given_back + done;
    END LOOP;
    RETURN given_back;
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_reset IS
    'Gives marked pods of a term back, so that the next mark returns them again.';
