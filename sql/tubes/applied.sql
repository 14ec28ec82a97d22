-- The declarations of tubes and outboxes in a file, beside their documents: `pytube apply` records its steps here, so
-- that it can distinguish a changed file from a changed database, and removes only objects that it has made itself.

-- Arguments: tube: a tube or an outbox; digest: of the section; NULL: none declares it, and all that is here counts as made by
--   hand; made: whether this call is of the one who has just made it.
-- Result: nothing.
-- Errors: TU102 there is none of that name; TU112 it is the companion of a tube.
--   In codes: 55P03.
-- Locks: the registry row FOR NO KEY UPDATE, until the transaction ends. A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_applied_set(tube text, digest text, made boolean = false) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    IF (tube_private_require_any(tube)).companion_of IS NOT NULL THEN
        PERFORM tube_private_require_main(tube); -- says whose
    END IF;
    UPDATE tube_registry AS r
    SET applied = digest, made = digest IS NOT NULL AND (r.made OR tube_applied_set.made IS TRUE)
    WHERE r.tube = tube_applied_set.tube;
    UPDATE tube_attachment AS a SET made = false WHERE a.tube = tube_applied_set.tube AND a.made AND digest IS NULL;
END
$$;
COMMENT ON FUNCTION :"schema".tube_applied_set IS
    'Records that a tube or outbox matches its declaration in a file; made: the caller has just created it. A NULL '
    'digest: no file declares it any longer.';

-- Arguments: tube; tbl: a table that is attached to it; nothing is done where it is not.
-- Errors: TU102 unknown tube; TU111 it is an outbox. Locks: the attachment. A lost answer: call again.
--   In codes: 55P03.
CREATE OR REPLACE FUNCTION :"schema".tube_applied_attached(tube text, tbl regclass) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    PERFORM tube_private_require(tube);
    UPDATE tube_attachment AS a SET made = true
    WHERE a.tube = tube_applied_attached.tube AND a.tbl = tube_applied_attached.tbl;
END
$$;
COMMENT ON FUNCTION :"schema".tube_applied_attached IS 'Records that a table was attached because a file declares it.';

-- Result: a row per attached table, and one with a NULL tbl for an outbox, or a tube without tables. kind: tube or outbox;
--   declared: the digest of the document that a tube is; applied: that of the section which declares it; NULL: none does; made:
--   whether it was made so; attached: whether the table was attached so.
CREATE OR REPLACE FUNCTION :"schema".tube_applied() RETURNS TABLE (
    tube text, kind text, declared text, applied text, made boolean, tbl regclass, attached boolean
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT r.tube, r.kind, r.declared, r.applied, r.made, a.tbl, a.made
    FROM tube_registry AS r
    LEFT JOIN (tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl) ON a.tube = r.tube
    ORDER BY r.tube, a.position
$$;
COMMENT ON FUNCTION :"schema".tube_applied() IS
    'Lists these records: a row per attached table, and one with a NULL tbl for an outbox or a tube without tables.';
