-- Removes everything that uninstall.sql names. Refuses while tables are attached, tubes hold pods, documents are parked, or
-- pytube's own tables hold records of outboxes (TU109), and if other roles' objects are in the schema or depend on it.
-- Nothing was changed then.
DO $$
DECLARE
    ours CONSTANT text := current_setting('pytube.install_schema');
    tubes text[];
    outboxes text[];
    adopted text[];
    tube text;
    holds boolean;
    holding text[] := '{}';
    boxes text[] := '{}';
    parked text;
    attached text[];
    named CONSTANT integer := 20;
BEGIN
    IF to_regclass(format('%I.tube_registry', ours)) IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_schema_name',
            MESSAGE = format('pytube is not installed in the schema %I', ours),
            HINT = 'Give the schema: psql -v schema=NAME.';
    END IF;
    -- No tube is made, and no table attached, from here on.
    EXECUTE format('LOCK TABLE %I.tube_registry IN SHARE ROW EXCLUSIVE MODE', ours);
    EXECUTE format('SELECT array_agg(r.tube ORDER BY r.tube) FROM %I.tube_registry AS r', ours) INTO tubes;
    EXECUTE format('SELECT array_agg(o.outbox), array_agg(o.outbox) FILTER (WHERE o.adopted) FROM %I.tube_outbox AS o', ours)
    INTO outboxes, adopted;
    FOREACH tube IN ARRAY coalesce(tubes, '{}') LOOP
        CONTINUE WHEN tube = ANY (adopted); -- an adopted table stays, with its records
        EXECUTE format('SELECT EXISTS (SELECT FROM %I.%I)', ours, tube) INTO holds;
        IF holds AND tube = ANY (outboxes) THEN
            boxes := boxes || quote_literal(tube);
        ELSIF holds THEN
            holding := holding || quote_literal(tube);
        END IF;
    END LOOP;
    EXECUTE format('SELECT string_agg(quote_literal(k.tube), '', '' ORDER BY k.tube)'
        ' FROM (SELECT DISTINCT p.tube FROM %I.tube_parked AS p) AS k', ours) INTO parked;
    -- A table that was dropped is captured no more.
    EXECUTE format('SELECT array_agg(DISTINCT a.tbl::text ORDER BY a.tbl::text) FROM %I.tube_attachment AS a'
        ' JOIN pg_catalog.pg_class AS c ON c.oid = a.tbl', ours) INTO attached;
    IF ((holding || boxes) <> '{}' OR parked IS NOT NULL OR attached IS NOT NULL) AND NOT current_setting('pytube.install_force')::boolean THEN
        RAISE EXCEPTION USING ERRCODE = 'TU109',
            MESSAGE = concat_ws(', and ',
                'tables are attached, whose changes would no longer be captured: ' || array_to_string(attached[:named], ', ')
                    || CASE WHEN cardinality(attached) > named THEN format(' and %s more', cardinality(attached) - named) ELSE '' END,
                'there are pods in the tubes ' || nullif(array_to_string(holding, ', '), ''),
                'there are records in the outboxes ' || nullif(array_to_string(boxes, ', '), ''),
                'there are parked documents of the tubes ' || parked),
            HINT = 'Detach the tables (tube_table_ensure_detached), let the workers drain the tubes, and retry or discard the parked documents; '
                'or drop everything with psql -v force=1.';
    END IF;
    FOREACH tube IN ARRAY coalesce(tubes, '{}') LOOP
        EXECUTE format('SELECT %1$I.outbox_ensure_absent(o.outbox) FROM %1$I.tube_outbox AS o WHERE o.outbox = $1', ours) USING tube;
        EXECUTE format('SELECT %1$I.tube_ensure_absent(r.tube) FROM %1$I.tube_registry AS r WHERE r.tube = $1', ours) USING tube;
    END LOOP;
    PERFORM set_config('pytube.install_report', format('uninstalled from the schema %I', ours), false);
END
$$;

-- They would keep their functions from going.
DROP TRIGGER IF EXISTS tube_sleeper_flag_trigger ON :"schema".tube_sleeper;
DROP TRIGGER IF EXISTS tube_backfill_gone_trigger ON :"schema".tube_backfill;
-- So do staged pods go, and then the other one.
DELETE FROM :"schema".tube_job;
DROP TRIGGER IF EXISTS tube_job_gone_trigger ON :"schema".tube_job;

-- pytube's objects are dropped by name, so that no other role's go with them.
DO $$
DECLARE
    ours CONSTANT text := current_setting('pytube.install_schema');
    step text;
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_depend AS d WHERE d.classid = 'pg_catalog.pg_class'::regclass
        AND d.objid = to_regclass(format('%I.tube_registry', ours)) AND d.deptype = 'e')
    THEN
        DROP EXTENSION pytube; -- with all that follows, but for the schema
        RETURN;
    END IF;
    FOR step IN
        SELECT format('DROP EVENT TRIGGER %I', e.evtname) FROM pg_catalog.pg_event_trigger AS e
        WHERE starts_with(e.evtname::text, 'pytube_' || left(md5(ours), 8) || '_')
    LOOP
        EXECUTE step;
    END LOOP;
    FOR step IN
        SELECT format('DROP FUNCTION %s', p.oid::regprocedure) FROM pg_catalog.pg_proc AS p
        WHERE p.pronamespace = to_regnamespace(quote_ident(ours)) AND p.proname SIMILAR TO '(tube|outbox)\_%'
    LOOP
        EXECUTE step;
    END LOOP;
    EXECUTE (
        SELECT 'DROP TABLE ' || string_agg(c.oid::regclass::text, ', ') FROM pg_catalog.pg_class AS c
        WHERE c.relnamespace = to_regnamespace(quote_ident(ours)) AND c.relkind = 'r' AND c.relname LIKE 'tube\_%'
            AND c.relowner = (SELECT o.relowner FROM pg_catalog.pg_class AS o WHERE o.oid = format('%I.tube_registry', ours)::regclass));
    EXECUTE format('DROP SEQUENCE %1$I.tube_seq; DROP DOMAIN %1$I.tube_shard; DROP SCHEMA %2$I',
        ours, current_setting('pytube.install_capture'));
END
$$;
DROP SCHEMA :"schema";
