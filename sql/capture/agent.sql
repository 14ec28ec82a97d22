-- tube_private_agent_body: the text of agent(rel, triggers, op, seal), by which the owner of an attached table lets us go on.
--
-- It belongs to the owner and runs with their rights; nobody may call it but they and tube_private_call_agent. It does
-- two things and no more: it puts the capture triggers on a partition that has come, and it touches all rows of a table.
--
-- agent: rel: the table, or one of its partitions; triggers: the names of those for INSERT, UPDATE, DELETE, TRUNCATE
--   and rows of replication, NULL for one that is not to be made; op: of the touches, or NULL. Its result is whether
--   all rows could be touched; false where it asked for a sweep instead, since row security or a missing privilege
--   hides rows, or the snapshot is older than some of them. TRUNCATE must not fail over that.
--
-- Rows are read a stretch of pages at a time, so memory is that of a stretch, whatever the size of the table.
--
-- Result: the body of a plpgsql function.
CREATE OR REPLACE FUNCTION :"schema".tube_private_agent_body(att :"schema".tube_attachment) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT tube_private_fill($body$
-- Made by tube_private_agent_body.
#variable_conflict use_variable
DECLARE
    kinds CONSTANT text[] := <kinds>;
    stretch CONSTANT bigint := 500;
    pages bigint;
    page bigint := 0;
    key text;
    statement text;
BEGIN
    FOR n IN 1..5 LOOP
        CONTINUE WHEN triggers IS NULL OR triggers[n] IS NULL;
        EXECUTE format('CREATE TRIGGER %I ' || kinds[n] || ' EXECUTE FUNCTION %s()', triggers[n], rel, <capture>);
        IF n = 5 THEN
            EXECUTE format('ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER %I, ENABLE REPLICA TRIGGER %I', rel, triggers[4], triggers[5]);
        END IF;
    END LOOP;
    IF op IS NULL THEN
        RETURN true;
    END IF;
    key := <schema>.tube_private_key_now(<name>, rel, <key>);
    IF key IS NULL THEN
        RETURN true;
    ELSIF NOT has_table_privilege(rel, 'SELECT') OR row_security_active(rel)
        -- To plan a query is to run code of its tables' owners: of a partition, or of a table that was given away. A role
        -- that has the rights of those would lend them its own.
        OR EXISTS (SELECT FROM pg_class AS c WHERE c.oid = rel AND c.relowner <> quote_ident(current_user)::regrole)
        OR NOT <schema>.tube_private_shows_owner(rel)
    THEN
        PERFORM <put>(op, NULL);
        RETURN false;
    END IF;
    statement := concat(<touch>, key, <from_only>, rel, ' WHERE ctid >= $2 AND ctid < $3 AND (',
        CASE WHEN <guard> THEN <passes> ELSE 'true' END, ')) AS t');
    pages := pg_relation_size(rel) / current_setting('block_size')::bigint;
    WHILE page < pages LOOP
        EXECUTE statement USING op, format('(%s,0)', page)::tid, format('(%s,0)', page + stretch)::tid;
        page := page + stretch;
    END LOOP;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        PERFORM <put>(op, NULL);
        RETURN false;
    END IF;
    RETURN true;
END
$body$, jsonb_build_object(
        'kinds', (SELECT format('%L::text[]', array_agg(k.definition ORDER BY k.place)) FROM tube_private_trigger_kinds() AS k),
        'capture', quote_literal(tube_private_function(att, 'capture')),
        'put', tube_private_function(att, 'put'),
        'schema', quote_ident(tube_private_schema()),
        'name', quote_literal(att.trigger_function),
        'key', quote_literal(quote_ident(att.id_col)),
        'touch', quote_literal(format('SELECT %s($1, coalesce(array_agg(t.id), ''{}'')) FROM (SELECT %I.tube_private_key_%s(',
            tube_private_function(att, 'put'), tube_private_schema(), tube_private_key_type(att.tube))),
        'from_only', quote_literal(') AS id FROM ONLY '),
        'guard', coalesce(tube_private_guard(att, 'rel'), 'true'),
        'passes', quote_literal(coalesce(tube_private_passes_call(att), 'true'))))
