-- tube_private_pods_where: the condition of a statement on a term's pods with given seqs.
--
-- The statement names the tube's table "pod", and has the parameters $1 leader_id, $2 seqs bigint[], $3 class:
-- 0 incremental, 1 backfill.
-- It is to look each seq up in the one index with all three columns, whatever the statistics say.
-- The seqs are given by a subquery, because the planner takes a while to look at each of a thousand.
-- Before 17 it may take "seq = ANY" for a filter over all pods of the partition instead
-- (measured: ten times the time and more); there each seq is looked up by a join that can't be
-- turned round, which costs a descent of the index each.
--
-- Result: the text that follows WHERE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_pods_where(
    tube text, partitions integer, partition integer
) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    pods CONSTANT text := (tube_private_slices(tube, partitions, partition)).pods;
BEGIN
    IF current_setting('server_version_num')::integer >= 170000 THEN
        RETURN format($where$
            %s
            AND (CASE WHEN pod.op = 'B' THEN 1 ELSE 0 END) = $3
            AND pod.seq = ANY ((SELECT $2)::bigint[])
            AND pod.leader_id = $1$where$, pods);
    END IF;
    RETURN format($where$
        pod.ctid = ANY (ARRAY(
            SELECT found.place
            FROM unnest($2) AS wanted (seq), LATERAL (
                SELECT p.ctid AS place FROM %1$I AS p
                WHERE %2$s
                  AND (CASE WHEN p.op = 'B' THEN 1 ELSE 0 END) = $3
                  AND p.seq = wanted.seq
                  AND p.leader_id = $1
                OFFSET 0) AS found))$where$, tube, pods);
END
$$;
