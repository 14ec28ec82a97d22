-- tube_keys_put: tube_pods_put for tubes of any keys, which are given as texts.
--
-- Arguments: as there; keys: as each tube's type is written.
-- Result, locks: as there.
-- Errors: TU102, TU106, 22004, 22023 as there; 22P02, 22003 a key is not of a tube's type.
CREATE OR REPLACE FUNCTION :"schema".tube_keys_put(
    tube_or_tubes text, shard integer, op text, keys text[], chunk_size integer = 250, last boolean = true
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN tube_private_put(tube_or_tubes, shard, op, keys, chunk_size, last);
END
$$;
COMMENT ON FUNCTION :"schema".tube_keys_put IS
    'Inserts keys, given as text, into tubes of any key type as pods, in the given order.';
