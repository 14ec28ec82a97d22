-- tube_private_triggers: the triggers of an attachment, those that are to be and those that are.
--
-- A transition table is the one thing that sees all rows of a statement, and there is one for the table
-- that the statement names only: so each table of a partitioned one's tree has these triggers. TRUNCATE
-- fires those of all tables that it empties: so only those that store rows have that one.
--
-- Arguments: att.
-- Result: rel; kind: the trigger's type as in pg_trigger; wanted; name: of the one that is there, else NULL;
--   enabled: as in pg_trigger.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_triggers(att :"schema".tube_attachment)
RETURNS TABLE (rel regclass, kind smallint, wanted boolean, name name, enabled "char")
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT coalesce(w.rel, t.tgrelid::regclass), coalesce(w.kind, t.tgtype), w.rel IS NOT NULL, t.tgname, t.tgenabled
    FROM (
        SELECT m.rel, k.kind
        FROM tube_private_members(att.tbl) AS m
        JOIN (VALUES (4::smallint), (8::smallint), (16::smallint), (34::smallint), (29::smallint)) AS k (kind) ON CASE k.kind
            WHEN 34 THEN m.kind = 'r'
            WHEN 29 THEN m.kind = 'r' AND att.replica
            ELSE true END
    ) AS w
    FULL JOIN (
        SELECT * FROM pg_trigger AS p
        WHERE p.tgfoid = to_regprocedure(format('%I.%I()', tube_private_schema(), att.trigger_function))
    ) AS t ON t.tgrelid = w.rel AND t.tgtype = w.kind;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_triggers(:"schema".tube_attachment) FROM PUBLIC;

-- tube_private_trigger_ddl: the statements that bring the triggers of an attachment in line.
--
-- A trigger that somebody disabled is left alone. The attached table itself comes first: while it is locked,
-- no partition comes to it or goes. Where another trigger has the name, ours gets a digest of the tube into
-- it: the table a in the tube b_c and a_b in c have the same names.
--
-- Arguments: att.
-- Result: rel; does: drop or enable, for which one has to own it, or create, for which TRIGGER will do;
--   statement; in the order in which they are to be run. None where all is right.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_trigger_ddl(att :"schema".tube_attachment)
RETURNS TABLE (rel regclass, does text, statement text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    function_name text := format('%I.%I', tube_private_schema(), att.trigger_function);
BEGIN
    RETURN QUERY
    SELECT t.rel, s.does, s.statement
    FROM tube_private_triggers(att) AS t
    JOIN (VALUES
        (4, '_after_insert_trigger', 'AFTER INSERT', 'REFERENCING NEW TABLE AS new_table FOR EACH STATEMENT', 'O'),
        (16, '_after_update_trigger', 'AFTER UPDATE',
            'REFERENCING OLD TABLE AS old_table NEW TABLE AS new_table FOR EACH STATEMENT', 'O'),
        (8, '_after_delete_trigger', 'AFTER DELETE', 'REFERENCING OLD TABLE AS old_table FOR EACH STATEMENT', 'O'),
        (34, '_before_truncate_trigger', 'BEFORE TRUNCATE', 'FOR EACH STATEMENT', CASE WHEN att.replica THEN 'A' ELSE 'O' END),
        (29, '_after_row_trigger', 'AFTER INSERT OR UPDATE OR DELETE', 'FOR EACH ROW', 'R')
    ) AS k (kind, ending, event, how, enabled) ON k.kind = t.kind
    CROSS JOIN LATERAL (
        SELECT coalesce(t.name::text, (
            SELECT w.name
            FROM pg_class AS c,
                LATERAL (VALUES (1, att.tube), (2, att.tube || '_' || left(md5(att.tube), 8))) AS u (place, tube),
                LATERAL tube_private_name(c.relname || '_' || u.tube, k.ending) AS w (name)
            WHERE c.oid = t.rel
            ORDER BY EXISTS (SELECT FROM pg_trigger AS p WHERE p.tgrelid = t.rel AND p.tgname = w.name), u.place
            LIMIT 1)) AS name
    ) AS n
    CROSS JOIN LATERAL (VALUES
        (1, NOT t.wanted, 'drop', format('DROP TRIGGER %I ON %s', n.name, t.rel)),
        (2, t.wanted AND t.name IS NULL, 'create', format('CREATE TRIGGER %I %s ON %s %s EXECUTE FUNCTION %s()',
            n.name, k.event, t.rel, k.how, function_name)),
        (3, t.wanted AND coalesce(t.enabled, 'O') <> k.enabled AND t.enabled IS DISTINCT FROM 'D', 'enable',
            format('ALTER TABLE ONLY %s ENABLE %sTRIGGER %I', t.rel,
                CASE k.enabled WHEN 'A' THEN 'ALWAYS ' WHEN 'R' THEN 'REPLICA ' ELSE '' END, n.name))
    ) AS s (place, needed, does, statement)
    WHERE s.needed
    ORDER BY t.wanted, t.rel <> att.tbl, t.rel, t.kind, s.place;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_trigger_ddl(:"schema".tube_attachment) FROM PUBLIC;

-- tube_private_drop_triggers: the statements that take a tube's triggers off tables.
--
-- Found by their function, so that a renamed table or trigger is no obstacle.
--
-- Arguments: tube; tables.
-- Result: rel; statement: DROP TRIGGER; in the order of the tables.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_drop_triggers(tube text, tables regclass[])
RETURNS TABLE (rel regclass, statement text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT t.tgrelid::regclass, format('DROP TRIGGER %I ON %s', t.tgname, t.tgrelid::regclass)
    FROM tube_attachment AS a
    JOIN pg_trigger AS t
        ON t.tgfoid = to_regprocedure(format('%I.%I()', tube_private_schema(), a.trigger_function))
    WHERE a.tube = tube_private_drop_triggers.tube AND a.tbl = ANY (tables) AND t.tgparentid = 0
    ORDER BY t.tgrelid, t.tgname;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_drop_triggers(text, regclass[]) FROM PUBLIC;

-- tube_private_untrigger: takes a tube's triggers off tables, with the rights of the caller.
--
-- Arguments: tube; tables; more: statements to be run with the others; what: what is being done; attempts: as
--   of tube_private_patiently.
-- Result: nothing.
-- Errors: 42501 the caller does not own one of them; 55P03 the locks could not be had.
-- Locks: each of the tables ACCESS EXCLUSIVE.
CREATE OR REPLACE FUNCTION :"schema".tube_private_untrigger(
    tube text, tables regclass[], more text[], what text, attempts integer = 100
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    ddl text[];
    rels regclass[];
BEGIN
    SELECT coalesce(array_agg(d.statement), '{}'), array_agg(DISTINCT d.rel) INTO ddl, rels
    FROM tube_private_drop_triggers(tube, tables) AS d;
    PERFORM tube_private_owned(rels, format('tube %L', tube));
    IF ddl || more <> '{}' THEN
        PERFORM tube_private_patiently(ddl || more, what, attempts);
    END IF;
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_untrigger(text, regclass[], text[], text, integer) FROM PUBLIC;
