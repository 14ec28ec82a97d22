-- 0003: outboxes. They share names, terms, leases and wake-up with tubes, and so are in the same registry.

ALTER TABLE :"schema".tube_registry ADD kind text NOT NULL DEFAULT 'tube' CHECK (kind IN ('tube', 'outbox'));

-- The table of each outbox: made here, or adopted in place.
CREATE TABLE :"schema".tube_outbox (
    outbox     text     PRIMARY KEY REFERENCES :"schema".tube_registry ON DELETE CASCADE,
    tbl        regclass NOT NULL UNIQUE,
    value_type regtype  NOT NULL CHECK (value_type IN ('text', 'bytea')),
    adopted    boolean  NOT NULL
);

-- Records set aside with their error. The records themselves stay in the outbox's table, so that they keep their ids.
CREATE TABLE :"schema".tube_outbox_parked (
    outbox    text        NOT NULL REFERENCES :"schema".tube_outbox ON DELETE CASCADE,
    id        bigint      NOT NULL,
    topic     text        NOT NULL,
    key       text,                 -- what orders it; NULL: nothing does
    slot      integer     NOT NULL, -- modulo the partitions, its partition
    error     text        NOT NULL,
    attempts  integer     NOT NULL,
    epoch     bigint      NOT NULL,
    hold      boolean     NOT NULL, -- later records of its key wait behind it
    behind    boolean     NOT NULL, -- it waits behind another one of its key
    parked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (outbox, id)
);
-- By a digest: an index takes no long texts.
CREATE INDEX tube_outbox_parked_key_idx ON :"schema".tube_outbox_parked (outbox, topic, md5(key)) WHERE hold;

-- Records that an operator wants sent again: marks of their partition return them, though they lie below the floor.
CREATE TABLE :"schema".tube_outbox_retry (
    outbox text    NOT NULL REFERENCES :"schema".tube_outbox ON DELETE CASCADE,
    id     bigint  NOT NULL,
    slot   integer NOT NULL,
    PRIMARY KEY (outbox, id)
);
