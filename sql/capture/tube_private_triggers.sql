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
-- A trigger that somebody disabled is left alone.
--
-- Arguments: att.
-- Result: CREATE TRIGGER, DROP TRIGGER and ALTER TABLE statements; none where all is right.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_trigger_ddl(att :"schema".tube_attachment) RETURNS text[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    function_name text := format('%I.%I', tube_private_schema(), att.trigger_function);
BEGIN
    RETURN coalesce((
        SELECT array_agg(s.statement ORDER BY t.wanted, t.rel, t.kind, s.place)
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
            SELECT coalesce(t.name::text, tube_private_name(
                (SELECT c.relname FROM pg_class AS c WHERE c.oid = t.rel) || '_' || att.tube, k.ending)) AS name
        ) AS n
        CROSS JOIN LATERAL (VALUES
            (1, NOT t.wanted, format('DROP TRIGGER %I ON %s', n.name, t.rel)),
            (2, t.wanted AND t.name IS NULL, format('CREATE TRIGGER %I %s ON %s %s EXECUTE FUNCTION %s()',
                n.name, k.event, t.rel, k.how, function_name)),
            (3, t.wanted AND coalesce(t.enabled, 'O') <> k.enabled AND t.enabled IS DISTINCT FROM 'D',
                format('ALTER TABLE ONLY %s ENABLE %sTRIGGER %I', t.rel,
                    CASE k.enabled WHEN 'A' THEN 'ALWAYS ' WHEN 'R' THEN 'REPLICA ' ELSE '' END, n.name))
        ) AS s (place, needed, statement)
        WHERE s.needed
    ), '{}');
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_trigger_ddl(:"schema".tube_attachment) FROM PUBLIC;

-- tube_private_drop_triggers: the statements that take a tube's triggers off tables.
--
-- Found by their function, so that a renamed table or trigger is no obstacle.
--
-- Arguments: tube; tables.
-- Result: DROP TRIGGER statements, in the order of the tables.
-- Locks: none.
CREATE OR REPLACE FUNCTION :"schema".tube_private_drop_triggers(tube text, tables regclass[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
BEGIN
    RETURN coalesce((
        SELECT array_agg(format('DROP TRIGGER %I ON %s', t.tgname, t.tgrelid::regclass) ORDER BY t.tgrelid, t.tgname)
        FROM tube_attachment AS a
        JOIN pg_trigger AS t
            ON t.tgfoid = to_regprocedure(format('%I.%I()', tube_private_schema(), a.trigger_function))
        WHERE a.tube = tube_private_drop_triggers.tube AND a.tbl = ANY (tables) AND t.tgparentid = 0
    ), '{}');
END
$$;
REVOKE ALL ON FUNCTION :"schema".tube_private_drop_triggers(text, regclass[]) FROM PUBLIC;
