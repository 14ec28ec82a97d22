-- 0005: an owner's agent is called only as its owner agreed to it.

-- The md5 of its text. The installation that runs this fills it.
ALTER TABLE :"schema".tube_attachment ADD agent text;
DROP FUNCTION IF EXISTS :"schema".tube_private_call_agent(text, regclass, name[], text);
