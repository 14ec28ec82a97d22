-- 0004: what operators do, and what workers must remember for them.

-- Who did what by hand. Values of documents, and secrets, never stand here.
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

-- Keys whose document failed alone and is to be sent again, so that the next term goes on where this one was. No row is
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

-- first_at: of the first failure since the document was last delivered. retried_at: an operator has touched it since.
ALTER TABLE :"schema".tube_parked ADD first_at timestamptz NOT NULL DEFAULT now(), ADD retried_at timestamptz;
UPDATE :"schema".tube_parked SET first_at = parked_at;

-- What was sent for a parked key, where the tube's configuration asks to keep it. A table of its own: who may see what is
-- parked may not see documents.
CREATE TABLE :"schema".tube_parked_document (
    park_id  bigint PRIMARY KEY REFERENCES :"schema".tube_parked ON DELETE CASCADE,
    document bytea  NOT NULL
);

-- What is paused. A pause outlives workers and terms. One of a single partition goes by the shards in it: after a
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
    until      timestamptz          -- NULL: until somebody resumes it
);
CREATE UNIQUE INDEX tube_paused_what_idx ON :"schema".tube_paused (tube, kind, partitions, coalesce(partition, -1));

-- Terms whose worker has come to rest for a pause: it has given back what it had marked, and sends nothing. Not in
-- tube_trouble, so that renewals go on while this migration runs.
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

-- Neither result columns nor arguments can be replaced. Who was granted a function keeps it; grants.sql sees to that.
DO $$
DECLARE
    ours CONSTANT name := current_setting('pytube.install_schema');
    old regprocedure;
    changed text;
BEGIN
    FOREACH changed IN ARRAY ARRAY['tube_leaders_renew(text, uuid[], jsonb)', 'tube_park_list(text, integer)',
        'tube_pods_park(text, integer, integer, uuid, jsonb)'] LOOP
        old := to_regprocedure(format('%I.%s', ours, changed));
        CONTINUE WHEN old IS NULL;
        PERFORM set_config('pytube.renewed_grants', concat(current_setting('pytube.renewed_grants', true), (
            SELECT string_agg(format('GRANT EXECUTE ON FUNCTION %I.%I TO %I%s; ', ours, p.proname, r.rolname,
                CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END), '')
            FROM pg_proc AS p, aclexplode(p.proacl) AS a JOIN pg_roles AS r ON r.oid = a.grantee
            WHERE p.oid = old AND a.grantee <> p.proowner)), true);
        EXECUTE format('DROP FUNCTION %s', old);
    END LOOP;
END
$$;
