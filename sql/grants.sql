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

-- Owners of attached tables: what their functions call. It computes with built-in types, or reads names of columns.
GRANT EXECUTE ON FUNCTION
    :"schema".tube_private_key_bigint(bigint), :"schema".tube_private_key_bigint(integer),
    :"schema".tube_private_key_bigint(smallint), :"schema".tube_private_key_bigint(anyelement),
    :"schema".tube_private_key_uuid(uuid), :"schema".tube_private_key_uuid(anyelement),
    :"schema".tube_private_key_text(text), :"schema".tube_private_key_text(varchar),
    :"schema".tube_private_key_text(anyelement),
    :"schema".tube_private_key_boolean(boolean), :"schema".tube_private_key_boolean(anyelement),
    :"schema".tube_private_key_date(date), :"schema".tube_private_key_date(anyelement),
    :"schema".tube_key_part, :"schema".tube_key_types, :"schema".tube_private_fits,
    :"schema".tube_private_attached, :"schema".tube_private_has_left,
    :"schema".tube_private_may_read, :"schema".tube_private_is_replaced,
    :"schema".tube_shard_of(bigint, integer, integer),
    :"schema".tube_shard_of(uuid, integer, integer), :"schema".tube_shard_of(text, integer, integer)
TO PUBLIC;

-- Whoever runs DDL. It does what would be done later, and only that; it fails where no event trigger is running.
GRANT EXECUTE ON FUNCTION :"schema".tube_private_see_ddl TO PUBLIC;

-- tube_admin: makes and drops tubes, attaches tables that its members own, begins and ends backfills; and all that the
-- others may. Functions that it calls with its own rights call the private functions below, which trust no argument.
GRANT SELECT ON ALL TABLES IN SCHEMA :"schema" TO :"role_admin";
GRANT USAGE ON SEQUENCE :"schema".tube_seq TO :"role_admin";
DO $$
DECLARE
    ours CONSTANT name := current_setting('pytube.install_schema');
    admin CONSTANT name := current_setting('pytube.install_roles') || '_admin';
    may regprocedure;
BEGIN
    FOR may IN
        SELECT p.oid FROM pg_proc AS p
        WHERE p.pronamespace = to_regnamespace(quote_ident(ours)) AND p.proname SIMILAR TO '(tube|outbox)\_%'
            AND p.proname NOT LIKE 'tube\_private\_%' AND p.prosrc NOT LIKE E'\n-- Made by tube\\_private\\_%'
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', may, admin);
    END LOOP;
END
$$;
GRANT EXECUTE ON FUNCTION
    :"schema".tube_private_attach, :"schema".tube_private_begin_attach, :"schema".tube_private_ensure_tube, :"schema".tube_private_key_label,
    :"schema".tube_private_key_names, :"schema".tube_private_names_anew,
    :"schema".tube_private_is_root, :"schema".tube_private_set_predicate,
    :"schema".tube_private_refuse_table, :"schema".tube_private_require,
    :"schema".tube_private_adopt, :"schema".tube_private_adoption_rights, :"schema".tube_private_drop_outbox,
    :"schema".tube_private_drop_parked, :"schema".tube_private_open_schema, :"schema".tube_private_outbox_wake
TO :"role_admin";

-- Backfills read tables with the rights of the caller, who passes the rows to these: a worker is trusted with that, as
-- it is at the sink.
GRANT EXECUTE ON FUNCTION
    :"schema".tube_private_begin_collect, :"schema".tube_private_begin_range, :"schema".tube_private_begin_split,
    :"schema".tube_private_begin_step3, :"schema".tube_private_end_collect, :"schema".tube_private_end_range,
    :"schema".tube_private_end_split, :"schema".tube_private_end_step3, :"schema".tube_private_put_range_pod,
    :"schema".tube_private_store_pod,
    :"schema".tube_private_refuse_renamed
TO :"role_admin", :"role_worker";

