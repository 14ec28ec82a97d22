-- 0002: what evaluates over an attached table belongs to the table's owner.
--
-- The functions that the triggers of attached tables call move to a schema of their own, where they belong to the
-- owners of the tables; tube_convert_attachments does that at the end of the installation.
CREATE SCHEMA :"capture" AUTHORIZATION :"role_owner";

-- row_filter is the tube's predicate, or NULL where it does not fit the table; then misfit tells what was tried.
ALTER TABLE :"schema".tube_attachment DROP COLUMN seen_types, ADD misfit text;

-- Whether a worker sleeps, outside of any snapshot: writers with an old one have to see it, too.
-- One sequence a tube, "tube_sleeps_N"; 1: nobody sleeps; 2: somebody does.
ALTER TABLE :"schema".tube_registry ADD number bigint GENERATED ALWAYS AS IDENTITY UNIQUE;

ALTER TABLE :"schema".tube_registry ALTER shape SET DEFAULT '0002';
