-- Cheap on a full tube: counts stop at 1000, first and last pods come from the index. Control pods are counted in
-- control_count alone; to pass them over costs one look at each, and there are few.
-- Result: a row per tube and partition. shards: how many shards of attached tables are in the partition; a shard that two
--   tables have counts twice. Of the incremental and of the backfill class each the count, and seq and time of the
--   first and the last pod. control_count: "type:count" joined by spaces, or 0; at most 10000 are counted. parked: keys
--   set aside. shard_list: the first ten of the shards, and how many there are if there are more. Counts of pods and
--   keys are text: exact below 1000, else ~ and an estimate by a sample of pages, as a rule right to a few percent, or
--   1000+ where the sample shows none of them.
CREATE OR REPLACE FUNCTION :"schema".tube_stats() RETURNS TABLE (
    tube text, predicate text, partition integer, shards integer,
    inc_count text, inc_min_seq bigint, inc_max_seq bigint, inc_min_ts timestamptz, inc_max_ts timestamptz,
    backfill_count text, backfill_min_seq bigint, backfill_max_seq bigint,
    backfill_min_ts timestamptz, backfill_max_ts timestamptz,
    control_count text, parked text, shard_list text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp
SET enable_seqscan = off -- a queue's statistics are never right, so one kind of plan is left
SET enable_bitmapscan = off SET enable_indexscan = on SET jit = off
SET plan_cache_mode = force_generic_plan AS $$ -- planning the query of each partition costs more than running it
#variable_conflict use_column
DECLARE
    reg tube_registry;
    class record;
    counted text;
    controls text[];
    estimates bigint[];
BEGIN
    FOR reg IN SELECT r.* FROM tube_registry AS r WHERE r.kind = 'tube' ORDER BY r.tube LOOP
        tube := reg.tube;
        predicate := reg.predicate;
        estimates := NULL;
        EXECUTE tube_private_stats_controls_sql(reg) INTO controls;
        FOR class IN EXECUTE tube_private_classes_sql(reg, 1000, true) LOOP
            counted := class.pods::text;
            IF class.pods = 1000 THEN
                estimates := coalesce(estimates, tube_private_stats_estimates(reg));
                counted := coalesce('~' || nullif(greatest(estimates[class.partition * 2 + class.number + 1], 1000), 1000), '1000+');
            END IF;
            IF class.number = 0 THEN
                inc_count := counted;
                inc_min_seq := class.min_seq;
                inc_max_seq := class.max_seq;
                inc_min_ts := class.min_ts;
                inc_max_ts := class.max_ts;
                CONTINUE;
            END IF;
            backfill_count := counted;
            backfill_min_seq := class.min_seq;
            backfill_max_seq := class.max_seq;
            backfill_min_ts := class.min_ts;
            backfill_max_ts := class.max_ts;
            partition := class.partition;
            control_count := controls[class.partition + 1];
            SELECT s.* INTO shards, shard_list FROM tube_private_stats_shards(reg, class.partition) AS s;
            SELECT CASE WHEN count(*) < 1000 THEN count(*)::text ELSE '1000+' END INTO parked
            FROM (
                SELECT FROM tube_parked AS k
                WHERE k.tube = reg.tube AND k.shard % reg.partitions = class.partition LIMIT 1000
            ) AS first_ones;
            RETURN NEXT;
        END LOOP;
    END LOOP;
END
$$;
COMMENT ON FUNCTION :"schema".tube_stats IS
    'Returns the backlog of each partition. Counts are text: exact below 1000, then an estimate such as ~12345. '
    'control_count counts control pods, as type:count pairs.';

-- It counts less far than tube_stats, and gives no seqs.
-- Argument: in_most: at most so many pods of a class are counted.
-- Result: a row per tube and partition. waiting, backfill: pods of the two classes, control pods left out: exact below
--   in_most, else that or an estimate above, as in tube_stats. since, backfill_since: the oldest time among the ones
--   counted. inserted, deleted: pods of the whole tube since its statistics began, as Postgres counts them: some seconds
--   late at times, and with insertions that were rolled back.
-- Errors: 22023 in_most is NULL or below 1.
CREATE OR REPLACE FUNCTION :"schema".tube_load(in_most integer = 100) RETURNS TABLE (
    tube text, partition integer, waiting integer, since timestamptz, backfill integer, backfill_since timestamptz,
    inserted bigint, deleted bigint
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp
SET enable_seqscan = off -- as in tube_stats
SET enable_bitmapscan = off SET enable_indexscan = on SET jit = off AS $$
#variable_conflict use_column
DECLARE
    reg tube_registry;
    class integer;
    pods integer;
    oldest timestamptz;
    estimates bigint[];
BEGIN
    IF in_most IS NULL OR in_most < 1 THEN
        RAISE EXCEPTION 'in_most is %', coalesce(in_most::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is 1 or more.';
    END IF;
    FOR reg IN SELECT r.* FROM tube_registry AS r WHERE r.kind = 'tube' ORDER BY r.tube LOOP
        tube := reg.tube;
        inserted := pg_stat_get_tuples_inserted(to_regclass(quote_ident(reg.tube)));
        deleted := pg_stat_get_tuples_deleted(to_regclass(quote_ident(reg.tube)));
        estimates := NULL;
        FOR partition, class, pods, oldest IN EXECUTE tube_private_classes_sql(reg, in_most, false) LOOP
            IF pods = in_most THEN
                estimates := coalesce(estimates, tube_private_stats_estimates(reg));
                pods := least(2147483647, greatest(pods, estimates[partition * 2 + class + 1]));
            END IF;
            IF class = 0 THEN
                waiting := pods;
                since := oldest;
            ELSE
                backfill := pods;
                backfill_since := oldest;
                RETURN NEXT;
            END IF;
        END LOOP;
    END LOOP;
END
$$;
COMMENT ON FUNCTION :"schema".tube_load IS
    'Returns a quick view of the backlog, counting up to in_most pods of each partition and class. inserted and '
    'deleted count pods since the statistics began.';

-- From the sizes of the arrays, which are not read, in every page of a small table, and in a sample of a large one. The sample is
-- the same in each call while the table keeps its size, so what two of them differ by was delivered or written meanwhile.
-- Result: a row per tube and partition. ids: an id that is in several pods counts as often. sampled: it is an estimate; few
--   live pods in a long table of dead rows may be overlooked.
CREATE OR REPLACE FUNCTION :"schema".tube_ids_waiting() RETURNS TABLE (tube text, partition integer, ids bigint, sampled boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    reg tube_registry;
    width integer;
    pages bigint;
    halvings integer;
BEGIN
    FOR reg IN SELECT r.* FROM tube_registry AS r WHERE r.kind = 'tube' ORDER BY r.tube LOOP
        width := (SELECT t.typlen FROM pg_type AS t WHERE t.oid = reg.key_type AND t.typlen > 0);
        pages := pg_relation_size(tube_private_qualify(reg.tube)::regclass) / current_setting('block_size')::bigint;
        -- Texts have no width, so that their arrays have to be read.
        halvings := greatest(0, ceil(log(2, greatest(pages, 1) / CASE WHEN width IS NULL THEN 256.0 ELSE 4096.0 END)));
        tube := reg.tube;
        sampled := halvings > 0;
        RETURN QUERY EXECUTE format($sql$
            SELECT %L, n.partition, (coalesce(s.ids, 0) * %s)::bigint, %L::boolean
            FROM generate_series(0, %s) AS n (partition)
            LEFT JOIN (
                SELECT p.shard %% %s AS partition, sum(%s) AS ids
                FROM %s AS p TABLESAMPLE SYSTEM (%s) REPEATABLE (0) GROUP BY 1
            ) AS s ON s.partition = n.partition
            ORDER BY n.partition$sql$,
            reg.tube, 2 ^ halvings, sampled, reg.partitions - 1, reg.partitions,
            -- The header of an array takes 20 to 24 bytes, as it is stored.
            CASE WHEN width IS NULL THEN 'cardinality(p.ids)' ELSE format('(pg_column_size(p.ids) - 20) / %s', width) END,
            tube_private_qualify(reg.tube), 100 / 2 ^ halvings);
    END LOOP;
END
$$;
COMMENT ON FUNCTION :"schema".tube_ids_waiting IS
    'Returns about how many ids wait in each partition; sampled if the table is large.';

-- tube_private_classes_sql: the statement that looks up the pods that wait in a tube, control pods left out: a row per partition
-- and class (number), in this order. pods: how many, at most so many; since: the oldest time of these; with ends, seq and time of the
-- first and the last pod.
-- One statement, since planning dominates the cost. It needs the index for this number of partitions; a tube without it,
-- because it was repartitioned a moment ago, takes a longer way.
CREATE OR REPLACE FUNCTION :"schema".tube_private_classes_sql(reg :"schema".tube_registry, most integer, ends boolean) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    pods CONSTANT text := tube_private_class_sql(reg);
BEGIN
    RETURN format('SELECT n.slice / 2 AS partition, n.slice %% 2 AS number, s.* FROM generate_series(0, %s) AS n (slice), '
        'LATERAL (%s) AS s ORDER BY n.slice', reg.partitions * 2 - 1,
        CASE WHEN NOT EXISTS (SELECT FROM tube_private_indexes(reg.tube) AS i WHERE i.partitions = reg.partitions AND i.valid)
            THEN format(
            'SELECT c.* FROM tube_registry AS r, tube_private_stats_class(r, n.slice / 2, n.slice %% 2, %s) AS c WHERE r.tube = %L',
            most, reg.tube)
        ELSE format('SELECT c.*%s FROM (SELECT count(*)::integer AS pods, min(q.ts) AS since FROM (SELECT p.ts %s LIMIT %s) AS q) AS c%s',
            CASE WHEN ends THEN ', f.seq AS min_seq, f.ts AS min_ts, l.seq AS max_seq, l.ts AS max_ts' END, pods, most,
            CASE WHEN ends THEN format(' LEFT JOIN (SELECT p.seq, p.ts %1$s LIMIT 1) AS f ON true'
                ' LEFT JOIN (SELECT p.seq, p.ts %1$s DESC LIMIT 1) AS l ON true', pods) END) END);
END
$$;

-- tube_private_class_sql: the SQL text after a list of columns that gives the pods p of a class of a partition, by the number
-- n.slice = partition * 2 + class, in their order. The payload comes first, because long arrays of ids would have to be fetched and
-- put together to be compared.
CREATE OR REPLACE FUNCTION :"schema".tube_private_class_sql(reg :"schema".tube_registry) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT format('FROM %s AS p WHERE (p.shard %% %s) = n.slice / 2 AND (CASE WHEN p.op = ''B'' THEN 1 ELSE 0 END) = n.slice %% 2'
        ' AND (p.payload IS NULL OR p.ids <> ''{}'') ORDER BY p.seq', tube_private_qualify(reg.tube), reg.partitions)
$$;

-- tube_private_stats_controls_sql: the statement that counts control pods of a tube by type: an array with a text for each
-- partition.
CREATE OR REPLACE FUNCTION :"schema".tube_private_stats_controls_sql(reg :"schema".tube_registry) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT format($sql$
        SELECT array_agg(c.counts ORDER BY n.partition)
        FROM generate_series(0, %s) AS n (partition), LATERAL (
            SELECT coalesce(string_agg(coalesce(t.type, 'other') || ':' || t.pods, ' ' ORDER BY t.type), '0') AS counts
            FROM (
                SELECT f.type, count(*) AS pods
                FROM (
                    SELECT p.payload ->> 'type' AS type FROM %s AS p
                    -- Written so that the index of all pods does not serve, but that of control pods.
                    WHERE p.payload IS NOT NULL AND p.ids = '{}' AND (p.shard %% %s) + 0 = n.partition LIMIT 10000
                ) AS f
                GROUP BY f.type
            ) AS t
        ) AS c$sql$, reg.partitions - 1, tube_private_qualify(reg.tube), reg.partitions)
$$;

-- tube_private_stats_estimates: about how many pods each partition has: of partition 0 the incremental ones, then pods of
-- backfills, then of partition 1, and so on. 0: the sample has shown none.
-- What the planner knows is of another time: a tube is full an hour after it was empty. So pages of the table are counted.
-- Between the seqs of the first and the last pod no more of a class can be than there are numbers. Where the index is of
-- before, the ends of the classes are not looked up, and the sample is of the whole table evenly.
CREATE OR REPLACE FUNCTION :"schema".tube_private_stats_estimates(reg :"schema".tube_registry) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    pods CONSTANT text := tube_private_qualify(reg.tube);
    last_slice CONSTANT integer := reg.partitions * 2 - 1;
    cuts bigint[];
    spans bigint[];
    counts bigint[];
BEGIN
    IF EXISTS (SELECT FROM tube_private_indexes(reg.tube) AS i WHERE i.partitions = reg.partitions AND i.valid) THEN
        EXECUTE format($sql$
            SELECT array_agg(f.page) || array_agg(l.page + 1), array_agg(l.seq - f.seq + 1 ORDER BY n.slice)
            FROM generate_series(0, %1$s) AS n (slice)
            LEFT JOIN LATERAL (SELECT p.seq, (p.ctid::text::point)[0]::bigint AS page %2$s LIMIT 1) AS f ON true
            LEFT JOIN LATERAL (SELECT p.seq, (p.ctid::text::point)[0]::bigint AS page %2$s DESC LIMIT 1) AS l ON true$sql$,
            last_slice, tube_private_class_sql(reg)) INTO cuts, spans;
    END IF;
    EXECUTE format($sql$
        SELECT array_agg(coalesce(c.pods, 0) ORDER BY n.slice)
        FROM generate_series(0, %s) AS n (slice)
        LEFT JOIN (
            SELECT (s.shard %% %s) * 2 + CASE WHEN s.op = 'B' THEN 1 ELSE 0 END AS slice, round(sum(s.weight))::bigint AS pods
            FROM (%s) AS s GROUP BY 1
        ) AS c ON c.slice = n.slice$sql$, last_slice, reg.partitions, (
            SELECT coalesce(string_agg(format('SELECT %s::float8 AS weight, p.shard, p.op FROM %s AS p WHERE p.ctid >= ''(%s,0)'''
                ' AND p.ctid < ''(%s,0)'' AND (p.payload IS NULL OR p.ids <> ''{}'')', r.weight, pods, r.low, r.high),
                ' UNION ALL '), 'SELECT 0::float8 AS weight, 0 AS shard, ''U'' AS op')
            FROM tube_private_page_runs(pods, cuts) AS r)) INTO counts;
    RETURN ARRAY(
        SELECT least(c.pods, spans[c.slice]) FROM unnest(counts) WITH ORDINALITY AS c (pods, slice) ORDER BY c.slice);
END
$$;

-- tube_private_page_runs: pages of a table to count rows in: runs of pages (high is behind the last one), and the weight of a
-- row in them. Sums of weights are estimates of numbers of rows.
-- cuts: pages at which something begins or ends; NULLs are none. Rows that belong together lie together, as a rule, and
-- may be few in a long table of dead rows: so each part between two cuts has separate runs, the same ones in each call.
-- At most 8 cuts are kept. That makes about 20 runs, of 8 pages each, however long the table is.
CREATE OR REPLACE FUNCTION :"schema".tube_private_page_runs(tbl regclass, cuts bigint[])
RETURNS TABLE (low bigint, high bigint, weight float8)
LANGUAGE sql STABLE SET search_path = pg_catalog, :"schema", pg_temp AS $$
    WITH whole AS (
        SELECT pg_relation_size(tbl) / current_setting('block_size')::bigint AS pages
    ), cut AS (
        SELECT DISTINCT c.page FROM whole AS w, unnest(cuts) AS c (page) WHERE c.page > 0 AND c.page < w.pages
    ), kept AS (
        SELECT c.page FROM (SELECT page, row_number() OVER (ORDER BY page) AS n, count(*) OVER () AS cuts FROM cut) AS c
        WHERE c.n % ceil(c.cuts / 8.0) = 0
        UNION ALL SELECT 0
        UNION ALL SELECT w.pages FROM whole AS w
    ), part AS (
        SELECT k.page AS first, lead(k.page) OVER (ORDER BY k.page) - k.page AS pages FROM kept AS k
    ), share AS (
        SELECT p.first, p.pages, least(ceil(p.pages / 8.0), 1 + floor(12.0 * p.pages / w.pages))::bigint AS runs
        FROM part AS p, whole AS w WHERE p.pages > 0
    )
    SELECT r.first, r.first + 8, s.pages / (8.0 * s.runs)
    FROM share AS s CROSS JOIN LATERAL (
        SELECT s.first + floor((n + 0.5) * s.pages / s.runs)::bigint - 4 AS first FROM generate_series(0, s.runs - 1) AS n
    ) AS r
    WHERE s.runs * 8 < s.pages
    UNION ALL
    SELECT s.first, s.first + s.pages, 1 FROM share AS s WHERE s.runs * 8 >= s.pages
$$;

-- tube_private_stats_class: the longer way of tube_private_classes_sql, for one class of one partition.
CREATE OR REPLACE FUNCTION :"schema".tube_private_stats_class(
    reg :"schema".tube_registry, partition integer, class integer, most integer, OUT pods integer, OUT since timestamptz,
    OUT min_seq bigint, OUT min_ts timestamptz, OUT max_seq bigint, OUT max_ts timestamptz
)
LANGUAGE plpgsql AS $$
DECLARE
    -- Several slices, since its index is of before.
    first_ones CONSTANT text := (
        SELECT string_agg(format('(SELECT seq, ts FROM %s WHERE (CASE WHEN op = ''B'' THEN 1 ELSE 0 END) = %s AND %s'
            ' AND (payload IS NULL OR ids <> ''{}'') ORDER BY seq%%1$s LIMIT %%2$s)',
            replace(tube_private_qualify(reg.tube), '%', '%%'), class, replace(s.slice, '%', '%%')), ' UNION ALL ')
        FROM unnest((tube_private_slices(reg.tube, reg.partitions, partition)).slices) AS s (slice));
BEGIN
    EXECUTE format('SELECT count(*) FROM (SELECT FROM (' || first_ones || ') AS p LIMIT %2$s) AS n', '', most) INTO pods;
    EXECUTE format('SELECT p.seq, p.ts, p.ts FROM (' || first_ones || ') AS p ORDER BY p.seq LIMIT 1', '', 1)
    INTO min_seq, min_ts, since;
    EXECUTE format('SELECT p.seq, p.ts FROM (' || first_ones || ') AS p ORDER BY p.seq DESC LIMIT 1', ' DESC', 1)
    INTO max_seq, max_ts;
END
$$;

-- tube_private_stats_shards: how many shards of attached tables one partition works on, and a list of them.
-- The number is the sum over the attached tables, as consumers of pg-tube's know it; tables that were dropped aside.
-- The list has each shard once.
CREATE OR REPLACE FUNCTION :"schema".tube_private_stats_shards(
    reg :"schema".tube_registry, partition integer, OUT shards integer, OUT list text
)
LANGUAGE plpgsql AS $$
DECLARE
    most CONSTANT integer := 10;
    total bigint;
BEGIN
    WITH range AS (
        -- The first shard of each table's range that falls into the partition, and how many do.
        SELECT f.first, greatest(0, (f.behind - f.first + reg.partitions - 1) / reg.partitions) AS shards
        FROM (
            SELECT a.shard::bigint + (partition - a.shard % reg.partitions + reg.partitions) % reg.partitions AS first,
                a.shard::bigint + a.shards AS behind
            FROM tube_attachment AS a
            WHERE a.tube = reg.tube AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = a.tbl)
        ) AS f
    ), once AS (
        SELECT DISTINCT r.first, r.shards FROM range AS r
    ), shown AS (
        SELECT o.first + n * reg.partitions AS shard FROM once AS o, generate_series(0, least(o.shards, most) - 1) AS n
        ORDER BY 1 LIMIT most
    )
    SELECT (SELECT least(2147483647, coalesce(sum(r.shards), 0)) FROM range AS r),
        (SELECT string_agg(s.shard::text, ',' ORDER BY s.shard) FROM shown AS s), (SELECT sum(o.shards) FROM once AS o)
    INTO shards, list, total;
    IF total > most THEN
        list := list || format(',... (%s)', total);
    END IF;
END
$$;
