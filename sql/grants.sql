-- Rights. tube_owner owns all, and has no line here. PUBLIC may call only the functions that functions of owners of
-- attached tables call. Unlisted objects are for no role.
--
-- A schema made elsewhere, or default privileges, may have granted more; so new functions can't be called
-- until here, which is in the same transaction.

REVOKE ALL ON SCHEMA :"schema" FROM PUBLIC, :"role_admin", :"role_worker", :"role_writer", :"role_monitor";
REVOKE ALL ON SCHEMA :"capture" FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA :"schema" FROM PUBLIC, :"role_admin", :"role_worker", :"role_writer", :"role_monitor";
REVOKE ALL ON ALL SEQUENCES IN SCHEMA :"schema" FROM PUBLIC, :"role_admin", :"role_worker", :"role_writer", :"role_monitor";
REVOKE ALL ON ALL ROUTINES IN SCHEMA :"schema" FROM PUBLIC, :"role_admin", :"role_worker", :"role_writer", :"role_monitor";
-- A role that may create in the schema could put functions between pytube's; only members may call private ones.
DO $$
DECLARE
    ours CONSTANT oid := to_regnamespace(quote_ident(current_setting('pytube.install_schema')));
    too_much text;
BEGIN
    FOR too_much IN
        SELECT format('REVOKE CREATE ON SCHEMA %I FROM %s CASCADE', n.nspname, a.grantee::regrole)
        FROM pg_namespace AS n CROSS JOIN LATERAL aclexplode(n.nspacl) AS a
        WHERE n.oid = ours AND a.privilege_type = 'CREATE' AND a.grantee NOT IN (0, n.nspowner)
        UNION ALL
        SELECT format('REVOKE ALL ON FUNCTION %s FROM %s CASCADE', p.oid::regprocedure, a.grantee::regrole)
        FROM pg_proc AS p CROSS JOIN LATERAL aclexplode(p.proacl) AS a
        WHERE p.pronamespace = ours AND p.proname LIKE 'tube\_private\_%' AND a.grantee NOT IN (0, p.proowner)
    LOOP
        EXECUTE too_much;
    END LOOP;
END
$$;

-- Their content is only for roles with grants. An owner who got a table from another one continues to write without any
-- right of pytube, so that all have this one.
GRANT USAGE ON SCHEMA :"schema", :"capture" TO PUBLIC;
-- Each command of pytube asks which version is installed.
GRANT SELECT ON :"schema".tube_version TO :"role_admin", :"role_worker", :"role_writer", :"role_monitor";

-- tube_admin looks at everything. tube_worker leads partitions, takes pods, and reads what names the rows; so does tube_monitor,
-- to compare them with the sink; the rows themselves are for whoever their owner lets read them. A worker changes the records
-- of outboxes with its own rights. Writers COPY into the tubes, by jobs: the right to insert stands with each tube, and its seq
-- comes from here.
GRANT SELECT ON ALL TABLES IN SCHEMA :"schema" TO :"role_admin";
GRANT SELECT ON :"schema".tube_registry, :"schema".tube_attachment, :"schema".tube_attempt, :"schema".tube_backfill,
    :"schema".tube_outbox_parked, :"schema".tube_parked, :"schema".tube_sample TO :"role_worker", :"role_monitor";
GRANT SELECT ON :"schema".tube_outbox_retry TO :"role_worker";
GRANT USAGE ON SEQUENCE :"schema".tube_seq TO :"role_admin", :"role_worker", :"role_writer";

-- Functions, with all their overloads. tube_admin may call every public one.
DO $$
DECLARE
    ours CONSTANT oid := to_regnamespace(quote_ident(current_setting('pytube.install_schema')));
    prefix CONSTANT text := current_setting('pytube.install_roles') || '_';
    may record;
