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

-- tube_private_attached: the table that is attached by now, by the name of its trigger function; NULL where rel, whose trigger
-- has fired, is neither that table nor a part of it, nor stored as one.
-- After a restore from a dump tables have other numbers, until their owners look. And a capture function may still be
-- that of a trigger on a partition that was detached, or on another table of a former owner's: that is none of the tube's.
CREATE OR REPLACE FUNCTION :"schema".tube_private_attached(rel oid, name text) RETURNS regclass
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT a.tbl FROM tube_attachment AS a
    WHERE a.trigger_function = name AND (a.tbl IN (rel, pg_partition_root(rel)) OR rel = ANY (a.members))
$$;

-- tube_private_has_left: whether a table is stored as a part of an attachment, and is none by now: it may come back before
-- anybody looks.
CREATE OR REPLACE FUNCTION :"schema".tube_private_has_left(rel oid, name text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT EXISTS (SELECT FROM tube_attachment AS a WHERE a.trigger_function = name AND rel = ANY (a.members)
        AND (a.tbl IN (rel, pg_partition_root(rel))) IS NOT TRUE)
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
        ELSE format('pg_typeof(r.%I)::oid = ANY (%L::oid[])', a.attname, CASE WHEN a.attname <> ALL (tube_private_key_names(att)) THEN ARRAY[t.oid]
            ELSE tube_private_key_types(CASE WHEN att.key_cols IS NULL THEN tube_private_key_type(att.tube)
                ELSE (tube_key_types(att.tbl, ARRAY[a.attname]))[1]::regtype END) END) END ORDER BY a.attnum)
    INTO conditions
    FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
    WHERE a.attrelid = att.tbl AND a.attnum > 0 AND NOT a.attisdropped
        AND (a.attname = ANY (tube_private_key_names(att)) OR (t.oid < 16384 OR t.typtype = 'd') AND a.attnum IN (SELECT c.attnum FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c));
    IF att.row_filter IS NOT NULL THEN
        conditions := conditions || (
            SELECT format('%1$s::oid::regprocedure::text = format(''%%s(%%s)'', %1$s, concat_ws('','', NULL::text%2$s))', passes,
                string_agg(format(', format_type(pg_typeof(%s), NULL)', tube_private_bound_sql('r', c.name, c.type, c.bound)), '' ORDER BY c.attnum))
            FROM tube_private_predicate_columns(att.tbl, att.row_filter) AS c);
    END IF;
    IF att.columns IS NOT NULL THEN
        conditions := conditions || (SELECT format('num_nulls(%s) > 0', string_agg(format('r.%I', c), ', ')) FROM unnest(att.columns) AS c);
    END IF;
    -- A virtual generated column has no value in the rows that a trigger sees: to name it fails. An old snapshot may still
    -- show another one.
    query := replace(format('SELECT %s AND NOT EXISTS (SELECT FROM pg_attribute AS v WHERE v.attname = ANY (%L) AND (v.attgenerated = ''v'''
            ' OR current_setting(''transaction_isolation'') <> ''read committed'' AND tube_private_is_replaced(v.xmax)) AND v.attrelid = ',
            array_to_string(conditions, ' AND '), (tube_private_with_columns(att)).seen_names), '%', '%%')
        || '%1$L::regclass) FROM (SELECT (NULL::%1$s).*) AS r';
    rest := format('%L::pg_catalog.regclass, %s, %L', tube_private_function(att, 'door'), tube_private_flag_sql(att.tube),
        format('%s(text,%s[])', put, tube_private_type_sql(tube_private_key_type(att.tube))));
    RETURN jsonb_build_object(
        'fits', format('%1$I.tube_private_fits(''%2$s''::pg_catalog.regclass, %3$s, %4$L)'
            ' AND (true OR %5$s(NULL, NULL) OR %6$L::pg_catalog.regclass IS NULL)',
            tube_private_schema(), att.tbl::oid, rest, query, put, tube_private_qualify('tube_seq')),
        -- Computed when a statement is run.
        'fits_elsewhere', format('%1$I.tube_private_fits(%1$I.tube_private_attached(TG_RELID, %2$L), %3$s,'
            ' CASE WHEN %1$I.tube_private_has_left(TG_RELID, %2$L) THEN ''SELECT false'' ELSE %4$L END)',
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
