"""The binary COPY that numpy writes is what Postgres reads."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import psycopg
import pytest

from pytube.spark.copy import HEADER, TRAILER, encode
from pytube.spark.pods import Pods


@pytest.mark.parametrize("payload", [None, {"backfill": 7, "é": '"'}])
@pytest.mark.parametrize("size", [1, 3, 250])
def test_postgres_reads_it(conn: psycopg.Connection[Any], size: int, payload: dict[str, Any] | None) -> None:
    conn.execute("SELECT tube_ensure_exists('t')")
    shards = np.array([0, 2**31 - 1])
    ids = np.array([[-(2**63) + n for n in range(size)], [2**63 - 1 - n for n in range(size)]])
    with conn.cursor().copy("COPY t (op, shard, ids, payload) FROM STDIN (FORMAT binary)") as stream:
        stream.write(HEADER)
        stream.write(encode(Pods(shards, ids), "U", payload))
        stream.write(encode(Pods(shards[:0], ids[:0]), "U", payload))
        stream.write(TRAILER)
    rows = conn.execute("SELECT op, shard, ids, payload, leader_id FROM t ORDER BY seq").fetchall()
    assert rows == [("U", int(s), row.tolist(), payload, None) for s, row in zip(shards, ids, strict=True)]


def test_with_the_number_of_an_attempt(conn: psycopg.Connection[Any]) -> None:
    row = conn.execute("SELECT tube_ensure_exists('t')").fetchone()
    row = conn.execute("SELECT stage FROM tube_job_begin('j', '{t}', 'attempts', 'f', 0)").fetchone()
    assert row is not None
    attempt = uuid.uuid4()
    with conn.cursor().copy(
        f"COPY {row[0]} (op, shard, ids, payload, attempt) FROM STDIN (FORMAT binary)"
    ) as stream:
        stream.write(HEADER)
        stream.write(encode(Pods(np.array([3]), np.array([[1, 2]])), "T", None, attempt.bytes))
        stream.write(TRAILER)
    conn.execute("SELECT tube_job_finish('j', %s)", [[attempt]])
    assert conn.execute("SELECT op, shard, ids FROM t").fetchall() == [("T", 3, [1, 2])]
