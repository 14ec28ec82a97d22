-- Takes all of pytube's SQL away: triggers and touch functions of attached tables, tubes, the schema.
--
--   psql -v schema=NAME -f sql/uninstall.sql DATABASE        (default: tube)
--   psql -v force=1 -f sql/uninstall.sql DATABASE            even while tables are attached, or tubes hold pods
--                                                               or parked documents, or outboxes records
--
-- A separate transaction, or part of the caller's. A page of files, like install.sql.
\ir psql/start.sql
\ir whose.sql
\ir psql/begin.sql
\ir whose.sql
\ir remove.sql
\ir psql/end.sql
