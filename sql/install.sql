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

-- The roles, the schema and its owner. ----------------------------------------------------------------
\ir whose.sql
\ir prepare.sql

-- Tables: each migration once, in order. -------------------------------------------------------------
SELECT coalesce(max(version_num), '') < '0001' AS run_0001 FROM :"schema".tube_version \gset
\if :run_0001
\ir migrations/0001_initial.sql
\endif
SELECT coalesce(max(version_num), '') < '0002' AS run_0002 FROM :"schema".tube_version \gset
\if :run_0002
\ir migrations/0002_owners.sql
\endif
\ir reshape.sql

-- Shared by all families. ----------------------------------------------------------------------------
\ir tubes/shared.sql

-- Capture: from a table's rows to pods. ---------------------------------------------------------------
\ir capture/tube_shard_of.sql
\ir capture/tube_private_key_of.sql
\ir capture/tube_wakes.sql
\ir capture/tube_private_notify.sql
\ir capture/tube_private_attachable.sql
\ir capture/tube_private_key.sql
\ir capture/tube_private_columns.sql
\ir capture/tube_private_range.sql
\ir capture/tube_private_predicate.sql
\ir capture/tube_private_put_body.sql
\ir capture/tube_private_capture_body.sql
\ir capture/tube_private_agent_body.sql
\ir capture/tube_private_touch_body.sql
\ir capture/tube_private_triggers.sql
\ir capture/tube_private_provide.sql
\ir capture/tube_private_store.sql
\ir capture/tube_private_follow.sql
\ir capture/tube_sync.sql
\ir capture/tube_private_event_triggers.sql
\ir capture/tube_table_ensure_attached.sql
\ir capture/tube_table_ensure_detached.sql

-- Tubes, terms, and what a term does with pods. -------------------------------------------------------
\ir tubes/tubes.sql
\ir tubes/indexes.sql
\ir tubes/stats.sql
\ir leader/terms.sql
\ir leader/lease.sql
\ir leader/wakeup.sql
\ir pods/marks.sql
\ir pods/park.sql
\ir pods/consume.sql
\ir pods/put.sql
\ir pods/settle.sql

-- Backfill: all rows of a table. ----------------------------------------------------------------------------
\ir backfill/tube_private_backfill_table.sql
\ir backfill/tube_private_control.sql
\ir backfill/tube_backfill_schedule.sql
\ir backfill/tube_backfill_step1.sql
\ir backfill/tube_backfill_step2.sql
\ir backfill/tube_backfill_step3.sql

-- Backfills in chunks, and what follows them. ---------------------------------------------------------------
\ir backfill/tube_private_backfill.sql
\ir backfill/tube_backfill_tidy.sql
\ir backfill/tube_private_backfill_ends.sql
\ir backfill/tube_backfill_create.sql
\ir backfill/tube_backfill_lock.sql
\ir backfill/tube_backfill_unlock.sql
\ir backfill/tube_backfill_holders.sql
\ir backfill/tube_private_backfill_changed.sql
\ir backfill/tube_backfill_collect.sql
\ir backfill/tube_backfill_chunk.sql
\ir backfill/tube_backfill_pressure.sql
\ir backfill/tube_backfill_note.sql
\ir backfill/tube_backfill_command.sql
\ir backfill/tube_backfill_list.sql
\ir backfill/tube_backfill_take.sql
\ir backfill/tube_sweep_ready.sql
\ir backfill/tube_sweep_touch.sql
\ir backfill/tube_sweep_end.sql

-- Jobs: what several sessions write at once, in units, each once. --------------------------------------------
\ir jobs/tube_private_job.sql
\ir jobs/tube_job_begin.sql
\ir jobs/tube_job_units.sql
\ir jobs/tube_job_done.sql
\ir jobs/tube_job_finish.sql
\ir jobs/tube_job_forget.sql
\ir jobs/tube_job_list.sql
\ir jobs/tube_backfill_split.sql
\ir jobs/tube_backfill_range.sql
\ir jobs/tube_backfill_join.sql
\ir jobs/tube_stream_purge.sql

-- Rights, and the generated functions of tubes that were there before: attached tables are changed with
-- the rights of whoever installs. ---------------------------------------------------------------------------
\ir grants.sql
\ir finish.sql
\ir psql/end.sql
