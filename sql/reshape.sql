-- Changes that migrations make to the tables of tubes, in order; see each_tube.sql. So far there is none.
--
-- They come before the migrations themselves, each tube in a transaction of its own, while writers and
-- workers of the version before go on: so they may only add what those do without. Tubes that were
-- made meanwhile come last, within the transaction of the installation. A revision adds three lines at the end:
--   \set revision 0002
--   \set change 'ALTER TABLE %1$I.%2$I ADD COLUMN IF NOT EXISTS …'
--   \ir each_tube.sql
\ir whose.sql
