"""The statements of the sink `postgres` over its tables; `postgres_table` says what these are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from psycopg import sql

from pytube.db.errors import OF_DATA
from pytube.model import KeyType
from pytube.sinks.postgres_table import STAMPS, Column, PostgresOptions, as_it_is, commas

# The search path begins with pg_catalog. With several arrays, unnest can't be named with its schema.
_WRITE = """
    WITH given AS MATERIALIZED (
        SELECT g.shard, g.id, g.doc, g.seq, g.n
        FROM unnest(%(shards)s::bigint[], %(ids)s::{id_array}, %(docs)s::{doc}[],
            %(seqs)s::bigint[]) WITH ORDINALITY AS g (shard, id, doc, seq, n)
    ), stamped AS (
        INSERT INTO {stamps} AS s (shard, id, tube, token, seq, deleted_at)
        SELECT g.shard, g.id, %(tube)s, %(token)s, g.seq, NULL::timestamptz FROM given g ORDER BY g.n
        ON CONFLICT ({stamps_key}) DO UPDATE SET {merge}, token = GREATEST(s.token, excluded.token)
        RETURNING s.shard, s.id, s.token
    ), written AS (
        INSERT INTO {target} ({columns})
        SELECT {key_values}, {values}
        FROM given g JOIN stamped s ON s.id = g.id {and_shard} {fields}
        WHERE s.token = %(token)s AND g.doc IS NOT NULL
        ON CONFLICT ({key}) DO UPDATE SET {updates}
    )
    SELECT g.n, s.token FROM given g JOIN stamped s ON s.id = g.id {and_shard} WHERE s.token <> %(token)s
"""
# The second transaction of a batch with deletes, of the keys whose stamps the first one has written: only a
# new snapshot shows a row whose writer was waited for, and a transaction of two messages would hold its locks
# for as long as a worker is stopped between them. If a newer write comes between the two, its token keeps its
# row. A stamp is a tombstone once the row is gone, so a refused delete leaves none.
_DELETE = """
    WITH own AS MATERIALIZED (
        SELECT s.shard, s.id
        FROM unnest(%(shards)s::bigint[], %(ids)s::{id_array}) WITH ORDINALITY AS k (shard, id, n)
        JOIN {stamps} s ON s.id = k.id {stamp_shard}
        WHERE s.token = %(token)s ORDER BY k.n FOR UPDATE OF s
    ), gone AS (
        DELETE FROM {target} t USING own k WHERE t.{id} = k.id {target_shard}
    )
    UPDATE {stamps} s SET deleted_at = pg_catalog.statement_timestamp()
    FROM own k WHERE s.id = k.id {stamp_shard}
"""
# Where a batch is refused for some of its documents, a block writes each in a subtransaction. A block has no
# arguments, so they are settings of the transaction; documents are bytes there, as a text could be refused.
# All goes as one message, which is a transaction: of several, the locks would be held for as long as a worker
# is stopped between two.
_GIVE_EACH: Final = """
    SELECT pg_catalog.set_config('pytube.shards', %(shards)s::text, true),
        pg_catalog.set_config('pytube.ids', %(ids)s::text, true),
        pg_catalog.set_config('pytube.seqs', %(seqs)s::text, true),
        pg_catalog.set_config('pytube.docs', %(docs)s::bytea[]::text, true),
        pg_catalog.set_config('pytube.tube', %(tube)s, true),
        pg_catalog.set_config('pytube.token', %(token)s::text, true)
"""
_ANSWERS_TO_EACH: Final = "SELECT pg_catalog.current_setting('pytube.answers')::json"
# A document may refer to a later document of the batch. So refused documents are tried again, for as long as
# that helps, and in turns from either end: a chain of them would take as many passes as it has documents.
_ONE_BY_ONE = """
#variable_conflict use_column
DECLARE
    pytube_shards bigint[] := pg_catalog.current_setting('pytube.shards');
    pytube_ids {id_array} := pg_catalog.current_setting('pytube.ids');
    pytube_seqs bigint[] := pg_catalog.current_setting('pytube.seqs');
    pytube_docs bytea[] := pg_catalog.current_setting('pytube.docs');
    pytube_tube text := pg_catalog.current_setting('pytube.tube');
    pytube_own_token bigint := pg_catalog.current_setting('pytube.token');
    pytube_doc {doc};
    pytube_at bigint;
    pytube_number bigint;
    pytube_token bigint;
    pytube_todo bigint[] := ARRAY(SELECT pg_catalog.generate_series(1, pg_catalog.cardinality(pytube_ids)));
    pytube_refused bigint[];
    pytube_error text;
    pytube_hint text;
    pytube_errors text[];
    pytube_answers jsonb := '[]';
