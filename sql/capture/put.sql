-- tube_private_put_body: the text of an attachment's put(op, ids), which puts ids into the tube.
-- It knows the shards and whether the table is the root of them, so the functions of owners need not change when
-- these do. Only built-in types come in. All names are in full: a separate search path would cost each statement a
-- microsecond.
-- put: op: I, U or D; W only wakes the workers of the ids; ids: NULLs are left out. NULL says that it is not known which:
--   with D, rows went that could not be read, and a sweep finds them; else a backfill is asked for.
--   Its result is true.
CREATE OR REPLACE FUNCTION :"schema".tube_private_put_body(att :"schema".tube_attachment) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(att.tube);
    is_unique CONSTANT boolean := tube_private_key_is_unique(att);
BEGIN
    RETURN tube_private_fill($put$
-- Made by tube_private_put_body.
BEGIN
    IF $2 IS NULL THEN
        PERFORM <schema>.tube_private_resync(<tube>, <name>, <table_name>, <shard>, <shards>, $1 OPERATOR(pg_catalog.=) 'D', <companion_of>);
        RETURN true;
    ELSIF $1 OPERATOR(pg_catalog.<>) 'W' THEN
        IF pg_catalog.cardinality($2) OPERATOR(pg_catalog.=) 1 AND $2[1] IS NOT NULL THEN
            INSERT INTO <queue> (op, shard, ids) VALUES (<op>, <shard_of_one>, $2);
        ELSE
            INSERT INTO <queue> (op, shard, ids)
            SELECT <op>, g.shard, g.ids[c.first : c.first OPERATOR(pg_catalog.+) 249]
            FROM (<by_shard> OFFSET 0) AS g, LATERAL pg_catalog.generate_series(1, pg_catalog.cardinality(g.ids), 250) AS c (first);
        END IF;
    END IF;
    -- After the INSERT: a worker that falls asleep after this look reads a seq that is at least as high.
    IF pg_catalog.pg_sequence_last_value(<sleeps>) OPERATOR(pg_catalog.>) 1 THEN
        PERFORM <schema>.tube_private_wake_sleepers(<tube>, <touched>);
    END IF;
    RETURN true;
END
$put$, jsonb_build_object(
        'schema', quote_ident(tube_private_schema()),
        'queue', tube_private_qualify(att.tube),
        'tube', quote_literal(att.tube),
        'name', quote_literal(att.trigger_function),
        'table_name', quote_literal(tube_private_table_name(att.tbl)),
        'shard', att.shard,
        'shards', att.shards,
        'companion_of', quote_nullable(reg.companion_of),
        'sleeps', tube_private_flag_sql(att.tube),
        'op', tube_private_op_sql(CASE WHEN tube_private_is_root(att) THEN 'CASE WHEN $1 OPERATOR(pg_catalog.=) ''I'''
            ' OR $1 OPERATOR(pg_catalog.=) ''D'' THEN $1 ELSE ''U'' END' ELSE '''U''' END),
        'shard_of_one', tube_private_shard_expression('$2[1]', att),
        -- The array is copied once: a slice of a parameter would copy all of it for each pod.
        'by_shard', CASE
            WHEN att.shards > 1 THEN format('SELECT %s AS shard, pg_catalog.array_agg(%st.id) AS ids'
                ' FROM pg_catalog.unnest($2) AS t (id) WHERE t.id IS NOT NULL GROUP BY 1',
                tube_private_shard_expression('t.id', att),
                CASE WHEN is_unique THEN '' ELSE 'DISTINCT ' END)
            WHEN is_unique THEN format('SELECT %s AS shard, CASE WHEN pg_catalog.array_position($2, NULL) IS NULL'
                ' THEN $2 OPERATOR(pg_catalog.||) ''{}''::%s[] ELSE pg_catalog.array_remove($2, NULL) END AS ids', att.shard,
                tube_private_type_sql(reg.key_type))
            ELSE format('SELECT %s AS shard, ARRAY(SELECT DISTINCT t.id%s FROM pg_catalog.unnest($2) AS t (id) WHERE t.id IS NOT NULL) AS ids',
                att.shard, CASE reg.key_type WHEN 'text'::regtype THEN ' COLLATE pg_catalog."C"' ELSE '' END) END,
        'touched', format('ARRAY(SELECT DISTINCT %s FROM pg_catalog.unnest($2) AS t (id) WHERE t.id IS NOT NULL)',
            tube_private_shard_expression('t.id', att))));
END
$$;

