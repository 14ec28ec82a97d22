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
    RETURN CASE WHEN wake AND NOT wakes THEN ARRAY[tube_private_outbox_trigger(tube_private_require_any(outbox), tbl::text)]
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
