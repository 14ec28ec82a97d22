-- tube_private_members: the tables that an attached table consists of.
--
-- Result: itself; and where it is partitioned, all tables of its tree. kind: r or p, as in pg_class. None
--   when it is gone.
CREATE OR REPLACE FUNCTION :"schema".tube_private_members(tbl regclass) RETURNS TABLE (rel regclass, kind "char")
LANGUAGE sql STABLE AS $$
    SELECT c.oid::regclass, c.relkind FROM pg_class AS c
    WHERE c.oid = tbl OR (
        c.oid IN (SELECT t.relid FROM pg_partition_tree(tbl) AS t)
        AND (SELECT r.relkind = 'p' FROM pg_class AS r WHERE r.oid = tbl))
$$;

-- tube_private_trigger_names: the triggers that an attachment is to have, and those that are there.
--
-- A transition table is the one thing that sees all rows of a statement, and there is one for the table
-- that the statement names only: so each table of a partitioned one's tree has these triggers. TRUNCATE
-- fires those of all tables that it empties: so only those that store rows have that one. Foreign ones can have none of these.
--
-- Where another trigger has the name, ours gets a digest of the tube into it: the table a in the tube b_c and a_b in c
-- have the same names.
--
-- Result: rel; place: as the agent counts them; wanted; is_there; name: of the one that is there, or that it is to have.
CREATE OR REPLACE FUNCTION :"schema".tube_private_trigger_names(att :"schema".tube_attachment)
RETURNS TABLE (rel regclass, place integer, wanted boolean, is_there boolean, name name)
LANGUAGE sql STABLE AS $$
    SELECT coalesce(w.rel, t.tgrelid::regclass), k.place, w.rel IS NOT NULL, t.tgname IS NOT NULL,
        coalesce(t.tgname, (
            SELECT n.name::name
            FROM pg_class AS c,
                LATERAL (VALUES (1, att.tube), (2, att.tube || '_' || left(md5(att.tube), 8))) AS u (place, tube),
                LATERAL tube_private_name(c.relname || '_' || u.tube, k.ending) AS n (name)
            WHERE c.oid = w.rel
            ORDER BY EXISTS (SELECT FROM pg_trigger AS p WHERE p.tgrelid = w.rel AND p.tgname = n.name), u.place
            LIMIT 1))
    FROM (
        SELECT m.rel, m.kind, e.place
        FROM tube_private_members(att.tbl) AS m, generate_series(1, 5) AS e (place)
        WHERE m.kind <> 'f' AND (e.place <= 3 OR m.kind = 'r' AND (e.place = 4 OR att.replica))
    ) AS w
    FULL JOIN (
        SELECT p.*, CASE p.tgtype WHEN 4 THEN 1 WHEN 16 THEN 2 WHEN 8 THEN 3 WHEN 34 THEN 4 ELSE 5 END AS place
        FROM pg_trigger AS p
        WHERE p.tgfoid = to_regprocedure(tube_private_function(att, 'capture') || '()') AND p.tgparentid = 0
    ) AS t ON t.tgrelid = w.rel AND t.place = w.place
    JOIN (VALUES (1, '_after_insert_trigger'), (2, '_after_update_trigger'), (3, '_after_delete_trigger'),
        (4, '_before_truncate_trigger'), (5, '_after_row_trigger')) AS k (place, ending) ON k.place = coalesce(w.place, t.place)
$$;

-- tube_private_trigger_ddl: the statements that bring the triggers of an attachment in line.
--
-- The attached table itself comes first: while it is locked, no partition comes to it or goes. Whether a trigger is
-- enabled, and for whom, is its owner's to say once it is made.
--
-- Result: statements, and the table of each; none where all is right.
CREATE OR REPLACE FUNCTION :"schema".tube_private_trigger_ddl(att :"schema".tube_attachment)
RETURNS TABLE (statement text, rel regclass)
LANGUAGE sql STABLE AS $$
    SELECT s.statement, t.rel
    FROM tube_private_trigger_names(att) AS t
    JOIN (VALUES
        (1, 'AFTER INSERT', 'REFERENCING NEW TABLE AS new_table FOR EACH STATEMENT'),
        (2, 'AFTER UPDATE', 'REFERENCING OLD TABLE AS old_table NEW TABLE AS new_table FOR EACH STATEMENT'),
        (3, 'AFTER DELETE', 'REFERENCING OLD TABLE AS old_table FOR EACH STATEMENT'),
        (4, 'BEFORE TRUNCATE', 'FOR EACH STATEMENT'),
        (5, 'AFTER INSERT OR UPDATE OR DELETE', 'FOR EACH ROW')
    ) AS k (place, event, how) ON k.place = t.place
    LEFT JOIN tube_private_trigger_names(att) AS r ON r.rel = t.rel AND r.place = 5
    CROSS JOIN LATERAL (VALUES
        (1, NOT t.wanted, format('DROP TRIGGER %I ON %s', t.name, t.rel)),
        (2, t.wanted AND NOT t.is_there, format('CREATE TRIGGER %I %s ON %s %s EXECUTE FUNCTION %s()',
            t.name, k.event, t.rel, k.how, tube_private_function(att, 'capture'))),
        -- With the trigger for rows of replication, that for its TRUNCATE.
        (3, t.wanted AND t.place = 5 AND NOT t.is_there, format('ALTER TABLE ONLY %s ENABLE REPLICA TRIGGER %I', t.rel, t.name)),
        (3, t.wanted AND t.place = 4 AND att.replica AND NOT r.is_there,
            format('ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER %I', t.rel, t.name))
    ) AS s (place, is_needed, statement)
    WHERE s.is_needed
    ORDER BY t.wanted, t.rel <> att.tbl, t.rel, s.place, t.place
$$;
