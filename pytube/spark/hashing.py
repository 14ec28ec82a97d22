"""xxhash64 by numpy, as Spark has it: many values at a time, each with a seed of its own.

The hash of several columns is that of the last one, with the hash of those before as its seed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

SEED: Final = np.uint64(42)
"""That Spark begins with."""

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_STRIPE = 32
"""Bytes that are taken at a time while there are as many."""


def of_int(words: Words, seed: np.uint64) -> Words:
    """Of numbers of 32 bits."""
    hashed = (seed + _P5 + np.uint64(4)) ^ (words * _P1)
    return _mixed(_rotated(hashed, 23) * _P2 + _P3)


def of_long(words: Words, seeds: Words) -> Words:
    """Of numbers of 64 bits."""
    hashed = (seeds + _P5 + np.uint64(8)) ^ _lane(words)
    return _mixed(_rotated(hashed, 27) * _P1 + _P4)


def of_words(words: Words, seeds: Words) -> Words:
    """Of so many bytes each: rows of whole words, fewer than four."""
    hashed = seeds + _P5 + np.uint64(8 * words.shape[1])
    for place in range(words.shape[1]):
        hashed = _rotated(hashed ^ _lane(words[:, place]), 27) * _P1 + _P4
    return _mixed(hashed)


def of_bytes(values: npt.NDArray[np.bytes_], lengths: npt.NDArray[np.int64], seeds: Words) -> Words:
    """Of bytes.

    Args:
        values: filled up with zeros to one width, a multiple of 8.
        lengths: of each, at most the width.
        seeds: as many.
    """
    words: Words = values.view("<u8").reshape(len(values), -1)
    taken = lengths - lengths % _STRIPE
    hashed = np.where(taken > 0, _stripes(words, lengths, seeds), seeds + _P5) + lengths.astype(np.uint64)
    for place in range(words.shape[1]):
        here = (taken <= 8 * place) & (8 * place + 8 <= lengths)
        next_ = _rotated(hashed ^ _lane(words[:, place]), 27) * _P1 + _P4
        hashed = np.where(here, next_, hashed)
    # Of a value that ends with a whole word none is left, and any word will do.
    last = words[np.arange(len(words)), np.minimum(lengths // 8, words.shape[1] - 1)]
    four = (lengths & 4) > 0
    low = last & np.uint64(0xFFFFFFFF)
    hashed = np.where(four, _rotated(hashed ^ (low * _P1), 23) * _P2 + _P3, hashed)
    last = np.where(four, last >> np.uint64(32), last)
    for number in range(3):
        byte = (last >> np.uint64(8 * number)) & np.uint64(0xFF)
        hashed = np.where((lengths & 3) > number, _rotated(hashed ^ (byte * _P5), 11) * _P1, hashed)
    return _mixed(hashed)


def _stripes(words: Words, lengths: npt.NDArray[np.int64], seeds: Words) -> Words:
    """What the whole stripes of each value come to; anything for those that have none."""
    lanes: list[Words] = [seeds + _P1 + _P2, seeds + _P2, seeds, seeds - _P1]
    for stripe in range(int(lengths.max(initial=0)) // _STRIPE):
        here = lengths >= _STRIPE * (stripe + 1)
        for number, lane in enumerate(lanes):
            next_ = _rotated(lane + words[:, 4 * stripe + number] * _P2, 31) * _P1
            lanes[number] = np.where(here, next_, lane)
    first, second, third, fourth = lanes
    hashed: Words = _rotated(first, 1) + _rotated(second, 7) + _rotated(third, 12) + _rotated(fourth, 18)
    for lane in lanes:
        hashed = (hashed ^ _lane(lane)) * _P1 + _P4
    return hashed


def _lane(words: Words) -> Words:
    return _rotated(words * _P2, 31) * _P1


def _rotated(words: Words, bits: int) -> Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _mixed(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(33))) * _P2
    words = (words ^ (words >> np.uint64(29))) * _P3
    return words ^ (words >> np.uint64(32))
