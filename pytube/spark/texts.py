"""Texts as arrays of numpy: bytes in UTF-8, filled up with zeros to one width. No text has a zero.

A text is held at the least width of `WIDTHS` that it fits into, so that a few long ones don't make all others
long. The same text always has the same width.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pytube.errors import UsageError
from pytube.spark import arrow

Ints = npt.NDArray[np.int64]
Texts = npt.NDArray[np.bytes_]

MOST = 1 << 16
"""Bytes of a text. Postgres takes longer ones; a task holds thousands of them at a time."""
TOO_LONG = f" bytes, and {MOST} is the most; touch it by SQL, which takes longer ones"
"""How the message of a longer one ends."""
WIDTHS = tuple(1 << power for power in range(5, 17))
_SHOWN = 60


def by_width(column: pa.Array[Any]) -> Iterator[tuple[slice | Ints, Texts]]:
    """The texts of a column, none NULL: which rows, and their texts; those of each width together.

    Raises:
        UsageError: one of them can't be a text of Postgres, or is too long. The first is named.
    """
    edges, data = arrow.pieces(column, np.uint8)
    lengths = np.diff(edges)
    _check(edges, data)
    below = -1
    for width in WIDTHS:
        here = (lengths > below) & (lengths <= width)
        if here.all():
            yield slice(None), _filled(lengths, data, width)
            return
        if here.any():
            yield np.flatnonzero(here), _filled(lengths[here], data[np.repeat(here, lengths)], width)
        below = width


def lengths_of(texts: Texts) -> Ints:
    """Bytes of each."""
    return np.strings.str_len(texts)


def shards_of(texts: Sequence[bytes], shard: int, shards: int) -> Ints:
    """`pytube.model.shard_of` of many: by the first 32 bits of their md5."""
    firsts = [hashlib.md5(text, usedforsecurity=False).digest()[:4] for text in texts]
    return shard + np.frombuffer(b"".join(firsts), ">u4").astype(np.int64) % shards


def shown(value: bytes) -> str:
    """A value for a message, cut where it is long."""
    try:
        text = repr(value.decode())
    except UnicodeDecodeError:
        text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _filled(lengths: Ints, data: npt.NDArray[np.uint8], width: int) -> Texts:
    rows = np.zeros((len(lengths), width), np.uint8)
    rows[np.arange(width) < lengths[:, None]] = data
    return rows.view(f"S{width}").reshape(-1)


def _check(edges: Ints, data: npt.NDArray[np.uint8]) -> None:
    """Refuse what can't be a key; one look at all bytes, and at each text only where something is wrong."""
    lengths = np.diff(edges)
    if (lengths > MOST).any():
        raise UsageError(f"an id has {lengths[lengths > MOST][0]}{TOO_LONG}")
    if not data.all():
        place = int(np.flatnonzero(data == 0)[0])
        raise UsageError(
            f"an id has a NUL character: {shown(_text_at(edges, data, place))}; no text of Postgres has one"
        )
    if (data >= 0x80).any() and not _is_utf8(edges, data):
        wrong = next(text for text in _each(edges, data) if not _decodes(text))
        raise UsageError(f"an id is not UTF-8: {shown(wrong)}; decode it before")


def _is_utf8(edges: Ints, data: npt.NDArray[np.uint8]) -> bool:
    begins = edges[:-1][edges[:-1] < edges[1:]]
    # A text that ends within a character would be mended by the next one.
    return not ((data[begins] & 0xC0) == 0x80).any() and _decodes(data.tobytes())


def _decodes(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _text_at(edges: Ints, data: npt.NDArray[np.uint8], place: int) -> bytes:
    row = int(np.searchsorted(edges, place, side="right")) - 1
    return data[edges[row] : edges[row + 1]].tobytes()


def _each(edges: Ints, data: npt.NDArray[np.uint8]) -> Iterator[bytes]:
    for row in range(len(edges) - 1):
        yield data[edges[row] : edges[row + 1]].tobytes()
