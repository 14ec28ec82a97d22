-- tube_private_slices: the condition on pods of a partition, so that an index of the tube serves.
--
-- That is the index for its number of partitions. After a repartition it may not be there yet, and then that for
-- a number of before serves: a shard that leaves the rest p by P leaves one by C that equals p modulo gcd(C, P),
-- so the pods are in those parts of that index, among others. Of several it takes the one that
-- has the fewest others there.
--
-- Result: pods: the condition, on a column "shard"; slices: the same, in one or more that exclude each other. Each of
--   these has all its pods in one part of the index, in the order of class and seq; more than one is to be merged.
CREATE OR REPLACE FUNCTION :"schema".tube_private_slices(
    tube text, partitions integer, partition integer, OUT pods text, OUT slices text[]
)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    cut integer;
    common integer;
BEGIN
    pods := format('(shard %% %s) = %s', partitions, partition);
    slices := ARRAY[pods];
    -- Nearly always it is there, and each mark and purge looks here. (A longer name is cut; then it is found below.)
    PERFORM FROM pg_index AS i
    WHERE i.indexrelid = to_regclass(quote_ident(format('%s_%s_p%s_idx', tube, left(md5('queue ' || tube), 8), partitions)))
        AND i.indisvalid;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT i.partitions INTO cut FROM tube_private_indexes(tube) AS i
    WHERE i.valid
    ORDER BY lcm(i.partitions, tube_private_slices.partitions), i.partitions DESC LIMIT 1;
    IF cut <> partitions THEN
        common := gcd(cut, partitions);
        slices := ARRAY(SELECT format('(shard %% %s) = %s AND %s', cut, s.part, pods)
            FROM generate_series(partition % common, cut - 1, common) AS s (part));
        pods := CASE WHEN cardinality(slices) = 1 THEN slices[1] ELSE format('(shard %% %s) = ANY (%L) AND %s',
            cut, ARRAY(SELECT generate_series(partition % common, cut - 1, common)), pods) END;
    END IF;
END
$$;
