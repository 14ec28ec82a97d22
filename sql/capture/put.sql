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
    ELSIF rows_went AND att.as_root IS NOT false THEN
        -- The transaction has its id before it draws a seq, as where a tube's own are drawn.
        PERFORM tube_private_put_control_pods(tube, 'B', jsonb_build_object('type', 'sweep', 'start_seq',
                CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('tube_seq') END::text),
            ARRAY(SELECT generate_series(shard, shard + (shards - 1))));
        RETURN;
    END IF;
    PERFORM tube_private_ask_once(tube, shard, root, att.id_col);
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

-- tube_private_tube_touch_body: the text of {tube}_touch (shard, ids, op, payload, chunk_size).
CREATE OR REPLACE FUNCTION :"schema".tube_private_tube_touch_body(tube text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    key_type CONSTANT regtype := tube_private_key_type(tube);
BEGIN
    RETURN tube_private_fill($template$
-- Made by tube_private_tube_touch_body.
#variable_conflict use_column
DECLARE
    touch_shard CONSTANT integer := $1;
    touch_ids CONSTANT <key>[] := coalesce($2, '{}');
    touch_op text := $3;
    touch_chunk CONSTANT integer := $5;
    wrong record;
BEGIN
    PERFORM tube_private_check_touch(touch_shard, touch_ids, touch_op, touch_chunk);
    IF touch_ids = '{}' THEN
        IF $4 IS NULL THEN
            RETURN;
        END IF;
        INSERT INTO <queue> (op, shard, ids, payload) VALUES (touch_op, touch_shard, '{}', $4);
    ELSE
        SELECT t.id, a.shard, a.shards, s.its, a.shard_place INTO wrong FROM tube_attachment AS a, unnest(touch_ids) AS t (id),
            tube_shard_of(<part>, a.shard, a.shards) AS s (its)
        WHERE a.tube = <tube> AND a.shards > 1 AND touch_shard BETWEEN a.shard AND a.shard + (a.shards - 1)
            AND s.its IS DISTINCT FROM touch_shard LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'TU106',
                MESSAGE = format('the id %s is not in the shard %s, but in %s', wrong.id, touch_shard, wrong.its),
                HINT = format('A table is spread over the shards %1$s to %2$s. Touch it by its own touch function, or take the shard '
                    'from tube_shard_of(%4$s, %1$s, %3$s).', wrong.shard, wrong.shard + (wrong.shards - 1), wrong.shards,
                    coalesce(format('tube_key_part(id, %s)', wrong.shard_place), 'id'));
        END IF;
        IF strpos(current_setting('application_name'), 'backfill') > 0 THEN
            touch_op := 'B';
        END IF;
        INSERT INTO <queue> (op, shard, ids, payload)
        SELECT touch_op, touch_shard, array_agg(k.id ORDER BY k.place), $4
        FROM (
            SELECT d.id, d.place, (row_number() OVER (ORDER BY d.place) - 1) / touch_chunk AS chunk
            FROM (
                SELECT t.id<binary> AS id, min(t.place) AS place
                FROM unnest(touch_ids) WITH ORDINALITY AS t (id, place) GROUP BY 1
            ) AS d
        ) AS k
        GROUP BY k.chunk
        ORDER BY k.chunk;
    END IF;
    PERFORM tube_private_wake_sleepers(<tube>, ARRAY[touch_shard]);
END
$template$, jsonb_build_object(
        'key', key_type,
        'binary', CASE key_type WHEN 'text'::regtype THEN ' COLLATE "C"' ELSE '' END,
        'part', CASE key_type WHEN 'text'::regtype THEN 'tube_key_part(t.id, a.shard_place)' ELSE 't.id' END,
        'queue', tube_private_qualify(tube),
        'tube', quote_literal(tube)));
END
$$;

-- tube_private_table_touch_body: the text of {table}_touch (ids, op, payload, chunk_size), which touches every tube
-- of the table with such keys; NULL when there is none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_table_touch_body(tbl regclass, key_type regtype) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT E'\n-- Made by tube_private_table_touch_body.\nBEGIN\n    PERFORM tube_private_check_touch(0, $1, $2, $4);' 
        || string_agg(tube_private_fill($touch$
    PERFORM <touch>(k.shard, k.ids, $2, $3, $4)
    FROM (
        SELECT d.shard, array_agg(d.id ORDER BY d.place) AS ids
        FROM (
            SELECT t.id, t.place, <shard_of> AS shard FROM unnest($1) WITH ORDINALITY AS t (id, place)
        ) AS d
        GROUP BY d.shard ORDER BY d.shard
    ) AS k;
    IF coalesce($1, '{}') = '{}' AND $3 IS NOT NULL THEN
        PERFORM <touch>(<shard> + n, $1, $2, $3, $4) FROM generate_series(0, <last>) AS n;
    END IF;$touch$, jsonb_build_object(
            'touch', tube_private_qualify(tube_private_name(a.tube, '_touch')),
            'shard', a.shard,
            'last', a.shards - 1,
            'shard_of', tube_private_shard_expression('t.id', a, of_row => false))), '' ORDER BY a.tube) || E'\nEND\n'
    FROM tube_attachment AS a WHERE a.tbl = $1 AND tube_private_key_type(a.tube) = $2
$$;

-- tube_private_lock_touch: lets one transaction at a time name, make or drop pytube's function behind a table's
-- {table}_touch.
-- Locks: an advisory lock per table, until the transaction ends: two tubes may be at it at once.
CREATE OR REPLACE FUNCTION :"schema".tube_private_lock_touch(tbl regclass) RETURNS void
LANGUAGE sql AS $$ SELECT pg_advisory_xact_lock(hashtextextended(tube_private_schema() || ' touch', tbl::oid::bigint)) $$;

-- tube_private_touch_name: the name of pytube's function behind a table's {table}_touch, unquoted.
-- The same for all tubes of a table with one type of keys: that of the first one, which has the digest of its trigger function.
-- Stored, since a restored table has another number, and a renamed one another name.
-- Locks: tube_private_lock_touch: of two tubes that get a table at once, the second one finds the name of the first.
CREATE OR REPLACE FUNCTION :"schema".tube_private_touch_name(att :"schema".tube_attachment) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tube_private_lock_touch(att.tbl);
    RETURN coalesce(
        (SELECT min(a.touch_name) FROM tube_attachment AS a
        WHERE a.tbl = att.tbl AND tube_private_key_type(a.tube) = tube_private_key_type(att.tube)),
        'tube_touch_' || right(att.trigger_function, 8));
END
$$;

-- tube_private_provide_touch: makes, repairs or drops pytube's function behind a table's {table}_touch.
-- {table}_touch belongs to the table's owner and only calls pytube's, on which it depends: so it goes with it. Writers and
-- the table's owner may call pytube's. There is one for each type of keys.
-- Arguments: att: its table may be gone; attaching: whether it is about to be stored.
-- Locks: tube_private_lock_touch.
CREATE OR REPLACE FUNCTION :"schema".tube_private_provide_touch(
    att :"schema".tube_attachment, attaching boolean = false
) RETURNS void
LANGUAGE plpgsql SET client_min_messages = warning SET quote_all_identifiers = off AS $$
DECLARE
    key_type CONSTANT regtype := tube_private_key_type(att.tube);
    name CONSTANT text := tube_private_qualify(att.touch_name);
    body CONSTANT text := coalesce(tube_private_table_touch_body(att.tbl, key_type),
        CASE WHEN attaching THEN E'\n-- Made by tube_private_table_touch_body.\nBEGIN\nEND\n' END);
BEGIN
    PERFORM tube_private_lock_touch(att.tbl);
    IF body IS NULL THEN
        EXECUTE format('DROP FUNCTION IF EXISTS %s CASCADE', name);
    ELSE
        PERFORM tube_private_make_touch(name, format('%s[], char, jsonb, integer', key_type),
            format('ids %s[], op character, payload jsonb, chunk_size integer', key_type), body,
            ARRAY[quote_ident(tube_private_role('writer'))::regrole, tube_private_owner_of(att.tbl)]);
    END IF;
END
$$;

-- tube_private_touch_ddl: the statements that put {table}_touch beside an attached table, and take it away where the
-- table was before it was renamed, moved or given to another owner; where the table's schema has another function of that
-- name and arguments, the statement fails with TU107.
CREATE OR REPLACE FUNCTION :"schema".tube_private_touch_ddl(att :"schema".tube_attachment) RETURNS SETOF text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    key_type CONSTANT regtype := tube_private_key_type(att.tube);
    inner_name CONSTANT text := tube_private_qualify(att.touch_name);
    rel record;
    there pg_proc;
    outer_ones oid[];
BEGIN
    SELECT c.relowner, n.nspname, n.oid AS schema_oid, tube_private_name(c.relname, '_touch') AS touch_name INTO rel
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = att.tbl;
    -- By the catalog: pytube's owner may not look into the schema.
    SELECT p.* INTO there FROM pg_proc AS p
    WHERE p.pronamespace = rel.schema_oid AND p.proname = rel.touch_name
        AND p.proargtypes::text = concat_ws(' ', to_regtype(key_type || '[]')::oid, 'bpchar'::regtype::oid, 'jsonb'::regtype::oid,
            'integer'::regtype::oid);
    outer_ones := ARRAY(SELECT d.objid FROM pg_depend AS d
        WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_proc'::regclass AND d.refobjid = to_regproc(inner_name));
    RETURN QUERY SELECT format('DROP FUNCTION %s', p.oid::regprocedure) FROM pg_proc AS p
    WHERE p.oid = ANY (outer_ones) AND CASE WHEN p.oid = there.oid THEN p.proowner <> rel.relowner OR p.prosecdef
        ELSE p.proowner IN (rel.relowner, (SELECT k.proowner FROM pg_proc AS k
            WHERE k.oid = to_regprocedure(tube_private_function(att, 'capture') || '()'))) END;
    IF there.oid = ANY (outer_ones) AND there.proowner = rel.relowner AND NOT there.prosecdef THEN
        RETURN;
    ELSIF there.oid IS NOT NULL AND there.oid <> ALL (outer_ones) THEN
        -- Only when it is run: an obstacle for one table must not keep others from being looked at.
        RETURN NEXT format('SELECT %I.tube_private_refuse_touch(%L, %s)', tube_private_schema(), att.tbl, there.oid);
        RETURN;
    END IF;
    RETURN NEXT format('CREATE FUNCTION %I.%I(ids %s[], op char DEFAULT ''T'', payload jsonb DEFAULT NULL,'
        ' chunk_size integer DEFAULT 250) RETURNS void LANGUAGE sql VOLATILE BEGIN ATOMIC SELECT %s($1, $2, $3, $4); END',
        rel.nspname, rel.touch_name, key_type, inner_name);
    RETURN NEXT format('ALTER FUNCTION %I.%I(%s[], character, jsonb, integer) OWNER TO %s',
        rel.nspname, rel.touch_name, key_type, rel.relowner::regrole);
END
$$;

-- tube_private_refuse_touch: raises TU107: another function has the name that the touches of a table need.
CREATE OR REPLACE FUNCTION :"schema".tube_private_refuse_touch(tbl regclass, other oid) RETURNS void
LANGUAGE plpgsql STABLE SECURITY INVOKER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'TU107',
        MESSAGE = format('%s can''t be attached: there is a function %s already', tbl, other::regprocedure),
        HINT = 'Its name is needed for the touches of the table: rename or drop it. If pg-tube has made it, detach the table '
            'from all tubes of pg-tube first, in the same transaction.';
END
$$;

-- tube_private_check_touch: refuses arguments that no touch function can take.
-- Errors: TU106 no shard, or a negative one; 22004 a NULL among the ids; 22023 another op than I, U, D,
--   T, B, or a chunk size below 1.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_touch(
    shard integer, ids anyarray, op text, chunk_size integer
) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF shard IS NULL OR shard < 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'TU106',
            MESSAGE = format('there is no shard %s', coalesce(shard::text, 'NULL')),
            HINT = 'Shards are 0 and more.';
    ELSIF array_position(ids, NULL) IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed',
            MESSAGE = 'one of the ids to touch is NULL', HINT = 'Leave it out.';
    ELSIF op IS NULL OR op NOT IN ('I', 'U', 'D', 'T', 'B') THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('there is no op %s', coalesce(quote_literal(op), 'NULL')),
            HINT = 'Give I, U, D, T or B.';
    ELSIF chunk_size IS NULL OR chunk_size < 1 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('a pod can''t have %s ids', coalesce(chunk_size::text, 'NULL')),
            HINT = 'Give a chunk_size of 1 or more.';
    END IF;
END
$$;
