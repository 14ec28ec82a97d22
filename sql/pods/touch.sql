-- Touches on request: {tube}_touch, and {table}_touch in the schema of an attached table.
--
-- {table}_touch belongs to the table's owner and only calls pytube's function, on which it depends: so it goes with it. Writers
-- and the table's owner may call pytube's. There is one for each type of keys. None of these functions knows a shard, or
-- which tubes a table has: they look, so attachments change without them.

-- tube_private_touch: what these functions do, for a tube and a range of shards: each id once, in the order given; no ids
-- and a payload: a control pod in each of the shards.
-- Errors: TU106 the range is one shard, and an id has another one of its table.
CREATE OR REPLACE FUNCTION :"schema".tube_private_touch(
    tube text, shard integer, shards integer, ids anyarray, op text, payload jsonb, chunk_size integer
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    touched integer[];
BEGIN
    PERFORM tube_private_check_touch(shard, ids, op, chunk_size);
    IF cardinality(ids) > 0 THEN
        touched := (tube_private_put_ids(tube, shard, tube_private_session_op(op), ids, chunk_size, payload, once => true)).touched;
        PERFORM tube_private_refuse_shard(tube, shard, ids) WHERE shards = 1 AND touched <> ARRAY[shard];
    ELSIF payload IS NOT NULL THEN
        PERFORM tube_private_put_control_pods(tube, op, payload, ARRAY(SELECT generate_series(shard, shard + (shards - 1))));
    END IF;
END
$$;

-- tube_private_refuse_shard: raises TU106 for ids of a table that is spread over several shards, one of which has another than
-- the given one.
CREATE OR REPLACE FUNCTION :"schema".tube_private_refuse_shard(tube text, shard integer, ids anyarray) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    att CONSTANT tube_attachment := (SELECT a FROM tube_attachment AS a
        WHERE a.tube = tube AND a.shards > 1 AND shard BETWEEN a.shard AND a.shard + (a.shards - 1) LIMIT 1);
    wrong record;
BEGIN
    EXECUTE format('SELECT * FROM (SELECT t.id, %s FROM unnest($1) AS t (id)) AS t (id, its) WHERE t.its <> $2 LIMIT 1',
        tube_private_shard_expression('t.id', att, of_row => false)) INTO wrong USING ids, shard;
    RAISE EXCEPTION USING ERRCODE = 'TU106',
        MESSAGE = format('the id %s is not in the shard %s, but in %s', wrong.id, shard, wrong.its),
        HINT = format('A table is spread over the shards %1$s to %2$s. Touch it by its own touch function, or take the shard '
            'from tube_shard_of(%4$s, %1$s, %3$s).', att.shard, att.shard + (att.shards - 1), att.shards,
            coalesce(format('tube_key_part(id, %s)', att.shard_place), 'id'));
END
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

-- tube_private_provide_touch: makes or repairs pytube's function behind a table's {table}_touch.
-- Locks: tube_private_lock_touch.
CREATE OR REPLACE FUNCTION :"schema".tube_private_provide_touch(att :"schema".tube_attachment) RETURNS void
LANGUAGE plpgsql SET quote_all_identifiers = off AS $$
DECLARE
    key_type CONSTANT regtype := tube_private_key_type(att.tube);
BEGIN
    PERFORM tube_private_lock_touch(att.tbl);
    PERFORM tube_private_make_touch(tube_private_qualify(att.touch_name), format('%s[], char, jsonb, integer', key_type),
        format('ids %s[], op character, payload jsonb, chunk_size integer', key_type),
        format(E'\n-- Made by tube_private_provide_touch.\nBEGIN\n'
            '    PERFORM tube_private_touch(a.tube, a.shard, a.shards, $1, $2, $3, $4)\n'
            '    FROM tube_attachment AS a WHERE a.touch_name = %L ORDER BY a.tube;\nEND\n', att.touch_name),
        ARRAY[quote_ident(tube_private_role('writer'))::regrole, tube_private_owner_of(att.tbl)]);
END
$$;

-- tube_private_drop_touch: drops it, and {table}_touch with it, where no attachment is left that it is for.
-- Locks: tube_private_lock_touch.
CREATE OR REPLACE FUNCTION :"schema".tube_private_drop_touch(gone :"schema".tube_attachment) RETURNS void
LANGUAGE plpgsql SET client_min_messages = warning AS $$
BEGIN
    PERFORM tube_private_lock_touch(gone.tbl);
    IF NOT EXISTS (SELECT FROM tube_attachment AS a WHERE a.touch_name = gone.touch_name) THEN
        EXECUTE format('DROP FUNCTION IF EXISTS %s CASCADE', tube_private_qualify(gone.touch_name));
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
