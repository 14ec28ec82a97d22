-- Installs pytube's SQL, or brings an older installation up to date. Can be run again at any time.
--
--   psql -f sql/install.sql DATABASE
--   psql -v schema=NAME -f sql/install.sql DATABASE        (default: tube)
--   psql -v roles=NAME -f sql/install.sql DATABASE         (NAME_admin, …; default: the schema, or as before)
--
-- One transaction of its own, but for changes of the tables of tubes, which come first, tube by tube; or
-- part of the caller's when there is one already. Stops at the first error. Tables come from migrations/,
-- each run once and recorded in tube_version, where Alembic finds it too; functions are always made anew.
--
-- `pytube install` reads this page as well: of it, the lines \ir and nothing else, and it does itself what
-- the files in psql/ do. The other files are plain SQL with the variables schema, version, roles and role_…
-- as :"name" or :'name', which are not put into quoted bodies.
\set version 0002
\ir psql/start.sql
\ir names.sql

-- Refused if it is somebody else's. Then tables of tubes are changed, before anything relies on it. ----
\ir whose.sql
\ir reshape.sql
\ir psql/begin.sql

-- The roles and the schema: made if missing. ----------------------------------------------------------
\ir whose.sql
\ir begin.sql
\ir roles.sql
\ir prepare.sql
\ir owner.sql
\ir as_owner.sql

-- Tables: each migration once, in order. -------------------------------------------------------------
SELECT coalesce(max(version_num), '') < '0001' AS run_0001 FROM :"schema".tube_version \gset
\if :run_0001
\ir migrations/0001_initial.sql
\endif
SELECT coalesce(max(version_num), '') < '0002' AS run_0002 FROM :"schema".tube_version \gset
\if :run_0002
\ir migrations/0002_owners.sql
\endif
\ir recorded.sql
\ir reshape.sql

-- Shared by all families. ----------------------------------------------------------------------------
\ir tubes/tube_private_schema.sql
\ir tubes/tube_private_role.sql
\ir tubes/tube_private_name.sql
\ir tubes/tube_private_require.sql
\ir tubes/tube_private_patiently.sql
\ir wakeup/tube_channel.sql

-- Capture: from a table's rows to pods. ---------------------------------------------------------------
\ir capture/keys.sql
\ir capture/put.sql
\ir capture/predicate.sql
\ir capture/body.sql
\ir capture/agent.sql
\ir capture/touch.sql
\ir capture/owners.sql
\ir capture/store.sql
\ir capture/sync.sql
\ir capture/event_triggers.sql
\ir capture/attach.sql

-- Tubes: their tables, and what is in them. -----------------------------------------------------------
\ir tubes/tube_private_check_name.sql
\ir tubes/tube_private_check_partitions.sql
\ir tubes/tube_private_index.sql
\ir tubes/tube_private_make.sql
\ir tubes/tube_private_end_terms.sql
\ir tubes/tube_private_repartition.sql
\ir tubes/tube_index_sql.sql
\ir tubes/tube_index_fit.sql
\ir tubes/tube_ensure_exists.sql
\ir tubes/tube_ensure_absent.sql
\ir tubes/tube_list.sql
\ir tubes/tube_stats.sql

-- Leadership: who may work on a partition. --------------------------------------------------------------
\ir leader/tube_private_check_partition.sql
\ir leader/tube_private_refuse_term.sql
\ir leader/tube_private_hold_term.sql
\ir leader/tube_private_check_term.sql
\ir leader/tube_private_check_claim.sql
\ir leader/tube_private_end_term.sql
\ir leader/tube_leader_epoch.sql
\ir leader/tube_leader_acquire.sql
\ir leader/tube_leader_renew.sql
\ir leader/tube_leaders_renew.sql
\ir leader/tube_leader_release.sql
\ir leader/tube_leader_wait.sql
\ir leader/tube_leader_rebase.sql
\ir leader/tube_leaders.sql
\ir leader/tube_terms.sql
\ir leader/tube_lease_tick.sql
\ir leader/tube_lease_leave.sql

-- Pods: read, marked, purged, given back; and from which seq on nothing can be missing. ----------------
\ir pods/tube_private_slices.sql
\ir pods/tube_pods_sql.sql
\ir pods/tube_pods_delete.sql
\ir pods/tube_private_mark_sql.sql
\ir pods/tube_private_pods_where.sql
\ir pods/tube_pods_mark.sql
\ir pods/tube_pods_purge.sql
\ir pods/tube_pods_reset.sql
\ir pods/tube_pods_park.sql
\ir pods/tube_pods_unpark.sql
\ir pods/tube_as_caller.sql
\ir pods/tube_keys_as_caller.sql
\ir pods/tube_private_put.sql
\ir pods/tube_pods_put.sql
\ir pods/tube_keys_put.sql
\ir pods/tube_pods_insert.sql
\ir pods/tube_private_settle_locks.sql
\ir pods/tube_settle_seq.sql
\ir pods/tube_settle_done.sql
\ir pods/tube_settle_holders.sql
\ir pods/tube_settle_left.sql
\ir pods/tube_seq_advance.sql

-- Wake-up of sleeping workers. ----------------------------------------------------------------------------
\ir wakeup/tube_sleep.sql
\ir wakeup/tube_wake.sql

-- Backfill: all rows of a table. ----------------------------------------------------------------------------
\ir backfill/steps.sql
\ir backfill/chunks.sql
\ir backfill/commands.sql
\ir backfill/control_pods.sql

-- What was parked. ------------------------------------------------------------------------------------------
\ir park/tube_park_list.sql

-- Jobs: what several sessions write at once, in units, each once. --------------------------------------------
\ir jobs/jobs.sql
\ir jobs/ranges.sql

-- Rights, and the generated functions of tubes that were there before: attached tables are changed with
-- the rights of whoever installs. ---------------------------------------------------------------------------
\ir grants.sql
\ir as_installer.sql
\ir nobody.sql
\ir event_triggers.sql
\ir finish.sql
\ir psql/end.sql
