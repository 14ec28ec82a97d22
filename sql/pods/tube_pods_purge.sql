-- tube_pods_purge: deletes pods of a term that are done.
--
-- Arguments: tube, partitions, partition, leader_id: the term; seqs: of the pods.
-- Result: how many were deleted. A seq that is not there, or is not this term's, is passed over.
-- Errors: TU001 the term is over; TU002, TU102, TU103 as tube_leader_epoch; 40P01 is to be tried again.
-- Locks: the fence (tube_private_hold_term) and the deleted rows, until the transaction ends.
-- A lost answer: the pods may be gone or not; call again with the same seqs.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_purge(
    tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]
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
    purged integer := 0;
    done   integer;
    statement text;
BEGIN
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    statement := format('DELETE FROM %I AS pod WHERE', tube) || tube_private_pods_where(tube, partitions, partition);
    FOR class IN 0..1 LOOP
        EXIT WHEN purged >= coalesce(cardinality(seqs), 0);
        EXECUTE statement USING leader_id, seqs, class;
        GET DIAGNOSTICS done = ROW_COUNT;
        purged := purged + done;
    END LOOP;
    RETURN purged;
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_purge IS 'Deletes the pods that a term has finished.';
