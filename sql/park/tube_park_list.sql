-- tube_park_list: keys that were set aside with their error, the latest first.
--
-- Arguments: in_tube, or NULL for all tubes; in_limit: at most so many.
-- Result: one row per key (or per control pod, which has no id). No row for an unknown tube.
-- Errors: 22023 a negative in_limit.
-- Locks: none. A lost answer does no harm.
CREATE OR REPLACE FUNCTION :"schema".tube_park_list(in_tube text = NULL, in_limit integer = 100)
RETURNS TABLE (
    park_id bigint, tube text, shard integer, id text, op text, seq bigint, payload jsonb,
    error text, attempts integer, epoch bigint, parked_at timestamptz
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    IF in_limit IS NULL OR in_limit < 0 THEN
        RAISE EXCEPTION 'in_limit is %', coalesce(in_limit::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is 0 or more.';
    END IF;
    RETURN QUERY
    SELECT k.park_id, k.tube, k.shard, k.id, k.op, k.seq, k.payload, k.error, k.attempts, k.epoch, k.parked_at
    FROM tube_parked AS k
    WHERE in_tube IS NULL OR k.tube = in_tube
    ORDER BY k.parked_at DESC, k.park_id DESC
    LIMIT in_limit;
END
$$;
COMMENT ON FUNCTION :"schema".tube_park_list IS 'Lists parked keys with their errors, latest first.';