-- tube_sync is for workers, too. These see that an owner of the table has agreed.
GRANT EXECUTE ON FUNCTION
    :"schema".tube_private_begin_sync, :"schema".tube_private_briefly, :"schema".tube_private_bring_in_line,
    :"schema".tube_private_capture_schema, :"schema".tube_private_open_capture, :"schema".tube_private_owner_ddl, :"schema".tube_private_patiently,
    :"schema".tube_private_predicate_columns, :"schema".tube_private_refuse_predicate,
    :"schema".tube_private_refuse_touch, :"schema".tube_private_run_owner_ddl, :"schema".tube_private_stale_attachments,
    :"schema".tube_private_store, :"schema".tube_private_try_predicate
TO :"role_admin", :"role_worker";

-- tube_worker: leads partitions, takes pods, and reads what names the rows. So does tube_monitor, to compare them with the
-- sink; the rows themselves are for whoever their owner lets read them.
GRANT SELECT ON :"schema".tube_registry, :"schema".tube_attachment TO :"role_worker", :"role_monitor";
GRANT EXECUTE ON FUNCTION
    :"schema".tube_backfill_chunk, :"schema".tube_backfill_collect, :"schema".tube_backfill_holders,
    :"schema".tube_backfill_join, :"schema".tube_backfill_lock, :"schema".tube_backfill_note,
    :"schema".tube_backfill_pressure, :"schema".tube_backfill_range, :"schema".tube_backfill_split,
    :"schema".tube_backfill_step1, :"schema".tube_backfill_step2, :"schema".tube_backfill_step3,
    :"schema".tube_backfill_take, :"schema".tube_backfill_tidy, :"schema".tube_backfill_unlock,
    :"schema".tube_channel, :"schema".tube_failing_note, :"schema".tube_index_fit, :"schema".tube_kafka_report, :"schema".tube_leader_acquire, :"schema".tube_leader_epoch,
    :"schema".tube_leader_release, :"schema".tube_leader_renew, :"schema".tube_leader_wait,
    :"schema".tube_leaders_renew, :"schema".tube_lease_leave, :"schema".tube_lease_tick, :"schema".tube_lease_ticks,
    :"schema".tube_document_touch, :"schema".tube_pause_reason, :"schema".tube_pods_delete, :"schema".tube_pods_fail, :"schema".tube_pods_mark, :"schema".tube_pods_park, :"schema".tube_pods_purge,
    :"schema".tube_pods_reset, :"schema".tube_pods_sql, :"schema".tube_pods_stop, :"schema".tube_pods_unpark, :"schema".tube_settle_done, :"schema".tube_settle_holders,
    :"schema".tube_settle_left, :"schema".tube_settle_seq, :"schema".tube_settle_writers, :"schema".tube_sink_accept, :"schema".tube_sink_note,
    :"schema".tube_sleep, :"schema".tube_step_end, :"schema".tube_step_take, :"schema".tube_stream_purge,
    :"schema".tube_sampled, :"schema".tube_source_check,
    :"schema".tube_sweep_end, :"schema".tube_sweep_ready, :"schema".tube_sweep_touch, :"schema".tube_sync,
    :"schema".tube_verified, :"schema".tube_wake, :"schema".tube_wakes
TO :"role_worker";

-- Records of outboxes, which a worker changes with its own rights. These look at the term, and give it the statements.
GRANT SELECT ON :"schema".tube_outbox_parked TO :"role_worker", :"role_monitor";
GRANT SELECT ON :"schema".tube_outbox_retry TO :"role_worker";
GRANT EXECUTE ON FUNCTION
    :"schema".outbox_identity, :"schema".outbox_topics_rest, :"schema".outbox_records_park_topic,
    :"schema".outbox_records_mark_around,
    :"schema".outbox_records_mark, :"schema".outbox_records_park, :"schema".outbox_records_purge,
    :"schema".outbox_records_purge_sent,
    :"schema".outbox_records_reset
TO :"role_worker";
GRANT EXECUTE ON FUNCTION
    :"schema".tube_private_begin_around,
    :"schema".tube_private_begin_change, :"schema".tube_private_begin_mark, :"schema".tube_private_lock_parked,
    :"schema".tube_private_put_parked
