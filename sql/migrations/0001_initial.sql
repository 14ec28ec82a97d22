-- 0001: all tables except the tables of single tubes and outboxes, which tube_ensure_exists and outbox_ensure_exists make.
-- Later migrations, each a separate file, change them.

-- One sequence for all tubes. The settled seq rests on CACHE 1: with a larger cache a session
-- would hand out numbers that it drew before others began.
CREATE SEQUENCE :"schema".tube_seq AS bigint CACHE 1;

-- A domain, because a check of the table costs every statement that makes pods a tenth of its time.
CREATE DOMAIN :"schema".tube_shard AS integer CHECK (VALUE >= 0);

-- One row: who this installation is, and the greatest epoch of any tube that is gone.
CREATE TABLE :"schema".tube_installation (
    one          boolean PRIMARY KEY DEFAULT true CHECK (one),
    installation uuid    NOT NULL DEFAULT gen_random_uuid(),
    last_epoch   bigint  NOT NULL DEFAULT 0
);
INSERT INTO :"schema".tube_installation DEFAULT VALUES;

CREATE TABLE :"schema".tube_registry (
    tube       text        PRIMARY KEY,
    partitions integer     NOT NULL CHECK (partitions BETWEEN 1 AND 1024),
    predicate  text,
    generation bigint      NOT NULL DEFAULT 1,  -- grows with every repartition
    version    bigint      NOT NULL DEFAULT 1,  -- grows with everything that an enricher must know
    last_epoch bigint      NOT NULL DEFAULT 0,  -- the greatest epoch issued for any partition
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    key_type   regtype     NOT NULL DEFAULT 'bigint' CHECK (key_type IN ('bigint', 'uuid', 'text')),
    -- Names the sequence that shows writers whether a worker of the tube sleeps; see tube_private_make_flag.
    number     bigint      GENERATED ALWAYS AS IDENTITY UNIQUE,
    -- Outboxes share names, terms, leases and wake-up with tubes.
    kind       text        NOT NULL DEFAULT 'tube' CHECK (kind IN ('tube', 'outbox')),
    companion_of text      REFERENCES :"schema".tube_registry, -- holds the touches of relations of that tube's documents
    declared   text,       -- the digest of the document that the tube is; NULL: no declared one
    applied    text,       -- the digest of the section of a file that declares the tube or outbox; NULL: none, or a document
    made       boolean     NOT NULL DEFAULT false -- it was made because of that, and not manually
);

-- Generated objects have the names that the columns of these numbers had then. The numbers
-- hold only where the table is among the members: a restored one has other numbers, and then the names count.
CREATE TABLE :"schema".tube_attachment (
    tube     text     NOT NULL REFERENCES :"schema".tube_registry ON DELETE CASCADE,
    tbl      regclass NOT NULL,
    shard    integer  NOT NULL CHECK (shard >= 0),
    shards   integer  NOT NULL DEFAULT 1 CHECK (shards >= 1),
    keys     name[]   NOT NULL CHECK (cardinality(keys) BETWEEN 1 AND 8), -- the columns of the key
    position bigint   GENERATED ALWAYS AS IDENTITY, -- the first attached of a shard is its root table
    row_filter       text,  -- the tube's predicate
    trigger_function text NOT NULL, -- the name of the generated one, in the capture schema
    touch_name       text,  -- pytube's function behind {table}_touch
    columns      name[],     -- an UPDATE that changes none of these makes no touch; NULL: any counts
    replica      boolean NOT NULL DEFAULT false,
    seen         jsonb,      -- of each column of the key, then of columns: its attnum; in the key, also its type and labels
    members      oid[],      -- of a partitioned table: all of its tree, itself too
    waiting      oid[],      -- members without triggers: what is written by their names is not seen
    shard_place  smallint,   -- which of them alone determines a key's shard, from 0; NULL: all
    made         boolean NOT NULL DEFAULT false, -- it was attached because a file declares it, and not manually
    PRIMARY KEY (tube, tbl)
);
-- By these digits all objects of an attachment are found, and dropped: see tube_private_capture_name.
CREATE UNIQUE INDEX tube_attachment_digest_key ON :"schema".tube_attachment (right(trigger_function, 8));

