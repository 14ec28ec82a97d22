-- tube_ensure_absent: detaches all tables of a tube and drops it with all its pods.
--
-- Its greatest epoch is kept, so that a tube made anew under this name goes on from there; the terms
-- that it had are kept in tube_term, so that new ones wait for what those may still be sending.
--
-- Arguments: in_tube.
-- Result: nothing; no error when there is no such tube.
-- Errors: 55P03 the locks could not be had.
-- Locks: until the transaction ends, the registry row and all leader rows FOR UPDATE, the attached
--   tables and the tube's table ACCESS EXCLUSIVE.
CREATE OR REPLACE FUNCTION :"schema".tube_ensure_absent(in_tube text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '5s'
AS $$
DECLARE
    reg tube_registry;
BEGIN
    SELECT r.* INTO reg FROM tube_registry AS r WHERE r.tube = in_tube FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE tube_installation AS i SET last_epoch = greatest(i.last_epoch, reg.last_epoch);
    PERFORM tube_private_end_terms(in_tube, 'superseded');
    PERFORM tube_private_patiently(ARRAY[
        format('SELECT tube_private_forget(a.tube, array_agg(a.tbl)) FROM tube_attachment AS a WHERE a.tube = %L GROUP BY a.tube', in_tube),
        format('DROP TABLE %I.%I', tube_private_schema(), in_tube)], format('tube %L is dropped', in_tube));
    EXECUTE format('DROP FUNCTION IF EXISTS %I.%I(integer, %s[], char, jsonb, integer)',
        tube_private_schema(), tube_private_name(in_tube, '_touch'), reg.key_type);
    DELETE FROM tube_registry AS r WHERE r.tube = in_tube;
    EXECUTE format('DROP SEQUENCE %I', 'tube_sleeps_' || reg.number);
END
$$;
COMMENT ON FUNCTION :"schema".tube_ensure_absent IS
    'Drops a tube with all its pods and detaches its tables; does nothing if there is no such tube.';
