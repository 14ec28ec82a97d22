-- tube_private_name: an identifier made of a stem and an ending, never longer than Postgres allows.
--
-- Arguments: stem; ending: kept whole.
-- Result: stem || ending; where that is longer than 63 bytes, the stem is cut and 8 hex digits of
--   the md5 of the full name come before the ending.
CREATE OR REPLACE FUNCTION :"schema".tube_private_name(stem text, ending text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    short text := stem;
    room integer := 63 - octet_length(ending) - 9;
BEGIN
    IF octet_length(stem) + octet_length(ending) <= 63 THEN
        RETURN stem || ending;
    END IF;
    -- Characters may have several bytes, and none may be cut in two.
    WHILE octet_length(short) > room LOOP
        short := left(short, -1);
    END LOOP;
    RETURN short || '_' || left(md5(stem || ending), 8) || ending;
END
$$;
