-- tube_private_capture_body: the text of the trigger function of an attached table.
--
-- A row filter works as in logical replication: let O be the ids of old rows that pass it, and N those of new rows.
-- N without O was inserted, O without N deleted, what is in both updated; so a row that enters, leaves or changes its
-- key is never missed. put makes U of all that for a related table.
--
-- 1. One row, where replication applies it: see tube_private_row_body.
-- 2. The usual statement, of one row or 100,000 (10,000 with keys of texts), has one op for all its ids: those of the
--    old and the new rows are the same, or there are none on one side. One query gathers them into arrays, and hands
--    them on. At most one id more than an array may have is gathered; OFFSET 0 keeps the planner from gathering them
--    once for each use. With `columns`, nothing is touched when nothing of them changed, and one row when it did.
-- 3. All else goes by sets: ids by op, in arrays of as many, so that memory is bounded whatever the statement writes.
--    With `columns`, rows are compared by their ids, by whether they pass, and by these columns, as a multiset, because
--    nothing tells which old row became which new one; what is on one side only, changed.
-- 4. Where the table no longer has the columns that the function was made for (DDL comes without asking us), all
--    written rows are touched, by the key's name of now: too much, and nothing too few. The usual statement
--    finds the key missing without looking for it: its name is then found in "missing", where it is NULL.
--
-- It runs as the table's owner, in anybody's statement. Each name and operator stands in full: whatever the writer's
-- search path, and because a path of its own would cost each statement a microsecond. For the same reason statements
-- name no variable, which would have them planned again and again.
--
-- Faults of Postgres 15 to 18 that it minds: a row that its new partition's trigger drops is among the old rows only. A
-- MERGE into a partitioned table that inserts a row and updates others shows the inserted row in place of the new
-- versions of those, so with a row filter, where an id is among the new ones only, those that are among the old ones
-- only count whether they pass or not.
CREATE OR REPLACE FUNCTION :"schema".tube_private_capture_body(att :"schema".tube_attachment) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    key_type CONSTANT regtype := tube_private_key_type(att.tube);
    -- Ids of an array: up to 1.6 MB of uuids; of texts, which may be long, fewer.
    few CONSTANT integer := CASE key_type WHEN 'text'::regtype THEN 10000 ELSE 100000 END;
    guard CONSTANT text := tube_private_guard(att);
    doubtful CONSTANT boolean := att.row_filter IS NOT NULL
        AND (SELECT c.relkind = 'p' FROM pg_class AS c WHERE c.oid = att.tbl);
    body text := $body$
-- Made by tube_private_capture_body.
#variable_conflict use_column
DECLARE
    cap_done pg_catalog.bool; -- NULL: not yet; false: there were NULLs among the ids, or no key
    cap_changed pg_catalog.bool := false;
    cap_key pg_catalog.text;
    cap_put pg_catalog.record;
