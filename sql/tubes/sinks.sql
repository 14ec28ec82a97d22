-- Sinks that have lost their documents: emptied, or replaced.
--
-- A sink is known by a mark, which goes when its documents go. Workers read it every few seconds and report it here; the
-- memory of it is in the database, so that it outlives workers. A new mark is chosen here before any worker writes it: all
-- workers of a tube write the same one.

-- Arguments: tube; held: the mark, NULL when the sink has none, or the store of the documents is gone.
-- Result: one row. wanted: the mark that the worker is to leave, having made missing objects; NULL: nothing is to be made or
--   left.
--   emptied_at: when the documents were last found to be gone; NULL: they are there, or a backfill of all root tables that
--   began afterwards has finished. is_new: this call has found that. is_over: this call has found that it is made up for.
-- Errors: TU102 unknown tube. Locks: the tube's row in tube_sink, but for the usual case, in which nothing is written.
--   In codes: TU111.
CREATE OR REPLACE FUNCTION :"schema".tube_sink_note(tube text, held text)
RETURNS TABLE (wanted text, emptied_at timestamptz, is_new boolean, is_over boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
#variable_conflict use_column
DECLARE
    reg CONSTANT tube_registry := tube_private_require(tube);
    known tube_sink;
    before tube_sink;
BEGIN
    is_new := false;
    is_over := false;
    SELECT s.* INTO known FROM tube_sink AS s WHERE s.tube = reg.tube;
    IF known.seen AND known.mark = held AND known.emptied_at IS NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    INSERT INTO tube_sink AS s (tube) VALUES (reg.tube) ON CONFLICT DO NOTHING;
    SELECT s.* INTO known FROM tube_sink AS s WHERE s.tube = reg.tube FOR UPDATE;
    before := known;
    IF known.mark IS NULL THEN
        -- New, or emptied: then nothing is made before an operator has it filled again.
        IF known.emptied_at IS NULL OR tube_private_refilled(reg.tube, known.emptied_at, false) THEN
            known.seen := held IS NOT NULL;
            known.mark := coalesce(held, (SELECT format('%s %s epoch %s', i.installation, reg.tube, reg.last_epoch)
                FROM tube_installation AS i));
        END IF;
    ELSIF held = known.mark THEN
        known.seen := true;
    ELSIF known.seen THEN
        known.mark := NULL;
        known.seen := false;
        known.emptied_at := clock_timestamp();
        is_new := true;
    ELSIF held IS NOT NULL THEN
        known.mark := held; -- the server's name for the new object, or the mark of another database's workers
        known.seen := true;
    END IF;
    IF known.seen AND tube_private_refilled(reg.tube, known.emptied_at, true) THEN
        known.emptied_at := NULL;
        is_over := true;
    END IF;
    IF known IS DISTINCT FROM before THEN
        UPDATE tube_sink AS s SET mark = known.mark, seen = known.seen, emptied_at = known.emptied_at
        WHERE s.tube = reg.tube;
    END IF;
    wanted := CASE WHEN NOT known.seen THEN known.mark END;
    emptied_at := known.emptied_at;
    RETURN NEXT;
END
$$;
COMMENT ON FUNCTION :"schema".tube_sink_note IS
    'Records the mark that a worker found at the sink; NULL: none. wanted is the mark to leave there; NULL: create '
    'and leave nothing.';

-- tube_private_refilled: whether backfills that began after `since` have finished for each root table of the tube; for
-- any_state, whether one has begun, whatever its state, unless it was ended. False while `since` is NULL.
CREATE OR REPLACE FUNCTION :"schema".tube_private_refilled(tube text, since timestamptz, finished boolean) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT $2 IS NOT NULL AND CASE WHEN $3 THEN
        EXISTS (SELECT FROM tube_list() AS l WHERE l.tube = $1 AND l.root)
        AND NOT EXISTS (SELECT FROM tube_list() AS l WHERE l.tube = $1 AND l.root AND NOT EXISTS (
            SELECT FROM tube_backfill AS b
            WHERE b.tube = $1 AND b.tbl = l.tbl AND b.created_at > $2 AND b.state = 'finished'))
    ELSE
        EXISTS (SELECT FROM tube_backfill AS b WHERE b.tube = $1 AND b.created_at > $2
            AND b.state IN ('waiting', 'inserting', 'delivering', 'finished'))
    END
$$;

-- Result: a row for each tube whose sink a worker has looked at. makes: whether a worker may make missing objects there: the
--   tube is new, or is being filled. emptied_at: as tube_sink_note. mark: what the sink has shown; NULL: nothing yet, or it was
--   emptied. A worker that finds this mark there has nothing to note. source: which database this is, the same in each row: a
--   copy by TEMPLATE has another oid, a promoted one another timeline, a dump that was
--   restored elsewhere another server or oid. Disks that were put back to an earlier state are the same source.
CREATE OR REPLACE FUNCTION :"schema".tube_sink_list()
RETURNS TABLE (tube text, makes boolean, emptied_at timestamptz, mark text, source text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT s.tube, NOT s.seen AND (s.mark IS NOT NULL OR s.emptied_at IS NULL), s.emptied_at,
        CASE WHEN s.seen AND s.emptied_at IS NULL THEN s.mark END,
        format('%s:%s:%s:%s', i.installation, n.system_identifier, n.timeline, d.oid)
    FROM tube_sink AS s CROSS JOIN tube_installation AS i CROSS JOIN tube_private_source() AS n
        JOIN pg_database AS d ON d.datname = current_database() ORDER BY s.tube
$$;
COMMENT ON FUNCTION :"schema".tube_sink_list IS
    'Lists tubes whose sinks were checked. makes: whether a worker may create missing parts there.';

-- Arguments: tube; before: only a loss that was noticed earlier; NULL: any.
-- Result: whether there was such a loss. Errors: TU102 unknown tube. Locks: the tube's row in tube_sink.
-- Errors: TU111.
CREATE OR REPLACE FUNCTION :"schema".tube_sink_accept(tube text, before timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(tube);
BEGIN
    UPDATE tube_sink AS s SET emptied_at = NULL, mark = NULL, seen = false
    WHERE s.tube = reg.tube AND s.emptied_at < coalesce(before, 'infinity');
    IF FOUND THEN
        PERFORM tube_audit_add('sink accept', reg.tube);
    END IF;
    RETURN FOUND;
END
$$;
COMMENT ON FUNCTION :"schema".tube_sink_accept IS
    'Accepts the content of an emptied sink as complete, if it was found emptied before this time; NULL: any.';
