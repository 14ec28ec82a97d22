-- tube_private_put_body: the text of an attachment's put(op, ids), which puts ids into the tube.
--
-- It knows the shards and whether the table is the root of them, so the functions of owners need not change when
-- these do. Only built-in types come in. All names are in full: a search path of its own would cost each statement a
-- microsecond.
--
-- put: op: I, U or D; ids: NULLs are left out; NULL asks for a sweep of the shards, since not all rows could be read.
--   Its result is whether there was no NULL.
CREATE OR REPLACE FUNCTION :"schema".tube_private_put_body(att :"schema".tube_attachment) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(att.tube);
    is_unique CONSTANT boolean := tube_private_key_is_unique(att);
BEGIN
    RETURN tube_private_fill($put$
-- Made by tube_private_put_body.
BEGIN
    IF pg_catalog.array_position($2, NULL) IS NOT NULL THEN
        PERFORM <put>($1, pg_catalog.array_remove($2, NULL));
        RETURN false;
    ELSIF pg_catalog.cardinality($2) OPERATOR(pg_catalog.=) 1 THEN
        INSERT INTO <queue> (op, shard, ids) VALUES (<op>, <shard_of_one>, $2);
    ELSIF $2 IS NULL THEN
        PERFORM <schema>.tube_private_sweep(<tube>, <shard>, <shards>);
        RETURN true;
    ELSE
        INSERT INTO <queue> (op, shard, ids)
        SELECT <op>, g.shard, g.ids[c.first : c.first OPERATOR(pg_catalog.+) 249]
        FROM (<by_shard> OFFSET 0) AS g, LATERAL pg_catalog.generate_series(1, pg_catalog.cardinality(g.ids), 250) AS c (first);
    END IF;
    -- After the INSERT: a worker that falls asleep after this look reads a seq that is at least as high.
    IF pg_catalog.pg_sequence_last_value(<sleeps>) OPERATOR(pg_catalog.>) 1 THEN
        PERFORM <schema>.tube_private_wake_sleepers(<tube>, <touched>);
    END IF;
    RETURN true;
END
$put$, jsonb_build_object(
        'put', tube_private_function(att, 'put'),
        'schema', quote_ident(tube_private_schema()),
        'queue', tube_private_qualify(att.tube),
        'tube', quote_literal(att.tube),
        'shard', att.shard,
        'shards', att.shards,
        'sleeps', format('%L::pg_catalog.regclass', tube_private_qualify('tube_sleeps_' || reg.number)),
        'op', format('CASE WHEN pg_catalog.strpos(pg_catalog.current_setting(''application_name''), ''backfill'')'
            ' OPERATOR(pg_catalog.>) 0 THEN ''B'' ELSE %s END',
            CASE WHEN tube_private_is_root(att) THEN '$1' ELSE '''U''' END),
        'shard_of_one', tube_private_shard_expression('$2[1]', att.shard, att.shards),
        -- The array is copied once: a slice of a parameter would copy all of it for each pod.
        'by_shard', CASE
            WHEN att.shards > 1 THEN format('SELECT %s AS shard, pg_catalog.array_agg(%st.id) AS ids'
                ' FROM pg_catalog.unnest($2) AS t (id) GROUP BY 1',
                tube_private_shard_expression('t.id', att.shard, att.shards),
                CASE WHEN is_unique THEN '' ELSE 'DISTINCT ' END)
            WHEN is_unique THEN format('SELECT %s AS shard, $2 OPERATOR(pg_catalog.||) ''{}''::%s[] AS ids', att.shard,
                tube_private_type_sql(reg.key_type))
            ELSE format('SELECT %s AS shard, ARRAY(SELECT DISTINCT t.id%s FROM pg_catalog.unnest($2) AS t (id)) AS ids',
                att.shard, CASE reg.key_type WHEN 'text'::regtype THEN ' COLLATE pg_catalog."C"' ELSE '' END) END,
        'touched', CASE att.shards WHEN 1 THEN format('''{%s}''', att.shard) ELSE format(
            'ARRAY(SELECT DISTINCT %s FROM pg_catalog.unnest($2) AS t (id))',
            tube_private_shard_expression('t.id', att.shard, att.shards)) END));
END
$$;

-- tube_private_wake_sleepers: wakes the workers that sleep on the partitions of some shards.
--
-- Called only while somebody sleeps. A transaction at REPEATABLE READ may be too old to see who: it wakes all of these
-- partitions. With touched NULL, those of all shards.
--
-- Locks: none until the commit, which is ordered with all others that notify.
CREATE OR REPLACE FUNCTION :"schema".tube_private_wake_sleepers(tube text, touched integer[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM tube_private_notify(tube_channel(p.tube), p.partition)
    FROM (
        SELECT s.tube, s.partition, s.partitions FROM tube_sleeper AS s WHERE s.tube = tube_private_wake_sleepers.tube
        UNION
        SELECT r.tube, n, r.partitions FROM tube_registry AS r, generate_series(0, r.partitions - 1) AS n
        WHERE r.tube = tube_private_wake_sleepers.tube
            AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')
    ) AS p
    WHERE touched IS NULL OR EXISTS (SELECT FROM unnest(touched) AS t (shard) WHERE t.shard % p.partitions = p.partition);
END
$$;

-- tube_private_sweep: asks for a sweep of shards: documents that the source no longer has are to go.
--
-- Arguments: tube; shard, shards: as of tube_shard_of.
-- Result: nothing. A control pod per shard: {"type":"sweep","start_seq":"N"}.
CREATE OR REPLACE FUNCTION :"schema".tube_private_sweep(tube text, shard integer, shards integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    start_seq bigint := CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('tube_seq') END;
BEGIN
    EXECUTE format('INSERT INTO %s (op, shard, ids, payload) '
        'SELECT ''B'', $1 + n, ''{}'', $2 FROM generate_series(0, $3 - 1) AS n', tube_private_qualify(tube))
    USING shard, jsonb_build_object('type', 'sweep', 'start_seq', start_seq::text), shards;
    PERFORM tube_private_wake_sleepers(tube, NULL);
END
$$;

-- tube_private_notify: wakes the worker that sleeps on a partition, where tube_wakes() allows it.
--
-- Arguments: channel: of the tube; partition.
-- Locks: none until the commit, which is ordered with all others that notify.
CREATE OR REPLACE FUNCTION :"schema".tube_private_notify(channel text, partition integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    IF tube_wakes() THEN
        PERFORM pg_notify(channel, partition::text);
    END IF;
END
$$;

-- tube_wakes: whether writers wake sleeping workers here.
--
-- A transaction that has made a NOTIFY can't be prepared. Where transactions may be prepared, writers
-- therefore make none, and workers have to poll, unless the setting pytube.wake (of the session, the
-- role, the database or the server) is on. With off there is never one.
--
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
    'Returns whether writers wake sleeping workers in this session.';
