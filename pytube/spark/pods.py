"""Makes pods: cuts columns of shards and ids into pods, and encodes pods for binary COPY. By numpy.

Memory is bounded by the block of keys that is cut at a time, and by one pod for each shard.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import sql

from pytube.errors import UsageError
from pytube.spark.arrays import BIGINT, Ints, KeyKind, Keys, Spread, Strings, runs

BLOCK = 1 << 20
"""Keys that are cut at a time."""
BLOCK_BYTES = 1 << 24
"""Bytes that are cut at a time; limits the block if keys are long."""
POD_BYTES = 1 << 16
"""Bytes of a pod whose keys are longer than `LONG`."""
LONG = 64
MAX_SHARD = 2**31 - 1
_NARROW = 1 << 16
"""Shards below this fit into 16 bits, which numpy sorts by radix."""
_FEW = 256
"""numpy itself sorts so few strings as fast."""


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


def cut(shards: Ints, ids: Keys, size: int) -> tuple[list[Pods], tuple[Ints, Keys]]:
    """Cut keys into pods of `size` ids of one shard each. The keys must pass `check_keys`.

    Returns full pods in order of shard and id, each key once; and the shards and ids of the remaining keys,
    fewer than `size` of each shard.
    """
    full: list[tuple[int, Keys]] = []
    left: list[tuple[int, Keys]] = []
    for shard, keys in _by_shard(shards, ids):
        whole = len(keys) - len(keys) % size
        if whole:
            full.append((shard, keys[:whole].reshape(-1, size)))
        if whole < len(keys):
            left.append((shard, keys[whole:]))
    rest = _stacked(left) if left else (np.empty(0, np.int64), ids[:0])
    return [Pods(*_stacked(full))] if full else [], rest


def remainders(shards: Ints, ids: Keys, size: int) -> list[Pods]:
    """Cut keys into pods of at most `size` ids, so that none remains. Pods of one length come together."""
    pods, rest = cut(shards, ids, size)
    by_length: dict[int, list[tuple[int, Keys]]] = {}
    for shard, keys in _by_shard(*rest):
        by_length.setdefault(len(keys), []).append((shard, keys.reshape(1, -1)))
    return pods + [Pods(*_stacked(rows)) for _, rows in sorted(by_length.items())]


def _by_shard(shards: Ints, ids: Keys) -> Iterator[tuple[int, Keys]]:
    """Yield each shard with its distinct ids in order."""
    if not len(ids):
        return
    if (shards == shards[0]).all():
        yield int(shards[0]), _distinct(ids)
        return
    narrow = shards.astype(np.uint16) if shards.max() < _NARROW else shards
    order = np.argsort(narrow, kind="stable")
    shards, ids = shards[order], ids[order]
    for start, stop in runs(shards):
        yield int(shards[start]), _distinct(ids[start:stop])


def _distinct(keys: Keys) -> Keys:
    """Sort keys, and drop repeated ones."""
    keys = sort_strings(keys) if keys.dtype.kind == "S" else np.sort(keys)
    repeated = keys[1:] == keys[:-1]
    return keys[np.concatenate(([True], ~repeated))] if repeated.any() else keys


def sort_strings(values: Strings) -> Strings:
    """`np.sort` of strings, but faster: numpy compares strings one by one.

    The values are sorted by the number in the first eight bytes that are not the same in all values. Values
    with equal numbers then lie together, and are sorted as whole strings.
    """
    if len(values) < _FEW:
        return np.sort(values)
    rows = values.view(np.uint8).reshape(len(values), -1)
    shared = (rows == rows[0]).all(axis=0)
    first = min(int(np.argmin(shared)), rows.shape[1] - 8)
    numbers = np.ascontiguousarray(rows[:, first : first + 8]).view(">u8").reshape(-1).astype(np.uint64)
    order = np.argsort(numbers)
    values, numbers = values[order], numbers[order]
    same = np.concatenate(([False], numbers[1:] == numbers[:-1], [False]))
    tied = same[1:] | same[:-1]
    if tied.any():
        values[tied] = np.sort(values[tied])
    return values


def _stacked(groups: Sequence[tuple[int, Keys]]) -> tuple[Ints, Keys]:
    """The keys, or rows of keys, of all groups; and the shard of each."""
    shards = np.repeat([shard for shard, _ in groups], [len(keys) for _, keys in groups])
    return shards, np.concatenate([keys for _, keys in groups])


def cut_all(pieces: Iterable[tuple[Ints, Keys]], size: int) -> Iterator[list[Pods]]:
    """Cut keys that come in pieces, each of one width, into pods of `size` ids; pods of long keys have fewer.

    A block of keys is cut at a time, of each width apart. What is held back are at most two blocks of each
    width, and two pods for each shard.
    """
    waiting: dict[int, list[tuple[Ints, Keys]]] = {}
    new: Counter[int] = Counter()
    left: Counter[int] = Counter()
    """Keys that the last block left; if there are many shards, they should not be sorted with each block."""
    for shards, ids in pieces:
        width = ids.itemsize
        waiting.setdefault(width, []).append((shards, ids))
        new[width] += len(ids)
        if new[width] >= max(min(BLOCK, BLOCK_BYTES // width), left[width]):
            pods, rest = cut(*_joined(waiting[width]), _size(size, width))
            waiting[width], new[width], left[width] = [rest], 0, len(rest[1])
            yield pods
    for width, held in waiting.items():
        yield remainders(*_joined(held), _size(size, width))


def _joined(pieces: Sequence[tuple[Ints, Keys]]) -> tuple[Ints, Keys]:
    shards, ids = zip(*pieces, strict=True)
    return np.concatenate(shards), np.concatenate(ids)


def _size(size: int, width: int) -> int:
    return size if width <= LONG else max(1, min(size, POD_BYTES // width))


# --- binary COPY --------------------------------------------------------------------------------------

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
