"""The binary COPY that numpy writes is what Postgres reads."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from pytube.spark.arrays import kind_of
from pytube.spark.pods import Pods, encode, send, write
from tests.helpers.capture import open_session

ODD = ["", " ", "NULL", "{a,b}", 'say "x"', "it's", "\\", "\\N", "\\.", "\\x41", "%s", "line\nbreak\r\n\ttab"]
"""Texts that something would escape, if it wrote text."""


@pytest.mark.parametrize("payload", [None, {"backfill": 7, "é": '"'}])
@pytest.mark.parametrize("size", [1, 3, 250])
def test_postgres_reads_it(conn: psycopg.Connection[Any], size: int, payload: dict[str, Any] | None) -> None:
    conn.execute("SELECT tube_ensure_exists('t')")
    shards = np.array([0, 2**31 - 1])
    ids = np.array([[-(2**63) + n for n in range(size)], [2**63 - 1 - n for n in range(size)]])
    rows_of_copy = encode(Pods(shards, ids), "U", payload) + encode(Pods(shards[:0], ids[:0]), "U", payload)
    send(conn, [sql.Identifier("t")], rows_of_copy)
    rows = conn.execute("SELECT op, shard, ids, payload, leader_id FROM t ORDER BY seq").fetchall()
    assert rows == [("U", int(s), row.tolist(), payload, None) for s, row in zip(shards, ids, strict=True)]


def test_with_the_number_of_an_attempt(conn: psycopg.Connection[Any]) -> None:
    row = conn.execute("SELECT tube_ensure_exists('t')").fetchone()
    row = conn.execute("SELECT stage FROM tube_job_begin('j', '{t}', 'attempts', 'f', 0)").fetchone()
    assert row is not None
    attempt = uuid.uuid4()
    pods = Pods(np.array([3]), np.array([[1, 2]]))
    send(conn, [sql.SQL(row[0])], encode(pods, "T", None, attempt.bytes))
    conn.execute("SELECT tube_job_finish('j', %s)", [[attempt]])
    assert conn.execute("SELECT op, shard, ids FROM t").fetchall() == [("T", 3, [1, 2])]


@pytest.mark.parametrize("key_type", ["uuid", "text"])
@pytest.mark.parametrize("payload", [None, {"a": 1}])
def test_keys_that_are_no_numbers(dsn: str, key_type: str, payload: dict[str, Any] | None) -> None:
    """What Postgres gives is read, and what is written Postgres reads; the shards are those that it finds."""
    with open_session(dsn, client_encoding="utf8") as conn:
        conn.execute("SELECT tube_ensure_exists('t', key_type => %s::regtype)", [key_type])
        conn.execute(f"CREATE TABLE public.x (id {key_type} PRIMARY KEY)")
        made = "gen_random_uuid()" if key_type == "uuid" else "repeat('ü€😀', g % 90) || g"
        conn.execute(f"INSERT INTO public.x SELECT {made} FROM generate_series(1, 3000) AS g")
        if key_type == "text":
            conn.cursor().executemany(
                "INSERT INTO public.x VALUES (%s)", [[odd] for odd in [*ODD, "\x01", "🙂" * 900]]
            )
        expected = conn.execute("SELECT tube_shard_of(id, 5, 77), id::text FROM public.x").fetchall()
        kind = kind_of(key_type)
        read = (keys for _, keys in kind.read(pa.array([key for _, key in expected])))
        pieces = ((kind.shards(keys, 5, 77), keys) for keys in read)
        counts, _ = write(conn, [sql.Identifier("t")], pieces, 100, "U", kind, payload)
        assert (counts.rows, counts.ids) == (len(expected), len(expected))
        found = conn.execute("SELECT shard, unnest(ids)::text FROM t").fetchall()
        assert sorted(found) == sorted(expected)
        assert conn.execute("SELECT DISTINCT op, payload, leader_id FROM t").fetchall() == [
            ("U", payload, None)
        ]
