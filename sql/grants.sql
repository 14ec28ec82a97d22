-- Rights. Writers of attached tables need none: their triggers run with the rights of tube_admin, who
-- owns all and has no line here. What is not named is for tube_admin only; tube_private_… always is.
--
-- A schema made elsewhere, or default privileges, may have given somebody more.
REVOKE ALL ON SCHEMA :"schema" FROM PUBLIC, :"role_worker", :"role_writer", :"role_monitor";
REVOKE ALL ON ALL TABLES IN SCHEMA :"schema" FROM PUBLIC, :"role_worker", :"role_writer", :"role_monitor";
REVOKE ALL ON ALL SEQUENCES IN SCHEMA :"schema" FROM PUBLIC, :"role_worker", :"role_writer", :"role_monitor";
REVOKE ALL ON ALL ROUTINES IN SCHEMA :"schema" FROM PUBLIC, :"role_worker", :"role_writer", :"role_monitor";
-- Who may create in the schema could put functions between ours; who may call those that are private is one of us.
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

GRANT USAGE ON SCHEMA :"schema" TO :"role_worker", :"role_writer", :"role_monitor";
GRANT SELECT ON :"schema".tube_version TO :"role_worker", :"role_monitor";

-- tube_worker: leads partitions, takes pods, and reads what names the rows.
GRANT SELECT ON :"schema".tube_registry, :"schema".tube_attachment TO :"role_worker";
GRANT EXECUTE ON FUNCTION
    :"schema".tube_backfill_chunk,
    :"schema".tube_backfill_collect,
    :"schema".tube_backfill_holders,
    :"schema".tube_backfill_join,
    :"schema".tube_backfill_lock,
    :"schema".tube_backfill_note,
    :"schema".tube_backfill_pressure,
    :"schema".tube_backfill_range,
    :"schema".tube_backfill_split,
    :"schema".tube_backfill_take,
    :"schema".tube_backfill_tidy,
    :"schema".tube_backfill_unlock,
    :"schema".tube_channel,
    :"schema".tube_index_fit,
    :"schema".tube_leader_acquire,
    :"schema".tube_leader_epoch,
    :"schema".tube_leader_release,
    :"schema".tube_leader_renew,
    :"schema".tube_leader_wait,
    :"schema".tube_leaders_renew,
    :"schema".tube_lease_leave,
    :"schema".tube_lease_tick,
    :"schema".tube_pods_delete,
    :"schema".tube_pods_mark,
    :"schema".tube_pods_park,
    :"schema".tube_pods_purge,
    :"schema".tube_pods_reset,
    :"schema".tube_pods_sql,
    :"schema".tube_pods_unpark,
    :"schema".tube_settle_done,
    :"schema".tube_settle_holders,
    :"schema".tube_settle_left,
    :"schema".tube_settle_seq,
    :"schema".tube_sleep,
    :"schema".tube_stream_purge,
    :"schema".tube_sweep_end,
    :"schema".tube_sweep_ready,
    :"schema".tube_sweep_touch,
    :"schema".tube_sync,
    :"schema".tube_sync_served,
    :"schema".tube_wake,
    :"schema".tube_wakes
TO :"role_worker";

-- tube_monitor: looks at all of it, but for the payloads of pods. The worker may, too.
GRANT SELECT ON :"schema".tube_parked, :"schema".tube_backfill TO :"role_worker", :"role_monitor";
GRANT EXECUTE ON FUNCTION
    :"schema".tube_backfill_list,
    :"schema".tube_job_list,
    :"schema".tube_leaders,
    :"schema".tube_list,
    :"schema".tube_park_list,
    :"schema".tube_stats,
    :"schema".tube_terms
TO :"role_worker", :"role_monitor";

-- tube_writer: touches, also what a query of theirs gives, and by jobs of their own, which COPY into the
-- tubes. The right to insert stands with each tube; its seq comes from here.
GRANT EXECUTE ON FUNCTION
    :"schema".tube_as_caller,
    :"schema".tube_job_begin,
    :"schema".tube_job_done,
    :"schema".tube_job_finish,
    :"schema".tube_job_forget,
    :"schema".tube_job_list,
    :"schema".tube_keys_as_caller,
    :"schema".tube_keys_put,
    :"schema".tube_list,
    :"schema".tube_pods_insert,
    :"schema".tube_pods_put
TO :"role_writer";
GRANT USAGE ON SEQUENCE :"schema".tube_seq TO :"role_writer";

-- Who goes on with a job, or with the ranges of a backfill, has to know what is in.
GRANT EXECUTE ON FUNCTION :"schema".tube_job_units TO :"role_worker", :"role_writer";

-- Who touches by shard has to know it.
GRANT EXECUTE ON FUNCTION
    :"schema".tube_shard_of(bigint, integer, integer),
    :"schema".tube_shard_of(uuid, integer, integer),
    :"schema".tube_shard_of(text, integer, integer)
TO :"role_worker", :"role_writer", :"role_monitor";

-- Tubes: workers may read their pods, writers may add some, and touch. Functions beside attached tables are granted
-- when they are made; again here, because a restore may have left grants out.
DO $$
DECLARE
    ours CONSTANT name := current_setting('pytube.install_schema');
    roles CONSTANT text := current_setting('pytube.install_roles');
    tube text;
    touch regprocedure;
    owner name;
BEGIN
    FOR tube IN EXECUTE format('SELECT r.tube FROM %I.tube_registry AS r ORDER BY r.tube', ours) LOOP
        EXECUTE format('GRANT SELECT ON %I.%I TO %I', ours, tube, roles || '_worker');
        EXECUTE format('GRANT INSERT (op, shard, ids, payload) ON %I.%I TO %I', ours, tube, roles || '_writer');
    END LOOP;
    FOR touch IN
        SELECT p.oid FROM pg_proc AS p
        WHERE p.pronamespace = to_regnamespace(quote_ident(ours))
            AND p.prosrc LIKE E'\n-- Made by tube\\_private\\_tube\\_touch\\_body.%'
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', touch, roles || '_writer');
    END LOOP;
    FOR touch, owner IN EXECUTE format(
        'SELECT DISTINCT p.oid::regprocedure, pg_get_userbyid(c.relowner) FROM %I.tube_attachment AS a'
        ' JOIN pg_class AS c ON c.oid = a.tbl JOIN pg_proc AS p ON p.oid = to_regprocedure(a.touch_function)'
        ' WHERE pg_get_userbyid(p.proowner) = current_user', ours)
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', touch);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I, %I', touch, owner, roles || '_writer');
    END LOOP;
END
$$;