TO :"role_admin", :"role_worker";
GRANT EXECUTE ON FUNCTION :"schema".outbox_list, :"schema".outbox_parked, :"schema".outbox_resting, :"schema".outbox_stats
TO :"role_worker", :"role_monitor";
GRANT EXECUTE ON FUNCTION :"schema".tube_private_outbox_figures, :"schema".tube_private_outbox_parts,
    :"schema".tube_private_page_runs
TO :"role_admin", :"role_worker", :"role_monitor";

-- tube_monitor: looks at all of it, but for the payloads of pods. The worker may, too.
GRANT SELECT ON :"schema".tube_attempt, :"schema".tube_parked, :"schema".tube_backfill, :"schema".tube_sample TO :"role_worker", :"role_monitor";
GRANT EXECUTE ON FUNCTION
    :"schema".tube_applied, :"schema".tube_audit_list, :"schema".tube_backfill_list, :"schema".tube_backfill_waiting, :"schema".tube_documents, :"schema".tube_failing_list,
    :"schema".tube_hindered_list, :"schema".tube_id_column, :"schema".tube_ids_waiting, :"schema".tube_job_list, :"schema".tube_instances, :"schema".tube_kafka_back, :"schema".tube_kafka_unreachable, :"schema".tube_keys_waiting, :"schema".tube_leaders, :"schema".tube_list,
    :"schema".tube_load, :"schema".tube_park_count,
    :"schema".tube_park_list, :"schema".tube_pause_list, :"schema".tube_pods_count, :"schema".tube_pods_list,
    :"schema".tube_pods_of, :"schema".tube_relations_waiting, :"schema".tube_sink_list, :"schema".tube_stats, :"schema".tube_terms, :"schema".tube_unverified_list
TO :"role_worker", :"role_monitor";

-- Who writes may wait until it is delivered.
GRANT EXECUTE ON FUNCTION
    :"schema".tube_companions, :"schema".tube_delivered_channel, :"schema".tube_delivered_parked, :"schema".tube_delivered_watch, :"schema".tube_settle_holders,
    :"schema".tube_settle_left, :"schema".tube_settle_seq, :"schema".tube_undelivered
TO :"role_worker", :"role_writer", :"role_monitor";

-- tube_writer: touches, also by the writer's queries and jobs, which COPY into the
-- tubes. The right to insert stands with each tube; its seq comes from here.
GRANT EXECUTE ON FUNCTION
    :"schema".tube_job_begin, :"schema".tube_job_done, :"schema".tube_job_finish, :"schema".tube_job_forget,
    :"schema".tube_job_list, :"schema".tube_list
TO :"role_writer";
GRANT USAGE ON SEQUENCE :"schema".tube_seq TO :"role_writer";

-- Writers of an outbox: with their own rights, which stand with each table.
GRANT EXECUTE ON FUNCTION
    :"schema".outbox_stash(text, text, text, text, jsonb, text, boolean),
    :"schema".outbox_stash(text, text, text, bytea, jsonb, text, boolean),
    :"schema".outbox_stash_many, :"schema".outbox_stash_many_bytea, :"schema".outbox_list
TO :"role_writer";
GRANT EXECUTE ON FUNCTION
    :"schema".tube_private_check_messages, :"schema".tube_private_outbox_target, :"schema".tube_private_stash,
    :"schema".tube_private_stash_one
TO :"role_admin", :"role_writer";

-- Step 3 of a backfill ends in the same as a query of a writer's.
GRANT EXECUTE ON FUNCTION
    :"schema".tube_as_caller, :"schema".tube_keys_as_caller, :"schema".tube_keys_put, :"schema".tube_pods_insert,
    :"schema".tube_pods_put
TO :"role_worker", :"role_writer";

-- Every role that may touch records operators' actions.
GRANT EXECUTE ON FUNCTION :"schema".tube_audit_add TO :"role_worker", :"role_writer";

-- A role that continues a job, or the ranges of a backfill, has to know the finished units.
GRANT EXECUTE ON FUNCTION :"schema".tube_job_units TO :"role_worker", :"role_writer";

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
        EXECUTE format('GRANT INSERT (op, shard, ids, payload) ON %I.%I TO %I, %I', ours, tube, roles || '_writer', roles || '_admin');
    END LOOP;
END
$$;
