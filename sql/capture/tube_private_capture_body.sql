-- tube_private_capture_body: the text of the trigger function of an attached table.
--
-- A row filter works as in logical replication: let O be the ids of old rows that pass it, and N those of new rows.
-- N without O was inserted, O without N deleted, what is in both updated; so a row that enters, leaves or changes its
-- key is never missed. put makes U of all that for a related table.
--
-- 1. The usual statement, of one row or 100,000 (10,000 with keys of texts), has one op for all its ids: those of the
--    old and the new rows are the same, or there are none on one side. One query gathers them into arrays, and hands
--    them on.
-- 2. All else goes by sets: ids by op, in arrays of as many, so that memory is bounded whatever the statement writes.
-- 3. Where the table no longer has the columns that the function was made for (DDL comes without asking us), all
--    written rows are touched, by the key's name of now: too much, and nothing too few. The usual statement
--    finds the key missing without looking for it: its name is then found in "missing", where it is NULL.
--
-- It runs as the table's owner, in whoever's statement. Each name and operator stands in full: whatever the writer's
-- search path, and because a path of its own would cost each statement a microsecond. For the same reason statements
-- name no variable, which would have them planned again and again.
--
-- Faults of Postgres 15 to 18 that it minds: a row that its new partition's trigger drops is among the old rows only. A
-- MERGE into a partitioned table that inserts a row and updates others shows the inserted row in place of the new
-- versions of those, so where an id
-- is among the new ones only, those that are among the old ones only count whether they pass or not.
--
-- Result: the body of a plpgsql function.
CREATE OR REPLACE FUNCTION :"schema".tube_private_capture_body(att :"schema".tube_attachment) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    key_type CONSTANT regtype := tube_private_key_type(att.tube);
    guard CONSTANT text := tube_private_guard(att);
    names CONSTANT jsonb := jsonb_build_object(
        'id', tube_private_key_sql(quote_ident(att.id_col), key_type),
        'put', tube_private_function(att, 'put'),
        'passes', coalesce(tube_private_passes_call(att, NULL), 'true'),
        'vals', array_to_string(tube_private_column_values(att.tbl, att.columns), ', '),
        'named_vals', (SELECT string_agg(format('%s AS c%s', v.value, v.place), ', ')
            FROM unnest(tube_private_column_values(att.tbl, att.columns)) WITH ORDINALITY AS v (value, place)),
        -- Ids of an array: up to 1.6 MB of uuids; of texts, which may be long, fewer.
        'few', CASE key_type WHEN 'text'::regtype THEN 10000 ELSE 100000 END,
        'few_and_one', CASE key_type WHEN 'text'::regtype THEN 10001 ELSE 100001 END,
        -- Where the column is not there any more, this one is found by its name.
        'missing', format('(SELECT NULL::%s AS %I) AS missing', tube_private_type_sql(key_type), att.id_col));
    -- With a row filter on a partitioned table; see the faults above.
    doubtful CONSTANT boolean := att.row_filter IS NOT NULL
        AND (SELECT c.relkind = 'p' FROM pg_class AS c WHERE c.oid = att.tbl);
    now_before CONSTANT text := format('SELECT %s(''U'', coalesce(pg_catalog.array_agg(DISTINCT x.id), ''{}'')) FROM (',
        tube_private_function(att, 'put'));
