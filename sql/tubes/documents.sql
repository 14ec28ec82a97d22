-- Declared documents: which tubes they are made of, and the touches that come out of their relations.
--
-- A document is a tube whose `declared` has the digest of what the workers' configuration says of it. Where a row takes
-- part in documents without holding their key, its link values are touched in a companion of that tube (`companion_of`):
-- an ordinary tube whose ids are these values, with one relation per shard. A worker looks up which documents they lead to,
-- touches these (tube_document_touch), commits, and purges the companion's pods then. So at any moment a change waits in a
-- companion, or in the tube, or is delivered: who waits for it waits for the companions first, then reads tube_settle_seq()
-- again, and waits for the tube up to that.

-- Workers whose own digest is another one do not deliver for it.
-- Arguments: tube; digest: of the document; NULL: it is not a document any more. Its attachments stay as they are.
-- Result: nothing. Nothing is done when it is like that already; else the tube's version grows.
-- Errors: TU102 unknown tube; TU111 it is an outbox; TU112 it is the companion of another tube; 55P03.
-- Locks: the registry row FOR NO KEY UPDATE, until the transaction ends. A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_document_declare(tube text, digest text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    PERFORM tube_private_require_main(tube);
    IF digest IS NOT NULL THEN
        -- The section of the document says it all from now on.
        PERFORM tube_applied_set(r.tube, NULL) FROM tube_registry AS r
        WHERE r.tube = tube_document_declare.tube AND r.applied IS NOT NULL;
    END IF;
    UPDATE tube_registry AS r SET declared = digest, version = r.version + 1
    WHERE r.tube = tube_document_declare.tube AND r.declared IS DISTINCT FROM digest;
END
$$;
COMMENT ON FUNCTION :"schema".tube_document_declare IS
    'Records the digest of the document that a tube delivers; NULL: none. Workers with another digest do not '
    'deliver.';

-- tube_private_require_main: TU112 where a tube is the companion of another one; errors of tube_private_require.
CREATE OR REPLACE FUNCTION :"schema".tube_private_require_main(tube text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(tube);
BEGIN
    IF reg.companion_of IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU112',
            MESSAGE = format('tube %L is a companion of tube %L: it is not a document, and has no companions', tube, reg.companion_of),
            HINT = format('Name the tube of the document: %L.', reg.companion_of);
    END IF;
END
$$;

-- Tables are attached to it as to any tube, each in a separate shard. It is dropped with its tube.
-- Arguments: tube; companion: a name as tube_ensure_exists takes it; key_type: bigint, uuid or text.
-- Result: nothing. An existing one stays as it is.
-- Errors: TU101 name; TU102 unknown tube; TU111 a name is that of an outbox; TU112 the tube is a companion itself, or the
--   other one is there and is none of this tube's; 22004 key_type is NULL; 22023 key_type, also where the companion has
--   another one; 55P03.
-- Locks: the registry row of the tube FOR KEY SHARE, until the transaction ends. A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_companion_ensure(tube text, companion text, key_type regtype) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    there tube_registry;
BEGIN
    IF key_type IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed', MESSAGE = 'the type of a companion''s keys is NULL',
            HINT = 'Give bigint, uuid or text.';
    END IF;
    -- Or it could be dropped until the companion is there.
    PERFORM FROM tube_registry AS r WHERE r.tube = tube_companion_ensure.tube FOR KEY SHARE;
    PERFORM tube_private_require_main(tube);
    SELECT r.* INTO there FROM tube_registry AS r WHERE r.tube = companion;
    IF NOT FOUND THEN
        PERFORM tube_private_check_tube(companion, 1, NULL, key_type);
        IF tube_private_add_tube(companion, 1, NULL, key_type, tube) THEN
            RETURN;
        END IF;
    END IF;
    there := tube_private_require(companion);
    IF there.companion_of IS DISTINCT FROM tube THEN
        RAISE EXCEPTION USING ERRCODE = 'TU112',
            MESSAGE = format('tube %L exists, and is not a companion of tube %L%s', companion, tube,
                coalesce(format(', but of tube %L', there.companion_of), '')),
            HINT = 'Choose another name, or drop that tube if it is not needed: tube_drop.';
    END IF;
    PERFORM tube_private_check_tube(companion, there.partitions, there.key_type, key_type);
END
$$;
COMMENT ON FUNCTION :"schema".tube_companion_ensure IS
    'Creates a companion of a tube, which holds touches of relations of its documents, unless it exists.';

-- Errors: TU102 unknown tube; TU111 it is an outbox.
CREATE OR REPLACE FUNCTION :"schema".tube_companions(tube text) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    PERFORM tube_private_require(tube);
    RETURN QUERY SELECT r.tube FROM tube_registry AS r WHERE r.companion_of = tube_companions.tube ORDER BY r.tube;
END
$$;
COMMENT ON FUNCTION :"schema".tube_companions IS 'Lists the companions of a tube.';

-- Arguments: tube; most: of each companion, at most so many pods are counted.
-- Result: a row per companion in which something waits or is parked: the companion; pods: that wait; links: in them; since: the
--   least time of a pod among them; parked: links that are parked, 1000 at most.
-- Errors: TU102 unknown tube; TU111 it is an outbox.
CREATE OR REPLACE FUNCTION :"schema".tube_relations_waiting(tube text, most integer = 1000) RETURNS TABLE (
    companion text, pods bigint, links bigint, since timestamptz, parked bigint
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp
SET enable_seqscan = off -- a queue's statistics are never right
SET enable_bitmapscan = off SET enable_indexscan = on SET jit = off AS $$
DECLARE
    there text;
BEGIN
    FOR companion IN SELECT c FROM tube_companions(tube) AS c LOOP
        SELECT string_agg(format('(SELECT q.ids, q.ts FROM %s AS q WHERE %s'
            ' AND (CASE WHEN q.op = ''B'' THEN 1 ELSE 0 END) = %s ORDER BY q.seq LIMIT $1)',
            tube_private_qualify(companion), s.slice, c.class), ' UNION ALL ')
        INTO there
        FROM tube_registry AS r, generate_series(0, r.partitions - 1) AS p,
            unnest((tube_private_slices(r.tube, r.partitions, p)).slices) AS s (slice), generate_series(0, 1) AS c (class)
        WHERE r.tube = companion;
        EXECUTE format('SELECT count(*), sum(cardinality(u.ids)), min(u.ts) FROM (SELECT * FROM (%s) AS w LIMIT $1) AS u'
            ' WHERE u.ids <> ''{}''', there) INTO pods, links, since USING most;
        parked := coalesce((SELECT p.parked FROM tube_delivered_parked(companion) AS p), 0);
        IF pods > 0 OR parked > 0 THEN
            links := coalesce(links, 0);
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION :"schema".tube_relations_waiting IS
    'Returns the backlog in a tube''s companions, counting at most so many pods in each, and their parked keys.';

-- Result: a row per attached table, by tube and order of attachment; a tube without tables has one row with a NULL tbl.
--   declared: the digest of the document; key_type, partitions: of the tube; the rest as the table is attached, see tube_list.
CREATE OR REPLACE FUNCTION :"schema".tube_documents() RETURNS TABLE (
    tube text, companion_of text, declared text, key_type regtype, partitions integer,
    tbl regclass, id_col name, shard integer, shards integer, columns name[], key_cols name[], shard_by name
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT r.tube, r.companion_of, r.declared, r.key_type, r.partitions, a.tbl, a.keys[1], a.shard, a.shards, a.columns,
        CASE WHEN cardinality(a.keys) > 1 THEN a.keys END, a.keys[a.shard_place + 1]
    FROM tube_registry AS r
    LEFT JOIN (tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl) ON a.tube = r.tube
    WHERE r.kind = 'tube' ORDER BY r.tube, a.position
$$;
COMMENT ON FUNCTION :"schema".tube_documents() IS
    'Lists tubes with their declared documents, attached tables, and the tubes whose companions they are.';

-- Arguments: tube; op: U, or B for touches that may come after all others; ids: bigint[] or smaller integers, uuid[] or
--   text[], as the tube's are. A NULL among them is left out; an id that stands twice is touched twice.
-- Result: how many ids were put; 0 for no ids and for NULL.
-- Errors: TU102 unknown tube; TU111 it is an outbox; TU108 no table is attached, so there are no shards; 22004, 22023 op;
--   42804 ids of another type; 22P02, 42846 they can't be cast to that of the tube.
-- Locks: as an INSERT into the tube. A lost answer: call again; touches that come twice do no harm.
CREATE OR REPLACE FUNCTION :"schema".tube_document_touch(tube text, op text, ids anyarray) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET jit = off AS $$
DECLARE
    root tube_attachment;
    size integer;
BEGIN
    PERFORM tube_private_require(tube), tube_private_check_ids(ids);
    IF op IS NULL OR op NOT IN ('U', 'B') THEN
        RAISE EXCEPTION USING ERRCODE = CASE WHEN op IS NULL THEN 'null_value_not_allowed' ELSE 'invalid_parameter_value' END,
            MESSAGE = format('documents can''t be touched with op %s', quote_nullable(op)), HINT = 'Give U or B.';
    ELSIF coalesce(cardinality(ids), 0) = 0 THEN
        RETURN 0;
    END IF;
    SELECT a.* INTO root FROM tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl
    WHERE a.tube = tube_document_touch.tube ORDER BY a.shard, a.position LIMIT 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108',
            MESSAGE = format('no table is attached to tube %L, so its documents have no shards', tube),
            HINT = 'Attach the root table of the documents.';
    END IF;
    ids := array_remove(ids, NULL);
    -- Some 5000 ids of a shard at a time: of texts, a slice is found by reading all that comes before it.
    size := greatest(1, least(5000 * root.shards::bigint, cardinality(ids)));
    FOR place IN 1 .. cardinality(ids) BY size LOOP
        PERFORM tube_private_put_ids(tube, root.shard, op, ids[place : place + size - 1], 250);
    END LOOP;
    RETURN cardinality(ids);
END
$$;
COMMENT ON FUNCTION :"schema".tube_document_touch IS
    'Touches documents by their keys, in the shards of the root table. op is U or B. Returns the number of ids '
    'queued.';

-- tube_private_is_swept: whether a backfill of an attached table names each id once, and ends with a sweep: it is a root table, and
-- its ids are the documents' ids.
CREATE OR REPLACE FUNCTION :"schema".tube_private_is_swept(att :"schema".tube_attachment) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT r.companion_of IS NULL AND tube_private_is_root(att) FROM tube_registry AS r WHERE r.tube = att.tube
$$;

-- tube_private_resync_documents: asks for a backfill of the root tables of a tube, as its companion missed what a table's
-- writers did: it is unknown which documents these rows were in.
-- A waiting one will do: see tube_private_resync.
-- Arguments: tube: the tube with the companion; table_name: the companion's, for a snapshot that does not show yet what
--   is attached to the tube: then it is that of the first shard whose root the worker looks up.
CREATE OR REPLACE FUNCTION :"schema".tube_private_resync_documents(tube text, table_name text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    root record;
BEGIN
    FOR root IN
        SELECT DISTINCT ON (a.shard) a.shard, tube_private_table_name(a.tbl) AS name, a.keys[1] AS key
        FROM tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl
        WHERE a.tube = tube_private_resync_documents.tube ORDER BY a.shard, a.position
    LOOP
        PERFORM tube_private_ask_once(tube, root.shard, root.name, root.key);
    END LOOP;
    IF NOT FOUND AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        PERFORM tube_private_ask_once(tube, 0, table_name, NULL);
    END IF;
END
$$;

-- tube_private_rescue_links: a relation of a declared document is detached. Where links wait or are parked in its shards, asks for
-- a backfill of the documents: workers pass these links over from now on, and the documents may still show the rows by another
-- relation, or by another column.
-- A snapshot of before may not show all that wait. While the tube of the document is dropped, nothing is asked for.
CREATE OR REPLACE FUNCTION :"schema".tube_private_rescue_links(gone :"schema".tube_attachment) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    main CONSTANT text := (
        SELECT m.tube FROM tube_registry AS r JOIN tube_registry AS m ON m.tube = r.companion_of
        WHERE r.tube = gone.tube AND m.declared IS NOT NULL);
    waits boolean;
BEGIN
    IF main IS NULL THEN
        RETURN;
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM %s AS q WHERE q.shard BETWEEN $1 AND $2 AND q.ids <> ''{}'')'
        ' OR EXISTS (SELECT FROM tube_parked AS k WHERE k.tube = $3 AND k.shard BETWEEN $1 AND $2)', tube_private_qualify(gone.tube))
    INTO waits USING gone.shard, gone.shard + (gone.shards - 1), gone.tube;
    IF waits OR current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        PERFORM tube_private_resync_documents(main, coalesce(tube_private_table_name(gone.tbl), gone.tbl::oid::text));
        RAISE WARNING 'a backfill of all documents of tube % is asked for: % is detached from tube %, where changes of it wait',
            quote_literal(main), gone.tbl, quote_literal(gone.tube);
    END IF;
END
$$;

-- The declarations of tubes and outboxes in a file, beside their documents: `pytube apply` records its steps here, so
-- that it can distinguish a changed file from a changed database, and removes only objects that it has made itself.

-- Arguments: tube: a tube or an outbox; digest: of the section; NULL: none declares it, and all that is here counts as made by
--   hand; made: whether this call is of the one who has just made it.
-- Errors: TU102 there is none of that name; TU112 it is the companion of a tube; 55P03.
-- Locks: the registry row FOR NO KEY UPDATE, until the transaction ends. A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_applied_set(tube text, digest text, made boolean = false) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    IF (tube_private_require(tube, 'any')).companion_of IS NOT NULL THEN
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
    'Lists declarations that were applied: a row per attached table, and one with a NULL tbl for an outbox or a tube without tables.';
