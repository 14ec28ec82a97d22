-- Workers' reports of the Kafka clusters that they need: so all readers of the database learn why no worker is elected, or
-- why records wait, without reaching Kafka. And of tubes and outboxes that they are to serve and can't, with the use 'refused',
-- and of changes of tables that they can't follow, with 'unfollowed': both have an empty text for bootstrap_servers.

-- Call it every few seconds while there is one, and once when there is none any more. A report counts for 30 s. A cluster that is
-- named no more is back: until a minute later the process may wait for the election.
-- Arguments:
--   instance_id, client_id   the process, and a label for people
--   unreachable   an array of {"tube": ..., "use": "election", "delivery", "refused" or "unfollowed", "bootstrap_servers": ...,
--                 "reason": ..., "seconds": how long it has been so}
-- Errors: 22004 an argument is missing, 23502 a value in unreachable; 22023, 22P02 unreachable is something else.
-- Locks: the rows of the process, until the transaction ends. Reports of others that are older than an hour are removed,
--   except locked ones. A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_kafka_report(instance_id uuid, client_id text, unreachable jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
#variable_conflict use_column
DECLARE
    me CONSTANT uuid := tube_kafka_report.instance_id;
    label CONSTANT text := tube_kafka_report.client_id;
BEGIN
    IF me IS NULL OR label IS NULL OR unreachable IS NULL THEN
        RAISE EXCEPTION 'instance_id, client_id and unreachable must be given' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    DELETE FROM tube_kafka AS k WHERE k.instance_id = me AND k.back_at < clock_timestamp() - interval '1 minute';
    UPDATE tube_kafka AS k SET back_at = clock_timestamp()
    WHERE k.instance_id = me AND k.back_at IS NULL AND NOT EXISTS (
        SELECT FROM jsonb_to_recordset(unreachable) AS u (tube text, use text, bootstrap_servers text)
        WHERE (u.tube, u.use, u.bootstrap_servers) = (k.tube, k.use, k.bootstrap_servers));
    DELETE FROM tube_kafka AS k
    WHERE (k.instance_id, k.tube, k.use, k.bootstrap_servers) IN (
        SELECT o.instance_id, o.tube, o.use, o.bootstrap_servers FROM tube_kafka AS o
        WHERE o.instance_id <> me AND o.seen_at < clock_timestamp() - interval '1 hour'
        FOR UPDATE SKIP LOCKED);
    INSERT INTO tube_kafka AS k (instance_id, tube, use, bootstrap_servers, client_id, reason, since, seen_at)
    SELECT me, u.tube, u.use, u.bootstrap_servers, label, u.reason,
        clock_timestamp() - u.seconds * interval '1 second', clock_timestamp()
    FROM jsonb_to_recordset(unreachable)
        AS u (tube text, use text, bootstrap_servers text, reason text, seconds float8)
    ON CONFLICT ON CONSTRAINT tube_kafka_pkey
    DO UPDATE SET client_id = excluded.client_id, reason = excluded.reason,
        -- Of one outage the first: each report comes a little later than it was made.
        since = CASE WHEN k.back_at IS NULL
                AND excluded.since BETWEEN k.since - interval '10 seconds' AND k.since + interval '10 seconds'
            THEN k.since ELSE excluded.since END,
        seen_at = excluded.seen_at, back_at = NULL;
END
$$;
COMMENT ON FUNCTION :"schema".tube_kafka_report IS
    'Reports which Kafka clusters a process needs and can''t reach: objects with tube, use (election, delivery, refused, unfollowed), '
    'bootstrap_servers, reason and seconds. Counts for 30 s.';

-- Result: a row for each process, tube or outbox, use and cluster, as the process said within the last 30 s. use:
--   'election', so the process can't be elected to lead free partitions; 'delivery', so records wait; 'refused', so
--   the process does not serve it; 'unfollowed', so it can't follow a change of its tables. reason: the latest. since: when the
--   process first found it so. No row for a tube that is gone.
CREATE OR REPLACE FUNCTION :"schema".tube_kafka_unreachable() RETURNS TABLE (
    tube text, use text, bootstrap_servers text, instance_id uuid, client_id text, reason text, since timestamptz,
    seen_at timestamptz
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT k.tube, k.use, k.bootstrap_servers, k.instance_id, k.client_id, k.reason, k.since, k.seen_at
    FROM tube_kafka AS k JOIN tube_registry AS r ON r.tube = k.tube
    WHERE k.seen_at > clock_timestamp() - interval '30 seconds' AND k.back_at IS NULL
    ORDER BY k.bootstrap_servers, k.tube, k.use, k.instance_id
$$;
COMMENT ON FUNCTION :"schema".tube_kafka_unreachable IS 'Lists Kafka clusters that processes need and can''t reach, as reported in the last 30 s.';

-- Result: a row for each process and tube or outbox. back_at: when the process said so. It may have ended since.
CREATE OR REPLACE FUNCTION :"schema".tube_kafka_back() RETURNS TABLE (
    tube text, instance_id uuid, client_id text, back_at timestamptz
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT k.tube, k.instance_id, k.client_id, max(k.back_at)
    FROM tube_kafka AS k JOIN tube_registry AS r ON r.tube = k.tube
    WHERE k.use = 'election' AND k.back_at > clock_timestamp() - interval '1 minute'
    GROUP BY 1, 2, 3 ORDER BY 1, 3, 2
$$;
COMMENT ON FUNCTION :"schema".tube_kafka_back IS
    'Lists processes that reached Kafka again within the last minute, and may wait to be elected.';
