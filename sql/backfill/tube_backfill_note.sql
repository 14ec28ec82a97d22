-- tube_backfill_note: writes down what a backfill is at, for those who look.
--
-- Arguments: backfill_id; note: a sentence, NULL for nothing special.
-- Result: the backfill as it is now.
-- Errors: TU122, TU123 as tube_private_backfill_held.
-- Locks: the backfill's row.
CREATE OR REPLACE FUNCTION :"schema".tube_backfill_note(backfill_id bigint, note text)
RETURNS :"schema".tube_backfill
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    backfill tube_backfill := tube_private_backfill_held(tube_backfill_note.backfill_id);
BEGIN
    IF backfill.note IS DISTINCT FROM tube_backfill_note.note THEN
        UPDATE tube_backfill AS b SET note = tube_backfill_note.note, updated_at = clock_timestamp()
        WHERE b.backfill_id = backfill.backfill_id RETURNING b.* INTO backfill;
    END IF;
    RETURN backfill;
END
$$;
COMMENT ON FUNCTION :"schema".tube_backfill_note IS 'Stores what a backfill is doing, for status displays.';
