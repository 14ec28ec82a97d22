-- tube_private_refuse_term: raises the error of a call under a term that is not the present one.
--
-- Arguments: tube, partitions, partition, leader_id: the term that was not found.
-- Result: never returns.
-- Errors: TU102 unknown tube, TU002 another number of partitions, TU103 no such partition, else TU001.
CREATE OR REPLACE FUNCTION :"schema".tube_private_refuse_term(
    tube text, partitions integer, partition integer, leader_id uuid
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tube_private_check_partition(tube, partitions, partition);
    RAISE EXCEPTION 'the term % of partition % of tube % is over',
        coalesce(leader_id::text, 'NULL'), partition, quote_literal(tube)
        USING ERRCODE = 'TU001', HINT = 'Another leader acquired the partition, or it was released. '
            'Do nothing more under this term; a new one may be acquired.';
END
$$;
