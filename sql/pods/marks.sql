-- The calls of a term on its pods: mark, purge finished ones, and give back the others.
--
-- All of it is done under the fence (leader/terms.sql, also for "the term" and the errors of a call
-- under a term), and 40P01 is to be tried again. The settings of these functions leave the planner the one plan that is
-- right for a queue, whose statistics are never right: the index over (shard modulo partitions, class, seq), where the
-- class is 0 for incremental pods and 1 for pods of op B.
--
-- What workers call for each batch is written in PL/pgSQL, even a single statement: before Postgres 18 a function in SQL
-- is planned in each call.

-- Incremental pods come first, then pods of op B, each by seq. Pods of earlier terms are taken over; pods that this
-- term has already are passed over. None is skipped because it is locked.
-- Arguments:
--   tube, partitions, partition, leader_id   the term
--   pods_limit         at most so many pods, both classes together; 1 to 1000000
--   floor              only incremental pods with a greater seq; NULL counts as 0
--   backfill_floor     only pods of op B with a greater seq; NULL counts as 0
--   exclude_backfill   no pods of op B
--   done               seqs of finished pods, which are purged first, as by tube_pods_purge
-- Result: seq, op, shard, ids (NULL where the tube's keys are not bigint), keys (NULL where they are), payload, ts.
-- Errors: as of a call under a term; 22023 a bad pods_limit.
-- Locks: the fence, the marked and the purged rows, and with `done` the advisory lock of waiters (wait.sql), until the
--   transaction ends: a new term can't begin before. A client that is stopped while it reads the rows must therefore not
--   be in the transaction any more. Send this as one message (a simple query), so that the rows come after the commit, and
--   nothing is done before all of it is there:
--     BEGIN; DECLARE marked BINARY NO SCROLL CURSOR WITH HOLD FOR SELECT * FROM tube_pods_mark(...);
--     COMMIT; FETCH ALL FROM marked; CLOSE marked
--   (after an error: ROLLBACK). Committed as it begins, it is READ COMMITTED.
-- A lost answer: the pods may be this term's, and will not be returned again. Give them back by tube_pods_reset(...,
--   NULL) with the floors at 0, or begin a new term. A killed client's statement may still commit.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_mark(
    tube text, partitions integer, partition integer, leader_id uuid, pods_limit integer = 1000, floor bigint = 0,
    backfill_floor bigint = 0, exclude_backfill boolean = false, done bigint[] = '{}'
) RETURNS TABLE (
    seq bigint, op text, shard integer, ids bigint[], keys text[], payload jsonb, ts timestamptz
)
LANGUAGE plpgsql SECURITY DEFINER ROWS 1000 SET search_path = pg_catalog, :"schema", pg_temp SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_indexscan = on SET enable_tidscan = on SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    epoch bigint;
    statement text;
    marked integer;
