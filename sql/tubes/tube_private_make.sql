-- tube_private_make: the table of a new tube, its indexes and leader rows.
--
-- An update of leader_id stays within its page (fillfactor 45, no index on it: a marked row is longer
-- by its uuid, so half a page is not enough). Long arrays are stored as they are: compressing them costs
-- five to ten times the insert.
--
-- The default of seq gives the transaction its id before it draws: CASE evaluates in this order, for
-- each row, however it comes. So whoever has drawn a seq is seen running until its pods can be seen:
-- the settled seq rests on it. (A trigger would do as well, at ten times the cost.)
--
-- Arguments: tube: registered before, within this transaction.
-- Locks: those of the new table.
CREATE OR REPLACE FUNCTION :"schema".tube_private_make(tube text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    queue text := format('%I.%I', tube_private_schema(), tube);
    reg tube_registry := tube_private_require(tube);
BEGIN
    EXECUTE format($ddl$
        CREATE TABLE %s (
            seq bigint NOT NULL DEFAULT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('tube_seq') END,
            op char NOT NULL,
            shard tube_shard NOT NULL,
            ids %s[] NOT NULL,
            payload jsonb,
            ts timestamptz NOT NULL DEFAULT clock_timestamp(),
            leader_id uuid
        ) WITH (
            fillfactor = 45,
            autovacuum_vacuum_scale_factor = 0.05,
            autovacuum_vacuum_threshold = 5000,
            autovacuum_vacuum_insert_scale_factor = 0.1,
            autovacuum_vacuum_cost_delay = 0,
            autovacuum_analyze_scale_factor = 0.1,
            autovacuum_analyze_threshold = 5000
        )$ddl$, queue, reg.key_type);
    EXECUTE format('ALTER TABLE %s ALTER ids SET STORAGE EXTERNAL', queue);
    EXECUTE format('REVOKE ALL ON %s FROM PUBLIC', queue);
    EXECUTE format('GRANT SELECT ON %s TO %I', queue, tube_private_role('admin'));
    EXECUTE format('GRANT SELECT ON %s TO %I', queue, tube_private_role('worker'));
    -- For COPY, within a job. What names and orders a pod stays its default.
    EXECUTE format('GRANT INSERT (op, shard, ids, payload) ON %s TO %I, %I', queue, tube_private_role('writer'),
        tube_private_role('admin'));
    EXECUTE tube_private_index_ddl(tube, reg.partitions, false);
    -- Few pods are control pods; they have to be found among many.
    EXECUTE format('CREATE INDEX %I ON %s (shard) WHERE payload IS NOT NULL AND ids = ''{}''',
        tube_private_name(tube, format('_%s_control_idx', left(md5('queue ' || tube), 8))), queue);
    PERFORM tube_private_free_partitions(tube), tube_private_make_flag(tube);
END
$$;

-- tube_private_free_partitions: a leader row without a leader for each partition of a tube.
--
-- Arguments: tube: one that has no leader rows.
-- Locks: the new rows.
CREATE OR REPLACE FUNCTION :"schema".tube_private_free_partitions(tube text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tube_leader (tube, partition, partitions, epoch)
    SELECT r.tube, p, r.partitions, r.last_epoch
    FROM tube_registry AS r, generate_series(0, r.partitions - 1) AS p
    WHERE r.tube = tube_private_free_partitions.tube;
END
$$;

-- tube_private_make_flag: the sequence that tells writers whether a worker of the tube sleeps, if it is missing.
--
-- 1: nobody sleeps; 2: somebody does. It is no part of any transaction: a writer with an old snapshot sees it, too.
CREATE OR REPLACE FUNCTION :"schema".tube_private_make_flag(tube text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    flag CONSTANT text := format('%I.%I', tube_private_schema(),
        'tube_sleeps_' || (SELECT r.number FROM tube_registry AS r WHERE r.tube = tube_private_make_flag.tube));
BEGIN
    IF to_regclass(flag) IS NULL THEN
        EXECUTE format('CREATE SEQUENCE %s', flag);
        PERFORM setval(flag::regclass, 1 + (
            SELECT count(*) FROM (SELECT FROM tube_sleeper AS s WHERE s.tube = tube_private_make_flag.tube LIMIT 1) AS s));
    END IF;
END
$$;

-- tube_private_provide_tube: makes or mends what is generated for a tube itself: its touch function and its flag.
CREATE OR REPLACE FUNCTION :"schema".tube_private_provide_tube(tube text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    key_type CONSTANT regtype := tube_private_key_type(tube);
    name CONSTANT text := format('%I.%I', tube_private_schema(), tube_private_name(tube, '_touch'));
BEGIN
    PERFORM tube_private_make_flag(tube);
    PERFORM tube_private_make_function(name,
        format('shard integer, ids %s[], op char, payload jsonb DEFAULT NULL, chunk_size integer DEFAULT 250', key_type),
        'void', format('SET search_path = pg_catalog, %I, pg_temp', tube_private_schema()), tube_private_tube_touch_body(tube),
        ARRAY[quote_ident(tube_private_role('writer'))::regrole, quote_ident(tube_private_role('admin'))::regrole]);
END
$$;

-- tube_private_sync_all: brings all that was generated in line, with the rights of whoever installs.
--
-- Result: the number of tubes.
-- Errors: 42501 an attached table belongs to somebody whose rights the caller has not.
-- Locks: every registry row, until the transaction ends; else as tube_private_bring_in_line.
CREATE OR REPLACE FUNCTION :"schema".tube_private_sync_all() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    tubes integer := 0;
    reg tube_registry;
    att tube_attachment;
BEGIN
    FOR reg IN SELECT r.* FROM tube_registry AS r ORDER BY r.tube FOR NO KEY UPDATE LOOP
        PERFORM tube_private_provide_tube(reg.tube);
        FOR att IN SELECT a.* FROM tube_attachment AS a WHERE a.tube = reg.tube ORDER BY a.position LOOP
            att := tube_private_begin_sync(att.tube, att.tbl);
            IF att.tube IS NOT NULL THEN
                PERFORM tube_private_bring_in_line(att, 'install');
            END IF;
        END LOOP;
        tubes := tubes + 1;
    END LOOP;
    RETURN tubes;
END
$$;
