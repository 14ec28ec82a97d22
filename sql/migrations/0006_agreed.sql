-- 0006: what owners have agreed to has a table of its own.
--
-- As a column of tube_attachment, which a TRUNCATE reads, it would have to be added under a lock that the TRUNCATE waits for
-- while it holds its own table, which the installation looks at later: a deadlock.
CREATE TABLE :"schema".tube_agent (
    tube text,
    tbl regclass,
    digest text NOT NULL, -- md5 of the text of the owner's agent
    PRIMARY KEY (tube, tbl)
);
-- It was one for a while.
DO $$
DECLARE
    attachments CONSTANT regclass := to_regclass(format('%I.tube_attachment', current_setting('pytube.install_schema')));
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = attachments AND a.attname = 'agent') THEN
        EXECUTE format('ALTER TABLE %s DROP COLUMN agent', attachments);
    END IF;
END
$$;
