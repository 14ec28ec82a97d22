-- tube_settle_done: whether every transaction below an xid is over; see tube_settle_seq.
--
-- Arguments: x, the xid that step 2 drew. (pg_snapshot_xmax would not do: it is one more than the
--   last xid *completed*, and a greater one may be running.)
-- Result: true when all are over, prepared ones too, and visible to statements that begin after this.
-- Locks: none. A lost answer does no harm: once true, always true.
CREATE OR REPLACE FUNCTION :"schema".tube_settle_done(x xid8) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN pg_snapshot_xmin(pg_current_snapshot()) >= x;
END
$$;
COMMENT ON FUNCTION :"schema".tube_settle_done IS
    'Tells whether every transaction below an xid has ended; the last step to a settled seq.';
