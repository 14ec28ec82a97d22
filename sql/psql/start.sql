-- The first file of install.sql and uninstall.sql: what `psql -v` gave, and where names are looked up.
--
-- The files in this folder are for psql alone, and so is everything in the pages but \ir. pytube/db/install.py
-- does the same for `pytube install`.
--
-- psql puts no variables into a quoted body: those read the settings pytube.install_....
\set before_stop :ON_ERROR_STOP
\set before_quiet :QUIET
\set ON_ERROR_STOP on
\set QUIET on
\if :{?schema}
\else
\set schema tube
\endif
\if :{?roles}
\else
\set roles ''
\endif
\if :{?force}
\else
\set force 0
\endif
\set before_roles :roles
SELECT pg_catalog.current_setting('search_path') AS before_path \gset
SET search_path = pg_catalog, pg_temp;
SET pytube.install_schema = :'schema';
SET pytube.install_roles = :'roles';
SET pytube.install_force = :'force';
