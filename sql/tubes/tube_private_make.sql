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
-- Result: nothing.
-- Locks: those of the new table.
CREATE OR REPLACE FUNCTION :"schema".tube_private_make(tube text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
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
    EXECUTE format('GRANT SELECT ON %s TO %I', queue, tube_private_role('worker'));
    -- For COPY, within a job. What names and orders a pod stays its default.
    EXECUTE format('GRANT INSERT (op, shard, ids, payload) ON %s TO %I', queue, tube_private_role('writer'));
    EXECUTE tube_private_index_ddl(tube, reg.partitions, false);
    -- Few pods are control pods; they have to be found among many.
    EXECUTE format('CREATE INDEX %I ON %s (shard) WHERE payload IS NOT NULL AND ids = ''{}''',
        tube_private_name(tube, format('_%s_control_idx', left(md5('queue ' || tube), 8))), queue);
    PERFORM tube_private_free_partitions(tube);
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_make(text) FROM PUBLIC;

-- tube_private_free_partitions: a leader row without a leader for each partition of a tube.
--
-- Arguments: tube: one that has no leader rows.
-- Result: nothing.
-- Locks: the new rows.
CREATE OR REPLACE FUNCTION :"schema".tube_private_free_partitions(tube text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    INSERT INTO tube_leader (tube, partition, partitions, epoch)
    SELECT r.tube, p, r.partitions, r.last_epoch
    FROM tube_registry AS r, generate_series(0, r.partitions - 1) AS p
    WHERE r.tube = tube_private_free_partitions.tube;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_free_partitions(text) FROM PUBLIC;
