"""Pods in the binary format of COPY, whole arrays of them at once. No Spark, no database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import numpy as np

from pytube.spark.pods import Pods

HEADER: Final = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
TRAILER: Final = b"\xff\xff"
COLUMNS: Final = ("op", "shard", "ids", "payload")
"""What a row has, in order; with an attempt, its uuid follows."""

_INT8: Final = 20
"""The oid of `bigint`."""


def encode(pods: Pods, op: str, payload: Mapping[str, Any] | None = None, attempt: bytes = b"") -> bytes:
    """Rows of COPY, without header and trailer.

    Args:
        pods: of one size.
        op: one letter.
        payload: of each pod.
        attempt: the 16 bytes of a uuid, or none: then there is no such column.
    """
    if not len(pods):
        return b""
    size = pods.ids.shape[1]
    text = b"" if payload is None else b"\x01" + json.dumps(payload).encode()
    rows = np.zeros(len(pods), _row(size, len(text), len(attempt)))
    rows["columns"] = 5 if attempt else 4
    rows["op_length"], rows["op"] = 1, op.encode()
    rows["shard_length"], rows["shard"] = 4, pods.shards
    rows["ids_length"] = 20 + 12 * size
    rows["dimensions"], rows["type"], rows["size"], rows["lower"] = 1, _INT8, size, 1
    rows["ids"]["length"], rows["ids"]["id"] = 8, pods.ids
    rows["payload_length"] = -1 if payload is None else len(text)
    if text:
        rows["payload"] = np.frombuffer(text, np.uint8)
    if attempt:
        rows["attempt_length"] = len(attempt)
        rows["attempt"] = np.frombuffer(attempt, np.uint8)
    return rows.tobytes()


@cache
def _row(size: int, payload: int, attempt: int) -> np.dtype[np.void]:
    """The layout of a row with `size` ids, and so many bytes of payload and attempt."""
    fields: list[Any] = [
        ("columns", ">i2"),
        ("op_length", ">i4"),
        ("op", "S1"),
        ("shard_length", ">i4"),
        ("shard", ">i4"),
        ("ids_length", ">i4"),
        ("dimensions", ">i4"),
        ("nulls", ">i4"),
        ("type", ">i4"),
        ("size", ">i4"),
        ("lower", ">i4"),
        ("ids", [("length", ">i4"), ("id", ">i8")], (size,)),
        ("payload_length", ">i4"),
    ]
    if payload:
        fields.append(("payload", "u1", (payload,)))
    if attempt:
        fields += [("attempt_length", ">i4"), ("attempt", "u1", (attempt,))]
    return np.dtype(fields)
