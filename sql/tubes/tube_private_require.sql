-- tube_private_require: the registry row of a tube that has to be there.
--
-- Result: its row.
-- Errors: TU102 unknown tube; the hint lists the known ones.
CREATE OR REPLACE FUNCTION :"schema".tube_private_require(tube text) RETURNS :"schema".tube_registry
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    found_row tube_registry;
    known text;
BEGIN
    SELECT r.* INTO found_row FROM tube_registry AS r WHERE r.tube = tube_private_require.tube;
    IF FOUND THEN
        RETURN found_row;
    END IF;
    SELECT string_agg(quote_literal(r.tube), ', ' ORDER BY r.tube) INTO known FROM tube_registry AS r;
    RAISE EXCEPTION USING ERRCODE = 'TU102',
        MESSAGE = format('there is no tube %s', coalesce(quote_literal(tube), 'NULL')),
        HINT = coalesce('There are: ' || known || '.', 'There are none yet: tube_ensure_exists makes one.');
END
$$;
