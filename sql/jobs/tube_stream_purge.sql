-- tube_stream_purge: deletes the pods that a stream has read and done with.
--
-- For tubes that have no workers. The seq is to be a settled one: then no pod comes below it any more.
--
-- Arguments: tube; seq: all pods up to it go.
-- Result: how many pods went.
-- Errors: TU102 unknown tube; TU133 workers lead it.
-- Locks: the pods.
-- A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_stream_purge(tube text, seq bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET enable_seqscan = off
AS $$
DECLARE
    reg tube_registry := tube_private_require(tube);
    gone bigint := 0;
    here bigint;
BEGIN
    IF EXISTS (SELECT FROM tube_leader AS l WHERE l.tube = reg.tube AND l.leader_id IS NOT NULL) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU133',
            MESSAGE = format('the tube %L has workers, which purge what they have delivered', tube),
            HINT = 'A tube is read by workers or by a stream. End the workers, or do not purge.';
    END IF;
    FOR part IN 0 .. reg.partitions - 1 LOOP
        EXECUTE format('DELETE FROM %I.%I AS t WHERE %s'
            ' AND (CASE WHEN t.op = ''B'' THEN 1 ELSE 0 END) = ANY (''{0,1}'') AND t.seq <= $1',
            tube_private_schema(), reg.tube, (tube_private_slices(reg.tube, reg.partitions, part)).pods) USING seq;
        GET DIAGNOSTICS here = ROW_COUNT;
        gone := gone + here;
    END LOOP;
    RETURN gone;
END
$$;
COMMENT ON FUNCTION :"schema".tube_stream_purge IS
    'Deletes the pods that a stream has processed, up to a settled seq.';
