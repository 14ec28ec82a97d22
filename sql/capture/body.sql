-- tube_private_capture_body: the text of the one function that captures an attached table's writes.
-- It belongs to the table's owner and runs with the owner's rights in any role's statement. By name it calls objects of
-- pg_catalog, pytube's own, and the owner's predicate (see predicate.sql), each in full: a separate search path would
-- cost each statement a microsecond, and the writer's does not count.
--
-- A row filter works as in logical replication: let O be the ids of old rows that pass it, and N the ids of new rows.
-- N without O was inserted, O without N deleted, an id in both was updated; so a row that enters, leaves or changes its
-- key is never missed. put makes U of all that for a related table.
--
-- 1. One id, the common statement: one INSERT through the door, without a call.
-- 2. Whether the function still fits the table (see tube_private_fits). If not, all that is known is that something was
--    written: put asks for a backfill. Without any right on door and put, nothing can be done; tube_sync finds that.
-- 3. One row, where replication applies it: see tube_private_row_body.
-- 4. One op for all ids: the old and the new rows have the same ids, or there are none on one side. They are gathered
--    into arrays, of 100,000 ids at most (10,000 of texts), and put takes them; not by variables, which would copy them.
--    OFFSET 0 keeps the planner from gathering them once for each use.
-- 5. All else goes by sets: ids by op, in arrays of as many, so that memory is bounded whatever the statement writes.
--
-- With `columns`, an UPDATE counts for an id when the images of its rows differ, bit by bit: no type's equality is asked.
-- It is unknown which old row became which new one, so rows of one id are compared as a multiset.
--
-- Of a row that a MERGE moves to another partition it sees nothing, or, where that MERGE may also insert, the new version as an
-- inserted row: by a fault of Postgres 15 to 18, neither version comes into the transition tables of UPDATE and DELETE.
--
-- Faults of Postgres 15 to 18 that it minds: a row that its new partition's trigger drops is among the old rows only. A
-- MERGE into a partitioned table that inserts a row and updates others shows the inserted row in place of the new
-- versions of those, so with a row filter, where an id is among the new ones only, ids among the old ones
-- only count whether they pass or not.
CREATE OR REPLACE FUNCTION :"schema".tube_private_capture_body(att :"schema".tube_attachment, is_root boolean) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    key_type CONSTANT regtype := tube_private_key_type(att.tube);
    few CONSTANT integer := CASE key_type WHEN 'text'::regtype THEN 10000 ELSE 100000 END;
    is_partitioned CONSTANT boolean := (SELECT c.relkind = 'p' FROM pg_class AS c WHERE c.oid = att.tbl);
    image CONSTANT text := 'ROW(' || (SELECT string_agg(format('r.%I', c), ', ') FROM unnest(att.columns) AS c) || ')';
    body text := $body$
-- Made by tube_private_capture_body.
#variable_conflict use_column
DECLARE
    cap_fits pg_catalog.bool; -- NULL: the owner may neither use the door nor call put
    cap_done pg_catalog.bool;
    cap_new <key>[];
    cap_put pg_catalog.record;