BEGIN<row_body>
    IF TG_OP OPERATOR(pg_catalog.=) 'TRUNCATE' THEN
        -- By the very types of its arguments: other owners may make functions of its name, too, which are not to be called.
        PERFORM <agent>(TG_RELID::pg_catalog.regclass, NULL::pg_catalog.name[], 'D'::pg_catalog.text, NULL::<seal>);
        RETURN NULL;
    ELSIF pg_catalog.pg_current_xact_id_if_assigned() IS NULL THEN
        RETURN NULL; -- the statement wrote no row, and is to stay as cheap as that
    END IF;
    <if_changed>
        IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN
            SELECT CASE<nothing_changed>
                WHEN o.ids OPERATOR(pg_catalog.=) n.ids<of_one> THEN n.ids OPERATOR(pg_catalog.=) '{}' OR <put>('U', n.ids)<one_side>
            END INTO cap_done
            FROM <missing>,
                LATERAL (SELECT ARRAY<old_ids> AS ids<old_image> OFFSET 0) AS o,
                LATERAL (SELECT ARRAY<new_ids> AS ids<new_image> OFFSET 0) AS n
            WHERE pg_catalog.cardinality(o.ids) OPERATOR(pg_catalog.<=) <few>
                AND pg_catalog.cardinality(n.ids) OPERATOR(pg_catalog.<=) <few><of_few_rows><of_same_keys>;
        ELSIF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
            SELECT n.ids OPERATOR(pg_catalog.=) '{}' OR <put>('I', n.ids) INTO cap_done
            FROM <missing>, LATERAL (SELECT ARRAY<new_ids> AS ids OFFSET 0) AS n
            WHERE pg_catalog.cardinality(n.ids) OPERATOR(pg_catalog.<=) <few>;
        ELSE
            SELECT o.ids OPERATOR(pg_catalog.=) '{}' OR <put>('D', o.ids) INTO cap_done
            FROM <missing>, LATERAL (SELECT ARRAY<old_ids> AS ids OFFSET 0) AS o
            WHERE pg_catalog.cardinality(o.ids) OPERATOR(pg_catalog.<=) <few>;
        END IF;
        IF cap_done THEN
            RETURN NULL;
        END IF;
    END IF;
    IF NOT cap_changed AND cap_done IS NULL THEN
        IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN
            <for_each_array><changed_sides><loop>
        ELSIF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
            <for_each_array>SELECT <id> AS id, 2 AS side FROM new_table AS "the row" WHERE (<passes>)<loop>
        ELSE
            <for_each_array>SELECT <id> AS id, 1 AS side FROM old_table AS "the row" WHERE (<passes>)<loop>
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
$body$;
BEGIN
    -- First what depends on the options, and holds nothing of users; then names and texts of users.
    body := tube_private_fill(body, jsonb_build_object(
        'if_changed', CASE WHEN guard IS NULL THEN 'IF true THEN' ELSE E'IF (<guard>) IS NOT TRUE THEN\n        cap_changed := true;\n    ELSE' END,
        'old_ids', '(SELECT <id> FROM old_table AS "the row" WHERE <passes> LIMIT <few_and_one>)',
        'new_ids', '(SELECT <id> FROM new_table AS "the row" WHERE <passes> LIMIT <few_and_one>)',
        'one_side', CASE WHEN att.row_filter IS NULL THEN '' ELSE $sql$
                WHEN o.ids OPERATOR(pg_catalog.=) '{}' THEN <put>('I', n.ids)
                WHEN n.ids OPERATOR(pg_catalog.=) '{}' THEN <put>('D', o.ids)$sql$ END,
        'of_few_rows', CASE WHEN att.columns IS NULL AND NOT doubtful THEN '' ELSE $sql$
                AND NOT EXISTS (SELECT FROM old_table OFFSET <few>) AND NOT EXISTS (SELECT FROM new_table OFFSET <few>)$sql$ END,
        'of_same_keys', CASE WHEN NOT doubtful THEN '' ELSE $sql$
                AND ARRAY(SELECT <id> FROM old_table LIMIT <few>) OPERATOR(pg_catalog.=) ARRAY(SELECT <id> FROM new_table LIMIT <few>)$sql$ END,
        'changed_sides', CASE WHEN att.columns IS NULL THEN $sql$
                SELECT <id> AS id, 1 AS side FROM old_table AS "the row" WHERE (<passes>)
                UNION ALL SELECT <id>, 2 FROM new_table AS "the row" WHERE (<passes>)$sql$ ELSE $sql$
                WITH was AS (SELECT <id> AS id, (<passes>) IS TRUE AS passes, <named_values> FROM old_table AS "the row"),
                    is_now AS (SELECT <id> AS id, (<passes>) IS TRUE AS passes, <named_values> FROM new_table AS "the row")
                SELECT d.id, 1 AS side FROM (SELECT * FROM was EXCEPT ALL SELECT * FROM is_now) AS d WHERE d.passes
                UNION ALL SELECT d.id, 2 FROM (SELECT * FROM is_now EXCEPT ALL SELECT * FROM was) AS d WHERE d.passes$sql$ END
            || CASE WHEN NOT doubtful THEN '' ELSE $sql$
                UNION ALL SELECT d.id, 1 FROM (SELECT <id> AS id FROM old_table EXCEPT SELECT <id> FROM new_table) AS d
                WHERE EXISTS (SELECT <id> FROM new_table EXCEPT SELECT <id> FROM old_table)$sql$ END,
        'for_each_array', $sql$FOR cap_put IN
                SELECT p.op, pg_catalog.array_agg(p.id) AS ids
                FROM (
                    SELECT k.id, k.op, (pg_catalog.row_number() OVER (PARTITION BY k.op) OPERATOR(pg_catalog.-) 1)
                        OPERATOR(pg_catalog./) <few> AS part
                    FROM (
                        SELECT x.id, CASE WHEN pg_catalog.bit_or(x.side) OPERATOR(pg_catalog.=) 1 THEN 'D'
                            WHEN pg_catalog.bit_or(x.side) OPERATOR(pg_catalog.=) 2 THEN 'I' ELSE 'U' END AS op
                        FROM <missing>, LATERAL ($sql$,
        'loop', $sql$) AS x
                        GROUP BY x.id
                    ) AS k
                ) AS p
                GROUP BY p.op, p.part
            LOOP
                cap_done := <put>(cap_put.op, cap_put.ids) AND cap_done IS NOT false;
            END LOOP;$sql$)
        || CASE WHEN att.columns IS NULL THEN '{"nothing_changed": "", "of_one": "", "old_image": "", "new_image": ""}'
            ELSE jsonb_build_object(
                'nothing_changed', E'\n                WHEN o.image OPERATOR(pg_catalog.=) n.image THEN true',
                'of_one', ' AND pg_catalog.cardinality(n.image) OPERATOR(pg_catalog.=) 1',
                'old_image', ', ARRAY(SELECT ROW(<id>, (<passes>) IS TRUE, <values>) FROM old_table AS "the row" LIMIT <few_and_one>)'
                    ' AS image',
                'new_image', ', ARRAY(SELECT ROW(<id>, (<passes>) IS TRUE, <values>) FROM new_table AS "the row" LIMIT <few_and_one>)'
                    ' AS image')
            END);
    RETURN tube_private_fill(body, jsonb_build_object(
        'row_body', CASE WHEN att.replica THEN tube_private_row_body(att) ELSE '' END,
        'guard', guard,
        'id', tube_private_key_sql(quote_ident(att.id_col), key_type),
        'put', tube_private_function(att, 'put'),
        'agent', tube_private_function(att, 'agent'),
        'seal', tube_private_seal(tube_private_owner_of(att.tbl)),
        'schema', quote_ident(tube_private_schema()),
        'passes', coalesce(tube_private_passes_call(att), 'true'),
        'values', array_to_string(tube_private_column_values(att.tbl, att.columns), ', '),
        'named_values', (SELECT string_agg(format('%s AS c%s', v.value, v.place), ', ')
            FROM unnest(tube_private_column_values(att.tbl, att.columns)) WITH ORDINALITY AS v (value, place)),
        'few', few,
        'few_and_one', few + 1,
        -- Where the column is not there any more, this one is found by its name.
        'missing', format('(SELECT NULL::%s AS %I) AS missing', tube_private_type_sql(key_type), att.id_col),
        'name', quote_literal(att.trigger_function),
        'key_literal', quote_literal(quote_ident(att.id_col)),
        'now', quote_literal(format('SELECT %s(''U'', coalesce(pg_catalog.array_agg(DISTINCT x.id), ''{}'')) FROM (SELECT ',
            tube_private_function(att, 'put'))),
        'now_id', tube_private_now_id(key_type)));