BEGIN
    FOR may IN
        SELECT g.callers COLLATE "C", f.name, string_agg(p.oid::regprocedure::text, ', ') AS functions
        FROM (VALUES
            -- What functions of owners of attached tables call. It computes with built-in types, or reads names of columns.
            ('PUBLIC', 'tube_key_part tube_key_types tube_private_elsewhere tube_private_fits tube_private_is_replaced
                tube_private_may_read tube_shard_of'),
            -- Whoever runs DDL. It does what would be done later, and only that; it fails where no event trigger is running.
            ('PUBLIC', 'tube_private_see_ddl'),
            -- What functions call that run with their caller's rights. These trust no argument.
            ('admin', 'tube_private_adopt tube_private_adoption_rights tube_private_attach tube_private_begin_attach
                tube_private_drop_outbox tube_private_drop_parked tube_private_ensure_tube tube_private_is_root
                tube_private_key_label tube_private_open_schema
                tube_private_outbox_wake tube_private_refuse_table tube_private_require tube_private_set_predicate'),
            -- Backfills read tables and write pods with the rights of the caller.
            ('admin worker', 'tube_private_begin_collect tube_private_begin_range tube_private_begin_split
                tube_private_begin_step3 tube_private_end_collect tube_private_end_range tube_private_end_split
                tube_private_end_step3 tube_private_refuse_renamed'),
            -- tube_sync is for workers, too. These see that an owner of the table has agreed.
            ('admin worker', 'tube_private_begin_sync tube_private_briefly tube_private_bring_in_line
                tube_private_capture_schema tube_private_close_capture tube_private_open_capture tube_private_owner_ddl tube_private_patiently
                tube_private_predicate_columns tube_private_refuse_predicate tube_private_refuse_touch
                tube_private_run_owner_ddl tube_private_stale_attachments tube_private_store tube_private_try_predicate'),
            -- Records of outboxes: these look at the term, and give the worker the statements.
            ('admin worker', 'tube_private_begin_around tube_private_begin_change tube_private_begin_mark
                tube_private_lock_parked tube_private_put_parked'),
            ('admin worker monitor', 'tube_private_outbox_figures tube_private_outbox_parts tube_private_page_runs'),
            ('admin writer', 'tube_private_check_messages tube_private_outbox_target tube_private_stash tube_private_stash_one'),
            -- What workers do.
            ('worker', 'outbox_identity outbox_records_mark outbox_records_mark_around outbox_records_park
                outbox_records_park_topic outbox_records_purge outbox_records_purge_sent outbox_records_reset
                outbox_topics_rest tube_backfill_chunk tube_backfill_collect tube_backfill_holders tube_backfill_join
                tube_backfill_lock tube_backfill_note tube_backfill_pressure tube_backfill_range tube_backfill_split
                tube_backfill_step1 tube_backfill_step2 tube_backfill_step3 tube_backfill_take tube_backfill_tidy
                tube_backfill_unlock tube_channel tube_document_touch tube_failing_note tube_index_fit tube_kafka_report
                tube_leader_acquire tube_leader_epoch tube_leader_release tube_leader_renew tube_leader_wait
                tube_leaders_renew tube_lease_leave tube_lease_tick tube_lease_ticks tube_pause_reason tube_pods_delete
                tube_pods_fail tube_pods_mark tube_pods_park tube_pods_purge tube_pods_reset tube_pods_sql tube_pods_stop
                tube_pods_unpark tube_sampled tube_settle_done tube_settle_writers tube_sink_accept tube_sink_note
                tube_sleep tube_source_check tube_source_note tube_step_end tube_step_take tube_stream_purge tube_sweep_end
                tube_sweep_ready tube_sweep_touch tube_sync tube_verified tube_wake tube_wakes'),
            -- What looks at all of it, but for the payloads of pods.
            ('worker monitor', 'outbox_parked outbox_resting outbox_stats tube_applied tube_audit_list tube_backfill_list
                tube_backfill_waiting tube_documents tube_failing_list tube_hindered_list tube_id_column tube_ids_waiting
                tube_instances tube_kafka_back tube_kafka_unreachable tube_keys_waiting tube_leaders tube_load
                tube_park_count tube_park_list tube_pause_list tube_pods_count tube_pods_list tube_pods_of
                tube_relations_waiting tube_sink_list tube_stats tube_terms tube_unverified_list'),
            -- Who writes may wait until it is delivered.
            ('worker writer monitor', 'outbox_list tube_companions tube_delivered_channel tube_delivered_parked
                tube_delivered_watch tube_job_list tube_list tube_settle_holders tube_settle_left tube_settle_seq
                tube_undelivered'),
            -- Writers of an outbox write with their own rights, which stand with each table.
            ('writer', 'outbox_stash outbox_stash_many outbox_stash_many_bytea tube_job_begin tube_job_done tube_job_finish
                tube_job_forget'),
            -- Step 3 of a backfill ends in the same as a query of a writer's; every role that may touch records operators'
            -- actions; and a role that continues a job, or the ranges of a backfill, has to know the finished units.
            ('worker writer', 'tube_as_caller tube_audit_add tube_job_units tube_keys_as_caller tube_keys_put
                tube_pods_insert tube_pods_put')
        ) AS g (callers, names)
        CROSS JOIN LATERAL regexp_split_to_table(g.names, '[[:space:]]+') AS f (name)
        LEFT JOIN pg_proc AS p ON p.pronamespace = ours AND p.proname = f.name
            AND p.prosrc NOT LIKE E'\n-- Made by tube\\_private\\_%' -- such as the touch function of a tube called tube_document
        GROUP BY g.callers, f.name
        UNION ALL
        SELECT 'admin', p.proname, p.oid::regprocedure::text FROM pg_proc AS p
        WHERE p.pronamespace = ours AND p.proname SIMILAR TO '(tube|outbox)\_%'
            AND p.proname NOT LIKE 'tube\_private\_%' AND p.prosrc NOT LIKE E'\n-- Made by tube\\_private\\_%'
        ORDER BY 1
    LOOP
        IF may.functions IS NULL THEN
            RAISE EXCEPTION 'there is no function %', may.name;
        END IF;
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', may.functions, (
            SELECT string_agg(CASE c.caller WHEN 'PUBLIC' THEN c.caller ELSE quote_ident(prefix || c.caller) END, ', ')
            FROM regexp_split_to_table(may.callers, ' ') AS c (caller)));
    END LOOP;
END
$$;

-- Tubes: workers may read their pods, writers may add some, and touch. Objects generated for attached tables are granted
-- at the end, when they are brought up to date.
DO $$
DECLARE
    ours CONSTANT name := current_setting('pytube.install_schema');
    roles CONSTANT text := current_setting('pytube.install_roles');
    tube text;
BEGIN
    FOR tube IN EXECUTE format('SELECT r.tube FROM %I.tube_registry AS r WHERE r.kind = ''tube'' ORDER BY r.tube', ours) LOOP
        EXECUTE format('GRANT SELECT ON %I.%I TO %I', ours, tube, roles || '_worker');
        EXECUTE format('GRANT INSERT (op, shard, ids, payload) ON %I.%I TO %I, %I, %I', ours, tube, roles || '_writer',
            roles || '_worker', roles || '_admin');
    END LOOP;
END
$$;