-- One row per partition, for as long as the tube has that partition. A free partition keeps its
-- epoch and has no leader_id, so that an epoch once read can't come back.
CREATE TABLE :"schema".tube_leader (
    tube        text        NOT NULL REFERENCES :"schema".tube_registry ON DELETE CASCADE,
    partition   integer     NOT NULL,
    partitions  integer     NOT NULL,
    leader_id   uuid        UNIQUE, -- a key column: FOR KEY SHARE on it keeps a new term out
    epoch       bigint      NOT NULL,
    instance_id uuid,
    client_id   text,
    election    text,
    hold        interval,           -- trust deadline + sink request timeout of this term
    lease       interval,           -- how long a renewal keeps others out; NULL under neli
    acquired_at timestamptz,
    renewed_at  timestamptz,
    PRIMARY KEY (tube, partition)
) WITH (fillfactor = 50);

-- Terms that ended. An unreleased one may still hold keys until renewed_at + hold.
CREATE TABLE :"schema".tube_term (
    leader_id   uuid        PRIMARY KEY,
    tube        text        NOT NULL,
    partition   integer     NOT NULL,
    partitions  integer     NOT NULL,
    epoch       bigint      NOT NULL,
    instance_id uuid        NOT NULL,
    client_id   text        NOT NULL,
    election    text        NOT NULL,
    hold        interval    NOT NULL,
    acquired_at timestamptz NOT NULL,
    renewed_at  timestamptz NOT NULL,
    ended_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    outcome     text        NOT NULL CHECK (outcome IN ('released', 'superseded', 'repartitioned'))
);
CREATE INDEX tube_term_tube_ended_at_idx ON :"schema".tube_term (tube, ended_at);

-- Worker processes that want partitions under the lease election; shows how many share them.
CREATE TABLE :"schema".tube_instance (
    tube        text        NOT NULL REFERENCES :"schema".tube_registry ON DELETE CASCADE,
    instance_id uuid        NOT NULL,
    client_id   text        NOT NULL,
    seen_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tube, instance_id)
) WITH (fillfactor = 50);

-- Partitions whose leader sleeps and wants a NOTIFY. Writers only read it.
CREATE TABLE :"schema".tube_sleeper (
    tube       text    NOT NULL REFERENCES :"schema".tube_registry ON DELETE CASCADE,
    partition  integer NOT NULL,
    partitions integer NOT NULL,
    PRIMARY KEY (tube, partition)
) WITH (fillfactor = 50);

-- Its row is locked by whoever sets a tube's flag: an advisory lock could be anybody's.
CREATE TABLE :"schema".tube_flag (
    tube text PRIMARY KEY REFERENCES :"schema".tube_registry ON DELETE CASCADE
);

-- Keys set aside with their error; an unknown control pod has no id.
CREATE TABLE :"schema".tube_parked (
    park_id   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tube      text        NOT NULL REFERENCES :"schema".tube_registry ON DELETE CASCADE,
    shard     integer     NOT NULL,
    id        text,
    op        text        NOT NULL,
    seq       bigint      NOT NULL,
    payload   jsonb,
    error     text        NOT NULL,
    attempts  integer     NOT NULL,
    epoch     bigint      NOT NULL,
    first_at  timestamptz NOT NULL DEFAULT now(), -- of the first failure since the document was last delivered
    parked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    retried_at timestamptz -- an operator has touched it since
);
-- By a digest: an index takes no long texts.
CREATE UNIQUE INDEX tube_parked_key_idx ON :"schema".tube_parked (tube, shard, md5(id)) WHERE id IS NOT NULL;
CREATE UNIQUE INDEX tube_parked_seq_idx ON :"schema".tube_parked (tube, seq) WHERE id IS NULL;

