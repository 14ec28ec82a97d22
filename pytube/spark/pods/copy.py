"""Encodes pods for binary COPY, whole arrays at once, and sends them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import sql

from pytube.spark.keys.kinds import BIGINT, KeyKind
from pytube.spark.pods.cut import Pods

HEADER: Final = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
TRAILER: Final = b"\xff\xff"


def send(
    connection: psycopg.Connection, table: sql.Composable, rows: bytes, *, attempt: bool = False
) -> None:
    """COPY rows into a table. `rows` are made by `encode`, at least one; `attempt`: whether they have one."""
    columns = sql.SQL("op, shard, ids, payload, attempt" if attempt else "op, shard, ids, payload")
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(table, columns)
    with connection.cursor().copy(statement) as stream:
        stream.write(HEADER)
        stream.write(rows)
        stream.write(TRAILER)


def encode(
    pods: Pods,
    op: str,
    payload: Mapping[str, Any] | None = None,
    attempt: bytes = b"",
    kind: KeyKind = BIGINT,
) -> bytes:
    """Encode pods as rows of COPY, without header and trailer.

    Args:
        pods: the pods.
        op: the op of all pods, one letter.
        payload: the payload of all pods.
        attempt: the 16 bytes of a uuid for a fifth column; if empty, rows have four columns.
        kind: the kind of the ids.
    """
    if not len(pods):
        return b""
    size = pods.ids.shape[1]
    text = b"" if payload is None else b"\x01" + json.dumps(payload).encode()
    rows = np.zeros(len(pods), _row(size, pods.ids.dtype.newbyteorder(">"), len(text), len(attempt)))
    rows["columns"] = 5 if attempt else 4
    rows["op_length"], rows["op"] = 1, op.encode()
    rows["shard_length"], rows["shard"] = 4, pods.shards
    lengths: Any = np.strings.str_len(pods.ids) if kind.width is None else kind.width
    rows["ids_length"] = 20 + 4 * size + (lengths.sum(axis=1) if kind.width is None else size * lengths)
    rows["dimensions"], rows["type"], rows["size"], rows["lower"] = 1, kind.oid, size, 1
    rows["ids"]["length"], rows["ids"]["id"] = lengths, pods.ids
    rows["payload_length"] = -1 if payload is None else len(text)
    if text:
        rows["payload"] = np.frombuffer(text, np.uint8)
    if attempt:
        rows["attempt_length"] = len(attempt)
        rows["attempt"] = np.frombuffer(attempt, np.uint8)
    return rows.tobytes() if kind.width is not None else _squeezed(rows, lengths)


def _squeezed(rows: npt.NDArray[np.void], lengths: npt.NDArray[np.int64]) -> bytes:
    """The bytes of rows without the padding of their ids."""
    places: Any = rows.dtype.fields
    (kind, before) = places["ids"][:2]
    width = kind.subdtype[0]["id"].itemsize
    of_ids = np.ones((*lengths.shape, 4 + width), np.bool_)
    of_ids[:, :, 4:] = np.arange(width) < lengths[:, :, None]
    keep = np.ones((len(rows), rows.dtype.itemsize), np.bool_)
    keep[:, before : before + kind.itemsize] = of_ids.reshape(len(rows), -1)
    return rows.view(np.uint8).reshape(keep.shape)[keep].tobytes()


@cache
def _row(size: int, key: np.dtype[Any], payload: int, attempt: int) -> np.dtype[np.void]:
    """The layout of a row: `size` ids of a type, then so many bytes of payload and attempt."""
    fields: list[Any] = [
        ("columns", ">i2"),
        ("op_length", ">i4"),
        ("op", "S1"),
        *((name, ">i4") for name in ("shard_length", "shard", "ids_length")),
        *((name, ">i4") for name in ("dimensions", "nulls", "type", "size", "lower")),
        ("ids", [("length", ">i4"), ("id", key)], (size,)),
        ("payload_length", ">i4"),
    ]
    if payload:
        fields.append(("payload", "u1", (payload,)))
    if attempt:
        fields += [("attempt_length", ">i4"), ("attempt", "u1", (attempt,))]
    return np.dtype(fields)
