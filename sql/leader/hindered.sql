-- What slows terms down, as their workers say with their renewals (tube_leaders_renew): a sink that answers late, a table that
-- another session has locked.

-- Result: a row for each hindrance, by tube and partition: what: slow (the sink) or locked (a table); why, in the words of the
--   worker; and since when. Of a term that is lost there is none.
CREATE OR REPLACE FUNCTION :"schema".tube_hindered_list() RETURNS TABLE (
    tube text, partition integer, what text, reason text, since timestamptz
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT l.tube, l.partition, h.what, h.reason, h.since
    FROM tube_hindered AS h JOIN tube_leader AS l ON l.leader_id = h.leader_id
    WHERE l.renewed_at + coalesce(l.lease, l.hold) > clock_timestamp()
    ORDER BY l.tube, l.partition, h.what
$$;
COMMENT ON FUNCTION :"schema".tube_hindered_list IS
    'Lists what slows down partitions that are led: slow sinks and locked tables.';
