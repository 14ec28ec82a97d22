-- What comes before the first table: refusals, roles, the schema, and its owner.
--
-- Sets the variables roles and role_admin, role_worker, role_writer, role_monitor.
-- What is changed here is ours, and followed at the end.
SELECT set_config('pytube.own_ddl', 'on', true) AS own_ddl \gset
\ir whose.sql
\ir begin.sql
SELECT :'roles' || '_admin' AS role_admin, :'roles' || '_worker' AS role_worker,
    :'roles' || '_writer' AS role_writer, :'roles' || '_monitor' AS role_monitor \gset
\ir roles.sql

SELECT to_regnamespace(quote_ident(:'schema')) IS NULL AS schema_missing \gset
\if :schema_missing
CREATE SCHEMA :"schema" AUTHORIZATION :"role_admin";
\else
\ir owner.sql
\endif