BEGIN
    IF pods_limit IS NULL OR pods_limit NOT BETWEEN 1 AND 1000000 THEN
        RAISE EXCEPTION 'pods_limit is %', coalesce(pods_limit::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is 1 to 1000000.';
    END IF;
    epoch := tube_private_hold_term(tube, partitions, partition, leader_id); -- PERFORM would run it as a query

    IF tube_private_keeps_plans(tube, partitions) THEN
        RETURN QUERY EXECUTE format('SELECT * FROM %s($1, $2, $3, 0, $4, $5, $6, $7, $8)',
            tube_private_planned(tube, 'mark'))
        USING leader_id, coalesce(floor, 0), pods_limit, partition, partitions, coalesce(backfill_floor, 0),
            exclude_backfill IS NOT TRUE, done;
    ELSE
        PERFORM tube_private_change_pods('DELETE FROM %s AS pod', tube, partitions, partition, leader_id,
            coalesce(done, '{}'));
        statement := tube_private_mark_sql(tube, partitions, partition);
        RETURN QUERY EXECUTE statement USING leader_id, coalesce(floor, 0), pods_limit, 0;
        GET DIAGNOSTICS marked = ROW_COUNT;
        IF marked < pods_limit AND exclude_backfill IS NOT TRUE THEN
            RETURN QUERY EXECUTE statement USING leader_id, coalesce(backfill_floor, 0), pods_limit - marked, 1;
        END IF;
    END IF;
    IF cardinality(done) > 0 THEN
        PERFORM tube_private_tell_watchers(tube, partitions, partition);
    END IF;
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_mark IS
    'Reserves pods for a term, and returns them in processing order. The file explains how to send it.';

-- tube_private_mark_sql: the statement by which tube_pods_mark takes pods of one class.
-- Its parameters: $1 leader_id, $2 floor, $3 limit, $4 class; with partition NULL, the variable in_partition stands for the
-- partition, for a statement whose plan is kept, and that is run only where the tube has its one index. That gives pods in
-- the order of their seqs, so they are not sorted: the statement first looks for the last pod that it is to take, then
-- updates all up to it. (Taking them by their places, and sorting the result, costs a fifth more.) With a partition,
-- the planner may take another index of the tube, so the result is sorted. Where the partition is in several parts of
-- the index (tube_private_slices), these are merged to find the last pod.
-- A role that may insert into a tube may write arrays that no touch function would: a NULL among ids, or ids in several
-- dimensions, would stop the line of a worker for good. So ids come without NULLs and in a row; where that leaves none,
-- the pod has an unknown form, and is set aside.
CREATE OR REPLACE FUNCTION :"schema".tube_private_mark_sql(
    tube text, partitions integer, partition integer
) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    ids CONSTANT text := 'CASE WHEN array_ndims(pod.ids) > 1'
        ' THEN ARRAY(SELECT k.id FROM unnest(pod.ids) AS k (id) WHERE k.id IS NOT NULL)'
        ' ELSE array_remove(pod.ids, NULL) END';
    queue CONSTANT text := tube_private_qualify(tube);
    slices CONSTANT record := tube_private_slices(tube, partitions, partition);
    merged CONSTANT boolean := cardinality(slices.slices) > 1;
    seqs text[];
    mark text;
BEGIN
    seqs := ARRAY(
        SELECT format($seqs$
              SELECT p.seq FROM %s AS p
              WHERE %s
                AND (CASE WHEN p.op = 'B' THEN 1 ELSE 0 END) = $4
                AND p.seq > $2
                AND p.leader_id IS DISTINCT FROM $1
              ORDER BY p.seq$seqs$, queue, slice)
        FROM unnest(slices.slices) AS slice);
    mark := format($mark$
        UPDATE %1$s AS pod SET leader_id = $1
        WHERE %2$s
          AND (CASE WHEN pod.op = 'B' THEN 1 ELSE 0 END) = $4
          AND pod.seq > $2
          AND pod.seq <= coalesce((%3$s
              LIMIT 1 OFFSET $3 - 1), 9223372036854775807)
          AND pod.leader_id IS DISTINCT FROM $1
        RETURNING pod.seq, pod.op::text, pod.shard::integer, %4$s, pod.payload, pod.ts
        $mark$, queue, slices.pods,
        CASE WHEN merged
            THEN format('SELECT m.seq FROM ((%s)) AS m ORDER BY m.seq', array_to_string(seqs, ') UNION ALL ('))
            ELSE seqs[1] END,
        CASE WHEN tube_private_key_type(tube) = 'bigint'::regtype THEN ids || ', NULL::text[]'
            ELSE format('NULL::bigint[], (%s)::text[]', ids) END);
    RETURN CASE WHEN partition IS NOT NULL THEN format('WITH marked AS (%s) SELECT * FROM marked ORDER BY seq', mark) ELSE mark END;
END
$$;

-- Arguments: the term; seqs: of the pods.
-- Result: how many were deleted. A seq that is not there, or is not this term's, is passed over.
-- Errors: as of a call under a term.
-- Locks: the fence, the deleted rows, and the advisory lock of waiters (wait.sql), until the transaction ends.
-- A lost answer: the pods may be gone or not; call again with the same seqs.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_purge(
    tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_indexscan = on SET enable_tidscan = on SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    epoch bigint;
    purged integer;
BEGIN
    IF tube_private_keeps_plans(tube, partitions) THEN
        epoch := tube_private_hold_term(tube, partitions, partition, leader_id);
        EXECUTE format('SELECT %s($1, 0, $2, NULL, NULL, $3, $4)', tube_private_planned(tube, 'purge'))
        INTO purged USING leader_id, coalesce(seqs, '{}'), partition, partitions;
    ELSE
        purged := tube_private_change_pods('DELETE FROM %s AS pod', tube, partitions, partition, leader_id,
            coalesce(seqs, '{}'));
    END IF;
    PERFORM tube_private_tell_watchers(tube, partitions, partition);
    RETURN purged;
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_purge IS 'Deletes finished pods of a term.';

-- A caller that keeps floors lowers them below the least seq that was given back (to 0 with seqs NULL).
-- Arguments: the term; seqs: of the pods, or NULL for all that are this term's: then all pods of the partition are
--   looked at, for shutting down and for recovery.
-- Result: how many were given back. A seq that is not there, or is not this term's, is passed over.
-- Errors: as of a call under a term.
-- Locks: the fence and the rows given back, until the transaction ends.
-- A lost answer: call again.
CREATE OR REPLACE FUNCTION :"schema".tube_pods_reset(
    tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[] = NULL
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
BEGIN
    RETURN tube_private_change_pods('UPDATE %s AS pod SET leader_id = NULL', tube, partitions, partition, leader_id,
        seqs);
END
$$;
COMMENT ON FUNCTION :"schema".tube_pods_reset IS 'Returns pods of a term to the queue; NULL: all of them.';

-- tube_private_change_pods: does `change` to the term's pods with given seqs, or to all of them, and counts them.
CREATE OR REPLACE FUNCTION :"schema".tube_private_change_pods(
    change text, tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]
) RETURNS integer
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on SET enable_tidscan = on
SET jit = off AS $$
DECLARE
    least_seq CONSTANT bigint := (SELECT min(s.seq) FROM unnest(seqs) AS s (seq));
    greatest_seq CONSTANT bigint := (SELECT max(s.seq) FROM unnest(seqs) AS s (seq));
    changed integer := 0;
    done integer;
    statement text;
BEGIN
    PERFORM tube_private_hold_term(tube, partitions, partition, leader_id);
    statement := format(change || ' WHERE ', tube_private_qualify(tube))
        || tube_private_pods_where(tube, partitions, partition, CASE
            WHEN seqs IS NOT NULL THEN coalesce(greatest_seq - least_seq < 64 * cardinality(seqs), true) END);
    FOR class IN 0..1 LOOP
        EXIT WHEN changed >= cardinality(seqs);
        EXECUTE statement USING leader_id, class, seqs, least_seq, greatest_seq;
        GET DIAGNOSTICS done = ROW_COUNT;
        changed := changed + done;
    END LOOP;
    RETURN changed;
END
$$;

-- tube_private_pods_where: the condition of a statement on a term's pods: the text that follows WHERE.
-- The statement names the tube's table "pod", and has the parameters $1 leader_id, $2 class, $3 seqs bigint[], $4 and $5
-- the least and the greatest of them; and, with partition NULL, the variable in_partition.
-- dense: whether the seqs are close together; NULL: all pods of the term. From 17 on a descent of the index finds all seqs
-- of a page; they are given by a subquery, because the planner takes a while to look at each of a thousand. Before, each
-- would be a separate descent, in twice the time: so seqs that are close together are found by one walk over that range
-- of the index, and each pod there is looked up in a hash of the seqs ("+ 0" keeps the planner from descents). A walk over
-- seqs far apart would meet all that lies between, and "seq = ANY" may become a filter over all pods of the partition
-- (measured: ten times the time and more); there each seq is looked up by a join that can't be turned round.
CREATE OR REPLACE FUNCTION :"schema".tube_private_pods_where(
    tube text, partitions integer, partition integer, dense boolean
) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    pods CONSTANT text := (tube_private_slices(tube, partitions, partition)).pods;
    class_is CONSTANT text := '(CASE WHEN %s.op = ''B'' THEN 1 ELSE 0 END) = $2';
    of_term CONSTANT text := format('%s AND %s AND pod.leader_id = $1', pods, format(class_is, 'pod'));
BEGIN
    RETURN CASE
        WHEN dense IS NULL THEN of_term
        WHEN current_setting('server_version_num')::integer >= 170000 THEN
            of_term || ' AND pod.seq = ANY ((SELECT $3)::bigint[])'
        WHEN dense THEN of_term || ' AND pod.seq BETWEEN $4 AND $5 AND pod.seq + 0 = ANY ($3)'
        ELSE format($where$
            pod.ctid = ANY (ARRAY(
                SELECT found.place
                FROM unnest($3) AS wanted (seq), LATERAL (
                    SELECT p.ctid AS place FROM %s AS p
                    WHERE %s AND %s AND p.seq = wanted.seq AND p.leader_id = $1
                    OFFSET 0) AS found))$where$, tube_private_qualify(tube), pods, format(class_is, 'p'))
        END;
END
$$;

-- tube_private_slices: the condition on pods of a partition, so that an index of the tube serves.
-- That is the index for its number of partitions. After a repartition it may not be there yet, and then that for a
-- number of before serves: a shard that leaves the rest p by P leaves one by C that equals p modulo gcd(C, P), so the
-- pods are in those parts of that index, among others. Of several it takes the one with the fewest others there.
-- partition: NULL for a text that takes the variable in_partition, by the index for this number.
-- Result: pods: the condition, on a column "shard"; slices: the same, in one or more that exclude each other. Each of
--   these has all its pods in one part of the index, in the order of class and seq; more than one is to be merged.
CREATE OR REPLACE FUNCTION :"schema".tube_private_slices(
    tube text, partitions integer, partition integer, OUT pods text, OUT slices text[]
)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    cut integer;
    parts integer[];
BEGIN
    pods := format('(shard %% %s) = %s', partitions, coalesce(partition::text, 'in_partition'));
    slices := ARRAY[pods];
    IF partition IS NULL OR tube_private_index_of(tube, partitions) IS NOT NULL THEN -- nearly always
        RETURN;
    END IF;
    PERFORM tube_private_require(tube); -- an outbox never has this index, and no pods
    SELECT i.partitions INTO cut FROM tube_private_indexes(tube) AS i
    WHERE i.valid
    ORDER BY lcm(i.partitions, tube_private_slices.partitions), i.partitions DESC LIMIT 1;
    IF cut <> partitions THEN
        parts := ARRAY(SELECT generate_series(partition % gcd(cut, partitions), cut - 1, gcd(cut, partitions)));
        slices := ARRAY(SELECT format('(shard %% %s) = %s AND %s', cut, s.part, pods) FROM unnest(parts) AS s (part));
        pods := CASE WHEN cardinality(slices) = 1 THEN slices[1]
            ELSE format('(shard %% %s) = ANY (%L) AND %s', cut, parts, pods) END;
    END IF;
END
$$;

-- tube_private_index_of: a tube's index for a number of partitions, NULL without a valid one. (A longer name is cut; then it is
-- not found here, and everything takes the way of a tube that has none.)
CREATE OR REPLACE FUNCTION :"schema".tube_private_index_of(tube text, partitions integer) RETURNS regclass
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT i.indexrelid FROM pg_index AS i
        WHERE i.indisvalid AND i.indexrelid = to_regclass(quote_ident(
            format('%s_%s_p%s_idx', tube, left(md5('queue ' || tube), 8), partitions))));