END
$$;

-- tube_private_row_body: the first lines of that text, for a row that logical replication writes.
--
-- Its apply fires row triggers only, and those that are enabled for it. A row costs a call of ours to see whether
-- the columns are still as they were; by the names of now, all are touched. An UPDATE that changed nothing that counts,
-- neither the key nor whether the row passes, makes no touch.
CREATE OR REPLACE FUNCTION :"schema".tube_private_row_body(att :"schema".tube_attachment) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    key_type CONSTANT regtype := tube_private_key_type(att.tube);
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
            ) AS k
            WHERE k.op OPERATOR(pg_catalog.<>) 'U' OR TG_OP OPERATOR(pg_catalog.<>) 'UPDATE' OR <changed>;
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
        'old_id', tube_private_key_sql(format('OLD.%I', att.id_col), key_type),
        'new_id', tube_private_key_sql(format('NEW.%I', att.id_col), key_type),
        'old_passes', coalesce(tube_private_passes_call(att, 'OLD.'), 'true'),
        'new_passes', coalesce(tube_private_passes_call(att, 'NEW.'), 'true'),
        'changed', CASE WHEN att.columns IS NULL THEN 'true' ELSE format('ARRAY[ROW(%s)] OPERATOR(pg_catalog.<>) ARRAY[ROW(%s)]',
            array_to_string(tube_private_column_values(att.tbl, att.columns, 'OLD.'), ', '),
            array_to_string(tube_private_column_values(att.tbl, att.columns, 'NEW.'), ', ')) END,
        'now', quote_literal(format('SELECT %s(''U'', ARRAY[x.id]) FROM (SELECT ', tube_private_function(att, 'put'))),
        'now_id', tube_private_now_id(key_type, '($1).')));
