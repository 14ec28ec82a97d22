-- tube_private_mark_sql: the statement by which tube_pods_mark takes pods of one class.
--
-- It is planned anew at each call, and must not depend on statistics, which are never right for a
-- queue: the pods can be found only by the one index with all three columns. That index gives them in
-- the order of their seqs, so they are not sorted: the statement first looks for the last pod that it
-- is to take, then updates all up to it. (Taking them by their places, and sorting what comes back,
-- costs a fifth more.) Where the partition is in several parts of the index (tube_private_slices), these are
-- merged to find the last one, and what comes back is sorted.
--
-- Who may insert into a tube may write arrays that no touch function would: a NULL among ids, or ids in
-- several dimensions, would stop the line of a worker for good. So ids come without NULLs and in a row;
-- where that leaves none, the pod is one that nobody understands, and is set aside.
--
-- Result: the text, with the parameters $1 leader_id, $2 floor, $3 limit, $4 class: 0 incremental, 1 backfill.
CREATE OR REPLACE FUNCTION :"schema".tube_private_mark_sql(
    tube text, partitions integer, partition integer
) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    bigints CONSTANT boolean := tube_private_key_type(tube) = 'bigint'::regtype;
    ids CONSTANT text := 'CASE WHEN array_ndims(pod.ids) > 1'
        ' THEN ARRAY(SELECT k.id FROM unnest(pod.ids) AS k (id) WHERE k.id IS NOT NULL)'
        ' ELSE array_remove(pod.ids, NULL) END';
    slices CONSTANT record := tube_private_slices(tube, partitions, partition);
    merged CONSTANT boolean := cardinality(slices.slices) > 1;
    seqs text[];
    mark text;
BEGIN
    seqs := ARRAY(
        SELECT format($seqs$
              SELECT p.seq FROM %I AS p
              WHERE %s
                AND (CASE WHEN p.op = 'B' THEN 1 ELSE 0 END) = $4
                AND p.seq > $2
                AND p.leader_id IS DISTINCT FROM $1
              ORDER BY p.seq$seqs$, tube, slice)
        FROM unnest(slices.slices) AS slice);
    mark := format($mark$
        UPDATE %1$I AS pod SET leader_id = $1
        WHERE %2$s
          AND (CASE WHEN pod.op = 'B' THEN 1 ELSE 0 END) = $4
          AND pod.seq > $2
          AND pod.seq <= coalesce((%3$s
              LIMIT 1 OFFSET $3 - 1), 9223372036854775807)
          AND pod.leader_id IS DISTINCT FROM $1
        RETURNING pod.seq, pod.op::text, pod.shard::integer, %4$s, pod.payload, pod.ts
        $mark$, tube, slices.pods,
        CASE WHEN merged
            THEN format('SELECT m.seq FROM ((%s)) AS m ORDER BY m.seq', array_to_string(seqs, ') UNION ALL ('))
            ELSE seqs[1] END,
        CASE WHEN bigints THEN ids || ', NULL::text[]' ELSE format('NULL::bigint[], (%s)::text[]', ids) END);
    RETURN CASE WHEN merged THEN format('WITH marked AS (%s) SELECT * FROM marked ORDER BY seq', mark) ELSE mark END;
END
$$;
