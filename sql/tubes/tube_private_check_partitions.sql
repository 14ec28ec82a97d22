-- tube_private_check_partitions: refuses a number of partitions that no tube can have.
--
-- Errors: TU103 NULL, below 1 or above 1024.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_partitions(partitions integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF partitions BETWEEN 1 AND 1024 THEN
        RETURN;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'TU103',
        MESSAGE = format('a tube can''t have %s partitions', coalesce(partitions::text, 'NULL')),
        HINT = 'Give 1 to 1024.';
END
$$;
