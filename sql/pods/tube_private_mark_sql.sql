-- tube_private_mark_sql: the statement by which tube_pods_mark takes pods of one class.
--
-- It is planned anew at each call, and must not depend on statistics, which are never right for a
-- queue: the pods can be found only by the one index with all three columns, in its order, and are
-- updated by their place. (By seq they might be looked for in a scan: before 17 the planner may take
-- "seq = ANY" for a filter.)
--
-- Arguments: tube; partitions, partition; class: 0 incremental, 1 backfill.
-- Result: the text, with the parameters $1 leader_id, $2 floor, $3 limit.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_mark_sql(
    tube text, partitions integer, partition integer, class integer
) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN format($mark$
        WITH marked AS (
            UPDATE %1$I AS pod SET leader_id = $1
            WHERE pod.ctid = ANY (ARRAY(
                SELECT p.ctid FROM %1$I AS p
                WHERE (p.shard %% %2$s) = %3$s
                  AND (CASE WHEN p.op = 'B' THEN 1 ELSE 0 END) = %4$s
                  AND p.seq > $2
                  AND p.leader_id IS DISTINCT FROM $1
                ORDER BY p.seq
                LIMIT $3))
              AND pod.leader_id IS DISTINCT FROM $1
            RETURNING pod.seq, pod.op, pod.shard, pod.ids, pod.payload, pod.ts)
        SELECT m.seq, m.op::text, m.shard, m.ids, NULL::text[], m.payload, m.ts
        FROM marked AS m
        ORDER BY m.seq$mark$, tube, partitions, partition, class);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_mark_sql(text, integer, integer, integer) FROM PUBLIC;
