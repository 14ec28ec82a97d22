-- A dump holds the rows of the extension's tables, and the state of its sequences. Not the version: the server's files determine
-- it. Nor sleeping workers: their rows would fire a trigger while not all is restored.
DO $$
DECLARE
    content regclass;
BEGIN
    FOR content IN
        SELECT c.oid FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid JOIN pg_class AS c ON c.oid = d.objid
        WHERE e.extname = 'pytube' AND d.refclassid = 'pg_extension'::regclass AND d.classid = 'pg_class'::regclass
            AND d.deptype = 'e' AND c.relkind IN ('r', 'S') AND c.relname NOT IN ('tube_version', 'tube_sleeper')
        ORDER BY c.oid
    LOOP
        PERFORM pg_extension_config_dump(content, '');
    END LOOP;
END
$$;

-- tube_private_restore_installation: a trigger, by which the row of a dump replaces the row that CREATE EXTENSION made. It
-- fires in a restore without triggers, too.
CREATE OR REPLACE FUNCTION :"schema".tube_private_restore_installation() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    DELETE FROM tube_installation;
    RETURN new;
END
$$;
CREATE OR REPLACE TRIGGER tube_installation_restored_trigger BEFORE INSERT ON :"schema".tube_installation
    FOR EACH ROW EXECUTE FUNCTION :"schema".tube_private_restore_installation();
ALTER TABLE :"schema".tube_installation ENABLE ALWAYS TRIGGER tube_installation_restored_trigger;
