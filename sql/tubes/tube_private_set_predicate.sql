-- tube_private_set_predicate: tries a predicate on every attached table, then stores it.
--
-- Arguments: tube; predicate: NULL for none.
-- Result: nothing.
-- Errors: TU105 refused, with nothing changed.
-- Locks: the caller holds the registry row; no lock on the attached tables that writers feel.
CREATE OR REPLACE FUNCTION :"schema".tube_private_set_predicate(tube text, predicate text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    PERFORM tube_private_prune(tube);
    PERFORM tube_private_parse_predicate(tube, predicate);
    UPDATE tube_attachment AS a
    SET row_filter = tube_private_row_filter(a.tube, a.tbl, tube_private_set_predicate.predicate)
    WHERE a.tube = tube_private_set_predicate.tube;
    UPDATE tube_registry AS r
    SET predicate = tube_private_set_predicate.predicate, version = r.version + 1
    WHERE r.tube = tube_private_set_predicate.tube;
    PERFORM tube_private_sync(tube);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_set_predicate(text, text) FROM PUBLIC;