$$;

-- tube_private_call_agent: calls an owner's agent with the rights of nobody.
--
-- The tables that it reads may have functions of the owner's in indexes and statistics, which run with the owner's rights. Such
-- code must not leave behind, in the session, what runs later with other rights: a setting (a search path outlives the
-- function that sets it), a cursor, a temporary object. That is an error, which takes it away; and what comes after the call
-- names all in full.
--
-- Arguments: agent: as of tube_private_agent; agreed: the md5 of its text.
-- Errors: those of the owner's: 42501 they don't own the partition; or it is not what was agreed, has the caller's rights, or
-- has left something behind; 25001 not READ COMMITTED.
CREATE OR REPLACE FUNCTION :"schema".tube_private_call_agent(
    agent text, agreed text, rel regclass, triggers name[], op text
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before CONSTANT jsonb := (SELECT jsonb_object_agg(s.name, s.setting) FROM pg_settings AS s);
    left_before CONSTANT bigint[] := ARRAY[(SELECT count(*) FROM pg_cursors), (SELECT count(*) FROM pg_prepared_statements),
        (SELECT count(*) FROM pg_depend AS d
            WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = pg_my_temp_schema())];
    made record;
    result boolean;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        -- An older snapshot would show the agent as it was, and the call is of what it is.
        RAISE EXCEPTION USING ERRCODE = 'active_sql_transaction',
            MESSAGE = 'partitions are followed at READ COMMITTED only', HINT = 'A worker does it within half a minute.';
    END IF;
    -- Where there is none, the call would find one of its name by other arguments; a result of another type would be cast
    -- with the rights of nobody.
    SELECT p.oid, p.oid::regproc AS name, format_type(p.proargtypes[3], NULL) AS seal, p.xmin AS version INTO made
    FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang
    WHERE p.oid = to_regprocedure(agent) AND p.prosecdef AND p.prokind = 'f' AND p.prorettype = 'boolean'::regtype
        AND NOT p.proretset AND l.lanname = 'plpgsql' AND p.proconfig = '{"search_path=pg_catalog, pg_temp"}'
        AND md5(p.prosrc) = agreed;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('%s is not what its owner has agreed to', agent), HINT = 'Call tube_sync as its owner.';
    END IF;
    EXECUTE format('SELECT %s($1, $2, $3, NULL::%s)', made.name, made.seal) INTO result USING rel, triggers, op;
    IF EXISTS (SELECT FROM pg_catalog.pg_settings AS s
        WHERE (before OPERATOR(pg_catalog.->>) s.name) OPERATOR(pg_catalog.<>) s.setting)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = pg_catalog.format('%s has changed settings', agent);
    END IF;
    PERFORM FROM pg_catalog.pg_proc AS p
    WHERE p.oid OPERATOR(pg_catalog.=) made.oid AND p.xmin OPERATOR(pg_catalog.=) made.version;
    IF NOT FOUND OR left_before OPERATOR(pg_catalog.<>) ARRAY[(SELECT pg_catalog.count(*) FROM pg_catalog.pg_cursors),
        (SELECT pg_catalog.count(*) FROM pg_catalog.pg_prepared_statements),
        (SELECT pg_catalog.count(*) FROM pg_catalog.pg_depend AS d
            WHERE d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_namespace'::pg_catalog.regclass
                AND d.refobjid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())]
    THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = pg_catalog.format('%s was replaced meanwhile, or has left something in the session', agent);
    END IF;
    RETURN result;
END
$$;

-- tube_private_key_now: the column of an attached table's ids, by the name that it has now, however old the snapshot.
--
-- A column that has the name is taken; else the one that had it when the table was attached, if it holds keys still.
--
-- Arguments: function_name: of the attachment's trigger function; rel: the table, or one of its partitions; was_key:
--   the name, quoted, that the caller was made with.
-- Result: the name, quoted; NULL and a WARNING when there is none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_key_now(function_name text, rel regclass, was_key text)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    was CONSTANT tube_attachment := (SELECT a FROM tube_attachment AS a WHERE a.trigger_function = function_name);
    result text := was.id_col;
    sees_all CONSTANT boolean := current_setting('transaction_isolation') IN ('read committed', 'read uncommitted');
BEGIN
    IF was.tube IS NULL THEN
        RETURN was_key; -- the attachment is too new for this snapshot
    ELSIF tube_private_column_now(was.seen_oid, was.seen_attnums[1]) <> result AND NOT (sees_all AND EXISTS (
        SELECT FROM pg_attribute AS a WHERE a.attrelid = rel AND a.attname = result))
    THEN
        result := nullif(tube_private_column_now(was.seen_oid, was.seen_attnums[1]), '');
    END IF;
    IF result IS NULL OR sees_all AND NOT EXISTS (
        SELECT FROM pg_attribute AS a WHERE a.attrelid = rel AND a.attname = result
            AND tube_private_key_fits(a.atttypid, tube_private_key_type(was.tube)))
    THEN
        RAISE WARNING USING
            MESSAGE = format('tube %L does not follow %s any more: its key is gone', was.tube, rel),
            HINT = 'Attach it again by another column: id_col => COLUMN.';
        RETURN NULL;
    END IF;
    RETURN quote_ident(result);
END
$$;

-- tube_private_is_current: whether a table has the columns, by name, that its trigger function was made for, however
-- old the snapshot.
CREATE OR REPLACE FUNCTION :"schema".tube_private_is_current(function_name text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT coalesce(bool_and(tube_private_column_now(a.seen_oid, s.attnum) = s.name), true)
    FROM tube_attachment AS a, unnest(a.seen_attnums, a.seen_names) AS s (attnum, name)
    WHERE a.trigger_function = function_name AND a.seen_oid = a.tbl
$$;

-- tube_private_is_replaced: whether a row of the catalogue, which the snapshot shows, is not the newest any more, by its xmax.
--
-- A transaction at REPEATABLE READ has an old view of the catalogue, but its statements work on tables as they are. A row
-- that it sees and that has an xmax was replaced, or locked, by a transaction that it does not see, or by one that was
-- rolled back. One of after the snapshot counts whatever became of it. (Whether a subtransaction is visible in a snapshot,
-- pg_visible_in_snapshot does not know.)
CREATE OR REPLACE FUNCTION :"schema".tube_private_is_replaced(xmax xid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT xmax <> '0'::xid AND CASE WHEN x.id >= pg_snapshot_xmax(pg_current_snapshot()) THEN true
        ELSE coalesce(pg_xact_status(x.id), 'aborted') <> 'aborted' END
    FROM tube_private_full_xid(xmax) AS x (id)
$$;

-- tube_private_shows_columns: whether the snapshot shows a table's columns as they are now.
CREATE OR REPLACE FUNCTION :"schema".tube_private_shows_columns(rel oid) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT NOT EXISTS (SELECT FROM pg_attribute AS a
        WHERE a.attrelid = rel AND a.attnum > 0 AND tube_private_is_replaced(a.xmax))
$$;

-- tube_private_shows_owner: whether the snapshot shows for sure who owns a table now.
--
-- pg_class holds more than the owner; pg_shdepend has a row for the owner alone, but none for the role that made the cluster.
CREATE OR REPLACE FUNCTION :"schema".tube_private_shows_owner(rel oid) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = rel AND NOT tube_private_is_replaced(c.xmax))
        OR EXISTS (SELECT FROM pg_shdepend AS d
            WHERE d.dbid = (SELECT b.oid FROM pg_database AS b WHERE b.datname = current_database())
                AND d.classid = 'pg_class'::regclass AND d.objid = rel AND d.objsubid = 0 AND d.deptype = 'o'
                AND NOT tube_private_is_replaced(d.xmax))
$$;

-- tube_private_column_now: the name that a column has now, however old the snapshot; empty when it was dropped.
--
-- It looks into a cache of the catalogue, which knows of no snapshot.
CREATE OR REPLACE FUNCTION :"schema".tube_private_column_now(rel oid, attnum integer) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN c.name LIKE '........pg.dropped.%' THEN '' ELSE coalesce(c.name, '') END
    FROM (SELECT (pg_identify_object_as_address('pg_class'::regclass, rel, attnum)).object_names[3] AS name) AS c
$$;