BEGIN
    SET LOCAL plan_cache_mode = force_generic_plan;
    SET CONSTRAINTS ALL IMMEDIATE;
    LOOP
        pytube_refused := '{{}}';
        FOREACH pytube_at IN ARRAY pytube_todo LOOP
            BEGIN
                pytube_doc := pg_catalog.convert_from(pytube_docs[pytube_at], 'UTF8');
                {write} INTO pytube_number, pytube_token;
                IF pytube_token IS NOT NULL THEN
                    pytube_answers := pytube_answers || pg_catalog.jsonb_build_array(
                        pg_catalog.jsonb_build_array(pytube_at, pytube_token, NULL));
                ELSIF pytube_doc IS NULL THEN
                    {delete};
                END IF;
            EXCEPTION WHEN OTHERS OR assert_failure THEN
                IF pg_catalog.left(SQLSTATE, 2) <> ALL ({of_documents}) THEN
                    RAISE;
                END IF;
                GET STACKED DIAGNOSTICS pytube_error = MESSAGE_TEXT, pytube_hint = PG_EXCEPTION_HINT;
                pytube_errors[pytube_at] := pg_catalog.concat(
                    pytube_error, ' (' || NULLIF(pytube_hint, '') || ')', ' (SQLSTATE ', SQLSTATE, ')');
                pytube_refused := pytube_refused || pytube_at;
            END;
        END LOOP;
        EXIT WHEN pg_catalog.cardinality(pytube_refused) IN (0, pg_catalog.cardinality(pytube_todo));
        pytube_todo := ARRAY(
            SELECT r.at FROM unnest(pytube_refused) WITH ORDINALITY AS r (at, n) ORDER BY r.n DESC);
    END LOOP;
    FOREACH pytube_at IN ARRAY pytube_refused LOOP
        pytube_answers := pytube_answers || pg_catalog.jsonb_build_array(
            pg_catalog.jsonb_build_array(pytube_at, NULL, pytube_errors[pytube_at]));
    END LOOP;
    PERFORM pg_catalog.set_config('pytube.answers', pytube_answers::text, true);
END
"""
_READ = """
    SELECT k.n, s.token, s.seq,
        CASE WHEN t.{id} IS NOT NULL THEN pg_catalog.convert_to({document}, 'UTF8') END
    FROM unnest(%(shards)s::bigint[], %(ids)s::{id_array}) WITH ORDINALITY AS k (shard, id, n)
    LEFT JOIN {stamps} s ON s.id = k.id {stamp_shard}
    LEFT JOIN {target} t ON t.{id} = k.id {target_shard}
"""
_CAST = """
    SELECT pg_catalog.convert_to(pg_catalog.row_to_json(r)::text, 'UTF8')
    FROM unnest(%(docs)s::json[]) WITH ORDINALITY AS g (doc, n)
    CROSS JOIN LATERAL pg_catalog.json_to_record(g.doc) AS r ({record})
    ORDER BY g.n
"""
_CLEAN = """
    DELETE FROM {stamps} WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM {stamps}
        WHERE deleted_at < pg_catalog.statement_timestamp() - pg_catalog.make_interval(secs => %(seconds)s)
        ORDER BY deleted_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
"""
# Both look at a fixed number of rows at a time, however few of them are old.
_SCAN_TARGET = """
    SELECT t.id, (s.seq IS NULL OR (s.tube = %(tube)s AND s.seq < %(below)s)) AS old
    FROM (SELECT {id} AS id FROM {target} WHERE {shard} = %(shard)s AND {after}
        ORDER BY {id} LIMIT %(limit)s) t
    LEFT JOIN {stamps} s ON s.shard = %(shard)s AND s.id = t.id
    ORDER BY t.id
"""
_SCAN_STAMPS = """
    SELECT id, (shard = %(shard)s AND tube = %(tube)s AND seq < %(below)s AND deleted_at IS NULL) AS old
    FROM {stamps} WHERE {after} ORDER BY id LIMIT %(limit)s
