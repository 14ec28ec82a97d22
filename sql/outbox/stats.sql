-- Cheap on a full outbox, as tube_stats is: counts stop at 1000, first and last records come from the index. It reads the
-- tables with the rights of the caller.
-- Result: a row per outbox and partition. count: records that wait to be sent, parked ones aside: exact below 1000, else
--   ~ and an estimate by a sample of pages, or 1000+ where the sample shows none. min_id, max_id, min_create_time: of these
--   records, the first and the last by id; min_create_time is NULL where it is infinite. parked: records set aside; exact
--   below 1000, else 1000+. problem: why the records could not be
--   looked at: then the five before parked are NULL.
CREATE OR REPLACE FUNCTION :"schema".outbox_stats() RETURNS TABLE (
    outbox text, partition integer, count text, min_id bigint, max_id bigint, min_create_time timestamptz, parked text,
    problem text
)
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_indexscan = on SET jit = off SET row_security = off AS $$
#variable_conflict use_column
DECLARE
    box record;
    part record;
BEGIN
    FOR box IN SELECT l.outbox, l.partitions, l.tbl, l.adopted FROM outbox_list() AS l LOOP
        FOR part IN SELECT p.partition, p.parked, p.records FROM tube_private_outbox_parts(box.outbox) AS p LOOP
            outbox := box.outbox;
            partition := part.partition;
            parked := part.parked;
            problem := NULL;
            BEGIN
                SELECT s.* INTO count, min_id, max_id, min_create_time FROM tube_private_outbox_figures(part.records, box.outbox) AS s;
            EXCEPTION WHEN insufficient_privilege OR undefined_table OR undefined_column OR syntax_error THEN
                count := NULL;
                problem := SQLERRM;
            END;
            IF problem IS NOT NULL THEN
                min_id := NULL;
                max_id := NULL;
                min_create_time := NULL;
            END IF;
            RETURN NEXT;
        END LOOP;
    END LOOP;
END
$$;
COMMENT ON FUNCTION :"schema".outbox_stats IS
    'Returns the backlog of each partition, without parked records; problem: why this role can''t read it.';

-- tube_private_outbox_parts: the partitions of an outbox: how many of its records are parked, and the SQL text that comes
-- after FROM to name the waiting ones, as r; $1 is the outbox.
CREATE OR REPLACE FUNCTION :"schema".tube_private_outbox_parts(outbox text)
RETURNS TABLE (partition integer, parked text, records text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
    SELECT p.partition, k.parked, format('%s AS r WHERE %s%s', o.tbl,
        tube_private_outbox_part(o.adopted, r.partitions, p.partition),
        CASE k.parked WHEN '0' THEN ' AND $1 IS NOT NULL' ELSE format(
            ' AND NOT EXISTS (SELECT FROM %s AS k WHERE k.outbox = $1 AND k.id = r.id)',
            tube_private_qualify('tube_outbox_parked')) END)
    FROM tube_outbox AS o JOIN tube_registry AS r ON r.tube = o.outbox,
        LATERAL generate_series(0, r.partitions - 1) AS p (partition),
        LATERAL (
            SELECT CASE WHEN count(*) < 1000 THEN count(*)::text ELSE '1000+' END AS parked FROM (
                SELECT FROM tube_outbox_parked AS k
                WHERE k.outbox = o.outbox AND k.slot % r.partitions = p.partition LIMIT 1000) AS first_ones
        ) AS k
    WHERE o.outbox = tube_private_outbox_parts.outbox
    ORDER BY p.partition
$$;

-- tube_private_outbox_figures: the figures of the records of a partition, with the rights of the caller.
CREATE OR REPLACE FUNCTION :"schema".tube_private_outbox_figures(
    records text, outbox text, OUT count text, OUT min_id bigint, OUT max_id bigint, OUT min_create_time timestamptz
)
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    counted integer;
    tbl regclass;
    cuts bigint[];
    sample text;
    estimate bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM (SELECT FROM %s ORDER BY r.id LIMIT 1000) AS n', records) INTO counted USING outbox;
    EXECUTE format('SELECT r.id, CASE WHEN isfinite(r.create_time) THEN r.create_time END FROM %s ORDER BY r.id LIMIT 1', records) INTO min_id, min_create_time USING outbox;
    EXECUTE format('SELECT r.id FROM %s ORDER BY r.id DESC LIMIT 1', records) INTO max_id USING outbox;
    count := counted::text;
    IF counted = 1000 THEN
        EXECUTE format('SELECT array_agg((e.ctid::text::point)[0]::bigint + e.behind) FROM ('
            '(SELECT r.ctid, 0 AS behind FROM %1$s ORDER BY r.id LIMIT 1)'
            ' UNION ALL (SELECT r.ctid, 1 FROM %1$s ORDER BY r.id DESC LIMIT 1)) AS e', records) INTO cuts USING outbox;
        SELECT l.tbl INTO tbl FROM outbox_list() AS l WHERE l.outbox = tube_private_outbox_figures.outbox;
        SELECT string_agg(format('SELECT %s::float8 AS weight FROM %s AND r.ctid >= ''(%s,0)'' AND r.ctid < ''(%s,0)''',
            p.weight, records, p.low, p.high), ' UNION ALL ') INTO sample
        FROM tube_private_page_runs(tbl, cuts) AS p;
        IF sample IS NOT NULL THEN -- there are pages
            EXECUTE format('SELECT round(sum(s.weight)) FROM (%s) AS s', sample) INTO estimate USING outbox;
        END IF;
        count := CASE WHEN estimate > 1000 THEN '~' || estimate ELSE '1000+' END;
    END IF;
END
$$;
