-- 0005: an owner's agent is called only as its owner agreed to it.

-- A digest of it; NULL where no owner has looked since: then it is called as it is.
ALTER TABLE :"schema".tube_attachment ADD agent text;
