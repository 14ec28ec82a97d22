-- 0001: the registry, leadership, parking and the sequence that all tubes share.
--
-- One table per tube is made by tube_ensure_exists. Nothing else creates or changes a table.

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
    shape      text        NOT NULL DEFAULT '0001' -- the migration that the tube's own table is like
);

-- The names in what is generated are those that the columns of these numbers had then. The numbers
-- hold for the table of seen_oid only: a restored one has others, and then the names count.
CREATE TABLE :"schema".tube_attachment (
    tube     text     NOT NULL REFERENCES :"schema".tube_registry ON DELETE CASCADE,
    tbl      regclass NOT NULL,
    shard    integer  NOT NULL CHECK (shard >= 0),
    shards   integer  NOT NULL DEFAULT 1 CHECK (shards >= 1),
    id_col   name     NOT NULL,
    position bigint   GENERATED ALWAYS AS IDENTITY, -- the first attached of a shard is its root table
    row_filter       text,  -- the tube's predicate as Postgres understood it for this table
    trigger_function text NOT NULL, -- the name of the generated one, in our schema
    touch_function   text,  -- the generated {table}_touch with its schema and argument types
    columns      name[],     -- an UPDATE that changes none of these makes no touch; NULL: any counts
    replica      boolean NOT NULL DEFAULT false,
    seen_oid     oid,
    seen_attnums smallint[], -- of id_col, of columns, of those in row_filter
    seen_names   name[],
    seen_types   oid[],
    members      oid[],      -- of a partitioned table: all of its tree, itself too
    waiting      oid[],      -- members whose triggers could not be made so far
    as_root      boolean,    -- whether its function was made for the root table of its shards
    PRIMARY KEY (tube, tbl)
);

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

-- Terms that ended. One that did not release may still hold keys until renewed_at + hold.
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

-- Worker processes that want partitions under the lease election; tells how many share them.
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

-- Keys set aside with their error; a control pod that nobody understands has no id.
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
    parked_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
-- By a digest: an index takes no long texts.
CREATE UNIQUE INDEX tube_parked_key_idx ON :"schema".tube_parked (tube, shard, md5(id)) WHERE id IS NOT NULL;
CREATE UNIQUE INDEX tube_parked_seq_idx ON :"schema".tube_parked (tube, seq) WHERE id IS NULL;

-- Backfills, under way and past. One that is under way has its ids in a table of its own beside this one.
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
    key_attnum   smallint,              -- the column of the ids, and the predicate, that they were collected by
    row_filter   text,
    state        text        NOT NULL DEFAULT 'waiting' CHECK (state IN (
        'waiting', 'inserting', 'delivering', 'finished', 'cancelled', 'superseded', 'failed')),
    paused       boolean     NOT NULL DEFAULT false,
    rows_total   bigint,
    rows_done    bigint      NOT NULL DEFAULT 0,
    pods_total   bigint,
    pods_done    bigint      NOT NULL DEFAULT 0, -- the cursor: where the next chunk begins
    ends_left    integer,               -- shards whose backfill_end nobody has acted upon
    rate         float8,                -- rows a second, lately
    note         text,                  -- what it is at, or waits for
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    collected_at timestamptz,
    inserted_at  timestamptz,
    ended_at     timestamptz,
    updated_at   timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX tube_backfill_active_idx ON :"schema".tube_backfill (tube, tbl)
    WHERE state IN ('waiting', 'inserting', 'delivering');

-- What is to be written is divided into units before the first one is: buckets of keys, or ranges of a
-- column. A unit is in the tubes when, and only when, it has a row in tube_job_unit.
CREATE TABLE :"schema".tube_job (
    job_id      text        PRIMARY KEY CHECK (octet_length(job_id) BETWEEN 1 AND 200),
    number      bigint      GENERATED ALWAYS AS IDENTITY UNIQUE, -- of the table of its staged pods
    backfill_id bigint      REFERENCES :"schema".tube_backfill ON DELETE CASCADE,
    tubes       text[]      NOT NULL,
    kind        text        NOT NULL CHECK (kind IN ('direct', 'staged', 'ranges', 'attempts')),
    fingerprint text        NOT NULL,   -- of what is written; another query under the same name is refused
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
