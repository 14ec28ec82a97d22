-- Every migration up to this version was run. Alembic has said so already where it ran them.
DELETE FROM :"schema".tube_version WHERE version_num < :'version';
INSERT INTO :"schema".tube_version VALUES (:'version') ON CONFLICT DO NOTHING;
