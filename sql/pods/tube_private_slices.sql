-- tube_private_slices: the condition on pods of a partition, so that an index of the tube serves.
--
-- That is the index for its number of partitions. After a repartition it may not be there yet, and then that for
-- a number of before serves: a shard that leaves the rest p by P leaves one by C that equals p modulo gcd(C, P),
-- so the pods are in those parts of that index, among others. Of several it takes the one that
-- has the fewest others there.
--
-- Arguments: tube; partitions, partition.
-- Result: pods: the condition, on a column "shard"; slices: the same, in one or more that exclude each other. Each of
--   these has all its pods in one part of the index, in the order of class and seq; more than one is to be merged.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_slices(
    tube text, partitions integer, partition integer, OUT pods text, OUT slices text[]
)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    cut integer;
    common integer;
BEGIN
    pods := format('(shard %% %s) = %s', partitions, partition);
    slices := ARRAY[pods];
    -- As tube_private_indexes, without its call: each mark and purge looks here.
    SELECT substring(c.relname FROM '_p([0-9]+)_idx$')::integer AS number INTO cut
    FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
    WHERE i.indrelid = to_regclass(quote_ident(tube)) AND i.indisvalid
        AND c.relname ~ ('_' || left(md5('queue ' || tube), 8) || '_p[0-9]+_idx$')
    ORDER BY lcm(substring(c.relname FROM '_p([0-9]+)_idx$')::integer, partitions), number DESC
    LIMIT 1;
    IF cut <> partitions THEN
        common := gcd(cut, partitions);
        slices := ARRAY(SELECT format('(shard %% %s) = %s AND %s', cut, s.part, pods)
            FROM generate_series(partition % common, cut - 1, common) AS s (part));
        pods := CASE WHEN cardinality(slices) = 1 THEN slices[1] ELSE format('(shard %% %s) = ANY (%L) AND %s',
            cut, ARRAY(SELECT generate_series(partition % common, cut - 1, common)), pods) END;
    END IF;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_slices(text, integer, integer) FROM PUBLIC;
