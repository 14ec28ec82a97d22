"""Pods from columns of shards and ids, by numpy. No Spark, no database.

Memory is bounded by the block that is being cut and by one pod for each shard, whatever the number of keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pytube.errors import UsageError
from pytube.spark.kinds import BIGINT, KeyKind, Keys
from pytube.spark.order import sorted_bytes

Ints = npt.NDArray[np.int64]

BLOCK = 1 << 20
"""Keys that are cut into pods at a time."""
BLOCK_BYTES = 1 << 24
"""That they have at most, if they are long."""
POD_BYTES = 1 << 16
"""Of a pod of keys that are long."""
LONG = 64
"""Bytes that keys of usual length have at most."""
MAX_SHARD = 2**31 - 1
_WIDE = 1 << 16


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods of one size: `shards[i]` is the shard of the ids in row `i` of `ids`."""

    shards: Ints
    ids: Keys

    def __len__(self) -> int:
        return len(self.shards)


def cut(shards: Ints, ids: Keys, size: int) -> tuple[list[Pods], Ints, Keys]:
    """Cut distinct keys into pods of `size` ids of one shard each.

    Args:
        shards: of each key; all of `check_keys`.
        ids: as many. A key that stands there twice is taken once.
        size: ids of a pod, at least 1.

    Returns:
        Full pods, in order of shard and id, and the shards and ids of the keys that are left over: for each
        shard fewer than `size`.
    """
    full: list[tuple[int, Keys]] = []
    left: list[tuple[int, Keys]] = []
    for shard, keys in _by_shard(shards, ids):
        whole = len(keys) - len(keys) % size
        if whole:
            full.append((shard, keys[:whole].reshape(-1, size)))
        if whole < len(keys):
            left.append((shard, keys[whole:]))
    return [_joined(full)] if full else [], *_columns(left, ids[:0])


def remainders(shards: Ints, ids: Keys, size: int) -> list[Pods]:
    """Pods of all that `cut` left over: those of the same number of ids together."""
    pods, shards, ids = cut(shards, ids, size)
    by_length: dict[int, list[tuple[int, Keys]]] = {}
    for shard, keys in _by_shard(shards, ids):
        by_length.setdefault(len(keys), []).append((shard, keys.reshape(1, -1)))
    return pods + [_joined(rows) for _, rows in sorted(by_length.items())]


def _by_shard(shards: Ints, ids: Keys) -> Iterator[tuple[int, Keys]]:
    """Each shard, and its ids in order, each once."""
    if not len(ids):
        return
    if (shards == shards[0]).all():
        yield int(shards[0]), _distinct(_sorted(ids))
        return
    narrow = shards.astype(np.uint16) if shards.max() < _WIDE else shards
    order = np.argsort(narrow, kind="stable")  # of 16 bits it is a radix sort
    shards, ids = shards[order], ids[order]
    edges = [0, *(np.flatnonzero(shards[1:] != shards[:-1]) + 1).tolist(), len(ids)]
    for start, stop in pairwise(edges):
        yield int(shards[start]), _distinct(_sorted(ids[start:stop]))


def _sorted(keys: Keys) -> Keys:
    return sorted_bytes(keys) if keys.dtype.kind == "S" else np.sort(keys)


def _distinct(keys: Keys) -> Keys:
    """Sorted keys, each once."""
    repeated = keys[1:] == keys[:-1]
    return keys[np.concatenate(([True], ~repeated))] if repeated.any() else keys


def _joined(rows: Sequence[tuple[int, Keys]]) -> Pods:
    """Pods of the same size, from those of each shard."""
    shards = np.repeat([shard for shard, _ in rows], [len(keys) for _, keys in rows])
    return Pods(shards, np.concatenate([keys for _, keys in rows]))


def _columns(groups: Sequence[tuple[int, Keys]], none: Keys) -> tuple[Ints, Keys]:
    """Shards and ids of groups of keys; `none` where there is no group."""
    if not groups:
        return np.empty(0, np.int64), none
    shards = np.repeat([shard for shard, _ in groups], [len(keys) for _, keys in groups])
    return shards, np.concatenate([keys for _, keys in groups])


def check_keys(
    shards: Ints, ids: Keys, spread: tuple[tuple[int, int], ...] = (), kind: KeyKind = BIGINT
) -> None:
    """Refuse keys that can't be.

    Args:
        shards: of each key.
        ids: as many.
        spread: `(shard, shards)` of tables that are spread; their ids have a shard of their own.
        kind: of the ids.

    Raises:
        UsageError: a shard is negative or beyond integer, or not the id's.
    """
    wrong = (shards < 0) | (shards > MAX_SHARD)
    if wrong.any():
        raise UsageError(f"there is no shard {shards[wrong][0]}: shards are 0 to {MAX_SHARD}")
    for first, count in spread:
        here = (shards >= first) & (shards < first + count)
        right = kind.shards(ids, first, count)
        wrong = here & (shards != right)
        if wrong.any():
            key, shard, should = ids[wrong][0], shards[wrong][0], right[wrong][0]
            raise UsageError(f"the id {kind.shown(key)} is not in the shard {shard}, but in {should}")


class Cutter:
    """Cuts keys that come in pieces; what it holds back is a block, and two pods for each shard at most."""

    def __init__(self, size: int, block: int = BLOCK, dtype: npt.DTypeLike = np.int64) -> None:
        """`size`: ids of a pod; `block`: keys cut at a time; `dtype`: of the arrays of keys."""
        self._size = size
        self._block = block
        self._shards: list[Ints] = []
        self._ids: list[Keys] = []
        self._waiting = 0
        self._none = (np.empty(0, np.int64), np.empty(0, dtype))
        self._left: tuple[Ints, Keys] = self._none

    def add(self, shards: Ints, ids: Keys) -> Iterator[Pods]:
        """Take keys; pods that are full, once there is a block of keys."""
        self._shards.append(shards)
        self._ids.append(ids)
        self._waiting += len(ids)
        # What is left of many shards is not sorted again for each block.
        if self._waiting >= max(self._block, len(self._left[1])):
            pods, *left = cut(*self._all(), self._size)
            self._left = (left[0], left[1])
            yield from pods

    def rest(self) -> Iterator[Pods]:
        """The pods of all keys that are still held back; after it the cutter is empty."""
        left = self._all()
        self._left = self._none
        yield from remainders(*left, self._size)

    def _all(self) -> tuple[Ints, Keys]:
        shards = np.concatenate([self._left[0], *self._shards])
        ids = np.concatenate([self._left[1], *self._ids])
        self._shards, self._ids, self._waiting = [], [], 0
        return shards, ids


class Cutters:
    """Cuts keys of any widths, those of each width by themselves. Numbers have one, texts several."""

    def __init__(self, size: int) -> None:
        """`size`: ids of a pod; of long keys a pod has fewer."""
        self._size = size
        self._cutters: dict[int, Cutter] = {}

    def add(self, shards: Ints, ids: Keys) -> Iterator[Pods]:
        """As `Cutter.add`; the keys are of one width."""
        width = ids.itemsize
        cutter = self._cutters.get(width)
        if cutter is None:
            size = self._size if width <= LONG else max(1, min(self._size, POD_BYTES // width))
            cutter = self._cutters[width] = Cutter(size, min(BLOCK, BLOCK_BYTES // width), ids.dtype)
        return cutter.add(shards, ids)

    def rest(self) -> Iterator[Pods]:
        """As `Cutter.rest`."""
        for cutter in self._cutters.values():
            yield from cutter.rest()
