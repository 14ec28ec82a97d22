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
