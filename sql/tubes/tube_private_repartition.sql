-- tube_private_repartition: gives a tube another number of partitions.
--
-- Ends every term; each worker starts new ones. The index for the new number is built here, with
-- writers blocked, unless it is there already (tube_index_sql); the others are dropped.
--
-- Arguments: tube, partitions: checked, and not those that it has.
-- Result: nothing.
-- Errors: 55P03 the locks could not be had.
-- Locks: the caller holds the registry row FOR UPDATE; then all leader rows FOR UPDATE; then the
--   tube's table ACCESS EXCLUSIVE for the drop, all until the transaction ends.
CREATE OR REPLACE FUNCTION :"schema".tube_private_repartition(tube text, partitions integer) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, :"schema", pg_temp
AS $$
DECLARE
    queue regclass := format('%I.%I', tube_private_schema(), tube)::regclass;
    wanted text := tube_private_index(tube, partitions);
    drops text[];
    ready boolean;
BEGIN
    PERFORM tube_private_end_terms(tube, 'repartitioned');
    UPDATE tube_registry AS r
    SET partitions = tube_private_repartition.partitions,
        generation = r.generation + 1,
        version = r.version + 1,
        last_epoch = r.last_epoch + 1
    WHERE r.tube = tube_private_repartition.tube;
    PERFORM tube_private_free_partitions(tube);

    -- The index of any number of partitions, ready or left over by a build that failed.
    SELECT array_agg(format('DROP INDEX %I.%I', tube_private_schema(), c.relname))
            FILTER (WHERE c.relname <> wanted OR NOT i.indisvalid),
        coalesce(bool_or(c.relname = wanted AND i.indisvalid), false)
    INTO drops, ready
    FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
    WHERE i.indrelid = queue AND c.relname ~ ('_' || left(md5('queue ' || tube), 8) || '_p[0-9]+_idx$');
    PERFORM tube_private_patiently(
        drops || CASE WHEN ready THEN '{}' ELSE ARRAY[tube_private_index_ddl(tube, partitions, false)] END,
        format('tube %L gets %s partitions', tube, partitions));
END
$$;
