"""The pods of a tube as rows: which statements read them, divided by partitions."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import sql
from pyspark.sql.datasource import InputPartition

from pytube.db.errors import translated
from pytube.errors import UnknownTube
from pytube.spark import queries, tubes
from pytube.spark.hosts import Host
from pytube.spark.sources.arrow import Reading

SCHEMA = "seq bigint, op string, shard int, ids array<{}>, payload string, ts timestamp"
_CLASSES = "(CASE WHEN op = 'B' THEN 1 ELSE 0 END)"


@dataclass(frozen=True, slots=True)
class Span(InputPartition):
    """The pods of one partition, beyond one seq and up to another."""

    partition: int
    partitions: int
    after: int
    upto: int


def schema_of(connection: psycopg.Connection, tube: str) -> str:
    """The columns of a tube's pods. Ids that are no numbers are texts.

    Raises:
        UnknownTube: there is no such tube.
    """
    return SCHEMA.format("bigint" if tubes.kind_of(connection, [tube]).is_number else "string")


def partitions_of(connection: psycopg.Connection, tube: str) -> int:
    """How many partitions a tube has.

    Raises:
        UnknownTube: there is no such tube.
    """
    with translated():
        row = connection.execute(queries.PARTITIONS, {"tube": tube}).fetchone()
    if row is None:
        raise UnknownTube(f"there is no tube {tube!r}")
    return int(row[0])


def spans(connection: psycopg.Connection, tube: str, after: int, upto: int) -> list[Span]:
    """What lies between two seqs, by partition; raises as `partitions_of`."""
    count = partitions_of(connection, tube)
    if upto <= after:
        return []
    return [Span(number, count, after, upto) for number in range(count)]


def reading(host: Host, tube: str, span: Span, ids: str) -> Reading:
    """The statement that reads a span; `ids` is the type that they come in."""
    return Reading(
        # It goes by the one index that a tube has, whatever the statistics say.
        f"SELECT seq, op::text AS op, shard::integer AS shard, ids::{ids}[] AS ids, "  # noqa: S608
        f"payload::text AS payload, ts "
        f"FROM {_table(host, tube)} WHERE (shard % {span.partitions}) = {span.partition} "
        f"AND {_CLASSES} = ANY ('{{0,1}}') AND seq > {span.after} AND seq <= {span.upto} ORDER BY seq",
        ("SET LOCAL enable_seqscan = off",),
    )


def nth_seq(connection: psycopg.Connection, host: Host, tube: str, after: int, upto: int, limit: int) -> int:
    """The seq of the `limit`th pod beyond `after`; `upto` where there are fewer."""
    count = partitions_of(connection, tube)
    firsts = sql.SQL(" UNION ALL ").join(
        sql.SQL(
            "(SELECT seq FROM {} WHERE (shard % {}) = {} AND (CASE WHEN op = 'B' THEN 1 ELSE 0 END) = {} "
            "AND seq > {} AND seq <= {} ORDER BY seq LIMIT {})"
        ).format(sql.Identifier(host.schema, tube), count, part, kind, after, upto, limit)
        for part in range(count)
        for kind in (0, 1)
    )
    nth = sql.SQL("SELECT f.seq FROM ({}) AS f ORDER BY f.seq OFFSET {} LIMIT 1")
    with translated():
        row = connection.execute(nth.format(firsts, limit - 1)).fetchone()
    return upto if row is None else int(row[0])


def _table(host: Host, tube: str) -> str:
    return sql.Identifier(host.schema, tube).as_string()