BEGIN<one_id>
    IF TG_OP OPERATOR(pg_catalog.<>) 'TRUNCATE' AND pg_catalog.pg_current_xact_id_if_assigned() IS NULL THEN
        RETURN NULL; -- the statement wrote no row, and is to stay as cheap as that
    ELSIF TG_RELID OPERATOR(pg_catalog.=) <oid>::pg_catalog.oid<or_part> THEN
        cap_fits := <fits>;
    END IF;
    IF cap_fits IS NOT TRUE THEN
        -- The answer may be an old snapshot's, and since then in the plan; or the table was restored from a dump, or is no
        -- part of this one.
        cap_fits := <fits_elsewhere>;
        IF NOT cap_fits THEN
            PERFORM <put>('U', NULL);
        END IF;
        IF cap_fits IS NOT TRUE THEN
            RETURN NULL;
        END IF;
    END IF;<row_body>
    IF TG_OP OPERATOR(pg_catalog.=) 'TRUNCATE' THEN
        IF <schema>.tube_private_may_read(TG_RELID) THEN
            FOR cap_put IN EXECUTE pg_catalog.concat(<truncated>, TG_RELID::pg_catalog.regclass, <of_truncated>) LOOP
                PERFORM <put>('D', cap_put.ids);
            END LOOP;
            IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed' THEN
                RETURN NULL;
            END IF;
        END IF;
        PERFORM <put>('D', NULL); -- rows are hidden from the owner, or from the snapshot: a sweep finds them
        RETURN NULL;
    ELSIF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN<unchanged>
        SELECT CASE WHEN o.ids OPERATOR(pg_catalog.=) n.ids THEN n.ids OPERATOR(pg_catalog.=) '{}' OR <put>('U', n.ids)
            WHEN o.ids OPERATOR(pg_catalog.=) '{}' THEN <put>('I', n.ids)
            WHEN n.ids OPERATOR(pg_catalog.=) '{}' THEN <put>('D', o.ids) END INTO cap_done
        FROM (SELECT <old_ids> AS ids OFFSET 0) AS o, (SELECT <new_ids> AS ids OFFSET 0) AS n
        WHERE pg_catalog.cardinality(o.ids) OPERATOR(pg_catalog.<=) <few> AND pg_catalog.cardinality(n.ids) OPERATOR(pg_catalog.<=) <few><arrays_count>;
    ELSIF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
        SELECT n.ids OPERATOR(pg_catalog.=) '{}' OR <put>('I', n.ids) INTO cap_done
        FROM (SELECT <new_ids> AS ids OFFSET 0) AS n WHERE pg_catalog.cardinality(n.ids) OPERATOR(pg_catalog.<=) <few>;
    ELSE
        SELECT o.ids OPERATOR(pg_catalog.=) '{}' OR <put>('D', o.ids) INTO cap_done
        FROM (SELECT <old_ids> AS ids OFFSET 0) AS o WHERE pg_catalog.cardinality(o.ids) OPERATOR(pg_catalog.<=) <few>;
    END IF;
    IF cap_done THEN
        RETURN NULL;
    END IF;
    IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN
        <for_each_array><changed_sides><loop>
    ELSIF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
        <for_each_array>SELECT <id> AS id, 2 AS side FROM new_table AS r WHERE <passes><loop>
    ELSE
        <for_each_array>SELECT <id> AS id, 1 AS side FROM old_table AS r WHERE <passes><loop>
    END IF;
    RETURN NULL;