END
$$;

-- --- statements whose plans are kept -----------------------------------------------------------------------------------

-- tube_private_keeps_plans: whether the generated functions of a tube serve a number of partitions: its index is there,
-- and no other one of the kind. (Of two, a plan that was made for an empty queue may take the other one, and stay so.)
-- Each mark and purge asks, so it does not call tube_private_index_of, which takes as long again.
CREATE OR REPLACE FUNCTION :"schema".tube_private_keeps_plans(tube text, partitions integer) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
DECLARE
    queue CONSTANT regclass := to_regclass(quote_ident(tube));
    index CONSTANT regclass := to_regclass(quote_ident(
        format('%s_%s_p%s_idx', tube, left(md5('queue ' || tube), 8), partitions)));
BEGIN
    RETURN index IS NOT NULL AND NOT EXISTS (SELECT FROM pg_index AS i
        WHERE i.indrelid = queue AND i.indnatts = 3 AND (i.indexrelid <> index OR NOT i.indisvalid));
END
$$;

-- tube_private_planned: the name of a function that is generated for a tube, in pytube's schema: what: mark or purge. (No
-- function is looked for in pg_temp, so it needs no schema where that is in the path.)
CREATE OR REPLACE FUNCTION :"schema".tube_private_planned(tube text, what text) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN format('tube_private_%s_%s', what, left(md5(tube), 16));
END
$$;

