-- tube_shard_of: the shard of an id in a table that is spread over several.
--
-- The remainder is never negative, so that negative ids have a shard too. Inlined wherever it is
-- used, so it has no settings of its own; its operators were bound when it was made.
--
-- Arguments: id; shard: the first one; shards: how many, at least 1.
-- Result: shard + the remainder of id by shards; NULL for a NULL.
-- Errors: 22012 shards is 0.
CREATE OR REPLACE FUNCTION :"schema".tube_shard_of(id bigint, shard integer, shards integer) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN shard + ((id % shards::bigint + shards::bigint) % shards::bigint)::integer;

-- tube_shard_of for keys that are uuids or texts: by the first 32 bits of the md5 of their text (in UTF-8).
--
-- Arguments, result, errors, locks: as above.
CREATE OR REPLACE FUNCTION :"schema".tube_shard_of(id uuid, shard integer, shards integer) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN shard + (('x' || left(md5(id::text), 8))::bit(32)::bigint % shards::bigint)::integer;
CREATE OR REPLACE FUNCTION :"schema".tube_shard_of(id text, shard integer, shards integer) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN shard + (('x' || left(md5(convert_to(id, 'UTF8')), 8))::bit(32)::bigint % shards::bigint)::integer;
COMMENT ON FUNCTION :"schema".tube_shard_of(bigint, integer, integer) IS
    'Returns the shard of an id in a table that is spread over several.';
COMMENT ON FUNCTION :"schema".tube_shard_of(uuid, integer, integer) IS
    'Returns the shard of an id in a table that is spread over several.';
COMMENT ON FUNCTION :"schema".tube_shard_of(text, integer, integer) IS
    'Returns the shard of an id in a table that is spread over several.';
