-- 0003: what an attachment may be told (columns, replica), what it was like when it was last looked
-- at, and the type of a tube's keys.

ALTER TABLE :"schema".tube_registry
    ADD key_type regtype NOT NULL DEFAULT 'bigint' CHECK (key_type IN ('bigint', 'uuid', 'text'));

-- The names in what is generated are those that the columns of these numbers had then. The numbers
-- hold for the table of seen_oid only: a restored one has others, and then the names count.
ALTER TABLE :"schema".tube_attachment
    ADD columns      name[],     -- an UPDATE that changes none of these makes no touch; NULL: any counts
    ADD replica      boolean NOT NULL DEFAULT false,
    ADD seen_oid     oid,
    ADD seen_attnums smallint[], -- of id_col, of columns, of those in row_filter
    ADD seen_names   name[],
    ADD members      oid[];      -- of a partitioned table: all of its tree, itself too

-- They get more arguments, or give more columns.
DROP FUNCTION IF EXISTS :"schema".tube_table_ensure_attached(text, regclass, integer, integer);
DROP FUNCTION IF EXISTS :"schema".tube_ensure_exists(text, integer, text);
DROP FUNCTION IF EXISTS :"schema".tube_list(regclass);
DROP FUNCTION IF EXISTS :"schema".tube_private_key(regclass);
DROP FUNCTION IF EXISTS :"schema".tube_private_check_touch(integer, bigint[], text, integer);
DROP FUNCTION IF EXISTS :"schema".tube_private_shard_expression(text, integer, integer);
