-- 0003: outboxes. They share names, terms, leases and wake-up with tubes, and so are in the same registry.

ALTER TABLE :"schema".tube_registry ADD kind text NOT NULL DEFAULT 'tube' CHECK (kind IN ('tube', 'outbox'));

-- The table of each outbox: made here, or adopted in place.
CREATE TABLE :"schema".tube_outbox (
    outbox     text     PRIMARY KEY REFERENCES :"schema".tube_registry ON DELETE CASCADE,
    tbl        regclass NOT NULL UNIQUE,
    value_type regtype  NOT NULL CHECK (value_type IN ('text', 'bytea')),
    adopted    boolean  NOT NULL
);