-- tube_private_provide_planned: makes the functions that mark and purge the pods of a tube, by the index for its number of
-- partitions. tube_pods_mark and tube_pods_purge call them under the fence, where that index is there alone.
-- They do what the texts do, but a session plans their statements once, not in each call: to plan them took two thirds of
-- what a mark and a purge of five pods cost. A change of the number makes them anew, with the registry row; a function that
-- is called for another number refuses (TU002), as the fence does.
CREATE OR REPLACE FUNCTION :"schema".tube_private_provide_planned(tube text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    partitions CONSTANT integer := (tube_private_require(tube)).partitions;
    mark_name CONSTANT text := tube_private_qualify(tube_private_planned(tube, 'mark'));
    purge_name CONSTANT text := tube_private_qualify(tube_private_planned(tube, 'purge'));
    mark CONSTANT text := tube_private_mark_sql(tube, partitions, NULL);
    purge CONSTANT text := format('DELETE FROM %s AS pod WHERE ', tube_private_qualify(tube));
    dense CONSTANT text := tube_private_pods_where(tube, partitions, NULL, true);
    sparse CONSTANT text := tube_private_pods_where(tube, partitions, NULL, false);
    refusal CONSTANT text := format($body$
            IF in_partitions <> %s THEN
                RAISE EXCEPTION 'the tube has another number of partitions' USING ERRCODE = 'TU002', HINT = 'Ask again.';
            END IF;$body$, partitions);
BEGIN
    EXECUTE format($ddl$
        CREATE OR REPLACE FUNCTION %s(
            leader_id uuid, floor bigint, pods_limit integer, class integer, in_partition integer, in_partitions integer,
            backfill_floor bigint, backfill boolean, finished bigint[]
        ) RETURNS TABLE (seq bigint, op text, shard integer, ids bigint[], keys text[], payload jsonb, ts timestamptz)
        LANGUAGE plpgsql AS %L$ddl$, mark_name, format($body$
        #variable_conflict use_column
        DECLARE
            purged integer;
            marked integer;
        BEGIN%1$s
            IF cardinality(finished) > 0 THEN
                purged := %3$s(leader_id, 0, finished, NULL, NULL, in_partition, in_partitions);
            END IF;
            RETURN QUERY %2$s;
            GET DIAGNOSTICS marked = ROW_COUNT;
            IF backfill AND marked < pods_limit THEN
                class := 1;
                floor := backfill_floor;
                pods_limit := pods_limit - marked;
                RETURN QUERY %2$s;
            END IF;
        END
        $body$, refusal, mark, purge_name));
    EXECUTE format($ddl$
        CREATE OR REPLACE FUNCTION %s(
            leader_id uuid, class integer, seqs bigint[], least_seq bigint, greatest_seq bigint, in_partition integer,
            in_partitions integer
        ) RETURNS integer
        LANGUAGE plpgsql AS %L$ddl$, purge_name, format($body$
        DECLARE
            purged integer := 0;
            done integer;
        BEGIN%s
            LOOP
                %s
                GET DIAGNOSTICS done = ROW_COUNT;
                purged := purged + done;
                EXIT WHEN purged >= cardinality(seqs) OR class = 1;
                class := 1;
            END LOOP;
            RETURN purged;
        END
        $body$, refusal, CASE WHEN dense = sparse THEN purge || dense || ';'
            ELSE format('SELECT min(s.seq), max(s.seq) INTO least_seq, greatest_seq FROM unnest(seqs) AS s (seq);'
                ' IF coalesce(greatest_seq - least_seq < 64 * cardinality(seqs), true) THEN %s; ELSE %s; END IF;',
                purge || dense, purge || sparse) END));
    EXECUTE format('REVOKE ALL ON FUNCTION %s, %s FROM PUBLIC', mark_name, purge_name);
END
$$;