END
$$;

-- tube_private_now_id: the key by its name of now, as the text of an expression over cap_key that gives SQL text.
CREATE OR REPLACE FUNCTION :"schema".tube_private_now_id(key_type regtype, row_name text = '') RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT format('pg_catalog.concat(%L, cap_key, %L)', format('%I.tube_private_key_%s(%s', tube_private_schema(), key_type, row_name),
        CASE key_type WHEN 'text'::regtype THEN ') COLLATE pg_catalog."C" AS id' ELSE ') AS id' END)
$$;

-- tube_private_fill: a template with its <names> replaced, each once, whatever the values hold.
--
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

-- tube_private_column_values: expressions by which columns are compared, before and after an UPDATE.
--
-- Two values that are equal to Postgres may look different in a document (1.0 and 1.00), and some types
-- have no equality (json); so only of simple types the values are compared, of others their text. Floats
-- are compared by their bits, and the function is run with settings under which the other texts are exact (see
-- tube_private_owner_ddl): a writer may have others, by which different values look the same.
--
-- Result: SQL texts, row_name before each column, in the order of the table; NULL where there are no columns.
CREATE OR REPLACE FUNCTION :"schema".tube_private_column_values(tbl regclass, columns name[], row_name text = '') RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT array_agg(format(CASE
        WHEN a.atttypid = ANY ('{boolean, smallint, integer, bigint, oid, uuid, date, time, timestamp, timestamptz, bytea}'::regtype[])
            THEN '%1$s'
        -- The text of these is the same under all settings.
        WHEN a.atttypid = ANY ('{text, varchar, numeric, json, jsonb}'::regtype[]) THEN '(%1$s::pg_catalog.text COLLATE pg_catalog."C")'
        WHEN a.atttypid = 'float8'::regtype THEN 'pg_catalog.float8send(%1$s)'
        WHEN a.atttypid = 'float4'::regtype THEN 'pg_catalog.float4send(%1$s)'
        -- By its output function, without a cast that somebody may have made.
        ELSE '(pg_catalog.concat(pg_catalog.num_nulls(%1$s), %1$s) COLLATE pg_catalog."C")'
        END, row_name || quote_ident(a.attname)) ORDER BY a.attnum)
    FROM pg_attribute AS a
    WHERE a.attrelid = tbl AND a.attnum > 0 AND a.attname = ANY (columns) AND a.attgenerated <> 'v'
$$;
