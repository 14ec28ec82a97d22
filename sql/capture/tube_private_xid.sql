-- tube_private_xid: trigger function; gives the transaction its id before it draws a seq.
--
-- So whoever has drawn a seq is seen running until its pods can be seen: the settled seq rests on it.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_xid() RETURNS trigger
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    drawn CONSTANT xid8 := pg_catalog.pg_current_xact_id();
BEGIN
    RETURN NULL;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_xid() FROM PUBLIC;