END
$body$;
BEGIN
    -- First what depends on the options, and holds nothing of users; then names and texts of users.
    body := tube_private_fill(body, jsonb_build_object(
        'or_part', CASE WHEN is_partitioned
            THEN E'\n        OR pg_catalog.pg_partition_root(TG_RELID) OPERATOR(pg_catalog.=) <oid>::pg_catalog.oid' ELSE '' END,
        'one_id', CASE WHEN is_root THEN tube_private_one_id_body(att, is_partitioned) ELSE '' END,
        'old_ids', 'ARRAY(SELECT <id> FROM old_table AS r WHERE <row_passes> LIMIT <few_and_one>)',
        'new_ids', 'ARRAY(SELECT <id> FROM new_table AS r WHERE <row_passes> LIMIT <few_and_one>)',
        'unchanged', CASE WHEN image IS NULL THEN '' ELSE $sql$
        IF NOT EXISTS (SELECT FROM old_table OFFSET <few>) AND NOT EXISTS (SELECT FROM new_table OFFSET <few>)
            AND (SELECT ROW(ARRAY(SELECT ROW(<key_columns>, <passes> IS TRUE, <image>) FROM old_table AS r LIMIT <few>)))
                OPERATOR(pg_catalog.*=) (SELECT ROW(ARRAY(SELECT ROW(<key_columns>, <passes> IS TRUE, <image>) FROM new_table AS r LIMIT <few>)))
        THEN
            RETURN NULL;
        END IF;$sql$ END,
        -- Else it goes by sets.
        'arrays_count', CASE WHEN image IS NOT NULL THEN ' AND false'
            WHEN is_partitioned AND att.row_filter IS NOT NULL THEN E'\n            AND <same_keys>' ELSE '' END,
        'changed_sides', CASE WHEN image IS NULL THEN $sql$
                SELECT <id> AS id, 1 AS side FROM old_table AS r WHERE <passes>
                UNION ALL SELECT <id>, 2 FROM new_table AS r WHERE <passes>$sql$ ELSE $sql$
                SELECT s.id, s.side
                FROM (<images_of_old>) AS o
                FULL JOIN (<images_of_new>) AS n ON o.id OPERATOR(pg_catalog.=) n.id,
                    LATERAL (VALUES (o.id, 1), (n.id, 2)) AS s (id, side)
                WHERE s.id IS NOT NULL
                    AND (o.id IS NULL OR n.id IS NULL OR o.images OPERATOR(pg_catalog.*<>) n.images)$sql$ END
            || CASE WHEN is_partitioned AND att.row_filter IS NOT NULL THEN $sql$
                UNION ALL SELECT d.id, 1 FROM (SELECT <id> AS id FROM old_table AS r EXCEPT SELECT <id> FROM new_table AS r) AS d
                WHERE d.id IS NOT NULL AND EXISTS (SELECT <id> FROM new_table AS r EXCEPT SELECT <id> FROM old_table AS r)$sql$
                ELSE '' END,
        'for_each_array', $sql$FOR cap_put IN
            SELECT p.op, pg_catalog.array_agg(p.id) AS ids
            FROM (
                SELECT k.id, k.op, (pg_catalog.row_number() OVER (PARTITION BY k.op) OPERATOR(pg_catalog.-) 1)
                    OPERATOR(pg_catalog./) <few> AS part
                FROM (
                    SELECT x.id, <op_of_sides> AS op
                    FROM ($sql$,
        'loop', $sql$) AS x
                    GROUP BY x.id
                ) AS k
            ) AS p
            GROUP BY p.op, p.part
        LOOP
            PERFORM <put>(cap_put.op, cap_put.ids);
        END LOOP;$sql$));
    body := tube_private_fill(body, jsonb_build_object(
        'images_of_old', 'SELECT x.id, ROW(pg_catalog.array_agg(x.image ORDER BY x.image USING OPERATOR(pg_catalog.*<))) AS images'
            ' FROM (SELECT <id> AS id, <image> AS image FROM old_table AS r WHERE <passes>) AS x GROUP BY x.id',
        'images_of_new', 'SELECT x.id, ROW(pg_catalog.array_agg(x.image ORDER BY x.image USING OPERATOR(pg_catalog.*<))) AS images'
            ' FROM (SELECT <id> AS id, <image> AS image FROM new_table AS r WHERE <passes>) AS x GROUP BY x.id',
        'same_keys', 'ARRAY(SELECT <id> FROM old_table AS r LIMIT <few_and_one>) OPERATOR(pg_catalog.=)'
            ' ARRAY(SELECT <id> FROM new_table AS r LIMIT <few_and_one>)',
        'op_of_sides', tube_private_op_of_sides()));
    RETURN tube_private_fill(body, tube_private_guard(att) || jsonb_build_object(
        'row_body', CASE WHEN att.replica THEN tube_private_row_body(att) ELSE '' END,
        'oid', att.tbl::oid,
        'schema', quote_ident(tube_private_schema()),
        'key', tube_private_type_sql(key_type),
        'key_columns', (SELECT string_agg(format('r.%I', k), ', ') FROM unnest(att.keys) AS k),
        'id', tube_private_id_sql(att, 'r'),
        'passes', tube_private_passes_sql(att, 'r'),
        'row_passes', coalesce(tube_private_passes_call(att, 'r'), 'true'), -- put leaves NULLs out
        'image', image,
        'few', few,
        'few_and_one', few + 1,
        'put', tube_private_function(att, 'put'),
        'door', tube_private_function(att, 'door'),
        'flag', tube_private_flag_sql(att.tube),
        'shard', tube_private_shard_expression('a.n[1]', att),
        'truncated', quote_literal(format('SELECT pg_catalog.array_agg(x.id) AS ids FROM (SELECT %s AS id,'
            ' (pg_catalog.row_number() OVER ()) OPERATOR(pg_catalog./) %s AS part FROM ONLY ',
            tube_private_id_sql(att, 'r'), few)),
        'of_truncated', quote_literal(format(' AS r WHERE %s) AS x GROUP BY x.part', tube_private_passes_sql(att, 'r')))));
END
$$;

