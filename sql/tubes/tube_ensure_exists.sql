-- tube_ensure_exists: makes a tube, or changes its partitions and its predicate.
--
-- Arguments:
--   tube: its name, 1 to 57 bytes, no comma.
--   partitions: 1 to 1024. Another number than before ends every term, and waits for no writer. A NOTICE tells when
--     the index for it is still to be built (see tube_index_sql).
--   predicate: which rows of attached tables belong to the tube: a condition over their columns that
--     obeys the rules of row filters. NULL keeps what there is, an empty string removes it.
--   key_type: of the ids: bigint, uuid or text. NULL means bigint for a new tube, and what it has for
--     one that is there; it can't be changed.
-- Result: nothing. Nothing is done when the tube is like that already.
--   A predicate is put to work on attached tables with the rights of the caller, who has to own them.
-- Errors: 42501 the caller is no owner of an attached table, and the predicate changes; 22023 key_type, TU101 name, TU103 partitions, TU105 predicate refused (the table at fault is named), 55P03
--   the locks could not be had. Nothing was changed then.
-- Locks: until the transaction ends, the registry row FOR UPDATE, and with another number of
--   partitions also all leader rows, and the tube's table if it can be had at once. None when nothing is to be done.
CREATE OR REPLACE FUNCTION :"schema".tube_ensure_exists(
    tube text, partitions integer = 1, predicate text = NULL, key_type regtype = NULL
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
SET lock_timeout = '5s'
AS $$
DECLARE
    att tube_attachment;
BEGIN
    FOR att IN SELECT w.* FROM tube_private_ensure_tube(tube, partitions, predicate, key_type) AS w LOOP
        PERFORM tube_private_bring_in_line(att, 'ordered');
    END LOOP;
END
$$;
COMMENT ON FUNCTION :"schema".tube_ensure_exists IS
    'Creates a tube, or changes its number of partitions and its predicate.';

-- tube_private_ensure_tube: what tube_ensure_exists does to the tube itself.
--
-- Result: the attachments that are to get another predicate.
-- Locks: as of tube_ensure_exists.
CREATE OR REPLACE FUNCTION :"schema".tube_private_ensure_tube(
    tube text, partitions integer, predicate text, key_type regtype
) RETURNS SETOF :"schema".tube_attachment
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
#variable_conflict use_column
DECLARE
    reg tube_registry;
    wanted text := nullif(btrim(tube_private_ensure_tube.predicate, E' \t\r\n'), '');
BEGIN
    PERFORM tube_private_parse_predicate(tube, wanted);
    PERFORM tube_private_check_partitions(partitions);
    SELECT r.* INTO reg FROM tube_registry AS r WHERE r.tube = tube_private_ensure_tube.tube;
    PERFORM tube_private_check_key_type(tube_private_ensure_tube.tube, reg.key_type, tube_private_ensure_tube.key_type);
    IF reg.tube IS NULL THEN
        PERFORM tube_private_check_name(tube_private_ensure_tube.tube);
        INSERT INTO tube_registry (tube, partitions, predicate, key_type, last_epoch)
        SELECT tube_private_ensure_tube.tube, tube_private_ensure_tube.partitions, wanted,
            coalesce(tube_private_ensure_tube.key_type, 'bigint'), i.last_epoch
        FROM tube_installation AS i
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            PERFORM tube_private_make(tube_private_ensure_tube.tube), tube_private_provide_tube(tube_private_ensure_tube.tube);
            RETURN;
        END IF;
        -- Another session made it meanwhile.
    ELSIF reg.partitions = tube_private_ensure_tube.partitions
        AND (tube_private_ensure_tube.predicate IS NULL OR reg.predicate IS NOT DISTINCT FROM wanted)
    THEN
        RETURN;
    END IF;

    SELECT r.* INTO reg FROM tube_registry AS r WHERE r.tube = tube_private_ensure_tube.tube FOR UPDATE;
    IF reg.partitions <> tube_private_ensure_tube.partitions THEN
        PERFORM tube_private_repartition(tube_private_ensure_tube.tube, tube_private_ensure_tube.partitions);
    END IF;
    IF tube_private_ensure_tube.predicate IS NOT NULL AND reg.predicate IS DISTINCT FROM wanted THEN
        PERFORM tube_private_prune(reg.tube);
        UPDATE tube_registry AS r SET predicate = wanted, version = r.version + 1 WHERE r.tube = reg.tube;
        RETURN QUERY SELECT w.* FROM tube_attachment AS a, tube_private_attachment_now(a) AS w
        WHERE a.tube = reg.tube AND w.tube IS NOT NULL ORDER BY a.position;
    END IF;
END
$$;

-- tube_private_check_key_type: refuses a type that keys can't have, or that the tube does not have.
--
-- Arguments: tube; present: NULL for a new tube; wanted: may be NULL.
-- Errors: 22023.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_key_type(tube text, present regtype, wanted regtype)
RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF wanted NOT IN ('bigint', 'uuid', 'text') THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('the keys of tube %L can''t have the type %s', tube, wanted),
            HINT = 'Give bigint (also for tables with smaller integers), uuid or text.';
    ELSIF wanted <> present THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('the keys of tube %L have the type %s, not %s', tube, present, wanted),
            HINT = 'Make another tube for keys of another type.';
    END IF;
END
$$;
