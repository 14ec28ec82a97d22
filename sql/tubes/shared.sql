-- What all families call: names, the row of a tube, and locks that are taken without blocking a busy table for long.

-- tube_private_schema: the name of the schema that these functions are in.
CREATE OR REPLACE FUNCTION :"schema".tube_private_schema() RETURNS name
LANGUAGE sql IMMUTABLE RETURN :'schema'::name;

-- tube_private_qualify: a name, quoted and with pytube's schema. Each dynamic statement names tables by it: a table that is
-- missing would else be looked for in pg_temp, where the caller may have put one.
CREATE OR REPLACE FUNCTION :"schema".tube_private_qualify(name text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT format('%I.%I', tube_private_schema(), name) $$;

-- tube_private_capture_schema: the name of the schema whose functions belong to the owners of attached tables.
CREATE OR REPLACE FUNCTION :"schema".tube_private_capture_schema() RETURNS name
LANGUAGE sql IMMUTABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp
RETURN :'capture'::name;

-- tube_private_role: the name of one of pytube's roles; kind: owner, admin, worker, writer or monitor.
CREATE OR REPLACE FUNCTION :"schema".tube_private_role(kind text) RETURNS name
LANGUAGE sql IMMUTABLE SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp
RETURN (:'roles' || '_' || kind)::name;

-- tube_private_name: stem || ending, as an identifier that is never longer than Postgres allows.
-- If the name has more than 63 bytes, the stem is cut, and 8 hex digits of the md5 of the whole name follow it.
CREATE OR REPLACE FUNCTION :"schema".tube_private_name(stem text, ending text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    short text := stem;
BEGIN
    IF octet_length(stem) + octet_length(ending) <= 63 THEN
        RETURN stem || ending;
    END IF;
    -- Characters may have several bytes, and none may be cut in two.
    WHILE octet_length(short) + 9 + octet_length(ending) > 63 LOOP
        short := left(short, -1);
    END LOOP;
    RETURN short || '_' || left(md5(stem || ending), 8) || ending;
END
$$;

-- tube_private_require: the registry row of a tube, an outbox, or any of the two, that has to be there; TU102, with a hint that
-- lists the known ones; TU111 where it is of the other kind.
CREATE OR REPLACE FUNCTION :"schema".tube_private_require(name text, kind text = 'tube') RETURNS :"schema".tube_registry
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :"schema", pg_temp AS $$
DECLARE
    reg tube_registry;
BEGIN
    SELECT r.* INTO reg FROM tube_registry AS r WHERE r.tube = name;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TU102',
            MESSAGE = format('there is no %s %s', CASE kind WHEN 'any' THEN 'tube or outbox' ELSE kind END, quote_nullable(name)),
            HINT = (SELECT coalesce('There are: ' || string_agg(quote_literal(r.tube), ', ' ORDER BY r.tube) || '.',
                'There are none yet: ' || CASE $2 WHEN 'any' THEN 'tube_ensure_exists and outbox_ensure_exists make some.'
                    ELSE $2 || '_ensure_exists makes one.' END)
                FROM tube_registry AS r WHERE $2 IN ('any', r.kind));
    ELSIF kind NOT IN ('any', reg.kind) THEN
        RAISE EXCEPTION USING ERRCODE = 'TU111', MESSAGE = format('%L is %s, not %s', name,
                CASE reg.kind WHEN 'tube' THEN 'a tube' ELSE 'an outbox' END, CASE kind WHEN 'tube' THEN 'a tube' ELSE 'an outbox' END),
            HINT = CASE reg.kind WHEN 'tube' THEN 'Functions whose names begin with tube_ are for tubes.'
                ELSE 'Functions whose names begin with outbox_ are for outboxes.' END;
    END IF;
    RETURN reg;
END
$$;

-- tube_private_login: the role that logged in, whatever SET ROLE says. Jobs belong to it, and the audit names it.
-- Refused in an operation that Postgres restricts: there a table owner's code, in an index say, runs in another role's
-- session, such as autovacuum's, which is a superuser's. UNLISTEN is refused there (42501), and else does nothing.
CREATE OR REPLACE FUNCTION :"schema".tube_private_login() RETURNS name
LANGUAGE plpgsql AS $$
BEGIN
    UNLISTEN pytube_nothing;
    RETURN session_user;
END
$$;

-- tube_private_full_xid: the transaction that wrote a row, with its epoch. A row's xid has 32 bits of it.
-- Of all numbers with these bits it is the greatest that a row can have by now; this transaction's may be above the
-- snapshot's end, by less than a million. Of a row older than 2^32 transactions it is too great, which can make that row
-- look as if it had been written after a snapshot of lately.
CREATE OR REPLACE FUNCTION :"schema".tube_private_full_xid(xid xid) RETURNS xid8
LANGUAGE sql STABLE AS $$
    SELECT (n.most - ((n.most - xid::text::bigint) & 4294967295))::text::xid8
    FROM (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1000000 AS most) AS n
$$;

-- tube_private_patiently: runs statements that need heavy locks without blocking a busy table for long.
-- Each attempt is one subtransaction that waits at most 100 ms for locks. If it fails, all locks are released, writers
-- pass, and it is tried again: 100 attempts take some 25 s, then 55P03 says `what` was being done. Once taken, the locks
-- stay until the transaction ends. A call within an attempt of another call is part of that attempt.
CREATE OR REPLACE FUNCTION :"schema".tube_private_patiently(
    statements text[], what text, attempts integer = 100
) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '100ms' AS $$
BEGIN
    IF current_setting('pytube.attempt', true) = 'on' THEN
        PERFORM tube_private_briefly(statements);
        RETURN;
    END IF;
    FOR attempt IN 1..attempts LOOP
        BEGIN
            PERFORM set_config('pytube.attempt', 'on', true);
            PERFORM tube_private_briefly(statements);
            PERFORM set_config('pytube.attempt', 'off', true);
            RETURN;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            -- Tried again below, where the subtransaction is over and its locks are gone.
        END;
        PERFORM pg_sleep(0.05 + random() * 0.2);
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
        MESSAGE = format('%s: the locks could not be had within %s attempts of 100 ms', what, attempts),
        HINT = 'Some transaction holds a lock for long: look for it in pg_locks, or try again later.';
END
$$;

-- tube_private_briefly: runs statements that may wait for locks for 100 ms in all; 55P03 when they can't be had.
-- What a statement takes beyond 5 ms counts as waiting: locks of a first table are held while the locks of a hundredth are
-- waited for.
CREATE OR REPLACE FUNCTION :"schema".tube_private_briefly(statements text[]) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, :"schema", pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    left_over double precision := 100; -- milliseconds; 0 as a lock_timeout would be for ever
    began timestamptz;
    statement text;
BEGIN
    FOREACH statement IN ARRAY statements LOOP
        PERFORM set_config('lock_timeout', format('%sms', greatest(left_over, 1)::integer), true);
        began := clock_timestamp();
        EXECUTE statement;
        left_over := left_over - greatest(0, extract(epoch FROM clock_timestamp() - began) * 1000 - 5);
    END LOOP;
END
$$;