"""


class Tables:
    """The tables as they were found, and the statements over them."""

    def __init__(self, options: PostgresOptions, keys: KeyType, data: Mapping[str, Column]) -> None:
        self.keys = keys
        self.is_jsonb = options.columns is None and data[options.document].type == "jsonb"
        """Whether documents are sent as jsonb: as json else, which the server parses only once, then."""
        self._names = {
            "target": _named(options.schema_name, options.table),
            "stamps": _named(options.schema_name, options.stamps_table),
            "id": _named(options.id),
            "shard": _named(options.shard) if options.shard else sql.SQL("NULL"),
            "id_array": sql.SQL(f"{keys.value}[]"),  # one of three fixed names
            "doc": sql.SQL("jsonb" if self.is_jsonb else "json"),
        }
        # A field that the document does not have is NULL. Types are written as the catalog shows them.
        self._record = commas(
            [
                sql.SQL("{} {}").format(_named(field), as_it_is(data[column].shown.replace("%", "%%")))
                for column, field in (options.columns or {}).items()
            ]
        )
        self.write = self._write(options)
        shard = _NONE if options.shard is None else sql.SQL("AND t.{} = k.shard").format(self._names["shard"])
        stamp_shard = _NONE if options.shard is None else sql.SQL("AND s.shard = k.shard")
        self.delete = sql.SQL(_DELETE).format(target_shard=shard, stamp_shard=stamp_shard, **self._names)
        self.one_by_one = self._one_by_one()
        """Several statements; the last answers for each document that was not written: its number, and the
        newer token or the error.
        """
        self.read = sql.SQL(_READ).format(
            document=self._document(options),
            stamp_shard=stamp_shard,
            target_shard=shard,
            **self._names,
        )
        self.cast = sql.SQL(_CAST).format(record=self._record)
        self.clean = sql.SQL(_CLEAN).format(**self._names)
        # Documents that were there before pytube have no stamp. Which shard they are of is known where
        # the target says so; a guess could delete a document of another shard.
        self._scan = sql.SQL(_SCAN_TARGET if options.shard else _SCAN_STAMPS)
        self._scan_by = self._names["id"] if options.shard else _named("id")

    def scan(self, *, first: bool) -> sql.Composed:
        """One step of a scan: the first one, or from `%(after)s` on."""
        after = sql.SQL("TRUE") if first else sql.SQL("{} > %(after)s").format(self._scan_by)
        return self._scan.format(after=after, **self._names)

    def _one_by_one(self) -> sql.Composed:
        # No column stands beside a variable in these: none can be taken for the other.
        given = {name: f"ARRAY[pytube_{name}[pytube_at]]" for name in ("shards", "ids", "seqs")}
        given |= {"docs": "ARRAY[pytube_doc]", "tube": "pytube_tube", "token": "pytube_own_token"}
        block = sql.SQL(_ONE_BY_ONE).format(
            write=as_it_is(self.write.as_string() % given),
            delete=as_it_is(self.delete.as_string() % given),
            of_documents=sql.Literal(list(OF_DATA)),
            **self._names,
        )
        do = sql.SQL("DO {}").format(sql.Literal(block.as_string().replace("%", "%%")))
        return sql.SQL("; ").join([sql.SQL(_GIVE_EACH), do, sql.SQL(_ANSWERS_TO_EACH)])

    def _document(self, options: PostgresOptions) -> sql.Composable:
        """The text of a row's document: that of its column, or the fields that its columns are of."""
        if options.columns is None:
            return sql.SQL("t.{}::text").format(_named(options.document))
        fields = [
            sql.SQL("t.{} AS {}").format(_named(column), _named(field))
            for column, field in options.columns.items()
        ]
        return sql.SQL("(SELECT pg_catalog.row_to_json(d)::text FROM (SELECT {}) d)").format(commas(fields))

    def _write(self, options: PostgresOptions) -> sql.Composed:
        merged = [
            sql.SQL("{0} = CASE WHEN s.token <= excluded.token THEN excluded.{0} ELSE s.{0} END").format(
                _named(name)
            )
            for name in STAMPS
            if name != "token" and name not in options.stamps_key
        ]
        if options.columns is None:
            fields, values = _NONE, commas([_named("g", "doc")])
        else:
            parsed = sql.SQL("CROSS JOIN LATERAL pg_catalog.json_to_record(g.doc) AS r ({})")
            fields = parsed.format(self._record)
            values = commas([_named("r", field) for field in options.columns.values()])
        return sql.SQL(_WRITE).format(
            stamps_key=_list(options.stamps_key),
            merge=commas(merged),
            columns=_list((*options.key, *options.data)),
            key=_list(options.key),
            key_values=commas([_named("g", name) for name in options.stamps_key]),
            and_shard=sql.SQL("AND s.shard = g.shard") if options.shard else _NONE,
            fields=fields,
            values=values,
            updates=commas([sql.SQL("{0} = excluded.{0}").format(_named(n)) for n in options.data]),
            **self._names,
        )


_NONE = sql.Composed([])


def _named(*names: str) -> sql.SQL:
    """An identifier in a statement with placeholders, where a percent sign is written twice."""
    return as_it_is(sql.Identifier(*names).as_string().replace("%", "%%"))


def _list(names: Sequence[str]) -> sql.Composed:
    return commas([_named(name) for name in names])
