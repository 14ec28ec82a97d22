"""The file of the sink `jsonl` as the other side of a comparison."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
from pyspark.sql import SparkSession

from pytube.errors import UsageError
from pytube.model import Batch, Documents, Id, Token
from pytube.sinks.jsonl import JsonlSink
from pytube.spark import jsonl_documents, snapshot
from tests.helpers import cli
from tests.spark.test_touch import touched

Conn = psycopg.Connection[Any]


async def write(path: Path, tube: str, token: Token, shard: int, documents: dict[Id, Any]) -> None:
    """Write documents, None for a delete, as a worker does."""
    sink = JsonlSink(str(path))
    await sink.open()
    batch = Documents(token, 1)
    bodies = [None if body is None else orjson.dumps(body) for body in documents.values()]
    batch.add(shard, list(documents), bodies)
    await sink.send(Batch(tube, 0, token, batch))
    await sink.close()


@pytest.fixture
def table(conn: Conn) -> str:
    """A table that is spread over 16 shards, as that of the README."""
    conn.execute("SELECT tube_ensure_exists('es-live', 2)")
    conn.execute(
        "CREATE TABLE public.orders (id bigint PRIMARY KEY, total numeric(30, 12), raw bytea, note text, at"
        " timestamptz, more jsonb)"
    )
    conn.execute("SELECT tube_table_ensure_attached('es-live', 'public.orders', 0, 16)")
    conn.execute(
        "INSERT INTO public.orders SELECT i, i + 0.123456789012, '\\xff00', 'n' || i, now(),"
        " '{\"a\": 1.50}' FROM generate_series(1, 6) AS i"
    )
    conn.execute('DELETE FROM "es-live"')
    return "public.orders"


async def written(conn: Conn, path: Path) -> None:
    """A log in which order 2 is stale, 3 is deleted, 4 is missing, and 9 is more than there is."""
    rows = conn.execute(
        "SELECT tube_shard_of(id, 0, 16), id, row_to_json(o)::text FROM public.orders AS o ORDER BY id"
    ).fetchall()
    old, new = Token(7, 1), Token(7, 2)
    for shard, key, text in rows:
        if key == 4:
            continue
        await write(path, "es-live", new, shard, {key: orjson.Fragment(text)})
        if key == 2:
            await write(path, "es-live", Token(8, 1), shard, {key: {"id": 2, "note": "other"}})
        if key == 3:
            await write(path, "es-live", Token(7, 3), shard, {key: None})
        await write(path, "es-live", old, shard, {key: {"id": key, "note": "late, and stale"}})
    # The latest line of the order 6 differs by a value of another type.
    shard, _, text = rows[5]
    await write(path, "es-live", Token(9, 1), shard, {6: json.loads(text) | {"total": "none"}})
    await write(path, "es-live", new, 0, {9: orjson.Fragment(rows[0][2])})
    await write(path, "other", new, 0, {1: {"id": 1}})
    with path.open("a") as file:
        file.write('{"tube":"es-live","shard":0,"id":5,"op":"ups\n')


async def test_the_latest_line_of_each_key_is_compared(
    spark: SparkSession, dsn: str, conn: Conn, table: str, tmp_path: Path
) -> None:
    assert spark is not None  # the command's session is this one
    path = tmp_path / "es-live.jsonl"
    await written(conn, path)
    arguments = ["spark", "reconcile", "--source", table, "--sink", str(path), "--job", "mend"]
    found = cli.run_json(*arguments, "--tube", "es-live", dsn=dsn)
    assert sorted(map(tuple, found["examples"])) == [
        ("different", None, 2),
        ("different", None, 6),
        ("extra", None, 9),
        ("missing", None, 3),
        ("missing", None, 4),
    ]
    assert (found["source"], found["sink"], found["touched"]) == (6, 5, 5)
    assert sorted(key for _, key in touched(conn, "es-live")) == [2, 3, 4, 6, 9]
    refused = cli.run(*arguments, dsn=dsn, code=2).output
    assert "has documents of several tubes; say which one: es-live, other" in refused
    told = cli.run(*arguments, "--sink-tube", "es-live", dsn=dsn, code=1).output
    assert "2 missing, 1 extra, 2 different" in told


def test_a_file_that_is_no_log_of_ours(spark: SparkSession, dsn: str, table: str, tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text('{"id": 1, "total": 7}\n')
    refused = pytest.raises(UsageError, match="lines that the sink jsonl does not write")
    with snapshot(spark, dsn) as moment, refused:
        jsonl_documents(spark, str(path), moment.table(table))
