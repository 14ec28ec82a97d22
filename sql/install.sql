-- Installs pytube's SQL, or brings an older installation up to date. Can be run again at any time.
--
--   psql -f sql/install.sql DATABASE
--   psql -v schema=NAME -f sql/install.sql DATABASE        (default: tube)
--   psql -v roles=NAME -f sql/install.sql DATABASE         (NAME_admin, ...; default: the schema, or as before)
--
-- A separate transaction, or part of the caller's when there is one already. Stops at the first error.
-- Tables come from migrations/, each run once and recorded in tube_version, where Alembic finds it too;
-- functions are always made again.
--
-- `pytube install` reads this page as well: of it, the lines \ir and nothing else, and it does itself what
-- the files in psql/ do. The other files are plain SQL with the variables schema, version, roles and role_...
-- as :"name" or :'name', which are not put into quoted bodies.
\set version 0001
\ir psql/start.sql

-- Refused if it belongs to another role. ----------------------------------------------------------------
\ir whose.sql
\ir psql/begin.sql

-- The roles, the schema and its owner. ----------------------------------------------------------------
\ir whose.sql
\ir prepare.sql

-- Tables: each migration once, in order. -------------------------------------------------------------
SELECT coalesce(max(version_num), '') < '0001' AS run_0001 FROM :"schema".tube_version \gset
\if :run_0001
\ir migrations/0001_initial.sql
\endif

-- Shared by all families. ----------------------------------------------------------------------------
\ir tubes/shared.sql

-- Capture: from a table's rows to pods. ---------------------------------------------------------------
\ir capture/keys.sql
\ir capture/put.sql
\ir capture/predicate.sql
\ir capture/body.sql
\ir capture/owners.sql
\ir capture/store.sql
\ir capture/sync.sql
\ir capture/attach.sql

-- Tubes, terms, and what a term does with pods. -------------------------------------------------------
\ir tubes/tubes.sql
\ir tubes/indexes.sql
\ir tubes/stats.sql
\ir tubes/sinks.sql
\ir tubes/documents.sql
\ir leader/terms.sql
\ir leader/lease.sql
\ir leader/wakeup.sql
\ir leader/kafka.sql
\ir pods/marks.sql
\ir pods/park.sql
\ir pods/consume.sql
\ir pods/put.sql
\ir pods/touch.sql
\ir pods/settle.sql
\ir pods/wait.sql

-- Outboxes: messages for Kafka. ---------------------------------------------------------------------------
\ir outbox/tables.sql
\ir outbox/stash.sql
\ir outbox/records.sql
\ir outbox/park.sql
\ir outbox/locked.sql
\ir outbox/resting.sql
\ir outbox/stats.sql

-- Backfill: all rows of a table. ----------------------------------------------------------------------------
\ir backfill/steps.sql
\ir backfill/chunks.sql
\ir backfill/commands.sql
\ir backfill/control_pods.sql

-- Jobs: what several sessions write at once, in units, each once. --------------------------------------------
\ir jobs/jobs.sql
\ir jobs/ranges.sql

-- Operators: manual actions. ---------------------------------------------------------------------------------
\ir operators/audit.sql
\ir operators/pauses.sql
\ir operators/parked.sql
\ir operators/pods.sql
\ir operators/steps.sql
\ir operators/verification.sql

-- Rights, and the generated functions of tubes that were there before: attached tables are changed with
-- the rights of the one who installs. ---------------------------------------------------------------------------
\ir grants.sql
\ir finish.sql
\ir psql/end.sql
