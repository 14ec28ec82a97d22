-- tube_private_repartition: gives a tube another number of partitions.
--
-- Ends every term; each worker starts new ones. Writers don't notice: that needs no lock on the tube's table. The
-- index for the new number is built here, and others dropped, where that is quick (tube_private_fit_index).
-- Else the partitions are read by the index of before (tube_private_slices) until tube_index_fit finds it quick, or
-- somebody runs what tube_index_sql gives.
--
-- Arguments: tube, partitions: checked, and not those that it has.
-- Errors: 55P03 a call under one of the terms took longer than 5 s.
-- Locks: the caller holds the registry row FOR UPDATE; then all leader rows FOR UPDATE; then, where it can be had
--   within 100 ms, the tube's table ACCESS EXCLUSIVE; all until the transaction ends.
CREATE OR REPLACE FUNCTION :"schema".tube_private_repartition(tube text, partitions integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tube_private_end_terms(tube, 'repartitioned');
    UPDATE tube_registry AS r
    SET partitions = tube_private_repartition.partitions,
        generation = r.generation + 1,
        version = r.version + 1,
        last_epoch = r.last_epoch + 1
    WHERE r.tube = tube_private_repartition.tube;
    PERFORM tube_private_free_partitions(tube);

    IF NOT tube_private_fit_index(tube) THEN
        RAISE NOTICE USING MESSAGE = format('tube %L is read by its index for the partitions that it had', tube),
            HINT = format('Outside of a transaction, run what tube_index_sql(%L, %s) gives, until it gives NULL.',
                tube, partitions);
    END IF;
END
$$;