BEGIN
    RETURN tube_private_fill($body$
-- Made by tube_private_capture_body.
#variable_conflict use_column
DECLARE
    cap_done pg_catalog.bool; -- NULL: not yet; false: there were NULLs among the ids, or no key
    cap_changed pg_catalog.bool := false;
    cap_key pg_catalog.text;
    cap_put record;
BEGIN<row>
    IF TG_OP OPERATOR(pg_catalog.=) 'TRUNCATE' THEN
        PERFORM <agent>(TG_RELID, NULL, 'D');
        RETURN NULL;
    ELSIF pg_catalog.pg_current_xact_id_if_assigned() IS NULL THEN
        RETURN NULL; -- the statement wrote no row, and is to stay as cheap as that
    END IF;
<guard>
        IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN<one_op_update>
        ELSIF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN<one_op_insert>
        ELSE<one_op_delete>
        END IF;
        IF cap_done THEN
            RETURN NULL;
        END IF;
<end_guard>
    IF NOT cap_changed AND cap_done IS NULL THEN
        IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN<sets_update>
        ELSIF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN<sets_insert>
        ELSE<sets_delete>
        END IF;
    END IF;
    IF cap_changed OR NOT cap_done THEN
        cap_key := <schema>.tube_private_key_now(<name>, TG_RELID, <key_literal>);
        IF cap_key IS NOT NULL AND (cap_changed OR cap_key OPERATOR(pg_catalog.<>) <key_literal>) THEN
            IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN
                EXECUTE pg_catalog.concat(<now>, <now_id>, ' FROM old_table UNION ALL SELECT ', <now_id>, ' FROM new_table) AS x');
            ELSIF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
                EXECUTE pg_catalog.concat(<now>, <now_id>, ' FROM new_table) AS x');
            ELSE
                EXECUTE pg_catalog.concat(<now>, <now_id>, ' FROM old_table) AS x');
            END IF;
        END IF;
    END IF;
    RETURN NULL;
END
$body$, jsonb_build_object(
        'row', CASE WHEN att.replica THEN tube_private_row_body(att) ELSE '' END,
        'guard', CASE WHEN guard IS NULL THEN '    BEGIN' ELSE '    IF NOT (' || guard || E') THEN\n        cap_changed := true;\n    ELSE' END,
        'end_guard', CASE WHEN guard IS NULL THEN '    END;' ELSE '    END IF;' END,
        'one_op_update', tube_private_one_op_update(att, names, doubtful),
        'one_op_insert', tube_private_one_op(att, names, 'I', 'new_table'),
        'one_op_delete', tube_private_one_op(att, names, 'D', 'old_table'),
        'sets_update', tube_private_by_sets(names, tube_private_changed_sides(att, names, doubtful)),
        'sets_insert', tube_private_by_sets(names, tube_private_side(names, 2, 'new_table')),
        'sets_delete', tube_private_by_sets(names, tube_private_side(names, 1, 'old_table')),
        'now', quote_literal(now_before || 'SELECT '),
        'now_id', tube_private_now_id(key_type, ''),
        'agent', tube_private_function(att, 'agent'),
        'schema', quote_ident(tube_private_schema()),
        'name', quote_literal(att.trigger_function),
        'key_literal', quote_literal(quote_ident(att.id_col))));
END
$$;

