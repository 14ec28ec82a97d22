-- Partitions whose terms end by the same failure, one after the other: a worker that begins a new term each time looks as if
-- it led.

-- Not under a term: the failed term may be over.
-- Arguments: tube, partition; reason: of the last failure; terms: how many have failed so, 0 for none any more; seconds: how
--   long ago the first one did.
-- Result: nothing, also where there is no such tube. Locks: the row that it writes. A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_failing_note(
    tube text, partition integer, reason text, terms integer, seconds double precision
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    IF coalesce(terms, 0) < 1 THEN
        DELETE FROM tube_failing AS f WHERE f.tube = $1 AND f.partition = $2;
        RETURN;
    END IF;
    INSERT INTO tube_failing AS f (tube, partition, reason, terms, since, failed_at)
    SELECT r.tube, $2, $3, $4, clock_timestamp() - $5 * interval '1 second', clock_timestamp()
    FROM tube_registry AS r WHERE r.tube = $1 AND $2 BETWEEN 0 AND r.partitions - 1
    ON CONFLICT ON CONSTRAINT tube_failing_pkey DO UPDATE
    SET reason = excluded.reason, terms = excluded.terms, since = excluded.since, failed_at = excluded.failed_at;
END
$$;
COMMENT ON FUNCTION :"schema".tube_failing_note IS
    'Records that so many terms of a partition have ended by the same failure; 0: none does any more.';

-- Result: a row for each, by tube and partition: the reason of the last failure, how many terms have failed so, since when,
--   and when the last one did. One whose last failure is more than 5 minutes old is left out: the process that knew of it
--   is gone.
CREATE OR REPLACE FUNCTION :"schema".tube_failing_list() RETURNS TABLE (
    tube text, partition integer, reason text, terms integer, since timestamptz, failed_at timestamptz
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT f.tube, f.partition, f.reason, f.terms, f.since, f.failed_at
    FROM tube_failing AS f JOIN tube_registry AS r ON r.tube = f.tube AND f.partition < r.partitions
    WHERE f.failed_at > clock_timestamp() - interval '5 minutes'
    ORDER BY f.tube, f.partition
$$;
COMMENT ON FUNCTION :"schema".tube_failing_list IS
    'Lists partitions whose terms keep ending by the same failure, as reported within five minutes.';
