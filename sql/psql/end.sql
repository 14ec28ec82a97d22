-- Ends the transaction, leaves psql as it was, and prints the report; not with psql -q.
SELECT current_setting('pytube.install_report') AS report,
    set_config('search_path', :'before_path', false) AS before_path \gset
\if :inside
\else
COMMIT;
\endif
\set roles :before_roles
\set ON_ERROR_STOP :before_stop
\set QUIET :before_quiet
\if :QUIET
\else
\echo :report
\endif