-- tube_private_now_id: the key by its name of now, as the text of an expression over cap_key that gives SQL text.
CREATE OR REPLACE FUNCTION :"schema".tube_private_now_id(key_type regtype, row_name text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT format('pg_catalog.concat(%L, cap_key, %L)', format('%I.tube_private_key_%s(%s', tube_private_schema(), key_type, row_name),
        CASE key_type WHEN 'text'::regtype THEN ') COLLATE pg_catalog."C" AS id' ELSE ') AS id' END)
$$;

-- tube_private_rows: the rows of one side of a statement, as arrays: ids of those that pass, and what `columns` look like.
--
-- At most one id more than an array may have is gathered: then all go by sets. OFFSET 0 keeps the planner from gathering them once for each use.
--
-- Arguments: att; names: fragments of tube_private_capture_body; source: old_table or new_table; alias.
CREATE OR REPLACE FUNCTION :"schema".tube_private_rows(
    att :"schema".tube_attachment, names jsonb, source text, alias text
) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT tube_private_fill(
        CASE WHEN att.columns IS NULL
            THEN 'LATERAL (SELECT ARRAY(SELECT <id> FROM <source> AS "the row" WHERE <passes> LIMIT <few_and_one>) AS ids OFFSET 0) AS <alias>'
            ELSE 'LATERAL (SELECT ARRAY(SELECT <id> FROM <source> AS "the row" WHERE <passes> LIMIT <few_and_one>) AS ids,'
                ' ARRAY(SELECT ROW(<id>, (<passes>) IS TRUE, <vals>) FROM <source> AS "the row" LIMIT <few_and_one>) AS image OFFSET 0) AS <alias>'
        END, names || jsonb_build_object('source', source, 'alias', alias))
$$;

-- tube_private_one_op: lines that touch the ids of an INSERT or a DELETE, unless they are too many for an array.
CREATE OR REPLACE FUNCTION :"schema".tube_private_one_op(
    att :"schema".tube_attachment, names jsonb, op text, source text
) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT tube_private_fill($sql$
            SELECT n.ids OPERATOR(pg_catalog.=) '{}' OR <put>('<op>', n.ids) INTO cap_done
            FROM <missing>, <rows>
            WHERE pg_catalog.cardinality(n.ids) OPERATOR(pg_catalog.<=) <few>;$sql$,
        names || jsonb_build_object('op', op, 'rows', tube_private_rows(att, names, source, 'n')))
$$;

-- tube_private_one_op_update: lines that touch the ids of an UPDATE where all of them have one op.
--
-- With `columns`: nothing is touched when nothing of them changed, and one row when it did; several rows go by sets. There
-- all rows are looked at, not just those that pass.
CREATE OR REPLACE FUNCTION :"schema".tube_private_one_op_update(
    att :"schema".tube_attachment, names jsonb, doubtful boolean
) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT tube_private_fill(concat($sql$
            SELECT CASE$sql$,
        CASE WHEN att.columns IS NOT NULL THEN $sql$
                WHEN o.image OPERATOR(pg_catalog.=) n.image THEN true$sql$ END, $sql$
                WHEN o.ids OPERATOR(pg_catalog.=) n.ids$sql$,
        CASE WHEN att.columns IS NOT NULL THEN ' AND pg_catalog.cardinality(n.image) OPERATOR(pg_catalog.=) 1' END, $sql$
                    THEN n.ids OPERATOR(pg_catalog.=) '{}' OR <put>('U', n.ids)$sql$,
        CASE WHEN att.row_filter IS NOT NULL THEN $sql$
                WHEN o.ids OPERATOR(pg_catalog.=) '{}' THEN <put>('I', n.ids)
                WHEN n.ids OPERATOR(pg_catalog.=) '{}' THEN <put>('D', o.ids)$sql$ END, $sql$
            END INTO cap_done
            FROM <missing>, <old_rows>, <new_rows>
            WHERE pg_catalog.cardinality(o.ids) OPERATOR(pg_catalog.<=) <few>
                AND pg_catalog.cardinality(n.ids) OPERATOR(pg_catalog.<=) <few>$sql$,
        CASE WHEN att.columns IS NOT NULL OR doubtful THEN $sql$
                AND NOT EXISTS (SELECT FROM old_table OFFSET <few>) AND NOT EXISTS (SELECT FROM new_table OFFSET <few>)$sql$ END,
        CASE WHEN doubtful THEN $sql$
                AND ARRAY(SELECT <id> FROM old_table LIMIT <few>) OPERATOR(pg_catalog.=)
                    ARRAY(SELECT <id> FROM new_table LIMIT <few>)$sql$ END, ';'),
        names || jsonb_build_object('old_rows', tube_private_rows(att, names, 'old_table', 'o'),
            'new_rows', tube_private_rows(att, names, 'new_table', 'n')))
$$;

-- tube_private_side: a query for the ids on one side of a statement that pass.
--
-- Arguments: names: fragments of tube_private_capture_body; side: 1 old, 2 new; source: the table of that side.
CREATE OR REPLACE FUNCTION :"schema".tube_private_side(names jsonb, side integer, source text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT tube_private_fill('SELECT <id> AS id, <side> AS side FROM <source> AS "the row" WHERE (<passes>)',
        names || jsonb_build_object('side', side, 'source', source))
$$;

-- tube_private_changed_sides: a query for the ids of an UPDATE, and the side of each.
--
-- With `columns`, rows are compared by their ids, by whether they pass, and by these columns, as a multiset, because
-- nothing tells which old row became which new one; what is on one side only, changed.
CREATE OR REPLACE FUNCTION :"schema".tube_private_changed_sides(
    att :"schema".tube_attachment, names jsonb, doubtful boolean
) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT concat(
        CASE WHEN att.columns IS NULL THEN tube_private_side(names, 1, 'old_table') || ' UNION ALL ' || tube_private_side(names, 2, 'new_table')
            ELSE tube_private_fill($sql$
                WITH was AS (SELECT <id> AS id, (<passes>) IS TRUE AS passes, <named_vals> FROM old_table AS "the row"),
                    is_now AS (SELECT <id> AS id, (<passes>) IS TRUE AS passes, <named_vals> FROM new_table AS "the row")
                SELECT d.id, 1 AS side FROM (SELECT * FROM was EXCEPT ALL SELECT * FROM is_now) AS d WHERE d.passes
                UNION ALL SELECT d.id, 2 FROM (SELECT * FROM is_now EXCEPT ALL SELECT * FROM was) AS d WHERE d.passes$sql$, names) END,
        CASE WHEN doubtful THEN tube_private_fill(' UNION ALL SELECT d.id, 1'
            ' FROM (SELECT <id> AS id FROM old_table EXCEPT SELECT <id> FROM new_table) AS d'
            ' WHERE EXISTS (SELECT <id> FROM new_table EXCEPT SELECT <id> FROM old_table)', names) END)
$$;

-- tube_private_by_sets: lines that touch ids by op, an array at a time.
--
-- Arguments: names: fragments of tube_private_capture_body; sides: a query for ids and the side of each.
CREATE OR REPLACE FUNCTION :"schema".tube_private_by_sets(names jsonb, sides text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT tube_private_fill($sql$
            FOR cap_put IN
                SELECT p.op, pg_catalog.array_agg(p.id) AS ids
                FROM (
                    SELECT k.id, k.op, (pg_catalog.row_number() OVER (PARTITION BY k.op) OPERATOR(pg_catalog.-) 1)
                        OPERATOR(pg_catalog./) <few> AS part
                    FROM (
                        SELECT x.id, CASE WHEN pg_catalog.bit_or(x.side) OPERATOR(pg_catalog.=) 1 THEN 'D'
                            WHEN pg_catalog.bit_or(x.side) OPERATOR(pg_catalog.=) 2 THEN 'I' ELSE 'U' END AS op
                        FROM <missing>, LATERAL (<sides>) AS x
                        GROUP BY x.id
                    ) AS k
                ) AS p
                GROUP BY p.op, p.part
            LOOP
                cap_done := <put>(cap_put.op, cap_put.ids) AND cap_done IS NOT false;
            END LOOP;$sql$, names || jsonb_build_object('sides', sides))
$$;

-- tube_private_passes_call: a call of an attachment's predicate as SQL text.
--
-- Domains are cast to what they are made of: so the types are just those of the function, and no other one of the same
-- name could be taken for it.
--
-- Arguments: att; row: a name and a dot before each column, or NULL.
-- Result: the text; NULL when there is no predicate.
CREATE OR REPLACE FUNCTION :"schema".tube_private_passes_call(att :"schema".tube_attachment, row_name text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT tube_private_function(att, 'passes') || '(' || coalesce(string_agg(format(
        CASE WHEN c.type = c.bound THEN '%s%I' ELSE '%s%I::%s' END, row_name, c.name, c.bound::regtype), ', ' ORDER BY c.attnum), '')
        || ')'
    FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c
    WHERE att.row_filter IS NOT NULL
    HAVING att.row_filter IS NOT NULL
$$;

-- tube_private_guard: a condition that is true while the table has the columns that a trigger function was made for.
--
-- Not needed where there is neither a predicate nor columns. Types of users are compared with those that the predicate is
-- bound to, whatever they are called now. A transaction at REPEATABLE READ may see old names in the catalogue, while its
-- statement works by those of now.
--
-- Arguments: att; rel: the name of a variable that holds the table's number.
-- Result: SQL text; NULL where it is not needed.
CREATE OR REPLACE FUNCTION :"schema".tube_private_guard(
    att :"schema".tube_attachment, rel text = 'TG_RELID'
) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT string_agg(format('EXISTS (SELECT FROM pg_catalog.pg_attribute AS a WHERE a.attrelid OPERATOR(pg_catalog.=) %s'
            ' AND a.attname OPERATOR(pg_catalog.=) %L%s)', rel, c.name, c.is_type), E'\n        AND ')
        || format(E'\n        AND (pg_catalog.current_setting(''transaction_isolation'') OPERATOR(pg_catalog.=) ''read committed'''
            ' OR %I.tube_private_is_current(%L))', tube_private_schema(), att.trigger_function)
    FROM (
        SELECT p.name, CASE WHEN p.type < 16384 THEN format(' AND a.atttypid OPERATOR(pg_catalog.=) %s', p.type)
            WHEN p.type = p.bound THEN format(' AND a.atttypid OPERATOR(pg_catalog.=) (SELECT f.proargtypes[%s] FROM pg_catalog.pg_proc'
                ' AS f WHERE f.oid OPERATOR(pg_catalog.=) pg_catalog.to_regproc(%L))',
                row_number() OVER (ORDER BY p.attnum) - 1, tube_private_function(att, 'passes'))
            ELSE format(' AND a.atttypid OPERATOR(pg_catalog.=) pg_catalog.to_regtype(%L)', p.type::regtype)
                -- It is cast to what it is made of, by a name.
                || CASE WHEN p.bound < 16384 THEN '' ELSE format(' AND pg_catalog.to_regtype(%L) OPERATOR(pg_catalog.=)'
                    ' (SELECT f.proargtypes[%s] FROM pg_catalog.pg_proc AS f WHERE f.oid OPERATOR(pg_catalog.=) pg_catalog.to_regproc(%L))',
                    p.bound::regtype, row_number() OVER (ORDER BY p.attnum) - 1, tube_private_function(att, 'passes')) END
            END AS is_type
        FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS p
        UNION ALL
        SELECT a.attname, CASE WHEN a.atttypid < 16384 THEN format(' AND a.atttypid OPERATOR(pg_catalog.=) %s', a.atttypid) ELSE '' END
        FROM pg_attribute AS a WHERE a.attrelid = att.tbl AND a.attnum > 0 AND a.attname = ANY (att.columns)
    ) AS c
    HAVING count(*) > 0
$$;

-- tube_private_row_body: what a trigger function does for one row, where logical replication writes it.
--
-- Replication's apply fires row triggers only, and those that are enabled for it. A row costs a call of ours to see
-- whether the columns are still as they were; by the names of now, all are touched.
--
-- Arguments: att: one with `replica`.
-- Result: the first lines of the body, for rows; it leaves statements to what follows.
CREATE OR REPLACE FUNCTION :"schema".tube_private_row_body(att :"schema".tube_attachment) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    key_type CONSTANT regtype := tube_private_key_type(att.tube);
    old_id CONSTANT text := tube_private_key_sql(format('OLD.%I', att.id_col), key_type);
    new_id CONSTANT text := tube_private_key_sql(format('NEW.%I', att.id_col), key_type);
BEGIN
    RETURN tube_private_fill($template$
    IF TG_LEVEL OPERATOR(pg_catalog.=) 'ROW' THEN
        IF <schema>.tube_private_is_current(<name>) AND (<guard>) THEN
            PERFORM <put>(k.op, ARRAY[k.id])
            FROM (
                SELECT x.id, CASE WHEN pg_catalog.bit_or(x.side) OPERATOR(pg_catalog.=) 1 THEN 'D'
                    WHEN pg_catalog.bit_or(x.side) OPERATOR(pg_catalog.=) 2 THEN 'I' ELSE 'U' END AS op
                FROM (
                    SELECT <old_id> AS id, 1 AS side WHERE TG_OP OPERATOR(pg_catalog.<>) 'INSERT' AND <old_passes>
                    UNION ALL
                    SELECT <new_id>, 2 WHERE TG_OP OPERATOR(pg_catalog.<>) 'DELETE' AND <new_passes>
                ) AS x
                GROUP BY x.id
            ) AS k<unchanged>;
            RETURN NULL;
        END IF;
        cap_key := <schema>.tube_private_key_now(<name>, TG_RELID, <key_literal>);
        IF cap_key IS NOT NULL AND TG_OP OPERATOR(pg_catalog.<>) 'INSERT' THEN
            EXECUTE pg_catalog.concat(<now>, <now_id>, ') AS x') USING OLD;
        END IF;
        IF cap_key IS NOT NULL AND TG_OP OPERATOR(pg_catalog.<>) 'DELETE' THEN
            EXECUTE pg_catalog.concat(<now>, <now_id>, ') AS x') USING NEW;
        END IF;
        RETURN NULL;
    END IF;$template$, jsonb_build_object(
        'schema', quote_ident(tube_private_schema()),
        'name', quote_literal(att.trigger_function),
        'key_literal', quote_literal(quote_ident(att.id_col)),
        'put', tube_private_function(att, 'put'),
        'guard', coalesce(tube_private_guard(att), 'true'),
        'old_id', old_id,
        'new_id', new_id,
        'old_passes', coalesce(tube_private_passes_call(att, 'OLD.'), 'true'),
        'new_passes', coalesce(tube_private_passes_call(att, 'NEW.'), 'true'),
        'now', quote_literal(format('SELECT %s(''U'', ARRAY[x.id]) FROM (SELECT ', tube_private_function(att, 'put'))),
        'now_id', tube_private_now_id(key_type, '($1).'),
        -- Of an UPDATE that changed nothing that counts, the key and the filter neither, no touch.
        'unchanged', coalesce((
            SELECT format(E'\n            WHERE k.op OPERATOR(pg_catalog.<>) ''U'' OR TG_OP OPERATOR(pg_catalog.<>) ''UPDATE'''
                ' OR ARRAY[ROW(%s)] OPERATOR(pg_catalog.<>) ARRAY[ROW(%s)]',
                array_to_string(tube_private_column_values(att.tbl, att.columns, 'OLD.'), ', '),
                array_to_string(tube_private_column_values(att.tbl, att.columns, 'NEW.'), ', '))
            WHERE att.columns IS NOT NULL), '')));
END
$$;