-- tube_private_one_id_body: the lines of that text for a statement of one id, and for one of none.
-- Statements that name no variable are planned once. The INSERT is checked by the door, whoever made the function.
CREATE OR REPLACE FUNCTION :"schema".tube_private_one_id_body(att :"schema".tube_attachment, is_partitioned boolean) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    image CONSTANT text := 'ROW(' || (SELECT string_agg(format('r.%I', c), ', ') FROM unnest(att.columns) AS c) || ')';
BEGIN
    RETURN tube_private_fill($body$
    IF <is_statement>pg_catalog.pg_current_xact_id_if_assigned() IS NOT NULL AND TG_RELID OPERATOR(pg_catalog.=) <oid>::pg_catalog.oid AND <fits> THEN
        IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN
            INSERT INTO <door> (op, shard, ids)
            SELECT <op_u>, <shard>, a.n
            FROM (SELECT <two_old> AS o, <two_new> AS n<images> OFFSET 0) AS a
            WHERE a.o OPERATOR(pg_catalog.=) a.n AND pg_catalog.cardinality(a.n) OPERATOR(pg_catalog.=) 1<differ><same_keys_too>;
            IF FOUND THEN
                IF <is_asleep> THEN
                    PERFORM <put>('W', <two_new>);
                END IF;
                RETURN NULL;
            END IF;
        ELSIF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
            cap_new := <two_new>;
            IF cap_new OPERATOR(pg_catalog.=) '{}' THEN
                RETURN NULL; -- an upsert that updates fires both triggers: so that this is to be cheap
            ELSIF pg_catalog.cardinality(cap_new) OPERATOR(pg_catalog.=) 1 THEN
                INSERT INTO <door> (op, shard, ids) VALUES (<op_i>, <shard_of_new>, cap_new);
                IF <is_asleep> THEN
                    PERFORM <put>('W', cap_new);
                END IF;
                RETURN NULL;
            END IF;
        ELSIF TG_OP OPERATOR(pg_catalog.=) 'DELETE' THEN
            INSERT INTO <door> (op, shard, ids)
            SELECT <op_d>, <shard>, a.n FROM (SELECT <two_old> AS n OFFSET 0) AS a WHERE pg_catalog.cardinality(a.n) OPERATOR(pg_catalog.=) 1;
            IF FOUND THEN
                IF <is_asleep> THEN
                    PERFORM <put>('W', <two_old>);
                END IF;
                RETURN NULL;
            END IF;
        END IF;
    END IF;$body$, jsonb_build_object(
        'is_statement', CASE WHEN att.replica THEN 'TG_LEVEL OPERATOR(pg_catalog.=) ''STATEMENT'' AND ' ELSE '' END,
        'two_old', 'ARRAY(SELECT <id> FROM old_table AS r WHERE <passes> LIMIT 2)',
        'two_new', 'ARRAY(SELECT <id> FROM new_table AS r WHERE <passes> LIMIT 2)',
        'op_u', tube_private_op_sql('''U'''),
        'op_i', tube_private_op_sql('''I'''),
        'op_d', tube_private_op_sql('''D'''),
        -- After the INSERT: a worker that falls asleep after this look reads a seq that is at least as high.
        'is_asleep', 'pg_catalog.pg_sequence_last_value(<flag>) OPERATOR(pg_catalog.>) 1',
        'shard_of_new', tube_private_shard_expression('cap_new[1]', att),
        'images', CASE WHEN image IS NULL THEN '' ELSE ', (SELECT <image> FROM old_table AS r WHERE <passes> LIMIT 1) AS old_image,'
            ' (SELECT <image> FROM new_table AS r WHERE <passes> LIMIT 1) AS new_image' END,
        'differ', CASE WHEN image IS NULL THEN '' ELSE ' AND a.old_image OPERATOR(pg_catalog.*<>) a.new_image' END,
        'same_keys_too', CASE WHEN is_partitioned AND att.row_filter IS NOT NULL THEN E'\n            AND <same_keys>' ELSE '' END));
END
$$;