-- tube_private_flag_sql: the flag of a tube, which says whether a worker of it sleeps, as SQL text.
CREATE OR REPLACE FUNCTION :"schema".tube_private_flag_sql(tube text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT format('%L::pg_catalog.regclass', tube_private_qualify('tube_sleeps_' || r.number)) FROM tube_registry AS r WHERE r.tube = $1
$$;

-- tube_private_resync: asks for what finds the writes of an attached table that could not be captured.
-- Where rows of a root table only went, for a sweep; else for a backfill of the root table of its shards, which ends with
-- one. A waiting one will do, as it is taken after all writers up to now; not a marked one, which may be
-- under way, nor one of another role, maybe by a missing column. Of a companion, for a backfill of the
-- documents: its ids are not theirs, and a deleted row does not say which of them it was in.
-- Arguments: name: of the attachment's trigger function; the rest for a snapshot that does not show the attachment yet.
CREATE OR REPLACE FUNCTION :"schema".tube_private_resync(
    tube text, name text, table_name text, shard integer, shards integer, rows_went boolean, companion_of text
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET enable_seqscan = off AS $$
DECLARE
    att CONSTANT tube_attachment := (SELECT a FROM tube_attachment AS a WHERE a.trigger_function = name AND a.tube = $1);
    root CONSTANT text := coalesce((
        SELECT tube_private_table_name(a.tbl) FROM tube_attachment AS a JOIN pg_class AS c ON c.oid = a.tbl
        WHERE a.tube = $1 AND a.shard = $4 ORDER BY a.position LIMIT 1), table_name);
BEGIN
    IF companion_of IS NOT NULL THEN
        PERFORM tube_private_resync_documents(companion_of, table_name);
        RETURN;
    ELSIF rows_went AND (att.tube IS NULL OR tube_private_is_root(att)) THEN
        -- The transaction has its id before it draws a seq, as where a tube's own are drawn.
        PERFORM tube_private_put_control_pods(tube, 'B', jsonb_build_object('type', 'sweep', 'start_seq',
                CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('tube_seq') END::text),
            ARRAY(SELECT generate_series(shard, shard + (shards - 1))));
        RETURN;
    END IF;
    PERFORM tube_private_ask_once(tube, shard, root, att.keys[1]);
END
$$;

-- tube_private_ask_once: asks for a backfill of the root table of a shard, unless a writer's request waits.
-- An old snapshot may still show a taken one: the newest version of a row has no xmax. Of writers at the same time each
-- may ask: see tube_backfill_take.
CREATE OR REPLACE FUNCTION :"schema".tube_private_ask_once(tube text, shard integer, root text, order_col name) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    waits boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE payload IS NOT NULL AND ids = ''{}'' AND shard = $1 AND leader_id IS NULL'
        ' AND payload ->> ''type'' = ''backfill_schedule'' AND payload ->> ''tbl'' = $2 AND payload ? ''resync'''
        ' AND NOT tube_private_is_replaced(xmax))', tube_private_qualify(tube))
    INTO waits USING shard, root;
    IF NOT waits THEN
        PERFORM tube_private_put_schedule(tube, shard, root, order_col, true);
    END IF;
END
$$;

-- tube_private_table_name: the name of a table with its schema, as control pods have it.
CREATE OR REPLACE FUNCTION :"schema".tube_private_table_name(tbl oid) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = tbl
$$;

-- tube_private_wake_sleepers: wakes the workers that sleep on the partitions of some shards (NULL: of all), where tube_wakes()
-- allows it and there is room. A transaction at REPEATABLE READ may be too old to see who sleeps: it wakes all of these partitions.
-- Locks: none until the commit, which is ordered with all others that notify.
CREATE OR REPLACE FUNCTION :"schema".tube_private_wake_sleepers(tube text, touched integer[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM pg_notify(tube_channel(p.tube), p.partition::text)
    FROM (
        SELECT s.tube, s.partition, s.partitions FROM tube_sleeper AS s WHERE s.tube = tube_private_wake_sleepers.tube
        UNION
        SELECT r.tube, n, r.partitions FROM tube_registry AS r, generate_series(0, r.partitions - 1) AS n
        WHERE r.tube = tube_private_wake_sleepers.tube
            AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')
    ) AS p
    WHERE tube_wakes() AND (SELECT tube_private_may_notify()) AND (touched IS NULL
        OR EXISTS (SELECT FROM unnest(touched) AS t (shard) WHERE t.shard % p.partitions = p.partition));
END
$$;

-- tube_private_may_notify: whether the server's queue of notifications has room. Anybody who may log in can fill it, and then
-- each commit fails that notifies.
CREATE OR REPLACE FUNCTION :"schema".tube_private_may_notify() RETURNS boolean
LANGUAGE sql VOLATILE AS $$ SELECT pg_notification_queue_usage() < 0.5 $$;

-- A transaction that has made a NOTIFY can't be prepared. Where transactions may be prepared, writers
-- therefore make none, and workers have to poll, unless the setting pytube.wake (of the session, the
-- role, the database or the server) is on. With off there is never one.
-- Result: true or false, for this session's settings.
CREATE OR REPLACE FUNCTION :"schema".tube_wakes() RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    RETURN coalesce(
        nullif(current_setting('pytube.wake', true), '')::boolean,
        current_setting('max_prepared_transactions') = '0');
EXCEPTION WHEN invalid_text_representation THEN
    RETURN false; -- no writer may fail over this setting
END
$$;
COMMENT ON FUNCTION :"schema".tube_wakes IS
    'Returns whether writers wake sleeping workers, by this session''s settings.';
