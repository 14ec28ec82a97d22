-- What comes before the first table: refusals, roles, the schema, and its owner.
--
-- Sets the variables roles and role_admin, role_worker, role_writer, role_monitor.
-- What is changed here is ours, and followed at the end.
SELECT set_config('pytube.install_schema', :'schema', true) AS install_schema,
    set_config('pytube.own_ddl', 'on', true) AS own_ddl \gset
\ir begin.sql

-- An installation keeps the names of its roles: those of its owner.
\if :{?roles}
\else
SELECT coalesce((
    SELECT left(r.rolname, -6) FROM pg_proc AS p JOIN pg_roles AS r ON r.oid = p.proowner
    WHERE p.oid = to_regprocedure(format('%I.tube_private_role(text)', :'schema')) AND r.rolname LIKE '%\_admin'
), :'schema') AS roles \gset
\endif
SELECT set_config('pytube.install_roles', :'roles', true) AS install_roles,
    :'roles' || '_admin' AS role_admin, :'roles' || '_worker' AS role_worker,
    :'roles' || '_writer' AS role_writer, :'roles' || '_monitor' AS role_monitor \gset
\ir roles.sql

SELECT to_regnamespace(quote_ident(:'schema')) IS NULL AS schema_missing \gset
\if :schema_missing
CREATE SCHEMA :"schema" AUTHORIZATION :"role_admin";
\else
\ir owner.sql
\endif