-- tube_private_op_sql: the op of a pod, as SQL text: that of the expression `op`, or B in the session of a backfill.
CREATE OR REPLACE FUNCTION :"schema".tube_private_op_sql(op text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT 'CASE WHEN pg_catalog.current_setting(''application_name'') OPERATOR(pg_catalog.~~) ''%backfill%'' THEN ''B'' ELSE '
        || op || ' END'
$$;

-- tube_private_op_of_sides: the op of an id, as SQL text, over rows x whose side is 1 for an old row and 2 for a new one.
CREATE OR REPLACE FUNCTION :"schema".tube_private_op_of_sides() RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT 'CASE WHEN pg_catalog.bit_or(x.side) OPERATOR(pg_catalog.=) 1 THEN ''D'''
        ' WHEN pg_catalog.bit_or(x.side) OPERATOR(pg_catalog.=) 2 THEN ''I'' ELSE ''U'' END'
$$;

-- tube_private_row_body: the lines of that text for a row that logical replication writes.
-- Its apply fires row triggers only, and triggers that are enabled for it. An UPDATE that changed nothing that counts,
-- neither the key nor whether the row passes, makes no touch.
CREATE OR REPLACE FUNCTION :"schema".tube_private_row_body(att :"schema".tube_attachment) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN tube_private_fill($template$
    IF TG_LEVEL OPERATOR(pg_catalog.=) 'ROW' THEN
        PERFORM <put>(k.op, ARRAY[k.id])
        FROM (
            SELECT x.id, <op_of_sides> AS op
            FROM (
                SELECT <old_id> AS id, 1 AS side WHERE TG_OP OPERATOR(pg_catalog.<>) 'INSERT' AND <old_passes>
                UNION ALL
                SELECT <new_id>, 2 WHERE TG_OP OPERATOR(pg_catalog.<>) 'DELETE' AND <new_passes>
            ) AS x
            GROUP BY x.id
        ) AS k
        WHERE k.op OPERATOR(pg_catalog.<>) 'U' OR TG_OP OPERATOR(pg_catalog.<>) 'UPDATE' OR <changed>;
        RETURN NULL;
    END IF;$template$, jsonb_build_object(
        'put', tube_private_function(att, 'put'),
        'op_of_sides', tube_private_op_of_sides(),
        'old_id', tube_private_id_sql(att, 'OLD'),
        'new_id', tube_private_id_sql(att, 'NEW'),
        'old_passes', tube_private_passes_sql(att, 'OLD'),
        'new_passes', tube_private_passes_sql(att, 'NEW'),
        'changed', CASE WHEN att.columns IS NULL THEN 'true' ELSE format('(SELECT ROW(%s)) OPERATOR(pg_catalog.*<>) (SELECT ROW(%s))',
            (SELECT string_agg(format('OLD.%I', c), ', ') FROM unnest(att.columns) AS c),
            (SELECT string_agg(format('NEW.%I', c), ', ') FROM unnest(att.columns) AS c)) END));
END
$$;

-- tube_private_fill: a template with its <names> replaced, each once, whatever the values hold.
-- A name that has no value stays as it is, for a later call.
CREATE OR REPLACE FUNCTION :"schema".tube_private_fill(template text, fragments jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN ( -- in PL/pgSQL, which plans it once
        SELECT string_agg(CASE WHEN p.place = 1 THEN p.piece
            ELSE coalesce((fragments ->> n.name) || substr(p.piece, length(n.name) + 2), '<' || p.piece) END,
            '' ORDER BY p.place)
        FROM regexp_split_to_table(template, '<(?=[a-z_]+>)') WITH ORDINALITY AS p (piece, place),
            split_part(p.piece, '>', 1) AS n (name));
END
$$;

-- What keeps a writer from failing, and owners from each other, when a table is no longer what its capture function was
-- made for: DDL comes without asking.

-- tube_private_fits: whether a capture function still fits its table; NULL where its owner may not put pods.
-- It is said to be immutable, and has constant arguments: so its answer is part of the plan, which is made anew after DDL on
-- the relations that it names, or a change of their privileges, and costs no statement anything.
-- An answer may depend on no snapshot, as it outlives the transaction: only on Postgres' caches. (A false one
-- may: it is computed again when a statement is run.) The query calls
-- nothing of users' and names the table as a row type, which takes neither a lock nor a right. An error of another class than
-- those below (a lock, memory) is not an answer.
-- Arguments: tbl: the attached table, or NULL; door, flag: of the attachment; put: its signature; query: see tube_private_guard.
CREATE OR REPLACE FUNCTION :"schema".tube_private_fits(tbl regclass, door regclass, flag regclass, put text, query text)
RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET quote_all_identifiers = off AS $$
DECLARE
    fits boolean;
BEGIN
    IF NOT (has_table_privilege(door, 'INSERT') AND has_function_privilege(put, 'EXECUTE')
        AND has_sequence_privilege(flag, 'SELECT') AND has_sequence_privilege('tube_seq', 'USAGE'))
    THEN
        RETURN NULL;
    END IF;
    EXECUTE format(query, tbl) INTO fits;
    RETURN fits IS TRUE;
EXCEPTION WHEN syntax_error_or_access_rule_violation OR invalid_text_representation THEN
    RETURN false;
END
$$;

-- tube_private_elsewhere: what a capture function is to ask of the table rel, whose trigger has fired, where that is not the
-- table that it was made for.
-- After a restore from a dump tables have other numbers, until their owners look. And it may still be the function of a
-- trigger on another table of a former owner's: that is none of the tube's.
-- Arguments: name: of the trigger function, by which the attachment is found; query: as of tube_private_fits.
-- Result: tbl: the table that is attached; NULL where rel does not belong to one. asks: the query; it is false where rel was a
--   part, is stored as one, and has been detached: it may come back before anybody looks.
CREATE OR REPLACE FUNCTION :"schema".tube_private_elsewhere(rel oid, name text, query text, OUT tbl regclass, OUT asks text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT a.tbl, CASE WHEN p.is_part THEN query ELSE 'SELECT false' END
    FROM tube_attachment AS a, LATERAL (SELECT (a.tbl IN (rel, pg_partition_root(rel))) IS TRUE) AS p (is_part)
    WHERE a.trigger_function = name AND (p.is_part OR rel = ANY (a.members))
$$;

-- tube_private_guard: the texts for <fits> and <fits_elsewhere> in a capture function.
-- A column of a built-in type must have exactly that type, and a key column a type for the tube's keys. For other columns,
-- the signature of the predicate's function shows whether they are the ones that it was bound to, whatever their names
-- now. Of a domain, its name counts, and that its base type is the same: COALESCE takes no type of another category, and
-- so never a user's cast.
-- That put and tube_seq are named, in a part that is never computed, has plans made anew when their privileges change.
CREATE OR REPLACE FUNCTION :"schema".tube_private_guard(att :"schema".tube_attachment) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
    passes CONSTANT text := quote_literal(tube_private_function(att, 'passes')) || '::regproc';
    put CONSTANT text := tube_private_function(att, 'put');
    conditions text[];
    query text;
    rest text;
BEGIN
    -- Of a user's enum, its name, and that it is one.
    SELECT array_agg(CASE WHEN t.typtype = 'e' THEN
            format('format_type(pg_typeof(r.%1$I), NULL) = %2$L AND enum_larger(r.%1$I, r.%1$I) IS NULL', a.attname, tube_private_type_sql(t.oid))
        WHEN t.typtype = 'd' THEN format('format_type(pg_typeof(r.%1$I), NULL) = %2$L AND COALESCE(r.%1$I, NULL::%3$s) IS NULL',
            a.attname, tube_private_type_sql(t.oid), tube_private_type_sql(tube_private_base_type(t.oid)))
        -- A key may have any of the types that keys have: it is written out whichever it is.
        ELSE format('pg_typeof(r.%I)::oid = ANY (%L::oid[])', a.attname, CASE WHEN a.attname <> ALL (att.keys) THEN ARRAY[t.oid]
            ELSE tube_private_key_types(CASE WHEN cardinality(att.keys) = 1 THEN tube_private_key_type(att.tube)
                ELSE (tube_key_types(att.tbl, ARRAY[a.attname]))[1]::regtype END) END) END ORDER BY a.attnum)
    INTO conditions
    FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
    WHERE a.attrelid = att.tbl AND a.attnum > 0 AND NOT a.attisdropped
        AND (a.attname = ANY (att.keys) OR (t.oid < 16384 OR t.typtype = 'd') AND a.attnum IN (SELECT c.attnum FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c));
    IF att.row_filter IS NOT NULL THEN
        conditions := conditions || (
            SELECT format('%1$s::oid::regprocedure::text = format(''%%s(%%s)'', %1$s, array_to_string(ARRAY[%2$s]::text[], '',''))', passes,
                string_agg(format('format_type(pg_typeof(%s), NULL)', tube_private_bound_sql('r', c.name, c.type, c.bound)), ', ' ORDER BY c.attnum))
            FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c);
    END IF;
    IF att.columns IS NOT NULL THEN
        conditions := conditions || (SELECT format('ROW(%s) IS NULL', string_agg(format('r.%I', c), ', ')) FROM unnest(att.columns) AS c);
    END IF;
    -- A virtual generated column has no value in the rows that a trigger sees: to name it fails. An old snapshot may still
    -- show another one.
    query := replace(format('SELECT %s AND NOT EXISTS (SELECT FROM pg_attribute AS v WHERE v.attname = ANY (%L) AND (v.attgenerated = ''v'''
            ' OR current_setting(''transaction_isolation'') <> ''read committed'' AND tube_private_is_replaced(v.xmax)) AND v.attrelid = ',
            array_to_string(conditions, ' AND '), att.keys || att.columns
                || ARRAY(SELECT c.name FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c ORDER BY c.attnum)), '%', '%%')
        || '%1$L::regclass) FROM (SELECT (NULL::%1$s).*) AS r';
    rest := format('%L::pg_catalog.regclass, %s, %L', tube_private_function(att, 'door'), tube_private_flag_sql(att.tube),
        format('%s(text,%s[])', put, tube_private_type_sql(tube_private_key_type(att.tube))));
    RETURN jsonb_build_object(
        'fits', format('%1$I.tube_private_fits(''%2$s''::pg_catalog.regclass, %3$s, %4$L)'
            ' AND (true OR %5$s(NULL, NULL) OR %6$L::pg_catalog.regclass IS NULL)',
            tube_private_schema(), att.tbl::oid, rest, query, put, tube_private_qualify('tube_seq')),
        -- Computed when a statement is run.
        'fits_elsewhere', format('(SELECT %1$I.tube_private_fits(e.tbl, %3$s, e.asks)'
            ' FROM %1$I.tube_private_elsewhere(TG_RELID, %2$L, %4$L) AS e)',
            tube_private_schema(), att.trigger_function, rest, query));
END
$$;

-- tube_private_may_read: whether a capture function may read a table that is truncated, as the role whose rights it has.
-- To plan a query is to run code of the table's owner, in indexes and statistics. So only that owner's function does, and
-- not that of one before, or of the owner of the table that this one is a part of. A transaction at REPEATABLE READ has an
-- old view of the catalogue: a row that was replaced or locked meanwhile, as its xmax says, does not prove it. pg_class
-- holds more than the owner; pg_shdepend has a row for the owner alone, but none for the role that made the cluster.
CREATE OR REPLACE FUNCTION :"schema".tube_private_may_read(rel oid) RETURNS boolean
LANGUAGE sql STABLE SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT has_table_privilege(rel, 'SELECT') AND NOT row_security_active(rel)
        AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = rel AND c.relowner = quote_ident(current_user)::regrole
            AND (NOT tube_private_is_replaced(c.xmax) OR EXISTS (
                SELECT FROM pg_shdepend AS d
                WHERE d.dbid = (SELECT b.oid FROM pg_database AS b WHERE b.datname = current_database())
                    AND d.classid = 'pg_class'::regclass AND d.objid = rel AND d.objsubid = 0 AND d.deptype = 'o'
                    AND NOT tube_private_is_replaced(d.xmax))))
$$;

-- tube_private_is_replaced: whether a row of the catalogue, which the snapshot shows, may not be the newest any more.
-- A row with an xmax was replaced, or locked, by a transaction that the snapshot does not show, or by one
-- rolled back. One of after the snapshot counts whatever became of it. (Whether a subtransaction is visible in a snapshot,
-- pg_visible_in_snapshot does not know.)
CREATE OR REPLACE FUNCTION :"schema".tube_private_is_replaced(xmax xid) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT xmax <> '0'::xid AND CASE WHEN x.id >= pg_snapshot_xmax(pg_current_snapshot()) THEN true
        ELSE coalesce(pg_xact_status(x.id), 'aborted') <> 'aborted' END
    FROM tube_private_full_xid(xmax) AS x (id)
$$;
