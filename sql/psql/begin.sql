-- All that follows is one transaction: a separate one, or the caller's. whose.sql has found the roles.
SELECT now() <> statement_timestamp() AS inside,
    current_setting('pytube.install_roles') AS roles,
    current_setting('pytube.install_capture') AS capture,
    current_setting('pytube.install_roles') || '_owner' AS role_owner,
    current_setting('pytube.install_roles') || '_admin' AS role_admin,
    current_setting('pytube.install_roles') || '_worker' AS role_worker,
    current_setting('pytube.install_roles') || '_writer' AS role_writer,
    current_setting('pytube.install_roles') || '_monitor' AS role_monitor \gset
\if :inside
\else
BEGIN;
\endif
