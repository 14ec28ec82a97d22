-- Outboxes: made, adopted, changed, dropped, listed.
--
-- An outbox has a row of tube_registry, of the kind 'outbox', so that its terms, its lease and its wake-up work as for
-- tubes, and a row of tube_outbox, which names its table. pytube makes the table, in its schema, or the application
-- owns and writes it: then it stays where and as it is.

-- tube_private_require_outbox: what tube_outbox has of an outbox that has to be there; errors of tube_private_require.
CREATE OR REPLACE FUNCTION :"schema".tube_private_require_outbox(outbox text) RETURNS :"schema".tube_outbox
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    box tube_outbox;
BEGIN
    SELECT o.* INTO box FROM tube_outbox AS o WHERE o.outbox = tube_private_require_outbox.outbox;
    IF NOT FOUND THEN
        PERFORM tube_private_require(outbox, 'outbox');
    END IF;
    RETURN box;
END
$$;

-- Arguments:
--   outbox: its name, 1 to 57 bytes, no comma; no tube may have it.
--   partitions: 1 to 1024. Another number than before ends every term, and waits for no writer. A NOTICE says when the
--     index for it is still to be built (see outbox_index_sql).
--   value_type: of the values: text or bytea. NULL means text for a new outbox, and no change for an existing one;
--     it can't be changed.
-- Result: nothing. Nothing is done when the outbox is like that already.
-- Errors: 22023 value_type; TU101 name; TU103 partitions; TU111 it is a tube; 55P03 the locks could not be had. Nothing
--   was changed then.
-- Locks: until the transaction ends, the registry row FOR UPDATE, and with another number of partitions also all leader
--   rows, and the outbox's own table if it can be had at once. None when nothing is to be done.
CREATE OR REPLACE FUNCTION :"schema".outbox_ensure_exists(
    outbox text, partitions integer = 1, value_type regtype = NULL
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    was tube_outbox := tube_private_enter_outbox(outbox, partitions);
BEGIN
    IF coalesce(value_type, 'text') NOT IN ('text', 'bytea') THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('the values of outbox %L can''t have the type %s', outbox, value_type),
            HINT = 'Give text or bytea.';
    ELSIF value_type <> was.value_type THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('the values of outbox %L have the type %s, not %s', outbox, was.value_type, value_type),
            HINT = 'Make another outbox for values of another type.';
    ELSIF was.outbox IS NULL THEN
        PERFORM tube_private_make_outbox(outbox, coalesce(value_type, 'text'));
    END IF;
    PERFORM tube_private_repartition_outbox(outbox, partitions);
END
$$;
COMMENT ON FUNCTION :"schema".outbox_ensure_exists IS
    'Creates an outbox with its own table, or changes its partitions. Without partitions it gets 1, even if it has '
    'more. value_type is text or bytea, and can''t be changed.';

-- tube_private_enter_outbox: makes the registry row of an outbox, with its leader rows and its flag, unless it is there.
-- Result: its row of tube_outbox as it was; all NULL where the outbox is new. Errors: TU101, TU103, TU111.
CREATE OR REPLACE FUNCTION :"schema".tube_private_enter_outbox(outbox text, partitions integer)
RETURNS :"schema".tube_outbox
LANGUAGE plpgsql AS $$
DECLARE
    reg tube_registry;
    wrong CONSTANT text := tube_private_wrong_name(outbox);
BEGIN
    IF (partitions BETWEEN 1 AND 1024) IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = 'TU103', HINT = 'Give 1 to 1024.',
            MESSAGE = format('an outbox can''t have %s partitions', coalesce(partitions::text, 'NULL'));
    ELSIF EXISTS (SELECT FROM tube_registry AS r WHERE r.tube = outbox) THEN
        RETURN tube_private_require_outbox(outbox);
    ELSIF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU101',
            MESSAGE = format('%s is not a valid outbox name: %s', quote_nullable(outbox), wrong),
            HINT = 'Choose a name of 1 to 57 bytes without commas, such as orders.';
    END IF;
    INSERT INTO tube_registry (tube, kind, partitions, last_epoch)
    SELECT outbox, 'outbox', partitions, i.last_epoch FROM tube_installation AS i
    ON CONFLICT DO NOTHING
    RETURNING * INTO reg;
    IF NOT FOUND THEN
        RETURN tube_private_require_outbox(outbox); -- another session made it meanwhile
    END IF;
    PERFORM tube_private_free_partitions(outbox), tube_private_make_flag(reg);
    RETURN NULL;
END
$$;

-- tube_private_make_outbox: the own table of a new outbox.
-- Go programs that write to goharvest's table can write to it unchanged. As with tubes (tube_private_make), a mark stays
-- within its page, and the default of id gives the transaction its xid before it draws from tube_seq: the settled seq
-- and so the floors of marks rest on that. partition_key is last, because goharvest's readers know the others by place.
CREATE OR REPLACE FUNCTION :"schema".tube_private_make_outbox(outbox text, value_type regtype) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    queue CONSTANT text := tube_private_qualify(outbox);
BEGIN
    EXECUTE format($ddl$
        CREATE TABLE %s (
            id bigint PRIMARY KEY DEFAULT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('tube_seq') END,
            create_time timestamptz NOT NULL DEFAULT clock_timestamp(),
            kafka_topic varchar(249) NOT NULL,
            kafka_key text,
            kafka_value %s,
            kafka_header_keys text[] NOT NULL DEFAULT '{}',
            kafka_header_values text[] NOT NULL DEFAULT '{}',
            leader_id uuid,
            partition_key text
        ) WITH (
            fillfactor = 45,
            autovacuum_vacuum_scale_factor = 0.05,
            autovacuum_vacuum_threshold = 5000,
            autovacuum_vacuum_insert_scale_factor = 0.1,
            autovacuum_vacuum_cost_delay = 0,
            autovacuum_analyze_scale_factor = 0.1,
            autovacuum_analyze_threshold = 5000
        )$ddl$, queue, value_type);
    INSERT INTO tube_outbox (outbox, tbl, value_type, adopted) VALUES (outbox, queue::regclass, value_type, false);
    PERFORM tube_private_fit_index(outbox), tube_private_provide_outbox(outbox);
END
$$;

-- tube_private_provide_outbox: the rights on an own table, and its trigger; called again by each installation.
-- Only defaults fill id and leader_id: a record with a chosen id may lie below a floor, where
-- marks look every half a minute only.
CREATE OR REPLACE FUNCTION :"schema".tube_private_provide_outbox(outbox text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(outbox, 'any');
    queue CONSTANT text := tube_private_qualify(outbox);
    admin CONSTANT name := tube_private_role('admin');
BEGIN
    PERFORM tube_private_make_flag(reg);
    IF (tube_private_require_outbox(outbox)).adopted THEN
        RETURN;
    END IF;
    EXECUTE format('REVOKE ALL ON %s FROM PUBLIC', queue);
    EXECUTE format('GRANT SELECT, UPDATE (leader_id), DELETE ON %s TO %I', queue, tube_private_role('worker'));
    EXECUTE format('GRANT SELECT, DELETE ON %s TO %I', queue, admin);
    EXECUTE format('GRANT INSERT (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values,'
        ' partition_key), SELECT (id) ON %s TO %I, %I', queue, tube_private_role('writer'), admin);
    EXECUTE format('GRANT SELECT (id, create_time, kafka_topic, kafka_key, partition_key, leader_id) ON %s TO %I', queue,
        tube_private_role('monitor'));
    IF NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = queue::regclass AND t.tgname = 'outbox_wake_trigger') THEN
        EXECUTE tube_private_outbox_trigger(reg, queue);
    END IF;
END
$$;

-- tube_private_outbox_trigger: the statement that makes the trigger by which writers wake a sleeping worker.
CREATE OR REPLACE FUNCTION :"schema".tube_private_outbox_trigger(reg :"schema".tube_registry, tbl text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT format('CREATE TRIGGER outbox_wake_trigger AFTER INSERT ON %s FOR EACH STATEMENT EXECUTE FUNCTION %s(%L, %L)',
        tbl, tube_private_qualify('tube_private_outbox_wake'), reg.tube, tube_private_qualify('tube_sleeps_' || reg.number))
$$;

-- tube_private_outbox_wake: the trigger by which writers wake a sleeping worker; its arguments: the outbox, the flag.
-- The flag is missing where an adopted table was released by a role that may not drop the trigger.
CREATE OR REPLACE FUNCTION :"schema".tube_private_outbox_wake() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    IF pg_sequence_last_value(to_regclass(TG_ARGV[1])) > 1 THEN
        PERFORM tube_private_wake_sleepers(TG_ARGV[0], NULL);
    END IF;
    RETURN NULL;
END
$$;

-- tube_private_repartition_outbox: gives an outbox a number of partitions, and its own table the index for it where that
-- is quick; nothing where it has that number.
CREATE OR REPLACE FUNCTION :"schema".tube_private_repartition_outbox(outbox text, partitions integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM tube_registry AS r WHERE r.tube = outbox AND r.partitions <> $2;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM FROM tube_registry AS r WHERE r.tube = outbox AND r.partitions <> $2 FOR UPDATE;
    IF FOUND THEN
        PERFORM tube_private_repartition(outbox, partitions);
        IF NOT tube_private_fit_index(outbox) THEN
            RAISE NOTICE USING MESSAGE = format('outbox %L has no index for its %s partitions yet', outbox, partitions),
                HINT = format('Outside of a transaction, run what outbox_index_sql(%L, %s) gives, until it gives NULL.',
                    outbox, partitions);
        END IF;
    END IF;
END
$$;

-- Arguments: in_outbox. Errors, locks: those of outbox_drop, but for TU102 and TU109.
-- Errors: 42501, 55P03.
CREATE OR REPLACE FUNCTION :"schema".outbox_ensure_absent(in_outbox text) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    PERFORM outbox_drop(l.outbox, true) FROM outbox_list() AS l WHERE l.outbox = in_outbox;
END
$$;
COMMENT ON FUNCTION :"schema".outbox_ensure_absent IS
    'Drops an outbox with all its records, or releases an adopted table. Does nothing if there is no such outbox.';

-- Arguments: outbox; force: drops it even while records wait, which are lost.
-- Errors: TU102 unknown outbox; TU111 it is a tube; TU109 records wait in its own table; 42501 an adopted table has the
--   trigger that wakes workers, and belongs to another role; 55P03 the locks could not be had. Nothing was changed then.
-- Locks: until the transaction ends, the registry row and all leader rows FOR UPDATE, and ACCESS EXCLUSIVE the outbox's own
--   table, or an adopted one with the trigger.
CREATE OR REPLACE FUNCTION :"schema".outbox_drop(outbox text, force boolean = false) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    todo CONSTANT record := tube_private_drop_outbox(outbox, force);
BEGIN
    PERFORM tube_private_patiently(todo.needed, format('outbox %L is dropped', outbox)) WHERE todo.needed <> '{}';
    BEGIN
        PERFORM tube_private_patiently(todo.wanted, format('outbox %L is dropped', outbox)) WHERE todo.wanted <> '{}';
    EXCEPTION WHEN insufficient_privilege THEN
        RAISE WARNING USING MESSAGE = format('the table of outbox %L keeps objects that belong to its owner: %s', outbox, SQLERRM),
            HINT = 'Its owner may run: ' || array_to_string(todo.wanted, '; ') || ';';
    END;
END
$$;
COMMENT ON FUNCTION :"schema".outbox_drop IS
    'Drops an outbox without waiting records; with force, any. An adopted table stays.';

-- tube_private_drop_outbox: the part of outbox_drop that runs with the rights of pytube's owner.
-- Result: the statements left for the caller to run on an adopted table: needed: without them writers would call dropped
--   functions;
-- wanted: rights and indexes that do no harm.
CREATE OR REPLACE FUNCTION :"schema".tube_private_drop_outbox(
    outbox text, force boolean, OUT needed text[], OUT wanted text[]
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    reg tube_registry;
    box tube_outbox;
    lost CONSTANT text := format('SELECT tube_private_refuse_records(%L)', outbox);
BEGIN
    SELECT r.* INTO reg FROM tube_registry AS r WHERE r.tube = outbox FOR UPDATE;
    box := tube_private_require_outbox(outbox);
    IF force IS NOT TRUE AND NOT box.adopted THEN
        EXECUTE lost; -- before anybody's term ends, or anybody waits
    END IF;
    UPDATE tube_installation AS i SET last_epoch = greatest(i.last_epoch, reg.last_epoch);
    PERFORM tube_private_end_terms(outbox, NULL, 'superseded');
    IF NOT box.adopted THEN
        PERFORM tube_private_patiently(CASE WHEN force IS NOT TRUE THEN ARRAY[format('LOCK TABLE %s', box.tbl), lost] END
            || format('DROP TABLE %s', box.tbl), format('outbox %L is dropped', outbox));
    END IF;
    needed := ARRAY(
        SELECT format('DROP TRIGGER %I ON %s', t.tgname, box.tbl) FROM pg_trigger AS t
        WHERE box.adopted AND t.tgrelid = box.tbl AND t.tgfoid = 'tube_private_outbox_wake'::regproc);
    wanted := ARRAY(
        SELECT format('DROP INDEX %s', i.name) FROM tube_private_indexes(outbox) AS i WHERE box.adopted
        UNION ALL
        SELECT format('REVOKE ALL ON %s FROM %s, %s', box.tbl, quote_ident(tube_private_role('worker')),
            quote_ident(tube_private_role('monitor')))
        WHERE box.adopted AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = box.tbl));
    DELETE FROM tube_registry AS r WHERE r.tube = reg.tube;
    EXECUTE format('DROP SEQUENCE %s', tube_private_qualify('tube_sleeps_' || reg.number));
END
$$;

-- tube_private_refuse_records: TU109 where records are in the own table of an outbox, parked ones among them; it counts
-- 10000 of either at most.
CREATE OR REPLACE FUNCTION :"schema".tube_private_refuse_records(outbox text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    most CONSTANT integer := 10000;
    records bigint;
    parked bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM (SELECT FROM %s LIMIT %s) AS r', tube_private_qualify(outbox), most) INTO records;
    SELECT count(*) INTO parked
    FROM (SELECT FROM tube_outbox_parked AS k WHERE k.outbox = tube_private_refuse_records.outbox LIMIT most) AS p;
    IF records > 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'TU109',
            MESSAGE = format('outbox %L is not dropped: records that wait: %s%s%s', outbox,
                CASE WHEN records = most THEN 'at least ' END, records,
                CASE WHEN parked > 0 THEN format(', parked ones among them: %s', parked) END),
            HINT = concat('Let the workers drain it', CASE WHEN parked > 0 THEN ', and retry or discard the parked records' END,
                ', or throw the records away: force => true.');
    END IF;
END
$$;

-- Result: a row per outbox, by name. tbl: its table; a dropped one shows as a number. adopted: whether the table
--   belongs to the application. wakes: whether writers wake sleeping workers; else workers look now and then.
CREATE OR REPLACE FUNCTION :"schema".outbox_list() RETURNS TABLE (
    outbox text, partitions integer, tbl regclass, value_type regtype, adopted boolean, wakes boolean
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT o.outbox, r.partitions, o.tbl, o.value_type, o.adopted, EXISTS (
        SELECT FROM pg_trigger AS t WHERE t.tgrelid = o.tbl AND t.tgfoid = 'tube_private_outbox_wake'::regproc)
    FROM tube_outbox AS o JOIN tube_registry AS r ON r.tube = o.outbox
    ORDER BY o.outbox
$$;
COMMENT ON FUNCTION :"schema".outbox_list IS
    'Lists outboxes and their tables. wakes: whether writers wake sleeping workers.';

-- Adopting: an outbox over an existing table, as goharvest makes it. Its writers continue unchanged.
--
-- Code on an adopted table (triggers, expressions of indexes) is its owner's, so pytube never reads or writes it as
-- tube_owner: the owner grants the worker the rights that it needs, and the worker uses its own rights.

-- Arguments:
--   outbox: its name, as of outbox_ensure_exists.
--   tbl: a plain table with at least the columns id (a whole number, the primary key), create_time, kafka_topic, kafka_key,
--     kafka_value, kafka_header_keys, kafka_header_values and leader_id, as goharvest describes them.
--   partitions: as of outbox_ensure_exists; more than one needs the index of outbox_index_sql to be fast.
--   wake: whether the table gets a trigger by which its writers wake a sleeping worker; else the worker looks now and then.
-- Result: nothing. Nothing is done when the outbox is like that already.
-- Errors: 42501 the caller does not own the table; TU101 name; TU103 partitions; TU107 a relation that can't be adopted, or
--   is adopted already; TU108 no such table; TU111 it is a tube; 55P03 the locks could not be had. Nothing was changed then.
-- Locks: until the transaction ends, the registry row as by outbox_ensure_exists, and SHARE ROW EXCLUSIVE the table where
--   the trigger is made, ACCESS EXCLUSIVE where it goes.
CREATE OR REPLACE FUNCTION :"schema".outbox_adopt(
    outbox text, tbl regclass, partitions integer = 1, wake boolean = false
) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    owner CONSTANT name := (SELECT pg_get_userbyid(c.relowner) FROM pg_class AS c WHERE c.oid = tbl);
    doing CONSTANT text := format('%s is adopted by outbox %L', tbl, outbox);
    rights record;
    statements text[];
BEGIN
    IF owner IS NOT NULL AND NOT pg_has_role(owner, 'USAGE') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('%s belongs to %I, whose rights %I does not have', tbl, owner, current_user),
            HINT = 'Its owner has to adopt it, since the worker gets rights on it.';
    END IF;
    rights := tube_private_adoption_rights(outbox, tbl);
    PERFORM tube_private_patiently(rights.statements, doing);
    statements := tube_private_adopt(outbox, tbl, partitions, wake);
    PERFORM tube_private_patiently(statements, doing) WHERE statements <> '{}';
    PERFORM tube_private_open_schema(c.relnamespace, rights.worker) FROM pg_class AS c WHERE c.oid = tbl;
END
$$;
COMMENT ON FUNCTION :"schema".outbox_adopt IS
    'Creates an outbox over an existing table, or changes it. wake: writers wake a sleeping worker, by a trigger.';

-- tube_private_adoption_rights: the statements by which the owner of a table agrees to its adoption; worker: whom they let in.
-- Errors: TU107, TU108.
CREATE OR REPLACE FUNCTION :"schema".tube_private_adoption_rights(
    outbox text, tbl regclass, OUT worker name, OUT statements text[]
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    was text;
    wrong CONSTANT text := tube_private_adoption_fault(tbl);
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = tbl) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU108', MESSAGE = format('there is no table %s', coalesce(tbl::text, 'NULL')),
            HINT = 'Give the name of a table, with its schema.';
    ELSIF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TU107', MESSAGE = format('%s can''t be adopted: %s', tbl, wrong),
            HINT = 'Adopt a plain table with the columns that goharvest describes.';
    END IF;
    SELECT o.outbox INTO was FROM tube_outbox AS o WHERE o.tbl = $2 AND o.outbox <> $1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU107', MESSAGE = format('%s can''t be adopted: outbox %L has it', tbl, was),
            HINT = 'A table belongs to one outbox; drop the other one first.';
    END IF;
    worker := tube_private_role('worker');
    statements := ARRAY[
        format('GRANT SELECT, UPDATE (leader_id), DELETE ON %s TO %I', tbl, worker),
        format('GRANT SELECT (id, create_time, kafka_topic, kafka_key, leader_id) ON %s TO %I', tbl, tube_private_role('monitor'))];
END
$$;

-- tube_private_adopt: the part of outbox_adopt that runs with the rights of pytube's owner; returns the statements left for
-- the table's owner.
-- An administrator may call it for any table. That the worker has its rights shows that the table's owner has agreed: else a
-- later drop, or an uninstallation by a superuser, would take rights and indexes from a table that was not adopted.
CREATE OR REPLACE FUNCTION :"schema".tube_private_adopt(
    outbox text, tbl regclass, partitions integer, wake boolean
) RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    was tube_outbox;
    worker CONSTANT name := (tube_private_adoption_rights(outbox, tbl)).worker;
    wakes boolean;
BEGIN
    IF NOT (has_table_privilege(worker, tbl, 'SELECT') AND has_table_privilege(worker, tbl, 'DELETE')
            AND has_column_privilege(worker, tbl, 'leader_id', 'UPDATE')) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('%s has not been opened to %I by its owner', tbl, worker),
            HINT = 'Its owner has to adopt it (outbox_adopt).';
    END IF;
    was := tube_private_enter_outbox(outbox, partitions);
    IF was.outbox IS NULL THEN
        INSERT INTO tube_outbox (outbox, tbl, value_type, adopted)
        SELECT $1, $2, CASE a.atttypid WHEN 'bytea'::regtype THEN 'bytea' ELSE 'text' END::regtype, true
        FROM pg_attribute AS a WHERE a.attrelid = $2 AND a.attname = 'kafka_value';
    ELSIF was.tbl <> tbl THEN
        RAISE EXCEPTION USING ERRCODE = 'TU107',
            MESSAGE = format('%s can''t be adopted: outbox %L has the table %s', tbl, outbox, was.tbl),
            HINT = 'Choose another name, or drop that outbox first.';
    END IF;
    PERFORM tube_private_repartition_outbox(outbox, partitions);
    wakes := EXISTS (SELECT FROM pg_trigger AS t
        WHERE t.tgrelid = tbl AND t.tgfoid = 'tube_private_outbox_wake'::regproc);
    RETURN CASE WHEN wake AND NOT wakes THEN ARRAY[tube_private_outbox_trigger(tube_private_require(outbox, 'any'), tbl::text)]
        WHEN wakes AND wake IS NOT TRUE THEN ARRAY[format('DROP TRIGGER outbox_wake_trigger ON %s', tbl)] END;
END
$$;

-- tube_private_adoption_fault: why a table can't be adopted, in words; NULL when it can, or when there is none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_adoption_fault(tbl regclass) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT coalesce(tube_private_table_fault(tbl), CASE
        WHEN c.relkind = 'p' THEN 'it is a partitioned table'
        WHEN c.relpersistence = 'u' THEN 'it is an unlogged table, which a crash of the server empties'
        WHEN c.relrowsecurity THEN 'row-level security could hide records from the worker'
        WHEN EXISTS (SELECT FROM pg_rewrite AS w WHERE w.ev_class = tbl) THEN 'it has rules'
        ELSE (
            SELECT format(CASE WHEN a.attname IS NULL THEN 'it has no column %I of the type %s'
                ELSE 'its column %I has another type than %s' END, w.name, w.says)
            FROM (VALUES
                (1, 'id', 'bigint', '{bigint,integer,smallint}'),
                (2, 'create_time', 'timestamptz', '{timestamptz}'),
                (3, 'kafka_topic', 'varchar or text', '{varchar,text}'),
                (4, 'kafka_key', 'varchar or text', '{varchar,text}'),
                (5, 'kafka_value', 'varchar, text or bytea', '{varchar,text,bytea}'),
                (6, 'kafka_header_keys', 'text[]', '{text[],varchar[]}'),
                (7, 'kafka_header_values', 'text[]', '{text[],varchar[]}'),
                (8, 'leader_id', 'uuid', '{uuid}')
            ) AS w (place, name, says, types)
            LEFT JOIN pg_attribute AS a ON a.attrelid = tbl AND a.attname = w.name AND a.attnum > 0 AND NOT a.attisdropped
            WHERE a.atttypid IS NULL OR a.atttypid <> ALL (w.types::regtype[])
            ORDER BY w.place LIMIT 1)
        END, (
            -- A record without a topic would be in no partition, and one without a time could not be reported.
            SELECT format('its column %I may be NULL', a.attname) FROM pg_attribute AS a
            WHERE a.attrelid = tbl AND a.attname IN ('create_time', 'kafka_topic') AND NOT a.attnotnull
            ORDER BY a.attname LIMIT 1
        ), CASE WHEN NOT EXISTS (
            SELECT FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = tbl AND a.attnum = i.indkey[0]
            WHERE i.indrelid = tbl AND i.indisprimary AND i.indisvalid AND i.indimmediate AND i.indnkeyatts = 1
                AND a.attname = 'id'
        ) THEN 'its primary key is not the column id' END)
    FROM pg_class AS c WHERE c.oid = tbl
$$;

-- tube_private_open_schema: lets the worker look into the schema of an adopted table, with the rights of the caller.
-- A WARNING names the remaining steps if the caller may not do them.
CREATE OR REPLACE FUNCTION :"schema".tube_private_open_schema(schema regnamespace, worker name) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    statement CONSTANT text := format('GRANT USAGE ON SCHEMA %s TO %I', schema, worker);
BEGIN
    IF has_schema_privilege(worker, schema::oid, 'USAGE') THEN
        RETURN;
    END IF;
    BEGIN
        EXECUTE statement;
    EXCEPTION WHEN insufficient_privilege THEN
        -- Missing rights are reported below.
    END;
    IF NOT has_schema_privilege(worker, schema::oid, 'USAGE') THEN
        RAISE WARNING USING MESSAGE = format('%I may not look into the schema %s yet', worker, schema),
            HINT = format('The owner of the schema has to run: %s;', statement);
    END IF;
END
$$;

-- Keys, partitions and indexes of outboxes.
--
-- What orders a record is its partition_key, else its kafka_key, within its topic. A record with neither has no order: it
-- stands for itself, by its id. The slot of a record is a number made of these; modulo the partitions it is the partition.
-- By md5, because hashtext may differ from version to version; in Python: pytube/outbox/partitions.py.

-- tube_private_outbox_key: the SQL text of what orders a record; NULL for one without order.
CREATE OR REPLACE FUNCTION :"schema".tube_private_outbox_key(adopted boolean) RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT CASE WHEN adopted THEN 'kafka_key::text' ELSE 'coalesce(partition_key, kafka_key)' END $$;

-- tube_private_outbox_slot: the SQL text of the slot of a record, with all names in full: the index of an adopted table
-- is made with its owner's search path.
CREATE OR REPLACE FUNCTION :"schema".tube_private_outbox_slot(adopted boolean) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT format('(''x'' OPERATOR(pg_catalog.||) pg_catalog.left(pg_catalog.md5(kafka_topic::text OPERATOR(pg_catalog.||)'
        ' pg_catalog.chr(31) OPERATOR(pg_catalog.||) coalesce(%s, id::text)), 8))::bit(32)::integer'
        ' OPERATOR(pg_catalog.&) 2147483647', tube_private_outbox_key(adopted))
$$;

-- tube_private_outbox_part: the SQL text of the condition that a record is in a partition.
CREATE OR REPLACE FUNCTION :"schema".tube_private_outbox_part(
    adopted boolean, partitions integer, partition integer
) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE partitions WHEN 1 THEN 'true' ELSE format('((%s) OPERATOR(pg_catalog.%%) %s) OPERATOR(pg_catalog.=) %s',
        tube_private_outbox_slot(adopted), partitions, partition) END
$$;

-- As tube_index_sql. Without its index an outbox works too; marks and statistics then read the records of all partitions.
-- Errors: TU102 unknown outbox, TU103 a number that no outbox can have, TU111 it is a tube.
CREATE OR REPLACE FUNCTION :"schema".outbox_index_sql(outbox text, partitions integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    reg CONSTANT tube_registry := tube_private_require(outbox, 'outbox');
BEGIN
    IF (partitions BETWEEN 1 AND 1024) IS NOT TRUE THEN
        PERFORM tube_private_enter_outbox(outbox, partitions); -- says so
    END IF;
    RETURN tube_private_next_index(reg, partitions);
END
$$;
COMMENT ON FUNCTION :"schema".outbox_index_sql IS 'As tube_index_sql, for an outbox; run it as the owner of the table.';
