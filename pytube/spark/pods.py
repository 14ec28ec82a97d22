"""Writes keys as pods: cuts columns of shards and ids into pods, and copies pods in binary form. By numpy.

Memory is bounded by the blocks of keys that are cut at a time, one of each width.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
from psycopg import sql

from pytube.errors import UsageError
from pytube.spark.arrays import BIGINT, Ints, KeyKind, Keys, Spread, order_of, read_shards, runs

BLOCK = 1 << 20
"""Keys that are cut at a time."""
BLOCK_BYTES = 1 << 24
"""Bytes that are cut at a time; limits the block if keys are long."""
POD_BYTES = 1 << 16
"""Bytes of a pod whose keys are longer than `LONG`."""
LONG = 64
MAX_SHARD = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods of one size: `shards[i]` is the shard of the ids in row `i` of `ids`."""

    shards: Ints
    ids: Keys

    def __len__(self) -> int:
        return len(self.shards)


def check_keys(shards: Ints, ids: Keys, spread: tuple[Spread, ...] = (), kind: KeyKind = BIGINT) -> None:
    """Refuse invalid keys; `spread` are those of tables whose ids determine the shard.

    Raises:
        UsageError: a shard is negative, beyond integer, or not the shard of its id.
    """
    wrong = (shards < 0) | (shards > MAX_SHARD)
    if wrong.any():
        raise UsageError(f"there is no shard {shards[wrong][0]}: shards are 0 to {MAX_SHARD}")
    for table in spread:
        here = (shards >= table.shard) & (shards < table.shard + table.shards)
        right = kind.shards(ids, *table)
        wrong = here & (shards != right)
        if wrong.any():
            key, shard, should = ids[wrong][0], shards[wrong][0], right[wrong][0]
            raise UsageError(f"the id {kind.shown(key)} is not in the shard {shard}, but in {should}")


def read_keys(
    kind: KeyKind, ids: pa.Array[Any], shards: pa.Array[Any] | Spread, spread: tuple[Spread, ...] = ()
) -> Iterator[tuple[Ints, Keys]]:
    """Yield the shards and the ids of a batch, keys of one width together; raises as `check_keys`."""
    given = None if isinstance(shards, Spread) else read_shards(shards)
    for which, keys in kind.read(ids):
        found = kind.shards(keys, *shards) if given is None else given[which]
        check_keys(found, keys, spread, kind)
        yield found, keys


def blocks(pieces: Iterable[tuple[Ints, Keys]], most: int, most_bytes: int) -> Iterator[tuple[Ints, Keys]]:
    """Join pieces, each of one width, to blocks of one width, of at least so many keys or bytes."""
    waiting: dict[int, list[tuple[Ints, Keys]]] = {}
    count: Counter[int] = Counter()
    for shards, ids in pieces:
        width = ids.itemsize
        waiting.setdefault(width, []).append((shards, ids))
        count[width] += len(ids)
        if count[width] >= min(most, most_bytes // width):
            yield _joined(waiting.pop(width))
            count[width] = 0
    yield from map(_joined, waiting.values())


def _joined(pieces: Sequence[tuple[Ints, Keys]]) -> tuple[Ints, Keys]:
    shards, ids = zip(*pieces, strict=True)
    return np.concatenate(shards), np.concatenate(ids)


def cut(shards: Ints, ids: Keys, size: int) -> list[Pods]:
    """Cut a block into pods of at most `size` ids of one shard each, in their order; of long keys fewer.

    Each key is there once. Pods of one length come together.
    """
    if ids.itemsize > LONG:
        size = max(1, min(size, POD_BYTES // ids.itemsize))
    rows: dict[int, list[tuple[int, Keys]]] = {}
    for shard, keys in _by_shard(shards, ids):
        whole = len(keys) - len(keys) % size
        for some, length in ((keys[:whole], size), (keys[whole:], len(keys) - whole)):
            if len(some):
                rows.setdefault(length, []).append((shard, some.reshape(-1, length)))
    return [
        Pods(
            np.repeat([shard for shard, _ in alike], [len(some) for _, some in alike]),
            np.concatenate([some for _, some in alike]),
        )
        for _, alike in sorted(rows.items())
    ]


def _by_shard(shards: Ints, ids: Keys) -> Iterator[tuple[int, Keys]]:
    """Yield each shard with its distinct ids in order."""
    order = order_of(shards)
    shards, ids = shards[order], ids[order]
    for start, stop in runs(shards):
        keys = np.sort(ids[start:stop])
        yield int(shards[start]), keys[np.concatenate(([True], keys[1:] != keys[:-1]))]


# --- binary COPY --------------------------------------------------------------------------------------

HEADER: Final = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
TRAILER: Final = b"\xff\xff"


class Counts(NamedTuple):
    """How much a job or a unit wrote. Each of several tubes got as much."""

    rows: int = 0
    """Rows that were read."""
    ids: int = 0
    """Keys that were touched: those of a block, each once."""
    pods: int = 0


def write(
    connection: psycopg.Connection,
    tables: Sequence[sql.Composable],
    keys: Iterable[tuple[Ints, Keys]],
    size: int,
    op: str,
    kind: KeyKind,
    payload: Mapping[str, Any] | None = None,
    attempt: bytes = b"",
) -> tuple[Counts, set[int]]:
    """COPY keys, cut into pods, to each of the tables; how much it was, and the shards. Else as `encode`."""
    rows = ids = count = 0
    shards: set[int] = set()

    def counted() -> Iterator[tuple[Ints, Keys]]:
        nonlocal rows
        for of_keys, some in keys:
            rows += len(some)
            yield of_keys, some

    for block in blocks(counted(), BLOCK, BLOCK_BYTES):
        pods = cut(*block, size)
        send(connection, tables, b"".join(encode(some, op, payload, attempt, kind) for some in pods))
        shards.update(np.unique(block[0]).tolist())
        ids, count = ids + sum(some.ids.size for some in pods), count + sum(map(len, pods))
    return Counts(rows, ids, count), shards


def send(connection: psycopg.Connection, tables: Sequence[sql.Composable], rows: bytes) -> None:
    """COPY rows that `encode` has made into each of the tables."""
    columns = ("op", "shard", "ids", "payload", "attempt")[: int.from_bytes(rows[:2])]
    for table in tables if rows else ():
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)")
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        with connection.cursor().copy(statement.format(table, names)) as stream:
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
    """Encode pods as rows of COPY, without header and trailer; `attempt`: a uuid for a fifth column."""
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
