CREATE SCHEMA tube;

CREATE DOMAIN tube.tube_shard AS integer
	CONSTRAINT tube_shard_check CHECK ((VALUE >= 0));

CREATE FUNCTION tube.outbox_adopt(outbox text, tbl regclass, partitions integer DEFAULT 1, wake boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS 2de17813d8350ab4;

COMMENT ON FUNCTION tube.outbox_adopt(outbox text, tbl regclass, partitions integer, wake boolean) IS 'Creates an outbox over an existing table, or changes it. wake: writers wake a sleeping worker, by a trigger.';

CREATE FUNCTION tube.outbox_drop(outbox text, force boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS 1f09f728b362c1ff;

COMMENT ON FUNCTION tube.outbox_drop(outbox text, force boolean) IS 'Drops an outbox without waiting records; with force, any. An adopted table stays.';

CREATE FUNCTION tube.outbox_ensure_absent(in_outbox text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS e734421f45fcbd5d;

COMMENT ON FUNCTION tube.outbox_ensure_absent(in_outbox text) IS 'Drops an outbox with all its records, or releases an adopted table. Does nothing if there is no such outbox.';

CREATE FUNCTION tube.outbox_ensure_exists(outbox text, partitions integer DEFAULT 1, value_type regtype DEFAULT NULL::regtype) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS 6b57a26ebfcbf8bd;

COMMENT ON FUNCTION tube.outbox_ensure_exists(outbox text, partitions integer, value_type regtype) IS 'Creates an outbox with its own table, or changes its partitions. Without partitions it gets 1, even if it has more. value_type is text or bytea, and can''t be changed.';

CREATE FUNCTION tube.outbox_identity(outbox text) RETURNS text
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS f0adec2b9e934fa6;

COMMENT ON FUNCTION tube.outbox_identity(outbox text) IS 'Returns the name of the outbox in the header pytube-outbox.';

CREATE FUNCTION tube.outbox_index_sql(outbox text, partitions integer) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS ad57c3b16f15c16a;

COMMENT ON FUNCTION tube.outbox_index_sql(outbox text, partitions integer) IS 'As tube_index_sql, for an outbox; run it as the owner of the table.';

CREATE FUNCTION tube.outbox_list() RETURNS TABLE(outbox text, partitions integer, tbl regclass, value_type regtype, adopted boolean, wakes boolean)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 37d87fd524c54d73;

COMMENT ON FUNCTION tube.outbox_list() IS 'Lists outboxes and their tables. wakes: whether writers wake sleeping workers.';

CREATE FUNCTION tube.outbox_parked(in_outbox text DEFAULT NULL::text, in_limit integer DEFAULT 100) RETURNS TABLE(outbox text, id bigint, topic text, key text, error text, attempts integer, epoch bigint, hold boolean, behind boolean, parked_at timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 0efe533322b50d37;

COMMENT ON FUNCTION tube.outbox_parked(in_outbox text, in_limit integer) IS 'Lists parked records with their errors: failed records, latest first, then the records that wait behind them.';

CREATE FUNCTION tube.outbox_parked_drop(outbox text, ids bigint[]) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET row_security TO 'off'
    SET lock_timeout TO '5s'
    AS 7b80e846c55848e5;

COMMENT ON FUNCTION tube.outbox_parked_drop(outbox text, ids bigint[]) IS 'Deletes parked records, which are then never sent; records behind them are. At READ COMMITTED only.';

CREATE FUNCTION tube.outbox_records_mark(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer DEFAULT 1000, floor bigint DEFAULT 0, settled_floor bigint DEFAULT NULL::bigint, long_writers xid8[] DEFAULT NULL::xid8[]) RETURNS TABLE(id bigint, create_time timestamp with time zone, kafka_topic text, kafka_key text, kafka_value bytea, kafka_header_keys text[], kafka_header_values text[], partition_key text, retried boolean, held boolean)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    SET row_security TO 'off'
    SET lock_timeout TO '250ms'
    AS 931a592e67324060;

COMMENT ON FUNCTION tube.outbox_records_mark(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, floor bigint, settled_floor bigint, long_writers xid8[]) IS 'Reserves records for a term, by id; retried ones first. An adopted table has no floor: pass 0. Waits at most a quarter of a second for a lock.';

CREATE FUNCTION tube.outbox_records_mark_around(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, ids bigint[] DEFAULT '{}'::bigint[]) RETURNS TABLE(id bigint, create_time timestamp with time zone, kafka_topic text, kafka_key text, kafka_value bytea, kafka_header_keys text[], kafka_header_values text[], partition_key text, retried boolean, held boolean, locked boolean)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    SET row_security TO 'off'
    SET lock_timeout TO '1s'
    AS d4bab5a70545bc69;

COMMENT ON FUNCTION tube.outbox_records_mark_around(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, ids bigint[]) IS 'Purges ids, then reserves records without waiting for locks; locked ones come as rows without content. For use after 55P03.';

CREATE FUNCTION tube.outbox_records_park(outbox text, partitions integer, partition integer, leader_id uuid, items jsonb, hold boolean DEFAULT false) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET row_security TO 'off'
    SET lock_timeout TO '250ms'
    AS 888d7822ee09cad0;

COMMENT ON FUNCTION tube.outbox_records_park(outbox text, partitions integer, partition integer, leader_id uuid, items jsonb, hold boolean) IS 'Parks records of the term: objects with id, error, attempts and behind. hold: they hold their keys.';

CREATE FUNCTION tube.outbox_records_park_topic(outbox text, partitions integer, partition integer, leader_id uuid, topic text, error text, ids bigint[], hold boolean DEFAULT false, records_limit integer DEFAULT 10000) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET row_security TO 'off'
    SET lock_timeout TO '1s'
    AS 7ee0227e71330b73;

COMMENT ON FUNCTION tube.outbox_records_park_topic(outbox text, partitions integer, partition integer, leader_id uuid, topic text, error text, ids bigint[], hold boolean, records_limit integer) IS 'Parks records of a topic in a term''s partition. Call it until it returns fewer than records_limit.';

CREATE FUNCTION tube.outbox_records_purge(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    SET row_security TO 'off'
    SET lock_timeout TO '250ms'
    AS 266f95b9a369fb32;

COMMENT ON FUNCTION tube.outbox_records_purge(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[]) IS 'Deletes sent records of the term. Waits at most a quarter of a second for a lock.';

CREATE FUNCTION tube.outbox_records_purge_sent(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[], created_until timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET jit TO 'off'
    SET row_security TO 'off'
    SET lock_timeout TO '250ms'
    AS 35fd310750b5d0d5;

COMMENT ON FUNCTION tube.outbox_records_purge_sent(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[], created_until timestamp with time zone) IS 'Deletes records of the partition that an earlier term has sent, written until created_until.';

CREATE FUNCTION tube.outbox_records_reset(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[] DEFAULT NULL::bigint[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    SET row_security TO 'off'
    AS 525584213f949e9c;

COMMENT ON FUNCTION tube.outbox_records_reset(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[]) IS 'Returns records of the term to the queue; NULL: all of them. Skips locked ones.';

CREATE FUNCTION tube.outbox_resting(in_outbox text DEFAULT NULL::text) RETURNS TABLE(outbox text, partition integer, topic text, reason text, records bigint, since timestamp with time zone, next_at timestamp with time zone, park boolean)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS e4d7e306c9da5745;

COMMENT ON FUNCTION tube.outbox_resting(in_outbox text) IS 'Lists topics that accept no records now: why, since when, and the next try.';

CREATE FUNCTION tube.outbox_retry(outbox text, ids bigint[] DEFAULT NULL::bigint[], topic text DEFAULT NULL::text, key text DEFAULT NULL::text, in_seen pg_snapshot DEFAULT NULL::pg_snapshot, in_limit integer DEFAULT 10000) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 55988d21d5b84581;

COMMENT ON FUNCTION tube.outbox_retry(outbox text, ids bigint[], topic text, key text, in_seen pg_snapshot, in_limit integer) IS 'Has parked records sent again: all, or those with these ids, topic or key; of a held key all, in order. At READ COMMITTED only.';

CREATE FUNCTION tube.outbox_stash(outbox text, topic text, key text, value bytea, headers jsonb DEFAULT '{}'::jsonb, partition_key text DEFAULT NULL::text, in_order boolean DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS bf85f9e9af9ebb04;

COMMENT ON FUNCTION tube.outbox_stash(outbox text, topic text, key text, value bytea, headers jsonb, partition_key text, in_order boolean) IS 'Puts a message into an outbox, in the caller''s transaction; value is text or bytea. Returns its id. headers is an object, or an array of pairs. partition_key replaces key for order and partition. in_order: transactions with messages of one key wait for each other.';

CREATE FUNCTION tube.outbox_stash(outbox text, topic text, key text, value text, headers jsonb DEFAULT '{}'::jsonb, partition_key text DEFAULT NULL::text, in_order boolean DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS bf85f9e9af9ebb04;

COMMENT ON FUNCTION tube.outbox_stash(outbox text, topic text, key text, value text, headers jsonb, partition_key text, in_order boolean) IS 'Puts a message into an outbox, in the caller''s transaction; value is text or bytea. Returns its id. headers is an object, or an array of pairs. partition_key replaces key for order and partition. in_order: transactions with messages of one key wait for each other.';

CREATE FUNCTION tube.outbox_stash_many(outbox text, topics text[], keys text[], bodies text[], headers jsonb DEFAULT NULL::jsonb, partition_keys text[] DEFAULT NULL::text[], in_order boolean DEFAULT false) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 068c61f334a666df;

COMMENT ON FUNCTION tube.outbox_stash_many(outbox text, topics text[], keys text[], bodies text[], headers jsonb, partition_keys text[], in_order boolean) IS 'Puts many messages into an outbox in one statement; arrays of the same length. Returns the ids.';

CREATE FUNCTION tube.outbox_stash_many_bytea(outbox text, topics text[], keys text[], bodies bytea[], headers jsonb DEFAULT NULL::jsonb, partition_keys text[] DEFAULT NULL::text[], in_order boolean DEFAULT false) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 068c61f334a666df;

COMMENT ON FUNCTION tube.outbox_stash_many_bytea(outbox text, topics text[], keys text[], bodies bytea[], headers jsonb, partition_keys text[], in_order boolean) IS 'As outbox_stash_many, for binary values.';

CREATE FUNCTION tube.outbox_stats() RETURNS TABLE(outbox text, partition integer, count text, min_id bigint, max_id bigint, min_create_time timestamp with time zone, parked text, problem text)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    SET row_security TO 'off'
    AS 602a7e465bd6b44a;

COMMENT ON FUNCTION tube.outbox_stats() IS 'Returns the backlog of each partition, without parked records; problem: why this role can''t read it.';

CREATE FUNCTION tube.outbox_topic_park(outbox text, topic text) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS b18a84e55bfeca27;

COMMENT ON FUNCTION tube.outbox_topic_park(outbox text, topic text) IS 'Has leaders park the records of a resting topic; returns in how many partitions it rests.';

CREATE FUNCTION tube.outbox_topics_rest(outbox text, partitions integer, partition integer, leader_id uuid, topics jsonb) RETURNS SETOF text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS c396e4f3ab8715fd;

COMMENT ON FUNCTION tube.outbox_topics_rest(outbox text, partitions integer, partition integer, leader_id uuid, topics jsonb) IS 'Reports resting topics of a term; returns those whose records an operator wants parked.';

CREATE FUNCTION tube.tube_applied() RETURNS TABLE(tube text, kind text, declared text, applied text, made boolean, tbl regclass, attached boolean)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS aecc7b902167ae81;

COMMENT ON FUNCTION tube.tube_applied() IS 'Lists declarations that were applied: a row per attached table, and one with a NULL tbl for an outbox or a tube without tables.';

CREATE FUNCTION tube.tube_applied_attached(tube text, tbl regclass) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS 6b02b72a245c9fb0;

COMMENT ON FUNCTION tube.tube_applied_attached(tube text, tbl regclass) IS 'Records that a table was attached because a file declares it.';

CREATE FUNCTION tube.tube_applied_set(tube text, digest text, made boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS bc7860ae4f552055;

COMMENT ON FUNCTION tube.tube_applied_set(tube text, digest text, made boolean) IS 'Records that a tube or outbox matches its declaration in a file; made: the caller has just created it. A NULL digest: no file declares it any longer.';

CREATE FUNCTION tube.tube_as_caller(in_search_path text, first text, statement text) RETURNS SETOF bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS a6c10e873abd4d79;

COMMENT ON FUNCTION tube.tube_as_caller(in_search_path text, first text, statement text) IS 'For tube_pods_insert: runs a statement with the caller''s rights and search_path.';

CREATE FUNCTION tube.tube_attempts_reset(tube text, in_partition integer DEFAULT NULL::integer, in_shard integer DEFAULT NULL::integer, in_key text DEFAULT NULL::text) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 5af7c20f161714e6;

COMMENT ON FUNCTION tube.tube_attempts_reset(tube text, in_partition integer, in_shard integer, in_key text) IS 'Deletes failures of keys that will be retried; returns the number of keys.';

CREATE FUNCTION tube.tube_audit_add(action text, tube text DEFAULT NULL::text, details jsonb DEFAULT '{}'::jsonb) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 750c26edc9f6860f;

COMMENT ON FUNCTION tube.tube_audit_add(action text, tube text, details jsonb) IS 'Adds an action of your program to the audit. Pass no document and no secret.';

CREATE FUNCTION tube.tube_audit_list(in_tube text DEFAULT NULL::text, in_limit integer DEFAULT 100) RETURNS TABLE(audit_id bigint, done_at timestamp with time zone, done_by name, client text, action text, tube text, details jsonb)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 59aba92e819d3a86;

COMMENT ON FUNCTION tube.tube_audit_list(in_tube text, in_limit integer) IS 'Lists operators'' actions, latest first.';

CREATE TABLE tube.tube_backfill (
    backfill_id bigint NOT NULL,
    tube text NOT NULL,
    tbl regclass NOT NULL,
    table_name text NOT NULL,
    order_col name NOT NULL,
    shard integer NOT NULL,
    shards integer NOT NULL,
    root boolean NOT NULL,
    by_worker boolean NOT NULL,
    start_seq bigint NOT NULL,
    "position" bigint NOT NULL,
    key_attnums smallint[],
    row_filter text,
    state text DEFAULT 'waiting'::text NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    rows_total bigint,
    rows_done bigint DEFAULT 0 NOT NULL,
    pods_total bigint,
    pods_done bigint DEFAULT 0 NOT NULL,
    ends_left integer,
    rate double precision,
    note text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    collected_at timestamp with time zone,
    inserted_at timestamp with time zone,
    ended_at timestamp with time zone,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT tube_backfill_state_check CHECK ((state = ANY (ARRAY['waiting'::text, 'inserting'::text, 'delivering'::text, 'finished'::text, 'cancelled'::text, 'superseded'::text, 'failed'::text])))
)
WITH (fillfactor='50');

CREATE FUNCTION tube.tube_backfill_chunk(backfill_id bigint, pods integer, rate double precision DEFAULT NULL::double precision) RETURNS tube.tube_backfill
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS f676edd1584e679d;

COMMENT ON FUNCTION tube.tube_backfill_chunk(backfill_id bigint, pods integer, rate double precision) IS 'Inserts the next pods and moves the cursor; with the last ones, backfill_end.';

CREATE FUNCTION tube.tube_backfill_collect(backfill_id bigint) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET row_security TO 'off'
    SET work_mem TO '64MB'
    SET jit TO 'off'
    SET standard_conforming_strings TO 'on'
    AS e10d2b7b987ea5ff;

COMMENT ON FUNCTION tube.tube_backfill_collect(backfill_id bigint) IS 'Stores the ids in order, in one snapshot, with the caller''s rights; returns how many. NULL: the backfill was paused, ended, or failed meanwhile.';

CREATE FUNCTION tube.tube_backfill_command(backfill_id bigint, command text) RETURNS tube.tube_backfill
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 7b4770113b3fc2df;

COMMENT ON FUNCTION tube.tube_backfill_command(backfill_id bigint, command text) IS 'Takes the command pause, resume or cancel, at any time.';

CREATE FUNCTION tube.tube_backfill_create(tube text, tbl regclass, order_col text DEFAULT NULL::text, supersede boolean DEFAULT false, by_worker boolean DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '10s'
    AS c158119952eb5092;

COMMENT ON FUNCTION tube.tube_backfill_create(tube text, tbl regclass, order_col text, supersede boolean, by_worker boolean) IS 'Draws the start seq, registers a backfill in chunks, and returns its id.';

CREATE FUNCTION tube.tube_backfill_holders(xids text[] DEFAULT NULL::text[]) RETURNS TABLE(xid text, holder text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS a9ea1f888bb50a99;

COMMENT ON FUNCTION tube.tube_backfill_holders(xids text[]) IS 'Lists open transactions that have an xid. Collect once the ones that ran after create are over.';

CREATE FUNCTION tube.tube_backfill_join(backfill_id bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 3a1840fe82eae84d;

COMMENT ON FUNCTION tube.tube_backfill_join(backfill_id bigint) IS 'Inserts backfill_end once all ranges are inserted; false if some are missing.';

CREATE FUNCTION tube.tube_backfill_list(in_tube text DEFAULT NULL::text) RETURNS TABLE(backfill_id bigint, tube text, tbl text, order_col text, state text, paused boolean, rows_done bigint, rows_total bigint, rate double precision, seconds_left double precision, note text, pid integer, by_worker boolean, start_seq bigint, shards_left integer, created_at timestamp with time zone, ended_at timestamp with time zone, relation regclass)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 88debd89fa2fb2d8;

COMMENT ON FUNCTION tube.tube_backfill_list(in_tube text) IS 'Lists backfills, newest first. rows_done counts rows inserted into the tube.';

CREATE FUNCTION tube.tube_backfill_lock(backfill_id bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 6bf5306119c9552d;

COMMENT ON FUNCTION tube.tube_backfill_lock(backfill_id bigint) IS 'Acquires the right to work on a backfill, until the session ends.';

CREATE FUNCTION tube.tube_backfill_note(backfill_id bigint, note text) RETURNS tube.tube_backfill
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS cfb0e0650d43ab88;

COMMENT ON FUNCTION tube.tube_backfill_note(backfill_id bigint, note text) IS 'Records why a backfill waits.';

CREATE FUNCTION tube.tube_backfill_pressure(tube text, pods_limit integer) RETURNS TABLE(waiting bigint, replica text, replica_lag double precision, replica_behind bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS b1421c11d0385fc7;

COMMENT ON FUNCTION tube.tube_backfill_pressure(tube text, pods_limit integer) IS 'Returns the backlog and the replicas'' lag, to which a backfill''s limits apply.';

CREATE FUNCTION tube.tube_backfill_range(backfill_id bigint, unit integer, rate double precision DEFAULT NULL::double precision) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET row_security TO 'off'
    SET work_mem TO '64MB'
    SET jit TO 'off'
    SET standard_conforming_strings TO 'on'
    AS 1e80eb30629b5120;

COMMENT ON FUNCTION tube.tube_backfill_range(backfill_id bigint, unit integer, rate double precision) IS 'Inserts a range, from any session; returns its rows, or NULL while the backfill is paused.';

CREATE FUNCTION tube.tube_backfill_schedule(in_tube text, order_col text, shard_from integer, shard_to integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 856df4c28cf83976;

COMMENT ON FUNCTION tube.tube_backfill_schedule(in_tube text, order_col text, shard_from integer, shard_to integer) IS 'Has workers backfill the root tables of these shards, by control pods; returns how many. Skips tables with a waiting or running backfill.';

CREATE FUNCTION tube.tube_backfill_split(backfill_id bigint, ranges integer DEFAULT 16) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET row_security TO 'off'
    AS 2bc2938bf4dc778c;

COMMENT ON FUNCTION tube.tube_backfill_split(backfill_id bigint, ranges integer) IS 'In place of tube_backfill_collect: divides a backfill into ranges, the units of the job that it returns.';

CREATE FUNCTION tube.tube_backfill_step1() RETURNS text
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 9b5f6c21f5541141;

COMMENT ON FUNCTION tube.tube_backfill_step1() IS 'Draws the start seq of a backfill: the first of three transactions.';

CREATE FUNCTION tube.tube_backfill_step2(timeout interval DEFAULT '00:01:00'::interval) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS d85b0c9f32a65071;

COMMENT ON FUNCTION tube.tube_backfill_step2(timeout interval) IS 'Waits until every writing transaction is over, prepared ones too: the second of three. At the timeout it raises, and names up to ten sessions.';

CREATE FUNCTION tube.tube_backfill_step3(step1 text, tube text, tbl regclass, order_col text, shard integer DEFAULT NULL::integer, fetch_chunk_size integer DEFAULT 20000, insert_chunk_size integer DEFAULT 250) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET row_security TO 'off'
    SET jit TO 'off'
    SET standard_conforming_strings TO 'on'
    AS 3a5132ae9a93c4a1;

COMMENT ON FUNCTION tube.tube_backfill_step3(step1 text, tube text, tbl regclass, order_col text, shard integer, fetch_chunk_size integer, insert_chunk_size integer) IS 'Touches every row of an attached table by order_col, between the control pods backfill_start and backfill_end: the third of three. Skipped with a NOTICE while an earlier backfill_end waits.';

CREATE FUNCTION tube.tube_backfill_take(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 2cf462cf2866e7da;

COMMENT ON FUNCTION tube.tube_backfill_take(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) IS 'Turns a backfill_schedule pod of a term into a backfill that a worker runs; returns its id.';

CREATE FUNCTION tube.tube_backfill_tidy() RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 43e84fb842997cb2;

COMMENT ON FUNCTION tube.tube_backfill_tidy() IS 'Drops stored ids of ended backfills; returns how many tables are left.';

CREATE FUNCTION tube.tube_backfill_unlock(backfill_id bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 9df2b7e13a4d0b55;

COMMENT ON FUNCTION tube.tube_backfill_unlock(backfill_id bigint) IS 'Releases this right.';

CREATE FUNCTION tube.tube_backfill_waiting(backfill_id bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS 7ca5e14813a11cf4;

COMMENT ON FUNCTION tube.tube_backfill_waiting(backfill_id bigint) IS 'Returns about how many rows of a backfill wait in the tube.';

CREATE FUNCTION tube.tube_channel(tube text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    RETURN ('pytube_'::text || md5((('tube'::text || '.'::text) || tube)));

COMMENT ON FUNCTION tube.tube_channel(tube text) IS 'Returns the NOTIFY channel on which writers wake the leaders of a tube; the payload is the partition.';

CREATE FUNCTION tube.tube_companion_ensure(tube text, companion text, key_type regtype) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS c9aa9fb4474f1fb5;

COMMENT ON FUNCTION tube.tube_companion_ensure(tube text, companion text, key_type regtype) IS 'Creates a companion of a tube, which holds touches of relations of its documents, unless it exists.';

CREATE FUNCTION tube.tube_companions(tube text) RETURNS SETOF text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 7b1ed6fde90d9e27;

COMMENT ON FUNCTION tube.tube_companions(tube text) IS 'Lists the companions of a tube.';

CREATE FUNCTION tube.tube_delivered_channel(tube text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    RETURN ('pytube_done_'::text || md5((('tube'::text || '.'::text) || tube)));

COMMENT ON FUNCTION tube.tube_delivered_channel(tube text) IS 'Returns the NOTIFY channel of deliveries of a tube.';

CREATE FUNCTION tube.tube_delivered_parked(tube text) RETURNS TABLE(parked bigint, shard integer, id text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 9efdaed07160f833;

COMMENT ON FUNCTION tube.tube_delivered_parked(tube text) IS 'Returns how many keys are parked (1000 at most), and one of them; no row if none.';

CREATE FUNCTION tube.tube_delivered_watch(tube text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS bb9a0d860ee6f755;

COMMENT ON FUNCTION tube.tube_delivered_watch(tube text) IS 'Makes purges notify this channel until the session ends. LISTEN first.';

CREATE FUNCTION tube.tube_document_declare(tube text, digest text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS a0c14a723c16c232;

COMMENT ON FUNCTION tube.tube_document_declare(tube text, digest text) IS 'Records the digest of the document that a tube delivers; NULL: none. Workers with another digest do not deliver.';

CREATE FUNCTION tube.tube_document_touch(tube text, op text, ids anyarray) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET jit TO 'off'
    AS da230f3f087c08e4;

COMMENT ON FUNCTION tube.tube_document_touch(tube text, op text, ids anyarray) IS 'Touches documents by their keys, in the shards of the root table. op is U or B. Returns the number of ids queued.';

CREATE FUNCTION tube.tube_documents() RETURNS TABLE(tube text, companion_of text, declared text, key_type regtype, partitions integer, tbl regclass, id_col name, shard integer, shards integer, columns name[], key_cols name[], shard_by name)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS dc0779c1c7905375;

COMMENT ON FUNCTION tube.tube_documents() IS 'Lists tubes with their declared documents, attached tables, and the tubes whose companions they are.';

CREATE FUNCTION tube.tube_drop(tube text, force boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS 8dc7cca7cde3903c;

COMMENT ON FUNCTION tube.tube_drop(tube text, force boolean) IS 'Drops a tube without attached tables, waiting pods and parked documents; with force, any tube. Its companions go with it.';

CREATE FUNCTION tube.tube_ensure_absent(in_tube text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS f9962699488a8011;

COMMENT ON FUNCTION tube.tube_ensure_absent(in_tube text) IS 'Drops a tube with its pods and companions, and detaches its tables. Does nothing if there is no such tube.';

CREATE FUNCTION tube.tube_ensure_exists(tube text, partitions integer DEFAULT 1, predicate text DEFAULT NULL::text, key_type regtype DEFAULT NULL::regtype) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS cb1fb7d021d72d3a;

COMMENT ON FUNCTION tube.tube_ensure_exists(tube text, partitions integer, predicate text, key_type regtype) IS 'Creates a tube, or changes its partitions and predicate. Without partitions it gets 1, even if it has more. A NULL predicate keeps the present one, an empty string removes it. key_type is bigint, uuid or text, and can''t be changed.';

CREATE FUNCTION tube.tube_failing_list() RETURNS TABLE(tube text, partition integer, reason text, terms integer, since timestamp with time zone, failed_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS e286bbc730f9a813;

COMMENT ON FUNCTION tube.tube_failing_list() IS 'Lists partitions whose terms keep ending by the same failure, as reported within five minutes.';

CREATE FUNCTION tube.tube_failing_note(tube text, partition integer, reason text, terms integer, seconds double precision) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS b00e047f2552008e;

COMMENT ON FUNCTION tube.tube_failing_note(tube text, partition integer, reason text, terms integer, seconds double precision) IS 'Records that so many terms of a partition have ended by the same failure; 0: none does any more.';

CREATE FUNCTION tube.tube_hindered_list() RETURNS TABLE(tube text, partition integer, what text, reason text, since timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 88b1843ce63e0867;

COMMENT ON FUNCTION tube.tube_hindered_list() IS 'Lists what slows down partitions that are led: slow sinks, locked tables, late workers.';

CREATE FUNCTION tube.tube_id_column(tbl regclass, id_col name DEFAULT NULL::name) RETURNS TABLE(name name, is_key boolean, is_unique boolean, reason text)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 44988a617e0c7d7e;

COMMENT ON FUNCTION tube.tube_id_column(tbl regclass, id_col name) IS 'Returns the column by which to attach a table, whether it is unique and a key, and why; no row if there is none, or for a partition.';

CREATE FUNCTION tube.tube_ids_waiting() RETURNS TABLE(tube text, partition integer, ids bigint, sampled boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET jit TO 'off'
    AS 7618afd178cc66c4;

COMMENT ON FUNCTION tube.tube_ids_waiting() IS 'Returns about how many ids wait in each partition; sampled if the table is large.';

CREATE FUNCTION tube.tube_index_fit() RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS dfb72ea087495a99;

COMMENT ON FUNCTION tube.tube_index_fit() IS 'Builds the missing indexes of repartitioned tubes and outboxes, and drops their old ones, if that takes at most 100 ms. Returns how many got an index.';

CREATE FUNCTION tube.tube_index_sql(tube text, partitions integer) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 4ab1bbd4724478f2;

COMMENT ON FUNCTION tube.tube_index_sql(tube text, partitions integer) IS 'Returns the next statement to run outside a transaction, so that a tube gets the index for this number of partitions while writers continue. NULL: nothing is left to do. Call it before a repartition with the next number, and after it with the present one.';

CREATE FUNCTION tube.tube_instances(in_tube text DEFAULT NULL::text) RETURNS TABLE(tube text, instance_id uuid, client_id text, seen_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 85f59ff4e2c9d46c;

COMMENT ON FUNCTION tube.tube_instances(in_tube text) IS 'Lists the processes in the lease election, and when each was last seen.';

CREATE FUNCTION tube.tube_job_begin(job_id text, tubes text[], kind text, fingerprint text, units integer, bounds text[] DEFAULT NULL::text[]) RETURNS TABLE(state text, unit_count integer, unit_bounds text[], stage text, known boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 3895a61e850f3fe5;

COMMENT ON FUNCTION tube.tube_job_begin(job_id text, tubes text[], kind text, fingerprint text, units integer, bounds text[]) IS 'Begins or resumes a job. kind is direct, staged, ranges or attempts.';

CREATE FUNCTION tube.tube_job_done(job_id text, unit integer, rows bigint, ids bigint, pods bigint, shards integer[] DEFAULT NULL::integer[]) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 22354c0dca862811;

COMMENT ON FUNCTION tube.tube_job_done(job_id text, unit integer, rows bigint, ids bigint, pods bigint, shards integer[]) IS 'Records a unit, in the transaction that wrote it. False: it is recorded already, so roll back.';

CREATE TABLE tube.tube_job (
    job_id text NOT NULL,
    number bigint NOT NULL,
    backfill_id bigint,
    tubes text[] NOT NULL,
    kind text NOT NULL,
    fingerprint text NOT NULL,
    units integer NOT NULL,
    bounds text[],
    state text DEFAULT 'running'::text NOT NULL,
    begun_by name DEFAULT SESSION_USER NOT NULL,
    rows_done bigint,
    ids_done bigint,
    pods_done bigint,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT tube_job_job_id_check CHECK (((octet_length(job_id) >= 1) AND (octet_length(job_id) <= 200))),
    CONSTRAINT tube_job_kind_check CHECK ((kind = ANY (ARRAY['direct'::text, 'staged'::text, 'ranges'::text, 'attempts'::text]))),
    CONSTRAINT tube_job_state_check CHECK ((state = ANY (ARRAY['running'::text, 'done'::text]))),
    CONSTRAINT tube_job_units_check CHECK ((units >= 0))
);

CREATE FUNCTION tube.tube_job_finish(job_id text, attempts uuid[] DEFAULT NULL::uuid[]) RETURNS tube.tube_job
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS beb3073d12da2ce5;

COMMENT ON FUNCTION tube.tube_job_finish(job_id text, attempts uuid[]) IS 'Ends a job. Staged rows go into the tubes, all at once.';

CREATE FUNCTION tube.tube_job_forget(job_id text, before timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 27e680e65fe4cce3;

COMMENT ON FUNCTION tube.tube_job_forget(job_id text, before timestamp with time zone) IS 'Deletes the record of a job, or with NULL of all that ended before a time; pods in tubes stay.';

CREATE FUNCTION tube.tube_job_list(in_job text DEFAULT NULL::text) RETURNS TABLE(job_id text, tubes text[], kind text, state text, units_done bigint, units integer, rows bigint, ids bigint, pods bigint, backfill_id bigint, created_at timestamp with time zone, last_at timestamp with time zone, ended_at timestamp with time zone, begun_by name)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS d81f5adcf6787532;

COMMENT ON FUNCTION tube.tube_job_list(in_job text) IS 'Lists jobs, newest first; for admins, workers and monitors all, for others their own.';

CREATE FUNCTION tube.tube_job_units(job_id text) RETURNS integer[]
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS a0a05db4d2b880ba;

COMMENT ON FUNCTION tube.tube_job_units(job_id text) IS 'Returns the recorded units of a job.';

CREATE FUNCTION tube.tube_kafka_back() RETURNS TABLE(tube text, instance_id uuid, client_id text, back_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 8a98fc7004df43da;

COMMENT ON FUNCTION tube.tube_kafka_back() IS 'Lists processes that reached Kafka again within the last minute, and may wait to be elected.';

CREATE FUNCTION tube.tube_kafka_report(instance_id uuid, client_id text, unreachable jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 578454d0a2fc59a5;

COMMENT ON FUNCTION tube.tube_kafka_report(instance_id uuid, client_id text, unreachable jsonb) IS 'Reports which Kafka clusters a process needs and can''t reach: objects with tube, use (election, delivery, refused, unfollowed), bootstrap_servers, reason and seconds. Counts for 30 s.';

CREATE FUNCTION tube.tube_kafka_unreachable() RETURNS TABLE(tube text, use text, bootstrap_servers text, instance_id uuid, client_id text, reason text, since timestamp with time zone, seen_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS da5d11af4363f4ae;

COMMENT ON FUNCTION tube.tube_kafka_unreachable() IS 'Lists Kafka clusters that processes need and can''t reach, as reported in the last 30 s.';

CREATE FUNCTION tube.tube_key_part(key text, place integer) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN COALESCE(CASE WHEN ((place >= 0) AND (place <= 7)) THEN "substring"((key COLLATE "C"), (('^\[(?:(?:"(?:[^"\\]|\\.)*"|[^",\]]+), ){'::text || (place)::text) || '}("(?:[^"\\]|\\.)*"|[^",\]]+)'::text)) ELSE NULL::text END, key);

COMMENT ON FUNCTION tube.tube_key_part(key text, place integer) IS 'Returns the value of one column in a key of several columns, as JSON; place counts from 0.';

CREATE FUNCTION tube.tube_key_types(tbl regclass, columns name[]) RETURNS text[]
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 16e37d1b28d99af2;

COMMENT ON FUNCTION tube.tube_key_types(tbl regclass, columns name[]) IS 'Returns the types of columns as parts of a key of several columns; NULL for a column that can''t be a part.';

CREATE FUNCTION tube.tube_keys_as_caller(in_search_path text, first text, statement text) RETURNS SETOF text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 7c9303f402735242;

COMMENT ON FUNCTION tube.tube_keys_as_caller(in_search_path text, first text, statement text) IS 'As tube_as_caller, for keys as texts.';

CREATE FUNCTION tube.tube_keys_put(tube_or_tubes text, shard integer, op text, keys text[], chunk_size integer DEFAULT 250, last boolean DEFAULT true) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS cf0f132272c1e106;

COMMENT ON FUNCTION tube.tube_keys_put(tube_or_tubes text, shard integer, op text, keys text[], chunk_size integer, last boolean) IS 'As tube_pods_put, for any key type: keys are texts.';

CREATE FUNCTION tube.tube_keys_waiting(tube text, up_to bigint, shards integer[], ids text[]) RETURNS TABLE(shard integer, id text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET jit TO 'off'
    AS 7bf8bc6d812119e3;

COMMENT ON FUNCTION tube.tube_keys_waiting(tube text, up_to bigint, shards integer[], ids text[]) IS 'Returns which of the given keys wait in pods up to a seq. Reads the whole tube.';

CREATE FUNCTION tube.tube_leader_acquire(tube text, partitions integer, partition integer, leader_id uuid, instance_id uuid, client_id text, expected_epoch bigint, election text DEFAULT 'neli'::text, hold interval DEFAULT '00:00:15'::interval, lease interval DEFAULT NULL::interval) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS c8747cfaa77f0282;

COMMENT ON FUNCTION tube.tube_leader_acquire(tube text, partitions integer, partition integer, leader_id uuid, instance_id uuid, client_id text, expected_epoch bigint, election text, hold interval, lease interval) IS 'Begins a term, ends the previous one, and returns the epoch. Of callers with the same epoch, one wins.';

CREATE FUNCTION tube.tube_leader_epoch(tube text, partitions integer, partition integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS ce7a09f2c2aaae76;

COMMENT ON FUNCTION tube.tube_leader_epoch(tube text, partitions integer, partition integer) IS 'Returns the epoch to pass to tube_leader_acquire.';

CREATE FUNCTION tube.tube_leader_rebase(tube text, epoch bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 150be0cc57f236ce;

COMMENT ON FUNCTION tube.tube_leader_rebase(tube text, epoch bigint) IS 'Raises a tube''s epochs 1000 above an epoch that its sink has seen, after a restore. Returns the greatest epoch that counts as issued.';

CREATE FUNCTION tube.tube_leader_release(tube text, partitions integer, partition integer, leader_id uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS 811c7c1e2d0cdfb3;

COMMENT ON FUNCTION tube.tube_leader_release(tube text, partitions integer, partition integer, leader_id uuid) IS 'Ends a term in order; false if it was over.';

CREATE FUNCTION tube.tube_leader_renew(tube text, partitions integer, partition integer, leader_id uuid) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 379a8660ccf7abf9;

COMMENT ON FUNCTION tube.tube_leader_renew(tube text, partitions integer, partition integer, leader_id uuid) IS 'Renews a term, and returns the version of the tube''s settings.';

CREATE FUNCTION tube.tube_leader_wait(tube text, partitions integer, partition integer, leader_id uuid) RETURNS interval
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 2d65334ca25464b5;

COMMENT ON FUNCTION tube.tube_leader_wait(tube text, partitions integer, partition integer, leader_id uuid) IS 'Returns how long to wait before the first mark, until no earlier term can write to the sink.';

CREATE FUNCTION tube.tube_leaders(in_tube text DEFAULT NULL::text) RETURNS TABLE(tube text, partitions integer, partition integer, leader_id uuid, epoch bigint, instance_id uuid, client_id text, election text, hold interval, lease interval, acquired_at timestamp with time zone, renewed_at timestamp with time zone, runs_out timestamp with time zone, lost boolean, sink_down text, sink_down_since timestamp with time zone, source_down text, source_down_since timestamp with time zone, sink_next_at timestamp with time zone, source_next_at timestamp with time zone)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS c1fe5729f8d55c99;

COMMENT ON FUNCTION tube.tube_leaders(in_tube text) IS 'Lists the present terms; a partition without a row is free. lost: the term was not renewed before runs_out.';

CREATE FUNCTION tube.tube_leaders_renew(tube text, leader_ids uuid[], troubles jsonb DEFAULT NULL::jsonb) RETURNS TABLE(leader_id uuid, renewed boolean, paused text, step bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 9321c91a46834c1f;

COMMENT ON FUNCTION tube.tube_leaders_renew(tube text, leader_ids uuid[], troubles jsonb) IS 'Renews many terms at once, without waiting for locks; terms missing from the answer are over. troubles reports by leader_id what keeps a term from delivering. paused is why a term has to pause, step a step to take.';

CREATE FUNCTION tube.tube_lease_leave(tube text, instance_id uuid) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 3a1940e69fc11a11;

COMMENT ON FUNCTION tube.tube_lease_leave(tube text, instance_id uuid) IS 'Removes a process from the lease election of a tube; NULL: of all.';

CREATE FUNCTION tube.tube_lease_tick(tube text, instance_id uuid, client_id text, ttl interval) RETURNS TABLE(partitions integer, instances integer, free integer[], mine integer[], rank integer)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 91a16752b8483a6e;

COMMENT ON FUNCTION tube.tube_lease_tick(tube text, instance_id uuid, client_id text, ttl interval) IS 'As tube_lease_ticks, for one tube.';

CREATE FUNCTION tube.tube_lease_ticks(tubes text[], instance_id uuid, client_id text, ttl interval) RETURNS TABLE(tube text, partitions integer, instances integer, free integer[], mine integer[], rank integer)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '1s'
    AS 9b6bb15137df08b7;

COMMENT ON FUNCTION tube.tube_lease_ticks(tubes text[], instance_id uuid, client_id text, ttl interval) IS 'Registers a process in the lease election of its tubes; returns, per tube, its partitions and the free ones.';

CREATE FUNCTION tube.tube_list(in_tbl regclass DEFAULT NULL::regclass) RETURNS TABLE(tube text, predicate text, partitions integer, tbl regclass, shard integer, shards integer, id_col name, root boolean, columns name[], replica boolean, key_type regtype, companion_of text, key_cols name[], shard_by name)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 8cb967bba86eebd1;

COMMENT ON FUNCTION tube.tube_list(in_tbl regclass) IS 'Lists tubes and attached tables; a tube without tables has one row with a NULL tbl. key_cols and shard_by are of keys of several columns.';

CREATE FUNCTION tube.tube_load(in_most integer DEFAULT 100) RETURNS TABLE(tube text, partition integer, waiting integer, since timestamp with time zone, backfill integer, backfill_since timestamp with time zone, inserted bigint, deleted bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    AS c424cc01d8eab0f2;

COMMENT ON FUNCTION tube.tube_load(in_most integer) IS 'Returns a quick view of the backlog, counting up to in_most pods of each partition and class. inserted and deleted count pods since the statistics began.';

CREATE FUNCTION tube.tube_park_count(in_tube text, in_shard integer DEFAULT NULL::integer, in_key text DEFAULT NULL::text, in_error text DEFAULT NULL::text, in_older interval DEFAULT NULL::interval) RETURNS TABLE(count bigint, seen pg_snapshot, before timestamp with time zone)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 29e552884968d083;

COMMENT ON FUNCTION tube.tube_park_count(in_tube text, in_shard integer, in_key text, in_error text, in_older interval) IS 'Counts the keys of tube_park_list without a limit. seen is the snapshot, before the time that in_older means.';

CREATE FUNCTION tube.tube_park_drop(tube text, in_shard integer DEFAULT NULL::integer, in_key text DEFAULT NULL::text, in_error text DEFAULT NULL::text, in_before timestamp with time zone DEFAULT NULL::timestamp with time zone, in_seen pg_snapshot DEFAULT NULL::pg_snapshot, in_limit integer DEFAULT 10000) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 9d183565098d1607;

COMMENT ON FUNCTION tube.tube_park_drop(tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, in_seen pg_snapshot, in_limit integer) IS 'Deletes parked keys, and returns how many. The sink stays as it is.';

CREATE FUNCTION tube.tube_park_list(in_tube text DEFAULT NULL::text, in_limit integer DEFAULT 100, in_shard integer DEFAULT NULL::integer, in_key text DEFAULT NULL::text, in_error text DEFAULT NULL::text, in_older interval DEFAULT NULL::interval) RETURNS TABLE(park_id bigint, tube text, shard integer, id text, op text, seq bigint, payload jsonb, error text, attempts integer, epoch bigint, parked_at timestamp with time zone, first_at timestamp with time zone, retried_at timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 0d39f66758e8b341;

COMMENT ON FUNCTION tube.tube_park_list(in_tube text, in_limit integer, in_shard integer, in_key text, in_error text, in_older interval) IS 'Lists parked keys with their errors, latest first. in_error: a text in the error; in_older: parked longer ago.';

CREATE FUNCTION tube.tube_park_retry(tube text, in_shard integer DEFAULT NULL::integer, in_key text DEFAULT NULL::text, in_error text DEFAULT NULL::text, in_before timestamp with time zone DEFAULT NULL::timestamp with time zone, in_seen pg_snapshot DEFAULT NULL::pg_snapshot, in_limit integer DEFAULT 10000) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS b324ebde99b19c18;

COMMENT ON FUNCTION tube.tube_park_retry(tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, in_seen pg_snapshot, in_limit integer) IS 'Touches parked keys, and returns how many. in_before: only keys parked before then.';

CREATE FUNCTION tube.tube_pause(tube text, in_partition integer DEFAULT NULL::integer, lasts interval DEFAULT NULL::interval, reason text DEFAULT NULL::text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 2d6e44659e243310;

COMMENT ON FUNCTION tube.tube_pause(tube text, in_partition integer, lasts interval, reason text) IS 'Pauses a tube with its companions, or a partition: its leader keeps leading, but marks and sends nothing.';

CREATE FUNCTION tube.tube_pause_list(in_tube text DEFAULT NULL::text) RETURNS TABLE(tube text, partition integer, kind text, reason text, until timestamp with time zone, halted_since timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 78904ff7c29608fb;

COMMENT ON FUNCTION tube.tube_pause_list(in_tube text) IS 'Lists paused partitions, why, and since when their leader has come to rest.';

CREATE FUNCTION tube.tube_pause_reason(tube text, partitions integer, partition integer) RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS b2d280af111c8f54;

COMMENT ON FUNCTION tube.tube_pause_reason(tube text, partitions integer, partition integer) IS 'Returns why a partition has to pause, or NULL.';

CREATE FUNCTION tube.tube_pods_ack(tube text, in_partition integer DEFAULT NULL::integer, in_from bigint DEFAULT NULL::bigint, in_to bigint DEFAULT NULL::bigint, in_shard integer DEFAULT NULL::integer, in_key text DEFAULT NULL::text, in_limit integer DEFAULT 10000) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS cd704a14415d0429;

COMMENT ON FUNCTION tube.tube_pods_ack(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer) IS 'Removes pods as done, or one key from them, without sending anything.';

CREATE FUNCTION tube.tube_pods_count(tube text, in_partition integer DEFAULT NULL::integer, in_from bigint DEFAULT NULL::bigint, in_to bigint DEFAULT NULL::bigint, in_shard integer DEFAULT NULL::integer, in_key text DEFAULT NULL::text) RETURNS TABLE(pods bigint, in_flight bigint, control bigint, newest bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS 31f20074b9c2e855;

COMMENT ON FUNCTION tube.tube_pods_count(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text) IS 'Counts the pods of tube_pods_list without a limit.';

CREATE FUNCTION tube.tube_pods_delete(tube text, partitions integer, partition integer, seqs bigint[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS 45accceba6770964;

COMMENT ON FUNCTION tube.tube_pods_delete(tube text, partitions integer, partition integer, seqs bigint[]) IS 'Deletes pods by their seqs, whoever has marked them. Don''t use it beside a worker.';

CREATE FUNCTION tube.tube_pods_fail(tube text, partitions integer, partition integer, leader_id uuid, items jsonb) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS eef576248413f561;

COMMENT ON FUNCTION tube.tube_pods_fail(tube text, partitions integer, partition integer, leader_id uuid, items jsonb) IS 'Records failures of keys that will be retried: objects with shard, id, error, attempts and delay.';

CREATE FUNCTION tube.tube_pods_insert(tube_or_tubes text, query text, shard integer, op character DEFAULT 'B'::bpchar, approx_size bigint DEFAULT NULL::bigint, fetch_chunk_size integer DEFAULT 20000, insert_chunk_size integer DEFAULT 250, in_search_path text DEFAULT current_setting('search_path'::text)) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET cursor_tuple_fraction TO '1'
    AS 58c1d3970a0ab2dd;

COMMENT ON FUNCTION tube.tube_pods_insert(tube_or_tubes text, query text, shard integer, op character, approx_size bigint, fetch_chunk_size integer, insert_chunk_size integer, in_search_path text) IS 'Touches all ids that a query returns, in one transaction, with the caller''s rights. The query''s columns are the id and a row number. Join tubes with commas. NOTICEs report progress every 2 s.';

CREATE FUNCTION tube.tube_pods_list(tube text, in_partition integer DEFAULT NULL::integer, in_from bigint DEFAULT NULL::bigint, in_to bigint DEFAULT NULL::bigint, in_shard integer DEFAULT NULL::integer, in_key text DEFAULT NULL::text, in_limit integer DEFAULT 100, in_keys integer DEFAULT 100) RETURNS TABLE(seq bigint, partition integer, op text, shard integer, keys text[], key_count integer, control text, ts timestamp with time zone, state text, client_id text, failures bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS 074eaa381726e521;

COMMENT ON FUNCTION tube.tube_pods_list(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer, in_keys integer) IS 'Lists waiting pods, in processing order.';

CREATE FUNCTION tube.tube_pods_mark(tube text, partitions integer, partition integer, leader_id uuid, pods_limit integer DEFAULT 1000, floor bigint DEFAULT 0, backfill_floor bigint DEFAULT 0, exclude_backfill boolean DEFAULT false, done bigint[] DEFAULT '{}'::bigint[]) RETURNS TABLE(seq bigint, op text, shard integer, ids bigint[], keys text[], payload jsonb, ts timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET enable_tidscan TO 'on'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS 62aadbeecf193b0c;

COMMENT ON FUNCTION tube.tube_pods_mark(tube text, partitions integer, partition integer, leader_id uuid, pods_limit integer, floor bigint, backfill_floor bigint, exclude_backfill boolean, done bigint[]) IS 'Reserves pods for a term, and returns them in processing order. The file explains how to send it.';

CREATE FUNCTION tube.tube_pods_of(tube text, shard integer, id text, most integer DEFAULT 100000) RETURNS TABLE(seq bigint, op text, ts timestamp with time zone, keys integer, marked_by uuid, looked_at bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    AS 99e691ab408a01d1;

COMMENT ON FUNCTION tube.tube_pods_of(tube text, shard integer, id text, most integer) IS 'Lists the pods in which a key waits, in order of delivery, and the terms that have marked them.';

CREATE FUNCTION tube.tube_pods_park(tube text, partitions integer, partition integer, leader_id uuid, items jsonb, in_limit integer DEFAULT NULL::integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS c6752f901ed7ff2d;

COMMENT ON FUNCTION tube.tube_pods_park(tube text, partitions integer, partition integer, leader_id uuid, items jsonb, in_limit integer) IS 'Parks keys: objects with shard, id, op, seq, payload, error, attempts and document (base64). With in_limit, parks none if the tube would have more.';

CREATE FUNCTION tube.tube_pods_purge(tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET enable_tidscan TO 'on'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS 6f24411e09af0e2d;

COMMENT ON FUNCTION tube.tube_pods_purge(tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) IS 'Deletes finished pods of a term.';

CREATE FUNCTION tube.tube_pods_put(tube_or_tubes text, shard integer, op text, ids bigint[], chunk_size integer DEFAULT 250, last boolean DEFAULT true) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS fa8ddfac5d64915d;

COMMENT ON FUNCTION tube.tube_pods_put(tube_or_tubes text, shard integer, op text, ids bigint[], chunk_size integer, last boolean) IS 'Queues ids in tubes as pods, in the given order, and returns the number of pods. last: the last piece of several.';

CREATE FUNCTION tube.tube_pods_reset(tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[] DEFAULT NULL::bigint[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 21b5e8348ba95991;

COMMENT ON FUNCTION tube.tube_pods_reset(tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) IS 'Returns pods of a term to the queue; NULL: all of them.';

CREATE FUNCTION tube.tube_pods_retry(tube text, in_partition integer DEFAULT NULL::integer, in_from bigint DEFAULT NULL::bigint, in_to bigint DEFAULT NULL::bigint, in_shard integer DEFAULT NULL::integer, in_key text DEFAULT NULL::text, in_limit integer DEFAULT 10000) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 77c6db5ad6258454;

COMMENT ON FUNCTION tube.tube_pods_retry(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer) IS 'Returns the keys of pods to the queue, and the number of pods.';

CREATE FUNCTION tube.tube_pods_sql(tube text, partitions integer, partition integer, exclude_backfill boolean DEFAULT false) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS e7d254cb47b3d324;

COMMENT ON FUNCTION tube.tube_pods_sql(tube text, partitions integer, partition integer, exclude_backfill boolean) IS 'Returns the text of a query that reads a partition in processing order, for consumers without terms. Valid while the number of partitions stays.';

CREATE FUNCTION tube.tube_pods_stop(tube text, partitions integer, partition integer, leader_id uuid, why text, reason text, items jsonb) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS e4e2df5807c65b44;

COMMENT ON FUNCTION tube.tube_pods_stop(tube text, partitions integer, partition integer, leader_id uuid, why text, reason text, items jsonb) IS 'Stops the whole tube until tube_resume, for poison or the park_limit. False if it was stopped.';

CREATE FUNCTION tube.tube_pods_unpark(tube text, partitions integer, partition integer, leader_id uuid, shards integer[], ids text[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS b66114aff178bd87;

COMMENT ON FUNCTION tube.tube_pods_unpark(tube text, partitions integer, partition integer, leader_id uuid, shards integer[], ids text[]) IS 'Deletes the errors and failures of keys that were delivered after all.';

CREATE FUNCTION tube.tube_private_add_tube(tube text, partitions integer, predicate text, key_type regtype, companion_of text) RETURNS boolean
    LANGUAGE plpgsql
    AS 65333f39d965d1d5;

CREATE FUNCTION tube.tube_private_adopt(outbox text, tbl regclass, partitions integer, wake boolean) RETURNS text[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS 1e0ba37c7d229ffd;

CREATE FUNCTION tube.tube_private_adoption_fault(tbl regclass) RETURNS text
    LANGUAGE sql STABLE
    AS 61fd53abbdd5b927;

CREATE FUNCTION tube.tube_private_adoption_rights(outbox text, tbl regclass, OUT worker name, OUT statements text[]) RETURNS record
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 504173f7286693b9;

CREATE TABLE tube.tube_attachment (
    tube text NOT NULL,
    tbl regclass NOT NULL,
    shard integer NOT NULL,
    shards integer DEFAULT 1 NOT NULL,
    keys name[] NOT NULL,
    "position" bigint NOT NULL,
    row_filter text,
    trigger_function text NOT NULL,
    touch_name text,
    columns name[],
    replica boolean DEFAULT false NOT NULL,
    seen jsonb,
    members oid[],
    waiting oid[],
    shard_place smallint,
    made boolean DEFAULT false NOT NULL,
    CONSTRAINT tube_attachment_keys_check CHECK (((cardinality(keys) >= 1) AND (cardinality(keys) <= 8))),
    CONSTRAINT tube_attachment_shard_check CHECK ((shard >= 0)),
    CONSTRAINT tube_attachment_shards_check CHECK ((shards >= 1))
);

CREATE FUNCTION tube.tube_private_ask_backfill(att tube.tube_attachment, why text) RETURNS void
    LANGUAGE plpgsql
    AS b4fbb4c0e684a3c2;

CREATE FUNCTION tube.tube_private_ask_once(tube text, shard integer, root text, order_col name) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS ced9f4669b4d7850;

CREATE FUNCTION tube.tube_private_ask_owner(att tube.tube_attachment, statement text, rel regclass, late boolean) RETURNS void
    LANGUAGE plpgsql STABLE
    AS cb6d95cd5c32581b;

CREATE FUNCTION tube.tube_private_attach(tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean, key_cols name[], shard_by name) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 152989676939a5ef;

CREATE FUNCTION tube.tube_private_attachment(tube text, tbl regclass) RETURNS tube.tube_attachment
    LANGUAGE plpgsql
    AS 6c8f0a6cfd768e07;

CREATE FUNCTION tube.tube_private_attachment_now(att tube.tube_attachment) RETURNS tube.tube_attachment
    LANGUAGE plpgsql
    AS 9881b3bdb5cc98e4;

CREATE FUNCTION tube.tube_private_attachments_with(tube text, predicate text) RETURNS SETOF tube.tube_attachment
    LANGUAGE sql
    AS 729b1d1eb3404702;

CREATE FUNCTION tube.tube_private_audit_parked(action text, tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, keys text[], count integer) RETURNS void
    LANGUAGE sql
    AS ca24ec3e501918ba;

CREATE FUNCTION tube.tube_private_audit_pods(action text, tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, pods integer) RETURNS void
    LANGUAGE sql
    AS 9910584bbfa9fbe1;

CREATE FUNCTION tube.tube_private_backfill_count_ends(backfill_id bigint) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS 9e6a594d92b1b667;

CREATE FUNCTION tube.tube_private_backfill_fault(backfill tube.tube_backfill) RETURNS text
    LANGUAGE plpgsql
    AS 8acc6a42470b3be7;

CREATE FUNCTION tube.tube_private_backfill_key(backfill_id bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS 4e47e6887d8e13fb;

CREATE FUNCTION tube.tube_private_backfill_sql(backfill tube.tube_backfill, att tube.tube_attachment, within text) RETURNS text
    LANGUAGE sql STABLE
    AS 97ad1b1fbd0daa60;

CREATE FUNCTION tube.tube_private_backfills_at_end(tube text, seqs bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS c63bc951171cfa37;

CREATE FUNCTION tube.tube_private_base_type(type oid) RETURNS oid
    LANGUAGE plpgsql STABLE
    AS 4eeb8ab01967801d;

CREATE FUNCTION tube.tube_private_begin_around(outbox text, partitions integer, partition integer, leader_id uuid, OUT tbl text, OUT free text, OUT choose text, OUT locked text, OUT mark text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 21f9ccd4185529d5;

CREATE FUNCTION tube.tube_private_begin_attach(tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean, key_cols name[] DEFAULT NULL::name[], shard_by name DEFAULT NULL::name, OUT was tube.tube_attachment, OUT wanted tube.tube_attachment, OUT differs boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS bcf1dd6486561b2e;

CREATE FUNCTION tube.tube_private_begin_change(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[], OUT tbl text, OUT condition text, OUT part text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 815d12a4119dbae1;

CREATE FUNCTION tube.tube_private_begin_collect(backfill_id bigint, OUT statement text, OUT tbl regclass, OUT table_name text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 2d25096544fe5ba8;

CREATE FUNCTION tube.tube_private_begin_mark(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, floor bigint, passed boolean DEFAULT false, OUT mark text, OUT ids bigint[], OUT again text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 80aed7cdcbeb8e43;

CREATE FUNCTION tube.tube_private_begin_range(backfill_id bigint, unit integer, OUT statement text, OUT tbl regclass, OUT table_name text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS f1b6b18098d88ea4;

CREATE FUNCTION tube.tube_private_begin_split(backfill_id bigint, ranges integer, OUT query text, OUT tbl regclass, OUT table_name text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 0cfea9e68d7745fa;

CREATE FUNCTION tube.tube_private_begin_step3(step1 text, tube text, tbl regclass, order_col text, shard integer, OUT query text, OUT first integer, OUT size bigint, OUT table_name text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS b50f7151cea147aa;

CREATE FUNCTION tube.tube_private_begin_sync(tube text, tbl regclass) RETURNS tube.tube_attachment
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 1f1acdc1144be989;

CREATE FUNCTION tube.tube_private_bound_sql(row_name text, col name, type oid, bound oid) RETURNS text
    LANGUAGE sql STABLE
    AS 3a4e0b7c5afc8c4a;

CREATE FUNCTION tube.tube_private_briefly(statements text[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS df17ecccfb94bb04;

CREATE FUNCTION tube.tube_private_bring_in_line(att tube.tube_attachment, late boolean) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS c1d019af6abd038f;

CREATE FUNCTION tube.tube_private_capture_body(att tube.tube_attachment, is_root boolean) RETURNS text
    LANGUAGE plpgsql STABLE
    AS 89599bdddb8057b1;

CREATE FUNCTION tube.tube_private_capture_name(tube text, tbl regclass) RETURNS text
    LANGUAGE sql STABLE
    AS e709a07d5dc9b71a;

CREATE FUNCTION tube.tube_private_capture_schema() RETURNS name
    LANGUAGE sql IMMUTABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    RETURN 'tube_capture'::name;

CREATE FUNCTION tube.tube_private_change_pods(change text, tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) RETURNS integer
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET enable_tidscan TO 'on'
    SET jit TO 'off'
    AS 21502e4527188b91;

CREATE FUNCTION tube.tube_private_check_ids(ids anyarray) RETURNS void
    LANGUAGE plpgsql
    AS 7099bf23d5b88cde;

CREATE FUNCTION tube.tube_private_check_items(items jsonb) RETURNS void
    LANGUAGE plpgsql
    AS 64cc7f6bcb7bcc4c;

CREATE FUNCTION tube.tube_private_check_limit(in_limit integer, at_least integer DEFAULT 1) RETURNS void
    LANGUAGE plpgsql
    AS ef151f52f61a9043;

CREATE FUNCTION tube.tube_private_check_messages(topics integer, keys integer, bodies integer, headers jsonb, partition_keys integer, wrong_topic text, missing boolean, homeless boolean) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 7ee2f44a8dd60546;

CREATE FUNCTION tube.tube_private_check_partition(tube text, partitions integer, partition integer) RETURNS void
    LANGUAGE plpgsql
    AS 18eebedae8a7fddf;

CREATE TABLE tube.tube_registry (
    tube text NOT NULL,
    partitions integer NOT NULL,
    predicate text,
    generation bigint DEFAULT 1 NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    last_epoch bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    key_type regtype DEFAULT 'bigint'::regtype NOT NULL,
    number bigint NOT NULL,
    kind text DEFAULT 'tube'::text NOT NULL,
    companion_of text,
    declared text,
    applied text,
    made boolean DEFAULT false NOT NULL,
    CONSTRAINT tube_registry_key_type_check CHECK (((key_type)::oid = ANY ((ARRAY['bigint'::regtype, 'uuid'::regtype, 'text'::regtype])::oid[]))),
    CONSTRAINT tube_registry_kind_check CHECK ((kind = ANY (ARRAY['tube'::text, 'outbox'::text]))),
    CONSTRAINT tube_registry_partitions_check CHECK (((partitions >= 1) AND (partitions <= 1024)))
);

CREATE FUNCTION tube.tube_private_check_pods(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer) RETURNS tube.tube_registry
    LANGUAGE plpgsql
    AS 50d2ce89f888bb63;

CREATE FUNCTION tube.tube_private_check_shard_by(att tube.tube_attachment, shard_by name) RETURNS void
    LANGUAGE plpgsql STABLE
    AS cc21da34b23736e9;

CREATE FUNCTION tube.tube_private_check_shards(tube text, partitions integer, partition integer, items jsonb) RETURNS void
    LANGUAGE plpgsql
    AS 19586cdb21dbc45a;

CREATE FUNCTION tube.tube_private_check_term(leader_id uuid, instance_id uuid, client_id text, election text, hold interval, lease interval) RETURNS void
    LANGUAGE plpgsql
    AS 1f732c55c1836348;

CREATE FUNCTION tube.tube_private_check_touch(shard integer, ids anyarray, op text, chunk_size integer) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS e09da36842024839;

CREATE FUNCTION tube.tube_private_check_tube(tube text, partitions integer, present regtype, wanted regtype) RETURNS void
    LANGUAGE plpgsql
    AS 840a8f86036d6fe0;

CREATE FUNCTION tube.tube_private_choose_parked(outbox text, ids bigint[], topic text, key text, in_seen pg_snapshot, in_limit integer) RETURNS bigint[]
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    AS f51119f7df0022f8;

CREATE FUNCTION tube.tube_private_class_sql(reg tube.tube_registry) RETURNS text
    LANGUAGE sql STABLE
    AS c5b35b2e7398eab6;

CREATE FUNCTION tube.tube_private_classes_sql(reg tube.tube_registry, most integer, ends boolean) RETURNS text
    LANGUAGE plpgsql STABLE
    AS 3f0ab2ee3c7a078d;

CREATE FUNCTION tube.tube_private_close_capture() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS e904f0ce341a76be;

CREATE FUNCTION tube.tube_private_columns(tbl regclass, columns name[]) RETURNS name[]
    LANGUAGE plpgsql
    AS 94f842cf7ff0aaba;

CREATE FUNCTION tube.tube_private_complete(att tube.tube_attachment) RETURNS tube.tube_attachment
    LANGUAGE plpgsql
    AS 6c63ecf6fe4308e6;

CREATE FUNCTION tube.tube_private_control_waits(tube text, first integer, shards integer, types text[], of_step3 boolean DEFAULT false) RETURNS boolean
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS f85651b22cd071c0;

CREATE FUNCTION tube.tube_private_cursor_error(statement text) RETURNS text
    LANGUAGE plpgsql
    AS a16914cebb571adb;

CREATE FUNCTION tube.tube_private_drop(tube text, force boolean) RETURNS void
    LANGUAGE plpgsql
    AS af82eba20ac7f2fd;

CREATE FUNCTION tube.tube_private_drop_former(digest text, VARIADIC kept tube.tube_attachment[]) RETURNS void
    LANGUAGE plpgsql
    SET client_min_messages TO 'warning'
    SET lock_timeout TO '50ms'
    AS a4807ac446909706;

CREATE FUNCTION tube.tube_private_drop_outbox(outbox text, force boolean, OUT needed text[], OUT wanted text[]) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS c42ed61c858d3d28;

CREATE FUNCTION tube.tube_private_drop_parked(outbox text, ids bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 1aed242c5aefc118;

CREATE FUNCTION tube.tube_private_drop_routines(att tube.tube_attachment, owner regrole) RETURNS void
    LANGUAGE plpgsql
    SET client_min_messages TO 'warning'
    AS ed35533bcf66a3c9;

CREATE FUNCTION tube.tube_private_drop_stored() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 0e32949fd33409eb;

CREATE FUNCTION tube.tube_private_drop_touch(gone tube.tube_attachment) RETURNS void
    LANGUAGE plpgsql
    SET client_min_messages TO 'warning'
    AS 67a226bd0924c30e;

CREATE FUNCTION tube.tube_private_drop_unbound(att tube.tube_attachment) RETURNS void
    LANGUAGE plpgsql
    AS 0f2e2f87b9f8c26b;

CREATE FUNCTION tube.tube_private_each_once(names name[], others name[]) RETURNS name[]
    LANGUAGE sql IMMUTABLE
    AS dcb1504e5f3a047d;

CREATE FUNCTION tube.tube_private_elsewhere(rel oid, name text, query text, OUT tbl regclass, OUT asks text) RETURNS record
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 937e280fd091aa20;

CREATE FUNCTION tube.tube_private_end_backfill(backfill tube.tube_backfill, outcome text, note text) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS 8a730e73b84f6081;

CREATE FUNCTION tube.tube_private_end_collect(backfill_id bigint, pods bigint, wrong text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 7d758b528300e3f3;

CREATE FUNCTION tube.tube_private_end_job(job tube.tube_job) RETURNS tube.tube_job
    LANGUAGE sql
    AS 0a5bd01a5a8f846b;

CREATE FUNCTION tube.tube_private_end_range(backfill_id bigint, unit integer, ids bigint, pods bigint, touched integer[], rate double precision) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS d160dfba6acddf15;

CREATE FUNCTION tube.tube_private_end_split(backfill_id bigint, bounds text[]) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS d653e9affafb7d1f;

CREATE FUNCTION tube.tube_private_end_step3(step1 text, tube text, tbl regclass, first integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS a5bde66a94209267;

CREATE FUNCTION tube.tube_private_end_terms(tube text, partition integer, outcome text) RETURNS void
    LANGUAGE plpgsql
    AS c57e9b2f35a1c77f;

CREATE FUNCTION tube.tube_private_ensure_tube(tube text, partitions integer, predicate text, key_type regtype) RETURNS SETOF tube.tube_attachment
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 4f78de5a95d56837;

CREATE TABLE tube.tube_outbox (
    outbox text NOT NULL,
    tbl regclass NOT NULL,
    value_type regtype NOT NULL,
    adopted boolean NOT NULL,
    identity uuid DEFAULT gen_random_uuid() NOT NULL,
    CONSTRAINT tube_outbox_value_type_check CHECK (((value_type)::oid = ANY ((ARRAY['text'::regtype, 'bytea'::regtype])::oid[])))
);

CREATE FUNCTION tube.tube_private_enter_outbox(outbox text, partitions integer) RETURNS tube.tube_outbox
    LANGUAGE plpgsql
    AS 3df166e85cd0d024;

CREATE FUNCTION tube.tube_private_fill(template text, fragments jsonb) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    AS 37a838f5a8298f07;

CREATE FUNCTION tube.tube_private_fit_index(queue text) RETURNS boolean
    LANGUAGE plpgsql
    AS 62e0e05fd5a9a809;

CREATE FUNCTION tube.tube_private_fits(tbl regclass, door regclass, flag regclass, put text, query text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE STRICT
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET quote_all_identifiers TO 'off'
    AS 80a48fb766126ae8;

CREATE FUNCTION tube.tube_private_flag_sql(tube text) RETURNS text
    LANGUAGE sql STABLE
    AS d4aa4ab02b53a14b;

CREATE FUNCTION tube.tube_private_follow_columns(tube text, tbl regclass) RETURNS tube.tube_attachment
    LANGUAGE plpgsql
    AS 864360a2cdf6b550;

CREATE FUNCTION tube.tube_private_follow_ddl() RETURNS event_trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS e74155b26e6eb12f;

CREATE FUNCTION tube.tube_private_follow_key(was tube.tube_attachment, now tube.tube_attachment) RETURNS void
    LANGUAGE plpgsql
    AS 35e04af619c00d84;

CREATE FUNCTION tube.tube_private_follow_members(att tube.tube_attachment) RETURNS void
    LANGUAGE plpgsql
    AS 69a3946ce9c8e829;

CREATE FUNCTION tube.tube_private_follow_root(gone tube.tube_attachment) RETURNS void
    LANGUAGE plpgsql
    AS 1b6618534772e08b;

CREATE FUNCTION tube.tube_private_forget(tube text, tables regclass[]) RETURNS void
    LANGUAGE plpgsql
    AS 768b9fca004f506d;

CREATE FUNCTION tube.tube_private_forget_failures(reg tube.tube_registry, places tid[], in_key text) RETURNS void
    LANGUAGE plpgsql
    AS 3e4d3a6c1beb3cca;

CREATE FUNCTION tube.tube_private_forget_rest(tube text) RETURNS void
    LANGUAGE sql
    AS 1f4d32aa0672accf;

CREATE FUNCTION tube.tube_private_free_parked(outbox text, ids bigint[]) RETURNS bigint
    LANGUAGE plpgsql
    AS 41a8273651d09875;

CREATE FUNCTION tube.tube_private_free_partitions(tube text) RETURNS void
    LANGUAGE sql
    AS 7a80cb945dba8e63;

CREATE FUNCTION tube.tube_private_full_xid(xid xid) RETURNS xid8
    LANGUAGE sql STABLE
    AS 17960729f3775b06;

CREATE FUNCTION tube.tube_private_function(att tube.tube_attachment, kind text) RETURNS text
    LANGUAGE plpgsql STABLE
    AS 35048e9a6116b2ed;

CREATE FUNCTION tube.tube_private_function_ddl(name text, types text, arguments text, returns text, path boolean, body text, owner regrole, callers regrole[]) RETURNS SETOF text
    LANGUAGE plpgsql STABLE
    AS 8b398a6ab8db049f;

CREATE FUNCTION tube.tube_private_guard(att tube.tube_attachment) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    AS 41b56983403ff2bb;

CREATE FUNCTION tube.tube_private_hold_parked(in_tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, in_seen pg_snapshot, only_new boolean, in_limit integer) RETURNS bigint[]
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    AS 4b21faa2ed442fa6;

CREATE FUNCTION tube.tube_private_hold_pods(reg tube.tube_registry, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer, only_free boolean, OUT free tid[], OUT flying tid[], OUT first_flying bigint, OUT of_client text) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS 49ae26b6fb052c61;

CREATE FUNCTION tube.tube_private_hold_term(tube text, partitions integer, partition integer, leader_id uuid) RETURNS bigint
    LANGUAGE plpgsql
    AS 831cafcf78163a1b;

CREATE FUNCTION tube.tube_private_holders(tube text) RETURNS TABLE(holder text, xid xid8)
    LANGUAGE plpgsql
    AS f7ee1f8fa72252ab;

CREATE FUNCTION tube.tube_private_holds_backfill(backfill_id bigint) RETURNS boolean
    LANGUAGE sql
    AS 64b205713adee01c;

CREATE FUNCTION tube.tube_private_id_sql(att tube.tube_attachment, row_name text DEFAULT NULL::text) RETURNS text
    LANGUAGE sql STABLE
    AS acb6ff4a187df8e1;

CREATE FUNCTION tube.tube_private_in_flight(leader_id uuid, seq bigint) RETURNS boolean
    LANGUAGE sql STABLE
    AS 8772b144b44526e2;

CREATE FUNCTION tube.tube_private_index(queue text, partitions integer, OUT name text, OUT ddl text) RETURNS record
    LANGUAGE plpgsql STABLE
    AS 18dd398eb55e6025;

CREATE FUNCTION tube.tube_private_index_of(tube text, partitions integer) RETURNS regclass
    LANGUAGE plpgsql STABLE
    AS 459a26f2533fd36f;

CREATE FUNCTION tube.tube_private_indexes(queue text) RETURNS TABLE(name text, partitions integer, valid boolean)
    LANGUAGE sql STABLE
    AS ace1c3b71fe01ff4;

CREATE FUNCTION tube.tube_private_inserting_attachment(backfill tube.tube_backfill) RETURNS tube.tube_attachment
    LANGUAGE plpgsql
    AS 1ec758ee8abed901;

CREATE FUNCTION tube.tube_private_is_fresh(rel oid) RETURNS boolean
    LANGUAGE sql STABLE
    AS 18a3fbc1bef22d91;

CREATE FUNCTION tube.tube_private_is_replaced(xmax xid) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS cf7d9a38a79e6d4d;

CREATE FUNCTION tube.tube_private_is_root(att tube.tube_attachment) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS fb1d176d421b32d9;

CREATE FUNCTION tube.tube_private_is_swept(att tube.tube_attachment) RETURNS boolean
    LANGUAGE sql STABLE
    AS c38849eb7fac357d;

CREATE FUNCTION tube.tube_private_keep_note(tube text, at_least bigint, id uuid) RETURNS bigint
    LANGUAGE sql
    AS 3ebfe89d97972df8;

CREATE FUNCTION tube.tube_private_keeps_plans(tube text, partitions integer) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS 2bdbabec0ba58714;

CREATE FUNCTION tube.tube_private_kept_key(reg tube.tube_registry, in_key text) RETURNS text
    LANGUAGE plpgsql
    AS fa6934e68fe29316;

CREATE FUNCTION tube.tube_private_key_attnums(att tube.tube_attachment) RETURNS smallint[]
    LANGUAGE sql STABLE
    AS eaee697cd1cbffca;

CREATE FUNCTION tube.tube_private_key_fault(tbl regclass, keys name[], key_type regtype, OUT fault text, OUT remedy text) RETURNS record
    LANGUAGE sql STABLE
    AS 33607fec0792daf0;

CREATE FUNCTION tube.tube_private_key_fits(column_type oid, key_type regtype) RETURNS boolean
    LANGUAGE sql STABLE
    AS 79354f7bc885e406;

CREATE FUNCTION tube.tube_private_key_is_unique(att tube.tube_attachment) RETURNS boolean
    LANGUAGE sql STABLE
    AS 1a5e7b5f604c1f21;

CREATE FUNCTION tube.tube_private_key_label(att tube.tube_attachment) RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 8b66efc23c4cacdc;

CREATE FUNCTION tube.tube_private_key_texts(att tube.tube_attachment) RETURNS text[]
    LANGUAGE sql STABLE
    AS 65243369fe162262;

CREATE FUNCTION tube.tube_private_key_type(tube text) RETURNS regtype
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 8d00a63e8eba324c;

CREATE FUNCTION tube.tube_private_key_types(key_type regtype) RETURNS oid[]
    LANGUAGE sql STABLE
    AS bcef3e6e66acd736;

CREATE FUNCTION tube.tube_private_keys(tbl regclass, id_col name, key_cols name[], key_type regtype) RETURNS name[]
    LANGUAGE plpgsql STABLE
    AS 27a092dc0aee68dc;

CREATE FUNCTION tube.tube_private_least_seq(tube text, partitions integer, partition integer) RETURNS bigint
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    AS 51070a46aaa9f753;

CREATE FUNCTION tube.tube_private_lock_backfill(backfill_id bigint, held boolean DEFAULT false) RETURNS tube.tube_backfill
    LANGUAGE plpgsql
    AS 752167426ea49d68;

CREATE FUNCTION tube.tube_private_lock_job(job_id text, alone boolean, of_backfill boolean DEFAULT false) RETURNS tube.tube_job
    LANGUAGE plpgsql
    AS acedc2b7ee3cf119;

CREATE FUNCTION tube.tube_private_lock_parked(outbox text, partitions integer, partition integer, leader_id uuid, OUT tbl text, OUT key text, OUT slot text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS c0762645a692d017;

CREATE FUNCTION tube.tube_private_lock_touch(tbl regclass) RETURNS void
    LANGUAGE sql
    AS efcff513ef32f91d;

CREATE FUNCTION tube.tube_private_login() RETURNS name
    LANGUAGE plpgsql
    AS 560274d3061e2fc9;

CREATE FUNCTION tube.tube_private_lost_note(note text) RETURNS TABLE(tube text, number bigint, id uuid)
    LANGUAGE sql
    AS 294bc3f11a3109f8;

CREATE FUNCTION tube.tube_private_make(tube text) RETURNS void
    LANGUAGE plpgsql
    AS a5a1192e95bf3ffa;

CREATE FUNCTION tube.tube_private_make_flag(reg tube.tube_registry) RETURNS void
    LANGUAGE plpgsql
    AS af8b0bae867a6781;

CREATE FUNCTION tube.tube_private_make_outbox(outbox text, value_type regtype) RETURNS void
    LANGUAGE plpgsql
    AS 997cc98dbd44b8f0;

CREATE FUNCTION tube.tube_private_make_touch(name text, types text, arguments text, body text, callers regrole[]) RETURNS void
    LANGUAGE plpgsql
    AS 33acfc470f883980;

CREATE FUNCTION tube.tube_private_mark_sql(tube text, partitions integer, partition integer) RETURNS text
    LANGUAGE plpgsql
    AS 3b11eea755dc71d5;

CREATE FUNCTION tube.tube_private_masked(text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS 8316ed3618539861;

CREATE FUNCTION tube.tube_private_may_notify() RETURNS boolean
    LANGUAGE sql
    AS 837c4b9cbfcb4483;

CREATE FUNCTION tube.tube_private_may_read(rel oid) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 401a7a623062bf78;

CREATE FUNCTION tube.tube_private_member_oids(tbl regclass) RETURNS oid[]
    LANGUAGE sql STABLE
    AS 6b40a730f4283dc5;

CREATE FUNCTION tube.tube_private_members(tbl regclass) RETURNS TABLE(rel regclass, kind "char")
    LANGUAGE sql STABLE
    AS 065f813e5fc2e4de;

CREATE FUNCTION tube.tube_private_name(stem text, ending text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT
    AS b9029fc655ef0ed1;

CREATE FUNCTION tube.tube_private_next_index(reg tube.tube_registry, partitions integer) RETURNS text
    LANGUAGE plpgsql STABLE
    AS 66b17a2807119933;

CREATE FUNCTION tube.tube_private_one_id_body(att tube.tube_attachment, is_partitioned boolean) RETURNS text
    LANGUAGE plpgsql STABLE
    AS 1fc0d9ef31156513;

CREATE FUNCTION tube.tube_private_op_of_sides() RETURNS text
    LANGUAGE sql IMMUTABLE
    AS e8b194e0241e0c34;

CREATE FUNCTION tube.tube_private_op_sql(op text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS b8dacd0738f7dd5e;

CREATE FUNCTION tube.tube_private_open_capture(tbl regclass) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 29ed81b505f942b0;

CREATE FUNCTION tube.tube_private_open_schema(schema regnamespace, worker name) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 6bef077e48b5ce2b;

CREATE FUNCTION tube.tube_private_order_column(tbl regclass, order_col text) RETURNS name
    LANGUAGE plpgsql
    AS 8c9e88099fa40a10;

CREATE FUNCTION tube.tube_private_our_ddl(att tube.tube_attachment) RETURNS SETOF text
    LANGUAGE plpgsql STABLE
    SET quote_all_identifiers TO 'off'
    AS fb987e50065449e7;

CREATE FUNCTION tube.tube_private_outbox_fence(outbox text, partitions integer, partition integer, leader_id uuid) RETURNS tube.tube_outbox
    LANGUAGE plpgsql
    AS 5911a20c1aeada36;

CREATE FUNCTION tube.tube_private_outbox_figures(records text, outbox text, OUT count text, OUT min_id bigint, OUT max_id bigint, OUT min_create_time timestamp with time zone) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS fd0f927ffd9785c2;

CREATE FUNCTION tube.tube_private_outbox_key(adopted boolean) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS 49c0e3590a21b458;

CREATE FUNCTION tube.tube_private_outbox_part(adopted boolean, partitions integer, partition integer) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS de0845ba8a657d47;

CREATE FUNCTION tube.tube_private_outbox_parts(outbox text) RETURNS TABLE(partition integer, parked text, records text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 00f22835a9aeddda;

CREATE FUNCTION tube.tube_private_outbox_slot(adopted boolean) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS 3009ea1716297b47;

CREATE FUNCTION tube.tube_private_outbox_table(box tube.tube_outbox) RETURNS text
    LANGUAGE plpgsql STABLE
    AS 0af8cb5814fadfa1;

CREATE FUNCTION tube.tube_private_outbox_target(outbox text, OUT tbl text, OUT value_type text, OUT adopted boolean, OUT locks bigint) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 5f0a3893ff51cc25;

CREATE FUNCTION tube.tube_private_outbox_trigger(reg tube.tube_registry, tbl text) RETURNS text
    LANGUAGE sql STABLE
    AS 2512795c869e9117;

CREATE FUNCTION tube.tube_private_outbox_wake() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 96f66ddc351d0f83;

CREATE FUNCTION tube.tube_private_owner_ddl(att tube.tube_attachment, is_owner boolean) RETURNS TABLE(statement text, rel regclass)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET quote_all_identifiers TO 'off'
    AS b5c5085084ecc68e;

CREATE FUNCTION tube.tube_private_owner_of(tbl regclass) RETURNS regrole
    LANGUAGE sql STABLE
    AS b8dbb6ea313053c5;

CREATE FUNCTION tube.tube_private_page_runs(tbl regclass, cuts bigint[]) RETURNS TABLE(low bigint, high bigint, weight double precision)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS dc64b5a030b1598b;

CREATE TABLE tube.tube_parked (
    park_id bigint NOT NULL,
    tube text NOT NULL,
    shard integer NOT NULL,
    id text,
    op text NOT NULL,
    seq bigint NOT NULL,
    payload jsonb,
    error text NOT NULL,
    attempts integer NOT NULL,
    epoch bigint NOT NULL,
    first_at timestamp with time zone DEFAULT now() NOT NULL,
    parked_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    retried_at timestamp with time zone
);

CREATE FUNCTION tube.tube_private_parked(in_tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, in_seen pg_snapshot) RETURNS SETOF tube.tube_parked
    LANGUAGE sql STABLE
    AS a11e153828b1c8a4;

CREATE FUNCTION tube.tube_private_parked_key(in_tube text, in_key text) RETURNS text
    LANGUAGE sql STABLE
    AS 77cee9c2ca4967c9;

CREATE FUNCTION tube.tube_private_parked_lock(outbox text) RETURNS bigint
    LANGUAGE sql STABLE
    AS 38bf012fe8ce7eb9;

CREATE FUNCTION tube.tube_private_parse_predicate(tube text, predicate text) RETURNS void
    LANGUAGE plpgsql
    SET standard_conforming_strings TO 'on'
    AS e928880754fa2293;

CREATE FUNCTION tube.tube_private_passes_call(att tube.tube_attachment, row_name text) RETURNS text
    LANGUAGE sql STABLE
    AS 2343de224f4ec067;

CREATE FUNCTION tube.tube_private_passes_ddl(att tube.tube_attachment) RETURNS SETOF text
    LANGUAGE plpgsql STABLE
    AS 1c80f3358c19b2b8;

CREATE FUNCTION tube.tube_private_passes_sql(att tube.tube_attachment, row_name text) RETURNS text
    LANGUAGE sql STABLE
    AS 652ba16468b6ac45;

CREATE FUNCTION tube.tube_private_patiently(statements text[], what text, attempts integer DEFAULT 100) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS c6da5652a814d304;

CREATE FUNCTION tube.tube_private_pause_of(in_tube text, in_partitions integer, in_partition integer, OUT reason text, OUT kind text, OUT until timestamp with time zone) RETURNS SETOF record
    LANGUAGE sql STABLE ROWS 1
    AS a31b8cf6d739ff1c;

CREATE FUNCTION tube.tube_private_planned(tube text, what text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    AS ffedbe37e8c2e095;

CREATE FUNCTION tube.tube_private_pod_ranges(reg tube.tube_registry, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text) RETURNS TABLE(class integer, condition text)
    LANGUAGE sql
    AS c6d5ad3ab7b41bc7;

CREATE FUNCTION tube.tube_private_pod_with(reg tube.tube_registry, in_seq bigint, in_shard integer, in_key text) RETURNS tid
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS fee772741c0949b3;

CREATE FUNCTION tube.tube_private_pods_where(tube text, partitions integer, partition integer, dense boolean) RETURNS text
    LANGUAGE plpgsql
    AS ceea29266ef12dd9;

CREATE FUNCTION tube.tube_private_predicate_columns(tbl regclass, predicate text) RETURNS TABLE(attnum smallint, name name, type oid, bound oid, fault text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 868c24879631f9b1;

CREATE FUNCTION tube.tube_private_provide(att tube.tube_attachment) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET quote_all_identifiers TO 'off'
    AS 646177d0c896fe22;

CREATE FUNCTION tube.tube_private_provide_outbox(outbox text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 4815564628344822;

CREATE FUNCTION tube.tube_private_provide_planned(tube text) RETURNS void
    LANGUAGE plpgsql
    AS cefd084ea7ce1739;

CREATE FUNCTION tube.tube_private_provide_touch(att tube.tube_attachment) RETURNS void
    LANGUAGE plpgsql
    SET quote_all_identifiers TO 'off'
    AS 95028c7b28a731cf;

CREATE FUNCTION tube.tube_private_provide_tube(tube text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET quote_all_identifiers TO 'off'
    AS 5a00d14bbb243780;

CREATE FUNCTION tube.tube_private_prune(tube text) RETURNS void
    LANGUAGE plpgsql
    AS 6a37be9c34de4578;

CREATE FUNCTION tube.tube_private_put(tube_or_tubes text, shard integer, op text, ids anyarray, chunk_size integer, last boolean) RETURNS bigint
    LANGUAGE plpgsql
    AS 1a7cfbd17ff5392e;

CREATE FUNCTION tube.tube_private_put_body(att tube.tube_attachment) RETURNS text
    LANGUAGE plpgsql STABLE
    AS 1419d9dd30314b93;

CREATE FUNCTION tube.tube_private_put_control(type text, backfill tube.tube_backfill) RETURNS void
    LANGUAGE sql
    AS 89b895c72528accc;

CREATE FUNCTION tube.tube_private_put_control_pods(tube text, op text, payload jsonb, shards integer[]) RETURNS void
    LANGUAGE plpgsql
    AS 8b0d0d07c6d3c71f;

CREATE FUNCTION tube.tube_private_put_ids(tube text, shard integer, op text, ids anyarray, chunk_size integer, payload jsonb DEFAULT NULL::jsonb, once boolean DEFAULT false, OUT pods bigint, OUT is_lonely boolean, OUT touched integer[]) RETURNS record
    LANGUAGE plpgsql
    SET enable_sort TO 'off'
    SET jit TO 'off'
    AS d793ec08c82d1090;

CREATE FUNCTION tube.tube_private_put_parked(outbox text, partitions integer, partition integer, leader_id uuid, items jsonb, records jsonb, hold boolean) RETURNS bigint[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 1ad4ec99cf902b5b;

CREATE FUNCTION tube.tube_private_put_schedule(tube text, shard integer, table_name text, order_col name, resync boolean DEFAULT false) RETURNS void
    LANGUAGE sql
    AS 066aa05f7c78b9a1;

CREATE FUNCTION tube.tube_private_qualify(name text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS 57e1ea6f4aeb2f55;

CREATE FUNCTION tube.tube_private_range(tube text, tbl regclass, shard integer, shards integer) RETURNS integer
    LANGUAGE plpgsql
    AS d7816686c43544aa;

CREATE FUNCTION tube.tube_private_range_sql(tbl regclass, col name, bounds text[], unit integer) RETURNS text
    LANGUAGE plpgsql STABLE
    AS 7b49fa0910164d07;

CREATE FUNCTION tube.tube_private_record_columns(box tube.tube_outbox, parks boolean, retried boolean) RETURNS text
    LANGUAGE sql STABLE
    AS 19cea369458ac337;

CREATE FUNCTION tube.tube_private_refilled(tube text, since timestamp with time zone, finished boolean) RETURNS boolean
    LANGUAGE sql STABLE
    AS 0f64d4342c02ac6d;

CREATE FUNCTION tube.tube_private_refuse_backfill(att tube.tube_attachment, other text) RETURNS void
    LANGUAGE plpgsql
    AS bdcfba49974b07e8;

CREATE FUNCTION tube.tube_private_refuse_job(job tube.tube_job) RETURNS void
    LANGUAGE plpgsql
    AS 6a207f788249d715;

CREATE FUNCTION tube.tube_private_refuse_loss(tube text) RETURNS void
    LANGUAGE plpgsql
    AS d0694e471d3d6afe;

CREATE FUNCTION tube.tube_private_refuse_predicate(tube text, tbl regclass, predicate text, reason text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 63244ad7b748478c;

CREATE FUNCTION tube.tube_private_refuse_records(outbox text) RETURNS void
    LANGUAGE plpgsql
    AS c0321fc0090517b1;

CREATE FUNCTION tube.tube_private_refuse_renamed(tbl regclass, table_name text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 748b9fc596cc7546;

CREATE FUNCTION tube.tube_private_refuse_shard(tube text, shard integer, ids anyarray) RETURNS void
    LANGUAGE plpgsql
    AS c6c30dd9e8db7352;

CREATE FUNCTION tube.tube_private_refuse_table(tbl regclass) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 37265b14bacc95db;

CREATE FUNCTION tube.tube_private_refuse_touch(tbl regclass, other oid) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS f546e9accb8971d3;

CREATE FUNCTION tube.tube_private_remove_key(reg tube.tube_registry, places tid[], in_key text) RETURNS void
    LANGUAGE plpgsql
    AS 354361b55064d862;

CREATE FUNCTION tube.tube_private_repartition(tube text, partitions integer) RETURNS void
    LANGUAGE plpgsql
    AS 2f3d0b1e5c55c865;

CREATE FUNCTION tube.tube_private_repartition_outbox(outbox text, partitions integer) RETURNS void
    LANGUAGE plpgsql
    AS b2b0a1bcd90dfbc9;

CREATE FUNCTION tube.tube_private_require(name text, kind text DEFAULT 'tube'::text) RETURNS tube.tube_registry
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 5d90d343791e3b8f;

CREATE FUNCTION tube.tube_private_require_main(tube text) RETURNS void
    LANGUAGE plpgsql
    AS 13325d8ef563fd51;

CREATE FUNCTION tube.tube_private_require_outbox(outbox text) RETURNS tube.tube_outbox
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 189cd771d719b566;

CREATE FUNCTION tube.tube_private_rescue_links(gone tube.tube_attachment) RETURNS void
    LANGUAGE plpgsql
    AS 1488875125751baf;

CREATE FUNCTION tube.tube_private_resync(tube text, name text, table_name text, shard integer, shards integer, rows_went boolean, companion_of text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS 98ef8f752810b47a;

CREATE FUNCTION tube.tube_private_resync_documents(tube text, table_name text) RETURNS void
    LANGUAGE plpgsql
    AS d46cd2d1526c310b;

CREATE FUNCTION tube.tube_private_role(kind text) RETURNS name
    LANGUAGE sql IMMUTABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    RETURN ((('tube'::text || '_'::text) || kind))::name;

CREATE FUNCTION tube.tube_private_role_sql(role oid) RETURNS text
    LANGUAGE sql STABLE
    AS 1600f1dc8b32b660;

CREATE FUNCTION tube.tube_private_routines(att tube.tube_attachment) RETURNS TABLE(routine oid, name text, signature text)
    LANGUAGE sql STABLE
    AS ed84ced81747b5f2;

CREATE FUNCTION tube.tube_private_row_body(att tube.tube_attachment) RETURNS text
    LANGUAGE plpgsql STABLE
    AS dde2b570382eccf6;

CREATE FUNCTION tube.tube_private_rows_estimate(tbl regclass) RETURNS bigint
    LANGUAGE sql STABLE
    AS 7d17ae17249ea803;

CREATE FUNCTION tube.tube_private_run_owner_ddl(statements text[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    SET "DateStyle" TO 'ISO'
    SET "IntervalStyle" TO 'iso_8601'
    SET quote_all_identifiers TO 'off'
    SET client_min_messages TO 'warning'
    AS 7f509cc6f5ae702d;

CREATE FUNCTION tube.tube_private_schema() RETURNS name
    LANGUAGE sql IMMUTABLE
    RETURN 'tube'::name;

CREATE FUNCTION tube.tube_private_see_ddl(tag text) RETURNS text[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET quote_all_identifiers TO 'off'
    AS 2924d977c8fa3cfd;

CREATE FUNCTION tube.tube_private_see_rewrite() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS fc06c0eef1ec8b4e;

CREATE FUNCTION tube.tube_private_session_op(op text) RETURNS text
    LANGUAGE sql STABLE
    AS 9783e3c8b6102cf1;

CREATE FUNCTION tube.tube_private_set_flag() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 5931163f6003daf1;

CREATE FUNCTION tube.tube_private_set_predicate(tube text, predicate text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS c8388e768fb962e7;

CREATE FUNCTION tube.tube_private_shard_expression(id text, att tube.tube_attachment, of_row boolean DEFAULT true) RETURNS text
    LANGUAGE sql STABLE
    AS 690140a759c4c140;

CREATE FUNCTION tube.tube_private_slices(tube text, partitions integer, partition integer, OUT pods text, OUT slices text[]) RETURNS record
    LANGUAGE plpgsql STABLE
    AS db9257a30adea034;

CREATE FUNCTION tube.tube_private_some_keys(keys text[]) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS ef8e9a8a025a464b;

CREATE FUNCTION tube.tube_private_source(OUT system_identifier bigint, OUT timeline integer, OUT sequence oid) RETURNS record
    LANGUAGE plpgsql
    AS 84d9be7546d1060a;

CREATE FUNCTION tube.tube_private_source_change(seen_seq bigint, last_seq bigint, note text) RETURNS text
    LANGUAGE sql
    AS f1364b59cec0d9d7;

CREATE FUNCTION tube.tube_private_stale_attachments() RETURNS SETOF tube.tube_attachment
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 5ea86a4bcebf1e24;

CREATE FUNCTION tube.tube_private_stash(outbox text, topics text[], keys text[], bodies anyarray, headers jsonb, partition_keys text[], in_order boolean) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS b390d8bec1d54a6b;

CREATE FUNCTION tube.tube_private_stash_one(outbox text, topic text, key text, value anyelement, headers jsonb, partition_key text, in_order boolean) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 2fa41f88be272a96;

CREATE FUNCTION tube.tube_private_stats_class(reg tube.tube_registry, partition integer, class integer, most integer, OUT pods integer, OUT since timestamp with time zone, OUT min_seq bigint, OUT min_ts timestamp with time zone, OUT max_seq bigint, OUT max_ts timestamp with time zone) RETURNS record
    LANGUAGE plpgsql
    AS 517bba5be2a241fb;

CREATE FUNCTION tube.tube_private_stats_controls_sql(reg tube.tube_registry) RETURNS text
    LANGUAGE sql STABLE
    AS d42a6a0606e4e9a3;

CREATE FUNCTION tube.tube_private_stats_estimates(reg tube.tube_registry) RETURNS bigint[]
    LANGUAGE plpgsql
    AS 9080504694f95d51;

CREATE FUNCTION tube.tube_private_stats_shards(reg tube.tube_registry, partition integer, OUT shards integer, OUT list text) RETURNS record
    LANGUAGE plpgsql
    AS 2b68e65da5385492;

CREATE FUNCTION tube.tube_private_store(att tube.tube_attachment, late boolean) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET quote_all_identifiers TO 'off'
    AS 6a5273f2a925c25f;

CREATE FUNCTION tube.tube_private_table_fault(tbl regclass, member boolean DEFAULT false) RETURNS text
    LANGUAGE sql STABLE
    AS 8f3f9494c20b9009;

CREATE FUNCTION tube.tube_private_table_name(tbl oid) RETURNS text
    LANGUAGE sql STABLE
    AS 5c4a3e0ee8d0b3df;

CREATE FUNCTION tube.tube_private_take_control(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) RETURNS jsonb
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS 9af913d6c586cbef;

CREATE FUNCTION tube.tube_private_take_retries(outbox text, partitions integer, partition integer, records_limit integer, floor bigint) RETURNS bigint[]
    LANGUAGE sql
    AS 2eed648d7be344a6;

CREATE FUNCTION tube.tube_private_tell_watchers(tube text, partitions integer, partition integer) RETURNS void
    LANGUAGE plpgsql
    AS a79aa24bcf560c33;

CREATE FUNCTION tube.tube_private_touch(tube text, shard integer, shards integer, ids anyarray, op text, payload jsonb, chunk_size integer) RETURNS void
    LANGUAGE plpgsql
    AS e93f4f696aa12802;

CREATE FUNCTION tube.tube_private_touch_ddl(att tube.tube_attachment) RETURNS SETOF text
    LANGUAGE plpgsql STABLE
    AS ff273f8998a18ece;

CREATE FUNCTION tube.tube_private_touch_name(att tube.tube_attachment) RETURNS text
    LANGUAGE plpgsql
    AS 2428e86c2ae3575f;

CREATE FUNCTION tube.tube_private_trigger_ddl(att tube.tube_attachment) RETURNS TABLE(statement text, rel regclass)
    LANGUAGE sql STABLE
    AS 1a04086769db99e7;

CREATE FUNCTION tube.tube_private_try_predicate(att tube.tube_attachment) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS fe7c2cf2fca5ffe8;

CREATE FUNCTION tube.tube_private_type_sql(type oid) RETURNS text
    LANGUAGE sql STABLE
    AS 163085c0cbdc6312;

CREATE FUNCTION tube.tube_private_wake_sleepers(tube text, touched integer[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS af353e69389b202f;

CREATE FUNCTION tube.tube_private_warn_lonely(tube text, shard integer) RETURNS void
    LANGUAGE plpgsql
    AS 0de0e453baa35429;

CREATE FUNCTION tube.tube_private_watch_lock(tube text, partition integer) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS 98170db98c066f41;

CREATE FUNCTION tube.tube_private_wrong_name(name text) RETURNS text
    LANGUAGE plpgsql STABLE
    AS b89909b4997695c8;

CREATE FUNCTION tube.tube_relations_waiting(tube text, most integer DEFAULT 1000) RETURNS TABLE(companion text, pods bigint, links bigint, since timestamp with time zone, parked bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    AS d6233cd67ef11533;

COMMENT ON FUNCTION tube.tube_relations_waiting(tube text, most integer) IS 'Returns the backlog in a tube''s companions, counting at most so many pods in each, and their parked keys.';

CREATE FUNCTION tube.tube_resume(tube text, in_partition integer DEFAULT NULL::integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 2bc0b6ad01fc2625;

COMMENT ON FUNCTION tube.tube_resume(tube text, in_partition integer) IS 'Ends pauses and workers'' stops, and returns how many. With a partition, ends only its pauses.';

CREATE FUNCTION tube.tube_sampled(in_tube text, checked integer, differing integer, undecided integer, detail text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS b126afd344815a2c;

COMMENT ON FUNCTION tube.tube_sampled(in_tube text, checked integer, differing integer, undecided integer, detail text) IS 'Records the findings of a sample.';

CREATE FUNCTION tube.tube_seq_advance(beyond bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS fb5d11694d827fca;

COMMENT ON FUNCTION tube.tube_seq_advance(beyond bigint) IS 'Moves tube_seq beyond a number, never back, when you move from another queue. Run it outside of other transactions. It can''t be undone.';

CREATE FUNCTION tube.tube_settle_done(x xid8) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS b2278cca6ba3157a;

COMMENT ON FUNCTION tube.tube_settle_done(x xid8) IS 'Returns whether every transaction below an xid is over.';

CREATE FUNCTION tube.tube_settle_holders(tube text) RETURNS text[]
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 2e5a60efad8af9fb;

COMMENT ON FUNCTION tube.tube_settle_holders(tube text) IS 'Lists open transactions that may still write to the tube; NULL: to any.';

CREATE FUNCTION tube.tube_settle_left(tube text, holders text[]) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 0a7541efe11a1bc1;

COMMENT ON FUNCTION tube.tube_settle_left(tube text, holders text[]) IS 'Returns whether all these holders are over.';

CREATE FUNCTION tube.tube_settle_seq() RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS bc2ef29b6982684a;

COMMENT ON FUNCTION tube.tube_settle_seq() IS 'Returns the greatest seq drawn: the first step to a settled seq.';

CREATE FUNCTION tube.tube_settle_writers(tube text) RETURNS xid8[]
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS e08fc327051ce567;

COMMENT ON FUNCTION tube.tube_settle_writers(tube text) IS 'Lists the xids of holders that may have drawn a seq; NULL: for any tube.';

CREATE FUNCTION tube.tube_shard_of(id bigint, shard integer, shards integer) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (shard + ((((id % (shards)::bigint) + (shards)::bigint) % (shards)::bigint))::integer);

COMMENT ON FUNCTION tube.tube_shard_of(id bigint, shard integer, shards integer) IS 'Returns the shard of an id (bigint, uuid or text) in a table that is attached with these values.';

CREATE FUNCTION tube.tube_shard_of(id text, shard integer, shards integer) RETURNS integer
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (shard + ((((('x'::text || "left"(md5(convert_to(id, 'UTF8'::name)), 8)))::bit(32))::bigint % (shards)::bigint))::integer);

COMMENT ON FUNCTION tube.tube_shard_of(id text, shard integer, shards integer) IS 'Returns the shard of an id (bigint, uuid or text) in a table that is attached with these values.';

CREATE FUNCTION tube.tube_shard_of(id uuid, shard integer, shards integer) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (shard + ((((('x'::text || "left"(md5((id)::text), 8)))::bit(32))::bigint % (shards)::bigint))::integer);

COMMENT ON FUNCTION tube.tube_shard_of(id uuid, shard integer, shards integer) IS 'Returns the shard of an id (bigint, uuid or text) in a table that is attached with these values.';

CREATE FUNCTION tube.tube_sink_accept(tube text, before timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS a0fb34a9858177ba;

COMMENT ON FUNCTION tube.tube_sink_accept(tube text, before timestamp with time zone) IS 'Accepts the content of an emptied sink as complete, if it was found emptied before this time; NULL: any.';

CREATE FUNCTION tube.tube_sink_list() RETURNS TABLE(tube text, makes boolean, emptied_at timestamp with time zone, mark text, source text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS f76bb950434a4ed2;

COMMENT ON FUNCTION tube.tube_sink_list() IS 'Lists tubes whose sinks were checked. makes: whether a worker may create missing parts there.';

CREATE FUNCTION tube.tube_sink_note(tube text, held text) RETURNS TABLE(wanted text, emptied_at timestamp with time zone, is_new boolean, is_over boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS f59d951ad642137a;

COMMENT ON FUNCTION tube.tube_sink_note(tube text, held text) IS 'Records the mark that a worker found at the sink; NULL: none. wanted is the mark to leave there; NULL: create and leave nothing.';

CREATE FUNCTION tube.tube_sleep(tube text, partitions integer, partition integer, leader_id uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '1s'
    AS eae850e70e7562ce;

COMMENT ON FUNCTION tube.tube_sleep(tube text, partitions integer, partition integer, leader_id uuid) IS 'Registers a leader as sleeping, so that writers NOTIFY it.';

CREATE FUNCTION tube.tube_source_check(seen_seq bigint DEFAULT NULL::bigint, note text DEFAULT NULL::text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '1s'
    AS ab593e5d63aba825;

COMMENT ON FUNCTION tube.tube_source_check(seen_seq bigint, note text) IS 'Checks whether server, timeline and database are as before, with the commit of the note. If not, lists all copies as unverified, and returns the difference once. Moves tube_seq beyond seen_seq.';

CREATE FUNCTION tube.tube_source_note(in_tube text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS b462880db083ab71;

COMMENT ON FUNCTION tube.tube_source_note(in_tube text) IS 'Commits an id and returns it, for the note that a worker then leaves at the sink.';

CREATE FUNCTION tube.tube_stats() RETURNS TABLE(tube text, predicate text, partition integer, shards integer, inc_count text, inc_min_seq bigint, inc_max_seq bigint, inc_min_ts timestamp with time zone, inc_max_ts timestamp with time zone, backfill_count text, backfill_min_seq bigint, backfill_max_seq bigint, backfill_min_ts timestamp with time zone, backfill_max_ts timestamp with time zone, control_count text, parked text, shard_list text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'on'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS ae1d1e513f34cbc5;

COMMENT ON FUNCTION tube.tube_stats() IS 'Returns the backlog of each partition. Counts are text: exact below 1000, then an estimate such as ~12345. control_count counts control pods, as type:count pairs.';

CREATE FUNCTION tube.tube_step_ask(tube text, seq bigint, shard integer, key text, lasts interval DEFAULT '00:00:30'::interval) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 6d6f728f9856ab99;

COMMENT ON FUNCTION tube.tube_step_ask(tube text, seq bigint, shard integer, key text, lasts interval) IS 'Asks the leader of a paused partition to deliver one key of one pod; returns the number of the step.';

CREATE FUNCTION tube.tube_step_cancel(in_step bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS c9c302ad2df59870;

COMMENT ON FUNCTION tube.tube_step_cancel(in_step bigint) IS 'Cancels a step; false if a term has taken it.';

CREATE FUNCTION tube.tube_step_end(tube text, partitions integer, partition integer, leader_id uuid, in_step bigint, outcome text, error text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS bca6a78b5b7562fb;

COMMENT ON FUNCTION tube.tube_step_end(tube text, partitions integer, partition integer, leader_id uuid, in_step bigint, outcome text, error text) IS 'Records the outcome of a step. A finished key leaves its pod.';

CREATE FUNCTION tube.tube_step_state(in_step bigint) RETURNS TABLE(outcome text, error text, taken boolean, over boolean)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS ce18314ea795f6e5;

COMMENT ON FUNCTION tube.tube_step_state(in_step bigint) IS 'Returns the outcome of a step. over: it will have none.';

CREATE FUNCTION tube.tube_step_take(tube text, partitions integer, partition integer, leader_id uuid, in_step bigint) RETURNS TABLE(seq bigint, ts timestamp with time zone, shard integer, key text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS e5ea4dc381ff3e6d;

COMMENT ON FUNCTION tube.tube_step_take(tube text, partitions integer, partition integer, leader_id uuid, in_step bigint) IS 'Takes a step for a term, and marks its pod.';

CREATE FUNCTION tube.tube_stream_purge(tube text, seq bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS 873e662c0074ceb1;

COMMENT ON FUNCTION tube.tube_stream_purge(tube text, seq bigint) IS 'Deletes pods up to a settled seq, of a tube without workers.';

CREATE FUNCTION tube.tube_sweep_end(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS ec50c0ead3fec82c;

COMMENT ON FUNCTION tube.tube_sweep_end(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) IS 'Deletes a backfill_end pod after the worker has acted on it.';

CREATE FUNCTION tube.tube_sweep_ready(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS 00bb11c599d22b9e;

COMMENT ON FUNCTION tube.tube_sweep_ready(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) IS 'Returns whether all backfill pods of the shard before a backfill_end are done.';

CREATE FUNCTION tube.tube_sweep_touch(tube text, partitions integer, partition integer, leader_id uuid, shard integer, ids anyarray) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 801e1cf4ca6998be;

COMMENT ON FUNCTION tube.tube_sweep_touch(tube text, partitions integer, partition integer, leader_id uuid, shard integer, ids anyarray) IS 'Touches ids that a scan of the sink found; returns the number of pods.';

CREATE FUNCTION tube.tube_sync() RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS 30eaf82f901c3760;

COMMENT ON FUNCTION tube.tube_sync() IS 'Adapts attached tables to DDL, and returns how many. Workers call it twice a minute. WARNINGs name work left for a table''s owner.';

CREATE FUNCTION tube.tube_table_ensure_attached(tube text, tbl regclass, shard integer DEFAULT NULL::integer, shards integer DEFAULT 1, id_col name DEFAULT NULL::name, columns name[] DEFAULT NULL::name[], replica boolean DEFAULT false, key_cols name[] DEFAULT NULL::name[], shard_by name DEFAULT NULL::name) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS 7d4b73298987c2a1;

COMMENT ON FUNCTION tube.tube_table_ensure_attached(tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean, key_cols name[], shard_by name) IS 'Attaches a table, or a partitioned table as a whole, or changes how it is attached; the caller needs its owner''s rights. Arguments left out return to their defaults. The first table in a shard is the root table, later ones are related. columns: an UPDATE that changes none of them makes no touch. replica: rows of logical replication are touched, too. key_cols: 2 to 8 columns instead of id_col.';

CREATE FUNCTION tube.tube_table_ensure_detached(in_tube text, in_tbl regclass) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    SET lock_timeout TO '5s'
    AS f95012ab61fed129;

COMMENT ON FUNCTION tube.tube_table_ensure_detached(in_tube text, in_tbl regclass) IS 'Detaches a table from a tube, or with NULL from all. Pods stay. A related table may become the root table, with a WARNING.';

CREATE FUNCTION tube.tube_terms(in_tube text) RETURNS TABLE(tube text, partitions integer, partition integer, leader_id uuid, epoch bigint, instance_id uuid, client_id text, election text, hold interval, acquired_at timestamp with time zone, renewed_at timestamp with time zone, ended_at timestamp with time zone, outcome text)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 0cac8bae1fb79670;

COMMENT ON FUNCTION tube.tube_terms(in_tube text) IS 'Lists all terms of at least the last day, and how they ended: released, superseded or repartitioned.';

CREATE FUNCTION tube.tube_undelivered(tube text, up_to bigint) RETURNS TABLE(partition integer, partitions integer, least_seq bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 61852e66e3b3282f;

COMMENT ON FUNCTION tube.tube_undelivered(tube text, up_to bigint) IS 'Lists partitions that still have pods up to a seq; no row: all are delivered or parked. With the seq of tube_settle_seq() it covers all that was committed before.';

CREATE FUNCTION tube.tube_unverified_list(in_tube text DEFAULT NULL::text) RETURNS TABLE(tube text, cause text, since timestamp with time zone, is_certain boolean, detail text)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 4cd8a2912b07878a;

COMMENT ON FUNCTION tube.tube_unverified_list(in_tube text) IS 'Lists copies to verify and outboxes to acknowledge, because the source changed or a sample found differences.';

CREATE FUNCTION tube.tube_verified(in_tube text, action text DEFAULT 'acknowledge'::text, up_to timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 3a8ef369240b92b3;

COMMENT ON FUNCTION tube.tube_verified(in_tube text, action text, up_to timestamp with time zone) IS 'Removes a tube or outbox from that list; up_to leaves later causes. Returns the number of causes.';

CREATE FUNCTION tube.tube_wake(tube text, partition integer, leader_id uuid DEFAULT NULL::uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 0357bcf408fecae5;

COMMENT ON FUNCTION tube.tube_wake(tube text, partition integer, leader_id uuid) IS 'Registers a leader as awake.';

CREATE FUNCTION tube.tube_wakes() RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'tube', 'pg_temp'
    AS 62913c87561d2a65;

COMMENT ON FUNCTION tube.tube_wakes() IS 'Returns whether writers wake sleeping workers, by this session''s settings.';

ALTER TABLE tube.tube_attachment ALTER COLUMN "position" ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tube.tube_attachment_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE tube.tube_attempt (
    tube text NOT NULL,
    shard integer NOT NULL,
    id text NOT NULL,
    attempts integer NOT NULL,
    error text NOT NULL,
    epoch bigint NOT NULL,
    first_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    last_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    next_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE tube.tube_audit (
    audit_id bigint NOT NULL,
    done_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    done_by name DEFAULT SESSION_USER NOT NULL,
    client text,
    action text NOT NULL,
    tube text,
    details jsonb DEFAULT '{}'::jsonb NOT NULL
);

ALTER TABLE tube.tube_audit ALTER COLUMN audit_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tube.tube_audit_audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE tube.tube_backfill ALTER COLUMN backfill_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tube.tube_backfill_backfill_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE tube.tube_failing (
    tube text NOT NULL,
    partition integer NOT NULL,
    reason text NOT NULL,
    terms integer NOT NULL,
    since timestamp with time zone NOT NULL,
    failed_at timestamp with time zone NOT NULL
);

CREATE TABLE tube.tube_flag (
    tube text NOT NULL
);

CREATE TABLE tube.tube_halted (
    leader_id uuid NOT NULL,
    since timestamp with time zone NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE tube.tube_installation (
    one boolean DEFAULT true NOT NULL,
    installation uuid DEFAULT gen_random_uuid() NOT NULL,
    last_epoch bigint DEFAULT 0 NOT NULL,
    CONSTRAINT tube_installation_one_check CHECK (one)
);

CREATE TABLE tube.tube_instance (
    tube text NOT NULL,
    instance_id uuid NOT NULL,
    client_id text NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
)
WITH (fillfactor='50');

ALTER TABLE tube.tube_job ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tube.tube_job_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE tube.tube_job_unit (
    job_id text NOT NULL,
    unit integer NOT NULL,
    rows bigint NOT NULL,
    ids bigint NOT NULL,
    pods bigint NOT NULL,
    ended_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT tube_job_unit_unit_check CHECK ((unit >= 0))
);

CREATE TABLE tube.tube_kafka (
    instance_id uuid NOT NULL,
    tube text NOT NULL,
    use text NOT NULL,
    bootstrap_servers text NOT NULL,
    client_id text NOT NULL,
    reason text NOT NULL,
    since timestamp with time zone NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    back_at timestamp with time zone
)
WITH (fillfactor='50');

CREATE TABLE tube.tube_leader (
    tube text NOT NULL,
    partition integer NOT NULL,
    partitions integer NOT NULL,
    leader_id uuid,
    epoch bigint NOT NULL,
    instance_id uuid,
    client_id text,
    election text,
    hold interval,
    lease interval,
    acquired_at timestamp with time zone,
    renewed_at timestamp with time zone
)
WITH (fillfactor='50');

CREATE TABLE tube.tube_outbox_parked (
    outbox text NOT NULL,
    id bigint NOT NULL,
    topic text NOT NULL,
    key text,
    slot integer NOT NULL,
    error text NOT NULL,
    attempts integer NOT NULL,
    epoch bigint NOT NULL,
    hold boolean NOT NULL,
    behind boolean NOT NULL,
    parked_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE tube.tube_outbox_resting (
    leader_id uuid NOT NULL,
    topic text NOT NULL,
    reason text NOT NULL,
    records bigint NOT NULL,
    since timestamp with time zone NOT NULL,
    next_at timestamp with time zone NOT NULL,
    park boolean DEFAULT false NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE tube.tube_outbox_retry (
    outbox text NOT NULL,
    id bigint NOT NULL,
    slot integer NOT NULL
);

CREATE TABLE tube.tube_parked_document (
    park_id bigint NOT NULL,
    document bytea NOT NULL
);

ALTER TABLE tube.tube_parked ALTER COLUMN park_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tube.tube_parked_park_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE tube.tube_paused (
    pause_id bigint NOT NULL,
    tube text NOT NULL,
    partition integer,
    partitions integer NOT NULL,
    kind text NOT NULL,
    reason text,
    paused_by name DEFAULT SESSION_USER NOT NULL,
    paused_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    until timestamp with time zone,
    CONSTRAINT tube_paused_kind_check CHECK ((kind = ANY (ARRAY['operator'::text, 'poison'::text, 'park_limit'::text])))
);

ALTER TABLE tube.tube_paused ALTER COLUMN pause_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tube.tube_paused_pause_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE tube.tube_registry ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tube.tube_registry_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE tube.tube_sample (
    tube text NOT NULL,
    ended_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    checked integer NOT NULL,
    differing integer NOT NULL,
    undecided integer NOT NULL
)
WITH (fillfactor='50');

CREATE SEQUENCE tube.tube_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE tube.tube_sink (
    tube text NOT NULL,
    mark text,
    seen boolean DEFAULT false NOT NULL,
    emptied_at timestamp with time zone,
    notes uuid[] DEFAULT '{}'::uuid[] NOT NULL,
    last_note bigint DEFAULT 0 NOT NULL
);

CREATE TABLE tube.tube_sleeper (
    tube text NOT NULL,
    partition integer NOT NULL,
    partitions integer NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE tube.tube_source (
    one boolean DEFAULT true NOT NULL,
    system_identifier bigint,
    timeline integer,
    sequence oid,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT tube_source_one_check CHECK (one)
);

CREATE TABLE tube.tube_step (
    step_id bigint NOT NULL,
    tube text NOT NULL,
    partitions integer NOT NULL,
    partition integer NOT NULL,
    seq bigint NOT NULL,
    shard integer NOT NULL,
    id text NOT NULL,
    asked_by name DEFAULT SESSION_USER NOT NULL,
    asked_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    leader_id uuid,
    outcome text,
    error text,
    ended_at timestamp with time zone,
    CONSTRAINT tube_step_outcome_check CHECK ((outcome = ANY (ARRAY['delivered'::text, 'skipped'::text, 'failed'::text, 'unsent'::text])))
);

ALTER TABLE tube.tube_step ALTER COLUMN step_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tube.tube_step_step_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE tube.tube_term (
    leader_id uuid NOT NULL,
    tube text NOT NULL,
    partition integer NOT NULL,
    partitions integer NOT NULL,
    epoch bigint NOT NULL,
    instance_id uuid NOT NULL,
    client_id text NOT NULL,
    election text NOT NULL,
    hold interval NOT NULL,
    acquired_at timestamp with time zone NOT NULL,
    renewed_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    outcome text NOT NULL,
    CONSTRAINT tube_term_outcome_check CHECK ((outcome = ANY (ARRAY['released'::text, 'superseded'::text, 'repartitioned'::text])))
);

CREATE TABLE tube.tube_trouble (
    leader_id uuid NOT NULL,
    what text NOT NULL,
    reason text NOT NULL,
    since timestamp with time zone NOT NULL,
    next_at timestamp with time zone,
    CONSTRAINT tube_trouble_what_check CHECK ((what = ANY (ARRAY['sink'::text, 'source'::text, 'slow'::text, 'locked'::text, 'late'::text])))
)
WITH (fillfactor='50');

CREATE TABLE tube.tube_unverified (
    tube text NOT NULL,
    cause text NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    is_certain boolean NOT NULL,
    detail text NOT NULL,
    CONSTRAINT tube_unverified_cause_check CHECK ((cause = ANY (ARRAY['source'::text, 'sample'::text])))
);

CREATE TABLE tube.tube_version (
    version_num character varying(32) NOT NULL
);

ALTER TABLE ONLY tube.tube_attachment
    ADD CONSTRAINT tube_attachment_pkey PRIMARY KEY (tube, tbl);

ALTER TABLE ONLY tube.tube_audit
    ADD CONSTRAINT tube_audit_pkey PRIMARY KEY (audit_id);

ALTER TABLE ONLY tube.tube_backfill
    ADD CONSTRAINT tube_backfill_pkey PRIMARY KEY (backfill_id);

ALTER TABLE ONLY tube.tube_failing
    ADD CONSTRAINT tube_failing_pkey PRIMARY KEY (tube, partition);

ALTER TABLE ONLY tube.tube_flag
    ADD CONSTRAINT tube_flag_pkey PRIMARY KEY (tube);

ALTER TABLE ONLY tube.tube_halted
    ADD CONSTRAINT tube_halted_pkey PRIMARY KEY (leader_id);

ALTER TABLE ONLY tube.tube_installation
    ADD CONSTRAINT tube_installation_pkey PRIMARY KEY (one);

ALTER TABLE ONLY tube.tube_instance
    ADD CONSTRAINT tube_instance_pkey PRIMARY KEY (tube, instance_id);

ALTER TABLE ONLY tube.tube_job
    ADD CONSTRAINT tube_job_number_key UNIQUE (number);

ALTER TABLE ONLY tube.tube_job
    ADD CONSTRAINT tube_job_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY tube.tube_job_unit
    ADD CONSTRAINT tube_job_unit_pkey PRIMARY KEY (job_id, unit);

ALTER TABLE ONLY tube.tube_kafka
    ADD CONSTRAINT tube_kafka_pkey PRIMARY KEY (instance_id, tube, use, bootstrap_servers);

ALTER TABLE ONLY tube.tube_leader
    ADD CONSTRAINT tube_leader_leader_id_key UNIQUE (leader_id);

ALTER TABLE ONLY tube.tube_leader
    ADD CONSTRAINT tube_leader_pkey PRIMARY KEY (tube, partition);

ALTER TABLE ONLY tube.tube_outbox_parked
    ADD CONSTRAINT tube_outbox_parked_pkey PRIMARY KEY (outbox, id);

ALTER TABLE ONLY tube.tube_outbox
    ADD CONSTRAINT tube_outbox_pkey PRIMARY KEY (outbox);

ALTER TABLE ONLY tube.tube_outbox_resting
    ADD CONSTRAINT tube_outbox_resting_pkey PRIMARY KEY (leader_id, topic);

ALTER TABLE ONLY tube.tube_outbox_retry
    ADD CONSTRAINT tube_outbox_retry_pkey PRIMARY KEY (outbox, id);

ALTER TABLE ONLY tube.tube_outbox
    ADD CONSTRAINT tube_outbox_tbl_key UNIQUE (tbl);

ALTER TABLE ONLY tube.tube_parked_document
    ADD CONSTRAINT tube_parked_document_pkey PRIMARY KEY (park_id);

ALTER TABLE ONLY tube.tube_parked
    ADD CONSTRAINT tube_parked_pkey PRIMARY KEY (park_id);

ALTER TABLE ONLY tube.tube_paused
    ADD CONSTRAINT tube_paused_pkey PRIMARY KEY (pause_id);

ALTER TABLE ONLY tube.tube_registry
    ADD CONSTRAINT tube_registry_number_key UNIQUE (number);

ALTER TABLE ONLY tube.tube_registry
    ADD CONSTRAINT tube_registry_pkey PRIMARY KEY (tube);

ALTER TABLE ONLY tube.tube_sample
    ADD CONSTRAINT tube_sample_pkey PRIMARY KEY (tube);

ALTER TABLE ONLY tube.tube_sink
    ADD CONSTRAINT tube_sink_pkey PRIMARY KEY (tube);

ALTER TABLE ONLY tube.tube_sleeper
    ADD CONSTRAINT tube_sleeper_pkey PRIMARY KEY (tube, partition);

ALTER TABLE ONLY tube.tube_source
    ADD CONSTRAINT tube_source_pkey PRIMARY KEY (one);

ALTER TABLE ONLY tube.tube_step
    ADD CONSTRAINT tube_step_pkey PRIMARY KEY (step_id);

ALTER TABLE ONLY tube.tube_term
    ADD CONSTRAINT tube_term_pkey PRIMARY KEY (leader_id);

ALTER TABLE ONLY tube.tube_trouble
    ADD CONSTRAINT tube_trouble_pkey PRIMARY KEY (leader_id, what);

ALTER TABLE ONLY tube.tube_unverified
    ADD CONSTRAINT tube_unverified_pkey PRIMARY KEY (tube, cause);

ALTER TABLE ONLY tube.tube_version
    ADD CONSTRAINT tube_version_pkc PRIMARY KEY (version_num);

CREATE UNIQUE INDEX tube_attachment_digest_key ON tube.tube_attachment USING btree ("right"(trigger_function, 8));

CREATE UNIQUE INDEX tube_attempt_key_idx ON tube.tube_attempt USING btree (tube, shard, md5(id));

CREATE INDEX tube_audit_tube_done_at_idx ON tube.tube_audit USING btree (tube, done_at);

CREATE UNIQUE INDEX tube_backfill_active_idx ON tube.tube_backfill USING btree (tube, tbl) WHERE (state = ANY (ARRAY['waiting'::text, 'inserting'::text, 'delivering'::text]));

CREATE INDEX tube_job_backfill_id_idx ON tube.tube_job USING btree (backfill_id) WHERE (backfill_id IS NOT NULL);

CREATE INDEX tube_outbox_parked_key_idx ON tube.tube_outbox_parked USING btree (outbox, topic, md5(key)) WHERE hold;

CREATE UNIQUE INDEX tube_parked_key_idx ON tube.tube_parked USING btree (tube, shard, md5(id)) WHERE (id IS NOT NULL);

CREATE UNIQUE INDEX tube_parked_seq_idx ON tube.tube_parked USING btree (tube, seq) WHERE (id IS NULL);

CREATE UNIQUE INDEX tube_paused_what_idx ON tube.tube_paused USING btree (tube, kind, partitions, COALESCE(partition, '-1'::integer));

CREATE UNIQUE INDEX tube_step_open_idx ON tube.tube_step USING btree (tube, partition) WHERE (ended_at IS NULL);

CREATE INDEX tube_term_tube_ended_at_idx ON tube.tube_term USING btree (tube, ended_at);

CREATE TRIGGER tube_backfill_gone_trigger AFTER DELETE ON tube.tube_backfill FOR EACH ROW EXECUTE FUNCTION tube.tube_private_drop_stored('tube_backfill_ids_', 'backfill_id');

CREATE TRIGGER tube_job_gone_trigger AFTER DELETE ON tube.tube_job FOR EACH ROW EXECUTE FUNCTION tube.tube_private_drop_stored('tube_job_pods_', 'number');

CREATE TRIGGER tube_sleeper_flag_trigger AFTER INSERT OR DELETE OR UPDATE ON tube.tube_sleeper FOR EACH ROW EXECUTE FUNCTION tube.tube_private_set_flag();

ALTER TABLE ONLY tube.tube_attachment
    ADD CONSTRAINT tube_attachment_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_attempt
    ADD CONSTRAINT tube_attempt_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_backfill
    ADD CONSTRAINT tube_backfill_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_failing
    ADD CONSTRAINT tube_failing_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_flag
    ADD CONSTRAINT tube_flag_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_instance
    ADD CONSTRAINT tube_instance_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_job
    ADD CONSTRAINT tube_job_backfill_id_fkey FOREIGN KEY (backfill_id) REFERENCES tube.tube_backfill(backfill_id) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_job_unit
    ADD CONSTRAINT tube_job_unit_job_id_fkey FOREIGN KEY (job_id) REFERENCES tube.tube_job(job_id) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_leader
    ADD CONSTRAINT tube_leader_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_outbox
    ADD CONSTRAINT tube_outbox_outbox_fkey FOREIGN KEY (outbox) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_outbox_parked
    ADD CONSTRAINT tube_outbox_parked_outbox_fkey FOREIGN KEY (outbox) REFERENCES tube.tube_outbox(outbox) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_outbox_retry
    ADD CONSTRAINT tube_outbox_retry_outbox_fkey FOREIGN KEY (outbox) REFERENCES tube.tube_outbox(outbox) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_parked_document
    ADD CONSTRAINT tube_parked_document_park_id_fkey FOREIGN KEY (park_id) REFERENCES tube.tube_parked(park_id) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_parked
    ADD CONSTRAINT tube_parked_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_paused
    ADD CONSTRAINT tube_paused_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_registry
    ADD CONSTRAINT tube_registry_companion_of_fkey FOREIGN KEY (companion_of) REFERENCES tube.tube_registry(tube);

ALTER TABLE ONLY tube.tube_sample
    ADD CONSTRAINT tube_sample_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_sink
    ADD CONSTRAINT tube_sink_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_sleeper
    ADD CONSTRAINT tube_sleeper_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_step
    ADD CONSTRAINT tube_step_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

ALTER TABLE ONLY tube.tube_unverified
    ADD CONSTRAINT tube_unverified_tube_fkey FOREIGN KEY (tube) REFERENCES tube.tube_registry(tube) ON DELETE CASCADE;

GRANT USAGE ON SCHEMA tube TO PUBLIC;

REVOKE ALL ON FUNCTION tube.outbox_adopt(outbox text, tbl regclass, partitions integer, wake boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_adopt(outbox text, tbl regclass, partitions integer, wake boolean) TO tube_admin;

REVOKE ALL ON FUNCTION tube.outbox_drop(outbox text, force boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_drop(outbox text, force boolean) TO tube_admin;

REVOKE ALL ON FUNCTION tube.outbox_ensure_absent(in_outbox text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_ensure_absent(in_outbox text) TO tube_admin;

REVOKE ALL ON FUNCTION tube.outbox_ensure_exists(outbox text, partitions integer, value_type regtype) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_ensure_exists(outbox text, partitions integer, value_type regtype) TO tube_admin;

REVOKE ALL ON FUNCTION tube.outbox_identity(outbox text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_identity(outbox text) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_identity(outbox text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.outbox_index_sql(outbox text, partitions integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_index_sql(outbox text, partitions integer) TO tube_admin;

REVOKE ALL ON FUNCTION tube.outbox_list() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_list() TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_list() TO tube_worker;
GRANT ALL ON FUNCTION tube.outbox_list() TO tube_writer;
GRANT ALL ON FUNCTION tube.outbox_list() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.outbox_parked(in_outbox text, in_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_parked(in_outbox text, in_limit integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_parked(in_outbox text, in_limit integer) TO tube_worker;
GRANT ALL ON FUNCTION tube.outbox_parked(in_outbox text, in_limit integer) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.outbox_parked_drop(outbox text, ids bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_parked_drop(outbox text, ids bigint[]) TO tube_admin;

REVOKE ALL ON FUNCTION tube.outbox_records_mark(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, floor bigint, settled_floor bigint, long_writers xid8[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_records_mark(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, floor bigint, settled_floor bigint, long_writers xid8[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_records_mark(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, floor bigint, settled_floor bigint, long_writers xid8[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.outbox_records_mark_around(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, ids bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_records_mark_around(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, ids bigint[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_records_mark_around(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, ids bigint[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.outbox_records_park(outbox text, partitions integer, partition integer, leader_id uuid, items jsonb, hold boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_records_park(outbox text, partitions integer, partition integer, leader_id uuid, items jsonb, hold boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_records_park(outbox text, partitions integer, partition integer, leader_id uuid, items jsonb, hold boolean) TO tube_worker;

REVOKE ALL ON FUNCTION tube.outbox_records_park_topic(outbox text, partitions integer, partition integer, leader_id uuid, topic text, error text, ids bigint[], hold boolean, records_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_records_park_topic(outbox text, partitions integer, partition integer, leader_id uuid, topic text, error text, ids bigint[], hold boolean, records_limit integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_records_park_topic(outbox text, partitions integer, partition integer, leader_id uuid, topic text, error text, ids bigint[], hold boolean, records_limit integer) TO tube_worker;

REVOKE ALL ON FUNCTION tube.outbox_records_purge(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_records_purge(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_records_purge(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.outbox_records_purge_sent(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[], created_until timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_records_purge_sent(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[], created_until timestamp with time zone) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_records_purge_sent(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[], created_until timestamp with time zone) TO tube_worker;

REVOKE ALL ON FUNCTION tube.outbox_records_reset(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_records_reset(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_records_reset(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.outbox_resting(in_outbox text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_resting(in_outbox text) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_resting(in_outbox text) TO tube_worker;
GRANT ALL ON FUNCTION tube.outbox_resting(in_outbox text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.outbox_retry(outbox text, ids bigint[], topic text, key text, in_seen pg_snapshot, in_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_retry(outbox text, ids bigint[], topic text, key text, in_seen pg_snapshot, in_limit integer) TO tube_admin;

REVOKE ALL ON FUNCTION tube.outbox_stash(outbox text, topic text, key text, value bytea, headers jsonb, partition_key text, in_order boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_stash(outbox text, topic text, key text, value bytea, headers jsonb, partition_key text, in_order boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_stash(outbox text, topic text, key text, value bytea, headers jsonb, partition_key text, in_order boolean) TO tube_writer;

REVOKE ALL ON FUNCTION tube.outbox_stash(outbox text, topic text, key text, value text, headers jsonb, partition_key text, in_order boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_stash(outbox text, topic text, key text, value text, headers jsonb, partition_key text, in_order boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_stash(outbox text, topic text, key text, value text, headers jsonb, partition_key text, in_order boolean) TO tube_writer;

REVOKE ALL ON FUNCTION tube.outbox_stash_many(outbox text, topics text[], keys text[], bodies text[], headers jsonb, partition_keys text[], in_order boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_stash_many(outbox text, topics text[], keys text[], bodies text[], headers jsonb, partition_keys text[], in_order boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_stash_many(outbox text, topics text[], keys text[], bodies text[], headers jsonb, partition_keys text[], in_order boolean) TO tube_writer;

REVOKE ALL ON FUNCTION tube.outbox_stash_many_bytea(outbox text, topics text[], keys text[], bodies bytea[], headers jsonb, partition_keys text[], in_order boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_stash_many_bytea(outbox text, topics text[], keys text[], bodies bytea[], headers jsonb, partition_keys text[], in_order boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_stash_many_bytea(outbox text, topics text[], keys text[], bodies bytea[], headers jsonb, partition_keys text[], in_order boolean) TO tube_writer;

REVOKE ALL ON FUNCTION tube.outbox_stats() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_stats() TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_stats() TO tube_worker;
GRANT ALL ON FUNCTION tube.outbox_stats() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.outbox_topic_park(outbox text, topic text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_topic_park(outbox text, topic text) TO tube_admin;

REVOKE ALL ON FUNCTION tube.outbox_topics_rest(outbox text, partitions integer, partition integer, leader_id uuid, topics jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.outbox_topics_rest(outbox text, partitions integer, partition integer, leader_id uuid, topics jsonb) TO tube_admin;
GRANT ALL ON FUNCTION tube.outbox_topics_rest(outbox text, partitions integer, partition integer, leader_id uuid, topics jsonb) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_applied() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_applied() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_applied() TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_applied() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_applied_attached(tube text, tbl regclass) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_applied_attached(tube text, tbl regclass) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_applied_set(tube text, digest text, made boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_applied_set(tube text, digest text, made boolean) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_as_caller(in_search_path text, first text, statement text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_as_caller(in_search_path text, first text, statement text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_as_caller(in_search_path text, first text, statement text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_as_caller(in_search_path text, first text, statement text) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_attempts_reset(tube text, in_partition integer, in_shard integer, in_key text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_attempts_reset(tube text, in_partition integer, in_shard integer, in_key text) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_audit_add(action text, tube text, details jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_audit_add(action text, tube text, details jsonb) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_audit_add(action text, tube text, details jsonb) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_audit_add(action text, tube text, details jsonb) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_audit_list(in_tube text, in_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_audit_list(in_tube text, in_limit integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_audit_list(in_tube text, in_limit integer) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_audit_list(in_tube text, in_limit integer) TO tube_monitor;

GRANT SELECT ON TABLE tube.tube_backfill TO tube_admin;
GRANT SELECT ON TABLE tube.tube_backfill TO tube_worker;
GRANT SELECT ON TABLE tube.tube_backfill TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_backfill_chunk(backfill_id bigint, pods integer, rate double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_chunk(backfill_id bigint, pods integer, rate double precision) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_chunk(backfill_id bigint, pods integer, rate double precision) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_collect(backfill_id bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_collect(backfill_id bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_collect(backfill_id bigint) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_command(backfill_id bigint, command text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_command(backfill_id bigint, command text) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_backfill_create(tube text, tbl regclass, order_col text, supersede boolean, by_worker boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_create(tube text, tbl regclass, order_col text, supersede boolean, by_worker boolean) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_backfill_holders(xids text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_holders(xids text[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_holders(xids text[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_join(backfill_id bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_join(backfill_id bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_join(backfill_id bigint) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_list(in_tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_list(in_tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_list(in_tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_backfill_list(in_tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_backfill_lock(backfill_id bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_lock(backfill_id bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_lock(backfill_id bigint) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_note(backfill_id bigint, note text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_note(backfill_id bigint, note text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_note(backfill_id bigint, note text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_pressure(tube text, pods_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_pressure(tube text, pods_limit integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_pressure(tube text, pods_limit integer) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_range(backfill_id bigint, unit integer, rate double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_range(backfill_id bigint, unit integer, rate double precision) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_range(backfill_id bigint, unit integer, rate double precision) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_schedule(in_tube text, order_col text, shard_from integer, shard_to integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_schedule(in_tube text, order_col text, shard_from integer, shard_to integer) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_backfill_split(backfill_id bigint, ranges integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_split(backfill_id bigint, ranges integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_split(backfill_id bigint, ranges integer) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_step1() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_step1() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_step1() TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_step2(timeout interval) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_step2(timeout interval) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_step2(timeout interval) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_step3(step1 text, tube text, tbl regclass, order_col text, shard integer, fetch_chunk_size integer, insert_chunk_size integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_step3(step1 text, tube text, tbl regclass, order_col text, shard integer, fetch_chunk_size integer, insert_chunk_size integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_step3(step1 text, tube text, tbl regclass, order_col text, shard integer, fetch_chunk_size integer, insert_chunk_size integer) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_take(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_take(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_take(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_tidy() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_tidy() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_tidy() TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_unlock(backfill_id bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_unlock(backfill_id bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_unlock(backfill_id bigint) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_backfill_waiting(backfill_id bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_backfill_waiting(backfill_id bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_backfill_waiting(backfill_id bigint) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_backfill_waiting(backfill_id bigint) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_channel(tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_channel(tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_channel(tube text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_companion_ensure(tube text, companion text, key_type regtype) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_companion_ensure(tube text, companion text, key_type regtype) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_companions(tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_companions(tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_companions(tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_companions(tube text) TO tube_writer;
GRANT ALL ON FUNCTION tube.tube_companions(tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_delivered_channel(tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_delivered_channel(tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_delivered_channel(tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_delivered_channel(tube text) TO tube_writer;
GRANT ALL ON FUNCTION tube.tube_delivered_channel(tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_delivered_parked(tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_delivered_parked(tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_delivered_parked(tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_delivered_parked(tube text) TO tube_writer;
GRANT ALL ON FUNCTION tube.tube_delivered_parked(tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_delivered_watch(tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_delivered_watch(tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_delivered_watch(tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_delivered_watch(tube text) TO tube_writer;
GRANT ALL ON FUNCTION tube.tube_delivered_watch(tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_document_declare(tube text, digest text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_document_declare(tube text, digest text) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_document_touch(tube text, op text, ids anyarray) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_document_touch(tube text, op text, ids anyarray) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_document_touch(tube text, op text, ids anyarray) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_documents() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_documents() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_documents() TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_documents() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_drop(tube text, force boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_drop(tube text, force boolean) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_ensure_absent(in_tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_ensure_absent(in_tube text) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_ensure_exists(tube text, partitions integer, predicate text, key_type regtype) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_ensure_exists(tube text, partitions integer, predicate text, key_type regtype) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_failing_list() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_failing_list() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_failing_list() TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_failing_list() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_failing_note(tube text, partition integer, reason text, terms integer, seconds double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_failing_note(tube text, partition integer, reason text, terms integer, seconds double precision) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_failing_note(tube text, partition integer, reason text, terms integer, seconds double precision) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_hindered_list() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_hindered_list() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_hindered_list() TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_hindered_list() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_id_column(tbl regclass, id_col name) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_id_column(tbl regclass, id_col name) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_id_column(tbl regclass, id_col name) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_id_column(tbl regclass, id_col name) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_ids_waiting() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_ids_waiting() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_ids_waiting() TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_ids_waiting() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_index_fit() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_index_fit() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_index_fit() TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_index_sql(tube text, partitions integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_index_sql(tube text, partitions integer) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_instances(in_tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_instances(in_tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_instances(in_tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_instances(in_tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_job_begin(job_id text, tubes text[], kind text, fingerprint text, units integer, bounds text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_job_begin(job_id text, tubes text[], kind text, fingerprint text, units integer, bounds text[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_job_begin(job_id text, tubes text[], kind text, fingerprint text, units integer, bounds text[]) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_job_done(job_id text, unit integer, rows bigint, ids bigint, pods bigint, shards integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_job_done(job_id text, unit integer, rows bigint, ids bigint, pods bigint, shards integer[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_job_done(job_id text, unit integer, rows bigint, ids bigint, pods bigint, shards integer[]) TO tube_writer;

GRANT SELECT ON TABLE tube.tube_job TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_job_finish(job_id text, attempts uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_job_finish(job_id text, attempts uuid[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_job_finish(job_id text, attempts uuid[]) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_job_forget(job_id text, before timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_job_forget(job_id text, before timestamp with time zone) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_job_forget(job_id text, before timestamp with time zone) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_job_list(in_job text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_job_list(in_job text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_job_list(in_job text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_job_list(in_job text) TO tube_writer;
GRANT ALL ON FUNCTION tube.tube_job_list(in_job text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_job_units(job_id text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_job_units(job_id text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_job_units(job_id text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_job_units(job_id text) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_kafka_back() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_kafka_back() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_kafka_back() TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_kafka_back() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_kafka_report(instance_id uuid, client_id text, unreachable jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_kafka_report(instance_id uuid, client_id text, unreachable jsonb) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_kafka_report(instance_id uuid, client_id text, unreachable jsonb) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_kafka_unreachable() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_kafka_unreachable() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_kafka_unreachable() TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_kafka_unreachable() TO tube_monitor;

GRANT ALL ON FUNCTION tube.tube_key_part(key text, place integer) TO tube_admin;

GRANT ALL ON FUNCTION tube.tube_key_types(tbl regclass, columns name[]) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_keys_as_caller(in_search_path text, first text, statement text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_keys_as_caller(in_search_path text, first text, statement text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_keys_as_caller(in_search_path text, first text, statement text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_keys_as_caller(in_search_path text, first text, statement text) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_keys_put(tube_or_tubes text, shard integer, op text, keys text[], chunk_size integer, last boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_keys_put(tube_or_tubes text, shard integer, op text, keys text[], chunk_size integer, last boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_keys_put(tube_or_tubes text, shard integer, op text, keys text[], chunk_size integer, last boolean) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_keys_put(tube_or_tubes text, shard integer, op text, keys text[], chunk_size integer, last boolean) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_keys_waiting(tube text, up_to bigint, shards integer[], ids text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_keys_waiting(tube text, up_to bigint, shards integer[], ids text[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_keys_waiting(tube text, up_to bigint, shards integer[], ids text[]) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_keys_waiting(tube text, up_to bigint, shards integer[], ids text[]) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_leader_acquire(tube text, partitions integer, partition integer, leader_id uuid, instance_id uuid, client_id text, expected_epoch bigint, election text, hold interval, lease interval) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_leader_acquire(tube text, partitions integer, partition integer, leader_id uuid, instance_id uuid, client_id text, expected_epoch bigint, election text, hold interval, lease interval) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_leader_acquire(tube text, partitions integer, partition integer, leader_id uuid, instance_id uuid, client_id text, expected_epoch bigint, election text, hold interval, lease interval) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_leader_epoch(tube text, partitions integer, partition integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_leader_epoch(tube text, partitions integer, partition integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_leader_epoch(tube text, partitions integer, partition integer) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_leader_rebase(tube text, epoch bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_leader_rebase(tube text, epoch bigint) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_leader_release(tube text, partitions integer, partition integer, leader_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_leader_release(tube text, partitions integer, partition integer, leader_id uuid) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_leader_release(tube text, partitions integer, partition integer, leader_id uuid) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_leader_renew(tube text, partitions integer, partition integer, leader_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_leader_renew(tube text, partitions integer, partition integer, leader_id uuid) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_leader_renew(tube text, partitions integer, partition integer, leader_id uuid) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_leader_wait(tube text, partitions integer, partition integer, leader_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_leader_wait(tube text, partitions integer, partition integer, leader_id uuid) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_leader_wait(tube text, partitions integer, partition integer, leader_id uuid) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_leaders(in_tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_leaders(in_tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_leaders(in_tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_leaders(in_tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_leaders_renew(tube text, leader_ids uuid[], troubles jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_leaders_renew(tube text, leader_ids uuid[], troubles jsonb) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_leaders_renew(tube text, leader_ids uuid[], troubles jsonb) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_lease_leave(tube text, instance_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_lease_leave(tube text, instance_id uuid) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_lease_leave(tube text, instance_id uuid) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_lease_tick(tube text, instance_id uuid, client_id text, ttl interval) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_lease_tick(tube text, instance_id uuid, client_id text, ttl interval) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_lease_tick(tube text, instance_id uuid, client_id text, ttl interval) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_lease_ticks(tubes text[], instance_id uuid, client_id text, ttl interval) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_lease_ticks(tubes text[], instance_id uuid, client_id text, ttl interval) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_lease_ticks(tubes text[], instance_id uuid, client_id text, ttl interval) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_list(in_tbl regclass) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_list(in_tbl regclass) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_list(in_tbl regclass) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_list(in_tbl regclass) TO tube_writer;
GRANT ALL ON FUNCTION tube.tube_list(in_tbl regclass) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_load(in_most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_load(in_most integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_load(in_most integer) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_load(in_most integer) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_park_count(in_tube text, in_shard integer, in_key text, in_error text, in_older interval) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_park_count(in_tube text, in_shard integer, in_key text, in_error text, in_older interval) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_park_count(in_tube text, in_shard integer, in_key text, in_error text, in_older interval) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_park_count(in_tube text, in_shard integer, in_key text, in_error text, in_older interval) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_park_drop(tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, in_seen pg_snapshot, in_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_park_drop(tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, in_seen pg_snapshot, in_limit integer) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_park_list(in_tube text, in_limit integer, in_shard integer, in_key text, in_error text, in_older interval) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_park_list(in_tube text, in_limit integer, in_shard integer, in_key text, in_error text, in_older interval) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_park_list(in_tube text, in_limit integer, in_shard integer, in_key text, in_error text, in_older interval) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_park_list(in_tube text, in_limit integer, in_shard integer, in_key text, in_error text, in_older interval) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_park_retry(tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, in_seen pg_snapshot, in_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_park_retry(tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, in_seen pg_snapshot, in_limit integer) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_pause(tube text, in_partition integer, lasts interval, reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pause(tube text, in_partition integer, lasts interval, reason text) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_pause_list(in_tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pause_list(in_tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pause_list(in_tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_pause_list(in_tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_pause_reason(tube text, partitions integer, partition integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pause_reason(tube text, partitions integer, partition integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pause_reason(tube text, partitions integer, partition integer) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_pods_ack(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_ack(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_pods_count(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_count(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_count(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_pods_count(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_pods_delete(tube text, partitions integer, partition integer, seqs bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_delete(tube text, partitions integer, partition integer, seqs bigint[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_delete(tube text, partitions integer, partition integer, seqs bigint[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_pods_fail(tube text, partitions integer, partition integer, leader_id uuid, items jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_fail(tube text, partitions integer, partition integer, leader_id uuid, items jsonb) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_fail(tube text, partitions integer, partition integer, leader_id uuid, items jsonb) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_pods_insert(tube_or_tubes text, query text, shard integer, op character, approx_size bigint, fetch_chunk_size integer, insert_chunk_size integer, in_search_path text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_insert(tube_or_tubes text, query text, shard integer, op character, approx_size bigint, fetch_chunk_size integer, insert_chunk_size integer, in_search_path text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_insert(tube_or_tubes text, query text, shard integer, op character, approx_size bigint, fetch_chunk_size integer, insert_chunk_size integer, in_search_path text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_pods_insert(tube_or_tubes text, query text, shard integer, op character, approx_size bigint, fetch_chunk_size integer, insert_chunk_size integer, in_search_path text) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_pods_list(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer, in_keys integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_list(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer, in_keys integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_list(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer, in_keys integer) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_pods_list(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer, in_keys integer) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_pods_mark(tube text, partitions integer, partition integer, leader_id uuid, pods_limit integer, floor bigint, backfill_floor bigint, exclude_backfill boolean, done bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_mark(tube text, partitions integer, partition integer, leader_id uuid, pods_limit integer, floor bigint, backfill_floor bigint, exclude_backfill boolean, done bigint[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_mark(tube text, partitions integer, partition integer, leader_id uuid, pods_limit integer, floor bigint, backfill_floor bigint, exclude_backfill boolean, done bigint[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_pods_of(tube text, shard integer, id text, most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_of(tube text, shard integer, id text, most integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_of(tube text, shard integer, id text, most integer) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_pods_of(tube text, shard integer, id text, most integer) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_pods_park(tube text, partitions integer, partition integer, leader_id uuid, items jsonb, in_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_park(tube text, partitions integer, partition integer, leader_id uuid, items jsonb, in_limit integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_park(tube text, partitions integer, partition integer, leader_id uuid, items jsonb, in_limit integer) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_pods_purge(tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_purge(tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_purge(tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_pods_put(tube_or_tubes text, shard integer, op text, ids bigint[], chunk_size integer, last boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_put(tube_or_tubes text, shard integer, op text, ids bigint[], chunk_size integer, last boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_put(tube_or_tubes text, shard integer, op text, ids bigint[], chunk_size integer, last boolean) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_pods_put(tube_or_tubes text, shard integer, op text, ids bigint[], chunk_size integer, last boolean) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_pods_reset(tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_reset(tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_reset(tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_pods_retry(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_retry(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_pods_sql(tube text, partitions integer, partition integer, exclude_backfill boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_sql(tube text, partitions integer, partition integer, exclude_backfill boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_sql(tube text, partitions integer, partition integer, exclude_backfill boolean) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_pods_stop(tube text, partitions integer, partition integer, leader_id uuid, why text, reason text, items jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_stop(tube text, partitions integer, partition integer, leader_id uuid, why text, reason text, items jsonb) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_stop(tube text, partitions integer, partition integer, leader_id uuid, why text, reason text, items jsonb) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_pods_unpark(tube text, partitions integer, partition integer, leader_id uuid, shards integer[], ids text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_pods_unpark(tube text, partitions integer, partition integer, leader_id uuid, shards integer[], ids text[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_pods_unpark(tube text, partitions integer, partition integer, leader_id uuid, shards integer[], ids text[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_add_tube(tube text, partitions integer, predicate text, key_type regtype, companion_of text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_adopt(outbox text, tbl regclass, partitions integer, wake boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_adopt(outbox text, tbl regclass, partitions integer, wake boolean) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_adoption_fault(tbl regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_adoption_rights(outbox text, tbl regclass, OUT worker name, OUT statements text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_adoption_rights(outbox text, tbl regclass, OUT worker name, OUT statements text[]) TO tube_admin;

GRANT SELECT ON TABLE tube.tube_attachment TO tube_admin;
GRANT SELECT ON TABLE tube.tube_attachment TO tube_worker;
GRANT SELECT ON TABLE tube.tube_attachment TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_private_ask_backfill(att tube.tube_attachment, why text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_ask_once(tube text, shard integer, root text, order_col name) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_ask_owner(att tube.tube_attachment, statement text, rel regclass, late boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_attach(tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean, key_cols name[], shard_by name) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_attach(tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean, key_cols name[], shard_by name) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_attachment(tube text, tbl regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_attachment_now(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_attachments_with(tube text, predicate text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_audit_parked(action text, tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, keys text[], count integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_audit_pods(action text, tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, pods integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_backfill_count_ends(backfill_id bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_backfill_fault(backfill tube.tube_backfill) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_backfill_key(backfill_id bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_backfill_sql(backfill tube.tube_backfill, att tube.tube_attachment, within text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_backfills_at_end(tube text, seqs bigint[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_base_type(type oid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_begin_around(outbox text, partitions integer, partition integer, leader_id uuid, OUT tbl text, OUT free text, OUT choose text, OUT locked text, OUT mark text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_begin_around(outbox text, partitions integer, partition integer, leader_id uuid, OUT tbl text, OUT free text, OUT choose text, OUT locked text, OUT mark text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_begin_around(outbox text, partitions integer, partition integer, leader_id uuid, OUT tbl text, OUT free text, OUT choose text, OUT locked text, OUT mark text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_begin_attach(tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean, key_cols name[], shard_by name, OUT was tube.tube_attachment, OUT wanted tube.tube_attachment, OUT differs boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_begin_attach(tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean, key_cols name[], shard_by name, OUT was tube.tube_attachment, OUT wanted tube.tube_attachment, OUT differs boolean) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_begin_change(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[], OUT tbl text, OUT condition text, OUT part text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_begin_change(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[], OUT tbl text, OUT condition text, OUT part text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_begin_change(outbox text, partitions integer, partition integer, leader_id uuid, ids bigint[], OUT tbl text, OUT condition text, OUT part text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_begin_collect(backfill_id bigint, OUT statement text, OUT tbl regclass, OUT table_name text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_begin_collect(backfill_id bigint, OUT statement text, OUT tbl regclass, OUT table_name text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_begin_collect(backfill_id bigint, OUT statement text, OUT tbl regclass, OUT table_name text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_begin_mark(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, floor bigint, passed boolean, OUT mark text, OUT ids bigint[], OUT again text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_begin_mark(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, floor bigint, passed boolean, OUT mark text, OUT ids bigint[], OUT again text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_begin_mark(outbox text, partitions integer, partition integer, leader_id uuid, records_limit integer, floor bigint, passed boolean, OUT mark text, OUT ids bigint[], OUT again text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_begin_range(backfill_id bigint, unit integer, OUT statement text, OUT tbl regclass, OUT table_name text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_begin_range(backfill_id bigint, unit integer, OUT statement text, OUT tbl regclass, OUT table_name text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_begin_range(backfill_id bigint, unit integer, OUT statement text, OUT tbl regclass, OUT table_name text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_begin_split(backfill_id bigint, ranges integer, OUT query text, OUT tbl regclass, OUT table_name text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_begin_split(backfill_id bigint, ranges integer, OUT query text, OUT tbl regclass, OUT table_name text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_begin_split(backfill_id bigint, ranges integer, OUT query text, OUT tbl regclass, OUT table_name text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_begin_step3(step1 text, tube text, tbl regclass, order_col text, shard integer, OUT query text, OUT first integer, OUT size bigint, OUT table_name text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_begin_step3(step1 text, tube text, tbl regclass, order_col text, shard integer, OUT query text, OUT first integer, OUT size bigint, OUT table_name text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_begin_step3(step1 text, tube text, tbl regclass, order_col text, shard integer, OUT query text, OUT first integer, OUT size bigint, OUT table_name text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_begin_sync(tube text, tbl regclass) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_begin_sync(tube text, tbl regclass) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_begin_sync(tube text, tbl regclass) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_bound_sql(row_name text, col name, type oid, bound oid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_briefly(statements text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_briefly(statements text[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_briefly(statements text[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_bring_in_line(att tube.tube_attachment, late boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_bring_in_line(att tube.tube_attachment, late boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_bring_in_line(att tube.tube_attachment, late boolean) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_capture_body(att tube.tube_attachment, is_root boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_capture_name(tube text, tbl regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_capture_schema() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_capture_schema() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_capture_schema() TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_change_pods(change text, tube text, partitions integer, partition integer, leader_id uuid, seqs bigint[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_check_ids(ids anyarray) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_check_items(items jsonb) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_check_limit(in_limit integer, at_least integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_check_messages(topics integer, keys integer, bodies integer, headers jsonb, partition_keys integer, wrong_topic text, missing boolean, homeless boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_check_messages(topics integer, keys integer, bodies integer, headers jsonb, partition_keys integer, wrong_topic text, missing boolean, homeless boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_check_messages(topics integer, keys integer, bodies integer, headers jsonb, partition_keys integer, wrong_topic text, missing boolean, homeless boolean) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_private_check_partition(tube text, partitions integer, partition integer) FROM PUBLIC;

GRANT SELECT ON TABLE tube.tube_registry TO tube_admin;
GRANT SELECT ON TABLE tube.tube_registry TO tube_worker;
GRANT SELECT ON TABLE tube.tube_registry TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_private_check_pods(tube text, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_check_shard_by(att tube.tube_attachment, shard_by name) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_check_shards(tube text, partitions integer, partition integer, items jsonb) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_check_term(leader_id uuid, instance_id uuid, client_id text, election text, hold interval, lease interval) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_check_touch(shard integer, ids anyarray, op text, chunk_size integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_check_tube(tube text, partitions integer, present regtype, wanted regtype) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_choose_parked(outbox text, ids bigint[], topic text, key text, in_seen pg_snapshot, in_limit integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_class_sql(reg tube.tube_registry) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_classes_sql(reg tube.tube_registry, most integer, ends boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_close_capture() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_close_capture() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_close_capture() TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_columns(tbl regclass, columns name[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_complete(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_control_waits(tube text, first integer, shards integer, types text[], of_step3 boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_cursor_error(statement text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_drop(tube text, force boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_drop_former(digest text, VARIADIC kept tube.tube_attachment[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_drop_outbox(outbox text, force boolean, OUT needed text[], OUT wanted text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_drop_outbox(outbox text, force boolean, OUT needed text[], OUT wanted text[]) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_drop_parked(outbox text, ids bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_drop_parked(outbox text, ids bigint[]) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_drop_routines(att tube.tube_attachment, owner regrole) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_drop_stored() FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_drop_touch(gone tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_drop_unbound(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_each_once(names name[], others name[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_end_backfill(backfill tube.tube_backfill, outcome text, note text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_end_collect(backfill_id bigint, pods bigint, wrong text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_end_collect(backfill_id bigint, pods bigint, wrong text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_end_collect(backfill_id bigint, pods bigint, wrong text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_end_job(job tube.tube_job) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_end_range(backfill_id bigint, unit integer, ids bigint, pods bigint, touched integer[], rate double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_end_range(backfill_id bigint, unit integer, ids bigint, pods bigint, touched integer[], rate double precision) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_end_range(backfill_id bigint, unit integer, ids bigint, pods bigint, touched integer[], rate double precision) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_end_split(backfill_id bigint, bounds text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_end_split(backfill_id bigint, bounds text[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_end_split(backfill_id bigint, bounds text[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_end_step3(step1 text, tube text, tbl regclass, first integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_end_step3(step1 text, tube text, tbl regclass, first integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_end_step3(step1 text, tube text, tbl regclass, first integer) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_end_terms(tube text, partition integer, outcome text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_ensure_tube(tube text, partitions integer, predicate text, key_type regtype) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_ensure_tube(tube text, partitions integer, predicate text, key_type regtype) TO tube_admin;

GRANT SELECT ON TABLE tube.tube_outbox TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_enter_outbox(outbox text, partitions integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_fill(template text, fragments jsonb) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_fit_index(queue text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_flag_sql(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_follow_columns(tube text, tbl regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_follow_ddl() FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_follow_key(was tube.tube_attachment, now tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_follow_members(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_follow_root(gone tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_forget(tube text, tables regclass[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_forget_failures(reg tube.tube_registry, places tid[], in_key text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_forget_rest(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_free_parked(outbox text, ids bigint[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_free_partitions(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_full_xid(xid xid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_function(att tube.tube_attachment, kind text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_function_ddl(name text, types text, arguments text, returns text, path boolean, body text, owner regrole, callers regrole[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_guard(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_hold_parked(in_tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, in_seen pg_snapshot, only_new boolean, in_limit integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_hold_pods(reg tube.tube_registry, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text, in_limit integer, only_free boolean, OUT free tid[], OUT flying tid[], OUT first_flying bigint, OUT of_client text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_hold_term(tube text, partitions integer, partition integer, leader_id uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_holders(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_holds_backfill(backfill_id bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_id_sql(att tube.tube_attachment, row_name text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_in_flight(leader_id uuid, seq bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_index(queue text, partitions integer, OUT name text, OUT ddl text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_index_of(tube text, partitions integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_indexes(queue text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_inserting_attachment(backfill tube.tube_backfill) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_is_fresh(rel oid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_is_root(att tube.tube_attachment) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_is_root(att tube.tube_attachment) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_is_swept(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_keep_note(tube text, at_least bigint, id uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_keeps_plans(tube text, partitions integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_kept_key(reg tube.tube_registry, in_key text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_key_attnums(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_key_fault(tbl regclass, keys name[], key_type regtype, OUT fault text, OUT remedy text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_key_fits(column_type oid, key_type regtype) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_key_is_unique(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_key_label(att tube.tube_attachment) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_key_label(att tube.tube_attachment) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_key_texts(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_key_type(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_key_types(key_type regtype) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_keys(tbl regclass, id_col name, key_cols name[], key_type regtype) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_least_seq(tube text, partitions integer, partition integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_lock_backfill(backfill_id bigint, held boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_lock_job(job_id text, alone boolean, of_backfill boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_lock_parked(outbox text, partitions integer, partition integer, leader_id uuid, OUT tbl text, OUT key text, OUT slot text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_lock_parked(outbox text, partitions integer, partition integer, leader_id uuid, OUT tbl text, OUT key text, OUT slot text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_lock_parked(outbox text, partitions integer, partition integer, leader_id uuid, OUT tbl text, OUT key text, OUT slot text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_lock_touch(tbl regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_login() FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_lost_note(note text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_make(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_make_flag(reg tube.tube_registry) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_make_outbox(outbox text, value_type regtype) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_make_touch(name text, types text, arguments text, body text, callers regrole[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_mark_sql(tube text, partitions integer, partition integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_masked(text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_may_notify() FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_member_oids(tbl regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_members(tbl regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_name(stem text, ending text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_next_index(reg tube.tube_registry, partitions integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_one_id_body(att tube.tube_attachment, is_partitioned boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_op_of_sides() FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_op_sql(op text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_open_capture(tbl regclass) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_open_capture(tbl regclass) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_open_capture(tbl regclass) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_open_schema(schema regnamespace, worker name) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_open_schema(schema regnamespace, worker name) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_order_column(tbl regclass, order_col text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_our_ddl(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_outbox_fence(outbox text, partitions integer, partition integer, leader_id uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_outbox_figures(records text, outbox text, OUT count text, OUT min_id bigint, OUT max_id bigint, OUT min_create_time timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_outbox_figures(records text, outbox text, OUT count text, OUT min_id bigint, OUT max_id bigint, OUT min_create_time timestamp with time zone) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_outbox_figures(records text, outbox text, OUT count text, OUT min_id bigint, OUT max_id bigint, OUT min_create_time timestamp with time zone) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_private_outbox_figures(records text, outbox text, OUT count text, OUT min_id bigint, OUT max_id bigint, OUT min_create_time timestamp with time zone) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_private_outbox_key(adopted boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_outbox_part(adopted boolean, partitions integer, partition integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_outbox_parts(outbox text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_outbox_parts(outbox text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_outbox_parts(outbox text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_private_outbox_parts(outbox text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_private_outbox_slot(adopted boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_outbox_table(box tube.tube_outbox) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_outbox_target(outbox text, OUT tbl text, OUT value_type text, OUT adopted boolean, OUT locks bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_outbox_target(outbox text, OUT tbl text, OUT value_type text, OUT adopted boolean, OUT locks bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_outbox_target(outbox text, OUT tbl text, OUT value_type text, OUT adopted boolean, OUT locks bigint) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_private_outbox_trigger(reg tube.tube_registry, tbl text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_outbox_wake() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_outbox_wake() TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_owner_ddl(att tube.tube_attachment, is_owner boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_owner_ddl(att tube.tube_attachment, is_owner boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_owner_ddl(att tube.tube_attachment, is_owner boolean) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_owner_of(tbl regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_page_runs(tbl regclass, cuts bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_page_runs(tbl regclass, cuts bigint[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_page_runs(tbl regclass, cuts bigint[]) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_private_page_runs(tbl regclass, cuts bigint[]) TO tube_monitor;

GRANT SELECT ON TABLE tube.tube_parked TO tube_admin;
GRANT SELECT ON TABLE tube.tube_parked TO tube_worker;
GRANT SELECT ON TABLE tube.tube_parked TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_private_parked(in_tube text, in_shard integer, in_key text, in_error text, in_before timestamp with time zone, in_seen pg_snapshot) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_parked_key(in_tube text, in_key text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_parked_lock(outbox text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_parse_predicate(tube text, predicate text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_passes_call(att tube.tube_attachment, row_name text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_passes_ddl(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_passes_sql(att tube.tube_attachment, row_name text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_patiently(statements text[], what text, attempts integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_patiently(statements text[], what text, attempts integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_patiently(statements text[], what text, attempts integer) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_pause_of(in_tube text, in_partitions integer, in_partition integer, OUT reason text, OUT kind text, OUT until timestamp with time zone) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_planned(tube text, what text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_pod_ranges(reg tube.tube_registry, in_partition integer, in_from bigint, in_to bigint, in_shard integer, in_key text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_pod_with(reg tube.tube_registry, in_seq bigint, in_shard integer, in_key text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_pods_where(tube text, partitions integer, partition integer, dense boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_predicate_columns(tbl regclass, predicate text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_predicate_columns(tbl regclass, predicate text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_predicate_columns(tbl regclass, predicate text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_provide(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_provide_outbox(outbox text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_provide_planned(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_provide_touch(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_provide_tube(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_prune(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_put(tube_or_tubes text, shard integer, op text, ids anyarray, chunk_size integer, last boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_put_body(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_put_control(type text, backfill tube.tube_backfill) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_put_control_pods(tube text, op text, payload jsonb, shards integer[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_put_ids(tube text, shard integer, op text, ids anyarray, chunk_size integer, payload jsonb, once boolean, OUT pods bigint, OUT is_lonely boolean, OUT touched integer[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_put_parked(outbox text, partitions integer, partition integer, leader_id uuid, items jsonb, records jsonb, hold boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_put_parked(outbox text, partitions integer, partition integer, leader_id uuid, items jsonb, records jsonb, hold boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_put_parked(outbox text, partitions integer, partition integer, leader_id uuid, items jsonb, records jsonb, hold boolean) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_put_schedule(tube text, shard integer, table_name text, order_col name, resync boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_qualify(name text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_range(tube text, tbl regclass, shard integer, shards integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_range_sql(tbl regclass, col name, bounds text[], unit integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_record_columns(box tube.tube_outbox, parks boolean, retried boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_refilled(tube text, since timestamp with time zone, finished boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_refuse_backfill(att tube.tube_attachment, other text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_refuse_job(job tube.tube_job) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_refuse_loss(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_refuse_predicate(tube text, tbl regclass, predicate text, reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_refuse_predicate(tube text, tbl regclass, predicate text, reason text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_refuse_predicate(tube text, tbl regclass, predicate text, reason text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_refuse_records(outbox text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_refuse_renamed(tbl regclass, table_name text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_refuse_renamed(tbl regclass, table_name text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_refuse_renamed(tbl regclass, table_name text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_refuse_shard(tube text, shard integer, ids anyarray) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_refuse_table(tbl regclass) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_refuse_table(tbl regclass) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_refuse_touch(tbl regclass, other oid) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_refuse_touch(tbl regclass, other oid) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_refuse_touch(tbl regclass, other oid) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_remove_key(reg tube.tube_registry, places tid[], in_key text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_repartition(tube text, partitions integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_repartition_outbox(outbox text, partitions integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_require(name text, kind text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_require(name text, kind text) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_require_main(tube text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_require_outbox(outbox text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_rescue_links(gone tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_resync(tube text, name text, table_name text, shard integer, shards integer, rows_went boolean, companion_of text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_resync_documents(tube text, table_name text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_role(kind text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_role_sql(role oid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_routines(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_row_body(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_rows_estimate(tbl regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_run_owner_ddl(statements text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_run_owner_ddl(statements text[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_run_owner_ddl(statements text[]) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_schema() FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_see_rewrite() FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_session_op(op text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_set_flag() FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_set_predicate(tube text, predicate text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_set_predicate(tube text, predicate text) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_private_shard_expression(id text, att tube.tube_attachment, of_row boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_slices(tube text, partitions integer, partition integer, OUT pods text, OUT slices text[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_some_keys(keys text[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_source(OUT system_identifier bigint, OUT timeline integer, OUT sequence oid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_source_change(seen_seq bigint, last_seq bigint, note text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_stale_attachments() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_stale_attachments() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_stale_attachments() TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_stash(outbox text, topics text[], keys text[], bodies anyarray, headers jsonb, partition_keys text[], in_order boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_stash(outbox text, topics text[], keys text[], bodies anyarray, headers jsonb, partition_keys text[], in_order boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_stash(outbox text, topics text[], keys text[], bodies anyarray, headers jsonb, partition_keys text[], in_order boolean) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_private_stash_one(outbox text, topic text, key text, value anyelement, headers jsonb, partition_key text, in_order boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_stash_one(outbox text, topic text, key text, value anyelement, headers jsonb, partition_key text, in_order boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_stash_one(outbox text, topic text, key text, value anyelement, headers jsonb, partition_key text, in_order boolean) TO tube_writer;

REVOKE ALL ON FUNCTION tube.tube_private_stats_class(reg tube.tube_registry, partition integer, class integer, most integer, OUT pods integer, OUT since timestamp with time zone, OUT min_seq bigint, OUT min_ts timestamp with time zone, OUT max_seq bigint, OUT max_ts timestamp with time zone) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_stats_controls_sql(reg tube.tube_registry) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_stats_estimates(reg tube.tube_registry) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_stats_shards(reg tube.tube_registry, partition integer, OUT shards integer, OUT list text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_store(att tube.tube_attachment, late boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_store(att tube.tube_attachment, late boolean) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_store(att tube.tube_attachment, late boolean) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_table_fault(tbl regclass, member boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_table_name(tbl oid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_take_control(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_take_retries(outbox text, partitions integer, partition integer, records_limit integer, floor bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_tell_watchers(tube text, partitions integer, partition integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_touch(tube text, shard integer, shards integer, ids anyarray, op text, payload jsonb, chunk_size integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_touch_ddl(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_touch_name(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_trigger_ddl(att tube.tube_attachment) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_try_predicate(att tube.tube_attachment) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_private_try_predicate(att tube.tube_attachment) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_private_try_predicate(att tube.tube_attachment) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_private_type_sql(type oid) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_wake_sleepers(tube text, touched integer[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_warn_lonely(tube text, shard integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_watch_lock(tube text, partition integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_private_wrong_name(name text) FROM PUBLIC;

REVOKE ALL ON FUNCTION tube.tube_relations_waiting(tube text, most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_relations_waiting(tube text, most integer) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_relations_waiting(tube text, most integer) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_relations_waiting(tube text, most integer) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_resume(tube text, in_partition integer) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_resume(tube text, in_partition integer) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_sampled(in_tube text, checked integer, differing integer, undecided integer, detail text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_sampled(in_tube text, checked integer, differing integer, undecided integer, detail text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_sampled(in_tube text, checked integer, differing integer, undecided integer, detail text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_seq_advance(beyond bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_seq_advance(beyond bigint) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_settle_done(x xid8) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_settle_done(x xid8) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_settle_done(x xid8) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_settle_holders(tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_settle_holders(tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_settle_holders(tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_settle_holders(tube text) TO tube_writer;
GRANT ALL ON FUNCTION tube.tube_settle_holders(tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_settle_left(tube text, holders text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_settle_left(tube text, holders text[]) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_settle_left(tube text, holders text[]) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_settle_left(tube text, holders text[]) TO tube_writer;
GRANT ALL ON FUNCTION tube.tube_settle_left(tube text, holders text[]) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_settle_seq() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_settle_seq() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_settle_seq() TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_settle_seq() TO tube_writer;
GRANT ALL ON FUNCTION tube.tube_settle_seq() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_settle_writers(tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_settle_writers(tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_settle_writers(tube text) TO tube_worker;

GRANT ALL ON FUNCTION tube.tube_shard_of(id bigint, shard integer, shards integer) TO tube_admin;

GRANT ALL ON FUNCTION tube.tube_shard_of(id text, shard integer, shards integer) TO tube_admin;

GRANT ALL ON FUNCTION tube.tube_shard_of(id uuid, shard integer, shards integer) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_sink_accept(tube text, before timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_sink_accept(tube text, before timestamp with time zone) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_sink_accept(tube text, before timestamp with time zone) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_sink_list() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_sink_list() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_sink_list() TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_sink_list() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_sink_note(tube text, held text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_sink_note(tube text, held text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_sink_note(tube text, held text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_sleep(tube text, partitions integer, partition integer, leader_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_sleep(tube text, partitions integer, partition integer, leader_id uuid) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_sleep(tube text, partitions integer, partition integer, leader_id uuid) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_source_check(seen_seq bigint, note text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_source_check(seen_seq bigint, note text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_source_check(seen_seq bigint, note text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_source_note(in_tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_source_note(in_tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_source_note(in_tube text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_stats() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_stats() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_stats() TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_stats() TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_step_ask(tube text, seq bigint, shard integer, key text, lasts interval) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_step_ask(tube text, seq bigint, shard integer, key text, lasts interval) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_step_cancel(in_step bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_step_cancel(in_step bigint) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_step_end(tube text, partitions integer, partition integer, leader_id uuid, in_step bigint, outcome text, error text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_step_end(tube text, partitions integer, partition integer, leader_id uuid, in_step bigint, outcome text, error text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_step_end(tube text, partitions integer, partition integer, leader_id uuid, in_step bigint, outcome text, error text) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_step_state(in_step bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_step_state(in_step bigint) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_step_take(tube text, partitions integer, partition integer, leader_id uuid, in_step bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_step_take(tube text, partitions integer, partition integer, leader_id uuid, in_step bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_step_take(tube text, partitions integer, partition integer, leader_id uuid, in_step bigint) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_stream_purge(tube text, seq bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_stream_purge(tube text, seq bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_stream_purge(tube text, seq bigint) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_sweep_end(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_sweep_end(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_sweep_end(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_sweep_ready(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_sweep_ready(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_sweep_ready(tube text, partitions integer, partition integer, leader_id uuid, shard integer, seq bigint) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_sweep_touch(tube text, partitions integer, partition integer, leader_id uuid, shard integer, ids anyarray) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_sweep_touch(tube text, partitions integer, partition integer, leader_id uuid, shard integer, ids anyarray) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_sweep_touch(tube text, partitions integer, partition integer, leader_id uuid, shard integer, ids anyarray) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_sync() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_sync() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_sync() TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_table_ensure_attached(tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean, key_cols name[], shard_by name) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_table_ensure_attached(tube text, tbl regclass, shard integer, shards integer, id_col name, columns name[], replica boolean, key_cols name[], shard_by name) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_table_ensure_detached(in_tube text, in_tbl regclass) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_table_ensure_detached(in_tube text, in_tbl regclass) TO tube_admin;

REVOKE ALL ON FUNCTION tube.tube_terms(in_tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_terms(in_tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_terms(in_tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_terms(in_tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_undelivered(tube text, up_to bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_undelivered(tube text, up_to bigint) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_undelivered(tube text, up_to bigint) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_undelivered(tube text, up_to bigint) TO tube_writer;
GRANT ALL ON FUNCTION tube.tube_undelivered(tube text, up_to bigint) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_unverified_list(in_tube text) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_unverified_list(in_tube text) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_unverified_list(in_tube text) TO tube_worker;
GRANT ALL ON FUNCTION tube.tube_unverified_list(in_tube text) TO tube_monitor;

REVOKE ALL ON FUNCTION tube.tube_verified(in_tube text, action text, up_to timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_verified(in_tube text, action text, up_to timestamp with time zone) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_verified(in_tube text, action text, up_to timestamp with time zone) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_wake(tube text, partition integer, leader_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_wake(tube text, partition integer, leader_id uuid) TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_wake(tube text, partition integer, leader_id uuid) TO tube_worker;

REVOKE ALL ON FUNCTION tube.tube_wakes() FROM PUBLIC;
GRANT ALL ON FUNCTION tube.tube_wakes() TO tube_admin;
GRANT ALL ON FUNCTION tube.tube_wakes() TO tube_worker;

GRANT SELECT ON TABLE tube.tube_attempt TO tube_admin;
GRANT SELECT ON TABLE tube.tube_attempt TO tube_worker;
GRANT SELECT ON TABLE tube.tube_attempt TO tube_monitor;

GRANT SELECT ON TABLE tube.tube_audit TO tube_admin;

GRANT SELECT ON TABLE tube.tube_failing TO tube_admin;

GRANT SELECT ON TABLE tube.tube_flag TO tube_admin;

GRANT SELECT ON TABLE tube.tube_halted TO tube_admin;

GRANT SELECT ON TABLE tube.tube_installation TO tube_admin;

GRANT SELECT ON TABLE tube.tube_instance TO tube_admin;

GRANT SELECT ON TABLE tube.tube_job_unit TO tube_admin;

GRANT SELECT ON TABLE tube.tube_kafka TO tube_admin;

GRANT SELECT ON TABLE tube.tube_leader TO tube_admin;

GRANT SELECT ON TABLE tube.tube_outbox_parked TO tube_admin;
GRANT SELECT ON TABLE tube.tube_outbox_parked TO tube_worker;
GRANT SELECT ON TABLE tube.tube_outbox_parked TO tube_monitor;

GRANT SELECT ON TABLE tube.tube_outbox_resting TO tube_admin;

GRANT SELECT ON TABLE tube.tube_outbox_retry TO tube_admin;
GRANT SELECT ON TABLE tube.tube_outbox_retry TO tube_worker;

GRANT SELECT ON TABLE tube.tube_parked_document TO tube_admin;

GRANT SELECT ON TABLE tube.tube_paused TO tube_admin;

GRANT SELECT ON TABLE tube.tube_sample TO tube_admin;
GRANT SELECT ON TABLE tube.tube_sample TO tube_worker;
GRANT SELECT ON TABLE tube.tube_sample TO tube_monitor;

GRANT USAGE ON SEQUENCE tube.tube_seq TO tube_admin;
GRANT USAGE ON SEQUENCE tube.tube_seq TO tube_worker;
GRANT USAGE ON SEQUENCE tube.tube_seq TO tube_writer;

GRANT SELECT ON TABLE tube.tube_sink TO tube_admin;

GRANT SELECT ON TABLE tube.tube_sleeper TO tube_admin;

GRANT SELECT ON TABLE tube.tube_source TO tube_admin;

GRANT SELECT ON TABLE tube.tube_step TO tube_admin;

GRANT SELECT ON TABLE tube.tube_term TO tube_admin;

GRANT SELECT ON TABLE tube.tube_trouble TO tube_admin;

GRANT SELECT ON TABLE tube.tube_unverified TO tube_admin;

GRANT SELECT ON TABLE tube.tube_version TO tube_admin;
GRANT SELECT ON TABLE tube.tube_version TO tube_worker;
GRANT SELECT ON TABLE tube.tube_version TO tube_writer;
GRANT SELECT ON TABLE tube.tube_version TO tube_monitor;
