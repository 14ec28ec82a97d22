-- tube_leaders_renew: tube_leader_renew for all terms that a process has in a tube, in one statement.
--
-- Arguments: tube; leader_ids: of the terms.
-- Result: the terms among them that still lead, and for each whether it was renewed. Those that are not
--   named are over. One that is named and was not renewed is just being ended or renewed by somebody
--   else: the next call tells.
-- Errors: none.
-- Locks: the rows of tube_leader FOR NO KEY UPDATE, by partition, until the transaction ends. It waits
--   for nobody, so that an acquire of one partition does not keep the others waiting.
-- A lost answer: as tube_leader_renew.
CREATE OR REPLACE FUNCTION :"schema".tube_leaders_renew(tube text, leader_ids uuid[])
RETURNS TABLE (leader_id uuid, renewed boolean)
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
    WITH present AS MATERIALIZED (
        SELECT l.partition
        FROM tube_leader AS l
        WHERE l.tube = tube_leaders_renew.tube AND l.leader_id = ANY (leader_ids)
        ORDER BY l.partition
        FOR NO KEY UPDATE SKIP LOCKED
    ), renewal AS (
        UPDATE tube_leader AS l
        SET renewed_at = clock_timestamp()
        FROM present AS p
        WHERE l.tube = tube_leaders_renew.tube AND l.partition = p.partition
        RETURNING l.leader_id
    )
    SELECT l.leader_id, r.leader_id IS NOT NULL
    FROM tube_leader AS l LEFT JOIN renewal AS r ON r.leader_id = l.leader_id
    WHERE l.tube = tube_leaders_renew.tube AND l.leader_id = ANY (leader_ids)
$$;
COMMENT ON FUNCTION :"schema".tube_leaders_renew IS
    'Renews all terms of a process in a tube in one statement and returns those that still lead.';
