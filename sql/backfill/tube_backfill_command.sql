-- tube_backfill_command: pauses, resumes or cancels a backfill, whoever works on it.
--
-- It takes effect after the chunk that is being inserted. Cancelled, the pods of it that wait are
-- taken back; what a worker holds already is delivered, which does no harm.
--
-- Arguments: backfill_id; command: pause, resume or cancel.
-- Result: the backfill as it is now. A pause of one that is paused does nothing, and so on.
-- Errors: TU122 unknown backfill; TU124 it is past that; 22023 an unknown command; 40P01 is to be
--   tried again.
-- Locks: the backfill's row; to cancel, as tube_private_backfill_end and tube_backfill_tidy.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_command(backfill_id bigint, command text)
RETURNS :"schema".tube_backfill
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    backfill tube_backfill := tube_private_backfill(backfill_id);
BEGIN
    IF command IS NULL OR command NOT IN ('pause', 'resume', 'cancel') THEN
        RAISE EXCEPTION 'there is no command %', quote_nullable(command)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is pause, resume or cancel.';
    ELSIF backfill.state IN ('finished', 'cancelled', 'superseded', 'failed')
        OR (command = 'pause' AND backfill.state = 'delivering')
    THEN
        RAISE EXCEPTION USING ERRCODE = 'TU124',
            MESSAGE = format('backfill %s of %s is %s', backfill.backfill_id, backfill.table_name, backfill.state),
            HINT = CASE backfill.state WHEN 'delivering'
                THEN 'All its pods are in the tube; it can be cancelled.' ELSE 'Begin a new one.' END;
    ELSIF command = 'cancel' THEN
        PERFORM tube_private_backfill_end(backfill, 'cancelled', NULL);
        PERFORM tube_backfill_tidy();
    ELSE
        UPDATE tube_backfill AS b SET paused = (command = 'pause'), updated_at = clock_timestamp()
        WHERE b.backfill_id = backfill.backfill_id;
    END IF;
    RETURN tube_private_backfill(backfill.backfill_id);
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_command IS 'Pauses, resumes or cancels a backfill.';