-- Backfills, under way and past. A running one has its ids in a separate table.
CREATE TABLE :"schema".tube_backfill (
    backfill_id  bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tube         text        NOT NULL REFERENCES :"schema".tube_registry ON DELETE CASCADE,
    tbl          regclass    NOT NULL,
    table_name   text        NOT NULL,  -- as it was called; tbl may be gone
    order_col    name        NOT NULL,
    shard        integer     NOT NULL,
    shards       integer     NOT NULL,
    root         boolean     NOT NULL,
    by_worker    boolean     NOT NULL,  -- a worker inserts the pods, not the one who began it
    start_seq    bigint      NOT NULL,
    position     bigint      NOT NULL,  -- of the attachment
    key_attnums  smallint[],            -- the columns of the ids, and the predicate, that they were collected by
    row_filter   text,
    state        text        NOT NULL DEFAULT 'waiting' CHECK (state IN (
        'waiting', 'inserting', 'delivering', 'finished', 'cancelled', 'superseded', 'failed')),
    paused       boolean     NOT NULL DEFAULT false,
    rows_total   bigint,
    rows_done    bigint      NOT NULL DEFAULT 0,
    pods_total   bigint,
    pods_done    bigint      NOT NULL DEFAULT 0, -- the cursor: where the next chunk begins
    ends_left    integer,               -- shards whose backfill_end no worker has acted upon
    rate         float8,                -- rows a second, lately
    note         text,                  -- its step, or why it waits
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    collected_at timestamptz,
    inserted_at  timestamptz,
    ended_at     timestamptz,
    updated_at   timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX tube_backfill_active_idx ON :"schema".tube_backfill (tube, tbl)
    WHERE state IN ('waiting', 'inserting', 'delivering');

-- The work is divided into units before the first is written: buckets of keys, or ranges of a
-- column. A unit is in the tubes when, and only when, it has a row in tube_job_unit.
CREATE TABLE :"schema".tube_job (
    job_id      text        PRIMARY KEY CHECK (octet_length(job_id) BETWEEN 1 AND 200),
    number      bigint      GENERATED ALWAYS AS IDENTITY UNIQUE, -- of the table of its staged pods
    backfill_id bigint      REFERENCES :"schema".tube_backfill ON DELETE CASCADE,
    tubes       text[]      NOT NULL,
    kind        text        NOT NULL CHECK (kind IN ('direct', 'staged', 'ranges', 'attempts')),
    fingerprint text        NOT NULL,   -- of the query; another query under the same name is refused
    units       integer     NOT NULL CHECK (units >= 0),
    bounds      text[],                 -- of ranges: where all but the first begin
    state       text        NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done')),
    begun_by    name        NOT NULL DEFAULT session_user,
    rows_done   bigint,                 -- these three once it is done
    ids_done    bigint,
    pods_done   bigint,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at    timestamptz
);
CREATE TABLE :"schema".tube_job_unit (
    job_id   text        NOT NULL REFERENCES :"schema".tube_job ON DELETE CASCADE,
    unit     integer     NOT NULL CHECK (unit >= 0),
    rows     bigint      NOT NULL,  -- that were read
    ids      bigint      NOT NULL,  -- that were written, for each tube
    pods     bigint      NOT NULL,
    ended_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (job_id, unit)
);
CREATE INDEX tube_job_backfill_id_idx ON :"schema".tube_job (backfill_id) WHERE backfill_id IS NOT NULL;

-- What keeps a term from delivering, or slows it down, as its worker said with its last renewal; no row while nothing does. They
-- end with the term.
CREATE TABLE :"schema".tube_trouble (
    leader_id uuid,
    what      text        CHECK (what IN ('sink', 'source', 'slow', 'locked', 'late')), -- slow: the sink; late: the worker
    reason    text        NOT NULL,
    since     timestamptz NOT NULL,
    next_at   timestamptz, -- when it is tried again; NULL: not known
    PRIMARY KEY (leader_id, what)
) WITH (fillfactor = 50);

-- The table of each outbox: made here, or adopted in place.
CREATE TABLE :"schema".tube_outbox (
    outbox     text     PRIMARY KEY REFERENCES :"schema".tube_registry ON DELETE CASCADE,
    tbl        regclass NOT NULL UNIQUE,
    value_type regtype  NOT NULL CHECK (value_type IN ('text', 'bytea')),
    adopted    boolean  NOT NULL,
    identity   uuid     NOT NULL DEFAULT gen_random_uuid() -- of its records among all others, whatever its name and database
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

-- Operators' actions. Values of documents, and secrets, never stand here.
CREATE TABLE :"schema".tube_audit (
    audit_id bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    done_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    done_by  name        NOT NULL DEFAULT session_user,
    client   text,       -- application_name of the session
    action   text        NOT NULL,
    tube     text,       -- no reference: the record outlives the tube
    details  jsonb       NOT NULL DEFAULT '{}'
);
CREATE INDEX tube_audit_tube_done_at_idx ON :"schema".tube_audit (tube, done_at);

-- Keys whose document failed alone and is to be sent again, so that the next term continues where this one was. No row is
-- written while all goes well; a delivery, or parking, takes it away.
CREATE TABLE :"schema".tube_attempt (
    tube     text        NOT NULL REFERENCES :"schema".tube_registry ON DELETE CASCADE,
    shard    integer     NOT NULL,
    id       text        NOT NULL,
    attempts integer     NOT NULL, -- used up so far
    error    text        NOT NULL,
    epoch    bigint      NOT NULL,
    first_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    next_at  timestamptz NOT NULL  -- not to be sent before
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX tube_attempt_key_idx ON :"schema".tube_attempt (tube, shard, md5(id));

-- The document sent for a parked key, if the tube's configuration keeps it. A separate table: roles that may see parked
-- keys may not see documents.
CREATE TABLE :"schema".tube_parked_document (
    park_id  bigint PRIMARY KEY REFERENCES :"schema".tube_parked ON DELETE CASCADE,
    document bytea  NOT NULL
);

-- Pauses. A pause outlives workers and terms. One of a single partition goes by the shards in it: after a
-- repartition it holds for all partitions that share a shard with it.
CREATE TABLE :"schema".tube_paused (
    pause_id   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tube       text        NOT NULL REFERENCES :"schema".tube_registry ON DELETE CASCADE,
    partition  integer,             -- NULL: all
    partitions integer     NOT NULL, -- how many there were; 0 when all are paused
    kind       text        NOT NULL CHECK (kind IN ('operator', 'poison', 'park_limit')),
    reason     text,
    paused_by  name        NOT NULL DEFAULT session_user,
    paused_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    until      timestamptz          -- NULL: until it is resumed
);
CREATE UNIQUE INDEX tube_paused_what_idx ON :"schema".tube_paused (tube, kind, partitions, coalesce(partition, -1));

-- Terms whose worker has come to rest for a pause: it has given back its marked pods, and sends nothing.
CREATE TABLE :"schema".tube_halted (
    leader_id uuid        PRIMARY KEY,
    since     timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Single documents that an operator has asked the leader of a paused partition to send.
CREATE TABLE :"schema".tube_step (
    step_id    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tube       text        NOT NULL REFERENCES :"schema".tube_registry ON DELETE CASCADE,
    partitions integer     NOT NULL,
    partition  integer     NOT NULL,
    seq        bigint      NOT NULL, -- the pod
    shard      integer     NOT NULL,
    id         text        NOT NULL,
    asked_by   name        NOT NULL DEFAULT session_user,
    asked_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL, -- no term takes it from then on
    leader_id  uuid,                 -- the term that has taken it
    outcome    text        CHECK (outcome IN ('delivered', 'skipped', 'failed', 'unsent')),
    error      text,
    ended_at   timestamptz
);
CREATE UNIQUE INDEX tube_step_open_idx ON :"schema".tube_step (tube, partition) WHERE ended_at IS NULL;

-- One row: which server and which history of it this database was seen to be of. A restored or promoted database brings
-- the earlier row along. No row: no worker has looked yet.
CREATE TABLE :"schema".tube_source (
    one               boolean     PRIMARY KEY DEFAULT true CHECK (one),
    system_identifier bigint,      -- NULL: this server does not say, as some managed ones; so for all three
    timeline          integer,
    sequence          oid,         -- of tube_seq: another one after a restore of a dump
    seen_at           timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Tubes whose copy is to be verified, and outboxes whose consumers are to be informed, and why, until that is done.
CREATE TABLE :"schema".tube_unverified (
    tube       text        NOT NULL REFERENCES :"schema".tube_registry ON DELETE CASCADE,
    cause      text        NOT NULL CHECK (cause IN ('source', 'sample')),
    since      timestamptz NOT NULL DEFAULT clock_timestamp(),
    is_certain boolean     NOT NULL, -- that the copy differs, or commits are gone
    detail     text        NOT NULL,
    PRIMARY KEY (tube, cause)
);

-- The last sample of each tube that a worker has compared.
CREATE TABLE :"schema".tube_sample (
    tube      text        PRIMARY KEY REFERENCES :"schema".tube_registry ON DELETE CASCADE,
    ended_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    checked   integer     NOT NULL,
    differing integer     NOT NULL, -- parked keys are not among them
    undecided integer     NOT NULL  -- keys that could not be judged
) WITH (fillfactor = 50);

-- Whether each tube's sink still holds its documents.
CREATE TABLE :"schema".tube_sink (
    tube       text        PRIMARY KEY REFERENCES :"schema".tube_registry ON DELETE CASCADE,
    mark       text,       -- what the sink is known by; NULL: nothing yet, or it was emptied and is not being filled
    seen       boolean     NOT NULL DEFAULT false, -- whether the sink has shown this mark
    emptied_at timestamptz, -- when it was noticed that the sink had lost its documents; NULL: it has them
    notes      uuid[]      NOT NULL DEFAULT '{}', -- what the last notes at the sink name, the newest last
    last_note  bigint      NOT NULL DEFAULT 0     -- the number of the newest
);

-- A partition whose terms end by the same failure, one after the other; no row while they don't. It outlives its terms.
CREATE TABLE :"schema".tube_failing (
    tube      text        REFERENCES :"schema".tube_registry ON DELETE CASCADE,
    partition integer,
    reason    text        NOT NULL, -- of the last one
    terms     integer     NOT NULL, -- how many have failed so
    since     timestamptz NOT NULL, -- when the first one did
    failed_at timestamptz NOT NULL, -- when the last one did
    PRIMARY KEY (tube, partition)
);

-- Topics that take nothing now, as the term says that holds their records; they end with it, as of tube_trouble.
CREATE TABLE :"schema".tube_outbox_resting (
    leader_id uuid,
    topic     text,
    reason    text        NOT NULL,
    records   bigint      NOT NULL, -- that the term holds
    since     timestamptz NOT NULL,
    next_at   timestamptz NOT NULL, -- when it is tried again
    park      boolean     NOT NULL DEFAULT false, -- an operator wants its records parked
    PRIMARY KEY (leader_id, topic)
) WITH (fillfactor = 50);

-- Which workers can't reach a Kafka cluster that a tube or an outbox needs, as they say every few seconds while that is so. Of
-- processes, and not of terms: without its broker a worker under 'neli' begins none.
CREATE TABLE :"schema".tube_kafka (
    instance_id       uuid,
    tube              text,
    use               text,         -- 'election', 'delivery', 'refused' or 'unfollowed'
    bootstrap_servers text,
    client_id         text NOT NULL,
    reason            text NOT NULL,
    since             timestamptz NOT NULL,
    seen_at           timestamptz NOT NULL,
    back_at           timestamptz,  -- when the process had reached it again; NULL: it has not
    PRIMARY KEY (instance_id, tube, use, bootstrap_servers)
) WITH (fillfactor = 50);
